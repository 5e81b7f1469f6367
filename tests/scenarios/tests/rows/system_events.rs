//! System events of a tenant, as the API shows them.

use super::{CONFIG, PROJECT, approve, gate_builds, merged, propose, site};
use bytes::Bytes;
use http::Request;
use serde_json::Value;
use sluice_api::{Api, LiveLogSource, LogPiece};
use sluice_memory::poll_once;
use sluice_model::git::BranchKey;
use sluice_model::wakeup::Wakeup;
use sluice_model::{BuildId, ProjectName};
use sluice_records::session::LiveLogServer;
use sluice_records::{connection, tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, cell};
use sluice_scenarios::Site;
use std::collections::BTreeSet;
use std::sync::Arc;

struct NoLogs;

#[async_trait::async_trait]
impl LiveLogSource for NoLogs {
    async fn read(
        &self,
        _: &LiveLogServer,
        _: &BuildId,
        _: u64,
    ) -> Result<Option<LogPiece>, PortError> {
        Ok(None)
    }
}

/// Asks the API for a tenant's events, and returns status and body.
fn ask(site: &Site, tenant: &str, query: &str) -> (u16, Value) {
    asked(site, &format!("tenant/{tenant}/system-events{query}"))
}

/// Asks the API for something, and returns status and body.
pub(super) fn asked(site: &Site, path: &str) -> (u16, Value) {
    let api = Api::new(site.ports(), Arc::new(NoLogs), "https://sluice.test/");
    let uri = format!("/api/{path}");
    let request = Request::builder().uri(uri).body(Bytes::new()).unwrap();
    let response = poll_once(api.answer(request)).unwrap();
    (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
}

/// Returns the descriptions of a tenant's events, the newest first.
fn descriptions(site: &Site, query: &str) -> Vec<String> {
    let (status, body) = ask(site, "demo", query);
    assert_eq!(status, 200, "{body}");
    body.as_array()
        .unwrap()
        .iter()
        .map(|event| event["description"].as_str().unwrap().to_owned())
        .collect()
}

fn push(site: &mut Site, project: &str, branch: &str, path: &str, text: &str) {
    let branch =
        BranchKey { project: ProjectName::new("forge.test", project), branch: branch.into() };
    site.forge.push(&branch, &[(path, text)]);
    site.run();
}

/// C01: a change that brings jobs and its project's stanza, by the short or by the canonical name,
/// is tested with them. Its merge causes one event, and the next change runs the new jobs.
#[test]
fn a_reconfiguration_causes_one_event_that_names_its_cause() {
    for name in ["org/one", "forge.test/org/one"] {
        let mut site = site();
        assert_eq!(descriptions(&site, ""), ["Tenant loaded"]);
        let text = format!(
            "- job: {{name: fresh, run: playbooks/fresh.yaml}}\n- job: {{name: more, run: playbooks/more.yaml}}\n\
             - project: {{name: {name}, queue: integrated, gate: {{jobs: [fresh, more]}}}}\n"
        );
        let a = propose(&site, 1, &[(".zuul.yaml", &text)]);
        site.twice = true;
        site.run();
        assert_eq!(descriptions(&site, "").len(), 1, "a proposed change reconfigures no tenant");
        approve(&mut site, &[&a]);
        assert_eq!(
            (merged(&site), gate_builds(&site, "fresh"), gate_builds(&site, "more").len()),
            (vec![1], vec!["1".to_owned()], 1)
        );
        assert_eq!(
            descriptions(&site, ""),
            ["Tenant reconfiguration due to org/one@main", "Tenant loaded"]
        );
        let b = propose(&site, 2, &[("b", "x")]);
        approve(&mut site, &[&b]);
        assert_eq!(
            (merged(&site), gate_builds(&site, "fresh")),
            (vec![1, 2], vec!["1".to_owned(), "2".to_owned()])
        );
        site.sweep();
        assert_eq!(descriptions(&site, "").len(), 2, "no further reconfiguration");
    }
}

/// R01: a reconfiguration by an operator causes one event although nothing changed. Running builds
/// continue, and their change merges.
#[test]
fn an_operators_reconfiguration_causes_one_event() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    site.forge.approve(&a);
    site.run_until(|site| site.running() == ["unit"] && gate_builds(site, "lint").len() == 1);
    let builds = site.builds();
    for project in ["org/config", "org/one", "org/two", "org/bare", "org/noop", "org/gone"] {
        let name = ProjectName::new("forge.test", project);
        site.world
            .write_unchecked(tenant::put_operator_reread(&"demo".into(), &name, "reload").unwrap());
    }
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: "demo".into() }]))
        .unwrap()
        .unwrap();
    site.run_until(|site| descriptions(site, "").len() > 1);
    site.held.clear();
    site.run();
    assert_eq!(
        descriptions(&site, ""),
        ["Tenant reconfiguration due to an operator's command", "Tenant loaded"]
    );
    assert_eq!((merged(&site), site.builds()), (vec![1], builds));
}

/// C01, Z9.1: events name a push, a new branch or the main configuration as their cause; the list
/// can be filtered and paged.
#[test]
fn events_follow_the_api_and_can_be_filtered_by_type_and_number() {
    let mut site = site();
    push(
        &mut site,
        "org/config",
        "main",
        "zuul.yaml",
        &format!("{CONFIG}- job: {{name: later, run: r}}\n"),
    );
    push(
        &mut site,
        "org/two",
        "stable",
        ".zuul.yaml",
        &format!("{PROJECT}- job: {{name: old, run: r}}\n"),
    );
    push(&mut site, "org/two", "main", "README", "nothing of the configuration");
    let main = super::MAIN.replace(", org/gone", "");
    let text = Bytes::from(main.clone());
    poll_once(site.ports().objects.put(
        connection::MAIN,
        text,
        PutMode::Always,
        "application/yaml",
    ))
    .unwrap()
    .unwrap();
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: "demo".into() }]))
        .unwrap()
        .unwrap();
    site.run();
    let all = [
        "Tenant reconfiguration due to the main configuration",
        "Tenant reconfiguration due to org/two@stable",
        "Tenant reconfiguration due to org/config@main",
        "Tenant loaded",
    ];
    assert_eq!(descriptions(&site, ""), all);
    assert_eq!(descriptions(&site, "?limit=1&skip=1"), all[1..2]);
    assert_eq!(descriptions(&site, "?event_type=tenant-loaded"), all[3..]);
    assert_eq!(descriptions(&site, "?event_type=tenant-reconfiguration&limit=2"), all[..2]);
    assert_eq!(descriptions(&site, "?idx_min=2&idx_max=3"), all[1..3]);
    let (_, body) = ask(&site, "demo", "?limit=1");
    let event = body[0].as_object().unwrap();
    let keys: BTreeSet<&str> = event.keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["event_id", "event_time", "event_type", "description"]));
    assert_eq!(
        (event["event_id"].as_str().unwrap().len(), event["event_time"].as_str().unwrap().len()),
        (32, 19)
    );
    let (_, whole) = ask(&site, "demo", "");
    let ids: BTreeSet<&str> =
        whole.as_array().unwrap().iter().map(|event| event["event_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 4, "each event has its own id");
    assert_eq!(ask(&site, "unknown", "").0, 404);
    assert_eq!((ask(&site, "demo", "?idx_min=x").0, ask(&site, "demo", "?who=me").0), (400, 404));
    // Events expire.
    let is_event = |record: &&sluice_runtime::Record| record.key.partition == "system-events#demo";
    assert!(site.world.records().iter().filter(is_event).all(|record| record.expires_at.is_some()));
}
