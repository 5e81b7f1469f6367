//! What can go wrong, one enum per operation; each message names the repository, the thing asked
//! for and what to do.

use sluice_model::{ProjectName, git::Oid};
use std::path::PathBuf;

/// The cause behind an error, as the library below reported it.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a repository could not be opened, or a pack not be kept.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The cache directory cannot be used; free space or another directory helps.
    #[error("could not {doing} {path} for the repository of {project}: check that the cache directory is writable and has space", path = path.display())]
    Directory {
        /// Whose repository.
        project: ProjectName,
        /// What was attempted, as in "create".
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not a whole pack with its index; fetch the objects again.
    #[error(
        "the pack given for the repository of {project} is damaged ({reason}): download it again, or drop it from the list and fetch anew"
    )]
    Damaged {
        /// Whose repository.
        project: ProjectName,
        /// What does not fit.
        reason: &'static str,
    },
    /// Git objects could not be read from, or written to, the cache directory.
    #[error(
        "could not {doing} in the repository of {project}: remove its cache directory and open it again"
    )]
    Engine {
        /// Whose repository.
        project: ProjectName,
        /// What was attempted.
        doing: &'static str,
        /// What the git library said.
        source: Cause,
    },
}

/// Why files could not be made a commit.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// Git would not check it out.
    #[error(
        "{path:?} can be no file of a commit because {why}: give it another name, or take it away"
    )]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The objects do not fit into a pack.
    #[error("could not make a pack of the files")]
    Pack(#[source] std::io::Error),
}

/// Why something could not be read from a repository.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// None of the packs holds the object; fetch it.
    #[error(
        "{object} is in none of the packs held for {project}: fetch it, or add the pack that holds it"
    )]
    Missing {
        /// Whose repository.
        project: ProjectName,
        /// The object.
        object: Oid,
    },
    /// The text is not an object id.
    #[error(
        "{object:?} is no object id (40 hexadecimal digits), asked for in the repository of {project}"
    )]
    NotAnId {
        /// Whose repository.
        project: ProjectName,
        /// The text.
        object: String,
    },
    /// The object is of another kind than what was asked for.
    #[error("{object} in the repository of {project} is no {wanted}")]
    WrongKind {
        /// Whose repository.
        project: ProjectName,
        /// The object.
        object: Oid,
        /// What it should have been.
        wanted: &'static str,
    },
    /// More than the caller's limits allow.
    #[error(
        "{what} at {object} in the repository of {project} exceed the limit of {limit}: raise the limit, or ask for less"
    )]
    TooLarge {
        /// Whose repository.
        project: ProjectName,
        /// The commit or tree read.
        object: Oid,
        /// What there is too much of, with its unit.
        what: String,
        /// The limit in that unit.
        limit: u64,
    },
    /// The object database failed in another way.
    #[error("could not {doing} at {object} in the repository of {project}")]
    Engine {
        /// Whose repository.
        project: ProjectName,
        /// What was attempted.
        doing: &'static str,
        /// On what.
        object: Oid,
        /// What the git library said.
        source: Cause,
    },
}

/// Why a merge could be neither made nor refused. A conflict is no error.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One of the commits, or what it reaches, cannot be read.
    #[error("could not read what is to be merged")]
    Read(#[from] ReadError),
    /// There are more commits to put on the tip than one change may have; it has to be squashed or
    /// merged.
    #[error(
        "{theirs} has more than {limit} commits to put on {ours} in the repository of {project}: use another merge mode, or fewer commits"
    )]
    TooManyCommits {
        /// Whose repository.
        project: ProjectName,
        /// The tip.
        ours: Oid,
        /// The proposed commit.
        theirs: Oid,
        /// How many are allowed.
        limit: usize,
    },
    /// The merge itself failed.
    #[error("could not merge {theirs} into {ours} in the repository of {project}")]
    Engine {
        /// Whose repository.
        project: ProjectName,
        /// The tip.
        ours: Oid,
        /// The proposed commit.
        theirs: Oid,
        /// What the git library said.
        source: Cause,
    },
}

/// Why nothing could be fetched. `url` never holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address cannot be used as it is.
    #[error("cannot fetch {project}: its address {reason}")]
    Address {
        /// Whose repository.
        project: ProjectName,
        /// What is wrong, without the address: it may hold a secret.
        reason: &'static str,
    },
    /// The forge wants a credential, or refuses the one given.
    #[error(
        "{url} refused access to {project}: check the connection's credential and that it may read the repository"
    )]
    Denied {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
    },
    /// There is no such repository, or the credential may not know of it.
    #[error(
        "{url} knows no repository {project}: check its name and that the connection's credential may read it"
    )]
    NoRepository {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
    },
    /// A wanted ref or commit does not exist (any more).
    #[error(
        "{url} has no {wanted} in {project}: it was deleted or rewritten; look at the change again"
    )]
    Gone {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
        /// The ref or commit.
        wanted: String,
    },
    /// More refs are wanted, by prefix or by name, than allowed.
    #[error(
        "{url} has more than {limit} refs of {project} under the wanted names: delete branches or tags there that nobody needs"
    )]
    TooManyRefs {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// The answer is larger than allowed.
    #[error(
        "fetching {project} from {url} exceeded {limit_bytes} bytes: raise the limit for this repository"
    )]
    TooLarge {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// The forge took too long; worth another attempt.
    #[error("fetching {project} from {url} took longer than {limit_seconds} s: try again")]
    TimedOut {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
        /// The limit.
        limit_seconds: u64,
    },
    /// The forge cannot be reached, fails, or answers what is not git's protocol; worth another
    /// attempt.
    #[error("could not {doing} of {project} from {url}: {detail}; try again")]
    Unavailable {
        /// Whose repository.
        project: ProjectName,
        /// Where it was asked for.
        url: String,
        /// What was attempted.
        doing: &'static str,
        /// The innermost cause, in its own words.
        detail: String,
        /// What the git library said.
        source: Cause,
    },
    /// What was received could not be kept.
    #[error("could not keep what was fetched")]
    Pack(#[from] PackError),
    /// A commit already held could not be read.
    #[error("could not read what is held already")]
    Read(#[from] ReadError),
}
