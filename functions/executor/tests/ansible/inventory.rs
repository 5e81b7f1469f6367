//! The inventory of a build: every variable by name and type, for each kind of item.

use crate::support::*;
use serde_json::{Map, Value, json};
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeKey, ChangeRef, RefMove};
use sluice_model::git::Oid;
use sluice_model::job::IncludeVars;

const LIBRARY: &str = "forge.test/org/library";
const ELSEWHERE: &str = "forge.test/org/elsewhere";

/// Writes what Ansible sees of the variables of the node and of the executor to the logs.
const SHOW: &str = "- hosts: all\n  tasks:\n    \
    - copy:\n        content: \"{{ {'zuul': zuul, 'nodepool': nodepool, 'zuul_node': zuul_node, 'zuul_user_dir': zuul_user_dir, 'unsafe_vars': unsafe_vars | default({}), 'shade': shade, 'groups': groups} | to_json }}\"\n        dest: \"{{ zuul.executor.log_root }}/seen-{{ zuul_execution_trusted }}.json\"\n      delegate_to: localhost\n";

/// Compares a value with an expected document. A text `<…>` there stands for a kind of value: an id
/// or a commit by its length, `<text>`, or `<path>END` for an absolute path with this end. All else
/// is equal, and mappings have the same keys.
fn compare(at: &str, expected: &Value, found: &Value) -> Vec<String> {
    let differs = || vec![format!("{at}: expected {expected}, found {found}")];
    match (expected, found) {
        (expected, found) if expected == found => Vec::new(),
        (Value::Object(expected), Value::Object(found)) => {
            let missing = expected.keys().filter(|key| !found.contains_key(*key));
            let missing = missing.map(|key| format!("{at}.{key} is missing"));
            let more = found.iter().filter(|(key, _)| !expected.contains_key(*key));
            let more = more.map(|(key, value)| format!("{at}.{key} is not expected: {value}"));
            let both =
                expected.iter().filter_map(|(key, value)| Some((key, value, found.get(key)?)));
            let both =
                both.flat_map(|(key, value, found)| compare(&format!("{at}.{key}"), value, found));
            missing.chain(more).chain(both).collect()
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs.flat_map(|(i, (one, other))| compare(&format!("{at}[{i}]"), one, other)).collect()
        }
        (Value::String(kind), Value::String(text)) if kind.starts_with('<') => {
            let is_hex =
                |length| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
            let fits = match kind.split_once('>') {
                Some(("<id", "")) => is_hex(32),
                Some(("<commit", "")) => is_hex(40),
                Some(("<text", "")) => !text.is_empty(),
                Some(("<path", end)) => text.starts_with('/') && text.ends_with(end),
                _ => false,
            };
            if fits { Vec::new() } else { differs() }
        }
        _ => differs(),
    }
}

fn assert_same(at: &str, expected: &Value, found: &Value) {
    let differences = compare(at, expected, found);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Returns YAML as JSON. Texts that Ansible must not expand (`!unsafe`) are texts.
fn plain(value: serde_yaml::Value) -> Value {
    match value {
        serde_yaml::Value::Tagged(tagged) => plain(tagged.value),
        serde_yaml::Value::Sequence(items) => Value::Array(items.into_iter().map(plain).collect()),
        serde_yaml::Value::Mapping(entries) => {
            let entry = |(key, value): (serde_yaml::Value, serde_yaml::Value)| {
                (key.as_str().expect("a key is a text").to_owned(), plain(value))
            };
            Value::Object(entries.into_iter().map(entry).collect::<Map<_, _>>())
        }
        other => serde_json::to_value(other).unwrap(),
    }
}

/// Adds the entries of `more` to a document.
fn with(document: Value, more: Value) -> Value {
    let (Value::Object(mut document), Value::Object(more)) = (document, more) else {
        panic!("both are mappings")
    };
    document.extend(more);
    Value::Object(document)
}

fn project(name: &str) -> Value {
    json!({
        "name": format!("org/{name}"), "short_name": name, "canonical_hostname": "forge.test",
        "canonical_name": format!("forge.test/org/{name}"),
    })
}

fn placed(name: &str, checkout: &str, description: &str) -> Value {
    with(
        project(name),
        json!({
            "src_dir": format!("src/forge.test/org/{name}"), "required": false,
            "checkout": checkout, "checkout_description": description, "commit": "<commit>",
        }),
    )
}

/// Returns the entry of an item of a project, with the keys that the kind of the item has.
fn item(name: &str, url: Value, own: Value) -> Value {
    let src_dir = format!("src/forge.test/org/{name}");
    let project = with(project(name), json!({ "src_dir": src_dir }));
    with(json!({ "project": project, "src_dir": src_dir, "change_url": url }), own)
}

/// Returns the part of `zuul` that is the same for every kind of item, for the job of [`story`].
fn of_every_item(git_ref: &str) -> Value {
    let playbook = |end: &str| json!({ "path": format!("<path>{end}"), "roles": [] });
    json!({
        "build": "<id>", "buildset": "<id>", "ref": git_ref, "pipeline": "check", "job": "unit",
        "tenant": "one", "event_id": "e1", "post_review": false, "voting": true, "attempts": 1,
        "max_attempts": 3, "pre_timeout": null, "timeout": 300, "post_timeout": null,
        "jobtags": ["quick"], "child_jobs": ["deploy"], "ansible_version": "11",
        "workspace_checkout": true, "deduplicate": "auto", "image_build_name": null,
        "include_vars": [
            { "name": "vars.yaml", "project_name": null, "required": true, "use_ref": true },
        ],
        "_inheritance_path": ["<Job base>", "<Job unit>"],
        "resources": {},
        "executor": {
            "hostname": "<text>", "src_root": "<path>/job/work/src", "log_root": "<path>/job/work/logs",
            "work_root": "<path>/job/work", "result_data_file": "<path>/job/work/results.json",
            "inventory_file": "<path>/job/ansible/inventory.yaml",
        },
        "playbook_context": {
            "playbook_projects": "<any>", "pre_playbooks": [], "post_playbooks": [],
            "playbooks": [playbook("/show.yaml"), playbook("/show.yaml")],
        },
    })
}

/// A job with a node in a group, variables of each scope and a variable file.
fn story() -> Story {
    let files = [
        (PROJECT, "show.yaml", SHOW),
        (CONFIG, "show.yaml", SHOW),
        (PROJECT, "vars.yaml", "level: file\n"),
    ];
    let mut story = Story::new(&files).with_nodes(&["alpha"], &[("web", &["alpha"])]);
    story.nodes[0].access.public_ipv4 = Some("192.0.2.7".to_owned());
    story.nodes[0].access.public_ipv6 = Some("2001:db8::7".to_owned());
    story.nodes[0].access.region = Some("eu-north-1".to_owned());
    story.nodes[0].access.az = Some("eu-north-1b".to_owned());
    story.nodes[0].access.external_id = Some("i-7".to_owned());
    story.job.tags = vec!["quick".to_owned()];
    story.job.inheritance = vec!["<Job base>".to_owned(), "<Job unit>".to_owned()];
    story.child_jobs = vec!["deploy".into()];
    story.job.vars = vars(json!({ "shade": "all", "of_all": ["{{ shade }}", 1, true, null] }));
    story.job.group_vars.insert("web".to_owned(), vars(json!({ "shade": "group" })));
    story.job.host_vars.insert("alpha".to_owned(), vars(json!({ "of_host": { "a": 1.5 } })));
    let file =
        json!({ "name": "vars.yaml", "source": "of-change", "required": true, "use_ref": true });
    story.job.run_time.include_vars = vec![serde_json::from_value::<IncludeVars>(file).unwrap()];
    story.job.run = vec![untrusted("show"), story.trusted("show")];
    story
}

/// Runs the story and compares the inventory with `zuul`, which lacks what every item has.
async fn assert_inventory(story: Story, git_ref: &str, zuul: Value) {
    let node = story.nodes[0].access.clone();
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, BuildResult::Success, "{}", outcome.log);
    let mut expected_zuul = with(of_every_item(git_ref), zuul);
    let place = json!({
        "label": "small", "az": "eu-north-1b", "cloud": "static", "provider": "static",
        "region": "eu-north-1", "host_id": null, "external_id": "i-7", "slot": null,
        "interface_ip": node.interface_ip, "public_ipv4": "192.0.2.7", "private_ipv4": "192.0.2.7",
        "public_ipv6": "2001:db8::7", "private_ipv6": null, "node_properties": {},
    });
    let zuul_node =
        with(place.clone(), json!({ "uuid": "alpha", "reuse": false, "private_ipv4": null }));
    let text = outcome.read("work/logs/zuul-info/inventory.yaml");
    assert_eq!(text, outcome.read("ansible/inventory.yaml"));
    let mut found = plain(serde_yaml::from_str(&text).unwrap());
    // Paths are keys here.
    let projects = found["all"]["vars"]["zuul"]["playbook_context"]["playbook_projects"].take();
    found["all"]["vars"]["zuul"]["playbook_context"]["playbook_projects"] = json!("<any>");
    for (path, entry) in projects.as_object().unwrap() {
        let name = entry["canonical_name"].as_str().unwrap();
        assert!(path.starts_with('/') && path.ends_with(name), "{path}");
        let expected =
            json!({ "canonical_name": "<text>", "checkout": "main", "commit": "<commit>" });
        assert_same(path, &expected, entry);
    }
    expected_zuul["playbook_context"]["playbook_projects"] = json!("<any>");
    let expected = json!({ "all": {
        "hosts": { "alpha": {
            "ansible_connection": "ssh", "ansible_host": node.interface_ip, "ansible_port": node.ssh_port,
            "ansible_user": node.username, "ansible_python_interpreter": "<text>",
            "of_host": { "a": 1.5 }, "nodepool": place, "zuul_node": zuul_node,
            "zuul_user_dir": "{{ ansible_user_dir }}",
        } },
        "vars": {
            "level": "file", "shade": "all", "of_all": ["{{ shade }}", 1, true, null],
            "zuul_user_dir": "<path>/job/work", "zuul": expected_zuul,
        },
        "children": {
            "web": { "hosts": { "alpha": null }, "vars": { "shade": "group" } },
            "zuul_unreachable": { "hosts": {} },
        },
    } });
    assert_same("inventory", &expected, &found);
    // What playbooks see is the same, by extra variables.
    for trusted in ["False", "True"] {
        let seen = outcome.read(&format!("work/logs/seen-{trusted}.json"));
        let mut seen: Value = serde_json::from_str(&seen).unwrap();
        seen["zuul"]["playbook_context"]["playbook_projects"] = json!("<any>");
        assert_same("zuul", &found["all"]["vars"]["zuul"], &seen["zuul"]);
        assert_eq!((&seen["nodepool"], &seen["zuul_node"]), (&place, &zuul_node));
        assert_eq!(seen["shade"], "group");
        let groups =
            json!({ "all": ["alpha"], "ungrouped": [], "web": ["alpha"], "zuul_unreachable": [] });
        assert_eq!(seen["groups"], groups);
        // Trusted playbooks see expanded variables, and the written ones beside them.
        let written = json!({ "level": "file", "shade": "group", "of_all": ["{{ shade }}", 1, true, null], "of_host": { "a": 1.5 } });
        let written = if trusted == "True" { written } else { json!({}) };
        assert_eq!(seen["unsafe_vars"], written);
    }
    let known = outcome.read("ssh/known_hosts");
    assert!(known.contains(&node.host_keys[0]), "the node's host key is known: {known}");
}

/// Z5.5, Z7.1: all variables of a change that is tested on another one, by name and type.
#[tokio::test]
async fn the_inventory_of_a_change_has_every_variable() {
    let mut story = story();
    story.ahead(LIBRARY);
    story.message.1 = "Why: {{ it }}".to_owned();
    story.topic = Some("a-topic".to_owned());
    story.job.override_checkout = Some("main".into());
    story.inherited.artifacts = vec![json!({
        "name": "image", "url": "https://logs/image.tar", "metadata": { "type": "x" }, "job": "build",
        "project": "org/library", "change": "6", "patchset": "p",
    })];
    let own = json!({
        "branch": "main", "change": "7", "patchset": "1", "topic": "a-topic", "commit_id": "<commit>",
        "change_message": "Say {{ lookup('env', 'HOME') }}\n\nWhy: {{ it }}",
    });
    let url = json!("https://forge.test/org/project/pull/7");
    let this = item("project", url.clone(), own.clone());
    let ahead = json!({
        "branch": "main", "change": "6", "patchset": "<commit>", "topic": null,
        "commit_id": "<commit>", "change_message": "",
    });
    let expected = with(
        own,
        json!({
            "project": with(project("project"), json!({ "src_dir": "src/forge.test/org/project" })),
            "change_url": url, "message": "U2F5IHt7IGxvb2t1cCgnZW52JywgJ0hPTUUnKSB9fQoKV2h5OiB7eyBpdCB9fQ==",
            "override_checkout": "main",
            "artifacts": story.inherited.artifacts,
            "items": [item("library", Value::Null, ahead), this],
            "buildset_refs": [this], "build_refs": [this],
            "projects": {
                "forge.test/org/library": placed("library", "main", "job override ref"),
                "forge.test/org/project": placed("project", "main", "job override ref"),
            },
        }),
    );
    assert_inventory(story, "refs/pull/7/head", expected).await;
}

/// Returns the change under test as a ref that moved, and what `zuul` has for it.
async fn assert_inventory_of_ref(moved: RefMove, own: Value, checkout: [&str; 2]) {
    let mut story = story();
    if let Some(tag) = moved.tag() {
        story.tagged(tag);
    }
    let (connection, git_ref) = ("forge".into(), moved.git_ref.clone());
    story.order.change = ChangeRef::of_ref(connection, PROJECT.into(), moved);
    let url = json!("https://forge.test/org/project/pull/7");
    let this = item("project", url.clone(), own.clone());
    let expected = with(
        own,
        json!({
            "project": with(project("project"), json!({ "src_dir": "src/forge.test/org/project" })),
            "change_url": url, "items": [this], "buildset_refs": [this], "build_refs": [this],
            "projects": { "forge.test/org/project": placed("project", checkout[0], checkout[1]) },
        }),
    );
    assert_inventory(story, &git_ref, expected).await;
}

/// S06, Z5.5, Z7.1: a pushed branch has its old and new commit, and nothing of a change.
#[tokio::test]
async fn the_inventory_of_a_pushed_branch_has_its_commits() {
    let (old, new) = (Oid("a".repeat(40)), Oid("b".repeat(40)));
    let own = json!({
        "branch": "main", "commit_id": new, "oldrev": old, "newrev": new,
    });
    assert_inventory_of_ref(
        RefMove::new("refs/heads/main", old, new),
        own,
        ["main", "zuul branch"],
    )
    .await;
}

/// Z5.5, Z7.1: a new tag has its name and no branch, and a deleted or new ref has no zero commit.
#[tokio::test]
async fn the_inventory_of_a_new_tag_has_its_name_and_no_branch() {
    let new = Oid("b".repeat(40));
    let own = json!({ "commit_id": new, "newrev": new, "tag": "v1" });
    let moved = RefMove::new("refs/tags/v1", Oid::zero(), new);
    assert_inventory_of_ref(moved, own, ["v1", "zuul ref"]).await;
}

/// R09, Z5.5, Z7.1: a periodic item is the tip of a branch, which has not moved.
#[tokio::test]
async fn the_inventory_of_a_periodic_item_has_a_branch_and_no_commits() {
    let own = json!({ "branch": "main" });
    assert_inventory_of_ref(RefMove::at_tip(&"main".into()), own, ["main", "zuul branch"]).await;
}

/// D10, D15, Z5.5, Z7.1: a build of a bundle names all changes of its bundle, and those that it is
/// for, in merge order.
#[tokio::test]
async fn the_inventory_of_a_bundle_names_all_its_changes() {
    let mut story = story();
    story.ahead(LIBRARY);
    // Its job differs, so that it has a build of its own.
    story.ahead(ELSEWHERE);
    let member = |name: &str, number| {
        ChangeKey::change("forge".into(), format!("forge.test/org/{name}").as_str().into(), number)
    };
    story.order.bundle = vec![member("library", 6), member("elsewhere", 6), member("project", 7)];
    story.order.shared_with = vec![member("library", 6)];
    let own = json!({
        "branch": "main", "change": "7", "patchset": "1", "topic": null, "commit_id": "<commit>",
        "change_message": "Say {{ lookup('env', 'HOME') }}",
    });
    let url = json!("https://forge.test/org/project/pull/7");
    let bundle = json!({ "bundle_id": "<id>" });
    let this = with(item("project", url.clone(), own.clone()), bundle.clone());
    let other = json!({
        "branch": "main", "change": "6", "patchset": "<commit>", "topic": null,
        "commit_id": "<commit>", "change_message": "", "bundle_id": "<id>",
    });
    let elsewhere = item("elsewhere", Value::Null, other.clone());
    let other = item("library", Value::Null, other);
    let expected = with(
        own,
        json!({
            "project": with(project("project"), json!({ "src_dir": "src/forge.test/org/project" })),
            "change_url": url, "message": "U2F5IHt7IGxvb2t1cCgnZW52JywgJ0hPTUUnKSB9fQ==",
            "items": [other, elsewhere, this], "buildset_refs": [other, elsewhere, this],
            "build_refs": [other, this],
            "projects": {
                "forge.test/org/elsewhere": placed("elsewhere", "main", "zuul branch"),
                "forge.test/org/library": placed("library", "main", "zuul branch"),
                "forge.test/org/project": placed("project", "main", "zuul branch"),
            },
        }),
    );
    assert_inventory(story, "refs/pull/7/head", expected).await;
}
