//! Deployment tasks: every example of the third founding document loads as printed, with its line
//! breaks restored (E1, E2).
//!
//! The document's lines are joined, so [`reflow`] splits them at the keywords of tasks. Only
//! misprints and names that no example defines are reported; each test lists them.

use crate::common::founding_material;
use sluice_config::tasks::{DeploymentTask, Roles, Strategy, TaskKind, check, parse};
use sluice_config::{Diagnostic, DiagnosticKind, yaml};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the document as one line.
fn document() -> Option<String> {
    let text = std::fs::read_to_string(founding_material()?.join("seeds/granular-deployment.txt"))
        .unwrap();
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the text between two texts of the document.
fn between<'d>(document: &'d str, from: &str, to: &str) -> &'d str {
    let (_, rest) = document.split_once(from).unwrap_or_else(|| panic!("{from}"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to}")).0.trim()
}

/// Keywords that begin a line of a task.
const OF_A_TASK: [&str; 10] = [
    "type",
    "role",
    "groups",
    "stage",
    "requires",
    "required_for",
    "tasks",
    "parameters",
    "condition",
    "strategy",
];

/// Restores the line breaks of tasks.
fn reflow(text: &str) -> String {
    let mut lines = String::new();
    // The indentation of the previous line, and whether it opens a mapping.
    let (mut depth, mut opens, mut in_strategy, mut is_list) = (0, false, 0, false);
    for word in text.split(' ') {
        let Some(key) = word
            .strip_suffix(':')
            .filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        else {
            match word {
                "-" => {
                    is_list = true;
                    lines.push_str("\n- ");
                }
                _ => {
                    opens = false;
                    lines.push_str(&format!(" {word}"));
                }
            }
            continue;
        };
        if key == "id" {
            (depth, opens, in_strategy) = (0, false, 0);
            let start = if is_list || lines.is_empty() { "" } else { "\n" };
            lines.push_str(&format!("{start}{key}:"));
            continue;
        }
        depth = match key {
            "type" | "amount" if in_strategy > 0 && (opens || depth == in_strategy) => in_strategy,
            _ if OF_A_TASK.contains(&key) && !(key == "strategy" && opens) => 0,
            _ if opens => depth + 1,
            _ => depth,
        };
        opens = matches!(key, "parameters" | "strategy");
        if key == "strategy" {
            in_strategy = depth + 1;
        } else if depth < in_strategy {
            in_strategy = 0;
        }
        let indent = "  ".repeat(depth + usize::from(is_list));
        lines.push_str(&format!("\n{indent}{key}:"));
    }
    lines.trim_start().to_owned() + "\n"
}

/// Returns the tasks of a text without invalid attributes.
fn sound(text: &str) -> Vec<DeploymentTask> {
    let (tasks, problems) = parse(text);
    assert!(problems.is_empty(), "{text}\n{problems:#?}");
    tasks
}

fn ids(tasks: &[DeploymentTask]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

/// Returns diagnostics as line, message and suggestion.
fn diagnostics(problems: &[Diagnostic]) -> Vec<(u32, &str, Option<&str>)> {
    problems
        .iter()
        .map(|problem| {
            (problem.start.line(), problem.message.as_str(), problem.suggestion.as_deref())
        })
        .collect()
}

fn roles(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the nodes of each role in an example, with line breaks restored.
fn nodes_of_roles(printed: &str) -> BTreeMap<String, Vec<String>> {
    let text = printed.replace("] ", "]\n");
    serde_json::from_value(
        yaml::compose_once(&text).unwrap_or_else(|cause| panic!("{text}{cause}")).to_json(),
    )
    .unwrap()
}

/// Returns the roles of nodes in an example.
fn nodes_of(printed: &str) -> BTreeSet<String> {
    nodes_of_roles(printed).into_keys().collect()
}

/// E1, E2, G1, G3: a group with its three strategies; without its missing placeholder it is invalid
/// YAML.
#[test]
fn the_example_of_a_group_is_read() {
    let Some(document) = document() else { return };
    let printed = between(&document, "type: GROUP ------------- ::", "- each chunk of nodes");
    let printed = reflow(printed);
    let (tasks, problems) = parse(&printed);
    assert!(tasks.is_empty());
    assert_eq!(
        diagnostics(&problems),
        [(5, "while parsing a flow node, did not find expected node content", None)]
    );
    let corrected = printed.replace("[, ]", "[]");
    let [group] = &sound(&corrected)[..] else { panic!("{corrected}") };
    assert_eq!((group.kind, group.strategy), (TaskKind::Group, Some(Strategy::Parallel(Some(8)))));
    assert!(check(std::slice::from_ref(group), None).is_empty());
    let others = [
        (between(&document, "will be executed in parallel ::", "- all nodes"), Strategy::OneByOne),
        (between(&document, "executed sequentially ::", "- all nodes"), Strategy::Parallel(None)),
    ];
    for (strategy, expected) in others {
        let text =
            between(&document, "type: GROUP ------------- ::", "strategy:").replace("[, ]", "[]");
        assert_eq!(
            sound(&reflow(&format!("{text} {strategy}")))[0].strategy,
            Some(expected),
            "{text} {strategy}"
        );
    }
    assert_eq!(between(&document, "executed in parallel :: tasks", "- this section"), ": []");
}

/// E1, G1, G1.3: a stage, and two tasks: one bound by roles, the other by groups.
#[test]
fn the_examples_of_a_stage_and_of_tasks_are_read() {
    let Some(document) = document() else { return };
    let stage = sound(&reflow(between(&document, "type: STAGE ------------ ::", "Right now")));
    assert_eq!((stage[0].id.as_str(), stage[0].kind), ("deploy", TaskKind::Stage));
    let both = between(&document, "---------------------------- ::", "Conditional tasks");
    let (first, second) = both.split_once(" id: network").unwrap();
    let (first, second) = (reflow(first), reflow(&format!("id: network{second}")));
    let (legacy, network) = (sound(&first), sound(&second));
    assert_eq!((legacy[0].kind, legacy[0].timeout_seconds), (TaskKind::Puppet, Some(360)));
    assert_eq!(legacy[0].parameters["puppet_manifest"], "/etc/puppet/manifests/site.pp");
    let Roles::Named(of_legacy) = &legacy[0].roles else { panic!("{legacy:?}") };
    assert_eq!(of_legacy.len(), 5);
    assert_eq!(
        (network[0].kind, network[0].parameters["cmd"].as_str()),
        (TaskKind::Shell, Some("python /opt/setup_network.py"))
    );
    assert!(check(&[stage, legacy, network].concat(), None).is_empty());
}

/// E1, E2, G2, G3: the worked example: groups, tasks and nodes. The misspelt role is reported with
/// the right one.
#[test]
fn the_worked_example_is_read() {
    let Some(document) = document() else { return };
    let printed = reflow(between(&document, "several types of roles: ::", "And there is defined"));
    let of_roles = reflow(between(&document, "tasks for each role: ::", "For each role we can"));
    let nodes = nodes_of(between(&document, "several nodes for deployment: ::", "This nodes will"));
    let groups = sound(&printed);
    assert_eq!(
        ids(&groups),
        ["deploy", "primary-controller", "controller", "cinder", "compute", "network"]
    );
    let all = |groups: &str| [sound(groups), sound(&of_roles)].concat();
    let problems = check(&all(&printed), Some(&nodes));
    let line = printed.lines().position(|line| line.contains("primar-controller")).unwrap() + 1;
    let message = "The role \"primar-controller\" was not found.";
    assert_eq!(
        diagnostics(&problems),
        [(u32::try_from(line).unwrap(), message, Some("primary-controller"))]
    );
    assert_eq!(problems[0].stanza, "task primary-controller");
    let corrected = printed.replace("primar-controller", "primary-controller");
    let whole = all(&corrected);
    assert!(check(&whole, Some(&nodes)).is_empty());
    let strategies: Vec<_> = whole[1..6].iter().map(|group| group.strategy.unwrap()).collect();
    let at_once = Strategy::Parallel(None);
    assert_eq!(
        strategies,
        [Strategy::OneByOne, Strategy::Parallel(Some(2)), at_once, at_once, at_once]
    );
    // E3: the plural form.
    let services = &whole[6];
    assert_eq!(services.parameters["puppet_manifest"], "/etc/puppet/manifests/controller.pp");
    assert_eq!(services.requires[0].text, "setup_network");
}

/// E1, E2, G1.1, G1.2: tasks before and after the deployment. A stray word invalidates the path,
/// and no example defines one task.
#[test]
fn the_examples_of_other_stages_are_read() {
    let Some(document) = document() else { return };
    let printed = reflow(between(
        &document,
        "task examples --------------------------------- ::",
        "Alternatives",
    ));
    let (tasks, problems) = parse(&printed);
    assert_eq!(ids(&tasks), ["rsync_puppet"]);
    assert_eq!(tasks[0].parameters["src"], "/etc/pupppet/{VERSION}");
    let line = printed.lines().position(|line| line.contains("modules 16")).unwrap() + 1;
    let message = "\"/etc/puppet/modules 16\" is not a valid path: it contains a blank";
    assert_eq!(diagnostics(&problems), [(u32::try_from(line).unwrap(), message, None)]);
    assert_eq!(problems[0].attribute.as_deref(), Some("parameters.puppet_modules"));
    let tasks = sound(&printed.replace(" 16", ""));
    assert_eq!(tasks[0].roles, Roles::All);
    assert_eq!(
        (tasks[0].stage.as_deref(), tasks[1].stage.as_deref()),
        (Some("post_deployment"), Some("pre_deployment"))
    );
    assert_eq!(
        check(&tasks, None)
            .iter()
            .map(|diagnostics| diagnostics.message.as_str())
            .collect::<Vec<_>>(),
        ["The task \"upload_nodes_info\" was not found."]
    );
}

/// E1, G1.3: tasks that are their own groups; another example defines their stage.
#[test]
fn the_example_of_tasks_without_groups_is_read() {
    let Some(document) = document() else { return };
    let tasks = sound(&reflow(between(&document, "simple set of tasks: ::", "As you see")));
    let nodes = nodes_of(between(&document, "set of roles to nodes: ::", "Deploy /etc/puppet"));
    assert_eq!(ids(&tasks), ["primary-controller", "controller", "compute", "cinder", "ceph-osd"]);
    assert_eq!(
        (tasks[0].strategy, tasks[1].strategy),
        (Some(Strategy::OneByOne), Some(Strategy::Parallel(Some(2))))
    );
    let problems = check(&tasks, Some(&nodes));
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(
        problems
            .iter()
            .all(|diagnostics| diagnostics.message == "The task \"deploy\" was not found.")
    );
}

/// E1, E2, G2: each misprint of the last example is reported with the nearest name; the corrected
/// text is a graph.
#[test]
fn each_misprint_of_an_example_is_reported() {
    let Some(document) = document() else { return };
    let printed = reflow(between(
        &document,
        "multiple cross-reference tasks, like: ::",
        "It is not full format",
    ));
    let (tasks, problems) = parse(&printed);
    let line = |words: &str| {
        u32::try_from(printed.lines().position(|line| line.contains(words)).unwrap() + 1).unwrap()
    };
    assert_eq!(
        diagnostics(&problems),
        [(line("make_compute_available"), "required key not provided: \"type\"", None)]
    );
    let of_vm = "The task \"put_vm_into_maintenance_mode\" was not found.";
    let meant = Some("put_compute_into_maintenance_mode");
    let wrong = check(&tasks, None);
    let (first, second) =
        (line("[put_vm_into_maintenance_mode]"), line("[put_vm_into_maintenance_mode,"));
    assert_eq!(diagnostics(&wrong), [(first, of_vm, meant), (second, of_vm, meant)]);
    let typed =
        printed.replace("make_compute_available\n", "make_compute_available\n  type: shell\n");
    let wrong = check(&sound(&typed), None);
    let of_ovs = "The task \"reinstall_vs\" was not found.";
    assert!(
        diagnostics(&wrong)
            .iter()
            .any(|(_, message, meant)| (*message, *meant) == (of_ovs, Some("reinstall_ovs"))),
        "{wrong:#?}"
    );
    let corrected =
        typed.replace("put_vm_into", "put_compute_into").replace("reinstall_vs", "reinstall_ovs");
    let corrected = sound(&corrected);
    assert!(check(&corrected, Some(&roles(&["primary-controller", "compute"]))).is_empty());
    assert_eq!(ids(&corrected).len(), 4);
}

/// E1, G3: the nodes of both worked examples, in order, each with its role.
#[test]
fn the_examples_of_nodes_are_read() {
    let Some(document) = document() else { return };
    let common: [(&str, &[&str]); 4] = [
        ("cinder", &["node-6"]),
        ("compute", &["node-8"]),
        ("controller", &["node-4", "node-2", "node-3", "node-5"]),
        ("primary-controller", &["node-1"]),
    ];
    for (from, to, other) in [
        ("several nodes for deployment: ::", "This nodes will", "network"),
        ("set of roles to nodes: ::", "Deploy /etc/puppet", "ceph-osd"),
    ] {
        let found = nodes_of_roles(between(&document, from, to));
        let more: [(&str, &[&str]); 1] = [(other, &["node-7"])];
        let expected: BTreeMap<String, Vec<String>> = common
            .into_iter()
            .chain(more)
            .map(|(role, nodes)| {
                (role.to_owned(), nodes.iter().map(|node| (*node).to_owned()).collect())
            })
            .collect();
        assert_eq!(found, expected, "{from}");
    }
}

/// E1, E2, G8: the facts of a node. The remark within them is reported; without it they load, and
/// their parameters equal those of tasks.
#[test]
fn the_example_of_serialised_tasks_is_read() {
    let Some(document) = document() else { return };
    let printed = between(&document, "astute will have section like: ::", "Each astute.yaml");
    // One line per key; lines below `parameters` are indented further.
    let mut lines = String::new();
    for word in printed.split(' ') {
        match word {
            "-" if !lines.ends_with(']') => lines.push_str("\n  -"),
            "type:" | "uids:" | "parameters:" => lines.push_str(&format!("\n    {word}")),
            "puppet_manifest:" | "puppet_modules:" | "timeout:" | "cwd:" => {
                lines.push_str(&format!("\n      {word}"))
            }
            _ => lines.push_str(&format!(" {word}")),
        }
    }
    let printed = lines.trim_start();
    let remark = " - this is done for compatibility reasons";
    let line = printed.lines().position(|line| line.ends_with(remark)).unwrap() + 1;
    let refused = yaml::compose_once(printed).unwrap_err();
    assert_eq!(usize::try_from(refused.mark.line()).unwrap(), line, "{printed}{refused}");
    let facts = yaml::compose_once(&printed.replace(remark, "")).unwrap().to_json();
    let facts = facts["tasks"].as_array().unwrap();
    assert_eq!(facts.len(), 2, "{facts:#?}");
    for (number, (fact, manifest)) in
        facts.iter().zip(["/etc/network.pp", "/etc/controller.pp"]).enumerate()
    {
        assert_eq!(
            (fact["priority"].as_u64(), fact["uids"][0].as_u64()),
            (Some(100), Some(number as u64 + 1))
        );
        let stored = serde_json::json!([{"id": "a", "type": fact["type"], "parameters": fact["parameters"]}]);
        let [task] = &sound(&stored.to_string())[..] else { panic!("{stored}") };
        assert_eq!((task.kind, task.timeout_seconds), (TaskKind::Puppet, Some(360)));
        assert_eq!(task.parameters["puppet_manifest"], manifest);
        assert_eq!(serde_json::Value::Object(task.parameters.clone()), fact["parameters"]);
    }
}

/// G2: duplicate ids, unresolved names and dependency cycles are reported at their place.
#[test]
fn errors_of_a_graph_are_reported_with_its_tasks() {
    let text = "
- {id: a, type: stage, requires: [c]}
- {id: b, type: stage, requires: [a]}
- {id: c, type: stage, requires: [bb], required_for: [d]}
- {id: d, type: stage, required_for: [a]}
- {id: b, type: stage}
- {id: e, type: stage, requires: [c, post_deployment]}
- {id: c2, type: stage, requires: [d], required_for: [c]}
";
    let problems = check(&sound(text), None);
    assert_eq!(
        diagnostics(&problems),
        [
            (4, "The task \"bb\" was not found.", Some("b")),
            (6, "Task b is already defined", None),
            (4, "Dependency cycle between tasks: c → c2 → d → c", None),
        ]
    );
    assert_eq!(problems[2].kind, DiagnosticKind::Conflict);
}

/// G1: all invalid attributes are reported at once, each at its place.
#[test]
fn invalid_attributes_of_a_task_are_reported() {
    let rows = [
        ("{type: shell}", "required key not provided: \"id\""),
        ("{id: a, type: shel}", "\"shel\" is not one of"),
        ("{id: a, type: shell, role: [a], groups: [b]}", "\"groups\" is another name for \"role\""),
        (
            "{id: a, type: shell, parameters: {puppet_manifest: /a}}",
            "extra keys not allowed: \"puppet_manifest\"",
        ),
        ("{id: a, type: rsync, parameters: {src: /a b}}", "is not a valid path"),
        ("{id: a, type: group, strategy: {type: parallel, amount: 0}}", "must be at least 1"),
        (
            "{id: a, type: group, strategy: {type: one_by_one, amount: 2}}",
            "is only allowed with \"parallel\"",
        ),
        ("{id: a, type: group, strategy: {amount: 2}}", "required key not provided: \"type\""),
        ("{id: a, type: shell, parameters: {timeout: soon}}", "expected an integer"),
        ("{id: a, type: shell, condition: [x]}", "expected a string"),
        ("{id: a, type: shell, reqires: [x]}", "extra keys not allowed: \"reqires\""),
    ];
    for (task, message) in rows {
        let (tasks, problems) = parse(&format!("- {{id: fine, type: stage}}\n- {task}\n"));
        assert_eq!(ids(&tasks), ["fine"], "{task}");
        assert!(
            problems.len() == 1
                && problems[0].message.contains(message)
                && problems[0].start.line() == 2,
            "{task} {problems:#?}"
        );
    }
}
