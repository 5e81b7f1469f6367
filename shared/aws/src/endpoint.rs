//! Another AWS-compatible endpoint for the data services: one URL for all of them, or another one
//! for a single service.

use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};
use std::collections::BTreeMap;
use std::fmt;

/// What the variables of single services begin with, as the SDK names it.
const URL_VARIABLE: &str = "AWS_ENDPOINT_URL";
/// The same setting in a profile of the SDK.
const URL_SETTING: &str = "endpoint_url";

/// A data service of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataService {
    /// Records.
    DynamoDb,
    /// Objects.
    S3,
    /// Message queues.
    Sqs,
    /// Encryption of secrets.
    Kms,
}

impl DataService {
    /// All data services.
    pub const ALL: [Self; 4] = [Self::DynamoDb, Self::S3, Self::Sqs, Self::Kms];

    /// Returns its name, which is also the SDK's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "DynamoDB",
            Self::S3 => "S3",
            Self::Sqs => "SQS",
            Self::Kms => "KMS",
        }
    }

    /// Returns the standard environment variable with the URL of this service alone.
    #[must_use]
    pub fn url_variable(self) -> &'static str {
        match self {
            Self::DynamoDb => "AWS_ENDPOINT_URL_DYNAMODB",
            Self::S3 => "AWS_ENDPOINT_URL_S3",
            Self::Sqs => "AWS_ENDPOINT_URL_SQS",
            Self::Kms => "AWS_ENDPOINT_URL_KMS",
        }
    }

    /// Returns the name of the service, and its URL if it is not at Amazon's own endpoint, as in
    /// `SQS at http://127.0.0.1:4566`.
    pub(crate) fn place(self, sdk_config: &SdkConfig) -> String {
        match self.own_url(sdk_config) {
            Some(url) => format!("{self} at {url}"),
            None => self.to_string(),
        }
    }

    /// Returns the URL of the service that a configuration sets; `None` for Amazon's own endpoint.
    pub(crate) fn own_url(self, sdk_config: &SdkConfig) -> Option<String> {
        let key = ServiceConfigKey::builder()
            .service_id(self.name())
            .env(URL_VARIABLE)
            .profile(URL_SETTING)
            .build();
        let own = sdk_config.service_config().zip(key.ok());
        let own = own.and_then(|(settings, key)| settings.load_config(key));
        own.or_else(|| sdk_config.endpoint_url().map(str::to_owned))
    }
}

impl fmt::Display for DataService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The URLs of the data services at another endpoint than Amazon's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataEndpoint {
    url: String,
    of_services: BTreeMap<DataService, String>,
}

impl DataEndpoint {
    /// Returns the endpoint `url` for all data services but those whose own variable
    /// ([`DataService::url_variable`]) is set. `variable` returns the value of a variable by its
    /// name; an empty one counts as unset. URLs are not checked.
    #[must_use]
    pub fn from_variables(
        url: impl Into<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let own = |service: DataService| {
            let url = variable(service.url_variable()).filter(|url| !url.is_empty())?;
            Some((service, url))
        };
        let of_services = DataService::ALL.into_iter().filter_map(own).collect();
        Self { url: url.into(), of_services }
    }

    /// Returns the endpoint that [`Self::variables`] describes. `None` if `AWS_ENDPOINT_URL` is
    /// missing or empty.
    #[must_use]
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let url = variable(URL_VARIABLE).filter(|url| !url.is_empty())?;
        Some(Self::from_variables(url, variable))
    }

    /// Returns the URL of the services that have none of their own.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL of one service.
    #[must_use]
    pub fn url_of(&self, service: DataService) -> &str {
        self.of_services.get(&service).unwrap_or(&self.url)
    }

    /// Returns the environment variables that lead the SDK to this endpoint.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, String> {
        let own = self.of_services.iter();
        let own = own.map(|(service, url)| (service.url_variable().to_owned(), url.clone()));
        own.chain([(URL_VARIABLE.to_owned(), self.url.clone())]).collect()
    }

    /// Returns the SDK configuration for this endpoint. Region and credentials come from `base`, or
    /// else from the SDK's usual sources, which may need calls; its endpoint is replaced.
    pub async fn sdk_config(&self, base: ConfigLoader) -> SdkConfig {
        // Set after loading: a URL that is set before would win over those of single services.
        let builder = base.load().await.into_builder();
        builder.endpoint_url(&self.url).service_config(self.clone()).build()
    }

    /// Returns a configuration with the SDK's usual sources of region and credentials.
    #[must_use]
    pub fn usual_sources() -> ConfigLoader {
        aws_config::defaults(BehaviorVersion::latest())
    }
}

impl LoadServiceConfig for DataEndpoint {
    /// Returns the URL of a service that has one of its own; `None` for others, and for every other
    /// setting.
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        let is_asked = |service: &DataService| service.name() == key.service_id();
        let service = DataService::ALL.into_iter().find(is_asked)?;
        (key.env() == URL_VARIABLE).then(|| self.of_services.get(&service).cloned()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_config::Region;
    use aws_credential_types::Credentials;

    fn endpoint() -> DataEndpoint {
        DataEndpoint::from_variables("http://all", |name| match name {
            "AWS_ENDPOINT_URL_SQS" => Some("http://queues".to_owned()),
            "AWS_ENDPOINT_URL_S3" => Some(String::new()),
            _ => None,
        })
    }

    /// C4
    #[tokio::test]
    async fn one_service_may_be_at_another_url_than_the_others() {
        let keys = Credentials::new("key", "secret", None, None, "tests");
        let base = DataEndpoint::usual_sources()
            .empty_test_environment()
            .region(Region::new("us-east-1"))
            .credentials_provider(keys);
        let sdk_config = endpoint().sdk_config(base).await;
        let places = DataService::ALL.map(|service| service.place(&sdk_config));
        assert_eq!(
            places,
            [
                "DynamoDB at http://all",
                "S3 at http://all",
                "SQS at http://queues",
                "KMS at http://all"
            ]
        );
        assert_eq!(endpoint().url_of(DataService::Sqs), "http://queues");
        assert_eq!(endpoint().url_of(DataService::S3), "http://all");
    }

    /// C4
    #[test]
    fn the_variables_of_an_endpoint_lead_to_it() {
        let variables = endpoint().variables();
        assert_eq!(DataEndpoint::read(|name| variables.get(name).cloned()), Some(endpoint()));
        assert_eq!(DataEndpoint::read(|_| None), None);
    }
}
