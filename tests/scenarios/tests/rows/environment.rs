//! What jobs are told of the build that they are of, in an executor's own words.

use super::{approve, merged, ordered, propose, site};
use serde_json::{Value, json};
use sluice_executor::jobdir::{Jobdir, Runtime};
use sluice_executor::{Inherited, Job, OpenedSecrets, Settings, vars};
use sluice_memory::poll_once;
use sluice_model::build::Speculation;
use sluice_scenarios::Site;
use std::path::{Path, PathBuf};

/// Returns the `zuul` dictionary that an executor gives the playbooks of a build.
fn zuul(site: &Site, job: &str, change: u64) -> Value {
    let (order, frozen) = ordered(site, job, change);
    let state = poll_once(site.ports().objects.get(&order.speculation)).unwrap().unwrap().expect("the state is kept");
    let speculation: Speculation = serde_json::from_slice(&state.bytes).unwrap();
    let (secrets, inherited) = (OpenedSecrets::default(), Inherited::default());
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
        runtime: Runtime { root: at("runtime"), control: at("runtime/control") },
    };
    Value::Object(vars::zuul(&job, &[], &jobdir, &Settings::new(Path::new("/nowhere")), json!({})))
}

/// J14: a non-voting job that fails in the gate keeps nothing out, and is told that it does not vote; the others are told that
/// they do.
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
    assert_eq!((&told["pipeline"], &told["change"], &told["branch"]), (&json!("gate"), &json!("1"), &json!("main")));
}
