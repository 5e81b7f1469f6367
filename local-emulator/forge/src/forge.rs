//! The Rust interface of the forge: start, stop, and the actions of its users.

use crate::busy::{self, Busy};
use crate::engine::{Edits, Engine, NewPull, NewReview, statuses_of};
use crate::error::ApiError;
use crate::faults::{Aim, ForgeFault, Times};
use crate::git::Edit;
use crate::model::{CheckRun, Comment, Delivery, Outcome, Pull, Status};
use crate::store::{ForgeStoreError, Store};
use crate::views::{CheckRunView, CommentView, DeliveryView, PullView, ReviewVote, StatusView};
use crate::{api, hooks};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How much an account may do, in every repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountPermission {
    /// May read, comment, review and propose.
    Read,
    /// May also push, merge, label and report.
    Write,
    /// May do everything.
    Admin,
}

impl AccountPermission {
    /// Returns GitHub's name of the permission.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// A user of the forge.
#[derive(Clone)]
pub struct ForgeAccount {
    /// The login.
    pub login: String,
    /// The token of its requests; the password of its pushes.
    pub token: String,
    /// What it may do.
    pub permission: AccountPermission,
    /// The address that it makes public.
    pub email: Option<String>,
}

impl ForgeAccount {
    /// Creates an account with its token and permission, without a public email address.
    pub fn new(
        login: impl Into<String>,
        token: impl Into<String>,
        permission: AccountPermission,
    ) -> Self {
        Self { login: login.into(), token: token.into(), permission, email: None }
    }

    /// Returns the account with an email address, which reviews by it show.
    #[must_use]
    pub fn with_email(self, email: impl Into<String>) -> Self {
        Self { email: Some(email.into()), ..self }
    }
}

impl fmt::Debug for ForgeAccount {
    /// Writes login and permission, but not the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForgeAccount")
            .field("login", &self.login)
            .field("permission", &self.permission)
            .finish_non_exhaustive()
    }
}

/// The options of a forge.
#[derive(Debug, Clone)]
pub struct ForgeOptions {
    /// The folder that holds everything; made when it is not there. One forge at a time may use it.
    pub root: PathBuf,
    /// The port on 127.0.0.1; 0 takes a free one. Addresses in stored events name it, so a lasting
    /// forge wants its own.
    pub port: u16,
    /// The accounts.
    pub accounts: Vec<ForgeAccount>,
    /// The address and secret of a hook that every new repository gets.
    pub first_hook: Option<(String, String)>,
}

/// Why a forge could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be used.
    #[error(
        "could not start the forge: the folder {folder} cannot be made or written; choose another"
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The port cannot be used.
    #[error(
        "could not start the forge: port {port} on 127.0.0.1 cannot be listened on; choose another"
    )]
    Port {
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] ForgeStoreError),
    /// The state of an earlier run could not be restored.
    #[error("could not start the forge: what an earlier run left half done could not be finished")]
    Recovery(#[source] ApiError),
}

/// What a new pull request proposes.
#[derive(Debug, Clone, Default)]
pub struct Proposal {
    /// The title.
    pub title: String,
    /// The description, which may contain `Depends-On:` lines.
    pub body: String,
    /// The branch with the commits.
    pub head: String,
    /// The branch they are for; empty means `main`.
    pub base: String,
}

/// A running forge. Dropping it stops it; its data stays in its folder.
pub struct LocalForge {
    engine: Arc<Engine>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
    sender: JoinHandle<()>,
    busy: Busy,
}

impl LocalForge {
    /// Starts a forge on 127.0.0.1 on the data in its directory, which is created if it is missing.
    /// First records what an earlier forge left half done when it was killed; an error if a git
    /// command of it still runs after 60 s, or if the directory or the port cannot be used. When
    /// this returns, requests are answered and recorded webhooks are being sent.
    pub async fn start(options: ForgeOptions) -> Result<Self, StartError> {
        let ForgeOptions { root, port, accounts, first_hook } = options;
        let folder = |source| StartError::Folder { folder: root.clone(), source };
        std::fs::create_dir_all(root.join("git")).map_err(folder)?;
        let store = Store::open(&root.join("forge.sqlite"))?;
        let listening = |source| StartError::Port { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        // What is answered in two parts would else wait 40 ms for the first one to be acknowledged,
        // as with no forge elsewhere.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let engine =
            Arc::new(Engine::new(root, format!("http://{address}"), store, accounts, first_hook));
        engine.recover().await.map_err(StartError::Recovery)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let busy = Busy::default();
        let count = axum::middleware::from_fn_with_state(busy.clone(), busy::count);
        let router =
            api::router(engine.clone()).layer(count).layer(axum::middleware::from_fn(to_its_end));
        let server = tokio::spawn(async move {
            let until = async { drop(stopped.await) };
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
                tracing::error!(%error, "the forge stopped listening");
            }
        });
        let sender = tokio::spawn(hooks::deliver(engine.clone()));
        Ok(Self { engine, address, stop: Some(stop), server: Some(server), sender, busy })
    }

    /// Stops listening and returns when the running requests are answered. Then no further webhook
    /// is taken up. A delivery that still waits is sent after the next start. One that is marked as
    /// being sent may not arrive; the next start then marks it as failed.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(server) = self.server.take() {
            // The task only ends by itself or by a panic that was reported already.
            let _ = server.await;
        }
    }

    /// Returns for how long in total, since the start, at least one request was being answered: the
    /// forge's own time.
    pub fn busy(&self) -> std::time::Duration {
        self.busy.so_far()
    }

    /// Returns the address on which the forge listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL of the forge's pages: `http://127.0.0.1:<port>`.
    pub fn web_url(&self) -> &str {
        &self.engine.web
    }

    /// Returns the base URL of the REST API, as GitHub Enterprise has it.
    pub fn api_url(&self) -> String {
        format!("{}/api/v3", self.engine.web)
    }

    /// Returns the URL from which git clones a repository.
    pub fn clone_url(&self, repository: &str) -> String {
        format!("{}/{repository}.git", self.engine.web)
    }

    /// Creates a repository `owner/name` whose branch `main` contains these files; without files it
    /// is empty. `by` is the author of the commit, whose permission is not checked. Adds the first
    /// hook of the options, if there is one. An error if the name is invalid or used.
    pub async fn create_repository(
        &self,
        name: &str,
        files: &[Edit],
        by: &str,
    ) -> Result<(), ApiError> {
        self.engine.create_repository(name, files, by).await.map(drop)
    }

    /// Adds a webhook for all events and returns its number. Its first event, a `ping` in the name
    /// of `by`, is recorded for delivery. An error if the repository does not exist.
    pub fn add_hook(
        &self,
        repository: &str,
        url: &str,
        secret: &str,
        by: &str,
    ) -> Result<u64, ApiError> {
        let hook = self.engine.add_hook(repository, url, secret, vec!["*".to_owned()], by)?;
        Ok(hook.id)
    }

    /// Changes the address of every hook, in all repositories, whose address ends with `ending`, to
    /// `to`. Returns how many were changed; hooks that are at `to` already do not count.
    ///
    /// # Errors
    /// When the record cannot be read or written.
    pub fn move_hooks(&self, ending: &str, to: &str) -> Result<usize, ApiError> {
        self.engine.move_hooks(ending, to)
    }

    /// Commits edits on a branch as `by`, records the events that follow and returns the commit,
    /// which exists even if the edits change nothing. A missing branch is created from `main`;
    /// without `main` it begins with these files alone. Neither permissions nor marks of protection
    /// are checked.
    pub async fn commit(
        &self,
        repository: &str,
        branch: &str,
        message: &str,
        edits: &[Edit],
        by: &str,
    ) -> Result<String, ApiError> {
        self.engine.commit(repository, branch, message, edits, by).await
    }

    /// Marks a branch as protected, whether it exists or not. Only the mark exists: the branch
    /// still accepts every change. An error if the repository does not exist.
    pub fn protect(&self, repository: &str, branch: &str) -> Result<(), ApiError> {
        self.engine.protect(repository, branch)
    }

    /// Marks a branch as protected and locked, whether it exists or not. Only the marks exist: the
    /// branch still accepts every change. An error if the repository does not exist.
    pub fn mark_locked(&self, repository: &str, branch: &str) -> Result<(), ApiError> {
        self.engine.mark_locked(repository, branch)
    }

    /// Opens a pull request of `by`, which is no draft, and returns its number; permissions are not
    /// checked. An error if one of the two branches does not exist, the base contains the head
    /// already, or a pull request is open for the two branches already.
    pub async fn open_pull(
        &self,
        repository: &str,
        proposal: Proposal,
        by: &str,
    ) -> Result<u64, ApiError> {
        let Proposal { title, body, head, base } = proposal;
        let base = if base.is_empty() { "main".to_owned() } else { base };
        let new = NewPull { title, body, head, base, draft: false };
        Ok(self.engine.open_pull(repository, new, by).await?.number)
    }

    /// Closes a pull request without merging it; permissions are not checked. Does nothing if it is
    /// closed or merged already. An error if its base branch is missing.
    pub async fn close(&self, repository: &str, number: u64, by: &str) -> Result<(), ApiError> {
        let edits = Edits { state: Some("closed".to_owned()), ..Edits::default() };
        self.engine.edit_pull(repository, number, edits, by).await.map(drop)
    }

    /// Opens a closed pull request again, with the present tip of its branch as head; permissions
    /// are not checked. Does nothing if it is open. An error if it is merged, or one of its
    /// branches is missing.
    pub async fn reopen(&self, repository: &str, number: u64, by: &str) -> Result<(), ApiError> {
        let edits = Edits { state: Some("open".to_owned()), ..Edits::default() };
        self.engine.edit_pull(repository, number, edits, by).await.map(drop)
    }

    /// Replaces the description of a pull request, open or not. Permissions are not checked. An
    /// error if its base branch is missing, although that stays the same.
    pub async fn describe(
        &self,
        repository: &str,
        number: u64,
        body: &str,
        by: &str,
    ) -> Result<(), ApiError> {
        let edits = Edits { body: Some(body.to_owned()), ..Edits::default() };
        self.engine.edit_pull(repository, number, edits, by).await.map(drop)
    }

    /// Reviews the present head of a pull request, open or not, and returns the review's number. An
    /// error if there is no such pull request, or `by` is its author and does more than comment.
    /// Permissions are not checked.
    pub fn review(
        &self,
        repository: &str,
        number: u64,
        vote: ReviewVote,
        body: &str,
        by: &str,
    ) -> Result<u64, ApiError> {
        let event = vote.event().to_owned();
        let new =
            NewReview { number, event, body: body.to_owned(), commit: None, lines: Vec::new() };
        Ok(self.engine.review(repository, new, by)?.id)
    }

    /// Approves the present head of a pull request, without a text, and returns the review's
    /// number. An error if `by` is its author.
    pub fn approve(&self, repository: &str, number: u64, by: &str) -> Result<u64, ApiError> {
        self.review(repository, number, ReviewVote::Approve, "", by)
    }

    /// Dismisses the review with the number `review`, also one by another account; permissions are
    /// not checked. An error if the pull request does not have it, it neither approves nor requests
    /// changes, or it is dismissed already.
    pub fn dismiss(
        &self,
        repository: &str,
        number: u64,
        review: u64,
        by: &str,
    ) -> Result<(), ApiError> {
        self.engine.dismiss_review(repository, number, review, by).map(drop)
    }

    /// Comments on a pull request, open or not, and returns the comment's number. Neither the text
    /// nor permissions are checked. An error if there is no such pull request.
    pub fn comment(
        &self,
        repository: &str,
        number: u64,
        body: &str,
        by: &str,
    ) -> Result<u64, ApiError> {
        Ok(self.engine.comment(repository, number, body, by)?.id)
    }

    /// Adds a label to a pull request; does nothing if it has the label already or the name is
    /// empty. Permissions are not checked.
    pub async fn label(
        &self,
        repository: &str,
        number: u64,
        label: &str,
        by: &str,
    ) -> Result<(), ApiError> {
        self.engine.label(repository, number, &[label.to_owned()], &[], by).await.map(drop)
    }

    /// Removes a label from a pull request; does nothing if it does not have it. Permissions are
    /// not checked.
    pub async fn unlabel(
        &self,
        repository: &str,
        number: u64,
        label: &str,
        by: &str,
    ) -> Result<(), ApiError> {
        self.engine.label(repository, number, &[], &[label.to_owned()], by).await.map(drop)
    }

    /// Returns the current state of a pull request, open or not. An error if there is none.
    pub fn pull(&self, repository: &str, number: u64) -> Result<PullView, ApiError> {
        self.engine.pull(repository, number).map(PullView::from)
    }

    /// Returns all pull requests of a repository, open or not, in the order of their numbers; empty
    /// for an unknown repository.
    pub fn pulls(&self, repository: &str) -> Result<Vec<PullView>, ApiError> {
        let pulls: Vec<Pull> = self.engine.store.within(|access| access.list(repository))?;
        Ok(pulls.into_iter().map(PullView::from).collect())
    }

    /// Returns the id of the newest commit of a branch; `None` if the branch does not exist. An
    /// unknown repository is an error.
    pub async fn tip(&self, repository: &str, branch: &str) -> Result<Option<String>, ApiError> {
        Ok(self.engine.git(repository).resolve(&format!("refs/heads/{branch}")).await?)
    }

    /// Returns the id of the tree of a commit or branch (`revision` may be any that git resolves);
    /// `None` if there is no such commit. An unknown repository is an error.
    pub async fn tree(&self, repository: &str, revision: &str) -> Result<Option<String>, ApiError> {
        Ok(self.engine.git(repository).commit(revision).await?.map(|commit| commit.tree))
    }

    /// Returns a file's text at a commit or branch, with replacements for bytes that are not UTF-8.
    /// `None` if there is no such revision or file, or the path is a directory. An unknown
    /// repository is an error.
    pub async fn file(
        &self,
        repository: &str,
        revision: &str,
        path: &str,
    ) -> Result<Option<String>, ApiError> {
        let bytes = self.engine.git(repository).file(revision, path).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the statuses set on a commit, oldest first, including those that newer ones
    /// replaced. `commit` is a full id. Empty for an unknown commit or repository.
    pub fn statuses(&self, repository: &str, commit: &str) -> Result<Vec<StatusView>, ApiError> {
        let statuses: Vec<Status> =
            self.engine.store.within(|access| access.list(&statuses_of(repository, commit)))?;
        Ok(statuses.into_iter().map(StatusView::from).collect())
    }

    /// Returns the check runs of a commit, oldest first, of all applications. `commit` is a full
    /// id. Empty for an unknown commit or repository.
    pub fn check_runs(
        &self,
        repository: &str,
        commit: &str,
    ) -> Result<Vec<CheckRunView>, ApiError> {
        let runs: Vec<CheckRun> = self.engine.store.within(|access| access.list(repository))?;
        Ok(runs.into_iter().filter(|run| run.sha == commit).map(CheckRunView::from).collect())
    }

    /// Returns the comments on a pull request, oldest first; empty for an unknown pull request.
    /// Reviews are not among them.
    pub fn comments(&self, repository: &str, number: u64) -> Result<Vec<CommentView>, ApiError> {
        let comments: Vec<Comment> = self.engine.store.within(|access| access.list(repository))?;
        Ok(comments
            .into_iter()
            .filter(|comment| comment.number == number)
            .map(CommentView::from)
            .collect())
    }

    /// Returns the webhook deliveries of a repository, oldest first, sent or not; the newest about
    /// 5,000 are kept. Empty for an unknown repository.
    pub fn deliveries(&self, repository: &str) -> Result<Vec<DeliveryView>, ApiError> {
        let deliveries: Vec<Delivery> =
            self.engine.store.within(|access| access.list(repository))?;
        Ok(deliveries.into_iter().map(DeliveryView::from).collect())
    }

    /// Records that a delivery is to be sent again, like the redelivery button of GitHub, and
    /// returns before it is sent. It appears as a new delivery with the same guid and body. An
    /// error if the delivery is not kept any more.
    pub fn redeliver(&self, repository: &str, delivery: &DeliveryView) -> Result<(), ApiError> {
        self.engine.redeliver(repository, delivery.hook, delivery.number)
    }

    /// Waits, without a time limit, until every recorded delivery of a repository was tried once,
    /// whether it was answered or not. Returns at once for an unknown repository.
    pub async fn deliveries_tried(&self, repository: &str) -> Result<(), ApiError> {
        loop {
            let tried = self.engine.settled.notified();
            tokio::pin!(tried);
            // Listening begins before looking, so that no end is missed in between.
            tried.as_mut().enable();
            let all: Vec<Delivery> = self.engine.store.within(|access| access.list(repository))?;
            if !all
                .iter()
                .any(|delivery| matches!(delivery.outcome, Outcome::Waiting | Outcome::Sending))
            {
                return Ok(());
            }
            tried.await;
        }
    }

    /// Switches a fault on for the requests of a repository that `aim` selects, in addition to
    /// those that are on already. The repository need not exist.
    pub fn fault(&self, repository: &str, fault: ForgeFault, aim: Aim, times: Times) {
        self.engine.faults.set(repository, fault, aim, times);
    }

    /// Switches all faults of a repository off; those of other repositories stay.
    pub fn clear_faults(&self, repository: &str) {
        self.engine.faults.clear(repository);
    }
}

impl Drop for LocalForge {
    /// Stops the sending of webhooks and the listening. Running requests are completed, but not
    /// waited for.
    fn drop(&mut self) {
        self.sender.abort();
    }
}

/// Completes a request even if the client disconnects, so that a merge is never left half done, and
/// returns its response. A request that panics is logged and answered with 500.
async fn to_its_end(request: Request, next: Next) -> Response {
    match tokio::spawn(next.run(request)).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "a request could not be carried out");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
