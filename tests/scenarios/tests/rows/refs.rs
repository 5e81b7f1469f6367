//! Items that are about refs: what was pushed is tested as it was pushed, in pipelines that do not
//! land anything.

use super::{MAIN, judge};
use sluice_model::ProjectName;
use sluice_model::build::{Order, Speculation};
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, Oid};
use sluice_model::poke::Queue;
use sluice_records::codec::decode;
use sluice_records::delivery::{Delivery, DeliveryState};
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

/// A site whose project takes part in these pipelines.
fn site_of(pipelines: &[&str]) -> Site {
    let wanted = |line: &&str| {
        !line.ends_with("]}") || pipelines.iter().any(|name| line.contains(&format!("{name}:")))
    };
    let project: Vec<&str> = PROJECT.lines().filter(wanted).collect();
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

/// Returns each build's order with the state it tests, in the order they were ordered.
pub fn orders(site: &Site) -> Vec<(Order, Speculation)> {
    let ports = site.ports();
    let records = site.world.records().into_iter();
    let own = records
        .filter(|record| record.key.partition.starts_with("build#") && record.key.sort == "order");
    let mut orders: Vec<(Order, Speculation)> = own
        .map(|record| {
            let order: Order = decode(&record).unwrap();
            let read =
                sluice_memory::poll_once(ports.objects.get(&order.speculation)).unwrap().unwrap();
            (order, serde_json::from_slice(&read.unwrap().bytes).unwrap())
        })
        .collect();
    orders.sort_by_key(|(order, _)| (order.ordered_at, order.build.clone()));
    orders
}

/// Returns which job tested which commit, in order.
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
    let moved = order.change.key.moved().expect("no change number");
    assert_eq!((moved.git_ref.as_str(), &moved.newrev), ("refs/heads/main", &Some(pushed.clone())));
    assert_eq!(moved.oldrev, Some(before));
    assert_eq!(order.change.on_branch().unwrap().as_str(), "main");
    let main = state.branches.iter().find(|state| state.branch == branch("main")).unwrap();
    assert_eq!(main.result.id, pushed, "nothing is merged");
    // A status is told of a commit, a comment of nothing.
    assert_eq!(site.forge.statuses_of(&pushed), ["demo/post success"]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06, C5: deliveries come twice and late.
#[test]
fn a_push_that_is_told_twice_is_tested_once_and_each_push_by_itself() {
    let mut site = site_of(&["post"]);
    site.twice = true;
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    let first = site.forge.tip(&branch("main"));
    site.forge.push(&branch("main"), &[("src/b", "x")]);
    let second = site.forge.tip(&branch("main"));
    site.run();
    let mut found: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    found.sort();
    let mut wanted = vec![first, second];
    wanted.sort();
    assert_eq!(found, wanted, "the branch moved on before the first was looked at");
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06, Z6.6: what a push brings counts for its own jobs.
#[test]
fn a_push_that_adds_its_project_to_a_pipeline_goes_through_it() {
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

/// S06: a job that matches files runs where a push touches them.
#[test]
fn the_files_of_a_push_are_those_between_where_the_branch_was_and_is() {
    let mut site = site_of(&["post"]);
    site.forge.push(&branch("main"), &[("docs/a", "x")]);
    site.run();
    let jobs: Vec<String> = tested(&site).into_iter().map(|(job, _)| job).collect();
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    site.forge.push(&branch("stable"), &[("src/b", "x")]);
    site.run();
    assert_eq!(tested(&site).len(), 4, "of a new branch nobody knows what it touches");
}

/// Z4.2: a tag is on no branch; a job asks for it by its ref.
#[test]
fn a_tag_has_jobs_run_that_match_its_ref_and_has_nothing_read() {
    let mut site = site_of(&["tag"]);
    site.forge.tag(&branch("main"), "1.0");
    site.run();
    let mut jobs: Vec<String> = tested(&site).into_iter().map(|(job, _)| job).collect();
    jobs.sort();
    assert_eq!(jobs, ["publish", "release"]);
    let (order, state) = &orders(&site)[0];
    assert_eq!(
        (order.change.on_branch(), order.change.git_ref().as_str()),
        (None, "refs/tags/1.0")
    );
    assert_eq!(state.changes[0].change, order.change);
    site.forge.tag(&branch("main"), "2.0");
    site.run();
    let jobs: Vec<String> = tested(&site).into_iter().map(|(job, _)| job).collect();
    assert_eq!(jobs.iter().filter(|job| *job == "release").count(), 1);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06, C5: a tag may lead to no commit. Its push ends with that as its reason, and what comes
/// behind it is heard.
#[test]
fn a_tag_that_leads_to_no_commit_ends_its_push_and_holds_up_no_other() {
    let mut site = site_of(&["tag"]);
    site.forge.lead_to_no_commit("org/one", "refs/tags/odd");
    site.forge.claim_push("org/one", "refs/tags/odd", &Oid::zero(), &Oid("6".repeat(40)));
    site.forge.tag(&branch("main"), "1.0");
    site.run();
    let tags: Vec<String> = orders(&site).iter().map(|(order, _)| order.change.git_ref()).collect();
    assert_eq!(tags, ["refs/tags/1.0", "refs/tags/1.0"]);
    let told = effects_of_deliveries(&site);
    assert!(
        told.iter().any(|told| told.contains("refs/tags/odd is not enqueued: could not")),
        "{told:?}"
    );
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// Returns what came of the deliveries that ended.
fn effects_of_deliveries(site: &Site) -> Vec<String> {
    let records = site.world.records().into_iter();
    let own = records.filter(|record| record.key.partition.starts_with("delivery#"));
    let states = own.map(|record| decode::<Delivery>(&record).unwrap().state);
    let effects = states.filter_map(|state| match state {
        DeliveryState::Handled { effects, .. } => Some(effects),
        _ => None,
    });
    effects.flatten().collect()
}

/// Z4.2: a tag is told what the branches say that have its commit, and nothing by others.
#[test]
fn a_tag_has_jobs_run_of_the_branches_that_have_its_commit() {
    let mut site = site_of(&["tag"]);
    site.forge.push(&branch("stable"), &[(".zuul.yaml", "- project: {tag: {jobs: [docs]}}\n")]);
    site.run();
    let jobs_of = |site: &mut Site, on: &str, tag: &str| {
        site.forge.tag(&branch(on), tag);
        site.run();
        let git_ref = format!("refs/tags/{tag}");
        let own = orders(site).into_iter().filter(|(order, _)| order.change.git_ref() == git_ref);
        let mut found: Vec<(String, Vec<String>)> = own
            .map(|(order, state)| {
                let branches = state.containing.unwrap_or_default();
                (
                    order.job.to_string(),
                    branches.iter().map(|branch| branch.as_str().to_owned()).collect(),
                )
            })
            .collect();
        found.sort();
        found
    };
    let told = |jobs: &[&str], branches: &[&str]| -> Vec<(String, Vec<String>)> {
        let branches: Vec<String> = branches.iter().map(|branch| (*branch).to_owned()).collect();
        jobs.iter().map(|job| ((*job).to_owned(), branches.clone())).collect()
    };
    // The branch was made where the other one is.
    let both = jobs_of(&mut site, "main", "1.0");
    assert_eq!(both, told(&["docs", "publish", "release"], &["main", "stable"]));
    assert_eq!(jobs_of(&mut site, "stable", "1.1"), told(&["docs"], &["stable"]));
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    assert_eq!(jobs_of(&mut site, "main", "1.2"), told(&["publish", "release"], &["main"]));
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// Z4.6: the name of a branch that was pushed says nothing of other repositories: roles are of the
/// playbook's branch, or of the default one.
#[test]
fn roles_for_a_push_are_of_the_playbooks_branch() {
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
    let placed: Vec<String> = state.branches.iter().map(|known| known.branch.to_string()).collect();
    assert!(placed.iter().any(|known| known == "org/two@main"), "{placed:?}");
    assert!(!placed.iter().any(|known| known == "org/two@stable"), "{placed:?}");
}

/// Z4.2, Z6.3: a tag is put into a queue before anybody knows which branches have its commit. The
/// queue says only whom it waits for: what it is tested with, and on what, is for those branches to
/// say.
#[test]
fn a_tags_jobs_and_state_are_those_of_its_branches_whichever_queue_it_waits_in() {
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
    let mut found: Vec<(String, String, Oid)> = Vec::new();
    for (order, state) in orders(&site) {
        assert_eq!(
            order.queue.queue.to_string(),
            "new",
            "what the default branch says holds for every tag"
        );
        let own =
            state.branches.iter().find(|known| known.branch.branch == order.change.branch).unwrap();
        assert_eq!(state.changes.len(), 1, "it is tested on nothing that waited before it");
        found.push((order.change.git_ref(), order.job.to_string(), own.result.id.clone()));
    }
    found.sort();
    let [of_main, of_stable] = tips;
    let expected = [("refs/tags/1.1", "of-old", of_stable), ("refs/tags/2.0", "of-new", of_main)];
    assert_eq!(
        found,
        expected.map(|(git_ref, job, tip)| (git_ref.to_owned(), job.to_owned(), tip))
    );
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// S06: a webhook is a hint; the forge is asked.
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

/// S06: as in Zuul, a ref that is deleted starts nothing; it is no push to test.
#[test]
fn a_branch_that_is_deleted_has_nothing_run() {
    let mut site = site_of(&["post", "promote"]);
    site.forge.push(&branch("stable"), &[("src/b", "x")]);
    site.run();
    let before = tested(&site);
    site.forge.delete_branch(&branch("stable"));
    site.run();
    assert_eq!(tested(&site), before);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// Z6.1: what a pipeline requires of changes keeps refs out.
#[test]
fn a_pipeline_that_requires_an_open_change_takes_no_refs() {
    let mut site = site_of(&["picky"]);
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    assert_eq!(tested(&site), []);
}

/// Has what the forge told come to the queue, and no further.
fn to_the_queue(site: &mut Site) {
    site.take_in();
    site.handle(Queue::Tenants);
    site.take_in();
    site.handle(Queue::Gate);
}

/// G23
#[test]
fn of_quick_pushes_the_first_and_the_newest_are_tested_and_never_two_at_once() {
    let mut site = site_of(&["promote"]);
    let push = |site: &mut Site, file: &str| {
        site.forge.push(&branch("main"), &[(file, "x")]);
        to_the_queue(site);
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

/// G23: a branch that is put back to where it was is tested there, though what stands in the queue
/// began there.
#[test]
fn a_push_back_to_an_earlier_commit_is_the_newest_push() {
    let mut site = site_of(&["promote"]);
    let begun = site.forge.tip(&branch("main"));
    site.forge.push(&branch("main"), &[("a", "x")]);
    to_the_queue(&mut site);
    let a = site.forge.tip(&branch("main"));
    site.run_until(|site| site.is_building());
    site.forge.push(&branch("main"), &[("b", "x")]);
    to_the_queue(&mut site);
    site.forge.push_back(&branch("main"), &begun);
    to_the_queue(&mut site);
    site.run();
    let commits: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    assert_eq!(commits, [a, begun]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// G23: forges tell of pushes in any order; an older one that is told late takes no newer one's
/// place.
#[test]
fn a_push_that_is_told_after_a_newer_one_does_not_supersede_it() {
    let mut site = site_of(&["promote"]);
    site.forge.push(&branch("main"), &[("a", "x")]);
    to_the_queue(&mut site);
    let a = site.forge.tip(&branch("main"));
    site.run_until(|site| site.is_building());
    site.forge.push(&branch("main"), &[("b", "x")]);
    let late = site.forge.next_webhook().unwrap();
    site.forge.push(&branch("main"), &[("c", "x")]);
    let later = site.forge.next_webhook().unwrap();
    site.forge.push(&branch("main"), &[("d", "x")]);
    let d = site.forge.tip(&branch("main"));
    to_the_queue(&mut site);
    for webhook in [late, later] {
        site.receive(&webhook);
        to_the_queue(&mut site);
    }
    site.run();
    let commits: Vec<Oid> = tested(&site).into_iter().map(|(_, commit)| commit).collect();
    assert_eq!(commits, [a, d]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// G23: a branch waits for no other branch.
#[test]
fn pushes_to_two_branches_supersede_nothing_of_each_other() {
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
fn merged_changes_are_tested_one_after_the_other_and_each_for_itself() {
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
