//! Stream events of the forge, stored as deliveries like the stream reader does.

use super::Site;
use sluice_memory::poll_once;
use sluice_model::event::ForgeEvent;
use sluice_model::wakeup::Wakeup;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::record::{Due, Expect, Write};
use sluice_runtime::{Clock as _, cell};

impl Site {
    /// Stores an event as a delivery and sends its wakeup.
    pub(super) fn store_stream_event(&mut self, event: ForgeEvent) {
        self.stream_events_stored += 1;
        let delivery = DeliveryRecord {
            connection: event.connection.clone(),
            forge_id: format!("stream-{}", self.stream_events_stored),
            event_name: "stream".to_owned(),
            received_at: self.world.now(),
            event: Some(event.clone()),
            state: DeliveryState::Accepted,
        };
        let id = delivery::id(&delivery.connection, &delivery.forge_id);
        let wakeup = Wakeup::Delivery { delivery: id.clone(), project: event.project };
        let mut record = delivery::record(&id, &delivery).unwrap();
        record.revision = 1;
        let at = delivery.received_at.plus_seconds(60);
        (record.due, record.sweep_at) = (Some(Due { at, wakeup: wakeup.clone() }), Some(at));
        self.world.write_unchecked(Write::Put { record, expect: Expect::Absent });
        if poll_once(cell::send(&self.ports(), &[wakeup])).is_none() {
            self.deaths += 1;
        }
    }
}
