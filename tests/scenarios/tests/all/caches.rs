//! Caches of functions: a stale cache costs a call and does no harm.

use bytes::Bytes;
use http::HeaderMap;
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantConfig;
use sluice_forge::ForgeSecret;
use sluice_forge::webhook::sign;
use sluice_memory::{World, poll_once};
use sluice_model::build::BuildResult;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ProjectName, TenantName, Timestamp};
use sluice_records::codec::encode_first;
use sluice_records::connection::{self, ConnectionsFile};
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_records::layout::Layouts;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Write};
use sluice_scenarios::Site;
use sluice_scenarios::sample::{BASE, COMMON, PIPELINES, cloud};
use sluice_scenarios::site::WEBHOOK_SECRET;

const TENANT: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one]
";

const PROJECT: &str = "
- project:
    queue: integrated
    check: {jobs: [unit]}
    gate: {jobs: [unit]}
";

/// A pipeline and its use, which a later layout adds.
const LATE: &str = "
- pipeline:
    name: late
    manager: independent
    trigger:
      github: [{event: pull_request, action: [opened, changed, reopened]}]
    success: {github: {status: success}}
- project:
    name: org/one
    late: {jobs: [unit]}
";

fn config() -> String {
    [PIPELINES, BASE, "- job: {name: unit, run: playbooks/unit.yaml}\n", COMMON, &cloud(8)].concat()
}

fn site(main: &str) -> Site {
    let config = config();
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", &[(".zuul.yaml", PROJECT)])];
    Site::new(3, main, repositories, |_, _, _| BuildResult::Success)
}

fn now<T>(future: impl Future<Output = T>) -> T {
    poll_once(future).expect("nothing dies here")
}

/// Wakes the tenant function for a tenant.
fn wake_tenant(site: &Site, tenant: &str) {
    now(sluice_runtime::cell::send(
        &site.ports(),
        &[Wakeup::Tenant { tenant: TenantName::from(tenant) }],
    ))
    .unwrap();
}

fn statuses(site: &Site, number: u64) -> Vec<String> {
    let key = sluice_scenarios::forge::key("org/one", number);
    let statuses = site.forge.change(&key).unwrap().facts.statuses;
    statuses.into_iter().map(|status| format!("{} {}", status.context, status.state)).collect()
}

/// C2: intake caches the list of tenants, but routes the next event to a new tenant.
#[test]
fn a_new_tenant_gets_events_though_intake_caches_the_list_without_it() {
    let mut site = site(TENANT);
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.take_in();
    let both = format!("{TENANT}{}", TENANT.replace("demo", "other"));
    let put = site.ports();
    now(put.objects.put(connection::MAIN, Bytes::from(both), PutMode::Always, "application/yaml"))
        .unwrap();
    wake_tenant(&site, "other");
    site.run_now();
    site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
    site.run();
    assert_eq!(statuses(&site, 1), ["demo/check success"], "the other tenant did not exist yet");
    assert_eq!(statuses(&site, 2), ["demo/check success", "other/check success"]);
}

/// R01: intake, gate and merger cache a tenant's layout; an event that a newer layout routed is
/// decided with the newer one.
#[test]
fn an_inbox_message_of_a_newer_layout_is_not_processed_with_an_older_one() {
    let mut site = site(TENANT);
    // Every function has read the first layout.
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run_now();
    let main = sluice_model::git::BranchKey {
        project: ProjectName::new("forge.test", "org/config"),
        branch: "main".into(),
    };
    site.forge.push_silently(&main, &[("zuul.yaml", &format!("{}{LATE}", config()))]);
    let dirty: Write =
        tenant::put_reread(&TenantName::from("demo"), &main.project, "a push").unwrap();
    site.world.write_unchecked(dirty);
    wake_tenant(&site, "demo");
    site.run_now();
    // The clock has not moved, so that no cache has expired.
    site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
    site.run();
    assert_eq!(statuses(&site, 2), ["demo/check success", "demo/late success"]);
}

fn headers(body: &[u8], secret: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-github-delivery", "by-hand".parse().unwrap());
    headers.insert("x-github-event", "ping".parse().unwrap());
    headers.insert("x-hub-signature-256", sign(&ForgeSecret::new(secret), body).parse().unwrap());
    headers
}

fn change_secret(site: &Site, to: &str) {
    let ports = site.ports();
    let mut file: ConnectionsFile = now(connection::load(&ports)).unwrap();
    let context = connection::seal_context(&"github".into(), "webhook-secret");
    let sealed = now(connection::seal(&ports, &context, to)).unwrap();
    file.0.get_mut(&"github".into()).unwrap().webhook_secrets = vec![sealed];
    let text = Bytes::from(serde_json::to_string(&file).unwrap());
    now(ports.objects.put(connection::OBJECT, text, PutMode::Always, "application/json")).unwrap();
}

/// Z5: the webhook caches secrets for a minute. A new secret is valid at once, an old one for at
/// most that minute, and wrong signatures cause no further reads.
#[test]
fn a_changed_webhook_secret_is_valid_at_once_and_wrong_signatures_cause_no_reads() {
    let mut site = site(TENANT);
    let body = Bytes::from_static(b"{}");
    let hand_in = |site: &mut Site, secret: &str| site.hand_in(&headers(&body, secret), &body);
    assert_eq!(hand_in(&mut site, WEBHOOK_SECRET), 202);
    change_secret(&site, "a new secret");
    assert_eq!(hand_in(&mut site, WEBHOOK_SECRET), 202, "for a minute the old one is accepted");
    assert_eq!(hand_in(&mut site, "a new secret"), 202);
    assert_eq!(hand_in(&mut site, WEBHOOK_SECRET), 401, "the cache has only the new secret");
    site.world.take_calls();
    for _ in 0..50 {
        assert_eq!(hand_in(&mut site, "a guess"), 401);
    }
    assert_eq!(
        site.world.take_calls().total(),
        0,
        "the read of these two seconds was made already"
    );
    change_secret(&site, "a third secret");
    site.world.advance_millis(60_001);
    assert_eq!(hand_in(&mut site, "a new secret"), 401, "a minute is over");
    assert_eq!(hand_in(&mut site, "a third secret"), 202);
}

/// Returns the effects of all push deliveries, sorted.
fn push_effects(site: &Site) -> Vec<String> {
    let deliveries = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("delivery#"));
    let delivered =
        deliveries.map(|record| sluice_records::codec::decode::<DeliveryRecord>(&record).unwrap());
    let mut effects: Vec<String> = delivered
        .filter(|delivery| delivery.event_name == "push")
        .flat_map(|delivery| match delivery.state {
            DeliveryState::Handled { effects, .. } => effects,
            state => vec![format!("{state:?}")],
        })
        .collect();
    effects.sort();
    effects
}

/// R01: the push of a landing makes its tenant read the configuration again only if the change
/// touched configuration.
#[test]
fn the_push_of_a_landing_without_configuration_causes_no_read() {
    let mut site = site(TENANT);
    let plain = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let configures = site.forge.propose(
        "org/one",
        2,
        "B",
        "",
        &[(".zuul.yaml", &format!("{PROJECT}\n# The end.\n"))],
    );
    site.run();
    for change in [&plain, &configures] {
        site.forge.approve(change);
        site.take_in();
        site.run();
    }
    assert_eq!(site.forge.merges().len(), 2);
    let effects = push_effects(&site);
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert!(
        effects.iter().any(|effect| effect.contains("as tenant demo merged it")),
        "{effects:?}"
    );
    assert!(
        effects.iter().any(|effect| effect.contains("reads its configuration again")),
        "{effects:?}"
    );
}

/// Z6.7: with more tenants than the layout cache holds each layout is still read only once.
#[test]
fn each_layout_is_read_once_with_more_tenants_than_the_cache_holds() {
    let world = World::new(1, 0, Timestamp(1_800_000_000_000));
    let ports = world.ports();
    let names: Vec<TenantName> =
        (0..20).map(|number| TenantName(format!("tenant-{number}"))).collect();
    for name in &names {
        let layout = Layout::empty(TenantConfig::new(name.as_str()));
        let object = format!("layouts/{}", layout.id());
        let put = ports.objects.put(
            &object,
            Bytes::from(layout.to_bytes()),
            PutMode::Always,
            "application/json",
        );
        poll_once(put).unwrap().unwrap();
        let mut head = Tenant { layout_object: Some(object), ..Tenant::new(name.clone()) };
        (head.layout.wanted, head.layout.live) = (1, 1);
        let record = encode_first(tenant::key(name), &head).unwrap();
        world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }
    let layouts = Layouts::default();
    world.take_calls();
    for _ in 0..3 {
        for name in &names {
            assert!(poll_once(layouts.load_live(&ports, name)).unwrap().unwrap().is_some());
        }
    }
    assert_eq!(world.take_calls().by_operation.get("objects.get"), Some(&20));
}
