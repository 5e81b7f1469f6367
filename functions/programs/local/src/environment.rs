//! The environment of functions and the executor inside this process, next to the emulator.

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_aws::SdkConfig;
use sluice_emulator::machine::Equipment;
use sluice_handler::FunctionEnvironment;
use sluice_handler::environment::EnvironmentError;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Returns the environment of a function, the executor or the operator inside this process, with
/// its own credentials and variables. Its calls go to the emulator without a socket. `cache` is its
/// cache directory, which is not created.
///
/// # Errors
/// [`EnvironmentError`] names the missing or invalid variable of the template.
pub(crate) async fn in_process(
    equipment: &Equipment,
    cache: PathBuf,
) -> Result<FunctionEnvironment, EnvironmentError> {
    FunctionEnvironment::from_variables(
        &sdk_config(equipment),
        &equipment.environment,
        &equipment.endpoint,
        cache,
    )
    .await
}

/// Returns the SDK configuration of a caller inside this process, with its own credentials. Its
/// calls go to the emulator without a socket. Missing keys are empty.
pub(crate) fn sdk_config(equipment: &Equipment) -> SdkConfig {
    let keys: BTreeMap<_, _> = equipment.credentials.environment().into_iter().collect();
    let key = |name: &str| keys.get(name).cloned().unwrap_or_default();
    let credentials = Credentials::new(
        key("AWS_ACCESS_KEY_ID"),
        key("AWS_SECRET_ACCESS_KEY"),
        Some(key("AWS_SESSION_TOKEN")),
        None,
        "emulator",
    );
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(equipment.region.clone()))
        .endpoint_url(&equipment.endpoint)
        .http_client(equipment.client.clone())
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}
