//! Checks that code, comments, messages and documents use the terms of the glossary: a short list
//! of words that never name the actor or the thing is refused everywhere.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

/// Words and phrases that are refused, in any case, in identifiers, comments, texts and documents.
/// They are written in two parts so that this file passes its own test.
const REFUSED: &[&str] = &[
    concat!("to", "ld"),
    concat!("te", "lls"),
    concat!("he", "ard"),
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("an", "ew"),
    concat!("b", "y now"),
    concat!("o", "f late"),
    concat!("le", "ts go"),
    concat!("let g", "o of"),
];

/// Files in which a refused word is allowed, each with the reason.
const ALLOWED: &[(&str, &str)] =
    &[("Cargo.lock", "names of external packages"), ("LICENSE", "the text of the licence")];

/// Returns the refused words in a line. Underscores and changes of case separate words, so that
/// parts of an identifier are found; letters of a longer word are not.
fn refused_words(line: &str) -> Vec<&'static str> {
    let mut spaced = String::with_capacity(line.len() + 8);
    let mut previous = ' ';
    for sign in line.chars() {
        if sign.is_uppercase() && previous.is_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if sign.is_alphabetic() || sign == '\'' { sign } else { ' ' });
        previous = sign;
    }
    let words: Vec<String> = spaced.split_whitespace().map(str::to_lowercase).collect();
    let text = format!(" {} ", words.join(" "));
    REFUSED.iter().copied().filter(|refused| text.contains(&format!(" {refused} "))).collect()
}

#[test]
fn no_file_uses_a_refused_word() {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    let mut found = Vec::new();
    for (path, text) in files {
        if ALLOWED.iter().any(|(allowed, _)| *allowed == path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for word in refused_words(line) {
                found.push(format!("{path}:{}: `{word}` in: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "name the actor and the thing (docs/glossary.md) instead of:\n{}",
        found.join("\n")
    );
}

#[test]
fn parts_of_identifiers_are_found_and_parts_of_words_are_not() {
    let (first, body) = (REFUSED[0], REFUSED[4]);
    let capital = format!("{}{}", first[..1].to_uppercase(), &first[1..]);
    assert_eq!(refused_words(&format!("let was_{first}_once = 1;")), [first]);
    assert_eq!(refused_words(&format!("struct {capital}Event;")), [first]);
    assert_eq!(refused_words(&format!("// {body}'s turn, {body}.")), [body]);
    assert!(refused_words("retold stories of a Stoldberg").is_empty());
}
