//! Public keys of projects.

use crate::common::{ask, get, story};
use http::Method;
use serde_json::Value;
use sluice_config::Trust;
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::tenant::{SYSTEM, TenantConfig, TenantProject, included_project};
use sluice_keys::{Ciphertext, ProjectKey, Secret};
use sluice_memory::World;
use sluice_records::layout::Layouts;
use sluice_records::project_key::{self, KeyPairPem};
use sluice_records::ssh_key::{self, SshKeyOwner};
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;
use std::process::Command;

/// The private key is not read by the API.
const PEM: KeyPairPem<'_> = KeyPairPem {
    private: b"private",
    public: "-----BEGIN PUBLIC KEY-----\nMIIC\n-----END PUBLIC KEY-----\n",
};

async fn store(world: &World, project: &str) {
    project_key::store(&world.ports(), &"github".into(), &project.into(), PEM).await.unwrap();
}

/// Returns the keys of all objects with key pairs.
fn pairs(world: &World) -> Vec<String> {
    world.object_keys().into_iter().filter(|key| key.starts_with("keys/")).collect()
}

/// Z5.2, Z9.1: the public key matches the private key, and is found by short and canonical name.
#[tokio::test]
async fn the_public_key_of_a_project_is_served_as_text() {
    let story = story().await;
    store(&story.world, "github.com/org/app").await;
    for name in ["org/app", "github.com/org/app"] {
        let response = get(&story.api, &format!("/api/tenant/acme/key/{name}.pub")).await;
        assert_eq!(
            (response.status().as_u16(), &response.body()[..]),
            (200, PEM.public.as_bytes()),
            "{name}"
        );
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
}

/// Z5.2: the key pair is made when it is first needed, once, and the served key is that of the
/// stored private key. Concurrent requests get one key.
#[tokio::test]
async fn the_first_request_for_a_projects_key_makes_its_pair() {
    let story = story().await;
    assert_eq!(pairs(&story.world), Vec::<String>::new());
    let path = "/api/tenant/acme/key/org/app.pub";
    let (first, second) = futures::join!(get(&story.api, path), get(&story.api, path));
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert_eq!(first.body(), second.body());
    assert_eq!(pairs(&story.world), ["keys/github/org/app.pem"]);
    let (connection, project) = ("github".into(), "github.com/org/app".into());
    let opened = project_key::open(&story.world.ports(), &connection, &project).await.unwrap();
    let pair = ProjectKey::from_pem(&Secret::new(opened.unwrap())).unwrap();
    assert_eq!(first.body(), &pair.public().to_pem().unwrap());
    assert_eq!(get(&story.api, path).await.body(), first.body());
}

/// Z5.2, C2.2: a request for the headers alone makes no key pair.
#[tokio::test]
async fn a_head_request_for_a_projects_key_makes_no_pair() {
    let story = story().await;
    let path = "/api/tenant/acme/key/org/app.pub";
    let response = ask(&story.api, Method::HEAD, path).await;
    assert_eq!((response.status().as_u16(), response.body().len()), (200, 0));
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(pairs(&story.world), Vec::<String>::new());
    let unknown = ask(&story.api, Method::HEAD, "/api/tenant/acme/key/org/none.pub").await;
    assert_eq!(unknown.status(), 404);
}

/// Z2.5, Z5.2: a tenant's included files are a project with its own key pair, whose public key is
/// served.
#[tokio::test]
async fn the_public_key_of_included_files_is_served() {
    let story = story().await;
    let ports = story.world.ports();
    let path = "/api/tenant/acme/key/system/included.pub";
    project_key::store(&ports, &SYSTEM.into(), &included_project(), PEM).await.unwrap();
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
    assert_eq!((response.status().as_u16(), &response.body()[..]), (200, PEM.public.as_bytes()));
}

/// Z5.2, Z2.1: nothing is made for what is no project of the tenant, and the error says why.
#[tokio::test]
async fn a_key_of_no_project_of_the_tenant_is_not_found_and_not_made() {
    let story = story().await;
    store(&story.world, "github.com/org/elsewhere").await;
    let cases = [
        ("acme/key/org/elsewhere.pub", "no project org/elsewhere"),
        ("acme/key/system/included.pub", "no project system/included"),
        ("acme/key/org/app.pem", "key/PROJECT.pub"),
        ("unknown/key/org/app.pub", "no tenant unknown"),
        ("acme/project-ssh-key/org/elsewhere.pub", "no project org/elsewhere"),
        ("acme/project-ssh-key/org/app.pem", "project-ssh-key/PROJECT.pub"),
        ("unknown/project-ssh-key/org/app.pub", "no tenant unknown"),
        ("unknown/tenant-ssh-key/ssh.pub", "no tenant unknown"),
        ("acme/tenant-ssh-key/other.pub", "nothing at"),
    ];
    for (path, expected) in cases {
        let response = get(&story.api, &format!("/api/tenant/{path}")).await;
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert!(body["description"].as_str().unwrap().contains(expected), "{path}: {body}");
    }
    assert_eq!(pairs(&story.world), ["keys/github/org/elsewhere.pem"]);
}

/// Z8.2: a project and its tenant have one SSH key pair each, made at the first request for the
/// public key and kept: the served line is that of the stored private key.
#[tokio::test]
async fn the_first_request_for_an_ssh_key_makes_its_pair_once() {
    let story = story().await;
    let (connection, project) = ("github".into(), "github.com/org/app".into());
    let tenant = "acme".into();
    let mut lines = Vec::new();
    for (path, owner, object) in [
        (
            "/api/tenant/acme/project-ssh-key/org/app.pub",
            SshKeyOwner::Project(&connection, &project),
            "keys/github/org/app.ssh",
        ),
        ("/api/tenant/acme/tenant-ssh-key/ssh.pub", SshKeyOwner::Tenant(&tenant), "keys/acme.ssh"),
    ] {
        let head = ask(&story.api, Method::HEAD, path).await;
        assert_eq!((head.status().as_u16(), head.body().len()), (200, 0));
        assert!(!pairs(&story.world).contains(&object.to_owned()), "a HEAD request makes no pair");
        let (first, second) = futures::join!(get(&story.api, path), get(&story.api, path));
        assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
        assert_eq!(first.body(), second.body());
        assert!(first.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
        assert!(pairs(&story.world).contains(&object.to_owned()));
        let opened = ssh_key::open(&story.world.ports(), owner).await.unwrap().unwrap();
        let pair = ProjectKey::from_pem(&Secret::new(opened)).unwrap();
        let line = format!("{}\n", pair.public().to_openssh().unwrap());
        assert_eq!(first.body(), &line);
        assert!(line.starts_with("ssh-rsa AAAA"), "{line}");
        lines.push(line);
    }
    assert_ne!(lines[0], lines[1]);
    assert_eq!(pairs(&story.world).len(), 2, "and no pair for secrets");
    let canonical =
        get(&story.api, "/api/tenant/acme/project-ssh-key/github.com/org/app.pub").await;
    assert_eq!(canonical.body(), &lines[0]);
}

/// Z5.2: the line of `openssl` in the documents, run as it is printed with the served public key,
/// encrypts what the project's private key decrypts.
#[tokio::test]
async fn the_documented_openssl_line_encrypts_for_the_served_key() {
    let page = include_str!("../../../../docs/secrets-and-keys.md");
    let line = page.lines().find(|line| line.starts_with("openssl pkeyutl -encrypt")).unwrap();
    let story = story().await;
    let served = get(&story.api, "/api/tenant/acme/key/org/app.pub").await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("project.pub"), served.body()).unwrap();
    let plain = "correct horse battery, of up to 470 bytes";
    std::fs::write(directory.path().join("value"), plain).unwrap();
    let output =
        Command::new("sh").args(["-c", line]).current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let (connection, project) = ("github".into(), "github.com/org/app".into());
    let opened = project_key::open(&story.world.ports(), &connection, &project).await.unwrap();
    let pair = ProjectKey::from_pem(&Secret::new(opened.unwrap())).unwrap();
    let ciphertext = Ciphertext::from_value(&Value::String(printed)).unwrap();
    assert_eq!(pair.decrypt(&ciphertext).unwrap().expose_text(), Some(plain));
}
