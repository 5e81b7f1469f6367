//! Statuses and check runs: what somebody says of a commit.

use super::{CONFIG, PROJECT, propose, site_of};
use sluice_model::change::ChangeKey;
use sluice_records::codec::decode;
use sluice_records::delivery::{Delivery, DeliveryState};
use sluice_scenarios::Site;

/// A site with a pipeline that a status starts.
pub fn site_that_heeds_statuses() -> Site {
    let config = format!(
        "{CONFIG}- pipeline: {{name: told, manager: independent, trigger: {{github: [{{event: pull_request, action: status, status: 'bot:ci:success'}}]}}}}\n"
    );
    site_of(&config, &format!("{PROJECT}    told: {{jobs: [noop]}}\n"))
}

/// Returns the changes that went through a pipeline, sorted.
fn tested(site: &Site, pipeline: &str) -> Vec<String> {
    let sets = site.ending(&[], &[]).buildsets.into_iter();
    sets.filter(|set| set.contains(&format!(" {pipeline} "))).collect()
}

/// Returns what was told of deliveries of one kind.
fn told(site: &Site, event_name: &str) -> Vec<String> {
    let records = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("delivery#"));
    let deliveries = records.map(|record| decode::<Delivery>(&record).unwrap());
    let of_kind = deliveries.filter(|delivery| delivery.event_name == event_name);
    of_kind
        .flat_map(|delivery| match delivery.state {
            DeliveryState::Handled { effects, .. } => effects,
            other => vec![format!("{other:?}")],
        })
        .collect()
}

/// Z6.1, Z6.7: anybody may open a hundred changes of one commit; a status of it is told to each, in
/// as many commits as it takes.
#[test]
fn a_status_of_a_commit_that_many_changes_have_is_told_to_each_of_them() {
    let mut site = site_that_heeds_statuses();
    let changes: Vec<ChangeKey> =
        (1..=170).map(|number| propose(&site, number, &[("a", "x")])).collect();
    site.forge.share_head(&changes);
    while site.forge.next_webhook().is_some() {} // What came with them is another story.
    site.forge.tell_status(&changes[0], "ci", "bot");
    site.run();
    assert_eq!(tested(&site, "told").len(), 170);
    assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
}

/// Z6.1: the usual one, whose status is told once however often the forge sends it.
#[test]
fn a_status_of_one_change_starts_the_pipeline_that_asks_for_it() {
    for twice in [false, true] {
        let mut site = site_that_heeds_statuses();
        site.twice = twice;
        let change = propose(&site, 1, &[("a", "x")]);
        site.run();
        for (context, sender) in [("ci", "somebody"), ("lint", "bot"), ("ci", "bot")] {
            site.forge.tell_status(&change, context, sender);
            site.run();
        }
        assert_eq!(tested(&site, "told").len(), 1);
    }
}

/// Z6.7: other services tell of every commit many times; where no pipeline says a word of statuses
/// nobody is asked about them.
#[test]
fn a_status_that_no_pipeline_heeds_has_nothing_read() {
    let mut site = super::site();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    let before = site.forge.reads();
    site.forge.tell_status(&change, "ci", "bot");
    site.run();
    assert_eq!(site.forge.reads(), before);
    let told = told(&site, "status");
    assert!(told.len() == 1 && told[0].contains("no pipeline heeds"), "{told:?}");
}
