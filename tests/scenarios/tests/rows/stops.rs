//! Stories of the rows in which each call of a port fails in turn: before its effect, after it, or
//! with a lost answer. Each ends as it does without failures.

use super::bundles::{approved_cycle, configured, propose_cycle};
use super::configuration::store_main;
use super::operator_commands::send_command;
use super::trees::depends_on;
use super::{CONFIG, MAIN, PROJECT, comments, merged, propose, site, site_of, start_gate_builds};
use sluice_gate::{InboxMessageKind, Item};
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::MessageQueue;
use sluice_model::{BuildId, Timestamp};
use sluice_records::codec::decode;
use sluice_runtime::{Clock as _, Record};
use sluice_scenarios::stops::{StopStory, Stops};
use sluice_scenarios::{Ending, Site};
use std::collections::{BTreeMap, BTreeSet};

/// A project whose changes are tested in the gate only.
const GATED: &str = "
- project:
    queue: integrated
    gate: {jobs: [unit]}
";

/// The texts of reports that the stories count.
const COUNTED: [&str; 4] = [
    "does not share a queue",
    "Only a part of this bundle was merged",
    "The forge did not merge it",
    "was dequeued",
];

/// How a story ended.
#[derive(Debug, PartialEq)]
struct End {
    ending: Ending,
    /// How often each text of [`COUNTED`] is in the comments on a change, where it is at all.
    texts: Vec<String>,
    /// The builds that passed, as `check 2 unit`, each once.
    passed: Vec<String>,
}

impl End {
    /// Asserts that nothing is left over and that these changes were merged, in this order.
    #[track_caller]
    fn assert_merged(&self, merged: &[&str]) {
        assert_eq!(self.ending.left_over, Vec::<String>::new());
        assert_eq!(self.ending.merged, merged);
    }

    /// Returns the statuses on a change.
    fn statuses(&self, change: &str) -> &[String] {
        &self.ending.changes[change].1
    }
}

/// Returns all changes of the forge, in the order of their numbers.
fn changes(site: &Site) -> Vec<ChangeKey> {
    let mut keys: Vec<ChangeKey> =
        site.forge.changes().into_iter().map(|change| change.facts.change.key).collect();
    keys.sort_by_key(ChangeKey::number);
    keys
}

/// Runs to rest, and lets a sweep find what a lost webhook left undone.
fn settle(site: &mut Site) {
    site.run();
    site.sweep();
}

/// Plays to the end: a second sweep finds what the first one lost.
fn end(site: &mut Site) -> End {
    settle(site);
    site.sweep();
    let all = changes(site);
    let texts = all.iter().flat_map(|change| {
        let said = comments(site, change);
        let counts = COUNTED.map(|text| (text, said.matches(text).count()));
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.map(move |(text, count)| format!("{change}: {count} of {text}"))
    });
    let texts = texts.collect();
    let ending = site.ending(&["org/one", "org/two"], &all.iter().collect::<Vec<_>>());
    End { ending, texts, passed: passed_builds(&site.world.records()) }
}

/// Removes the buildsets and builds of check and the numbers of comments, since how often a change is
/// checked, and which of its builds a later event ends, depends on what was lost. The texts are still
/// counted.
fn without_repeated_checks(mut end: End) -> End {
    end.ending.buildsets.retain(|buildset| !buildset.contains(" check "));
    end.passed.retain(|build| !build.starts_with("check "));
    end.ending.changes.values_mut().for_each(|(_, _, comments)| *comments = 0);
    end
}

/// Returns the builds that passed, sorted and each once: how often a job was tried again depends on
/// what failed.
fn passed_builds(records: &[Record]) -> Vec<String> {
    let of = |sort: &'static str| {
        records.iter().filter(move |record| {
            record.key.partition.starts_with("build#") && record.key.sort == sort
        })
    };
    let runs = of("run").map(|record| decode::<Run>(record).unwrap());
    let has_passed =
        |run: &Run| matches!(&run.phase, Phase::Ended(end) if end.result == BuildResult::Success);
    let passed: BTreeSet<BuildId> = runs.filter(has_passed).map(|run| run.build).collect();
    let orders = of("order").map(|record| decode::<Order>(record).unwrap());
    let passed = orders.filter(|order| passed.contains(&order.build));
    let named: BTreeSet<String> = passed
        .map(|order| {
            format!("{} {} {}", order.queue.pipeline, order.change.key.local_id(), order.job)
        })
        .collect();
    named.into_iter().collect()
}

/// D01, D02, G09, C2: a tree of approved changes enters as a whole and in its order.
#[test]
fn a_tree_of_changes_enters_as_a_whole_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || {
            let mut site = site_of(CONFIG, GATED);
            let root = site.forge.propose("org/one", 1, "root", "", &[("r", "x")]);
            let left = site.forge.propose("org/two", 2, "left", &depends_on(&root), &[("l", "x")]);
            let right =
                site.forge.propose("org/one", 3, "right", &depends_on(&root), &[("m", "x")]);
            let body = format!("{}\n{}", depends_on(&left), depends_on(&right));
            site.forge.propose("org/two", 4, "both", &body, &[("o", "x")]);
            site.run();
            site
        },
        play: |site| {
            let all = changes(site);
            for change in [&all[0], &all[2], &all[3]] {
                site.forge.approve_silently(change, "grace");
            }
            site.forge.approve(&all[1]);
            let mut end = end(site);
            // Where the event is lost, a sweep finds the approvals project by project.
            let merged = &mut end.ending.merged;
            if merged.len() == all.len() {
                assert_eq!((&*merged[0], &*merged[3]), ("org/one#1", "org/two#4"));
                merged[1..3].sort_by_key(|change| change.chars().last());
            }
            end
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&["org/one#1", "org/two#2", "org/one#3", "org/two#4"]);
    story.stop_everywhere(&Stops::of_all_kinds(11), &expected);
}

/// D02, Z6.3, C2: a refusal is reported once for each patch set, neither lost nor repeated.
#[test]
fn a_refusal_is_reported_once_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || {
            let mut site = site();
            let other = site.forge.propose("org/noop", 2, "other", "", &[("b", "x")]);
            site.forge.propose("org/one", 1, "change", &depends_on(&other), &[("a", "x")]);
            site.run();
            site
        },
        play: |site| {
            let all = changes(site);
            let (change, other) = (&all[0], &all[1]);
            let approve = |site: &mut Site, change: &ChangeKey| {
                site.forge.approve(change);
                settle(site);
            };
            approve(site, change);
            approve(site, change);
            site.forge.revise(change, "a", "y");
            approve(site, change);
            approve(site, other);
            approve(site, change);
            end(site)
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&["org/noop#2", "org/one#1"]);
    assert_eq!(expected.texts, ["org/one#1: 2 of does not share a queue"]);
    story.stop_everywhere(&Stops::of_all_kinds(19), &expected);
}

/// C14, Z6.6, C2: changes enter because what is ahead of them adds their project.
#[test]
fn a_project_that_a_change_ahead_adds_is_gated_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || {
            let mut site = site();
            let adds = site.forge.propose("org/bare", 1, "adds", "", &[(".zuul.yaml", GATED)]);
            site.forge.propose("org/bare", 2, "needs", &depends_on(&adds), &[("b", "x")]);
            site.forge.propose("org/bare", 3, "follows", "", &[("c", "x")]);
            site.run();
            site
        },
        play: |site| {
            site.held = ["unit".to_owned()].into();
            for (at, change) in changes(site).iter().enumerate() {
                site.forge.approve(change);
                site.run_and_sweep_until(|site| site.running().len() == at + 1);
            }
            site.held.clear();
            // Once the first change has landed, the others move to the queue that it names, unless
            // they landed before; how far their builds are then depends on the order of messages.
            let mut end = end(site);
            end.ending.buildsets.retain(|buildset| !buildset.ends_with("gate DEQUEUED"));
            // If the new configuration is live before the end of the first landing is known, the
            // change that needs the first one stays for it, and the other one moves ahead.
            let merged = &mut end.ending.merged;
            assert_eq!(merged.first().map(String::as_str), Some("org/bare#1"));
            merged.sort();
            End { passed: Vec::new(), ..end }
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&["org/bare#1", "org/bare#2", "org/bare#3"]);
    story.stop_everywhere(&Stops::of_all_kinds(13), &expected);
}

/// Z2.1, G18, C2: the changes of a project that leaves the tenant leave in silence, and their
/// builds are aborted.
#[test]
fn a_project_leaves_in_silence_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || {
            let mut site = site();
            let leaves = site.forge.propose("org/two", 2, "leaves", "", &[("b", "x")]);
            let stays = propose(&site, 1, &[("a", "x")]);
            site.held = ["unit".to_owned()].into();
            site.run_until(|site| site.running().len() == 2);
            for change in [&leaves, &stays] {
                site.forge.approve(change);
                site.take_in();
            }
            site.run_until(|site| site.running() == ["unit", "unit", "unit", "unit"]);
            site.run_now();
            site
        },
        play: |site| {
            store_main(site, &MAIN.replace("org/two, ", ""));
            site.run_and_sweep_until(|site| {
                // One in check and one in the gate, without the change that left.
                site.running().iter().filter(|job| *job == "unit").count() == 2
                    && items(site).iter().all(|(change, _)| change == "org/one#1")
            });
            site.held.clear();
            end(site)
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&["org/one#1"]);
    assert_eq!(expected.ending.changes["org/two#2"].2, 0, "nothing is reported");
    // Of the change that left, only the jobs that ended before have passed.
    let of_left = expected.passed.iter().filter(|build| build.contains(" 2 "));
    assert_eq!(of_left.collect::<Vec<_>>(), ["gate 2 lint", "gate 2 other"]);
    story.stop_everywhere(&Stops::of_all_kinds(7), &expected);
}

/// Plays a bundle of which only the first member is merged, until that is reported.
fn merge_a_part(site: &mut Site) {
    site.run_and_sweep_until(|site| merged(site) == [1]);
    let all = changes(site);
    site.forge.close(&all[1]);
    site.run_and_sweep_until(|site| comments(site, &all[0]).contains(COUNTED[1]));
}

/// Z6.5, C2: a partly merged bundle is reported once on each member, is tried again for ten
/// minutes, and leaves.
#[test]
fn a_partly_merged_bundle_leaves_reported_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || approved_cycle(&[("a", "x")], &[("b", "x")]).0,
        play: |site| {
            merge_a_part(site);
            let since = site.world.now();
            site.run();
            let passed = site.world.now().since(since);
            assert!((540_000..900_000).contains(&passed), "it left after {passed} ms");
            end(site)
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&["org/one#1"]);
    assert_eq!(
        expected.texts,
        [
            "org/one#1: 1 of Only a part of this bundle was merged",
            "org/two#2: 1 of Only a part of this bundle was merged",
            "org/two#2: 1 of The forge did not merge it",
        ]
    );
    story.stop_everywhere(&Stops::of_all_kinds(11), &expected);
}

/// Z6.5, C2: the rest of a partly merged bundle is merged once it can be.
#[test]
fn a_partly_merged_bundle_is_completed_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || approved_cycle(&[("a", "x")], &[("b", "x")]).0,
        play: |site| {
            merge_a_part(site);
            site.forge.reopen(&changes(site)[1]);
            without_repeated_checks(end(site))
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&["org/one#1", "org/two#2"]);
    let reported = "1 of Only a part of this bundle was merged";
    assert_eq!(
        expected.texts,
        [format!("org/one#1: {reported}"), format!("org/two#2: {reported}")]
    );
    story.stop_everywhere(&Stops::of_all_kinds(11), &expected);
}

/// R06, Z6.3, C2: what an operator dequeues leaves no status pending, though the pipeline has no
/// reporter for it.
#[test]
fn a_dequeue_ends_the_pending_status_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || {
            let silent = CONFIG.replace("    dequeue: {github: {comment: true}}\n", "");
            let mut site = site_of(&silent, PROJECT);
            let a = propose(&site, 1, &[("a", "x")]);
            start_gate_builds(&mut site, &a);
            site
        },
        play: |site| {
            let key = changes(site).remove(0);
            let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
            send_command(site, InboxMessageKind::Dequeue { key, head: None, by, reason });
            site.run_and_sweep_until(|site| items(site).is_empty());
            site.held.clear();
            end(site)
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&[]);
    assert_eq!(expected.statuses("org/one#1"), ["demo/check success", "demo/gate failure"]);
    story.stop_everywhere(&Stops::of_all_kinds(3), &expected);
}

/// Returns change and time of admission of all items, by queue partition and id.
fn items(site: &Site) -> Vec<(String, Timestamp)> {
    items_by_queue(&site.world.records()).into_values().flatten().collect()
}

/// Returns change and time of admission of the items of each queue's partition.
fn items_by_queue(records: &[Record]) -> BTreeMap<&str, Vec<(String, Timestamp)>> {
    let mut queues: BTreeMap<&str, Vec<(String, Timestamp)>> = BTreeMap::new();
    let is_item = |record: &&Record| {
        record.key.partition.starts_with("queue#") && record.key.sort.starts_with("item#")
    };
    for record in records.iter().filter(is_item) {
        let item: Item = decode(record).unwrap();
        let entered = (item.candidate.change.key.to_string(), item.admitted_at);
        queues.entry(&record.key.partition).or_default().push(entered);
    }
    queues
}

/// Asserts that the index lists the queues of check that have changes, each by the time at which
/// its first change entered, and no other queue.
fn assert_groups_list_live_queues(site: &Site) {
    let records = site.world.records();
    let items = items_by_queue(&records);
    let heads = records
        .iter()
        .filter(|record| record.key.partition.starts_with("queue#") && record.key.sort == "head");
    for head in heads {
        let partition = head.key.partition.as_str();
        let first = items.get(partition).and_then(|items| items.iter().map(|(_, at)| *at).min());
        let expected = first.filter(|_| partition.starts_with("queue#demo/check"));
        let listed = head.find.as_ref().map(|(group, entry)| {
            assert!(group.starts_with("live-queues#demo/check/"), "{group}");
            Timestamp(entry.split('#').next().unwrap().parse().unwrap())
        });
        assert_eq!(listed, expected, "{partition} as listed, and its first change");
    }
}

/// Z6.1, C2: the index by which changes of a project take turns lists exactly the queues that have
/// changes, at every moment: single changes, a bundle in its host queue, new revisions and closed
/// changes.
#[test]
fn the_groups_of_relative_priority_list_live_queues_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || {
            let site = configured(MAIN, CONFIG);
            propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
            for number in 3..6 {
                propose(&site, number, &[(&format!("f{number}"), "x")]);
            }
            site
        },
        play: |site| {
            site.held = ["common".to_owned()].into();
            let all = changes(site);
            site.run_and_sweep_until(|site| {
                assert_groups_list_live_queues(site);
                items(site).len() == 5
            });
            site.forge.revise(&all[3], "f4", "y");
            site.forge.close(&all[4]);
            site.forge.revise(&all[0], "a", "y");
            site.receive_webhooks();
            site.handle(MessageQueue::Events);
            site.held.clear();
            site.run_checked(assert_groups_list_live_queues);
            let end = end(site);
            assert_groups_list_live_queues(site);
            let mut end = without_repeated_checks(end);
            // Its jobs may have passed before the site learned that it was closed.
            end.ending.changes.remove("org/one#5");
            End { passed: Vec::new(), ..end }
        },
    };
    let expected = story.undisturbed();
    expected.assert_merged(&[]);
    for change in ["org/one#1", "org/two#2", "org/one#3", "org/one#4"] {
        assert_eq!(expected.statuses(change), ["demo/check success"], "{change}");
    }
    story.stop_everywhere(&Stops::of_all_kinds(11), &expected);
}
