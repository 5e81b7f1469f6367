//! Changes and refs that operators enqueue: without a trigger, but with the pipeline's
//! requirements.

use super::ref_updates::{branch, orders};
use super::{approve, gate_builds, merged, opened, propose, site};
use sluice_memory::poll_once;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::wakeup::Wakeup;
use sluice_model::{DeliveryId, ProjectName};
use sluice_records::codec::decode;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_runtime::{CellCommit, Clock, cell};
use sluice_scenarios::Site;

/// Sends a command about org/one as the CLI does, runs the site to the end and returns the effects
/// or the refusal.
fn ask(site: &mut Site, kind: EventKind) -> Result<Vec<String>, String> {
    let project = ProjectName::new("forge.test", "org/one");
    ask_as(site, ForgeEvent { connection: "github".into(), project, sender: "jo".to_owned(), kind })
}

/// Sends any event as the CLI does, runs the site to the end and returns the effects or the
/// refusal.
pub fn ask_as(site: &mut Site, event: ForgeEvent) -> Result<Vec<String>, String> {
    let id = put_in(site, event);
    site.run();
    let records = site.world.records();
    let record = records.iter().find(|record| record.key == delivery::key(&id)).unwrap();
    match decode::<DeliveryRecord>(record).unwrap().state {
        DeliveryState::Handled { effects, .. } => Ok(effects),
        DeliveryState::Failed { why, .. } => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Stores an event and wakes intake; does not run the site.
pub fn put_in(site: &Site, event: ForgeEvent) -> DeliveryId {
    let project = event.project.clone();
    let delivery = DeliveryRecord {
        connection: event.connection.clone(),
        forge_id: format!("operator:{}", site.world.steps()),
        event_name: "enqueue".to_owned(),
        received_at: site.world.now(),
        event: Some(event),
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&delivery.connection, &delivery.forge_id);
    let wakeup = Wakeup::Delivery { delivery: id.clone(), project };
    let due = Some(Due { at: delivery.received_at.plus_seconds(60), wakeup: wakeup.clone() });
    let head = delivery::record(&id, &delivery).unwrap();
    let commit = CellCommit { head, others: Vec::new(), wakeups: vec![wakeup], due };
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

/// Z6.1: triggers do not apply to an operator's enqueue, requirements do.
#[test]
fn an_enqueued_change_is_tested_again_and_enters_the_gate_only_with_its_requirements() {
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

/// Z6.1: a command that names a revision enqueues that revision only.
#[test]
fn a_change_at_another_revision_than_the_named_one_is_not_enqueued() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let head = site.forge.change(&a).unwrap().facts.change.head;
    let refused = ask(&mut site, enqueue("check", 1, Some(Oid::from("5555")))).unwrap_err();
    assert!(refused.contains("is now at"), "{refused}");
    ask(&mut site, enqueue("check", 1, Some(Oid::from(head.short())))).unwrap();
    assert_eq!(site.builds().len(), 2);
    for (pipeline, number, word) in [("nosuch", 1, "no pipeline"), ("check", 99, "does not know")] {
        let refused = ask(&mut site, enqueue(pipeline, number, None)).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
}

/// Z6.5, D02: an operator's enqueue also enqueues the dependents, as an event does.
#[test]
fn an_enqueued_change_goes_through_the_gate_with_its_dependents() {
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
    while site.forge.next_webhook().is_some() {} // The webhooks are lost.
    ask(&mut site, enqueue("gate", 1, None)).unwrap();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2"]);
}

/// S06, R09: a ref is enqueued as a push with its revisions, or at its tip when the item starts.
/// The forge is asked as for a push, and an unknown ref is refused.
#[test]
fn an_enqueued_ref_is_tested_as_a_push_or_at_its_tip() {
    let mut site = site();
    let (tip, zero) = (site.forge.tip(&branch("main")), Oid::zero());
    ask(&mut site, enqueue_ref("check", "refs/heads/main", zero.clone(), tip.clone())).unwrap();
    site.world.advance_millis(1);
    ask(&mut site, enqueue_ref("check", "refs/heads/main", zero.clone(), zero.clone())).unwrap();
    let newrevs: Vec<Option<Oid>> = orders(&site)
        .iter()
        .map(|(order, _)| order.change.key.ref_move().unwrap().newrev.clone())
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
            "requires attributes that only a change has",
        ),
    ] {
        let refused = ask(&mut site, kind).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// C5: a sweep of a connection without a forge ends with a reason.
#[test]
fn a_sweep_of_a_connection_without_a_forge_ends() {
    let mut site = site();
    let project = ProjectName::new("forge.test", "org/one");
    let event = ForgeEvent {
        connection: "ec2".into(),
        project,
        sender: String::new(),
        kind: EventKind::Sweep,
    };
    let why = ask_as(&mut site, event).unwrap_err();
    assert!(why.contains("ec2 does not lead to a forge"), "{why}");
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// C5: an event of a removed connection fails with a reason and is not retried for ever.
#[test]
fn events_of_a_removed_connection_end() {
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

/// C5: a push that another connection to the same host reports is new only to tenants that have the
/// project by that connection.
#[test]
fn a_push_that_another_connection_reports_again_is_not_processed_twice() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", super::CONFIG)]), ("org/one", project)];
    let mut site = Site::with_connections(7, super::MAIN, repositories, super::judge, &["another"]);
    let newrev = site.forge.tip(&branch("main"));
    for (connection, is_new) in
        [("github", true), ("another", false), ("another", false), ("github", false)]
    {
        let (connection, project) = (connection.into(), ProjectName::new("forge.test", "org/one"));
        let git_ref = "refs/heads/main".to_owned();
        let kind = EventKind::Push { git_ref, oldrev: Oid::zero(), newrev: newrev.clone() };
        site.world.advance_millis(1);
        let effects =
            ask_as(&mut site, ForgeEvent { connection, project, sender: String::new(), kind })
                .unwrap();
        assert_eq!(!effects.join("\n").contains("already processed"), is_new, "{effects:?}");
    }
}

/// C5: with several connections to a host only one that a tenant has the project by is swept.
#[test]
fn a_sweep_by_a_connection_without_a_tenant_makes_no_request() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", super::CONFIG)]), ("org/one", project)];
    let mut site = Site::with_connections(7, super::MAIN, repositories, super::judge, &["another"]);
    for (connection, is_asked) in [("another", false), ("github", true)] {
        let (connection, project) = (connection.into(), ProjectName::new("forge.test", "org/one"));
        let event =
            ForgeEvent { connection, project, sender: String::new(), kind: EventKind::Sweep };
        let effects = ask_as(&mut site, event).unwrap().join("\n");
        assert_eq!(!effects.contains("by the connection another"), is_asked, "{effects}");
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// S06: jobs for a deleted branch run on the default branch and get the deleted revision.
#[test]
fn the_jobs_of_an_enqueued_deleted_branch_run_on_the_default_branch() {
    let mut site = site();
    site.forge.push(&branch("stable"), &[("src/b", "x")]);
    site.run();
    let was = site.forge.tip(&branch("stable"));
    site.forge.delete_branch(&branch("stable"));
    site.run();
    assert_eq!(orders(&site).len(), 0);
    ask(&mut site, enqueue_ref("check", "refs/heads/stable", was.clone(), Oid::zero())).unwrap();
    let (order, state) = &orders(&site)[0];
    let moved = order.change.key.ref_move().unwrap();
    assert!(moved.is_deleted() && moved.oldrev == Some(was));
    assert!(state.branches.iter().any(|state| state.branch == branch("main")));
    assert!(!state.branches.iter().any(|state| state.branch == branch("stable")));
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// Pauses or discards the tenant's events, as `sluice tenant set-state` does.
pub(super) fn hold_back(site: &Site, discard: bool, pause: bool, results: bool) {
    let key = sluice_records::tenant::key(&"demo".into());
    let stored = site.world.records().into_iter().find(|record| record.key == key).unwrap();
    let mut tenant: sluice_records::tenant::Tenant = decode(&stored).unwrap();
    let command = sluice_model::hold::EventCommand {
        discard_triggers: discard,
        pause_triggers: pause,
        pause_results: results,
        by: "jo",
        reason: "an upgrade",
        info: "",
    };
    tenant.events = tenant.events.apply(command, site.world.now());
    let record = sluice_records::codec::with_body(stored.clone(), &tenant).unwrap();
    let record = Record { revision: stored.revision + 1, ..record };
    site.world.write_unchecked(Write::Put { record, expect: Expect::Revision(stored.revision) });
}

/// Z6.1: paused events are processed afterwards, discarded ones are not.
#[test]
fn paused_events_are_processed_later_and_discarded_events_never() {
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
    assert_eq!(merged(&site), [1], "the discarded approval does not count");
    ask(&mut site, enqueue("gate", 2, None)).unwrap();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.1: an operator's enqueue of a change or ref is processed while events are paused or
/// discarded.
#[test]
fn operator_enqueues_are_processed_while_events_are_paused_or_discarded() {
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

/// D16, Z6.7: `max-dependencies` applies to operators as well, and the refusal names it.
#[test]
fn an_enqueue_over_max_dependencies_is_refused_with_the_reason() {
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
