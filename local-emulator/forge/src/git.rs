//! Git itself: every look into a repository and every new object is the git command's doing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const TIMEOUT_SECONDS: u64 = 60;
/// The most commits of a pull request that are rebased or listed.
pub(crate) const COMMITS_MAX: usize = 250;
/// The file, in a repository, that every command which may move a ref holds locked until it ends.
const MOVES: &str = "moves.lock";
pub(crate) const ZEROS: &str = "0000000000000000000000000000000000000000";

/// Git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The command could not be run.
    #[error("could not run git {command}; check that git 2.38 or newer is installed")]
    Run {
        /// Its subcommand.
        command: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The command took too long.
    #[error("could not finish git {command} within {TIMEOUT_SECONDS} s")]
    Timeout {
        /// Its subcommand.
        command: String,
    },
    /// A command of a forge that was killed goes on for too long.
    #[error(
        "could not wait for the git commands that an earlier forge began in {folder}: {reason}; end them, or remove its file {MOVES}"
    )]
    Unsettled {
        /// The repository's folder.
        folder: PathBuf,
        /// Why.
        reason: String,
    },
    /// The command said no.
    #[error("could not run git {command}: {message}")]
    Failed {
        /// Its subcommand.
        command: String,
        /// The end of what it printed.
        message: String,
    },
}

/// A change to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The file has this content from now on.
    Write {
        /// Its path from the repository's root.
        path: String,
        /// The whole content.
        content: String,
    },
    /// The file is gone.
    Remove {
        /// Its path.
        path: String,
    },
}

impl Edit {
    /// Creates an edit that writes a file.
    pub fn write(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self::Write { path: path.into(), content: content.into() }
    }

    /// Creates an edit that removes a file.
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }
}

/// Who a commit is by.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub name: String,
    pub email: String,
    pub date: Option<String>,
}

impl Person {
    /// Returns the git identity of an account, with an invented address and without a date (git
    /// takes the present time).
    pub fn of(login: &str) -> Self {
        Self { name: login.to_owned(), email: format!("{login}@users.forge.invalid"), date: None }
    }
}

/// A commit, read.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    pub sha: String,
    pub tree: String,
    pub parents: Vec<String>,
    pub author: Person,
    pub committer: Person,
    pub message: String,
}

/// A file that a pull request touches. `status` is GitHub's word.
#[derive(Debug, Clone)]
pub(crate) struct FileChange {
    pub status: &'static str,
    pub path: String,
    pub previous: Option<String>,
}

/// One bare repository.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    folder: PathBuf,
}

impl Git {
    /// Returns the repository in a directory, which need not exist yet.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Creates the bare repository, without a commit; its parent directory must exist. It offers
    /// partial clones and any commit by its id, accepts pushes over HTTP and never collects
    /// garbage.
    pub async fn create(&self, default_branch: &str) -> Result<(), GitError> {
        let folder = self.folder.to_string_lossy().into_owned();
        let parent = Git::at(self.folder.parent().unwrap_or(Path::new("/")).to_path_buf());
        parent
            .run(&[
                "init",
                "--quiet",
                "--bare",
                &format!("--initial-branch={default_branch}"),
                &folder,
            ])
            .await?;
        for (name, value) in [
            ("http.receivepack", "true"),
            ("uploadpack.allowFilter", "true"),
            ("uploadpack.allowAnySHA1InWant", "true"),
            ("receive.denyDeleteCurrent", "ignore"),
            ("gc.auto", "0"),
            ("core.logAllRefUpdates", "false"),
        ] {
            self.run(&["config", name, value]).await?;
        }
        Ok(())
    }

    /// Returns the object id of each branch and tag, by full ref name; other refs are left out. An
    /// annotated tag's id is not a commit.
    pub async fn refs(&self) -> Result<BTreeMap<String, String>, GitError> {
        let format = "--format=%(objectname) %(refname)";
        let text = self.run(&["for-each-ref", format, "refs/heads", "refs/tags"]).await?;
        Ok(text
            .lines()
            .filter_map(|l| l.split_once(' '))
            .map(|(id, name)| (name.to_owned(), id.to_owned()))
            .collect())
    }

    /// Returns the full id of the commit that `revision` names; a tag is followed to its commit.
    /// `None` if git finds none or `revision` begins with `-`. An error only if git takes longer
    /// than 60 s or does not start, as without the repository's directory.
    pub async fn resolve(&self, revision: &str) -> Result<Option<String>, GitError> {
        if revision.starts_with('-') {
            return Ok(None);
        }
        let output = self
            .output(
                &["rev-parse", "--verify", "--quiet", &format!("{revision}^{{commit}}")],
                &[],
                b"",
            )
            .await?;
        Ok(output.status.success().then(|| text(&output.stdout)))
    }

    /// Moves a ref, given by its full name, to `new`, or creates it; without `old` from wherever it
    /// is. With `old` it is an error if the ref is elsewhere; all zeros in `old` mean that it must
    /// not exist. The caller has locked the repository. For a branch or tag the caller then calls
    /// `Engine::observe`, which records the events.
    pub async fn update_ref(
        &self,
        name: &str,
        new: &str,
        old: Option<&str>,
    ) -> Result<(), GitError> {
        let mut arguments = vec!["update-ref", name, new];
        arguments.extend(old);
        self.move_refs(&arguments, b"").await
    }

    /// Deletes a ref, given by its full name, wherever it leads; no error if it does not exist. The
    /// caller has locked the repository, and then calls `Engine::observe`, which records the
    /// events.
    pub async fn delete_ref(&self, name: &str) -> Result<(), GitError> {
        self.move_refs(&["update-ref", "-d", name], b"").await
    }

    /// Returns an open file with a shared lock, to be passed to a command that moves refs. The lock
    /// lasts as long as a process has the file open, so a restarted forge sees that the command of
    /// a killed one still runs. Blocks while [`Self::settle`] has the lock.
    pub fn moving(&self) -> std::io::Result<File> {
        let file =
            File::options().read(true).append(true).create(true).open(self.folder.join(MOVES))?;
        file.lock_shared()?;
        Ok(file)
    }

    /// Waits until no command of an earlier forge can move a ref. An error if one still runs after
    /// 60 s. To be called before this process moves refs, whose commands it would wait for too.
    pub async fn settle(&self) -> Result<(), GitError> {
        let unsettled =
            |reason: String| GitError::Unsettled { folder: self.folder.clone(), reason };
        let place = self.folder.join(MOVES);
        let alone = move || File::options().append(true).create(true).open(place)?.lock();
        let waited = tokio::time::timeout(
            Duration::from_secs(TIMEOUT_SECONDS),
            tokio::task::spawn_blocking(alone),
        )
        .await;
        match waited {
            Ok(Ok(locked)) => locked.map_err(|error| unsettled(error.to_string())),
            Ok(Err(panic)) => Err(unsettled(panic.to_string())),
            Err(_) => Err(unsettled(format!("they did not end within {TIMEOUT_SECONDS} s"))),
        }
    }

    /// Returns the numbers of the pull requests, open or not, whose ref `refs/pull/<number>/head`
    /// is `tip` or one of its ancestors. An error if `tip` is no commit.
    pub async fn pulls_within(&self, tip: &str) -> Result<BTreeSet<u64>, GitError> {
        let text = self
            .run(&["for-each-ref", &format!("--merged={tip}"), "--format=%(refname)", "refs/pull/"])
            .await?;
        let number =
            |name: &str| name.strip_prefix("refs/pull/")?.strip_suffix("/head")?.parse().ok();
        Ok(text.lines().filter_map(number).collect())
    }

    /// Returns whether a commit is an ancestor of another one, or the same. An error if one of the
    /// two does not exist.
    pub async fn is_ancestor(&self, ancestor: &str, of: &str) -> Result<bool, GitError> {
        let output = self.output(&["merge-base", "--is-ancestor", ancestor, of], &[], b"").await?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed("merge-base", &output)),
        }
    }

    /// Returns the commit that a revision names; `None` if there is none or the revision begins
    /// with `-`.
    pub async fn commit(&self, sha: &str) -> Result<Option<Commit>, GitError> {
        let Some(sha) = self.resolve(sha).await? else { return Ok(None) };
        Ok(self.log(&["--no-walk", &sha]).await?.into_iter().next())
    }

    /// Returns the commits of `head` that `base` lacks, merge commits included, the oldest first;
    /// of too many, the newest [`COMMITS_MAX`]. An error if one of the two does not exist.
    pub async fn commits_between(&self, base: &str, head: &str) -> Result<Vec<Commit>, GitError> {
        let limit = format!("--max-count={COMMITS_MAX}");
        self.log(&["--reverse", "--topo-order", &limit, &format!("{base}..{head}")]).await
    }

    /// Returns the commits that `git log` lists for these arguments, in its order. An error if git
    /// fails.
    async fn log(&self, which: &[&str]) -> Result<Vec<Commit>, GitError> {
        let format =
            "--format=%H%x00%T%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%B%x00%x01";
        let text = self.run(&[&["log", format], which].concat()).await?;
        Ok(text.split('\u{1}').filter_map(commit_of).collect())
    }

    /// Returns the files that differ between `head` and its merge base with `base`, by path. A
    /// renamed file appears once, with its previous path. An error if there is no merge base.
    pub async fn files_between(&self, base: &str, head: &str) -> Result<Vec<FileChange>, GitError> {
        let text =
            self.run(&["diff", "--name-status", "-z", "-M", &format!("{base}...{head}")]).await?;
        let mut parts = text
            .split('\0')
            .filter(|part| !part.is_empty())
            .map(|part| part.trim_start_matches('\n'));
        let mut files = Vec::new();
        while let (Some(kind), Some(path)) = (parts.next(), parts.next()) {
            let (status, previous) = match kind.as_bytes().first() {
                Some(b'A') => ("added", None),
                Some(b'D') => ("removed", None),
                Some(b'R') => ("renamed", Some(path.to_owned())),
                Some(b'C') => ("copied", Some(path.to_owned())),
                _ => ("modified", None),
            };
            let path = if previous.is_some() { parts.next().unwrap_or(path) } else { path };
            files.push(FileChange { status, path: path.to_owned(), previous });
        }
        Ok(files)
    }

    /// Returns a file's bytes at a revision; `None` if git cannot show it: there is no such
    /// revision or file, or the path is a directory. An error only if git takes longer than 60 s or
    /// does not start, as without the repository's directory.
    pub async fn file(&self, revision: &str, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        if revision.starts_with('-') {
            return Ok(None);
        }
        let output =
            self.output(&["cat-file", "blob", &format!("{revision}:{path}")], &[], b"").await?;
        Ok(output.status.success().then_some(output.stdout))
    }

    /// Returns the object id of the file or directory at a path in a revision; `None` if there is
    /// no such revision or path. An error only if git takes longer than 60 s or does not start, as
    /// without the repository's directory.
    pub async fn blob(&self, revision: &str, path: &str) -> Result<Option<String>, GitError> {
        if revision.starts_with('-') {
            return Ok(None);
        }
        let output = self
            .output(&["rev-parse", "--verify", "--quiet", &format!("{revision}:{path}")], &[], b"")
            .await?;
        Ok(output.status.success().then(|| text(&output.stdout)))
    }

    /// Returns (type, id, name) of each entry of a directory at a revision, without those of its
    /// subdirectories; the type is git's `blob`, `tree` or `commit`. The empty path is the root.
    /// Empty if git fails, as when there is no such revision or directory, or the path is a file.
    /// An error only if git does not start or takes longer than 60 s.
    pub async fn folder(
        &self,
        revision: &str,
        path: &str,
    ) -> Result<Vec<(String, String, String)>, GitError> {
        let output =
            self.output(&["ls-tree", "-z", &format!("{revision}:{path}")], &[], b"").await?;
        let text = text(&output.stdout);
        let entry = |line: &str| {
            let (meta, name) = line.split_once('\t')?;
            let mut meta = meta.split(' ').skip(1);
            Some((meta.next()?.to_owned(), meta.next()?.to_owned(), name.to_owned()))
        };
        Ok(text.split('\0').filter_map(entry).collect())
    }

    /// Creates the tree of the merge of two commits and returns its id; `None` if they conflict. An
    /// error if a commit does not exist or they have no common ancestor.
    pub async fn merge_tree(&self, ours: &str, theirs: &str) -> Result<Option<String>, GitError> {
        let output = self
            .output(&["merge-tree", "--write-tree", "--no-messages", ours, theirs], &[], b"")
            .await?;
        match output.status.code() {
            Some(0) => Ok(Some(text(&output.stdout))),
            Some(1) => Ok(None),
            _ => Err(failed("merge-tree", &output)),
        }
    }

    /// Creates a commit of a tree and returns its id; moves no ref. An identity without a date gets
    /// the present time.
    pub async fn commit_tree(
        &self,
        tree: &str,
        parents: &[&str],
        message: &str,
        author: &Person,
        committer: &Person,
    ) -> Result<String, GitError> {
        let mut arguments = vec!["commit-tree", tree];
        for parent in parents {
            arguments.extend(["-p", parent]);
        }
        let mut identity = vec![
            ("GIT_AUTHOR_NAME", author.name.as_str()),
            ("GIT_AUTHOR_EMAIL", author.email.as_str()),
            ("GIT_COMMITTER_NAME", committer.name.as_str()),
            ("GIT_COMMITTER_EMAIL", committer.email.as_str()),
        ];
        identity.extend(author.date.as_deref().map(|date| ("GIT_AUTHOR_DATE", date)));
        identity.extend(committer.date.as_deref().map(|date| ("GIT_COMMITTER_DATE", date)));
        let output = self.output(&arguments, &identity, message.as_bytes()).await?;
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(failed("commit-tree", &output))
        }
    }

    /// Commits edits on top of `parent`, which must be the tip of `branch` if that exists, and
    /// moves the branch to the commit or creates it. Without `parent` the commit begins a history
    /// with these files alone. `by` is author and committer, now. Written files are not executable;
    /// without edits the commit is empty. The caller has locked the repository, and then calls
    /// `Engine::observe`, which records the events.
    pub async fn write(
        &self,
        branch: &str,
        parent: Option<&str>,
        edits: &[Edit],
        message: &str,
        by: &Person,
    ) -> Result<(), GitError> {
        let seconds = jiff::Timestamp::now().as_second();
        let mut stream = Vec::new();
        let mut line = |text: String| stream.extend_from_slice(text.as_bytes());
        line(format!(
            "commit refs/heads/{branch}\ncommitter {} <{}> {seconds} +0000\n",
            by.name, by.email
        ));
        line(format!("data {}\n{message}\n", message.len()));
        if let Some(parent) = parent {
            line(format!("from {parent}\n"));
        }
        for edit in edits {
            match edit {
                Edit::Write { path, content } => {
                    line(format!(
                        "M 100644 inline {}\ndata {}\n{content}\n",
                        quoted(path),
                        content.len()
                    ));
                }
                Edit::Remove { path } => line(format!("D {}\n", quoted(path))),
            }
        }
        line("\ndone\n".to_owned());
        self.move_refs(&["fast-import", "--quiet", "--done"], &stream).await
    }

    /// Runs a git command whose output is not needed and that may move refs, with `input`, under
    /// the lock that [`Self::settle`] waits for. An error if it fails.
    async fn move_refs(&self, arguments: &[&str], input: &[u8]) -> Result<(), GitError> {
        let command = arguments.first().unwrap_or(&"").to_string();
        let held =
            self.moving().map_err(|source| GitError::Run { command: command.clone(), source })?;
        let output = self.output_to(held.into(), arguments, &[], input).await?;
        if output.status.success() { Ok(()) } else { Err(failed(&command, &output)) }
    }

    /// Runs git and returns its output as text, without line feeds at the end. An error if it does
    /// not start, fails or takes longer than 60 s.
    async fn run(&self, arguments: &[&str]) -> Result<String, GitError> {
        let output = self.output(arguments, &[], b"").await?;
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(failed(arguments.first().unwrap_or(&""), &output))
        }
    }

    /// Runs git with additional environment variables and input, and returns its status and output.
    /// An error if it does not start or takes longer than 60 s, but not if it fails.
    async fn output(
        &self,
        arguments: &[&str],
        extra: &[(&str, &str)],
        input: &[u8],
    ) -> Result<Output, GitError> {
        self.output_to(Stdio::piped(), arguments, extra, input).await
    }

    /// Runs git in the repository's directory with additional environment variables and input, and
    /// redirects its output to `stdout`. Returns its status, what it printed as errors and, if
    /// `stdout` is a pipe, its output. An error if it does not start or takes longer than 60 s, but
    /// not if it fails.
    async fn output_to(
        &self,
        stdout: Stdio,
        arguments: &[&str],
        extra: &[(&str, &str)],
        input: &[u8],
    ) -> Result<Output, GitError> {
        let command = || arguments.first().unwrap_or(&"").to_string();
        let run = |source| GitError::Run { command: command(), source };
        let mut child = base_command()
            .args(arguments)
            .envs(extra.iter().copied())
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(run)?;
        let mut stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin.take() {
                // A command that ends without reading is judged by its status.
                let _ = stdin.write_all(input).await;
            }
        };
        let both = async { tokio::join!(feed, child.wait_with_output()).1 };
        match tokio::time::timeout(Duration::from_secs(TIMEOUT_SECONDS), both).await {
            Ok(output) => output.map_err(run),
            Err(_) => Err(GitError::Timeout { command: command() }),
        }
    }
}

/// Returns a command for git, to which arguments are added. It ignores the settings of this machine
/// and user, never asks for a password and works in directories of other accounts. Its environment
/// has only a `PATH`, the locale `C`, a home that does not exist and git's settings.
pub(crate) fn base_command() -> Command {
    // By its path: a name that has to be looked for in a `PATH` of the command's own makes the
    // standard library fork, which copies the page tables of a large process each time, instead of
    // letting the system spawn.
    let mut command = Command::new(git_program());
    command
        .env_clear()
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        // The folder may belong to another account.
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*");
    command
}

/// Returns the `PATH` of git commands: that of this process, otherwise a default.
fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into())
}

/// Returns the absolute path of git in the `PATH` at the first call, or its bare name if no
/// directory has it, so that the error of running it says so.
fn git_program() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = search_path();
        let mut places = std::env::split_paths(&path).map(|folder| folder.join("git"));
        places
            .find(|place| place.is_absolute() && place.is_file())
            .unwrap_or_else(|| PathBuf::from("git"))
    })
}

/// Parses one record of `git log` in the format of [`Git::log`]; `None` if it is incomplete, as the
/// text after the last record is.
fn commit_of(record: &str) -> Option<Commit> {
    let mut parts = record.trim_start_matches('\n').split('\0').map(str::to_owned);
    let mut next = || parts.next();
    let (sha, tree, parents) = (next()?, next()?, next()?);
    let author = Person { name: next()?, email: next()?, date: next() };
    let committer = Person { name: next()?, email: next()?, date: next() };
    let parents =
        parents.split(' ').filter(|parent| !parent.is_empty()).map(str::to_owned).collect();
    Some(Commit { sha, tree, parents, author, committer, message: next()?.trim_end().to_owned() })
}

/// Returns the error for a git command that failed, with the last 501 characters of what it printed
/// as an error.
fn failed(command: &str, output: &Output) -> GitError {
    let printed = text(&output.stderr);
    let start = printed.char_indices().rev().nth(500).map_or(0, |(at, _)| at);
    GitError::Failed { command: command.to_owned(), message: printed[start..].to_owned() }
}

/// Decodes bytes as text, with replacements for invalid ones and without line feeds at the end.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned()
}

/// Quotes a path for `git fast-import`: encloses it in quotation marks and escapes those,
/// backslashes and line feeds in it.
fn quoted(path: &str) -> String {
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
