//! Tests `sluice` as a program: a system is started, queried, changed, stopped and restarted.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// A running `sluice up`, killed when dropped.
struct Up {
    child: Child,
    port: u16,
    said: BufReader<std::process::ChildStdout>,
    /// The first lines of its output.
    first: String,
}

impl Up {
    /// Starts a system on `data` and waits until it is up.
    fn start(data: &Path, more: &[&str]) -> Self {
        install();
        let port = free_port();
        let mut command = sluice(data, &["up", "--listen", &format!("127.0.0.1:{port}")]);
        let mut child =
            command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let (mut line, mut first) = (String::new(), String::new());
        while !line.contains("Ctrl-C stops everything") {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                let mut why = String::new();
                child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
                panic!("it ended: {why}");
            }
            first.push_str(&line);
        }
        Self { child, port, said, first }
    }

    /// Stops it, and returns its exit status and last output.
    fn stop(mut self) -> (ExitStatus, String) {
        let output =
            Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(output.success());
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
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../infra/executor/install.sh");
        assert!(Command::new(script).status().unwrap().success(), "install.sh failed");
    });
}

/// Returns a port that is free, with the next two.
fn free_port() -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    // Tests run concurrently: each searches from a port of its own.
    static STARTED: AtomicU16 = AtomicU16::new(0);
    let place = u16::try_from(std::process::id() % 80).unwrap() * 10
        + STARTED.fetch_add(1, Ordering::SeqCst) % 10;
    // Below the ephemeral ports, which connections could take between this check and the start.
    let first = 21_000 + place * 14;
    (first..32_750).step_by(14).find(|port| (*port..port + 3).all(free)).unwrap()
}

fn sluice(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command
        .args(arguments)
        .env("SLUICE_DATA", data)
        .env_remove("SLUICE_TABLE")
        .env_remove("SLUICE_TOKEN")
        .env_remove("SLUICE_WEB");
    command
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    sluice(data, arguments).output().unwrap()
}

/// Reads a path of the pages, with the response's headers.
fn get(port: u16, path: &str) -> String {
    get_by(port, path, "127.0.0.1")
}

/// Reads a path with another host name.
fn get_by(port: u16, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn run_with_input(data: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = sluice(data, arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Parses JSON output.
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&out(output))
        .unwrap_or_else(|error| panic!("{error}: {}{}", out(output), err(output)))
}

/// C4, C5: stored connections survive a restart, and secrets are never shown.
#[test]
fn connections_are_added_rotated_and_kept_over_a_restart() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &["--no-forge"]);
    // The forge is unreachable, so the token is not checked.
    let add =
        ["connection", "add", "hub", "--no-check", "--token-file", "-", "--webhook-secret-file"];
    let secret = data.path().join("secret");
    std::fs::write(&secret, "a webhook secret\n").unwrap();
    let added =
        run_with_input(data.path(), &[&add[..], &[secret.to_str().unwrap()]].concat(), "a token\n");
    assert!(added.status.success(), "{}", err(&added));
    assert!(out(&added).contains("api/connection/hub/payload"));
    let listed = run(data.path(), &["connection", "list"]);
    assert!(
        out(&listed).contains(
            "hub: github at github.com (https://api.github.com), a token, 1 webhook secret"
        )
    );
    let rows = json(&run(data.path(), &["connection", "list", "--json"]));
    let hub =
        rows["connections"].as_array().unwrap().iter().find(|row| row["name"] == "hub").unwrap();
    assert_eq!(
        (hub["driver"].as_str(), hub["has_token"].as_bool()),
        (Some("github"), Some(true)),
        "{hub}"
    );
    assert_eq!(hub["webhook_secrets"].as_u64(), Some(1), "{hub}");
    let rotated = run_with_input(
        data.path(),
        &["connection", "rotate", "hub", "--webhook-secret-file", "-"],
        "another\n",
    );
    assert!(rotated.status.success(), "{}", err(&rotated));
    let unknown =
        run_with_input(data.path(), &["connection", "rotate", "nub", "--token-file", "-"], "x\n");
    assert!(
        err(&unknown).contains("there is no connection nub; connections: ec2, hub"),
        "{}",
        err(&unknown)
    );
    let both = ["connection", "add", "hub", "--token-file", "-", "--webhook-secret-file", "-"];
    assert!(
        err(&run_with_input(data.path(), &both, "x\n"))
            .contains("could not read several secrets from standard input")
    );
    let role = "arn:aws:iam::123456789012:role/nodes";
    let far = ["connection", "add", "far", "--driver", "aws", "--region", "eu-west-1"];
    let with_role = ["--role-arn", role, "--external-id", "us-1", "--access-key-id"];
    let key = ["AKIAIOSFODNN7EXAMPLE", "--secret-access-key-file", "-"];
    let arguments = [&far[..], &with_role, &key].concat();
    let added = run_with_input(data.path(), &arguments, "an access key\n");
    assert!(added.status.success(), "{}", err(&added));
    for name in ["far", "ec2"] {
        let shown = out(&run(data.path(), &["connection", "show", name]));
        let expected = match name {
            "far" => format!(
                "with the role {role} with the external id us-1, assumed with the access key AKIAIOSFODNN7EXAMPLE"
            ),
            _ => "with the launcher's own (ambient) AWS credentials".to_owned(),
        };
        assert!(shown.contains(&expected), "{shown}");
    }
    let shown = json(&run(data.path(), &["connection", "show", "far", "--format", "json"]));
    assert_eq!(shown["aws_credentials"]["role_arn"], role, "{shown}");
    let (status, said) = up.stop();
    assert!(status.success() && said.contains("Nothing is lost"), "{said}");

    let stopped = run(data.path(), &["connection", "list"]);
    assert!(err(&stopped).contains("is not running"), "{}", err(&stopped));
    let again = Up::start(data.path(), &["--no-forge"]);
    let listed = out(&run(data.path(), &["connection", "list"]));
    assert!(
        listed.contains("hub: github")
            && listed.contains("ssh-ed25519 ")
            && listed.contains("2 webhook secrets"),
        "{listed}"
    );
    let log = std::fs::read_to_string(data.path().join("sluice.log")).unwrap();
    for text in [listed, log] {
        assert!(
            ["a token\n", "a webhook secret", "an access key"]
                .iter()
                .all(|secret| !text.contains(secret)),
            "a secret is shown"
        );
    }
    let removed = run(data.path(), &["connection", "remove", "hub"]);
    assert!(removed.status.success(), "{}", err(&removed));
    assert!(!out(&run(data.path(), &["connection", "list"])).contains("hub"));
    assert!(again.stop().0.success());
}

/// C5: an operator gives the default name to another forge; neither its token nor the samples are
/// lost.
#[test]
fn the_connection_of_the_forge_beside_the_system_is_not_given_away() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &[]);
    let secret = data.path().join("secret");
    std::fs::write(&secret, "a webhook secret\n").unwrap();
    let add =
        ["connection", "add", "github", "--no-check", "--token-file", "-", "--webhook-secret-file"];
    let add = [&add[..], &[secret.to_str().unwrap()]].concat();
    let refused = run_with_input(data.path(), &add, "a token\n");
    assert!(err(&refused).contains("--no-forge"), "{}", err(&refused));
    // The local forge can check a token.
    let forge = format!("http://127.0.0.1:{}", up.port + 1);
    let header = std::fs::read_to_string(data.path().join("ada.header")).unwrap();
    let token =
        header.lines().find_map(|line| line.strip_prefix("Authorization: Bearer ")).unwrap();
    let tried =
        ["connection", "add", "mine", "--git-url", &forge, "--api-url", &format!("{forge}/api/v3")];
    let tried =
        [&tried[..], &["--token-file", "-", "--webhook-secret-file", secret.to_str().unwrap()]]
            .concat();
    let wrong = run_with_input(data.path(), &tried, "an invalid token\n");
    assert!(err(&wrong).contains("rejects it; nothing was stored"), "{}", err(&wrong));
    let right = run_with_input(data.path(), &tried, &format!("{token}\n"));
    assert!(out(&right).contains("account ada"), "{}", err(&right));
    assert!(up.stop().0.success());

    let alone = Up::start(data.path(), &["--no-forge"]);
    let added = run_with_input(data.path(), &add, "a token\n");
    assert!(added.status.success(), "{}", err(&added));
    assert!(alone.stop().0.success());
    let again = Up::start(data.path(), &[]);
    let listed = out(&run(data.path(), &["connection", "list"]));
    assert!(
        listed.contains("github: github at github.com"),
        "the next start put the forge in its place: {listed}"
    );
    assert!(again.stop().0.success());
}

/// C5: the forge and its webhooks follow when the system is started on other ports.
#[test]
fn everything_moves_to_other_ports_together() {
    let data = TempDir::new().unwrap();
    let first = Up::start(data.path(), &[]);
    let before = first.port;
    assert!(first.stop().0.success());
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, before + 2)).unwrap();
    let refused = run(data.path(), &["up", "--listen", &format!("127.0.0.1:{before}")]);
    assert!(
        err(&refused).contains(&format!("port {} of 127.0.0.1", before + 2)),
        "{}",
        err(&refused)
    );
    assert!(err(&refused).contains("--listen 127.0.0.1:PORT"), "{}", err(&refused));
    drop(taken);
    let second = Up::start(data.path(), &[]);
    assert_ne!(second.port, before);
    let credentials = std::fs::read_to_string(data.path().join("git-credentials")).unwrap();
    assert!(
        credentials.contains(&format!("@127.0.0.1:{}", second.port + 1)),
        "the forge moved too"
    );
    let log = std::fs::read_to_string(data.path().join("sluice.log")).unwrap();
    assert!(!log.contains('\u{1b}'), "no colours in a file");
    assert!(log.contains("updated the forge's webhooks"), "{log}");
    assert!(second.stop().0.success());
}

/// C4: the printed first steps work, and the outcome of the change is printed where the system was
/// started.
#[test]
fn the_printed_first_steps_propose_a_change_that_is_followed() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &[]);
    // A change that is proposed before its tenant is loaded is only found by a later sweep.
    let is_read = (0..400)
        .map(|_| out(&run(data.path(), &["tenant", "show"])))
        .any(|shown| shown.contains("org/two"));
    assert!(is_read, "the sample's tenant is read");
    let steps: Vec<&str> = up.first.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let begins = steps
        .iter()
        .position(|step| step.starts_with("git clone"))
        .expect("the first steps are printed");
    let until_proposed =
        steps[begins..].iter().take_while(|step| !step.contains("/reviews")).copied();
    let script = until_proposed.collect::<Vec<_>>().join("\n");
    let home = TempDir::new().unwrap();
    let typed = Command::new("bash")
        .args(["-e", "-c", &script])
        .current_dir(home.path())
        .env("HOME", home.path())
        .envs([("GIT_AUTHOR_NAME", "Ada"), ("GIT_AUTHOR_EMAIL", "ada@example.org")])
        .envs([
            ("GIT_COMMITTER_NAME", "Ada"),
            ("GIT_COMMITTER_EMAIL", "ada@example.org"),
            ("no_proxy", "127.0.0.1"),
        ])
        .output()
        .unwrap();
    assert!(typed.status.success(), "{script}\n{}", err(&typed));
    let explained = (0..400).map(|_| out(&run(data.path(), &["change", "explain", "one#1"])));
    // Before its queue has reconciled, the change is not in check yet.
    let explained = explained.into_iter().find(|output| output.contains("enqueued in check"));
    assert!(explained.is_some(), "the change is taken in");
    let of_job = run(data.path(), &["change", "explain", "one#1", "--job", "no-such-job"]);
    assert!(err(&of_job).contains("does not run a job no-such-job in check"), "{}", err(&of_job));
    let dequeue = ["change", "dequeue", "org/one#1", "--pipeline", "check", "--reason", "it hangs"];
    let taken = run(data.path(), &dequeue);
    assert!(taken.status.success(), "{}", err(&taken));
    let output = out(&taken);
    assert!(
        output
            .contains("Dequeued org/one#1 from check: DEQUEUED: an operator dequeued it: it hangs"),
        "{output}"
    );
    let again = run(data.path(), &dequeue);
    assert!(
        !again.status.success() && err(&again).contains("in the pipeline check"),
        "{}",
        err(&again)
    );
    let gone = (0..400).map(|_| out(&run(data.path(), &["change", "explain", "one#1"])));
    let gone = gone
        .into_iter()
        .find(|output| output.contains("DEQUEUED"))
        .expect("the change is taken out");
    assert!(
        gone.contains("an operator dequeued it: it hangs")
            && gone.contains(" dequeued it: it hangs"),
        "{gone}"
    );
    let (status, said) = up.stop();
    assert!(status.success());
    assert!(
        said.contains("org/one#1 entered check") && said.contains("org/one#1 left check: DEQUEUED"),
        "{said}"
    );
}

/// A closed pipe does not cause a panic.
#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &["--no-forge"]);
    let mut child = sluice(data.path(), &["connection", "list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.success(), err(&output).as_str()), (true, ""));
    assert!(up.stop().0.success());
}

/// C4, Z5.2: functions in separate processes behave as those in this process; the samples are a
/// tenant at once.
#[test]
fn a_new_system_has_a_tenant_that_can_be_looked_at_also_with_functions_as_processes() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &["--processes"]);
    // The configuration is loaded asynchronously.
    let shown = (0..200)
        .map(|_| out(&run(data.path(), &["tenant", "show"])))
        .find(|shown| shown.contains("org/two"));
    let shown = shown.expect("the tenant is read");
    assert!(shown.contains("check, gate") && shown.contains("no configuration errors"), "{shown}");
    let status = out(&run(data.path(), &["status"]));
    assert!(
        status.contains("tenant demo") && status.contains("gate (dependent)\n    nothing"),
        "{status}"
    );
    let of = |arguments: &[&str]| json(&run(data.path(), &[arguments, &["--json"]].concat()));
    let output = of(&["status"]);
    let names = [&output[0]["tenant"], &output[0]["board"]["tenant"]].map(|name| name.as_str());
    assert_eq!(names, [Some("demo"), Some("demo")], "{output}");
    let output = of(&["tenant", "show"]);
    let has_two =
        output["projects"].as_array().unwrap().iter().any(|project| project["name"] == "org/two");
    assert!(has_two && output["config_errors"].is_array(), "{output}");
    for list in ["quarantine", "autohold", "build", "node", "request", "semaphore"] {
        assert_eq!(of(&[list, "list"]).as_array().map(Vec::len), Some(0), "{list}");
    }
    assert_eq!(of(&["tenant", "list"])[0]["name"], "demo");
    assert!(out(&run(data.path(), &["project", "list"])).contains("org/two"));
    let explained = run(data.path(), &["change", "explain", "org/one#7"]);
    assert!(err(&explained).contains("org/one#7 is unknown"), "{}", err(&explained));
    let wrong = data.path().join("main.yaml");
    std::fs::write(&wrong, "- tenant: {name: t, source: {nowhere: {config-projects: [a/b]}}}\n")
        .unwrap();
    let refused = run(data.path(), &["tenant", "load", wrong.to_str().unwrap()]);
    assert!(
        !refused.status.success() && err(&refused).contains("nothing was stored"),
        "{}",
        err(&refused)
    );
    let unknown = data.path().join("empty.yaml");
    std::fs::write(&unknown, "[]\n").unwrap();
    let refused = run(data.path(), &["tenant", "load", unknown.to_str().unwrap()]);
    assert!(
        err(&refused).contains("it defines no tenant; nothing was stored"),
        "{}",
        err(&refused)
    );
    // A project's key is found by its short name, and the API serves the same key.
    let key = out(&run(data.path(), &["secret", "key", "org/one"]));
    assert!(key.starts_with("-----BEGIN PUBLIC KEY-----"), "{key}");
    for host in ["evil.example", "127.0.0.1.evil.example"] {
        let refused = get_by(up.port, "/api/tenants", host);
        assert!(refused.starts_with("HTTP/1.1 421") && refused.contains("--web-root"), "{refused}");
    }
    let served = get(up.port, "/api/tenant/demo/key/org/one.pub");
    assert!(served.starts_with("HTTP/1.1 200") && served.ends_with(&key), "{served}");
    // An imported key becomes the project's key, but never replaces one.
    let brought = sluice_keys::ProjectKey::generate().unwrap();
    let pem = data.path().join("brought.pem");
    std::fs::write(&pem, brought.to_pem().unwrap().expose()).unwrap();
    let import =
        |project: &str| run(data.path(), &["secret", "import", project, pem.to_str().unwrap()]);
    for _ in 0..2 {
        let imported = import("org/two");
        assert!(imported.status.success(), "{}", err(&imported));
        assert_eq!(
            out(&run(data.path(), &["secret", "key", "org/two"])),
            brought.public().to_pem().unwrap()
        );
    }
    let refused = import("org/one");
    assert!(err(&refused).contains("already has another key pair"), "{}", err(&refused));
    assert_eq!(out(&run(data.path(), &["secret", "key", "org/one"])), key);
    let unknown = run(data.path(), &["secret", "key", "org/unknown"]);
    assert!(err(&unknown).contains("there is no project org/unknown"), "{}", err(&unknown));
    let reloaded = run(data.path(), &["tenant", "reload", "demo"]);
    assert!(reloaded.status.success(), "{}", err(&reloaded));
    let all = run(data.path(), &["tenant", "reload", "--all"]);
    assert!(
        all.status.success() && out(&all).contains("tenant demo: "),
        "{}{}",
        out(&all),
        err(&all)
    );
    let nothing = run(data.path(), &["tenant", "reload"]);
    assert!(!nothing.status.success() && err(&nothing).contains("TENANT"), "{}", err(&nothing));
    let second = run(data.path(), &["up", "--listen", &format!("127.0.0.1:{}", up.port + 5)]);
    assert!(err(&second).contains("another sluice is using"), "{}", err(&second));
    let (status, said) = up.stop();
    assert!(status.success(), "{said}");
}

/// R03, C16: another tenant replaces the sample's; removed tenants and unreadable projects are
/// printed.
#[test]
fn another_main_configuration_says_what_goes_and_what_cannot_be_read() {
    let data = TempDir::new().unwrap();
    let up = Up::start(data.path(), &[]);
    let main = data.path().join("mine.yaml");
    std::fs::write(
        &main,
        "- tenant: {name: mine, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two, org/missing]}}}\n",
    )
    .unwrap();
    let main = main.to_str().unwrap();
    // The sample's tenant is listed once it is loaded.
    let listed = (0..200)
        .map(|_| out(&run(data.path(), &["status"])))
        .any(|shown| shown.contains("tenant demo"));
    assert!(listed);
    let refused = run(data.path(), &["tenant", "load", main]);
    assert!(err(&refused).contains("it omits the existing tenants demo"), "{}", err(&refused));
    let loaded = run(data.path(), &["tenant", "load", "--remove", main]);
    let output = out(&loaded);
    assert!(
        output.contains("Removed tenants, whose changes are being dequeued: demo"),
        "{output}{}",
        err(&loaded)
    );
    assert!(output.contains("tenant mine: 4 projects, 1 configuration error"), "{output}");
    assert!(output.contains("could not read forge.local/org/missing: "), "{output}");
    // A script notices, and learns which it is.
    let names = "1 project could not be read: forge.local/org/missing of tenant mine";
    assert_eq!(loaded.status.code(), Some(1), "{}", err(&loaded));
    assert!(err(&loaded).contains(names), "{}", err(&loaded));
    let reloaded = run(data.path(), &["tenant", "reload", "mine", "--json"]);
    assert_eq!(reloaded.status.code(), Some(1), "{}", err(&reloaded));
    let outcome = &json(&reloaded)["tenants"][0];
    assert_eq!(outcome["unreadable_projects"][0]["project"], "forge.local/org/missing");
    assert_eq!((&outcome["is_loaded"], &outcome["config_errors"]), (&true.into(), &1.into()));
    let shown = out(&run(data.path(), &["tenant", "show"]));
    assert!(
        shown.contains("tenant mine")
            && shown.contains("org/missing (github, untrusted), CANNOT BE READ"),
        "{shown}"
    );
    let gone = run(data.path(), &["tenant", "show", "demo"]);
    assert!(
        err(&gone).contains("sluice: there is no tenant demo; tenants: mine"),
        "{}",
        err(&gone)
    );
    let status = run(data.path(), &["status", "--tenant", "demo"]);
    assert!(
        err(&status).contains("sluice: there is no tenant demo; tenants: mine"),
        "{}",
        err(&status)
    );
    // The form of zuul-client.
    let nowhere = ["dequeue", "--pipeline", "gate", "--project", "org/one", "--change", "7"];
    assert!(err(&run(data.path(), &nowhere)).contains("in the pipeline gate of tenant mine"));
    let resume = ["queue", "resume", "mine", "gate", "integrated", "--reason", "looked"];
    assert!(err(&run(data.path(), &resume)).contains("is not halted"));
    let resume = ["provider", "resume", "unknown"];
    assert!(
        err(&run(data.path(), &resume))
            .contains("could not resume the provider unknown: it is not halted")
    );
    assert!(up.stop().0.success());
}

/// An error message says what to do.
#[test]
fn errors_say_what_to_do() {
    let data = TempDir::new().unwrap();
    let cases: [(&[&str], &str); 12] = [
        (&["status"], "start one with `sluice up`"),
        (&["status", "--api", "nonsense"], "as the address of the pages"),
        (&["up", "--listen", "0.0.0.0:9000"], "listens on 127.0.0.1 only"),
        (&["up", "--slots", "0"], "give at least 1"),
        (&["connection", "rotate", "hub"], "could not rotate the secrets"),
        (&["demo", "--data", "/"], "it is not empty and was not created by a demo"),
        (&["change", "enqeue"], "'enqueue'"),
        (&["quue", "resume"], "'queue'"),
        (&["change", "enqueue", "7", "--pipeline", "gate"], "as in `org/project#7`"),
        (&["node", "list", "--token-file", "x"], "only to the address of --api"),
        (&["build", "list", "--api", "https://u:p@ci.example.org"], "a user name or a password"),
        (&["tenant", "set-state", "pause-trigger"], "say why with --reason"),
    ];
    for (arguments, expected) in cases {
        let output = run(data.path(), arguments);
        assert!(
            !output.status.success() && err(&output).contains(expected),
            "{arguments:?}: {}",
            err(&output)
        );
    }
}

/// C4: the help lists commands in their own form, and not the other forms of them.
#[test]
fn the_help_lists_nouns() {
    let data = TempDir::new().unwrap();
    let help = out(&run(data.path(), &["help"]));
    let listed = |name: &str| help.lines().any(|line| line.starts_with(&format!("  {name} ")));
    for noun in ["up", "status", "change", "ref", "tenant", "autohold", "token", "audit"] {
        assert!(listed(noun), "{noun}: {help}");
    }
    for form in ["enqueue", "explain", "check", "builds", "autohold-list", "manage-events"] {
        assert!(!listed(form), "{form}: {help}");
    }
    let enqueue = out(&run(data.path(), &["enqueue", "--help"]));
    assert!(enqueue.contains("sluice change enqueue"), "{enqueue}");
    let token = out(&run(data.path(), &["build", "list", "--help"]));
    assert!(token.contains("SLUICE_TOKEN") && !token.contains("--token "), "{token}");
}

/// A server on loopback that answers one request with `answer`, and returns what was requested.
fn serve_once(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, served)
}

/// C2.2: the token goes to the address of `--api`, to no other address that an answer names, and not
/// over plain http to another machine; no output has it.
#[test]
fn a_token_goes_only_to_the_address_of_the_api() {
    let data = TempDir::new().unwrap();
    let token = "token-of-a-test-4711";
    let list = |api: &str| {
        let mut command = sluice(data.path(), &["tenant", "list", "--api", api]);
        command.env("SLUICE_TOKEN", token).output().unwrap()
    };
    let (address, served) =
        serve_once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]");
    assert!(list(&address).status.success());
    let request = served.join().unwrap().to_lowercase();
    assert!(request.contains(&format!("authorization: bearer {token}")), "{request}");

    let (address, served) = serve_once(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let moved = list(&address);
    served.join().unwrap();
    assert!(err(&moved).contains("it is at http://127.0.0.1:1/"), "{}", err(&moved));

    let refused = list("http://ci.example.org");
    assert!(err(&refused).contains("--insecure-http"), "{}", err(&refused));
    for output in [moved, refused] {
        assert!(!output.status.success());
        assert!(!format!("{}{}", out(&output), err(&output)).contains(token));
    }
    // Without an address, the local system gets no token.
    let file = data.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let (address, served) =
        serve_once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]");
    let access = serde_json::json!({"environment": {}, "web_root": address});
    std::fs::write(data.path().join("operator.json"), access.to_string()).unwrap();
    let mut local = sluice(data.path(), &["tenant", "list", "--json"]);
    assert!(local.env("SLUICE_TOKEN", token).output().unwrap().status.success());
    assert!(!served.join().unwrap().contains(token));
}
