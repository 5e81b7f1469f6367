//! Which events and changes a pipeline takes: triggers, requirements and rejects, each answer with its reason.

use sluice_config::pattern::Pattern;
use sluice_config::pipeline::{
    Filter, FilterKind, GitHubFilter, GitHubTrigger, Permission as Needed, Pipeline, ReviewRequirement, TriggerKind,
};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeStatus, Permission, Review, ReviewState};
use sluice_model::event::{EventKind, ForgeEvent};

/// Returns whether some trigger of the pipeline takes the event about this change.
pub fn is_triggered(pipeline: &Pipeline, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    pipeline.triggers.iter().filter(|trigger| trigger.connection == event.connection).any(|trigger| {
        match &trigger.kind {
            TriggerKind::GitHub(github) => takes(github, event, facts),
            _ => false,
        }
    })
}

fn takes(trigger: &GitHubTrigger, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    match &event.kind {
        EventKind::Commit { .. } | EventKind::Sweep => false, // Intake turns them into events of changes.
        EventKind::Push { git_ref, .. } => {
            listed(&trigger.event, "push") && matches_any(&trigger.r#ref, git_ref) && trigger.action.is_empty()
        }
        EventKind::Change { event: name, action, comment, label, state, status, .. } => {
            let facts_fit = facts.is_none_or(|facts| matches_any(&trigger.branch, facts.change.branch.as_str()));
            listed(&trigger.event, name)
                && (trigger.action.is_empty() || listed(&trigger.action, action))
                && facts_fit
                && text_fits(&trigger.comment, comment.as_deref(), Pattern::finds)
                && text_fits(&trigger.status, status.as_deref(), Pattern::matches_whole)
                && named(&trigger.label, label.as_deref().filter(|_| action == "labeled"))
                && named(&trigger.unlabel, label.as_deref().filter(|_| action == "unlabeled"))
                && named(&trigger.state, state.as_deref())
                && text_fits(&trigger.check, status.as_deref().filter(|_| name == "check_run"), Pattern::matches_whole)
                && own_terms_fit(trigger, facts)
        }
    }
}

/// Whether the change meets what the trigger asks for besides the event.
///
/// What the event's author may do is not part of an event yet: a trigger that asks for it never fires, since the other
/// way round anybody could fire it.
fn own_terms_fit(trigger: &GitHubTrigger, facts: Option<&ChangeFacts>) -> bool {
    if trigger.permission.is_some() {
        return false;
    }
    let asks = |filter: &Option<FilterKind>| match filter {
        Some(FilterKind::GitHub(github)) => Some(github.clone()),
        _ => None,
    };
    let (require, reject) = (asks(&trigger.require), asks(&trigger.reject));
    let Some(facts) = facts else { return require.is_none() };
    require.is_none_or(|filter| unmet(&filter, facts, facts.seen_at).is_none())
        && reject.is_none_or(|filter| met(&filter, facts, facts.seen_at).is_none())
}

fn listed(names: &[String], name: &str) -> bool {
    names.iter().any(|listed| listed == name)
}

fn matches_any(patterns: &[Pattern], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}

fn text_fits(patterns: &[Pattern], text: Option<&str>, fits: fn(&Pattern, &str) -> bool) -> bool {
    patterns.is_empty() || text.is_some_and(|text| patterns.iter().any(|pattern| fits(pattern, text)))
}

fn named(names: &[String], name: Option<&str>) -> bool {
    // GitHub writes `request_changes` when it is asked for and `changes_requested` when it tells.
    names.is_empty()
        || name.is_some_and(|name| {
            names.iter().any(|n| n == name || (n == "request_changes" && name == "changes_requested"))
        })
}

/// Returns why the pipeline does not take the change as it is now, or `None` when it does.
pub fn refusal(pipeline: &Pipeline, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    let own = |filter: &&Filter| filter.connection == facts.change.key.connection;
    for filter in pipeline.require.iter().filter(own) {
        if let FilterKind::GitHub(github) = &filter.kind
            && let Some(missing) = unmet(github, facts, now)
        {
            return Some(format!("pipeline {} requires {missing}", pipeline.name));
        }
    }
    for filter in pipeline.reject.iter().filter(own) {
        if let FilterKind::GitHub(github) = &filter.kind
            && let Some(met) = met(github, facts, now)
        {
            return Some(format!("pipeline {} rejects changes with {met}", pipeline.name));
        }
    }
    None
}

/// Returns the first requirement that the change does not meet.
fn unmet(filter: &GitHubFilter, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    if let Some(open) = filter.open
        && open != (facts.status == ChangeStatus::Open)
    {
        return Some(if open { "an open change" } else { "a change that is not open" }.to_owned());
    }
    if let Some(merged) = filter.merged
        && merged != (facts.status == ChangeStatus::Merged)
    {
        return Some(if merged { "a merged change" } else { "a change that is not merged" }.to_owned());
    }
    if let Some(draft) = filter.draft
        && draft != facts.draft
    {
        return Some(if draft { "a draft" } else { "a change that is no draft" }.to_owned());
    }
    if let Some(label) = filter.label.iter().find(|label| !facts.labels.contains(label)) {
        return Some(format!("the label {label}"));
    }
    if let Some(requirement) =
        filter.review.iter().find(|r| !facts.reviews.iter().any(|review| review_fits(r, review, now)))
    {
        return Some(format!("a review: {}", described(requirement)));
    }
    if !filter.status.is_empty() && !filter.status.iter().any(|pattern| status_fits(pattern, facts)) {
        let wanted: Vec<&str> = filter.status.iter().map(Pattern::as_str).collect();
        return Some(format!("a commit status {}", wanted.join(" or ")));
    }
    None
}

/// Returns the first part of a reject filter that the change meets.
fn met(filter: &GitHubFilter, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    if filter.open.is_some_and(|open| open == (facts.status == ChangeStatus::Open)) {
        return Some("this open state".to_owned());
    }
    if filter.merged.is_some_and(|merged| merged == (facts.status == ChangeStatus::Merged)) {
        return Some("this merged state".to_owned());
    }
    if filter.draft.is_some_and(|draft| draft == facts.draft) {
        return Some(if facts.draft { "a draft's state" } else { "no draft's state" }.to_owned());
    }
    if let Some(label) = filter.label.iter().find(|label| facts.labels.contains(label)) {
        return Some(format!("the label {label}"));
    }
    if let Some(requirement) =
        filter.review.iter().find(|r| facts.reviews.iter().any(|review| review_fits(r, review, now)))
    {
        return Some(format!("a review: {}", described(requirement)));
    }
    let status = filter.status.iter().find(|pattern| status_fits(pattern, facts))?;
    Some(format!("a commit status {}", status.as_str()))
}

fn review_fits(requirement: &ReviewRequirement, review: &Review, now: Timestamp) -> bool {
    let age_seconds = now.since(review.submitted_at) / 1_000;
    let kind = match review.state {
        ReviewState::Approved => "approved",
        ReviewState::ChangesRequested => "changes_requested",
        ReviewState::Commented => "comment",
        ReviewState::Dismissed => return false,
    };
    let permission = match review.permission {
        Permission::None => None,
        Permission::Read => Some(Needed::Read),
        Permission::Write => Some(Needed::Write),
        Permission::Admin => Some(Needed::Admin),
    };
    requirement
        .r#type
        .as_deref()
        .is_none_or(|wanted| wanted == kind || (wanted == "request_changes" && kind == "changes_requested"))
        && requirement.username.as_ref().is_none_or(|pattern| pattern.matches_whole(&review.by))
        && requirement.older_than_seconds.is_none_or(|seconds| age_seconds >= seconds)
        && requirement.newer_than_seconds.is_none_or(|seconds| age_seconds < seconds)
        && requirement.permission.is_none_or(|needed| permission >= Some(needed))
}

fn described(requirement: &ReviewRequirement) -> String {
    let mut words = vec![requirement.r#type.clone().unwrap_or_else(|| "any".to_owned())];
    if let Some(pattern) = &requirement.username {
        words.push(format!("by {}", pattern.as_str()));
    }
    if let Some(permission) = requirement.permission {
        words.push(format!("by somebody with {} permission", format!("{permission:?}").to_lowercase()));
    }
    words.join(" ")
}

fn status_fits(pattern: &Pattern, facts: &ChangeFacts) -> bool {
    facts
        .statuses
        .iter()
        .any(|status| pattern.matches_whole(&format!("{}:{}:{}", status.by, status.context, status.state)))
}
