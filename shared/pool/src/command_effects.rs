//! Applies operators' commands to the ledger of a plan.

use crate::commands::{
    PoolCommand, PoolCommandKind, why_not_deleted, why_not_held, why_not_released,
};
use crate::failures;
use crate::ledger::Ledger;
use crate::node::{HoldRef, NodeEvent};

/// Applies the commands in their order, as far as the commit has room, and has the commit consume
/// each that was applied or cannot be applied any more.
pub(crate) fn apply_commands(ledger: &mut Ledger<'_>) {
    for command in ledger.facts.commands.clone() {
        let records = match &command.kind {
            PoolCommandKind::HoldNode { .. } | PoolCommandKind::ReleaseNode { .. } => 2,
            PoolCommandKind::DeleteRequest { row } => {
                2 + ledger.requests.get(row).map_or(0, |request| request.nodes().len())
            }
        };
        if !ledger.has_room(records) {
            return;
        }
        if let Err(why) = apply(ledger, &command) {
            let PoolCommand { by, kind, .. } = &command;
            ledger.explain(format!("the command to {kind}, by {by}, has no effect: {why}"));
        }
        ledger.consume(&command.id);
    }
}

/// Applies one command, or returns why it has no effect.
fn apply(ledger: &mut Ledger<'_>, command: &PoolCommand) -> Result<(), &'static str> {
    let by = if command.by.is_empty() { "an operator" } else { command.by.as_str() };
    match &command.kind {
        PoolCommandKind::HoldNode { node, reason } => {
            let found = ledger.nodes.get(node).ok_or("there is no such node")?;
            why_not_held(found).map_or(Ok(()), Err)?;
            let separator = if reason.is_empty() { "" } else { ": " };
            let reason = format!("held by {by}{separator}{reason}");
            let hold = Some(HoldRef { tenant: command.tenant.clone(), id: None });
            ledger.advance(node, NodeEvent::Held { reason, until: None, hold });
        }
        PoolCommandKind::ReleaseNode { node } => {
            let found = ledger.nodes.get(node).ok_or("there is no such node")?;
            why_not_released(found, &command.tenant).map_or(Ok(()), Err)?;
            ledger.delete_node(node, &format!("{by} released it"));
        }
        PoolCommandKind::DeleteRequest { row } => {
            let found = ledger.requests.get(row).ok_or("there is no such request")?;
            why_not_deleted(found).map_or(Ok(()), Err)?;
            failures::fail_request(ledger, row, &format!("{by} deleted the request"));
        }
    }
    Ok(())
}
