//! The settings of the ports: names of table, bucket and key, and the URLs of the queues.

use sluice_model::wakeup::MessageQueue;
use std::collections::BTreeMap;

/// How the bucket is named in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BucketAddress {
    /// In the host name, as AWS wants it; in the path when the SDK's configuration has an endpoint
    /// of its own.
    #[default]
    ByEndpoint,
    /// Always in the path.
    Path,
}

/// Whether message groups are sent to standard queues, where they only serve fairness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupsOnStandardQueues {
    /// It is sent, until the endpoint refuses one.
    #[default]
    Sent,
    /// It is left out from the first message on.
    LeftOut,
}

/// The names of the resources behind the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsSettings {
    /// The DynamoDB table.
    pub table: String,
    /// The S3 bucket.
    pub bucket: String,
    /// Id, ARN or alias of the KMS key.
    pub key_id: String,
    /// The URL of each queue. A queue without one answers every call with an error.
    pub queue_urls: BTreeMap<MessageQueue, String>,
    /// How the bucket is named in requests.
    pub bucket_address: BucketAddress,
    /// Whether message groups are sent to standard queues.
    pub groups_on_standard_queues: GroupsOnStandardQueues,
}

/// The environment lacks settings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "could not read the names of table, bucket, key and queues from the environment: {} not set; \
     the stack's template sets all of them",
    list(.missing)
)]
pub struct SettingsError {
    /// The variables that are missing or empty, in the template's order.
    pub missing: Vec<&'static str>,
}

impl AwsSettings {
    /// Reads `SLUICE_TABLE`, `SLUICE_BUCKET`, `SLUICE_KEY` and a `SLUICE_QUEUE_…` for each queue
    /// from the environment; the other settings are the defaults. An error that names all of them
    /// if any is missing or empty.
    ///
    /// # Errors
    /// [`SettingsError`] names every variable that is missing or empty, at once.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the same variables as [`Self::from_environment`] from `variable`, which returns the
    /// value of a variable by its name. An error that names all that are missing or empty if there
    /// is any; the other settings are the defaults.
    ///
    /// # Errors
    /// As [`Self::from_environment`].
    pub fn from_variables(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let mut missing = Vec::new();
        let mut needed = |name: &'static str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.unwrap_or_else(|| {
                missing.push(name);
                String::new()
            })
        };
        let settings = Self {
            table: needed("SLUICE_TABLE"),
            bucket: needed("SLUICE_BUCKET"),
            key_id: needed("SLUICE_KEY"),
            queue_urls: MessageQueue::ALL
                .into_iter()
                .map(|queue| (queue, needed(queue.variable())))
                .collect(),
            bucket_address: BucketAddress::default(),
            groups_on_standard_queues: GroupsOnStandardQueues::default(),
        };
        if missing.is_empty() { Ok(settings) } else { Err(SettingsError { missing }) }
    }
}

/// Returns the names of missing variables, separated by commas, with `is` or `are`.
fn list(missing: &[&'static str]) -> String {
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_variable_is_named_at_once() {
        let error =
            AwsSettings::from_variables(|name| (name == "SLUICE_TABLE").then(|| "t".to_owned()))
                .unwrap_err();
        assert_eq!(error.missing.len(), 2 + MessageQueue::ALL.len());
        let text = error.to_string();
        assert!(text.contains("SLUICE_BUCKET, SLUICE_KEY, SLUICE_QUEUE_EVENTS"));
        assert!(!text.contains("SLUICE_TABLE"));
    }

    #[test]
    fn an_empty_variable_is_a_missing_one() {
        let error = AwsSettings::from_variables(|name| {
            Some(if name == "SLUICE_KEY" { "" } else { "x" }.to_owned())
        })
        .unwrap_err();
        assert_eq!(error.missing, ["SLUICE_KEY"]);
        assert!(error.to_string().contains("SLUICE_KEY is not set"));
    }
}
