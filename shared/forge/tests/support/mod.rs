//! A forge of one's own per test, and a driver that speaks to it.
#![allow(dead_code, reason = "each test file uses its part")]

use sluice_forge::{ForgeSecret, GitHub, GitHubOptions, MergeMessage};
use sluice_local_forge::{
    AccountPermission, Edit, ForgeAccount, ForgeOptions, LocalForge, Proposal,
};
use sluice_model::ProjectName;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::BranchKey;
use tempfile::TempDir;

pub const REPOSITORY: &str = "org/one";

/// A running forge with the repository `org/one`, which holds `README` and `.zuul.yaml`.
pub struct Scene {
    pub forge: LocalForge,
    pub github: GitHub,
    _folder: TempDir,
}

impl Scene {
    pub async fn new() -> Self {
        Self::with_hook(None).await
    }

    pub async fn with_hook(first_hook: Option<(String, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let accounts = vec![
            ForgeAccount::new("sluice", "sluice-token", AccountPermission::Admin),
            ForgeAccount::new("ann", "ann-token", AccountPermission::Write),
            ForgeAccount::new("bob", "bob-token", AccountPermission::Write)
                .with_email("bob@example.org"),
            ForgeAccount::new("guest", "guest-token", AccountPermission::Read),
            ForgeAccount::new("gates[bot]", "gates-token", AccountPermission::Write),
        ];
        let options =
            ForgeOptions { root: folder.path().to_path_buf(), port: 0, accounts, first_hook };
        let forge = LocalForge::start(options).await.unwrap();
        let files = [Edit::write("README", "one\ntwo\nthree\n"), Edit::write(".zuul.yaml", "[]\n")];
        forge.create_repository(REPOSITORY, &files, "ann").await.unwrap();
        let github = driver(&forge, "sluice-token");
        Self { forge, github, _folder: folder }
    }

    /// Proposes a change by ann that writes one file; the branch has the file's name.
    pub async fn propose(&self, file: &str, content: &str, body: &str) -> ChangeRef {
        let head = self
            .forge
            .commit(
                REPOSITORY,
                file,
                &format!("Write {file}"),
                &[Edit::write(file, content)],
                "ann",
            )
            .await;
        let proposal = Proposal {
            title: format!("Write {file}"),
            body: body.into(),
            head: file.into(),
            base: "main".into(),
        };
        let number = self.forge.open_pull(REPOSITORY, proposal, "ann").await.unwrap();
        let head = head.unwrap();
        ChangeRef {
            key: self.key(number),
            branch: "main".into(),
            patchset: head.clone(),
            head: head.as_str().into(),
        }
    }

    pub fn project(&self) -> ProjectName {
        ProjectName::new("forge.example", REPOSITORY)
    }

    pub fn key(&self, number: u64) -> ChangeKey {
        ChangeKey::change("forge".into(), self.project(), number)
    }

    pub fn main(&self) -> BranchKey {
        BranchKey { project: self.project(), branch: "main".into() }
    }
}

pub fn driver(forge: &LocalForge, token: &str) -> GitHub {
    GitHub::new(GitHubOptions {
        connection: "forge".into(),
        host: "forge.example".into(),
        api_url: forge.api_url(),
        web_url: forge.web_url().into(),
        token: ForgeSecret::new(token),
        own_login: None,
    })
    .unwrap()
}

pub fn message() -> MergeMessage {
    MergeMessage { title: "Land it".into(), body: "As tested.".into() }
}
