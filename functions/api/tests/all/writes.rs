//! Requests that change something: who may send them, and what they store.

use crate::common::tokens::{
    Guarded, RULES, audited, bearer, body, guarded, member_of, read, root, send,
};
use http::Method;
use serde_json::{Value, json};
use sluice_browser_tests::story::{D, NOW, queue_key};
use sluice_gate::autohold::Autohold;
use sluice_gate::{InboxMessage, InboxMessageKind};
use sluice_model::TenantName;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_records::autohold;
use sluice_records::codec::{decode, get};
use sluice_records::delivery::DeliveryRecord;
use sluice_records::tenant::{self, Tenant};

const ENQUEUE: &str = "/api/tenant/acme/project/org/app/enqueue";
const DEQUEUE: &str = "/api/tenant/acme/project/org/app/dequeue";
const AUTOHOLD: &str = "/api/tenant/acme/project/org/app/autohold";

fn reader() -> String {
    member_of("acme")
}

async fn post(system: &Guarded, path: &str, token: &str, body: Value) -> (u16, Value) {
    let response = send(&system.api, Method::POST, path, token, &body).await;
    (response.status().as_u16(), crate::common::tokens::body(&response))
}

/// Returns the events that operators' deliveries hold.
fn events(system: &Guarded) -> Vec<ForgeEvent> {
    let records = system.story.world.records().into_iter();
    let deliveries = records.filter(|record| record.key.partition.starts_with("delivery#"));
    let deliveries = deliveries.filter_map(|record| decode::<DeliveryRecord>(&record).ok());
    deliveries
        .filter(|delivery| delivery.forge_id.starts_with("operator:"))
        .filter_map(|delivery| delivery.event)
        .collect()
}

/// Returns operators' messages to queues.
fn messages(system: &Guarded) -> Vec<InboxMessageKind> {
    let records = system.story.world.records().into_iter();
    let inbox = records.filter(|record| record.key.sort.starts_with("inbox#"));
    let inbox = inbox.filter_map(|record| decode::<InboxMessage>(&record).ok());
    inbox.filter(|message| message.by_operator).map(|message| message.kind).collect()
}

/// Z9.1, R06: a change and a ref are enqueued as by an event, with the user as sender.
#[tokio::test]
async fn changes_and_refs_are_enqueued() {
    let system = guarded(RULES).await;
    let change = json!({"pipeline": "check", "change": "12,abc"});
    assert_eq!(post(&system, ENQUEUE, &root(), change).await, (200, json!(true)));
    let newrev = "a".repeat(40);
    let moved =
        json!({"pipeline": "check", "ref": "refs/heads/main", "oldrev": null, "newrev": newrev});
    let by_canonical = ENQUEUE.replace("org/app", "github.com/org/app");
    assert_eq!(post(&system, &by_canonical, &root(), moved).await, (200, json!(true)));
    let found = events(&system);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|event| event.sender == "root"));
    assert!(found.iter().all(|event| event.project.as_str() == "github.com/org/app"));
    let kinds: Vec<&EventKind> = found.iter().map(|event| &event.kind).collect();
    assert!(kinds.iter().any(|kind| matches!(
        kind,
        EventKind::Enqueue { number: 12, head: Some(head), .. } if head.as_str() == "abc"
    )));
    assert!(kinds.iter().any(|kind| matches!(
        kind,
        EventKind::EnqueueRef { git_ref, newrev: new, .. }
            if git_ref == "refs/heads/main" && new.as_str() == newrev
    )));
    let entries = audited(&system, "acme").await;
    assert_eq!(entries.len(), 2);
    let entry = entries.iter().find(|entry| entry.description.contains("#12")).unwrap();
    assert_eq!((entry.by.as_str(), entry.via.as_str()), ("root", "api shared"));
    assert_eq!((entry.action.as_str(), entry.at), ("enqueue", NOW));
    assert_eq!(entry.description, "enqueue github.com/org/app#12 at abc in check");
}

/// Z9.1, C2.2: a token that may read and not write gets 403, whatever the body is.
#[tokio::test]
async fn a_reader_gets_403_for_bodies_that_cannot_be_used_too() {
    let system = guarded(RULES).await;
    let paths = ["promote", "state", "project/org/app/enqueue", "project/org/none/dequeue"];
    for path in paths.map(|path| format!("/api/tenant/acme/{path}")) {
        for body in [json!({}), json!([]), json!({"change": "twelve"}), json!({"parameters": {}})] {
            let (status, error) = post(&system, &path, &reader(), body.clone()).await;
            assert_eq!(status, 403, "{path} {body}: {error}");
        }
    }
}

/// Z9.1, C2.2: text of users in the audit is one line without invisible characters.
#[tokio::test]
async fn the_audit_has_no_lines_of_users() {
    let system = guarded(RULES).await;
    let body = json!({"job": "unit", "count": 1, "reason": "x\n2026 root \u{1b}[2J\u{202e}"});
    assert_eq!(post(&system, AUTOHOLD, &root(), body).await, (200, json!(true)));
    let entries = audited(&system, "acme").await;
    assert_eq!(entries.len(), 1);
    let description = &entries[0].description;
    assert!(description.ends_with(": x 2026 root  [2J\\u{202e}"), "{description:?}");
}

/// Z9.1: what cannot be used is refused with its reason.
#[tokio::test]
async fn unusable_requests_are_refused_with_a_reason() {
    let system = guarded(RULES).await;
    let change = json!({"pipeline": "check", "change": "12"});
    for (path, body, status, text) in [
        (ENQUEUE, json!({"change": "12"}), 400, "pipeline"),
        (ENQUEUE, json!({"pipeline": "none", "change": "12"}), 400, "no pipeline none"),
        (ENQUEUE, json!({"pipeline": "check"}), 400, "either"),
        (ENQUEUE, json!({"pipeline": "check", "change": "12", "ref": "main"}), 400, "either"),
        (ENQUEUE, json!({"pipeline": "check", "change": "twelve"}), 400, "number"),
        (ENQUEUE, json!({"pipeline": "check", "ref": "main", "newrev": "abc"}), 400, "full id"),
        (ENQUEUE, json!({"pipeline": 7, "change": {}}), 400, "change"),
        (ENQUEUE, json!([]), 400, "object"),
        (
            ENQUEUE,
            json!({"pipeline": "manual", "ref": "main", "parameters": {"a": 1}}),
            501,
            "parameters",
        ),
        ("/api/tenant/acme/project/org/none/enqueue", change.clone(), 404, "no project org/none"),
        (DEQUEUE, json!({"pipeline": "none", "change": "12"}), 400, "no pipeline none"),
        ("/api/tenant/acme/promote", json!({"pipeline": "gate"}), 400, "changes"),
        (
            "/api/tenant/acme/promote",
            json!({"pipeline": "gate", "changes": ["99"]}),
            404,
            "no queue",
        ),
        (AUTOHOLD, json!({"job": "unit", "count": 1}), 400, "reason"),
        (AUTOHOLD, json!({"job": "unit", "reason": "x", "count": 0}), 400, "count"),
        (AUTOHOLD, json!({"job": "unit", "reason": "x", "count": -1}), 400, "count"),
        (AUTOHOLD, json!({"job": "unit", "reason": "x", "ref": "("}), 400, "regular expression"),
        (AUTOHOLD, json!({"job": "unit", "reason": "x", "ref": "a", "change": "1"}), 400, "both"),
        ("/api/tenant/acme/state", json!({"trigger_queue_paused": "yes"}), 400, "true or false"),
        ("/api/tenant/acme/image/debian/build", json!(null), 404, "debian"),
        ("/api/tenant/acme/image-upload/1/validate", json!(null), 501, "images"),
        ("/api/tenant/acme/status", json!(null), 405, "method"),
        ("/api/tenants", json!(null), 405, "method"),
        ("/api/tenant/acme/state?now=1", json!({}), 404, "parameter"),
    ] {
        let (answered, error) = post(&system, path, &root(), body.clone()).await;
        let description = error["description"].as_str().unwrap_or_default();
        assert!(
            answered == status && description.contains(text),
            "{path} {body}: {answered} {error}"
        );
    }
    assert!(events(&system).is_empty() && messages(&system).is_empty());
    for path in [ENQUEUE, DEQUEUE, "/api/tenant/acme/promote"] {
        assert_eq!(read(&system.api, path, &root()).await.status(), 405, "{path}");
    }
}

/// Z6.4, Z9.1: a queued change is dequeued and promoted by messages to its queue.
#[tokio::test]
async fn queued_changes_are_dequeued_and_promoted() {
    let system = guarded(RULES).await;
    let number = D.number.to_string();
    let body = json!({"pipeline": "gate", "change": number});
    assert_eq!(post(&system, DEQUEUE, &root(), body).await, (200, json!(true)));
    let body = json!({"pipeline": "gate", "changes": [number]});
    let promote = post(&system, "/api/tenant/acme/promote", &root(), body).await;
    assert_eq!(promote, (200, json!(true)));
    let found = messages(&system);
    assert!(found.iter().any(|kind| matches!(
        kind,
        InboxMessageKind::Dequeue { key, by, .. } if key.number() == Some(D.number) && by == "root"
    )));
    assert!(found.iter().any(|kind| matches!(
        kind,
        InboxMessageKind::Promote { keys, by } if keys.len() == 1 && by == "root"
    )));
    let inbox = sluice_records::queue::partition(&queue_key("acme", "gate", "integrated"));
    let records = system.story.world.records();
    let own = records.iter().filter(|record| record.key.sort.starts_with("inbox#"));
    assert!(own.filter(|record| record.key.partition == inbox).count() >= 2);
    // A change that is not queued is no error: it may have just left.
    let gone = json!({"pipeline": "gate", "change": "999"});
    assert_eq!(post(&system, DEQUEUE, &root(), gone).await, (200, json!(true)));
    assert_eq!(audited(&system, "acme").await.len(), 2);
}

/// Z9.1: autohold requests are created and deleted.
#[tokio::test]
async fn autohold_requests_are_created_and_deleted() {
    let system = guarded(RULES).await;
    // As zuul-client sends it: what is not set is an empty text.
    let body = json!({"reason": "look", "count": 2, "job": "unit", "change": "", "ref": "", "node_hold_expiration": 3600});
    assert_eq!(post(&system, AUTOHOLD, &root(), body).await, (200, json!(true)));
    let ports = system.story.world.ports();
    let tenant = TenantName::from("acme");
    let requests = autohold::load_tenant(&ports, &tenant).await.unwrap();
    let request: &Autohold = &requests[0].1;
    assert_eq!((request.max_count, request.by.as_str()), (2, "root"));
    assert_eq!((request.ref_filter.as_str(), request.node_expiration_seconds), (".*", Some(3_600)));
    let path = format!("/api/tenant/acme/autohold/{}", request.id);
    let denied = send(&system.api, Method::DELETE, &path, &reader(), &Value::Null).await;
    assert_eq!(denied.status(), 403);
    let deleted = send(&system.api, Method::DELETE, &path, &root(), &Value::Null).await;
    assert_eq!((deleted.status().as_u16(), deleted.body().len()), (204, 0));
    assert!(autohold::load_tenant(&ports, &tenant).await.unwrap().is_empty());
    let again = send(&system.api, Method::DELETE, &path, &root(), &Value::Null).await;
    assert_eq!(again.status(), 404);
    let entries = audited(&system, "acme").await;
    assert!(entries.iter().all(|entry| entry.action == "autohold") && entries.len() == 2);
}

/// Z9.1: a tenant's events are paused and resumed; what is not set stays.
#[tokio::test]
async fn the_state_of_a_tenant_is_changed() {
    let system = guarded(RULES).await;
    let state = "/api/tenant/acme/state";
    let body = json!({"trigger_queue_paused": true, "reason": "an upgrade", "info": "back at ten"});
    assert_eq!(post(&system, state, &root(), body).await, (200, Value::Null));
    let status = body_of(&system, "/api/tenant/acme/status").await;
    assert_eq!(status["state"]["trigger_queue_paused"], true);
    assert_eq!(status["state"]["reason"], "an upgrade");
    assert!(status["state"]["info"].as_str().unwrap().starts_with("back at ten"));
    let body = json!({"result_queue_paused": true});
    assert_eq!(post(&system, state, &root(), body).await.0, 200);
    let ports = system.story.world.ports();
    let record = get(&ports, &tenant::key(&"acme".into())).await.unwrap().unwrap();
    let events = decode::<Tenant>(&record).unwrap().events;
    assert!(events.trigger_queue_paused && events.result_queue_paused);
    assert_eq!((events.info.as_str(), events.commands.len()), ("", 2));
    assert_eq!(events.commands[0].by, "root");
}

async fn body_of(system: &Guarded, path: &str) -> Value {
    body(&read(&system.api, path, &root()).await)
}

/// C2.2: a role may do what it says, for the project and ref that it says.
#[tokio::test]
async fn a_role_is_limited_to_its_project_and_ref() {
    let system = guarded(RULES).await;
    let holder = bearer("hugo", json!({"groups": ["holders"]}));
    let of = |project: &str, route: &str| format!("/api/tenant/other/project/{project}/{route}");
    let main = json!({"pipeline": "check", "ref": "refs/heads/main"});
    let stable = json!({"pipeline": "check", "ref": "refs/heads/stable/1.0"});
    let change = json!({"pipeline": "check", "change": "12"});
    let hold = json!({"job": "unit", "reason": "look", "count": 1});
    for (path, body, status) in [
        (of("org/app", "enqueue"), &main, 200),
        (of("github.com/org/app", "enqueue"), &main, 200),
        (of("org/app", "enqueue"), &stable, 403),
        (of("org/app", "enqueue"), &change, 403),
        (of("org/lib", "enqueue"), &main, 403),
        (of("org/none", "enqueue"), &main, 403),
        (of("org/app", "dequeue"), &main, 403),
        (of("org/lib", "autohold"), &hold, 200),
        ("/api/tenant/other/promote".to_owned(), &change, 403),
        ("/api/tenant/other/state".to_owned(), &json!({}), 403),
    ] {
        let (answered, error) = post(&system, &path, &holder, body.clone()).await;
        assert_eq!(answered, status, "{path} {body}: {error}");
    }
    assert_eq!(audited(&system, "other").await.len(), 3);
    assert!(audited(&system, "acme").await.is_empty());
}

/// Z9.1: CORS names the route's methods, and needs no token.
#[tokio::test]
async fn preflight_requests_need_no_token() {
    let system = guarded(RULES).await;
    for (path, methods) in [
        (ENQUEUE, "POST, OPTIONS"),
        ("/api/tenant/acme/nodes/1", "PUT, OPTIONS"),
        ("/api/tenant/acme/autohold/1", "GET, HEAD, DELETE, OPTIONS"),
        ("/api/tenant/none/status", "GET, HEAD, OPTIONS"),
    ] {
        let response = send(&system.api, Method::OPTIONS, path, "", &Value::Null).await;
        assert_eq!(response.status(), 204, "{path}");
        assert_eq!(response.headers()["access-control-allow-methods"], methods, "{path}");
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
    }
    let refused = send(&system.api, Method::POST, ENQUEUE, "", &json!({})).await;
    assert_eq!(refused.headers()["access-control-allow-origin"], "*", "so that pages can show it");
}

/// Z9.1: an unknown node or node request is 404, and a state must be known.
#[tokio::test]
async fn nodes_and_requests_that_do_not_exist_are_not_changed() {
    let system = guarded(RULES).await;
    let path = "/api/tenant/acme/nodes/none";
    for (body, status) in
        [(json!({"state": "used"}), 404), (json!({"state": "ready"}), 400), (json!({}), 400)]
    {
        let response = send(&system.api, Method::PUT, path, &root(), &body).await;
        assert_eq!(response.status(), status, "{body}");
    }
    let request = "/api/tenant/acme/nodeset-requests/200-0000-none";
    let response = send(&system.api, Method::DELETE, request, &root(), &Value::Null).await;
    assert_eq!(response.status(), 404);
}
