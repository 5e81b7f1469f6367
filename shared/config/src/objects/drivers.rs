//! The attributes of each driver's triggers, requirements and reporters.

use super::read::{Diagnostics, Fields, members, texts};
use crate::Pattern;
use crate::connection::Driver;
use crate::pipeline::{
    Approval, CheckConclusion, CommitStatusState, Cron, FilterKind, ForgePermission, GerritFilter,
    GerritReporter, GerritTrigger, GitHubFilter, GitHubReporter, GitHubTrigger, GitLabFilter,
    GitLabReporter, GitLabTrigger, GitTrigger, ReporterKind, ReviewRequirement, ReviewVerdict,
    TimerTrigger, TriggerKind, ZuulReporter, ZuulTrigger,
};
use crate::yaml::{Node, Value};

const PERMISSIONS: [(&str, ForgePermission); 3] = [
    ("read", ForgePermission::Read),
    ("write", ForgePermission::Write),
    ("admin", ForgePermission::Admin),
];

/// The events of Gerrit's event stream, and those that the driver adds.
const GERRIT_EVENTS: [&str; 24] = [
    "patchset-created",
    "draft-published",
    "change-abandoned",
    "change-restored",
    "change-merged",
    "change-deleted",
    "comment-added",
    "ref-updated",
    "pending-check",
    "vote-deleted",
    "topic-changed",
    "hashtags-changed",
    "reviewer-added",
    "reviewer-deleted",
    "assignee-changed",
    "wip-state-changed",
    "private-state-changed",
    "project-created",
    "project-head-updated",
    "batch-ref-updated",
    "ref-replicated",
    "ref-replication-scheduled",
    "ref-replication-done",
    "dropped-output",
];

/// Reads one trigger of a driver. Returns the events it matches, and its attribute `debug`. Invalid
/// attributes are errors and unset, except unknown events, which are errors but kept. The
/// attributes of Pagure and an unknown driver are kept as written, unchecked, and without `debug`.
/// `None`, with an error, if it is not a mapping, or the driver has no events.
pub(super) fn trigger(
    driver: Driver,
    node: &Node,
    p: &mut Diagnostics,
) -> Option<(TriggerKind, bool)> {
    if matches!(driver, Driver::Pagure | Driver::Other) {
        return Some((TriggerKind::Other(node.to_json()), false));
    }
    let mut f = Fields::of(node, "trigger", p)?;
    let debug = f.flag("debug", p).unwrap_or(false);
    let kind = match driver {
        Driver::GitHub => TriggerKind::GitHub(github_trigger(&mut f, p)),
        Driver::Gerrit => TriggerKind::Gerrit(gerrit_trigger(&mut f, p)),
        Driver::GitLab => TriggerKind::GitLab(GitLabTrigger {
            event: events(&mut f, &["gl_merge_request", "gl_push"], p),
            action: f.texts("action", p).unwrap_or_default(),
            branch: f.patterns("branch", p).unwrap_or_default(),
            comment: f.patterns("comment", p).unwrap_or_default(),
            r#ref: f.patterns("ref", p).unwrap_or_default(),
            labels: f.texts("labels", p).unwrap_or_default(),
            unlabels: f.texts("unlabels", p).unwrap_or_default(),
        }),
        Driver::Git => TriggerKind::Git(GitTrigger {
            event: events(&mut f, &["ref-updated"], p),
            r#ref: f.patterns("ref", p).unwrap_or_default(),
            ignore_deletes: f.flag("ignore-deletes", p),
        }),
        Driver::Timer => TriggerKind::Timer(TimerTrigger {
            time: f
                .required("time", p)
                .and_then(|node| time(node, &f.path("time"), p))
                .unwrap_or_default(),
            dereference: f.flag("dereference", p).unwrap_or(false),
        }),
        Driver::Zuul => TriggerKind::Zuul(ZuulTrigger {
            event: events(
                &mut f,
                &[
                    "parent-change-enqueued",
                    "project-change-merged",
                    "image-build",
                    "image-validate",
                    "image-delete",
                ],
                p,
            ),
            pipeline: f.patterns("pipeline", p).unwrap_or_default(),
        }),
        Driver::Smtp
        | Driver::Mqtt
        | Driver::Sql
        | Driver::Elasticsearch
        | Driver::Aws
        | Driver::Static
        | Driver::Pagure
        | Driver::Other => {
            p.syntax(node, "trigger", "a connection of this driver has no events to trigger on");
            return None;
        }
    };
    f.finish(p);
    Some((kind, debug))
}

/// Takes the texts of `event` (or `events`); a single text is a list of one. `supported` are the
/// events of the driver: others are errors, but returned. Values that are no text are errors and
/// left out. Empty, with an error, if the attribute is absent.
fn events(f: &mut Fields<'_>, supported: &[&str], p: &mut Diagnostics) -> Vec<String> {
    let Some((_, node)) = f.one_of(&["event", "events"], p) else {
        p.syntax(f.node(), "trigger.event", "required key not provided: \"event\"");
        return Vec::new();
    };
    let list = texts(node, "trigger.event", p);
    for one in members(node) {
        let Some(wrong) = one.as_text().filter(|event| !supported.contains(event)) else {
            continue;
        };
        let diagnostic = crate::error::Diagnostic::new(
            crate::error::DiagnosticKind::Syntax,
            one.start,
            one.end,
            format!("\"{wrong}\" is not one of {} for \"event\"", supported.join(", ")),
        );
        p.add(diagnostic.about("trigger.event").suggesting(wrong, supported.iter().copied()));
    }
    list
}

/// Takes the attributes of a GitHub trigger, except `debug`; the older `require-status` becomes
/// part of `require`. Absent and, with an error, invalid ones are unset, except unknown events,
/// which are errors but kept.
fn github_trigger(f: &mut Fields<'_>, p: &mut Diagnostics) -> GitHubTrigger {
    let require =
        f.take("require").and_then(|node| filter(Driver::GitHub, node, "trigger.require", p));
    let require_status = f.expressions("require-status", p);
    let require = match (require, require_status) {
        (Some(FilterKind::GitHub(mut filter)), Some(status)) => {
            filter.status.extend(status);
            Some(FilterKind::GitHub(filter))
        }
        (None, Some(status)) => {
            Some(FilterKind::GitHub(GitHubFilter { status, ..GitHubFilter::default() }))
        }
        (require, _) => require,
    };
    GitHubTrigger {
        event: events(f, &["pull_request", "pull_request_review", "push", "check_run"], p),
        action: f.texts("action", p).unwrap_or_default(),
        branch: f.patterns("branch", p).unwrap_or_default(),
        r#ref: f.patterns("ref", p).unwrap_or_default(),
        comment: f.patterns("comment", p).unwrap_or_default(),
        label: f.texts("label", p).unwrap_or_default(),
        unlabel: f.texts("unlabel", p).unwrap_or_default(),
        permission: f.word("permission", &PERMISSIONS, p),
        state: f.texts("state", p).unwrap_or_default(),
        status: f.expressions("status", p).unwrap_or_default(),
        check: f.expressions("check", p).unwrap_or_default(),
        require,
        reject: f.take("reject").and_then(|node| filter(Driver::GitHub, node, "trigger.reject", p)),
    }
}

/// Takes the attributes of a Gerrit trigger, except `debug`. The older `require-approval` and
/// `reject-approval` become part of `require` and `reject`. Absent and, with an error, invalid ones
/// are unset, except unknown events, which are errors but kept.
fn gerrit_trigger(f: &mut Fields<'_>, p: &mut Diagnostics) -> GerritTrigger {
    let require =
        f.take("require").and_then(|node| filter(Driver::Gerrit, node, "trigger.require", p));
    let require_approval =
        f.take("require-approval").map(|node| approvals(node, "trigger.require-approval", p));
    let reject =
        f.take("reject").and_then(|node| filter(Driver::Gerrit, node, "trigger.reject", p));
    let reject_approval =
        f.take("reject-approval").map(|node| approvals(node, "trigger.reject-approval", p));
    GerritTrigger {
        event: events(f, &GERRIT_EVENTS, p),
        branch: f.patterns("branch", p).unwrap_or_default(),
        r#ref: f.patterns("ref", p).unwrap_or_default(),
        ignore_deletes: f.flag("ignore-deletes", p),
        approval: f
            .take("approval")
            .map(|node| approvals(node, "trigger.approval", p))
            .unwrap_or_default(),
        approval_change: f
            .take("approval-change")
            .map(|node| approvals(node, "trigger.approval-change", p))
            .unwrap_or_default(),
        email: either(f, ["email", "email_filter"], p),
        username: either(f, ["username", "username_filter"], p),
        comment: either(f, ["comment", "comment_filter"], p),
        added: f.patterns("added", p).unwrap_or_default(),
        removed: f.patterns("removed", p).unwrap_or_default(),
        scheme: f.text("scheme", p),
        uuid: f.text("uuid", p),
        require: with_approvals(require, require_approval),
        reject: with_approvals(reject, reject_approval),
    }
}

/// Takes patterns from the attribute `name`, or from its older name `older`, which takes only
/// texts. Invalid ones are errors and left out. Empty if neither is present, or, with an error, if
/// both are.
fn either(
    f: &mut Fields<'_>,
    [name, older]: [&'static str; 2],
    p: &mut Diagnostics,
) -> Vec<Pattern> {
    if f.has(name) && f.has(older) {
        f.one_of(&[name, older], p);
        return Vec::new();
    }
    let older = f.expressions(older, p);
    f.patterns(name, p).or(older).unwrap_or_default()
}

/// Adds the approvals of the older form, `more`, to a Gerrit filter, or to a new one if there is no
/// filter. Without them, and for another filter, the filter stays as it is.
fn with_approvals(filter: Option<FilterKind>, more: Option<Vec<Approval>>) -> Option<FilterKind> {
    match (filter, more) {
        (Some(FilterKind::Gerrit(mut filter)), Some(more)) => {
            filter.approval.extend(more);
            Some(FilterKind::Gerrit(filter))
        }
        (None, Some(approval)) => {
            Some(FilterKind::Gerrit(GerritFilter { approval, ..GerritFilter::default() }))
        }
        (filter, _) => filter,
    }
}

/// Reads the requirements of a driver; `None`, with an error, if they are not a mapping. `name` is
/// how errors name the attribute. Invalid attributes are errors and unset. The requirements of
/// drivers other than GitHub, Gerrit and GitLab are kept as written, unchecked.
pub(super) fn filter(
    driver: Driver,
    node: &Node,
    name: &str,
    p: &mut Diagnostics,
) -> Option<FilterKind> {
    if !matches!(driver, Driver::GitHub | Driver::Gerrit | Driver::GitLab) {
        return Some(FilterKind::Other(node.to_json()));
    }
    let mut f = Fields::of(node, name, p)?;
    let kind = match driver {
        Driver::GitHub => FilterKind::GitHub(GitHubFilter {
            review: f
                .take("review")
                .map(|node| reviews(node, &f.path("review"), p))
                .unwrap_or_default(),
            open: f.flag("open", p),
            merged: f.flag("merged", p),
            current_patchset: f.flag("current-patchset", p),
            draft: f.flag("draft", p),
            status: f.expressions("status", p).unwrap_or_default(),
            label: f.texts("label", p).unwrap_or_default(),
        }),
        Driver::Gerrit => FilterKind::Gerrit(GerritFilter {
            approval: f
                .take("approval")
                .map(|node| approvals(node, &f.path("approval"), p))
                .unwrap_or_default(),
            open: f.flag("open", p),
            current_patchset: f.flag("current-patchset", p),
            wip: f.flag("wip", p),
            hashtags: f.patterns("hashtags", p).unwrap_or_default(),
            status: f.texts("status", p).unwrap_or_default(),
        }),
        _ => FilterKind::GitLab(GitLabFilter {
            open: f.flag("open", p),
            merged: f.flag("merged", p),
            approved: f.flag("approved", p),
            labels: f.texts("labels", p).unwrap_or_default(),
        }),
    };
    f.finish(p);
    Some(kind)
}

/// Reads the GitHub reviews of a requirement; a single mapping is a list of one. Members that are
/// not a mapping are errors and left out; their invalid attributes are errors and unset, so that
/// the review requires less.
fn reviews(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<ReviewRequirement> {
    let mut list = Vec::new();
    for member in members(node) {
        let Some(mut f) = Fields::of(member, attribute, p) else {
            continue;
        };
        list.push(ReviewRequirement {
            username: f.expression("username", p),
            email: f.expression("email", p),
            older_than_seconds: f.age("older-than", p),
            newer_than_seconds: f.age("newer-than", p),
            r#type: f.text("type", p),
            permission: f.word("permission", &PERMISSIONS, p),
        });
        f.finish(p);
    }
    list
}

/// Reads votes; a single mapping is a list of one. Every key that does not select a person or a
/// time is a label, with one value or several, each an integer or a text of one. Members that are
/// not a mapping, and other values, are errors and left out; a label whose values are all invalid
/// is kept without values.
fn approvals(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<Approval> {
    let mut list = Vec::new();
    for member in members(node) {
        let Some(mut f) = Fields::of(member, attribute, p) else {
            continue;
        };
        let mut approval = Approval {
            username: f.expression("username", p),
            email: f.expression("email", p),
            older_than_seconds: f.age("older-than", p),
            newer_than_seconds: f.age("newer-than", p),
            labels: std::collections::BTreeMap::new(),
        };
        for (label, votes) in f.rest() {
            let values = members(votes)
                .iter()
                .filter_map(|vote| match vote.value {
                    Value::Int(number) => Some(number),
                    Value::Text(ref text) if text.parse::<i64>().is_ok() => text.parse().ok(),
                    _ => {
                        p.expected(vote, &format!("{attribute}.{label}"), "a vote");
                        None
                    }
                })
                .collect();
            approval.labels.insert(label.to_owned(), values);
        }
        list.push(approval);
    }
    list
}

/// Reads one reporter of a driver; a null has no attributes. `name` is how errors name the
/// attribute. Invalid attributes are errors and unset. The attributes of Pagure and an unknown
/// driver are kept as written, unchecked. `None`, with an error, if it is not a mapping, or the
/// driver cannot report.
pub(super) fn reporter(
    driver: Driver,
    node: &Node,
    name: &str,
    p: &mut Diagnostics,
) -> Option<ReporterKind> {
    let empty = Node { value: Value::Map(Vec::new()), start: node.start, end: node.end };
    let node = if node.is_null() { &empty } else { node };
    if matches!(driver, Driver::Pagure | Driver::Other) {
        return Some(ReporterKind::Other(node.to_json()));
    }
    let mut f = Fields::of(node, name, p)?;
    let kind = match driver {
        Driver::GitHub => ReporterKind::GitHub(github_reporter(&mut f, p)),
        Driver::Gerrit => ReporterKind::Gerrit(gerrit_reporter(&mut f, p)),
        Driver::GitLab => ReporterKind::GitLab(GitLabReporter {
            comment: f.flag("comment", p),
            approval: f.flag("approval", p),
            merge: f.flag("merge", p).unwrap_or(false),
            label: f.texts("label", p).unwrap_or_default(),
            unlabel: f.texts("unlabel", p).unwrap_or_default(),
        }),
        Driver::Smtp => ReporterKind::Smtp {
            to: f.text("to", p),
            from: f.text("from", p),
            subject: f.text("subject", p),
        },
        Driver::Mqtt => ReporterKind::Mqtt {
            topic: f
                .required("topic", p)
                .and_then(|node| topic(node, &f.path("topic"), p))
                .unwrap_or_default(),
            qos: qos(&mut f, p).unwrap_or(0),
            include_returned_data: f.flag("include-returned-data", p).unwrap_or(false),
        },
        // Results are always stored; the attribute is accepted for older configurations.
        Driver::Sql => ReporterKind::Sql,
        Driver::Elasticsearch => ReporterKind::Elasticsearch {
            index: f.text("index", p),
            index_vars: f.flag("index-vars", p).unwrap_or(false),
            index_returned_vars: f.flag("index-returned-vars", p).unwrap_or(false),
        },
        Driver::Zuul => ReporterKind::Zuul(ZuulReporter {
            image_built: f.flag("image-built", p).unwrap_or(false),
            image_validated: f.flag("image-validated", p).unwrap_or(false),
        }),
        _ => {
            p.syntax(node, name, "a connection of this driver cannot report");
            return None;
        }
    };
    f.finish(p);
    Some(kind)
}

/// Reads a timer as text: five cron fields, optionally followed by seconds and a jitter. `None`,
/// with an error, if it is not valid.
fn time(node: &Node, attribute: &str, p: &mut Diagnostics) -> Option<String> {
    let text = super::read::text(node, attribute, p)?;
    match Cron::parse(&text) {
        Ok(_) => Some(text),
        Err(why) => {
            p.syntax(node, attribute, format!("\"{text}\" is not a valid \"time\": {why}"));
            None
        }
    }
}

/// Fields that a topic may contain.
const TOPIC_FIELDS: [&str; 9] = [
    "tenant",
    "pipeline",
    "project",
    "branch",
    "change",
    "patchset",
    "ref",
    "action",
    "connection",
];

/// Reads an MQTT topic as text, unchanged, with fields in braces; `None`, with an error, if it is
/// no text, a field is unknown or a brace is not closed. Fields are not replaced here.
fn topic(node: &Node, attribute: &str, p: &mut Diagnostics) -> Option<String> {
    let text = super::read::text(node, attribute, p)?;
    let (mut rest, mut is_right) = (text.as_str(), true);
    while let Some((_, after)) = rest.split_once('{') {
        let Some((field, further)) = after.split_once('}') else {
            p.syntax(node, attribute, "a brace of \"topic\" is not closed");
            return None;
        };
        if !TOPIC_FIELDS.contains(&field) {
            let message =
                format!("\"{field}\" is not one of {} for \"topic\"", TOPIC_FIELDS.join(", "));
            let diagnostic = crate::error::Diagnostic::new(
                crate::error::DiagnosticKind::Syntax,
                node.start,
                node.end,
                message,
            );
            p.add(diagnostic.about(attribute).suggesting(field, TOPIC_FIELDS));
            is_right = false;
        }
        rest = further;
    }
    is_right.then_some(text)
}

/// Takes a quality of service: 0, 1 or 2. `None` if it is absent, or, with an error, another value.
fn qos(f: &mut Fields<'_>, p: &mut Diagnostics) -> Option<u8> {
    let node = f.take("qos")?;
    match node.value {
        Value::Int(number @ 0..=2) => u8::try_from(number).ok(),
        _ => {
            p.expected(node, &f.path("qos"), "0, 1 or 2");
            None
        }
    }
}

/// Takes the attributes of a GitHub reporter. Absent and, with an error, invalid ones are unset.
fn github_reporter(f: &mut Fields<'_>, p: &mut Diagnostics) -> GitHubReporter {
    use CheckConclusion as Check;
    let statuses = [
        ("pending", CommitStatusState::Pending),
        ("success", CommitStatusState::Success),
        ("failure", CommitStatusState::Failure),
    ];
    let checks = [
        ("queued", Check::Queued),
        ("in_progress", Check::InProgress),
        ("success", Check::Success),
        ("failure", Check::Failure),
        ("cancelled", Check::Cancelled),
        ("skipped", Check::Skipped),
        ("neutral", Check::Neutral),
    ];
    let verdicts = [
        ("approve", ReviewVerdict::Approve),
        ("request-changes", ReviewVerdict::RequestChanges),
        ("comment", ReviewVerdict::Comment),
    ];
    GitHubReporter {
        status: f.word("status", &statuses, p),
        check: f.word("check", &checks, p),
        comment: f.flag("comment", p),
        review: f.word("review", &verdicts, p),
        review_body: f.text("review-body", p),
        merge: f.flag("merge", p).unwrap_or(false),
        label: f.texts("label", p).unwrap_or_default(),
        unlabel: f.texts("unlabel", p).unwrap_or_default(),
        status_url: f.text("status-url", p),
    }
}

/// Takes the attributes of a Gerrit reporter; every attribute that is not known is a label with an
/// integer vote. Absent and, with an error, invalid ones are unset; a label with another vote is
/// left out.
fn gerrit_reporter(f: &mut Fields<'_>, p: &mut Diagnostics) -> GerritReporter {
    let mut reporter = GerritReporter {
        submit: f.flag("submit", p).unwrap_or(false),
        comment: f.flag("comment", p),
        notify: f.text("notify", p),
        ..GerritReporter::default()
    };
    if let Some(checks) = f.mapping("checks-api", p) {
        reporter.checks_api = checks.into_iter().collect();
    }
    for (label, vote) in f.rest() {
        match vote.value {
            Value::Int(number) => {
                reporter.votes.insert(label.to_owned(), number);
            }
            _ => p.expected(vote, label, "a vote"),
        }
    }
    reporter
}
