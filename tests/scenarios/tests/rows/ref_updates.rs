//! Ref items: pushes and tags are tested at the pushed commit, in pipelines that merge nothing.

use super::{MAIN, judge};
use sluice_model::ProjectName;
use sluice_model::build::{Order, Speculation};
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, Oid};
use sluice_model::wakeup::MessageQueue;
use sluice_records::codec::decode;
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_scenarios::Site;

pub const CONFIG: &str = r"
- pipeline:
    name: post
    manager: independent
    post-review: true
    trigger:
      github: [{event: push, ref: ^refs/heads/.*$}]
    success: {github: {status: success, comment: true}}
    failure: {github: {status: failure}}
- pipeline:
    name: tag
    manager: independent
    trigger:
      github: [{event: push, ref: ^refs/tags/.*$}]
- pipeline:
    name: promote
    manager: supercedent
    trigger:
      github: [{event: push, ref: ^refs/heads/.*$}]
- pipeline:
    name: deploy
    manager: serial
    require: {github: {merged: true}}
    trigger:
      github: [{event: pull_request, action: closed}]
    success: {github: {comment: true}}
- pipeline:
    name: picky
    manager: independent
    require: {github: {open: true}}
    trigger:
      github: [{event: push}]
- job: {name: base, parent: null}
- job: {name: publish, run: playbooks/publish.yaml}
- job: {name: docs, files: ^docs/, run: playbooks/docs.yaml}
- job: {name: release, branches: ^refs/tags/1, run: playbooks/release.yaml}
- queue: {name: integrated}
";

const PROJECT: &str = "
- project:
    queue: integrated
    post: {jobs: [publish, docs]}
    tag: {jobs: [publish, release]}
    promote: {jobs: [publish]}
    deploy: {jobs: [publish, docs]}
    picky: {jobs: [publish]}
";

/// Returns a site whose project takes part in these pipelines.
fn site_of(pipelines: &[&str]) -> Site {
    let is_included = |line: &&str| {
        !line.ends_with("]}") || pipelines.iter().any(|name| line.contains(&format!("{name}:")))
    };
    let project: Vec<&str> = PROJECT.lines().filter(is_included).collect();
    let project = project.join("\n");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/one", &[(".zuul.yaml", &project), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &project)]),
        ("org/bare", &[("README", "nothing yet")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

pub fn branch(name: &str) -> BranchKey {
    BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: name.into() }
}

/// Returns the build orders with their tested states, the oldest first.
pub fn orders(site: &Site) -> Vec<(Order, Speculation)> {
    let ports = site.ports();
    let records = site.world.records().into_iter();
    let of_orders = records
        .filter(|record| record.key.partition.starts_with("build#") && record.key.sort == "order");
    let mut orders: Vec<(Order, Speculation)> = of_orders
        .map(|record| {
            let order: Order = decode(&record).unwrap();
            let object =
                sluice_memory::poll_once(ports.objects.get(&order.speculation)).unwrap().unwrap();
            (order, serde_json::from_slice(&object.unwrap().bytes).unwrap())
        })
        .collect();
    orders.sort_by_key(|(order, _)| (order.ordered_at, order.build.clone()));
    orders
}

/// Returns job and tested commit of each build, the oldest first.
fn tested(site: &Site) -> Vec<(String, Oid)> {
    orders(site).into_iter().map(|(order, _)| (order.job.to_string(), order.change.head)).collect()
}

fn left_over(site: &Site) -> Vec<String> {
    site.ending(&["org/one"], &[]).left_over
}

/// S06
#[test]
fn a_push_has_one_post_job_run_on_the_commit_that_was_pushed() {
    let mut site = site_of(&["post"]);
    let before = site.forge.tip(&branch("main"));
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    let pushed = site.forge.tip(&branch("main"));
    site.run();
    let orders = orders(&site);
    assert_eq!(orders.len(), 1, "the files of docs were not pushed");
    let (order, state) = &orders[0];
    let moved = order.change.key.ref_move().expect("no change number");
    assert_eq!((moved.git_ref.as_str(), &moved.newrev), ("refs/heads/main", &Some(pushed.clone())));
    assert_eq!(moved.oldrev, Some(before));
    assert_eq!(order.change.on_branch().unwrap().as_str(), "main");
    let main = state.branches.iter().find(|state| state.branch == branch("main")).unwrap();
    assert_eq!(main.result.id, pushed, "nothing is merged");
    // A commit can have a status but no comment.
    assert_eq!(site.forge.statuses_of(&pushed), ["demo/post success"]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06, C5: each webhook is delivered twice.
#[test]
fn each_push_is_tested_once_though_its_webhook_is_redelivered() {
    let mut site = site_of(&["post"]);
    site.twice = true;
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    let first = site.forge.tip(&branch("main"));
    site.forge.push(&branch("main"), &[("src/b", "x")]);
    let second = site.forge.tip(&branch("main"));
    site.run();
    let mut commits: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    commits.sort();
    let mut expected = vec![first, second];
    expected.sort();
    assert_eq!(commits, expected, "the second push came before the first was processed");
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06, Z6.6: the configuration in a push applies to the push itself.
#[test]
fn a_push_that_adds_its_project_to_a_pipeline_is_tested_there() {
    let mut site = site_of(&["post"]);
    let bare =
        BranchKey { project: ProjectName::new("forge.test", "org/bare"), branch: "main".into() };
    site.forge
        .push(&bare, &[(".zuul.yaml", "- project: {post: {jobs: [publish]}}"), ("src/a", "x")]);
    let pushed = site.forge.tip(&bare);
    site.run();
    assert_eq!(tested(&site), [("publish".to_owned(), pushed)]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06: a job with a file matcher runs for a push that touches matching files.
#[test]
fn file_matchers_see_the_files_between_the_old_and_the_new_tip() {
    let mut site = site_of(&["post"]);
    site.forge.push(&branch("main"), &[("docs/a", "x")]);
    site.run();
    let jobs: Vec<String> = tested(&site).into_iter().map(|(job, _)| job).collect();
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    site.forge.push(&branch("stable"), &[("src/b", "x")]);
    site.run();
    assert_eq!(tested(&site).len(), 4, "the files of a new branch are unknown, so all jobs run");
}

/// Z4.2: a tag is on no branch; jobs match its ref.
#[test]
fn a_tag_runs_the_jobs_that_match_its_ref() {
    let mut site = site_of(&["tag"]);
    site.forge.tag(&branch("main"), "1.0");
    site.run();
    let mut jobs: Vec<String> = tested(&site).into_iter().map(|(job, _)| job).collect();
    jobs.sort();
    assert_eq!(jobs, ["publish", "release"]);
    let (order, state) = &orders(&site)[0];
    assert_eq!(
        (order.change.on_branch(), order.change.github_ref().as_str()),
        (None, "refs/tags/1.0")
    );
    assert_eq!(state.changes[0].change, order.change);
    site.forge.tag(&branch("main"), "2.0");
    site.run();
    let jobs: Vec<String> = tested(&site).into_iter().map(|(job, _)| job).collect();
    assert_eq!(jobs.iter().filter(|job| *job == "release").count(), 1);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06, C5: the push of a tag that points to no commit ends with a reason, and later events are
/// processed.
#[test]
fn a_tag_without_a_commit_ends_its_push_and_blocks_no_other() {
    let mut site = site_of(&["tag"]);
    site.forge.lead_to_no_commit("org/one", "refs/tags/odd");
    site.forge.claim_push("org/one", "refs/tags/odd", &Oid::zero(), &Oid("6".repeat(40)));
    site.forge.tag(&branch("main"), "1.0");
    site.run();
    let tags: Vec<String> =
        orders(&site).iter().map(|(order, _)| order.change.github_ref()).collect();
    assert_eq!(tags, ["refs/tags/1.0", "refs/tags/1.0"]);
    let effects = effects_of_deliveries(&site);
    assert!(
        effects.iter().any(|effect| effect.contains("refs/tags/odd is not enqueued: could not")),
        "{effects:?}"
    );
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// Returns the effects of all handled deliveries.
fn effects_of_deliveries(site: &Site) -> Vec<String> {
    let records = site.world.records().into_iter();
    let own = records.filter(|record| record.key.partition.starts_with("delivery#"));
    let states = own.map(|record| decode::<DeliveryRecord>(&record).unwrap().state);
    let effects = states.filter_map(|state| match state {
        DeliveryState::Handled { effects, .. } => Some(effects),
        _ => None,
    });
    effects.flatten().collect()
}

/// Z4.2: a tag runs the jobs of the branches that contain its commit, and of no other branch.
#[test]
fn a_tag_runs_the_jobs_of_the_branches_that_contain_its_commit() {
    let mut site = site_of(&["tag"]);
    site.forge.push(&branch("stable"), &[(".zuul.yaml", "- project: {tag: {jobs: [docs]}}\n")]);
    site.run();
    let jobs_of = |site: &mut Site, on: &str, tag: &str| {
        site.forge.tag(&branch(on), tag);
        site.run();
        let git_ref = format!("refs/tags/{tag}");
        let own =
            orders(site).into_iter().filter(|(order, _)| order.change.github_ref() == git_ref);
        let mut jobs: Vec<(String, Vec<String>)> = own
            .map(|(order, state)| {
                let branches = state.containing.unwrap_or_default();
                (
                    order.job.to_string(),
                    branches.iter().map(|branch| branch.as_str().to_owned()).collect(),
                )
            })
            .collect();
        jobs.sort();
        jobs
    };
    let expected = |jobs: &[&str], branches: &[&str]| -> Vec<(String, Vec<String>)> {
        let branches: Vec<String> = branches.iter().map(|branch| (*branch).to_owned()).collect();
        jobs.iter().map(|job| ((*job).to_owned(), branches.clone())).collect()
    };
    // `stable` was created at the tip of `main`.
    let both = jobs_of(&mut site, "main", "1.0");
    assert_eq!(both, expected(&["docs", "publish", "release"], &["main", "stable"]));
    assert_eq!(jobs_of(&mut site, "stable", "1.1"), expected(&["docs"], &["stable"]));
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    assert_eq!(jobs_of(&mut site, "main", "1.2"), expected(&["publish", "release"], &["main"]));
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// Z4.6: the pushed branch does not select the branch of other repositories: roles come from the
/// playbook's branch or from the default branch.
#[test]
fn roles_for_a_push_come_from_the_playbooks_branch() {
    let config = "
- pipeline: {name: post, manager: independent, trigger: {github: [{event: push, ref: '^refs/heads/.*$'}]}}
- job: {name: base, parent: null}
- job: {name: publish, roles: [{zuul: org/two}], run: playbooks/publish.yaml}
";
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", config)]),
        ("org/one", &[(".zuul.yaml", "- project: {post: {jobs: [publish]}}\n")]),
        ("org/two", &[("roles/a/tasks/main.yaml", "[]")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let of_roles =
        BranchKey { project: ProjectName::new("forge.test", "org/two"), branch: "stable".into() };
    site.forge.push(&of_roles, &[("roles/a/tasks/main.yaml", "# older")]);
    site.run();
    site.forge.push(&branch("stable"), &[("src/a", "x")]);
    site.run();
    let orders = orders(&site);
    let (_, state) =
        orders.iter().find(|(order, _)| order.change.branch.as_str() == "stable").unwrap();
    let placed: Vec<String> = state.branches.iter().map(|state| state.branch.to_string()).collect();
    assert!(placed.iter().any(|branch| branch == "org/two@main"), "{placed:?}");
    assert!(!placed.iter().any(|branch| branch == "org/two@stable"), "{placed:?}");
}

/// Z4.2, Z6.3: a tag is enqueued before it is known which branches contain its commit. The queue
/// decides only the order; jobs and tested state come from those branches.
#[test]
fn a_tags_jobs_and_tested_state_come_from_its_branches_whichever_queue_it_waits_in() {
    let config = "
- pipeline: {name: release, manager: serial, trigger: {github: [{event: push, ref: '^refs/tags/.*$'}]}}
- queue: {name: new, type: branch-assigned}
- queue: {name: old, type: branch-assigned}
- job: {name: base, parent: null}
";
    let project = |queue: &str| {
        format!(
            "- job: {{name: of-{queue}, run: playbooks/release.yaml}}\n- project: {{queue: {queue}, release: {{jobs: [of-{queue}]}}}}\n"
        )
    };
    let (new, old) = (project("new"), project("old"));
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", config)]), ("org/one", &[(".zuul.yaml", &new)])];
    let mut site = Site::new(7, MAIN, repositories, judge);
    site.forge.push(&branch("stable"), &[(".zuul.yaml", &old)]);
    site.run();
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    for (on, tag) in [("main", "2.0"), ("stable", "1.1")] {
        site.forge.tag(&branch(on), tag);
    }
    let tips = [site.forge.tip(&branch("main")), site.forge.tip(&branch("stable"))];
    site.run();
    let mut builds: Vec<(String, String, Oid)> = Vec::new();
    for (order, state) in orders(&site) {
        assert_eq!(
            order.queue.queue.to_string(),
            "new",
            "the default branch selects the queue of every tag"
        );
        let own =
            state.branches.iter().find(|state| state.branch.branch == order.change.branch).unwrap();
        assert_eq!(state.changes.len(), 1, "it is not tested on an earlier tag");
        builds.push((order.change.github_ref(), order.job.to_string(), own.result.id.clone()));
    }
    builds.sort();
    let [of_main, of_stable] = tips;
    let expected = [("refs/tags/1.1", "of-old", of_stable), ("refs/tags/2.0", "of-new", of_main)];
    assert_eq!(
        builds,
        expected.map(|(git_ref, job, tip)| (git_ref.to_owned(), job.to_owned(), tip))
    );
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06: a push is read from the forge before it is tested.
#[test]
fn a_push_that_the_forge_does_not_confirm_is_not_tested() {
    let mut site = site_of(&["post", "tag"]);
    let tip = site.forge.tip(&branch("main"));
    let unknown = Oid("5".repeat(40));
    site.forge.claim_push("org/one", "refs/heads/main", &tip, &unknown);
    site.forge.claim_push("org/one", "refs/heads/main", &tip, &Oid::zero());
    site.forge.claim_push("org/one", "refs/heads/gone", &Oid::zero(), &tip);
    site.forge.claim_push("org/one", "refs/tags/none", &Oid::zero(), &tip);
    site.run();
    assert_eq!(tested(&site), []);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06: like Zuul, the deletion of a ref starts nothing.
#[test]
fn the_deletion_of_a_branch_starts_nothing() {
    let mut site = site_of(&["post", "promote"]);
    site.forge.push(&branch("stable"), &[("src/b", "x")]);
    site.run();
    let before = tested(&site);
    site.forge.delete_branch(&branch("stable"));
    site.run();
    assert_eq!(tested(&site), before);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// Z6.1: requirements on changes exclude refs.
#[test]
fn a_pipeline_that_requires_an_open_change_accepts_no_refs() {
    let mut site = site_of(&["picky"]);
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    assert_eq!(tested(&site), []);
}

/// Processes the events of the forge up to the queue's inbox and lets the gate consume them.
fn deliver_to_queue(site: &mut Site) {
    site.take_in();
    site.handle(MessageQueue::Tenants);
    site.take_in();
    site.handle(MessageQueue::Gate);
}

/// G23
#[test]
fn a_supercedent_queue_tests_the_first_and_the_newest_push_one_at_a_time() {
    let mut site = site_of(&["promote"]);
    let push = |site: &mut Site, file: &str| {
        site.forge.push(&branch("main"), &[(file, "x")]);
        deliver_to_queue(site);
        site.forge.tip(&branch("main"))
    };
    let a = push(&mut site, "a");
    site.run_until(|site| site.is_building());
    let b = push(&mut site, "b");
    let c = push(&mut site, "c");
    site.run_checked(|site| assert!(site.running().len() <= 1, "{:?}", site.running()));
    let commits: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    assert_eq!(commits, [a, c], "B, {b}, is skipped");
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// G23: a branch that is reset to an earlier commit is tested there, although the running item's
/// push started from that commit.
#[test]
fn a_push_back_to_an_earlier_commit_is_the_newest_push() {
    let mut site = site_of(&["promote"]);
    let begun = site.forge.tip(&branch("main"));
    site.forge.push(&branch("main"), &[("a", "x")]);
    deliver_to_queue(&mut site);
    let a = site.forge.tip(&branch("main"));
    site.run_until(|site| site.is_building());
    site.forge.push(&branch("main"), &[("b", "x")]);
    deliver_to_queue(&mut site);
    site.forge.push_back(&branch("main"), &begun);
    deliver_to_queue(&mut site);
    site.run();
    let commits: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    assert_eq!(commits, [a, begun]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// G23: webhooks arrive in any order; a delayed webhook of an older push does not replace a newer
/// one.
#[test]
fn a_delayed_webhook_of_an_older_push_does_not_supersede_a_newer_push() {
    let mut site = site_of(&["promote"]);
    site.forge.push(&branch("main"), &[("a", "x")]);
    deliver_to_queue(&mut site);
    let a = site.forge.tip(&branch("main"));
    site.run_until(|site| site.is_building());
    site.forge.push(&branch("main"), &[("b", "x")]);
    let late = site.forge.next_webhook().unwrap();
    site.forge.push(&branch("main"), &[("c", "x")]);
    let later = site.forge.next_webhook().unwrap();
    site.forge.push(&branch("main"), &[("d", "x")]);
    let d = site.forge.tip(&branch("main"));
    deliver_to_queue(&mut site);
    for webhook in [late, later] {
        site.receive(&webhook);
        deliver_to_queue(&mut site);
    }
    site.run();
    let commits: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    assert_eq!(commits, [a, d]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// G23: branches do not wait for each other.
#[test]
fn pushes_to_different_branches_do_not_supersede_each_other() {
    let mut site = site_of(&["promote"]);
    for name in ["main", "stable", "old"] {
        site.forge.push(&branch(name), &[("a", name)]);
    }
    site.run_until(|site| site.running().len() == 3);
    site.run();
    assert_eq!(tested(&site).len(), 3);
}

/// G21
#[test]
fn a_serial_pipeline_tests_merged_changes_one_after_the_other() {
    let mut site = site_of(&["deploy"]);
    let a = site.forge.propose("org/one", 1, "A", "", &[("docs/a", "x")]);
    let b = site.forge.propose("org/one", 2, "B", "", &[("docs/b", "x")]);
    let c = site.forge.propose("org/one", 3, "C", "", &[("docs/c", "x")]);
    site.run();
    site.forge.merge_outside(&a);
    site.forge.merge_outside(&b);
    site.forge.close(&c);
    site.take_in();
    site.run_checked(|site| {
        let orders = orders(site);
        let of =
            |key: &ChangeKey| orders.iter().filter(|(order, _)| order.change.key == *key).count();
        assert!(
            of(&a) + of(&b) == orders.len() && site.running().len() <= 2,
            "{:?}",
            site.builds()
        );
        assert!(
            of(&b) == 0 || of(&a) == 2,
            "both jobs of the first, then those of the second: {:?}",
            site.builds()
        );
    });
    assert_eq!(
        site.builds(),
        ["deploy docs 1", "deploy docs 2", "deploy publish 1", "deploy publish 2"]
    );
    assert_eq!(super::comments(&site, &a).matches("Build succeeded.").count(), 1);
    assert_eq!(left_over(&site), Vec::<String>::new());
}
