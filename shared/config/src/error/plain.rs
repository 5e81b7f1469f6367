//! Texts out of files, made fit to be shown: nothing in a name may steer a terminal or reorder a
//! line.

use std::fmt::Write as _;

/// Returns a text with every character escaped that is none to be seen (`\u{1b}`); line breaks and
/// tabs stay.
pub fn plain(text: String) -> String {
    if !text.contains(is_hidden) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a JSON document with the same characters escaped as JSON does it: what it says stays the
/// same.
pub fn plain_json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for c in document.chars() {
        // None of them is longer in UTF-16, and none stands outside of a text.
        if is_hidden(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a line with a sign for every character that is none to be seen, so that columns stay
/// where they are.
pub(super) fn line(text: &str) -> String {
    let sign = |c: char| match u32::from(c) {
        // Each control character has a picture.
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    };
    text.chars().map(|c| if is_hidden(c) { sign(c) } else { c }).collect()
}

/// Returns whether a character steers what is shown and is not shown itself: control characters,
/// marks of direction, and what is no character.
fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || turns || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.6: what a file says is shown and steers nothing.
    #[test]
    fn what_steers_a_terminal_is_shown_as_what_it_is() {
        assert_eq!(plain("a job ä\n\tx".to_owned()), "a job ä\n\tx");
        assert_eq!(
            plain("\u{1b}[31mred\r\u{9b}\u{202e}".to_owned()),
            "\\u{1b}[31mred\\u{d}\\u{9b}\\u{202e}"
        );
        let name = "\u{7f}\u{9b}\u{202e}ä\u{1b}";
        let document = plain_json(&serde_json::json!({"name": name}).to_string());
        assert_eq!(document, "{\"name\":\"\\u007f\\u009b\\u202eä\\u001b\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&document).unwrap()["name"], name);
        let shown = line("a\u{1b}[0m\tb\u{7f}\u{fffe}");
        assert_eq!(shown, "a␛[0m\tb␡\u{fffd}");
    }
}
