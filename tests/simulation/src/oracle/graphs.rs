//! Which of an item's jobs had to be run, and which to be left out, by how those ended that come
//! before them.

use super::Oracle;
use crate::graphs::{CHOOSER, HOST, Need, PRELUDE, USES, before, chosen, fails_fast, votes};
use crate::plays::{PUBLISH, Play};
use crate::truth;
use sluice_gate::Item;
use sluice_model::JobName;
use sluice_model::build::BuildResult;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Tree;
use std::collections::BTreeMap;

/// How the jobs of an item ended, by their names.
type Results<'a> = BTreeMap<&'a str, BuildResult>;

impl Oracle {
    /// Judges which jobs of an item were run, each by the results of those that it depends on: what
    /// is left out is so for a reason, and what has a reason to be left out was not run. The items
    /// of a bundle may share builds, and are not judged.
    pub(super) fn judged_graph(&self, set: &Buildset, tested: &Tree) -> Result<(), String> {
        let jobs = set.item.jobs.iter().filter(|job| job.summary.name.as_str() != PUBLISH);
        let results: Results<'_> =
            jobs.filter_map(|job| Some((job.summary.name.as_str(), job.result()?))).collect();
        let is_cut = fails_fast(&self.plays, set.queue.pipeline.as_str())
            && results.iter().any(|(name, result)| ends_the_others(name, *result, tested));
        for (name, result) in &results {
            let is_ended = matches!(result, BuildResult::Success | BuildResult::Failure);
            match (result, barred(name, &results, tested)) {
                (BuildResult::Skipped, Barred::No) if !is_cut => {
                    return Err(format!(
                        "{name} was skipped, and nothing that it depends on bars it"
                    ));
                }
                (BuildResult::Aborted, _) if !is_cut => {
                    return Err(format!("{name} was ended, and no failure ends it"));
                }
                (_, Barred::By(why)) if is_ended => {
                    return Err(format!("{name} was run, and {why}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether jobs may be left out for more than what `quick` comes to:
    /// [`Self::judged_graph`] says for what.
    pub(super) fn is_graph_played(&self) -> bool {
        [Play::Graphs, Play::FailFast, Play::Initializers]
            .iter()
            .any(|play| self.plays.contains(play))
    }
}

/// Returns whether a job's result keeps its change out.
pub(super) fn is_failure(name: &str, result: BuildResult) -> bool {
    votes(name) && !matches!(result, BuildResult::Success | BuildResult::Skipped)
}

/// Returns whether a job may have failed since what its change needs did not provide what it
/// requires.
pub(super) fn may_lack(job: &JobName, item: &Item) -> bool {
    job.as_str() == USES && !item.candidate.needs.is_empty()
}

/// Returns whether a job failed so that the others of its change are ended where that is asked for.
/// It may have been ended by that itself, when it was known to fail and was not over.
fn ends_the_others(name: &str, result: BuildResult, tested: &Tree) -> bool {
    match result {
        BuildResult::Aborted => votes(name) && !truth::passes(name, tested),
        _ => is_failure(name, result),
    }
}

/// What is known of a job by those that it depends on.
enum Barred {
    /// It is to be run.
    No,
    /// It is not, for this reason.
    By(String),
    /// It may have been run or not.
    Perhaps,
}

fn barred(job: &str, results: &Results<'_>, tested: &Tree) -> Barred {
    for (name, need) in before(job, results.contains_key(PRELUDE)) {
        let Some(result) = results.get(name) else { continue };
        if need == Need::Hard && !result.passed() {
            // What ran beside a paused build stays as it ended where that is lost for good.
            return if name == HOST {
                Barred::Perhaps
            } else {
                Barred::By(format!("{name} did not pass"))
            };
        }
        let is_left_out =
            name == CHOOSER && chosen(tested).is_some_and(|chosen| !chosen.contains(&job));
        if is_left_out && result.passed() {
            return Barred::By(format!("{name} left it out"));
        }
    }
    Barred::No
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J12: what the oracle holds against an item.
    #[test]
    fn a_job_is_barred_by_what_it_needs_and_not_by_what_it_only_waits_for() {
        use BuildResult::{Failure, RetryLimit, Skipped, Success};
        let tree = Tree::new();
        let is_barred = |job: &str, of: &[(&'static str, BuildResult)]| {
            matches!(barred(job, &of.iter().copied().collect(), &tree), Barred::By(_))
        };
        assert!(
            is_barred("strict", &[("lint", Failure)]) && !is_barred(CHOOSER, &[("lint", Failure)])
        );
        assert!(
            is_barred("unit", &[(PRELUDE, Failure)]) && !is_barred("unit", &[(PRELUDE, Success)])
        );
        assert!(
            is_barred("later", &[("guest", Skipped)]) && !is_barred("guest", &[(HOST, RetryLimit)])
        );
        // A tree of no text has everything run.
        assert!(!is_barred("left", &[(CHOOSER, Success)]));
        let left_out = Tree::from([("a".to_owned(), "\u{1}".to_owned())]);
        let results = Results::from([(CHOOSER, Success)]);
        assert!(
            matches!(barred("left", &results, &left_out), Barred::By(_)),
            "it chooses none there"
        );
    }
}
