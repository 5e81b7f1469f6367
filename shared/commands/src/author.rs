//! Who gives a command, and its audit.

use sluice_config::tenant::Permission;
use sluice_model::TenantName;
use sluice_records::audit::{self, AuditEntry};
use sluice_runtime::record::Write;
use sluice_runtime::{PortError, Ports};

/// Who gives a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandAuthor {
    /// The user's name or id; empty if unknown.
    pub name: String,
    /// By what way.
    pub source: CommandSource,
}

/// By what way a command came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandSource {
    /// From an operator who has access to the data.
    Terminal,
    /// Over the API.
    Api {
        /// The authenticator that accepted the user's token.
        authenticator: String,
    },
}

impl CommandAuthor {
    /// Returns the write that audits a command of this author in a tenant, for the transaction of
    /// the command, and logs the command. `permission` is the one that it needs; `description` says
    /// what it changes.
    pub(crate) fn audit(
        &self,
        ports: &Ports,
        tenant: &TenantName,
        permission: Permission,
        description: &str,
    ) -> Result<Write, PortError> {
        let via = match &self.source {
            CommandSource::Terminal => "terminal".to_owned(),
            CommandSource::Api { authenticator } => format!("api {authenticator}"),
        };
        let action = Permission::WORDS
            .iter()
            .find(|(_, one)| *one == permission)
            .map_or("unknown", |(word, _)| *word);
        tracing::info!(%tenant, by = self.name, via, action, "a command: {description}");
        let entry = AuditEntry {
            at: ports.clock.now(),
            by: self.name.clone(),
            via,
            action: action.to_owned(),
            description: description.to_owned(),
        };
        audit::put(tenant, &entry, &ports.entropy.token())
    }
}
