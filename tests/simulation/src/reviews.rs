//! The played Gerrit next to GitHub: which projects it hosts, and the configuration of pipelines
//! for it.

use sluice_scenarios::forge::gerrit::REVIEW;

/// The labels that a change needs votes on before it may land, with the needed value.
pub const NEEDED: [(&str, i64); 2] = [("Code-Review", 2), ("Workflow", 1)];

/// Returns whether the played Gerrit hosts a project, which its name shows (`org/t0r1`).
pub fn is_gerrit_project(project: &str) -> bool {
    let own = project.rsplit('/').next().unwrap_or_default();
    own.starts_with('t') && own.contains('r')
}

/// Returns a GitHub project's name (`org/t0p1`) as the name of a Gerrit project (`org/t0r1`).
pub fn at_gerrit(project: &str) -> String {
    renamed(project, 'p', "r")
}

/// Returns a Gerrit project's name as the name of a GitHub project. Leaves other names unchanged.
pub fn at_github(project: &str) -> String {
    if is_gerrit_project(project) { renamed(project, 'r', "p") } else { project.to_owned() }
}

fn renamed(project: &str, from: char, to: &str) -> String {
    match project.split_once('/') {
        Some((organization, own)) => format!("{organization}/{}", own.replace(from, to)),
        None => project.to_owned(),
    }
}

/// Returns the canonical host name of a project.
pub fn host_of(project: &str) -> &'static str {
    if is_gerrit_project(project) { REVIEW } else { "forge.test" }
}

/// Returns the Gerrit label on which a pipeline votes.
pub fn label_of(pipeline: &str) -> String {
    format!("Verified-{pipeline}")
}

/// Returns the `source` configuration of a tenant with these untrusted projects.
pub fn sources(projects: &[&str]) -> String {
    let of = |is_gerrit: bool| {
        let own = projects.iter().copied().filter(|name| is_gerrit_project(name) == is_gerrit);
        own.collect::<Vec<_>>().join(", ")
    };
    let (github, gerrit) = (of(false), of(true));
    let named = |projects: &str| format!("untrusted-projects: [{projects}]");
    match (github.is_empty(), gerrit.is_empty()) {
        (_, true) => format!("github: {{config-projects: [org/config], {}}}", named(&github)),
        (true, false) => {
            format!("github: {{config-projects: [org/config]}}, gerrit: {{{}}}", named(&gerrit))
        }
        (false, false) => {
            format!(
                "github: {{config-projects: [org/config], {}}}, gerrit: {{{}}}",
                named(&github),
                named(&gerrit)
            )
        }
    }
}

/// Returns the pipelines `check` and `gate` with Gerrit triggers, requirements and reporters added.
pub fn check_and_gate_with_gerrit(pipelines: &str) -> String {
    let between = "- pipeline:\n    name: gate\n";
    match pipelines.split_once(between) {
        Some((check, gate)) => {
            [&with_gerrit(check, "check"), between, &with_gerrit(gate, "gate")].concat()
        }
        None => pipelines.to_owned(),
    }
}

/// Returns a pipeline with a Gerrit trigger, requirement or reporter added for each GitHub one.
pub fn with_gerrit(yaml: &str, pipeline: &str) -> String {
    let label = label_of(pipeline);
    let [(review, most), (go, one)] = NEEDED;
    let requirements = format!(
        "      gerrit:
        open: true
        current-patchset: true
        wip: false
        approval: [{{{review}: {most}}}, {{{go}: {one}}}]
"
    );
    // Each of these events may be the last one that the requirements need.
    let triggers = format!(
        "      gerrit:
        - {{event: comment-added, approval: [{{{go}: {one}}}]}}
        - {{event: comment-added, approval: [{{{review}: {most}}}]}}
        - {{event: wip-state-changed}}
"
    );
    let push_trigger =
        "      gerrit:\n        - event: ref-updated\n          ref: ^refs/heads/.*$\n";
    let lines = [
        (
            "          action: [opened, changed, reopened]\n",
            "      gerrit: [{event: patchset-created}]\n".to_owned(),
        ),
        ("            permission: write\n", requirements),
        ("          state: approved\n", triggers),
        ("          ref: ^refs/heads/.*$\n", push_trigger.to_owned()),
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

/// Returns a gate's configuration changed into that of another gate, for changes with a hashtag.
pub fn for_hashtag(gate: &str, tag: &str) -> String {
    let require = "      gerrit:\n        open: true\n";
    gate.replacen(
        require,
        &format!("      gerrit:\n        hashtags: [{tag}]\n        open: true\n"),
        1,
    )
    .replace(&label_of("gate"), &label_of(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::{POST_YAML, audit_yaml, careful_yaml};
    use sluice_scenarios::sample::PIPELINES;

    /// G11, Z6.1, Z6.2: each GitHub trigger, requirement and reporter has a Gerrit counterpart.
    #[test]
    fn every_github_setting_of_a_pipeline_has_a_gerrit_counterpart() {
        for (yaml, count) in [
            (check_and_gate_with_gerrit(PIPELINES), 7),
            (with_gerrit(&audit_yaml(), "audit"), 3),
            (with_gerrit(POST_YAML, "post"), 1),
        ] {
            assert_eq!(yaml.matches("      gerrit:").count(), count, "{yaml}");
        }
        assert!(with_gerrit(&careful_yaml(), "careful").contains("{Verified-careful: -1}"));
        assert!(check_and_gate_with_gerrit(PIPELINES).contains("{Verified-gate: 1, submit: true}"));
        assert!(
            for_hashtag(&check_and_gate_with_gerrit(PIPELINES), "express")
                .contains("hashtags: [express]")
        );
    }

    /// Z2.1: tenants without Gerrit projects have no Gerrit source.
    #[test]
    fn project_names_show_the_forge() {
        assert_eq!(
            (at_gerrit("org/t0p1"), at_github("org/t0r1")),
            ("org/t0r1".to_owned(), "org/t0p1".to_owned())
        );
        assert!(
            is_gerrit_project(&at_gerrit("org/t0p1"))
                && !is_gerrit_project("org/t0p1")
                && !is_gerrit_project("org/config")
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
