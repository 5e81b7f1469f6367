//! Why a change is in no queue, from what was kept of its events.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

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

fn verdicts(site: &Site, key: &ChangeKey) -> RoutingRecord {
    let record = poll_once(get(&site.ports(), &change::verdicts_key(key))).unwrap().unwrap();
    decode(&record.expect("what became of its events is kept")).unwrap()
}

/// Returns why a change is not in a pipeline, as the API tells it.
fn why(site: &Site, key: &ChangeKey, pipeline: &str) -> Vec<String> {
    let live = poll_once(Layouts::default().load_live(&site.ports(), &"demo".into()))
        .unwrap()
        .unwrap()
        .unwrap();
    let pipeline: &Pipeline = live.layout.pipeline(pipeline).unwrap();
    let record = poll_once(get(&site.ports(), &change::facts_key(key))).unwrap().unwrap();
    let facts: ChangeFacts = decode(&record.unwrap()).unwrap();
    let verdicts = verdicts(site, key);
    let verdict = verdicts.pipelines.iter().find(|verdict| verdict.pipeline == pipeline.name);
    let lines = absence_reasons(pipeline, verdict, Some(&facts), site.world.now());
    // Times stand between the event and what came of it.
    lines.into_iter().map(|line| line.replace("2027-01-15T", "at ")).collect()
}

/// Z6.1, Z9.1: which event came, what of which trigger did not fit it, and what the pipeline asks
/// for that is not there.
#[test]
fn a_change_that_was_never_enqueued_is_explained_by_its_last_event_and_by_what_it_lacks() {
    let mut site = site();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    let told = why(&site, &a, "gate");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0]
            .starts_with("latest event that matched no trigger: pull_request opened by ada"),
        "{told:?}"
    );
    assert!(
        told[0].ends_with("it requires the event pull_request_review, not pull_request"),
        "{told:?}"
    );
    assert!(told[1].contains("pipeline gate requires a review: approved"), "{told:?}");
    let told = why(&site, &a, "check");
    assert!(told[0].ends_with("sent to its queue") && told.len() == 1, "{told:?}");
    site.forge.comment(&a, "go on, land it");
    site.run();
    let told = why(&site, &a, "gate");
    assert!(told[0].contains("comment (go on, land it) by ada"), "{told:?}");
    site.forge.approve(&a);
    site.run();
    let told = why(&site, &a, "gate");
    assert!(told.iter().any(|line| line.ends_with("sent to its queue")), "{told:?}");
}

/// Z9.1
#[test]
fn a_change_of_a_project_that_takes_part_nowhere_says_so() {
    let mut site = site();
    let bare = site.forge.propose("org/two", 2, "B", "", &[("a", "x")]);
    site.run();
    let verdicts = verdicts(&site, &bare);
    assert_eq!(verdicts.pipelines, []);
    assert!(verdicts.unrouted.unwrap().contains("takes part in no pipeline"));
}

/// Z9.1: a review that is given and taken back: the event was taken, and the pipeline does not take
/// the change as it is.
#[test]
fn an_event_that_was_taken_for_a_change_that_is_not_is_told_with_what_it_lacks() {
    let mut site = site();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    // Read after both were given and taken back.
    site.forge.dismiss(&a);
    site.run();
    let told = why(&site, &a, "gate");
    assert!(told.iter().any(|line| line.contains("pipeline gate requires a review")), "{told:?}");
    assert_eq!(site.forge.merges().len(), 0);
}
