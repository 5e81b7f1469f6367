//! Which events and changes a pipeline takes: triggers, requirements and rejects, each answer with
//! its reason.
//!
//! GitHub's are here, those of Gerrit and of plain git in [`gerrit`].

mod gerrit;

pub(crate) use gerrit::misfit as misfit_of_gerrit;

use serde::{Deserialize, Serialize};
use sluice_config::pattern::Pattern;
use sluice_config::pipeline::{
    Filter, FilterKind, GerritFilter, GitHubFilter, GitHubTrigger, Permission as Needed, Pipeline,
    ReviewRequirement, Trigger, TriggerKind,
};
use sluice_model::change::{ChangeFacts, ChangeStatus, Permission, Review, ReviewState};
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent, ZuulEvent};
use sluice_model::{ConnectionName, PipelineName, TenantName, Timestamp};

/// Returns whether some trigger of the pipeline takes the event. `facts` are those of the change
/// that it is about; an event about a ref has none. `may` is what its sender may do in the
/// repository, where somebody asked: see [`asks_who`].
pub fn is_triggered(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
    may: Option<Permission>,
) -> bool {
    detail_of(pipeline, event, facts, may).is_some()
}

/// How much the reports on what a trigger lets in tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What became of it.
    Outcome,
    /// How its jobs were decided, too (`debug`).
    Debug,
}

impl Detail {
    /// Returns what a trigger asks for that says `debug` so.
    pub fn of(debug: bool) -> Self {
        if debug { Self::Debug } else { Self::Outcome }
    }

    /// Returns the most that some of these triggers ask for; `None` of none.
    fn of_all<'a>(triggers: impl Iterator<Item = &'a Trigger>) -> Option<Self> {
        triggers.map(|trigger| Self::of(trigger.debug)).max()
    }
}

/// Returns how much is told of what the event lets in, by all triggers of the pipeline that take
/// it; `None` where none does. The arguments are those of [`is_triggered`].
pub fn detail_of(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: Option<&ChangeFacts>,
    may: Option<Permission>,
) -> Option<Detail> {
    Detail::of_all(triggers_of(pipeline, event).filter(|trigger| match &trigger.kind {
        TriggerKind::GitHub(github) => takes(github, event, facts) && is_permitted(github, may),
        other => takes_otherwise(other, event, facts),
    }))
}

fn takes_otherwise(trigger: &TriggerKind, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    match trigger {
        TriggerKind::Gerrit(gerrit) => gerrit::takes(gerrit, event, facts),
        TriggerKind::Git(git) => gerrit::takes_ref(git, event),
        _ => false,
    }
}

/// Returns whether what the event's sender may do decides whether the pipeline takes it, or how
/// much is told of it.
pub fn asks_who(pipeline: &Pipeline, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    let (mut asking, mut open): (Option<Detail>, Option<Detail>) = (None, None);
    for trigger in triggers_of(pipeline, event) {
        let detail = Some(Detail::of(trigger.debug));
        match &trigger.kind {
            TriggerKind::GitHub(github) if !takes(github, event, facts) => {}
            TriggerKind::GitHub(github) if github.permission.is_some() => {
                asking = asking.max(detail)
            }
            TriggerKind::GitHub(_) => open = open.max(detail),
            other if takes_otherwise(other, event, facts) => open = open.max(detail),
            _ => {}
        }
    }
    // Nothing, which no trigger asks for, is less than anything.
    asking > open
}

/// Returns whether a status or check run on a change's head may be anything to the pipeline: a
/// trigger is for it, or the pipeline asks for statuses of changes, those in its queue as well.
/// What it is on need not be known.
pub fn heeds_status(pipeline: &Pipeline, event: &ForgeEvent) -> bool {
    let asks = |filter: &Filter| {
        filter.connection == event.connection
            && matches!(&filter.kind, FilterKind::GitHub(github) if !github.status.is_empty())
    };
    let is_for = |trigger: &Trigger| match &trigger.kind {
        TriggerKind::GitHub(github) => fits(github, event, None),
        other => takes_otherwise(other, event, None),
    };
    pipeline.require.iter().chain(&pipeline.reject).any(asks)
        || triggers_of(pipeline, event).any(is_for)
}

/// Who says what an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speaker {
    /// This service: a status, a check run or votes of its own.
    Ourselves,
    /// Anybody else.
    #[default]
    Others,
}

/// Returns whether an event may start a pipeline of a tenant at all; see [`held_back`].
pub fn may_start(
    tenant: &TenantName,
    pipeline: &Pipeline,
    event: &ForgeEvent,
    by: Speaker,
) -> bool {
    held_back(tenant, pipeline, event, by).is_none()
}

/// Returns why an event starts a pipeline of a tenant in no case, whatever else its triggers take,
/// if so.
///
/// By what a pipeline says it is started no more, or it would run for ever; one that somebody asks
/// for again starts it. What else we said ourselves starts those that name it: of those that take
/// whatever comes two would start each other for ever.
pub fn held_back(
    tenant: &TenantName,
    pipeline: &Pipeline,
    event: &ForgeEvent,
    by: Speaker,
) -> Option<&'static str> {
    if is_own_word(tenant, &pipeline.name, event) {
        return Some("it is what the pipeline says itself, which does not start it again");
    }
    let is_unasked = by == Speaker::Ourselves && !waits_for_own(pipeline, event);
    is_unasked.then_some("this service said it, and no trigger of the pipeline names what it said")
}

/// Whether an event tells of the status, or the end of the check run, by which the pipeline itself
/// reports.
fn is_own_word(tenant: &TenantName, pipeline: &PipelineName, event: &ForgeEvent) -> bool {
    let EventKind::Change { action, status: Some(status), .. } = &event.kind else { return false };
    let context = status
        .split_once(':')
        .and_then(|(_, rest)| rest.rsplit_once(':'))
        .map(|(context, _)| context);
    matches!(action.as_str(), "status" | "completed")
        && context == Some(format!("{tenant}/{pipeline}").as_str())
}

/// Returns whether a trigger of the pipeline is for something that we said ourselves: a status, a
/// check run or votes, which it names. What it asks of the change besides is left out for GitHub
/// alone. Who has no pipelines at hand asks [`status_triggers`], which are for the same.
fn waits_for_own(pipeline: &Pipeline, event: &ForgeEvent) -> bool {
    triggers_of(pipeline, event).any(|trigger| match &trigger.kind {
        TriggerKind::GitHub(github) => names_statuses(github) && fits(github, event, None),
        TriggerKind::Gerrit(gerrit) => {
            let names_votes = !(gerrit.approval.is_empty() && gerrit.approval_change.is_empty());
            names_votes && gerrit::takes(gerrit, event, None)
        }
        _ => false,
    })
}

/// Returns whether statuses or check runs of changes may be anything to the pipeline, whichever
/// they are: what nobody heeds is not looked for.
pub fn heeds_statuses(pipeline: &Pipeline, connection: &ConnectionName) -> bool {
    let asks = |filter: &Filter| {
        filter.connection == *connection
            && matches!(&filter.kind, FilterKind::GitHub(github) if !github.status.is_empty())
    };
    let mut triggers = pipeline.triggers.iter().filter(|trigger| trigger.connection == *connection);
    pipeline.require.iter().chain(&pipeline.reject).any(asks)
        || triggers.any(|trigger| matches!(&trigger.kind, TriggerKind::GitHub(github) if is_for_statuses(github)))
}

fn is_for_statuses(github: &GitHubTrigger) -> bool {
    let is_status =
        github.action.is_empty() || github.action.iter().any(|action| action == "status");
    listed(&github.event, "check_run") || (listed(&github.event, "pull_request") && is_status)
}

/// A trigger that a status or check run may fire, with what it asks of these alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusTrigger {
    /// The connection whose events it looks at.
    pub connection: ConnectionName,
    /// What it looks for.
    pub on: GitHubTrigger,
}

impl StatusTrigger {
    /// Returns whether it is for this status or check run, whatever it asks of the change besides.
    pub fn is_for(&self, event: &ForgeEvent) -> bool {
        self.connection == event.connection && fits(&self.on, event, None)
    }
}

/// Returns the triggers of a pipeline that name statuses or check runs, as the word of another
/// pipeline is waited for. One that names no action takes what others set, and nothing of ours by
/// itself: two such pipelines would start each other for ever.
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

/// Whether a trigger is for statuses or check runs by name, and looks at nothing that these do not
/// have.
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

/// Returns whether a pipeline is started by what happened in `parent`, a pipeline of the same
/// tenant.
pub fn is_triggered_by_zuul(pipeline: &Pipeline, what: ZuulEvent, parent: &PipelineName) -> bool {
    detail_by_zuul(pipeline, what, parent).is_some()
}

/// Returns how much is told of what enters by that, by all triggers that are for it; `None` where
/// none is.
pub fn detail_by_zuul(
    pipeline: &Pipeline,
    what: ZuulEvent,
    parent: &PipelineName,
) -> Option<Detail> {
    Detail::of_all(pipeline.triggers.iter().filter(|trigger| match &trigger.kind {
        // Only of what entered is asked where it did.
        TriggerKind::Zuul(zuul) => {
            listed(&zuul.event, what.as_str())
                && (what != ZuulEvent::ParentChangeEnqueued
                    || matches_any(&zuul.pipeline, parent.as_str()))
        }
        _ => false,
    }))
}

/// Returns how much is told of what enters by what is asked of images, by all triggers that are for
/// it; `None` where none is.
pub fn detail_by_images(pipeline: &Pipeline, what: ImageEvent) -> Option<Detail> {
    let takes = |kind: &TriggerKind| matches!(kind, TriggerKind::Zuul(zuul) if listed(&zuul.event, what.as_str()));
    Detail::of_all(pipeline.triggers.iter().filter(|trigger| takes(&trigger.kind)))
}

fn triggers_of<'a>(
    pipeline: &'a Pipeline,
    event: &'a ForgeEvent,
) -> impl Iterator<Item = &'a Trigger> {
    pipeline.triggers.iter().filter(|trigger| trigger.connection == event.connection)
}

/// Whether the sender may do what the trigger asks for. Nobody knows it of whom nobody asked, so
/// such a trigger does not fire.
fn is_permitted(trigger: &GitHubTrigger, may: Option<Permission>) -> bool {
    trigger.permission.is_none_or(|needed| may.and_then(as_needed) >= Some(needed))
}

fn as_needed(permission: Permission) -> Option<Needed> {
    match permission {
        Permission::None => None,
        Permission::Read => Some(Needed::Read),
        Permission::Write => Some(Needed::Write),
        Permission::Admin => Some(Needed::Admin),
    }
}

fn takes(trigger: &GitHubTrigger, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    fits(trigger, event, facts) && own_terms_fit(trigger, facts)
}

/// Whether an event is one that a trigger is for, whatever it asks of the change besides.
fn fits(trigger: &GitHubTrigger, event: &ForgeEvent, facts: Option<&ChangeFacts>) -> bool {
    match &event.kind {
        // As in Zuul, whose triggers for Gerrit and plain git alone have a word for deletions
        // (`ignore-deletes`).
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
        // Intake turns the others into events of changes or refs.
        _ => false,
    }
}

/// Whether an action is the one that a trigger names. A check run that is asked for again is
/// `rerequested`, by its older name `requested`; deliveries that were stored before bear that one.
pub(crate) fn is_action(wanted: &str, action: &str) -> bool {
    let newest =
        |word: &str| if word == "requested" { "rerequested".to_owned() } else { word.to_owned() };
    newest(wanted) == newest(action)
}

/// Whether the change meets what the trigger asks for besides the event. A ref has nothing of what
/// can be asked for.
fn own_terms_fit(trigger: &GitHubTrigger, facts: Option<&ChangeFacts>) -> bool {
    let asks = |filter: &Option<FilterKind>| match filter {
        Some(FilterKind::GitHub(github)) => Some(github.clone()),
        _ => None,
    };
    let (require, reject) = (asks(&trigger.require), asks(&trigger.reject));
    let Some(facts) = facts else { return require.is_none() && reject.is_none() };
    require.is_none_or(|filter| unmet(&filter, facts, facts.seen_at).is_none())
        && reject.is_none_or(|filter| met(&filter, facts, facts.seen_at).is_none())
}

/// Returns why the pipeline takes nothing of a connection, not even what another change depends on,
/// or `None` when it does.
pub fn refusal_of_connection(pipeline: &Pipeline, connection: &ConnectionName) -> Option<String> {
    (!pipeline.takes_from(connection)).then(|| {
        let name = &pipeline.name;
        format!(
            "pipeline {name} does not name the connection {connection} and takes no others (allow-other-connections)"
        )
    })
}

/// Returns why the pipeline takes no refs of a connection, or `None` when it does: it takes nothing
/// of it, or requires or rejects of changes what no ref can show.
pub fn refusal_of_refs(pipeline: &Pipeline, connection: &ConnectionName) -> Option<String> {
    if let Some(why) = refusal_of_connection(pipeline, connection) {
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
    Some(format!("pipeline {} {word} what only a change has", pipeline.name))
}

fn listed(names: &[String], name: &str) -> bool {
    names.iter().any(|listed| listed == name)
}

fn matches_any(patterns: &[Pattern], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}

fn text_fits(patterns: &[Pattern], text: Option<&str>, fits: fn(&Pattern, &str) -> bool) -> bool {
    patterns.is_empty()
        || text.is_some_and(|text| patterns.iter().any(|pattern| fits(pattern, text)))
}

fn named(names: &[String], name: Option<&str>) -> bool {
    // GitHub writes `request_changes` when it is asked for and `changes_requested` when it tells.
    names.is_empty()
        || name.is_some_and(|name| {
            names
                .iter()
                .any(|n| n == name || (n == "request_changes" && name == "changes_requested"))
        })
}

/// Says why a forge itself would not let a change land ([`ChangeFacts::submittable`]).
pub const NOT_SUBMITTABLE: &str = "its forge would not let it land, by its own requirements";

/// Returns why the pipeline does not take the change as it is now, or `None` when it does.
pub fn refusal(pipeline: &Pipeline, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    refusal_of_connection(pipeline, &facts.change.key.connection)
        .or_else(|| refusal_by(&pipeline.name, &pipeline.require, &pipeline.reject, facts, now))
}

/// Returns what is told of a change that may not merge for that reason. The text is Zuul's.
pub fn unable_to_merge(why: &str) -> String {
    format!("{UNABLE}: {why}.")
}

/// How [`unable_to_merge`] begins.
const UNABLE: &str = "This change is unable to merge due to a missing merge requirement";

/// Returns whether a reason is one of [`unable_to_merge`].
pub(crate) fn is_unable_to_merge(why: &str) -> bool {
    why.starts_with(UNABLE)
}

/// Returns what [`refusal`] does, for a pipeline of which only what it requires and rejects is
/// known.
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
        return Some(
            if merged { "a merged change" } else { "a change that is not merged" }.to_owned(),
        );
    }
    // A change is read as it is, so its commit is always the newest one.
    if filter.current_patchset == Some(false) {
        return Some("a revision that is not the newest".to_owned());
    }
    if let Some(draft) = filter.draft
        && draft != facts.draft
    {
        return Some(if draft { "a draft" } else { "a change that is no draft" }.to_owned());
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
        let hidden = if facts.cut.check_runs { CHECK_RUNS_HIDDEN } else { "" };
        return Some(format!("a commit status {}{hidden}", wanted.join(" or ")));
    }
    None
}

/// Said of a review that is missed where it may be there, by somebody whose address is not shown.
const ADDRESS_HIDDEN: &str = " (the forge shows no address of some who reviewed, so that it is not seen; `username` is known of all)";

/// Said of a status that is missed where it may be there, as a check run.
const CHECK_RUNS_HIDDEN: &str =
    " (the forge shows the connection's token no check runs, so that one of that name is not seen)";

/// Returns the first part of a reject filter that the change meets.
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
        return Some(if facts.draft { "a draft's state" } else { "no draft's state" }.to_owned());
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
    // What is refused may be among those that were not read.
    if facts.cut.reviews && !filter.review.is_empty() {
        return Some("more reviews than are read, of which it rejects some".to_owned());
    }
    (facts.cut.statuses && !filter.status.is_empty())
        .then(|| "more statuses than are read, of which it rejects some".to_owned())
}

fn review_fits(requirement: &ReviewRequirement, review: &Review, now: Timestamp) -> bool {
    let age_seconds = now.since(review.submitted_at) / 1_000;
    let kind = match review.state {
        ReviewState::Approved => "approved",
        ReviewState::ChangesRequested => "changes_requested",
        ReviewState::Commented => "comment",
        ReviewState::Dismissed => return false,
    };
    // Zuul's documentation has `request_changes` and `comment`, GitHub calls them as its reviews
    // are.
    let in_our_words = |wanted: &str| match wanted {
        "request_changes" => "changes_requested",
        "commented" => "comment",
        other => other,
    } == kind;
    requirement.r#type.as_deref().is_none_or(in_our_words)
        && requirement.username.as_ref().is_none_or(|pattern| pattern.finds(&review.by))
        // Who shows no address is taken for nobody's.
        && requirement.email.as_ref().is_none_or(|p| review.email.as_ref().is_some_and(|email| p.finds(email)))
        && requirement.older_than_seconds.is_none_or(|seconds| age_seconds >= seconds)
        && requirement.newer_than_seconds.is_none_or(|seconds| age_seconds < seconds)
        && requirement.permission.is_none_or(|needed| as_needed(review.permission) >= Some(needed))
}

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
            "by somebody with {} permission",
            format!("{permission:?}").to_lowercase()
        ));
    }
    words.join(" ")
}

fn status_fits(pattern: &Pattern, facts: &ChangeFacts) -> bool {
    facts.statuses.iter().any(|status| {
        pattern.matches_whole(&format!("{}:{}:{}", status.by, status.context, status.state))
    })
}
