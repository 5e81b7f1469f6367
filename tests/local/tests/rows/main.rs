//! Rows of behaviour on the whole local system: real git, real merges on the emulated forge, real
//! Ansible on launched nodes.
//!
//! Builds ask the test whether they may continue, so that a test can act while they run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod landing;
mod trees;

use serde_json::{Value, json};
use sluice_local::{ONE, TENANT, TWO, audit};
use sluice_local_tests::forge::{ForgeUser, PullRequest};
use sluice_local_tests::story::{
    Expected, GATE, approve, configure_rows, decided, deliveries_end, ends_right, entered, is_of,
    items_in_gate,
};
use sluice_local_tests::system::{System, UpOptions};
use sluice_local_tests::until;
use sluice_operator::show::text;
use sluice_records::report::Buildset;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

/// A server that builds ask whether they may continue. It answers the name of a hold with `go` or
/// `wait`. Playbooks of the config project reach this machine's network but not its temporary files.
struct HoldServer {
    port: u16,
    released: Arc<Mutex<BTreeSet<String>>>,
}

impl HoldServer {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let released: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let shared = released.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move {
                    let (read, mut write) = stream.split();
                    let mut hold = String::new();
                    BufReader::new(read).read_line(&mut hold).await?;
                    let may_go = shared.lock().unwrap().contains(hold.trim());
                    write.write_all(if may_go { b"go\n" } else { b"wait\n" }).await
                });
            }
        });
        Self { port, released }
    }
}

/// A running system for a series of rows, with the changes that have landed or were refused so far.
struct GateTest {
    system: System,
    forge: ForgeUser,
    holds: HoldServer,
    landed: Vec<PullRequest>,
    refused: Vec<PullRequest>,
}

impl GateTest {
    async fn begin() -> Self {
        Self::on(System::start(UpOptions::default()).await.unwrap()).await
    }

    /// Configures a system that runs already.
    async fn on(system: System) -> Self {
        configure_rows(&system).await.unwrap();
        Self::on_configured(system).await
    }

    /// Uses a system that is configured already.
    async fn on_configured(system: System) -> Self {
        let forge = system.forge().unwrap();
        let holds = HoldServer::open().await;
        Self { system, forge, holds, landed: Vec::new(), refused: Vec::new() }
    }

    /// Proposes a change that adds one file.
    async fn propose(&self, repository: &str, title: &str) -> PullRequest {
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
    ) -> PullRequest {
        let hold = format!("{} {hold}\n", self.holds.port);
        let file = format!("hold/{title}");
        let files: Vec<(&str, &str)> =
            [(file.as_str(), hold.as_str())].into_iter().chain(more.iter().copied()).collect();
        self.forge.propose(repository, title, &files).await.unwrap()
    }

    /// Lets builds that wait for this hold continue.
    fn release(&self, hold: &str) {
        self.holds.released.lock().unwrap().insert(hold.to_owned());
    }

    /// Approves changes one after the other and waits until each is in the gate.
    async fn gate(&self, changes: &[&PullRequest]) {
        for change in changes {
            approve(&self.system, change).await.unwrap();
            entered(&self.system, change).await.unwrap();
        }
    }

    /// Returns the builds of a change in a pipeline, the newest first, without those of `noop`, which
    /// no executor runs. Skipped jobs have none.
    async fn builds(&self, pipeline: &str, change: &PullRequest) -> Vec<Value> {
        let PullRequest { repository, number } = change;
        let query = format!(
            "tenant/{TENANT}/builds?project={repository}&change={number}&pipeline={pipeline}&limit=50"
        );
        let mut builds: Vec<Value> = self.system.client().unwrap().get(&query).await.unwrap();
        builds.retain(|build| build["uuid"].is_string() && build["job_name"] != "noop");
        builds
    }

    /// Returns the results of a change's builds in a pipeline, the oldest first; `None` for a
    /// running build.
    async fn results(&self, pipeline: &str, change: &PullRequest) -> Vec<Option<String>> {
        let builds = self.builds(pipeline, change).await;
        builds.iter().rev().map(|build| build["result"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the address of the log of a build.
    fn log_address(&self, build: &Value) -> String {
        let (root, uuid) = (self.system.web_root(), text(build, "uuid"));
        format!("{root}api/tenant/{TENANT}/build/{uuid}/log")
    }

    /// Returns the sorted names of the jobs that had a build for a change in the gate.
    async fn built_jobs(&self, change: &PullRequest) -> Vec<String> {
        let builds = self.builds("gate", change).await;
        let mut jobs: Vec<String> =
            builds.iter().map(|build| text(build, "job_name").to_owned()).collect();
        jobs.sort();
        jobs
    }

    /// Waits until a change's builds in a pipeline have these results.
    async fn until_results(&self, pipeline: &str, change: &PullRequest, expected: &[Option<&str>]) {
        until(&format!("{change} to have {expected:?} in {pipeline}"), async || {
            let results = self.results(pipeline, change).await;
            anyhow::ensure!(
                results.iter().map(Option::as_deref).eq(expected.iter().copied()),
                "{results:?}"
            );
            Ok(Some(()))
        })
        .await
        .unwrap();
    }

    /// Waits until every job of these queued changes has passed.
    async fn all_passed(&self, changes: &[&PullRequest]) {
        for change in changes {
            until(&format!("{change} to pass in the gate"), async || {
                let board: Value =
                    self.system.client()?.get(&format!("tenant/{TENANT}/board")).await?;
                let item = items_in_gate(&board).find(|item| is_of(item, change)).cloned();
                anyhow::ensure!(item.is_some(), "it is not in the gate: {board}");
                Ok(item.filter(|item| item["status"] == "passed").map(drop))
            })
            .await
            .unwrap();
        }
    }

    /// Waits until each change has exactly one build, which is running.
    async fn all_run(&self, changes: &[&PullRequest]) {
        for change in changes {
            self.until_results("gate", change, &[None]).await;
        }
    }

    /// Waits until the gate has decided on a change, and returns the result.
    async fn result(&self, change: &PullRequest) -> String {
        text(&decided(&self.system, change).await.unwrap(), "result").to_owned()
    }

    /// Asserts that a change lands, and records it as landed.
    async fn lands(&mut self, change: PullRequest) {
        assert_eq!(self.result(&change).await, "SUCCESS", "{change}");
        self.landed.push(change);
    }

    /// Asserts that both members of a bundle land, and records them as landed.
    async fn bundle_lands(&mut self, [a, b]: [PullRequest; 2]) {
        for change in [&a, &b] {
            assert_eq!(self.result(change).await, "SUCCESS", "{change}");
        }
        // Both leave the queue at the same time, so that either may be listed first.
        let sets = audit::buildsets(&self.system.operator().await.unwrap()).await.unwrap();
        let position = |change: &PullRequest| {
            audit::landed(&sets).iter().position(|set| {
                let key = &set.item.candidate.change.key;
                key.project.name() == change.repository && key.number() == Some(change.number)
            })
        };
        let in_order = if position(&a) < position(&b) { [a, b] } else { [b, a] };
        self.landed.extend(in_order);
    }

    /// Asserts that a change ends with this result and a comment with this text, and records it as
    /// refused.
    async fn is_refused(&mut self, change: PullRequest, result: &str, comment: &str) {
        assert_eq!(self.result(&change).await, result, "{change}");
        let comments = until(&format!("the failure of {change} to be reported"), async || {
            let comments = self.forge.comments(&change).await?;
            Ok((!comments.is_empty()).then_some(comments))
        })
        .await
        .unwrap();
        assert!(comments[0].contains(comment), "{change} has the comments {comments:?}");
        self.refused.push(change);
    }

    /// Checks the end of all changes of this series.
    async fn end(&self) {
        let (landed, refused): (Vec<_>, Vec<_>) =
            (self.landed.iter().collect(), self.refused.iter().collect());
        ends_right(&self.system, Expected { landed: &landed, refused: &refused }).await.unwrap();
    }
}

/// G01: one change is approved, tested and merged, and its status links to the buildset.
async fn one_change_lands(test: &mut GateTest) {
    let a = test.propose(ONE, "single").await;
    test.gate(&[&a]).await;
    let set = decided(&test.system, &a).await.unwrap();
    test.lands(a.clone()).await;
    until("the success to be reported", async || {
        Ok((test.forge.status(&a, GATE).await? == "success").then_some(()))
    })
    .await
    .unwrap();
    let pull = test.forge.get(&format!("{ONE}/pulls/{}", a.number)).await.unwrap();
    let statuses = test
        .forge
        .get(&format!("{ONE}/commits/{}/statuses", text(&pull["head"], "sha")))
        .await
        .unwrap();
    let of_gate =
        statuses.as_array().unwrap().iter().filter(|status| text(status, "context") == GATE);
    let reported: Vec<(&str, &str)> =
        of_gate.map(|one| (text(one, "state"), text(one, "target_url"))).collect();
    let [("success", address), ("pending", _)] = reported[..] else { panic!("{reported:?}") };
    assert!(address.contains(text(&set, "uuid")), "{address} names the buildset");
}

/// G02, S01: three changes of two repositories are tested at once, each on top of those before it,
/// and land in their order.
async fn a_queue_is_tested_at_once(test: &mut GateTest) {
    let a = test.propose_held(ONE, "first", "queue", &[]).await;
    let b = test.propose_held(ONE, "second", "queue", &[]).await;
    let c = test.propose_held(TWO, "third", "queue", &[]).await;
    test.gate(&[&a, &b, &c]).await;
    test.all_run(&[&a, &b, &c]).await;
    test.release("queue");
    for change in [a, b, c] {
        test.lands(change).await;
    }
}

/// Z7.4: the log of a running build is read through the API; the text read so far is the beginning
/// of the stored log.
async fn a_log_is_read_while_it_is_written(test: &mut GateTest) {
    let a = test.propose_held(ONE, "logged", "log", &[]).await;
    test.gate(&[&a]).await;
    test.all_run(&[&a]).await;
    let address = test.log_address(&test.builds("gate", &a).await[0]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let read = async || {
        let answer = client.get(&address).send().await?.error_for_status()?;
        let is_complete = answer.headers().get("x-log-ended").is_some_and(|ended| ended == "1");
        anyhow::Ok((is_complete, answer.text().await?))
    };
    let begun = until("the task that waits to be in the log", async || {
        let (is_complete, log) = read().await?;
        anyhow::ensure!(!is_complete, "the build ended before its hold was released: {log}");
        anyhow::ensure!(
            log.contains("LOOP [Wait for what the tested tree waits for]"),
            "the log so far: {log}"
        );
        Ok(Some(log))
    })
    .await
    .unwrap();
    test.release("log");
    test.lands(a).await;
    let (is_complete, whole) = read().await.unwrap();
    assert!(is_complete && whole.starts_with(&begun), "{begun} is not the beginning of {whole}");
    assert!(whole.contains("TASK [See that the tested tree is not broken]"), "{whole}");
}

/// G05: the change at the head fails: the builds behind it are aborted and run again without it.
async fn changes_behind_a_failure_are_tested_again(test: &mut GateTest) {
    let a = test.propose_held(ONE, "fails", "head", &[("broken", "yes\n")]).await;
    let b = test.propose_held(ONE, "behind", "behind", &[]).await;
    let c = test.propose_held(TWO, "last", "behind", &[]).await;
    test.gate(&[&a, &b, &c]).await;
    test.all_run(&[&a, &b, &c]).await;
    test.release("head");
    test.is_refused(a, "FAILURE", "held").await;
    test.until_results("gate", &b, &[Some("ABORTED"), None]).await;
    test.until_results("gate", &c, &[Some("ABORTED"), None]).await;
    test.release("behind");
    for change in [b, c] {
        test.until_results("gate", &change, &[Some("ABORTED"), Some("SUCCESS")]).await;
        test.lands(change).await;
    }
}

/// G12: the approval is dismissed while the build runs: the build is aborted, and the change leaves
/// the queue and does not land.
async fn a_change_without_its_approval_leaves(test: &mut GateTest) {
    let a = test.propose_held(ONE, "regretted", "regret", &[]).await;
    test.gate(&[&a]).await;
    test.all_run(&[&a]).await;
    test.forge.dismiss(&a).await.unwrap();
    test.until_results("gate", &a, &[Some("ABORTED")]).await;
    let set = decided(&test.system, &a).await.unwrap();
    assert_eq!(text(&set, "result"), "DEQUEUED");
    let why = text(&set, "message");
    assert!(why.contains("unable to merge due to a missing merge requirement"), "{why}");
    test.release("regret");
    assert_eq!(test.forge.landed_as(&a).await.unwrap(), None);
}

/// G13: a change that is closed while its build runs leaves the queue without a comment.
async fn a_closed_change_leaves(test: &mut GateTest) {
    let a = test.propose_held(ONE, "closed", "closed", &[]).await;
    test.gate(&[&a]).await;
    test.all_run(&[&a]).await;
    test.forge.close(&a).await.unwrap();
    test.until_results("gate", &a, &[Some("ABORTED")]).await;
    assert_eq!(test.result(&a).await, "DEQUEUED");
    test.release("closed");
    assert_eq!(test.forge.comments(&a).await.unwrap(), Vec::<String>::new());
}

/// G14: a new patch set removes the change and its dependents from the gate; an independent change
/// lands.
async fn a_new_patch_set_dequeues_its_change(test: &mut GateTest) {
    let a = test.propose_held(ONE, "stays", "patch-set", &[]).await;
    let b = test.propose_held(TWO, "pushed", "patch-set", &[]).await;
    let c = test
        .forge
        .propose_after(ONE, "needing", &[("greetings/needing", "Hi!\n")], Some(&b))
        .await
        .unwrap();
    test.gate(&[&a, &b, &c]).await;
    test.all_run(&[&a, &b]).await;
    test.forge.push(&b, "greetings/pushed", "Again!\n").await.unwrap();
    test.until_results("gate", &b, &[Some("ABORTED")]).await;
    assert_eq!(test.result(&b).await, "DEQUEUED");
    test.is_refused(c, "FAILURE", "depends on a change that failed to merge").await;
    test.release("patch-set");
    test.lands(a).await;
    assert_eq!(test.forge.landed_as(&b).await.unwrap(), None);
}

/// G15: the forge refuses the merge, and the change is reported as a merge failure.
async fn a_refused_merge_is_reported(test: &mut GateTest) {
    let a = test.propose_held(ONE, "unwanted", "unwanted", &[]).await;
    test.gate(&[&a]).await;
    test.all_run(&[&a]).await;
    test.forge.fault(ONE, json!({"kind": "refuse-merge"}), 1).await.unwrap();
    test.release("unwanted");
    test.is_refused(a, "MERGE_FAILURE", "merge").await;
}

/// G19: a change that enters the gate while it is checked leaves check.
async fn the_gate_supersedes_the_check(test: &mut GateTest) {
    let a = test.propose_held(ONE, "hasty", "hasty", &[("checked/hasty", "yes\n")]).await;
    test.until_results("check", &a, &[None]).await;
    test.gate(&[&a]).await;
    test.until_results("check", &a, &[Some("ABORTED")]).await;
    test.release("hasty");
    test.lands(a).await;
}

/// S02: the second of two conflicting changes is reported as a conflict, and the changes behind it
/// are tested without it.
async fn a_conflicting_change_is_reported_and_left_out(test: &mut GateTest) {
    let a = test.propose_held(ONE, "mine", "conflict", &[("greetings/same", "mine\n")]).await;
    let b = test.forge.propose(ONE, "yours", &[("greetings/same", "yours\n")]).await.unwrap();
    let c = test.propose(ONE, "theirs").await;
    test.gate(&[&a, &b, &c]).await;
    test.release("conflict");
    test.lands(a).await;
    test.is_refused(b, "MERGE_CONFLICT", "erge").await;
    test.lands(c).await;
}

/// D01: a change waits for its dependency in another repository and lands behind it.
async fn a_dependency_lands_first(test: &mut GateTest) {
    let b = test.propose(TWO, "needed").await;
    let a = test
        .forge
        .propose_after(ONE, "depends", &[("greetings/depends", "Hi!\n")], Some(&b))
        .await
        .unwrap();
    approve(&test.system, &a).await.unwrap();
    until("the approval of the dependent change to be delivered", async || {
        let all = test.forge.deliveries(ONE).await?;
        let delivered = all
            .iter()
            .filter(|one| one.event == "pull_request_review" && one.status == 202)
            .count();
        Ok((delivered > 0).then_some(()))
    })
    .await
    .unwrap();
    test.gate(&[&b]).await;
    test.lands(b).await;
    test.lands(a).await;
}

/// D10: two changes of two repositories with a dependency cycle land as one bundle.
async fn a_bundle_lands_as_one(test: &mut GateTest) {
    let a = test.propose_held(ONE, "round", "round", &[]).await;
    let b = test
        .forge
        .propose_after(TWO, "about", &[("greetings/about", "Hi!\n")], Some(&a))
        .await
        .unwrap();
    test.forge.add_dependency(&a, &b).await.unwrap();
    approve(&test.system, &a).await.unwrap();
    test.gate(&[&b]).await;
    test.release("round");
    test.bundle_lands([a, b]).await;
}

/// D13: when one member of a bundle fails, no member lands and both are reported as failed.
async fn a_bundle_fails_as_one(test: &mut GateTest) {
    let a = test.forge.propose(ONE, "ring", &[("broken", "yes\n")]).await.unwrap();
    let b = test
        .forge
        .propose_after(TWO, "rung", &[("greetings/rung", "Hi!\n")], Some(&a))
        .await
        .unwrap();
    test.forge.add_dependency(&a, &b).await.unwrap();
    approve(&test.system, &a).await.unwrap();
    test.gate(&[&b]).await;
    test.is_refused(a, "FAILURE", "held").await;
    test.is_refused(b, "FAILURE", "cycle that failed").await;
}

/// G01, G02, G05, G12 to G15, G19, S01, S02, Z7.4: changes in a queue behave as in the in-memory
/// scenarios.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_gated_as_in_the_memory_scenarios() {
    let mut test = GateTest::begin().await;
    one_change_lands(&mut test).await;
    a_log_is_read_while_it_is_written(&mut test).await;
    a_queue_is_tested_at_once(&mut test).await;
    changes_behind_a_failure_are_tested_again(&mut test).await;
    a_change_without_its_approval_leaves(&mut test).await;
    a_closed_change_leaves(&mut test).await;
    a_new_patch_set_dequeues_its_change(&mut test).await;
    a_refused_merge_is_reported(&mut test).await;
    the_gate_supersedes_the_check(&mut test).await;
    a_conflicting_change_is_reported_and_left_out(&mut test).await;
    test.end().await;
}

/// Proposes a new `.zuul.yaml` for a repository.
async fn configure(
    test: &GateTest,
    repository: &str,
    title: &str,
    gate: &str,
    more: &str,
) -> PullRequest {
    let file = format!(
        "{more}- project:\n    queue: integrated\n    check: {{jobs: [checked]}}\n    gate: {gate}\n"
    );
    test.forge.propose(repository, title, &[(".zuul.yaml", &file)]).await.unwrap()
}

/// C01: a change that adds a job is tested with it, and so are later changes.
async fn a_new_job_is_live_with_its_change(test: &mut GateTest) {
    let job = "- job: {name: own, parent: held}\n";
    let jobs = "{jobs: [held, own]}\n    post: {jobs: [after]}";
    let a = configure(test, ONE, "adds", jobs, job).await;
    test.gate(&[&a]).await;
    test.lands(a.clone()).await;
    assert_eq!(test.results("gate", &a).await.len(), 2, "its own job ran");
    let b = test.propose(ONE, "follows").await;
    test.gate(&[&b]).await;
    test.lands(b.clone()).await;
    assert_eq!(test.results("gate", &b).await.len(), 2, "the job is live");
}

/// C02, C05, X11: a configuration error is reported on the change that has it, and nothing is
/// built.
async fn configuration_errors_are_reported(test: &mut GateTest) {
    for (title, more, error) in [
        ("unknown-job", "- project: {gate: {jobs: [missing]}}\n", "Job missing not defined"),
        (
            "unknown-word",
            "- job: {name: strange, fnord: 1}\n",
            "syntax error: extra keys not allowed: \"fnord\" is not an attribute here",
        ),
        (
            "own-pipeline",
            "- pipeline: {name: mine, manager: independent}\n",
            "Pipelines may only be defined in config projects",
        ),
    ] {
        let a = configure(test, ONE, title, "{jobs: [held]}", more).await;
        test.gate(&[&a]).await;
        test.is_refused(a.clone(), "CONFIG_ERROR", error).await;
        assert_eq!(test.results("gate", &a).await, Vec::<Option<String>>::new());
    }
}

/// J12, J14, J15: the children of a failed job are skipped, a non-voting job stops nothing, and
/// no executor runs noop.
async fn jobs_follow_their_graph(test: &mut GateTest) {
    let skips = "{jobs: [failing, late: {dependencies: failing}]}";
    let a = configure(test, TWO, "skips", skips, "").await;
    test.gate(&[&a]).await;
    test.is_refused(a.clone(), "FAILURE", "late : SKIPPED: Skipped due to failed job failing")
        .await;
    assert_eq!(test.built_jobs(&a).await, ["failing"], "late never ran");
    let b = configure(test, TWO, "voiceless", "{jobs: [held, failing: {voting: false}]}", "").await;
    test.gate(&[&b]).await;
    test.lands(b.clone()).await;
    let mut results = test.results("gate", &b).await;
    results.sort();
    assert_eq!(results, [Some("FAILURE".to_owned()), Some("SUCCESS".to_owned())]);
    let c = configure(test, TWO, "nothing", "{jobs: [noop]}", "").await;
    test.gate(&[&c]).await;
    test.lands(c.clone()).await;
    assert_eq!(test.built_jobs(&c).await, Vec::<String>::new(), "nothing was built");
}

/// S06: a landed commit is tested in post as a push, without a change.
async fn a_push_is_tested_in_post(test: &GateTest) {
    let newest = test.landed.iter().rev().find(|change| change.repository == ONE).unwrap();
    let commit = test.forge.landed_as(newest).await.unwrap().unwrap();
    let query =
        format!("tenant/{TENANT}/builds?project={ONE}&pipeline=post&newrev={commit}&complete=true");
    let build = until("the landed commit to be tested in post", async || {
        let builds: Vec<Value> = test.system.client()?.get(&query).await?;
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

/// S05, Z6.4: the history follows the project's merge mode, also for changes that were tested on
/// top of each other, and the landed trees are the tested ones.
async fn history_follows_the_merge_mode(test: &GateTest) {
    for (mode, commits_of_two) in [("rebase", 2), ("cherry-pick", 2), ("squash-merge", 1)] {
        let gate = format!("{{jobs: [noop, slow]}}\n    merge-mode: {mode}");
        let first = configure(test, TWO, &format!("wants-{mode}"), &gate, "").await;
        test.gate(&[&first]).await;
        assert_eq!(test.result(&first).await, "SUCCESS");
        let before = test.forge.landed_as(&first).await.unwrap().unwrap();
        let (file, hold) = (format!("slow/{mode}"), format!("{} {mode}\n", test.holds.port));
        let a = test.forge.propose(TWO, mode, &[(&file, &hold)]).await.unwrap();
        test.forge.push(&a, &format!("greetings/{mode}-too"), "Hello!\n").await.unwrap();
        let b = test.propose(TWO, &format!("{mode}-b")).await;
        let c = test.propose(TWO, &format!("{mode}-c")).await;
        // The event of the new patch set would take the change out of the gate.
        deliveries_end(&test.system, &[TWO]).await.unwrap();
        test.gate(&[&a, &b, &c]).await;
        test.all_run(&[&a]).await;
        test.all_passed(&[&b, &c]).await;
        test.release(mode);
        let mut landed = Vec::new();
        for change in [&a, &b, &c] {
            assert_eq!(test.result(change).await, "SUCCESS", "{mode}: {change}");
            landed.push(test.forge.landed_as(change).await.unwrap().unwrap());
        }
        let new = test.log(TWO, &["--format=%H %p", &format!("{before}..{}", landed[2])]);
        assert_eq!(new.lines().count(), commits_of_two + 2, "{mode}: {new}");
        assert!(
            new.lines().all(|line| line.split(' ').count() == 2),
            "{mode} makes no merge commit: {new}"
        );
        let ends: Vec<&str> = new.lines().rev().filter_map(|line| line.split(' ').next()).collect();
        let ends: Vec<&str> = ends.into_iter().skip(commits_of_two - 1).collect();
        assert_eq!(ends, landed, "{mode}: they landed one on the other");
        let sets = audit::buildsets(&test.system.operator().await.unwrap()).await.unwrap();
        for (change, commit) in [&a, &b, &c].into_iter().zip(&landed) {
            let is_of_change = |set: &&Buildset| {
                let key = &set.item.candidate.change.key;
                key.project.name() == change.repository && key.number() == Some(change.number)
            };
            let set = audit::landed(&sets).into_iter().find(is_of_change).unwrap();
            let is_first = set.item.generation == 1;
            assert!(is_first, "{mode}: {change} was tested once, on what is ahead");
            let tested = set.item.merged().unwrap().tested.tree.0.clone();
            assert_eq!(test.forge.tree(TWO, commit).await.unwrap(), tested, "{mode}: {change}");
        }
    }
}

impl GateTest {
    /// Returns the output of `git log` in a repository of the forge.
    fn log(&self, repository: &str, arguments: &[&str]) -> String {
        let folder = self.system.data().join("forge/git").join(format!("{repository}.git"));
        let mut git = std::process::Command::new("git");
        let output = git
            .args(["-c", "safe.directory=*", "log"])
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// C01, C02, C05, D01, D10, D13, J12, J14, J15, S05, S06, X11: dependencies and configuration
/// behave as in the in-memory scenarios.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependencies_and_configuration_work_as_in_the_memory_scenarios() {
    let mut test = GateTest::begin().await;
    a_dependency_lands_first(&mut test).await;
    a_bundle_lands_as_one(&mut test).await;
    a_bundle_fails_as_one(&mut test).await;
    a_new_job_is_live_with_its_change(&mut test).await;
    a_push_is_tested_in_post(&test).await;
    configuration_errors_are_reported(&mut test).await;
    jobs_follow_their_graph(&mut test).await;
    test.end().await;
    history_follows_the_merge_mode(&test).await;
}
