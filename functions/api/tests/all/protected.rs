//! Tenants that are not read by everyone.

use crate::common::tokens::{Guarded, RULES, bearer, body, guarded, member_of, read, send, shape};
use crate::common::{get, keys};
use http::Method;
use serde_json::{Value, json};
use sluice_browser_tests::story::{PAST, build_id};
use sluice_config::connection::Driver;
use sluice_model::git::LandingMethod;
use sluice_records::connection::{self, AwsAccess, ConnectionsFile, MAIN, StoredConnection};
use sluice_runtime::object::PutMode;

/// C2.2: those who may read a tenant read all of it, and its answers are kept by no shared cache.
#[tokio::test]
async fn a_reader_reads_the_tenant_and_no_other() {
    let system = guarded(RULES).await;
    let reader = member_of("acme");
    for path in ["status", "builds", "projects", "board", "nodes"] {
        let response = read(&system.api, &format!("/api/tenant/acme/{path}"), &reader).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["cache-control"], "private, no-store", "{path}");
        assert_eq!(response.headers()["vary"], "Authorization", "{path}");
        let other = read(&system.api, &format!("/api/tenant/other/{path}"), &reader).await;
        assert_eq!(other.status(), 404, "{path}");
    }
    let other = read(&system.api, "/api/tenant/other/status", &member_of("other")).await;
    assert_eq!(other.status(), 200, "a rule with the tenant's name");
}

/// C2.2, Z2.3: lists name only what the caller may read.
#[tokio::test]
async fn lists_hide_what_the_caller_may_not_read() {
    let rules = format!(
        "{RULES}- tenant: {{name: third, access-rules: [admins], source: {{hidden: {{config-projects: [a/b]}}, open: {{config-projects: [c/d]}}}}}}\n- tenant: {{name: public, source: {{open: {{config-projects: [e/f]}}}}}}\n"
    );
    let system = guarded("[]").await;
    let ports = system.story.world.ports();
    let connection = |host: &str| StoredConnection {
        driver: Driver::Git,
        canonical_hostname: host.to_owned(),
        api_url: None,
        git_url: format!("https://{host}"),
        login: None,
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingMethod::default(),
        poll_minutes: None,
        aws: AwsAccess::default(),
    };
    let file = ConnectionsFile(
        [("hidden", "hidden.test"), ("open", "open.test"), ("unused", "unused.test")]
            .map(|(name, host)| (name.into(), connection(host)))
            .into(),
    );
    let json = serde_json::to_vec(&file).unwrap().into();
    ports.objects.put(connection::OBJECT, json, PutMode::Always, "application/json").await.unwrap();
    ports.objects.put(MAIN, rules.into(), PutMode::Always, "application/yaml").await.unwrap();
    let names = async |path: &str, token: &str| {
        let response = read(&system.api, path, token).await;
        assert_eq!(response.status(), 200, "{path}");
        let list = body(&response);
        let list = list.as_array().unwrap().iter();
        list.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("/api/tenants", "").await, [""; 0]);
    assert_eq!(names("/api/tenants", &member_of("acme")).await, ["acme"]);
    let both = bearer("alice", json!({"groups": ["acme", "other"]}));
    assert_eq!(names("/api/tenants", &both).await, ["acme", "other"]);
    assert_eq!(names("/api/connections", "").await, ["open", "unused"]);
    let root = bearer("root", json!({}));
    assert_eq!(names("/api/connections", &root).await, ["hidden", "open", "unused"]);
    let listed = read(&system.api, "/api/tenants", &both).await;
    assert_eq!(listed.headers()["cache-control"], "private, no-store");
}

/// C2.2: what belongs to no tenant has rules of its own.
#[tokio::test]
async fn the_root_of_the_api_can_be_closed() {
    let rules = format!("{RULES}- api-root: {{access-rules: [admins]}}\n");
    let system = guarded(&rules).await;
    for path in ["/api", "/api/tenants", "/api/components", "/api/connections"] {
        assert_eq!(read(&system.api, path, "").await.status(), 401, "{path}");
        assert_eq!(read(&system.api, path, &member_of("acme")).await.status(), 403, "{path}");
        let root = bearer("root", json!({}));
        assert_eq!(read(&system.api, path, &root).await.status(), 200, "{path}");
    }
    assert_eq!(read(&system.api, "/api/info", "").await.status(), 200);
    let acme = read(&system.api, "/api/tenant/acme/status", &member_of("acme")).await;
    assert_eq!(acme.status(), 200, "the root's rules are no condition for tenants");
}

/// C2.2: a hidden tenant's information is that of one that does not exist.
#[tokio::test]
async fn information_does_not_show_that_a_hidden_tenant_exists() {
    let rules = RULES.replace(
        "admin-rules: [admins]}",
        "admin-rules: [admins], authentication-realm: fixed.example.org}",
    );
    let system = guarded(&rules).await;
    for token in [String::new(), member_of("other")] {
        let one = read(&system.api, "/api/tenant/acme/info", &token).await;
        let two = read(&system.api, "/api/tenant/none/info", &token).await;
        assert_eq!(shape(&one, "acme"), shape(&two, "none"));
        let auth = &body(&one)["info"]["capabilities"]["auth"];
        assert_eq!(auth["read_protected"], true);
        assert_eq!(auth["default_realm"], "company.example.org");
    }
    let own = read(&system.api, "/api/tenant/acme/info", &member_of("acme")).await;
    assert_eq!(body(&own)["info"]["capabilities"]["auth"]["default_realm"], "fixed.example.org");
    assert_eq!(own.headers()["cache-control"], "private, no-store");
}

/// Z9.1: without access rules everything is read without a token, and an unknown tenant is 404.
#[tokio::test]
async fn an_open_system_needs_no_token_to_be_read() {
    let open = "- tenant: {name: acme}\n- tenant: {name: other}\n";
    let system = guarded(open).await;
    let status = read(&system.api, "/api/tenant/acme/status", "").await;
    assert_eq!(status.status(), 200);
    assert_eq!(status.headers()["cache-control"], "public, max-age=1");
    assert_eq!(read(&system.api, "/api/tenant/none/status", "").await.status(), 404);
    let log = format!("/logs/acme/{}/job-output.txt", build_id(&PAST[0], "unit", 1));
    assert_eq!(read(&system.api, &log, "").await.status(), 200);
    let expired = bearer("alice", json!({"exp": 1}));
    let refused = read(&system.api, "/api/tenant/acme/status", &expired).await;
    assert_eq!(refused.status(), 401, "a token that is sent must be valid");
}

/// C2.2: a main configuration that cannot be read opens nothing.
#[tokio::test]
async fn unreadable_rules_open_nothing() {
    for rules in ["- tenant: {name: acme, access-rules: {a: b}}\n", "- tenant: [\n", "\u{0}"] {
        let system = guarded(rules).await;
        for path in ["/api/tenant/acme/status", "/api/tenants", "/api/tenant/acme/builds"] {
            assert_eq!(read(&system.api, path, "").await.status(), 503, "{path}");
        }
    }
}

/// Z9.1: what a bearer may do, in the form that the dashboard reads.
#[tokio::test]
async fn authorizations_list_what_the_bearer_may_do() {
    let system = guarded(RULES).await;
    let of = async |path: &str, token: &str| body(&read(&system.api, path, token).await);
    let acme = "/api/tenant/acme/authorizations";
    assert_eq!(
        of(acme, &member_of("acme")).await,
        json!({"zuul": {"admin": false, "permissions": {"read": true}, "scope": ["acme"]}})
    );
    let root = of(acme, &bearer("root", json!({}))).await;
    assert_eq!(
        (&root["zuul"]["admin"], &root["zuul"]["permissions"]["admin"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(root["zuul"]["permissions"]["dequeue"], true);
    let role = of("/api/tenant/other/authorizations", &member_of("holders")).await;
    assert_eq!(
        role["zuul"]["permissions"],
        json!({"read": true, "autohold": true, "enqueue": true})
    );
    assert_eq!(keys(&role["zuul"]), ["permissions", "scope"]);
    let trusted = bearer("eve", json!({"zuul": {"admin": ["acme"]}}));
    assert_eq!(of(acme, &trusted).await["zuul"]["admin"], true);
    assert_eq!(read(&system.api, "/api/tenant/other/authorizations", &trusted).await.status(), 404);
    assert_eq!(read(&system.api, "/api/authorizations", "").await.status(), 401);
    let everywhere = of("/api/authorizations", &root_token()).await;
    assert_eq!(everywhere["zuul"]["scope"], json!(["*"]));
}

fn root_token() -> String {
    bearer("root", json!({}))
}

/// Z9.1: without an authenticator there are no authorizations and nothing to change.
#[tokio::test]
async fn without_an_authenticator_there_is_nothing_to_change() {
    let story = crate::common::story().await;
    for path in ["/api/authorizations", "/api/tenant/acme/authorizations"] {
        assert_eq!(get(&story.api, path).await.status(), 404, "{path}");
    }
    for (method, path) in [
        (Method::POST, "project/org/app/enqueue"),
        (Method::POST, "project/org/app/dequeue"),
        (Method::POST, "project/org/app/autohold"),
        (Method::POST, "promote"),
        (Method::POST, "state"),
        (Method::DELETE, "autohold/0000000001"),
        (Method::PUT, "nodes/1"),
        (Method::DELETE, "nodeset-requests/1"),
    ] {
        let path = format!("/api/tenant/acme/{path}");
        let response = send(&story.api, method, &path, "", &Value::Null).await;
        assert_eq!(response.status(), 404, "{path}");
        let text = body(&response)["description"].as_str().unwrap().to_owned();
        assert!(text.contains("no authenticator is configured"), "{text}");
    }
    let system: Guarded = guarded("[]").await;
    let refused = send(&system.api, Method::POST, "/api/tenant/acme/state", "", &json!({})).await;
    assert_eq!(refused.status(), 401);
}
