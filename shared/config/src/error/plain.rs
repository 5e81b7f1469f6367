//! Escapes text from files for display, so that no name can control a terminal or reorder a line.

use std::fmt::Write as _;

/// Returns the text with invisible characters escaped (`\u{1b}`): control characters except line
/// feeds and tabs, directional marks, U+FFFE and U+FFFF.
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

/// Returns a JSON document with invisible characters escaped, except line feeds and tabs. The
/// document keeps its meaning. It must have none of the others outside of texts, in particular no
/// carriage return, as serde writes it; otherwise the result is not valid JSON.
pub fn plain_json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for c in document.chars() {
        // All of these are a single UTF-16 unit, and they only occur within strings.
        if is_hidden(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a line with one visible symbol for each invisible character, so that columns stay the
/// same. Tabs stay.
pub(super) fn line(text: &str) -> String {
    let sign = |c: char| match u32::from(c) {
        // Each control character has a symbol.
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    };
    text.chars().map(|c| if is_hidden(c) { sign(c) } else { c }).collect()
}

/// Returns whether a character affects the display without being visible: control characters except
/// line feeds and tabs, directional marks, U+FFFE and U+FFFF.
fn is_hidden(c: char) -> bool {
    let is_directional = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || is_directional
        || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.6: text from a file is displayed and controls nothing.
    #[test]
    fn terminal_control_characters_are_shown_escaped() {
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
