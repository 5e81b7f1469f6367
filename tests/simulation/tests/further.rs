//! Mutation tests of the scenarios from seeds 4000000, 5000000, 9000000 and 30000000, and of bundles
//! in independent pipelines.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_simulation::noticed::noticing_seed;
use sluice_simulation::scenarios::Scenario;
use sluice_simulation::shape::FaultProfile;
use sluice_simulation::{Mutation, Settings, Shape, play};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that are tried with each broken rule.
const SEEDS: u64 = 480;
/// Seeds that are played without a broken rule.
const KEPT_SEEDS: u64 = 3;

/// Returns a site with these scenarios instead of the drawn ones.
fn with(scenarios: &[Scenario], seed: u64) -> Shape {
    Shape::draw(seed).with_scenarios(scenarios.iter().copied().collect())
}

/// Returns the same with many other actions.
fn active_with(scenarios: &[Scenario], seed: u64) -> Shape {
    Shape { actions: 16, ..with(scenarios, seed) }
}

/// Returns the same with many changes and many other actions.
fn busy_with(scenarios: &[Scenario], seed: u64) -> Shape {
    Shape { changes: 9, ..active_with(scenarios, seed) }
}

/// Returns the same with many changes, without faults and without other actions.
fn calm_with(scenarios: &[Scenario], seed: u64) -> Shape {
    let fault_profile = FaultProfile { name: "calm", waits: 100, ..FaultProfile::default() };
    Shape { actions: 0, changes: 9, fault_profile, ..with(scenarios, seed) }
}

/// Plays sites of this shape without a broken rule.
fn all_kept(shape: impl Fn(u64) -> Shape) {
    for seed in 1..=KEPT_SEEDS {
        if let Err(failure) = play(seed, Settings { mutation: None, shape: Some(shape(seed)) }) {
            panic!("{failure}\n\nthe site of seed {seed} fails");
        }
    }
}

/// Plays sites of this shape until one fails with this text because of a mutation. A panic of a
/// function does not count.
fn caught_with(words: &str, mutation: Mutation, shape: impl Fn(u64) -> Shape) {
    let noticed = noticing_seed(&format!("{mutation:?} {words:?}"), SEEDS, |seed| {
        let settings = Settings { mutation: Some(mutation), shape: Some(shape(seed)) };
        match catch_unwind(AssertUnwindSafe(|| play(seed, settings))) {
            Ok(Err(failure)) if failure.why.contains(words) => {
                println!("{failure}\n{mutation:?} is caught by seed {seed}");
                true
            }
            Ok(_) => false,
            Err(_) => {
                println!("a function panics at seed {seed}");
                false
            }
        }
    });
    assert!(noticed.is_some(), "{mutation:?} is not noticed as {words:?} by {SEEDS} seeds");
}

/// C2: sites with all of these scenarios at once do not fail.
#[test]
fn a_site_that_plays_all_further_plays_fails_nothing() {
    all_kept(|seed| with(Scenario::FURTHER, seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::FURTHER,
                &[
                    Scenario::DependencyCycles,
                    Scenario::Post,
                    Scenario::Gerrit,
                    Scenario::EventPauses,
                ],
            ]
            .concat(),
            seed,
        )
    });
}

/// Z6.1: a change is tested when its dependency enters the gate.
#[test]
fn a_missing_test_after_a_dependency_entered_the_gate_is_noticed() {
    all_kept(|seed| with(&[Scenario::Followers], seed));
    for mutation in [Mutation::LostChangeEvents, Mutation::LostRetests] {
        caught_with("was not tested after", mutation, |seed| {
            calm_with(&[Scenario::Followers], seed)
        });
    }
}

/// Z4.2: a change has exactly the jobs whose file filters match.
#[test]
fn a_job_that_is_left_out_though_its_files_are_touched_is_noticed() {
    all_kept(|seed| with(&[Scenario::FileFilters], seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::FileFilters,
                Scenario::DependencyCycles,
                Scenario::MergeModes,
                Scenario::FailFast,
                Scenario::Initializers,
            ],
            seed,
        )
    });
    caught_with("with file filters, but", Mutation::UnmatchedFiles, |seed| {
        with(&[Scenario::FileFilters], seed)
    });
}

/// Z6.1: an enqueued ref is tested at the named commit.
#[test]
fn an_untested_enqueued_ref_is_noticed() {
    all_kept(|seed| active_with(&[Scenario::EnqueuedRefs], seed));
    all_kept(|seed| {
        active_with(
            &[Scenario::EnqueuedRefs, Scenario::EventPauses, Scenario::Post, Scenario::MergeModes],
            seed,
        )
    });
    caught_with("was never tested", Mutation::LostRefs, |seed| {
        active_with(&[Scenario::EnqueuedRefs], seed)
    });
}

/// Z6.1: a tag is tested at its commit.
#[test]
fn an_untested_tag_is_noticed() {
    all_kept(|seed| active_with(&[Scenario::Tags], seed));
    all_kept(|seed| {
        active_with(
            &[Scenario::Tags, Scenario::EventPauses, Scenario::Post, Scenario::Gerrit],
            seed,
        )
    });
    let all_events = |seed| Shape { actions: 16, ..calm_with(&[Scenario::Tags], seed) };
    caught_with("was never tested", Mutation::LostRefs, all_events);
}

/// Z6.1: discarded events enqueue nothing, and queued changes continue.
#[test]
fn a_change_enqueued_by_a_discarded_event_is_noticed() {
    let discarding = |scenarios: &[Scenario], seed| {
        let fault_profile = FaultProfile { name: "calm", waits: 100, ..FaultProfile::default() };
        Shape { actions: 16, pause_millis_max: 30_000, fault_profile, ..with(scenarios, seed) }
    };
    all_kept(|seed| discarding(&[Scenario::EventDiscards], seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::EventDiscards,
                Scenario::EventPauses,
                Scenario::EnqueuedRefs,
                Scenario::Tags,
                Scenario::Rechecks,
            ],
            seed,
        )
    });
    let discards = |seed| discarding(&[Scenario::EventDiscards], seed);
    caught_with("while an operator has events discarded", Mutation::IgnoredDiscards, discards);
}

/// R09: each tick of a timer tests every branch once.
#[test]
fn a_timer_tick_without_tests_is_noticed() {
    all_kept(|seed| with(&[Scenario::Timers], seed));
    all_kept(|seed| Shape { scenarios: [Scenario::Timers].into(), ..Shape::skewed(seed) });
    all_kept(|seed| {
        with(
            &[
                Scenario::Timers,
                Scenario::Gerrit,
                Scenario::EventDiscards,
                Scenario::EventPauses,
                Scenario::Audit,
            ],
            seed,
        )
    });
    caught_with("no tick of the timer", Mutation::LostRefs, |seed| {
        calm_with(&[Scenario::Timers], seed)
    });
}

/// Z2.6, R01: all items of a layout agree on a job, also if it becomes live while items are tested.
#[test]
fn items_of_a_layout_with_different_jobs_are_noticed() {
    all_kept(|seed| active_with(&[Scenario::Reconfigurations], seed));
    all_kept(|seed| {
        active_with(
            &[
                Scenario::Reconfigurations,
                Scenario::Audit,
                Scenario::DependencyCycles,
                Scenario::FastForward,
                Scenario::FileFilters,
                Scenario::Timers,
            ],
            seed,
        )
    });
    caught_with("unlike another item of layout", Mutation::HalfReloads, |seed| {
        active_with(&[Scenario::Reconfigurations], seed)
    });
}

/// C2: each result is mailed at least once, unchanged.
#[test]
fn a_report_whose_mail_is_never_sent_is_noticed() {
    all_kept(|seed| with(&[Scenario::Mails], seed));
    all_kept(|seed| {
        with(
            &[Scenario::Mails, Scenario::Bursts, Scenario::Reconfigurations, Scenario::Gerrit],
            seed,
        )
    });
    caught_with("was never sent", Mutation::LostMails, |seed| with(&[Scenario::Mails], seed));
}

/// R04: a pipeline is disabled after the configured number of consecutive failures, and then
/// reports to others.
#[test]
fn uncounted_consecutive_failures_are_noticed() {
    let busy =
        |scenarios: &[Scenario], seed| Shape { changes: 9, actions: 12, ..with(scenarios, seed) };
    all_kept(|seed| busy(&[Scenario::DisabledPipelines], seed));
    all_kept(|seed| {
        busy(
            &[
                Scenario::DisabledPipelines,
                Scenario::Reconfigurations,
                Scenario::Bursts,
                Scenario::FailFast,
                Scenario::Mails,
            ],
            seed,
        )
    });
    caught_with("consecutive failures", Mutation::UncountedFailures, |seed| {
        busy(&[Scenario::DisabledPipelines], seed)
    });
}

/// Z6.1, S06: a new branch is tested at its first commit; a deleted one starts nothing.
#[test]
fn an_untested_new_branch_is_noticed() {
    all_kept(|seed| active_with(&[Scenario::Branches], seed));
    all_kept(|seed| {
        active_with(
            &[
                Scenario::Branches,
                Scenario::Post,
                Scenario::Timers,
                Scenario::Reconfigurations,
                Scenario::EventPauses,
            ],
            seed,
        )
    });
    let all_events = |seed| Shape { actions: 16, ..calm_with(&[Scenario::Branches], seed) };
    caught_with("was never tested", Mutation::LostRefs, all_events);
}

/// C2: sites with all added scenarios do not fail.
#[test]
fn a_site_that_plays_all_added_plays_fails_nothing() {
    all_kept(|seed| with(Scenario::ADDED, seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::ADDED,
                &[
                    Scenario::DependencyCycles,
                    Scenario::MergeModes,
                    Scenario::Gerrit,
                    Scenario::EventPauses,
                ],
            ]
            .concat(),
            seed,
        )
    });
}

/// D16, Z6.5: `max-dependencies` keeps out the changes that exceed it, and no others.
#[test]
fn a_change_that_is_tested_though_it_needs_too_many_is_noticed() {
    all_kept(|seed| with(&[Scenario::MaxDependencies], seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::MaxDependencies,
                Scenario::DependencyCycles,
                Scenario::Followers,
                Scenario::Supersedes,
            ],
            seed,
        )
    });
    let calm = |seed| calm_with(&[Scenario::MaxDependencies], seed);
    caught_with("but its tenant allows", Mutation::UncountedDependencies, calm);
    caught_with("was never checked", Mutation::ZeroDependencies, calm);
}

/// N14: a job uses its next nodeset only after the one before failed.
#[test]
fn a_nodeset_that_is_passed_over_or_never_asked_for_is_noticed() {
    all_kept(|seed| with(&[Scenario::NodesetFallbacks], seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::NodesetFallbacks,
                Scenario::DependencyCycles,
                Scenario::FailFast,
                Scenario::Reconfigurations,
                Scenario::Semaphores,
            ],
            seed,
        )
    });
    caught_with("choosy passes on that tree", Mutation::FirstNodesets, |seed| {
        calm_with(&[Scenario::NodesetFallbacks], seed)
    });
    caught_with("requests Some(1) nodes", Mutation::SkippedNodesets, |seed| {
        with(&[Scenario::NodesetFallbacks], seed)
    });
}

/// C2, R07: each result is published at least once, unchanged, besides mail.
#[test]
fn a_missing_or_changed_publication_is_noticed() {
    all_kept(|seed| with(&[Scenario::Publications], seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::Publications,
                Scenario::Mails,
                Scenario::Bursts,
                Scenario::Reconfigurations,
            ],
            seed,
        )
    });
    caught_with("was never published", Mutation::LostPublications, |seed| {
        with(&[Scenario::Publications], seed)
    });
    caught_with("differs from its report", Mutation::MisreadPublications, |seed| {
        with(&[Scenario::Publications], seed)
    });
}

/// Z4.3, S01: a job gets its required project with the changes that it is tested on.
#[test]
fn a_project_that_a_job_requires_and_is_not_given_is_noticed() {
    all_kept(|seed| with(&[Scenario::RequiredProjects], seed));
    all_kept(|seed| {
        with(
            &[
                Scenario::RequiredProjects,
                Scenario::DependencyCycles,
                Scenario::FastForward,
                Scenario::Reconfigurations,
            ],
            seed,
        )
    });
    caught_with("must get", Mutation::DroppedRequiredProjects, |seed| {
        with(&[Scenario::RequiredProjects], seed)
    });
}

/// D10: bundle members are in one host queue, and the own queues of the others name it.
#[test]
fn a_hosted_change_unknown_to_its_own_queue_is_noticed() {
    let busy =
        |scenarios: &[Scenario], seed| Shape { changes: 9, actions: 20, ..with(scenarios, seed) };
    all_kept(|seed| busy(&[Scenario::DependencyCycles], seed));
    all_kept(|seed| {
        busy(
            &[
                Scenario::DependencyCycles,
                Scenario::Gerrit,
                Scenario::Supersedes,
                Scenario::JobGraphs,
                Scenario::Artifacts,
            ],
            seed,
        )
    });
    all_kept(|seed| {
        busy(
            &[
                Scenario::DependencyCycles,
                Scenario::Mails,
                Scenario::EventPauses,
                Scenario::EventDiscards,
                Scenario::Bursts,
            ],
            seed,
        )
    });
    caught_with("is hosted in", Mutation::LostResidencies, |seed| {
        busy(&[Scenario::DependencyCycles], seed)
    });
}

/// Returns a site with one project where landed changes may be reverted at once.
fn regretting(seed: u64) -> Shape {
    let calm = calm_with(&[Scenario::Reverts, Scenario::MergeModes], seed);
    let mut shape = Shape { changes: 16, pause_millis_max: 3_000, ..calm };
    shape.tenants.truncate(1);
    for tenant in &mut shape.tenants {
        tenant.projects.truncate(1);
    }
    shape
}

/// Z6.4, Z6.5: a reverted change does not return with a change that depends on it, in any merge
/// mode.
#[test]
fn a_reverted_change_that_returns_is_noticed() {
    all_kept(|seed| busy_with(&[Scenario::Reverts, Scenario::MergeModes], seed));
    all_kept(|seed| {
        busy_with(
            &[
                Scenario::Reverts,
                Scenario::MergeModes,
                Scenario::DependencyCycles,
                Scenario::TwoGates,
                Scenario::FastForward,
                Scenario::Post,
            ],
            seed,
        )
    });
    all_kept(regretting);
    // Its branch never becomes the tested state.
    caught_with("does not come to rest", Mutation::ForgottenLandings, regretting);
}

/// Z6.1: a pipeline holds at most the configured number of changes, and refuses none below it.
#[test]
fn a_pipeline_with_too_many_changes_or_needless_refusals_is_noticed() {
    all_kept(|seed| busy_with(&[Scenario::MaxChanges], seed));
    all_kept(|seed| {
        busy_with(
            &[
                Scenario::MaxChanges,
                Scenario::DependencyCycles,
                Scenario::Rechecks,
                Scenario::Post,
                Scenario::Serial,
            ],
            seed,
        )
    });
    let calm = |seed| calm_with(&[Scenario::MaxChanges], seed);
    caught_with("but its tenant allows", Mutation::UncountedChanges, calm);
    caught_with("which has capacity for", Mutation::ZeroCapacity, calm);
}

/// C2: sites with all recent scenarios do not fail.
#[test]
fn a_site_that_plays_all_recent_plays_fails_nothing() {
    all_kept(|seed| with(Scenario::RECENT, seed));
    let others = [
        Scenario::DependencyCycles,
        Scenario::MergeModes,
        Scenario::Gerrit,
        Scenario::EventPauses,
        Scenario::Bursts,
        Scenario::Timers,
    ];
    all_kept(|seed| with(&[Scenario::RECENT, Scenario::ADDED, &others].concat(), seed));
}

/// D01, D02, G09: one event brings a whole tree of changes into the gate, in the same order whichever
/// change it is about; approvals bring it in whatever their order.
#[test]
fn a_tree_that_enters_incompletely_or_in_another_order_is_noticed() {
    all_kept(|seed| busy_with(&[Scenario::ChangeTrees], seed));
    all_kept(|seed| {
        busy_with(
            &[
                Scenario::ChangeTrees,
                Scenario::TwoGates,
                Scenario::Supersedes,
                Scenario::WithdrawnApprovals,
                Scenario::EventPauses,
                Scenario::MergeModes,
            ],
            seed,
        )
    });
    let calm = |seed| Shape { changes: 3, ..calm_with(&[Scenario::ChangeTrees], seed) };
    caught_with("never entered the gate", Mutation::CutTrees, calm);
    caught_with("but must enter as", Mutation::SwappedTrees, calm);
}

/// Returns a site without failing calls whose operators remove and add projects during many minutes.
fn departing(seed: u64) -> Shape {
    let calm = calm_with(&[Scenario::Departures], seed);
    Shape { actions: 16, pause_millis_max: 120_000, ..calm }
}

/// Z2.1, R03: the changes of a project that left the tenant leave without a result of their own, and
/// nothing of the project enters or lands later.
#[test]
fn a_removed_project_that_stays_or_is_reported_is_noticed() {
    all_kept(|seed| busy_with(&[Scenario::Departures], seed));
    all_kept(departing);
    all_kept(|seed| {
        busy_with(
            &[
                Scenario::Departures,
                Scenario::DependencyCycles,
                Scenario::Post,
                Scenario::Reconfigurations,
                Scenario::Timers,
                Scenario::FastForward,
            ],
            seed,
        )
    });
    caught_with("although its project left the tenant", Mutation::KeptProjects, departing);
    caught_with("it merges without conflict", Mutation::ReportedDepartures, departing);
}

/// C14, Z6.6: a change of a project that only a change ahead of it adds to a pipeline is tested on
/// top of that change.
#[test]
fn an_unadmitted_change_behind_the_one_that_adds_its_project_is_noticed() {
    all_kept(|seed| busy_with(&[Scenario::Newcomers], seed));
    all_kept(|seed| {
        busy_with(
            &[
                Scenario::Newcomers,
                Scenario::Audit,
                Scenario::FileFilters,
                Scenario::Semaphores,
                Scenario::ReporterJobs,
                Scenario::MergeModes,
            ],
            seed,
        )
    });
    let calm = |seed| Shape { changes: 3, ..calm_with(&[Scenario::Newcomers], seed) };
    caught_with("was never checked", Mutation::LostNewcomers, calm);
    caught_with("is approved and was never gated", Mutation::LostNewcomers, calm);
}

/// C2: sites with all current scenarios do not fail.
#[test]
fn a_site_that_plays_all_current_plays_fails_nothing() {
    all_kept(|seed| with(Scenario::CURRENT, seed));
    let others = [
        Scenario::DependencyCycles,
        Scenario::MergeModes,
        Scenario::Gerrit,
        Scenario::EventPauses,
        Scenario::Bursts,
        Scenario::Followers,
    ];
    all_kept(|seed| with(&[Scenario::CURRENT, Scenario::RECENT, &others].concat(), seed));
}
