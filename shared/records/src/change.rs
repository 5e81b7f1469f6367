//! A change: its facts as last read from the forge, and the changes that depend on it.

use crate::codec::encode_first;
use serde::Serialize;
use sluice_gate::explain::RoutingRecord;
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
        escape(&change.local_id())
    )
}

/// Returns the key of a change's facts.
pub fn facts_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "facts")
}

/// Returns the key of the events that intake has processed for a change. Intake uses them to
/// recognise an event that was delivered before.
pub fn seen_events_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "seen-events")
}

/// Returns the write of the events processed for a change, in a form that intake defines. It is
/// conditional on `seen`, the revision that was read (`None`: there must be no record), because the
/// next event is compared with them.
///
/// # Errors
/// When the record is too large.
pub fn put_seen_events<T: Serialize>(
    change: &ChangeKey,
    events: &T,
    seen: Option<u64>,
) -> Result<Write, PortError> {
    let mut record = encode_first(seen_events_key(change), events)?;
    record.revision = seen.unwrap_or(0) + 1;
    Ok(Write::Put { record, expect: seen.map_or(Expect::Absent, Expect::Revision) })
}

/// Returns whether `key` names the record of the processed events of a change.
pub fn is_seen_events(key: &Key) -> bool {
    key.partition.starts_with("change#") && key.sort == "seen-events"
}

/// Returns the key of the record that says why pipelines did not enqueue a change after its events.
pub fn verdicts_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "routing")
}

/// Returns the unconditional write of the record that says why pipelines did not enqueue a change.
/// It replaces the earlier record.
///
/// # Errors
/// When the record is too large.
pub fn put_verdicts(change: &ChangeKey, routing: &RoutingRecord) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(verdicts_key(change), routing)?,
        expect: Expect::Anything,
    })
}

/// The sort key prefix of the records that name the dependents of a change.
pub const NEEDED_BY: &str = "needed-by#";

/// Returns the unconditional write of a change's facts; the last write wins, because every decision
/// reads the forge again. A message of more than 16,000 bytes is cut to 4,000 characters, and more
/// than 24,000 bytes of paths become `None`. Until the record is small enough, drops in this order:
/// statuses, message and files, reviews, dependency URLs of more than 300 bytes, then votes, labels
/// after the first 100 and the rest of a long title. `truncated` marks missing statuses and
/// reviews; other omissions are not marked. An error if the rest is still too large.
///
/// # Errors
/// When the shortened facts are too large.
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
        // Too many to store; the matching of files then reads them from git.
        bounded.files = None;
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

/// The steps that shorten facts until they fit into a record, in this order. Each of these facts
/// can be made arbitrarily long by people outside the project.
const SHORTER: [fn(&mut ChangeFacts); 5] = [
    |facts| {
        facts.statuses.clear();
        facts.truncated.statuses = true;
    },
    |facts| (facts.message, facts.files) = (String::new(), None),
    |facts| {
        facts.reviews.clear();
        facts.truncated.reviews = true;
    },
    |facts| facts.depends_on.retain(|url| url.len() <= URL_BYTES_MAX),
    |facts| {
        facts.labels.truncate(LABELS_MAX);
        facts.votes.clear();
        facts.title = facts.title.chars().take(TITLE_CHARS_MAX).collect();
    },
];

/// The longest URL in `Depends-On` that is kept; no forge has longer ones.
const URL_BYTES_MAX: usize = 300;
/// Labels kept of a change whose facts do not fit.
const LABELS_MAX: usize = 100;
/// Characters of the title kept of a change whose facts do not fit.
const TITLE_CHARS_MAX: usize = 300;

/// Days after which a dependent is forgotten when no event mentions it.
const NEEDED_BY_DAYS: u64 = 180;

/// Days for which the mark of a change with dependents is kept. It is longer than the records of
/// its dependents, because the clocks of writers differ.
const NEEDED_DAYS: u64 = NEEDED_BY_DAYS + 7;

/// Returns the key of the mark that a change has, or had, dependents. Without the mark, no
/// dependents need to be looked up.
pub fn needed_key(change: &ChangeKey) -> Key {
    Key::new(partition(change), "needed")
}

/// Returns the two writes that record `change` as a dependent of `needed`: the dependent, and the
/// mark that `needed` has some. Both are unconditional, belong in one transaction, and expire about
/// half a year after `now`.
///
/// # Errors
/// When a record is too large.
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

/// Returns the unconditional write that removes `change` from the dependents of `needed`. The mark
/// that `needed` has dependents stays.
pub fn forget_needed_by(needed: &ChangeKey, change: &ChangeKey) -> Write {
    Write::Delete { key: needed_by_key(needed, change), expect: Expect::Anything }
}

/// Returns whether `key` names a dependent of a change, or the mark that it has some.
pub fn is_need(key: &Key) -> bool {
    key.partition.starts_with("change#")
        && (key.sort == "needed" || key.sort.starts_with(NEEDED_BY))
}

/// Returns the key of the record that names `change` as a dependent of `needed`.
fn needed_by_key(needed: &ChangeKey, change: &ChangeKey) -> Key {
    Key::new(partition(needed), format!("{NEEDED_BY}{}", partition(change)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode;
    use sluice_model::ProjectName;
    use sluice_model::change::{
        ChangeRef, ChangeReview, CommitStatus, RepositoryPermission, ReviewState, Truncation,
    };

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

    /// C2: records are bounded. Long texts from outside never make an event fail for ever.
    #[test]
    fn facts_that_do_not_fit_are_shortened() {
        let status = |number: usize| CommitStatus {
            by: "ci".to_owned(),
            context: format!("{number:04}{}", "c".repeat(240)),
            state: "success".to_owned(),
            is_check: false,
            number: Some(12_345_678_901),
        };
        let many = ChangeFacts { statuses: (0..1_000).map(status).collect(), ..bare() };
        let read = stored(&many);
        assert_eq!(
            (read.statuses.len(), read.truncated),
            (0, Truncation { statuses: true, ..Truncation::default() })
        );
        let few = ChangeFacts { statuses: (0..10).map(status).collect(), ..bare() };
        assert_eq!(stored(&few), few);
        let review = |number: usize| ChangeReview {
            by: format!("{number:03}{}", "b".repeat(1_000)),
            email: None,
            state: ReviewState::Approved,
            permission: RepositoryPermission::Write,
            submitted_at: Timestamp(1),
        };
        // Each of these alone is larger than a record.
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
        let read = stored(&all);
        assert_eq!(
            read.truncated,
            Truncation { statuses: true, reviews: true, ..Truncation::default() }
        );
        assert_eq!(
            (read.depends_on, read.labels.len()),
            (vec!["https://forge.test/a".to_owned()], 100)
        );
    }
}
