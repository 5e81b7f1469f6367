//! What comes before the configuration that it belongs to is live is kept for that, and nobody else
//! waits.

use super::refs::orders;
use super::{CONFIG, MAIN, PROJECT, comments, judge, merged, propose};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::event::Behind;
use sluice_model::git::BranchKey;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{BranchName, ProjectName};
use sluice_records::codec::{decode, with_body};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::tenant::{self, AwaitedLanding, Early, Tenant};
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock, cell};
use sluice_scenarios::Site;

/// The pipelines with a trigger for a comment.
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

/// Writes a tenant's head as nobody would.
fn edit_head(site: &Site, name: &str, edit: impl FnOnce(&mut Tenant)) {
    let (record, mut head) = head(site, name);
    edit(&mut head);
    let record = with_body(record, &head).unwrap();
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
}

fn poke(site: &Site, name: &str) {
    poll_once(cell::send(&site.ports(), &[Poke::Tenant { tenant: name.into() }])).unwrap().unwrap();
}

fn checks(site: &Site) -> usize {
    site.builds().iter().filter(|build| build.starts_with("check ")).count()
}

/// Returns the pipelines that tested something, in the order of their orders.
fn pipelines(site: &Site) -> Vec<String> {
    orders(site).into_iter().map(|(order, _)| order.queue.pipeline.to_string()).collect()
}

fn left_over(site: &Site, change: &ChangeKey) -> Vec<String> {
    let mut left = site.ending(&[], &[change]).left_over;
    let waiting = |record: &Record| record.key.sort.starts_with(tenant::WAITING);
    left.extend(
        site.world
            .records()
            .iter()
            .filter(|record| waiting(record))
            .map(|record| record.key.to_string()),
    );
    left
}

/// Z6.6, S06: a tag is pushed together with the commit that has the project take part in the
/// pipeline of tags, and is handled first.
#[test]
fn a_tag_goes_through_the_pipeline_that_was_pushed_with_it() {
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", super::refs::CONFIG)]),
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

/// Z6.6: a comment that comes after the push of its trigger is for that trigger, also of another
/// project.
#[test]
fn a_comment_counts_for_a_trigger_that_was_pushed_before_it() {
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

/// Z6.2, Z6.6: the same of a template that another untrusted project has, and by which the change's
/// own takes part in the pipeline. What that project's push does not concern does not wait for it.
#[test]
fn a_comment_counts_for_a_pipeline_of_a_template_that_was_pushed_before_it() {
    let spoken =
        &SPOKEN[..SPOKEN.find("- project:").expect("the project stands behind the pipelines")];
    let central = format!("{CONFIG}{spoken}");
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
            arrived(&site),
            ["first"],
            "the one waits for what was pushed, the other one does not"
        );
        site.run();
        assert_eq!(pipelines(&site), ["second"]);
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// Z6.6, C01: the same of a trigger that lands through the gate, from the intent to land on.
#[test]
fn a_comment_counts_for_a_trigger_that_is_about_to_be_live() {
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

/// Z6.7: who stands in a queue hears at once, whatever configuration is on its way.
#[test]
fn a_change_that_is_closed_leaves_although_configuration_is_on_its_way() {
    let mut site = site_of(MAIN);
    site.held.insert("unit".to_owned());
    let change = propose(&site, 1, &[("a", "x")]);
    site.run_until(|site| site.running() == ["unit"]);
    site.forge.push(&main_of("org/config"), &[("zuul.yaml", &with_recheck())]);
    site.take_in();
    site.forge.close(&change);
    site.take_in();
    site.handle(Queue::Gate);
    assert_eq!(site.ending(&[], &[&change]).buildsets, ["org/one#1 check DEQUEUED"]);
    site.held.clear();
    site.run();
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Z6.7: an event is not held up for longer than a few minutes; then whatever is live counts.
#[test]
fn an_event_waits_for_a_layout_for_eight_minutes_and_no_longer() {
    let mut site = site_of(MAIN);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    let began = site.world.now();
    edit_head(&site, "demo", |head| {
        head.layout.wanted += 1;
        head.landings.push(AwaitedLanding {
            item: "nobody-s".into(),
            generation: 1,
            project: ProjectName::new("forge.test", "org/one"),
            ordered_at: began,
            first: None,
            given_up: None,
        });
    });
    site.forge.revise(&change, "b", "y");
    let is_told = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("arrival#"))
    };
    site.run_until(is_told);
    let waited_seconds = site.world.now().since(began) / 1_000;
    assert!((480..600).contains(&waited_seconds), "{waited_seconds}");
    let layout = head(&site, "demo").1.layout;
    assert!(layout.wanted > layout.live, "nothing else ended the waiting");
    // Whatever comes from now on waits for that no more.
    site.forge.revise(&change, "c", "z");
    site.take_in();
    let kept = |record: &&Record| record.body.contains("\"forge_id\":\"later:");
    assert_eq!(site.world.records().iter().filter(kept).count(), 1);
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

/// A site of these pipelines, with a change that was checked.
fn spoken() -> (Site, ChangeKey) {
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

/// Returns the pipelines that something arrived at since this was asked last, in order.
fn arrived(site: &Site) -> Vec<String> {
    let written = site.world.take_journal().into_iter().filter_map(|written| written.after);
    let arrivals = written.filter(|record| record.key.sort.starts_with("arrival#"));
    arrivals
        .filter_map(|record| record.key.partition.split('/').nth(1).map(str::to_owned))
        .collect()
}

/// Z6.6, C5: what was kept is told first, although what comes later of its project need not wait
/// for any configuration.
#[test]
fn what_comes_after_something_that_waits_is_told_after_it() {
    for twice in [false, true] {
        let (mut site, change) = spoken();
        site.twice = twice;
        let (main, began) = (main_of("org/one"), site.world.now());
        edit_head(&site, "demo", |head| head.layout.wanted += 1);
        site.forge.comment(&change, "first");
        site.forge.tag(&main, "1.0");
        site.take_in();
        site.world.advance_millis(20_000);
        edit_head(&site, "demo", |head| head.layout.live = head.layout.wanted);
        // Nothing of that is awaited any more.
        site.forge.comment(&change, "second");
        site.forge.tag(&main, "2.0");
        site.take_in();
        assert_eq!(arrived(&site), Vec::<String>::new());
        site.run_until(|site| pipelines(site).len() == 3);
        assert!(
            site.world.now().since(began) < 300_000,
            "each is told soon after the one before it"
        );
        site.run();
        let arrived = arrived(&site);
        assert_eq!(arrived, ["first", "old", "second", "new"]);
        // The tenant strikes off whom it poked at its next look; the one it had was made up here.
        poke(&site, "demo");
        site.run();
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
        let kept = |record: &Record| record.key.sort.starts_with("kept#");
        assert!(!site.world.records().iter().any(kept), "nothing waits behind what was told");
        // And what comes next waits for nothing.
        site.forge.comment(&change, "second");
        site.take_in();
        assert_eq!(self::arrived(&site), ["second"]);
        site.run();
    }
}

/// Z6.6: the tenant pokes what waited when a later event stands in front of that poke already;
/// nobody waits for the next sweep.
#[test]
fn what_was_heard_before_the_layout_was_live_follows_what_was_kept_for_it() {
    let (mut site, change) = spoken();
    let began = site.world.now();
    site.forge
        .push(&main_of("org/config"), &[("zuul.yaml", &format!("{}{SPOKEN}", with_recheck()))]);
    site.take_in();
    site.forge.comment(&change, "first");
    site.take_in();
    site.forge.comment(&change, "second");
    site.hear();
    site.handle(Queue::Tenants);
    site.run_until(|site| checks(site) == 1 && pipelines(site).len() == 3);
    let arrived = arrived(&site);
    assert_eq!(arrived, ["first", "second"]);
    assert!(site.world.now().since(began) < 60_000);
    site.run();
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Returns what waits for the tenant, the oldest first.
fn waiting(site: &Site) -> Vec<Early> {
    let records = site.world.records();
    records
        .iter()
        .filter(|record| record.key.sort.starts_with(tenant::WAITING))
        .map(|r| decode(r).unwrap())
        .collect()
}

/// Z6.6, Z6.7: what waits behind something that was kept is poked when that is told: a chain of
/// them needs neither the tenant nor the timer.
#[test]
fn what_waits_behind_something_that_was_kept_is_told_right_after_it() {
    for twice in [false, true] {
        let (mut site, change) = spoken();
        site.twice = twice;
        edit_head(&site, "demo", |head| head.layout.wanted += 1);
        site.forge.comment(&change, "first");
        site.take_in();
        edit_head(&site, "demo", |head| head.layout.live = head.layout.wanted);
        site.forge.tag(&main_of("org/one"), "1.0");
        site.take_in();
        site.forge.comment(&change, "second");
        site.take_in();
        assert_eq!(arrived(&site), Vec::<String>::new());
        // As the tenant pokes the first, when the others were looked at already.
        let Early { waiting: first, project } =
            waiting(&site).into_iter().next().expect("it waits");
        poll_once(cell::send(
            &site.ports(),
            &[Poke::Delivery { delivery: first.delivery, project }],
        ))
        .unwrap()
        .unwrap();
        let began = site.world.now();
        site.handle(Queue::Events);
        assert_eq!(
            (arrived(&site), site.world.now()),
            (["first", "old", "second"].map(str::to_owned).to_vec(), began)
        );
        assert_eq!(waiting(&site), []);
        site.run();
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// Z6.7: what never ends holds up what comes after it for eight minutes, and no longer.
#[test]
fn an_event_waits_behind_another_one_for_eight_minutes_and_no_longer() {
    let (mut site, change) = spoken();
    let began = site.world.now();
    let stuck = Delivery {
        connection: "github".into(),
        forge_id: "stuck".to_owned(),
        event_name: "later".to_owned(),
        received_at: began,
        event: None,
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&stuck.connection, &stuck.forge_id);
    let record = Record { revision: 1, ..delivery::record(&id, &stuck).unwrap() };
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    let behind = Behind { delivery: id, since: began };
    site.world.write_directly(tenant::put_kept(&"demo".into(), &change.project, &behind).unwrap());
    site.forge.comment(&change, "first");
    let told = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("arrival#"))
    };
    site.run_until(told);
    let waited_seconds = site.world.now().since(began) / 1_000;
    assert!((480..600).contains(&waited_seconds), "{waited_seconds}");
    site.forge.comment(&change, "second");
    site.take_in();
    assert_eq!(arrived(&site), ["first", "second"], "nothing waits behind what was told late");
}

/// Z6.6, C5: what was late in its turn is told before what came after it, though both have waited
/// for long enough.
#[test]
fn what_has_waited_for_eight_minutes_is_told_in_order() {
    let (mut site, change) = spoken();
    edit_head(&site, "demo", |head| head.layout.wanted += 1);
    for (n, text) in ["first", "second"].into_iter().enumerate() {
        site.forge.comment(&change, text);
        site.take_in();
        site.forge.tag(&main_of("org/one"), &format!("{}.0", n + 1));
        site.take_in();
    }
    // Nobody looks at any of them until all have waited for long enough; then the last is looked at
    // first.
    site.world.advance_millis(500_000);
    let mut waiting = waiting(&site);
    assert_eq!(waiting.len(), 4);
    waiting.reverse();
    for Early { waiting, project } in waiting {
        poll_once(cell::send(
            &site.ports(),
            &[Poke::Delivery { delivery: waiting.delivery, project }],
        ))
        .unwrap()
        .unwrap();
        site.handle(Queue::Events);
    }
    assert_eq!(arrived(&site), ["first", "old", "second", "new"]);
    site.run();
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

const TWO: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two]}}}
";

/// A site of two tenants that share a project.
fn site_of_two() -> Site {
    let mut site = site_of(TWO);
    poke(&site, "other");
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

/// Z2.3, C2: a stored layout that nobody can open holds up nobody else's events, and its own tenant
/// has them when it is built again.
#[test]
fn a_layout_that_cannot_be_opened_stops_no_other_tenant_and_loses_nothing() {
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

/// Z2.3, C2: a change, a push and a tag are told to a tenant whose record nobody can read as soon
/// as somebody mended it; the other tenant is told of each once.
#[test]
fn what_came_while_a_tenant_could_not_be_read_is_told_when_it_can() {
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
    poke(&site, "other");
    site.run();
    let (whole, _) = head(&site, "other");
    let damaged = Record { body: "{\"of\": \"nobody\"}".to_owned(), ..whole.clone() };
    site.world.write_directly(Write::Put { record: damaged, expect: Expect::Anything });
    let change = propose(&site, 1, &[("a", "x")]);
    site.run_now();
    site.forge.push(&main_of("org/one"), &[("b", "x")]);
    site.run_now();
    site.forge.tag(&main_of("org/one"), "1.0");
    site.run_now();
    let demo = ["demo lint", "demo other", "demo unit"];
    assert_eq!(tenants_of(&site), demo);
    // The sweep finds nothing that the one tenant was not told.
    for _ in 0..2 {
        site.world.advance_millis(600_000);
        site.run_now();
    }
    assert_eq!(tenants_of(&site), demo);
    site.world.write_directly(Write::Put { record: whole, expect: Expect::Anything });
    poke(&site, "other");
    site.run();
    let both = ["demo lint", "demo other", "demo unit", "other lint", "other other", "other unit"];
    assert_eq!(tenants_of(&site), both);
    site.sweep();
    assert_eq!(tenants_of(&site), both);
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}

/// Z6.6, C2, C5: what came while nobody could read the tenant is told in the order in which it
/// came.
#[test]
fn what_came_while_a_tenant_could_not_be_read_is_told_in_order() {
    for twice in [false, true] {
        let (mut site, change) = spoken();
        site.twice = twice;
        let (whole, _) = head(&site, "demo");
        let damaged = Record { body: "{\"of\": \"nobody\"}".to_owned(), ..whole.clone() };
        site.world.write_directly(Write::Put { record: damaged, expect: Expect::Anything });
        for (n, text) in ["first", "second"].into_iter().enumerate() {
            site.forge.comment(&change, text);
            site.take_in();
            site.forge.tag(&main_of("org/one"), &format!("{}.0", n + 1));
            site.take_in();
        }
        assert_eq!(arrived(&site), Vec::<String>::new());
        site.world.write_directly(Write::Put { record: whole, expect: Expect::Anything });
        poke(&site, "demo");
        site.run();
        assert_eq!(arrived(&site), ["first", "old", "second", "new"]);
        assert_eq!(left_over(&site, &change), Vec::<String>::new());
    }
}

/// C5: a forge that does not show a change for a moment loses none of what was kept about it.
#[test]
fn what_was_kept_outlives_a_moment_in_which_the_forge_does_not_show_its_change() {
    let (mut site, change) = spoken();
    edit_head(&site, "demo", |head| head.layout.wanted += 1);
    site.forge.comment(&change, "first");
    site.take_in();
    edit_head(&site, "demo", |head| head.layout.live = head.layout.wanted);
    site.forge.set_blind(true);
    poke(&site, "demo");
    site.run_now();
    assert_eq!(arrived(&site), Vec::<String>::new());
    site.forge.set_blind(false);
    site.run();
    assert_eq!(arrived(&site), ["first"]);
    assert_eq!(left_over(&site, &change), Vec::<String>::new());
}
