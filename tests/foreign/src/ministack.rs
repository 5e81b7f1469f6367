//! ministack: DynamoDB, S3, SQS and KMS in Python, MIT licence, from PyPI.

use super::{Foreign, accepts, python_environment, started};
use std::process::Command;

/// Its name and version.
pub const NAME: &str = "ministack-1.5.33";
const PACKAGE: &str = "ministack==1.5.33";

/// Starts it, installed in a virtual environment of its own.
pub async fn start() -> Foreign {
    let program = python_environment(NAME, PACKAGE).join("bin/ministack");
    started(
        NAME,
        |port, data| {
            let mut command = Command::new(&program);
            // By default it listens on every address, and leaves files in the temporary directory.
            command
                .env("BIND_HOST", "127.0.0.1")
                .env("GATEWAY_PORT", port.to_string())
                .env("SERVICES", "dynamodb,s3,sqs,kms")
                .env("TMPDIR", data)
                .env("HOME", data)
                .env("LOG_LEVEL", "WARNING")
                .env_remove("DOCKER_HOST")
                .current_dir(data);
            command
        },
        accepts,
    )
    .await
}
