//! One process of a function: started with the function's environment and keys, given one call at a
//! time, and killed on a timeout.

use super::processes::ProcessSettings;
use super::runtime_api::{Answer, Call, CallContext, RuntimeApi, lock};
use super::{InvokeError, Limits};
use crate::data::auth::SecretAccessKey;
use crate::life::Life;
use bytes::Bytes;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

/// The time limit of AWS for the start of a process. AWS restarts a slower process once, within the
/// time limit of the call, so a call waits for both starts.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The number of calls that wait in vain for a starting process before it is killed.
const WAITS_MAX: u32 = 10;

/// The maximum length of one printed piece of a line, in bytes.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// The AWS credentials of a function or the executor. `Debug` does not show them.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Names the key.
    pub access_key_id: String,
    /// Signs with it.
    pub secret_access_key: SecretAccessKey,
    /// Goes with it, as with a role's keys on AWS.
    pub session_token: SecretAccessKey,
}

impl Credentials {
    /// Returns the environment variables (name and value) from which an AWS SDK reads these
    /// credentials. They are for one process and must not be printed.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("AWS_ACCESS_KEY_ID", self.access_key_id.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_access_key.expose().to_owned()),
            ("AWS_SESSION_TOKEN", self.session_token.expose().to_owned()),
        ]
    }
}

/// Takes each line that a process prints, with the function's id.
pub type Print = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Returns a [`Print`] that writes `[function] line` to the machine's own standard error.
#[must_use]
pub fn to_stderr() -> Print {
    Arc::new(|function, line| eprintln!("[{function}] {line}"))
}

/// The time limit for a process to start. A slow process is not replaced at each call; otherwise
/// none would ever be ready on a slow machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long one call waits for it.
    pub(super) call: Duration,
    /// How many calls wait for it in vain, one after another, until it is ended.
    pub(super) calls: u32,
}

impl Patience {
    /// Returns the default time that processes of a function with these limits have to start: a
    /// call waits ten seconds and the function's time limit, and ten calls in vain end the process.
    pub(super) fn of(limits: &Limits) -> Self {
        Self { call: START_LIMIT + limits.timeout, calls: WAITS_MAX }
    }
}

/// A process that starts, waits for work or does some.
pub(super) struct Worker {
    function: String,
    child: Child,
    life: Arc<Life>,
    api: RuntimeApi,
    patience: Patience,
    /// Calls that waited in vain for it to start.
    waits: u32,
}

impl Worker {
    /// Starts a process of a function with a Runtime API server of its own; `print` gets its output
    /// line by line. The process gets its settings and credentials, and of this process's
    /// environment only `PATH`, `HOME` and `TMPDIR`. Does not wait until it requests work; it is
    /// killed if the worker is dropped.
    pub(super) async fn start(
        settings: &ProcessSettings,
        print: &Print,
        patience: Patience,
    ) -> Result<Self, InvokeError> {
        let function = settings.id.clone();
        let failed = |why: String| InvokeError::NotStarted { function: function.clone(), why };
        let context =
            CallContext { function_arn: settings.arn.clone(), timeout: settings.limits.timeout };
        let api = RuntimeApi::start(context).await.map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(&settings.binary);
        command
            .env_clear()
            .envs(
                std::env::vars_os()
                    .filter(|(name, _)| name == "PATH" || name == "HOME" || name == "TMPDIR"),
            )
            .envs(&settings.environment)
            .envs(settings.credentials.environment())
            .env("AWS_REGION", &settings.region)
            .env("AWS_DEFAULT_REGION", &settings.region)
            .env("AWS_ENDPOINT_URL", &settings.endpoint)
            .env("AWS_LAMBDA_RUNTIME_API", api.address.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", &settings.name)
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", settings.memory_mb.to_string())
            .env("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{}", settings.name))
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "local")
            .env("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
            .env("AWS_EXECUTION_ENV", "AWS_Lambda_provided.al2023")
            .env("_HANDLER", "bootstrap")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", settings.binary.display())))?;
        let life = Arc::new(Life::of(child.id()).map_err(|error| failed(error.to_string()))?);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(print_lines(stdout, function.clone(), print.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(print_lines(stderr, function.clone(), print.clone()));
        }
        Ok(Self { function, child, life, api, patience, waits: 0 })
    }

    /// Returns the handle with which the process can be killed from elsewhere.
    pub(super) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// Returns whether the process still runs.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns whether the process has requested work at least once.
    pub(super) fn has_started(&self) -> bool {
        *self.api.asked.borrow()
    }

    /// Waits until the process has started, as [`Self::wait_for_start`]; then passes one call to it
    /// and waits for the response, at most `limit` from when the process has taken the call. A
    /// process that does not take the call within `limit` and ten seconds is killed. After a
    /// response or `Failed` the process can take the next call. After `Starting` it has not
    /// received the call and keeps starting. After any other error it has ended or must not be used
    /// again.
    pub(super) async fn run(
        &mut self,
        request_id: String,
        payload: Bytes,
        limit: Duration,
    ) -> Result<Bytes, InvokeError> {
        self.wait_for_start().await?;
        let (taken, when_taken) = oneshot::channel();
        let (answer, when_answered) = oneshot::channel();
        let call = Call { request_id, payload, taken, answer };
        if self.api.calls.send(call).await.is_err() {
            return Err(self.died("its Runtime API ended"));
        }
        // The time limit runs from when the process has the call, as on AWS: starting is not the
        // call's time.
        let at_most = START_LIMIT + limit;
        let took = tokio::select! {
            taken = when_taken => taken.is_ok(),
            status = self.child.wait() => return Err(self.not_started(&described(status))),
            () = tokio::time::sleep(at_most) => false,
        };
        if !took {
            self.kill().await;
            return Err(self.not_started(&format!("it did not ask for work within {at_most:?}")));
        }
        tokio::select! {
            // An answer that came before the end of the process counts.
            biased;
            answer = when_answered => match answer {
                Ok(Answer::Done(bytes)) => Ok(bytes),
                Ok(Answer::Failed { kind, message }) => {
                    Err(InvokeError::Failed { function: self.function.clone(), kind, message })
                }
                Err(_) => Err(self.died("it asked for the next call without an answer to this one")),
            },
            status = self.child.wait() => Err(self.died(&described(status))),
            () = tokio::time::sleep(limit) => {
                self.kill().await;
                Err(InvokeError::TimedOut { function: self.function.clone(), limit })
            }
        }
    }

    /// Waits until the process requests work for the first time, at most for `patience.call`;
    /// returns at once if it has done so before. If it does not in time, returns `Starting`, and
    /// the process goes on starting. The last of the `patience.calls` calls that wait in vain kills
    /// the process and returns `NotStarted` instead. `NotStarted` also if the process ends. The
    /// process has no call yet, so giving up loses none.
    async fn wait_for_start(&mut self) -> Result<(), InvokeError> {
        let limit = self.patience.call;
        tokio::select! {
            // A process that requested work has started, even if this is checked late.
            biased;
            has = has_asked(&mut self.api.asked) => {
                return if has { Ok(()) } else { Err(self.died("its Runtime API ended")) };
            }
            status = self.child.wait() => return Err(self.not_started(&described(status))),
            () = tokio::time::sleep(limit) => {}
        }
        self.waits += 1;
        if self.waits < self.patience.calls {
            return Err(InvokeError::Starting { function: self.function.clone(), limit });
        }
        self.kill().await;
        let how = format!(
            "{} calls waited for it to ask for work, each for {limit:?}, and it was ended",
            self.waits
        );
        Err(self.not_started(&how))
    }

    /// Kills the process and waits until it has ended; a failure is only logged.
    pub(super) async fn kill(&mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(function = %self.function, %error, "could not end a process");
        }
    }

    /// Returns the error for a process that ended during a call.
    fn died(&self, how: &str) -> InvokeError {
        InvokeError::Died { function: self.function.clone(), how: how.to_owned() }
    }

    /// Returns the error for a process that did not start, with the failure that it reported
    /// itself, which is thereby consumed, or else `how`.
    fn not_started(&self, how: &str) -> InvokeError {
        let why = lock(&self.api.start_failure).take().unwrap_or_else(|| how.to_owned());
        InvokeError::NotStarted { function: self.function.clone(), why }
    }
}

/// Waits until a process requests work, and returns true, at once if it has done so before. Returns
/// false if its Runtime API has ended.
async fn has_asked(asked: &mut watch::Receiver<bool>) -> bool {
    asked.wait_for(|has| *has).await.is_ok()
}

/// Returns how a process ended as a text, or why that is unknown.
fn described(status: std::io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

/// Passes each line of a process's output to `print`, without white space at its end, until the
/// output ends; a line over 16 KiB is passed in pieces. `function` is the id that `print` gets with
/// each line.
async fn print_lines(mut from: impl AsyncRead + Unpin, function: String, print: Print) {
    let mut held: Vec<u8> = Vec::new();
    let mut chunk = [0_u8; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        held.extend_from_slice(chunk.get(..count).unwrap_or_default());
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            print(&function, String::from_utf8_lossy(&line).trim_end());
        }
        if held.len() > LINE_BYTES_MAX {
            print(&function, &String::from_utf8_lossy(&std::mem::take(&mut held)));
        }
    }
    if !held.is_empty() {
        print(&function, &String::from_utf8_lossy(&held));
    }
}
