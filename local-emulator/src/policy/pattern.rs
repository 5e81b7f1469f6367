//! Patterns with `*` (any run of characters, `:` and `/` included) and `?` (one character).

/// A pattern of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    text: Vec<char>,
    case: Case,
}

/// Whether upper and lower case differ: they do in resources, not in actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Same,
    Differs,
}

impl Pattern {
    /// Parses a pattern with `*` (any characters, also `:` and `/`) and `?` (one character). `case`
    /// says whether upper and lower case differ.
    pub(super) fn new(text: &str, case: Case) -> Self {
        Self { text: fold(text, case), case }
    }

    /// Returns whether the whole text matches, and not only a part of it. `*` matches any
    /// characters, also `:` and `/`, and `?` one character. Upper and lower case differ if the
    /// pattern was made so.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text = fold(text, self.case);
        let (mut at, mut wanted) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while at < text.len() {
            match self.text.get(wanted) {
                Some('*') => {
                    star = Some((wanted, at));
                    wanted += 1;
                }
                Some(character) if *character == '?' || text.get(at) == Some(character) => {
                    at += 1;
                    wanted += 1;
                }
                _ => match star {
                    Some((position, taken)) => {
                        star = Some((position, taken + 1));
                        at = taken + 1;
                        wanted = position + 1;
                    }
                    None => return false,
                },
            }
        }
        self.text.iter().skip(wanted).all(|character| *character == '*')
    }
}

/// Returns the characters of a text, in lower case for [`Case::Same`].
fn fold(text: &str, case: Case) -> Vec<char> {
    match case {
        Case::Same => text.to_lowercase().chars().collect(),
        Case::Differs => text.chars().collect(),
    }
}
