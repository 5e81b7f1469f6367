//! Rows of behaviour on the whole local system: real git, real merges on a real forge, real Ansible
//! on nodes that were launched.
//!
//! Builds ask the test whether they may go on, so that what happens while they run happens while
//! they run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod landing;

use serde_json::{Value, json};
use sluice_cli::commands::show::text;
use sluice_cli::local::{ONE, TENANT, TWO, ledger};
use sluice_local_tests::forge::{Change, Forge};
use sluice_local_tests::story::{
    Expected, GATE, approve, configure_rows, decided, ends_right, entered,
};
use sluice_local_tests::system::{System, Wishes};
use sluice_local_tests::until;
use sluice_records::report::Buildset;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

/// Tells builds whether they may go on: they name what they wait for, and are told `go` or `wait`.
/// Nodes reach this machine's network and see none of its temporary files.
struct Gatekeeper {
    port: u16,
    released: Arc<Mutex<BTreeSet<String>>>,
}

impl Gatekeeper {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let released: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let known = released.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let known = known.clone();
                tokio::spawn(async move {
                    let (read, mut write) = stream.split();
                    let mut asked = String::new();
                    BufReader::new(read).read_line(&mut asked).await?;
                    let may_go = known.lock().unwrap().contains(asked.trim());
                    write.write_all(if may_go { b"go\n" } else { b"wait\n" }).await
                });
            }
        });
        Self { port, released }
    }
}

/// A system on which rows are played one after the other.
struct Play {
    system: System,
    forge: Forge,
    gatekeeper: Gatekeeper,
    landed: Vec<Change>,
    refused: Vec<Change>,
}

impl Play {
    async fn begin() -> Self {
        Self::on(System::start(Wishes::default()).await.unwrap()).await
    }

    /// Begins on a system that runs already.
    async fn on(system: System) -> Self {
        configure_rows(&system).await.unwrap();
        let forge = system.forge().unwrap();
        let gatekeeper = Gatekeeper::open().await;
        Self { system, forge, gatekeeper, landed: Vec::new(), refused: Vec::new() }
    }

    /// Proposes a change of one file of its own.
    async fn propose(&self, repository: &str, title: &str) -> Change {
        self.forge
            .propose(repository, title, &[(&format!("greetings/{title}"), "Hello!\n")])
            .await
            .unwrap()
    }

    /// Proposes a change whose builds wait until [`Self::release`].
    async fn propose_held(
        &self,
        repository: &str,
        title: &str,
        hold: &str,
        more: &[(&str, &str)],
    ) -> Change {
        let hold = format!("{} {hold}\n", self.gatekeeper.port);
        let file = format!("hold/{title}");
        let files: Vec<(&str, &str)> =
            [(file.as_str(), hold.as_str())].into_iter().chain(more.iter().copied()).collect();
        self.forge.propose(repository, title, &files).await.unwrap()
    }

    fn release(&self, hold: &str) {
        self.gatekeeper.released.lock().unwrap().insert(hold.to_owned());
    }

    async fn gate(&self, changes: &[&Change]) {
        for change in changes {
            approve(&self.system, change).await.unwrap();
            entered(&self.system, change).await.unwrap();
        }
    }

    /// Returns the results of a change's builds in a pipeline, the oldest first; of a running one
    /// none.
    async fn results(&self, pipeline: &str, change: &Change) -> Vec<Option<String>> {
        let Change { repository, number } = change;
        let query = format!(
            "tenant/{TENANT}/builds?project={repository}&change={number}&pipeline={pipeline}&limit=50"
        );
        let builds: Vec<Value> = self.system.client().unwrap().get(&query).await.unwrap();
        builds.iter().rev().map(|build| build["result"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the jobs of a change that had a build in the gate, sorted. One that was skipped, or
    /// does nothing, is listed without one.
    async fn built(&self, change: &Change) -> Vec<String> {
        let Change { repository, number } = change;
        let query = format!(
            "tenant/{TENANT}/builds?project={repository}&change={number}&pipeline=gate&limit=50"
        );
        let builds: Vec<Value> = self.system.client().unwrap().get(&query).await.unwrap();
        let own = builds.iter().filter(|build| build["uuid"].is_string());
        let mut jobs: Vec<String> = own.map(|build| text(build, "job_name").to_owned()).collect();
        jobs.sort();
        jobs
    }

    async fn until_results(&self, pipeline: &str, change: &Change, wanted: &[Option<&str>]) {
        until(&format!("{change} to have {wanted:?} in {pipeline}"), async || {
            let results = self.results(pipeline, change).await;
            anyhow::ensure!(
                results.iter().map(Option::as_deref).eq(wanted.iter().copied()),
                "{results:?}"
            );
            Ok(Some(()))
        })
        .await
        .unwrap();
    }

    /// Waits until each has one build under way and none before.
    async fn all_run(&self, changes: &[&Change]) {
        for change in changes {
            self.until_results("gate", change, &[None]).await;
        }
    }

    async fn result(&self, change: &Change) -> String {
        text(&decided(&self.system, change).await.unwrap(), "result").to_owned()
    }

    async fn lands(&mut self, change: Change) {
        assert_eq!(self.result(&change).await, "SUCCESS", "{change}");
        self.landed.push(change);
    }

    /// Sees that a change did not land and was told of it once.
    async fn is_refused(&mut self, change: Change, result: &str, told: &str) {
        assert_eq!(self.result(&change).await, result, "{change}");
        let comments = until(&format!("{change} to be told"), async || {
            let comments = self.forge.comments(&change).await?;
            Ok((!comments.is_empty()).then_some(comments))
        })
        .await
        .unwrap();
        assert!(comments[0].contains(told), "{change} was told: {comments:?}");
        self.refused.push(change);
    }

    async fn end(&self) {
        let (landed, refused): (Vec<_>, Vec<_>) =
            (self.landed.iter().collect(), self.refused.iter().collect());
        ends_right(&self.system, Expected { landed: &landed, refused: &refused }).await.unwrap();
    }
}

/// G01: one change is approved, tested, merged, and told so with its buildset's address.
async fn one_change_lands(play: &mut Play) {
    let a = play.propose(ONE, "single").await;
    play.gate(&[&a]).await;
    let set = decided(&play.system, &a).await.unwrap();
    play.lands(a.clone()).await;
    until("the success to be reported", async || {
        Ok((play.forge.status(&a, GATE).await? == "success").then_some(()))
    })
    .await
    .unwrap();
    let pull = play.forge.get(&format!("{ONE}/pulls/{}", a.number)).await.unwrap();
    let statuses = play
        .forge
        .get(&format!("{ONE}/commits/{}/statuses", text(&pull["head"], "sha")))
        .await
        .unwrap();
    let of_gate =
        statuses.as_array().unwrap().iter().filter(|status| text(status, "context") == GATE);
    let told: Vec<(&str, &str)> =
        of_gate.map(|one| (text(one, "state"), text(one, "target_url"))).collect();
    let [("success", address), ("pending", _)] = told[..] else { panic!("{told:?}") };
    assert!(address.contains(text(&set, "uuid")), "{address} names the buildset");
}

/// G02, S01: three changes of two repositories are tested at once, each on top of those before it,
/// and land in their order.
async fn a_queue_is_tested_at_once(play: &mut Play) {
    let a = play.propose_held(ONE, "first", "queue", &[]).await;
    let b = play.propose_held(ONE, "second", "queue", &[]).await;
    let c = play.propose_held(TWO, "third", "queue", &[]).await;
    play.gate(&[&a, &b, &c]).await;
    play.all_run(&[&a, &b, &c]).await;
    play.release("queue");
    for change in [a, b, c] {
        play.lands(change).await;
    }
}

/// Z7.4: the log of a build is read through the API while it is written; what was read then is the
/// beginning of what is kept.
async fn a_log_is_read_while_it_is_written(play: &mut Play) {
    let a = play.propose_held(ONE, "logged", "log", &[]).await;
    play.gate(&[&a]).await;
    play.all_run(&[&a]).await;
    let query = format!("tenant/{TENANT}/builds?project={ONE}&change={}&pipeline=gate", a.number);
    let builds: Vec<Value> = play.system.client().unwrap().get(&query).await.unwrap();
    let address = format!(
        "{}api/tenant/{TENANT}/build/{}/log",
        play.system.web_root(),
        text(&builds[0], "uuid")
    );
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let read = async || {
        let answer = client.get(&address).send().await?.error_for_status()?;
        let is_over = answer.headers().get("x-log-ended").is_some_and(|ended| ended == "1");
        anyhow::Ok((is_over, answer.text().await?))
    };
    let begun = until("the task that waits to be in the log", async || {
        let (is_over, log) = read().await?;
        anyhow::ensure!(!is_over, "the build ended without leave: {log}");
        anyhow::ensure!(
            log.contains("LOOP [Wait for what the tested tree waits for]"),
            "the log so far: {log}"
        );
        Ok(Some(log))
    })
    .await
    .unwrap();
    play.release("log");
    play.lands(a).await;
    let (is_over, whole) = read().await.unwrap();
    assert!(is_over && whole.starts_with(&begun), "{begun} is not the beginning of {whole}");
    assert!(whole.contains("TASK [See that the tested tree is not broken]"), "{whole}");
}

/// G05: a change fails at the head: the builds behind it are aborted and run again without it.
async fn those_behind_a_failure_are_tested_again(play: &mut Play) {
    let a = play.propose_held(ONE, "fails", "head", &[("broken", "yes\n")]).await;
    let b = play.propose_held(ONE, "behind", "behind", &[]).await;
    let c = play.propose_held(TWO, "last", "behind", &[]).await;
    play.gate(&[&a, &b, &c]).await;
    play.all_run(&[&a, &b, &c]).await;
    play.release("head");
    play.is_refused(a, "FAILURE", "held").await;
    play.until_results("gate", &b, &[Some("ABORTED"), None]).await;
    play.until_results("gate", &c, &[Some("ABORTED"), None]).await;
    play.release("behind");
    for change in [b, c] {
        play.until_results("gate", &change, &[Some("ABORTED"), Some("SUCCESS")]).await;
        play.lands(change).await;
    }
}

/// G12: an approval is taken back while the build runs: it is aborted, the change leaves and does
/// not land.
async fn a_change_leaves_with_its_approval(play: &mut Play) {
    let a = play.propose_held(ONE, "regretted", "regret", &[]).await;
    play.gate(&[&a]).await;
    play.all_run(&[&a]).await;
    play.forge.dismiss(&a).await.unwrap();
    play.until_results("gate", &a, &[Some("ABORTED")]).await;
    let set = decided(&play.system, &a).await.unwrap();
    assert_eq!(text(&set, "result"), "DEQUEUED");
    let why = text(&set, "message");
    assert!(why.contains("unable to merge due to a missing merge requirement"), "{why}");
    play.release("regret");
    assert_eq!(play.forge.landed_as(&a).await.unwrap(), None);
}

/// G13: a change that is closed while its build runs is gone, and nobody is told.
async fn a_closed_change_is_gone(play: &mut Play) {
    let a = play.propose_held(ONE, "closed", "closed", &[]).await;
    play.gate(&[&a]).await;
    play.all_run(&[&a]).await;
    play.forge.close(&a).await.unwrap();
    play.until_results("gate", &a, &[Some("ABORTED")]).await;
    assert_eq!(play.result(&a).await, "DEQUEUED");
    play.release("closed");
    assert_eq!(play.forge.comments(&a).await.unwrap(), Vec::<String>::new());
}

/// G14: a new patch set takes the change, and what needs it, out of the gate; what is independent
/// lands.
async fn a_new_patch_set_takes_its_change_out(play: &mut Play) {
    let a = play.propose_held(ONE, "stays", "patch-set", &[]).await;
    let b = play.propose_held(TWO, "pushed", "patch-set", &[]).await;
    let c = play
        .forge
        .propose_after(ONE, "needing", &[("greetings/needing", "Hi!\n")], Some(&b))
        .await
        .unwrap();
    play.gate(&[&a, &b, &c]).await;
    play.all_run(&[&a, &b]).await;
    play.forge.push(&b, "greetings/pushed", "Anew!\n").await.unwrap();
    play.until_results("gate", &b, &[Some("ABORTED")]).await;
    assert_eq!(play.result(&b).await, "DEQUEUED");
    play.is_refused(c, "FAILURE", "depends on a change that failed to merge").await;
    play.release("patch-set");
    play.lands(a).await;
    assert_eq!(play.forge.landed_as(&b).await.unwrap(), None);
}

/// G15: the forge refuses the merge.
async fn a_refused_merge_is_told(play: &mut Play) {
    let a = play.propose_held(ONE, "unwanted", "unwanted", &[]).await;
    play.gate(&[&a]).await;
    play.all_run(&[&a]).await;
    play.forge.fault(ONE, json!({"kind": "refuse-merge"}), 1).await.unwrap();
    play.release("unwanted");
    play.is_refused(a, "MERGE_FAILURE", "merge").await;
}

/// G19: what is approved while it is checked is checked no longer.
async fn the_gate_supersedes_the_check(play: &mut Play) {
    let a = play.propose_held(ONE, "hasty", "hasty", &[]).await;
    play.until_results("check", &a, &[None]).await;
    play.gate(&[&a]).await;
    play.until_results("check", &a, &[Some("ABORTED")]).await;
    play.release("hasty");
    play.lands(a).await;
}

/// S02: of two changes that git cannot put together the second is told so; what comes behind is
/// tested without it.
async fn a_conflict_is_told_and_left_out(play: &mut Play) {
    let a = play.propose_held(ONE, "mine", "conflict", &[("greetings/same", "mine\n")]).await;
    let b = play.forge.propose(ONE, "yours", &[("greetings/same", "yours\n")]).await.unwrap();
    let c = play.propose(ONE, "theirs").await;
    play.gate(&[&a, &b, &c]).await;
    play.release("conflict");
    play.lands(a).await;
    play.is_refused(b, "MERGE_CONFLICT", "erge").await;
    play.lands(c).await;
}

/// D01: a change waits for the one that it depends on, of another repository, and lands behind it.
async fn a_need_lands_first(play: &mut Play) {
    let b = play.propose(TWO, "needed").await;
    let a = play
        .forge
        .propose_after(ONE, "depends", &[("greetings/depends", "Hi!\n")], Some(&b))
        .await
        .unwrap();
    approve(&play.system, &a).await.unwrap();
    until("the approval of what is not ready to be taken in", async || {
        let all = play.forge.deliveries(ONE).await?;
        let taken = all
            .iter()
            .filter(|one| one.event == "pull_request_review" && one.status == 202)
            .count();
        Ok((taken > 0).then_some(()))
    })
    .await
    .unwrap();
    play.gate(&[&b]).await;
    play.lands(b).await;
    play.lands(a).await;
}

/// D10: two changes that need each other land together, from two repositories.
async fn a_cycle_lands_together(play: &mut Play) {
    let a = play.propose_held(ONE, "round", "round", &[]).await;
    let b = play
        .forge
        .propose_after(TWO, "about", &[("greetings/about", "Hi!\n")], Some(&a))
        .await
        .unwrap();
    play.forge.depend(&a, &b).await.unwrap();
    approve(&play.system, &a).await.unwrap();
    play.gate(&[&b]).await;
    play.release("round");
    assert_eq!(
        (play.result(&a).await, play.result(&b).await),
        ("SUCCESS".to_owned(), "SUCCESS".to_owned())
    );
    // They leave the queue at one moment, so that the order in which they are listed says nothing.
    let sets = ledger::buildsets(&play.system.operator().await.unwrap()).await.unwrap();
    let names = |change: &Change| {
        ledger::landed(&sets).iter().position(|set| {
            let key = &set.item.candidate.change.key;
            key.project.name() == change.repository && key.number() == Some(change.number)
        })
    };
    let in_order = if names(&a) < names(&b) { [a, b] } else { [b, a] };
    play.landed.extend(in_order);
}

/// D13: of a cycle in which one fails nothing lands, and both are told.
async fn a_cycle_fails_together(play: &mut Play) {
    let a = play.forge.propose(ONE, "ring", &[("broken", "yes\n")]).await.unwrap();
    let b = play
        .forge
        .propose_after(TWO, "rung", &[("greetings/rung", "Hi!\n")], Some(&a))
        .await
        .unwrap();
    play.forge.depend(&a, &b).await.unwrap();
    approve(&play.system, &a).await.unwrap();
    play.gate(&[&b]).await;
    play.is_refused(a, "FAILURE", "held").await;
    play.is_refused(b, "FAILURE", "cycle that failed").await;
}

/// G01, G02, G05, G12 to G15, G19, S01, S02, Z7.4: what happens to changes in a queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_gated_as_on_memory() {
    let mut play = Play::begin().await;
    one_change_lands(&mut play).await;
    a_log_is_read_while_it_is_written(&mut play).await;
    a_queue_is_tested_at_once(&mut play).await;
    those_behind_a_failure_are_tested_again(&mut play).await;
    a_change_leaves_with_its_approval(&mut play).await;
    a_closed_change_is_gone(&mut play).await;
    a_new_patch_set_takes_its_change_out(&mut play).await;
    a_refused_merge_is_told(&mut play).await;
    the_gate_supersedes_the_check(&mut play).await;
    a_conflict_is_told_and_left_out(&mut play).await;
    play.end().await;
}

/// Proposes another `.zuul.yaml` of a repository.
async fn configure(play: &Play, repository: &str, title: &str, gate: &str, more: &str) -> Change {
    let post = if repository == ONE { "    post: {jobs: [after]}\n" } else { "" };
    let file = format!(
        "{more}- project:\n    queue: integrated\n    check: {{jobs: [held]}}\n    gate: {gate}\n{post}"
    );
    play.forge.propose(repository, title, &[(".zuul.yaml", &file)]).await.unwrap()
}

/// C01: a change that adds a job is tested with it, and so is whatever comes after it.
async fn a_new_job_is_live_with_its_change(play: &mut Play) {
    let job = "- job: {name: own, parent: held}\n";
    let a = configure(play, ONE, "adds", "{jobs: [held, own]}", job).await;
    play.gate(&[&a]).await;
    play.lands(a.clone()).await;
    assert_eq!(play.results("gate", &a).await.len(), 2, "its own job ran");
    let b = play.propose(ONE, "follows").await;
    play.gate(&[&b]).await;
    play.lands(b.clone()).await;
    assert_eq!(play.results("gate", &b).await.len(), 2, "the job is live");
}

/// C02, C05, X11: a mistake in configuration is told at the change, and nothing is built.
async fn mistakes_are_told(play: &mut Play) {
    for (title, more, told) in [
        ("unknown-job", "- project: {gate: {jobs: [nobody]}}\n", "Job nobody not defined"),
        (
            "unknown-word",
            "- job: {name: strange, fnord: 1}\n",
            "syntax error: extra keys not allowed: \"fnord\" is not known here",
        ),
        (
            "own-pipeline",
            "- pipeline: {name: mine, manager: independent}\n",
            "Pipelines may not be defined",
        ),
    ] {
        let a = configure(play, ONE, title, "{jobs: [held]}", more).await;
        play.gate(&[&a]).await;
        play.is_refused(a.clone(), "CONFIG_ERROR", told).await;
        assert_eq!(play.results("gate", &a).await, Vec::<Option<String>>::new());
    }
}

/// J12, J14, J15: a failed job's children are skipped; a job that does not vote stops nothing; noop
/// needs no build.
async fn jobs_follow_their_graph(play: &mut Play) {
    let skips = "{jobs: [failing, late: {dependencies: failing}]}";
    let a = configure(play, TWO, "skips", skips, "").await;
    play.gate(&[&a]).await;
    play.is_refused(a.clone(), "FAILURE", "late : SKIPPED (Skipped due to failed job failing)")
        .await;
    assert_eq!(play.built(&a).await, ["failing"], "late never ran");
    let b = configure(play, TWO, "voiceless", "{jobs: [held, failing: {voting: false}]}", "").await;
    play.gate(&[&b]).await;
    play.lands(b.clone()).await;
    let mut results = play.results("gate", &b).await;
    results.sort();
    assert_eq!(results, [Some("FAILURE".to_owned()), Some("SUCCESS".to_owned())]);
    let c = configure(play, TWO, "nothing", "{jobs: [noop]}", "").await;
    play.gate(&[&c]).await;
    play.lands(c.clone()).await;
    assert_eq!(play.built(&c).await, Vec::<String>::new(), "nothing was built");
}

/// S06: what landed is tested once more as what was pushed, without a change.
async fn a_push_is_tested_by_itself(play: &Play) {
    let newest = play.landed.iter().rev().find(|change| change.repository == ONE).unwrap();
    let commit = play.forge.landed_as(newest).await.unwrap().unwrap();
    let query =
        format!("tenant/{TENANT}/builds?project={ONE}&pipeline=post&newrev={commit}&complete=true");
    let build = until("what landed to be tested once more", async || {
        let builds: Vec<Value> = play.system.client()?.get(&query).await?;
        Ok(builds.into_iter().next())
    })
    .await
    .unwrap();
    assert_eq!((text(&build, "job_name"), text(&build, "result")), ("after", "SUCCESS"));
    assert_eq!(
        (text(&build["ref"], "ref"), &build["ref"]["change"]),
        ("refs/heads/main", &Value::Null)
    );
}

/// S05, Z6.4: where a project wants its history linear it is, also of changes that were tested on
/// top of each other, and what lands is the tree that was tested.
async fn history_is_as_the_project_wants_it(play: &Play) {
    for (mode, commits_of_two) in [("rebase", 2), ("cherry-pick", 2), ("squash-merge", 1)] {
        let wanted = format!("{{jobs: [held]}}\n    merge-mode: {mode}");
        let first = configure(play, TWO, &format!("wants-{mode}"), &wanted, "").await;
        play.gate(&[&first]).await;
        assert_eq!(play.result(&first).await, "SUCCESS");
        let before = play.forge.landed_as(&first).await.unwrap().unwrap();
        let a = play.propose_held(TWO, mode, mode, &[]).await;
        play.forge.push(&a, &format!("greetings/{mode}-too"), "Hello!\n").await.unwrap();
        until("the check of the new patch set to begin", async || {
            Ok((play.forge.status(&a, "demo/check").await? == "pending").then_some(()))
        })
        .await
        .unwrap();
        let b = play.propose_held(TWO, &format!("{mode}-b"), mode, &[]).await;
        let c = play.propose_held(TWO, &format!("{mode}-c"), mode, &[]).await;
        play.gate(&[&a, &b, &c]).await;
        play.all_run(&[&a, &b, &c]).await;
        play.release(mode);
        let mut landed = Vec::new();
        for change in [&a, &b, &c] {
            assert_eq!(play.result(change).await, "SUCCESS", "{mode}: {change}");
            let results = play.results("gate", change).await;
            assert_eq!(
                results,
                [Some("SUCCESS".to_owned())],
                "{mode}: {change} was tested once, on what is ahead"
            );
            landed.push(play.forge.landed_as(change).await.unwrap().unwrap());
        }
        let new = play.log(TWO, &["--format=%H %p", &format!("{before}..{}", landed[2])]);
        assert_eq!(new.lines().count(), commits_of_two + 2, "{mode}: {new}");
        assert!(
            new.lines().all(|line| line.split(' ').count() == 2),
            "{mode} makes no merge commit: {new}"
        );
        let ends: Vec<&str> = new.lines().rev().filter_map(|line| line.split(' ').next()).collect();
        let ends: Vec<&str> = ends.into_iter().skip(commits_of_two - 1).collect();
        assert_eq!(ends, landed, "{mode}: they landed one on the other");
        let sets = ledger::buildsets(&play.system.operator().await.unwrap()).await.unwrap();
        for (change, commit) in [&a, &b, &c].into_iter().zip(&landed) {
            let is_own = |set: &&Buildset| {
                let key = &set.item.candidate.change.key;
                key.project.name() == change.repository && key.number() == Some(change.number)
            };
            let set = ledger::landed(&sets).into_iter().find(is_own).unwrap();
            let tested = set.item.merged().unwrap().tested.tree.0.clone();
            assert_eq!(play.forge.tree(TWO, commit).await.unwrap(), tested, "{mode}: {change}");
        }
    }
}

impl Play {
    /// Returns what `git log` says of a repository of the forge.
    fn log(&self, repository: &str, words: &[&str]) -> String {
        let folder = self.system.data().join("forge/git").join(format!("{repository}.git"));
        let mut git = std::process::Command::new("git");
        let output = git
            .args(["-c", "safe.directory=*", "log"])
            .args(words)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// C01, C02, C05, D01, D10, D13, J12, J14, J15, S05, S06, X11: what changes say about each other
/// and about their own tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_understood_as_on_memory() {
    let mut play = Play::begin().await;
    a_need_lands_first(&mut play).await;
    a_cycle_lands_together(&mut play).await;
    a_cycle_fails_together(&mut play).await;
    a_new_job_is_live_with_its_change(&mut play).await;
    a_push_is_tested_by_itself(&play).await;
    mistakes_are_told(&mut play).await;
    jobs_follow_their_graph(&mut play).await;
    play.end().await;
    history_is_as_the_project_wants_it(&play).await;
}
