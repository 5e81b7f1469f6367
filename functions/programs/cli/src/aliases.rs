//! Other forms of commands: those of zuul-client, zuul-admin and zuul-scheduler, and the short ones
//! of developers and operators. One table rewrites them to the form `sluice NOUN VERB`, before the
//! command line is parsed.

use std::ffi::{OsStr, OsString};

/// When an alias applies, beyond its first words.
#[derive(Debug, Clone, Copy)]
enum Condition {
    /// Always.
    Always,
    /// The next word is an option other than `--help`, or there is none: the first word is also a
    /// noun, which is followed by a verb.
    NoVerb,
    /// The next word is an option other than `--help`.
    Options,
    /// This option is given.
    Has(&'static str),
}

/// What happens to an option of an alias.
#[derive(Debug, Clone, Copy)]
enum OptionChange {
    /// Its value becomes an operand. Operands are in the order of the table, before other words.
    Operand,
    /// It gets these words, which are an option or an operand; its value follows them.
    Renamed(&'static str),
    /// It is left out; it has no value.
    Omitted,
}

/// A form of a command, and the command that it means.
#[derive(Debug)]
struct Alias {
    /// The first words.
    words: &'static [&'static str],
    condition: Condition,
    /// The noun and the verb, with options that the alias implies.
    canonical: &'static [&'static str],
    options: &'static [(&'static str, OptionChange)],
}

/// Creates an alias whose options are those of the command.
const fn same(words: &'static [&'static str], canonical: &'static [&'static str]) -> Alias {
    Alias { words, condition: Condition::Always, canonical, options: &[] }
}

use Condition::{Always, Has, NoVerb, Options};
use OptionChange::{Omitted, Operand, Renamed};

const REF: (&str, OptionChange) = ("--ref", Operand);
const SNAPSHOT: (&str, OptionChange) = ("--tenant", Renamed("--snapshot"));

/// The aliases. The first one that applies counts.
const ALIASES: &[Alias] = &[
    // zuul-client
    Alias {
        words: &["autohold"],
        condition: Options,
        canonical: &["autohold", "create"],
        options: &[],
    },
    same(&["autohold-delete"], &["autohold", "delete"]),
    same(&["autohold-info"], &["autohold", "show"]),
    same(&["autohold-list"], &["autohold", "list"]),
    Alias {
        words: &["enqueue"],
        condition: Always,
        canonical: &["change", "enqueue"],
        options: &[("--change", Operand)],
    },
    Alias {
        words: &["enqueue-ref"],
        condition: Always,
        canonical: &["ref", "enqueue"],
        options: &[REF],
    },
    Alias {
        words: &["dequeue"],
        condition: Has("--ref"),
        canonical: &["ref", "dequeue"],
        options: &[REF],
    },
    Alias {
        words: &["dequeue"],
        condition: Always,
        canonical: &["change", "dequeue"],
        options: &[("--change", Operand)],
    },
    Alias {
        words: &["promote"],
        condition: Always,
        canonical: &["change", "promote"],
        options: &[("--changes", Operand)],
    },
    Alias {
        words: &["manage-events"],
        condition: Always,
        canonical: &["tenant", "set-state"],
        options: &[
            ("--pause-trigger", Renamed("pause-trigger")),
            ("--discard-trigger", Renamed("discard-trigger")),
            ("--pause-result", Renamed("pause-result")),
        ],
    },
    Alias {
        words: &["encrypt"],
        condition: Always,
        canonical: &["secret", "encrypt"],
        options: &[("--project", Operand), ("--infile", Operand), ("--no-strip", Omitted)],
    },
    same(&["builds"], &["build", "list"]),
    Alias {
        words: &["build-info"],
        condition: Has("--show-job-output"),
        canonical: &["build", "log"],
        options: &[("--uuid", Operand), ("--show-job-output", Omitted)],
    },
    Alias {
        words: &["build-info"],
        condition: Always,
        canonical: &["build", "show"],
        options: &[("--uuid", Operand), ("--show-artifacts", Omitted)],
    },
    same(&["job-graph"], &["job", "graph"]),
    Alias {
        words: &["freeze-job"],
        condition: Always,
        canonical: &["job", "freeze"],
        options: &[("--job", Operand)],
    },
    same(&["node-list"], &["node", "list"]),
    same(&["node-set-state"], &["node", "set-state"]),
    same(&["nodeset-request-list"], &["request", "list"]),
    same(&["nodeset-request-delete"], &["request", "delete"]),
    // zuul-admin and zuul-scheduler
    Alias {
        words: &["create-auth-token"],
        condition: Always,
        canonical: &["token", "create", "--admin"],
        options: &[("--auth-config", Renamed("--authenticator"))],
    },
    same(&["tenant-conf-check"], &["config", "check"]),
    same(&["tenant-reconfigure"], &["tenant", "reload"]),
    same(&["full-reconfigure"], &["tenant", "reload", "--all"]),
    // short forms
    Alias {
        words: &["check"],
        condition: Always,
        canonical: &["config", "check"],
        options: &[SNAPSHOT],
    },
    Alias {
        words: &["freeze"],
        condition: Always,
        canonical: &["config", "freeze"],
        options: &[SNAPSHOT],
    },
    same(&["explain"], &["change", "explain"]),
    Alias { words: &["token"], condition: Options, canonical: &["token", "create"], options: &[] },
    Alias { words: &["audit"], condition: NoVerb, canonical: &["audit", "list"], options: &[] },
    Alias {
        words: &["quarantine"],
        condition: NoVerb,
        canonical: &["quarantine", "list"],
        options: &[],
    },
];

/// Rewrites the words of a command line, which begin with the program's name, to the form `sluice
/// NOUN VERB`. Also rewrites `--format json` to `--json`, `--format sarif` to `--sarif`, and leaves
/// out `--format text`. Words that mean no alias stay as they are; so do words after `--`.
pub(crate) fn canonical(words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let program = words.next();
    let words: Vec<OsString> = words.collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (before, after) = words.split_at(end);
    let before = with_format_options(before);
    let rewritten = match ALIASES.iter().find(|alias| alias.applies(&before)) {
        Some(alias) => alias.rewrite(&before),
        None => before,
    };
    program.into_iter().chain(rewritten).chain(after.iter().cloned()).collect()
}

impl Alias {
    fn applies(&self, words: &[OsString]) -> bool {
        if words.len() < self.words.len() || words.iter().zip(self.words).any(|(a, b)| a != b) {
            return false;
        }
        let next = words.get(self.words.len()).map(|word| word.to_string_lossy());
        let is_option = next
            .as_ref()
            .is_some_and(|word| word.starts_with('-') && !["-h", "--help"].contains(&&**word));
        match self.condition {
            Always => true,
            NoVerb => next.is_none() || is_option,
            Options => is_option,
            Has(option) => words.iter().any(|word| value_of(word, option).is_some()),
        }
    }

    fn rewrite(&self, words: &[OsString]) -> Vec<OsString> {
        let mut operands: Vec<(usize, OsString)> = Vec::new();
        let mut rest: Vec<OsString> = Vec::new();
        let mut given = words.iter().skip(self.words.len()).cloned();
        while let Some(word) = given.next() {
            let changed =
                self.options.iter().enumerate().find_map(|(nth, (option, change))| {
                    Some((nth, change, value_of(&word, option)?))
                });
            match changed {
                None => rest.push(word),
                Some((_, Omitted, _)) => {}
                Some((nth, Operand, value)) => match value {
                    OptionValue::Attached(value) => operands.push((nth, value)),
                    OptionValue::Next => operands.extend(given.next().map(|value| (nth, value))),
                },
                Some((_, Renamed(name), OptionValue::Next)) => rest.push(name.into()),
                Some((_, Renamed(name), OptionValue::Attached(value))) => {
                    rest.extend([name.into(), value]);
                }
            }
        }
        operands.sort_by_key(|(nth, _)| *nth);
        let operands = operands.into_iter().map(|(_, operand)| operand);
        self.canonical.iter().map(OsString::from).chain(operands).chain(rest).collect()
    }
}

/// Where the value of an option is, if it has one.
enum OptionValue {
    /// In the same word, after `=`.
    Attached(OsString),
    /// In the next word.
    Next,
}

/// Returns where an option has its value, if a word is that option.
fn value_of(word: &OsStr, option: &str) -> Option<OptionValue> {
    if word == option {
        return Some(OptionValue::Next);
    }
    let value = word.to_str()?.strip_prefix(option)?.strip_prefix('=')?;
    Some(OptionValue::Attached(value.into()))
}

/// Rewrites the option `--format` of a known format.
fn with_format_options(words: &[OsString]) -> Vec<OsString> {
    let mut rewritten = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let (format, is_next) = match value_of(word, "--format") {
            None => (None, false),
            Some(OptionValue::Attached(value)) => (Some(value), false),
            Some(OptionValue::Next) => (rest.peek().map(|next| (*next).clone()), true),
        };
        let option = match format.as_ref().and_then(|format| format.to_str()) {
            Some("json") => Some("--json"),
            Some("sarif") => Some("--sarif"),
            Some("text") => None,
            _ => {
                rewritten.push(word.clone());
                continue;
            }
        };
        if is_next {
            rest.next();
        }
        rewritten.extend(option.map(OsString::from));
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Cli;
    use clap::{CommandFactory as _, Parser as _};

    /// Rewrites a command line that is separated by spaces.
    fn rewritten(line: &str) -> String {
        let words = std::iter::once("sluice").chain(line.split(' ')).map(OsString::from).collect();
        let words = canonical(words).into_iter().skip(1).map(|word| word.into_string().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    /// The forms of commands, and the command that each means.
    const EXAMPLES: &[(&str, &str)] = &[
        (
            "autohold --project org/one --job unit --reason why --count 2",
            "autohold create --project org/one --job unit --reason why --count 2",
        ),
        ("autohold-delete 1", "autohold delete 1"),
        ("autohold-info 1", "autohold show 1"),
        ("autohold-list --tenant demo", "autohold list --tenant demo"),
        (
            "enqueue --pipeline gate --project org/one --change 7,ab",
            "change enqueue 7,ab --pipeline gate --project org/one",
        ),
        (
            "enqueue-ref --pipeline post --project org/one --ref refs/heads/main --newrev ab",
            "ref enqueue refs/heads/main --pipeline post --project org/one --newrev ab",
        ),
        (
            "dequeue --pipeline post --project org/one --ref=main",
            "ref dequeue main --pipeline post --project org/one",
        ),
        (
            "dequeue --change=7 --pipeline gate --project org/one --reason slow",
            "change dequeue 7 --pipeline gate --project org/one --reason slow",
        ),
        (
            "promote --tenant demo --pipeline gate --changes 3,ab 4,cd",
            "change promote 3,ab --tenant demo --pipeline gate 4,cd",
        ),
        (
            "manage-events --reason maintenance pause-trigger",
            "tenant set-state --reason maintenance pause-trigger",
        ),
        (
            "manage-events --all-tenants discard-trigger --reason r",
            "tenant set-state --all-tenants discard-trigger --reason r",
        ),
        (
            "manage-events --pause-trigger --pause-result --reason r",
            "tenant set-state pause-trigger pause-result --reason r",
        ),
        (
            "manage-events --discard-trigger --reason r",
            "tenant set-state discard-trigger --reason r",
        ),
        ("manage-events normal", "tenant set-state normal"),
        (
            "encrypt --infile secret --no-strip --project org/one --secret-name mine",
            "secret encrypt org/one secret --secret-name mine",
        ),
        (
            "builds --project org/one --job unit --voting --limit 5",
            "build list --project org/one --job unit --voting --limit 5",
        ),
        ("build-info --uuid b1", "build show b1"),
        ("build-info --uuid b1 --show-artifacts --tenant demo", "build show b1 --tenant demo"),
        ("build-info --show-job-output --uuid b1", "build log b1"),
        (
            "job-graph --pipeline gate --project org/one --branch main",
            "job graph --pipeline gate --project org/one --branch main",
        ),
        (
            "freeze-job --pipeline gate --project org/one --branch main --job unit",
            "job freeze unit --pipeline gate --project org/one --branch main",
        ),
        ("node-list", "node list"),
        ("node-set-state n1 hold", "node set-state n1 hold"),
        ("nodeset-request-list", "request list"),
        ("nodeset-request-delete r1", "request delete r1"),
        (
            "create-auth-token --auth-config local --tenant demo --user ada --expires-in 60",
            "token create --admin --authenticator local --tenant demo --user ada --expires-in 60",
        ),
        ("tenant-conf-check main.yaml", "config check main.yaml"),
        ("tenant-reconfigure demo", "tenant reload demo"),
        ("full-reconfigure", "tenant reload --all"),
        ("check repo --tenant file --format sarif", "config check repo --snapshot file --sarif"),
        ("check --format=json", "config check --json"),
        ("freeze unit --tenant=file --json", "config freeze unit --snapshot file --json"),
        ("explain org/one#7", "change explain org/one#7"),
        ("explain org/one --ref main", "change explain org/one --ref main"),
        ("token --user ada --tenant demo --admin", "token create --user ada --tenant demo --admin"),
        ("audit", "audit list"),
        ("audit --tenant demo", "audit list --tenant demo"),
        ("quarantine", "quarantine list"),
        ("quarantine --text --format json", "quarantine list --text --json"),
        ("status --format text", "status"),
    ];

    /// C4, Z9.1: the forms of Zuul's programs and the short forms mean a command, which is parsed.
    #[test]
    fn other_forms_mean_a_noun_and_a_verb() {
        for (line, expected) in EXAMPLES {
            assert_eq!(rewritten(line), *expected, "{line}");
            let words = ["sluice"].into_iter().chain(expected.split(' '));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{expected}: {error}");
            }
        }
    }

    /// C4: each row of the table has an example.
    #[test]
    fn every_alias_has_an_example() {
        for (nth, alias) in ALIASES.iter().enumerate() {
            let is_of = |line: &str| {
                let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                ALIASES.iter().position(|alias| alias.applies(&words)) == Some(nth)
            };
            assert!(EXAMPLES.iter().any(|(line, _)| is_of(line)), "{:?}", alias.words);
        }
    }

    /// C4: a command in its own form is not an alias.
    #[test]
    fn commands_in_their_own_form_stay_as_they_are() {
        for line in [
            "autohold",
            "autohold list",
            "autohold --help",
            "token create --user ada",
            "token",
            "audit list",
            "audit -h",
            "quarantine list --text",
            "change dequeue 7 --pipeline gate",
            "status --format yaml",
            "status --format",
            "help",
            "up",
        ] {
            assert_eq!(rewritten(line), line);
        }
        assert_eq!(rewritten("explain -- --format json"), "change explain -- --format json");
        let command = Cli::command();
        for alias in ALIASES.iter().filter(|alias| matches!(alias.condition, Always | Has(_))) {
            let is_noun = command.get_subcommands().any(|noun| noun.get_name() == alias.words[0]);
            assert!(!is_noun, "{:?} is also a command", alias.words);
        }
    }

    /// C4: one page lists every command and every other form.
    #[test]
    fn the_page_of_commands_lists_them_all() {
        let page = include_str!("../../../../docs/commands.md");
        for alias in ALIASES {
            let form = alias.words.join(" ");
            let is_listed = page.lines().any(|line| {
                let cells: Vec<&str> = line.split(" | ").collect();
                let means = format!("`sluice {}", alias.canonical[..2].join(" "));
                matches!(cells.as_slice(), [first, second, ..]
                    if first.contains(&format!("`{form}")) && second.contains(&means))
            });
            assert!(is_listed, "the page does not list {form} for {:?}", alias.canonical);
        }
        for noun in Cli::command().get_subcommands() {
            let verbs: Vec<&str> = noun.get_subcommands().map(|verb| verb.get_name()).collect();
            let row = format!("| `{}", noun.get_name());
            let row = page.lines().find(|line| {
                line.strip_prefix(&row).is_some_and(|rest| rest.starts_with(['`', ' ']))
            });
            let row = row.unwrap_or_else(|| panic!("no row for {}", noun.get_name()));
            for verb in verbs {
                assert!(row.contains(&format!("`{verb}")), "{}: {verb}", noun.get_name());
            }
        }
    }
}
