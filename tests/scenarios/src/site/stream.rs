//! What a forge tells without a webhook: stored as a delivery, as whoever holds its stream of
//! events does.

use super::Site;
use sluice_memory::poll_once;
use sluice_model::event::ForgeEvent;
use sluice_model::poke::Poke;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_runtime::record::{Due, Expect, Write};
use sluice_runtime::{Clock as _, cell};

impl Site {
    /// Stores an event as a delivery, and has it handled.
    pub(super) fn store_told(&mut self, event: ForgeEvent) {
        self.told += 1;
        let told = Delivery {
            connection: event.connection.clone(),
            forge_id: format!("stream-{}", self.told),
            event_name: "stream".to_owned(),
            received_at: self.world.now(),
            event: Some(event.clone()),
            state: DeliveryState::Accepted,
        };
        let id = delivery::id(&told.connection, &told.forge_id);
        let poke = Poke::Delivery { delivery: id.clone(), project: event.project };
        let mut record = delivery::record(&id, &told).unwrap();
        record.revision = 1;
        let at = told.received_at.plus_seconds(60);
        (record.due, record.look_at) = (Some(Due { at, poke: poke.clone() }), Some(at));
        self.world.write_directly(Write::Put { record, expect: Expect::Absent });
        if poll_once(cell::send(&self.ports(), &[poke])).is_none() {
            self.deaths += 1;
        }
    }
}
