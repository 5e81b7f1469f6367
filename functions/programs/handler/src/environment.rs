//! The environment of a function: its ports, its credentials, and the public address of the pages.

use aws_config::BehaviorVersion;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_aws::{AwsSettings, SdkConfig};
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::path::PathBuf;
use url::Url;

/// The environment variable with the public address of the pages, ending in `/`.
const WEB_VARIABLE: &str = "SLUICE_WEB";
/// The environment variable with the minutes between two polls of a forge for a project's open
/// changes.
const ASK_VARIABLE: &str = "SLUICE_ASK_MINUTES";

/// What a function needs to run: ports, credentials and settings.
#[derive(Clone)]
pub struct FunctionEnvironment {
    /// The ports, opened with the function's own credentials.
    pub ports: Ports,
    /// The function's credentials, for EC2, which is not behind a port.
    pub credentials: SharedCredentialsProvider,
    /// The AWS region.
    pub region: String,
    /// The AWS endpoint to use instead of Amazon's own.
    pub endpoint: Option<Url>,
    /// The public address of the pages, ending in `/`; `None` when it is not configured.
    pub web_root: Option<String>,
    /// Minutes between two polls of a forge for a project's open changes; `None` when they are not
    /// configured.
    pub ask_minutes: Option<u64>,
    /// The URL of each queue, to find the queue that a message came from.
    pub queue_urls: BTreeMap<sluice_model::wakeup::MessageQueue, String>,
    /// A cache directory, possibly empty at every start.
    pub cache: PathBuf,
}

/// Why the environment of a function is not usable.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A required variable is missing or invalid.
    #[error(transparent)]
    Settings(#[from] sluice_aws::SettingsError),
    /// There are no AWS credentials.
    #[error(
        "could not find AWS credentials: give the function a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Credentials,
    /// The poll interval is not a number from 1 to 60.
    #[error(
        "could not use {text:?} as the poll interval of forges in minutes: set SLUICE_ASK_MINUTES to a number from 1 to 60"
    )]
    AskMinutes {
        /// The value of the variable.
        text: String,
    },
    /// The endpoint is not a URL.
    #[error("could not use the endpoint {endpoint}: it is not a URL; correct AWS_ENDPOINT_URL")]
    Endpoint {
        /// The value of the variable.
        endpoint: String,
    },
}

impl FunctionEnvironment {
    /// Reads the environment of this process, as on AWS, with the usual sources of region and
    /// credentials of the SDK. `cache` is a directory for caches, which is not created here.
    /// Nothing is called to check the settings.
    ///
    /// # Errors
    /// [`EnvironmentError`] names the missing or invalid variable.
    pub async fn from_environment(cache: PathBuf) -> Result<Self, EnvironmentError> {
        let settings = AwsSettings::from_environment()?;
        let sdk_config = aws_config::load_defaults(BehaviorVersion::latest()).await;
        let endpoint = std::env::var("AWS_ENDPOINT_URL").ok().filter(|text| !text.is_empty());
        let environment = Self::with(&sdk_config, settings, endpoint.as_deref(), cache).await?;
        environment.with_variables(|name| std::env::var(name).ok())
    }

    /// Reads an environment from `variables` instead of those of the process. Region, credentials
    /// and the address of the ports come from `sdk_config`; `endpoint` is only the address of EC2.
    /// `cache` is a directory for caches, which is not created here. Nothing is called to check the
    /// settings.
    ///
    /// # Errors
    /// [`EnvironmentError`] names the missing or invalid variable.
    pub async fn from_variables(
        sdk_config: &SdkConfig,
        variables: &BTreeMap<String, String>,
        endpoint: &str,
        cache: PathBuf,
    ) -> Result<Self, EnvironmentError> {
        let settings = AwsSettings::from_variables(|name| variables.get(name).cloned())?;
        let environment = Self::with(sdk_config, settings, Some(endpoint), cache).await?;
        environment.with_variables(|name| variables.get(name).cloned())
    }

    /// Builds an environment from settings, without the web root and poll interval, which
    /// [`Self::with_variables`] sets. `endpoint` replaces Amazon's address for EC2 only. Without a
    /// region in the SDK configuration, the region is `us-east-1`. An error if the SDK
    /// configuration has no credentials, or `endpoint` is no URL.
    async fn with(
        sdk_config: &SdkConfig,
        settings: AwsSettings,
        endpoint: Option<&str>,
        cache: PathBuf,
    ) -> Result<Self, EnvironmentError> {
        let credentials = sdk_config.credentials_provider().ok_or(EnvironmentError::Credentials)?;
        let parse = |text: &str| {
            text.parse().map_err(|_| EnvironmentError::Endpoint { endpoint: text.to_owned() })
        };
        Ok(Self {
            queue_urls: settings.queue_urls.clone(),
            ports: sluice_aws::ports(sdk_config, settings).await,
            credentials,
            region: sdk_config.region().map_or_else(|| "us-east-1".to_owned(), ToString::to_string),
            endpoint: endpoint.map(parse).transpose()?,
            web_root: None,
            ask_minutes: None,
            cache,
        })
    }

    /// Sets the address of the pages and the poll interval from `SLUICE_WEB` and
    /// `SLUICE_ASK_MINUTES`. `variable` returns the value of a variable; an empty one counts as
    /// unset, and its setting is `None`. An error for a poll interval that is no number from 1 to
    /// 60.
    fn with_variables(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, EnvironmentError> {
        let non_empty = |name: &str| variable(name).filter(|text| !text.is_empty());
        self.web_root = non_empty(WEB_VARIABLE);
        if let Some(text) = non_empty(ASK_VARIABLE) {
            self.ask_minutes = text.parse().ok().filter(|minutes| (1..=60).contains(minutes));
            if self.ask_minutes.is_none() {
                return Err(EnvironmentError::AskMinutes { text });
            }
        }
        Ok(self)
    }
}
