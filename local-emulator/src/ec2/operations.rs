//! The calls about machines.

use super::checks::{arn, check_with_tags, glob, invalid, missing};
use super::parameters::{Parameters, Refusal};
use super::store::{ImageState, Record, State};
use super::{Boot, Ec2, LaunchFault, answer, boot, images, is_forgotten, machine};
use crate::data::{Caller, now_ms};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::collections::BTreeMap;

/// Bytes of user data, as EC2 limits it.
const USER_DATA_MAX: usize = 16 * 1024;

/// Returns a machine of the call's region; `None` if that region has none with this id.
pub(super) fn find(
    ec2: &Ec2,
    parameters: &Parameters,
    id: &str,
) -> Result<Option<Record>, Refusal> {
    let found = ec2.store().find(id)?;
    Ok(found.filter(|record| record.region == parameters.region()))
}

/// Records as many machines as are asked for, or fewer down to the minimum if the limit allows no
/// more, starts them in the background and returns their XML. A known client token returns the
/// machines of that launch instead, also terminated ones; with other parameters it is an error. An
/// error for invalid parameters, a denial, an image of a machine where nodes are sandboxes, the
/// limit, or a fault that refuses the launch. A valid, permitted launch without a known token uses
/// up the next launch fault, also if the limit then refuses it.
pub(super) fn run(ec2: &Ec2, caller: &Caller, parameters: &Parameters) -> Result<String, Refusal> {
    let wish = Wish::read(ec2, parameters)?;
    let all_machines = arn(ec2, parameters, "*");
    check_with_tags(caller, "ec2:RunInstances", &all_machines, "aws:RequestTag", &wish.tags)?;
    if !ec2.inner.options.images.iter().any(|image| image.id == wish.image) {
        ec2.inner.host.rights()?;
    }
    // Held over look and write: of two calls with one token, the second sees the first's machines.
    let mut store = ec2.store();
    let all = store.all()?;
    if let Some(token) = &wish.token {
        // A token is one of its region.
        let is_same =
            |record: &&Record| record.token.as_ref() == Some(token) && record.region == wish.region;
        let same: Vec<&Record> = all.iter().filter(is_same).collect();
        if let Some(first) = same.first() {
            return match first.fingerprint == wish.fingerprint {
                true => Ok(answer::response("RunInstances", &answer::reservation(&same))),
                false => Err(Refusal::new(
                    400,
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous requests.",
                )),
            };
        }
    }
    let boot = match ec2.next_fault() {
        Some(LaunchFault::Refused { code }) => {
            return Err(Refusal::new(500, code, "an injected refusal of a launch"));
        }
        Some(LaunchFault::Boots(boot)) => boot,
        None => wish.boot,
    };
    let existing = all.iter().filter(|record| record.state.exists()).count();
    let free = (ec2.inner.options.instance_limit as usize).saturating_sub(existing);
    if free < wish.min {
        let limit = ec2.inner.options.instance_limit;
        return Err(Refusal::new(
            400,
            "InstanceLimitExceeded",
            format!("You have requested more instances than your current limit of {limit} allows."),
        ));
    }
    let mut records = Vec::new();
    let mut taken: Vec<String> = all
        .iter()
        .filter(|record| record.state.exists())
        .map(|record| record.address.clone())
        .collect();
    let reservation = format!("r-{}", machine::random_hex(8)?);
    for _ in 0..wish.max.min(free) {
        let record = wish.record(ec2, &reservation, boot, &taken)?;
        taken.push(record.address.clone());
        records.push(record);
    }
    store.add(&records)?;
    drop(store);
    let body = answer::reservation(&records.iter().collect::<Vec<_>>());
    records.into_iter().for_each(|record| boot::resume(ec2, record));
    Ok(answer::response("RunInstances", &body))
}

/// What a launch asks for, checked.
struct Wish {
    region: String,
    token: Option<String>,
    fingerprint: String,
    min: usize,
    max: usize,
    image: String,
    boot: Boot,
    kind: String,
    az: String,
    user_data: Vec<u8>,
    tags: BTreeMap<String, String>,
}

impl Wish {
    /// Reads and checks the parameters of a launch. An error for an unknown image, subnet or zone,
    /// missing or invalid counts, an invalid type or client token, and user data that is not Base64
    /// or over 16 KB. Only the first tag specification is read, and only if it is for instances.
    fn read(ec2: &Ec2, parameters: &Parameters) -> Result<Self, Refusal> {
        let count = |name: &str| -> Result<usize, Refusal> {
            parameters.need(name)?;
            let number = parameters.number(name)?.filter(|number| (1..=1_000).contains(number));
            number
                .map(|number| number as usize)
                .ok_or_else(|| invalid(format!("{name} must be from 1 to 1000")))
        };
        let (min, max) = (count("MinCount")?, count("MaxCount")?);
        if min > max {
            return Err(Refusal::new(
                400,
                "InvalidParameterCombination",
                "MinCount must not be more than MaxCount",
            ));
        }
        let image = parameters.need("ImageId")?;
        let known = images::all(ec2)?;
        let known =
            known.iter().find(|known| known.id == image).ok_or_else(|| images::missing(image))?;
        if known.state != ImageState::Available {
            return Err(Refusal::new(
                400,
                "InvalidAMIID.Unavailable",
                format!("The image ID '{image}' is {}", known.state.as_str()),
            ));
        }
        let token = parameters.get("ClientToken").map(str::to_owned);
        if token.as_ref().is_some_and(|token| token.len() > 64 || !token.is_ascii()) {
            return Err(invalid("ClientToken must be at most 64 ASCII characters"));
        }
        let kind = parameters.get("InstanceType").unwrap_or("m1.small");
        if !kind.contains('.')
            || !kind
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c))
        {
            return Err(invalid(format!("Invalid value '{kind}' for InstanceType.")));
        }
        let encoded = parameters.get("UserData").unwrap_or_default();
        let user_data = STANDARD.decode(encoded).ok().filter(|data| data.len() <= USER_DATA_MAX);
        let malformed = || {
            Refusal::new(
                400,
                "InvalidUserData.Malformed",
                "Invalid BASE64 encoding of user data, or more than 16 KB",
            )
        };
        let tags = match parameters.get("TagSpecification.1.ResourceType") {
            Some("instance") => parameters.tags("TagSpecification.1.Tag"),
            _ => BTreeMap::new(),
        };
        Ok(Self {
            region: parameters.region().to_owned(),
            token,
            fingerprint: parameters.fingerprint(),
            min,
            max,
            image: image.to_owned(),
            boot: known.boot,
            kind: kind.to_owned(),
            az: zone(ec2, parameters)?,
            user_data: user_data.ok_or_else(malformed)?,
            tags,
        })
    }

    /// Returns the record of a machine to launch, with a random id and a free address outside
    /// `taken`; stores nothing. A port other than 22 is shown by the tag `sluice:ssh-port`. An
    /// error if no address is free.
    fn record(
        &self,
        ec2: &Ec2,
        reservation: &str,
        boot: Boot,
        taken: &[String],
    ) -> Result<Record, Refusal> {
        let options = &ec2.inner.options;
        let found = ec2.inner.host.free_address(options.ssh_port, taken);
        let address = found.map_err(|error| {
            Refusal::new(
                500,
                "InsufficientFreeAddressesInSubnet",
                format!(
                    "no address of the nodes' network has a free SSH port, {} or another: {error}",
                    options.ssh_port
                ),
            )
        })?;
        let mut tags = self.tags.clone();
        if address.port() != 22 {
            tags.insert("sluice:ssh-port".to_owned(), address.port().to_string());
        }
        Ok(Record {
            number: 0,
            id: format!("i-{}", machine::random_hex(9)?.split_at(17).0),
            reservation: reservation.to_owned(),
            region: self.region.clone(),
            token: self.token.clone(),
            fingerprint: self.fingerprint.clone(),
            state: State::Pending,
            image: self.image.clone(),
            kind: self.kind.clone(),
            az: self.az.clone(),
            address: address.ip().to_string(),
            port: address.port(),
            boot,
            user_data: self.user_data.clone(),
            tags,
            launched_ms: now_ms(),
            ended_ms: None,
        })
    }
}

/// Returns the zone of the requested subnet; without one, the requested zone or the first
/// configured one. An error for an unknown zone, or for an unknown subnet where any are configured;
/// where none are, any subnet is in the first zone.
fn zone(ec2: &Ec2, parameters: &Parameters) -> Result<String, Refusal> {
    let options = &ec2.inner.options;
    let zones = options.zones_of(parameters.region());
    let first = zones.first().cloned().unwrap_or_default();
    if let Some(subnet) = parameters.get("SubnetId") {
        let missing = || {
            Refusal::new(
                400,
                "InvalidSubnetID.NotFound",
                format!("The subnet ID '{subnet}' does not exist"),
            )
        };
        return match options.subnets.get(subnet) {
            Some(zone) => Ok(zone.clone()),
            None if options.subnets.is_empty() => Ok(first),
            None => Err(missing()),
        };
    }
    match parameters.get("Placement.AvailabilityZone") {
        None => Ok(first),
        Some(zone) if zones.iter().any(|known| known == zone) => Ok(zone.to_owned()),
        Some(zone) => Err(invalid(format!("Invalid availability zone: [{zone}]"))),
    }
}

/// Returns the XML of the region's machines that the ids and filters select; terminated ones for an
/// hour after their end. The pages follow the order of launches; within a page the order is that of
/// the reservations' ids. An error for an unknown id or filter, a page size outside 5 to 1000 or
/// together with ids, or if the caller may not.
pub(super) fn describe(
    ec2: &Ec2,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    caller.check("ec2:DescribeInstances", "*")?;
    let ids = parameters.list("InstanceId");
    let page = parameters.number("MaxResults")?;
    if page.is_some_and(|page| !(5..=1_000).contains(&page)) {
        return Err(invalid("MaxResults must be from 5 to 1000"));
    }
    if page.is_some() && !ids.is_empty() {
        return Err(Refusal::new(
            400,
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        ));
    }
    let after: i64 = match parameters.get("NextToken") {
        None => 0,
        Some(token) => token.parse().map_err(|_| invalid("NextToken is none of ours"))?,
    };
    let mut records = ec2.store().all()?;
    records.retain(|record| record.region == parameters.region() && !is_forgotten(record.ended_ms));
    if let Some(id) = ids.iter().find(|id| !records.iter().any(|record| record.id == **id)) {
        return Err(missing(id));
    }
    records.retain(|record| {
        record.number > after && (ids.is_empty() || ids.contains(&record.id.as_str()))
    });
    for number in 1..=200 {
        let Some(name) = parameters.get(&format!("Filter.{number}.Name")) else {
            break;
        };
        let values = parameters.list(&format!("Filter.{number}.Value"));
        let known = [
            "instance-state-name",
            "instance-id",
            "image-id",
            "client-token",
            "availability-zone",
            "tag-key",
        ];
        if !known.contains(&name) && !name.starts_with("tag:") {
            return Err(invalid(format!("The filter '{name}' is invalid")));
        }
        records.retain(|record| matches(record, name, &values));
    }
    let page = page.unwrap_or(1_000) as usize;
    let next = (records.len() > page).then(|| records[page - 1].number.to_string());
    records.truncate(page);
    Ok(answer::response("DescribeInstances", &answer::instances(&records, next.as_deref())))
}

/// Returns whether one of the patterns in `values` fits the machine's property `name`: a filter
/// such as `instance-id` or `tag:KEY`, which the caller has checked; any unknown name means the
/// client token. False without the tag or token.
fn matches(record: &Record, name: &str, values: &[&str]) -> bool {
    let any = |text: &str| values.iter().any(|pattern| glob(pattern, text));
    match name.strip_prefix("tag:") {
        Some(key) => record.tags.get(key).is_some_and(|value| any(value)),
        None => match name {
            "instance-state-name" => any(record.state.as_str()),
            "instance-id" => any(&record.id),
            "image-id" => any(&record.image),
            "availability-zone" => any(&record.az),
            "tag-key" => record.tags.keys().any(|key| any(key)),
            _ => record.token.as_ref().is_some_and(|token| any(token)),
        },
    }
}

/// Records that machines shut down, ends them in the background and returns the XML of their
/// states; machines that are ending or terminated already stay so. The whole call is refused, and
/// nothing is changed, if the caller may not end one of the machines by its tags, or if one is
/// unknown or ended over an hour ago. No ids at all are an error.
pub(super) fn terminate(
    ec2: &Ec2,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    let ids = parameters.list("InstanceId");
    if ids.is_empty() {
        parameters.need("InstanceId.1")?;
    }
    for id in &ids {
        let tags = find(ec2, parameters, id)?.map(|record| record.tags).unwrap_or_default();
        let arn = arn(ec2, parameters, id);
        check_with_tags(caller, "ec2:TerminateInstances", &arn, "aws:ResourceTag", &tags)?;
    }
    let (mut changes, mut ending) = (Vec::new(), Vec::new());
    {
        let store = ec2.store();
        for id in &ids {
            let record = store
                .find(id)?
                .filter(|record| record.region == parameters.region())
                .filter(|record| !is_forgotten(record.ended_ms))
                .ok_or_else(|| missing(id))?;
            let after = if record.state.exists() { State::ShuttingDown } else { State::Terminated };
            changes.push((record.id.clone(), record.state.as_str(), after.as_str()));
            ending.push(record);
        }
        for record in &ending {
            store.advance(
                &record.id,
                &[State::Pending, State::Running],
                State::ShuttingDown,
                None,
            )?;
        }
    }
    for mut record in ending.into_iter().filter(|record| record.state.exists()) {
        record.state = State::ShuttingDown;
        boot::resume(ec2, record);
    }
    Ok(answer::response("TerminateInstances", &answer::changes(&changes)))
}

/// Adds tags to machines one after another, in place of tags with the same keys; the caller must be
/// allowed for each machine before anything is changed. An error without ids or without tags, for
/// an unknown machine, or for more than 50 tags on one; machines before it then keep their new
/// tags.
pub(super) fn create_tags(
    ec2: &Ec2,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    let (ids, tags) = (parameters.list("ResourceId"), parameters.tags("Tag"));
    if ids.is_empty() || tags.is_empty() {
        return Err(Refusal::new(
            400,
            "MissingParameter",
            "The request must contain resources and tags",
        ));
    }
    for id in &ids {
        let tags = find(ec2, parameters, id)?.map(|record| record.tags).unwrap_or_default();
        let arn = arn(ec2, parameters, id);
        check_with_tags(caller, "ec2:CreateTags", &arn, "aws:ResourceTag", &tags)?;
    }
    let store = ec2.store();
    for id in &ids {
        let mut record = store
            .find(id)?
            .filter(|record| record.region == parameters.region())
            .ok_or_else(|| missing(id))?;
        record.tags.extend(tags.clone());
        if record.tags.len() > 50 {
            return Err(Refusal::new(400, "TagLimitExceeded", "A resource bears at most 50 tags"));
        }
        store.set_tags(id, &record.tags)?;
    }
    Ok(answer::response("CreateTags", "<return>true</return>"))
}
