//! What happens once although each message is delivered and processed twice, at once or when nothing
//! else is left to do (Z6.1, C2).

use super::operator_enqueues::put_in;
use super::{CONFIG, MAIN, PROJECT, approve, judge, propose, timers, unlinked};
use sluice_gate::{InboxMessage, Landing};
use sluice_memory::poll_once;
use sluice_model::build::Order;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{ProjectName, QueueKey};
use sluice_pool::NodeRequest;
use sluice_records::codec::decode;
use sluice_records::{build, change, landing, provider, queue};
use sluice_runtime::record::{Record, TransactionOutcome, Write};
use sluice_scenarios::Site;
use sluice_scenarios::sample::{COMMON, cloud};

/// Runs a test without repetitions, with a repetition right after each message, and with late ones.
fn with_repetitions(test: impl Fn(Site), site: impl Fn() -> Site) {
    for (twice, delays_delivery) in [(false, false), (true, false), (true, true)] {
        let mut site = site();
        (site.twice, site.delays_delivery) = (twice, delays_delivery);
        test(site);
    }
}

/// Returns the number of buildsets of a pipeline.
fn buildsets(site: &Site, pipeline: &str) -> usize {
    let sets = site.ending(&[], &[]).buildsets;
    sets.iter().filter(|set| set.contains(&format!(" {pipeline} "))).count()
}

/// R09: a tick of a timer that is processed twice enqueues one item for each branch.
#[test]
fn a_tick_gives_one_item_for_each_branch() {
    let test = |mut site: Site| {
        site.pass(86_400);
        assert_eq!(buildsets(&site, "nightly"), 2, "one for main, one for stable");
    };
    with_repetitions(test, || timers::site("0 2 * * *", "nightly"));
}

/// R06: an operator's command that is processed twice enqueues one item.
#[test]
fn a_command_gives_one_item() {
    let test = |mut site: Site| {
        propose(&site, 1, &[("a", "x")]);
        site.run();
        assert_eq!(buildsets(&site, "check"), 1);
        let project = ProjectName::new("forge.test", "org/one");
        let kind = EventKind::Enqueue {
            tenant: "demo".into(),
            pipeline: "check".into(),
            number: 1,
            head: None,
        };
        let sender = "jo".to_owned();
        put_in(&site, ForgeEvent { connection: "github".into(), project, sender, kind });
        site.run();
        assert_eq!(buildsets(&site, "check"), 2);
    };
    with_repetitions(test, super::site);
}

/// Z6.1: a report that is sent twice gives one comment.
#[test]
fn a_report_gives_one_comment() {
    let test = |mut site: Site| {
        let change = propose(&site, 1, &[("a", "x")]);
        site.run();
        let shown = site.forge.change(&change).unwrap();
        let of_check = shown
            .comments
            .values()
            .filter(|(text, _)| unlinked(text).contains("unit : SUCCESS"))
            .count();
        assert_eq!((of_check, shown.comments.len()), (1, 1));
    };
    with_repetitions(test, super::site);
}

/// Returns a site with a job that needs two nodes.
fn site_with_nodes() -> Site {
    let jobs = CONFIG.replace(
        "- job: {name: unit, run: playbooks/unit.yaml}",
        "- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: n, label: small}, {name: m, label: small}]}}",
    );
    let config =
        format!("{jobs}{}{}", COMMON.replace("- queue: {name: integrated}\n", ""), cloud(8));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// Z1.1, L4: a node request that is processed twice launches one machine for each node.
#[test]
fn a_node_request_launches_each_machine_once() {
    let test = |mut site: Site| {
        propose(&site, 1, &[("a", "x")]);
        site.run();
        assert_eq!((site.cloud.most(), site.cloud.running()), (2, 0));
        assert_eq!(site.cloud.requested_types().len(), 2, "launches");
    };
    with_repetitions(test, site_with_nodes);
}

/// Returns a record of the site.
fn record(site: &Site, partition: &str, sort: &str) -> Record {
    let mut records = site.world.records().into_iter();
    let found = records.find(|record| {
        record.key.partition.starts_with(partition) && record.key.sort.starts_with(sort)
    });
    found.unwrap_or_else(|| panic!("no record {partition} / {sort}"))
}

/// Asserts that a write is refused by its own condition.
#[track_caller]
fn assert_refused(site: &Site, write: Write) {
    let key = write.key().clone();
    let commit = poll_once(site.ports().records.commit(vec![write], "a late writer"));
    assert_eq!(commit.unwrap().unwrap(), TransactionOutcome::ConditionFailed(vec![key]));
}

/// C2, Z6.4: a writer that acts on an old state replaces no order of a build, no node request, no
/// landing, no message in an inbox and no list of seen events.
#[test]
fn a_late_writer_replaces_no_record_that_is_written_once() {
    let mut site = site_with_nodes();
    site.held = ["unit".to_owned()].into();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run_until(|site| !site.running().is_empty());
    let order: Order = decode(&record(&site, "build#", "order")).unwrap();
    let request: NodeRequest = decode(&record(&site, "provider#", "request#")).unwrap();
    let provider = &order.request.as_ref().expect("the job needs nodes").provider;
    assert_refused(&site, provider::create_request(provider, &request).unwrap());
    assert_refused(&site, build::put_order(&order).unwrap());
    for seen in [None, Some(1_000)] {
        assert_refused(&site, change::put_seen_events(&change, &"nothing", seen).unwrap());
    }
    site.held.clear();
    approve(&mut site, &[&change]);
    let landing: Landing = decode(&record(&site, "landing#", "")).unwrap();
    assert_refused(&site, landing::put(&landing).unwrap());
    propose(&site, 2, &[("b", "x")]);
    site.take_in();
    let message: InboxMessage = decode(&record(&site, "queue#", "inbox#")).unwrap();
    let name = order.queue.queue.as_str().replace("#1", "#2");
    let key = QueueKey { queue: name.as_str().into(), ..order.queue };
    assert_refused(&site, queue::put_message(&key, &message).unwrap());
}
