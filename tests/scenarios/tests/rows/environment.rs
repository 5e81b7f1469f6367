//! What jobs are told of the build that they are of, in an executor's own words.

use super::graph::{self, image_jobs};
use super::{CONFIG, MAIN, PROJECT, approve, judge, merged, ordered, propose, reporters, site};
use serde_json::{Value, json};
use sluice_executor::inherited::inherited;
use sluice_executor::jobdir::{Jobdir, Runtime};
use sluice_executor::{Job, OpenedSecrets, Settings, vars};
use sluice_memory::poll_once;
use sluice_model::build::Speculation;
use sluice_scenarios::Site;
use std::path::{Path, PathBuf};

/// Returns the `zuul` dictionary that an executor gives the playbooks of a build.
fn zuul(site: &Site, job: &str, change: u64) -> Value {
    let (order, frozen) = ordered(site, job, change);
    let state = poll_once(site.ports().objects.get(&order.speculation))
        .unwrap()
        .unwrap()
        .expect("the state is kept");
    let speculation: Speculation = serde_json::from_slice(&state.bytes).unwrap();
    let inherited = poll_once(inherited(&site.ports(), &order)).unwrap().unwrap();
    let secrets = OpenedSecrets::default();
    let job = Job {
        order: &order,
        job: &frozen,
        speculation: &speculation,
        nodes: &[],
        node_key: None,
        secrets: &secrets,
        child_jobs: &[],
        inherited: &inherited,
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
        runtime: Runtime { root: at("runtime"), control: at("runtime/control"), alive: None },
    };
    Value::Object(vars::zuul(&job, &[], &jobdir, &Settings::new(Path::new("/nowhere")), json!({})))
}

/// Z4.3, X07: the repositories of a job's files of variables are part of its tested state though
/// the job asks for nothing else of them, and a config project's file is pinned to what is merged.
#[test]
fn a_job_has_the_repositories_of_its_files_of_variables() {
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
        .expect("the state is kept");
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

/// J14: a non-voting job that fails in the gate keeps nothing out, and is told that it does not
/// vote; the others are told that they do.
#[test]
fn a_job_is_told_whether_it_votes() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "broken lint")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    for (job, votes) in [("lint", false), ("unit", true), ("other", true)] {
        let told = zuul(&site, job, 1);
        assert_eq!((&told["job"], &told["voting"]), (&json!(job), &json!(votes)));
    }
    // `unit` ran in check first; `lint` in the gate alone.
    let told = zuul(&site, "lint", 1);
    assert_eq!(
        (&told["pipeline"], &told["change"], &told["branch"]),
        (&json!("gate"), &json!("1"), &json!("main"))
    );
}

/// Z4.3, Z7.1: what runs after the merge is told by which commit the change is in its branch.
#[test]
fn a_reporter_is_told_the_merged_commit() {
    let mut site = reporters::site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let merges = site.forge.merges();
    let [(_, commit)] = merges.as_slice() else { panic!("{merges:?}") };
    for refs in ["buildset_refs", "build_refs"] {
        assert_eq!(
            zuul(&site, "publish", 1)[refs][0]["merge_commit_id"],
            json!(commit.id),
            "{refs}"
        );
    }
}

/// S07: of a provider that is merged before a job that requires it begins no artifact is told, not
/// even that there is none; of one that is tested ahead of it each is.
#[test]
fn a_job_is_told_of_artifacts_of_changes_ahead_and_of_none_that_are_merged() {
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
    let (merged_before, ahead) = (zuul(&site, "user", 2), zuul(&site, "user", 4));
    assert_eq!(merged_before.get("artifacts"), None, "{merged_before}");
    let [artifact] = ahead["artifacts"].as_array().unwrap().as_slice() else { panic!("{ahead}") };
    let told =
        ["name", "url", "change", "job", "project"].map(|key| artifact[key].as_str().unwrap());
    assert_eq!(told, ["image", "https://images.test/1", "3", "image", "org/one"]);
}
