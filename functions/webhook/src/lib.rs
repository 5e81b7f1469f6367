//! The webhook: verifies a delivery, stores it and answers 202. Intake processes it afterwards.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod connections;

use crate::connections::{ConnectionCache, Freshness};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use sluice_forge::webhook::{Parsed, parse, verify};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, DeliveryId};
use sluice_records::connection::StoredConnection;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::record::Due;
use sluice_runtime::{CellCommit, CommitOutcome, PortError, Ports, cell, quarantine};

/// The largest body in bytes: what a function can be handed (Lambda's synchronous limit). GitHub
/// sends up to 25 MB.
pub const BODY_BYTES_MAX: usize = 6 * 1024 * 1024;

/// The most bytes of a comment that are stored and matched by triggers.
const COMMENT_BYTES_MAX: usize = 8 * 1024;

/// Seconds after which an accepted but unprocessed delivery is due again.
const HANDLED_WITHIN_SECONDS: u64 = 60;

/// The most characters of an unknown connection's name in the log: every sender chooses one.
const NAME_CHARACTERS_MAX: usize = 60;

/// Receives deliveries for all connections.
#[derive(Debug)]
pub struct WebhookReceiver {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The cached connections.
    connections: ConnectionCache,
}

impl WebhookReceiver {
    /// Returns a webhook on these ports, with an empty cache of connections.
    pub fn new(ports: Ports) -> Self {
        Self { ports, connections: ConnectionCache::default() }
    }

    /// Answers one webhook request. 202 means that the delivery is stored or is a repeat of one;
    /// also an ignored, self-authored or malformed one, which intake does not process. 401, without
    /// detail, means that the signature is missing or wrong, or the connection does not exist. 413
    /// means a body over [`BODY_BYTES_MAX`], and 400 that a signed request has no delivery id or
    /// event name. If the store or the key service does not answer, it is 503, so that nothing
    /// counts as received that is not stored.
    ///
    /// The path is `/api/connection/{connection}/payload`.
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
                tracing::warn!(connection = ?name, "received a delivery for a connection that does not exist: check the webhook's URL");
                answer(StatusCode::UNAUTHORIZED, "")
            }
            Err(Refused::Signature) => {
                tracing::warn!(%connection, "received a delivery that is not signed with the connection's webhook secret: check that the forge has the same secret");
                answer(StatusCode::UNAUTHORIZED, "")
            }
            Err(Refused::TooLarge) => answer(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is larger than 6 MB; the sweep will find its change\n",
            ),
            Err(Refused::NoId) => {
                answer(StatusCode::BAD_REQUEST, "X-GitHub-Delivery or X-GitHub-Event is missing\n")
            }
            Err(Refused::Store(error)) => {
                tracing::error!(%connection, %error, "cannot store a delivery; answering 503");
                answer(StatusCode::SERVICE_UNAVAILABLE, "try again\n")
            }
        }
    }

    /// Checks a webhook's signature, stores its event as a delivery and wakes intake. Returns the
    /// status of a success, also for a repeated event. Ignored, malformed and self-authored events
    /// are a success too: they are stored in a final state and do not wake intake; malformed ones
    /// are also put into quarantine. A body that is too large and a missing or misformed signature
    /// are refused at once; a signed request without its id or event name is refused too. If the
    /// signature is wrong or the connection unknown, the connections are read again before it is
    /// refused, unless that was done in the last two seconds.
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
        // A request without a well-formed signature costs no call.
        let signature = Some(signature.ok_or(Refused::Signature)?);
        let is_signed =
            |secrets: &[sluice_forge::ForgeSecret]| verify(secrets, signature, body).is_ok();
        let mut connection = self.connections.get(&self.ports, name, Freshness::Minute).await?;
        if !connection.as_ref().is_some_and(|connection| is_signed(&connection.secrets)) {
            // The secret may have changed, or the connection may be new.
            connection = self.connections.get(&self.ports, name, Freshness::Now).await?;
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
            // It is signed, so it is genuine, but unreadable: it is quarantined for operators.
            let text = String::from_utf8_lossy(body);
            quarantine::quarantine_message(
                &self.ports,
                "webhook",
                &format!("{name}-{forge_id}"),
                &text,
                reason,
            )
            .await?;
        }
        let echo = self.echo(&parsed, &connection.stored).await?;
        let (event, state) = classify(parsed, echo);
        let event = event.map(shorten);
        let delivery = DeliveryRecord {
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

    /// Returns whether a delivery is an echo: it reports something that Sluice did, and triggers
    /// nothing. An event is Sluice's if it has Sluice's marker and comes from its account, or from
    /// any account if Sluice's is unknown. A status or check run from its account is Sluice's also
    /// without the marker; it is an echo only if no trigger of any tenant matches it. Ignored and
    /// malformed deliveries are none. The status triggers are read only for Sluice's own statuses
    /// and check runs.
    async fn echo(
        &self,
        parsed: &Parsed,
        connection: &StoredConnection,
    ) -> Result<Echo, PortError> {
        // Markers can be copied, so the account counts too, where it is known.
        let is_marked = |sender: &str, marked| {
            marked && (connection.login.is_none() || connection.is_own_account(sender))
        };
        Ok(match parsed {
            Parsed::Event { event, marker } if is_marked(&event.sender, marker.is_some()) => {
                Echo::SelfAuthored
            }
            Parsed::OnCommit { event, marker }
                if connection.is_own_account(&event.sender)
                    || is_marked(&event.sender, marker.is_some()) =>
            {
                // Triggers do not use the number of the change here.
                let is_triggered =
                    self.connections.status_triggers(&self.ports).await?.is_for(&event.about(0));
                if is_triggered { Echo::None } else { Echo::SelfAuthored }
            }
            _ => Echo::None,
        })
    }

    /// Stores a delivery, and wakes intake for it unless it is in a final state. If one of the same
    /// id is stored already, that one is left as it is, and this is no error; intake is woken by
    /// the state of the new one.
    async fn store(&self, delivery: &DeliveryRecord) -> Result<(), PortError> {
        let id = delivery::id(&delivery.connection, &delivery.forge_id);
        let wakeup = delivery_wakeup(&id, delivery);
        let handled = delivery.state.is_final();
        let due = (!handled).then(|| Due {
            at: delivery.received_at.plus_seconds(HANDLED_WITHIN_SECONDS),
            wakeup: wakeup.clone(),
        });
        let head = delivery::record(&id, delivery)?;
        let wakeups = if handled { Vec::new() } else { vec![wakeup.clone()] };
        // The outbox is not cleared here: intake's commit does that, and until then a repeat is
        // harmless.
        match cell::commit(
            &self.ports,
            CellCommit { head, others: Vec::new(), wakeups: wakeups.clone(), due },
        )
        .await?
        {
            CommitOutcome::Written(_) => cell::send(&self.ports, &wakeups).await,
            CommitOutcome::Stale => {
                tracing::info!(delivery = %id, "a repeated delivery");
                cell::send(&self.ports, &wakeups).await
            }
        }
    }
}

/// Returns the wakeup by which intake processes a delivery.
fn delivery_wakeup(id: &DeliveryId, delivery: &DeliveryRecord) -> Wakeup {
    Wakeup::Delivery { delivery: id.clone(), project: delivery::ordering_project(delivery) }
}

/// Returns whether a header has the form of a signature: `sha256=` and 64 hexadecimal digits.
fn is_signature(value: &str) -> bool {
    value
        .strip_prefix("sha256=")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the event with its comment cut to 8 KiB: GitHub's comments have up to 65,536 characters,
/// and commands are near the beginning.
fn shorten(mut event: ForgeEvent) -> ForgeEvent {
    if let EventKind::Change { comment: Some(comment), .. } = &mut event.kind {
        comment.truncate(comment.floor_char_boundary(COMMENT_BYTES_MAX));
    }
    event
}

/// Whether a delivery is an echo of what Sluice did.
enum Echo {
    /// It is not, or some trigger matches it.
    None,
    /// It is, and triggers nothing.
    SelfAuthored,
}

/// Returns the delivery's event and first state. Only an accepted event, which intake processes, is
/// returned. For echoes, ignored and malformed deliveries the event is `None` and the state is
/// final.
fn classify(parsed: Parsed, echo: Echo) -> (Option<ForgeEvent>, DeliveryState) {
    match (parsed, echo) {
        (Parsed::Event { .. } | Parsed::OnCommit { .. }, Echo::SelfAuthored) => {
            (None, DeliveryState::SelfAuthored)
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
        (Parsed::Malformed { reason }, _) => {
            (None, DeliveryState::Ignored { why: format!("malformed, quarantined: {reason}") })
        }
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

/// Returns the text of a header; `None` if it is missing, empty or no text.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

/// Builds a response with a plain text.
fn answer(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    response
}
