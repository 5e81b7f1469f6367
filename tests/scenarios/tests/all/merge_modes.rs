//! Merge modes: in each of them the landed tree is the tested one, or the queue halts.

use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::ProjectName;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, MergeMode};
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{self, MAIN};
use std::collections::BTreeMap;

/// Each merge mode: its name, its value and the number of parents of its commits.
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
fn approve_three(site: &mut Site) -> Vec<ChangeKey> {
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

/// S05, Z6.4: the forge merges in the project's mode, each landed commit has the tested tree, and a
/// linear mode makes a linear history.
#[test]
fn in_every_merge_mode_the_landed_tree_is_the_tested_one() {
    for (mode_name, mode, parents) in MODES {
        let mut site = site(mode_name);
        let changes = approve_three(&mut site);
        let merged: Vec<ChangeKey> =
            site.forge.merges().into_iter().map(|(change, _)| change).collect();
        assert_eq!(merged, changes, "{mode_name}");
        let landings = landings(&site);
        assert_eq!(landings.len(), 3, "{mode_name}");
        for landing in &landings {
            let LandingState::Ended { end: LandingEnd::Landed { commit }, .. } = &landing.state
            else {
                panic!("{mode_name}: {:?}", landing.state)
            };
            assert_eq!((landing.mode, &commit.tree), (mode, &landing.tested.tree), "{mode_name}");
        }
        let main =
            BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() };
        let history = site.forge.history(&main);
        assert_eq!(history.len(), 4, "{mode_name}: the fixture and three changes");
        let trees: Vec<_> =
            history.iter().take(3).rev().map(|(commit, _)| commit.tree.clone()).collect();
        let merges = site.forge.merges();
        assert_eq!(
            trees,
            merges.iter().map(|(_, commit)| commit.tree.clone()).collect::<Vec<_>>(),
            "{mode_name}"
        );
        assert!(
            history.iter().take(3).all(|(_, count)| *count == parents),
            "{mode_name}: {history:?}"
        );
    }
}

/// Z6.4: in every mode an untested tree is detected at the landed commit; the queue names both
/// trees, and nothing behind the change lands.
#[test]
fn in_every_merge_mode_an_untested_tree_halts_the_queue() {
    for (mode_name, mode, _) in MODES {
        let mut site = site(mode_name);
        site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
        let changes = approve_three(&mut site);
        let merged: Vec<ChangeKey> =
            site.forge.merges().into_iter().map(|(change, _)| change).collect();
        assert_eq!(merged, changes[..1], "{mode_name}");
        let landings = landings(&site);
        let [landing] = landings.as_slice() else { panic!("{mode_name}: {landings:?}") };
        let LandingState::Ended { end: LandingEnd::Mismatch { landed }, .. } = &landing.state
        else {
            panic!("{mode_name}: {:?}", landing.state)
        };
        assert_eq!(landing.mode, mode);
        assert_ne!(landed.tree, landing.tested.tree);
        let heads = site.world.records().into_iter().filter(|record| record.key.sort == "head");
        let reason = format!(
            "with tree {}, but tree {} was tested",
            landed.tree.short(),
            landing.tested.tree.short()
        );
        assert_eq!(heads.filter(|record| record.body.contains(&reason)).count(), 1, "{mode_name}");
    }
}
