//! Programs of others that use the REST API, unmodified, on the whole local system.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod openapi;
mod zuul_client;

use serde_json::Value;
use sluice_local::{TENANT, TWO};
use sluice_local_tests::forge::PullRequest;
use sluice_local_tests::story::configure_rows_with_one_node;
use sluice_local_tests::system::{System, UpOptions};

/// A running system with the gate's jobs held, and a token of an administrator.
struct ClientTest {
    system: System,
    token: String,
    /// Files of the clients.
    files: tempfile::TempDir,
}

impl ClientTest {
    async fn begin() -> Self {
        let system = System::start(UpOptions::default()).await.unwrap();
        configure_rows_with_one_node(&system).await.unwrap();
        let words = ["token", "create", "--user", "ada", "--tenant", TENANT, "--admin"];
        let printed = system.run(&words, "").unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        let token = String::from_utf8(printed.stdout).unwrap().trim().to_owned();
        Self { system, token, files: tempfile::tempdir().unwrap() }
    }

    /// Proposes a change of the project whose gate job has a node. Its builds run until they are
    /// aborted: nothing listens where they ask whether they may go on.
    async fn propose_endless(&self, title: &str) -> PullRequest {
        let file = format!("hold/{title}");
        let forge = self.system.forge().unwrap();
        forge.propose(TWO, title, &[(&file, "1 never\n")]).await.unwrap()
    }

    /// Returns a change with its patch set, as clients name it.
    async fn revision(&self, change: &PullRequest) -> String {
        let path = format!("{}/pulls/{}", change.repository, change.number);
        let pull: Value = self.system.forge().unwrap().get(&path).await.unwrap();
        format!("{},{}", change.number, pull["head"]["sha"].as_str().unwrap())
    }
}
