//! Deferred events: an event that arrives before its configuration is live waits for that
//! configuration, and blocks no other event.

use super::ref_updates::orders;
use super::{CONFIG, MAIN, PROJECT, comments, judge, merged, propose};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::event::DeferredPredecessor;
use sluice_model::git::BranchKey;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{BranchName, ProjectName};
use sluice_records::codec::{decode, with_body};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::tenant::{self, DeferredWakeup, PendingConfigLanding, Tenant};
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock, cell};
use sluice_scenarios::Site;
use sluice_scenarios::forge::Visibility;

/// Returns the pipelines with a trigger for a comment.
fn with_recheck() -> String {
    let comment =
        "github: [{event: pull_request, action: comment, comment: recheck}, {event: pull_request, ";
    CONFIG.replacen("github: [{event: pull_request, ", comment, 1)
}

/// Whose central project goes through the gate itself.
const CENTRAL: &str = "
- project: {name: org/config, gate: {jobs: [noop]}}
";

fn site_of(main: &str) -> Site {
    let central = format!("{CONFIG}{CENTRAL}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &central)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ("org/bare", &[("README", "nothing yet")]),
    ];
    Site::new(7, main, repositories, judge)
}

fn main_of(project: &str) -> BranchKey {
    BranchKey { project: ProjectName::new("forge.test", project), branch: BranchName::from("main") }
}

fn head(site: &Site, name: &str) -> (Record, Tenant) {
    let record = site.world.record(&tenant::key(&name.into())).expect("the tenant was read");
    let head = decode(&record).unwrap();
    (record, head)
}

/// Overwrites a tenant's head.
fn edit_head(site: &Site, name: &str, edit: impl FnOnce(&mut Tenant)) {
    let (record, mut head) = head(site, name);
    edit(&mut head);
    let record = with_body(record, &head).unwrap();
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
}

fn wake_tenant(site: &Site, name: &str) {
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: name.into() }]))
        .unwrap()
        .unwrap();
}

fn checks(site: &Site) -> usize {
    site.builds().iter().filter(|build| build.starts_with("check ")).count()
}

/// Returns the pipelines of the builds that executors were asked to run, in the order of the
/// requests.
fn pipelines(site: &Site) -> Vec<String> {
    orders(site)
        .into_iter()
        .filter(|(order, _)| order.end.is_none())
        .map(|(order, _)| order.queue.pipeline.to_string())
        .collect()
}

fn left_over(site: &Site, change: &ChangeKey) -> Vec<String> {
    let mut left = site.ending(&[], &[change]).left_over;
    let is_deferred = |record: &Record| record.key.sort.starts_with(tenant::DEFERRED);
    left.extend(
        site.world
            .records()
            .iter()
            .filter(|record| is_deferred(record))
            .map(|record| record.key.to_string()),
    );
    left
}

/// Z6.6, S06: a tag is pushed together with the commit that adds the project to the tag pipeline.
/// The tag's event is handled first.
#[test]
fn a_tag_triggers_a_pipeline_that_was_pushed_with_it() {
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", super::ref_updates::CONFIG)]),
        ("org/bare", &[("README", "nothing yet")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let bare = main_of("org/bare");
    site.forge.push(&bare, &[(".zuul.yaml", "- project: {tag: {jobs: [publish]}}")]);
    site.forge.tag(&bare, "1.0");
    site.take_in();
    site.run();
    assert_eq!(pipelines(&site), ["tag"]);
    assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
}

/// Z6.6: a comment after the push of its trigger matches that trigger, even of another project.
#[test]
fn a_comment_matches_a_trigger_that_was_pushed_before_it() {
    for twice in [false, true] {
        let mut site = site_of(MAIN);
        let change = propose(&site, 1, &[("a", "x")]);
        site.run();
        assert_eq!(checks(&site), 1);
        site.twice = twice;
        site.forge.push(&main_of("org/config"), &[("zuul.yaml", &with_recheck())]);
        site.take_in();
        site.forge.comment(&change, "recheck");
        site.take_in();
        assert_eq!(checks(&site), 1, "it waits for what was pushed");
        site.run();
        assert_eq!(checks(&site), 2);
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// Z6.2, Z6.6: the same for a template of another untrusted project that adds the change's project
/// to the pipeline. Events that the push does not affect do not wait for it.
#[test]
fn a_comment_matches_a_pipeline_from_a_template_that_was_pushed_before_it() {
    let site_with_comment_triggers =
        &SPOKEN[..SPOKEN.find("- project:").expect("the project stands behind the pipelines")];
    let central = format!("{CONFIG}{site_with_comment_triggers}");
    let template = |jobs: &str| format!("- project-template: {{name: shared, {jobs}}}\n");
    let (before, after) = (template("first: {jobs: [unit]}"), template("second: {jobs: [other]}"));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &central)]),
        ("org/one", &[(".zuul.yaml", "- project: {templates: [shared]}\n")]),
        ("org/two", &[(".zuul.yaml", &before)]),
        ("org/noop", &[(".zuul.yaml", "- project: {first: {jobs: [noop]}}\n")]),
    ];
    for twice in [false, true] {
        let mut site = Site::new(7, MAIN, repositories, judge);
        let change = propose(&site, 1, &[("a", "x")]);
        let other = site.forge.propose("org/noop", 2, "a change", "", &[("a", "x")]);
        site.run();
        site.world.take_journal();
        site.twice = twice;
        site.forge.push(&main_of("org/two"), &[(".zuul.yaml", &after)]);
        site.take_in();
        site.forge.comment(&change, "second");
        site.forge.comment(&other, "first");
        site.take_in();
        assert_eq!(
            take_arrived(&site),
            ["first"],
            "the one waits for what was pushed, the other one does not"
        );
        site.run();
        assert_eq!(pipelines(&site), ["second"]);
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// Z6.6, C01: the same for a trigger that lands through the gate, from the intent to land on.
#[test]
fn a_comment_matches_a_trigger_that_is_landing() {
    let mut site = site_of(MAIN);
    let change = propose(&site, 1, &[("a", "x")]);
    let central = format!("{}{CENTRAL}", with_recheck());
    let trigger = site.forge.propose("org/config", 2, "a trigger", "", &[("zuul.yaml", &central)]);
    site.run();
    site.forge.approve(&trigger);
    let is_settling = |site: &Site| {
        let layout = head(site, "demo").1.layout;
        layout.wanted > layout.live
    };
    site.run_until(is_settling);
    site.forge.comment(&change, "recheck");
    site.take_in();
    assert!(is_settling(&site) && checks(&site) == 1);
    site.run();
    assert_eq!((merged(&site), checks(&site)), (vec![2], 2));
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Z6.7: the queues of a change get its events at once, whatever configuration is pending.
#[test]
fn a_closed_change_is_dequeued_during_a_reconfiguration() {
    let mut site = site_of(MAIN);
    site.held.insert("unit".to_owned());
    let change = propose(&site, 1, &[("a", "x")]);
    site.run_until(|site| site.running() == ["unit"]);
    site.forge.push(&main_of("org/config"), &[("zuul.yaml", &with_recheck())]);
    site.take_in();
    site.forge.close(&change);
    site.take_in();
    site.handle(MessageQueue::Gate);
    assert_eq!(site.ending(&[], &[&change]).buildsets, ["org/one#1 check DEQUEUED"]);
    site.held.clear();
    site.run();
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Z6.7: an event is deferred for a few minutes at most; then the live layout applies.
#[test]
fn an_event_waits_at_most_eight_minutes_for_a_layout() {
    let mut site = site_of(MAIN);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    let began = site.world.now();
    edit_head(&site, "demo", |head| {
        head.layout.wanted += 1;
        head.landings.push(PendingConfigLanding {
            item: "unknown-item".into(),
            generation: 1,
            project: ProjectName::new("forge.test", "org/one"),
            ordered_at: began,
            first: None,
            given_up: None,
        });
    });
    site.forge.revise(&change, "b", "y");
    let is_handled = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("inbox#"))
    };
    site.run_until(is_handled);
    let waited_seconds = site.world.now().since(began) / 1_000;
    assert!((480..600).contains(&waited_seconds), "{waited_seconds}");
    let layout = head(&site, "demo").1.layout;
    assert!(layout.wanted > layout.live, "nothing else ended the waiting");
    // Later events no longer wait for that.
    site.forge.revise(&change, "c", "z");
    site.take_in();
    let is_deferred = |record: &&Record| record.body.contains("\"forge_id\":\"later:");
    assert_eq!(site.world.records().iter().filter(is_deferred).count(), 1);
    site.run();
    assert!(checks(&site) > 1);
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// A pipeline for each of two comments, and one for tags.
const SPOKEN: &str = "
- pipeline: {name: first, manager: independent, trigger: {github: [{event: pull_request, action: comment, comment: ^first$}]}}
- pipeline: {name: second, manager: independent, trigger: {github: [{event: pull_request, action: comment, comment: ^second$}]}}
- pipeline: {name: old, manager: independent, trigger: {github: [{event: push, ref: ^refs/tags/1}]}}
- pipeline: {name: new, manager: independent, trigger: {github: [{event: push, ref: ^refs/tags/2}]}}
- project: {name: org/one, first: {jobs: [unit]}, second: {jobs: [other]}, old: {jobs: [noop]}, new: {jobs: [noop]}}
";

/// Returns a site with these pipelines and a checked change.
fn site_with_comment_triggers() -> (Site, ChangeKey) {
    let central = format!("{CONFIG}{SPOKEN}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &central)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.world.take_journal();
    (site, change)
}

/// Returns the pipelines that an event reached since the last call, in order.
fn take_arrived(site: &Site) -> Vec<String> {
    let written = site.world.take_journal().into_iter().filter_map(|written| written.after);
    let arrivals = written.filter(|record| record.key.sort.starts_with("inbox#"));
    arrivals
        .filter_map(|record| record.key.partition.split('/').nth(1).map(str::to_owned))
        .collect()
}

/// Z6.6, C5: a deferred event is handled first, even if later events of its project need no
/// configuration.
#[test]
fn later_events_are_handled_after_a_deferred_one() {
    for twice in [false, true] {
        let (mut site, change) = site_with_comment_triggers();
        site.twice = twice;
        let (main, began) = (main_of("org/one"), site.world.now());
        edit_head(&site, "demo", |head| head.layout.wanted += 1);
        site.forge.comment(&change, "first");
        site.forge.tag(&main, "1.0");
        site.take_in();
        site.world.advance_millis(20_000);
        edit_head(&site, "demo", |head| head.layout.live = head.layout.wanted);
        // No configuration is pending any more.
        site.forge.comment(&change, "second");
        site.forge.tag(&main, "2.0");
        site.take_in();
        assert_eq!(take_arrived(&site), Vec::<String>::new());
        site.run_until(|site| pipelines(site).len() == 3);
        assert!(
            site.world.now().since(began) < 300_000,
            "each event follows soon after its predecessor"
        );
        site.run();
        let arrived = take_arrived(&site);
        assert_eq!(arrived, ["first", "old", "second", "new"]);
        // The tenant removes a sent wakeup when it reconciles next; this one was written by the
        // test.
        wake_tenant(&site, "demo");
        site.run();
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
        let is_deferred = |record: &Record| record.key.sort.starts_with("last-deferred#");
        assert!(
            !site.world.records().iter().any(is_deferred),
            "nothing waits behind handled events"
        );
        // The next event does not wait.
        site.forge.comment(&change, "second");
        site.take_in();
        assert_eq!(take_arrived(&site), ["second"]);
        site.run();
    }
}

/// Z6.6: the tenant wakes a deferred event whose successor is already ahead of that wakeup in the
/// message queue. Neither waits for the next sweep.
#[test]
fn an_event_received_before_the_layout_was_live_follows_the_deferred_one() {
    let (mut site, change) = site_with_comment_triggers();
    let began = site.world.now();
    site.forge
        .push(&main_of("org/config"), &[("zuul.yaml", &format!("{}{SPOKEN}", with_recheck()))]);
    site.take_in();
    site.forge.comment(&change, "first");
    site.take_in();
    site.forge.comment(&change, "second");
    site.receive_webhooks();
    site.handle(MessageQueue::Tenants);
    site.run_until(|site| checks(site) == 1 && pipelines(site).len() == 3);
    let arrived = take_arrived(&site);
    assert_eq!(arrived, ["first", "second"]);
    assert!(site.world.now().since(began) < 60_000);
    site.run();
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Returns the deferred wakeups of the tenant, oldest first.
fn deferred_wakeups(site: &Site) -> Vec<DeferredWakeup> {
    let records = site.world.records();
    records
        .iter()
        .filter(|record| record.key.sort.starts_with(tenant::DEFERRED))
        .map(|r| decode(r).unwrap())
        .collect()
}

/// Z6.6, Z6.7: handling a deferred event wakes the one behind it. A chain of them needs neither the
/// tenant nor the timer.
#[test]
fn an_event_behind_a_deferred_one_follows_at_once() {
    for twice in [false, true] {
        let (mut site, change) = site_with_comment_triggers();
        site.twice = twice;
        edit_head(&site, "demo", |head| head.layout.wanted += 1);
        site.forge.comment(&change, "first");
        site.take_in();
        edit_head(&site, "demo", |head| head.layout.live = head.layout.wanted);
        site.forge.tag(&main_of("org/one"), "1.0");
        site.take_in();
        site.forge.comment(&change, "second");
        site.take_in();
        assert_eq!(take_arrived(&site), Vec::<String>::new());
        // The tenant wakes the first when the others have already been received.
        let DeferredWakeup { waiting: first, project } =
            deferred_wakeups(&site).into_iter().next().expect("it waits");
        poll_once(cell::send(
            &site.ports(),
            &[Wakeup::Delivery { delivery: first.delivery, project }],
        ))
        .unwrap()
        .unwrap();
        let began = site.world.now();
        site.handle(MessageQueue::Events);
        assert_eq!(
            (take_arrived(&site), site.world.now()),
            (["first", "old", "second"].map(str::to_owned).to_vec(), began)
        );
        assert_eq!(deferred_wakeups(&site), []);
        site.run();
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// Z6.7: an event that never ends delays the events behind it by eight minutes at most.
#[test]
fn an_event_waits_at_most_eight_minutes_behind_another() {
    let (mut site, change) = site_with_comment_triggers();
    let began = site.world.now();
    let stuck = DeliveryRecord {
        connection: "github".into(),
        forge_id: "stuck".to_owned(),
        event_name: "later".to_owned(),
        received_at: began,
        event: None,
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&stuck.connection, &stuck.forge_id);
    let record = Record { revision: 1, ..delivery::record(&id, &stuck).unwrap() };
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    let behind = DeferredPredecessor { delivery: id, since: began };
    site.world.write_unchecked(
        tenant::put_last_deferred(&"demo".into(), &change.project, &behind).unwrap(),
    );
    site.forge.comment(&change, "first");
    let is_handled = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("inbox#"))
    };
    site.run_until(is_handled);
    let waited_seconds = site.world.now().since(began) / 1_000;
    assert!((480..600).contains(&waited_seconds), "{waited_seconds}");
    site.forge.comment(&change, "second");
    site.take_in();
    assert_eq!(take_arrived(&site), ["first", "second"], "nothing waits behind handled events");
}

/// Z6.6, C5: a late event is handled before its successors, even if all of them have waited long
/// enough.
#[test]
fn overdue_events_are_handled_in_order() {
    let (mut site, change) = site_with_comment_triggers();
    edit_head(&site, "demo", |head| head.layout.wanted += 1);
    for (n, text) in ["first", "second"].into_iter().enumerate() {
        site.forge.comment(&change, text);
        site.take_in();
        site.forge.tag(&main_of("org/one"), &format!("{}.0", n + 1));
        site.take_in();
    }
    // None of them is received until all have waited long enough; then the last one is received
    // first.
    site.world.advance_millis(500_000);
    let mut waiting = deferred_wakeups(&site);
    assert_eq!(waiting.len(), 4);
    waiting.reverse();
    for DeferredWakeup { waiting: wakeup, project } in waiting {
        poll_once(cell::send(
            &site.ports(),
            &[Wakeup::Delivery { delivery: wakeup.delivery, project }],
        ))
        .unwrap()
        .unwrap();
        site.handle(MessageQueue::Events);
    }
    assert_eq!(take_arrived(&site), ["first", "old", "second", "new"]);
    site.run();
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

const TWO: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two]}}}
";

/// Returns a site with two tenants that share a project.
fn site_of_two() -> Site {
    let mut site = site_of(TWO);
    wake_tenant(&site, "other");
    site.run();
    site
}

fn tenants_of(site: &Site) -> Vec<String> {
    let mut tenants: Vec<String> = orders(site)
        .into_iter()
        .map(|(order, _)| format!("{} {}", order.queue.tenant, order.job))
        .collect();
    tenants.sort();
    tenants
}

/// Z2.3, C2: an unreadable layout does not delay the events of other tenants. Its own tenant gets
/// them once the layout is built again.
#[test]
fn an_unreadable_layout_affects_only_its_tenant_and_loses_no_event() {
    let mut site = site_of_two();
    edit_head(&site, "other", |head| head.layout_object = Some("layouts/nothing".to_owned()));
    let change = propose(&site, 1, &[("a", "x")]);
    site.take_in();
    site.run_until(|site| !site.builds().is_empty());
    site.run();
    assert_eq!(tenants_of(&site), ["demo unit", "other unit"]);
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
    assert_eq!(
        comments(&site, &change).matches("Build succeeded").count(),
        2,
        "each tenant reports once"
    );
}

/// Z2.3, C2: a change, a push and a tag reach a tenant with an unreadable record as soon as that is
/// repaired. The other tenant gets each of them once.
#[test]
fn events_for_an_unreadable_tenant_are_handled_after_its_repair() {
    let pipelines = format!(
        "{CONFIG}
- pipeline: {{name: post, manager: independent, trigger: {{github: [{{event: push, ref: ^refs/heads/}}]}}}}
- pipeline: {{name: tag, manager: independent, trigger: {{github: [{{event: push, ref: ^refs/tags/}}]}}}}
- project: {{name: org/one, check: {{jobs: [unit]}}, post: {{jobs: [other]}}, tag: {{jobs: [lint]}}}}
"
    );
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &pipelines)]),
        ("org/one", &[("shared", "0")]),
        ("org/two", &[]),
    ];
    let mut site = Site::new(7, TWO, repositories, judge);
    wake_tenant(&site, "other");
    site.run();
    let (whole, _) = head(&site, "other");
    let damaged = Record { body: "{\"of\": \"nothing\"}".to_owned(), ..whole.clone() };
    site.world.write_unchecked(Write::Put { record: damaged, expect: Expect::Anything });
    let change = propose(&site, 1, &[("a", "x")]);
    site.run_now();
    site.forge.push(&main_of("org/one"), &[("b", "x")]);
    site.run_now();
    site.forge.tag(&main_of("org/one"), "1.0");
    site.run_now();
    let demo = ["demo lint", "demo other", "demo unit"];
    assert_eq!(tenants_of(&site), demo);
    // The sweep finds no missed event for the other tenant.
    for _ in 0..2 {
        site.world.advance_millis(600_000);
        site.run_now();
    }
    assert_eq!(tenants_of(&site), demo);
    site.world.write_unchecked(Write::Put { record: whole, expect: Expect::Anything });
    wake_tenant(&site, "other");
    site.run();
    let both = ["demo lint", "demo other", "demo unit", "other lint", "other other", "other unit"];
    assert_eq!(tenants_of(&site), both);
    site.sweep();
    assert_eq!(tenants_of(&site), both);
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Z6.6, C2, C5: events that arrived while the tenant was unreadable are handled in their order.
#[test]
fn events_for_an_unreadable_tenant_are_handled_in_order() {
    for twice in [false, true] {
        let (mut site, change) = site_with_comment_triggers();
        site.twice = twice;
        let (whole, _) = head(&site, "demo");
        let damaged = Record { body: "{\"of\": \"nothing\"}".to_owned(), ..whole.clone() };
        site.world.write_unchecked(Write::Put { record: damaged, expect: Expect::Anything });
        for (n, text) in ["first", "second"].into_iter().enumerate() {
            site.forge.comment(&change, text);
            site.take_in();
            site.forge.tag(&main_of("org/one"), &format!("{}.0", n + 1));
            site.take_in();
        }
        assert_eq!(take_arrived(&site), Vec::<String>::new());
        site.world.write_unchecked(Write::Put { record: whole, expect: Expect::Anything });
        wake_tenant(&site, "demo");
        site.run();
        assert_eq!(take_arrived(&site), ["first", "old", "second", "new"]);
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// C5: a forge that does not show a change for a moment loses none of its deferred events.
#[test]
fn a_deferred_event_survives_a_moment_without_its_change() {
    let (mut site, change) = site_with_comment_triggers();
    edit_head(&site, "demo", |head| head.layout.wanted += 1);
    site.forge.comment(&change, "first");
    site.take_in();
    edit_head(&site, "demo", |head| head.layout.live = head.layout.wanted);
    site.forge.set_change_visibility(Visibility::Hidden);
    wake_tenant(&site, "demo");
    site.run_now();
    assert_eq!(take_arrived(&site), Vec::<String>::new());
    site.forge.set_change_visibility(Visibility::Shown);
    site.run();
    assert_eq!(take_arrived(&site), ["first"]);
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}
