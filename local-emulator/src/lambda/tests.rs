//! Functions in this program and in processes: answers, failures, time limits, deaths.

use super::child::Patience;
use super::{
    Credentials, HandlerError, InProcess, Invoke, InvokeError, Limits, Print, ProcessSettings,
    Processes,
};
use crate::data::auth::SecretAccessKey;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

fn limits(timeout: Duration, reserved: Option<u32>) -> Limits {
    Limits { timeout, reserved_concurrency: reserved }
}

fn long() -> Limits {
    limits(Duration::from_secs(60), None)
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// The example beside this crate; cargo builds it together with the tests.
fn binary() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let binary = tests.parent().unwrap().parent().unwrap().join("examples/one_function");
    assert!(binary.exists(), "{} is built by `cargo test` without --lib", binary.display());
    binary
}

struct Machine {
    functions: Arc<Processes>,
    lines: mpsc::UnboundedReceiver<String>,
}

fn machine(limits: Limits, environment: &[(&str, &str)]) -> Machine {
    patient_machine(Patience::of(&limits), limits, environment)
}

fn patient_machine(patience: Patience, limits: Limits, environment: &[(&str, &str)]) -> Machine {
    let (sender, lines) = mpsc::unbounded_channel();
    let print: Print = Arc::new(move |function, line| {
        sender.send(format!("[{function}] {line}")).unwrap_or_default()
    });
    let mut all = BTreeMap::from([("SLUICE_FUNCTION".to_owned(), "one".to_owned())]);
    all.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let settings = ProcessSettings {
        id: "one".into(),
        name: "sluice-one".into(),
        arn: "arn:aws:lambda:us-east-1:000000000000:function:sluice-one".into(),
        binary: binary(),
        environment: all,
        credentials: Credentials {
            access_key_id: "AKIDONE".into(),
            secret_access_key: SecretAccessKey::new("secret"),
            session_token: SecretAccessKey::new("token"),
        },
        region: "us-east-1".into(),
        endpoint: "http://127.0.0.1:1".into(),
        memory_mb: 128,
        limits,
    };
    Machine { functions: Arc::new(Processes::patient([settings], &print, |_| patience)), lines }
}

impl Machine {
    async fn ask(&self, what: Value) -> Result<Value, InvokeError> {
        let answer = self.functions.invoke("one", bytes(&what)).await?;
        Ok(serde_json::from_slice(&answer).unwrap())
    }

    async fn process(&self) -> u64 {
        self.ask(json!({"do": "who"})).await.unwrap()["process"].as_u64().unwrap()
    }

    /// Starts a call that hangs; returns it with the id of the process it hangs in.
    async fn hang(&mut self) -> (tokio::task::JoinHandle<Result<Bytes, InvokeError>>, u64) {
        let functions = self.functions.clone();
        let call =
            tokio::spawn(
                async move { functions.invoke("one", bytes(&json!({"do": "hang"}))).await },
            );
        loop {
            let line = self.lines.recv().await.unwrap();
            if let Some(id) = line.strip_prefix("[one] hangs in ") {
                return (call, id.parse().unwrap());
            }
        }
    }
}

/// Where processes wait until they are let go on.
struct Gate(TcpListener);

impl Gate {
    async fn new() -> Self {
        Self(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
    }

    fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Returns the id of the next process that waits. It does so until the rest is dropped.
    async fn next(&self) -> (u64, BufReader<TcpStream>) {
        let mut waiting = BufReader::new(self.0.accept().await.unwrap().0);
        let mut id = String::new();
        waiting.read_line(&mut id).await.unwrap();
        (id.trim().parse().unwrap(), waiting)
    }
}

fn kill(process: u64) {
    let status =
        std::process::Command::new("kill").args(["-9", &process.to_string()]).status().unwrap();
    assert!(status.success());
}

fn exists(process: u64) -> bool {
    std::path::Path::new(&format!("/proc/{process}/cmdline")).exists()
}

/// C4
#[tokio::test]
async fn a_process_answers_call_after_call_with_its_own_keys_and_environment() {
    let mut machine = machine(long(), &[]);
    let who = machine.ask(json!({"do": "who"})).await.unwrap();
    assert_eq!((who["key"].as_str(), who["own"].as_str()), (Some("AKIDONE"), Some("one")));
    assert_eq!(
        (who["endpoint"].as_str(), who["stranger"].as_bool()),
        (Some("http://127.0.0.1:1"), Some(false))
    );
    assert_eq!(who["arn"], "arn:aws:lambda:us-east-1:000000000000:function:sluice-one");
    let now =
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let left = who["deadline"].as_u64().unwrap() - now;
    assert!((30_000..=60_000).contains(&left), "{left}");
    let again = machine.ask(json!({"do": "who"})).await.unwrap();
    assert_eq!(again["process"], who["process"], "an idle process is used again");
    assert_ne!(again["request"], who["request"]);
    assert_eq!(machine.lines.recv().await.unwrap(), "[one] started");
}

/// C4
#[tokio::test]
async fn an_error_of_the_function_fails_the_call_and_keeps_the_process() {
    let machine = machine(long(), &[]);
    let process = machine.process().await;
    match machine.ask(json!({"do": "fail"})).await {
        Err(InvokeError::Failed { message, .. }) => assert_eq!(message, "requested to fail"),
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.process().await, process);
}

/// C4
#[tokio::test]
async fn a_killed_process_fails_its_call_and_the_next_call_has_another() {
    let mut machine = machine(long(), &[]);
    let (call, process) = machine.hang().await;
    kill(process);
    let error = call.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, InvokeError::Died { how, .. } if how.contains("signal: 9")),
        "{error}"
    );
    assert_ne!(machine.process().await, process);
}

/// C4: what a tried death does to a function.
#[tokio::test]
async fn all_processes_of_a_function_are_killed_at_once_and_the_next_call_has_another() {
    let mut machine = machine(long(), &[]);
    let (first, one) = machine.hang().await;
    let (second, two) = machine.hang().await;
    machine.functions.kill("another");
    machine.functions.kill("one");
    for call in [first, second] {
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, InvokeError::Died { how, .. } if how.contains("signal: 9")),
            "{error}"
        );
    }
    let third = machine.process().await;
    assert!(third != one && third != two);
}

/// C4
#[tokio::test]
async fn a_process_killed_while_idle_fails_no_call() {
    let machine = machine(long(), &[]);
    let process = machine.process().await;
    kill(process);
    // The kernel needs a moment until the killed process is gone; a call before that moment may
    // fail, as on AWS.
    while exists(process) && !is_zombie(process) {
        tokio::task::yield_now().await;
    }
    assert_ne!(machine.process().await, process);
}

fn is_zombie(process: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// C4
#[tokio::test]
async fn a_process_that_does_not_answer_in_time_is_killed() {
    let mut machine = machine(limits(Duration::from_millis(300), None), &[]);
    let (call, process) = machine.hang().await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(
        error,
        InvokeError::TimedOut { function: "one".into(), limit: Duration::from_millis(300) }
    );
    assert!(!exists(process) || is_zombie(process));
}

/// C4
#[tokio::test]
async fn calls_at_once_have_processes_of_their_own_up_to_the_reserved_concurrency() {
    let mut machine = machine(limits(Duration::from_secs(60), Some(2)), &[]);
    let (first, one) = machine.hang().await;
    let (second, two) = machine.hang().await;
    assert_ne!(one, two);
    let error = machine.ask(json!({"do": "echo"})).await.unwrap_err();
    assert_eq!(error, InvokeError::Throttled { function: "one".into(), limit: 2 });
    kill(one);
    kill(two);
    assert!(first.await.unwrap().is_err() && second.await.unwrap().is_err());
    assert_eq!(machine.ask(json!({"do": "echo"})).await.unwrap(), json!({"do": "echo"}));
}

/// C4
#[tokio::test]
async fn a_process_that_cannot_start_says_why() {
    let machine = machine(long(), &[("REFUSE_TO_START", "1")]);
    let error = machine.ask(json!({"do": "echo"})).await.unwrap_err();
    assert!(
        matches!(&error, InvokeError::NotStarted { why, .. } if why.contains("exit status: 1")),
        "{error}"
    );
}

/// C4: on a machine so busy that a start takes longer than a call waits.
#[tokio::test]
async fn a_process_that_is_slow_to_start_is_kept_for_the_next_call() {
    let gate = Gate::new().await;
    let address = gate.address();
    let patience = Patience { call: Duration::from_millis(200), calls: u32::MAX };
    let machine = patient_machine(patience, long(), &[("WAITS_AT", address.as_str())]);
    let error = machine.ask(json!({"do": "who"})).await.unwrap_err();
    assert_eq!(error, InvokeError::Starting { function: "one".into(), limit: patience.call });
    let (process, waiting) = gate.next().await;
    assert!(exists(process) && !is_zombie(process), "it was ended");
    drop(waiting);
    let who = loop {
        match machine.ask(json!({"do": "who"})).await {
            // It has been let go on, and asks for work as soon as it comes to that.
            Err(InvokeError::Starting { .. }) => {}
            answer => break answer.unwrap(),
        }
    };
    assert_eq!(who["process"].as_u64(), Some(process));
}

/// C4
#[tokio::test]
async fn a_process_that_never_starts_is_ended_after_some_calls_and_the_next_call_has_another() {
    let gate = Gate::new().await;
    let address = gate.address();
    let patience = Patience { call: Duration::from_millis(200), calls: 2 };
    let machine = patient_machine(patience, long(), &[("WAITS_AT", address.as_str())]);
    let error = machine.ask(json!({"do": "echo"})).await.unwrap_err();
    assert!(matches!(error, InvokeError::Starting { .. }), "{error}");
    let (process, _waiting) = gate.next().await;
    let error = machine.ask(json!({"do": "echo"})).await.unwrap_err();
    assert!(
        matches!(&error, InvokeError::NotStarted { why, .. } if why.contains("was ended")),
        "{error}"
    );
    assert!(!exists(process) || is_zombie(process));
    let error = machine.ask(json!({"do": "echo"})).await.unwrap_err();
    assert!(matches!(error, InvokeError::Starting { .. }), "{error}");
    let (another, _waiting_too) = gate.next().await;
    assert_ne!(another, process);
}

/// C4
#[tokio::test]
async fn payloads_and_answers_over_6_mb_are_refused() {
    let machine = machine(long(), &[]);
    let error = machine
        .functions
        .invoke("one", Bytes::from(vec![b'x'; 6 * 1024 * 1024 + 1]))
        .await
        .unwrap_err();
    assert!(matches!(error, InvokeError::TooLarge { .. }), "{error}");
    let error = machine.ask(json!({"do": "large"})).await.unwrap_err();
    assert!(
        matches!(&error, InvokeError::Failed { kind, .. } if kind == "Function.ResponseSizeTooLarge"),
        "{error}"
    );
}

/// C4
#[tokio::test]
async fn stopping_ends_idle_processes() {
    let machine = machine(long(), &[]);
    let process = machine.process().await;
    machine.functions.stop().await;
    assert!(!exists(process));
    assert!(machine.ask(json!({"do": "echo"})).await.is_err());
}

/// C4
#[tokio::test]
async fn functions_in_this_program_answer_fail_panic_and_run_out_of_time_alike() {
    let functions =
        InProcess::new()
            .with("echo", long(), |payload| async move { Ok(payload) })
            .with("fail", long(), |_| async {
                Err(HandlerError { kind: "Requested".into(), message: "to fail".into() })
            })
            .with("panic", long(), |_| async { panic!("requested to panic") })
            .with("hang", limits(Duration::from_millis(20), None), |_| std::future::pending())
            .with("full", limits(Duration::from_secs(60), Some(0)), |payload| async move {
                Ok(payload)
            });
    let call = |id: &'static str| functions.invoke(id, Bytes::from_static(b"{}"));
    assert_eq!(call("echo").await.unwrap(), Bytes::from_static(b"{}"));
    assert!(
        matches!(call("fail").await, Err(InvokeError::Failed { kind, .. }) if kind == "Requested")
    );
    assert!(matches!(call("panic").await, Err(InvokeError::Died { .. })));
    assert!(matches!(call("hang").await, Err(InvokeError::TimedOut { .. })));
    assert!(matches!(call("full").await, Err(InvokeError::Throttled { limit: 0, .. })));
    assert!(matches!(call("none").await, Err(InvokeError::Unknown { .. })));
}
