//! `T/labels`, `T/nodes` and `T/nodeset-requests`: a tenant's labels, nodes and node requests.

use crate::Api;
use crate::load;
use crate::reply::{self, ErrorResponse};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::layout::Layout;
use sluice_model::build::Order;
use sluice_model::{LabelName, ProviderName, TenantName};
use sluice_pool::{
    NodeRequest, NodeState, PoolNode, RequestRow, RequestState, relative_priorities,
};
use sluice_records::build::order_key;
use sluice_records::codec::decode_or_log;
use sluice_records::provider::{self, LoadedProvider};
use sluice_records::queue::LoadError;
use sluice_records::queue_positions;
use sluice_runtime::Ports;
use sluice_runtime::quarantine::{halt_key, recorded_reason};
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of providers in one answer.
const PROVIDERS_MAX: usize = 50;
/// The maximum number of nodes or requests in one answer.
const LISTED_MAX: usize = 1_000;

/// Answers `T/labels` with the labels of the tenant's providers, each name once, in order.
pub(crate) async fn labels(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for label in live.layout.providers().iter().flat_map(|provider| &provider.labels) {
        found.entry(label.name.as_str()).or_insert(&label.canonical_name);
    }
    let list =
        found.iter().map(|(name, canonical)| json!({"name": name, "canonical_name": canonical}));
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Answers `T/nodes` with the nodes that the tenant may see: [`visible_nodes`].
pub(crate) async fn nodes(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let nodes = visible_nodes(api, tenant, &live.layout).await?;
    let label_names = live.layout.label_names();
    let list = nodes.iter().map(|node| node_json(node, &live.layout, &label_names)).collect();
    Ok(reply::json(&Value::Array(list)))
}

/// Returns the unallocated nodes of the tenant's providers, and those allocated to its own builds
/// or held for it, at most [`LISTED_MAX`]. Providers beyond [`PROVIDERS_MAX`] and those with an
/// unreadable record are left out.
pub(crate) async fn visible_nodes(
    api: &Api,
    tenant: &TenantName,
    layout: &Layout,
) -> Result<Vec<PoolNode>, ErrorResponse> {
    let mut list = Vec::new();
    for loaded in providers(&api.ports, names(layout)).await? {
        let own_builds: BTreeSet<_> = loaded
            .requests
            .values()
            .filter(|(_, request)| request.queue.tenant == *tenant)
            .map(|(_, request)| request.build.clone())
            .collect();
        let builds = builds_of(api, tenant, &loaded).await?;
        let shown = loaded.nodes.into_values().map(|(_, node)| node).filter(|node| {
            let is_held_for_another = matches!(
                &node.state,
                NodeState::Hold { hold: Some(hold), .. } if hold.tenant != *tenant
            );
            !is_held_for_another
                && node.allocated_to.as_ref().is_none_or(|given| {
                    own_builds.contains(&given.build) || builds.contains(given.build.as_str())
                })
        });
        list.extend(shown);
        list.truncate(LISTED_MAX);
    }
    Ok(list)
}

/// Returns a node request of the tenant with its provider, by the request's id. `None` if there is
/// none at the tenant's first [`PROVIDERS_MAX`] providers.
pub(crate) async fn find_request(
    api: &Api,
    tenant: &TenantName,
    layout: &Layout,
    id: &str,
) -> Result<Option<(ProviderName, NodeRequest)>, ErrorResponse> {
    for name in names(layout) {
        for loaded in providers(&api.ports, vec![name.clone()]).await? {
            let found = loaded.requests.into_values().map(|(_, request)| request);
            let mut own = found.filter(|request| request.queue.tenant == *tenant);
            if let Some(request) = own.find(|request| request.row.as_str() == id) {
                return Ok(Some((name, request)));
            }
        }
    }
    Ok(None)
}

/// Answers `T/nodeset-requests` with the node requests of the tenant's builds, at most
/// [`LISTED_MAX`]. Providers beyond [`PROVIDERS_MAX`] and those with an unreadable record are left
/// out.
pub(crate) async fn requests(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let mut list = Vec::new();
    for loaded in providers(&api.ports, names(&live.layout)).await? {
        let own_requests: Vec<&NodeRequest> = loaded
            .requests
            .values()
            .map(|(_, request)| request)
            .filter(|request| request.queue.tenant == *tenant)
            .collect();
        let relative = relative_priorities_now(&api.ports, &loaded, &own_requests).await?;
        let keys: Vec<_> = own_requests.iter().map(|request| order_key(&request.build)).collect();
        for (request, record) in
            own_requests.into_iter().zip(load::read_many(&api.ports, &keys).await?)
        {
            let order: Option<Order> = record.as_ref().and_then(decode_or_log);
            list.push(request_json(request, order.as_ref(), relative.get(&request.row).copied()));
        }
        list.truncate(LISTED_MAX);
    }
    Ok(reply::json(&Value::Array(list)))
}

/// Returns the relative priorities by which a provider serves its requests now, with the current
/// positions of the changes of `shown`, as far as these wait.
async fn relative_priorities_now(
    ports: &Ports,
    loaded: &LoadedProvider,
    shown: &[&NodeRequest],
) -> Result<BTreeMap<RequestRow, u32>, ErrorResponse> {
    let now = ports.clock.now();
    let queued = queue_positions::may_have_moved(shown.iter().copied(), now);
    let mut keys: BTreeSet<Key> = queue_positions::heads(&queued).into_iter().collect();
    keys.extend(queued.iter().map(|request| order_key(&request.build)));
    let keys: Vec<Key> = keys.into_iter().collect();
    let records = load::read_many(ports, &keys).await?;
    let found = records.into_iter().flatten().map(|record| (record.key.clone(), record)).collect();
    let mut places = queue_positions::current_places(&queued, &found);
    let grouped = queue_positions::waiting_in_groups(shown.iter().copied(), now);
    places.extend(queue_positions::places_in_groups(ports, &grouped).await?);
    Ok(relative_priorities(loaded.requests.values().map(|(_, request)| request), &places))
}

/// Returns the canonical names of a layout's providers, at most [`PROVIDERS_MAX`].
fn names(layout: &Layout) -> Vec<ProviderName> {
    let providers = layout.providers().iter().take(PROVIDERS_MAX);
    providers.map(|provider| ProviderName(provider.canonical_name.clone())).collect()
}

/// Loads providers, and leaves out those with an unreadable record. The board shows them as halted,
/// with the reason.
async fn providers(
    ports: &Ports,
    names: Vec<ProviderName>,
) -> Result<Vec<LoadedProvider>, ErrorResponse> {
    let mut all = Vec::new();
    for provider in names {
        match provider::load(ports, &provider).await {
            Ok(loaded) => all.push(loaded),
            Err(LoadError::Bad(bad)) => tracing::warn!(
                %provider,
                %bad,
                "left an unreadable provider out of an answer; repair the record, then run `sluice provider resume`"
            ),
            Err(LoadError::Port(error)) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Returns the halted ones among the layout's first [`PROVIDERS_MAX`] providers as JSON, each with
/// the name and the reason.
pub(crate) async fn halted(ports: &Ports, layout: &Layout) -> Result<Vec<Value>, ErrorResponse> {
    let named: BTreeMap<Key, &str> = layout
        .providers()
        .iter()
        .take(PROVIDERS_MAX)
        .map(|provider| provider.canonical_name.as_str())
        .map(|name| (halt_key(&provider::partition(&ProviderName(name.to_owned()))), name))
        .collect();
    let keys: Vec<Key> = named.keys().cloned().collect();
    let marks = load::read_many(ports, &keys).await?;
    let halted = named
        .values()
        .zip(&marks)
        .filter_map(|(name, mark)| Some((name, recorded_reason(mark.as_ref()?))));
    Ok(halted.map(|(name, why)| json!({"name": name, "why": why})).collect())
}

/// Returns the ids of the tenant's builds among those that have nodes, of at most [`LISTED_MAX`].
/// Their requests may already be deleted.
async fn builds_of(
    api: &Api,
    tenant: &TenantName,
    loaded: &LoadedProvider,
) -> Result<BTreeSet<String>, ErrorResponse> {
    let given: BTreeSet<_> = loaded
        .nodes
        .values()
        .filter_map(|(_, node)| Some(node.allocated_to.as_ref()?.build.clone()))
        .collect();
    let keys: Vec<_> = given.iter().take(LISTED_MAX).map(order_key).collect();
    let mut own_builds = BTreeSet::new();
    for record in load::read_many(&api.ports, &keys).await?.into_iter().flatten() {
        let Some(order) = decode_or_log::<Order>(&record) else { continue };
        if order.queue.tenant == *tenant {
            own_builds.insert(order.build.to_string());
        }
    }
    Ok(own_builds)
}

/// Returns a node in the shape that Zuul's API has. What its label says is read from the live
/// layout; if that lacks the label, it is null, and the connection type `ssh`. `label_names` has
/// the tenant's names of labels; any other label is shown by its name across tenants.
fn node_json(
    node: &PoolNode,
    layout: &Layout,
    label_names: &BTreeMap<LabelName, LabelName>,
) -> Value {
    let label_name = label_names.get(&node.label).unwrap_or(&node.label);
    let (machine, endpoint) = (node.machine(), node.endpoint());
    let label = layout
        .providers()
        .iter()
        .filter(|provider| provider.canonical_name == node.provider.as_str())
        .find_map(|provider| {
            provider.labels.iter().find(|label| label.canonical_name == node.label.as_str())
        });
    let comment = match &node.state {
        NodeState::Hold { reason, .. } => Some(reason.as_str()),
        _ => None,
    };
    json!({
        "id": node.id,
        "uuid": node.id,
        "type": [label_name],
        "label": label_name,
        "connection_type": label.map_or("ssh", |label| label.connection_type.as_str()),
        "external_id": null,
        "state": node.state.as_str(),
        "state_time": node.updated_at.to_iso(),
        "comment": comment,
        "max_ready_age": label.map(|label| label.max_ready_age_seconds),
        "max_age": label.map(|label| label.max_age_seconds),
        "hold_expiration": match &node.state {
            NodeState::Hold { until, .. } => {
                json!(until.map(|until| until.since(node.updated_at) / 1_000))
            }
            _ => Value::Null,
        },
        "slot": null,
        "interface_ip": endpoint.as_ref().map(|(address, _)| address),
        "connection_port": endpoint.as_ref().map(|(_, port)| port),
        "public_ipv4": machine.and_then(|machine| machine.public_ipv4.clone()),
        "private_ipv4": machine.and_then(|machine| machine.private_ipv4.clone()),
        "public_ipv6": machine.and_then(|machine| machine.public_ipv6.clone()),
        "private_ipv6": null,
        "az": node.az,
        "cloud": null,
        "provider": node.provider,
        "region": node.region,
        "username": node.username,
        "lock_holder": null,
        "request_id": node.allocated_to.as_ref().map(|given| &given.row),
        "main_node_id": null,
        "quota": {},
        "is_locked": node.allocated_to.is_some(),
        "request_time": node.created_at.to_iso(),
    })
}

/// Returns a node request in the shape that Zuul's API has. Without the build's order, what only
/// that has is null. `relative` is its current relative priority.
fn request_json(request: &NodeRequest, order: Option<&Order>, relative: Option<u32>) -> Value {
    let state = match &request.state {
        RequestState::Requested => "requested",
        RequestState::Placed(_) => "accepted",
        RequestState::Fulfilled(_) | RequestState::Claimed(_) | RequestState::Ended(_) => {
            "fulfilled"
        }
        RequestState::Failed { .. } => "failed",
    };
    let zone = &request.executor_zone;
    let nodes = request
        .nodes()
        .iter()
        .map(|node| json!({"uuid": node, "executor_zone": zone, "failed_providers": []}));
    let priority = request.row.as_str().split('-').next().and_then(|part| part.parse::<u64>().ok());
    let images = order.and_then(|order| order.change.key.images());
    json!({
        "uuid": request.row,
        "state": state,
        "pipeline_name": request.queue.pipeline,
        "buildset_uuid": order.map(|order| &order.item),
        "job_name": order.map(|order| &order.job),
        "labels": request.label_names(),
        "priority": priority,
        "relative_priority": relative,
        "request_time": request.created_at.to_iso(),
        "zuul_event_id": order.map(|order| &order.event_id),
        "image_names": images.map(|images| &images.names),
        "image_upload_uuid": images.and_then(|images| images.upload.as_ref()),
        "provider_node_data": nodes.collect::<Vec<_>>(),
        "is_locked": false,
        "lock_holder": null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_memory::World;
    use sluice_model::wakeup::Precedence;
    use sluice_model::{QueueKey, Timestamp};
    use sluice_pool::ProviderHead;
    use sluice_records::codec::encode_first;
    use sluice_runtime::record::{Expect, Record, Write};

    /// Z9.1, Z7: an unreadable record of one provider does not hide another provider's nodes.
    #[tokio::test]
    async fn a_provider_that_cannot_be_read_hides_no_other() {
        let world = World::new(7, 0, Timestamp(0));
        let [bad, good] = ["bad", "good"].map(ProviderName::from);
        for name in [&bad, &good] {
            let record =
                encode_first(provider::head_key(name), &ProviderHead::new(name.clone())).unwrap();
            world.write_unchecked(Write::Put { record, expect: Expect::Absent });
        }
        let read = async || {
            let found = providers(&world.ports(), vec![bad.clone(), good.clone()]).await.unwrap();
            found.into_iter().filter_map(|loaded| Some(loaded.head?.provider)).collect::<Vec<_>>()
        };
        assert_eq!(read().await, [bad.clone(), good.clone()]);
        let record =
            Record { revision: 2, ..Record::new(provider::head_key(&bad), "{}".to_owned()) };
        world.write_unchecked(Write::Put { record, expect: Expect::Anything });
        assert_eq!(read().await, std::slice::from_ref(&good));
    }

    /// Z6.1: the relative priority of a change in an independent pipeline counts all changes of its
    /// project that entered before it, also those without requests at the provider.
    #[tokio::test]
    async fn a_relative_priority_counts_changes_without_requests() {
        let of = |queue: &str| QueueKey {
            tenant: "t".into(),
            pipeline: "check".into(),
            queue: queue.into(),
        };
        let world = World::new(1, 0, Timestamp(9_000));
        for (queue, since) in [("two", 20), ("one", 10), ("three", 30)] {
            let entry = queue_positions::group_entry("t/check/app", &of(queue), Timestamp(since));
            let key = sluice_records::queue::head_key(&of(queue));
            let record = Record { find: Some(entry), ..Record::new(key, "{}".to_owned()) };
            world.write_unchecked(Write::Put { record, expect: Expect::Absent });
        }
        let request = NodeRequest {
            group: Some("t/check/app".to_owned()),
            ..NodeRequest::new(
                RequestRow::new(200, 0, 1),
                "build".into(),
                of("three"),
                "unit",
                Precedence::Normal,
                vec!["small".into()],
                Timestamp(30),
            )
        };
        let record = Record::new(provider::head_key(&"p".into()), "{}".to_owned());
        let loaded = LoadedProvider {
            requests: [(request.row.clone(), (record, request.clone()))].into(),
            ..LoadedProvider::default()
        };
        let relative = relative_priorities_now(&world.ports(), &loaded, &[&request]).await.unwrap();
        assert_eq!(relative, BTreeMap::from([(request.row, 2)]));
    }
}
