//! A mail server and an MQTT broker that a test controls. Both record the messages that they
//! receive.

use async_trait::async_trait;
use sluice_memory::World;
use sluice_notify::{Mail, Notification, Notify, NotifyError, Publication};
use sluice_runtime::PortError;
use std::sync::Mutex;

/// A mail server and an MQTT broker in memory.
pub struct PlayedNotifier {
    world: World,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    received: Vec<Notification>,
    /// How many of the next mails are refused.
    mails_to_refuse: u32,
}

impl PlayedNotifier {
    /// Creates an instance without messages.
    pub fn new(world: World) -> Self {
        Self { world, state: Mutex::default() }
    }

    /// Refuses this many of the next mails, like a server that is shutting down.
    pub fn turn_mails_away(&self, count: u32) {
        self.state.lock().unwrap().mails_to_refuse = count;
    }

    /// Returns the received mails, in order.
    pub fn mails(&self) -> Vec<Mail> {
        let received = self.state.lock().unwrap().received.clone();
        let mail = |message| match message {
            Notification::Mail(mail) => Some(mail),
            Notification::Publication(_) => None,
        };
        received.into_iter().filter_map(mail).collect()
    }

    /// Returns the received MQTT publications, in order.
    pub fn published(&self) -> Vec<Publication> {
        let received = self.state.lock().unwrap().received.clone();
        let publication = |message| match message {
            Notification::Publication(publication) => Some(publication),
            Notification::Mail(_) => None,
        };
        received.into_iter().filter_map(publication).collect()
    }
}

#[async_trait]
impl Notify for PlayedNotifier {
    async fn notify(&self, message: &Notification) -> Result<(), NotifyError> {
        let unknown =
            |why: String| NotifyError::Unknown { attempted: "pass a message on".to_owned(), why };
        let outcome = self.world.step("post.notify", || {
            let mut state = self.state.lock().unwrap();
            if matches!(message, Notification::Mail(_)) && state.mails_to_refuse > 0 {
                state.mails_to_refuse -= 1;
                return Err(PortError::unknown("pass a message on", "the server says 421"));
            }
            state.received.push(message.clone());
            Ok(())
        });
        outcome.await.map_err(|error| unknown(error.to_string()))
    }
}
