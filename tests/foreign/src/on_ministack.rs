//! Runs a command beside a ministack of its own: `on-ministack PROGRAM [ARGUMENT…]`.
//!
//! `{}` in an argument is replaced by the URL. The credentials that ministack accepts and a region
//! are in the command's environment. Exits as the command does, or with 1 after a signal.
#![allow(clippy::unwrap_used, reason = "a test tool may panic")]

use sluice_foreign::ministack;
use std::process::{Command, ExitCode};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(program) = words.next() else {
        eprintln!("on-ministack: name a program, and `{{}}` in its arguments where the URL goes");
        return ExitCode::from(2);
    };
    // Ctrl-C and `timeout` reach the command as well: this program only waits for its end, so that
    // ministack, which is dropped last, still answers then.
    let _interrupted = signal(SignalKind::interrupt()).unwrap();
    let _terminated = signal(SignalKind::terminate()).unwrap();
    println!("==> starting {} (the first time it is installed)", ministack::NAME);
    let endpoint = ministack::start().await;
    let mut command = Command::new(&program);
    command
        .args(words.map(|word| word.replace("{}", endpoint.endpoint())))
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", "us-east-1");
    let status = tokio::task::spawn_blocking(move || command.status()).await.unwrap();
    match status {
        Ok(status) => {
            ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("on-ministack: could not run {program}: {error}");
            ExitCode::FAILURE
        }
    }
}
