//! Measures the time outside the functions: each call of a forge and of repositories.

use async_trait::async_trait;
use sluice_forge::{
    Branch, CheckReport, CommitDetails, Forge, ForgeError, LineComment, Marker, MergeMessage,
    ReviewDecision, StatusReport, WebhookDelivery,
};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, OpenChange, RepositoryPermission};
use sluice_model::git::{BranchKey, BranchState, Commit, MergeMode, Oid};
use sluice_model::{BranchName, ProjectName, Timestamp};
use sluice_repos::{
    BranchMerge, BranchMergeResult, Branches, CommitFiles, ListedRefs, ProjectAt, Repos, ReposError,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A shared stopwatch: time and number of calls by name.
#[derive(Debug, Clone, Default)]
pub struct Stopwatch(Arc<Mutex<Measured>>);

#[derive(Debug, Default)]
struct Measured {
    by_name: BTreeMap<&'static str, (Duration, u64)>,
    /// By the part of the name before the dot: the number of running calls, since when, and the
    /// total time with any running call before.
    kinds: BTreeMap<&'static str, (u32, Option<Instant>, Duration)>,
}

impl Stopwatch {
    /// Returns the measurements and resets them.
    pub fn take(&self) -> BTreeMap<&'static str, (Duration, u64)> {
        std::mem::take(&mut *self.0.lock().unwrap()).by_name
    }

    /// Returns how long at least one call of a kind (`forge`, `git`) was running; calls may run
    /// concurrently.
    pub fn covered(&self, kind: &str) -> Duration {
        self.0.lock().unwrap().kinds.get(kind).map(|(_, _, covered)| *covered).unwrap_or_default()
    }

    /// Adds time to a name.
    pub fn add(&self, name: &'static str, time: Duration) {
        let mut all = self.0.lock().unwrap();
        let entry = all.by_name.entry(name).or_default();
        *entry = (entry.0 + time, entry.1 + 1);
    }

    async fn time<T>(&self, name: &'static str, work: impl Future<Output = T>) -> T {
        let begin = Instant::now();
        self.open(name, begin);
        let answer = work.await;
        self.add(name, begin.elapsed());
        self.close(name);
        answer
    }

    fn open(&self, name: &'static str, at: Instant) {
        let mut all = self.0.lock().unwrap();
        let (open, since, _) = all.kinds.entry(kind(name)).or_default();
        *open += 1;
        since.get_or_insert(at);
    }

    fn close(&self, name: &'static str) {
        let mut all = self.0.lock().unwrap();
        let (open, since, covered) = all.kinds.entry(kind(name)).or_default();
        *open = open.saturating_sub(1);
        if *open == 0
            && let Some(since) = since.take()
        {
            *covered += since.elapsed();
        }
    }
}

fn kind(name: &'static str) -> &'static str {
    name.split_once('.').map_or(name, |(kind, _)| kind)
}

/// A forge whose calls are timed.
pub struct ClockedForge {
    inner: Arc<dyn Forge>,
    watch: Stopwatch,
}

impl ClockedForge {
    /// Wraps a forge.
    pub fn new(inner: Arc<dyn Forge>, watch: Stopwatch) -> Self {
        Self { inner, watch }
    }
}

#[async_trait]
impl Forge for ClockedForge {
    fn change_at(&self, url: &str) -> Option<ChangeKey> {
        self.inner.change_at(url)
    }
    async fn read_change(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError> {
        self.watch.time("forge.read_change", self.inner.read_change(change)).await
    }
    async fn open_changes(&self, project: &ProjectName) -> Result<Vec<OpenChange>, ForgeError> {
        self.watch.time("forge.open_changes", self.inner.open_changes(project)).await
    }
    async fn changes_with_head(
        &self,
        project: &ProjectName,
        head: &Oid,
    ) -> Result<Vec<ChangeRef>, ForgeError> {
        self.watch
            .time("forge.changes_with_head", self.inner.changes_with_head(project, head))
            .await
    }
    async fn branches(&self, project: &ProjectName) -> Result<Vec<Branch>, ForgeError> {
        self.watch.time("forge.branches", self.inner.branches(project)).await
    }
    async fn is_locked(&self, branch: &BranchKey) -> Result<Option<bool>, ForgeError> {
        self.watch.time("forge.is_locked", self.inner.is_locked(branch)).await
    }
    async fn branch_tip(&self, branch: &BranchKey) -> Result<Commit, ForgeError> {
        self.watch.time("forge.branch_tip", self.inner.branch_tip(branch)).await
    }
    async fn read_commit(
        &self,
        project: &ProjectName,
        id: &Oid,
    ) -> Result<CommitDetails, ForgeError> {
        self.watch.time("forge.read_commit", self.inner.read_commit(project, id)).await
    }
    async fn set_status(
        &self,
        project: &ProjectName,
        head: &Oid,
        status: &StatusReport,
    ) -> Result<(), ForgeError> {
        self.watch.time("forge.set_status", self.inner.set_status(project, head, status)).await
    }
    async fn put_check_run(
        &self,
        project: &ProjectName,
        head: &Oid,
        run: &CheckReport,
    ) -> Result<(), ForgeError> {
        self.watch.time("forge.put_check_run", self.inner.put_check_run(project, head, run)).await
    }
    async fn put_comment(
        &self,
        change: &ChangeKey,
        marker: &Marker,
        text: &str,
    ) -> Result<(), ForgeError> {
        self.watch.time("forge.put_comment", self.inner.put_comment(change, marker, text)).await
    }
    async fn change_labels(
        &self,
        change: &ChangeKey,
        add: &[String],
        remove: &[String],
    ) -> Result<(), ForgeError> {
        self.watch.time("forge.change_labels", self.inner.change_labels(change, add, remove)).await
    }
    async fn put_line_comments(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        summary: &str,
        comments: &[LineComment],
    ) -> Result<(), ForgeError> {
        self.watch
            .time(
                "forge.put_line_comments",
                self.inner.put_line_comments(change, marker, summary, comments),
            )
            .await
    }
    async fn ref_tip(
        &self,
        project: &ProjectName,
        git_ref: &str,
    ) -> Result<Option<Commit>, ForgeError> {
        self.watch.time("forge.ref_tip", self.inner.ref_tip(project, git_ref)).await
    }
    fn page_of(&self, project: &ProjectName, commit: Option<&Oid>) -> String {
        self.inner.page_of(project, commit)
    }
    fn time(&self) -> Option<Timestamp> {
        self.inner.time()
    }
    async fn own_account(&self) -> Result<Option<String>, ForgeError> {
        self.watch.time("forge.own_account", self.inner.own_account()).await
    }
    async fn permission_of(
        &self,
        project: &ProjectName,
        login: &str,
    ) -> Result<RepositoryPermission, ForgeError> {
        self.watch.time("forge.permission_of", self.inner.permission_of(project, login)).await
    }
    async fn put_review(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        decision: ReviewDecision,
        text: &str,
    ) -> Result<(), ForgeError> {
        self.watch
            .time("forge.put_review", self.inner.put_review(change, marker, decision, text))
            .await
    }
    async fn merge(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError> {
        self.watch.time("forge.merge", self.inner.merge(change, mode, message)).await
    }
    async fn fast_forward(
        &self,
        branch: &BranchKey,
        from: &Oid,
        to: &Oid,
        pack: &[u8],
    ) -> Result<(), ForgeError> {
        self.watch.time("forge.fast_forward", self.inner.fast_forward(branch, from, to, pack)).await
    }
    async fn contains(&self, branch: &BranchKey, commit: &Oid) -> Result<bool, ForgeError> {
        self.watch.time("forge.contains", self.inner.contains(branch, commit)).await
    }
    async fn deliveries(&self, project: &ProjectName) -> Result<Vec<WebhookDelivery>, ForgeError> {
        self.watch.time("forge.deliveries", self.inner.deliveries(project)).await
    }
    async fn redeliver(
        &self,
        project: &ProjectName,
        delivery: &WebhookDelivery,
    ) -> Result<(), ForgeError> {
        self.watch.time("forge.redeliver", self.inner.redeliver(project, delivery)).await
    }
}

/// Repositories whose calls are timed.
pub struct ClockedRepos {
    inner: Arc<dyn Repos>,
    watch: Stopwatch,
}

impl ClockedRepos {
    /// Wraps repositories.
    pub fn new(inner: Arc<dyn Repos>, watch: Stopwatch) -> Self {
        Self { inner, watch }
    }
}

#[async_trait]
impl Repos for ClockedRepos {
    async fn branches(&self, project: &ProjectAt) -> Result<Branches, ReposError> {
        self.watch.time("git.branches", self.inner.branches(project)).await
    }
    async fn refs(&self, project: &ProjectAt) -> Result<ListedRefs, ReposError> {
        self.watch.time("git.refs", self.inner.refs(project)).await
    }
    async fn ref_tip(&self, project: &ProjectAt, git_ref: &str) -> Result<Option<Oid>, ReposError> {
        self.watch.time("git.ref", self.inner.ref_tip(project, git_ref)).await
    }
    async fn branch_tip(
        &self,
        project: &ProjectAt,
        branch: &BranchName,
    ) -> Result<BranchState, ReposError> {
        self.watch.time("git.tip", self.inner.branch_tip(project, branch)).await
    }
    async fn tag_state(&self, project: &ProjectAt, tag: &str) -> Result<BranchState, ReposError> {
        self.watch.time("git.tag", self.inner.tag_state(project, tag)).await
    }
    async fn commit_state(
        &self,
        project: &ProjectAt,
        branch: &BranchName,
        commit: &Oid,
        since: Option<&Oid>,
    ) -> Result<(BranchState, Option<Vec<String>>), ReposError> {
        self.watch.time("git.at", self.inner.commit_state(project, branch, commit, since)).await
    }
    async fn branches_containing(
        &self,
        project: &ProjectAt,
        commit: &Oid,
    ) -> Result<Vec<BranchName>, ReposError> {
        self.watch.time("git.containing", self.inner.branches_containing(project, commit)).await
    }
    async fn merge(&self, ask: &BranchMerge) -> Result<BranchMergeResult, ReposError> {
        self.watch.time("git.merge", self.inner.merge(ask)).await
    }
    async fn configuration_files(
        &self,
        project: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        extra: &[String],
    ) -> Result<CommitFiles, ReposError> {
        self.watch
            .time(
                "git.configuration",
                self.inner.configuration_files(project, commit, state, extra),
            )
            .await
    }
    async fn existing_files(
        &self,
        project: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        paths: &[String],
    ) -> Result<Vec<String>, ReposError> {
        self.watch
            .time("git.present", self.inner.existing_files(project, commit, state, paths))
            .await
    }
}
