//! Statuses and check runs that other services report for a commit.

use super::{CONFIG, PROJECT, propose, site_of};
use sluice_model::change::ChangeKey;
use sluice_records::codec::decode;
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_scenarios::Site;

/// Returns a site with a pipeline that is triggered by a status.
pub fn site_with_status_trigger() -> Site {
    let config = format!(
        "{CONFIG}- pipeline: {{name: on-status, manager: independent, trigger: {{github: [{{event: pull_request, action: status, status: 'bot:ci:success'}}]}}}}\n"
    );
    site_of(&config, &format!("{PROJECT}    on-status: {{jobs: [noop]}}\n"))
}

/// Returns the buildsets of a pipeline, sorted.
fn tested(site: &Site, pipeline: &str) -> Vec<String> {
    let sets = site.ending(&[], &[]).buildsets.into_iter();
    sets.filter(|set| set.contains(&format!(" {pipeline} "))).collect()
}

/// Returns the effects of the handled deliveries with this event name. A delivery that is not
/// handled yields its state.
fn delivery_effects(site: &Site, event_name: &str) -> Vec<String> {
    let records = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("delivery#"));
    let deliveries = records.map(|record| decode::<DeliveryRecord>(&record).unwrap());
    let of_kind = deliveries.filter(|delivery| delivery.event_name == event_name);
    of_kind
        .flat_map(|delivery| match delivery.state {
            DeliveryState::Handled { effects, .. } => effects,
            other => vec![format!("{other:?}")],
        })
        .collect()
}

/// Z6.1, Z6.7: anyone may open a hundred changes with the same head commit. A status of that commit
/// reaches every one of them, in as many transactions as needed.
#[test]
fn a_commit_status_triggers_the_pipeline_for_every_change_with_that_head() {
    let mut site = site_with_status_trigger();
    let changes: Vec<ChangeKey> =
        (1..=170).map(|number| propose(&site, number, &[("a", "x")])).collect();
    site.forge.share_head(&changes);
    while site.forge.next_webhook().is_some() {} // Drop the webhooks of the proposals.
    site.forge.send_status_webhook(&changes[0], "ci", "bot");
    site.run();
    assert_eq!(tested(&site, "on-status").len(), 170);
    assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
}

/// Z6.1: the usual case, one change. The pipeline runs once even if the forge sends the status
/// several times.
#[test]
fn a_matching_status_triggers_the_pipeline_once() {
    for twice in [false, true] {
        let mut site = site_with_status_trigger();
        site.twice = twice;
        let change = propose(&site, 1, &[("a", "x")]);
        site.run();
        for (context, sender) in [("ci", "stranger"), ("lint", "bot"), ("ci", "bot")] {
            site.forge.send_status_webhook(&change, context, sender);
            site.run();
        }
        assert_eq!(tested(&site, "on-status").len(), 1);
    }
}

/// Z6.7: other services set many statuses on every commit. If no pipeline has a status trigger, the
/// forge is not asked about them.
#[test]
fn a_status_that_no_trigger_matches_causes_no_forge_request() {
    let mut site = super::site();
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    let before = site.forge.reads();
    site.forge.send_status_webhook(&change, "ci", "bot");
    site.run();
    assert_eq!(site.forge.reads(), before);
    let effects = delivery_effects(&site, "status");
    assert!(effects.len() == 1 && effects[0].contains("no pipeline uses"), "{effects:?}");
}
