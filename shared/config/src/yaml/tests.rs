//! Results of PyYAML 6.0.3 (`yaml.safe_load`), written down.

use super::*;
use serde_json::json;

fn json_of(text: &str) -> Json {
    compose(text).unwrap_or_else(|cause| panic!("{text:?}: {cause}")).to_json()
}

/// Z2.4: every scalar means what it means to PyYAML.
#[test]
fn scalars_mean_what_pyyaml_reads() {
    for (text, expected) in [
        ("yes", json!(true)),
        ("No", json!(false)),
        ("ON", json!(true)),
        ("y", json!("y")),
        ("010", json!(8)),
        ("08", json!("08")),
        ("0o17", json!("0o17")),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        ("-0", json!(0)),
        ("1:30", json!(90)),
        ("190:20:30", json!(685_230)),
        ("1:60", json!("1:60")),
        ("0:0", json!("0:0")),
        ("-1:30", json!(-90)),
        ("1.5", json!(1.5)),
        ("1e3", json!("1e3")),
        ("1.e+3", json!(1000.0)),
        (".5", json!(0.5)),
        ("-.5", json!("-.5")),
        ("1.", json!(1.0)),
        ("1_0.5", json!(10.5)),
        ("1:30.5", json!(90.5)),
        (".inf", json!("inf")),
        (".nan", json!("nan")),
        ("~", json!(null)),
        ("Null", json!(null)),
        ("", json!(null)),
        ("2001-01-01", json!("2001-01-01")),
        ("'yes'", json!("yes")),
        ("!!str 010", json!("010")),
        ("!!int '010'", json!(8)),
        ("!!float 1", json!(1.0)),
        ("+12", json!(12)),
        ("_1", json!("_1")),
        ("12e03", json!("12e03")),
        ("1,000", json!("1,000")),
        ("a: !!str", json!({"a": ""})),
        ("\"a\\u263a\"", json!("a☺")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        (">-\n  a\n  b\n\n  c\n", json!("a b\nc")),
        ("- - a\n  - b\n- c", json!([["a", "b"], "c"])),
    ] {
        assert_eq!(json_of(text), expected, "{text:?}");
    }
}

/// Z2.4: an integer of any size keeps its digits, whatever base it is written in; what is too long
/// for Python is an error.
#[test]
fn integers_of_any_size_keep_their_digits() {
    let value = |text: &str| compose(text).unwrap().value;
    for (text, digits) in [
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("+18_446_744_073_709_551_616", "18446744073709551616"),
        ("0xffffffffffffffffffffffffffffffffff", "87112285931760246646623899502532662132735"),
        (
            "0b1000000000000000000000000000000000000000000000000000000000000000",
            "9223372036854775808",
        ),
        ("-01000000000000000000000000", "-4722366482869645213696"),
        ("100000000000000000000:30", "6000000000000000000030"),
        ("1000000000000000000000000000000", "1000000000000000000000000000000"),
        ("!!int '10000000000000000000'", "10000000000000000000"),
    ] {
        assert_eq!(value(text), Value::Long(digits.to_owned()), "{text}");
    }
    assert_eq!(value("9223372036854775807"), Value::Int(i64::MAX));
    assert_eq!(value("-9223372036854775808"), Value::Int(i64::MIN));
    assert_eq!(value("0x0000000000000000000000000000000000000001"), Value::Int(1));
    assert_eq!(json_of("18446744073709551615").to_string(), "18446744073709551615");
    assert_eq!(json_of("{99999999999999999999: a}"), json!({"99999999999999999999": "a"}));
    assert!(compose_once("{99999999999999999999: a, 99999999999999999999: b}").is_err());
    let long = compose(&format!("a: [1, {}]", "9".repeat(4_301))).unwrap_err();
    assert!(long.mark == Mark(1, 8) && long.message.contains("at most 4300 digits"), "{long}");
    let held = compose(&format!("[{0}, 1, {{a: !override [{0}]}}]", u64::MAX)).unwrap();
    assert_eq!(held.first_unheld(), None);
    let unheld = compose("[1, {a: 99999999999999999999}]").unwrap();
    assert_eq!(unheld.first_unheld().map(|node| node.start), Some(Mark(1, 9)));
}

/// Z2.4: what PyYAML makes a date of is one, and no text; what only looks like one is a text.
#[test]
fn dates_and_texts_are_distinguished() {
    let value = |text: &str| compose(text).unwrap().value;
    for date in [
        "2001-01-01",
        "2001-1-1 2:03:04",
        "2001-12-14t21:59:43.10-05:00",
        "2001-12-14 21:59:43.10 -5",
        "2001-12-15T02:59:43.1Z",
        "!!timestamp '2001-01-01'",
    ] {
        assert!(matches!(value(date), Value::Date(_)), "{date}: {:?}", value(date));
    }
    for text in [
        "2001-1-1",
        "2001-01",
        "2001-01-01-a",
        "'2001-01-01'",
        "!!str 2001-01-01",
        "2001-01-01 10:00",
        "v2001-01-01",
    ] {
        assert!(matches!(value(text), Value::Text(_)), "{text}: {:?}", value(text));
    }
    assert!(compose("!!timestamp today").unwrap_err().message.contains("is no date"));
}

/// C16: the parser panics on these texts, but no file may stop a function.
#[test]
fn what_the_reader_panics_at_is_a_mistake_at_its_place() {
    for text in ["a: 1\nb: [!e*e]\n", "a: 1\nb: [!override, c]\n"] {
        let mistake = compose(text).unwrap_err();
        assert_eq!(mistake.mark.line(), 2, "{text}: {mistake}");
    }
}

/// Z2.4
#[test]
fn merge_keys_and_duplicates_follow_pyyaml() {
    assert_eq!(json_of("a: &x {b: 1}\nc: {<<: *x, b: 2, d: 3}")["c"], json!({"b": 2, "d": 3}));
    assert_eq!(
        json_of("a: &x {b: 1}\ny: &y {b: 5, e: 6}\nc: {d: 3, <<: [*x, *y]}")["c"],
        json!({"b": 1, "e": 6, "d": 3})
    );
    assert_eq!(json_of("{a: 1, a: 2, b: 3}"), json!({"a": 2, "b": 3}));
    assert_eq!(json_of("{1: a, true: b, 1.0: c}"), json!({"1": "c"}));
    assert_eq!(json_of("'<<': {a: 1}"), json!({"<<": {"a": 1}}));
    assert_eq!(json_of("a: &b c\n*b : d"), json!({"a": "c", "c": "d"}));
}

/// Z2.4: `<<` takes mappings, also tagged ones, and lists of them, but no lists in lists.
#[test]
fn only_mappings_are_merged() {
    for text in
        ["<<: !override {a: 1}", "<<: !inherit [{a: 1}]", "<<: [!override {a: 1}]", "<<: [{a: 1}]"]
    {
        assert_eq!(json_of(text), json!({"a": 1}), "{text}");
    }
    for text in ["<<: [[{a: 1}]]", "<<: [!override [{a: 1}]]", "<<: [!unsafe {a: 1}]"] {
        let refused = compose(text).unwrap_err();
        assert!(refused.message.contains("expected a mapping for merging"), "{text}: {refused}");
    }
}

/// Z2.4, Z6.6: configuration with a key that is there twice is refused, as Zuul refuses it; what
/// `<<` brings in may be said again.
#[test]
fn a_duplicate_key_is_reported_at_its_second_position() {
    let refused = compose_once("- job:\n    name: a\n    run: b\n    run: c\n").unwrap_err();
    assert_eq!(
        (refused.mark, refused.message.contains("\"run\" appears more than once")),
        (Mark(4, 5), true),
        "{refused}"
    );
    assert!(refused.message.contains("first at line 3"), "{refused}");
    for twice in ["{a: 1, b: {c: 1, c: 1}}", "{1: a, 1: b}", "{a: 1, 'a': 2}"] {
        assert!(compose_once(twice).is_err() && compose(twice).is_ok(), "{twice}");
    }
    for once in [
        "a: &x {b: 1}\nc: {<<: *x, b: 2}",
        "a: &x {b: 1}\ny: &y {b: 2}\nc: {<<: *x, <<: *y}",
        "[{a: 1}, {a: 1}]",
    ] {
        assert_eq!(compose_once(once).unwrap(), compose(once).unwrap(), "{once}");
    }
}

/// Z5.1: ciphertexts keep their tag, in both forms.
#[test]
fn tags_of_the_language_are_kept() {
    assert_eq!(json_of("!encrypted/pkcs1 abc"), json!({"!encrypted/pkcs1": "abc"}));
    assert_eq!(
        json_of("a: !encrypted/pkcs1-oaep\n  - x\n  - y\n"),
        json!({"a": {"!encrypted/pkcs1-oaep": ["x", "y"]}})
    );
    assert_eq!(json_of("!override [a]"), json!({"!override": ["a"]}));
    assert_eq!(json_of("!unsafe '{{ x }}'"), json!({"!unsafe": "{{ x }}"}));
}

/// Z2.4: lists whose order counts, or whose keys may repeat, are lists of pairs, as they arrive
/// from PyYAML as JSON.
#[test]
fn ordered_mappings_are_lists_of_pairs() {
    for (text, expected) in [
        ("!!omap [a: 1, b: [2]]", json!([["a", 1], ["b", [2]]])),
        ("a: !!omap\n  - x: y\n  - z:\n", json!({"a": [["x", "y"], ["z", null]]})),
        ("!!pairs [a: 1, a: 2]", json!([["a", 1], ["a", 2]])),
        ("!<tag:yaml.org,2002:pairs> [{1: b}]", json!([[1, "b"]])),
        ("!!omap []", json!([])),
        ("- &x !!pairs [a: b]\n- *x\n", json!([[["a", "b"]], [["a", "b"]]])),
    ] {
        assert_eq!(json_of(text), expected, "{text:?}");
    }
    for (text, line, column) in [
        ("!!omap [a]", 1, 9),
        ("- !!pairs\n  - a: 1\n  - {b: 2, c: 3}\n", 3, 5),
        ("!!pairs [{}]", 1, 10),
        ("a: !!omap {b: c}", 1, 4),
        ("a: !!pairs b", 1, 4),
    ] {
        let refused = compose(text).unwrap_err();
        assert!(refused.message.contains("one key"), "{text}: {refused}");
        assert_eq!(refused.mark, Mark(line, column), "{text}: {refused}");
    }
}

/// Z2.4, Z6.6: bytes and sets, which are no JSON, are refused at their place with what to write in
/// their stead.
#[test]
fn bytes_and_sets_are_refused_with_what_to_write_instead() {
    for (text, expected) in [
        ("- vars: {a: !!binary aGVsbG8=}\n", "leave the tag out"),
        ("- vars: {a: !!set {b, c}}\n", "write a list"),
        ("- vars: {a: !!set [b, c]}\n", "write a list"),
    ] {
        let refused = compose_once(text).unwrap_err();
        assert!(
            refused.message.contains(expected) && !refused.message.contains("aGVs"),
            "{text}: {refused}"
        );
        assert_eq!(refused.mark, Mark(1, 13), "{text}");
    }
}

/// C07: broken YAML is refused with its place.
#[test]
fn mistakes_name_their_place() {
    let place = |text: &str| {
        let cause = compose(text).unwrap_err();
        assert!(!cause.message.is_empty());
        (cause.mark.line(), cause.mark.column())
    };
    assert_eq!(place("a: b: c"), (1, 5));
    assert_eq!(place("\t- a"), (1, 1));
    assert_eq!(place("- a\n -b: c"), (2, 4));
    assert_eq!(place("--- a\n--- b"), (2, 1));
    assert_eq!(place("a: *b"), (1, 4));
    assert_eq!(place("- &a 1\n- &a 2"), (2, 3));
    assert_eq!(place("{<<: 1}"), (1, 6));
    assert_eq!(place("? [a]\n: b"), (1, 3));
    assert_eq!(place("!foo bar"), (1, 1));
    assert_eq!(place("a: !!python/object x"), (1, 4));
    assert_eq!(place("0b_"), (1, 1));
    assert_eq!(place("&a [*a]"), (1, 5));
}

/// Z6.6: of a list that breaks off the members that were finished are there to be looked through,
/// and never a part of one.
#[test]
fn a_list_that_breaks_off_keeps_its_finished_members() {
    for (text, kept) in [
        ("- a\n- b: [1]\n- c: [2\n", Some(json!(["a", {"b": [1]}]))),
        ("- a: 1\n  b: [\n", Some(json!([]))),
        ("- a\n--- b\n", Some(json!(["a"]))),
        ("a: 1\nb: [\n", None),
        // What stands in one line with a character that YAML does not have is not read, nor what
        // may go on there.
        ("- a\n- b\n  c\n- d\u{1}\n", Some(json!(["a"]))),
        ("- a\n- [b,\n  c\u{1}]\n", Some(json!(["a"]))),
        ("a: 1\nb: \u{1}\n", None),
        ("\u{1}", None),
    ] {
        let (root, mistakes) = compose_all(text);
        assert_eq!(
            (root.map(|root| root.to_json()), mistakes.len()),
            (kept, 1),
            "{text:?}: {mistakes:?}"
        );
        assert!(compose(text).is_err() && compose_once(text).is_err(), "{text:?}");
    }
}

/// Z6.6: the content of an unknown or ambiguous alias is unknown, and its list member is left out.
#[test]
fn a_member_with_an_alias_that_stands_for_nothing_known_is_left_out() {
    for (text, kept, places) in [
        ("- a\n- *b\n- c\n", json!(["a", "c"]), vec![Mark(2, 3)]),
        (
            "- [b, *c]\n- {<<: *d, e: 1, <<: [*f]}\n- g\n",
            json!(["g"]),
            vec![Mark(1, 7), Mark(2, 8), Mark(2, 23)],
        ),
        ("- &a x\n- &a y\n- *a\n- z\n", json!(["x", "y", "z"]), vec![Mark(2, 3)]),
        ("- &a [*b]\n- {<<: *a}\n- *a\n- c\n", json!(["c"]), vec![Mark(1, 7)]),
        ("- &a [*a]\n- b\n", json!(["b"]), vec![Mark(1, 7)]),
    ] {
        let (root, mistakes) = compose_all(text);
        let found: Vec<Mark> = mistakes.iter().map(|mistake| mistake.mark).collect();
        assert_eq!(
            (root.map(|root| root.to_json()), found),
            (Some(kept), places),
            "{text:?}: {mistakes:?}"
        );
        assert!(compose(text).is_err() && compose_once(text).is_err(), "{text:?}");
    }
}

/// Z5.1: a ciphertext of an unsupported scheme is reported when it is parsed, not by a job.
#[test]
fn ciphertexts_of_unknown_schemes_are_refused() {
    for value in [
        "!encrypted/rot13 hush",
        "!encrypted/ hush",
        "!encrypted/pkcs1-v2 [hush]",
        "!encrypted/rot13 {b: hush}",
    ] {
        let refused = compose(&format!("a: {value}")).unwrap_err();
        let expected = "could not determine a constructor for the tag \"!encrypted/";
        assert!(
            refused.message.starts_with(expected) && !refused.message.contains("hush"),
            "{value}: {}",
            refused.message
        );
        assert_eq!(refused.mark.line(), 1);
    }
    for value in ["!encrypted/pkcs1 aHVzaA==", "!encrypted/pkcs1-oaep [aHVz, aA==]"] {
        assert!(compose(&format!("a: {value}")).is_ok(), "{value}");
    }
}

/// C07: a text cannot make us spend without bound.
#[test]
fn bombs_are_refused() {
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    assert!(compose(&deep).unwrap_err().message.contains("nested"));
    let around = |lists: usize| compose(&("[".repeat(lists) + "x" + &"]".repeat(lists)));
    assert!(around(100).is_ok());
    assert!(around(101).unwrap_err().message.contains("nested more than 100 deep"));
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        laughs += &format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", "));
    }
    assert!(compose(&laughs).unwrap_err().message.contains("aliases"));
}

/// Z6.6: marks let an error point at a line.
#[test]
fn nodes_know_their_place() {
    let root = compose("- job:\n    name: a\n").unwrap();
    let job = root.as_list().unwrap()[0].get("job").unwrap();
    assert_eq!(
        (job.start, job.get("name").unwrap().start, job.get("name").unwrap().end),
        (Mark(2, 5), Mark(2, 11), Mark(2, 12))
    );
    let stored = serde_json::to_string(&root).unwrap();
    assert_eq!(serde_json::from_str::<Node>(&stored).unwrap(), root);
}

/// C07: a short text does not become gigabytes by repeating a long one.
#[test]
fn long_texts_repeated_by_aliases_are_counted_before_they_are_copied() {
    let long = "x".repeat(1 << 20);
    let text = format!("- &a \"{long}\"\n{}", "- *a\n".repeat(100));
    let refused = compose(&text).unwrap_err();
    assert!(refused.message.contains("those repeated by aliases included"), "{}", refused.message);
    assert!(compose(&format!("- &a \"{long}\"\n{}", "- *a\n".repeat(10))).is_ok());
}
