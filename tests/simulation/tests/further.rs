//! What seeds play from 4000000, 5000000 and 9000000 on, and changes that need each other: sites
//! that play it fail nothing, and each rule of it that is broken on purpose is noticed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_simulation::plays::Play;
use sluice_simulation::shape::Weather;
use sluice_simulation::{Mutation, Settings, Shape, play};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that are tried with each broken rule.
const SEEDS: u64 = 480;
/// Sites that are played with every rule kept.
const KEPT_SEEDS: u64 = 20;

/// A site that plays these in the place of what it draws.
fn with(plays: &[Play], seed: u64) -> Shape {
    Shape::draw(seed).playing(plays.iter().copied().collect())
}

/// The same, where everything is heard, nobody changes their mind, and much is proposed.
fn calm_with(plays: &[Play], seed: u64) -> Shape {
    let weather = Weather { name: "calm", waits: 100, ..Weather::default() };
    Shape { actions: 0, changes: 9, weather, ..with(plays, seed) }
}

/// Plays sites of this shape with every rule kept.
fn all_kept(shape: impl Fn(u64) -> Shape) {
    for seed in 1..=KEPT_SEEDS {
        if let Err(failure) = play(seed, Settings { mutation: None, shape: Some(shape(seed)) }) {
            panic!("{failure}\n\nthe site of seed {seed} fails");
        }
    }
}

/// Plays sites of this shape until one fails in these words by a broken rule. A function that
/// panics has not shown that anybody noticed.
fn caught_with(words: &str, mutation: Mutation, shape: impl Fn(u64) -> Shape) {
    for seed in 1..=SEEDS {
        let settings = Settings { mutation: Some(mutation), shape: Some(shape(seed)) };
        match catch_unwind(AssertUnwindSafe(|| play(seed, settings))) {
            Ok(Err(failure)) if failure.why.contains(words) => {
                println!("{failure}\n{mutation:?} is caught by seed {seed}");
                return;
            }
            Ok(_) => {}
            Err(_) => println!("a function panics at seed {seed}"),
        }
    }
    panic!("{mutation:?} is not noticed as {words:?} by {SEEDS} seeds");
}

/// C2: sites that play all of it at once, beside what else is drawn, fail nothing.
#[test]
fn a_site_that_plays_all_further_plays_fails_nothing() {
    all_kept(|seed| with(Play::FURTHER, seed));
    all_kept(|seed| {
        with(
            &[Play::FURTHER, &[Play::Cycles, Play::Post, Play::Gerrit, Play::Pauses]].concat(),
            seed,
        )
    });
}

/// Z6.1: what depends on a change is tested once that enters the gate.
#[test]
fn a_change_that_is_not_told_of_what_it_depends_on_entering_the_gate_is_noticed() {
    all_kept(|seed| with(&[Play::Followers], seed));
    for mutation in [Mutation::UntoldMerges, Mutation::LostRetests] {
        caught_with("was not tested after", mutation, |seed| calm_with(&[Play::Followers], seed));
    }
}

/// Z4.2: a change has the jobs that are for what it touches, and no others.
#[test]
fn a_job_that_is_left_out_though_its_files_are_touched_is_noticed() {
    all_kept(|seed| with(&[Play::Files], seed));
    all_kept(|seed| {
        with(&[Play::Files, Play::Cycles, Play::Modes, Play::FailFast, Play::Initializers], seed)
    });
    caught_with("of those that files decide about", Mutation::UnmatchedFiles, |seed| {
        with(&[Play::Files], seed)
    });
}

/// Z6.1: what operators offer by its ref comes in as the commit that they named.
#[test]
fn a_ref_that_an_operator_offers_in_vain_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { actions: 16, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::OfferedRefs], seed));
    all_kept(|seed| busy(&[Play::OfferedRefs, Play::Pauses, Play::Post, Play::Modes], seed));
    caught_with("never came to be tested", Mutation::LostRefs, |seed| {
        busy(&[Play::OfferedRefs], seed)
    });
}

/// Z6.1: a tag is tested as the commit that it was put on.
#[test]
fn a_tag_that_nobody_tests_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { actions: 16, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::Tags], seed));
    all_kept(|seed| busy(&[Play::Tags, Play::Pauses, Play::Post, Play::Gerrit], seed));
    let heard = |seed| Shape { actions: 16, ..calm_with(&[Play::Tags], seed) };
    caught_with("never came to be tested", Mutation::LostRefs, heard);
}

/// Z6.1: while an operator has events discarded nothing enters by them, and what stands goes on.
#[test]
fn what_enters_though_an_operator_has_events_discarded_is_noticed() {
    let discarding = |plays: &[Play], seed| {
        let weather = Weather { name: "calm", waits: 100, ..Weather::default() };
        Shape { actions: 16, pause_millis_max: 30_000, weather, ..with(plays, seed) }
    };
    all_kept(|seed| discarding(&[Play::Discards], seed));
    all_kept(|seed| {
        with(&[Play::Discards, Play::Pauses, Play::OfferedRefs, Play::Tags, Play::Retests], seed)
    });
    let discards = |seed| discarding(&[Play::Discards], seed);
    caught_with("an operator has events discarded", Mutation::UnheardDiscards, discards);
}

/// R09: a timer has each branch tested as it is, at each tick once.
#[test]
fn a_tick_of_a_timer_by_which_nothing_is_tested_is_noticed() {
    all_kept(|seed| with(&[Play::Timers], seed));
    all_kept(|seed| Shape { plays: [Play::Timers].into(), ..Shape::skewed(seed) });
    all_kept(|seed| {
        with(&[Play::Timers, Play::Gerrit, Play::Discards, Play::Pauses, Play::Audit], seed)
    });
    caught_with("no tick of the timer", Mutation::LostRefs, |seed| {
        calm_with(&[Play::Timers], seed)
    });
}

/// Z2.6, R01: a layout says of each item of a pipeline whether it has a job, also where it becomes
/// live while items are tested.
#[test]
fn a_job_that_some_items_of_a_layout_have_and_others_have_not_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { actions: 16, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::Reloads], seed));
    all_kept(|seed| {
        busy(
            &[Play::Reloads, Play::Audit, Play::Cycles, Play::Forward, Play::Files, Play::Timers],
            seed,
        )
    });
    caught_with("another item of layout", Mutation::HalfReloads, |seed| {
        busy(&[Play::Reloads], seed)
    });
}

/// C2: who passed or failed is told by mail at least once, and in the same words each time.
#[test]
fn a_report_whose_mail_is_never_sent_is_noticed() {
    all_kept(|seed| with(&[Play::Mails], seed));
    all_kept(|seed| with(&[Play::Mails, Play::Bursts, Play::Reloads, Play::Gerrit], seed));
    caught_with("was never sent", Mutation::LostMails, |seed| with(&[Play::Mails], seed));
}

/// R04: a pipeline is disabled after so many failures in a row, as many as left it, and tells
/// others from then on.
#[test]
fn failures_in_a_row_that_nobody_counts_are_noticed() {
    let busy = |plays: &[Play], seed| Shape { changes: 9, actions: 12, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::Disabling], seed));
    all_kept(|seed| {
        busy(&[Play::Disabling, Play::Reloads, Play::Bursts, Play::FailFast, Play::Mails], seed)
    });
    caught_with("failures in a row", Mutation::UncountedFailures, |seed| {
        busy(&[Play::Disabling], seed)
    });
}

/// Z6.1, S06: a branch that is made is tested as its first commit, and that it is deleted starts
/// nothing.
#[test]
fn a_branch_of_which_nobody_hears_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { actions: 16, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::Branches], seed));
    all_kept(|seed| {
        busy(&[Play::Branches, Play::Post, Play::Timers, Play::Reloads, Play::Pauses], seed)
    });
    let heard = |seed| Shape { actions: 16, ..calm_with(&[Play::Branches], seed) };
    caught_with("never came to be tested", Mutation::LostRefs, heard);
}

/// C2: sites that play all that was added, beside what else is drawn of it, fail nothing.
#[test]
fn a_site_that_plays_all_added_plays_fails_nothing() {
    all_kept(|seed| with(Play::ADDED, seed));
    all_kept(|seed| {
        with(
            &[Play::ADDED, &[Play::Cycles, Play::Modes, Play::Gerrit, Play::Pauses]].concat(),
            seed,
        )
    });
}

/// D16, Z6.5: a tenant takes no change in that needs more than it says, and each one that needs as
/// many.
#[test]
fn a_change_that_is_tested_though_it_needs_too_many_is_noticed() {
    all_kept(|seed| with(&[Play::FewNeeds], seed));
    all_kept(|seed| with(&[Play::FewNeeds, Play::Cycles, Play::Followers, Play::Supersedes], seed));
    let calm = |seed| calm_with(&[Play::FewNeeds], seed);
    caught_with("takes none in with more than", Mutation::UncountedNeeds, calm);
    caught_with("was never checked", Mutation::NoNeeds, calm);
}

/// N14: a job whose nodes cannot be had is run on those of its next nodeset, and not before they
/// cannot be had.
#[test]
fn a_nodeset_that_is_passed_over_or_never_asked_for_is_noticed() {
    all_kept(|seed| with(&[Play::Nodesets], seed));
    all_kept(|seed| {
        with(&[Play::Nodesets, Play::Cycles, Play::FailFast, Play::Reloads, Play::Locks], seed)
    });
    caught_with("choosy passes on that tree", Mutation::FirstNodesets, |seed| {
        calm_with(&[Play::Nodesets], seed)
    });
    caught_with("asks for Some(1) nodes", Mutation::HastyNodesets, |seed| {
        with(&[Play::Nodesets], seed)
    });
}

/// C2, R07: who passed or failed is published at least once, as it is, beside what is told by mail.
#[test]
fn a_report_that_is_never_published_or_otherwise_is_noticed() {
    all_kept(|seed| with(&[Play::Publications], seed));
    all_kept(|seed| with(&[Play::Publications, Play::Mails, Play::Bursts, Play::Reloads], seed));
    caught_with("was never published", Mutation::LostPublications, |seed| {
        with(&[Play::Publications], seed)
    });
    caught_with("was published otherwise", Mutation::MisreadPublications, |seed| {
        with(&[Play::Publications], seed)
    });
}

/// Z4.3, S01: a job is given the project that it requires, with the changes of it that its own is
/// tested on.
#[test]
fn a_project_that_a_job_requires_and_is_not_given_is_noticed() {
    all_kept(|seed| with(&[Play::RequiredProjects], seed));
    all_kept(|seed| {
        with(&[Play::RequiredProjects, Play::Cycles, Play::Forward, Play::Reloads], seed)
    });
    caught_with("is to be given", Mutation::UntoldProjects, |seed| {
        with(&[Play::RequiredProjects], seed)
    });
}

/// D10: where each change has a queue of its own, those that need each other stand in one of these,
/// and the others know in which.
#[test]
fn a_change_that_stands_in_another_queue_unknown_to_its_own_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { changes: 9, actions: 20, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::Cycles], seed));
    all_kept(|seed| {
        busy(&[Play::Cycles, Play::Gerrit, Play::Supersedes, Play::Graphs, Play::Artifacts], seed)
    });
    all_kept(|seed| {
        busy(&[Play::Cycles, Play::Mails, Play::Pauses, Play::Discards, Play::Bursts], seed)
    });
    caught_with("as a guest", Mutation::LostGuests, |seed| busy(&[Play::Cycles], seed));
}

/// A site with one project, where people take their time, and whatever lands may be taken back at
/// once.
fn regretting(seed: u64) -> Shape {
    let calm = calm_with(&[Play::Reverts, Play::Modes], seed);
    let mut shape = Shape { changes: 16, pause_millis_max: 3_000, ..calm };
    shape.tenants.truncate(1);
    for tenant in &mut shape.tenants {
        tenant.projects.truncate(1);
    }
    shape
}

/// Z6.4, Z6.5: what landed and was taken back since does not come again by the landing of what
/// needs it, however projects merge.
#[test]
fn what_comes_again_with_what_needs_it_after_it_was_taken_back_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { changes: 9, actions: 16, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::Reverts, Play::Modes], seed));
    all_kept(|seed| {
        busy(
            &[Play::Reverts, Play::Modes, Play::Cycles, Play::TwoGates, Play::Forward, Play::Post],
            seed,
        )
    });
    all_kept(regretting);
    // Its branch is never what it would be tested on.
    caught_with("does not come to rest", Mutation::ForgottenLandings, regretting);
}

/// Z6.1: a pipeline holds no more changes than its tenant says, and takes in what it has room for.
#[test]
fn a_pipeline_that_holds_too_many_changes_or_has_room_and_says_that_it_has_not_is_noticed() {
    let busy = |plays: &[Play], seed| Shape { changes: 9, actions: 16, ..with(plays, seed) };
    all_kept(|seed| busy(&[Play::FewChanges], seed));
    all_kept(|seed| {
        busy(&[Play::FewChanges, Play::Cycles, Play::Retests, Play::Post, Play::Serial], seed)
    });
    let calm = |seed| calm_with(&[Play::FewChanges], seed);
    caught_with("its tenant allows", Mutation::UncountedChanges, calm);
    caught_with("which has room for", Mutation::NoRoom, calm);
}

/// C2: sites that play all that was learnt last, beside what else is drawn, fail nothing.
#[test]
fn a_site_that_plays_all_recent_plays_fails_nothing() {
    all_kept(|seed| with(Play::RECENT, seed));
    let others =
        [Play::Cycles, Play::Modes, Play::Gerrit, Play::Pauses, Play::Bursts, Play::Timers];
    all_kept(|seed| with(&[Play::RECENT, Play::ADDED, &others].concat(), seed));
}
