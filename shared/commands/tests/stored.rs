//! What commands store, on a store in memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_commands::{
    AutoholdSettings, CommandAuthor, CommandSource, NodeChange, StoreCommandError, change_node,
    create_autohold, delete_autohold, delete_node_request,
};
use sluice_memory::World;
use sluice_model::wakeup::Precedence;
use sluice_model::{ProviderName, QueueKey, TenantName, Timestamp};
use sluice_pool::{
    Interface, Machine, NodeOrigin, NodeRequest, NodeState, Placement, PoolCommandKind, PoolNode,
    RequestRow, RequestState, Resources,
};
use sluice_records::audit;
use sluice_records::provider;

const NOW: Timestamp = Timestamp(1_000_000);

fn author() -> CommandAuthor {
    let source = CommandSource::Api { authenticator: "company".to_owned() };
    CommandAuthor { name: "ada".to_owned(), source }
}

fn tenant() -> TenantName {
    TenantName::from("acme")
}

fn ready_node() -> PoolNode {
    let machine = Machine {
        instance: sluice_pool::InstanceId("i-1".to_owned()),
        private_ipv4: None,
        public_ipv4: None,
        public_ipv6: None,
        ssh_port: None,
        launched_at: Timestamp(0),
    };
    PoolNode {
        id: "node-1".into(),
        label: "small".into(),
        provider: "cloud".into(),
        region: None,
        az: None,
        origin: NodeOrigin::Cloud {
            client_token: "node-1".to_owned(),
            image_id: "image-1".to_owned(),
            flavor: "small".to_owned(),
            resources: Resources::instances(1),
        },
        allocated_to: None,
        state: NodeState::Ready { machine, host_keys: Vec::new() },
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

fn request() -> NodeRequest {
    NodeRequest::new(
        RequestRow::new(200, 0, 1),
        "build-1".into(),
        QueueKey { tenant: tenant(), pipeline: "gate".into(), queue: "main".into() },
        "gate",
        Precedence::Normal,
        vec!["small".into()],
        NOW,
    )
}

/// Z9.1, C2.2: a command to a provider is stored with its audit, in the order in which it was
/// given.
#[tokio::test]
async fn commands_to_a_provider_are_stored_in_order_with_their_audit() {
    let world = World::new(7, 0, NOW);
    let ports = world.ports();
    let cloud = ProviderName::from("cloud");
    let hold = NodeChange::Hold { reason: "look".to_owned() };
    change_node(&ports, &tenant(), &ready_node(), &hold, &author()).await.unwrap();
    world.advance_millis(5);
    change_node(&ports, &tenant(), &ready_node(), &NodeChange::Release, &author()).await.unwrap();
    world.advance_millis(5);
    delete_node_request(&ports, &cloud, &request(), &author()).await.unwrap();
    let loaded = provider::load(&ports, &cloud).await.unwrap();
    let kinds: Vec<PoolCommandKind> =
        loaded.commands.iter().map(|command| command.kind.clone()).collect();
    assert_eq!(
        kinds,
        [
            PoolCommandKind::HoldNode { node: "node-1".into(), reason: "look".to_owned() },
            PoolCommandKind::ReleaseNode { node: "node-1".into() },
            PoolCommandKind::DeleteRequest { row: RequestRow::new(200, 0, 1) },
        ]
    );
    assert!(loaded.commands.iter().all(|command| command.by == "ada"));
    let entries = audit::newest(&ports, &tenant(), 10).await.unwrap();
    let texts: Vec<&str> = entries.iter().map(|entry| entry.description.as_str()).collect();
    assert_eq!(
        texts,
        [
            "delete the node request 200-0000-000000000001",
            "release node node-1",
            "hold node node-1: look",
        ],
        "the newest first"
    );
    assert!(entries.iter().all(|entry| entry.by == "ada" && entry.via == "api company"));
}

/// Z9.1: what is not possible now stores nothing.
#[tokio::test]
async fn what_is_not_possible_stores_nothing() {
    let world = World::new(7, 0, NOW);
    let ports = world.ports();
    let cloud = ProviderName::from("cloud");
    let placement = Placement { az: None, generation: 1, nodes: vec!["node-1".into()] };
    let claimed = NodeRequest { state: RequestState::Claimed(placement), ..request() };
    let refused = delete_node_request(&ports, &cloud, &claimed, &author()).await;
    assert!(matches!(refused, Err(StoreCommandError::Invalid(_))), "{refused:?}");
    let allocated = PoolNode {
        allocated_to: Some(sluice_pool::Allocation {
            row: RequestRow::new(200, 0, 1),
            build: "build-1".into(),
            missing_since: None,
        }),
        ..ready_node()
    };
    for change in [NodeChange::Release, NodeChange::Hold { reason: String::new() }] {
        let refused = change_node(&ports, &tenant(), &allocated, &change, &author()).await;
        assert!(matches!(refused, Err(StoreCommandError::Invalid(_))), "{refused:?}");
    }
    assert!(world.records().is_empty());
}

/// Z9.1: autohold requests are checked, counted and deleted, each with its audit.
#[tokio::test]
async fn autohold_requests_are_stored_with_their_audit() {
    let world = World::new(7, 0, NOW);
    let ports = world.ports();
    let settings = AutoholdSettings {
        project: "github.com/org/app".into(),
        job: "unit".to_owned(),
        change: Some(7),
        git_ref: None,
        reason: "  look  ".to_owned(),
        count: 1,
        node_expiration_seconds: Some(0),
        ssh_key: None,
    };
    let made = create_autohold(&ports, &tenant(), &settings, &author()).await.unwrap();
    assert_eq!((made.id.as_str(), made.ref_filter.as_str()), ("0000000001", "refs/pull/7/head"));
    assert_eq!((made.reason.as_str(), made.node_expiration_seconds), ("look", None));
    for unusable in [
        AutoholdSettings { reason: " ".to_owned(), ..settings.clone() },
        AutoholdSettings { count: 0, ..settings.clone() },
        AutoholdSettings { count: 41, ..settings.clone() },
        AutoholdSettings { change: None, git_ref: Some("(".to_owned()), ..settings.clone() },
        AutoholdSettings { ssh_key: Some("no key".to_owned()), ..settings.clone() },
    ] {
        let refused = create_autohold(&ports, &tenant(), &unusable, &author()).await;
        assert!(matches!(refused, Err(StoreCommandError::Invalid(_))), "{refused:?}");
    }
    delete_autohold(&ports, &tenant(), &made.id, &author()).await.unwrap();
    let again = delete_autohold(&ports, &tenant(), &made.id, &author()).await;
    assert!(matches!(again, Err(StoreCommandError::NotFound(_))), "{again:?}");
    assert_eq!(audit::newest(&ports, &tenant(), 10).await.unwrap().len(), 2);
    // A late command about the deleted request must not mean another one.
    let next = create_autohold(&ports, &tenant(), &settings, &author()).await.unwrap();
    assert_eq!(next.id, "0000000002");
    let other = TenantName::from("other");
    let first = create_autohold(&ports, &other, &settings, &author()).await.unwrap();
    assert_eq!(first.id, "0000000001", "each tenant counts by itself");
}
