//! The ports on AWS: DynamoDB, S3, SQS, KMS, the system's clock and the operating system's
//! randomness; and sessions of roles by STS.
//!
//! [`ports`] makes them from an SDK configuration and [`AwsSettings`]; [`ports_from_environment`]
//! does so from a function's environment. Types of the SDK go no further than that argument: every
//! failure leaves as a [`sluice_runtime::PortError`], every lost race as a value. The SDK retries
//! what it may (three attempts, standard mode); whatever is still unknown after that goes to the
//! caller, whose message is delivered again.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod endpoint;
mod failure;
mod limits;
mod objects;
pub mod provision;
mod queues;
mod records;
pub mod removal;
mod role_sessions;
mod seal;
mod settings;
mod system;

#[cfg(test)]
mod tests;

pub use aws_config::SdkConfig;
pub use role_sessions::{StsSessions, object_storage_address};
pub use settings::{AwsSettings, BucketAddress, GroupsOnStandardQueues, SettingsError};
pub use system::{OsEntropy, SystemClock};

use aws_config::BehaviorVersion;
use sluice_runtime::Ports;
use std::sync::Arc;

/// Returns the ports onto the table, bucket, key and queues that `settings` name. Nothing is sent
/// before the first call of a port. Region, credentials, endpoint and HTTP client come from
/// `sdk_config`; time-outs and retries are this crate's own.
pub async fn ports(sdk_config: &SdkConfig, settings: AwsSettings) -> Ports {
    let entropy = Arc::new(OsEntropy);
    Ports {
        records: Arc::new(records::DynamoRecords::new(sdk_config, &settings)),
        objects: Arc::new(objects::S3Objects::new(sdk_config, &settings)),
        queues: Arc::new(queues::SqsQueues::new(sdk_config, &settings, entropy.clone())),
        clock: Arc::new(SystemClock),
        entropy,
        seal: Arc::new(seal::KmsSeal::new(sdk_config, &settings)),
    }
}

/// Returns the ports that a function's environment names, with the SDK's usual sources of region
/// and credentials. `AWS_ENDPOINT_URL` leads to an emulator.
///
/// # Errors
/// [`SettingsError`] names every variable that is missing.
pub async fn ports_from_environment() -> Result<Ports, SettingsError> {
    let settings = AwsSettings::from_environment()?;
    Ok(ports(&sdk_config_from_environment().await, settings).await)
}

/// Returns the SDK configuration with the SDK's usual sources of region, credentials and endpoint.
pub async fn sdk_config_from_environment() -> SdkConfig {
    aws_config::load_defaults(BehaviorVersion::latest()).await
}
