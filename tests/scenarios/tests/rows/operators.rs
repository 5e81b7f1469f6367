//! What operators put into pipelines: as if an event had, with all that the pipeline requires.

use super::refs::{branch, orders};
use super::{approve, gate_builds, merged, opened, propose, site};
use sluice_memory::poll_once;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::poke::Poke;
use sluice_model::{DeliveryId, ProjectName};
use sluice_records::codec::decode;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_runtime::{Clock, Commit, cell};
use sluice_scenarios::Site;

/// Asks for something as the command does, lets everything come to its end, and returns what was
/// said.
fn ask(site: &mut Site, kind: EventKind) -> Result<Vec<String>, String> {
    let project = ProjectName::new("forge.test", "org/one");
    ask_as(site, ForgeEvent { connection: "github".into(), project, sender: "jo".to_owned(), kind })
}

/// The same of any event.
pub fn ask_as(site: &mut Site, event: ForgeEvent) -> Result<Vec<String>, String> {
    let id = put_in(site, event);
    site.run();
    let records = site.world.records();
    let record = records.iter().find(|record| record.key == delivery::key(&id)).unwrap();
    match decode::<Delivery>(record).unwrap().state {
        DeliveryState::Handled { effects, .. } => Ok(effects),
        DeliveryState::Failed { why, .. } => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Stores what is asked for, and lets nothing happen yet.
pub fn put_in(site: &Site, event: ForgeEvent) -> DeliveryId {
    let project = event.project.clone();
    let asked = Delivery {
        connection: event.connection.clone(),
        forge_id: format!("operator:{}", site.world.steps()),
        event_name: "enqueue".to_owned(),
        received_at: site.world.now(),
        event: Some(event),
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&asked.connection, &asked.forge_id);
    let poke = Poke::Delivery { delivery: id.clone(), project };
    let due = Some(Due { at: asked.received_at.plus_seconds(60), poke: poke.clone() });
    let head = delivery::record(&id, &asked).unwrap();
    let commit = Commit { head, others: Vec::new(), pokes: vec![poke], due };
    poll_once(cell::commit_and_send(&site.ports(), commit)).unwrap().unwrap();
    id
}

fn enqueue(pipeline: &str, number: u64, head: Option<Oid>) -> EventKind {
    EventKind::Enqueue { tenant: "demo".into(), pipeline: pipeline.into(), number, head }
}

fn enqueue_ref(pipeline: &str, git_ref: &str, oldrev: Oid, newrev: Oid) -> EventKind {
    let git_ref = git_ref.to_owned();
    EventKind::EnqueueRef {
        tenant: "demo".into(),
        pipeline: pipeline.into(),
        git_ref,
        oldrev,
        newrev,
    }
}

/// Z6.1: triggers are not asked, requirements are.
#[test]
fn an_enqueued_change_is_tested_again_and_enters_the_gate_only_as_it_must() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    assert_eq!(site.builds(), ["check unit 1"]);
    ask(&mut site, enqueue("check", 1, None)).unwrap();
    assert_eq!(site.builds(), ["check unit 1", "check unit 1"]);
    let refused = ask(&mut site, enqueue("gate", 1, None)).unwrap_err();
    assert!(refused.contains("requires a review"), "{refused}");
    assert_eq!(merged(&site), Vec::<u64>::new());
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let refused = ask(&mut site, enqueue("gate", 1, None)).unwrap_err();
    assert!(refused.contains("no longer open"), "{refused}");
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// Z6.1: what was meant is what is enqueued.
#[test]
fn another_revision_than_the_named_one_is_not_enqueued() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let head = site.forge.change(&a).unwrap().facts.change.head;
    let refused = ask(&mut site, enqueue("check", 1, Some(Oid::from("5555")))).unwrap_err();
    assert!(refused.contains("by now"), "{refused}");
    ask(&mut site, enqueue("check", 1, Some(Oid::from(head.short())))).unwrap();
    assert_eq!(site.builds().len(), 2);
    for (pipeline, number, word) in [("nosuch", 1, "no pipeline"), ("check", 99, "does not know")] {
        let refused = ask(&mut site, enqueue(pipeline, number, None)).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
}

/// Z6.5, D02: an operator's word brings what depends on the change, as an event does.
#[test]
fn an_enqueued_change_goes_through_the_gate_with_what_needs_it() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    site.forge.approve(&a);
    while site.forge.next_webhook().is_some() {} // Nobody hears of it.
    ask(&mut site, enqueue("gate", 1, None)).unwrap();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2"]);
}

/// S06, R09: a ref as it was pushed, or as it stands when its turn comes; the forge is asked as for
/// a push, and one that is not there is not taken.
#[test]
fn an_enqueued_ref_is_tested_as_a_push_or_as_it_stands() {
    let mut site = site();
    let (tip, zero) = (site.forge.tip(&branch("main")), Oid::zero());
    ask(&mut site, enqueue_ref("check", "refs/heads/main", zero.clone(), tip.clone())).unwrap();
    site.world.advance_millis(1);
    ask(&mut site, enqueue_ref("check", "refs/heads/main", zero.clone(), zero.clone())).unwrap();
    let newrevs: Vec<Option<Oid>> = orders(&site)
        .iter()
        .map(|(order, _)| order.change.key.moved().unwrap().newrev.clone())
        .collect();
    assert_eq!(newrevs, [Some(tip.clone()), None]);
    let unknown = Oid("5".repeat(40));
    site.forge.tag(&branch("main"), "9");
    for (kind, word) in [
        (
            enqueue_ref("check", "refs/heads/mian", zero.clone(), zero.clone()),
            "org/one has no branch mian",
        ),
        (enqueue_ref("check", "refs/heads/mian", zero.clone(), tip), "org/one has no branch mian"),
        (enqueue_ref("check", "refs/tags/8", zero.clone(), zero.clone()), "org/one has no tag 8"),
        (enqueue_ref("check", "refs/heads/main", zero.clone(), unknown), "find"),
        (enqueue_ref("check", "refs/tags/9", zero.clone(), zero.clone()), "--newrev"),
        (
            enqueue_ref("gate", "refs/heads/main", zero.clone(), zero),
            "requires what only a change has",
        ),
    ] {
        let refused = ask(&mut site, kind).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// C5: a sweep of a connection that was removed, or that is no forge, since it was asked for ends
/// with its reason.
#[test]
fn a_sweep_of_what_is_no_forge_ends() {
    let mut site = site();
    let project = ProjectName::new("forge.test", "org/one");
    let event = ForgeEvent {
        connection: "ec2".into(),
        project,
        sender: String::new(),
        kind: EventKind::Sweep,
    };
    let why = ask_as(&mut site, event).unwrap_err();
    assert!(why.contains("ec2 has no forge that could be asked"), "{why}");
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// C5: what came by a connection that was removed since is told of no more, and does not come again
/// for ever.
#[test]
fn what_came_by_a_connection_that_was_removed_ends() {
    let mut site = site();
    for kind in [opened(1), enqueue("check", 1, None)] {
        let project = ProjectName::new("forge.test", "org/one");
        let event =
            ForgeEvent { connection: "former".into(), project, sender: "ada".to_owned(), kind };
        let why = ask_as(&mut site, event).unwrap_err();
        assert!(why.contains("the connection former was removed"), "{why}");
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// C5: a push that a further connection to its host tells of is news to those that have the project
/// by it, and to no other.
#[test]
fn a_push_that_another_connection_tells_again_is_no_news_to_who_heard_of_it() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", super::CONFIG)]), ("org/one", project)];
    let mut site = Site::beside(7, super::MAIN, repositories, super::judge, &["aside"]);
    let newrev = site.forge.tip(&branch("main"));
    for (connection, is_news) in
        [("github", true), ("aside", false), ("aside", false), ("github", false)]
    {
        let (connection, project) = (connection.into(), ProjectName::new("forge.test", "org/one"));
        let git_ref = "refs/heads/main".to_owned();
        let kind = EventKind::Push { git_ref, oldrev: Oid::zero(), newrev: newrev.clone() };
        site.world.advance_millis(1);
        let effects =
            ask_as(&mut site, ForgeEvent { connection, project, sender: String::new(), kind })
                .unwrap();
        assert_eq!(!effects.join("\n").contains("as was told before"), is_news, "{effects:?}");
    }
}

/// C5: where several connections lead to a host, the one is asked by which a tenant has the
/// project.
#[test]
fn a_sweep_by_a_connection_that_no_tenant_has_the_project_by_asks_nobody() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", super::CONFIG)]), ("org/one", project)];
    let mut site = Site::beside(7, super::MAIN, repositories, super::judge, &["aside"]);
    for (connection, is_asked) in [("aside", false), ("github", true)] {
        let (connection, project) = (connection.into(), ProjectName::new("forge.test", "org/one"));
        let event =
            ForgeEvent { connection, project, sender: String::new(), kind: EventKind::Sweep };
        let effects = ask_as(&mut site, event).unwrap().join("\n");
        assert_eq!(!effects.contains("by the connection aside"), is_asked, "{effects}");
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// S06: of a branch that is gone jobs find the default branch, and hear what it was.
#[test]
fn an_enqueued_branch_that_is_gone_has_its_jobs_run_on_the_default_branch() {
    let mut site = site();
    site.forge.push(&branch("stable"), &[("src/b", "x")]);
    site.run();
    let was = site.forge.tip(&branch("stable"));
    site.forge.delete_branch(&branch("stable"));
    site.run();
    assert_eq!(orders(&site).len(), 0);
    ask(&mut site, enqueue_ref("check", "refs/heads/stable", was.clone(), Oid::zero())).unwrap();
    let (order, state) = &orders(&site)[0];
    let moved = order.change.key.moved().unwrap();
    assert!(moved.is_deleted() && moved.oldrev == Some(was));
    assert!(state.branches.iter().any(|state| state.branch == branch("main")));
    assert!(!state.branches.iter().any(|state| state.branch == branch("stable")));
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// Returns what an operator makes of the tenant's events, as `sluice manage-events` does.
pub(super) fn hold_back(site: &Site, discard: bool, pause: bool, results: bool) {
    let key = sluice_records::tenant::key(&"demo".into());
    let seen = site.world.records().into_iter().find(|record| record.key == key).unwrap();
    let mut tenant: sluice_records::tenant::Tenant = decode(&seen).unwrap();
    tenant.events =
        tenant.events.said(discard, pause, results, "jo", "an upgrade", site.world.now());
    let record = sluice_records::codec::with_body(seen.clone(), &tenant).unwrap();
    let record = Record { revision: seen.revision + 1, ..record };
    site.world.write_directly(Write::Put { record, expect: Expect::Revision(seen.revision) });
}

/// Z6.1: events that were paused are all there afterwards, those that were discarded are not.
#[test]
fn events_that_an_operator_pauses_wait_and_those_that_are_discarded_are_gone() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.world.advance_millis(60_000);
    hold_back(&site, false, true, false);
    site.forge.approve(&a);
    site.take_in();
    site.run_now();
    assert_eq!((merged(&site), gate_builds(&site, "unit")), (vec![], vec![]));
    hold_back(&site, false, false, false);
    site.run();
    assert_eq!(merged(&site), [1]);
    site.world.advance_millis(60_000);
    hold_back(&site, true, false, false);
    let b = propose(&site, 2, &[("b", "x")]);
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [1]);
    hold_back(&site, false, false, false);
    site.run();
    assert_eq!(merged(&site), [1], "nobody remembers it");
    ask(&mut site, enqueue("gate", 2, None)).unwrap();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.1: what an operator enqueues, a change or a ref, is no event: it is taken in while those are
/// paused or discarded.
#[test]
fn what_an_operator_enqueues_enters_while_events_are_held_back() {
    for (discard, pause) in [(true, false), (false, true)] {
        let mut site = site();
        let a = propose(&site, 1, &[("a", "x")]);
        site.run();
        assert_eq!(orders(&site).len(), 1);
        site.world.advance_millis(60_000);
        hold_back(&site, discard, pause, false);
        ask(&mut site, enqueue("check", 1, None)).unwrap();
        assert_eq!(orders(&site).len(), 2, "discard {discard}, pause {pause}");
        let tip = site.forge.tip(&branch("main"));
        ask(&mut site, enqueue_ref("check", "refs/heads/main", Oid::zero(), tip)).unwrap();
        assert_eq!(orders(&site).len(), 3, "discard {discard}, pause {pause}");
        assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
    }
}

/// D16, Z6.7: what the tenant takes in of nobody it takes in of no operator either, and says so.
#[test]
fn an_operator_is_told_that_a_change_depends_on_more_than_the_tenant_allows() {
    let main = super::MAIN.replace("    name: demo\n", "    name: demo\n    max-dependencies: 1\n");
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", super::CONFIG)]), ("org/one", project)];
    let mut site = Site::new(7, &main, repositories, super::judge);
    let needs = |number: u64| format!("Depends-On: https://forge.test/org/one/pull/{number}");
    propose(&site, 1, &[("a", "x")]);
    site.forge.propose("org/one", 2, "needs one", &needs(1), &[("b", "x")]);
    site.forge.propose("org/one", 3, "needs two", &needs(2), &[("c", "x")]);
    site.run();
    let before = site.builds();
    let refused = ask(&mut site, enqueue("check", 3, None)).unwrap_err();
    assert!(refused.contains("max-dependencies"), "{refused}");
    assert_eq!(site.builds(), before);
    assert!(ask(&mut site, enqueue("check", 2, None)).is_ok());
}
