//! What comes before the configuration that it belongs to is live is kept for that, and nobody else waits.

use super::refs::orders;
use super::{CONFIG, MAIN, PROJECT, comments, judge, merged, propose};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_model::poke::Poke;
use sluice_model::{BranchName, ProjectName};
use sluice_records::codec::{decode, with_body};
use sluice_records::tenant::{self, AwaitedLanding, Tenant};
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock, cell};
use sluice_scenarios::Site;

/// The pipelines with a trigger for a comment.
fn with_recheck() -> String {
    let comment = "github: [{event: pull_request, action: comment, comment: recheck}, {event: pull_request, ";
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
    left.extend(site.world.records().iter().filter(|record| waiting(record)).map(|record| record.key.to_string()));
    left
}

/// Z6.6, S06: a tag is pushed together with the commit that has the project take part in the pipeline of tags, and is handled first.
#[test]
fn a_tag_goes_through_the_pipeline_that_was_pushed_with_it() {
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", super::refs::CONFIG)]), ("org/bare", &[("README", "nothing yet")])];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let bare = main_of("org/bare");
    site.forge.push(&bare, &[(".zuul.yaml", "- project: {tag: {jobs: [publish]}}")]);
    site.forge.tag(&bare, "1.0");
    site.take_in();
    site.run();
    assert_eq!(pipelines(&site), ["tag"]);
    assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
}

/// Z6.6: a comment that comes after the push of its trigger is for that trigger, also of another project.
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
    site.handle(sluice_model::poke::Queue::Gate);
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
    let is_told = |site: &Site| site.world.records().iter().any(|record| record.key.sort.starts_with("arrival#"));
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
    let mut tenants: Vec<String> =
        orders(site).into_iter().map(|(order, _)| format!("{} {}", order.queue.tenant, order.job)).collect();
    tenants.sort();
    tenants
}

/// Z2.3, C2: a stored layout that nobody can open holds up nobody else's events, and its own tenant has them when it is built again.
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
    assert_eq!(comments(&site, &change).matches("Build succeeded").count(), 2, "each tenant reports once");
}

/// Z2.3, C2: a change, a push and a tag are told to a tenant whose record nobody can read as soon as somebody mended it; the other
/// tenant is told of each once.
#[test]
fn what_came_while_a_tenant_could_not_be_read_is_told_when_it_can() {
    let pipelines = format!(
        "{CONFIG}
- pipeline: {{name: post, manager: independent, trigger: {{github: [{{event: push, ref: ^refs/heads/}}]}}}}
- pipeline: {{name: tag, manager: independent, trigger: {{github: [{{event: push, ref: ^refs/tags/}}]}}}}
- project: {{name: org/one, check: {{jobs: [unit]}}, post: {{jobs: [other]}}, tag: {{jobs: [lint]}}}}
"
    );
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &pipelines)]), ("org/one", &[("shared", "0")]), ("org/two", &[])];
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
