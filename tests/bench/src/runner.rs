//! A runner that leaves Ansible out: it starts at once, writes a short log and ends when it is let.

use async_trait::async_trait;
use sluice_executor::{Job, Observer, Runner, Sources, StopSignal};
use sluice_model::Timestamp;
use sluice_model::build::{BuildResult, Ended};
use std::path::Path;
use tokio::sync::Semaphore;

/// Runs nothing; every build succeeds.
pub struct Nothing {
    ends: Semaphore,
}

impl Nothing {
    /// Makes a runner of which no build has been let to end.
    pub fn new() -> Self {
        Self { ends: Semaphore::new(0) }
    }

    /// Lets further builds end.
    pub fn let_end(&self, builds: usize) {
        self.ends.add_permits(builds);
    }
}

impl Default for Nothing {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Runner for Nothing {
    async fn execute(
        &self,
        job: &Job<'_>,
        _: &dyn Sources,
        jobdir: &Path,
        _: StopSignal,
        observer: &dyn Observer,
    ) -> Ended {
        let at = job.order.ordered_at;
        let logs = jobdir.join("work/logs");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join("job-output.txt"), "nothing was run\n").unwrap();
        observer.started(at);
        self.ends.acquire().await.unwrap().forget();
        Ended {
            result: BuildResult::Success,
            detail: None,
            started_at: Some(at),
            ended_at: Timestamp(at.0 + 1),
            data: serde_json::Map::new(),
            data_object: None,
            log_url: None,
        }
    }
}
