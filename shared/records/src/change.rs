//! A change as the forge showed it last, and the changes known to need it.

use crate::codec::encode_first;
use serde::Serialize;
use sluice_gate::explain::Verdicts;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::name::escape;
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// Returns the partition of a change.
pub fn partition(change: &ChangeKey) -> String {
    format!(
        "change#{}/{}/{}",
        escape(change.connection.as_str()),
        escape(change.project.as_str()),
        escape(&change.local())
    )
}

/// Returns the key of a change's facts.
pub fn facts_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "facts")
}

/// Returns the key of what was told of a change: marks of intake, each of which counts as news
/// once.
pub fn told_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "told")
}

/// Returns the write of what was told of a change, on condition that nobody told of it since
/// `seen`, the revision that was read (`None` where there was none): what is told next follows from
/// it.
///
/// # Errors
/// When it is too large.
pub fn put_told<T: Serialize>(
    change: &ChangeKey,
    told: &T,
    seen: Option<u64>,
) -> Result<Write, PortError> {
    let mut record = encode_first(told_key(change), told)?;
    record.revision = seen.unwrap_or(0) + 1;
    Ok(Write::Put { record, expect: seen.map_or(Expect::Absent, Expect::Revision) })
}

/// Returns whether a record holds what was told of a change.
pub fn is_told(key: &Key) -> bool {
    key.partition.starts_with("change#") && key.sort == "told"
}

/// Returns the key of what became of a change's events in the pipelines that did not take it in.
pub fn verdicts_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "verdicts")
}

/// Returns the write of what became of a change's events.
///
/// # Errors
/// When it is too large.
pub fn put_verdicts(change: &ChangeKey, verdicts: &Verdicts) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(verdicts_key(change), verdicts)?,
        expect: Expect::Anything,
    })
}

/// The prefix of the records that say who needs a change.
pub const NEEDED_BY: &str = "needed-by#";

/// Returns the write that stores a change's facts; the newest reading wins, and a decision reads
/// the forge again anyway.
///
/// What does not fit is left out, and said to be cut where that matters.
///
/// # Errors
/// When they are too large even so.
pub fn put_facts(facts: &ChangeFacts) -> Result<Write, PortError> {
    let mut bounded = facts.clone();
    if bounded.message.len() > 16_000 {
        bounded.message = bounded.message.chars().take(4_000).collect();
    }
    if bounded
        .files
        .as_ref()
        .is_some_and(|files| files.iter().map(String::len).sum::<usize>() > 24_000)
    {
        bounded.files = None; // Too many to keep here; whoever matches files reads them from git.
    }
    let mut record = encode_first(facts_key(&facts.change.key), &bounded);
    for shorten in SHORTER {
        if record.is_ok() {
            break;
        }
        shorten(&mut bounded);
        record = encode_first(facts_key(&facts.change.key), &bounded);
    }
    Ok(Write::Put { record: record?, expect: Expect::Anything })
}

/// What is left out of facts that a record does not hold, one after the other. Strangers decide how
/// long each of these is.
const SHORTER: [fn(&mut ChangeFacts); 5] = [
    |facts| {
        facts.statuses.clear();
        facts.cut.statuses = true;
    },
    |facts| (facts.message, facts.files) = (String::new(), None),
    |facts| {
        facts.reviews.clear();
        facts.cut.reviews = true;
    },
    |facts| facts.depends_on.retain(|url| url.len() <= URL_BYTES_MAX),
    |facts| {
        facts.labels.truncate(LABELS_MAX);
        facts.votes.clear();
        facts.title = facts.title.chars().take(TITLE_CHARS_MAX).collect();
    },
];

/// Bytes of an address of a change; longer ones are no page of any forge.
const URL_BYTES_MAX: usize = 300;
/// Labels that are kept of a change that has more than a record holds.
const LABELS_MAX: usize = 100;
/// Characters of the title that are kept of such a change.
const TITLE_CHARS_MAX: usize = 300;

/// Days after which it is forgotten who needs a change, if nothing is heard of him.
const NEEDED_BY_DAYS: u64 = 180;

/// Days that the mark of a needed change outlives the last word of who needs it: two writers'
/// clocks differ.
const NEEDED_DAYS: u64 = NEEDED_BY_DAYS + 7;

/// Returns the key of the mark that somebody needs a change, or did: where there is none, nobody
/// has to be looked for.
pub fn needed_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "needed")
}

/// Returns the writes that remember that `change` needs `needed`; they go together.
///
/// # Errors
/// When one is too large.
pub fn put_needed_by(
    needed: &ChangeKey,
    change: &ChangeKey,
    now: Timestamp,
) -> Result<[Write; 2], PortError> {
    let mut record = encode_first(needed_by_key(needed, change), change)?;
    record.expires_at = Some(now.plus_seconds(NEEDED_BY_DAYS * 86_400));
    let mut mark = encode_first(needed_key(needed), needed)?;
    mark.expires_at = Some(now.plus_seconds(NEEDED_DAYS * 86_400));
    Ok([record, mark].map(|record| Write::Put { record, expect: Expect::Anything }))
}

/// Returns the write that forgets that `change` needed `needed`.
pub fn forget_needed_by(needed: &ChangeKey, change: &ChangeKey) -> Write {
    Write::Delete { key: needed_by_key(needed, change), expect: Expect::Anything }
}

/// Returns whether a record only remembers that a change is needed, or by which.
pub fn is_need(key: &Key) -> bool {
    key.partition.starts_with("change#")
        && (key.sort == "needed" || key.sort.starts_with(NEEDED_BY))
}

fn needed_by_key(needed: &ChangeKey, change: &ChangeKey) -> Key {
    Key::new(partition(needed), format!("{NEEDED_BY}{}", partition(change)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode;
    use sluice_model::ProjectName;
    use sluice_model::change::{ChangeRef, CommitStatus, Cut, Permission, Review, ReviewState};

    fn bare() -> ChangeFacts {
        let key = ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), 1);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        ChangeFacts::bare(change, Timestamp(1))
    }

    fn stored(facts: &ChangeFacts) -> ChangeFacts {
        let Write::Put { record, .. } = put_facts(facts).unwrap() else { unreachable!() };
        decode(&record).unwrap()
    }

    /// C2: nothing unbounded in a record, and nothing that strangers wrote has an event come again
    /// for ever.
    #[test]
    fn facts_of_any_size_are_kept_as_far_as_a_record_holds_them() {
        let status = |number: usize| CommitStatus {
            by: "ci".to_owned(),
            context: format!("{number:04}{}", "c".repeat(240)),
            state: "success".to_owned(),
            is_check: false,
            number: Some(12_345_678_901),
        };
        let many = ChangeFacts { statuses: (0..1_000).map(status).collect(), ..bare() };
        let kept = stored(&many);
        assert_eq!((kept.statuses.len(), kept.cut), (0, Cut { statuses: true, ..Cut::default() }));
        let few = ChangeFacts { statuses: (0..10).map(status).collect(), ..bare() };
        assert_eq!(stored(&few), few);
        let review = |number: usize| Review {
            by: format!("{number:03}{}", "b".repeat(1_000)),
            email: None,
            state: ReviewState::Approved,
            permission: Permission::Write,
            submitted_at: Timestamp(1),
        };
        // Each of it is more than a record holds by itself.
        let all = ChangeFacts {
            message: "\u{1}".repeat(15_000),
            files: Some(vec!["\u{1}".repeat(23_000)]),
            reviews: (0..100).map(review).collect(),
            depends_on: vec![
                format!("https://forge.test/{}", "d".repeat(70_000)),
                "https://forge.test/a".to_owned(),
            ],
            labels: vec!["l".repeat(50); 2_000],
            title: "t".repeat(70_000),
            ..many
        };
        let kept = stored(&all);
        assert_eq!(kept.cut, Cut { statuses: true, reviews: true, ..Cut::default() });
        assert_eq!(
            (kept.depends_on, kept.labels.len()),
            (vec!["https://forge.test/a".to_owned()], 100)
        );
    }
}
