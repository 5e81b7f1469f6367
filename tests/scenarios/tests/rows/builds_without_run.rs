//! Builds that no executor runs, as the API and the report show them.

use super::graph::{labels, site};
use super::system_events::asked;
use super::{approve, comments, merged, propose};
use serde_json::{Value, json};
use sluice_scenarios::Site;

/// A job that needs a node of the label red.
const UNIT: &str = "
- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: node, label: red}]}}
";

/// Asks the API for a list of the tenant, which must have a body.
fn list(site: &Site, path: &str) -> Vec<Value> {
    let (status, body) = asked(site, &format!("tenant/demo/{path}"));
    assert_eq!(status, 200, "{path}: {body}");
    body.as_array().unwrap().clone()
}

/// Checks that the only build of a job is complete: in the list, on its page, in its buildset and
/// linked in the report. Returns its error detail.
fn check_build(site: &Site, change: u64, job: &str, result: &str) -> Option<String> {
    let query = format!("builds?change={change}&job_name={job}&pipeline=gate");
    let builds = list(site, &query);
    let [build] = builds.as_slice() else { panic!("{builds:?}") };
    assert_eq!((&build["result"], &build["final"]), (&json!(result), &json!(true)), "{build}");
    assert_eq!((&build["start_time"], &build["duration"]), (&Value::Null, &Value::Null));
    assert!(build["execute_time"].is_string() && build["end_time"].is_string(), "{build}");
    let uuid = build["uuid"].as_str().unwrap();
    let (status, page) = asked(site, &format!("tenant/demo/build/{uuid}"));
    assert_eq!((status, &page["error_detail"]), (200, &build["error_detail"]));
    let buildset = build["buildset"]["uuid"].as_str().unwrap();
    let (_, buildset) = asked(site, &format!("tenant/demo/buildset/{buildset}"));
    let of_buildset = buildset["builds"].as_array().unwrap();
    assert!(of_buildset.iter().any(|other| other["uuid"] == uuid), "{buildset}");
    build["error_detail"].as_str().map(str::to_owned)
}

/// Returns how the report links to the only build of a job.
fn linked(site: &Site, job: &str, result: &str) -> String {
    let builds = list(site, &format!("builds?job_name={job}&pipeline=gate"));
    let uuid = builds[0]["uuid"].as_str().unwrap();
    format!("- [{job}](https://sluice.test/t/demo/build/{uuid}) : {result}")
}

/// Z1.6, Z9.1, N03: the provider declines the job's nodes.
#[test]
fn a_job_whose_nodes_are_declined_leaves_a_build_with_its_reason() {
    let mut site = site(&format!("{}{UNIT}", labels(&["red"])), "[unit]");
    site.cloud.refuse("t3.red");
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let detail = check_build(&site, 1, "unit", "NODE_FAILURE").unwrap();
    let report = comments(&site, &a);
    let line = format!("{}: {detail}", linked(&site, "unit", "NODE_FAILURE"));
    assert!(report.contains(&line), "{line}\n{report}");
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// N02, Z9.1: no provider has the label.
#[test]
fn a_job_whose_label_no_provider_has_leaves_a_build_with_its_reason() {
    let mut site = site(&format!("{}{UNIT}", labels(&["blue"])), "[unit]");
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let detail = check_build(&site, 1, "unit", "NODE_FAILURE").unwrap();
    assert!(detail.contains("no provider of the tenant offers red"), "{detail}");
    let report = comments(&site, &a);
    assert!(report.contains(&linked(&site, "unit", "NODE_FAILURE")), "{report}");
    assert_eq!(site.builds(), Vec::<String>::new(), "no executor was asked to run it");
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// Z9.1, Z1.6: the result of a build stays when its item is tested again.
#[test]
fn a_build_without_nodes_keeps_its_result_when_its_change_is_tested_again() {
    let mut site = site(&format!("{}{UNIT}", labels(&["red"])), "[unit, test1]");
    site.held.insert("test1".to_owned());
    let a = propose(&site, 1, &[("a", "broken test1")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    // The first change has used its node before the second one needs one.
    let passed = "builds?change=1&job_name=unit&result=SUCCESS";
    site.run_until(|site| site.running() == ["test1"] && list(site, passed).len() == 1);
    site.cloud.refuse("t3.red");
    site.forge.approve(&b);
    let failures = "builds?change=2&result=NODE_FAILURE";
    site.run_until(|site| list(site, failures).len() == 1);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert_eq!(list(&site, failures).len(), 2, "{:?}", list(&site, "builds?change=2"));
}

/// J15, Z9.1: as in Zuul, noop has a build, although no executor runs it.
#[test]
fn a_noop_job_leaves_a_build_that_no_executor_ran() {
    let mut site = site("", "[noop]");
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(check_build(&site, 1, "noop", "SUCCESS"), None);
    let report = comments(&site, &a);
    assert!(report.contains(&linked(&site, "noop", "SUCCESS")), "{report}");
    assert_eq!(site.builds(), Vec::<String>::new(), "no executor was asked to run it");
}
