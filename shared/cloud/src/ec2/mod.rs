//! The driver for Amazon EC2. It signs and sends five calls of the Query API itself.

mod answer;
mod failure;

use crate::driver::{
    CloudDriver, CloudError, CloudImageFilter, ImageFact, Instance, LaunchSpec, TagFilter,
};
use crate::query::{CallFailure, EC2, QueryClient, QueryForm};
use async_trait::async_trait;
use aws_credential_types::provider::SharedCredentialsProvider;
use base64::{Engine, engine::general_purpose::STANDARD};
use sluice_pool::InstanceId;
use std::collections::BTreeMap;
use url::Url;

/// The maximum number of pages of one listing, with 1000 machines each.
const PAGES_MAX: usize = 100;
/// The maximum number of machines in one call to terminate.
const BATCH_MAX: usize = 100;

/// The region and endpoint of EC2, and for whom it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ec2Settings {
    /// The region of calls that name none.
    pub region: String,
    /// An endpoint other than Amazon's, for all regions.
    pub endpoint: Option<Url>,
    /// The connection whose calls these are; errors name it.
    pub connection: String,
    /// The ARN of the role whose credentials are used; errors name it. `None` for none.
    pub role_arn: Option<String>,
}

impl Ec2Settings {
    /// Returns with what a call is made, for its error: the connection, the region and the role.
    /// `region` is that of the call, the settings' own for `None`.
    fn origin_of_call(&self, region: Option<&str>) -> String {
        let region = region.unwrap_or(&self.region);
        let role = self.role_arn.as_ref().map(|arn| format!(", role {arn}")).unwrap_or_default();
        format!("connection {}, region {region}{role}", self.connection)
    }
}

/// The cloud driver for EC2.
#[derive(Debug, Clone)]
pub struct Ec2Driver {
    settings: Ec2Settings,
    client: QueryClient,
}

impl Ec2Driver {
    /// Creates a driver without calling EC2 or checking the credentials. Its calls time out after
    /// 30 seconds, and are not repeated. An error only if no HTTP client can be made.
    pub fn new(
        settings: Ec2Settings,
        credentials: SharedCredentialsProvider,
    ) -> Result<Self, CloudError> {
        let endpoint = settings.endpoint.clone();
        let client = QueryClient::new(EC2, endpoint, credentials).map_err(|why| {
            CloudError::Permanent { attempt: "make an HTTP client".to_owned(), why }
        })?;
        Ok(Self { settings, client })
    }

    /// Sends a call to EC2 in this region, or in the driver's own for `None`.
    async fn call(&self, region: Option<&str>, form: &QueryForm) -> Result<String, CallFailure> {
        self.client.call(region.unwrap_or(&self.settings.region), form).await
    }

    /// Returns the error of a call in a region, which names the connection, the region and the
    /// role.
    fn error(&self, region: Option<&str>, attempt: String, failure: CallFailure) -> CloudError {
        failure.into_error(attempt, &self.settings.origin_of_call(region))
    }

    /// Adds all the tags to each of the machines or images of the driver's own region, by id, in
    /// one call. A tag whose key an object already has is overwritten. Not repeated after an error.
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
        match self.call(None, &form).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.error(None, attempt, failure)),
        }
    }

    /// Terminates machines by one call. If one of them does not exist, EC2 refuses the whole call.
    async fn terminate_some(
        &self,
        region: Option<&str>,
        instances: &[&InstanceId],
    ) -> Result<(), CallFailure> {
        let ids: Vec<String> = instances.iter().map(|id| id.0.clone()).collect();
        let mut form = QueryForm::new("TerminateInstances");
        form.list("InstanceId", &ids);
        self.call(region, &form).await.map(drop)
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
        let region = spec.region.as_deref();
        let launched = self.call(region, &form).await.and_then(|body| {
            let reservation: answer::Reservation = answer::parse(&body)?;
            let missing = || CallFailure::Unanswered("the answer names no machine".to_owned());
            reservation.instances().next().ok_or_else(missing)
        });
        launched.map_err(|failure| self.error(region, attempt(), failure))
    }

    /// Lists machines page by page, at most 100 pages. More pages are an error, as is a failure of
    /// any page, since an incomplete list would make existing machines look gone.
    async fn describe(
        &self,
        region: Option<&str>,
        filter: &TagFilter,
    ) -> Result<Vec<Instance>, CloudError> {
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
            let answered = self.call(region, &form).await;
            let page = answered
                .and_then(|body| answer::parse::<answer::InstancesAnswer>(&body))
                .map_err(|failure| self.error(region, attempt(), failure))?;
            next = page.next_token.clone().filter(|token| !token.is_empty());
            all.extend(page.into_instances());
            if next.is_none() {
                return Ok(all);
            }
        }
        // An incomplete list would make existing machines look gone.
        let failure = CallFailure::Unanswered(format!("the list has more than {PAGES_MAX} pages"));
        Err(self.error(region, attempt(), failure))
    }

    /// Terminates machines in calls of at most 100. If EC2 refuses a call because a machine does
    /// not exist, calls once for each of its machines and ignores those that do not exist. Another
    /// error ends the function, without the later calls; earlier calls have taken effect.
    async fn terminate(
        &self,
        region: Option<&str>,
        instances: &[InstanceId],
    ) -> Result<(), CloudError> {
        let attempt = |ids: &[&InstanceId]| {
            let ids: Vec<&str> = ids.iter().map(|id| id.0.as_str()).collect();
            format!("terminate {}", ids.join(", "))
        };
        let all: Vec<&InstanceId> = instances.iter().collect();
        for batch in all.chunks(BATCH_MAX) {
            match self.terminate_some(region, batch).await {
                Ok(()) => {}
                // One missing machine makes EC2 refuse the whole batch.
                Err(failure) if failure.is_missing_instance() => {
                    for id in batch {
                        match self.terminate_some(region, &[id]).await {
                            Err(failure) if !failure.is_missing_instance() => {
                                return Err(self.error(region, attempt(&[id]), failure));
                            }
                            _ => {}
                        }
                    }
                }
                Err(failure) => return Err(self.error(region, attempt(batch), failure)),
            }
        }
        Ok(())
    }

    /// Lists images of the driver's own region in any state by a single call, newest first and of
    /// the same age by id. Further pages of the answer are not read, so a list may be incomplete.
    async fn images(&self, filter: &CloudImageFilter) -> Result<Vec<ImageFact>, CloudError> {
        let mut form = QueryForm::new("DescribeImages");
        form.list("ImageId", &filter.ids);
        form.list("Owner", &filter.owners);
        if !filter.names.is_empty() {
            form.set("Filter.1.Name", "name");
            form.list("Filter.1.Value", &filter.names);
        }
        let answered = self.call(None, &form).await;
        let mut images = answered
            .and_then(|body| answer::parse::<answer::ImagesAnswer>(&body))
            .map_err(|failure| self.error(None, "list images".to_owned(), failure))?
            .into_images();
        images.sort_by(|one, other| {
            other.created.cmp(&one.created).then_with(|| one.id.cmp(&other.id))
        });
        Ok(images)
    }
}
