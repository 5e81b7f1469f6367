//! The webhook: verifies what a forge tells, stores it, and answers 202; everything else is
//! somebody else's work.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod known;

use crate::known::{Freshness, Known};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use sluice_forge::webhook::{Parsed, parse, verify};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, DeliveryId};
use sluice_records::connection::Connection;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_runtime::record::Due;
use sluice_runtime::{Commit, PortError, Ports, Saved, cell, quarantine};

/// The largest body in bytes: what a function can be handed (Lambda's synchronous limit). GitHub
/// sends up to 25 MB.
pub const BODY_BYTES_MAX: usize = 6 * 1024 * 1024;

/// Bytes of a comment that are kept, and matched.
const COMMENT_BYTES_MAX: usize = 8 * 1024;

/// Seconds after which an accepted delivery that nobody handled is looked at again.
const HANDLED_WITHIN_SECONDS: u64 = 60;

/// Characters of an unknown connection's name that the log tells: anybody may send one.
const NAME_CHARACTERS_MAX: usize = 60;

/// Receives deliveries for all connections.
#[derive(Debug)]
pub struct Webhook {
    ports: Ports,
    known: Known,
}

impl Webhook {
    /// Makes a webhook on these ports.
    pub fn new(ports: Ports) -> Self {
        Self { ports, known: Known::default() }
    }

    /// Answers one request to `/api/connection/{connection}/payload`.
    ///
    /// 202 once the delivery is stored, also for repeats and for what is ignored; 401 without
    /// detail for a signature that is not ours, also of a connection that does not exist; 413 over
    /// [`BODY_BYTES_MAX`]; 400 for a missing delivery id; 503 when the store does not answer, so
    /// that nothing counts as received that is not stored.
    pub async fn receive(
        &self,
        connection: &ConnectionName,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Response<Bytes> {
        match self.accept(connection, headers, body).await {
            Ok(status) => answer(status, ""),
            Err(Refused::Unknown) => {
                let name: String = connection.as_str().chars().take(NAME_CHARACTERS_MAX).collect();
                tracing::warn!(connection = ?name, "a delivery for a connection that does not exist: is the webhook's address right?");
                answer(StatusCode::UNAUTHORIZED, "")
            }
            Err(Refused::Signature) => {
                tracing::warn!(%connection, "a delivery is not signed with the connection's webhook secret: is it the secret that the forge has?");
                answer(StatusCode::UNAUTHORIZED, "")
            }
            Err(Refused::TooLarge) => answer(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is over 6 MB; its change is found by the sweep\n",
            ),
            Err(Refused::NoId) => {
                answer(StatusCode::BAD_REQUEST, "X-GitHub-Delivery or X-GitHub-Event is missing\n")
            }
            Err(Refused::Store(error)) => {
                tracing::error!(%connection, %error, "a delivery could not be stored; the forge is told 503");
                answer(StatusCode::SERVICE_UNAVAILABLE, "try again\n")
            }
        }
    }

    async fn accept(
        &self,
        name: &ConnectionName,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<StatusCode, Refused> {
        if body.len() > BODY_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        let signature = header(headers, "x-hub-signature-256").filter(|value| is_signature(value));
        // Whoever cannot even make up a signature costs no call.
        let signature = Some(signature.ok_or(Refused::Signature)?);
        let is_signed = |secrets: &[sluice_forge::Secret]| verify(secrets, signature, body).is_ok();
        let mut connection = self.known.get(&self.ports, name, Freshness::Minute).await?;
        if !connection.as_ref().is_some_and(|connection| is_signed(&connection.secrets)) {
            // Perhaps the secret was changed, or the connection made, since it was read.
            connection = self.known.get(&self.ports, name, Freshness::Now).await?;
        }
        let connection = connection.ok_or(Refused::Unknown)?;
        if !is_signed(&connection.secrets) {
            return Err(Refused::Signature);
        }
        let (Some(forge_id), Some(event_name)) =
            (header(headers, "x-github-delivery"), header(headers, "x-github-event"))
        else {
            return Err(Refused::NoId);
        };
        let parsed = parse(name, &connection.stored.canonical_hostname, event_name, body);
        if let Parsed::Malformed { reason } = &parsed {
            // Genuine, since it is signed, and unreadable: kept for people, then done with.
            let text = String::from_utf8_lossy(body);
            quarantine::keep(&self.ports, "webhook", &format!("{name}-{forge_id}"), &text, reason)
                .await?;
        }
        let echo = self.echo(&parsed, &connection.stored).await?;
        let (event, state) = judge(parsed, echo);
        let event = event.map(short);
        let delivery = Delivery {
            connection: name.clone(),
            forge_id: forge_id.chars().take(100).collect(),
            event_name: event_name.chars().take(60).collect(),
            received_at: self.ports.clock.now(),
            event,
            state,
        };
        self.store(&delivery).await?;
        Ok(StatusCode::ACCEPTED)
    }

    /// Returns whether a delivery tells of what we did ourselves, and who waits for that. Only of a
    /// status or check run of ours anybody is asked whether somebody does: what begins and ends at
    /// each change must cost no more than being stored.
    async fn echo(&self, parsed: &Parsed, connection: &Connection) -> Result<Echo, PortError> {
        // Anybody may copy a mark; where it is not known who we are it has to do.
        let is_marked = |sender: &str, marked| {
            marked && (connection.login.is_none() || connection.is_own(sender))
        };
        Ok(match parsed {
            Parsed::Event { event, marker } if is_marked(&event.sender, marker.is_some()) => {
                Echo::OfOurs
            }
            Parsed::OnCommit { event, marker }
                if connection.is_own(&event.sender)
                    || is_marked(&event.sender, marker.is_some()) =>
            {
                // Which change it is about no trigger asks here.
                let is_awaited =
                    self.known.status_triggers(&self.ports).await?.is_for(&event.about(0));
                if is_awaited { Echo::None } else { Echo::OfOurs }
            }
            _ => Echo::None,
        })
    }

    /// Stores a delivery with the poke that has it handled; one that is stored already is left as
    /// it is, its poke sent again.
    async fn store(&self, delivery: &Delivery) -> Result<(), PortError> {
        let id = delivery::id(&delivery.connection, &delivery.forge_id);
        let poke = poke(&id, delivery);
        let handled = delivery.state.is_final();
        let due = (!handled).then(|| Due {
            at: delivery.received_at.plus_seconds(HANDLED_WITHIN_SECONDS),
            poke: poke.clone(),
        });
        let head = delivery::record(&id, delivery)?;
        let pokes = if handled { Vec::new() } else { vec![poke.clone()] };
        // The outbox is not struck off here: intake's own commit does that, and until then a repeat
        // is harmless.
        match cell::commit(
            &self.ports,
            Commit { head, others: Vec::new(), pokes: pokes.clone(), due },
        )
        .await?
        {
            Saved::Yes(_) => cell::send(&self.ports, &pokes).await,
            Saved::Stale => {
                tracing::info!(delivery = %id, "a repeated delivery");
                cell::send(&self.ports, &pokes).await
            }
        }
    }
}

fn poke(id: &DeliveryId, delivery: &Delivery) -> Poke {
    Poke::Delivery { delivery: id.clone(), project: delivery::group(delivery) }
}

/// Returns whether a header has the form of a signature: `sha256=` and 64 hexadecimal digits.
fn is_signature(value: &str) -> bool {
    value
        .strip_prefix("sha256=")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Cuts what a record cannot hold: GitHub's comments have up to 65,536 characters, and commands
/// stand near the beginning.
fn short(mut event: ForgeEvent) -> ForgeEvent {
    if let EventKind::Change { comment: Some(comment), .. } = &mut event.kind {
        comment.truncate(comment.floor_char_boundary(COMMENT_BYTES_MAX));
    }
    event
}

/// Whether a delivery is the forge's word of what we did ourselves.
enum Echo {
    /// It is not, or a trigger of some pipeline waits for it.
    None,
    /// It is, and nothing follows from it.
    OfOurs,
}

/// Says what becomes of a delivery at once: what is nobody's business, and what we wrote ourselves,
/// ends here.
fn judge(parsed: Parsed, echo: Echo) -> (Option<ForgeEvent>, DeliveryState) {
    match (parsed, echo) {
        (Parsed::Event { .. } | Parsed::OnCommit { .. }, Echo::OfOurs) => {
            (None, DeliveryState::Own)
        }
        (Parsed::Event { event, .. }, Echo::None) => (Some(event), DeliveryState::Accepted),
        (Parsed::OnCommit { event, .. }, Echo::None) => {
            let kind = EventKind::Commit {
                head: event.head.clone(),
                event: event.event.to_owned(),
                action: event.action.to_owned(),
                status: event.status.clone(),
                after: 0,
            };
            let (connection, project, sender) = (event.connection, event.project, event.sender);
            (Some(ForgeEvent { connection, project, sender, kind }), DeliveryState::Accepted)
        }
        (Parsed::Ignored { reason }, _) => (None, DeliveryState::Ignored { why: reason }),
        (Parsed::Malformed { reason }, _) => (
            None,
            DeliveryState::Ignored { why: format!("malformed, and in quarantine: {reason}") },
        ),
    }
}

enum Refused {
    Unknown,
    Signature,
    TooLarge,
    NoId,
    Store(PortError),
}

impl From<PortError> for Refused {
    fn from(error: PortError) -> Self {
        Self::Store(error)
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

fn answer(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    response
}
