//! The driver for Amazon EC2. It signs and sends five calls of the Query API itself.

mod answer;
mod call;

use crate::driver::{
    CloudDriver, CloudError, CloudImageFilter, ImageFact, Instance, LaunchSpec, TagFilter,
};
use async_trait::async_trait;
use aws_credential_types::provider::SharedCredentialsProvider;
use base64::{Engine, engine::general_purpose::STANDARD};
use call::{CallFailure, QueryForm};
use sluice_pool::InstanceId;
use std::collections::BTreeMap;
use std::time::Duration;
use url::Url;

/// The maximum number of pages of one listing, with 1000 machines each.
const PAGES_MAX: usize = 100;
/// The maximum number of machines in one call to terminate.
const BATCH_MAX: usize = 100;

/// The region and endpoint of EC2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ec2Settings {
    /// The region.
    pub region: String,
    /// An endpoint other than Amazon's.
    pub endpoint: Option<Url>,
}

impl Ec2Settings {
    /// Returns the settings of a region. The environment variable `AWS_ENDPOINT_URL_EC2`, or else
    /// `AWS_ENDPOINT_URL`, sets another endpoint than Amazon's; an empty one counts as unset. An
    /// invalid URL is an error.
    pub fn from_environment(region: impl Into<String>) -> Result<Self, CloudError> {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = read("AWS_ENDPOINT_URL_EC2").or_else(|| read("AWS_ENDPOINT_URL"));
        let endpoint = endpoint.map(|text| {
            text.parse().map_err(|error| CloudError::Permanent {
                attempt: format!("use the EC2 endpoint {text}"),
                why: format!("AWS_ENDPOINT_URL_EC2 or AWS_ENDPOINT_URL is not a URL: {error}"),
            })
        });
        Ok(Self { region: region.into(), endpoint: endpoint.transpose()? })
    }
}

/// The cloud driver for EC2.
#[derive(Debug, Clone)]
pub struct Ec2Driver {
    settings: Ec2Settings,
    credentials: SharedCredentialsProvider,
    http: reqwest::Client,
}

impl Ec2Driver {
    /// Creates a driver without calling EC2 or checking the credentials. Its calls time out after
    /// 30 seconds, and are not repeated. An error only if no HTTP client can be made.
    pub fn new(
        settings: Ec2Settings,
        credentials: SharedCredentialsProvider,
    ) -> Result<Self, CloudError> {
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| CloudError::Permanent {
                attempt: "make an HTTP client".to_owned(),
                why: error.to_string(),
            })?;
        Ok(Self { settings, credentials, http })
    }

    /// Adds all the tags to each of the machines or images, by id, in one call. A tag whose key an
    /// object already has is overwritten. Not repeated after an error.
    pub async fn create_tags(
        &self,
        ids: &[String],
        tags: &BTreeMap<String, String>,
    ) -> Result<(), CloudError> {
        let mut form = QueryForm::new("CreateTags");
        form.list("ResourceId", ids);
        for (number, (key, value)) in tags.iter().enumerate() {
            form.set(format!("Tag.{}.Key", number + 1), key);
            form.set(format!("Tag.{}.Value", number + 1), value);
        }
        let attempt = format!("tag {}", ids.join(", "));
        self.call(&form).await.map_err(|failure| failure.into_error(attempt)).map(drop)
    }

    /// Terminates machines by one call. If one of them does not exist, EC2 refuses the whole call.
    async fn terminate_some(&self, instances: &[&InstanceId]) -> Result<(), CallFailure> {
        let ids: Vec<String> = instances.iter().map(|id| id.0.clone()).collect();
        let mut form = QueryForm::new("TerminateInstances");
        form.list("InstanceId", &ids);
        self.call(&form).await.map(drop)
    }
}

#[async_trait]
impl CloudDriver for Ec2Driver {
    /// Launches one machine by RunInstances, or returns the one that the same token launched
    /// before. The machine terminates when it shuts itself down. An answer without a machine is an
    /// unknown outcome.
    async fn launch(&self, spec: &LaunchSpec) -> Result<Instance, CloudError> {
        let attempt = || format!("launch image {} as {}", spec.image_id, spec.instance_type);
        let mut form = QueryForm::new("RunInstances");
        form.set("ClientToken", &spec.client_token);
        form.set("ImageId", &spec.image_id);
        form.set("InstanceType", &spec.instance_type);
        form.set("MinCount", "1");
        form.set("MaxCount", "1");
        form.set("InstanceInitiatedShutdownBehavior", "terminate");
        form.set("UserData", STANDARD.encode(&spec.user_data));
        if let Some(az) = &spec.az {
            form.set("Placement.AvailabilityZone", az);
        }
        if let Some(subnet) = &spec.subnet {
            form.set("SubnetId", subnet);
        }
        form.list("SecurityGroupId", &spec.security_groups);
        form.set("TagSpecification.1.ResourceType", "instance");
        for (number, (key, value)) in spec.tags.iter().enumerate() {
            form.set(format!("TagSpecification.1.Tag.{}.Key", number + 1), key);
            form.set(format!("TagSpecification.1.Tag.{}.Value", number + 1), value);
        }
        let body = self.call(&form).await.map_err(|failure| failure.into_error(attempt()))?;
        let reservation: answer::Reservation = answer::parse(&body, attempt())?;
        reservation.instances().next().ok_or_else(|| CloudError::Unknown {
            attempt: attempt(),
            why: "the answer names no machine".to_owned(),
        })
    }

    /// Lists machines page by page, at most 100 pages. More pages are an error, as is a failure of
    /// any page, since an incomplete list would make existing machines look gone.
    async fn describe(&self, filter: &TagFilter) -> Result<Vec<Instance>, CloudError> {
        let attempt = || format!("list machines with tag {}={}", filter.key, filter.value);
        let (mut all, mut next) = (Vec::new(), None::<String>);
        for _ in 0..PAGES_MAX {
            let mut form = QueryForm::new("DescribeInstances");
            form.set("MaxResults", "1000");
            form.set("Filter.1.Name", format!("tag:{}", filter.key));
            form.set("Filter.1.Value.1", &filter.value);
            if let Some(token) = &next {
                form.set("NextToken", token);
            }
            let body = self.call(&form).await.map_err(|failure| failure.into_error(attempt()))?;
            let page: answer::InstancesAnswer = answer::parse(&body, attempt())?;
            next = page.next_token.clone().filter(|token| !token.is_empty());
            all.extend(page.into_instances());
            if next.is_none() {
                return Ok(all);
            }
        }
        // An incomplete list would make existing machines look gone.
        Err(CloudError::Unknown {
            attempt: attempt(),
            why: format!("the list has more than {PAGES_MAX} pages"),
        })
    }

    /// Terminates machines in calls of at most 100. If EC2 refuses a call because a machine does
    /// not exist, calls once for each of its machines and ignores those that do not exist. Another
    /// error ends the function, without the later calls; earlier calls have taken effect.
    async fn terminate(&self, instances: &[InstanceId]) -> Result<(), CloudError> {
        let attempt = |ids: &[&InstanceId]| {
            let ids: Vec<&str> = ids.iter().map(|id| id.0.as_str()).collect();
            format!("terminate {}", ids.join(", "))
        };
        let all: Vec<&InstanceId> = instances.iter().collect();
        for batch in all.chunks(BATCH_MAX) {
            match self.terminate_some(batch).await {
                Ok(()) => {}
                // One missing machine makes EC2 refuse the whole batch.
                Err(failure) if failure.is_missing_instance() => {
                    for id in batch {
                        match self.terminate_some(&[id]).await {
                            Err(failure) if !failure.is_missing_instance() => {
                                return Err(failure.into_error(attempt(&[id])));
                            }
                            _ => {}
                        }
                    }
                }
                Err(failure) => return Err(failure.into_error(attempt(batch))),
            }
        }
        Ok(())
    }

    /// Lists images in any state by a single call, newest first and of the same age by id. Further
    /// pages of the answer are not read, so a list may be incomplete.
    async fn images(&self, filter: &CloudImageFilter) -> Result<Vec<ImageFact>, CloudError> {
        let attempt = || "list images".to_owned();
        let mut form = QueryForm::new("DescribeImages");
        form.list("ImageId", &filter.ids);
        form.list("Owner", &filter.owners);
        if !filter.names.is_empty() {
            form.set("Filter.1.Name", "name");
            form.list("Filter.1.Value", &filter.names);
        }
        let body = self.call(&form).await.map_err(|failure| failure.into_error(attempt()))?;
        let mut images = answer::parse::<answer::ImagesAnswer>(&body, attempt())?.into_images();
        images.sort_by(|one, other| {
            other.created.cmp(&one.created).then_with(|| one.id.cmp(&other.id))
        });
        Ok(images)
    }
}
