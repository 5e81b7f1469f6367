//! What a forge failed to tell is found by the sweep, and told once.

use super::operators::ask_as;
use super::refs::{CONFIG, branch, orders};
use super::{MAIN, judge, propose};
use bytes::Bytes;
use sluice_memory::poll_once;
use sluice_model::build::Order;
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::connection;
use sluice_runtime::object::PutMode;
use sluice_runtime::{Record, cell};
use sluice_scenarios::Site;

const PROJECT: &str = "
- project: {post: {jobs: [publish]}, tag: {jobs: [publish]}}
";

fn pushed_to() -> Site {
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", &[(".zuul.yaml", PROJECT)])];
    Site::new(7, MAIN, repositories, judge)
}

/// Returns the ref and the commit of each build.
fn tested(site: &Site) -> Vec<(String, Oid)> {
    let of = |change: &sluice_model::change::ChangeRef| change.key.moved().unwrap().git_ref.clone();
    orders(site).into_iter().map(|(order, _)| (of(&order.change), order.change.head)).collect()
}

/// A site whose check is started by a comment, too.
fn commented() -> Site {
    let comment =
        "github: [{event: pull_request, action: comment, comment: recheck}, {event: pull_request, ";
    let config = super::CONFIG.replacen("github: [{event: pull_request, ", comment, 1);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", super::PROJECT), ("shared", "0")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// C5: a comment leaves nothing that could be compared, so the forge is asked to send it again.
#[test]
fn a_webhook_that_nobody_took_is_sent_again_and_counts() {
    let mut site = commented();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.comment(&change, "recheck");
    site.forge.lose_webhooks();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"]);
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"; 2], "it came, and is not asked for again");
}

/// C5: however many newer ones were taken of which the forge had no answer, one that was not is
/// sent again.
#[test]
fn a_webhook_that_nobody_took_is_sent_again_though_newer_ones_were_taken_without_an_answer() {
    let mut site = commented();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.comment(&change, "recheck");
    site.forge.lose_webhooks();
    for _ in 0..30 {
        site.forge.comment(&change, "thank you");
    }
    for webhook in site.forge.lose_answers() {
        site.receive(&webhook);
    }
    site.run();
    assert_eq!(site.builds(), ["check unit 1"]);
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
}

/// C5: a forge that tells of a change a moment before it shows it loses none of what it told; of
/// one that it never shows that ends.
#[test]
fn what_is_told_of_a_change_that_is_not_shown_yet_is_looked_at_again() {
    for is_shown in [true, false] {
        let mut site = super::site();
        propose(&site, 1, &[("a", "x")]);
        site.forge.set_blind(true);
        site.run_now();
        assert_eq!(site.builds(), Vec::<String>::new());
        site.forge.set_blind(!is_shown);
        site.run();
        assert_eq!(site.builds().len(), usize::from(is_shown));
        assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
    }
}

/// C5, S06: a forge that tells of a tag, or of a branch, a moment before it shows it loses nothing
/// of that; of one that it never shows that ends.
#[test]
fn what_is_told_of_a_ref_that_is_not_shown_yet_is_looked_at_again() {
    type Push = fn(&Site);
    let pushes: [Push; 2] = [
        |site| site.forge.tag(&branch("main"), "1.0"),
        |site| site.forge.push(&branch("main"), &[("src/a", "x")]),
    ];
    for push in pushes {
        for is_shown in [true, false] {
            let mut site = pushed_to();
            site.forge.hide_refs(true);
            push(&site);
            site.run_now();
            assert_eq!(tested(&site), []);
            site.forge.hide_refs(!is_shown);
            site.run();
            assert_eq!(tested(&site).len(), usize::from(is_shown));
            assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
        }
    }
}

/// C5, S06: a push is found by where the branch is, has its post job, and has configuration read
/// again.
#[test]
fn a_push_that_nobody_told_of_is_found_and_told_once() {
    let mut site = pushed_to();
    site.sweep();
    assert_eq!(tested(&site), [], "what was there at the first look is no news");
    let main = branch("main");
    let before = site.forge.tip(&main);
    site.forge.push_silently(
        &main,
        &[(".zuul.yaml", "- project: {post: {jobs: [publish, docs]}}\n"), ("docs/a", "x")],
    );
    let after = site.forge.tip(&main);
    site.sweep();
    let once = vec![("refs/heads/main".to_owned(), after.clone()); 2];
    assert_eq!(tested(&site), once, "both jobs: its configuration was read first");
    site.sweep();
    // Its webhook comes after all, for whatever reason.
    site.forge.claim_push("org/one", "refs/heads/main", &before, &after);
    site.run();
    assert_eq!(tested(&site), once);
}

/// Returns a site with a second connection to its forge, `aside`, and these tenants.
fn beside(main: &str) -> Site {
    let theirs = CONFIG.replace("github:", "aside:");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/config2", &[("zuul.yaml", &theirs)]),
        ("org/one", &[(".zuul.yaml", PROJECT)]),
    ];
    let mut site = Site::beside(7, MAIN, repositories, judge, &["aside"]);
    let ports = site.ports();
    let mut connections = poll_once(connection::load(&ports)).unwrap().unwrap();
    let github = connections.0[&ConnectionName::from("github")].clone();
    connections.0.insert("aside".into(), github);
    let connections = serde_json::to_string(&connections).unwrap();
    for (name, text) in [(connection::OBJECT, connections), (connection::MAIN, main.to_owned())] {
        let put =
            ports.objects.put(name, Bytes::from(text), PutMode::Always, "application/octet-stream");
        poll_once(put).unwrap().unwrap();
    }
    let pokes = ["demo", "other"].map(|tenant| Poke::Tenant { tenant: tenant.into() });
    poll_once(cell::send(&ports, &pokes)).unwrap().unwrap();
    site.run();
    site
}

/// Has what was never told of a project be looked for by one connection.
fn sweep_by(site: &mut Site, connection: &str) {
    let project = ProjectName::new("forge.test", "org/one");
    let event = ForgeEvent {
        connection: connection.into(),
        project,
        sender: String::new(),
        kind: EventKind::Sweep,
    };
    ask_as(site, event).unwrap();
}

/// Returns tenant, pipeline and job of each build, sorted.
fn ordered_by(site: &Site) -> Vec<String> {
    let order =
        |order: &Order| format!("{} {} {}", order.queue.tenant, order.queue.pipeline, order.job);
    let mut builds: Vec<String> = orders(site).iter().map(|(of, _)| order(of)).collect();
    builds.sort();
    builds
}

/// C5, S06: what a push starts it starts by the connection that a tenant has its project from; a
/// push that nobody told of is told by each of these, and by each once.
#[test]
fn a_push_that_nobody_told_of_is_told_by_each_connection_that_a_tenant_has_the_project_by() {
    let mut site = beside(
        "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {aside: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
    );
    sweep_by(&mut site, "github");
    site.forge.push_silently(&branch("main"), &[("src/a", "x")]);
    for connection in ["github", "aside", "github"] {
        sweep_by(&mut site, connection);
        assert_eq!(
            ordered_by(&site),
            ["demo post publish", "other post publish"],
            "after the sweep by {connection}"
        );
    }
}

/// C5, S06: of two connections to a host one alone has a webhook: what is told by it the sweep
/// tells by the other one, once.
#[test]
fn a_push_that_one_connection_told_is_told_by_the_other_one_too() {
    let mut site = beside(
        "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {aside: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
    );
    sweep_by(&mut site, "github");
    for text in ["x", "y"] {
        let before = ordered_by(&site).len();
        site.forge.push(&branch("main"), &[("src/a", text)]);
        site.run();
        assert_eq!(
            ordered_by(&site).len(),
            before + 1,
            "the tenant that has the webhook hears of it"
        );
        for connection in ["aside", "github", "aside"] {
            sweep_by(&mut site, connection);
            let builds = ordered_by(&site);
            let of = |tenant: &str| builds.iter().filter(|build| build.starts_with(tenant)).count();
            assert_eq!(
                (of("demo"), of("other")),
                (before / 2 + 1, before / 2 + 1),
                "after the sweep by {connection}"
            );
        }
    }
}

/// C5, S06: of several pushes that one connection told before the sweep the other one tells all
/// that they brought, as one; also where nobody told the last of them.
#[test]
fn pushes_that_one_connection_told_in_a_row_are_told_by_the_other_one_as_one() {
    for is_last_told in [true, false] {
        let mut site = beside(
            "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {aside: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
        );
        sweep_by(&mut site, "github");
        site.forge.push(
            &branch("main"),
            &[(".zuul.yaml", "- project: {post: {jobs: [publish, docs]}}\n")],
        );
        site.run();
        sweep_by(&mut site, "aside");
        let before = ordered_by(&site);
        site.forge.push(&branch("main"), &[("docs/a", "x")]);
        site.run();
        if is_last_told {
            site.forge.push(&branch("main"), &[("src/a", "x")]);
        } else {
            site.forge.push_silently(&branch("main"), &[("src/a", "x")]);
        }
        site.run();
        let more = |site: &Site| {
            let count =
                |all: &[String], build: &str| all.iter().filter(|one| *one == build).count();
            let builds =
                ["demo post docs", "demo post publish", "other post docs", "other post publish"];
            builds.map(|build| count(&ordered_by(site), build) - count(&before, build))
        };
        assert_eq!(more(&site), [1, 1 + usize::from(is_last_told), 0, 0]);
        for connection in ["aside", "github", "aside"] {
            sweep_by(&mut site, connection);
            assert_eq!(
                more(&site),
                [1, 2, 1, 1],
                "after the sweep by {connection}, told: {is_last_told}"
            );
        }
    }
}

/// C5, S06: a webhook that leads to the address of another connection to the same host starts
/// nothing, and keeps nothing from being told by the connection that the tenant has the project by.
#[test]
fn a_push_that_came_by_another_connection_is_told_by_the_tenants_own() {
    let mut site = beside(
        "
- tenant: {name: demo, source: {github: {config-projects: [org/config]}}}
- tenant: {name: other, source: {aside: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
",
    );
    sweep_by(&mut site, "aside");
    site.forge.push(&branch("main"), &[("src/a", "x")]);
    site.run();
    assert_eq!(ordered_by(&site), Vec::<String>::new());
    for _ in 0..2 {
        sweep_by(&mut site, "aside");
        assert_eq!(ordered_by(&site), ["other post publish"]);
    }
}

/// C5, S06
#[test]
fn a_branch_that_came_without_a_word_is_found() {
    let mut site = pushed_to();
    site.sweep();
    site.forge.branch_off("org/one", "main", "stable");
    site.sweep();
    let stable = site.forge.tip(&branch("stable"));
    assert_eq!(tested(&site), [("refs/heads/stable".to_owned(), stable)]);
}

/// C5, S06: the first look sees the branch where a push put it whose webhook is still on its way.
#[test]
fn a_push_that_the_first_look_overtook_is_told() {
    let mut site = pushed_to();
    let main = branch("main");
    let before = site.forge.tip(&main);
    site.forge.push_silently(&main, &[("src/a", "x")]);
    site.sweep();
    assert_eq!(tested(&site), []);
    let after = site.forge.tip(&main);
    site.forge.claim_push("org/one", "refs/heads/main", &before, &after);
    site.run();
    assert_eq!(tested(&site), [("refs/heads/main".to_owned(), after)]);
}

/// C5: two pushes whose webhooks change places are two pushes, and the sweep does not tell the
/// later one again.
#[test]
fn webhooks_of_pushes_that_change_places_are_told_once_each() {
    let mut site = pushed_to();
    let main = branch("main");
    let mut tips = vec![site.forge.tip(&main)];
    site.forge.push(&main, &[("src/a", "0")]);
    site.run();
    for text in ["1", "2"] {
        site.forge.push_silently(&main, &[("src/a", text)]);
        tips.push(site.forge.tip(&main));
    }
    let first = tested(&site).len();
    let told = tested(&site)[0].1.clone();
    site.forge.claim_push("org/one", "refs/heads/main", &tips[1], &tips[2]);
    site.run();
    site.forge.claim_push("org/one", "refs/heads/main", &told, &tips[1]);
    site.run();
    let both = tested(&site).len();
    site.sweep();
    assert_eq!((first, both, tested(&site).len()), (1, 3, 3));
}

/// Pipelines for what moves no revision.
const FACTS: &str = "
- pipeline: {name: edits, manager: independent, trigger: {github: [{event: pull_request, action: edited}]}}
- pipeline: {name: bare, manager: independent, trigger: {github: [{event: pull_request, action: unlabeled, unlabel: go}]}}
- pipeline: {name: told, manager: independent, trigger: {github: [{event: pull_request, action: status, status: 'ci:unit:success'}]}}
- project: {name: org/one, edits: {jobs: [unit]}, bare: {jobs: [unit]}, told: {jobs: [unit]}}
";

/// Returns a site with these pipelines, and a change that was checked there.
fn checked_with_facts() -> (Site, ChangeKey) {
    let config = format!("{}{FACTS}", super::CONFIG);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", super::PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    (site, change)
}

/// C5: a draft, a description, a label that was taken off and a status are found where nobody told
/// of them; and they are told once where their webhook comes after all.
#[test]
fn what_moves_no_revision_is_found_by_the_sweep_and_told_once() {
    type Edit = fn(&Site, &ChangeKey);
    let edits: [(&str, Edit); 4] = [
        ("edits", |site, change| site.forge.draft(change, true)),
        ("edits", |site, change| site.forge.describe(change, "says more", true)),
        ("bare", |site, change| site.forge.unlabel(change, "go")),
        ("told", |site, change| {
            site.forge.put_status(change, "ci", "unit", "success");
            site.forge.tell_status(change, "unit", "ci");
        }),
    ];
    for (at, (pipeline, edit)) in edits.into_iter().enumerate() {
        for comes_late in [false, true] {
            let (mut site, change) = checked_with_facts();
            site.forge.label(&change, "go", true);
            site.run();
            site.sweep();
            let builds = |site: &Site| {
                site.builds().iter().filter(|build| build.starts_with(pipeline)).count()
            };
            assert_eq!(builds(&site), 0, "edit {at}");
            edit(&site, &change);
            if comes_late {
                site.forge.lose_webhooks()
            } else {
                site.forge.forget_webhooks()
            }
            // Of those that did not move some are read for their statuses, and others the next
            // time.
            for time in 0..2 {
                site.sweep();
                assert_eq!(builds(&site), 1, "edit {at}, late: {comes_late}, sweep {time}");
            }
        }
    }
}

/// C5: whoever is to tell what a sweep found may be shown the change as it was before; then it is
/// found again, and told once.
#[test]
fn a_status_that_is_not_shown_to_whoever_is_to_tell_it_is_found_again() {
    let (mut site, change) = checked_with_facts();
    site.sweep();
    let builds =
        |site: &Site| site.builds().iter().filter(|build| build.starts_with("told")).count();
    site.forge.put_status(&change, "ci", "unit", "success");
    for _ in 0..2 {
        site.forge.show_statuses(Some(1));
        site.sweep();
        assert_eq!(builds(&site), 0, "the sweep alone was shown it");
    }
    site.forge.show_statuses(None);
    for _ in 0..2 {
        site.sweep();
        assert_eq!(builds(&site), 1);
    }
}

/// C5: of the statuses that nobody told of only those are made up for that some pipeline has a word
/// for; the others start nothing.
#[test]
fn statuses_that_no_pipeline_heeds_are_not_made_up_for() {
    let (mut site, change) = checked_with_facts();
    site.sweep();
    for (context, state) in [("unit", "success"), ("coverage", "success"), ("docs", "failure")] {
        site.forge.put_status(&change, "ci", context, state);
    }
    for _ in 0..2 {
        site.sweep();
    }
    let made_up = |record: &&Record| {
        record.body.contains("\"event_name\":\"sweep\"") && record.body.contains("\"status\":\"ci:")
    };
    let records = site.world.records();
    let made_up: Vec<_> = records.iter().filter(made_up).collect();
    assert!(made_up.len() == 1 && made_up[0].body.contains("ci:unit:success"), "{made_up:?}");
    assert_eq!(site.builds().iter().filter(|build| build.starts_with("told")).count(), 1);
}

/// C5: what a sweep made up for swallows no later word.
#[test]
fn what_is_changed_again_after_it_was_found_is_told_again() {
    let (mut site, change) = checked_with_facts();
    site.forge.draft(&change, true);
    site.forge.forget_webhooks();
    site.sweep();
    for (is_draft, builds) in [(false, 2), (true, 3)] {
        site.forge.draft(&change, is_draft);
        site.run();
        let edits = site.builds().iter().filter(|build| build.starts_with("edits")).count();
        assert_eq!(edits, builds);
    }
}
