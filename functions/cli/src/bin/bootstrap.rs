//! Runs a function of Sluice on AWS Lambda; `SLUICE_FUNCTION` selects which one.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;
use serde_json::value::RawValue;
use sluice_cli::environment::FunctionEnvironment;
use sluice_cli::function::{FunctionHandler, FunctionName, InvocationError};
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // CloudWatch adds the time itself and shows no colours.
    tracing_subscriber::fmt()
        .json()
        .without_time()
        .with_env_filter(EnvFilter::from_default_env())
        .init();
    let name: FunctionName = std::env::var("SLUICE_FUNCTION").unwrap_or_default().parse()?;
    let environment = FunctionEnvironment::from_environment(own_cache()?).await?;
    let function = FunctionHandler::new(name, environment);
    let function = &function;
    let answer = |event: LambdaEvent<Value>| async move { invoke(function, &event.payload).await };
    lambda_runtime::run(service_fn(answer)).await
}

async fn invoke(function: &FunctionHandler, payload: &Value) -> Result<Box<RawValue>, Error> {
    let bytes = function.answer(payload.to_string().as_bytes()).await.map_err(
        |failure: InvocationError| {
            tracing::warn!(kind = failure.kind, %failure, "the invocation failed");
            failure
        },
    )?;
    Ok(RawValue::from_string(String::from_utf8(bytes)?)?)
}

/// Creates this process's cache directory, and deletes those of dead processes.
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
