//! Runs every shell block of `docs/first-project.md` in order, on a system of its own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_local_tests::system::{System, UpOptions, program};
use std::path::Path;
use std::process::{Command, Stdio};

/// The page.
const PAGE: &str = include_str!("../../../docs/first-project.md");

/// Returns the text of all blocks that begin with ```` ```sh ````.
fn shell_blocks(page: &str) -> String {
    let mut script = String::new();
    let mut is_inside = false;
    for line in page.lines() {
        match (is_inside, line) {
            (false, "```sh") => is_inside = true,
            (true, "```") => is_inside = false,
            (true, line) => {
                script.push_str(line);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    script
}

/// Returns the address of the forge: the port after that of the pages.
fn forge(system: &System) -> String {
    let web_root = system.web_root();
    let (host, port) = web_root.trim_end_matches('/').rsplit_once(':').unwrap();
    format!("{host}:{}", port.parse::<u16>().unwrap() + 1)
}

/// The tutorial's commands merge the first change and reject the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_tutorial_gate_a_change() {
    let script = shell_blocks(PAGE);
    assert!(script.contains("sluice tenant load") && script.contains("APPROVE"), "{script}");
    let system = System::start(UpOptions::default()).await.unwrap();
    let directory = tempfile::Builder::new().prefix("sluice-tutorial-").tempdir().unwrap();
    let file = directory.path().join("tutorial.sh");
    std::fs::write(&file, &script).unwrap();
    let program = program().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    command
        .arg("-eu")
        .arg(&file)
        .current_dir(directory.path())
        .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
        .env("FORGE", forge(&system))
        .env("SLUICE_DATA", system.data())
        .env("HOME", directory.path())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null());
    for (role, name) in [("AUTHOR", "ada"), ("COMMITTER", "ada")] {
        command.env(format!("GIT_{role}_NAME"), name);
        command.env(format!("GIT_{role}_EMAIL"), "ada@example.org");
    }
    for name in ["SLUICE_WEB", "SLUICE_TABLE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
    {
        command.env_remove(name);
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(
        output.status.success(),
        "the tutorial ended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let log = log_of_main(&forge(&system), directory.path());
    assert!(log.contains("Greet sailors"), "the approved change was not merged:\n{log}");
    assert!(!log.contains("Greet briefly"), "the broken change was merged:\n{log}");
}

/// Clones the project and returns the subjects of the commits of `main`.
fn log_of_main(forge: &str, directory: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    git(&["clone", "--quiet", "--branch", "main", &format!("{forge}/acme/greeter"), "merged"]);
    git(&["-C", "merged", "log", "--format=%s %b"])
}
