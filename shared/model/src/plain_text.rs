//! Text that others wrote, made fit to be shown in one line.

/// Returns `text` as one line of at most `chars_max` characters: each run of white space becomes
/// one space, and control characters and those that change the direction or visibility of a text
/// are left out. A longer text is cut and ends with `…`.
pub fn plain_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    let mut chars_left = chars_max;
    let mut is_space_due = false;
    for character in text.chars() {
        if character.is_whitespace() {
            is_space_due = !line.is_empty();
            continue;
        }
        if is_hidden(character) {
            continue;
        }
        let needed = 1 + usize::from(is_space_due);
        if chars_left < needed {
            // The last character makes room for the sign.
            if chars_left == 0 {
                line.pop();
            }
            line.push('…');
            return line;
        }
        chars_left -= needed;
        if std::mem::take(&mut is_space_due) {
            line.push(' ');
        }
        line.push(character);
    }
    line
}

/// Returns whether a character is shown as nothing, or changes how those around it are shown.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::plain_line;

    /// Z9.1: a text that a job chose cannot break a line, colour a terminal or reverse a text.
    #[test]
    fn a_text_becomes_one_bounded_visible_line() {
        assert_eq!(plain_line("  one\n\ttwo \r\n three ", 99), "one two three");
        assert_eq!(plain_line("a\u{1b}[31mb\u{202e}c\u{200b}d", 99), "a[31mbcd");
        assert_eq!(plain_line("abcdef", 6), "abcdef");
        assert_eq!(plain_line("abcdefg", 6), "abcde…");
        assert_eq!(plain_line("abcde fg", 6), "abcde…");
        assert_eq!(plain_line("ääääää", 3), "ää…");
        assert_eq!(plain_line("", 3), "");
    }
}
