//! A Gerrit beside GitHub: which projects are at it, and what pipelines say in its words.

use sluice_scenarios::forge::gerrit::REVIEW;

/// What a change needs from people before it may land, and how much of it.
pub const NEEDED: [(&str, i64); 2] = [("Code-Review", 2), ("Workflow", 1)];

/// Returns whether a project is one of the played Gerrit: its name says so (`org/t0r1`).
pub fn is_review(project: &str) -> bool {
    let own = project.rsplit('/').next().unwrap_or_default();
    own.starts_with('t') && own.contains('r')
}

/// Returns the name by which the played Gerrit has a project that would be GitHub's by this one
/// (`org/t0p1`).
pub fn at_review(project: &str) -> String {
    renamed(project, 'p', "r")
}

/// Returns the name by which GitHub has a project that the played Gerrit has by this one.
pub fn at_hub(project: &str) -> String {
    if is_review(project) { renamed(project, 'r', "p") } else { project.to_owned() }
}

fn renamed(project: &str, from: char, to: &str) -> String {
    match project.split_once('/') {
        Some((organization, own)) => format!("{organization}/{}", own.replace(from, to)),
        None => project.to_owned(),
    }
}

/// Returns the host of a project.
pub fn host_of(project: &str) -> &'static str {
    if is_review(project) { REVIEW } else { "forge.test" }
}

/// Returns the label on which a pipeline votes.
pub fn label_of(pipeline: &str) -> String {
    format!("Verified-{pipeline}")
}

/// Returns what a tenant has from which connection.
pub fn sources(projects: &[&str]) -> String {
    let of = |is_wanted: bool| {
        let own = projects.iter().copied().filter(|name| is_review(name) == is_wanted);
        own.collect::<Vec<_>>().join(", ")
    };
    let (hub, gerrit) = (of(false), of(true));
    let named = |projects: &str| format!("untrusted-projects: [{projects}]");
    match (hub.is_empty(), gerrit.is_empty()) {
        (_, true) => format!("github: {{config-projects: [org/config], {}}}", named(&hub)),
        (true, false) => {
            format!("github: {{config-projects: [org/config]}}, gerrit: {{{}}}", named(&gerrit))
        }
        (false, false) => {
            format!(
                "github: {{config-projects: [org/config], {}}}, gerrit: {{{}}}",
                named(&hub),
                named(&gerrit)
            )
        }
    }
}

/// Returns check and gate as they are with a Gerrit besides.
pub fn of_both(pipelines: &str) -> String {
    let between = "- pipeline:\n    name: gate\n";
    match pipelines.split_once(between) {
        Some((check, gate)) => {
            [&with_words(check, "check"), between, &with_words(gate, "gate")].concat()
        }
        None => pipelines.to_owned(),
    }
}

/// Returns a pipeline that says to a Gerrit what it says to GitHub.
pub fn with_words(yaml: &str, pipeline: &str) -> String {
    let label = label_of(pipeline);
    let [(review, most), (go, one)] = NEEDED;
    let asks = format!(
        "      gerrit:
        open: true
        current-patchset: true
        wip: false
        approval: [{{{review}: {most}}}, {{{go}: {one}}}]
"
    );
    // Whichever comes last makes the change one that may enter.
    let told = format!(
        "      gerrit:
        - {{event: comment-added, approval: [{{{go}: {one}}}]}}
        - {{event: comment-added, approval: [{{{review}: {most}}}]}}
        - {{event: wip-state-changed}}
"
    );
    let moved = "      gerrit:\n        - event: ref-updated\n          ref: ^refs/heads/.*$\n";
    let lines = [
        (
            "          action: [opened, changed, reopened]\n",
            "      gerrit: [{event: patchset-created}]\n".to_owned(),
        ),
        ("            permission: write\n", asks),
        ("          state: approved\n", told),
        ("          ref: ^refs/heads/.*$\n", moved.to_owned()),
        ("      github: {status: success}\n", format!("      gerrit: {{{label}: 1}}\n")),
        (
            "      github: {status: success, merge: true}\n",
            format!("      gerrit: {{{label}: 1, submit: true}}\n"),
        ),
        ("      github: {status: failure}\n", format!("      gerrit: {{{label}: -1}}\n")),
    ];
    lines
        .into_iter()
        .fold(yaml.to_owned(), |yaml, (line, more)| yaml.replace(line, &format!("{line}{more}")))
}

/// Returns the text of a gate as that of another one for changes with this hashtag.
pub fn for_tagged(gate: &str, tag: &str) -> String {
    let asked = "      gerrit:\n        open: true\n";
    gate.replacen(
        asked,
        &format!("      gerrit:\n        hashtags: [{tag}]\n        open: true\n"),
        1,
    )
    .replace(&label_of("gate"), &label_of(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plays::{POST_YAML, audit_yaml, careful_yaml};
    use sluice_scenarios::sample::PIPELINES;

    /// G11, Z6.1, Z6.2: each trigger, requirement and reporter of GitHub's has one of Gerrit's
    /// beside it.
    #[test]
    fn pipelines_say_to_a_gerrit_what_they_say_to_github() {
        for (yaml, count) in [
            (of_both(PIPELINES), 7),
            (with_words(&audit_yaml(), "audit"), 3),
            (with_words(POST_YAML, "post"), 1),
        ] {
            assert_eq!(yaml.matches("      gerrit:").count(), count, "{yaml}");
        }
        assert!(with_words(&careful_yaml(), "careful").contains("{Verified-careful: -1}"));
        assert!(of_both(PIPELINES).contains("{Verified-gate: 1, submit: true}"));
        assert!(for_tagged(&of_both(PIPELINES), "express").contains("hashtags: [express]"));
    }

    /// Z2.1: what is at GitHub alone is configured as ever.
    #[test]
    fn projects_are_told_apart_by_their_names() {
        assert_eq!(
            (at_review("org/t0p1"), at_hub("org/t0r1")),
            ("org/t0r1".to_owned(), "org/t0p1".to_owned())
        );
        assert!(
            is_review(&at_review("org/t0p1")) && !is_review("org/t0p1") && !is_review("org/config")
        );
        assert_eq!(
            sources(&["org/t0p0"]),
            "github: {config-projects: [org/config], untrusted-projects: [org/t0p0]}"
        );
        let at_gerrit =
            "github: {config-projects: [org/config]}, gerrit: {untrusted-projects: [org/t0r0]}";
        assert_eq!(sources(&["org/t0r0"]), at_gerrit);
    }
}
