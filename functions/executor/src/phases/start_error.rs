//! Why a build ends before its first playbook.

use super::disk_result;
use crate::external_host::HostError;
use crate::id_token::IdTokenError;
use crate::include::IncludeError;
use crate::inventory::ReservedName;
use crate::playbook_checkouts::PrepareError;
use crate::ssh;
use crate::uploads::UploadsError;
use crate::workspace::WorkspaceError;
use sluice_model::build::BuildResult;
use sluice_model::job::ANSIBLE_VERSIONS;

/// Why a build ended before its first playbook.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// A node or group has a reserved name.
    #[error(transparent)]
    Names(#[from] ReservedName),
    /// The playbooks could not be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A variable file could not be read.
    #[error(transparent)]
    Include(IncludeError),
    /// A repository could not be placed in the workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The SSH agent could not be started.
    #[error(transparent)]
    Agent(#[from] ssh::AgentError),
    /// What the lost executor had started on a node could not be ended.
    #[error(transparent)]
    OldSessions(#[from] ssh::OldSessionsError),
    /// The logs of a lost build were not collected in time.
    #[error("the build could not be prepared in time to collect its logs")]
    NoTimeLeft,
    /// The lost build worked on a host of its job, which other sessions may use too.
    #[error("no logs are collected from the host of a deployment job")]
    SharedHost,
    /// The executor has no key for nodes.
    #[error(
        "the job has nodes, but this executor does not have the SSH key of the node pool, which it reads when it starts: the operator restarts the executor (`sluice executor`, or `sluice up` on one machine)"
    )]
    NoKey,
    /// The host of a deployment job cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A secret could not be decrypted.
    #[error(
        "secret {secret} of {project} could not be decrypted: encrypt it again with the project's public key"
    )]
    Secret { secret: String, project: String },
    /// A token could not be issued.
    #[error(
        "secret {secret} of {project} requests an OIDC token that cannot be issued: {source}; correct its `oidc`"
    )]
    Token { secret: String, project: String, source: IdTokenError },
    /// The job cannot have the upload credentials that it requests.
    #[error(transparent)]
    Uploads(#[from] UploadsError),
    /// There is no such version of Ansible.
    #[error(
        "the job uses Ansible version {version}, which is not supported; supported versions are {}: change its ansible-version",
        ANSIBLE_VERSIONS.join(" and ")
    )]
    AnsibleVersion { version: String },
    /// The disk failed.
    #[error("could not write the files of the playbooks")]
    Disk(#[from] std::io::Error),
}

impl StartError {
    /// Returns the result of a build that could not start for this reason: `CONFIG_ERROR` if the
    /// job or its project has to be changed, `DISK_FULL` if the disk is full, otherwise `RETRY`.
    pub(super) fn result(&self) -> BuildResult {
        match self {
            Self::Names(_)
            | Self::Prepare(PrepareError::NoPlaybook { .. })
            | Self::Include(IncludeError::Missing { .. } | IncludeError::Unreadable { .. })
            | Self::Secret { .. }
            | Self::Token { .. }
            | Self::Uploads(_)
            | Self::AnsibleVersion { .. } => BuildResult::ConfigError,
            Self::Prepare(PrepareError::Galaxy(error)) => error.result(),
            Self::Workspace(error)
            | Self::Include(IncludeError::Workspace(error))
            | Self::Prepare(PrepareError::Workspace(error)) => match error {
                WorkspaceError::NotPrepared { .. } | WorkspaceError::Occupied { .. } => {
                    BuildResult::ConfigError
                }
                WorkspaceError::Source(_) | WorkspaceError::Checkout { .. } => BuildResult::Retry,
            },
            Self::Prepare(PrepareError::File { source, .. }) | Self::Disk(source) => {
                disk_result(source)
            }
            Self::Host(error) if error.may_pass() => BuildResult::Retry,
            Self::Host(_) => BuildResult::ConfigError,
            Self::Agent(_)
            | Self::OldSessions(_)
            | Self::NoTimeLeft
            | Self::SharedHost
            | Self::NoKey => BuildResult::Retry,
        }
    }
}
