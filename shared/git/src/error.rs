//! The errors of this crate, one enum per operation. Each message names the repository, the object
//! or address, and what to do.

use sluice_model::{ProjectName, git::Oid};
use std::path::PathBuf;

/// The underlying error, as reported by the library.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a repository could not be opened, or a pack not be stored.
#[derive(Debug, thiserror::Error)]
pub enum GitPackError {
    /// The cache directory cannot be used. Free space or another directory helps.
    #[error("could not {doing} {path} for the repository of {project}: check that the cache \
             directory is writable and has space", path = path.display())]
    Directory {
        /// The project of the repository.
        project: ProjectName,
        /// The attempted action, such as "create".
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The bytes are not a complete pack with its index. Fetch the objects again.
    #[error(
        "the pack given for the repository of {project} is damaged ({reason}): download it again, \
         or remove it from the list and fetch again"
    )]
    Damaged {
        /// The project of the repository.
        project: ProjectName,
        /// What is wrong with the pack.
        reason: &'static str,
    },
    /// Git objects could not be read from, or written to, the cache directory.
    #[error(
        "could not {doing} in the repository of {project}: remove its cache directory and open it \
         again"
    )]
    Engine {
        /// The project of the repository.
        project: ProjectName,
        /// The attempted action.
        doing: &'static str,
        /// The error of the git library.
        source: Cause,
    },
}

/// Why no commit could be made of files.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// Git would refuse to check the path out.
    #[error(
        "{path:?} can be no file of a commit because {why}: give it another name, or take it away"
    )]
    Path {
        /// The path.
        path: String,
        /// What is wrong with the path.
        why: &'static str,
    },
    /// The objects do not fit into a pack.
    #[error("could not make a pack of the files")]
    Pack(#[source] std::io::Error),
}

/// Why a read from a repository failed.
#[derive(Debug, thiserror::Error)]
pub enum GitReadError {
    /// No pack contains the object; it has to be fetched.
    #[error(
        "{object} is in none of the packs held for {project}: fetch it, or add the pack that holds \
         it"
    )]
    Missing {
        /// The project of the repository.
        project: ProjectName,
        /// The object.
        object: Oid,
    },
    /// The text is not an object id.
    #[error(
        "{object:?} is no object id (40 hexadecimal digits), asked for in the repository of \
         {project}"
    )]
    NotAnId {
        /// The project of the repository.
        project: ProjectName,
        /// The text.
        object: String,
    },
    /// The object has another type than the requested one.
    #[error("{object} in the repository of {project} is not a {wanted}")]
    WrongKind {
        /// The project of the repository.
        project: ProjectName,
        /// The object.
        object: Oid,
        /// The requested type.
        wanted: &'static str,
    },
    /// The result exceeds the caller's limits.
    #[error(
        "{what} at {object} in the repository of {project} exceed the limit of {limit}: raise the \
         limit, or ask for less"
    )]
    TooLarge {
        /// The project of the repository.
        project: ProjectName,
        /// The commit or tree that was read.
        object: Oid,
        /// What exceeds the limit, with its unit.
        what: String,
        /// The limit in that unit.
        limit: u64,
    },
    /// Another failure of the object database.
    #[error("could not {doing} at {object} in the repository of {project}")]
    Engine {
        /// The project of the repository.
        project: ProjectName,
        /// The attempted action.
        doing: &'static str,
        /// The object it was attempted on.
        object: Oid,
        /// The error of the git library.
        source: Cause,
    },
}

/// Why a merge was neither made nor refused. A conflict is not an error.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One of the commits, or an object they reach, cannot be read.
    #[error("could not read the commits to merge")]
    Read(#[from] GitReadError),
    /// The change has more commits than can be replayed. It has to be squashed or merged.
    #[error(
        "{theirs} has more than {limit} commits to put on {ours} in the repository of {project}: \
         use another merge mode, or fewer commits"
    )]
    TooManyCommits {
        /// The project of the repository.
        project: ProjectName,
        /// The branch tip.
        ours: Oid,
        /// The proposed commit.
        theirs: Oid,
        /// The limit.
        limit: usize,
    },
    /// The merge itself failed.
    #[error("could not merge {theirs} into {ours} in the repository of {project}")]
    Engine {
        /// The project of the repository.
        project: ProjectName,
        /// The branch tip.
        ours: Oid,
        /// The proposed commit.
        theirs: Oid,
        /// The error of the git library.
        source: Cause,
    },
}

/// Why a fetch failed. `url` never contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is not usable.
    #[error("cannot fetch {project}: its address {reason}")]
    Address {
        /// The project of the repository.
        project: ProjectName,
        /// What is wrong, without the address, which may contain a secret.
        reason: &'static str,
    },
    /// The forge requires a credential, or rejects the given one.
    #[error(
        "{url} refused access to {project}: check the connection's credential and that it may read \
         the repository"
    )]
    Denied {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
    },
    /// There is no such repository, or the credential has no access to it.
    #[error(
        "{url} knows no repository {project}: check its name and that the connection's credential \
         may read it"
    )]
    NoRepository {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
    },
    /// A requested ref or commit does not exist, or no longer does.
    #[error(
        "{url} has no {wanted} in {project}: it was deleted or rewritten; look at the change again"
    )]
    Gone {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
        /// The ref or commit.
        wanted: String,
    },
    /// The request matches more refs than allowed.
    #[error(
        "{url} has more than {limit} refs of {project} that match the request: delete unused \
         branches or tags there"
    )]
    TooManyRefs {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// The answer is larger than allowed.
    #[error(
        "fetching {project} from {url} exceeded {limit_bytes} bytes: raise the limit for this \
         repository"
    )]
    TooLarge {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// The forge took too long. A retry may succeed.
    #[error("fetching {project} from {url} took longer than {limit_seconds} s: try again")]
    TimedOut {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
        /// The limit.
        limit_seconds: u64,
    },
    /// The forge is unreachable, fails, or does not speak git's protocol. A retry may succeed.
    #[error("could not {doing} of {project} from {url}: {detail}; try again")]
    Unavailable {
        /// The project of the repository.
        project: ProjectName,
        /// The requested address.
        url: String,
        /// The attempted action.
        doing: &'static str,
        /// The text of the innermost cause.
        detail: String,
        /// The error of the git library.
        source: Cause,
    },
    /// The received objects could not be stored.
    #[error("could not store the fetched objects")]
    Pack(#[from] GitPackError),
    /// A commit in the cache could not be read.
    #[error("could not read a cached commit")]
    Read(#[from] GitReadError),
}
