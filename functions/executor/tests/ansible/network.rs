//! What untrusted playbooks reach on the network (Z7.5).

use crate::support::*;
use sluice_model::build::BuildResult::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A web server on an address of its own, which programs do not take for their own loopback. It
/// records the request lines that it gets.
struct Outside {
    place: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Outside {
    fn start(last: u8) -> Self {
        let address = Ipv4Addr::new(127, 77, std::process::id() as u8, last);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                let line = lines.next().and_then(Result::ok).unwrap_or_default();
                while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
                let body = match &line {
                    line if line.contains("/info/refs") => {
                        format!("{}\trefs/heads/main\n", "1".repeat(40))
                    }
                    line if line.contains("/HEAD") => "ref: refs/heads/main\n".to_owned(),
                    _ => "from-outside".to_owned(),
                };
                record.lock().unwrap().push(line);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = client.write_all(format!("{head}{body}").as_bytes());
            }
        });
        Self { place, seen }
    }

    fn seen(&self) -> String {
        self.seen.lock().unwrap().join("\n")
    }
}

/// A server that speaks TLS with a certificate of its own; ends when dropped.
struct SecureOutside {
    child: Child,
    place: String,
}

impl SecureOutside {
    fn start(directory: &std::path::Path) -> Self {
        let path = |name: &str| directory.join(name).display().to_string();
        let (key, certificate) = (path("tls.key"), path("tls.crt"));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ed25519",
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=outside",
            ])
            .args(["-keyout", &key, "-out", &certificate])
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let address = Ipv4Addr::new(127, 77, std::process::id() as u8, 250);
        let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let place = format!("{address}:{port}");
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", &place, "-key", &key, "-cert", &certificate, "-www"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().expect("it listens").unwrap().contains("ACCEPT") {}
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, place }
    }
}

impl Drop for SecureOutside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allow(story: &mut Story, place: &str) {
    let allowed = place.parse().unwrap();
    story.setup.push(Box::new(move |settings| settings.network.allowed.push(allowed)));
}

/// Z7.5: as in Zuul, an untrusted playbook reaches the outside, with the programs that jobs use.
#[tokio::test]
async fn programs_of_an_untrusted_playbook_reach_the_outside() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - uri: {url: "http://HERE/by-uri", return_content: true}
      register: got
    - debug: msg="uri {{ got.content }}"
    - get_url: {url: "http://HERE/by-get-url", dest: "{{ zuul.executor.work_root }}/fetched"}
    - command: cat {{ zuul.executor.work_root }}/fetched
    - command: python3 -c 'import urllib.request as r; print("urllib", r.urlopen("http://HERE/by-urllib").read())'
    - command: git ls-remote http://HERE/by-git
    - command: python3 -m pip --disable-pip-version-check download --no-deps --retries 0 --index-url http://HERE/by-pip sluice-sample
      failed_when: false
    - uri: {url: "https://SECURE/", validate_certs: false, return_content: true}
      register: secure
    - debug: msg="tls {{ 'Cipher' in secure.content }}"
    - shell: |
        cd {{ zuul.executor.work_root }} && echo local > served
        python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &
        until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done
        python3 -c 'import urllib.request as r; print("own", r.urlopen("http://localhost:8000/served").read())'
      args: {executable: /bin/bash}
"#;
    let outside = Outside::start(1);
    let scratch = tempfile::tempdir().unwrap();
    let secure = SecureOutside::start(scratch.path());
    let play = play.replace("HERE", &outside.place).replace("SECURE", &secure.place);
    let mut story = Story::new(&[(PROJECT, "reach.yaml", &play)]);
    allow(&mut story, &outside.place);
    allow(&mut story, &secure.place);
    story.job.run = vec![untrusted("reach")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for text in [
        "ok: uri from-outside",
        "localhost | from-outside",
        "urllib b'from-outside'",
        "refs/heads/main",
        "ok: tls True",
        "own b'local",
    ] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
    for path in
        ["/by-uri", "/by-get-url", "/by-urllib", "/by-git/info/refs", "/by-pip/sluice-sample/"]
    {
        assert!(outside.seen().contains(path), "{path}\n{}\n{}", outside.seen(), outcome.log);
    }
    assert!(!outcome.log.contains("Network: refused"), "{}", outcome.log);
}

/// Z7.5, X01: nothing of ours is reached, by whatever name, and each refusal is a line in the log.
#[tokio::test]
async fn an_untrusted_playbook_reaches_neither_metadata_nor_the_control_plane() {
    // The API and the emulator's endpoints of a local system are on loopback.
    let api = Outside::start(2);
    let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.255:9")?;
        socket.local_addr()
    });
    let port = api.place.rsplit(':').next().unwrap().to_owned();
    let mut rows = vec![
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "metadata services"),
        ("http://[fd00:ec2::254]/latest/meta-data/".to_owned(), "metadata services"),
        ("http://169.254.170.2/v2/credentials".to_owned(), "metadata services"),
        (format!("http://{}/api/tenants", api.place), "loopback addresses"),
        (format!("http://[::ffff:127.0.0.1]:{port}/"), "loopback addresses"),
        ("http://10.0.0.1/".to_owned(), "private networks"),
        ("http://2130706433/".to_owned(), "usual form"),
        ("https://169.254.169.254/".to_owned(), "metadata services"),
    ];
    if let Ok(own) = own.as_ref().map(std::net::SocketAddr::ip) {
        rows.push((format!("http://{own}:{port}/"), "are refused"));
    }
    let tasks: String = rows
        .iter()
        .map(|(url, _)| {
            format!("    - uri: {{url: \"{url}\", timeout: 20}}\n      failed_when: false\n")
        })
        .collect();
    let raw = format!(
        "    - shell: |\n        for at in 169.254.169.254/80 {}; do timeout 5 bash -c \"echo > /dev/tcp/$at\" && echo passed; done; true\n",
        api.place.replace(':', "/"),
    );
    let play = format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n{tasks}{raw}");
    let mut story = Story::new(&[(PROJECT, "reach.yaml", &play)]);
    story.job.run = vec![untrusted("reach")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let refused: Vec<&str> =
        outcome.log.lines().filter(|line| line.contains("| Network: refused ")).collect();
    assert_eq!(refused.len(), rows.len(), "{}", outcome.log);
    for ((url, rule), line) in rows.iter().zip(refused) {
        assert!(line.contains(rule), "{url}: {line}");
    }
    assert!(!outcome.log.contains("passed"), "{}", outcome.log);
    assert_eq!(api.seen(), "");
}

/// Z7.5: an operator decides about addresses, and a build's traffic is bounded.
#[tokio::test]
async fn an_operators_networks_and_limits_hold_for_untrusted_playbooks() {
    let (refused, small) = (Outside::start(3), Outside::start(4));
    let play = "
- hosts: localhost
  gather_facts: false
  tasks:
    - uri: {url: \"http://REFUSED/\"}
      failed_when: false
    - uri: {url: \"http://SMALL/\"}
      failed_when: false
    - uri: {url: \"http://SMALL/\"}
      failed_when: false
";
    let play = play.replace("REFUSED", &refused.place).replace("SMALL", &small.place);
    let mut story = Story::new(&[(PROJECT, "reach.yaml", &play)]);
    allow(&mut story, "127.0.0.0/8");
    let network =
        sluice_executor::broker::policy::read_network(refused.place.split(':').next().unwrap());
    story.setup.push(Box::new(move |settings| {
        settings.network.refused.push(network.unwrap());
        settings.network.bytes_max = 100;
    }));
    story.job.run = vec![untrusted("reach")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for text in ["the executor's operator refuses 127.77.", "used up its network traffic"] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
    assert_eq!((refused.seen(), small.seen().lines().count()), (String::new(), 1));
}

/// Z7.1, Z7.5: what an operator shows to playbooks, each kind to those that it is for.
#[tokio::test]
async fn playbooks_see_the_operators_paths_for_their_kind_only() {
    let scratch = tempfile::tempdir().unwrap();
    let names = ["trusted-ro", "trusted-rw", "untrusted-ro", "untrusted-rw"];
    let paths = names.map(|name| scratch.path().join(name));
    for path in &paths {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("file"), "x").unwrap();
    }
    let play = format!(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - shell: |\n        for name in {}; do\n          read=no; write=no\n          test -e {root}/$name/file && read=yes\n          touch {root}/$name/{{{{ zuul_execution_trusted }}}} 2>/dev/null && write=yes\n          echo \"{{{{ zuul_execution_trusted }}}} $name $read $write\"\n        done\n",
        names.join(" "),
        root = scratch.path().display(),
    );
    let mut story = Story::new(&[(PROJECT, "see.yaml", &play), (CONFIG, "see.yaml", &play)]);
    let [trusted_ro, trusted_rw, untrusted_ro, untrusted_rw] = paths.clone();
    story.setup.push(Box::new(move |settings| {
        settings.trusted_paths.read_only = vec![trusted_ro];
        settings.trusted_paths.read_write = vec![trusted_rw];
        settings.untrusted_paths.read_only = vec![untrusted_ro];
        settings.untrusted_paths.read_write = vec![untrusted_rw];
    }));
    story.job.run = vec![untrusted("see"), story.trusted("see")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for text in [
        "True trusted-ro yes no",
        "True trusted-rw yes yes",
        "True untrusted-ro no no",
        "True untrusted-rw no no",
        "False trusted-ro no no",
        "False trusted-rw no no",
        "False untrusted-ro yes no",
        "False untrusted-rw yes yes",
    ] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
    assert!(paths[1].join("True").exists() && paths[3].join("False").exists());
}

/// Z7.1: site variables override a job's extra variables, these its secrets, and these its
/// variables.
#[tokio::test]
async fn site_variables_outrank_everything_that_jobs_define() {
    let say = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=\"{{ zuul_execution_trusted }} {{ site }} {{ extra }} {{ secret.of }} {{ own }}\"\n";
    let mut story = Story::new(&[(PROJECT, "say.yaml", say), (CONFIG, "say.yaml", say)]);
    let mut trusted = story.trusted("say");
    let all = |who: &str| {
        vars(serde_json::json!({ "site": who, "extra": who, "secret": { "of": who }, "own": who }))
    };
    story.secret(&mut trusted, "secret", serde_json::json!({ "of": "secrets-own" }));
    story.secret(&mut trusted, "extra", serde_json::json!({ "of": "unseen-secret" }));
    story.job.vars = all("job");
    story.job.extra_vars = all("extra");
    story.job.extra_vars.retain(|name, _| name == "site" || name == "extra");
    story.job.host_vars.insert("localhost".to_owned(), vars(serde_json::json!({ "site": "host" })));
    let file = story.directory.path().join("site.yaml");
    std::fs::write(&file, "site: \"site's {{ 'own' }}\"\n").unwrap();
    story.setup.push(Box::new(move |settings| {
        settings.site_vars = sluice_executor::settings::read_site_vars(&file).unwrap();
    }));
    story.job.run = vec![trusted, untrusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("ok: True site's own extra [REDACTED] job"), "{}", outcome.log);
    assert!(outcome.log.contains("ok: False site's own extra job job"), "{}", outcome.log);
}
