//! Tables of what the reporter does next: a row for each precondition, state and answer.

mod preconditions;
mod requests;

use super::observation::{
    Answer, Clocks, IntentResult, MemberView, MergeAnswer, Observation, PushAnswer, ReadMember,
    Retry,
};
use super::*;
use sluice_config::Pattern;
use sluice_config::pipeline::{FilterKind, GitHubFilter, Manager};
use sluice_model::git::Oid;

/// When all runs of the tables begin, by all clocks.
const NOW: Timestamp = Timestamp(10_000_000);

/// A landing together with everything that a run may observe of it: the table's rows change one
/// thing. [`Case::step`] gives the machine only what it asks for.
struct Case {
    landing: Landing,
    answers: Observation,
    now: Clocks,
}

fn commit(id: &str, tree: &str) -> Commit {
    Commit { id: id.into(), tree: tree.into() }
}

fn change(number: u64) -> ChangeRef {
    let project = format!("org/p{number}").as_str().into();
    ChangeRef {
        key: ChangeKey::change("forge".into(), project, number),
        head: "head".into(),
        branch: "main".into(),
        patchset: "1".to_owned(),
    }
}

impl Case {
    /// Returns a landing that is ordered, of a change that is approved, open and as tested, on a
    /// branch that has not moved: the forge is asked to merge it, and it lands.
    fn new() -> Self {
        let clocks = Clocks { own: NOW, forge: Some(NOW) };
        let facts = ChangeFacts::bare(change(1), NOW);
        let landing = Landing {
            item: ItemId::from("item"),
            generation: 1,
            queue: QueueKey {
                tenant: "tenant".into(),
                pipeline: "gate".into(),
                queue: "queue".into(),
            },
            change: change(1),
            needs: Vec::new(),
            mode: MergeMode::Merge,
            method: LandingMethod::Merge,
            followers: Vec::new(),
            base: commit("base", "base-tree"),
            tested: commit("tested", "tested-tree"),
            changes_configuration: false,
            later_members: Vec::new(),
            merged_members: Vec::new(),
            requirements: Some(MergeRequirements { entered_at: NOW, ..Default::default() }),
            fence: 1,
            merge_attempted: false,
            has_unanswered_push: false,
            trouble: None,
            unverifiable_since: None,
            ordered_at: NOW,
            state: LandingState::Ordered,
        };
        let mut answers = Observation::new(None, clocks);
        answers.before.contains_tested = Some(false);
        answers.before.change = Some(Ok(facts.clone()));
        answers.before.tip = Some(Ok(commit("base", "base-tree")));
        answers.before.merged = Some(Ok(commit("merged", "tested-tree")));
        answers.dependencies = Some(Ok(()));
        answers.is_push_ready = Some(true);
        answers.intent = Some(IntentResult::Stored(Some(NOW.plus_seconds(60))));
        answers.push = Some(PushAnswer::Made);
        answers.merge = Some(MergeAnswer::Merged("merged".into()));
        answers.after.change = Some(Ok(facts));
        answers.after.tip = Some(Ok(commit("merged", "tested-tree")));
        answers.after.merged = Some(Ok(commit("merged", "tested-tree")));
        answers.contains_tested_at_end = Some(false);
        answers.tested = Some(Ok(commit("tested", "tested-tree")));
        Self { landing, answers, now: clocks }
    }

    /// Returns the same, with the branch pushed to the tested commit.
    fn by_push() -> Self {
        let mut case = Self::new();
        case.landing.method = LandingMethod::FastForward;
        case
    }

    /// Returns a landing whose forge was asked to merge by an earlier run, which may still take
    /// effect for a minute.
    fn merging() -> Self {
        let mut case = Self::new();
        case.landing.merge_attempted = true;
        case.landing.state = LandingState::Merging(Attempt {
            tip: commit("base", "base-tree"),
            in_flight_until: Some(NOW.plus_seconds(60)),
        });
        case
    }

    /// Returns a landing whose branch was pushed by an earlier run, which may still take effect for
    /// a minute.
    fn pushing() -> Self {
        let mut case = Self::by_push();
        case.landing.merge_attempted = true;
        case.landing.state = LandingState::Pushing(Attempt {
            tip: commit("base", "base-tree"),
            in_flight_until: Some(NOW.plus_seconds(60)),
        });
        case
    }

    /// Returns the same after the time in which the earlier request may take effect.
    fn much_later(mut self) -> Self {
        let later = NOW.plus_seconds(120);
        self.now = Clocks { own: later, forge: Some(later) };
        self.answers.started = self.now;
        self.answers.intent = Some(IntentResult::Stored(Some(later.plus_seconds(60))));
        self
    }

    /// Returns the first member of a bundle with a second one, which can be merged.
    fn bundle() -> Self {
        let mut case = Self::new();
        case.landing.later_members = vec![LaterMember {
            item: ItemId::from("second"),
            generation: 1,
            change: change(2),
            base: commit("base2", "base2-tree"),
            configures: false,
            fence: 1,
        }];
        case.answers.members = vec![MemberView::Read(Box::new(ReadMember {
            facts: ChangeFacts::bare(change(2), NOW),
            dependencies: Ok(()),
            tip: Some(Ok(commit("base2", "base2-tree"))),
        }))];
        case
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Changes the facts of the change before the request.
    fn facts(self, change: impl FnOnce(&mut ChangeFacts)) -> Self {
        self.with(|case| {
            if let Some(Ok(facts)) = &mut case.answers.before.change {
                change(facts);
            }
        })
    }

    /// Changes what is read of the second member of a bundle.
    fn member(self, change: impl FnOnce(&mut ReadMember)) -> Self {
        self.with(|case| {
            if let Some(MemberView::Read(member)) = case.answers.members.first_mut() {
                change(member);
            }
        })
    }

    /// Plays the run, and returns its steps other than reading, in words. Fails if it does not end.
    fn steps(&self) -> Vec<String> {
        let mut seen = Observation::new(self.answers.due, self.answers.started);
        let mut steps = Vec::new();
        for _ in 0..40 {
            match next(&self.landing, &seen, self.now).unwrap() {
                Step::Observe(query) => self.answer(&mut seen, query),
                Step::WriteIntent { method, .. } => {
                    let what = if method.is_merge() { "intend merge" } else { "intend push" };
                    steps.push(what.to_owned());
                    seen.intent = self.answers.intent;
                }
                Step::Push => {
                    steps.push("push".to_owned());
                    seen.push = self.answers.push.clone();
                }
                Step::ReplacePush(push) => {
                    steps.push(format!("replace {push:?} push").to_lowercase());
                    seen.is_push_replaced = true;
                }
                Step::Merge => {
                    steps.push("merge".to_owned());
                    seen.merge = self.answers.merge.clone();
                }
                Step::NoteUnverifiable { .. } => {
                    steps.push("note unverifiable".to_owned());
                    return steps;
                }
                Step::Wait(Retry { why, .. }) => {
                    steps.push(format!("wait: {why}"));
                    return steps;
                }
                Step::Postpone { why } => {
                    steps.push(format!("postpone: {why}"));
                    return steps;
                }
                Step::End { end, is_rest_unmerged } => {
                    let alarm = if is_rest_unmerged { " with alarm" } else { "" };
                    steps.push(format!("{}{alarm}", words(&end)));
                    return steps;
                }
            }
        }
        panic!("the run does not end: {steps:?}")
    }

    /// Adds the answer to a query.
    fn answer(&self, seen: &mut Observation, query: ForgeQuery) {
        let all = &self.answers;
        match query {
            ForgeQuery::ForgeTime => {
                seen.is_forge_time_read = true;
                seen.started.forge = self.now.forge;
            }
            ForgeQuery::ContainsTested => seen.before.contains_tested = all.before.contains_tested,
            ForgeQuery::ContainsTestedAtEnd => {
                seen.contains_tested_at_end = all.contains_tested_at_end
            }
            ForgeQuery::Change(WhichView::Before) => seen.before.change = all.before.change.clone(),
            ForgeQuery::Change(WhichView::After) => seen.after.change = all.after.change.clone(),
            ForgeQuery::Dependencies => seen.dependencies = all.dependencies.clone(),
            ForgeQuery::Tip(WhichView::Before) => seen.before.tip = all.before.tip.clone(),
            ForgeQuery::Tip(WhichView::After) => seen.after.tip = all.after.tip.clone(),
            ForgeQuery::Member(index) => seen.members.push(all.members[index].clone()),
            ForgeQuery::PushReadiness => seen.is_push_ready = all.is_push_ready,
            ForgeQuery::Merged(WhichView::Before, _) => {
                seen.before.merged = all.before.merged.clone()
            }
            ForgeQuery::Merged(WhichView::After, _) => seen.after.merged = all.after.merged.clone(),
            ForgeQuery::Tested => seen.tested = all.tested.clone(),
        }
    }

    /// Checks the steps: those before the last one, and the start of the last one.
    #[track_caller]
    fn leads_to(&self, expected: &[&str]) {
        let steps = self.steps();
        let fits = steps.len() == expected.len()
            && steps.iter().zip(expected).all(|(step, start)| step.starts_with(start));
        assert!(fits, "expected {expected:?}, but the run is {steps:?}");
    }
}

/// Returns a result in words.
fn words(end: &LandingEnd) -> String {
    match end {
        LandingEnd::Landed { commit } => format!("landed as {}", commit.id),
        LandingEnd::BaseMoved { tip } => format!("base moved to {}", tip.id),
        LandingEnd::MergedElsewhere { .. } => "merged elsewhere".to_owned(),
        LandingEnd::Refused { why } => format!("refused: {why}"),
        LandingEnd::Mismatch { .. } => "mismatch".to_owned(),
        LandingEnd::Unproven { .. } => "unproven".to_owned(),
    }
}

/// Returns a refusal of the forge.
fn no<T>() -> Option<Answer<T>> {
    Some(Err("404".to_owned()))
}

/// Returns an error after which a run is repeated.
fn later() -> Retry {
    Retry { why: "502".to_owned(), after_seconds: None }
}

/// Z6.4: a run that was given an answer to a request without a stored intent, or goes on after the
/// end, is a defect and does nothing.
#[test]
fn answers_to_requests_that_could_not_be_made_are_errors() {
    let case = Case::new();
    let step = |seen: &Observation, landing: &Landing| next(landing, seen, case.now);
    let empty = Observation::new(None, case.now);

    let mut seen = empty.clone();
    seen.merge = Some(MergeAnswer::Merged("merged".into()));
    assert_eq!(step(&seen, &case.landing), Err(IllegalObservation::RequestWithoutIntent));
    seen.intent = Some(IntentResult::Stale);
    assert_eq!(step(&seen, &case.landing), Err(IllegalObservation::RequestWithoutIntent));
    seen.intent = case.answers.intent;
    seen.is_push_ready = Some(true);
    assert_eq!(step(&seen, &case.landing), Err(IllegalObservation::MergeDuringPush));

    let mut seen = Observation { intent: case.answers.intent, ..empty.clone() };
    seen.push = Some(PushAnswer::Made);
    assert_eq!(step(&seen, &case.landing), Err(IllegalObservation::PushWithoutCommits));

    let state = LandingState::Ended { end: LandingEnd::Refused { why: String::new() }, at: NOW };
    let ended = Landing { state, ..case.landing.clone() };
    assert_eq!(step(&empty, &ended), Err(IllegalObservation::Ended));
}

/// G12, Z6.4: a landing's record is bounded, however large a pipeline's filters are.
#[test]
fn the_requirements_of_a_landing_fit_into_its_record() {
    let mut pipeline = Pipeline::new("gate", Manager::Dependent);
    let of = |length: usize| Filter {
        connection: "github".into(),
        kind: FilterKind::GitHub(GitHubFilter {
            status: vec![Pattern::new(&"x".repeat(length)).unwrap()],
            ..GitHubFilter::default()
        }),
    };
    pipeline.require = vec![of(20), of(REQUIREMENTS_BYTES_MAX), of(30)];
    pipeline.reject = (0..200).map(|_| of(200)).collect();
    let asks = MergeRequirements::of(&pipeline, Timestamp(1));
    assert_eq!(asks.require, [of(20), of(30)]);
    assert!(!asks.reject.is_empty());
    assert!(serde_json::to_string(&asks).unwrap().len() < REQUIREMENTS_BYTES_MAX + 1_000);
}
