//! Runs one function on AWS Lambda; `SLUICE_FUNCTION` selects which one.

use crate::{FunctionEnvironment, FunctionHandler, FunctionName, InvocationError, LambdaProgram};
use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

pub use lambda_runtime::Error;

/// Answers Lambda's invocations with the function that `SLUICE_FUNCTION` names, until Lambda ends
/// the process. `build` returns that function's handler and is called once. Sets up logging in
/// JSON, and a cache directory for this process.
///
/// # Errors
/// When the settings are incomplete, or this program does not have the function.
pub async fn serve(
    program: LambdaProgram,
    build: fn(FunctionName, FunctionEnvironment) -> Result<FunctionHandler, InvocationError>,
) -> Result<(), Error> {
    // CloudWatch adds the time itself and shows no colours.
    tracing_subscriber::fmt()
        .json()
        .without_time()
        .with_env_filter(EnvFilter::from_default_env())
        .init();
    let name = program.function(&std::env::var("SLUICE_FUNCTION").unwrap_or_default())?;
    let environment = FunctionEnvironment::from_environment(own_cache()?).await?;
    let function = build(name, environment)?;
    let function = &function;
    let answer = |event: LambdaEvent<Value>| async move { invoke(function, &event.payload).await };
    lambda_runtime::run(service_fn(answer)).await
}

/// Answers one invocation and returns the response. A failure is logged and returned, so that
/// Lambda reports it and the event may come again.
async fn invoke(function: &FunctionHandler, payload: &Value) -> Result<Box<RawValue>, Error> {
    let bytes = function.answer(payload.to_string().as_bytes()).await.map_err(
        |failure: InvocationError| {
            tracing::warn!(kind = failure.kind, %failure, "the invocation failed");
            failure
        },
    )?;
    Ok(RawValue::from_string(String::from_utf8(bytes)?)?)
}

/// Creates the cache directory of this process, below that for temporary files, and returns it.
/// Deletes those of dead processes; failures of that are only logged.
fn own_cache() -> std::io::Result<PathBuf> {
    let root = std::env::temp_dir().join("sluice-functions");
    std::fs::create_dir_all(&root)?;
    for entry in std::fs::read_dir(&root)?.flatten() {
        let dead =
            entry.file_name().to_str().is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if dead && let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::debug!(%error, "could not delete the cache of another process");
        }
    }
    let own = root.join(std::process::id().to_string());
    std::fs::create_dir_all(&own)?;
    Ok(own)
}
