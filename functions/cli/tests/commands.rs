//! `sluice` as a program: a system is started, asked, changed, stopped and started again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// A running `sluice up`; killed when dropped.
struct Up {
    child: Child,
    port: u16,
    said: BufReader<std::process::ChildStdout>,
}

impl Up {
    /// Starts a system on `data` and waits until it says that it is up.
    fn start(data: &Path, more: &[&str]) -> Self {
        install();
        let port = free_port();
        let mut command = sluice(data, &["up", "--listen", &format!("127.0.0.1:{port}")]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("Ctrl-C stops everything") {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                let mut why = String::new();
                child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
                panic!("it ended: {why}");
            }
        }
        Self { child, port, said }
    }

    /// Asks it to stop and returns how it ended, with the last it said.
    fn stop(mut self) -> (ExitStatus, String) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/executor/install.sh");
        assert!(Command::new(script).status().unwrap().success(), "install.sh failed");
    });
}

/// Returns a port that is free with the two above it.
fn free_port() -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    // Tests run side by side: each looks from a place of its own.
    static STARTED: AtomicU16 = AtomicU16::new(0);
    let place = u16::try_from(std::process::id() % 80).unwrap() * 10 + STARTED.fetch_add(1, Ordering::SeqCst) % 10;
    let first = 21_000 + place * 20;
    (first..40_000).step_by(10).find(|port| (*port..port + 3).all(free)).unwrap()
}

fn sluice(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(arguments).env("SLUICE_DATA", data).env_remove("SLUICE_TABLE").env_remove("SLUICE_WEB");
    command
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    sluice(data, arguments).output().unwrap()
}

fn run_with_input(data: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = sluice(data, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// C4, C5: what an operator stores is there after a stop and after a second start, and secrets are shown nowhere.
#[test]
fn connections_are_added_rotated_and_kept_over_a_restart() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &["--no-forge"]);
    let add = ["connection", "add", "hub", "--token-file", "-", "--webhook-secret-file"];
    let secret = data.path().join("secret");
    std::fs::write(&secret, "a webhook secret\n").unwrap();
    let added = run_with_input(data.path(), &[&add[..], &[secret.to_str().unwrap()]].concat(), "a token\n");
    assert!(added.status.success(), "{}", err(&added));
    assert!(out(&added).contains("api/connection/hub/payload"));
    let listed = run(data.path(), &["connection", "list"]);
    assert!(out(&listed).contains("hub: GitHub at github.com (https://api.github.com), a token, 1 webhook secret(s)"));
    let rotated =
        run_with_input(data.path(), &["connection", "rotate", "hub", "--webhook-secret-file", "-"], "another\n");
    assert!(rotated.status.success(), "{}", err(&rotated));
    let unknown = run_with_input(data.path(), &["connection", "rotate", "nub", "--token-file", "-"], "x\n");
    assert!(err(&unknown).contains("there is no connection nub; there are: ec2, hub"), "{}", err(&unknown));
    let (status, said) = up.stop();
    assert!(status.success() && said.contains("Nothing is lost"), "{said}");

    let stopped = run(data.path(), &["connection", "list"]);
    assert!(err(&stopped).contains("does not run"), "{}", err(&stopped));
    let again = Up::start(data.path(), &["--no-forge"]);
    let listed = out(&run(data.path(), &["connection", "list"]));
    assert!(listed.contains("hub: GitHub") && listed.contains("2 webhook secret(s)"), "{listed}");
    let log = std::fs::read_to_string(data.path().join("sluice.log")).unwrap();
    for text in [listed, log] {
        assert!(!text.contains("a token\n") && !text.contains("a webhook secret"), "a secret is shown");
    }
    assert!(again.stop().0.success());
}

/// C4: functions run as processes answer as those in this one do; the sample repositories are a tenant at once.
#[test]
fn a_new_system_has_a_tenant_that_can_be_looked_at_also_with_functions_as_processes() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &["--processes"]);
    // The configuration is read by functions; how long that takes is theirs to say.
    let shown = (0..200).map(|_| out(&run(data.path(), &["tenant", "show"]))).find(|shown| shown.contains("org/two"));
    let shown = shown.expect("the tenant is read");
    assert!(shown.contains("check, gate") && shown.contains("no configuration errors"), "{shown}");
    let status = out(&run(data.path(), &["status"]));
    assert!(status.contains("tenant demo") && status.contains("gate (dependent)\n    nothing"), "{status}");
    let explained = run(data.path(), &["explain", "org/one#7"]);
    assert!(err(&explained).contains("has not seen org/one#7"), "{}", err(&explained));
    let wrong = data.path().join("main.yaml");
    std::fs::write(&wrong, "- tenant: {name: t, source: {nowhere: {config-projects: [a/b]}}}\n").unwrap();
    let refused = run(data.path(), &["tenant", "load", wrong.to_str().unwrap()]);
    assert!(!refused.status.success() && err(&refused).contains("was not stored"), "{}", err(&refused));
    let reloaded = run(data.path(), &["tenant", "reload", "demo"]);
    assert!(reloaded.status.success(), "{}", err(&reloaded));
    let second = run(data.path(), &["up", "--listen", &format!("127.0.0.1:{}", up.port + 5)]);
    assert!(err(&second).contains("another sluice works on"), "{}", err(&second));
    let (status, said) = up.stop();
    assert!(status.success(), "{said}");
}

/// Whoever asks for what cannot be is told what to do instead.
#[test]
fn mistakes_are_answered_with_what_to_do() {
    let data = TempDir::new().unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["status"], "start one with `sluice up`"),
        (&["up", "--listen", "0.0.0.0:9000"], "listens on 127.0.0.1 only"),
        (&["connection", "rotate", "hub"], "nothing to store"),
        (&["demo", "--data", "/"], "is not empty and no demo made it"),
    ];
    for (arguments, told) in cases {
        let output = run(data.path(), arguments);
        assert!(!output.status.success() && err(&output).contains(told), "{arguments:?}: {}", err(&output));
    }
}
