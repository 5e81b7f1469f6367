//! What is told of a change, and in which order.

use super::{approve, propose, site};
use sluice_gate::{Report, ReportState};
use sluice_records::{codec::decode, report};

/// J14: a report that could not be made for long is not made when it is no longer true.
#[test]
fn the_word_that_work_begins_is_not_told_after_the_word_that_it_ended() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    let state = |site: &sluice_scenarios::Site| {
        let statuses = site.forge.change(&a).unwrap().facts.statuses;
        statuses.iter().find(|status| status.context == "demo/gate").unwrap().state.clone()
    };
    assert_eq!(state(&site), "success");
    let reports = site.world.records().into_iter().filter(|record| record.key.partition.starts_with("report#"));
    let mut start: Report =
        reports.map(|record| decode::<Report>(&record).unwrap()).find(Report::is_start).expect("it was told");
    start.state = ReportState::Wanted;
    site.world.write_directly(report::put(&start).unwrap());
    site.run();
    assert_eq!(state(&site), "success");
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// Z6.3: a forge that asks for a pause gets it.
#[test]
fn a_forge_that_limits_requests_is_left_alone_for_as_long_as_it_says() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.forge.limit(600);
    site.run();
    assert!((1..=2).contains(&site.forge.refused_for_now()), "asked {} times", site.forge.refused_for_now());
    let statuses = site.forge.change(&a).unwrap().facts.statuses;
    assert_eq!(statuses.iter().map(|status| status.context.as_str()).collect::<Vec<_>>(), ["demo/check"]);
}
