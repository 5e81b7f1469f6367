//! The records from which claims are decided.

use super::request_key;
use sluice_model::BuildId;
use sluice_model::build::{Order, RequestRef};
use sluice_pool::{NodeRequest, PoolNode, RequestState};
use sluice_records::codec::decode;
use sluice_records::{build, provider};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of keys in one read (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Records that were read, and the keys that were requested.
#[derive(Default)]
pub(super) struct LoadedRecords {
    /// All keys that were read, whether or not they exist.
    requested: BTreeSet<Key>,
    /// The records that exist.
    pub(super) found: BTreeMap<Key, Record>,
}

impl LoadedRecords {
    /// Reads the records of those keys that were not requested before, and adds the existing ones.
    /// A missing record is not requested again either. After an error `self` must be dropped,
    /// because the keys count as requested although they were not read.
    pub(super) async fn read(
        &mut self,
        ports: &Ports,
        keys: impl Iterator<Item = Key>,
    ) -> Result<(), PortError> {
        let keys: Vec<Key> = keys.filter(|key| self.requested.insert(key.clone())).collect();
        for page in keys.chunks(KEYS_MAX) {
            let records = ports.records.get(page).await?;
            self.found
                .extend(records.into_iter().flatten().map(|record| (record.key.clone(), record)));
        }
        Ok(())
    }

    /// Returns an order; `None` if it is missing or cannot be decoded.
    pub(super) fn order(&self, build: &BuildId) -> Option<Order> {
        decode(self.found.get(&build::order_key(build))?).ok()
    }

    /// Returns the node request of a build with its record; `None` if its nodes may not be used. If
    /// this session has stored a claim of the build (`is_claimed_here`), the request must be
    /// claimed, otherwise it must be fulfilled. In any other state, or without a record, the nodes
    /// may not be used.
    pub(super) fn request(
        &self,
        at: &RequestRef,
        is_claimed_here: bool,
    ) -> Result<Option<(Record, NodeRequest)>, ReconcileError> {
        let Some(record) = self.found.get(&request_key(at)) else { return Ok(None) };
        let request: NodeRequest = decode(record)?;
        let is_usable = match request.state {
            RequestState::Fulfilled(_) => !is_claimed_here,
            RequestState::Claimed(_) => is_claimed_here,
            _ => false,
        };
        Ok(is_usable.then(|| (record.clone(), request)))
    }

    /// Returns the nodes of a request in the request's order; an error if a node's record does not
    /// exist yet.
    pub(super) fn nodes(
        &self,
        at: &RequestRef,
        request: &NodeRequest,
    ) -> Result<Vec<PoolNode>, ReconcileError> {
        let nodes = request.nodes().iter().map(|id| {
            let key = provider::node_key(&at.provider, id);
            let record = self
                .found
                .get(&key)
                .ok_or_else(|| ReconcileError::Retry(format!("{key} does not exist yet")))?;
            Ok(decode(record)?)
        });
        nodes.collect()
    }
}
