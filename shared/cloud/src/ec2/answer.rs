//! The parts of EC2's XML answers that Sluice reads.

use crate::driver::{ImageFact, Instance};
use crate::query::CallFailure;
use serde::{Deserialize, de::DeserializeOwned};
use sluice_model::Timestamp;
use sluice_pool::{InstanceId, InstanceState};
use std::collections::BTreeMap;

/// Parses the XML of an answer. If it cannot be parsed, the call counts as unanswered: its outcome
/// is unknown.
pub(super) fn parse<T: DeserializeOwned>(body: &str) -> Result<T, CallFailure> {
    quick_xml::de::from_str(body)
        .map_err(|error| CallFailure::Unanswered(format!("the answer cannot be read: {error}")))
}

/// A list in EC2's XML form, with an `<item>` for each element.
#[derive(Deserialize)]
pub(super) struct ItemSet<T> {
    #[serde(rename = "item", default = "Vec::new")]
    items: Vec<T>,
}

impl<T> Default for ItemSet<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

/// The answer of RunInstances, and an item of DescribeInstances.
#[derive(Deserialize)]
pub(super) struct Reservation {
    #[serde(rename = "instancesSet", default)]
    instances: ItemSet<InstanceItem>,
}

impl Reservation {
    /// Returns the machines of the reservation.
    pub(super) fn instances(self) -> impl Iterator<Item = Instance> {
        self.instances.items.into_iter().map(InstanceItem::into_instance)
    }
}

/// The answer of DescribeInstances.
#[derive(Deserialize)]
pub(super) struct InstancesAnswer {
    #[serde(rename = "reservationSet", default)]
    reservations: ItemSet<Reservation>,
    #[serde(rename = "nextToken")]
    pub(super) next_token: Option<String>,
}

impl InstancesAnswer {
    /// Returns the machines of all reservations.
    pub(super) fn into_instances(self) -> impl Iterator<Item = Instance> {
        self.reservations.items.into_iter().flat_map(Reservation::instances)
    }
}

#[derive(Deserialize)]
struct InstanceItem {
    #[serde(rename = "instanceId")]
    id: String,
    #[serde(rename = "instanceState")]
    state: InstanceStateItem,
    #[serde(rename = "privateIpAddress")]
    private_ip: Option<String>,
    #[serde(rename = "ipAddress")]
    public_ip: Option<String>,
    #[serde(rename = "ipv6Address")]
    ipv6: Option<String>,
    placement: Option<PlacementItem>,
    #[serde(rename = "launchTime")]
    launch_time: Option<String>,
    #[serde(rename = "tagSet", default)]
    tags: ItemSet<Tag>,
}

#[derive(Deserialize)]
struct InstanceStateItem {
    name: String,
}

#[derive(Deserialize)]
struct PlacementItem {
    #[serde(rename = "availabilityZone")]
    az: Option<String>,
}

#[derive(Deserialize)]
struct Tag {
    key: String,
    #[serde(default)]
    value: String,
}

/// Converts tags to a map.
fn tag_map(tags: ItemSet<Tag>) -> BTreeMap<String, String> {
    tags.items.into_iter().map(|tag| (tag.key, tag.value)).collect()
}

impl InstanceItem {
    /// Converts a machine from EC2's form. Any state other than pending, running and terminated
    /// becomes stopping. Empty addresses are `None`; without a readable launch time, it is 0.
    fn into_instance(self) -> Instance {
        let state = match self.state.name.as_str() {
            "pending" => InstanceState::Pending,
            "running" => InstanceState::Running,
            "terminated" => InstanceState::Terminated,
            // Stopped machines exist, and Sluice never starts them again.
            _ => InstanceState::Stopping,
        };
        let present = |text: Option<String>| text.filter(|text| !text.is_empty());
        let launched = self.launch_time.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Instance {
            id: InstanceId(self.id),
            state,
            private_ip: present(self.private_ip),
            public_ip: present(self.public_ip),
            ipv6: present(self.ipv6),
            az: self.placement.and_then(|placement| present(placement.az)),
            tags: tag_map(self.tags),
            launched_at: Timestamp(
                launched.map_or(0, |at| u64::try_from(at.as_millisecond()).unwrap_or(0)),
            ),
        }
    }
}

/// The answer of DescribeImages.
#[derive(Deserialize)]
pub(super) struct ImagesAnswer {
    #[serde(rename = "imagesSet", default)]
    images: ItemSet<ImageItem>,
}

#[derive(Deserialize)]
struct ImageItem {
    #[serde(rename = "imageId")]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(rename = "imageState", default)]
    state: String,
    #[serde(rename = "creationDate", default)]
    created: String,
    #[serde(rename = "tagSet", default)]
    tags: ItemSet<Tag>,
}

impl ImagesAnswer {
    /// Converts images from EC2's form, in the order of the answer. Absent names, states, dates and
    /// tags become empty.
    pub(super) fn into_images(self) -> Vec<ImageFact> {
        let image = |item: ImageItem| ImageFact {
            id: item.id,
            name: item.name,
            state: item.state,
            created: item.created,
            tags: tag_map(item.tags),
        };
        self.images.items.into_iter().map(image).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{InstancesAnswer, parse};
    use sluice_model::Timestamp;
    use sluice_pool::InstanceState;

    /// L2.6
    #[test]
    fn a_listing_reads_states_addresses_tags_and_times() {
        let body = r#"<?xml version="1.0" encoding="UTF-8"?>
            <DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><reservationSet><item>
            <reservationId>r-1</reservationId><groupSet/><instancesSet>
            <item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState>
            <privateIpAddress>10.0.0.1</privateIpAddress><launchTime>1970-01-01T00:00:01.500Z</launchTime>
            <placement><availabilityZone>here-1a</availabilityZone><tenancy>default</tenancy></placement>
            <tagSet><item><key>sluice:node</key><value>n1</value></item><item><key>empty</key><value/></item></tagSet></item>
            <item><instanceId>i-2</instanceId><instanceState><code>48</code><name>terminated</name></instanceState><tagSet/></item>
            </instancesSet></item></reservationSet><nextToken>more</nextToken></DescribeInstancesResponse>"#;
        let page: InstancesAnswer = parse(body).unwrap();
        assert_eq!(page.next_token.as_deref(), Some("more"));
        let all: Vec<_> = page.into_instances().collect();
        assert_eq!(
            (all[0].state, all[1].state),
            (InstanceState::Running, InstanceState::Terminated)
        );
        assert_eq!((all[0].launched_at, all[0].az.as_deref()), (Timestamp(1_500), Some("here-1a")));
        assert_eq!(all[0].fact_in(None).node, Some("n1".into()));
    }
}
