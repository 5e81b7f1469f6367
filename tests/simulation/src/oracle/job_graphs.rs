//! Job graphs: which jobs of an item had to run or be skipped, by the results of the jobs before
//! them.

use super::Oracle;
use crate::graphs::{
    CHOOSER, HOST, Initializer, Need, PRELUDE, USES, chosen, dependencies, fails_fast, votes,
};
use crate::scenarios::{PUBLISH, Scenario};
use crate::truth;
use sluice_gate::Item;
use sluice_model::JobName;
use sluice_model::build::BuildResult;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Tree;
use std::collections::BTreeMap;

/// Job results by job name.
type Results<'a> = BTreeMap<&'a str, BuildResult>;

impl Oracle {
    /// Checks that every skipped job has a reason and that no job with such a reason ran. Not for
    /// bundles, whose members may share builds.
    pub(super) fn check_job_graph(&self, set: &Buildset, tested: &Tree) -> Result<(), String> {
        let jobs = set.item.jobs.iter().filter(|job| job.summary.name.as_str() != PUBLISH);
        let results: Results<'_> =
            jobs.filter_map(|job| Some((job.summary.name.as_str(), job.result()?))).collect();
        let project = set.item.candidate.change.key.project.name();
        let is_cut = fails_fast(&self.scenarios, set.queue.pipeline.as_str(), project)
            && results.iter().any(|(name, result)| ends_other_jobs(name, *result, tested));
        for (name, result) in &results {
            let is_ended = matches!(result, BuildResult::Success | BuildResult::Failure);
            match (result, skip_reason(name, &results, tested)) {
                (BuildResult::Skipped, SkipReason::No) if !is_cut => {
                    return Err(format!("{name} was skipped without a failed dependency"));
                }
                (BuildResult::Aborted, _) if !is_cut => {
                    return Err(format!("{name} was aborted without a failure"));
                }
                (_, SkipReason::By(why)) if is_ended => {
                    return Err(format!("{name} ran although {why}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether jobs may be skipped for other reasons than a failed `quick`, see
    /// [`Self::check_job_graph`].
    pub(super) fn plays_job_graphs(&self) -> bool {
        [Scenario::JobGraphs, Scenario::FailFast, Scenario::Initializers]
            .iter()
            .any(|play| self.scenarios.contains(play))
    }
}

/// Returns whether a job result fails its item.
pub(super) fn is_failure(name: &str, result: BuildResult) -> bool {
    votes(name) && !matches!(result, BuildResult::Success | BuildResult::Skipped)
}

/// Returns whether a job may have failed because its needs did not provide an artifact.
pub(super) fn may_lack_artifacts(job: &JobName, item: &Item) -> bool {
    job.as_str() == USES && !item.candidate.needs.is_empty()
}

/// Returns whether a job failed in a way that ends the other jobs of its change with `fail-fast`. A
/// failing job may itself be aborted before its end.
fn ends_other_jobs(name: &str, result: BuildResult, tested: &Tree) -> bool {
    match result {
        BuildResult::Aborted => votes(name) && !truth::passes(name, tested),
        _ => is_failure(name, result),
    }
}

/// Whether the jobs before a job prevent it from running.
enum SkipReason {
    /// It is to be run.
    No,
    /// It must be skipped, for this reason.
    By(String),
    /// It may run or be skipped.
    Perhaps,
}

/// Returns why a job must be skipped.
fn skip_reason(job: &str, results: &Results<'_>, tested: &Tree) -> SkipReason {
    let initializer = match results.contains_key(PRELUDE) {
        true => Initializer::Present,
        false => Initializer::Absent,
    };
    for (name, need) in dependencies(job, initializer) {
        let Some(result) = results.get(name) else { continue };
        if need == Need::Hard && !result.passed() {
            // Jobs that ran during a pause keep their results when the paused build is lost.
            return if name == HOST {
                SkipReason::Perhaps
            } else {
                SkipReason::By(format!("{name} did not pass"))
            };
        }
        let is_left_out =
            name == CHOOSER && chosen(tested).is_some_and(|chosen| !chosen.contains(&job));
        if is_left_out && result.passed() {
            return SkipReason::By(format!("{name} left it out"));
        }
    }
    SkipReason::No
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J12: a failed hard dependency prevents a job, a soft one does not.
    #[test]
    fn only_hard_dependencies_prevent_a_job() {
        use BuildResult::{Failure, RetryLimit, Skipped, Success};
        let tree = Tree::new();
        let is_skipped = |job: &str, of: &[(&'static str, BuildResult)]| {
            matches!(skip_reason(job, &of.iter().copied().collect(), &tree), SkipReason::By(_))
        };
        assert!(
            is_skipped("strict", &[("lint", Failure)])
                && !is_skipped(CHOOSER, &[("lint", Failure)])
        );
        assert!(
            is_skipped("unit", &[(PRELUDE, Failure)]) && !is_skipped("unit", &[(PRELUDE, Success)])
        );
        assert!(
            is_skipped("later", &[("guest", Skipped)])
                && !is_skipped("guest", &[(HOST, RetryLimit)])
        );
        // An empty tree chooses all jobs.
        assert!(!is_skipped("left", &[(CHOOSER, Success)]));
        let left_out = Tree::from([("a".to_owned(), "\u{1}".to_owned())]);
        let results = Results::from([(CHOOSER, Success)]);
        assert!(
            matches!(skip_reason("left", &results, &left_out), SkipReason::By(_)),
            "it chooses none there"
        );
    }
}
