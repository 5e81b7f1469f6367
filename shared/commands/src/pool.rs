//! Commands to providers: the state of a node, and the deletion of a node request.

use crate::{CommandAuthor, StoreCommandError};
use sluice_config::tenant::Permission;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ProviderName, TenantName};
use sluice_pool::commands::{why_not_deleted, why_not_held, why_not_released};
use sluice_pool::{NodeRequest, PoolCommand, PoolCommandKind, PoolNode};
use sluice_records::provider;
use sluice_runtime::{Ports, cell};

/// What an operator does to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// The node is held for people to inspect.
    Hold {
        /// Why; may be empty.
        reason: String,
    },
    /// The node is deleted.
    Release,
}

/// Stores the command that changes the state of a node, and wakes its provider. `node` is the node
/// as it was read. The command has no effect if a build gets the node first.
///
/// # Errors
/// When the node cannot be changed so in its present state, or the store does not answer.
pub async fn change_node(
    ports: &Ports,
    tenant: &TenantName,
    node: &PoolNode,
    change: &NodeChange,
    author: &CommandAuthor,
) -> Result<(), StoreCommandError> {
    let (why_not, kind) = match change {
        NodeChange::Hold { reason } => (
            why_not_held(node),
            PoolCommandKind::HoldNode { node: node.id.clone(), reason: reason.clone() },
        ),
        NodeChange::Release => {
            (why_not_released(node, tenant), PoolCommandKind::ReleaseNode { node: node.id.clone() })
        }
    };
    if let Some(why) = why_not {
        return Err(StoreCommandError::Invalid(format!("could not {kind}: {why}")));
    }
    send(ports, tenant, &node.provider, Sent { kind, permission: Permission::ModifyNode }, author)
        .await
}

/// Stores the command that deletes a node request, which fails its build, and wakes its provider.
/// `request` is the request as it was read. The command has no effect if the request gets its nodes
/// first.
///
/// # Errors
/// When the request has its nodes or has ended, or the store does not answer.
pub async fn delete_node_request(
    ports: &Ports,
    provider: &ProviderName,
    request: &NodeRequest,
    author: &CommandAuthor,
) -> Result<(), StoreCommandError> {
    let kind = PoolCommandKind::DeleteRequest { row: request.row.clone() };
    if let Some(why) = why_not_deleted(request) {
        return Err(StoreCommandError::Invalid(format!("could not {kind}: {why}")));
    }
    let sent = Sent { kind, permission: Permission::ModifyNodesetRequest };
    send(ports, &request.queue.tenant, provider, sent, author).await
}

/// A command to a provider, and the permission that it needs.
struct Sent {
    kind: PoolCommandKind,
    permission: Permission,
}

/// Stores a command with its audit, and wakes the provider.
async fn send(
    ports: &Ports,
    tenant: &TenantName,
    provider: &ProviderName,
    sent: Sent,
    author: &CommandAuthor,
) -> Result<(), StoreCommandError> {
    let Sent { kind, permission } = sent;
    let audit = author.audit(ports, tenant, permission, &kind.to_string())?;
    let at = ports.clock.now();
    let id = provider::command_id(at, &ports.entropy.token());
    let command = PoolCommand { id, at, tenant: tenant.clone(), by: author.name.clone(), kind };
    let writes = vec![provider::put_command(provider, &command)?, audit];
    ports.records.commit(writes, &ports.entropy.token()).await?;
    Ok(cell::send(ports, &[Wakeup::Pool { provider: provider.clone() }]).await?)
}
