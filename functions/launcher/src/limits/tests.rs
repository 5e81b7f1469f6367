//! How the settings of several tenants become those of one provider.

use super::*;

/// Returns what a tenant says about the provider `main`: this connection, this static host, and the
/// label `small` with an image of this name.
fn settings(tenant: &str, connection: ProviderConnection, text: &str) -> Arc<ProviderSettings> {
    let host = StaticHost {
        name: "one.test".into(),
        labels: vec!["metal".into()],
        region: None,
        address: "one.test".into(),
        ssh_port: 22,
        username: text.into(),
        host_keys: Vec::new(),
        python_path: None,
        max_parallel: 1,
    };
    let label = LabelSpec {
        image: LabelImage::Available { id: text.into() },
        flavor: Some("small".into()),
        location: LaunchLocation::default(),
        zone: None,
        resources: Resources::instances(1),
        username: "zuul".into(),
        ssh_port: 22,
        python_path: None,
        interface: Interface::default(),
        min_ready: 0,
        max_ready_age_seconds: None,
        boot_timeout_seconds: 60,
    };
    let limits = ProviderLimits {
        quota: Resources::instances(8),
        labels: [("small".into(), label)].into(),
        static_hosts: [(tenant.into(), Arc::new(vec![host]))].into(),
        ..ProviderLimits::retired("main".into())
    };
    Arc::new(ProviderSettings { connection: Some(connection), limits })
}

fn cloud(name: &str) -> ProviderConnection {
    ProviderConnection::Cloud(name.into())
}

/// Returns what these tenants say, each with this connection to a cloud.
fn found(tenants: &[(&str, &str)]) -> Found {
    let of = |(tenant, connection): &(&str, &str)| {
        ((*tenant).into(), settings(tenant, cloud(connection), tenant))
    };
    Found { settings: tenants.iter().map(of).collect(), unread: BTreeSet::new() }
}

fn unused() -> ConnectionInUse {
    ConnectionInUse { connection: None, has_nodes: false }
}

fn used(connection: &str) -> ConnectionInUse {
    ConnectionInUse { connection: Some(cloud(connection)), has_nodes: true }
}

/// Returns the settings that these tenants give a provider.
fn of(found: &Found, in_use: &ConnectionInUse) -> ProviderSettings {
    combined(&"main".into(), found, &ChosenConnection::new(found, in_use))
}

fn refused(settings: &ProviderSettings) -> Vec<&str> {
    settings.limits.refused_tenants.keys().map(TenantName::as_str).collect()
}

/// L3.4, Z1.10: each tenant keeps its own description of a host.
#[test]
fn a_host_of_one_name_is_as_each_tenant_has_it() {
    let all = found(&[("a", "ec2"), ("b", "ec2")]);
    let settings = of(&all, &unused());
    let users = ["a", "b", "c"].map(|tenant| {
        let hosts = settings.limits.hosts_of(&tenant.into()).iter();
        hosts.map(|host| host.username.as_str()).collect::<Vec<_>>()
    });
    assert_eq!(users, [vec!["a"], vec!["b"], vec![]]);
}

/// L3.4, Z1.9: a tenant with another connection than the one in use gets no nodes, wherever its
/// name sorts, and changes nothing for the others.
#[test]
fn a_tenant_with_another_connection_is_refused() {
    let mut all = found(&[("aaa", "evil"), ("b", "ec2"), ("c", "ec2")]);
    for in_use in [used("ec2"), unused(), ConnectionInUse { has_nodes: false, ..used("ec2") }] {
        let settings = of(&all, &in_use);
        assert_eq!(settings.connection, Some(cloud("ec2")), "{in_use:?}");
        assert_eq!(refused(&settings), ["aaa"]);
        assert!(settings.limits.hosts_of(&"aaa".into()).is_empty());
        assert_eq!(settings.limits.forms_of(&"small".into()).count(), 2, "those of b and c");
        assert_eq!((settings.limits.waits, settings.limits.quota.instances), (None, 8));
    }
    let why = &of(&all, &used("ec2")).limits.refused_tenants[&TenantName::from("aaa")];
    assert!(
        why.contains("connection evil in tenant aaa") && why.contains("connection ec2"),
        "{why}"
    );
    // The others cannot be read for a while.
    all.settings.retain(|tenant, _| tenant.as_str() == "aaa");
    all.unread = ["b".into(), "c".into()].into();
    for in_use in [used("ec2"), ConnectionInUse { has_nodes: false, ..used("ec2") }] {
        let settings = of(&all, &in_use);
        assert_eq!(settings.connection, Some(cloud("ec2")));
        assert_eq!((refused(&settings), settings.limits.has_cloud()), (vec![], false));
        let why = settings.limits.waits.unwrap();
        assert!(why.contains("tenant b, which cannot be read"), "{why}");
    }
}

/// L3.4, Z1.9: a provider whose tenants all change its connection keeps the former one until its
/// nodes are gone, so that they are found and deleted. Requests wait as long.
#[test]
fn a_provider_keeps_its_connection_until_its_nodes_are_gone() {
    let all = found(&[("a", "new"), ("b", "new")]);
    let settings = of(&all, &used("old"));
    assert_eq!(settings.connection, Some(cloud("old")));
    assert_eq!((refused(&settings), settings.limits.has_cloud()), (vec![], false));
    let why = settings.limits.waits.unwrap();
    assert!(
        why.contains("connection new now") && why.contains("nodes with connection old"),
        "{why}"
    );
    let settings = of(&all, &ConnectionInUse { has_nodes: false, ..used("old") });
    assert_eq!(settings.connection, Some(cloud("new")));
    assert_eq!((refused(&settings), settings.limits.waits.clone()), (vec![], None));
}

/// Z6.4: a run reads the tenants of its requests, however many others have the provider, and sees
/// what they changed.
#[test]
fn a_run_reads_only_the_tenants_of_its_requests() {
    let (configured, name) = (Configured::default(), ProviderName::from("main"));
    let asks: BTreeSet<TenantName> = ["b".into(), "new".into()].into();
    let read = |now: u64| configured.tenants_to_read(&name, asks.clone(), Timestamp(now));
    assert_eq!(read(0), BTreeSet::new(), "all tenants are read");
    let tenants: Vec<String> = (0..1_000).map(|number| format!("t{number}")).collect();
    let tenants: Vec<(&str, &str)> =
        tenants.iter().map(|tenant| (tenant.as_str(), "ec2")).chain([("b", "ec2")]).collect();
    configured.keep(&name, found(&tenants), &unused(), Timestamp(0));
    assert_eq!(read(59_999), asks);
    assert_eq!(read(60_000), BTreeSet::new(), "all tenants are read");

    let (mut all, _) = configured.fresh(&name, Timestamp(1)).unwrap();
    let heads: TenantHeads = asks.iter().map(|tenant| (tenant.clone(), None)).collect();
    all.replace(&heads, found(&[("new", "ec2")]));
    assert_eq!(all.settings.len(), 1_001, "b has it no more");
    let settings = configured.keep(&name, all, &unused(), Timestamp(0));
    let hosts = |tenant: &str| settings.limits.hosts_of(&tenant.into()).len();
    assert_eq!(["b", "new", "t999"].map(hosts), [0, 1, 1]);
}

/// Z6.4: the caches are bounded.
#[test]
fn the_caches_of_tenants_and_providers_are_bounded() {
    let configured = Configured::default();
    let none =
        Arc::new(TenantProviders { layout_object: "layout".into(), settings: BTreeMap::new() });
    for number in 0..TENANTS_MAX + 10 {
        configured.remember(&format!("t{number}").as_str().into(), Arc::clone(&none));
    }
    assert_eq!(lock(&configured.of_tenants).len(), TENANTS_MAX);
    let all = found(&[("a", "ec2")]);
    for number in 0..PROVIDERS_MAX + 10 {
        let name = format!("p{number}").as_str().into();
        configured.keep(&name, all.clone(), &unused(), Timestamp(number as u64));
    }
    assert_eq!(configured.cached().len(), PROVIDERS_MAX);
    assert!(!configured.cached().contains_key(&ProviderName::from("p0")), "the oldest one");
}
