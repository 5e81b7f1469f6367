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
