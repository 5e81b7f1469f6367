//! Lets the holder of a failed build's nodes log in on them (N15, Zuul's `autohold`).
//!
//! The provider holds the nodes after the build has ended, and nothing of ours enters them from
//! then on. So the executor adds the holder's public key at the end of the build, while its
//! connections are open, if the build then meets a request with a key. The provider decides again
//! which request holds the nodes; the two differ only if requests change in between.

use crate::job::{HolderAccess, HolderLookup};
use crate::jobdir::Jobdir;
use crate::joblog::JobLog;
use crate::settings::AnsibleSettings;
use crate::ssh::{self, Agent};
use async_trait::async_trait;
use futures::future::join_all;
use sluice_gate::autohold::{choose_request, is_held_for};
use sluice_model::build::{BuildResult, Order};
use sluice_model::node::NodeAccess;
use sluice_pool::PoolNode;
use sluice_records::codec::decode;
use sluice_records::{autohold, provider};
use sluice_runtime::Ports;

/// Finds the holder among the stored requests of the build's tenant.
pub struct StoredHolders<'a> {
    /// Access to the records.
    pub ports: &'a Ports,
    /// The build's order.
    pub order: &'a Order,
    /// The build's nodes.
    pub nodes: &'a [NodeAccess],
}

#[async_trait]
impl HolderLookup for StoredHolders<'_> {
    /// Chooses the request as the provider does. Static hosts get no key: they are used again after
    /// the hold.
    async fn holder(&self, result: BuildResult) -> Result<Option<HolderAccess>, String> {
        let (order, nodes) = (self.order, self.nodes);
        let result = order.final_result(result);
        if nodes.is_empty() || !is_held_for(result) {
            return Ok(None);
        }
        let requests = autohold::load_tenant(self.ports, &order.queue.tenant).await;
        let requests = requests.map_err(|error| error.to_string())?;
        let chosen = choose_request(
            requests.iter().map(|(_, request)| request),
            &order.change.key.project,
            &order.job,
            &order.change.github_ref(),
        );
        let Some((request, key)) = chosen.and_then(|one| Some((one, one.ssh_key.clone()?))) else {
            return Ok(None);
        };
        let keys: Vec<_> =
            nodes.iter().map(|node| provider::node_key(&node.provider, &node.id)).collect();
        let records = self.ports.records.get(&keys).await.map_err(|error| error.to_string())?;
        let found = records.iter().flatten().filter_map(|record| decode::<PoolNode>(record).ok());
        let nodes = found.filter(|node| !node.is_static()).map(|node| node.id).collect();
        Ok(Some(HolderAccess { request: request.id.clone(), key, nodes }))
    }
}

/// Adds the holder's key to the nodes of a build that ends with this result, and logs it. A node
/// that does not take the key is only logged: the build has ended anyway.
pub(crate) async fn admit_holder(
    lookup: &dyn HolderLookup,
    result: BuildResult,
    (jobdir, settings, agent): (&Jobdir, &AnsibleSettings, &Agent),
    nodes: &[NodeAccess],
    log: &mut JobLog<'_>,
) {
    let holder = match lookup.holder(result).await {
        Ok(Some(holder)) => holder,
        Ok(None) => return,
        Err(error) => {
            log.say(&format!("Could not find out whether the nodes are to be held: {error}"));
            return;
        }
    };
    let HolderAccess { request, key, nodes: admitted } = holder;
    let (request, key, admitted) = (&request, &key, &admitted);
    let added = nodes.iter().map(|node| async move {
        let names = node.names.join(",");
        if !admitted.contains(&node.id) {
            return format!("{names} | It is a static host: autohold {request} adds no key to it");
        }
        match ssh::add_authorized_key(jobdir, settings, agent, node, key).await {
            Ok(()) => format!("{names} | The holder of autohold {request} may log in"),
            Err(why) => format!("{names} | Could not add the key of autohold {request}: {why}"),
        }
    });
    join_all(added).await.iter().for_each(|line| log.say(line));
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gate::autohold::{ANY, Autohold};
    use sluice_memory::World;
    use sluice_model::change::{ChangeKey, ChangeRef};
    use sluice_model::{ProjectName, QueueKey, Timestamp};
    use sluice_pool::{Interface, NodeOrigin, NodeState, Resources};
    use sluice_records::codec::encode_first;
    use sluice_runtime::record::{Expect, Write};
    use std::collections::BTreeSet;

    const KEY: &str = "ssh-ed25519 AAAA ada";

    fn order(attempt: u32) -> Order {
        let key = ChangeKey::change("forge".into(), "forge.test/org/one".into(), 7);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        let queue = QueueKey { tenant: "acme".into(), pipeline: "check".into(), queue: "q".into() };
        let sample = Order::sample("b".into(), queue, "unit".into(), change);
        Order { attempt, max_attempts: 2, ..sample }
    }

    /// N15: the holder's key is added to the nodes of a build that meets the request, at its last
    /// attempt, and not to static hosts, which are used again.
    #[tokio::test]
    async fn the_holder_of_a_failed_build_is_found() {
        let world = World::new(1, 0, Timestamp(0));
        let ports = world.ports();
        let request = Autohold {
            id: "0000000003".to_owned(),
            tenant: "acme".into(),
            project: ProjectName::new("forge.test", "org/one"),
            job: "unit".into(),
            ref_filter: ANY.to_owned(),
            reason: "look".to_owned(),
            by: "ada".to_owned(),
            max_count: 1,
            node_expiration_seconds: None,
            ssh_key: Some(KEY.to_owned()),
            created_at: Timestamp(0),
            held: Vec::new(),
        };
        world.write_unchecked(autohold::create(&request).unwrap());
        let access = |id: &str| NodeAccess {
            id: id.into(),
            names: vec![id.to_owned()],
            label: "small".into(),
            provider: "p".into(),
            region: None,
            az: None,
            external_id: None,
            interface_ip: "127.0.0.1".to_owned(),
            public_ipv4: None,
            private_ipv4: None,
            public_ipv6: None,
            ssh_port: 22,
            username: "zuul".to_owned(),
            host_keys: Vec::new(),
            python_path: None,
        };
        for (id, is_static) in [("cloud", false), ("host", true)] {
            let node = pool_node(id, is_static);
            let key = provider::node_key(&"p".into(), &id.into());
            let record = encode_first(key, &node).unwrap();
            world.write_unchecked(Write::Put { record, expect: Expect::Absent });
        }
        let nodes = [access("cloud"), access("host")];
        let holder = async |attempt: u32, nodes: &[NodeAccess], result: BuildResult| {
            let order = order(attempt);
            StoredHolders { ports: &ports, order: &order, nodes }.holder(result).await.unwrap()
        };
        let expected = HolderAccess {
            request: "0000000003".to_owned(),
            key: KEY.to_owned(),
            nodes: BTreeSet::from(["cloud".into()]),
        };
        let found = holder(1, &nodes, BuildResult::Failure).await;
        assert_eq!(found.as_ref(), Some(&expected));
        assert_eq!(holder(2, &nodes, BuildResult::Retry).await, found, "the last attempt");
        for (attempt, nodes, result) in [
            (1, &nodes[..], BuildResult::Retry),
            (1, &nodes[..], BuildResult::Success),
            (1, &nodes[..], BuildResult::Aborted),
            (1, &nodes[..0], BuildResult::Failure),
        ] {
            assert_eq!(holder(attempt, nodes, result).await, None, "{attempt} {result}");
        }
    }

    fn pool_node(id: &str, is_static: bool) -> PoolNode {
        let origin = match is_static {
            true => NodeOrigin::Static { host: id.to_owned(), host_keys: Vec::new() },
            false => NodeOrigin::Cloud {
                client_token: id.to_owned(),
                image_id: "i".to_owned(),
                flavor: "f".to_owned(),
                resources: Resources::instances(1),
            },
        };
        PoolNode {
            id: id.into(),
            label: "small".into(),
            provider: "p".into(),
            region: None,
            az: None,
            origin,
            allocated_to: None,
            state: NodeState::Deleting {
                instance: None,
                reason: String::new(),
                since: Timestamp(0),
                retry_at: Timestamp(0),
            },
            attempt: 1,
            username: "zuul".to_owned(),
            ssh_port: 22,
            python_path: None,
            interface: Interface::Private,
            boot_timeout_seconds: 60,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }
}
