//! That the simulator would notice: each rule is broken on purpose, and at least one seed of a few
//! fails by it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_model::poke::Queue;
use sluice_simulation::plays::{FURTHER_FROM, LATEST_FROM, NEWEST_FROM, Play};
use sluice_simulation::shape::Weather;
use sluice_simulation::{Cell, Mutation, Settings, Shape, Told, play};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that are tried with each broken rule.
const SEEDS: u64 = 480;
/// Crowded sites that are played with every rule kept.
const KEPT_SEEDS: u64 = 60;

/// What is said of a site where something is missing at the end, or keeps it from coming to one.
const UNDONE: [&str; 3] = ["at the end", "does not come to rest", "has not ended"];
/// What is said of a record that is written by somebody who had not seen the one before.
const UNSEEN: [&str; 2] = ["without having seen it", "revision falls"];

/// Plays seeds until one fails by a broken rule; returns why. Every other one is of a crowded site,
/// where many meet.
fn caught(mutation: Mutation) -> String {
    caught_at(mutation, crowded_now_and_then)
}

fn crowded_now_and_then(seed: u64) -> Option<Shape> {
    seed.is_multiple_of(2).then(|| Shape::crowded(seed))
}

/// The same at sites of this shape.
fn caught_at(mutation: Mutation, shape: impl Fn(u64) -> Option<Shape>) -> String {
    caught_as(&[""], mutation, shape)
}

/// Plays seeds until one fails in some of these words by a broken rule; returns why. Whatever else
/// it breaks first elsewhere is not asked. A function that panics has not shown that anybody
/// noticed: another seed has to.
fn caught_as(words: &[&str], mutation: Mutation, shape: impl Fn(u64) -> Option<Shape>) -> String {
    for seed in 1..=SEEDS {
        let settings = Settings { mutation: Some(mutation), shape: shape(seed) };
        match catch_unwind(AssertUnwindSafe(|| play(seed, settings))) {
            Ok(Err(failure)) if words.iter().any(|word| failure.why.contains(word)) => {
                println!("{failure}\n{mutation:?} is caught by seed {seed}");
                return failure.why;
            }
            Ok(_) => {}
            Err(_) => println!("a function panics at seed {seed}"),
        }
    }
    panic!("{mutation:?} is not noticed as {words:?} by {SEEDS} seeds");
}

/// Plays seeds until one fails in these words by a broken rule.
fn caught_with(words: &str, mutation: Mutation, shape: impl Fn(u64) -> Shape) {
    caught_as(&[words], mutation, |seed| Some(shape(seed)));
}

/// C2: a head is written only by who has seen the one before.
#[test]
fn a_head_that_is_written_unseen_is_noticed() {
    for cell in
        [Cell::Queue, Cell::Provider, Cell::Tenant, Cell::Landing, Cell::Delivery, Cell::Told]
    {
        let why = caught(Mutation::NoRevision(cell));
        assert!(
            why.contains("without having seen it") || why.contains("revision falls"),
            "{cell:?}: {why}"
        );
    }
}

/// Z7.6: a build has one owner.
#[test]
fn a_build_that_is_claimed_twice_is_noticed() {
    let why = caught(Mutation::ClaimedTwice);
    let words = ["without having seen it", "revision falls", "takes it from"];
    assert!(words.iter().any(|word| why.contains(word)), "{why}");
}

/// Z7.6, N05
#[test]
fn a_build_that_is_claimed_after_its_stop_is_noticed() {
    assert!(caught(Mutation::ClaimedThoughStopped).contains("though it was to stop"));
}

/// C2: the same sites with every rule kept, so that it is the broken rule that fails.
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
fn a_semaphore_that_is_taken_unseen_is_noticed() {
    caught_as(&UNSEEN, Mutation::UncheckedSemaphore, crowded_now_and_then);
}

/// C2: a decision is written whole or not at all.
#[test]
fn a_transaction_that_is_torn_is_noticed() {
    // A head without what it names; or, of a decision that was lost, what goes with it all the
    // same.
    let words = ["and its record is another one", "has no item", UNSEEN[0], UNSEEN[1]];
    caught_as(&words, Mutation::TornTransactions, crowded_now_and_then);
}

/// C2: an unknown error means deliver again.
#[test]
fn an_error_that_acknowledges_its_message_is_noticed() {
    let why = caught(Mutation::AcknowledgedErrors);
    // What is lost is missing at the end, or before it where somebody goes on as if he had it.
    let words = ["at the end", "does not come to rest", "by somebody who had not looked at"];
    assert!(words.iter().any(|words| why.contains(words)), "{why}");
}

/// C2: who dies between commit and sending has said what is to be sent.
#[test]
fn an_outbox_that_is_not_kept_is_noticed() {
    let why = caught(Mutation::LostOutboxes);
    assert!(why.contains("at the end") || why.contains("does not come to rest"), "{why}");
}

/// C2: who waits, looks.
#[test]
fn records_that_are_never_due_are_noticed() {
    caught_as(&UNDONE, Mutation::NothingDue, crowded_now_and_then);
}

/// C2: a queue that takes nothing is mended by nobody.
#[test]
fn a_queue_that_loses_everything_is_noticed() {
    caught_as(&UNDONE, Mutation::Mute(Queue::Merges), crowded_now_and_then);
}

/// Z6.4: the oracle knows what passes.
#[test]
fn an_executor_that_lies_is_noticed() {
    assert!(caught(Mutation::LyingExecutor).contains("passes on that tree: false"));
}

/// Z6.4: what lands is what was tested.
#[test]
fn a_forge_that_merges_something_else_is_noticed() {
    assert!(caught(Mutation::LyingForge).contains("something else than both together"));
}

/// C5: a build whose end is forgotten holds up its queue.
#[test]
fn an_end_that_is_never_written_is_noticed() {
    caught_as(&UNDONE, Mutation::ForgottenEnds, crowded_now_and_then);
}

/// C2, Z7.3: the same sites with every rule kept, where clocks are ten minutes off to either side.
#[test]
fn a_site_whose_clocks_are_far_apart_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        let settings = Settings { mutation: None, shape: Some(Shape::skewed(seed)) };
        if let Err(failure) = play(seed, settings) {
            panic!("{failure}\n\nthe skewed site of seed {seed} fails");
        }
    }
}

/// Z6.3: news of a change are taken in by its forge's clock, and not by those of the intakes.
#[test]
fn news_that_are_taken_in_by_the_clocks_of_intakes_are_noticed() {
    let why = caught_at(Mutation::NoForgeClock, |seed| Some(Shape::skewed(seed)));
    // Older news that pass for newer ones leave a change as it was once, or take it out for what
    // was so once.
    assert!(why.contains("at the end") || why.contains("but nobody took it out"), "{why}");
}

/// R06: an operator's word is done in the decision that takes it in.
#[test]
fn an_operator_who_is_misheard_is_noticed() {
    let why = caught(Mutation::MisheardOperators);
    assert!(why.contains("an operator "), "{why}");
}

/// A site that plays these in the place of what it draws.
fn with(plays: &[Play], seed: u64) -> Shape {
    Shape::draw(seed).playing(plays.iter().copied().collect())
}

/// C2, Z6.5, N16: sites that play whatever can be played, with every rule kept.
#[test]
fn a_site_that_plays_everything_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        // Every other one at GitHub alone.
        let plays =
            Play::ALL.into_iter().filter(|play| *play != Play::Gerrit || seed.is_multiple_of(2));
        let settings =
            Settings { mutation: None, shape: Some(with(&plays.collect::<Vec<_>>(), seed)) };
        if let Err(failure) = play(seed, settings) {
            panic!("{failure}\n\nthe site of seed {seed} that plays everything fails");
        }
    }
}

/// C2, G09, G11, G12, Z6.5: sites at a Gerrit, with votes, chains and topics, fail nothing, and
/// land what may.
#[test]
fn a_site_at_a_gerrit_fails_nothing() {
    let mut landed = 0;
    for seed in 1..=KEPT_SEEDS {
        let plays = [Play::Gerrit, Play::Cycles, Play::SecondThoughts, Play::Bursts];
        let settings = Settings { mutation: None, shape: Some(with(&plays, seed)) };
        match play(seed, settings) {
            Ok(told) => landed += told.landed,
            Err(failure) => panic!("{failure}\n\nthe site of seed {seed} at a Gerrit fails"),
        }
    }
    assert!(landed > KEPT_SEEDS / 2, "{landed}");
}

/// G11, G12: votes that were taken back are asked for once more before anything is merged.
#[test]
fn a_landing_that_asks_for_no_votes_is_noticed() {
    let plays = [Play::Gerrit, Play::SecondThoughts];
    caught_with("not approved", Mutation::ForgottenAsks, |seed| with(&plays, seed));
}

/// N16: those of several semaphores, and of such as are taken with nodes in hand, as well.
#[test]
fn any_semaphore_that_is_taken_unseen_is_noticed() {
    caught_as(&UNSEEN, Mutation::UncheckedSemaphore, |seed| Some(with(&[Play::Locks], seed)));
}

/// Z6.5: what enters a pipeline that supersedes another one leaves that.
#[test]
fn a_change_that_stays_where_it_was_superseded_is_noticed() {
    let why =
        caught_at(Mutation::MisheardSuperseding, |seed| Some(with(&[Play::Supersedes], seed)));
    assert!(why.contains("and it is still here"), "{why}");
}

/// Z5.3: a project's secret is for changes that somebody has reviewed.
#[test]
fn a_secret_in_a_build_of_what_nobody_reviewed_is_noticed() {
    let why = caught(Mutation::LeakyPipeline);
    assert!(why.contains("is given secret-"), "{why}");
}

/// G12, Z6.4: what a pipeline requires is asked once more before anything is merged, for who took
/// an approval back may not have been heard yet.
#[test]
fn a_landing_that_asks_for_no_approval_is_noticed() {
    let why = caught_at(Mutation::ForgottenAsks, |seed| Some(with(&[Play::SecondThoughts], seed)));
    assert!(why.contains("not approved"), "{why}");
}

/// C2: a group of messages is served within its bound.
#[test]
fn a_queue_that_nobody_serves_is_noticed() {
    for queue in [Queue::Reports, Queue::Gate] {
        let why = caught(Mutation::Unserved(queue));
        assert!(why.contains("waits since") || why.contains("has not ended"), "{why}");
    }
}

/// C2, C3: what has ended stays as it ended.
#[test]
fn a_delivery_that_goes_on_after_its_end_is_noticed() {
    let why = caught(Mutation::ReopenedDeliveries);
    assert!(why.contains("a delivery had ended"), "{why}");
}

/// C2, G01: what was told is not told again, nor is what nobody is to be told any more.
#[test]
fn a_report_that_goes_on_after_its_end_is_noticed() {
    caught_as(&["a report had ended"], Mutation::ReopenedReports, crowded_now_and_then);
}

/// Z6.4: whatever bears an older generation is ignored, so that none may come twice.
#[test]
fn a_generation_that_falls_is_noticed() {
    let why = caught(Mutation::FallingGenerations);
    assert!(why.contains("its generation falls"), "{why}");
}

/// Z2.3: only what is wanted is live.
#[test]
fn a_layout_that_nobody_wants_is_noticed() {
    let why = caught(Mutation::LayoutsAhead);
    assert!(why.contains("is live, and"), "{why}");
}

/// N05: a provider's quota counts all that is there.
#[test]
fn nodes_that_are_not_counted_are_noticed() {
    let why = caught(Mutation::UncountedNodes);
    assert!(why.contains("machines may exist"), "{why}");
}

/// G16: a window is what follows from how changes left.
#[test]
fn a_window_that_is_wider_than_it_may_be_is_noticed() {
    let why = caught_at(Mutation::StretchedWindows, |seed| Some(with(&[Play::Windows], seed)));
    assert!(why.contains("its window was"), "{why}");
}

/// S02: a project says how its changes are merged.
#[test]
fn a_change_that_is_merged_in_another_way_is_noticed() {
    let why = caught_at(Mutation::OtherModes, |seed| Some(with(&[Play::Modes], seed)));
    assert!(why.contains("and its project says"), "{why}");
}

/// Z6.4: whichever queues hold a branch, one of them lands there at a time.
#[test]
fn a_landing_out_of_turn_is_noticed() {
    caught_with("land on one branch at once", Mutation::OutOfTurn, |seed| {
        with(&[Play::TwoGates], seed)
    });
}

/// Plays sites of these plays with every rule kept; returns what came of all together.
fn all_kept(plays: &[Play]) -> Vec<Told> {
    let mut all = Vec::new();
    for seed in 1..=KEPT_SEEDS {
        let settings = Settings { mutation: None, shape: Some(with(plays, seed)) };
        match play(seed, settings) {
            Ok(told) => all.push(told),
            Err(failure) => {
                panic!("{failure}\n\nthe site of seed {seed} that plays {plays:?} fails")
            }
        }
    }
    all
}

/// C2, Z6.4: sites whose branches are moved to what was tested fail nothing, and one push lands
/// several changes now and then.
#[test]
fn a_site_whose_branches_are_moved_to_what_was_tested_fails_nothing() {
    let told = all_kept(&[Play::Forward]);
    let (landed, runs) = (
        told.iter().map(|told| told.landed).sum::<u64>(),
        told.iter().map(|told| told.runs).sum::<u64>(),
    );
    assert!(
        landed > KEPT_SEEDS / 2 && runs > 0,
        "{landed} changes landed, {runs} pushes landed several"
    );
}

/// C2, Z4.3: sites where a job runs after the report fail nothing, and what is behind one that
/// fails is tested again.
#[test]
fn a_site_whose_jobs_run_after_reports_fails_nothing() {
    let told = all_kept(&[Play::Reporters]);
    let again = told.iter().map(|told| told.tested_again).sum::<u64>();
    assert!(again > 0, "nothing stood behind a job that failed after its report");
}

/// C2, Z4.3, Z6.4: both at once, where people think again and two gates want one branch.
#[test]
fn a_site_whose_branches_are_moved_and_whose_jobs_run_after_reports_fails_nothing() {
    let told = all_kept(&[Play::Forward, Play::Reporters, Play::SecondThoughts, Play::TwoGates]);
    assert!(told.iter().map(|told| told.landed).sum::<u64>() > KEPT_SEEDS / 2);
}

/// Z6.4: a push brings what passed, and nothing of what is tested behind it.
#[test]
fn a_push_that_brings_what_did_not_pass_is_noticed() {
    caught_with("no landing leads there", Mutation::Overreach, |seed| with(&[Play::Forward], seed));
}

/// Z6.4: whichever queues hold a branch, one of them lands there at a time, also where one of them
/// lands several changes.
#[test]
fn a_run_out_of_turn_is_noticed() {
    caught_with("land on one branch at once", Mutation::OutOfTurn, |seed| {
        with(&[Play::Forward, Play::TwoGates], seed)
    });
}

/// Z4.3: what runs after the report does not begin before.
#[test]
fn a_job_that_runs_before_its_report_is_noticed() {
    caught_with("has not been reported", Mutation::EarlyReporters, |seed| {
        with(&[Play::Reporters], seed)
    });
}

/// R01: an item has the jobs that its configuration names, and none is missing.
#[test]
fn a_job_that_is_dropped_is_noticed() {
    caught_with("and is to have", Mutation::DroppedJobs, Shape::draw);
}

/// Z6.5: a change that depends on another one is not lost on its way into a queue.
#[test]
fn a_change_that_is_lost_as_it_depends_on_another_one_is_noticed() {
    let calm = |seed| {
        let weather = Weather { name: "calm", waits: 100, ..Weather::default() };
        Shape { actions: 0, weather, ..Shape::draw(seed) }
    };
    caught_with("was never checked", Mutation::LostDependents, calm);
}

/// Z7.6: a build that was claimed without an answer, and given up since nobody ran it, is ended by
/// who claimed it.
#[test]
fn a_claim_without_an_answer_that_nobody_looks_after_is_noticed() {
    let lies = |seed| {
        let weather = Weather { name: "lies", waits: 300, fails_after: 25, ..Weather::default() };
        Shape { executors: 3, weather, ..Shape::draw(seed) }
    };
    caught_with("its executor goes on", Mutation::UnsettledClaims, lies);
}

/// Plays sites of these plays until one fails in these words by a broken rule.
fn caught_playing(plays: &[Play], words: &str, mutation: Mutation) {
    caught_with(words, mutation, |seed| with(plays, seed));
}

/// C2, J12, G20: sites whose jobs depend on each other, pause, hold others or end them fail
/// nothing.
#[test]
fn a_site_whose_jobs_depend_on_each_other_fails_nothing() {
    let told = all_kept(&Play::LATEST);
    assert!(told.iter().map(|told| told.landed).sum::<u64>() > KEPT_SEEDS / 2);
    all_kept(&[Play::Graphs]);
}

/// C2, J12, G20, N16, Z4.3: the same beside bundles, semaphores, reports, windows and second gates.
#[test]
fn a_site_whose_jobs_depend_on_each_other_fails_nothing_beside_whatever_else_is_played() {
    let others =
        [Play::Cycles, Play::Locks, Play::Reporters, Play::Forward, Play::Windows, Play::TwoGates];
    all_kept(&[&Play::LATEST[..], &others].concat());
}

/// J12: a job is ordered once those that it depends on have passed, and those that come before all.
#[test]
fn a_job_that_is_ordered_before_its_turn_is_noticed() {
    for plays in [[Play::Graphs], [Play::Initializers]] {
        caught_playing(&plays, "is ordered before its turn", Mutation::ForgottenDependencies);
    }
}

/// J12: one that only waits for another one is run however that ends.
#[test]
fn a_job_that_is_left_out_without_a_reason_is_noticed() {
    caught_playing(
        &[Play::Graphs],
        "nothing that it depends on bars it",
        Mutation::HardDependencies,
    );
}

/// Z4.3: what a job returns says which of those behind it are run.
#[test]
fn a_job_that_is_run_though_it_was_not_chosen_is_noticed() {
    caught_playing(&[Play::Graphs], "left it out", Mutation::UntoldChoices);
}

/// J14: a job that does not vote keeps nothing out.
#[test]
fn a_change_that_is_kept_out_by_a_job_without_a_vote_is_noticed() {
    caught_playing(&[Play::Graphs], "every job passed", Mutation::AllVote);
}

/// Z4.3: a paused build goes on once all behind it is over, and not before.
#[test]
fn a_paused_build_that_goes_on_too_soon_or_never_is_noticed() {
    caught_playing(&[Play::Graphs], "before it was told to", Mutation::HastyResumes);
    caught_as(&UNDONE, Mutation::LostResumes, |seed| Some(with(&[Play::Graphs], seed)));
}

/// G20: the first job that fails ends the others where the project asks for that.
#[test]
fn a_job_that_is_ordered_after_the_failure_that_ends_it_is_noticed() {
    caught_playing(
        &[Play::Graphs, Play::FailFast],
        "which ends all others",
        Mutation::PatientProjects,
    );
}

/// G20: what is behind a change whose job holds it waits for that job.
#[test]
fn a_job_that_is_ordered_while_a_change_ahead_holds_it_is_noticed() {
    caught_playing(&[Play::Heralds], "holds it", Mutation::NothingHolds);
}

/// S07: a job is given what the changes made that its own is tested on, once all of it is there.
#[test]
fn a_job_that_is_not_given_what_it_requires_is_noticed() {
    caught_playing(&[Play::Artifacts], "is not there", Mutation::NothingRequired);
    caught_playing(&[Play::Artifacts], "and is to be given", Mutation::EmptyHands);
}

/// A site where operators want nodes of failed builds kept.
fn with_holds(seed: u64) -> Shape {
    Shape { actions: 12, ..with(&[Play::Autoholds], seed) }
}

/// C2, N05, N15: sites where nodes of failed builds are kept fail nothing.
#[test]
fn a_site_where_nodes_are_held_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        if let Err(failure) = play(seed, Settings { mutation: None, shape: Some(with_holds(seed)) })
        {
            panic!("{failure}\n\nthe site of seed {seed} where nodes are held fails");
        }
    }
}

/// N15: nodes are kept of what failed, and each is counted.
#[test]
fn a_node_that_is_held_without_a_reason_is_noticed() {
    caught_with("which passed", Mutation::HeldThoughPassed, with_holds);
    caught_with("nobody's wish counts it", Mutation::UncountedHolds, with_holds);
}

/// A site where operators have events and answers wait, for long enough that somebody would take
/// them in by mistake.
fn with_pauses(seed: u64) -> Shape {
    let weather = Weather { name: "calm", waits: 100, ..Weather::default() };
    Shape { actions: 16, pause_millis_max: 30_000, weather, ..with(&[Play::Pauses], seed) }
}

/// C2: what waited for an operator goes on when it may, and nothing of it is lost.
#[test]
fn a_site_whose_events_are_held_back_fails_nothing() {
    for seed in 1..=KEPT_SEEDS {
        if let Err(failure) =
            play(seed, Settings { mutation: None, shape: Some(with_pauses(seed)) })
        {
            panic!("{failure}\n\nthe site of seed {seed} whose events are held back fails");
        }
    }
    all_kept(&[Play::Pauses]);
}

/// C2: events and answers that an operator has wait are not taken in.
#[test]
fn what_is_taken_in_though_an_operator_has_it_wait_is_noticed() {
    caught_with("an operator has what comes wait", Mutation::UnheardPauses, with_pauses);
    caught_with("an operator has answers wait", Mutation::HastyAnswers, with_pauses);
}

/// Z6.1: the open changes of a project are told of what landed there, and tested again.
#[test]
fn a_change_that_is_not_told_of_what_landed_beside_it_is_noticed() {
    all_kept(&[Play::Retests]);
    let calm = |seed| {
        let weather = Weather { name: "calm", waits: 100, ..Weather::default() };
        Shape { actions: 0, changes: 9, weather, ..with(&[Play::Retests], seed) }
    };
    for mutation in [Mutation::UntoldMerges, Mutation::LostRetests] {
        caught_with("was not tested again", mutation, calm);
    }
}

/// A crowded site whose projects share a queue.
fn crowded_queue(seed: u64) -> Shape {
    let mut shape = Shape::crowded(seed);
    for (_, is_shared) in shape.tenants.iter_mut().flat_map(|tenant| &mut tenant.projects) {
        *is_shared = true;
    }
    shape
}

/// Z6.4: what is tested second is tested anew where something ahead of it changed, and nowhere
/// else. That it is, is allowed; so only who decides again from the same facts notices.
#[test]
fn a_reset_without_a_reason_is_noticed() {
    caught_with("the state of", Mutation::NeedlessResets, crowded_queue);
}

/// Z6.4: what is tested anew is so behind the nearest one that may pass.
#[test]
fn a_change_that_stays_on_its_branch_though_the_one_ahead_may_pass_is_noticed() {
    caught_with("is tested on: its branch was decided", Mutation::StaysAside, crowded_queue);
}

/// Z6.4: who came first stands first.
#[test]
fn a_change_that_takes_the_place_of_the_one_before_it_is_noticed() {
    caught_with("the order: ", Mutation::SwappedPlaces, crowded_queue);
}

/// C2: few decisions are believed since they may have been cut by the size of a transaction,
/// somewhat more where changes have many jobs; the others are made again.
#[test]
fn nearly_every_decision_is_replayed() {
    for (first, of_believed) in [(1, 10), (NEWEST_FROM, 10), (LATEST_FROM, 6), (FURTHER_FROM, 6)] {
        let (mut replayed, mut believed) = (0, 0);
        for seed in first..first + KEPT_SEEDS {
            match play(seed, Settings::default()) {
                Ok(told) => {
                    (replayed, believed) = (replayed + told.replayed, believed + told.believed)
                }
                Err(failure) => panic!("{failure}\n\nseed {seed} fails"),
            }
        }
        let counted = format!("from seed {first} on {replayed} replayed, {believed} believed");
        assert!(replayed > 20 * KEPT_SEEDS && believed * of_believed < replayed, "{counted}");
    }
}
