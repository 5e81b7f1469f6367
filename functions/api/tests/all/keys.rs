//! Public keys of projects.

use crate::common::{get, story};
use serde_json::Value;
use sluice_config::Trust;
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::tenant::{SYSTEM, TenantConfig, TenantProject, included_project};
use sluice_memory::World;
use sluice_records::layout::Layouts;
use sluice_records::project_key;
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;

const PEM: &str = "-----BEGIN PUBLIC KEY-----\nMIIC\n-----END PUBLIC KEY-----\n";

async fn publish(world: &World, project: &str) {
    project_key::publish(&world.ports(), &"github".into(), &project.into(), PEM).await.unwrap();
}

/// Z5.2, Z9.1: the public key matches the private key, and is found by short and canonical name.
#[tokio::test]
async fn the_public_key_of_a_project_is_served_as_text() {
    let story = story().await;
    publish(&story.world, "github.com/org/app").await;
    for name in ["org/app", "github.com/org/app"] {
        let response = get(&story.api, &format!("/api/tenant/acme/key/{name}.pub")).await;
        assert_eq!(
            (response.status().as_u16(), &response.body()[..]),
            (200, PEM.as_bytes()),
            "{name}"
        );
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
}

/// Z2.5, Z5.2: a tenant's included files are a project with its own key pair, whose public key is
/// served.
#[tokio::test]
async fn the_public_key_of_included_files_is_served() {
    let story = story().await;
    let ports = story.world.ports();
    let path = "/api/tenant/acme/key/system/included.pub";
    project_key::publish(&ports, &SYSTEM.into(), &included_project(), PEM).await.unwrap();
    let live = Layouts::default().load_live(&ports, &"acme".into()).await.unwrap().unwrap();
    let tenant = TenantConfig {
        include: vec!["global.yaml".to_owned()],
        included: Some(TenantProject::new(SYSTEM, included_project(), Trust::Config)),
        ..live.layout.tenant().clone()
    };
    let (connections, fragments) =
        (live.layout.connections().clone(), live.layout.fragments().to_vec());
    let layout =
        Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments });
    let object = live.tenant.layout_object.unwrap();
    ports
        .objects
        .put(&object, layout.to_bytes().into(), PutMode::Always, "application/json")
        .await
        .unwrap();
    let response = get(&story.api, path).await;
    assert_eq!((response.status().as_u16(), &response.body()[..]), (200, PEM.as_bytes()));
}

/// Z5.2, Z2.1: the error for a missing key, or a key of another tenant, says what to do.
#[tokio::test]
async fn the_error_for_a_missing_key_says_what_to_do() {
    let story = story().await;
    publish(&story.world, "github.com/org/elsewhere").await;
    let cases = [
        ("acme/key/org/app.pub", "sluice secret key github.com/org/app"),
        ("acme/key/org/elsewhere.pub", "no project org/elsewhere"),
        ("acme/key/system/included.pub", "no project system/included"),
        ("acme/key/org/app.pem", "key/PROJECT.pub"),
        ("unknown/key/org/app.pub", "no tenant unknown"),
        ("acme/project-ssh-key/org/app.pub", "no SSH keys"),
        ("acme/tenant-ssh-key/ssh.pub", "no SSH keys"),
    ];
    for (path, expected) in cases {
        let response = get(&story.api, &format!("/api/tenant/{path}")).await;
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert!(body["description"].as_str().unwrap().contains(expected), "{path}: {body}");
    }
}
