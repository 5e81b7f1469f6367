//! The cell of a provider: head, node requests, nodes and operators' commands.

use crate::codec::{BadRecord, decode, encode, encode_first, expiry};
use crate::open_work;
use crate::queue::LoadError;
use sluice_model::name::escape;
use sluice_model::{NodeId, ProviderName, Timestamp};
use sluice_pool::{NodeRequest, PoolCommand, PoolNode, ProviderHead, RequestRow};
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// The most records of one provider that are read.
pub const LOAD_MAX: usize = 5_000;

/// A provider's cell as it was read.
#[derive(Debug, Clone, Default)]
pub struct LoadedProvider {
    /// The record of the head; `None` before the first use of the provider.
    pub head_record: Option<Record>,
    /// The decoded head.
    pub head: Option<ProviderHead>,
    /// Node requests with their records, in queue order.
    pub requests: BTreeMap<RequestRow, (Record, NodeRequest)>,
    /// Nodes with their records.
    pub nodes: BTreeMap<NodeId, (Record, PoolNode)>,
    /// Operators' commands, in their order.
    pub commands: Vec<PoolCommand>,
    /// Whether a mark halts the cell until an operator resumes it.
    pub is_halted: bool,
}

/// Returns the partition of a provider.
pub fn partition(provider: &ProviderName) -> String {
    format!("provider#{}", escape(provider.as_str()))
}

/// Returns the key of a provider's head.
pub fn head_key(provider: &ProviderName) -> Key {
    Key::new(partition(provider), "head")
}

/// Returns the key of a node request.
pub fn request_key(provider: &ProviderName, row: &RequestRow) -> Key {
    Key::new(partition(provider), format!("request#{row}"))
}

/// Returns the key of a node.
pub fn node_key(provider: &ProviderName, node: &NodeId) -> Key {
    Key::new(partition(provider), format!("node#{node}"))
}

/// Returns the key of an operator's command, by its id.
pub fn command_key(provider: &ProviderName, id: &str) -> Key {
    Key::new(partition(provider), format!("command#{id}"))
}

/// Returns the id of a new command: the time, so that commands are applied in their order, and a
/// random token.
pub fn command_id(at: Timestamp, token: &str) -> String {
    format!("{:013}-{token}", at.0)
}

/// Returns the write of an operator's command. It fails when there is one with the same id. The
/// caller wakes the provider. A command that the provider never consumes expires.
///
/// # Errors
/// When the record is too large.
pub fn put_command(provider: &ProviderName, command: &PoolCommand) -> Result<Write, PortError> {
    let record = encode_first(command_key(provider, &command.id), command)?;
    let record = Record { expires_at: Some(expiry(command.at)), ..record };
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the write of a new node request (revision 1). It fails when the request exists. The
/// index of open work lists it until it is removed. The caller wakes the provider.
///
/// # Errors
/// When the record is too large.
pub fn create_request(provider: &ProviderName, request: &NodeRequest) -> Result<Write, PortError> {
    let record = Record { revision: 1, ..request_record(provider, request)? };
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the record of a node request, not stored yet (revision 0): the caller sets its revision.
/// The index of open work lists it by the time of its creation until it is removed.
///
/// # Errors
/// When the record is too large.
pub fn request_record(provider: &ProviderName, request: &NodeRequest) -> Result<Record, PortError> {
    let mut record = encode(request_key(provider, &request.row), request)?;
    record.find = Some(open_work::index_entry(&record.key, request.created_at));
    Ok(record)
}

/// Reads the cell of a provider: head, halt mark, nodes, requests and commands. Only the first
/// [`LOAD_MAX`] records in key order are read; the rest is missing without an error. An unknown
/// provider is empty. A single record that cannot be decoded, or has an unknown sort key, is an
/// error.
///
/// # Errors
/// When the store does not answer or a record cannot be decoded.
pub async fn load(ports: &Ports, provider: &ProviderName) -> Result<LoadedProvider, LoadError> {
    let mut loaded = LoadedProvider::default();
    for record in ports.records.query(&Query::prefix(partition(provider), "", LOAD_MAX)).await? {
        match record.key.sort.split_once('#').map_or(record.key.sort.as_str(), |(kind, _)| kind) {
            "head" => {
                loaded.head = Some(decode(&record)?);
                loaded.head_record = Some(record);
            }
            "request" => {
                let request: NodeRequest = decode(&record)?;
                loaded.requests.insert(request.row.clone(), (record, request));
            }
            "node" => {
                let node: PoolNode = decode(&record)?;
                loaded.nodes.insert(node.id.clone(), (record, node));
            }
            "command" => loaded.commands.push(decode(&record)?),
            "halted" => loaded.is_halted = true,
            _ => {
                return Err(LoadError::Bad(BadRecord {
                    key: record.key,
                    why: "a provider has no record with such a sort key".into(),
                }));
            }
        }
    }
    Ok(loaded)
}
