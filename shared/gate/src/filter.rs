//! Which events and changes a pipeline accepts: triggers, requirements and rejects, each answer
//! with its reason.
//!
//! This file covers GitHub, [`gerrit`] covers Gerrit and plain git.

mod gerrit;

pub(crate) use gerrit::misfit as misfit_of_gerrit;

use serde::{Deserialize, Serialize};
use sluice_config::pattern::Pattern;
use sluice_config::pipeline::{
    Filter, FilterKind, ForgePermission as Needed, GerritFilter, GitHubFilter, GitHubTrigger,
    Pipeline, ReviewRequirement, Trigger, TriggerKind,
};
use sluice_model::change::{
    ChangeFacts, ChangeReview, ChangeStatus, RepositoryPermission, ReviewState,
};
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent, ZuulEvent};
use sluice_model::{ConnectionName, PipelineName, TenantName, Timestamp};

/// Returns whether a trigger of the pipeline, with the trigger's own `require` and `reject`,
/// matches the event. `facts` are those of the event's change; an event about a ref has none. `may`
/// is the sender's permission in the repository, `None` where it was not read
/// ([`depends_on_sender`]); a trigger that requires a permission does not match then. Whether the
/// event may start the pipeline at all ([`start_denial`]) is not checked, nor are the pipeline's
/// `require` and `reject`. Timers and Zuul's own triggers never match.
pub fn is_triggered(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
    may: Option<RepositoryPermission>,
) -> bool {
    report_detail(pipeline, event, facts, may).is_some()
}

/// How detailed the reports on changes are that a trigger enqueues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportDetail {
    /// The result alone.
    Outcome,
    /// Also how the jobs were selected (`debug`).
    Debug,
}

impl ReportDetail {
    /// Returns the detail that a trigger asks for by its `debug` setting.
    pub fn of(trigger: &Trigger) -> Self {
        if trigger.debug { Self::Debug } else { Self::Outcome }
    }

    /// Returns the highest detail that these triggers ask for; `None` without triggers.
    fn of_all<'a>(triggers: impl Iterator<Item = &'a Trigger>) -> Option<Self> {
        triggers.map(Self::of).max()
    }
}

/// Returns the report detail that the triggers ask for which match the event, about a change or a
/// ref: the highest of them. `None` where none matches. `may` is the permission of the event's
/// sender; without it no trigger matches that requires one. All else is as in [`is_triggered`]:
/// neither whether the event may start the pipeline nor the pipeline's own `require` and `reject`
/// are checked.
pub fn report_detail(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
    may: Option<RepositoryPermission>,
) -> Option<ReportDetail> {
    ReportDetail::of_all(triggers_of(pipeline, event).filter(|trigger| match &trigger.kind {
        TriggerKind::GitHub(github) => takes(github, event, facts) && is_permitted(github, may),
        other => other_trigger_matches(other, event, facts),
    }))
}

/// Returns whether a trigger of Gerrit or plain git matches an event; `false` for triggers of other
/// kinds. The caller has checked that the trigger is for the event's connection.
fn other_trigger_matches(
    trigger: &TriggerKind,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
) -> bool {
    match trigger {
        TriggerKind::Gerrit(gerrit) => gerrit::takes(gerrit, event, facts),
        TriggerKind::Git(git) => gerrit::takes_ref(git, event),
        _ => false,
    }
}

/// Returns whether the sender's permission decides whether the pipeline is triggered, or with which
/// report detail.
pub fn depends_on_sender(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
) -> bool {
    let (mut asking, mut open): (Option<ReportDetail>, Option<ReportDetail>) = (None, None);
    for trigger in triggers_of(pipeline, event) {
        let detail = Some(ReportDetail::of(trigger));
        match &trigger.kind {
            TriggerKind::GitHub(github) if !takes(github, event, facts) => {}
            TriggerKind::GitHub(github) if github.permission.is_some() => {
                asking = asking.max(detail)
            }
            TriggerKind::GitHub(_) => open = open.max(detail),
            other if other_trigger_matches(other, event, facts) => open = open.max(detail),
            _ => {}
        }
    }
    // `None`, for no matching trigger, is less than any detail.
    asking > open
}

/// Returns whether the pipeline uses a commit status or check run: a trigger matches it, or the
/// pipeline's `require` or `reject` name any statuses of its connection, whichever they are.
/// `event` is the one that reports it. Conditions of GitHub triggers on the change and on the
/// sender's permission are ignored, so that neither need be known.
pub fn uses_status(pipeline: &Pipeline, event: &ForgeEvent) -> bool {
    let asks = |filter: &Filter| {
        filter.connection == event.connection
            && matches!(&filter.kind, FilterKind::GitHub(github) if !github.status.is_empty())
    };
    let is_for = |trigger: &Trigger| match &trigger.kind {
        TriggerKind::GitHub(github) => fits(github, event, None),
        other => other_trigger_matches(other, event, None),
    };
    pipeline.require.iter().chain(&pipeline.reject).any(asks)
        || triggers_of(pipeline, event).any(is_for)
}

/// Who caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventAuthor {
    /// Sluice itself: its own status, check run or votes.
    Sluice,
    /// Anyone else.
    #[default]
    ThirdParty,
}

/// Returns whether nothing forbids that an event starts a pipeline of a tenant ([`start_denial`]).
/// That a trigger matches is not checked.
pub fn may_start(
    tenant: &TenantName,
    pipeline: &Pipeline,
    event: &ForgeEvent,
    by: EventAuthor,
) -> bool {
    start_denial(tenant, pipeline, event, by).is_none()
}

/// Returns why an event never starts a pipeline of a tenant: it is the pipeline's own report, or
/// Sluice caused it (`by`) and no trigger of the pipeline names such a status, check run or vote.
/// `None` where the pipeline's triggers decide; that none matches is no denial.
///
/// A pipeline's own report does not start it again, or it would run forever; a re-request by a user
/// does. Other self-authored events start only pipelines whose triggers name them. Otherwise two
/// pipelines with unspecific triggers would start each other forever.
pub fn start_denial(
    tenant: &TenantName,
    pipeline: &Pipeline,
    event: &ForgeEvent,
    by: EventAuthor,
) -> Option<&'static str> {
    if is_own_report(tenant, &pipeline.name, event) {
        return Some("it is the pipeline's own report, which does not start the pipeline again");
    }
    let is_unnamed = by == EventAuthor::Sluice && !names_self_authored(pipeline, event);
    is_unnamed.then_some(
        "Sluice caused it, and no trigger of the pipeline names this status, check run or vote",
    )
}

/// Returns whether an event about a change is the status, or the completed check run, by which the
/// pipeline itself reports. Only its name `tenant/pipeline` is compared, not who set it. `false`
/// for an event about a commit alone.
fn is_own_report(tenant: &TenantName, pipeline: &PipelineName, event: &ForgeEvent) -> bool {
    let EventKind::Change { action, status: Some(status), .. } = &event.kind else { return false };
    let context = status
        .split_once(':')
        .and_then(|(_, rest)| rest.rsplit_once(':'))
        .map(|(context, _)| context);
    matches!(action.as_str(), "status" | "completed")
        && context == Some(format!("{tenant}/{pipeline}").as_str())
}

/// Returns whether a trigger of the pipeline names a self-authored status, check run or vote. For
/// GitHub, the trigger's requirements on the change are ignored, and callers without pipelines use
/// [`status_triggers`], which gives the same answer. A Gerrit trigger with such requirements does
/// not count.
fn names_self_authored(pipeline: &Pipeline, event: &ForgeEvent) -> bool {
    triggers_of(pipeline, event).any(|trigger| match &trigger.kind {
        TriggerKind::GitHub(github) => names_statuses(github) && fits(github, event, None),
        TriggerKind::Gerrit(gerrit) => {
            let names_votes = !(gerrit.approval.is_empty() && gerrit.approval_change.is_empty());
            names_votes && gerrit::takes(gerrit, event, None)
        }
        _ => false,
    })
}

/// Returns whether events about statuses or check runs of a connection matter to the pipeline: a
/// GitHub trigger admits them, or `require` or `reject` name any. A trigger's own `require` and
/// `reject` do not count. Missed events about statuses that no pipeline uses need not be found.
pub fn uses_any_status(pipeline: &Pipeline, connection: &ConnectionName) -> bool {
    let asks = |filter: &Filter| {
        filter.connection == *connection
            && matches!(&filter.kind, FilterKind::GitHub(github) if !github.status.is_empty())
    };
    let mut triggers = pipeline.triggers.iter().filter(|trigger| trigger.connection == *connection);
    pipeline.require.iter().chain(&pipeline.reject).any(asks)
        || triggers.any(|trigger| matches!(&trigger.kind, TriggerKind::GitHub(github) if is_for_statuses(github)))
}

/// Returns whether a trigger's event and action admit commit statuses or check runs.
fn is_for_statuses(github: &GitHubTrigger) -> bool {
    let is_status =
        github.action.is_empty() || github.action.iter().any(|action| action == "status");
    listed(&github.event, "check_run") || (listed(&github.event, "pull_request") && is_status)
}

/// A trigger for statuses or check runs, reduced to its conditions on these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusTrigger {
    /// The connection whose events it matches.
    pub connection: ConnectionName,
    /// Its conditions on the status or check run.
    pub on: GitHubTrigger,
}

impl StatusTrigger {
    /// Returns whether it matches a status or check run. Its requirements on the change are
    /// ignored.
    pub fn is_for(&self, event: &ForgeEvent) -> bool {
        self.connection == event.connection && fits(&self.on, event, None)
    }
}

/// Returns the GitHub triggers of a pipeline that name statuses or check runs, such as the report
/// of another pipeline, reduced to event, action, status and check. A trigger with a condition that
/// statuses cannot meet, as on a comment or label, is left out. So is a trigger for pull requests
/// that has neither the action `status` nor a status: statuses that Sluice sets do not start its
/// pipeline, or two such pipelines would start each other forever.
pub fn status_triggers(pipeline: &Pipeline) -> Vec<StatusTrigger> {
    let of = |trigger: &Trigger| match &trigger.kind {
        TriggerKind::GitHub(github) if names_statuses(github) => {
            let GitHubTrigger { event, action, status, check, .. } = github.clone();
            let on = GitHubTrigger { event, action, status, check, ..GitHubTrigger::default() };
            Some(StatusTrigger { connection: trigger.connection.clone(), on })
        }
        _ => None,
    };
    pipeline.triggers.iter().filter_map(of).collect()
}

/// Returns whether a trigger names statuses or check runs and has no condition that these cannot
/// meet.
fn names_statuses(github: &GitHubTrigger) -> bool {
    let GitHubTrigger { comment, label, unlabel, state, .. } = github;
    let is_status =
        !github.status.is_empty() || github.action.iter().any(|action| action == "status");
    (is_status || listed(&github.event, "check_run"))
        && is_for_statuses(github)
        && comment.is_empty()
        && label.is_empty()
        && unlabel.is_empty()
        && state.is_empty()
}

/// Returns whether an event `what` about a change in the pipeline `parent`, of the same tenant,
/// starts a pipeline.
pub fn is_triggered_by_zuul(pipeline: &Pipeline, what: ZuulEvent, parent: &PipelineName) -> bool {
    detail_by_zuul(pipeline, what, parent).is_some()
}

/// Returns the report detail for a change that an event `what` of the pipeline `parent`, in the
/// same tenant, enqueues: the highest of all matching triggers. `None` where no trigger matches.
/// `parent` matters only for `parent-change-enqueued`.
pub fn detail_by_zuul(
    pipeline: &Pipeline,
    what: ZuulEvent,
    parent: &PipelineName,
) -> Option<ReportDetail> {
    ReportDetail::of_all(pipeline.triggers.iter().filter(|trigger| match &trigger.kind {
        // Only `parent-change-enqueued` is limited to pipelines.
        TriggerKind::Zuul(zuul) => {
            listed(&zuul.event, what.as_str())
                && (what != ZuulEvent::ParentChangeEnqueued
                    || matches_any(&zuul.pipeline, parent.as_str()))
        }
        _ => false,
    }))
}

/// Returns the report detail for a build that an image event enqueues: the highest of all matching
/// triggers. `None` where no trigger matches.
pub fn detail_by_images(pipeline: &Pipeline, what: ImageEvent) -> Option<ReportDetail> {
    let takes = |kind: &TriggerKind| matches!(kind, TriggerKind::Zuul(zuul) if listed(&zuul.event, what.as_str()));
    ReportDetail::of_all(pipeline.triggers.iter().filter(|trigger| takes(&trigger.kind)))
}

/// Returns the pipeline's triggers for the event's connection.
fn triggers_of<'a>(
    pipeline: &'a Pipeline,
    event: &'a ForgeEvent,
) -> impl Iterator<Item = &'a Trigger> {
    pipeline.triggers.iter().filter(|trigger| trigger.connection == event.connection)
}

/// Returns whether the sender has the permission that the trigger requires. A trigger with
/// `permission` does not match while the permission is unknown.
fn is_permitted(trigger: &GitHubTrigger, may: Option<RepositoryPermission>) -> bool {
    trigger.permission.is_none_or(|needed| may.and_then(as_needed) >= Some(needed))
}

/// Returns a permission in the form that the configuration uses; `None` for no permission.
fn as_needed(permission: RepositoryPermission) -> Option<Needed> {
    match permission {
        RepositoryPermission::None => None,
        RepositoryPermission::Read => Some(Needed::Read),
        RepositoryPermission::Write => Some(Needed::Write),
        RepositoryPermission::Admin => Some(Needed::Admin),
    }
}

/// Returns whether a GitHub trigger matches an event, apart from the sender's permission.
fn takes(trigger: &GitHubTrigger, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    fits(trigger, event, facts) && meets_trigger_filters(trigger, facts)
}

/// Returns whether an event meets a trigger's conditions on the event. Only pushes and events about
/// changes can. The trigger's `require`, `reject` and `permission` are ignored, and its `branch`
/// where the facts of the change are unknown. The deletion of a ref never meets them; a push does
/// not where one of them is about a change.
fn fits(trigger: &GitHubTrigger, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    match &event.kind {
        // As in Zuul, only triggers of Gerrit and plain git can match deletions (`ignore-deletes`).
        EventKind::Push { newrev, .. } if newrev.is_zero() => false,
        EventKind::Push { git_ref, .. } => {
            let branch = event.kind.pushed_branch();
            let asks_of_a_change = !trigger.action.is_empty()
                || !trigger.comment.is_empty()
                || !trigger.label.is_empty()
                || !trigger.unlabel.is_empty()
                || !trigger.state.is_empty()
                || !trigger.status.is_empty()
                || !trigger.check.is_empty();
            let branch_fits = trigger.branch.is_empty()
                || branch.is_some_and(|branch| matches_any(&trigger.branch, branch.as_str()));
            listed(&trigger.event, "push")
                && matches_any(&trigger.r#ref, git_ref)
                && branch_fits
                && !asks_of_a_change
        }
        EventKind::Change { event: name, action, comment, label, state, status, .. } => {
            let facts_fit = facts
                .is_none_or(|facts| matches_any(&trigger.branch, facts.change.branch.as_str()));
            listed(&trigger.event, name)
                && (trigger.action.is_empty()
                    || trigger.action.iter().any(|wanted| is_action(wanted, action)))
                && facts_fit
                && text_fits(&trigger.comment, comment.as_deref(), Pattern::finds)
                && text_fits(&trigger.status, status.as_deref(), Pattern::matches_whole)
                && named(&trigger.label, label.as_deref().filter(|_| action == "labeled"))
                && named(&trigger.unlabel, label.as_deref().filter(|_| action == "unlabeled"))
                && named(&trigger.state, state.as_deref())
                && text_fits(
                    &trigger.check,
                    status.as_deref().filter(|_| name == "check_run"),
                    Pattern::matches_whole,
                )
        }
        // Intake converts all other events into events about changes or refs.
        _ => false,
    }
}

/// Returns whether a trigger's action names the action of an event. A check run is `rerequested`;
/// `requested` is an older name for it that configurations still use.
pub(crate) fn is_action(wanted: &str, action: &str) -> bool {
    let newest =
        |word: &str| if word == "requested" { "rerequested".to_owned() } else { word.to_owned() };
    newest(wanted) == newest(action)
}

/// Returns whether the change meets the trigger's own `require` and does not meet its `reject`, at
/// the time when its facts were read. Without facts, as for a ref, only a trigger that has neither
/// is met.
fn meets_trigger_filters(trigger: &GitHubTrigger, facts: Option<&ChangeFacts>) -> bool {
    let asks = |filter: &Option<FilterKind>| match filter {
        Some(FilterKind::GitHub(github)) => Some(github.clone()),
        _ => None,
    };
    let (require, reject) = (asks(&trigger.require), asks(&trigger.reject));
    let Some(facts) = facts else { return require.is_none() && reject.is_none() };
    require.is_none_or(|filter| unmet(&filter, facts, facts.seen_at).is_none())
        && reject.is_none_or(|filter| met(&filter, facts, facts.seen_at).is_none())
}

/// Returns why the pipeline accepts no change of a connection, not even as a dependency: the
/// pipeline has no trigger, filter or reporter for the connection and does not allow other
/// connections. `None` where it accepts such changes. `require` and `reject` are not checked.
pub fn connection_refusal(pipeline: &Pipeline, connection: &ConnectionName) -> Option<String> {
    (!pipeline.takes_from(connection)).then(|| {
        let name = &pipeline.name;
        format!(
            "pipeline {name} has no trigger, filter or reporter for the connection {connection} and accepts no other connections (allow-other-connections)"
        )
    })
}

/// Returns why the pipeline accepts no refs of a connection; `None` where it does. It accepts none
/// where it accepts nothing of the connection, or where its `require` or `reject` names attributes
/// that only a change has.
pub fn refs_refusal(pipeline: &Pipeline, connection: &ConnectionName) -> Option<String> {
    if let Some(why) = connection_refusal(pipeline, connection) {
        return Some(why);
    }
    let asks = |filters: &[Filter]| {
        let own = filters.iter().filter(|filter| filter.connection == *connection);
        own.into_iter().any(|filter| match &filter.kind {
            FilterKind::GitHub(github) => *github != GitHubFilter::default(),
            FilterKind::Gerrit(gerrit) => *gerrit != GerritFilter::default(),
            FilterKind::GitLab(_) | FilterKind::Other(_) => false,
        })
    };
    let word = match (asks(&pipeline.require), asks(&pipeline.reject)) {
        (true, _) => "requires",
        (false, true) => "rejects",
        (false, false) => return None,
    };
    Some(format!("pipeline {} {word} attributes that only a change has, not a ref", pipeline.name))
}

/// Returns whether a list contains a name.
fn listed(names: &[String], name: &str) -> bool {
    names.iter().any(|listed| listed == name)
}

/// Returns whether a pattern matches the text, or there are no patterns.
fn matches_any(patterns: &[Pattern], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}

/// Returns whether a pattern fits the text in the sense of `fits`, or there are no patterns. A
/// missing text fits no pattern.
fn text_fits(patterns: &[Pattern], text: Option<&str>, fits: fn(&Pattern, &str) -> bool) -> bool {
    patterns.is_empty()
        || text.is_some_and(|text| patterns.iter().any(|pattern| fits(pattern, text)))
}

/// Returns whether a list contains a name or is empty. `request_changes` in the list also means
/// `changes_requested`. A missing name is in no other list.
fn named(names: &[String], name: Option<&str>) -> bool {
    // GitHub's API takes `request_changes` and returns `changes_requested`.
    names.is_empty()
        || name.is_some_and(|name| {
            names
                .iter()
                .any(|n| n == name || (n == "request_changes" && name == "changes_requested"))
        })
}

/// The reason for a change that the forge would not merge ([`ChangeFacts::submittable`]).
pub const NOT_SUBMITTABLE: &str = "the forge's own merge requirements are not met";

/// Returns why the pipeline does not accept the change in its current state, or `None` where it
/// does: the connection, `require` or `reject`. The forge's own requirements are not checked.
pub fn refusal(pipeline: &Pipeline, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    connection_refusal(pipeline, &facts.change.key.connection)
        .or_else(|| refusal_by(&pipeline.name, &pipeline.require, &pipeline.reject, facts, now))
}

/// Returns whether a pipeline runs only what was reviewed: it is `post-review`, or requires a review
/// or an approval.
pub fn requires_review(pipeline: &Pipeline) -> bool {
    pipeline.post_review
        || pipeline.require.iter().any(|filter| match &filter.kind {
            FilterKind::GitHub(github) => !github.review.is_empty(),
            FilterKind::Gerrit(gerrit) => !gerrit.approval.is_empty(),
            FilterKind::GitLab(_) | FilterKind::Other(_) => false,
        })
}

/// Returns the report for a change that misses a merge requirement. The text is Zuul's.
pub fn merge_requirement_message(why: &str) -> String {
    format!("{UNABLE}: {why}.")
}

/// The start of [`merge_requirement_message`].
const UNABLE: &str = "This change is unable to merge due to a missing merge requirement";

/// Returns whether a reason was made by [`merge_requirement_message`].
pub(crate) fn is_unable_to_merge(why: &str) -> bool {
    why.starts_with(UNABLE)
}

/// Returns, as a text for people, the first `require` or `reject` filter of the change's connection
/// that excludes the change, or `None`. In contrast to [`refusal`], whether the pipeline accepts
/// the connection is not checked.
pub(crate) fn refusal_by(
    pipeline: &PipelineName,
    require: &[Filter],
    reject: &[Filter],
    facts: &ChangeFacts,
    now: Timestamp,
) -> Option<String> {
    let own = |filter: &&Filter| filter.connection == facts.change.key.connection;
    for filter in require.iter().filter(own) {
        let missing = match &filter.kind {
            FilterKind::GitHub(github) => unmet(github, facts, now),
            FilterKind::Gerrit(gerrit) => gerrit::unmet(gerrit, facts, now),
            FilterKind::GitLab(_) | FilterKind::Other(_) => None,
        };
        if let Some(missing) = missing {
            return Some(format!("pipeline {pipeline} requires {missing}"));
        }
    }
    for filter in reject.iter().filter(own) {
        let met = match &filter.kind {
            FilterKind::GitHub(github) => met(github, facts, now),
            FilterKind::Gerrit(gerrit) => gerrit::met(gerrit, facts, now),
            FilterKind::GitLab(_) | FilterKind::Other(_) => None,
        };
        if let Some(met) = met {
            return Some(format!("pipeline {pipeline} rejects changes with {met}"));
        }
    }
    None
}

/// Returns, as a text for people, the first requirement that the change does not meet, or `None`. A
/// review or status that was not read does not count.
fn unmet(filter: &GitHubFilter, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    if let Some(open) = filter.open
        && open != (facts.status == ChangeStatus::Open)
    {
        return Some(if open { "an open change" } else { "a change that is not open" }.to_owned());
    }
    if let Some(merged) = filter.merged
        && merged != (facts.status == ChangeStatus::Merged)
    {
        return Some(
            if merged { "a merged change" } else { "a change that is not merged" }.to_owned(),
        );
    }
    // Facts are always those of the current revision.
    if filter.current_patchset == Some(false) {
        return Some("a revision that is not the newest".to_owned());
    }
    if let Some(draft) = filter.draft
        && draft != facts.draft
    {
        return Some(if draft { "a draft" } else { "a change that is not a draft" }.to_owned());
    }
    if let Some(label) = filter.label.iter().find(|label| !facts.labels.contains(label)) {
        return Some(format!("the label {label}"));
    }
    if let Some(requirement) = filter
        .review
        .iter()
        .find(|r| !facts.reviews.iter().any(|review| review_fits(r, review, now)))
    {
        let is_hidden = requirement.email.is_some()
            && facts.reviews.iter().any(|review| review.email.is_none());
        let hidden = if is_hidden { ADDRESS_HIDDEN } else { "" };
        return Some(format!("a review: {}{hidden}", described(requirement)));
    }
    if !filter.status.is_empty() && !filter.status.iter().any(|pattern| status_fits(pattern, facts))
    {
        let wanted: Vec<&str> = filter.status.iter().map(Pattern::as_str).collect();
        let hidden = if facts.truncated.check_runs { CHECK_RUNS_HIDDEN } else { "" };
        return Some(format!("a commit status {}{hidden}", wanted.join(" or ")));
    }
    None
}

/// Appended where a required review may exist but its author's address is hidden.
const ADDRESS_HIDDEN: &str = " (the forge hides the email address of some reviewers, so their reviews cannot match `email`; use `username`)";

/// Appended where a required status may exist as a check run that cannot be read.
const CHECK_RUNS_HIDDEN: &str =
    " (the connection's token may not read check runs, so a check run of that name cannot match)";

/// Returns, as a text for people, the first condition of a reject filter that the change meets, or
/// `None`. One that is met is enough to reject the change. Where a rejected review or status may be
/// among those that were not read, returns this as a reason.
fn met(filter: &GitHubFilter, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    if filter.open.is_some_and(|open| open == (facts.status == ChangeStatus::Open)) {
        return Some("this open state".to_owned());
    }
    if filter.merged.is_some_and(|merged| merged == (facts.status == ChangeStatus::Merged)) {
        return Some("this merged state".to_owned());
    }
    if filter.current_patchset == Some(true) {
        return Some("the newest revision".to_owned());
    }
    if filter.draft.is_some_and(|draft| draft == facts.draft) {
        return Some(if facts.draft { "draft state" } else { "ready state" }.to_owned());
    }
    if let Some(label) = filter.label.iter().find(|label| facts.labels.contains(label)) {
        return Some(format!("the label {label}"));
    }
    if let Some(requirement) = filter
        .review
        .iter()
        .find(|r| facts.reviews.iter().any(|review| review_fits(r, review, now)))
    {
        return Some(format!("a review: {}", described(requirement)));
    }
    if let Some(status) = filter.status.iter().find(|pattern| status_fits(pattern, facts)) {
        return Some(format!("a commit status {}", status.as_str()));
    }
    // A rejected review or status may be among those that were not read.
    if facts.truncated.reviews && !filter.review.is_empty() {
        return Some(
            "more reviews than Sluice reads, so one that it rejects may be among the rest"
                .to_owned(),
        );
    }
    (facts.truncated.statuses && !filter.status.is_empty()).then(|| {
        "more statuses than Sluice reads, so one that it rejects may be among the rest".to_owned()
    })
}

/// Returns whether a review meets all conditions of a requirement. A dismissed review meets none.
fn review_fits(requirement: &ReviewRequirement, review: &ChangeReview, now: Timestamp) -> bool {
    let age_seconds = now.since(review.submitted_at) / 1_000;
    let kind = match review.state {
        ReviewState::Approved => "approved",
        ReviewState::ChangesRequested => "changes_requested",
        ReviewState::Commented => "comment",
        ReviewState::Dismissed => return false,
    };
    // Zuul's documentation uses `request_changes` and `comment`; some configurations use GitHub's
    // own names.
    let in_our_words = |wanted: &str| match wanted {
        "request_changes" => "changes_requested",
        "commented" => "comment",
        other => other,
    } == kind;
    requirement.r#type.as_deref().is_none_or(in_our_words)
        && requirement.username.as_ref().is_none_or(|pattern| pattern.finds(&review.by))
        // A review without an address matches no `email`.
        && requirement.email.as_ref().is_none_or(|p| review.email.as_ref().is_some_and(|email| p.finds(email)))
        && requirement.older_than_seconds.is_none_or(|seconds| age_seconds >= seconds)
        && requirement.newer_than_seconds.is_none_or(|seconds| age_seconds < seconds)
        && requirement.permission.is_none_or(|needed| as_needed(review.permission) >= Some(needed))
}

/// Describes a required review by its type, user, address and permission, without its age.
fn described(requirement: &ReviewRequirement) -> String {
    let mut words = vec![requirement.r#type.clone().unwrap_or_else(|| "any".to_owned())];
    if let Some(pattern) = &requirement.username {
        words.push(format!("by {}", pattern.as_str()));
    }
    if let Some(pattern) = &requirement.email {
        words.push(format!("by the address {}", pattern.as_str()));
    }
    if let Some(permission) = requirement.permission {
        words.push(format!(
            "by a user with {} permission",
            format!("{permission:?}").to_lowercase()
        ));
    }
    words.join(" ")
}

/// Returns whether a pattern matches one of the change's statuses, in the form
/// `user:context:state`.
fn status_fits(pattern: &Pattern, facts: &ChangeFacts) -> bool {
    facts.statuses.iter().any(|status| {
        pattern.matches_whole(&format!("{}:{}:{}", status.by, status.context, status.state))
    })
}
