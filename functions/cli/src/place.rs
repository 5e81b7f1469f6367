//! Where a function stands: its ports, its credentials, its address for people.

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_aws::{AwsSettings, SdkConfig};
use sluice_emulator::machine::Equipment;
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::path::PathBuf;
use url::Url;

/// The variable with the address of the pages, ending in `/`.
pub const WEB_VARIABLE: &str = "SLUICE_WEB";
/// The variable with the minutes between two questions to a forge about a project's open changes.
const ASK_VARIABLE: &str = "SLUICE_ASK_MINUTES";

/// Everything a function is given.
#[derive(Clone)]
pub struct Place {
    /// The ports, opened with the function's own credentials.
    pub ports: Ports,
    /// Those credentials, for what is not behind a port (EC2).
    pub credentials: SharedCredentialsProvider,
    /// The region.
    pub region: String,
    /// Another endpoint than Amazon's.
    pub endpoint: Option<Url>,
    /// Where people find the pages, ending in `/`; `None` when nothing says.
    pub web_root: Option<String>,
    /// Minutes between two questions to a forge about a project's open changes.
    pub ask_minutes: u64,
    /// The URLs of the queues, for telling which one a message came from.
    pub queue_urls: BTreeMap<sluice_model::poke::Queue, String>,
    /// A directory that may be empty at every start.
    pub cache: PathBuf,
}

/// Why a function has no place to stand.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The environment lacks something.
    #[error(transparent)]
    Settings(#[from] sluice_aws::SettingsError),
    /// There are no credentials at all.
    #[error(
        "could not find AWS credentials: give the function a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Credentials,
    /// The minutes between two questions are none.
    #[error(
        "could not use {text:?} as the minutes between two questions to a forge: set SLUICE_ASK_MINUTES to a number from 1 to 60"
    )]
    AskMinutes {
        /// What was given.
        text: String,
    },
    /// The endpoint is not an address.
    #[error("could not use the endpoint {endpoint}: it is not a URL; correct AWS_ENDPOINT_URL")]
    Endpoint {
        /// What was given.
        endpoint: String,
    },
}

impl Place {
    /// Returns the place that the process's environment describes, as on AWS.
    ///
    /// # Errors
    /// [`PlaceError`] names what the environment lacks.
    pub async fn from_environment(cache: PathBuf) -> Result<Self, PlaceError> {
        let settings = AwsSettings::from_environment()?;
        let sdk_config = aws_config::load_defaults(BehaviorVersion::latest()).await;
        let endpoint = std::env::var("AWS_ENDPOINT_URL").ok().filter(|text| !text.is_empty());
        let place = Self::with(&sdk_config, settings, endpoint.as_deref(), cache).await?;
        place.told(|name| std::env::var(name).ok())
    }

    /// Returns the place of a function that runs inside this program beside the emulator.
    ///
    /// # Errors
    /// [`PlaceError`] names what the template's environment lacks.
    pub async fn beside(equipment: &Equipment, cache: PathBuf) -> Result<Self, PlaceError> {
        Self::of(&sdk_config(equipment), &equipment.environment, &equipment.endpoint, cache).await
    }

    /// Returns the place that an environment describes, reached with an SDK configuration of its
    /// own.
    ///
    /// # Errors
    /// [`PlaceError`] names what the environment lacks.
    pub async fn of(
        sdk_config: &SdkConfig,
        environment: &BTreeMap<String, String>,
        endpoint: &str,
        cache: PathBuf,
    ) -> Result<Self, PlaceError> {
        let settings = AwsSettings::from_variables(|name| environment.get(name).cloned())?;
        let place = Self::with(sdk_config, settings, Some(endpoint), cache).await?;
        place.told(|name| environment.get(name).cloned())
    }

    async fn with(
        sdk_config: &SdkConfig,
        settings: AwsSettings,
        endpoint: Option<&str>,
        cache: PathBuf,
    ) -> Result<Self, PlaceError> {
        let credentials = sdk_config.credentials_provider().ok_or(PlaceError::Credentials)?;
        let parse = |text: &str| {
            text.parse().map_err(|_| PlaceError::Endpoint { endpoint: text.to_owned() })
        };
        Ok(Self {
            queue_urls: settings.queue_urls.clone(),
            ports: sluice_aws::ports(sdk_config, settings).await,
            credentials,
            region: sdk_config.region().map_or_else(|| "us-east-1".to_owned(), ToString::to_string),
            endpoint: endpoint.map(parse).transpose()?,
            web_root: None,
            ask_minutes: sluice_timer::ASK_MINUTES,
            cache,
        })
    }

    /// Takes what only the environment's own variables say.
    fn told(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, PlaceError> {
        let said = |name: &str| variable(name).filter(|text| !text.is_empty());
        self.web_root = said(WEB_VARIABLE);
        if let Some(text) = said(ASK_VARIABLE) {
            let minutes = text.parse().ok().filter(|minutes| (1..=60).contains(minutes));
            self.ask_minutes = minutes.ok_or(PlaceError::AskMinutes { text })?;
        }
        Ok(self)
    }
}

/// Returns the SDK's configuration of somebody who runs inside this program; calls go to the
/// emulator without a socket.
fn sdk_config(equipment: &Equipment) -> SdkConfig {
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
