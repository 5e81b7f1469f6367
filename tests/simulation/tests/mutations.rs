//! Mutation tests: with each broken rule, at least one of a few seeds must fail.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_model::wakeup::MessageQueue;
use sluice_simulation::noticed::noticing_seed;
use sluice_simulation::scenarios::Scenario;
use sluice_simulation::shape::FaultProfile;
use sluice_simulation::{Cell, Mutation, SeedReport, Settings, Shape, play};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that are tried with each broken rule.
const SEEDS: u64 = 480;
/// Seeds that are played without a broken rule.
const KEPT_SEEDS: u64 = 20;

/// Failures of a site where something is missing or unfinished at the end.
const UNDONE: [&str; 3] = ["at the end", "does not come to rest", "has not ended"];
/// Failures of a record that was written over an unseen revision.
const UNSEEN: [&str; 2] = ["over the unseen revision", "revision falls"];

/// Plays seeds until one fails because of a mutation, and returns the failure. Every other site is
/// crowded.
fn caught(mutation: Mutation) -> String {
    caught_at(mutation, crowded_now_and_then)
}

fn crowded_now_and_then(seed: u64) -> Option<Shape> {
    seed.is_multiple_of(2).then(|| Shape::crowded(seed))
}

/// Like [`caught`], at sites of this shape.
fn caught_at(mutation: Mutation, shape: impl Fn(u64) -> Option<Shape>) -> String {
    caught_as(&[""], mutation, shape)
}

/// Plays seeds until one fails with one of these texts because of a mutation, and returns the
/// failure. Other failures do not count, and neither does a panic of a function.
fn caught_as(words: &[&str], mutation: Mutation, shape: impl Fn(u64) -> Option<Shape>) -> String {
    let (mut why, mut others) = (String::new(), std::collections::BTreeMap::new());
    let noticed = noticing_seed(&format!("{mutation:?} {words:?}"), SEEDS, |seed| {
        let settings = Settings { mutation: Some(mutation), shape: shape(seed) };
        match catch_unwind(AssertUnwindSafe(|| play(seed, settings))) {
            Ok(Err(failure)) if words.iter().any(|word| failure.why.contains(word)) => {
                println!("{failure}\n{mutation:?} is caught by seed {seed}");
                why = failure.why;
                true
            }
            Ok(Err(failure)) => {
                *others.entry(failure.why).or_insert(0) += 1;
                false
            }
            Ok(Ok(_)) => false,
            Err(_) => {
                println!("a function panics at seed {seed}");
                false
            }
        }
    });
    let others: Vec<_> = others.into_iter().take(10).collect();
    assert!(
        noticed.is_some(),
        "{mutation:?} is not noticed as {words:?} by {SEEDS} seeds, but as: {others:#?}"
    );
    why
}

/// Like [`caught_as`], for one text.
fn caught_with(words: &str, mutation: Mutation, shape: impl Fn(u64) -> Shape) {
    caught_as(&[words], mutation, |seed| Some(shape(seed)));
}

/// C2: a head is written only over a known revision.
#[test]
fn a_head_written_over_an_unseen_revision_is_noticed() {
    for cell in [Cell::Queue, Cell::Provider, Cell::Tenant, Cell::Landing, Cell::Delivery] {
        caught_as(&UNSEEN, Mutation::NoRevision(cell), crowded_now_and_then);
    }
    // Many events of few changes.
    caught_as(&UNSEEN, Mutation::NoRevision(Cell::SeenEvents), |seed| {
        Some(Shape { changes: 2, actions: 40, ..Shape::crowded(seed) })
    });
}

/// Z7.6: a build has one owner.
#[test]
fn a_build_that_is_claimed_twice_is_noticed() {
    let why = caught(Mutation::ClaimedTwice);
    let words = ["over the unseen revision", "revision falls", "took the run from"];
    assert!(words.iter().any(|word| why.contains(word)), "{why}");
}

/// Z7.6, N05
#[test]
fn a_build_that_is_claimed_after_its_stop_is_noticed() {
    assert!(caught(Mutation::ClaimedThoughStopped).contains("claimed a stopped build"));
}

/// C2: the same sites do not fail without a broken rule.
#[test]
fn a_crowded_site_where_every_rule_is_kept_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        let settings = Settings { mutation: None, shape: Some(Shape::crowded(seed)) };
        if let Err(failure) = play(seed, settings) {
            panic!("{failure}\n\nthe crowded site of seed {seed} fails");
        }
    }
}

/// N16
#[test]
fn a_semaphore_written_over_an_unseen_revision_is_noticed() {
    caught_as(&UNSEEN, Mutation::UncheckedSemaphore, crowded_now_and_then);
}

/// C2: a transaction is written completely or not at all.
#[test]
fn a_transaction_that_is_torn_is_noticed() {
    // A head without its item, or the other writes of a failed transaction.
    let words = ["and the item's record has another version", "has no item", UNSEEN[0], UNSEEN[1]];
    caught_as(&words, Mutation::TornTransactions, crowded_now_and_then);
}

/// C2: a message with an unknown error is delivered again.
#[test]
fn an_error_that_acknowledges_its_message_is_noticed() {
    let why = caught(Mutation::AcknowledgedErrors);
    // Lost work is missing at the end, or earlier where a function relies on it.
    let words = [
        "at the end",
        "does not come to rest",
        "was merged without reading the facts of",
        "outbox was not sent",
    ];
    assert!(words.iter().any(|words| why.contains(words)), "{why}");
}

/// C2: a function that dies after a commit has stored what to send.
#[test]
fn an_outbox_that_is_not_stored_is_noticed() {
    let why = caught(Mutation::LostOutboxes);
    assert!(why.contains("at the end") || why.contains("does not come to rest"), "{why}");
}

/// C2: a record that waits is due at some time.
#[test]
fn records_that_are_never_due_are_noticed() {
    caught_as(&UNDONE, Mutation::NothingDue, crowded_now_and_then);
}

/// Z6.4, C2: after a crash the outbox of a queue is sent before its message is acknowledged.
#[test]
fn an_outbox_that_is_not_sent_after_a_crash_is_noticed() {
    caught_as(&["outbox was not sent"], Mutation::UnseenOutboxes, crowded_now_and_then);
}

/// C2: lost messages leave work undone.
#[test]
fn a_queue_that_loses_everything_is_noticed() {
    let words = [UNDONE[0], UNDONE[1], UNDONE[2], "outbox was not sent"];
    caught_as(&words, Mutation::Mute(MessageQueue::Merges), crowded_now_and_then);
}

/// Z6.4: the oracle knows which trees pass.
#[test]
fn an_executor_that_lies_is_noticed() {
    assert!(caught(Mutation::LyingExecutor).contains("passes on that tree: false"));
}

/// Z6.4: the tested tree is merged.
#[test]
fn a_forge_that_merges_something_else_is_noticed() {
    assert!(caught(Mutation::LyingForge).contains("the branch is not the merge of both"));
}

/// Z6.4: twenty seeds are enough to notice that the merged tree is not compared with the tested one:
/// everything else rests on that.
#[test]
fn a_merged_tree_that_is_not_compared_is_noticed_soon() {
    let caught = |seed: u64| {
        // A forge that often disobeys.
        let shape = Shape::draw(seed);
        let fault_profile = FaultProfile { unruly_forge: 250, ..shape.fault_profile };
        let shape = Shape { actions: 30, fault_profile, ..shape };
        let settings = Settings { mutation: Some(Mutation::UncomparedTrees), shape: Some(shape) };
        play(seed, settings).is_err_and(|failure| failure.why.contains("ended as landed with tree"))
    };
    assert!((1..=20).any(caught));
}

/// C5: a build without an end blocks its queue.
#[test]
fn an_end_that_is_never_written_is_noticed() {
    caught_as(&UNDONE, Mutation::ForgottenEnds, crowded_now_and_then);
}

/// C2, Z7.3: sites with clocks ten minutes off do not fail without a broken rule.
#[test]
fn a_site_whose_clocks_are_far_apart_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        let settings = Settings { mutation: None, shape: Some(Shape::skewed(seed)) };
        if let Err(failure) = play(seed, settings) {
            panic!("{failure}\n\nthe skewed site of seed {seed} fails");
        }
    }
}

/// Z6.3: updates of a change are ordered by the forge's clock, not by the clocks of functions.
#[test]
fn updates_ordered_by_the_clocks_of_functions_are_noticed() {
    let why = caught_at(Mutation::NoForgeClock, |seed| Some(Shape::skewed(seed)));
    // An older update that counts as newer restores an outdated state or dequeues a change for it.
    assert!(
        why.contains("at the end") || why.contains("but it had no reason to be dequeued"),
        "{why}"
    );
}

/// R06: a command is applied by the transaction that consumes it.
#[test]
fn a_misread_command_is_noticed() {
    let why = caught(Mutation::MisreadCommands);
    assert!(why.contains("an operator "), "{why}");
}

/// Returns a site with these scenarios instead of the drawn ones.
fn with(scenarios: &[Scenario], seed: u64) -> Shape {
    Shape::draw(seed).with_scenarios(scenarios.iter().copied().collect())
}

/// C2, Z6.5, N16: sites with all scenarios do not fail without a broken rule.
#[test]
fn a_site_that_plays_everything_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        // Every other one without Gerrit.
        let scenarios = Scenario::ALL
            .into_iter()
            .filter(|play| *play != Scenario::Gerrit || seed.is_multiple_of(2));
        let settings =
            Settings { mutation: None, shape: Some(with(&scenarios.collect::<Vec<_>>(), seed)) };
        if let Err(failure) = play(seed, settings) {
            panic!("{failure}\n\nthe site of seed {seed} that plays everything fails");
        }
    }
}

/// C2, G09, G11, G12, Z6.5: sites at Gerrit do not fail, and land changes.
#[test]
fn a_site_at_a_gerrit_fails_nothing() {
    let mut landed = 0;
    for seed in 1..=KEPT_SEEDS {
        let scenarios = [
            Scenario::Gerrit,
            Scenario::DependencyCycles,
            Scenario::WithdrawnApprovals,
            Scenario::Bursts,
        ];
        let settings = Settings { mutation: None, shape: Some(with(&scenarios, seed)) };
        match play(seed, settings) {
            Ok(report) => landed += report.landed,
            Err(failure) => panic!("{failure}\n\nthe site of seed {seed} at a Gerrit fails"),
        }
    }
    assert!(landed > KEPT_SEEDS / 2, "{landed}");
}

/// G11, G12: revoked votes are read again before a merge.
#[test]
fn a_landing_that_asks_for_no_votes_is_noticed() {
    let scenarios = [Scenario::Gerrit, Scenario::WithdrawnApprovals];
    caught_with("not approved", Mutation::DroppedRequirements, |seed| with(&scenarios, seed));
}

/// N16: the same for several semaphores and those acquired after the nodes.
#[test]
fn each_semaphore_written_over_an_unseen_revision_is_noticed() {
    caught_as(&UNSEEN, Mutation::UncheckedSemaphore, |seed| {
        Some(with(&[Scenario::Semaphores], seed))
    });
}

/// Z6.5: a change that enters a superseding pipeline leaves the superseded one.
#[test]
fn a_change_that_stays_where_it_was_superseded_is_noticed() {
    let why =
        caught_at(Mutation::MisreadSuperseding, |seed| Some(with(&[Scenario::Supersedes], seed)));
    assert!(why.contains("but it is still queued here"), "{why}");
}

/// Z5.3: only reviewed changes get a project's secret.
#[test]
fn a_secret_in_a_build_of_an_unreviewed_change_is_noticed() {
    let why = caught(Mutation::LeakyPipeline);
    assert!(why.contains("is given secret-"), "{why}");
}

/// G12, Z6.4: the requirements of a pipeline are read again before a merge, because a revoked
/// approval may not be known yet.
#[test]
fn a_landing_that_asks_for_no_approval_is_noticed() {
    let why = caught_at(Mutation::DroppedRequirements, |seed| {
        Some(with(&[Scenario::WithdrawnApprovals], seed))
    });
    assert!(why.contains("not approved"), "{why}");
}

/// C2: every message group is served within its bound.
#[test]
fn an_unserved_message_queue_is_noticed() {
    for queue in [MessageQueue::Reports, MessageQueue::Gate] {
        let why = caught(Mutation::Unserved(queue));
        assert!(why.contains("has waited since") || why.contains("has not ended"), "{why}");
    }
}

/// C2, C3: a delivery that ended stays as it ended.
#[test]
fn a_delivery_that_goes_on_after_its_end_is_noticed() {
    let why = caught(Mutation::ReopenedDeliveries);
    assert!(why.contains("a delivery ended as"), "{why}");
}

/// C2, G01: a sent or dropped report is not sent again.
#[test]
fn a_report_that_goes_on_after_its_end_is_noticed() {
    caught_as(&["a report ended as"], Mutation::ReopenedReports, crowded_now_and_then);
}

/// Z6.4: a generation never comes twice, so that outdated results can be ignored.
#[test]
fn a_generation_that_falls_is_noticed() {
    let why = caught(Mutation::FallingGenerations);
    assert!(why.contains("its generation falls"), "{why}");
}

/// Z2.3: only a wanted layout is live.
#[test]
fn an_unwanted_live_layout_is_noticed() {
    let why = caught(Mutation::LayoutsAhead);
    assert!(why.contains("is live, but"), "{why}");
}

/// N05: a provider's quota counts all nodes.
#[test]
fn nodes_that_are_not_counted_are_noticed() {
    let why = caught(Mutation::UncountedNodes);
    assert!(why.contains("nodes may exist"), "{why}");
}

/// G16: a window follows from the results.
#[test]
fn a_window_that_is_wider_than_it_may_be_is_noticed() {
    let why = caught_at(Mutation::StretchedWindows, |seed| Some(with(&[Scenario::Windows], seed)));
    assert!(why.contains("its window was"), "{why}");
}

/// S02: a change is merged with the merge mode of its project.
#[test]
fn a_change_that_is_merged_in_another_way_is_noticed() {
    let why = caught_at(Mutation::OtherModes, |seed| Some(with(&[Scenario::MergeModes], seed)));
    assert!(why.contains("but its project is configured with"), "{why}");
}

/// Z6.4: one queue at a time lands on a branch.
#[test]
fn a_landing_without_the_branch_lock_is_noticed() {
    caught_with(
        "are landing on one branch at the same time",
        Mutation::IgnoredBranchLock,
        |seed| with(&[Scenario::TwoGates], seed),
    );
}

/// Plays sites with these scenarios without a broken rule, and returns their reports.
fn all_kept(scenarios: &[Scenario]) -> Vec<SeedReport> {
    let mut all = Vec::new();
    for seed in 1..=KEPT_SEEDS {
        let settings = Settings { mutation: None, shape: Some(with(scenarios, seed)) };
        match play(seed, settings) {
            Ok(report) => all.push(report),
            Err(failure) => {
                panic!("{failure}\n\nthe site of seed {seed} that plays {scenarios:?} fails")
            }
        }
    }
    all
}

/// C2, Z6.4: fast-forward sites do not fail, and one push sometimes lands several changes.
#[test]
fn a_site_whose_branches_are_moved_to_what_was_tested_fails_nothing() {
    let reports = all_kept(&[Scenario::FastForward]);
    let landed = reports.iter().map(|report| report.landed).sum::<u64>();
    assert!(landed > KEPT_SEEDS / 2, "{landed} changes landed");
    let several = noticing_seed("a push lands several changes", SEEDS, |seed| {
        let shape = Some(with(&[Scenario::FastForward], seed));
        play(seed, Settings { mutation: None, shape }).is_ok_and(|report| report.runs > 0)
    });
    assert!(several.is_some(), "no push of {SEEDS} sites lands several changes");
}

/// C2, Z4.3: sites with reporter jobs do not fail, and changes behind a failed one are tested
/// again.
#[test]
fn a_site_whose_jobs_run_after_reports_fails_nothing() {
    let report = all_kept(&[Scenario::ReporterJobs]);
    let again = report.iter().map(|report| report.tested_again).sum::<u64>();
    assert!(again > 0, "nothing stood behind a job that failed after its report");
}

/// C2, Z4.3, Z6.4: the same with both, with revoked approvals and two gates.
#[test]
fn a_site_whose_branches_are_moved_and_whose_jobs_run_after_reports_fails_nothing() {
    let report = all_kept(&[
        Scenario::FastForward,
        Scenario::ReporterJobs,
        Scenario::WithdrawnApprovals,
        Scenario::TwoGates,
    ]);
    assert!(report.iter().map(|report| report.landed).sum::<u64>() > KEPT_SEEDS / 2);
}

/// Z6.4: a push lands only changes that passed.
#[test]
fn a_push_that_brings_what_did_not_pass_is_noticed() {
    caught_with("no landing leads there", Mutation::Overreach, |seed| {
        with(&[Scenario::FastForward], seed)
    });
}

/// Z6.4: one queue at a time lands on a branch, also with several changes.
#[test]
fn a_push_of_several_changes_without_the_branch_lock_is_noticed() {
    caught_with(
        "are landing on one branch at the same time",
        Mutation::IgnoredBranchLock,
        |seed| {
            let scenarios = [Scenario::FastForward, Scenario::TwoGates];
            Shape::crowded(seed).with_scenarios(scenarios.into())
        },
    );
}

/// Z4.3: a reporter job starts after the report.
#[test]
fn a_job_that_runs_before_its_report_is_noticed() {
    caught_with("is ordered before the report", Mutation::EarlyReporterJobs, |seed| {
        with(&[Scenario::ReporterJobs], seed)
    });
}

/// R01: an item has all jobs of its configuration.
#[test]
fn a_job_that_is_dropped_is_noticed() {
    caught_with("but must have", Mutation::DroppedJobs, Shape::draw);
}

/// Z6.5: a change with dependencies is not lost on its way into a queue.
#[test]
fn a_change_that_is_lost_as_it_depends_on_another_one_is_noticed() {
    let calm = |seed| {
        let fault_profile = FaultProfile { name: "calm", waits: 100, ..FaultProfile::default() };
        Shape { actions: 0, fault_profile, ..Shape::draw(seed) }
    };
    caught_with("was never checked", Mutation::LostDependents, calm);
}

/// Z7.6: an executor ends a build that it claimed without an answer.
#[test]
fn an_abandoned_claim_without_an_answer_is_noticed() {
    let lies = |seed| {
        let fault_profile =
            FaultProfile { name: "lies", waits: 300, fails_after: 25, ..FaultProfile::default() };
        Shape { executors: 3, fault_profile, ..Shape::draw(seed) }
    };
    caught_with("its executor is still running it", Mutation::UnsettledClaims, lies);
}

/// Like [`caught_with`], at sites with these scenarios.
fn caught_playing(scenarios: &[Scenario], words: &str, mutation: Mutation) {
    caught_with(words, mutation, |seed| with(scenarios, seed));
}

/// C2, J12, G20: sites with job graphs do not fail.
#[test]
fn a_site_whose_jobs_depend_on_each_other_fails_nothing() {
    let report = all_kept(&Scenario::LATEST);
    assert!(report.iter().map(|report| report.landed).sum::<u64>() > KEPT_SEEDS / 2);
    all_kept(&[Scenario::JobGraphs]);
}

/// C2, J12, G20, N16, Z4.3: the same together with other scenarios.
#[test]
fn a_site_whose_jobs_depend_on_each_other_with_other_scenarios_fails_nothing() {
    let others = [
        Scenario::DependencyCycles,
        Scenario::Semaphores,
        Scenario::ReporterJobs,
        Scenario::FastForward,
        Scenario::Windows,
        Scenario::TwoGates,
    ];
    all_kept(&[&Scenario::LATEST[..], &others].concat());
}

/// J12: a job is ordered after its dependencies and the initializer jobs.
#[test]
fn a_job_that_is_ordered_before_its_dependency_is_noticed() {
    for scenarios in [[Scenario::JobGraphs], [Scenario::Initializers]] {
        caught_playing(
            &scenarios,
            "is ordered before its dependency",
            Mutation::ForgottenDependencies,
        );
    }
}

/// J12: a job with a soft dependency runs whatever the result is.
#[test]
fn a_job_that_is_left_out_without_a_reason_is_noticed() {
    caught_playing(
        &[Scenario::JobGraphs],
        "without a failed dependency",
        Mutation::HardDependencies,
    );
}

/// Z4.3: `child_jobs` chooses which dependents run.
#[test]
fn a_job_that_is_run_though_it_was_not_chosen_is_noticed() {
    caught_playing(&[Scenario::JobGraphs], "left it out", Mutation::IgnoredChildJobs);
}

/// J14: a non-voting job does not fail its change.
#[test]
fn a_change_that_is_kept_out_by_a_job_without_a_vote_is_noticed() {
    caught_playing(&[Scenario::JobGraphs], "every job passed", Mutation::AllVote);
}

/// Z4.3: a paused build resumes when its dependents ended, and not before.
#[test]
fn a_paused_build_that_goes_on_too_soon_or_never_is_noticed() {
    caught_playing(&[Scenario::JobGraphs], "before its resume", Mutation::EarlyResumes);
    caught_as(&UNDONE, Mutation::LostResumes, |seed| Some(with(&[Scenario::JobGraphs], seed)));
}

/// G20: with `fail-fast`, the first failed job ends the others.
#[test]
fn a_job_that_is_ordered_after_the_failure_that_ends_it_is_noticed() {
    caught_playing(
        &[Scenario::JobGraphs, Scenario::FailFast],
        "which ends the others",
        Mutation::IgnoredFailFast,
    );
}

/// G20: jobs behind a change with `hold-following-changes` wait for that job.
#[test]
fn a_job_that_is_ordered_while_a_change_ahead_holds_it_is_noticed() {
    caught_playing(&[Scenario::HoldFollowing], "holds it", Mutation::NothingHolds);
}

/// S07: a job gets the artifacts of the changes that it is tested on, once all exist.
#[test]
fn a_job_that_is_not_given_what_it_requires_is_noticed() {
    caught_playing(&[Scenario::Artifacts], "before the artifact of", Mutation::NothingRequired);
    caught_playing(&[Scenario::Artifacts], "gets artifacts of", Mutation::DroppedProviders);
}

/// Returns a site with autoholds.
fn with_holds(seed: u64) -> Shape {
    Shape { actions: 12, ..with(&[Scenario::Autoholds], seed) }
}

/// C2, N05, N15: sites with held nodes do not fail.
#[test]
fn a_site_where_nodes_are_held_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        if let Err(failure) = play(seed, Settings { mutation: None, shape: Some(with_holds(seed)) })
        {
            panic!("{failure}\n\nthe site of seed {seed} where nodes are held fails");
        }
    }
}

/// N15: only nodes of failed builds are held, and each is counted.
#[test]
fn a_node_that_is_held_without_a_reason_is_noticed() {
    caught_with("which passed", Mutation::HeldThoughPassed, with_holds);
    caught_with("without being counted by a request", Mutation::UncountedHolds, with_holds);
}

/// Returns a site where operators pause events and results for long.
fn with_pauses(seed: u64) -> Shape {
    let fault_profile = FaultProfile { name: "calm", waits: 100, ..FaultProfile::default() };
    Shape {
        actions: 16,
        pause_millis_max: 30_000,
        fault_profile,
        ..with(&[Scenario::EventPauses], seed)
    }
}

/// C2: paused events continue after the resume, and none is lost.
#[test]
fn a_site_whose_events_are_held_back_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        if let Err(failure) =
            play(seed, Settings { mutation: None, shape: Some(with_pauses(seed)) })
        {
            panic!("{failure}\n\nthe site of seed {seed} whose events are held back fails");
        }
    }
    all_kept(&[Scenario::EventPauses]);
}

/// C2: paused events and results are not processed.
#[test]
fn processing_of_paused_events_and_results_is_noticed() {
    caught_with("an operator pauses events", Mutation::IgnoredEventPauses, with_pauses);
    caught_with("an operator pauses results", Mutation::IgnoredResultPauses, with_pauses);
}

/// Z6.1: open changes of a project are tested again after a landing.
#[test]
fn a_missing_retest_after_a_landing_is_noticed() {
    all_kept(&[Scenario::Rechecks]);
    let calm = |seed| {
        let fault_profile = FaultProfile { name: "calm", waits: 100, ..FaultProfile::default() };
        Shape { actions: 0, changes: 9, fault_profile, ..with(&[Scenario::Rechecks], seed) }
    };
    for mutation in [Mutation::LostChangeEvents, Mutation::LostRetests] {
        caught_with("was not tested again", mutation, calm);
    }
}

/// Returns a crowded site whose projects share a queue.
fn crowded_queue(seed: u64) -> Shape {
    let mut shape = Shape::crowded(seed);
    for (_, is_shared) in shape.tenants.iter_mut().flat_map(|tenant| &mut tenant.projects) {
        *is_shared = true;
    }
    shape
}

/// Z6.4: an item is retested only if something ahead or its branch changed.
#[test]
fn a_reset_without_a_reason_is_noticed() {
    caught_with("is tested again, although", Mutation::NeedlessResets, crowded_queue);
}

/// Z6.4: a retested item is tested on the nearest item ahead that may pass.
#[test]
fn a_change_tested_without_the_one_ahead_is_noticed() {
    caught_with("is tested without", Mutation::LostSpeculation, crowded_queue);
}

/// Z6.4: items keep their order.
#[test]
fn a_swapped_entry_is_noticed() {
    caught_with("entered first", Mutation::SwappedEntries, crowded_queue);
}

/// Z6.4: nothing is tested on a change that is known to fail.
#[test]
fn a_failed_change_that_counts_as_one_that_may_pass_is_noticed() {
    caught_with("counts as one that may pass", Mutation::ForgottenFailures, crowded_queue);
}

/// Z6.4: a build whose result no longer counts is stopped.
#[test]
fn a_build_that_is_given_up_and_not_stopped_is_noticed() {
    caught_with("is given up, but not stopped", Mutation::LostStops, crowded_queue);
}
