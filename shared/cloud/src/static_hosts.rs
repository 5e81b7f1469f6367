//! Real hardware behind the drivers' interface: always there, never made and never deleted (Z1.10).

use crate::driver::{CloudError, Driver, ImageFact, ImageFilter, Instance, LaunchSpec, TagFilter};
use async_trait::async_trait;
use sluice_model::Timestamp;
use sluice_pool::{InstanceId, InstanceState, StaticHost};
use std::collections::BTreeMap;

/// A list of hosts.
#[derive(Debug, Clone)]
pub struct StaticDriver {
    hosts: Vec<StaticHost>,
}

impl StaticDriver {
    /// Returns the driver of these hosts.
    pub fn new(hosts: Vec<StaticHost>) -> Self {
        Self { hosts }
    }
}

fn instance(host: &StaticHost) -> Instance {
    Instance {
        id: InstanceId(host.name.clone()),
        state: InstanceState::Running,
        private_ip: Some(host.address.clone()),
        public_ip: None,
        ipv6: None,
        az: None,
        tags: BTreeMap::from([(crate::tags::SSH_PORT.to_owned(), host.ssh_port.to_string())]),
        launched_at: Timestamp(0),
    }
}

#[async_trait]
impl Driver for StaticDriver {
    /// Returns the host whose name stands in the place of the image.
    async fn launch(&self, spec: &LaunchSpec) -> Result<Instance, CloudError> {
        self.hosts.iter().find(|host| host.name == spec.image_id).map(instance).ok_or_else(|| {
            CloudError::Permanent {
                attempt: format!("borrow static host {}", spec.image_id),
                why: "no such host is configured".to_owned(),
            }
        })
    }

    /// Returns every host; tags do not restrict, since hosts bear none.
    async fn describe(&self, _: &TagFilter) -> Result<Vec<Instance>, CloudError> {
        Ok(self.hosts.iter().map(instance).collect())
    }

    /// Does nothing: what deletes a machine only frees a static host.
    async fn terminate(&self, _: &[InstanceId]) -> Result<(), CloudError> {
        Ok(())
    }

    /// Returns nothing: hosts are not made from images.
    async fn images(&self, _: &ImageFilter) -> Result<Vec<ImageFact>, CloudError> {
        Ok(Vec::new())
    }
}
