//! What the executor passes to a job about its build.

use super::bundles::approved_cycle;
use super::graph::{self, image_jobs};
use super::{CONFIG, MAIN, PROJECT, approve, judge, merged, ordered, propose, reporters, site};
use serde_json::{Value, json};
use sluice_executor::jobdir::{Jobdir, RuntimeDirectory};
use sluice_executor::parent_data::read_inherited;
use sluice_executor::{AnsibleSettings, AttemptScope, JobAttempt, Lease, OpenedSecrets, vars};
use sluice_memory::poll_once;
use sluice_model::build::Speculation;
use sluice_scenarios::Site;
use std::path::{Path, PathBuf};

/// Returns the `zuul` dictionary that an executor passes to the playbooks of a build.
fn zuul_variables(site: &Site, job: &str, change: u64) -> Value {
    let (order, frozen) = ordered(site, job, change);
    let state = poll_once(site.ports().objects.get(&order.speculation))
        .unwrap()
        .unwrap()
        .expect("the tested state is stored");
    let speculation: Speculation = serde_json::from_slice(&state.bytes).unwrap();
    let inherited = poll_once(read_inherited(&site.ports(), &order)).unwrap().unwrap();
    let secrets = OpenedSecrets::default();
    let job = JobAttempt {
        order: &order,
        job: &frozen,
        speculation: &speculation,
        nodes: &[],
        node_key: None,
        secrets: &secrets,
        child_jobs: &[],
        inherited: &inherited,
        scope: AttemptScope::Whole,
        lease: &Lease::unlimited(),
        holder: None,
    };
    let at = |name: &str| PathBuf::from("/nowhere").join(name);
    let jobdir = Jobdir {
        root: at(""),
        work: at("work"),
        src: at("work/src"),
        logs: at("work/logs"),
        results: at("work/results.json"),
        log: at("log"),
        ansible: at("ansible"),
        home: at("home"),
        dot_ansible: at("dot-ansible"),
        facts: at("facts"),
        ssh: at("ssh"),
        homes: at("homes"),
        runtime: RuntimeDirectory {
            root: at("runtime"),
            control: at("runtime/control"),
            agent: at("runtime/agent"),
            messages: at("runtime/messages"),
            alive: None,
        },
    };
    Value::Object(vars::zuul(
        &job,
        &[],
        &jobdir,
        &AnsibleSettings::new(Path::new("/nowhere")),
        json!({}),
    ))
}

/// Z4.3, X07: the repositories of a job's variable files are part of its tested state even if
/// nothing else requires them. A file of a config project is pinned to the merged state.
#[test]
fn a_build_includes_the_repositories_of_its_variable_files() {
    let files = "include-vars: [own.yaml, {name: all.yaml, project: org/bare}, {name: here.yaml, zuul-project: true}]";
    let config =
        CONFIG.replace("run: playbooks/unit.yaml", &format!("run: playbooks/unit.yaml, {files}"));
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT)];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config), ("own.yaml", "a: 1")]),
        ("org/one", project),
        ("org/bare", &[("all.yaml", "b: 2")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    propose(&site, 1, &[("a", "x")]);
    site.run();
    let (order, frozen) = ordered(&site, "unit", 1);
    let state = poll_once(site.ports().objects.get(&order.speculation))
        .unwrap()
        .unwrap()
        .expect("the tested state is stored");
    let state: Speculation = serde_json::from_slice(&state.bytes).unwrap();
    let of = |name: &str| {
        let found = state.branches.iter().find(|known| known.branch.project.name() == name);
        found.unwrap_or_else(|| panic!("{name} is not among {:?}", state.branches)).clone()
    };
    let pinned: Vec<_> =
        frozen.run_time.include_vars.iter().map(|file| file.commit.clone()).collect();
    assert_eq!(pinned, [Some(of("org/config").base.id), None, None]);
    assert_ne!(
        of("org/one").base,
        of("org/one").result,
        "the change's own file is read as it proposes it"
    );
    assert_eq!(of("org/bare").branch.branch.as_str(), "main");
}

/// J14: a failing non-voting job in the gate does not reject the change. `zuul.voting` is false for
/// it and true for the other jobs.
#[test]
fn zuul_variables_say_whether_the_job_votes() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "broken lint")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    for (job, votes) in [("lint", false), ("unit", true), ("other", true)] {
        let variables = zuul_variables(&site, job, 1);
        assert_eq!((&variables["job"], &variables["voting"]), (&json!(job), &json!(votes)));
    }
    // `unit` ran in check first; `lint` only in the gate.
    let variables = zuul_variables(&site, "lint", 1);
    assert_eq!(
        (&variables["pipeline"], &variables["change"], &variables["branch"]),
        (&json!("gate"), &json!("1"), &json!("main"))
    );
}

/// Z4.3, Z7.1: a job that runs after the merge gets the commit that put the change into its branch.
#[test]
fn a_job_after_the_merge_gets_the_merged_commit() {
    let mut site = reporters::site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let merges = site.forge.merges();
    let [(_, commit)] = merges.as_slice() else { panic!("{merges:?}") };
    for refs in ["buildset_refs", "build_refs"] {
        assert_eq!(
            zuul_variables(&site, "publish", 1)[refs][0]["merge_commit_id"],
            json!(commit.id),
            "{refs}"
        );
    }
}

/// Z7.1, D10: `zuul.buildset_refs` has every member of a bundle in merge order, and
/// `zuul.build_refs` the change of the build.
#[test]
fn a_job_of_a_bundle_sees_all_members() {
    let (mut site, ..) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.run();
    for (job, change) in [("of-one", 1), ("of-two", 2)] {
        let variables = zuul_variables(&site, job, change);
        let numbers = |refs: &str| -> Vec<String> {
            let refs = variables[refs].as_array().unwrap().iter();
            refs.map(|entry| entry["change"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(numbers("buildset_refs").len(), 2, "{variables}");
        assert_eq!(numbers("buildset_refs"), numbers("items"), "{variables}");
        assert_eq!(numbers("build_refs"), [change.to_string()], "{variables}");
    }
}

/// S07: a provider that merges before the requiring job starts hands over no artifacts, and no
/// empty list either. A provider that is tested ahead hands over all of them.
#[test]
fn a_job_gets_artifacts_of_predecessors_but_not_of_merged_changes() {
    let mut site = graph::site(image_jobs(), "[image, user]");
    site.returns = |job| {
        let artifacts = json!([{ "name": "image", "url": "https://images.test/1" }]);
        let returned =
            if job == "image" { json!({ "zuul": { "artifacts": artifacts } }) } else { json!({}) };
        returned.as_object().cloned().unwrap()
    };
    for (number, file) in [(1, "provider"), (2, "user")] {
        let change = propose(&site, number, &[(file, "x")]);
        approve(&mut site, &[&change]);
    }
    let (c, d) = (propose(&site, 3, &[("provider", "y")]), propose(&site, 4, &[("user", "y")]));
    approve(&mut site, &[&c, &d]);
    assert_eq!(merged(&site), [1, 2, 3, 4]);
    let (merged_before, ahead) =
        (zuul_variables(&site, "user", 2), zuul_variables(&site, "user", 4));
    assert_eq!(merged_before.get("artifacts"), None, "{merged_before}");
    let [artifact] = ahead["artifacts"].as_array().unwrap().as_slice() else { panic!("{ahead}") };
    let report =
        ["name", "url", "change", "job", "project"].map(|key| artifact[key].as_str().unwrap());
    assert_eq!(report, ["image", "https://images.test/1", "3", "image", "org/one"]);
}
