//! Fuzz tests: stored files, damaged at random. Nothing may panic or use unbounded memory.
//!
//! 400 cases run with the other tests; `make fuzz` runs many more with a new seed, and `tests/fuzz`
//! searches for texts with new code coverage. A failing text is shrunk and printed: store it in
//! `corpus`, where both start.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod survive;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluice_config::fragment::{Trust, parse};
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::{Connections, Driver, parse_main, yaml};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// The maximum size of a damaged text in bytes.
const TEXT_MAX: usize = 20_000;
/// The maximum memory of this process in kilobytes, including the most that a text may request (a
/// million values).
const MEMORY_MAX_KILOBYTES: u64 = 1_200_000;
/// Tokens of the language, inserted at random.
const WORDS: [&str; 36] = [
    "- ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "!override ",
    "!encrypted/pkcs1-oaep ",
    "!!int ",
    "? ",
    "| ",
    "> ",
    "\n",
    "\n  ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "null",
    "~",
    "yes",
    "1:30",
    "0o17",
    "name: ",
    "parent: ",
    "^(",
    ".*",
    "\u{feff}",
    "\u{85}",
];

static CORPUS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
});

/// One kind of damage.
#[derive(Debug, Clone)]
enum Damage {
    Insert(Index, &'static str),
    Replace(Index, char),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    /// Continues with the rest of another file.
    Splice(Index, Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), select(&WORDS[..])).prop_map(|(place, word)| Damage::Insert(place, word)),
        2 => (any::<Index>(), any::<char>()).prop_map(|(place, sign)| Damage::Replace(place, sign)),
        2 => (any::<Index>(), 1..40usize).prop_map(|(place, length)| Damage::Remove(place, length)),
        2 => (any::<Index>(), 1..60usize, 2..40usize).prop_map(|(place, length, times)| Damage::Repeat(place, length, times)),
        1 => (any::<Index>(), any::<Index>(), any::<Index>()).prop_map(|(place, file, from)| Damage::Splice(place, file, from)),
    ]
}

fn damaged() -> impl Strategy<Value = String> {
    (any::<Index>(), prop::collection::vec(damage(), 0..12)).prop_map(|(file, damages)| {
        let mut signs: Vec<char> = file.get(&CORPUS).chars().collect();
        for damage in damages {
            let whole = signs.len() + 1;
            match damage {
                Damage::Insert(place, word) => {
                    let place = place.index(whole);
                    signs.splice(place..place, word.chars());
                }
                Damage::Replace(place, sign) => {
                    let place = place.index(whole).min(signs.len().saturating_sub(1));
                    signs.splice(place..(place + 1).min(whole - 1), [sign]);
                }
                Damage::Remove(place, length) => {
                    let place = place.index(whole);
                    signs.drain(place..(place + length).min(whole - 1));
                }
                Damage::Repeat(place, length, times) => {
                    let place = place.index(whole);
                    let part: Vec<char> =
                        signs[place..(place + length).min(whole - 1)].repeat(times);
                    signs.splice(place..place, part);
                }
                Damage::Splice(place, file, from) => {
                    let other: Vec<char> = file.get(&CORPUS).chars().collect();
                    signs.truncate(place.index(whole));
                    signs.extend(&other[from.index(other.len() + 1)..]);
                }
            }
            signs.truncate(TEXT_MAX);
        }
        signs.into_iter().collect()
    })
}

/// Z6.1: the corpus has attributes of every driver, so that their parsers are covered.
#[test]
fn the_corpus_has_attributes_of_every_driver() {
    let of_tenant = |number: usize| {
        let connections = survive::connections();
        let text = include_str!("corpus/drivers.yaml");
        let fragments =
            vec![Arc::new(parse(&survive::file(&connections, "org/config", Trust::Config, text)))];
        let tenant = survive::tenant(&connections, number);
        Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments })
    };
    let layout = of_tenant(0);
    assert!(layout.errors().is_empty(), "{:#?}", layout.errors());
    let pipeline = layout.pipeline("check").unwrap();
    let triggers: BTreeSet<&str> =
        pipeline.triggers.iter().map(|one| one.connection.as_str()).collect();
    let reporters: BTreeSet<&str> =
        pipeline.reporters.all().map(|one| one.connection.as_str()).collect();
    let filters =
        pipeline.require.iter().chain(&pipeline.reject).map(|one| one.connection.as_str());
    let found = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(found(triggers), "gerrit git github gitlab pagure timer zuul");
    assert_eq!(found(reporters), "elasticsearch gerrit github gitlab mqtt pagure smtp sql zuul");
    assert_eq!(found(filters.collect()), "gerrit gitlab");
    // A tenant with fewer connections has no such pipeline.
    for number in 1..3 {
        assert!(of_tenant(number).pipeline("check").is_none(), "tenant {number}");
    }
}

fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or(0)
}

proptest! {
    /// Limits against bombs and nesting hold for any text.
    #[test]
    fn the_composer_survives_any_text(text in damaged()) {
        let _ = yaml::compose(&text);
        prop_assert!(peak_kilobytes() < MEMORY_MAX_KILOBYTES, "it took {} KB", peak_kilobytes());
    }

    /// C16: an invalid repository does not break the tenant, which can be loaded, stored, opened
    /// and frozen.
    #[test]
    fn the_loader_survives_any_files(main in damaged(), trusted in damaged(), untrusted in damaged(), proposed in damaged()) {
        survive::load(&main, &trusted, &untrusted, &proposed);
        prop_assert!(peak_kilobytes() < MEMORY_MAX_KILOBYTES, "it took {} KB", peak_kilobytes());
    }

    /// Damaged bytes of a stored layout are refused or opened, without a panic.
    #[test]
    fn damaged_bytes_of_a_layout_cause_no_panic(places in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6), end in any::<Index>()) {
        static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let connections = Connections::new().with("github", Driver::GitHub, "github.com");
            let plain = "- tenant: {name: one, source: {github: {config-projects: [org/config]}}}";
            let tenant = parse_main("main.yaml", plain, &connections).0.tenants.remove(0);
            let text = "- job: {name: base, parent: null, vars: {a: [1, 2]}}\n- job: {name: a}\n";
            let fragments = vec![Arc::new(parse(&survive::file(&connections, "org/config", Trust::Config, text)))];
            Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments }).to_bytes()
        });
        let mut bytes = BYTES.clone();
        for (place, byte) in places {
            *place.get_mut(&mut bytes) = byte;
        }
        let _ = Layout::from_bytes(&bytes);
        let _ = Layout::from_bytes(&bytes[..end.index(bytes.len())]);
    }
}
