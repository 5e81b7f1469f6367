//! Job names: an item must have the jobs that its tested configuration names and those that the
//! config project adds for all projects. The oracle parses the configuration itself.

use super::{Oracle, branch_of};
use crate::graphs;
use crate::scenarios::branches::SIDES;
use crate::scenarios::disabled_pipelines::SHAKY;
use crate::scenarios::enqueued_refs::MANUAL;
use crate::scenarios::file_filters::has_file_filter;
use crate::scenarios::followers::FOLLOW;
use crate::scenarios::mails::LETTERS;
use crate::scenarios::newcomers::is_newcomer;
use crate::scenarios::nodesets::CHOOSY;
use crate::scenarios::publications::BROADCAST;
use crate::scenarios::reloads::SURPLUS;
use crate::scenarios::tags::RELEASE;
use crate::scenarios::timers::NIGHTLY;
use crate::scenarios::{AUDIT, CAREFUL, EXPRESS, POST, PUBLISH, RECHECK, Scenario, lands};
use sluice_model::ProjectName;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::{Store, Tree};

/// The path of a project's configuration.
const CONFIGURATION: &str = ".zuul.yaml";

impl Oracle {
    /// Checks which jobs an item has, given its tested tree. Not for configuration that asks for a
    /// secret before review, which has no jobs.
    pub(super) fn check_job_names(
        &self,
        set: &Buildset,
        tested: &Tree,
        store: &Store,
    ) -> Result<(), String> {
        if self.is_greedy(&set.item) {
            return Ok(());
        }
        let pipeline = set.queue.pipeline.as_str();
        let names = set
            .item
            .jobs
            .iter()
            .map(|job| job.summary.name.as_str())
            .filter(|name| *name != SURPLUS);
        let (mut by_files, mut has): (Vec<&str>, Vec<&str>) =
            names.partition(|name| has_file_filter(name));
        by_files.sort_unstable();
        self.check_file_filtered_jobs(set, &by_files)?;
        has.sort_unstable();
        let project = &set.item.candidate.change.key.project;
        let names = |text| self.names_in(project, text, pipeline);
        if has == names(configuration_of(tested)) {
            return Ok(());
        }
        // If no tested change edits the configuration, the jobs come from any state that the tenant
        // had read.
        let tips = self
            .branches
            .get(&branch_of(&set.item.candidate.change))
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut history = tips.iter().map(|tip| names(configuration_of(&tip.tree)));
        if !self.is_sure(set, tested, store) && history.any(|names| names == has) {
            return Ok(());
        }
        let due = names(configuration_of(tested));
        Err(format!("it has the jobs {has:?}, but must have {due:?}"))
    }

    /// Returns whether the jobs of an item must come from its tested tree. This is so if a tested
    /// change edits the configuration, or if the item landed: the gate reads merged configuration
    /// before it merges the next change. Manual merges and failing nodes can delay that.
    fn is_sure(&self, set: &Buildset, tested: &Tree, store: &Store) -> bool {
        let item = &set.item;
        if !item.candidate.bundle.is_empty() {
            return false;
        }
        let base = item
            .merged()
            .filter(|_| item.candidate.merged.is_none())
            .map(|merged| store.tree(&merged.base.id));
        let is_edited = base.is_some_and(|base| configuration_of(base) != configuration_of(tested));
        let has_landed = lands(set.queue.pipeline.as_str()) && set.result == "SUCCESS";
        is_edited || (has_landed && self.disturbances == 0 && !self.nodes_fail)
    }

    /// Checks an item that left without jobs: its configuration names none, or did not name any
    /// that the tenant had read.
    pub(super) fn check_missing_jobs(&self, set: &Buildset, store: &Store) -> Result<(), String> {
        let merged = set.item.merged().ok_or("nothing was tested")?;
        self.check_job_names(set, store.tree(&merged.tested.id), store)
    }

    /// Returns the sorted job names of a project with this configuration. The config project adds
    /// no jobs to newcomers.
    fn names_in<'a>(&self, project: &ProjectName, text: &'a str, pipeline: &str) -> Vec<&'a str> {
        if !is_newcomer(project.name()) {
            return self.names(text, pipeline);
        }
        let mut names = own(text, pipeline);
        names.sort_unstable();
        names
    }

    /// Returns the sorted job names of a project with this configuration.
    fn names<'a>(&self, text: &'a str, pipeline: &str) -> Vec<&'a str> {
        let has = |play: Scenario| self.scenarios.contains(&play);
        let of_all: &[&str] = match pipeline {
            "check" if has(Scenario::Semaphores) => &["turns"],
            "gate" if has(Scenario::Semaphores) => &["guarded", "turns"],
            AUDIT | POST | EXPRESS | RECHECK | MANUAL | RELEASE | NIGHTLY | SIDES => {
                &["quick", "unit"]
            }
            CAREFUL | FOLLOW | LETTERS | BROADCAST => &["quick"],
            SHAKY => &["unit"],
            _ => &[],
        };
        let publishes = (pipeline == "gate" && has(Scenario::ReporterJobs)).then_some(PUBLISH);
        let is_tested = pipeline == "check" || pipeline == "gate";
        let chooses = (is_tested && has(Scenario::NodesetFallbacks)).then_some(CHOOSY);
        let mut names = own(text, pipeline);
        names.extend(of_all.iter().copied().chain(publishes).chain(chooses));
        names.extend(graphs::names(&self.scenarios, pipeline));
        names.sort_unstable();
        names
    }
}

fn configuration_of(tree: &Tree) -> &str {
    tree.get(CONFIGURATION).map(String::as_str).unwrap_or_default()
}

/// Returns the jobs that a project's configuration names for a pipeline.
fn own<'a>(text: &'a str, pipeline: &str) -> Vec<&'a str> {
    let begins = format!("    {pipeline}: {{jobs: [");
    let named =
        text.lines().find_map(|line| line.strip_prefix(begins.as_str())?.strip_suffix("]}"));
    named.unwrap_or_default().split(", ").filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Shape, project_yaml};

    /// C2: the oracle parses the proposed configuration.
    #[test]
    fn the_oracle_parses_the_jobs_of_each_edition() {
        let read = |edition, pipeline| {
            own(&project_yaml("org/t0p0", true, edition, ""), pipeline).join(" ")
        };
        assert_eq!(
            (read(0, "check").as_str(), read(1, "check").as_str()),
            ("unit quick", "unit quick extra")
        );
        assert_eq!(read(2, "gate"), "unit quick cluster locked deploy-org-t0p0");
        assert_eq!(
            (read(3, "gate").as_str(), read(0, "post").as_str()),
            ("unit quick cluster locked deploy-org-t0p0 extra", "")
        );
    }

    /// N16, Z4.3: jobs of the config project are added.
    #[test]
    fn jobs_of_the_config_project_are_added() {
        let scenarios = [Scenario::Semaphores, Scenario::ReporterJobs].into_iter().collect();
        let oracle = Oracle::new(&Shape::draw(1).with_scenarios(scenarios));
        let text = project_yaml("org/t0p0", false, 0, "");
        assert_eq!(oracle.names(&text, "check"), ["quick", "turns", "unit"]);
        let gate = [
            "cluster",
            "deploy-org-t0p0",
            "guarded",
            "locked",
            "publish",
            "quick",
            "turns",
            "unit",
        ];
        assert_eq!(oracle.names(&text, "gate"), gate);
        assert_eq!(oracle.names(&text, POST), ["quick", "unit"]);
        let oracle = Oracle::new(&Shape::draw(1).with_scenarios(
            [Scenario::HoldFollowing, Scenario::Initializers].into_iter().collect(),
        ));
        assert_eq!(oracle.names(&text, "check"), ["prelude", "quick", "unit"]);
        let gate = ["cluster", "deploy-org-t0p0", "herald", "locked", "prelude", "quick", "unit"];
        assert_eq!(oracle.names(&text, "gate"), gate);
    }
}
