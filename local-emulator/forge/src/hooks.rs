//! From an event to its deliveries: recorded with what caused them, each sent once.

use crate::engine::{Engine, now};
use crate::error::ApiError;
use crate::faults::ForgeFault;
use crate::model::{Delivery, Due, Hook, Outcome, Repository};
use crate::shapes;
use crate::store::{Access, ForgeStoreError};
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const TIMEOUT_SECONDS: u64 = 10;
const AT_ONCE_MAX: usize = 8;
/// How many deliveries of a repository are remembered.
const KEPT_MAX: usize = 5_000;

/// An event of a repository, before it is known who wants it.
pub(crate) struct Event {
    pub name: &'static str,
    pub action: Option<&'static str>,
    pub payload: Value,
}

impl Event {
    /// Returns an event with GitHub's name, the action, which not every event has, and the payload,
    /// an object without the fields that all events share.
    pub fn new(
        name: &'static str,
        action: impl Into<Option<&'static str>>,
        payload: Value,
    ) -> Self {
        Self { name, action: action.into(), payload }
    }
}

impl Engine {
    /// Records a delivery of `event` for every active webhook of the repository that subscribes to
    /// it, in the transaction of its cause; none if there is no such webhook. The caller wakes the
    /// sender after the commit.
    pub(crate) fn emit(
        &self,
        access: &Access,
        repository: &Repository,
        by: &str,
        event: Event,
    ) -> Result<(), ForgeStoreError> {
        let hooks: Vec<Hook> = access.list(&repository.full_name)?;
        let wants = |hook: &&Hook| {
            hook.active && hook.events.iter().any(|name| name == "*" || name == event.name)
        };
        for hook in hooks.iter().filter(wants) {
            self.record(access, repository, by, &event, hook)?;
        }
        Ok(())
    }

    /// Records a delivery of `event` for one hook, whatever its events, to be sent later; the
    /// caller wakes the sender after the commit. Adds action, repository and sender to the payload.
    /// A fault that makes bodies larger applies and counts as having happened. Deletes the oldest
    /// deliveries of the repository beyond the newest 5,000.
    pub(crate) fn record(
        &self,
        access: &Access,
        repository: &Repository,
        by: &str,
        event: &Event,
        hook: &Hook,
    ) -> Result<(), ForgeStoreError> {
        let mut payload = event.payload.clone();
        if let Some(action) = event.action {
            payload["action"] = action.into();
        }
        payload["repository"] = shapes::repository(&self.web, repository);
        payload["sender"] = shapes::user(&self.web, by);
        let huge = |fault: &ForgeFault| matches!(fault, ForgeFault::HugeBodies { .. });
        let padding_bytes =
            match self.faults.take(&repository.full_name, "POST", "webhook", huge).first() {
                Some(ForgeFault::HugeBodies { bytes }) => *bytes,
                _ => 0,
            };
        let id = access.next("delivery")?;
        let delivery = Delivery {
            id,
            repository: repository.full_name.clone(),
            hook: hook.id,
            guid: guid(&format!("{}/{}/{id}/{}", repository.full_name, hook.id, now())),
            event: event.name.to_owned(),
            action: event.action.map(str::to_owned),
            body: payload.to_string(),
            padding_bytes,
            is_redelivery: false,
            delivered_at: now(),
            outcome: Outcome::Waiting,
        };
        access.put(&repository.full_name, &delivery)?;
        access.put("", &Due { id, repository: repository.full_name.clone() })?;
        access.keep_newest::<Delivery>(&repository.full_name, KEPT_MAX)
    }

    /// Records another attempt to send an earlier delivery, with the same guid and body and a new
    /// number, and wakes the sender. An error (404) if the hook has no delivery `id` or it is not
    /// kept any more.
    pub(crate) fn redeliver(&self, repository: &str, hook: u64, id: u64) -> Result<(), ApiError> {
        self.store.within(|access| {
            let earlier: Option<Delivery> = access.get(repository, id)?;
            let mut again =
                earlier.filter(|delivery| delivery.hook == hook).ok_or_else(ApiError::not_found)?;
            again.id = access.next("delivery")?;
            again.is_redelivery = true;
            again.delivered_at = now();
            again.outcome = Outcome::Waiting;
            access.put(repository, &again)?;
            Ok::<_, ApiError>(
                access.put("", &Due { id: again.id, repository: repository.to_owned() })?,
            )
        })?;
        self.event_recorded.notify_one();
        Ok(())
    }
}

/// Sends recorded deliveries, each once and at most eight at a time, until the task is aborted. A
/// delivery that was being sent when an earlier process was killed is marked as failed: it may have
/// arrived, and nothing is sent twice without a request. If no HTTP client can be created, that is
/// logged and nothing is sent.
pub(crate) async fn deliver(engine: Arc<Engine>) {
    let client =
        reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(TIMEOUT_SECONDS)).build();
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            return tracing::error!(%error, "no webhook will be sent: no HTTP client could be made");
        }
    };
    give_up_interrupted(&engine);
    let places = Arc::new(Semaphore::new(AT_ONCE_MAX));
    loop {
        for delivery in take_due(&engine) {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let (engine, client) = (engine.clone(), client.clone());
            tokio::spawn(async move {
                let _place = place;
                send(&engine, &client, delivery).await;
            });
        }
        engine.event_recorded.notified().await;
    }
}

/// Returns the deliveries that wait to be sent, of all repositories in the order of their events,
/// marks them as being sent and deletes their entries in the list of due ones. Deliveries that are
/// not kept any more are left out. An error of the store is logged and gives none.
fn take_due(engine: &Engine) -> Vec<Delivery> {
    let taken = engine.store.within(|access| {
        let mut taken = Vec::new();
        for due in access.list::<Due>("")? {
            if let Some(mut delivery) = access.get::<Delivery>(&due.repository, due.id)? {
                delivery.outcome = Outcome::Sending;
                access.put(&due.repository, &delivery)?;
                taken.push(delivery);
            }
            access.remove::<Due>("", due.id)?;
        }
        Ok::<_, ForgeStoreError>(taken)
    });
    taken.unwrap_or_else(|error| {
        tracing::error!(%error, "webhook deliveries could not be read; they are tried at the next event");
        Vec::new()
    })
}

/// Marks the deliveries that a killed process was sending as failed, in all repositories. An error
/// of the store is only logged. To be called before anything is sent.
fn give_up_interrupted(engine: &Engine) {
    let result = engine.store.within(|access| {
        for repository in access.list::<Repository>("")? {
            for mut delivery in access.list::<Delivery>(&repository.full_name)? {
                if delivery.outcome == Outcome::Sending {
                    delivery.outcome = Outcome::Failed {
                        reason: "the forge was stopped while sending".to_owned(),
                    };
                    access.put(&repository.full_name, &delivery)?;
                }
            }
        }
        Ok::<_, ForgeStoreError>(())
    });
    if let Err(error) = result {
        tracing::error!(%error, "interrupted webhook deliveries could not be marked as failed");
    }
}

/// Sends one delivery, records the response or why there was none, and notifies those who wait for
/// outcomes. Every response counts as answered, whatever its status. If its hook was deleted or
/// cannot be read, does nothing: the delivery stays marked as being sent. An outcome that cannot be
/// stored is logged.
async fn send(engine: &Engine, client: &reqwest::Client, mut delivery: Delivery) {
    let hook =
        engine.store.within(|access| access.get::<Hook>(&delivery.repository, delivery.hook));
    let Ok(Some(hook)) = hook else { return };
    let body = padded(&delivery);
    let begun = Instant::now();
    let sent = client
        .post(&hook.url)
        .header("content-type", "application/json")
        .header("user-agent", "GitHub-Hookshot/local")
        .header("x-github-event", &delivery.event)
        .header("x-github-delivery", &delivery.guid)
        .header("x-github-hook-id", hook.id)
        .header("x-hub-signature-256", signature(&hook.secret, body.as_bytes()))
        .body(body)
        .send()
        .await;
    delivery.outcome = match sent {
        Ok(answer) => {
            let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            Outcome::Answered { status: answer.status().as_u16(), milliseconds }
        }
        Err(error) => Outcome::Failed { reason: error.without_url().to_string() },
    };
    if let Err(error) = engine.store.within(|access| access.put(&delivery.repository, &delivery)) {
        tracing::error!(%error, delivery = delivery.guid, "the outcome of a delivery could not be recorded");
    }
    engine.settled.notify_waiters();
}

/// Returns the body of a delivery as it is sent: if it has padding, with a last field `padding` of
/// as many bytes.
fn padded(delivery: &Delivery) -> String {
    match delivery.body.strip_suffix('}').filter(|_| delivery.padding_bytes > 0) {
        Some(open) => format!("{open},\"padding\":\"{}\"}}", "x".repeat(delivery.padding_bytes)),
        None => delivery.body.clone(),
    }
}

/// Returns the value of the header `X-Hub-Signature-256` for a body: `sha256=` and the HMAC in
/// hexadecimal.
fn signature(secret: &str, body: &[u8]) -> String {
    // HMAC accepts keys of any length. Receivers would reject an unsigned delivery.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return String::new();
    };
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// Returns a UUID derived from `seed`, the same for the same seed.
fn guid(seed: &str) -> String {
    let digits = hex::encode(&Sha256::digest(seed.as_bytes())[..16]);
    let (a, b, c, d, e) =
        (&digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..]);
    format!("{a}-{b}-4{c}-8{d}-{e}")
}
