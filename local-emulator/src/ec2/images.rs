//! Images: those of the options, each a Debian suite, and those that were made from machines.

use super::checks::{self, arn, check_with_tags, glob, invalid};
use super::parameters::{Parameters, Refusal};
use super::store::{ImageRecord, ImageState, ListedImage, State};
use super::{Boot, Ec2, answer, image, machine, operations};
use crate::data::{Caller, StoreError, now_ms};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Returns the images that can be listed: those of the options first, then those made from
/// machines, without deregistered ones.
pub(super) fn all(ec2: &Ec2) -> Result<Vec<ListedImage>, StoreError> {
    let of_options = ec2.inner.options.images.iter().map(|image| ListedImage {
        id: image.id.clone(),
        name: image.name.clone(),
        created: image.created.clone(),
        state: ImageState::Available,
        boot: image.boot,
        tags: BTreeMap::new(),
    });
    let made = ec2.store().images()?;
    let made = made.into_iter().filter(|image| image.state != ImageState::Deregistered);
    Ok(of_options.chain(made.map(listed)).collect())
}

/// Returns the listed form of an image that was made from a machine.
fn listed(image: ImageRecord) -> ListedImage {
    let created = i64::try_from(image.created_ms).unwrap_or(0);
    let created = jiff::Timestamp::from_millisecond(created).unwrap_or_default();
    ListedImage {
        id: image.id,
        name: image.name,
        created: format!("{created:.3}"),
        state: image.state,
        boot: Boot::Normal,
        tags: image.tags,
    }
}

/// Returns the directory with the files of an image. That of a suite is made first if it is
/// missing, which takes about a minute and is logged. An error if it cannot be made.
pub(super) fn root(ec2: &Ec2, id: &str) -> io::Result<PathBuf> {
    let options = &ec2.inner.options;
    let Some(known) = options.images.iter().find(|image| image.id == id) else {
        return Ok(directory(ec2, id).join("root"));
    };
    let rights = ec2.inner.host.rights().map_err(io::Error::other)?;
    let log = |line: &str| tracing::info!("{line}");
    image::of_suite(&options.image_cache, &known.suite, &rights, &log).map_err(io::Error::other)
}

/// Returns the directory of an image that was made from a machine.
fn directory(ec2: &Ec2, id: &str) -> PathBuf {
    ec2.inner.options.directory.join("images").join(id)
}

/// Returns the error for an image that does not exist.
pub(super) fn missing(id: &str) -> Refusal {
    Refusal::new(400, "InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist"))
}

/// Returns the XML of the images that ids, owners and a filter by `name` (with `*` and `?`) select;
/// all without them. An error for an unknown id, another filter, or if the caller may not. Only the
/// first filter is read.
pub(super) fn describe(
    ec2: &Ec2,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    caller.check("ec2:DescribeImages", "*")?;
    let options = &ec2.inner.options;
    let images = all(ec2)?;
    let (ids, owners) = (parameters.list("ImageId"), parameters.list("Owner"));
    if let Some(id) = ids.iter().find(|id| !images.iter().any(|image| image.id == **id)) {
        return Err(missing(id));
    }
    let names = match parameters.get("Filter.1.Name") {
        None => Vec::new(),
        Some("name") => parameters.list("Filter.1.Value"),
        Some(other) => return Err(invalid(format!("The filter '{other}' is invalid"))),
    };
    let owned = owners.is_empty()
        || owners.iter().any(|owner| *owner == "self" || *owner == options.account.id);
    let wanted = |image: &&ListedImage| {
        owned
            && (ids.is_empty() || ids.contains(&image.id.as_str()))
            && (names.is_empty() || names.iter().any(|name| glob(name, &image.name)))
    };
    let images: Vec<&ListedImage> = images.iter().filter(wanted).collect();
    Ok(answer::response("DescribeImages", &answer::images(&images, &options.account.id)))
}

/// Records an image of a running machine, copies the machine's files in the background and returns
/// the XML of its id; the image is pending until they are copied, or has failed. The machine runs
/// on, as with EC2's `NoReboot`. An error for a missing name or one that is taken, an unknown
/// machine, one that does not run, or if the caller may not.
pub(super) fn create(
    ec2: &Ec2,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    let (id, name) = (parameters.need("InstanceId")?, parameters.need("Name")?);
    let tags = match parameters.get("TagSpecification.1.ResourceType") {
        Some("image") => parameters.tags("TagSpecification.1.Tag"),
        _ => BTreeMap::new(),
    };
    let machine = operations::find(ec2, parameters, id)?;
    let of_machine = machine.as_ref().map(|record| record.tags.clone()).unwrap_or_default();
    check_with_tags(
        caller,
        "ec2:CreateImage",
        &arn(ec2, parameters, id),
        "aws:ResourceTag",
        &of_machine,
    )?;
    check_with_tags(caller, "ec2:CreateImage", &image_arn(ec2, "*"), "aws:RequestTag", &tags)?;
    let record = machine.ok_or_else(|| checks::missing(id))?;
    ec2.inner.host.rights()?;
    if record.state != State::Running {
        return Err(Refusal::new(
            400,
            "IncorrectInstanceState",
            format!("The instance '{id}' is {}, not running", record.state.as_str()),
        ));
    }
    if all(ec2)?.iter().any(|image| image.name == name) {
        return Err(Refusal::new(
            400,
            "InvalidAMIName.Duplicate",
            format!("AMI name {name} is already in use"),
        ));
    }
    let image = ImageRecord {
        id: format!("ami-{}", machine::random_hex(9)?.split_at(17).0),
        name: name.to_owned(),
        state: ImageState::Pending,
        tags,
        created_ms: now_ms(),
    };
    ec2.store().add_image(&image)?;
    let (worker, image_id, machine_id) = (ec2.clone(), image.id.clone(), record.id);
    tokio::task::spawn_blocking(move || {
        let copied = worker.inner.host.capture(&machine_id, &directory(&worker, &image_id));
        let state = match copied {
            Ok(()) => ImageState::Available,
            Err(error) => {
                tracing::error!(image = image_id, instance = machine_id, %error, "an image of a node could not be made");
                ImageState::Failed
            }
        };
        // Bound first: the lock is not held over the log.
        let stored = worker.store().set_image_state(&image_id, state);
        if let Err(error) = stored {
            tracing::error!(image = image_id, %error, "the state of an image could not be stored");
        }
    });
    Ok(answer::response("CreateImage", &answer::image_id(&image.id)))
}

/// Removes an image that was made from a machine from the list and returns the XML of that; its
/// files go when no machine uses them. An error for another image, or if the caller may not.
pub(super) fn deregister(
    ec2: &Ec2,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    let id = parameters.need("ImageId")?;
    let image = all(ec2)?.into_iter().find(|image| image.id == id);
    let tags = image.as_ref().map(|image| image.tags.clone()).unwrap_or_default();
    let arn = image_arn(ec2, id);
    check_with_tags(caller, "ec2:DeregisterImage", &arn, "aws:ResourceTag", &tags)?;
    if image.is_none() || ec2.inner.options.images.iter().any(|image| image.id == id) {
        return Err(missing(id));
    }
    ec2.store().set_image_state(id, ImageState::Deregistered)?;
    remove_unused(ec2)?;
    Ok(answer::response("DeregisterImage", "<return>true</return>"))
}

/// Deletes the files of failed and deregistered images that no machine uses. A failure is logged,
/// and the next call tries again.
pub(super) fn remove_unused(ec2: &Ec2) -> Result<(), StoreError> {
    let (images, machines) = {
        let store = ec2.store();
        (store.images()?, store.all()?)
    };
    for image in images {
        let is_gone = matches!(image.state, ImageState::Deregistered | ImageState::Failed);
        let is_used =
            machines.iter().any(|record| record.state.exists() && record.image == image.id);
        let directory = directory(ec2, &image.id);
        if !is_gone || is_used || !directory.exists() {
            continue;
        }
        if let Err(error) = ec2.inner.host.remove(&directory) {
            tracing::warn!(image = image.id, %error, "the files of an image are left behind");
        }
    }
    Ok(())
}

/// Marks the images as failed whose copying ended with an earlier emulator, and deletes what was
/// copied. A failure to delete is logged.
pub(super) fn fail_unfinished(ec2: &Ec2) -> Result<(), StoreError> {
    for part in image::parts(&ec2.inner.options.directory.join("images")) {
        if let Err(error) = ec2.inner.host.remove(&part) {
            tracing::warn!(directory = %part.display(), %error, "an unfinished image is left behind");
        }
    }
    let images = ec2.store().images()?;
    for image in images.iter().filter(|image| image.state == ImageState::Pending) {
        ec2.store().set_image_state(&image.id, ImageState::Failed)?;
    }
    remove_unused(ec2)
}

/// Returns the ARN of an image, which need not exist; `*` stands for all.
fn image_arn(ec2: &Ec2, id: &str) -> String {
    format!("arn:aws:ec2:{}::image/{id}", ec2.inner.options.account.region)
}
