//! A provider's cell: head, requests and nodes.

use crate::codec::{BadRecord, decode, encode};
use crate::ledger;
use crate::queue::LoadError;
use sluice_model::name::escape;
use sluice_model::{NodeId, ProviderName};
use sluice_pool::{Node, ProviderHead, Request, Row};
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// The most records of one provider that are read at once.
pub const LOAD_MAX: usize = 5_000;

/// A provider as it was read.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The head's record; `None` before its first use.
    pub head_record: Option<Record>,
    /// The head.
    pub head: Option<ProviderHead>,
    /// Requests with their records, in the order of their rows.
    pub requests: BTreeMap<Row, (Record, Request)>,
    /// Nodes with their records.
    pub nodes: BTreeMap<NodeId, (Record, Node)>,
    /// Whether an operator's mark freezes the cell.
    pub is_frozen: bool,
}

/// Returns the partition of a provider.
pub fn partition(provider: &ProviderName) -> String {
    format!("provider#{}", escape(provider.as_str()))
}

/// Returns the key of a provider's head.
pub fn head_key(provider: &ProviderName) -> Key {
    Key::new(partition(provider), "head")
}

/// Returns the key of a request.
pub fn request_key(provider: &ProviderName, row: &Row) -> Key {
    Key::new(partition(provider), format!("request#{row}"))
}

/// Returns the key of a node.
pub fn node_key(provider: &ProviderName, node: &NodeId) -> Key {
    Key::new(partition(provider), format!("node#{node}"))
}

/// Returns the write of a new request; one that is there already stands.
///
/// # Errors
/// When it is too large.
pub fn create_request(provider: &ProviderName, request: &Request) -> Result<Write, PortError> {
    let record = Record { revision: 1, ..request_record(provider, request)? };
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the record of a request, whose revision is the caller's; it is listed as open until it
/// is removed.
///
/// # Errors
/// When it is too large.
pub fn request_record(provider: &ProviderName, request: &Request) -> Result<Record, PortError> {
    let mut record = encode(request_key(provider, &request.row), request)?;
    record.find = Some(ledger::listed(&record.key, request.created_at));
    Ok(record)
}

/// Reads a whole provider.
///
/// # Errors
/// Whatever the store could not answer, or the record that cannot be read.
pub async fn load(ports: &Ports, provider: &ProviderName) -> Result<Loaded, LoadError> {
    let mut loaded = Loaded::default();
    for record in ports.records.query(&Query::prefix(partition(provider), "", LOAD_MAX)).await? {
        match record.key.sort.split_once('#').map_or(record.key.sort.as_str(), |(kind, _)| kind) {
            "head" => {
                loaded.head = Some(decode(&record)?);
                loaded.head_record = Some(record);
            }
            "request" => {
                let request: Request = decode(&record)?;
                loaded.requests.insert(request.row.clone(), (record, request));
            }
            "node" => {
                let node: Node = decode(&record)?;
                loaded.nodes.insert(node.id.clone(), (record, node));
            }
            "frozen" => loaded.is_frozen = true,
            _ => {
                return Err(LoadError::Bad(BadRecord {
                    key: record.key,
                    why: "no record of this name belongs here".into(),
                }));
            }
        }
    }
    Ok(loaded)
}
