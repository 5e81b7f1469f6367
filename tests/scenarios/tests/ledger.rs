//! The ledger: whatever begins ends, and while it does not, somebody sees to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_memory::poll_once;
use sluice_model::build::BuildResult;
use sluice_model::poke::Queue;
use sluice_records::ledger::{self, Kind, Ledger};
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;
use sluice_scenarios::sample;
use std::cell::RefCell;
use std::collections::BTreeSet;

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml}
- project: {check: {jobs: [unit]}}
";

fn site() -> Site {
    sample::small(8, PROJECT, |_, _, _| BuildResult::Success)
}

/// Returns everything that is open at this moment.
fn open(site: &Site) -> Ledger {
    let now = site.world.now();
    poll_once(ledger::read(&site.ports(), now.plus_millis(1), now)).unwrap().unwrap()
}

/// Z6.7, Z7.6, Z1.7
#[test]
fn everything_that_begins_is_listed_seen_to_and_ends() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let seen = RefCell::new(BTreeSet::new());
    site.run_checked(|site| {
        let ledger = open(site);
        assert_eq!(ledger.unaccounted().collect::<Vec<_>>(), Vec::<&ledger::Open>::new());
        seen.borrow_mut().extend(ledger.open.iter().map(|open| open.kind));
    });
    assert_eq!(seen.into_inner().into_iter().collect::<Vec<_>>(), Kind::ALL, "each kind was open for a while");
    assert_eq!(open(&site), Ledger::default());
}

/// Z7.6: what an executor left behind is over when its queue has given it up, and not listed as open for ever.
#[test]
fn a_build_whose_executor_died_is_accounted_for() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run_until(Site::is_building);
    site.die();
    site.run();
    assert_eq!(open(&site), Ledger::default());
    assert_eq!(site.builds(), ["check unit 1"; 2]);
}

/// C5: the last word that led to a queue is lost, and no head says that anybody looks there.
#[test]
fn what_arrived_and_was_lost_on_the_way_is_found_counted_and_mended() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.take_in();
    for message in site.world.take_messages(Queue::Gate, 10, 30) {
        site.world.drop_message(Queue::Gate, &message.receipt);
    }
    site.pass(60);
    assert!(site.builds().is_empty(), "nobody knows of it");
    let arrived = open(&site).open;
    assert_eq!(arrived.iter().map(|open| open.kind).collect::<Vec<_>>(), [Kind::Arrival]);
    // Past its bound it is counted by the same look that has the queue poked.
    site.pass(ledger_bound());
    assert_eq!(site.builds(), ["check unit 1"]);
    assert_eq!(open(&site), Ledger::default());
}

fn ledger_bound() -> u64 {
    sluice_gate::account::BOUND_SECONDS
}
