//! Shared queues and dequeueing: which changes share a queue, what a reconfiguration does to
//! queues, what a change leaves by entering another pipeline, and what may enter.

use super::standard_jobs::{report_lines, results};
use super::{
    CONFIG, PROJECT, approve, buildsets, comments, gate_builds, judge, merged, ordered, propose,
    unlinked,
};
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::build::Speculation;
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_model::wakeup::Wakeup;
use sluice_records::tenant;
use sluice_runtime::cell;
use sluice_runtime::record::Record;
use sluice_scenarios::Site;
use sluice_scenarios::forge::{Announcement, DraftState};

const MAIN: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/alone, org/one, org/two]
";

/// Returns a site with this configuration. `org/alone` shares its queue with no other project.
fn site(config: &str) -> Site {
    let alone = PROJECT.replace("    queue: integrated\n", "");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/alone", &[(".zuul.yaml", &alone), ("shared", "0")]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

fn per_branch() -> String {
    CONFIG.replace("{name: integrated}", "{name: integrated, per-branch: true}")
}

fn main_of(project: &str) -> BranchKey {
    BranchKey { project: ProjectName::new("forge.test", project), branch: "main".into() }
}

/// Proposes a change for a branch of org/one that has the content of main.
fn propose_for(site: &Site, branch: &str, number: u64, edits: &[(&str, &str)]) -> ChangeKey {
    let change = propose(site, number, edits);
    site.forge.retarget(&change, branch);
    change
}

fn enqueue(site: &mut Site, changes: &[&ChangeKey]) {
    for change in changes {
        site.forge.approve(change);
        site.take_in();
    }
}

fn has_built(job: &'static str, changes: &'static str) -> impl Fn(&Site) -> bool {
    move |site| gate_builds(site, job).iter().any(|built| built == changes)
}

fn all_sets(site: &Site) -> Vec<String> {
    site.ending(&[], &[])
        .buildsets
        .iter()
        .map(|set| set.split_once('#').unwrap().1.to_owned())
        .collect()
}

/// G04: two projects share a queue; a third one has its own.
#[test]
fn projects_with_one_queue_are_tested_together_and_others_separately() {
    let mut site = site(CONFIG);
    site.held.extend(["unit", "other", "lint"].map(str::to_owned));
    let a = site.forge.propose("org/alone", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
    let c = site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    site.held.clear();
    site.run();
    site.held.extend(["unit", "other", "lint"].map(str::to_owned));
    enqueue(&mut site, &[&a, &b, &c]);
    site.run_until(|site| site.running().len() == 9);
    site.held.clear();
    site.run();
    for job in ["unit", "other", "lint"] {
        assert_eq!(gate_builds(&site, job), ["1", "2", "2 3"]);
    }
    let mut landed = merged(&site);
    assert!(
        landed.iter().position(|one| *one == 2) < landed.iter().position(|one| *one == 3),
        "{landed:?}"
    );
    landed.sort_unstable();
    assert_eq!(landed, [1, 2, 3]);
    assert_eq!(site.ending(&[], &[&a, &b, &c]).left_over, Vec::<String>::new());
}

/// G11: both votes are required, in any order. Work in progress does not merge.
#[test]
fn a_change_enters_with_all_votes_and_leaves_when_it_becomes_a_draft() {
    let config = CONFIG
        .replace("        open: true\n", "        open: true\n        label: [go]\n")
        .replace(
            "    start: {github: {status: pending, comment: false}}",
            "    reject: {github: {draft: true}}",
        )
        .replace(
            "state: approved}]",
            "state: approved}, {event: pull_request, action: labeled, label: go}]",
        );
    let mut site = site(&config);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(gate_builds(&site, "unit"), Vec::<String>::new(), "it has one of two");
    site.forge.set_draft(&a, DraftState::Draft);
    site.forge.label(&a, "go", Announcement::Webhook);
    site.run();
    assert_eq!(gate_builds(&site, "unit"), Vec::<String>::new(), "it is a draft");
    site.forge.set_draft(&a, DraftState::Ready);
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &[&a]);
    site.run_until(has_built("unit", "1"));
    site.forge.set_draft(&a, DraftState::Draft);
    site.held.clear();
    site.run();
    assert_eq!(
        (buildsets(&site, &[&a]), merged(&site)),
        (vec!["org/one#1 DEQUEUED".to_owned()], Vec::new())
    );
    assert!(
        comments(&site, &a).contains("unable to merge due to a missing merge requirement"),
        "{}",
        comments(&site, &a)
    );
    site.forge.set_draft(&a, DraftState::Ready);
    site.run();
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
}

fn superseding() -> String {
    CONFIG
        .replace("    manager: dependent\n", "    manager: dependent\n    supersedes: check\n")
        .replace(
            "    success: {github: {status: success}}\n",
            "    success: {github: {status: success}}\n    dequeue: {github: {comment: true}}\n",
        )
}

/// G19: the tests of a change in check end when the change enters the gate.
#[test]
fn a_change_that_enters_the_gate_leaves_check() {
    let mut site = site(&superseding());
    site.held.insert("unit".to_owned());
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/alone/pull/3",
        &[("b", "x")],
    );
    let c = site.forge.propose("org/alone", 3, "C", "", &[("c", "x")]);
    site.run_until(|site| site.running().len() == 3);
    // B is approved too, but may not enter before C.
    enqueue(&mut site, &[&a, &b]);
    site.run_until(|site| all_sets(site) == ["1 check DEQUEUED"]);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1]);
    let report = comments(&site, &a);
    assert!(report.contains("it entered the pipeline gate, which supersedes this one"), "{report}");
    assert_eq!(
        all_sets(&site),
        ["3 check SUCCESS", "1 check DEQUEUED", "1 gate SUCCESS", "2 check SUCCESS"]
    );
    assert_eq!(site.ending(&[], &[&a, &b, &c]).left_over, Vec::<String>::new());
}

/// G19: a new revision counts as another change. Later events for check are handled normally.
#[test]
fn a_gated_change_can_enter_check_again() {
    let mut site = site(&superseding());
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.held.extend(["unit".to_owned(), "other".to_owned()]);
    enqueue(&mut site, &[&a]);
    site.run_until(has_built("unit", "1"));
    site.forge.revise(&a, "a", "y");
    site.held.clear();
    site.run();
    assert_eq!(all_sets(&site), ["1 check SUCCESS", "1 check SUCCESS", "1 gate DEQUEUED"]);
}

/// G18: branches have their own queues until a merged change replaces those by one.
#[test]
fn new_changes_use_the_shared_queue_after_per_branch_queues_are_merged() {
    let mut site = site(&per_branch());
    site.forge.branch_off("org/one", "main", "stable");
    let a = propose(&site, 1, &[("a", "broken unit")]);
    let b = propose_for(&site, "stable", 2, &[("b", "x")]);
    approve(&mut site, &[&a, &b]);
    assert_eq!(
        (gate_builds(&site, "unit"), merged(&site)),
        (vec!["1".to_owned(), "2".to_owned()], vec![2])
    );
    let c = site.forge.propose("org/config", 3, "C", "", &[("zuul.yaml", CONFIG)]);
    site.forge.merge_outside(&c);
    site.run();
    let d = propose(&site, 4, &[("d", "broken other")]);
    let e = propose_for(&site, "stable", 5, &[("e", "x")]);
    site.run();
    site.held.extend(["unit".to_owned(), "other".to_owned()]);
    enqueue(&mut site, &[&d, &e]);
    site.run_until(has_built("other", "4 5"));
    site.release("other", Some(4));
    site.run_until(has_built("other", "5"));
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [2, 5]);
    assert_eq!(site.ending(&[], &[&a, &b, &c, &d, &e]).left_over, Vec::<String>::new());
}

/// G18: changes that are being tested move to their new queue. They are tested there behind the
/// changes that came first.
#[test]
fn queued_changes_move_when_their_queues_become_one() {
    let mut site = site(&per_branch());
    site.forge.branch_off("org/one", "main", "stable");
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose_for(&site, "stable", 2, &[("b", "x")]);
    let c = propose_for(&site, "stable", 3, &[("c", "x")]);
    site.run();
    site.held.extend(["unit".to_owned(), "other".to_owned()]);
    enqueue(&mut site, &[&a, &b, &c]);
    site.run_until(|site| {
        gate_builds(site, "unit") == ["1", "2", "2 3"] && gate_builds(site, "other").len() == 3
    });
    site.forge.push(&main_of("org/config"), &[("zuul.yaml", CONFIG)]);
    site.run_until(|site| {
        gate_builds(site, "unit").iter().any(|built| built.split(' ').count() == 3)
    });
    site.held.clear();
    site.run();
    let mut landed = merged(&site);
    assert!(
        landed.iter().position(|one| *one == 2) < landed.iter().position(|one| *one == 3),
        "{landed:?}"
    );
    landed.sort_unstable();
    assert_eq!(landed, [1, 2, 3]);
    assert_eq!(site.ending(&[], &[&a, &b, &c]).left_over, Vec::<String>::new());
}

fn reload(site: &mut Site) {
    let tenant = "demo".into();
    for project in ["org/config", "org/alone", "org/one", "org/two"] {
        let mark =
            tenant::put_reread(&tenant, &ProjectName::new("forge.test", project), "operator")
                .unwrap();
        site.world.write_unchecked(mark);
    }
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant }])).unwrap().unwrap();
}

/// R01, G01: after a reconfiguration a build continues if its job is the same. A build of a changed
/// job is started again.
#[test]
fn a_reconfiguration_restarts_only_builds_whose_job_changed() {
    let mut site = site(CONFIG);
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.held.extend(["unit".to_owned(), "other".to_owned()]);
    enqueue(&mut site, &[&a]);
    site.run_until(|site| site.running().len() == 2);
    // Everything is read again without a change.
    reload(&mut site);
    site.run_now();
    assert_eq!(
        (gate_builds(&site, "unit"), gate_builds(&site, "other")),
        (vec!["1".to_owned()], vec!["1".to_owned()])
    );
    // One job changed.
    let other =
        CONFIG.replace("run: playbooks/other.yaml", "run: playbooks/other.yaml, timeout: 77");
    site.forge.push(&main_of("org/config"), &[("zuul.yaml", &other)]);
    site.run_until(|site| gate_builds(site, "other").len() == 2);
    site.held.clear();
    site.run();
    assert_eq!(
        (gate_builds(&site, "unit").len(), gate_builds(&site, "other").len(), merged(&site)),
        (1, 2, vec![1])
    );
}

/// G20: the other build is stopped at once, and the failure is reported once.
#[test]
fn fail_fast_stops_the_other_builds_of_a_change() {
    let mut site = site(CONFIG);
    let fast = PROJECT.replace("    gate: {jobs", "    gate: {fail-fast: true, jobs");
    site.forge.push(&main_of("org/one"), &[(".zuul.yaml", &fast)]);
    site.run();
    let a = propose(&site, 1, &[("a", "broken other")]);
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &[&a]);
    site.run_until(|site| all_sets(site) == ["1 check SUCCESS", "1 gate FAILURE"]);
    site.run();
    assert!(site.held.contains("unit"), "the other job is still held");
    let ends = results(&site, "gate");
    assert!(
        ends.contains(&"unit 1 ABORTED".to_owned()) && ends.contains(&"other 1 FAILURE".to_owned()),
        "{ends:?}"
    );
    assert_eq!(report_lines(&site, "gate", &a), ["start", "Build failed."]);
    let why = comments(&site, &a);
    assert_eq!(why.matches("Build failed.").count(), 1, "{why}");
    assert!(
        unlinked(&why).contains("other : FAILURE")
            && why.contains("- [unit](")
            && why.contains(") : ABORTED"),
        "{why}"
    );
}

/// G14: a new patchset dequeues its change and the changes that depend on it. The others merge.
#[test]
fn a_new_patchset_dequeues_its_change_and_dependent_changes() {
    let mut site = site(CONFIG);
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    let c = site.forge.propose(
        "org/one",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/2",
        &[("c", "x")],
    );
    let d = propose(&site, 4, &[("d", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &[&a, &b, &c, &d]);
    site.run_until(|site| gate_builds(site, "unit").len() == 4);
    site.forge.revise(&b, "b", "y");
    site.take_in();
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 4]);
    let sets = buildsets(&site, &[]);
    assert_eq!(
        sets,
        ["org/one#1 SUCCESS", "org/one#2 DEQUEUED", "org/one#3 FAILURE", "org/one#4 SUCCESS"]
    );
    assert!(
        comments(&site, &c).contains("depends on a change that failed to merge"),
        "{}",
        comments(&site, &c)
    );
    assert_eq!(report_lines(&site, "gate", &b), ["start", "Build canceled."]);
    assert!(
        comments(&site, &b).contains("Build canceled.\n\na new revision was uploaded"),
        "{}",
        comments(&site, &b)
    );
    assert_eq!(
        report_lines(&site, "check", &b),
        ["Build succeeded.", "Build succeeded."],
        "each of its patchsets was checked"
    );
    assert_eq!(report_lines(&site, "gate", &c), ["start", "Build failed."]);
    for change in [&a, &d] {
        assert_eq!(report_lines(&site, "gate", change), ["start", "Build succeeded."]);
    }
}

/// G16: the window shrinks after a failure and grows after a success, within its bounds.
#[test]
fn a_window_shrinks_with_a_failure_and_grows_up_to_its_ceiling() {
    let window =
        "    manager: dependent\n    window: 2\n    window-floor: 1\n    window-ceiling: 2\n";
    let mut site = site(&CONFIG.replace("    manager: dependent\n", window));
    let a = propose(&site, 1, &[("a", "broken unit")]);
    let b = propose(&site, 2, &[("b", "x")]);
    let c = site.forge.propose(
        "org/one",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/2",
        &[("c", "x")],
    );
    site.run();
    site.held.extend(["unit".to_owned(), "other".to_owned()]);
    enqueue(&mut site, &[&a, &b, &c]);
    site.run_until(has_built("unit", "1 2"));
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2"], "only two are active");
    site.release("other", Some(1));
    site.release("unit", Some(1));
    site.run_until(has_built("unit", "2"));
    site.run_now();
    assert!(!gate_builds(&site, "unit").iter().any(|built| built == "2 3"), "the window is one");
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [2, 3]);
    let is_at_its_ceiling =
        |record: &Record| record.key.sort == "head" && record.body.contains("\"window\":2");
    let records = site.world.records();
    assert!(
        records
            .iter()
            .filter(|record| record.key.partition == "queue#demo/gate/integrated")
            .any(is_at_its_ceiling)
    );
}

/// Returns the repositories of a change's build, each with the files that the tested changes add.
/// Everything else in them must be as in their branches.
fn tested_files(site: &Site, job: &str, change: u64) -> Vec<String> {
    let (order, _) = ordered(site, job, change);
    let stored = poll_once(site.ports().objects.get(&order.speculation)).unwrap().unwrap();
    let state: Speculation =
        serde_json::from_slice(&stored.expect("the tested state is stored").bytes).unwrap();
    let store = site.store.lock().unwrap();
    let with_files = state.branches.iter().map(|repository| {
        assert_eq!(
            store.tip(&repository.branch).map(|tip| tip.id),
            Some(repository.base.id.clone())
        );
        let (before, after) = (store.tree(&repository.base.id), store.tree(&repository.result.id));
        assert!(
            before.iter().all(|(path, text)| after.get(path) == Some(text)),
            "{before:?} {after:?}"
        );
        let brought: String = after
            .keys()
            .filter(|path| !before.contains_key(*path))
            .map(|p| format!(" {p}"))
            .collect();
        assert_eq!(
            brought.is_empty(),
            repository.base == repository.result,
            "nothing is put on what no change touches"
        );
        format!("{}{brought}", repository.branch.project.name())
    });
    let mut with_files: Vec<String> = with_files.collect();
    with_files.sort();
    with_files
}

/// S01: each change is tested with the changes ahead of it in all repositories and with nothing
/// behind it. Other required projects have the content of their branch; projects that are not
/// required are absent.
#[test]
fn each_build_includes_exactly_the_changes_ahead_of_it() {
    let mut site = site(
        &CONFIG.replace("{name: other, run:", "{name: other, required-projects: [org/alone], run:"),
    );
    let of = |site: &Site, project: &str, number: u64| {
        site.forge.propose(project, number, "a change", "", &[(&format!("f{number}"), "x")])
    };
    let changes: Vec<ChangeKey> = [("org/one", 1), ("org/one", 2), ("org/two", 3), ("org/two", 4)]
        .map(|(project, number)| of(&site, project, number))
        .into();
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &changes.iter().collect::<Vec<_>>());
    site.run_until(|site| gate_builds(site, "unit").len() == 4);
    let expected = [
        "org/one f1",
        "org/one f1 f2",
        "org/one f1 f2, org/two f3",
        "org/one f1 f2, org/two f3 f4",
    ];
    for (number, changed) in (1..).zip(expected) {
        assert_eq!(
            tested_files(&site, "other", number).join(", "),
            format!("org/alone, org/config, {changed}")
        );
    }
    site.held.clear();
    site.run();
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2", "1 2 3", "1 2 3 4"]);
    assert_eq!(merged(&site), [1, 2, 3, 4]);
    let files = |project: &str| site.forge.files(project, "main").into_keys().collect::<Vec<_>>();
    assert_eq!(files("org/one"), [".zuul.yaml", "f1", "f2", "shared"]);
    assert_eq!(files("org/two"), [".zuul.yaml", "f3", "f4", "shared"]);
}
