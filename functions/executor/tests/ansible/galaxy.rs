//! Roles that `ansible-galaxy` installs: from a server that speaks Galaxy's API, from git, from
//! archives (Z4.6).

use crate::support::*;
use sluice_executor::broker::Broker;
use sluice_executor::jobdir::{Jobdir, write_private};
use sluice_executor::sandbox::{FETCH_BROKER, FetchSandbox, write_accounts};
use sluice_executor::{AnsibleSettings, GalaxyToken, Lease, NetworkSettings};
use sluice_model::BuildId;
use sluice_model::build::BuildResult::*;
use sluice_model::job::{GalaxyRole, Playbook, RoleUse};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// A Galaxy server on an address of its own, with the roles of the owner `org`. It also serves
/// repositories as files, as any web server can, and does not answer below `/hanging`.
struct Galaxy {
    place: String,
    /// What it serves below `/files`.
    files: Arc<TempDir>,
    /// The requests that it got: the path, and the `Authorization` header if there was one.
    seen: Arc<Mutex<Vec<String>>>,
}

/// The versions of each role, oldest first.
type Roles = BTreeMap<&'static str, Vec<&'static str>>;

impl Galaxy {
    fn start(last: u8, roles: &[(&'static str, &[&'static str])]) -> Self {
        let roles: Roles =
            roles.iter().map(|(name, versions)| (*name, versions.to_vec())).collect();
        let address = Ipv4Addr::new(127, 78, std::process::id() as u8, last);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let (files, seen) = (Arc::new(tempfile::tempdir().unwrap()), Arc::default());
        let server = Self { place, files, seen };
        let (place, files, seen) =
            (server.place.clone(), Arc::clone(&server.files), Arc::clone(&server.seen));
        std::thread::spawn(move || {
            let mut hanging = Vec::new();
            while let Ok((mut client, _)) = listener.accept() {
                let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                let mut next = || lines.next().and_then(Result::ok).unwrap_or_default();
                let path = next().split(' ').nth(1).unwrap_or_default().to_owned();
                let headers: Vec<String> =
                    std::iter::from_fn(|| Some(next()).filter(|line| !line.is_empty())).collect();
                let token = headers.iter().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("authorization").then_some(value)
                });
                let line = token.map_or(path.clone(), |token| format!("{path} {token}"));
                seen.lock().unwrap().push(line);
                if path.starts_with("/hanging") {
                    hanging.push(client);
                    continue;
                }
                let (status, body) = match answer(&path, &place, &roles, files.path()) {
                    Some(body) => ("200 OK", body),
                    None => ("404 Not Found", b"nothing".to_vec()),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body));
            }
        });
        server
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Puts an archive of a role below `/files`, made of `(path, text)`; `-> target` as text makes
    /// a link.
    fn archive(&self, name: &str, files: &[(&str, &str)]) {
        let tree = tempfile::tempdir().unwrap();
        let role = tree.path().join("role");
        for (path, text) in files {
            let path = role.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => std::fs::write(path, text).unwrap(),
            }
        }
        let done = Command::new("tar")
            .arg("-czf")
            .arg(self.files.path().join(name))
            .args(["-C", &tree.path().display().to_string(), "role"])
            .status();
        assert!(done.unwrap().success());
    }

    /// Puts the archive of version `version` of a role below `/files`; the role says both.
    fn role(&self, name: &str, version: &str, meta: &str) {
        let tasks = format!("- debug: msg=\"{name} {version}\"\n");
        let files = [("meta/main.yml", meta), ("tasks/main.yml", tasks.as_str())];
        self.archive(&format!("{name}-{version}.tar.gz"), &files);
    }
}

/// The metadata of a role without dependencies.
const META: &str = "galaxy_info: {author: org}\n";

/// Answers a request as a Galaxy server does, with version 1 of its API, or with a file.
fn answer(path: &str, place: &str, roles: &Roles, files: &Path) -> Option<Vec<u8>> {
    // From 1: `ansible-galaxy` takes the id 0 for none.
    let number = |name: &str| Some(roles.keys().position(|role| *role == name)? + 1);
    if let Some(file) = path.strip_prefix("/files/") {
        let file = file.split('?').next().unwrap_or_default();
        return std::fs::read(files.join(file)).ok();
    }
    let path = path.strip_prefix("/api")?;
    if path.trim_matches('/').is_empty() {
        return Some(br#"{"available_versions": {"v1": "v1/"}}"#.to_vec());
    }
    let path = path.strip_prefix("/v1/roles/")?;
    if let Some(name) = path.strip_prefix("?owner__username=org&name=") {
        let found = number(name).map(|id| {
            serde_json::json!({"id": id, "name": name, "github_user": "org", "github_repo": name})
        });
        let results: Vec<_> = found.into_iter().collect();
        return Some(serde_json::json!({ "results": results }).to_string().into_bytes());
    }
    let id = path.strip_suffix("/versions/?page_size=50")?.parse::<usize>().ok()?;
    let (name, versions) = roles.iter().nth(id.checked_sub(1)?)?;
    let results = versions.iter().map(|version| {
        let url = format!("http://{place}/files/{name}-{version}.tar.gz");
        serde_json::json!({"name": version, "download_url": url})
    });
    let results: Vec<_> = results.collect();
    Some(serde_json::json!({"results": results, "next_link": null}).to_string().into_bytes())
}

/// Returns a role that the job lists.
fn galaxy(role: &str, name: Option<&str>) -> RoleUse {
    RoleUse::Galaxy(GalaxyRole {
        galaxy: role.to_owned(),
        target_name: name.map(str::to_owned),
        project: PROJECT.into(),
        trusted: false,
    })
}

/// Returns a playbook of the project that uses roles.
fn using(roles: Vec<RoleUse>) -> Playbook {
    Playbook { roles, ..untrusted("use") }
}

/// Returns a play that includes roles by these names.
fn play(names: &str) -> String {
    format!("- hosts: localhost\n  gather_facts: false\n  roles: [{names}]\n")
}

/// Makes a server the executor's own.
fn ask(story: &mut Story, server: &str) {
    let server = server.parse().unwrap();
    story.setup.push(Box::new(move |settings| settings.galaxy.server = server));
}

/// Z4.6: a job's roles come from the configured server, with both versions of Ansible: the
/// newest version or the one that the job names, under the name that the job gives, with their
/// dependencies. The server is the operator's, also on loopback, and gets the operator's token.
#[tokio::test]
async fn playbooks_use_roles_that_a_galaxy_server_has() {
    for version in ["9", "11"] {
        let server = Galaxy::start(
            1,
            &[
                ("hello", &["1.0.0", "1.9.0", "1.10.0"]),
                ("helper", &["2.0.0"]),
                ("base", &["3.0.0"]),
            ],
        );
        server.role("hello", "1.10.0", "galaxy_info: {}\ndependencies: [org.helper]\n");
        server.role("hello", "1.0.0", META);
        server.role("helper", "2.0.0", META);
        server.role("base", "3.0.0", META);
        let mut story = Story::new(&[
            (PROJECT, "use.yaml", &play("org.hello, old")),
            (CONFIG, "pre.yaml", &play("base")),
        ]);
        ask(&mut story, &format!("http://{}", server.place));
        let token = story.directory.path().join("token");
        std::fs::write(&token, "a-token-of-the-operator\n").unwrap();
        let token = GalaxyToken::read(&token).unwrap();
        story.setup.push(Box::new(move |settings| settings.galaxy.token = Some(token)));
        story.job.ansible_version = Some(version.to_owned());
        story.job.run =
            vec![using(vec![galaxy("org.hello", None), galaxy("org.hello,1.0.0", Some("old"))])];
        let mut pre = story.trusted("pre");
        pre.roles = vec![galaxy("org.base", Some("base"))];
        story.job.pre_run = vec![pre];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
        for line in [
            "Installed role org.hello (1.10.0)",
            "Installed role org.helper (2.0.0)",
            "Installed role old (1.0.0)",
            "ok: base 3.0.0",
            "ok: helper 2.0.0",
            "ok: hello 1.10.0",
            "ok: hello 1.0.0",
        ] {
            assert!(outcome.log.contains(line), "{line}\n{}", outcome.log);
        }
        let seen = server.seen();
        assert!(
            seen.contains(
                &"/api/v1/roles/?owner__username=org&name=hello Token a-token-of-the-operator"
                    .to_owned()
            ),
            "{seen:#?}"
        );
        assert!(seen.contains(&"/files/hello-1.0.0.tar.gz".to_owned()), "no token: {seen:#?}");
        assert!(!outcome.log.contains("a-token"), "{}", outcome.log);
        let galaxy = outcome.jobdir.join("galaxy");
        let below = |path: &str| {
            let mut names: Vec<String> = std::fs::read_dir(galaxy.join(path))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        // Each trust has its own, and nothing of the installation stays.
        assert_eq!(below(""), ["trusted_0", "untrusted_1", "untrusted_2"]);
        assert_eq!(below("trusted_0"), ["roles"]);
        assert_eq!(below("trusted_0/roles"), ["base"]);
        assert_eq!(below("untrusted_1/roles"), ["org.hello", "org.helper"]);
        assert_eq!(below("untrusted_2/roles"), ["old"]);
    }
}

/// Puts the repository of a role below the files of a server: with the tag `v1`, which has a
/// submodule, and a newer commit.
fn put_repository(server: &Galaxy) {
    let repo = Repo::new();
    let tasks = |text: &str| format!("- debug: msg=\"from git {text}\"\n");
    let module = format!(
        "[submodule \"sub\"]\n\tpath = sub\n\turl = http://{}/files/sub.git\n",
        server.place
    );
    let tree =
        [("meta/main.yml", META), ("tasks/main.yml", &tasks("one")), (".gitmodules", &module)];
    repo.commit(&tree);
    repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", "1".repeat(40))]);
    repo.git(&["commit", "-q", "-m", "submodule"]);
    repo.git(&["tag", "v1"]);
    repo.commit(&[("tasks/main.yml", &tasks("two"))]);
    let bare = server.files.path().join("plain.git");
    repo.git(&["clone", "-q", "--bare", ".", &bare.display().to_string()]);
    // A server of plain files needs these lists.
    repo.git(&["-C", &bare.display().to_string(), "update-server-info"]);
}

/// Z4.6: roles come from git repositories, at a tag, a branch or the newest commit, and from
/// archives; submodules are not followed.
#[tokio::test]
async fn playbooks_use_roles_of_git_repositories_and_archives() {
    let server = Galaxy::start(2, &[]);
    put_repository(&server);
    server.archive(
        "packed.tar.gz",
        &[
            ("meta/main.yml", META),
            ("tasks/main.yml", "- debug: msg=\"packed {{ lookup('file', 'link') }}\"\n"),
            ("files/real", "through a link"),
            ("files/link", "-> real"),
        ],
    );
    let mut story = Story::new(&[(PROJECT, "use.yaml", &play("plain, tagged, packed"))]);
    let allowed = server.place.parse().unwrap();
    story.setup.push(Box::new(move |settings| settings.network.allowed.push(allowed)));
    let address = format!("http://{}/files", server.place);
    story.job.run = vec![using(vec![
        galaxy(&format!("git+{address}/plain.git"), None),
        galaxy(&format!("{address}/plain.git,v1,tagged"), None),
        galaxy(&format!("{address}/packed.tar.gz"), None),
    ])];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for line in ["ok: from git two", "ok: from git one", "ok: packed through a link"] {
        assert!(outcome.log.contains(line), "{line}\n{}", outcome.log);
    }
    let seen = server.seen();
    assert!(!seen.iter().any(|path| path.contains("sub.git")), "{seen:#?}");
    let modules = outcome.read("galaxy/untrusted_1/roles/tagged/.gitmodules");
    assert!(modules.contains("sub.git"), "{modules}");
}

/// Z4.6, Z7.5, X01: a role that is not there, or must not be installed, ends the build with an
/// error that names it, its server and what to do; a server that does not answer is tried again.
/// Installations reach what untrusted playbooks reach, and the operator's server.
#[tokio::test]
async fn a_role_that_cannot_be_installed_ends_the_build_with_what_to_do() {
    let server = Galaxy::start(
        3,
        &[
            ("hello", &["1.0.0"]),
            ("files", &["1"]),
            ("git", &["1"]),
            ("up", &["1"]),
            ("empty", &["1"]),
            ("slow", &["1"]),
        ],
    );
    let of = |url: &str| format!("galaxy_info: {{}}\ndependencies: [{{src: '{url}', name: x}}]\n");
    server.role("files", "1", &of("git+file:///etc/x.git"));
    server.role("git", "1", &of("git+ext::sh -c id"));
    let link = [("meta/main.yml", META), ("files/x", "-> ../../../../etc/passwd")];
    server.archive("up-1.tar.gz", &link);
    server.archive("empty-1.tar.gz", &[("README", "no role")]);
    server.role("slow", "1", &of(&format!("http://{}/hanging/x.tar.gz", server.place)));
    let own = format!("http://{}", server.place);
    let closed =
        TcpListener::bind((Ipv4Addr::new(127, 78, std::process::id() as u8, 4), 0)).unwrap();
    let closed_place = closed.local_addr().unwrap();
    drop(closed);
    for (role, from, result, parts) in [
        (
            "org.none",
            own.as_str(),
            ConfigError,
            ["org.none was not found on", "correct its name and version"],
        ),
        (
            "org.hello,9",
            &own,
            ConfigError,
            ["the specified version (9) of org.hello was not found", "role org.hello,9 from http"],
        ),
        ("org.hello", &own, ConfigError, ["HTTP Error 404", "correct its name and version"]),
        ("org.files", &own, ConfigError, ["transport 'file' not allowed", "name another role"]),
        ("org.git", &own, ConfigError, ["not allowed", "name another role"]),
        ("org.up", &own, ConfigError, ["Invalid linkname", "name another role"]),
        (
            "org.empty",
            &own,
            ConfigError,
            ["does not appear to have a meta/main.yml", "name another role"],
        ),
        ("org.slow", &own, Retry, ["not installed within 6 s", "tried again"]),
        (
            "org.hello",
            &format!("http://{closed_place}"),
            Retry,
            ["could not install the role org.hello from http", "tried again"],
        ),
        (
            "org.hello",
            "http://169.254.169.254/",
            ConfigError,
            ["metadata services of clouds are refused", "let their operator allow"],
        ),
        (
            &format!("git+http://{}/files/plain.git", server.place.replace("127.78", "127.79")),
            &own,
            ConfigError,
            [
                "loopback addresses of the executor are refused",
                "which forge.test/org/project lists",
            ],
        ),
        (
            "git+file:///etc",
            &own,
            ConfigError,
            ["only https:// and http:// addresses", "name another role"],
        ),
    ] {
        let mut story = Story::new(&[(PROJECT, "use.yaml", &play("x"))]);
        ask(&mut story, from);
        if role == "org.slow" {
            story.setup.push(Box::new(|settings| settings.galaxy.timeout_seconds = 6));
        }
        story.job.run = vec![using(vec![galaxy(role, None)])];
        let outcome = story.run().await;
        let detail = outcome.ended.detail.clone().unwrap_or_default();
        assert_eq!(outcome.ended.result, result, "{role}: {detail}\n{}", outcome.log);
        for part in parts {
            assert!(detail.contains(part), "{role}: {part}: {detail}");
        }
        assert!(!outcome.log.contains("PLAY"), "no playbook starts: {}", outcome.log);
    }
}

/// Z7.5, X01: an installation sees one directory, the network through its broker, and nothing else
/// of the build or the executor.
#[tokio::test]
async fn an_installation_sees_no_key_no_secret_and_no_other_file_of_the_build() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let runtime = root.join("run");
    let jobdir = Jobdir::make(&root.join("job"), &runtime, &BuildId::derive(&["one"])).unwrap();
    write_accounts(&jobdir).unwrap();
    write_private(&jobdir.runtime.root.join("secret"), b"a-hidden-word").unwrap();
    std::fs::write(jobdir.src.join("source"), "a-hidden-word").unwrap();
    std::fs::write(root.join("node_key"), "a-hidden-word").unwrap();
    let ready = ansible(&root.join("state"), |_| {}).await;
    let settings: &AnsibleSettings = ready.settings();
    let directory = jobdir.root.join("galaxy/untrusted_0");
    std::fs::create_dir_all(&directory).unwrap();
    let socket = jobdir.runtime.root.join("galaxy.sock");
    let _broker =
        Broker::open(&socket, &NetworkSettings::default(), &[], Lease::unlimited()).unwrap();
    let sandbox = FetchSandbox {
        settings,
        jobdir: &jobdir,
        ansible_version: "11",
        directory: &directory,
        broker: &socket,
        token: None,
    };
    let environment = BTreeMap::from([("HOME", directory.display().to_string())]);
    let script = format!(
        "grep -rl a-hidden-word {root} /run /tmp /home /root /dev/shm 2>/dev/null; find {root} -mindepth 1 -not -path '{root}/state*' | sort; \
         test -S {FETCH_BROKER} && echo broker; touch {root}/x /usr/x /etc/x 2>/dev/null; ls /run; env | sort; cat /proc/net/dev | grep -c :; touch own && echo written",
        root = root.display()
    );
    let mut command = sandbox.command(Path::new("/bin/sh"), &environment);
    let output = command.arg("-c").arg(script).output().await.unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "{root}/job\n{root}/job/galaxy\n{root}/job/galaxy/untrusted_0\nbroker\nnetwork.sock\nHOME={root}/job/galaxy/untrusted_0\n",
        root = root.display()
    );
    assert!(seen.starts_with(&expected), "{seen}");
    for name in seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name) {
        assert!(["HOME", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name), "{seen}");
    }
    assert!(seen.ends_with("1\nwritten\n"), "a loopback and no other interface: {seen}");
    assert!(!seen.contains("node_key") && !seen.contains("secret"), "{seen}");
}
