//! Images: one image's cell is loaded with the wish that may wait beside it, decided on, committed
//! and delivered.
//!
//! What is here is the first cell: heads come to be, and a wish for a build (`request-build`, N5)
//! is taken in and stays due. Nothing begins image builds or uploads yet; [`sluice_records::image`]
//! says what their records are.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod plan;

pub use plan::{LOOK_SECONDS, Plan, Stored, plan};

use async_trait::async_trait;
use sluice_model::TenantName;
use sluice_model::poke::Poke;
use sluice_records::codec::{decode, encode, get, with_body};
use sluice_records::image::{self, Image};
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::record::{Due, Expect, Write};
use sluice_runtime::{Commit, Ports, Saved, cell};

/// Looks at images.
pub struct Images {
    ports: Ports,
}

impl Images {
    /// Makes the function.
    pub fn new(ports: Ports) -> Self {
        Self { ports }
    }

    /// Brings one image up to date. Safe to run twice: a wish that was taken in is gone.
    ///
    /// # Errors
    /// When the store does not answer, a record cannot be read, or somebody else was faster.
    pub async fn look_at(&self, tenant: &TenantName, name: &str) -> Result<(), LookError> {
        let record = get(&self.ports, &image::key(tenant, name)).await?;
        let wish = get(&self.ports, &image::request_key(tenant, name)).await?;
        let head = record.as_ref().map(decode::<Image>).transpose()?;
        let stored = if head.is_some() { Stored::Yes } else { Stored::No };
        let head = head.unwrap_or_else(|| Image::new(tenant.clone(), name.to_owned()));
        let since = wish.as_ref().map(decode).transpose()?;
        let plan = plan(&head, stored, since, self.ports.clock.now());
        let poke = Poke::Image { tenant: tenant.clone(), image: name.to_owned() };
        let due = plan.due.map(|at| Due { at, poke });
        let mut record = match record {
            Some(record) => record,
            None => encode(image::key(tenant, name), &head)?,
        };
        let is_late = record.due.as_ref().is_some_and(|due| due.at <= self.ports.clock.now());
        let head = match plan.head {
            Some(head) => with_body(record, &head)?,
            // A look that found nothing to do moves the next one on; otherwise each sweep would
            // find this image again.
            None if is_late || record.due.is_some() != due.is_some() => record,
            None => return Ok(cell::deliver(&self.ports, &mut record).await?),
        };
        // One made since it was read is the same wish: it is in the head now.
        let taken = wish.map(|wish| Write::Delete { key: wish.key, expect: Expect::Anything });
        let commit = Commit { head, others: taken.into_iter().collect(), pokes: Vec::new(), due };
        match cell::commit_and_deliver(&self.ports, commit).await? {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => {
                Err(LookError::Again(format!("somebody else looks at the image {tenant}/{name}")))
            }
        }
    }
}

#[async_trait]
impl Look for Images {
    async fn poked(&self, poke: &Poke, _heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Image { tenant, image } => self.look_at(tenant, image).await,
            other => Err(LookError::Again(format!("the images were poked with {other:?}"))),
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
        (record.revision, decode(record).unwrap(), record.look_at)
    }

    /// N1, N5: a head comes to be with the first poke, a wish is taken in once, and the image is
    /// due from then on.
    #[test]
    fn a_wish_for_a_build_is_taken_into_the_head_once() {
        let world = World::new(1, 0, Timestamp(1_000_000));
        let images = Images::new(world.ports());
        let tenant = TenantName::from("demo");
        let poke = Poke::Image { tenant: tenant.clone(), image: "debian".to_owned() };
        let look = || poll_once(images.look(&poke)).unwrap().unwrap();
        look();
        assert_eq!(head(&world), (1, Image::new(tenant.clone(), "debian".to_owned()), None));
        look();
        assert_eq!(head(&world).0, 1, "nothing to decide writes nothing");
        world.write_directly(image::put_request(&tenant, "debian", Timestamp(1_000_000)).unwrap());
        look();
        let (revision, image, look_at) = head(&world);
        assert_eq!((revision, image.build_wanted_since), (2, Some(Timestamp(1_000_000))));
        assert_eq!(look_at, Some(Timestamp(1_000_000).plus_seconds(LOOK_SECONDS)));
        assert_eq!(world.records().len(), 1, "the wish is gone");
        look();
        assert_eq!(head(&world).0, 2);
        world.advance_millis(LOOK_SECONDS * 1_000);
        look();
        assert_eq!(head(&world).2, Some(world.ports().clock.now().plus_seconds(LOOK_SECONDS)));
    }
}
