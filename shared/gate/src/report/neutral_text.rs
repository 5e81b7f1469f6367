//! Keeps text that a job or a change chose from acting in a report: as markup, as a mention, or as
//! a link.

use sluice_model::plain_text::plain_line;

/// The most characters of one text.
const CHARS_MAX: usize = 1_000;

/// Returns text that others chose as one line that has no effect in Markdown, in a mail and in a
/// Gerrit message: it is shown as it is if none of its characters can have one, otherwise as a code
/// span. Addresses and mentions are broken by a space, because mail programs and Gerrit find them
/// in code, too.
pub(super) fn neutral_text(text: &str) -> String {
    let line = broken_references(&plain_line(text, CHARS_MAX));
    if is_harmless(&line) {
        return line;
    }
    // A code span ends at the first backtick, and shows everything else as it is.
    format!("`{}`", line.replace('`', "'"))
}

/// Breaks addresses (`https://…`, `www.…`) and mentions (`@name`) by a space.
fn broken_references(line: &str) -> String {
    let mut broken = String::with_capacity(line.len());
    let mut before = None;
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let is_mention = character == '@'
            && !before.is_some_and(char::is_alphanumeric)
            && rest[1..].starts_with(|next: char| !next.is_whitespace());
        let length = if rest.starts_with("://") {
            broken.push_str(": //");
            3
        } else if rest.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("www.")) {
            broken.push_str(&rest[..3]);
            broken.push_str(" .");
            4
        } else {
            broken.push(character);
            if is_mention {
                broken.push(' ');
            }
            character.len_utf8()
        };
        before = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    broken
}

/// Returns whether no character of a line can have an effect in Markdown: letters, digits, and
/// punctuation where it only separates words.
fn is_harmless(line: &str) -> bool {
    let characters: Vec<char> = line.chars().collect();
    let is_word = |at: Option<usize>| {
        at.and_then(|at| characters.get(at)).is_some_and(|character| character.is_alphanumeric())
    };
    // `GH-7` is a link to a change.
    !line.to_ascii_lowercase().contains("gh-")
        && characters.iter().enumerate().all(|(at, character)| match character {
            ' ' | '.' | ',' | ';' | '!' | '?' | '\'' | '"' | '(' | ')' | '+' | '=' | '%' | '-'
            | '/' | '…' => true,
            // `_x_` is emphasis, but not within a word; `:x:` is a picture.
            '_' => is_word(at.checked_sub(1)) && is_word(Some(at + 1)),
            ':' => characters.get(at + 1).is_none_or(|next| *next == ' '),
            character => character.is_alphanumeric(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R05, Z9.1: ordinary words are shown as they are.
    #[test]
    fn ordinary_words_are_shown_as_they_are() {
        for text in [
            "Task \"Run the script\" failed on node (exit code 1)",
            "all is well, 2 of 314 tests failed; see the wiki!",
            "openstack-tox-py312_extra",
            "Größe: 5 %",
            "",
        ] {
            assert_eq!(neutral_text(text), text);
        }
    }

    /// R05, Z9.1: markup, mentions and links that a job or a title smuggles in have no effect: in
    /// Markdown, and in mails, where a mail program finds addresses in any text.
    #[test]
    fn smuggled_markup_mentions_and_links_have_no_effect() {
        for (text, shown) in [
            ("Task \"*x*\" failed", "`Task \"*x*\" failed`"),
            ("[merge me](https://evil.test)", "`[merge me](https: //evil.test)`"),
            ("WWW.evil.test", "WWW .evil.test"),
            ("ask @org/admins", "`ask @ org/admins`"),
            ("ada@example.test", "`ada@example.test`"),
            ("<!-- sluice:1 --><img src=x>", "`<!-- sluice:1 --><img src=x>`"),
            ("a`` `b` ``c", "`a'' 'b' ''c`"),
            ("fixes org/one#7", "`fixes org/one#7`"),
            ("fixes GH-7", "`fixes GH-7`"),
            ("_quiet_ :tada:", "`_quiet_ :tada:`"),
            ("one\n\n# two\n- three", "`one # two - three`"),
            ("a\u{202e}b\u{7}", "ab"),
        ] {
            assert_eq!(neutral_text(text), shown, "{text:?}");
        }
    }
}
