//! A runner without Ansible and nodes: it prepares the workspace of a playbook, writes the logs of
//! every build, and ends a build on request.

use async_trait::async_trait;
use serde_json::json;
use sluice_executor::jobdir::Jobdir;
use sluice_executor::{
    AnsibleSettings, JobAttempt, Observer, RepositorySources, Runner, StopSignal,
    playbook_checkouts, workspace,
};
use sluice_model::Timestamp;
use sluice_model::build::{BuildResult, RunEnd};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use tokio::sync::{Semaphore, watch};

/// How much of a build is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builds {
    /// It starts and ends, and leaves a log.
    Nothing,
    /// Its repositories and playbooks are prepared from the packs in object storage, and it leaves
    /// the files of every build, which one call stores with the log.
    Prepared,
}

/// A runner without playbooks. Every build succeeds, except those of a change that is set to fail.
pub struct Nothing {
    ends: Semaphore,
    fails: watch::Sender<Option<u64>>,
    /// Builds that wait for their end, by change number.
    waiting: Mutex<BTreeMap<u64, usize>>,
    builds: Builds,
}

impl Nothing {
    /// Creates a runner in which no build may end yet.
    pub fn new(builds: Builds) -> Self {
        Self {
            ends: Semaphore::new(0),
            fails: watch::Sender::new(None),
            waiting: Mutex::default(),
            builds,
        }
    }

    /// Returns how much of a build is executed.
    pub fn builds(&self) -> Builds {
        self.builds
    }

    /// Lets further builds end.
    pub fn let_end(&self, builds: usize) {
        self.ends.add_permits(builds);
    }

    /// Fails every build of a change, and returns how many of them were running.
    pub fn let_fail(&self, number: u64) -> usize {
        let waiting = self.waiting(number);
        self.fails.send_replace(Some(number));
        waiting
    }

    /// Returns the number of running builds of a change.
    pub fn waiting(&self, number: u64) -> usize {
        self.waiting.lock().unwrap().get(&number).copied().unwrap_or_default()
    }

    /// Waits until a build of this change may end, and returns its result.
    async fn end_of(&self, number: u64) -> BuildResult {
        let mut fails = self.fails.subscribe();
        let failed = async { fails.wait_for(|fails| *fails == Some(number)).await.is_ok() };
        tokio::select! {
            biased;
            _ = failed => BuildResult::Failure,
            permit = self.ends.acquire() => {
                permit.unwrap().forget();
                BuildResult::Success
            }
        }
    }
}

/// Does the work of an executor before and after the playbooks, without nodes.
async fn prepare_all(job: &JobAttempt<'_>, sources: &dyn RepositorySources, root: &Path) {
    let jobdir = Jobdir::make(root, &root.join("runtime"), &job.order.build).unwrap();
    let placed = workspace::place_repositories(job, sources, &jobdir).await.unwrap();
    let settings = AnsibleSettings::new(root);
    playbook_checkouts::prepare_playbooks(job, sources, &jobdir, &settings).await.unwrap();
    std::fs::create_dir_all(jobdir.logs.join("zuul-info")).unwrap();
    std::fs::write(jobdir.logs.join("zuul-info/inventory.yaml"), "all: {}\n").unwrap();
    std::fs::write(jobdir.logs.join("workspace-repos.json"), json!(placed).to_string()).unwrap();
    std::fs::write(jobdir.logs.join("job-output.json"), "[]").unwrap();
}

#[async_trait]
impl Runner for Nothing {
    async fn execute(
        &self,
        job: &JobAttempt<'_>,
        sources: &dyn RepositorySources,
        jobdir: &Path,
        _: StopSignal,
        observer: &dyn Observer,
    ) -> RunEnd {
        let at = job.order.ordered_at;
        if self.builds == Builds::Prepared {
            prepare_all(job, sources, jobdir).await;
        }
        let logs = jobdir.join("work/logs");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join("job-output.txt"), "nothing was run\n").unwrap();
        observer.started(at);
        let number = job.order.change.key.number().unwrap_or_default();
        *self.waiting.lock().unwrap().entry(number).or_default() += 1;
        let result = self.end_of(number).await;
        *self.waiting.lock().unwrap().entry(number).or_default() -= 1;
        RunEnd {
            result,
            detail: None,
            started_at: Some(at),
            ended_at: Timestamp(at.0 + 1),
            data: serde_json::Map::new(),
            data_object: None,
            log_url: None,
        }
    }
}
