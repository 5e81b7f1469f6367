//! The driver for GitHub: github.com, GitHub Enterprise and the local forge, which differ only in
//! their base URLs.

mod http;
mod land;
mod push;
mod read;
mod report;
mod shapes;

use crate::error::ForgeError;
use crate::forge::{
    Branch, CheckReport, CommitDetails, Forge, LineComment, MergeMessage, ReviewDecision,
    StatusReport, WebhookDelivery,
};
use crate::marker::Marker;
use crate::secret::ForgeSecret;
use async_trait::async_trait;
use http::Api;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, OpenChange, RepositoryPermission};
use sluice_model::git::{BranchKey, Commit, MergeMode, Oid};
use sluice_model::{ConnectionName, ProjectName, Timestamp};
use url::Url;

/// The address of a GitHub and the account to use.
#[derive(Debug, Clone)]
pub struct GitHubOptions {
    /// The connection's name; it is part of every [`ChangeKey`].
    pub connection: ConnectionName,
    /// The host part of canonical project names (`github.com`).
    pub host: String,
    /// The REST API: `https://api.github.com`, `https://<host>/api/v3` for GitHub Enterprise.
    pub api_url: String,
    /// The web pages: `https://github.com`. URLs in `Depends-On:` start with it.
    pub web_url: String,
    /// The token that every request sends.
    pub token: ForgeSecret,
    /// The login of Sluice's comments; read from the forge when absent (an app's token has none).
    pub own_login: Option<String>,
}

/// Invalid options of a driver.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A base URL is not http or https.
    #[error(
        "could not set up connection {connection}: {field} is not an http or https address; \
         correct it in the connection's settings"
    )]
    Address {
        /// The connection's name.
        connection: ConnectionName,
        /// Which setting.
        field: &'static str,
    },
    /// The token has characters that no header can contain.
    #[error(
        "could not set up connection {connection}: its token cannot be sent in a header; check it \
         for stray line ends"
    )]
    Token {
        /// The connection's name.
        connection: ConnectionName,
    },
    /// No HTTP client could be made.
    #[error("could not set up connection {connection}: no HTTP client could be made")]
    Client {
        /// The connection's name.
        connection: ConnectionName,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A connection to GitHub. Cheap to clone; it keeps connections open between calls.
#[derive(Clone)]
pub struct GitHub {
    /// The connection's name.
    connection: ConnectionName,
    /// The host in canonical project names.
    host: String,
    /// The base address of web pages.
    web: Url,
    /// The REST API.
    api: Api,
}

impl GitHub {
    /// Creates a driver. Makes no requests. An error for an address that is not http or https with
    /// a host, for a token that cannot be sent in a header, and if the HTTP client cannot be made.
    pub fn new(options: GitHubOptions) -> Result<Self, ConnectError> {
        let address = |field, text: &str| {
            let url = Url::parse(text)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            url.ok_or_else(|| ConnectError::Address {
                connection: options.connection.clone(),
                field,
            })
        };
        let web = address("web_url", &options.web_url)?;
        let api = Api::new(
            &options.connection,
            address("api_url", &options.api_url)?,
            &options.token,
            options.own_login,
        )?;
        Ok(Self { connection: options.connection, host: options.host, web, api })
    }

    /// Returns the login of the token, read from the forge once unless the options have it. An
    /// error for an app's token, which has no login.
    ///
    /// # Errors [`ForgeError::Unauthorised`] when the token is not accepted;
    /// [`ForgeError::Refused`] for an app's token, which has no login.
    pub async fn own_login(&self) -> Result<String, ForgeError> {
        self.api.own_login().await.map(str::to_owned)
    }

    /// Returns the key of a pull request in the repository `full_name` (`owner/name`).
    fn key(&self, full_name: &str, number: u64) -> ChangeKey {
        let project = ProjectName::new(&self.host, full_name);
        ChangeKey::change(self.connection.clone(), project, number)
    }
}

/// Returns the number of a pull request; for a ref, which has none, [`ForgeError::NotFound`].
fn number(change: &ChangeKey, attempted: &str) -> Result<u64, ForgeError> {
    change.number().ok_or_else(|| ForgeError::NotFound { attempted: attempted.to_owned() })
}

/// Returns the path `/repos/<owner>/<name><rest>` of a project's API.
fn repository(project: &ProjectName, rest: &str) -> String {
    format!("/repos/{}{rest}", escape_path(project.name()))
}

/// Returns `path` with everything but its slashes and unreserved characters percent-encoded.
fn escape_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(char::from(byte))
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[async_trait]
impl Forge for GitHub {
    /// Returns the change whose page, or a tab of whose page, has this URL. Makes no requests.
    fn change_at(&self, url: &str) -> Option<ChangeKey> {
        read::change_at(self, url)
    }

    /// Reads a pull request. Too many reviews or statuses are marked; too many files are `None`.
    async fn read_change(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError> {
        read::change(self, change).await
    }

    /// Reads the open pull requests, by number. Of more than 5,000, the newest are left out.
    async fn open_changes(&self, project: &ProjectName) -> Result<Vec<OpenChange>, ForgeError> {
        read::open_changes(self, project).await
    }

    /// Reads the open pull requests with exactly this head, by number; empty if there are none.
    async fn changes_with_head(
        &self,
        project: &ProjectName,
        head: &Oid,
    ) -> Result<Vec<ChangeRef>, ForgeError> {
        read::changes_with_head(self, project, head).await
    }

    /// Reads all branches, by name. An error if there are more than 5,000.
    async fn branches(&self, project: &ProjectName) -> Result<Vec<Branch>, ForgeError> {
        read::branches(self, project).await
    }

    /// Reads whether a branch is locked; `None` without rules, or if the token may not read them.
    async fn is_locked(&self, branch: &BranchKey) -> Result<Option<bool>, ForgeError> {
        read::is_locked(self, branch).await
    }

    /// Reads the commit of a ref, also of an annotated tag; `None` if the ref does not exist.
    async fn ref_tip(
        &self,
        project: &ProjectName,
        git_ref: &str,
    ) -> Result<Option<Commit>, ForgeError> {
        read::ref_tip(self, project, git_ref).await
    }

    /// Returns the URL of a commit's page, or of the project's without a commit. Makes no requests.
    fn page_of(&self, project: &ProjectName, commit: Option<&Oid>) -> String {
        let base = self.web.as_str().trim_end_matches('/');
        let project = escape_path(project.name());
        match commit {
            Some(commit) => format!("{base}/{project}/commit/{commit}"),
            None => format!("{base}/{project}"),
        }
    }

    /// Reads the commit at the tip of a branch. A missing branch is [`ForgeError::NotFound`].
    async fn branch_tip(&self, branch: &BranchKey) -> Result<Commit, ForgeError> {
        read::branch_tip(self, branch).await
    }

    /// Reads a commit's tree, parents and message. A missing commit is [`ForgeError::NotFound`].
    async fn read_commit(
        &self,
        project: &ProjectName,
        id: &Oid,
    ) -> Result<CommitDetails, ForgeError> {
        read::commit(self, project, id).await
    }

    /// Sets a status on a commit, unless the newest of its context was set for the same report.
    async fn set_status(
        &self,
        project: &ProjectName,
        head: &Oid,
        status: &StatusReport,
    ) -> Result<(), ForgeError> {
        report::set_status(self, project, head, status).await
    }

    /// Creates the check run with the name and marker of the report on `head`, or updates it.
    async fn put_check_run(
        &self,
        project: &ProjectName,
        head: &Oid,
        run: &CheckReport,
    ) -> Result<(), ForgeError> {
        report::put_check_run(self, project, head, run).await
    }

    /// Creates Sluice's comment with this marker, or replaces its text.
    async fn put_comment(
        &self,
        change: &ChangeKey,
        marker: &Marker,
        text: &str,
    ) -> Result<(), ForgeError> {
        report::put_comment(self, change, marker, text).await
    }

    /// Adds labels, then removes labels, up to the first error. A label that the change already
    /// has, or does not have, is no error.
    async fn change_labels(
        &self,
        change: &ChangeKey,
        add: &[String],
        remove: &[String],
    ) -> Result<(), ForgeError> {
        report::change_labels(self, change, add, remove).await
    }

    /// Comments on lines of a change in one review, unless Sluice's review with this marker exists.
    /// [`ForgeError::Refused`] if a line is outside the diff.
    async fn put_line_comments(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        text: &str,
        comments: &[LineComment],
    ) -> Result<(), ForgeError> {
        report::put_line_comments(self, change, marker, text, comments).await
    }

    /// Returns the forge's present time; `None` without an answer with a time in the last minute.
    fn time(&self) -> Option<Timestamp> {
        self.api.time()
    }

    /// Returns the login of the token; `None` for a token without one, such as an application's.
    async fn own_account(&self) -> Result<Option<String>, ForgeError> {
        Ok(self.api.own_account().await?.map(str::to_owned))
    }

    /// Reads an account's permission; [`RepositoryPermission::None`] for an unknown account.
    async fn permission_of(
        &self,
        project: &ProjectName,
        login: &str,
    ) -> Result<RepositoryPermission, ForgeError> {
        let attempted = format!("read what {login} may do in {}", project.name());
        read::permission(&self.api, project, login, &attempted).await
    }

    /// Reviews a change's head, unless Sluice's review with this marker exists.
    async fn put_review(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        decision: ReviewDecision,
        text: &str,
    ) -> Result<(), ForgeError> {
        report::put_review(self, change, marker, decision, text).await
    }

    /// Merges a pull request at `change.head` and returns the merge commit. An earlier merge at
    /// this head is a success; another head is [`ForgeError::HeadMoved`].
    async fn merge(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError> {
        land::merge(self, change, mode, message).await
    }

    /// Moves a branch from `from` to `to` by a push of `pack`. The caller has checked that `to`
    /// follows `from`. [`ForgeError::HeadMoved`] if the branch is at neither.
    async fn fast_forward(
        &self,
        branch: &BranchKey,
        from: &Oid,
        to: &Oid,
        pack: &[u8],
    ) -> Result<(), ForgeError> {
        push::fast_forward(self, branch, from, to, pack).await
    }

    /// Reads whether a branch contains a commit; `false` also if either does not exist.
    async fn contains(&self, branch: &BranchKey, commit: &Oid) -> Result<bool, ForgeError> {
        read::contains(self, branch, commit).await
    }

    /// Reads the newest webhook deliveries, newest first: at most 100 of each of 20 webhooks.
    async fn deliveries(&self, project: &ProjectName) -> Result<Vec<WebhookDelivery>, ForgeError> {
        read::deliveries(self, project).await
    }

    /// Asks GitHub to send a webhook delivery again, under the same id.
    async fn redeliver(
        &self,
        project: &ProjectName,
        delivery: &WebhookDelivery,
    ) -> Result<(), ForgeError> {
        read::redeliver(self, project, delivery).await
    }
}
