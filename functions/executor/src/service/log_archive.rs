//! Archives the logs of a build that has ended, and says what could not be stored (Z7.4).

use super::ExecutorService;
use super::build_reporter::BuildReporter;
use crate::archive::{self, LogCopy};
use crate::job::{AttemptScope, Observer};
use crate::jobdir::log_path;
use crate::joblog;
use crate::returned_data;
use crate::stored_log::StoredLog;
use sluice_model::build::RunEnd;
use sluice_records::artifact::complete_artifacts;
use sluice_records::logs::BuildLogs;
use std::path::Path;

impl ExecutorService {
    /// Archives the logs of a build below its directory `jobdir`; `log` says whether its log is
    /// stored already. Sets the address of the logs in `ended`, unless the job uploaded its logs
    /// itself and returned their address, and completes the addresses of its artifacts. What cannot
    /// be stored becomes a warning of the build and a line of its log, which is stored again.
    pub(super) async fn archive_logs(
        &self,
        logs: BuildLogs<'_>,
        jobdir: &Path,
        (scope, log): (AttemptScope, LogCopy),
        (stored_log, observer): (&mut StoredLog<'_>, &BuildReporter),
        ended: &mut RunEnd,
    ) {
        let root = &self.options.log_root;
        let archived = archive::archive(&self.ports, logs, jobdir, root, log).await;
        ended.log_url = ended.log_url.take().or(archived.address);
        if let Some(log_url) = &ended.log_url {
            complete_artifacts(&mut ended.data, log_url);
        }
        let Some(trouble) = archived.trouble else { return };
        returned_data::add_warning(&mut ended.data, trouble.clone());
        if scope == AttemptScope::CollectLogs && log == LogCopy::Stored {
            // The log of the build is the lost executor's.
            return;
        }
        let added = match joblog::append(&log_path(jobdir), &trouble) {
            Ok((offset, line)) => {
                observer.log_appended(offset, line.as_bytes());
                match log {
                    LogCopy::Stored => {
                        stored_log.finish().await.then_some(()).ok_or_else(String::new)
                    }
                    LogCopy::Missing => archive::store_log(&self.ports, logs, jobdir)
                        .await
                        .map_err(|error| error.to_string()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = added {
            tracing::warn!(build = %logs.build, error, "could not add to a log what could not be stored");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::job::{JobAttempt, Lease, RepositorySources, Runner, StopSignal};
    use crate::service::ExecutorSettings;
    use crate::service::admission::AdmissionLimits;
    use crate::service::zone::ServedZone;
    use async_trait::async_trait;
    use serde_json::json;
    use sluice_memory::{Fate, World};
    use sluice_model::build::BuildResult;
    use sluice_model::{BuildId, TenantName, Timestamp};
    use sluice_records::logs::LOG;
    use std::sync::Arc;

    struct UnusedRunner;

    #[async_trait]
    impl Runner for UnusedRunner {
        async fn execute(
            &self,
            _: &JobAttempt<'_>,
            _: &dyn RepositorySources,
            _: &Path,
            _: StopSignal,
            _: &dyn Observer,
        ) -> RunEnd {
            unreachable!("the build has ended")
        }
    }

    /// Z7.4: a file that could not be stored is named in the stored log and in a warning, and the
    /// addresses of artifacts are complete.
    #[tokio::test]
    async fn what_could_not_be_stored_is_a_line_in_the_log_and_a_warning() {
        let world = World::new(1, 0, Timestamp(0));
        let scratch = tempfile::tempdir().unwrap();
        let options = ExecutorSettings {
            hostname: "here".to_owned(),
            slots: 1,
            limits: AdmissionLimits::default(),
            state: scratch.path().to_owned(),
            node_key: None,
            log_address: None,
            log_root: "https://ci.test/logs/".to_owned(),
            drain_seconds: 0,
            token_issuer: String::new(),
            zone: ServedZone::default(),
        };
        let executor = ExecutorService::new(world.ports(), Arc::new(UnusedRunner), options);
        let (tenant, build) = (TenantName::from("acme"), BuildId::derive(&["one"]));
        let logs = BuildLogs { tenant: &tenant, build: &build };
        let jobdir = scratch.path().join("one");
        std::fs::create_dir_all(jobdir.join("work/logs")).unwrap();
        std::fs::write(log_path(&jobdir), "first\n").unwrap();
        std::fs::write(jobdir.join("work/logs/big.txt"), vec![b'x'; 1 << 20]).unwrap();
        let observer =
            BuildReporter::new(executor.logs.open(&build, &jobdir), executor.starting.enter());
        let ports = world.ports();
        let lease = Lease::unlimited();
        let length = observer.log_length();
        let mut stored_log = StoredLog::new(&ports, logs, log_path(&jobdir), length, &lease);
        let artifacts = json!({"zuul": {"artifacts": [{"name": "docs", "url": "docs/"}]}});
        let mut ended = RunEnd {
            result: BuildResult::Success,
            detail: None,
            started_at: None,
            ended_at: Timestamp(0),
            data: crate::vars::to_map(artifacts),
            data_object: None,
            log_url: None,
        };
        // The small files are stored, and the large one is not.
        world.set_fate(1, Fate::FailsBefore);
        let state = (AttemptScope::Whole, LogCopy::Missing);
        executor.archive_logs(logs, &jobdir, state, (&mut stored_log, &observer), &mut ended).await;
        let named = "1 log file could not be read or stored and will be missing: big.txt";
        assert_eq!(ended.data["zuul"]["warnings"], json!([named]));
        let log = logs.read_file(&ports, LOG).await.unwrap().unwrap();
        let log = String::from_utf8(log.to_vec()).unwrap();
        assert!(log.starts_with("first\n") && log.ends_with(&format!(" | {named}\n")), "{log}");
        let docs = format!("https://ci.test/logs/acme/{build}/docs/");
        assert_eq!(ended.data["zuul"]["artifacts"][0]["url"], docs);
    }
}
