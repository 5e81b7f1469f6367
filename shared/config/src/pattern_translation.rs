//! Translates RE2's syntax to that of the `regex` crate.

/// Translates an expression from RE2's syntax to that of the `regex` crate: RE2 takes `\d`, `\w`,
/// `\s` and `\b` for ASCII only, takes some characters for themselves that are special in the
/// crate, and knows `\Q…\E`. The error says why RE2 refuses it: look-around, a back-reference, a
/// backslash at the end, or a class that is not closed. Other errors are left for the crate to
/// find.
pub(crate) fn translate(text: &str) -> Result<String, &'static str> {
    let characters: Vec<char> = text.chars().collect();
    let mut output = String::with_capacity(text.len() + 8);
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        at = match character {
            '\\' => escape(&characters, at, &mut output)?,
            '[' => class(&characters, at, &mut output)?,
            '{' if !starts_repetition(&characters, at) => {
                output.push_str(r"\{");
                at + 1
            }
            '(' => {
                check_group(&characters, at)?;
                output.push('(');
                at + 1
            }
            other => {
                output.push(other);
                at + 1
            }
        };
    }
    Ok(output)
}

/// Returns an error if the group that starts at this position (with its `(`) is look-around or a
/// back-reference. Any other group is accepted, even if it is malformed.
fn check_group(characters: &[char], at: usize) -> Result<(), &'static str> {
    let rest: String = characters.iter().skip(at).take(4).collect();
    if rest.starts_with("(?=")
        || rest.starts_with("(?!")
        || rest.starts_with("(?<=")
        || rest.starts_with("(?<!")
    {
        return Err("look-around is not supported; use \"negate: true\" with the plain expression");
    }
    if rest.starts_with("(?P=") {
        return Err("back-references are not supported");
    }
    Ok(())
}

/// Returns whether the `{` at this position starts `{n}`, `{n,}` or `{n,m}`.
fn starts_repetition(characters: &[char], at: usize) -> bool {
    let inside: String = characters.iter().skip(at + 1).take_while(|c| **c != '}').collect();
    let closed = characters.get(at + 1 + inside.chars().count()) == Some(&'}');
    let (low, high) = inside.split_once(',').unwrap_or((&inside, ""));
    closed && !low.is_empty() && low.chars().chain(high.chars()).all(|c| c.is_ascii_digit())
}

/// Translates the backslash at this position, which is outside a class, with what it escapes, and
/// appends the result to `output`; `\Q` takes the text up to its `\E` or the end. Returns the
/// position after it. A back-reference, and a backslash at the end, are errors.
fn escape(characters: &[char], at: usize, output: &mut String) -> Result<usize, &'static str> {
    let Some(&letter) = characters.get(at + 1) else {
        return Err("it ends in a backslash");
    };
    match letter {
        'd' => output.push_str("[0-9]"),
        'D' => output.push_str("[^0-9]"),
        'w' => output.push_str("[0-9A-Za-z_]"),
        'W' => output.push_str("[^0-9A-Za-z_]"),
        's' => output.push_str(r"[\t\n\f\r ]"),
        'S' => output.push_str(r"[^\t\n\f\r ]"),
        'b' => output.push_str(r"(?-u:\b)"),
        'B' => output.push_str(r"\B"),
        '<' | '>' => output.push(letter),
        '1'..='9' => return Err("back-references are not supported"),
        'Q' => {
            let mut next = at + 2;
            while let Some(&quoted) = characters.get(next) {
                if quoted == '\\' && characters.get(next + 1) == Some(&'E') {
                    return Ok(next + 2);
                }
                output.push_str(&regex::escape(&quoted.to_string()));
                next += 1;
            }
            return Ok(next);
        }
        other => {
            output.push('\\');
            output.push(other);
        }
    }
    Ok(at + 2)
}

/// Translates the character class that starts at this position (with its `[`) and appends it to
/// `output`. Returns the position after it. A class that is not closed, and a backslash at the end,
/// are errors.
fn class(characters: &[char], start: usize, output: &mut String) -> Result<usize, &'static str> {
    let mut at = start + 1;
    output.push('[');
    if characters.get(at) == Some(&'^') {
        output.push('^');
        at += 1;
    }
    if characters.get(at) == Some(&']') {
        output.push_str(r"\]");
        at += 1;
    }
    while let Some(&character) = characters.get(at) {
        match character {
            ']' => {
                output.push(']');
                return Ok(at + 1);
            }
            '[' if characters.get(at + 1) == Some(&':') => {
                let name: String = characters.iter().skip(at).take_while(|c| **c != ']').collect();
                output.push_str(&name);
                output.push(']');
                at += name.chars().count() + 1;
            }
            '[' | '&' | '~' => {
                output.push('\\');
                output.push(character);
                at += 1;
            }
            '-' if characters.get(at + 1) == Some(&'-') => {
                output.push_str(r"\-");
                at += 1;
            }
            '\\' => {
                let Some(&letter) = characters.get(at + 1) else {
                    return Err("it ends in a backslash");
                };
                match letter {
                    'd' => output.push_str("0-9"),
                    'D' => output.push_str("[^0-9]"),
                    'w' => output.push_str("0-9A-Za-z_"),
                    'W' => output.push_str("[^0-9A-Za-z_]"),
                    's' => output.push_str(r"\t\n\f\r "),
                    'S' => output.push_str(r"[^\t\n\f\r ]"),
                    '<' | '>' => output.push(letter),
                    other => {
                        output.push('\\');
                        output.push(other);
                    }
                }
                at += 2;
            }
            other => {
                output.push(other);
                at += 1;
            }
        }
    }
    Err("a character class is not closed")
}

#[cfg(test)]
mod tests {
    use crate::Pattern;

    /// Z4.2: constructs that RE2 and the crate read differently.
    #[test]
    fn syntax_of_re2_keeps_its_meaning() {
        let whole = |pattern: &str, text: &str| Pattern::new(pattern).unwrap().matches_whole(text);
        assert!(!whole(r"\d", "٣"), "digits are ASCII");
        assert!(!whole(r"[\w]", "ä"), "word characters are ASCII");
        assert!(whole(r"a{", "a{") && whole("a{,2}", "a{,2}") && whole("a{2}", "aa"));
        assert!(whole("[[]", "[") && whole("[a&&b]+", "a&b") && whole("[a~~b]+", "a~b"));
        assert!(whole("[[:alpha:]]+", "abc"));
        assert!(whole("[]a]+", "]a") && whole("[^]]", "x"));
        assert!(whole(r"\Qa.b\E+", "a.bbb"));
        assert!(whole(r"a\<b", "a<b"));
    }
}
