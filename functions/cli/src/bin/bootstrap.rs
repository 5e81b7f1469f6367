//! Every function of Sluice for AWS Lambda; `SLUICE_FUNCTION` says which one this process is.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;
use serde_json::value::RawValue;
use sluice_cli::function::{Failure, Function, Name};
use sluice_cli::place::Place;
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // CloudWatch writes the time itself and knows no colours.
    tracing_subscriber::fmt()
        .json()
        .without_time()
        .with_env_filter(EnvFilter::from_default_env())
        .init();
    let name: Name = std::env::var("SLUICE_FUNCTION").unwrap_or_default().parse()?;
    let place = Place::from_environment(own_cache()?).await?;
    let function = Function::new(name, place);
    let function = &function;
    let answer = |event: LambdaEvent<Value>| async move { call(function, &event.payload).await };
    lambda_runtime::run(service_fn(answer)).await
}

async fn call(function: &Function, payload: &Value) -> Result<Box<RawValue>, Error> {
    let bytes =
        function.answer(payload.to_string().as_bytes()).await.map_err(|failure: Failure| {
            tracing::warn!(kind = failure.kind, %failure, "a call failed");
            failure
        })?;
    Ok(RawValue::from_string(String::from_utf8(bytes)?)?)
}

/// Makes a directory of this process's own, and removes those that dead processes left.
fn own_cache() -> std::io::Result<PathBuf> {
    let root = std::env::temp_dir().join("sluice-functions");
    std::fs::create_dir_all(&root)?;
    for entry in std::fs::read_dir(&root)?.flatten() {
        let dead =
            entry.file_name().to_str().is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if dead && let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::debug!(%error, "what another process left could not be removed");
        }
    }
    let own = root.join(std::process::id().to_string());
    std::fs::create_dir_all(&own)?;
    Ok(own)
}
