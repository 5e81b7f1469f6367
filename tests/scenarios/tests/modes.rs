//! However a project has its changes merged, what lands is the tree that was tested, or its queue
//! moves no more.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::ProjectName;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, MergeMode};
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{self, MAIN};
use std::collections::BTreeMap;

/// Every mode by its word, and how many parents what it lands has.
const MODES: [(&str, MergeMode, usize); 6] = [
    ("merge", MergeMode::Merge, 2),
    ("merge-resolve", MergeMode::MergeResolve, 2),
    ("squash-merge", MergeMode::SquashMerge, 1),
    ("cherry-pick", MergeMode::CherryPick, 1),
    ("rebase", MergeMode::Rebase, 1),
    ("rebase-first-parent", MergeMode::RebaseFirstParent, 1),
];

fn site(mode: &str) -> Site {
    let project = format!(
        "- job: {{name: unit, run: playbooks/unit.yaml}}\n- project: {{merge-mode: {mode}, queue: integrated, gate: {{jobs: [unit]}}}}\n"
    );
    let config = sample::central(8);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &project)]),
        ("org/two", &[("README", "nothing")]),
    ];
    Site::new(3, MAIN, repositories, |_, _, _| BuildResult::Success)
}

/// Proposes three changes and approves them in this order.
fn approved(site: &mut Site) -> Vec<ChangeKey> {
    let propose = |(number, name): (u64, &str)| {
        site.forge.propose("org/one", number, name, "", &[(name, "x")])
    };
    let changes: Vec<ChangeKey> = [(1, "a"), (2, "b"), (3, "c")].map(propose).into();
    sample::approve(site, &changes.iter().collect::<Vec<_>>());
    changes
}

fn landings(site: &Site) -> Vec<Landing> {
    let records = site.world.records().into_iter();
    let landings = records.filter(|record| record.key.partition.starts_with("landing#"));
    landings.map(|record| decode(&record).unwrap()).collect()
}

/// S05, Z6.4: the forge is asked for the project's own mode, and what it makes of the branch has
/// the tested tree each time; where the mode is a linear one the history is.
#[test]
fn in_every_merge_mode_the_landed_tree_is_the_tested_one() {
    for (word, mode, parents) in MODES {
        let mut site = site(word);
        let changes = approved(&mut site);
        let merged: Vec<ChangeKey> =
            site.forge.merges().into_iter().map(|(change, _)| change).collect();
        assert_eq!(merged, changes, "{word}");
        let landings = landings(&site);
        assert_eq!(landings.len(), 3, "{word}");
        for landing in &landings {
            let LandingState::Ended { end: LandingEnd::Landed { commit }, .. } = &landing.state
            else {
                panic!("{word}: {:?}", landing.state)
            };
            assert_eq!((landing.mode, &commit.tree), (mode, &landing.tested.tree), "{word}");
        }
        let main =
            BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() };
        let history = site.forge.history(&main);
        assert_eq!(history.len(), 4, "{word}: the fixture and three changes");
        let trees: Vec<_> =
            history.iter().take(3).rev().map(|(commit, _)| commit.tree.clone()).collect();
        let merges = site.forge.merges();
        assert_eq!(
            trees,
            merges.iter().map(|(_, commit)| commit.tree.clone()).collect::<Vec<_>>(),
            "{word}"
        );
        assert!(history.iter().take(3).all(|(_, found)| *found == parents), "{word}: {history:?}");
    }
}

/// Z6.4: in every mode a tree that was not tested is found out by the landed commit itself; its
/// queue says both trees, and nothing behind it lands.
#[test]
fn in_every_merge_mode_a_tree_that_was_not_tested_freezes_the_queue() {
    for (word, mode, _) in MODES {
        let mut site = site(word);
        site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
        let changes = approved(&mut site);
        let merged: Vec<ChangeKey> =
            site.forge.merges().into_iter().map(|(change, _)| change).collect();
        assert_eq!(merged, changes[..1], "{word}");
        let landings = landings(&site);
        let [landing] = landings.as_slice() else { panic!("{word}: {landings:?}") };
        let LandingState::Ended { end: LandingEnd::Mismatch { landed }, .. } = &landing.state
        else {
            panic!("{word}: {:?}", landing.state)
        };
        assert_eq!(landing.mode, mode);
        assert_ne!(landed.tree, landing.tested.tree);
        let heads = site.world.records().into_iter().filter(|record| record.key.sort == "head");
        let told = format!(
            "with tree {}, but tree {} was tested",
            landed.tree.short(),
            landing.tested.tree.short()
        );
        assert_eq!(heads.filter(|record| record.body.contains(&told)).count(), 1, "{word}");
    }
}
