//! Gerrit's triggers, requirements and rejects, and ref updates of Gerrit and plain git.

use super::{listed, matches_any, text_fits};
use sluice_config::Pattern;
use sluice_config::pipeline::{Approval, FilterKind, GerritFilter, GerritTrigger, GitTrigger};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeStatus};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::{CastVote, GerritEvent, Vote};

/// The event name of Gerrit and git triggers for a moved ref.
const REF_UPDATED: &str = "ref-updated";

/// Returns whether a trigger matches an event. `facts` are those of the event's change; without
/// them, its branch is not checked, and a trigger with `require` or `reject` does not match. A
/// trigger with `ref` matches only pushes. For a push `facts` and the trigger's `username` are
/// ignored, and only a trigger without conditions on changes matches.
pub(super) fn takes(
    trigger: &GerritTrigger,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
) -> bool {
    if matches!(event.kind, EventKind::Push { .. }) {
        return takes_push(trigger, &event.kind) && fits_no_change(trigger);
    }
    let Some(event) = gerrit_event(event) else { return false };
    let branch_fits =
        facts.is_none_or(|facts| matches_any(&trigger.branch, facts.change.branch.as_str()));
    listed(&trigger.event, &event.r#type)
        && branch_fits
        && trigger.r#ref.is_empty()
        && text_fits(&trigger.comment, event.comment.as_deref(), Pattern::finds)
        && text_fits(&trigger.email, event.email.as_deref(), Pattern::finds)
        && text_fits(&trigger.username, Some(event.username.as_str()), Pattern::finds)
        && cast(&trigger.approval, &event.votes, |_| true)
        && cast(&trigger.approval_change, &event.votes, |vote| {
            vote.before.is_some_and(|before| before != vote.value)
        })
        && any_fits(&trigger.added, &event.added)
        && any_fits(&trigger.removed, &event.removed)
        && checker_fits(trigger, &event)
        && meets_trigger_filters(trigger, facts)
}

/// Returns an event about a change as a Gerrit event; `None` for other events and for synthesized
/// ones that report no new revision.
fn gerrit_event(event: &ForgeEvent) -> Option<GerritEvent> {
    match &event.kind {
        EventKind::Gerrit(gerrit) => Some(gerrit.clone()),
        // A synthesized event for a revision that no Gerrit event reported has the form that all
        // forges share.
        EventKind::Change { number, event: name, action, .. }
            if name == "pull_request" && matches!(action.as_str(), "opened" | "changed") =>
        {
            let (number, r#type) = (*number, "patchset-created".to_owned());
            Some(GerritEvent {
                number,
                r#type,
                username: event.sender.clone(),
                ..GerritEvent::default()
            })
        }
        _ => None,
    }
}

/// Describes the first condition of a Gerrit trigger that an event does not meet, in the order of
/// the configuration's documentation. Where it meets all of these, names `require`, `reject` and
/// the checker; that a trigger with `ref` matches no change is not noticed. Of an event that is not
/// about a Gerrit change, says only that the trigger matches others.
pub(crate) fn misfit(trigger: &GerritTrigger, event: &ForgeEvent, facts: &ChangeFacts) -> String {
    let Some(event) = gerrit_event(event) else { return "it matches other events".to_owned() };
    let texts = |patterns: &[Pattern]| {
        patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" or ")
    };
    if !listed(&trigger.event, &event.r#type) {
        return format!(
            "it requires the event {}, not {}",
            trigger.event.join(" or "),
            event.r#type
        );
    }
    let branch = facts.change.branch.as_str();
    if !matches_any(&trigger.branch, branch) {
        return format!("it requires the branch {}, not {branch}", texts(&trigger.branch));
    }
    if !text_fits(&trigger.comment, event.comment.as_deref(), Pattern::finds) {
        return format!("it requires a comment matching {}", texts(&trigger.comment));
    }
    if !text_fits(&trigger.username, Some(event.username.as_str()), Pattern::finds) {
        return format!(
            "it requires the user {}, not {}",
            texts(&trigger.username),
            event.username
        );
    }
    if !text_fits(&trigger.email, event.email.as_deref(), Pattern::finds) {
        return format!("it requires the email address {}", texts(&trigger.email));
    }
    for (wanted, word) in [(&trigger.approval, "vote"), (&trigger.approval_change, "new vote")] {
        let counts = |vote: &CastVote| {
            word == "vote" || vote.before.is_some_and(|before| before != vote.value)
        };
        if let Some(missing) =
            wanted.iter().find(|one| !cast(std::slice::from_ref(*one), &event.votes, counts))
        {
            return format!("it requires the {word} {}", described(missing));
        }
    }
    for (wanted, tags, word) in
        [(&trigger.added, &event.added, "added"), (&trigger.removed, &event.removed, "removed")]
    {
        if !any_fits(wanted, tags) {
            return format!("it requires a hashtag to be {word}: {}", texts(wanted));
        }
    }
    "the change does not meet its `require`, or meets its `reject`, or the event is from another checker"
        .to_owned()
}

/// Returns whether a plain git trigger matches an event.
pub(super) fn takes_ref(trigger: &GitTrigger, event: &ForgeEvent) -> bool {
    ref_fits(&trigger.event, &trigger.r#ref, trigger.ignore_deletes, &event.kind)
}

/// Returns whether a push meets a Gerrit trigger's conditions on the ref and its branch; `false`
/// for other events.
fn takes_push(trigger: &GerritTrigger, kind: &EventKind) -> bool {
    let branch = kind.pushed_branch();
    let branch_fits = trigger.branch.is_empty()
        || branch.is_some_and(|branch| matches_any(&trigger.branch, branch.as_str()));
    branch_fits && ref_fits(&trigger.event, &trigger.r#ref, trigger.ignore_deletes, kind)
}

/// Returns whether a push meets a trigger's conditions; `false` for other events. The deletion of a
/// ref matches only with `ignore-deletes: false`.
fn ref_fits(
    events: &[String],
    refs: &[Pattern],
    ignore_deletes: Option<bool>,
    kind: &EventKind,
) -> bool {
    let EventKind::Push { git_ref, newrev, .. } = kind else { return false };
    listed(events, REF_UPDATED)
        && matches_any(refs, git_ref)
        && !(newrev.is_zero() && ignore_deletes.unwrap_or(true))
}

/// Returns whether a trigger has no condition that only an event about a change can meet.
/// `username` is not one.
fn fits_no_change(trigger: &GerritTrigger) -> bool {
    trigger.comment.is_empty()
        && trigger.approval.is_empty()
        && trigger.approval_change.is_empty()
        && trigger.email.is_empty()
        && trigger.added.is_empty()
        && trigger.removed.is_empty()
        && trigger.scheme.is_none()
        && trigger.uuid.is_none()
        && meets_trigger_filters(trigger, None)
}

/// Returns whether the event has, for every label that a trigger names, a vote with one of the
/// named values that `counts` accepts; `true` if no label is named.
fn cast(wanted: &[Approval], votes: &[CastVote], counts: impl Fn(&CastVote) -> bool) -> bool {
    let mut labels = wanted.iter().flat_map(|approval| &approval.labels);
    labels.all(|(label, values)| {
        votes.iter().any(|vote| {
            is_label(&vote.label, label) && values.contains(&vote.value) && counts(vote)
        })
    })
}

/// Returns whether a pattern finds one of the tags, or there are no patterns.
fn any_fits(patterns: &[Pattern], tags: &[String]) -> bool {
    patterns.is_empty() || tags.iter().any(|tag| patterns.iter().any(|pattern| pattern.finds(tag)))
}

/// Returns whether the event's checker meets a trigger: `uuid` is its whole id, `scheme` the part
/// before the colon.
fn checker_fits(trigger: &GerritTrigger, event: &GerritEvent) -> bool {
    let scheme = event
        .checker
        .as_deref()
        .map(|checker| checker.split_once(':').map_or(checker, |(scheme, _)| scheme));
    trigger.uuid.as_deref().is_none_or(|uuid| event.checker.as_deref() == Some(uuid))
        && trigger.scheme.as_deref().is_none_or(|wanted| scheme == Some(wanted))
}

/// Returns whether the change meets the trigger's own `require` and does not meet its `reject`, at
/// the time when its facts were read. Without facts, only a trigger that has neither is met.
fn meets_trigger_filters(trigger: &GerritTrigger, facts: Option<&ChangeFacts>) -> bool {
    let asks = |filter: &Option<FilterKind>| match filter {
        Some(FilterKind::Gerrit(gerrit)) => Some(gerrit.clone()),
        _ => None,
    };
    let (require, reject) = (asks(&trigger.require), asks(&trigger.reject));
    let Some(facts) = facts else { return require.is_none() && reject.is_none() };
    require.is_none_or(|filter| unmet(&filter, facts, facts.seen_at).is_none())
        && reject.is_none_or(|filter| met(&filter, facts, facts.seen_at).is_none())
}

/// Returns, as a text for people, the first requirement that the change does not meet, or `None`.
pub(super) fn unmet(filter: &GerritFilter, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    if let Some(open) = filter.open
        && open != (facts.status == ChangeStatus::Open)
    {
        return Some(if open { "an open change" } else { "a change that is not open" }.to_owned());
    }
    // Facts are always those of the current patchset.
    if filter.current_patchset == Some(false) {
        return Some("a patchset that is not the newest".to_owned());
    }
    if let Some(wip) = filter.wip
        && wip != facts.draft
    {
        return Some(
            if wip { "work in progress" } else { "a change that is not work in progress" }
                .to_owned(),
        );
    }
    if !filter.status.is_empty() && !filter.status.iter().any(|word| is_status(word, facts.status))
    {
        return Some(format!("the status {}", filter.status.join(" or ")));
    }
    if let Some(missing) = filter.hashtags.iter().find(|pattern| !has_hashtag(pattern, facts)) {
        return Some(format!("a hashtag {}", missing.as_str()));
    }
    let missing = filter.approval.iter().find(|approval| !is_given(approval, facts, now))?;
    Some(described(missing))
}

/// Returns, as a text for people, the first condition of a reject filter that the change meets, or
/// `None`. One that is met is enough to reject the change.
pub(super) fn met(filter: &GerritFilter, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    if filter.open.is_some_and(|open| open == (facts.status == ChangeStatus::Open)) {
        return Some("this open state".to_owned());
    }
    if filter.current_patchset == Some(true) {
        return Some("the newest patchset".to_owned());
    }
    if filter.wip.is_some_and(|wip| wip == facts.draft) {
        return Some(if facts.draft { "work in progress" } else { "ready state" }.to_owned());
    }
    if let Some(word) = filter.status.iter().find(|word| is_status(word, facts.status)) {
        return Some(format!("the status {word}"));
    }
    if let Some(pattern) = filter.hashtags.iter().find(|pattern| has_hashtag(pattern, facts)) {
        return Some(format!("a hashtag {}", pattern.as_str()));
    }
    filter.approval.iter().find(|approval| is_given(approval, facts, now)).map(described)
}

/// Returns whether the change has a hashtag that the pattern finds.
fn has_hashtag(pattern: &Pattern, facts: &ChangeFacts) -> bool {
    facts.labels.iter().any(|tag| pattern.finds(tag))
}

/// Returns whether the change has the votes of an entry, each by a matching user and of a matching
/// age. An entry without labels is met by any vote of such a user and age.
fn is_given(approval: &Approval, facts: &ChangeFacts, now: Timestamp) -> bool {
    let fits = |vote: &Vote| {
        let age_seconds = now.since(vote.cast_at) / 1_000;
        approval.username.as_ref().is_none_or(|pattern| pattern.finds(&vote.username))
            && approval
                .email
                .as_ref()
                .is_none_or(|p| vote.email.as_ref().is_some_and(|email| p.finds(email)))
            && approval.older_than_seconds.is_none_or(|seconds| age_seconds >= seconds)
            && approval.newer_than_seconds.is_none_or(|seconds| age_seconds < seconds)
    };
    if approval.labels.is_empty() {
        return facts.votes.iter().any(fits);
    }
    approval.labels.iter().all(|(label, values)| {
        facts
            .votes
            .iter()
            .any(|vote| is_label(&vote.label, label) && values.contains(&vote.value) && fits(vote))
    })
}

/// Returns whether two spellings mean the same label: case and spaces for dashes are ignored.
fn is_label(one: &str, other: &str) -> bool {
    let plain = |label: &str| label.to_lowercase().replace(' ', "-");
    plain(one) == plain(other)
}

/// Returns whether Gerrit's name of a status means this status.
fn is_status(word: &str, status: ChangeStatus) -> bool {
    let own = match status {
        ChangeStatus::Open => "NEW",
        ChangeStatus::Merged => "MERGED",
        ChangeStatus::Closed => "ABANDONED",
    };
    word.eq_ignore_ascii_case(own)
}

/// Describes a required or rejected vote by its labels, user and age.
fn described(approval: &Approval) -> String {
    let votes = approval.labels.iter().map(|(label, values)| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:+}")).collect();
        format!("{label} {}", values.join(" or "))
    });
    let mut words = vec![votes.collect::<Vec<_>>().join(" and ")];
    if approval.labels.is_empty() {
        words = vec!["any".to_owned()];
    }
    for (word, pattern) in [("by", &approval.username), ("by", &approval.email)] {
        words.extend(pattern.as_ref().map(|pattern| format!("{word} {}", pattern.as_str())));
    }
    words.extend(approval.older_than_seconds.map(|seconds| format!("older than {seconds} s")));
    words.extend(approval.newer_than_seconds.map(|seconds| format!("newer than {seconds} s")));
    format!("a vote: {}", words.join(" "))
}
