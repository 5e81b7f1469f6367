//! Why a change is in no queue, from the recorded routing of its events.

use sluice_config::pipeline::Pipeline;
use sluice_gate::explain::{RoutingRecord, absence_reasons};
use sluice_memory::poll_once;
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_records::change;
use sluice_records::codec::{decode, get};
use sluice_records::layout::Layouts;
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;
use sluice_scenarios::sample;

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml}
- project: {check: {jobs: [unit]}, gate: {jobs: [unit]}}
";

fn site() -> Site {
    sample::small(8, PROJECT, |_, _, _| BuildResult::Success)
}

/// Returns the routing record of a change.
fn routing_of(site: &Site, key: &ChangeKey) -> RoutingRecord {
    let record = poll_once(get(&site.ports(), &change::verdicts_key(key))).unwrap().unwrap();
    decode(&record.expect("its events were routed")).unwrap()
}

/// Returns the reasons why a change is not in a pipeline, as the API shows them.
fn why(site: &Site, key: &ChangeKey, pipeline: &str) -> Vec<String> {
    let live = poll_once(Layouts::default().load_live(&site.ports(), &"demo".into()))
        .unwrap()
        .unwrap()
        .unwrap();
    let pipeline: &Pipeline = live.layout.pipeline(pipeline).unwrap();
    let record = poll_once(get(&site.ports(), &change::facts_key(key))).unwrap().unwrap();
    let facts: ChangeFacts = decode(&record.unwrap()).unwrap();
    let routing = routing_of(site, key);
    let routed = routing.pipelines.iter().find(|routed| routed.pipeline == pipeline.name);
    let lines = absence_reasons(pipeline, routed, Some(&facts), site.world.now());
    // Replaces the date of the time between the event and its outcome.
    lines.into_iter().map(|line| line.replace("2027-01-15T", "at ")).collect()
}

/// Z6.1, Z9.1: the reasons name the last event, the trigger attribute that did not match, and the
/// missing requirement.
#[test]
fn a_change_that_was_never_enqueued_is_explained_by_its_last_event_and_missing_requirements() {
    let mut site = site();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    let reasons = why(&site, &a, "gate");
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(
        reasons[0].starts_with("latest event that matched no trigger: pull_request opened by ada"),
        "{reasons:?}"
    );
    assert!(
        reasons[0].ends_with("it requires the event pull_request_review, not pull_request"),
        "{reasons:?}"
    );
    assert!(reasons[1].contains("pipeline gate requires a review: approved"), "{reasons:?}");
    let reasons = why(&site, &a, "check");
    assert!(reasons[0].ends_with("sent to its queue") && reasons.len() == 2, "{reasons:?}");
    assert!(reasons[1].contains("an event that came while it was there started nothing more"));
    site.forge.comment(&a, "go on, land it");
    site.run();
    let reasons = why(&site, &a, "gate");
    assert!(reasons[0].contains("comment (go on, land it) by ada"), "{reasons:?}");
    site.forge.approve(&a);
    site.run();
    let reasons = why(&site, &a, "gate");
    assert!(reasons.iter().any(|line| line.ends_with("sent to its queue")), "{reasons:?}");
}

/// Z9.1
#[test]
fn a_change_of_a_project_without_pipelines_is_explained() {
    let mut site = site();
    let bare = site.forge.propose("org/two", 2, "B", "", &[("a", "x")]);
    site.run();
    let routing = routing_of(&site, &bare);
    assert_eq!(routing.pipelines, []);
    assert!(routing.unrouted.unwrap().contains("takes part in no pipeline"));
}

/// Z9.1: a review is submitted and dismissed: the event matched a trigger, but the change lacks the
/// requirement.
#[test]
fn a_matching_event_of_a_refused_change_is_explained_by_the_missing_requirement() {
    let mut site = site();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    // Both webhooks are processed after the dismissal.
    site.forge.dismiss(&a);
    site.run();
    let reasons = why(&site, &a, "gate");
    assert!(
        reasons.iter().any(|line| line.contains("pipeline gate requires a review")),
        "{reasons:?}"
    );
    assert_eq!(site.forge.merges().len(), 0);
}
