//! Trees of changes across projects, changes that are kept out, projects that join and leave, and a
//! bundle of which the forge merges only a part.
//!
//! All rows share one system. A comment `gate` triggers the gate, and most jobs are `noop`.

use super::GateTest;
use serde_json::{Value, json};
use sluice_local::{CONFIG, ONE, TENANT, TWO};
use sluice_local_tests::forge::PullRequest;
use sluice_local_tests::story::{
    approve, configure_trees, deliveries_end, is_of, items_in_gate, trees_without_the_last_project,
};
use sluice_local_tests::system::{System, UpOptions};
use sluice_local_tests::until;
use sluice_operator::show::{list, text};
use std::collections::BTreeSet;

/// A project with a queue of its own, which allows no dependency cycles.
const ALONE: &str = "org/alone";
/// A project that takes part in no pipeline at first.
const BARE: &str = "org/bare";
/// A project that leaves the tenant.
const LEAVES: &str = "org/leaves";
/// A project that leaves the gate by its central configuration.
const STAYS: &str = "org/stays";

/// The comment that triggers the gate.
const TRIGGER: &str = "gate";

/// What the authors of a partly merged bundle read.
const PARTLY: &str = "Only a part of this bundle was merged";

/// A report that a change must have at the end, this many times.
struct ExpectedReport {
    change: PullRequest,
    report: &'static str,
    times: usize,
}

/// Loads a main configuration with the sample's projects and these.
fn load(system: &System, more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.yaml");
    let projects: Vec<String> = [ONE, TWO]
        .iter()
        .chain(more)
        .map(|name| format!("          - {name}: {{exclude-branches: change-.*}}\n"))
        .collect();
    let yaml = format!(
        "- tenant:
    name: {TENANT}
    source:
      github:
        config-projects: [{CONFIG}]
        untrusted-projects:
{}",
        projects.concat()
    );
    std::fs::write(&main, yaml).unwrap();
    let loaded = system.run(&["tenant", "load", main.to_str().unwrap()], "").unwrap();
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
}

/// Starts a system with all projects of these rows.
async fn begin() -> GateTest {
    let system = System::start(UpOptions::default()).await.unwrap();
    let forge = system.forge().unwrap();
    for repository in [ALONE, BARE, LEAVES, STAYS] {
        forge.create_repository(repository).await.unwrap();
    }
    load(&system, &[ALONE, BARE, LEAVES, STAYS]);
    configure_trees(&system).await.unwrap();
    for (repository, file) in [
        (ALONE, "- project: {gate: {jobs: [noop]}}\n"),
        (LEAVES, "- project: {queue: parting, gate: {jobs: [held]}}\n"),
    ] {
        forge.write(repository, "main", ".zuul.yaml", file).await.unwrap();
    }
    let test = GateTest::on_configured(system).await;
    for (repository, job) in [(ALONE, "noop"), (LEAVES, "held"), (STAYS, "held"), (BARE, BARE)] {
        until(&format!("{repository} to be in the tenant"), async || {
            let path = format!("tenant/{TENANT}/project/{repository}");
            let project: Value = test.system.client()?.get(&path).await?;
            Ok(project.to_string().contains(&format!("\"{job}\"")).then_some(()))
        })
        .await
        .unwrap();
    }
    test
}

impl GateTest {
    /// Approves changes, which triggers nothing, and waits until all events of their repositories
    /// are processed.
    async fn approve_all(&self, changes: &[&PullRequest]) {
        for change in changes {
            approve(&self.system, change).await.unwrap();
        }
        let repositories: BTreeSet<&str> =
            changes.iter().map(|change| change.repository.as_str()).collect();
        let repositories: Vec<&str> = repositories.into_iter().collect();
        deliveries_end(&self.system, &repositories).await.unwrap();
    }

    /// Asks for the gate by a comment, and waits until the comment is processed.
    async fn trigger(&self, change: &PullRequest) {
        self.forge.comment(change, TRIGGER).await.unwrap();
        deliveries_end(&self.system, &[&change.repository]).await.unwrap();
    }

    /// Returns the reports on a change: all comments except the ones that trigger the gate.
    async fn reports(&self, change: &PullRequest) -> Vec<String> {
        let mut comments = self.forge.comments(change).await.unwrap();
        comments.retain(|comment| comment != TRIGGER);
        comments
    }

    /// Waits until this many reports on a change have this text.
    async fn until_reported(&self, change: &PullRequest, report: &str, times: usize) {
        until(&format!("{report:?} to be reported {times} times on {change}"), async || {
            let reports = self.reports(change).await;
            let found = reports.iter().filter(|text| text.contains(report)).count();
            anyhow::ensure!(found == times, "{reports:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
    }

    /// Returns the output of `sluice change explain` for a change.
    fn explained(&self, change: &PullRequest) -> String {
        let output = self.system.run(&["change", "explain", &change.to_string()], "").unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns those of the changes that are in the gate, in the order of the queue.
    async fn queued<'a>(&self, changes: &[&'a PullRequest]) -> Vec<&'a PullRequest> {
        let path = format!("tenant/{TENANT}/board");
        let board: Value = self.system.client().unwrap().get(&path).await.unwrap();
        items_in_gate(&board)
            .filter_map(|item| changes.iter().find(|change| is_of(item, change)))
            .copied()
            .collect()
    }
}

/// Z6.5: the forge refuses the second member of a bundle. Both authors, the board and `explain`
/// show at once what was merged, what was not, and why.
async fn a_partly_merged_bundle_is_reported_at_once(test: &mut GateTest) -> [PullRequest; 2] {
    let a = test.propose(ONE, "half").await;
    let greeting = [("greetings/other-half", "Hi!\n")];
    let b = test.forge.propose_after(TWO, "other-half", &greeting, Some(&a)).await.unwrap();
    test.forge.add_dependency(&a, &b).await.unwrap();
    test.approve_all(&[&a, &b]).await;
    let path = format!("/pulls/{}/merge", b.number);
    test.forge.fault_on(TWO, json!({"kind": "refuse-merge"}), &path).await.unwrap();
    test.trigger(&a).await;
    for change in [&a, &b] {
        test.until_reported(change, PARTLY, 1).await;
        let report = &test.reports(change).await[0];
        let what = format!("{a} was merged, but {b} at ");
        let why = "of the same dependency cycle was not merged: could not merge";
        for part in [&what, why, "the forge refused", "is tried again until"] {
            assert!(report.contains(part), "{part}: {report}");
        }
        let explained = test.explained(change);
        assert!(explained.contains(&what) && explained.contains(why), "{explained}");
    }
    assert!(test.forge.landed_as(&a).await.unwrap().is_some(), "the first member is merged");
    assert_eq!(test.forge.landed_as(&b).await.unwrap(), None);
    let path = format!("tenant/{TENANT}/board");
    let board: Value = test.system.client().unwrap().get(&path).await.unwrap();
    for change in [&a, &b] {
        let item = items_in_gate(&board).find(|item| is_of(item, change)).unwrap();
        let is_shown = list(item, "reasons")
            .iter()
            .any(|reason| text(reason, "text").contains("is tried again until"));
        assert!(is_shown, "{change}: {item}");
    }
    [a, b]
}

/// D01, D02, G09: one event for a change in the middle of a tree brings in all of it, and so does
/// an event for its last one, in the same order. Here they enter behind the unfinished bundle, so
/// that they stay.
async fn a_tree_enters_in_the_same_order(test: &mut GateTest) -> Vec<PullRequest> {
    let mut entered = Vec::new();
    for named in ["left", "both"] {
        let add = async |repository: &str, title: &str, needs: &[&PullRequest]| {
            let (title, file) = (format!("{named}-{title}"), format!("greetings/{named}-{title}"));
            let files = [(file.as_str(), "Hello!\n")];
            test.forge.propose_after_all(repository, &title, &files, needs).await.unwrap()
        };
        let root = add(ONE, "root", &[]).await;
        let left = add(TWO, "left", &[&root]).await;
        let right = add(ONE, "right", &[&root]).await;
        let leaf = add(ONE, "leaf", &[&left]).await;
        let both = add(TWO, "both", &[&left, &right]).await;
        let order = [&root, &left, &right, &both, &leaf];
        test.approve_all(&order).await;
        assert!(test.queued(&order).await.is_empty(), "an approval triggers nothing");
        test.trigger(if named == "left" { &left } else { &both }).await;
        until("the whole tree to be in the gate", async || {
            let queued = test.queued(&order).await;
            anyhow::ensure!(queued.len() == order.len(), "{queued:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
        assert_eq!(test.queued(&order).await, order, "the event is about {named}");
        test.all_passed(&order).await;
        entered.extend(order.map(Clone::clone));
    }
    entered
}

/// D02, D04, D05: a change whose dependency will never be ahead of it is reported once for each
/// patch set, and `explain` has the reason.
async fn a_refusal_is_reported_once_for_each_patch_set(test: &GateTest) -> Vec<ExpectedReport> {
    let greeting = [("greetings/kept-out", "Hi!\n")];
    let far = test.propose(ALONE, "far").await;
    let near = test.forge.propose_after(ONE, "near", &greeting, Some(&far)).await.unwrap();
    let one = test.propose(ALONE, "one").await;
    let round = test.forge.propose_after(ALONE, "round", &greeting, Some(&one)).await.unwrap();
    test.forge.add_dependency(&one, &round).await.unwrap();
    let closed = test.propose(TWO, "closed").await;
    let orphan = test.forge.propose_after(ONE, "orphan", &greeting, Some(&closed)).await.unwrap();
    test.forge.close(&closed).await.unwrap();
    test.approve_all(&[&near, &one, &round, &orphan]).await;
    let refused = [
        (near, "does not share a queue with it"),
        (one, "project org/alone doesn't allow circular dependencies"),
        (orphan, "which was closed without being merged"),
    ];
    for (change, report) in &refused {
        test.trigger(change).await;
        test.until_reported(change, report, 1).await;
        test.trigger(change).await;
        let explained = test.explained(change);
        assert!(explained.contains(report), "{change}: {explained}");
    }
    let near = &refused[0].0;
    test.forge.push(near, "greetings/kept-out", "Again!\n").await.unwrap();
    test.approve_all(&[near]).await;
    test.trigger(near).await;
    test.until_reported(near, refused[0].1, 2).await;
    refused
        .into_iter()
        .enumerate()
        .map(|(at, (change, report))| {
            let times = if at == 0 { 2 } else { 1 };
            ExpectedReport { change, report, times }
        })
        .collect()
}

/// D01: a dependency that is not approved yet is waited for: nothing is reported, and `explain`
/// says so.
async fn a_dependency_that_is_not_approved_is_only_explained(test: &GateTest) -> PullRequest {
    let need = test.propose(TWO, "unapproved").await;
    let greeting = [("greetings/waits", "Hi!\n")];
    let change = test.forge.propose_after(ONE, "waits", &greeting, Some(&need)).await.unwrap();
    test.approve_all(&[&change]).await;
    test.trigger(&change).await;
    let explained = test.explained(&change);
    let reason = format!("it depends on {need}, which may not enter yet");
    assert!(explained.contains(&reason), "{explained}");
    change
}

/// C14, Z6.6: a change of a project that no pipeline has yet is tested on top of the change that
/// adds the project, in check with it as its dependency and in the gate behind it.
async fn a_change_is_tested_behind_the_change_that_adds_its_project(test: &mut GateTest) {
    let project = "- project:
    queue: integrated
    check: {jobs: [listed: {files: ['^greetings/second']}]}
    gate: {jobs: [held]}
";
    let more = [(".zuul.yaml", project), ("greetings/first", "Hello!\n")];
    let adds = test.propose_held(BARE, "adds", "bare", &more).await;
    let greeting = [("greetings/second", "Hi!\n")];
    let needs = test.forge.propose_after(BARE, "needs", &greeting, Some(&adds)).await.unwrap();
    test.until_results("check", &needs, &[Some("SUCCESS")]).await;
    let build = &test.builds("check", &needs).await[0];
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(test.log_address(build)).send().await.unwrap();
    let log = answer.error_for_status().unwrap().text().await.unwrap();
    assert!(log.contains("greetings: first second"), "{log}");
    for change in [&adds, &needs] {
        test.approve_all(&[change]).await;
        test.trigger(change).await;
        test.all_run(&[change]).await;
    }
    assert_eq!(test.queued(&[&needs, &adds]).await, [&adds, &needs]);
    test.release("bare");
    test.lands(adds).await;
    // With the new configuration it moves to the queue that its project now shares.
    let PullRequest { repository, number } = &needs;
    let query =
        format!("tenant/{TENANT}/buildsets?project={repository}&change={number}&pipeline=gate");
    until(&format!("{needs} to land"), async || {
        let sets: Vec<Value> = test.system.client()?.get(&query).await?;
        Ok(sets.iter().any(|set| set["result"] == "SUCCESS").then_some(()))
    })
    .await
    .unwrap();
    test.landed.push(needs);
}

/// Z2.1, G18: when a project leaves the tenant, its change leaves the gate without a report and its
/// build is aborted; the change behind it is tested without it. So it is when merged configuration
/// takes a project out of the gate.
async fn a_project_that_leaves_takes_its_changes_along(test: &GateTest) -> [PullRequest; 2] {
    let leaves = test.propose_held(LEAVES, "leaves", "parting", &[]).await;
    let stays = test.propose_held(STAYS, "stays", "parting", &[]).await;
    for change in [&leaves, &stays] {
        test.approve_all(&[change]).await;
        test.trigger(change).await;
        test.all_run(&[change]).await;
    }
    assert_eq!(test.queued(&[&stays, &leaves]).await, [&leaves, &stays]);
    load(&test.system, &[ALONE, BARE, STAYS]);
    test.until_results("gate", &leaves, &[Some("ABORTED")]).await;
    test.until_results("gate", &stays, &[Some("ABORTED"), None]).await;
    assert_eq!(test.queued(&[&leaves, &stays]).await, [&stays]);
    let without = trees_without_the_last_project();
    test.forge.write(CONFIG, "main", "zuul.yaml", &without).await.unwrap();
    test.until_results("gate", &stays, &[Some("ABORTED"), Some("ABORTED")]).await;
    until("its change to leave the gate", async || {
        Ok(test.queued(&[&stays]).await.is_empty().then_some(()))
    })
    .await
    .unwrap();
    test.release("parting");
    [leaves, stays]
}

/// C14, D01, D02, D04, D05, G09, G18, Z2.1, Z6.5, Z6.6: trees, bundles and projects that come and
/// go behave as in the in-memory scenarios.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_and_bundles_are_gated_as_in_the_memory_scenarios() {
    let mut test = begin().await;
    let [a, b] = a_partly_merged_bundle_is_reported_at_once(&mut test).await;
    let tree = a_tree_enters_in_the_same_order(&mut test).await;
    // The obstacle goes away. The next attempt is due in at most 30 seconds.
    test.forge.end_faults(TWO).await.unwrap();
    let refused = a_refusal_is_reported_once_for_each_patch_set(&test).await;
    let waits = a_dependency_that_is_not_approved_is_only_explained(&test).await;
    let left = a_project_that_leaves_takes_its_changes_along(&test).await;
    test.bundle_lands([a.clone(), b.clone()]).await;
    for change in tree {
        test.lands(change).await;
    }
    a_change_is_tested_behind_the_change_that_adds_its_project(&mut test).await;
    test.end().await;
    // All work has ended: whatever had to be reported was reported.
    let bundle = [a, b].map(|change| ExpectedReport { change, report: PARTLY, times: 1 });
    let silent = left.into_iter().chain([waits]);
    let silent = silent.map(|change| ExpectedReport { change, report: "", times: 0 });
    for ExpectedReport { change, report, times } in refused.into_iter().chain(bundle).chain(silent)
    {
        let reports = test.reports(&change).await;
        let is_right = reports.len() == times && reports.iter().all(|text| text.contains(report));
        assert!(is_right, "{change} has the reports {reports:?}, not {times} of {report:?}");
    }
}
