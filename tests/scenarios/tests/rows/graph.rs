//! The jobs of a change: their graph, attempts, nodes and semaphores, and what one change hands to
//! the next.

use super::standard_jobs::report_lines;
use super::system_events::asked;
use super::{MAIN, approve, buildsets, comments, gate_builds, merged, propose, unlinked};
use serde_json::Value;
use sluice_gate::{Item, Semaphore, StoredHead};
use sluice_memory::Fate;
use sluice_model::build::{BuildResult, Order};
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_model::{ProjectName, TenantName};
use sluice_records::codec::decode;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::Clock;
use sluice_runtime::record::Record;
use sluice_scenarios::Site;
use sluice_scenarios::repos::Tree;
use std::collections::BTreeMap;

/// Returns the pipelines of the other rows and jobs that every change starts with.
pub(super) fn config(more: &str) -> String {
    let pipelines = super::CONFIG.split("- job:").next().unwrap();
    format!(
        "{pipelines}
- queue: {{name: integrated}}
- job: {{name: base, parent: null}}
- job: {{name: merge, run: playbooks/merge.yaml, hold-following-changes: true}}
- job: {{name: test1, run: playbooks/test1.yaml, attempts: 4}}
- job: {{name: test2, run: playbooks/test2.yaml}}
{more}"
    )
}

pub(super) const STANDARD: &str = "
        - merge
        - test1: {dependencies: [merge]}
        - test2: {dependencies: [merge]}";

/// Returns a site whose projects one and two run these jobs in the gate, in one queue.
pub(super) fn site(more: &str, jobs: &str) -> Site {
    seeded(7, more, jobs)
}

fn seeded(seed: u64, more: &str, jobs: &str) -> Site {
    let project = format!(
        "- project:\n    queue: integrated\n    check: {{jobs: [noop]}}\n    gate:\n      jobs: {jobs}\n"
    );
    let project: &[(&str, &str)] = &[(".zuul.yaml", &project), ("shared", "0")];
    let config = config(more);
    Site::new(
        seed,
        MAIN,
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", project), ("org/two", project)],
        judge,
    )
}

/// Fails a job if some file contains `broken` and its name. Returns a retry for its first attempt
/// if some file contains `again`.
fn judge(job: &str, attempt: u32, files: &BTreeMap<String, Tree>) -> BuildResult {
    let says = |what: &str| {
        files
            .values()
            .flat_map(BTreeMap::values)
            .any(|text| text.contains(&format!("{what} {job}")))
    };
    match job {
        _ if attempt == 1 && says("again") => BuildResult::Retry,
        _ if says("broken") => BuildResult::Failure,
        _ => BuildResult::Success,
    }
}

/// Returns the orders of the builds that executors were asked to run.
pub(super) fn orders(site: &Site) -> Vec<Order> {
    let records = site.world.records();
    let orders =
        records.iter().filter(|r| r.key.partition.starts_with("build#") && r.key.sort == "order");
    let orders = orders.map(|record| decode::<Order>(record).unwrap());
    orders.filter(|order| order.end.is_none()).collect()
}

fn all_gate_builds(site: &Site) -> Vec<String> {
    site.builds()
        .into_iter()
        .filter_map(|build| build.strip_prefix("gate ").map(str::to_owned))
        .collect()
}

pub(super) fn needing(site: &Site, number: u64, need: u64, text: &str) -> ChangeKey {
    let body = format!("Depends-On: https://forge.test/org/one/pull/{need}");
    site.forge.propose("org/one", number, "a change", &body, &[(&format!("file{number}"), text)])
}

pub(super) fn running(site: &Site) -> Vec<String> {
    let mut jobs = site.running();
    jobs.sort();
    jobs
}

/// Enqueues changes in the gate in this order and handles nothing else yet.
pub(super) fn enqueue(site: &mut Site, changes: &[&ChangeKey]) {
    site.run();
    for change in changes {
        site.forge.approve(change);
        site.take_in();
    }
}

/// J12
#[test]
fn jobs_that_depend_on_a_failed_job_do_not_run_and_the_change_does_not_merge() {
    let jobs: String = ["a", "b", "c", "d", "e", "f", "g"]
        .map(|name| format!("- job: {{name: {name}, run: playbooks/{name}.yaml}}\n"))
        .concat();
    let list = "
        - a
        - b: {dependencies: [a]}
        - c: {dependencies: [a]}
        - d: {dependencies: [b]}
        - e: {dependencies: [c]}
        - f: {dependencies: [b, c]}
        - g: {dependencies: [f]}";
    let mut site = site(&jobs, list);
    let a = propose(&site, 1, &[("file", "broken c")]);
    approve(&mut site, &[&a]);
    assert_eq!(all_gate_builds(&site), ["a 1", "b 1", "c 1", "d 1"]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    let report = comments(&site, &a);
    assert_eq!(report.matches("SKIPPED: Skipped due to failed job c").count(), 3, "{report}");
}

/// J13
#[test]
fn a_job_with_a_soft_dependency_on_an_unmatched_job_runs() {
    let jobs = "
- job: {name: build, run: playbooks/build.yaml, files: [src/.*]}
- job: {name: deploy, run: playbooks/deploy.yaml, dependencies: [{name: build, soft: true}]}
";
    let mut site = site(jobs, "[build, deploy]");
    let a = propose(&site, 1, &[("docs", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(all_gate_builds(&site), ["deploy 1"]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    let b = propose(&site, 2, &[("src/file", "x")]);
    approve(&mut site, &[&b]);
    assert_eq!(all_gate_builds(&site), ["build 2", "deploy 1", "deploy 2"]);
}

/// J14
#[test]
fn a_failed_non_voting_job_does_not_reject_the_change() {
    let mut site =
        site("- job: {name: lint, run: playbooks/lint.yaml, voting: false}\n", "[test2, lint]");
    let a = propose(&site, 1, &[("file", "broken lint")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let voting: BTreeMap<String, bool> =
        orders(&site).iter().map(|order| (order.job.to_string(), order.voting)).collect();
    assert_eq!(voting, BTreeMap::from([("lint".to_owned(), false), ("test2".to_owned(), true)]));
}

/// J16: every executor that runs test1 dies.
#[test]
fn a_job_whose_executors_die_ends_as_retry_limit() {
    let mut site = site("", STANDARD);
    site.held.insert("test1".to_owned());
    let a = propose(&site, 1, &[("a", "x")]);
    enqueue(&mut site, &[&a]);
    for lost in 1..=4 {
        site.run_until(|site| site.running() == ["test1"] && gate_builds(site, "test2").len() == 1);
        assert_eq!(gate_builds(&site, "test1").len(), lost);
        site.die();
    }
    site.run();
    assert_eq!(
        all_gate_builds(&site),
        ["merge 1", "test1 1", "test1 1", "test1 1", "test1 1", "test2 1"]
    );
    let report = comments(&site, &a);
    assert!(
        report.contains("- [test1](")
            && report.contains(") : RETRY_LIMIT")
            && unlinked(&report).contains("test2 : SUCCESS"),
        "{report}"
    );
    assert_eq!(report.matches("RETRY_LIMIT").count(), 1, "it is reported once");
    assert_eq!(merged(&site), Vec::<u64>::new());
}

/// D08
#[test]
fn a_failure_of_the_first_change_stops_the_builds_of_its_chain() {
    let mut site = site("", STANDARD);
    let a = propose(&site, 1, &[("a", "broken merge")]);
    let b = needing(&site, 2, 1, "x");
    let c = needing(&site, 3, 2, "x");
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(all_gate_builds(&site), ["merge 1"]);
    let sets = buildsets(&site, &[&a, &b, &c]);
    assert_eq!(sets, ["org/one#1 FAILURE", "org/one#2 FAILURE", "org/one#3 FAILURE"]);
    for behind in [&b, &c] {
        let report = comments(&site, behind);
        assert!(report.contains("depends on a change that failed to merge"), "{report}");
    }
}

/// D09
#[test]
fn a_chain_in_the_middle_leaves_with_its_first_change_and_the_others_merge() {
    let mut site = site("", STANDARD);
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "broken test1")]);
    let (c, d) = (needing(&site, 3, 2, "x"), needing(&site, 4, 3, "x"));
    let e = propose(&site, 5, &[("e", "x")]);
    site.held.extend(["test1".to_owned(), "test2".to_owned()]);
    enqueue(&mut site, &[&a, &b, &c, &d, &e]);
    site.run_until(|site| site.running().len() == 10);
    assert_eq!(running(&site), [["test1"; 5], ["test2"; 5]].concat());
    site.release("test1", Some(2));
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 5]);
    assert!(comments(&site, &b).contains("Build failed"), "{}", comments(&site, &b));
    for behind in [&c, &d] {
        assert!(comments(&site, behind).contains("depends on a change that failed to merge"));
    }
    assert_eq!(all_gate_builds(&site).len(), 18, "{:?}", all_gate_builds(&site));
}

/// G02: the first jobs start one after the other, the remaining jobs all at once.
#[test]
fn merge_jobs_start_in_the_order_of_the_queue() {
    let mut site = site("", STANDARD);
    let changes =
        [1, 2, 3].map(|number| propose(&site, number, &[(&format!("file{number}"), "x")]));
    site.held.extend(["merge".to_owned(), "test1".to_owned(), "test2".to_owned()]);
    enqueue(&mut site, &changes.iter().collect::<Vec<_>>());
    for number in 1..=3 {
        site.run_until(|site| running(site).contains(&"merge".to_owned()));
        assert_eq!(gate_builds(&site, "merge").len(), number, "the next one waits for this one");
        site.release("merge", None);
    }
    site.run_until(|site| site.running().len() == 6);
    for job in ["test1", "test2"] {
        assert_eq!(gate_builds(&site, job), ["1", "1 2", "1 2 3"]);
    }
    site.held.clear();
    site.run();
    assert_eq!((merged(&site), all_gate_builds(&site).len()), (vec![1, 2, 3], 9));
    for change in &changes {
        assert_eq!(report_lines(&site, "gate", change), ["start", "Build succeeded."]);
    }
}

/// Returns the provider configuration for N14 and N16: one machine type per label.
pub(super) fn labels(names: &[&str]) -> String {
    let each = |what: &str| names.iter().map(|name| what.replace('X', name)).collect::<String>();
    format!(
        "
- image: {{name: debian, type: cloud, username: root}}
{}{}
- section:
    name: here
    connection: ec2
    region: us-east-1
    images: [{{name: debian, image-id: ami-1}}]
    flavors:
{}
- provider: {{name: main, section: here, labels: [{}]}}
",
        each("- flavor: {name: X}\n"),
        each("- label: {name: X, image: debian, flavor: X}\n"),
        each("      - {name: X, instance-type: t3.X}\n"),
        names.join(", "),
    )
}

const NESTED: &str = "
- nodeset: {name: fast, alternatives: [{nodes: [{name: node, label: red}]}, {nodes: [{name: node, label: green}]}]}
- nodeset: {name: slow, alternatives: [{nodes: [{name: node, label: blue}]}, {nodes: [{name: node, label: gray}]}]}
- nodeset: {name: any, alternatives: [fast, slow]}
- job: {name: unit, run: playbooks/unit.yaml, nodeset: any}
";

/// N14
#[test]
fn a_job_uses_the_second_alternative_nodeset_if_the_first_fails() {
    let mut site =
        site(&format!("{}{NESTED}", labels(&["red", "green", "blue", "gray"])), "[unit]");
    site.cloud.refuse("t3.red");
    let a = propose(&site, 1, &[("a", "x")]);
    enqueue(&mut site, &[&a]);
    let mut seen = Vec::new();
    site.run_until(|site| site.is_building());
    for record in site.world.records() {
        if record.key.sort.starts_with("item#") {
            let item: Item = decode(&record).unwrap();
            seen.extend(item.jobs[0].summary.labels.concat().iter().map(ToString::to_string));
        }
    }
    assert_eq!(seen, ["red", "green", "blue", "gray"]);
    site.run();
    assert_eq!(site.cloud.requested_types(), ["t3.red", "t3.green"]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(
        orders(&site).iter().map(|order| (order.nodeset, order.attempt)).max(),
        Some((1, 1))
    );
    let report = comments(&site, &a);
    assert!(
        unlinked(&report).contains("unit : SUCCESS") && !report.contains("NODE_FAILURE"),
        "{report}"
    );
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// N14: if no alternative nodeset is available, the job fails once.
#[test]
fn a_job_without_an_available_nodeset_ends_as_node_failure() {
    let mut site =
        site(&format!("{}{NESTED}", labels(&["red", "green", "blue", "gray"])), "[unit]");
    for kind in ["t3.red", "t3.green", "t3.blue", "t3.gray"] {
        site.cloud.refuse(kind);
    }
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(site.cloud.requested_types(), ["t3.red", "t3.green", "t3.blue", "t3.gray"]);
    assert_eq!(comments(&site, &a).matches("NODE_FAILURE").count(), 1, "{}", comments(&site, &a));
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

fn semaphores(site: &Site) -> Vec<Semaphore> {
    let records = site.world.records().into_iter();
    records
        .filter(|record| record.key.partition.starts_with("semaphores#"))
        .map(|r| decode(&r).unwrap())
        .collect()
}

fn holders(site: &Site) -> Vec<String> {
    let semaphores = semaphores(site);
    semaphores
        .iter()
        .flat_map(|semaphore| &semaphore.holders)
        .map(|holder| holder.build.to_string())
        .collect()
}

fn locked() -> String {
    let nodes = "nodeset: {nodes: [{name: node, label: small}]}";
    format!(
        "{}- semaphore: {{name: site, max: 1}}
- job: {{name: deploy, run: playbooks/deploy.yaml, semaphores: [site], {nodes}}}
",
        labels(&["small"])
    )
}

/// N16
#[test]
fn a_semaphore_is_acquired_before_nodes_are_requested() {
    let mut site = site(&locked(), "[deploy]");
    let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "x")]));
    enqueue(&mut site, &[&a, &b]);
    site.held.insert("deploy".to_owned());
    let waits = |site: &Site| {
        let records = site.world.records();
        let items = records.iter().filter(|record| record.key.sort.starts_with("item#"));
        let jobs = items.flat_map(|record| decode::<Item>(record).unwrap().jobs);
        jobs.filter_map(|job| Some(job.waits_for?.to_string())).collect::<Vec<_>>()
    };
    site.run_until(|site| site.is_building() && !waits(site).is_empty());
    assert_eq!(waits(&site), ["semaphores: site"]);
    let (_, status) = asked(&site, "tenant/demo/status");
    let items = &status["pipelines"][1]["change_queues"][0]["heads"][0];
    let statuses = [0_usize, 1].map(|at| items[at]["jobs"][0]["waiting_status"].clone());
    assert_eq!(statuses, [Value::Null, Value::from("semaphores: site")], "{status}");
    site.held.clear();
    site.run_checked(|site| {
        assert!(holders(site).len() <= 1, "{:?}", semaphores(site));
        let records = site.world.records();
        let is_open = |record: &&Record| {
            record.key.sort.starts_with("request#") && !record.body.contains("\"ended\"")
        };
        let requests: Vec<_> = records.iter().filter(is_open).collect();
        assert!(requests.len() <= 1, "nodes are asked for by who holds it alone: {requests:?}");
    });
    assert_eq!(merged(&site), [1, 2]);
    assert!(semaphores(&site).iter().all(Semaphore::is_unused));
}

/// Z4.3: with `resources-first` both builds have their nodes before the second one acquires the
/// semaphore.
#[test]
fn with_resources_first_a_semaphore_is_acquired_after_the_nodes() {
    let mut site = site(
        &locked()
            .replace("semaphores: [site]", "semaphores: [{name: site, resources-first: true}]"),
        "[deploy]",
    );
    let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "x")]));
    enqueue(&mut site, &[&a, &b]);
    site.held.insert("deploy".to_owned());
    site.run_until(|site| site.is_building() && site.cloud.running() == 2);
    site.held.clear();
    site.run_checked(|site| {
        assert!(holders(site).len() <= 1, "{:?}", semaphores(site));
        assert!(site.running().len() <= 1);
    });
    assert_eq!(merged(&site), [1, 2]);
    assert!(semaphores(&site).iter().all(Semaphore::is_unused));
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// N17
#[test]
fn a_semaphore_passes_to_the_build_of_the_next_patchset() {
    let mut site = site(&locked(), "[deploy]");
    site.held.insert("deploy".to_owned());
    let a = propose(&site, 1, &[("a", "x")]);
    enqueue(&mut site, &[&a]);
    site.run_until(|site| site.is_building());
    let before = holders(&site);
    assert_eq!(before.len(), 1);
    site.forge.revise(&a, "more", "x");
    site.take_in();
    site.forge.approve(&a);
    site.take_in();
    site.run_until(|site| {
        site.is_building() && !holders(site).is_empty() && holders(site) != before
    });
    site.held.clear();
    site.run_checked(|site| assert!(holders(site).len() <= 1, "{:?}", semaphores(site)));
    assert_eq!(merged(&site), [1]);
    assert!(semaphores(&site).iter().all(Semaphore::is_unused));
}

fn layout(site: &Site) -> u64 {
    let key = tenant::key(&TenantName::from("demo"));
    let records = site.world.records();
    let head: Tenant = decode(records.iter().find(|record| record.key == key).unwrap()).unwrap();
    head.layout.live
}

/// R01
#[test]
fn builds_continue_during_a_reconfiguration() {
    let mut site = site("", STANDARD);
    site.held.extend(["test1".to_owned(), "test2".to_owned()]);
    let a = propose(&site, 1, &[("a", "x")]);
    enqueue(&mut site, &[&a]);
    site.run_until(|site| site.running().len() == 2);
    let (before, builds) = (layout(&site), all_gate_builds(&site));
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/config"), branch: "main".into() };
    site.forge.push(
        &main,
        &[("zuul.yaml", &config("- job: {name: another, run: playbooks/another.yaml}\n"))],
    );
    let follows = |site: &Site| {
        let records = site.world.records();
        let mut items = records.iter().filter(|record| record.key.sort.starts_with("item#"));
        items.all(|record| decode::<Item>(record).unwrap().layout == layout(site))
    };
    site.run_until(|site| layout(site) > before && follows(site));
    assert_eq!(layout(&site), before + 1, "it was configured once");
    assert_eq!(running(&site), ["test1", "test2"]);
    site.held.clear();
    site.run();
    assert_eq!(all_gate_builds(&site), builds, "nothing was built again");
    assert_eq!(merged(&site), [1]);
}

pub(super) fn image_jobs() -> &'static str {
    "
- job: {name: image, run: playbooks/image.yaml, provides: [image], files: [provider]}
- job: {name: user, run: playbooks/user.yaml, requires: [image], files: [user]}
"
}

/// S07
#[test]
fn a_change_gets_artifacts_of_a_provider_ahead_but_not_of_a_merged_one() {
    let mut site = site(image_jobs(), "[image, user]");
    let a = propose(&site, 1, &[("provider", "x")]);
    approve(&mut site, &[&a]);
    let b = propose(&site, 2, &[("user", "x")]);
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [1, 2]);
    let c = propose(&site, 3, &[("provider", "y")]);
    let d = propose(&site, 4, &[("user", "y")]);
    approve(&mut site, &[&c, &d]);
    let orders = orders(&site);
    let of = |job: &str, change: u64| {
        orders
            .iter()
            .find(|order| order.job.as_str() == job && order.change.key.number() == Some(change))
            .unwrap()
    };
    assert_eq!(of("user", 2).providers, []);
    assert_eq!(of("user", 4).providers, [of("image", 3).build.clone()]);
}

/// Z4.3: in check each change has its own queue. A change waits for the artifacts of its
/// dependency, and gets them even if the dependency's check is already over.
#[test]
fn in_check_a_job_gets_the_artifacts_of_the_change_it_depends_on() {
    let mut site = site(image_jobs(), "[image, user]");
    let check = "- project: {check: {jobs: [image, user]}}\n";
    for name in ["org/one", "org/two"] {
        let main =
            BranchKey { project: ProjectName::new("forge.test", name), branch: "main".into() };
        site.forge.push(&main, &[(".zuul.yaml", check)]);
    }
    site.run();
    site.held.insert("image".to_owned());
    site.forge.propose("org/one", 1, "A", "", &[("provider", "x")]);
    let body = "Depends-On: https://forge.test/org/one/pull/1";
    site.forge.propose("org/two", 2, "B", body, &[("user", "x")]);
    site.run_until(|site| site.is_building());
    let later = site.world.now().plus_seconds(180);
    site.run_until(|site| site.world.now() >= later);
    assert_eq!(site.builds(), ["check image 1"], "B waits");
    site.held.clear();
    site.run();
    site.forge.propose("org/two", 3, "C", body, &[("user", "again user")]);
    site.forge.propose("org/two", 4, "D", "", &[("user", "z")]);
    site.run();
    let orders = orders(&site);
    let of = |job: &str, change: u64| {
        orders
            .iter()
            .find(|order| order.job.as_str() == job && order.change.key.number() == Some(change))
            .unwrap()
    };
    let image = &of("image", 1).build;
    assert_eq!(
        (&of("user", 2).providers, &of("user", 3).providers),
        (&vec![image.clone()], &vec![image.clone()])
    );
    assert_eq!(of("user", 4).providers, []);
    let attempts: Vec<&Order> =
        orders.iter().filter(|order| order.change.key.number() == Some(3)).collect();
    assert_eq!(attempts.len(), 2);
    assert!(
        attempts.iter().all(|order| order.providers == [image.clone()]),
        "each attempt is given the same"
    );
}

const REGISTRY: &str = "
- job: {name: registry, run: playbooks/registry.yaml}
- job: {name: build, run: playbooks/build.yaml, dependencies: [registry]}
- job: {name: push, run: playbooks/push.yaml, dependencies: [build]}
";

fn pausing(job: &str) -> serde_json::Map<String, Value> {
    let returned = match job {
        "registry" => serde_json::json!({ "zuul": { "pause": true } }),
        _ => serde_json::json!({}),
    };
    returned.as_object().cloned().unwrap()
}

/// Z4.3: a registry job stays up while the jobs that push into it run.
#[test]
fn a_paused_build_continues_until_its_dependent_jobs_end() {
    let mut site = site(REGISTRY, "[registry, build, push]");
    site.returns = pausing;
    let a = propose(&site, 1, &[("a", "x")]);
    enqueue(&mut site, &[&a]);
    site.held.insert("push".to_owned());
    site.run_until(|site| running(site) == ["push", "registry"]);
    site.held.clear();
    site.run();
    assert_eq!(all_gate_builds(&site), ["build 1", "push 1", "registry 1"]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// Z7.3, Z4.3: if the executor of a paused build dies, the builds that ran together with it are
/// lost too.
#[test]
fn a_lost_paused_build_restarts_the_builds_that_depend_on_it() {
    let mut site = site(REGISTRY, "[registry, build, push]");
    site.returns = pausing;
    let a = propose(&site, 1, &[("a", "x")]);
    enqueue(&mut site, &[&a]);
    site.held.insert("push".to_owned());
    site.run_until(|site| running(site) == ["push", "registry"]);
    site.die();
    site.held.clear();
    site.run();
    let twice = ["build 1", "build 1", "push 1", "push 1", "registry 1", "registry 1"];
    assert_eq!(all_gate_builds(&site), twice);
    assert_eq!(merged(&site), [1]);
}

/// At the end the queue's head contains no semaphore and no pause.
#[test]
fn a_queue_with_paused_builds_leaves_no_records() {
    let mut site = site(REGISTRY, "[registry, build, push]");
    site.returns = pausing;
    site.twice = true;
    let changes =
        [1, 2, 3].map(|number| propose(&site, number, &[(&format!("file{number}"), "x")]));
    approve(&mut site, &changes.iter().collect::<Vec<_>>());
    assert_eq!(merged(&site), [1, 2, 3]);
    let records = site.world.records();
    let heads =
        records.iter().filter(|r| r.key.partition.starts_with("queue#") && r.key.sort == "head");
    assert!(
        heads
            .map(|record| decode::<StoredHead>(record).unwrap())
            .all(|head| head.entries.is_empty())
    );
}

/// Z4.3, C2: the same if a function dies or a call reports a false error, at any call.
#[test]
fn pauses_survive_crashes_and_false_errors() {
    for step in (0..900).step_by(31) {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter] {
            let mut site = seeded(step + 1, REGISTRY, "[registry, build, push]");
            site.returns = pausing;
            site.set_fate(step, fate);
            let changes =
                [1, 2].map(|number| propose(&site, number, &[(&format!("file{number}"), "x")]));
            approve(&mut site, &changes.iter().collect::<Vec<_>>());
            site.sweep();
            site.sweep();
            let mut landed = merged(&site);
            landed.sort_unstable();
            assert_eq!(landed, [1, 2], "{fate:?} at call {step}");
            let left = site.ending(&[], &changes.iter().collect::<Vec<_>>()).left_over;
            assert_eq!(left, Vec::<String>::new(), "{fate:?} at call {step}");
        }
    }
}
