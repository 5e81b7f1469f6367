//! A mail server and a broker that a test plays: each takes what it is given, and remembers it.

use async_trait::async_trait;
use sluice_memory::World;
use sluice_notify::{Mail, Message, Notify, NotifyError, Publication};
use sluice_runtime::PortError;
use std::sync::Mutex;

/// The played post.
pub struct PlayedPost {
    world: World,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: Vec<Message>,
    /// How many mails are turned away from now on.
    turned_away: u32,
}

impl PlayedPost {
    /// Makes a post that has taken nothing.
    pub fn new(world: World) -> Self {
        Self { world, state: Mutex::default() }
    }

    /// Has so many mails turned away, as a server does that is about to stop.
    pub fn turn_mails_away(&self, count: u32) {
        self.state.lock().unwrap().turned_away = count;
    }

    /// Returns the mails that were taken, in order.
    pub fn mails(&self) -> Vec<Mail> {
        let taken = self.state.lock().unwrap().taken.clone();
        let mail = |message| match message {
            Message::Mail(mail) => Some(mail),
            Message::Publication(_) => None,
        };
        taken.into_iter().filter_map(mail).collect()
    }

    /// Returns what was published, in order.
    pub fn published(&self) -> Vec<Publication> {
        let taken = self.state.lock().unwrap().taken.clone();
        let publication = |message| match message {
            Message::Publication(publication) => Some(publication),
            Message::Mail(_) => None,
        };
        taken.into_iter().filter_map(publication).collect()
    }
}

#[async_trait]
impl Notify for PlayedPost {
    async fn notify(&self, message: &Message) -> Result<(), NotifyError> {
        let unknown =
            |why: String| NotifyError::Unknown { attempted: "pass a message on".to_owned(), why };
        let taken = self.world.step("post.notify", || {
            let mut state = self.state.lock().unwrap();
            if matches!(message, Message::Mail(_)) && state.turned_away > 0 {
                state.turned_away -= 1;
                return Err(PortError::unknown("pass a message on", "the server says 421"));
            }
            state.taken.push(message.clone());
            Ok(())
        });
        taken.await.map_err(|error| unknown(error.to_string()))
    }
}
