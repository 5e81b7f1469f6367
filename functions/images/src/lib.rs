//! Images: loads one image's cell with its build request, plans, commits and sends.
//!
//! This is the first version of the cell: heads are created, and a build request (`request-build`,
//! N5) is stored in the head and stays due. Image builds and uploads are not implemented yet;
//! [`sluice_records::image`] defines their records.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod plan;

pub use plan::{ImagePlan, RECHECK_SECONDS, Stored, plan};

use async_trait::async_trait;
use sluice_model::TenantName;
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::{decode, encode, get, with_body};
use sluice_records::image::{self, Image};
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::record::{Due, Expect, Write};
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell};

/// Reconciles images.
pub struct Images {
    /// Access to records, objects, queues and time.
    ports: Ports,
}

impl Images {
    /// Returns the function.
    pub fn new(ports: Ports) -> Self {
        Self { ports }
    }

    /// Reconciles one image: moves its build request, if there is one, into the image's head, and
    /// stores when it is due again. Creates the head at the first use. Sends wakeups that an
    /// earlier run left unsent. Image builds are not started yet. Safe to run twice: a request that
    /// was consumed is gone. An error if a record cannot be read, or a concurrent writer was
    /// faster.
    ///
    /// # Errors
    ///
    /// When the store does not answer, a record cannot be read, or a concurrent writer was faster.
    pub async fn reconcile_image(
        &self,
        tenant: &TenantName,
        name: &str,
    ) -> Result<(), ReconcileError> {
        let record = get(&self.ports, &image::key(tenant, name)).await?;
        let request = get(&self.ports, &image::request_key(tenant, name)).await?;
        let head = record.as_ref().map(decode::<Image>).transpose()?;
        let stored = if head.is_some() { Stored::Yes } else { Stored::No };
        let head = head.unwrap_or_else(|| Image::new(tenant.clone(), name.to_owned()));
        let since = request.as_ref().map(decode).transpose()?;
        let plan = plan(&head, stored, since, self.ports.clock.now());
        let wakeup = Wakeup::Image { tenant: tenant.clone(), image: name.to_owned() };
        let due = plan.due.map(|at| Due { at, wakeup });
        let mut record = match record {
            Some(record) => record,
            None => encode(image::key(tenant, name), &head)?,
        };
        let is_late = record.due.as_ref().is_some_and(|due| due.at <= self.ports.clock.now());
        let head = match plan.head {
            Some(head) => with_body(record, &head)?,
            // A run without changes moves the due time; otherwise each sweep would find this image
            // again.
            None if is_late || record.due.is_some() != due.is_some() => record,
            None => return Ok(cell::deliver(&self.ports, &mut record).await?),
        };
        // A request that was made meanwhile is the same request: the head has it.
        let consumed =
            request.map(|request| Write::Delete { key: request.key, expect: Expect::Anything });
        let commit =
            CellCommit { head, others: consumed.into_iter().collect(), wakeups: Vec::new(), due };
        match cell::commit_and_deliver(&self.ports, commit).await? {
            CommitOutcome::Written(_) => Ok(()),
            CommitOutcome::Stale => Err(ReconcileError::Retry(format!(
                "the image {tenant}/{name} is being processed concurrently"
            ))),
        }
    }
}

#[async_trait]
impl Reconciler for Images {
    /// Reconciles the image of an `Image` wakeup; any other wakeup is an error.
    async fn reconcile(
        &self,
        wakeup: &Wakeup,
        _reception: Reception,
    ) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Image { tenant, image } => self.reconcile_image(tenant, image).await,
            other => Err(ReconcileError::Retry(format!(
                "the images function received an unsupported wakeup: {other:?}"
            ))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_memory::{World, poll_once};
    use sluice_model::Timestamp;

    fn head(world: &World) -> (u64, Image, Option<Timestamp>) {
        let records = world.records();
        let record = records.iter().find(|record| record.key.sort == "head").unwrap();
        (record.revision, decode(record).unwrap(), record.sweep_at)
    }

    /// N1, N5: the first wakeup creates the head, a request is consumed once, and the image is due
    /// from then on.
    #[test]
    fn a_build_request_is_consumed_once() {
        let world = World::new(1, 0, Timestamp(1_000_000));
        let images = Images::new(world.ports());
        let tenant = TenantName::from("demo");
        let wakeup = Wakeup::Image { tenant: tenant.clone(), image: "debian".to_owned() };
        let run = || poll_once(images.reconcile_first(&wakeup)).unwrap().unwrap();
        run();
        assert_eq!(head(&world), (1, Image::new(tenant.clone(), "debian".to_owned()), None));
        run();
        assert_eq!(head(&world).0, 1, "nothing to decide writes nothing");
        world.write_unchecked(image::put_request(&tenant, "debian", Timestamp(1_000_000)).unwrap());
        run();
        let (revision, image, due_at) = head(&world);
        assert_eq!((revision, image.build_requested_since), (2, Some(Timestamp(1_000_000))));
        assert_eq!(due_at, Some(Timestamp(1_000_000).plus_seconds(RECHECK_SECONDS)));
        assert_eq!(world.records().len(), 1, "the request is gone");
        run();
        assert_eq!(head(&world).0, 2);
        world.advance_millis(RECHECK_SECONDS * 1_000);
        run();
        assert_eq!(head(&world).2, Some(world.ports().clock.now().plus_seconds(RECHECK_SECONDS)));
    }
}
