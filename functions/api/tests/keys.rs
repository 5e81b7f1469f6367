//! Public keys of projects.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{get, story};
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

/// Z5.2, Z9.1: `zuul-client encrypt` is given the key that opens the secret, by the project's short
/// and its canonical name.
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

/// Z2.5, Z5.2: the files that a tenant includes are one project with a key pair of its own, whose
/// public half is served.
#[tokio::test]
async fn the_public_key_of_included_files_is_served() {
    let story = story().await;
    let ports = story.world.ports();
    let path = "/api/tenant/acme/key/system/included.pub";
    project_key::publish(&ports, &SYSTEM.into(), &included_project(), PEM).await.unwrap();
    let live = Layouts::default().live(&ports, &"acme".into()).await.unwrap().unwrap();
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

/// Z5.2, Z2.1: a key that is not there, or not of this tenant, is not served, and who asks is told
/// what to do.
#[tokio::test]
async fn a_key_that_is_not_there_is_told_with_what_to_do() {
    let story = story().await;
    publish(&story.world, "github.com/org/elsewhere").await;
    let cases = [
        ("acme/key/org/app.pub", "sluice secret key github.com/org/app"),
        ("acme/key/org/elsewhere.pub", "no project org/elsewhere"),
        ("acme/key/system/included.pub", "no project system/included"),
        ("acme/key/org/app.pem", "key/PROJECT.pub"),
        ("nobody/key/org/app.pub", "no tenant nobody"),
        ("acme/project-ssh-key/org/app.pub", "no SSH keys"),
        ("acme/tenant-ssh-key/ssh.pub", "no SSH keys"),
    ];
    for (path, told) in cases {
        let response = get(&story.api, &format!("/api/tenant/{path}")).await;
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert!(body["description"].as_str().unwrap().contains(told), "{path}: {body}");
    }
}
