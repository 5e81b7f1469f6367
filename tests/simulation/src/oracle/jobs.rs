//! Which jobs an item had to have: those that the configuration of what it was tested as names, by
//! a reading of the oracle's own, and those that the config project has run for every project.

use super::{Oracle, branch_of};
use crate::graphs;
use crate::plays::branches::SIDES;
use crate::plays::disabling::SHAKY;
use crate::plays::files::is_chosen_by_files;
use crate::plays::followers::FOLLOW;
use crate::plays::mails::LETTERS;
use crate::plays::nodesets::CHOOSY;
use crate::plays::offered_refs::MANUAL;
use crate::plays::publications::BROADCAST;
use crate::plays::reloads::SURPLUS;
use crate::plays::tags::RELEASE;
use crate::plays::timers::NIGHTLY;
use crate::plays::{AUDIT, CAREFUL, EXPRESS, POST, PUBLISH, Play, RECHECK, lands};
use sluice_records::report::Buildset;
use sluice_scenarios::repos::{Store, Tree};

/// Where a project says what runs for it.
const CONFIGURATION: &str = ".zuul.yaml";

impl Oracle {
    /// Judges which jobs an item has that was tested as this tree, or as a part of it. What asks
    /// for a secret too early has none, and is judged by how it leaves.
    pub(super) fn judged_names(
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
            names.partition(|name| is_chosen_by_files(name));
        by_files.sort_unstable();
        self.judged_files(set, &by_files)?;
        has.sort_unstable();
        let due = self.names(text_of(tested), pipeline);
        if has == due {
            return Ok(());
        }
        // Where nothing that it was tested with edits configuration, its jobs are of whatever the
        // tenant had read of its branch.
        let tips = self
            .branches
            .get(&branch_of(&set.item.candidate.change))
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut known = tips.iter().map(|tip| self.names(text_of(&tip.tree), pipeline));
        if !self.is_sure(set, tested, store) && known.any(|names| names == has) {
            return Ok(());
        }
        Err(format!("it has the jobs {has:?}, and is to have {due:?}"))
    }

    /// Returns whether an item's jobs can only be of what it was tested as: something that it was
    /// tested with edits its branch's configuration, or it landed, which waits until what landed
    /// before it is read. What somebody merged by hand may be read late, and what cannot be carried
    /// out for long is waited for no longer.
    fn is_sure(&self, set: &Buildset, tested: &Tree, store: &Store) -> bool {
        let item = &set.item;
        if !item.candidate.cycle.is_empty() {
            return false;
        }
        let base = item
            .merged()
            .filter(|_| item.candidate.merged.is_none())
            .map(|merged| store.tree(&merged.base.id));
        let is_edited = base.is_some_and(|base| text_of(base) != text_of(tested));
        let has_landed = lands(set.queue.pipeline.as_str()) && set.result == "SUCCESS";
        is_edited || (has_landed && self.unruly == 0 && !self.nodes_fail)
    }

    /// Returns the names of the jobs of a project with this configuration, in order.
    fn names<'a>(&self, text: &'a str, pipeline: &str) -> Vec<&'a str> {
        let has = |play: Play| self.plays.contains(&play);
        let of_all: &[&str] = match pipeline {
            "check" if has(Play::Locks) => &["turns"],
            "gate" if has(Play::Locks) => &["guarded", "turns"],
            AUDIT | POST | EXPRESS | RECHECK | MANUAL | RELEASE | NIGHTLY | SIDES => {
                &["quick", "unit"]
            }
            CAREFUL | FOLLOW | LETTERS | BROADCAST => &["quick"],
            SHAKY => &["unit"],
            _ => &[],
        };
        let publishes = (pipeline == "gate" && has(Play::Reporters)).then_some(PUBLISH);
        let is_tested = pipeline == "check" || pipeline == "gate";
        let chooses = (is_tested && has(Play::Nodesets)).then_some(CHOOSY);
        let mut names = own(text, pipeline);
        names.extend(of_all.iter().copied().chain(publishes).chain(chooses));
        names.extend(graphs::names(&self.plays, pipeline));
        names.sort_unstable();
        names
    }
}

fn text_of(tree: &Tree) -> &str {
    tree.get(CONFIGURATION).map(String::as_str).unwrap_or_default()
}

/// Returns the jobs that a project's own configuration names for a pipeline.
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

    /// C2: what the oracle reads out of the configuration that people propose.
    #[test]
    fn the_oracle_reads_the_jobs_of_each_edition_by_itself() {
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

    /// N16, Z4.3: what the config project has run for every project comes on top of that.
    #[test]
    fn what_the_config_project_names_for_all_comes_on_top() {
        let plays = [Play::Locks, Play::Reporters].into_iter().collect();
        let oracle = Oracle::new(&Shape::draw(1).playing(plays));
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
        let oracle = Oracle::new(
            &Shape::draw(1).playing([Play::Heralds, Play::Initializers].into_iter().collect()),
        );
        assert_eq!(oracle.names(&text, "check"), ["prelude", "quick", "unit"]);
        let gate = ["cluster", "deploy-org-t0p0", "herald", "locked", "prelude", "quick", "unit"];
        assert_eq!(oracle.names(&text, "gate"), gate);
    }
}
