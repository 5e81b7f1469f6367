//! What a check is, what it stands on, and the few words checks are written in.

use futures::future::BoxFuture;
use sluice_memory::World;
use sluice_runtime::record::{Committed, Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The ports a check uses: endpoints need not have the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Needs {
    /// The table.
    Records,
    /// Object storage.
    Objects,
    /// The queues.
    Queues,
    /// Encryption at rest.
    Seal,
}

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// What must hold, as a sentence.
    pub name: &'static str,
    /// The ports it uses.
    pub needs: Needs,
    pub(crate) run: fn(Arc<Ground>) -> BoxFuture<'static, Outcome>,
}

impl Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// How a check ends.
pub(crate) type Outcome = Result<(), Mismatch>;

/// What a check saw and did not expect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

impl From<PortError> for Mismatch {
    fn from(error: PortError) -> Self {
        Self(error.to_string())
    }
}

/// Fresh ports onto nothing yet, for one check.
pub struct Ground {
    /// The ports.
    pub ports: Ports,
    time: Time,
}

enum Time {
    Real,
    Virtual(World),
}

impl Ground {
    /// Returns ground on which time passes by itself.
    pub fn real(ports: Ports) -> Self {
        Self { ports, time: Time::Real }
    }

    /// Returns ground in memory.
    pub fn in_memory(world: World) -> Self {
        Self { ports: world.ports(), time: Time::Virtual(world) }
    }

    /// Lets a second pass in memory, where a poll does not wait; elsewhere the poll itself has
    /// waited.
    pub(crate) fn a_poll_has_waited(&self) {
        if let Time::Virtual(world) = &self.time {
            world.advance_millis(1_000);
        }
    }

    /// Lets a moment pass before something that may lag is read again.
    pub(crate) async fn moment(&self) {
        match &self.time {
            Time::Real => tokio::time::sleep(Duration::from_millis(100)).await,
            Time::Virtual(world) => world.advance_millis(100),
        }
    }

    /// Writes and expects that it is written.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Outcome {
        let committed = self.commit(writes).await?;
        equal("the write", &committed, &Committed::Yes)
    }

    /// Writes under a fresh write id.
    pub(crate) async fn commit(&self, writes: Vec<Write>) -> Result<Committed, PortError> {
        let write_id = self.ports.entropy.token();
        self.ports.records.commit(writes, &write_id).await
    }

    /// Reads one record.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<Record>, PortError> {
        let mut found = self.ports.records.get(std::slice::from_ref(key)).await?;
        Ok(found.pop().flatten())
    }
}

/// Returns a record of revision `revision` whose body is a JSON text.
pub(crate) fn record(partition: &str, sort: &str, revision: u64) -> Record {
    let mut record = Record::new(Key::new(partition, sort), format!("\"{sort} {revision}\""));
    record.revision = revision;
    record
}

/// Returns the write of a record.
pub(crate) fn put(record: Record, expect: Expect) -> Write {
    Write::Put { record, expect }
}

/// Expects two values to be equal.
pub(crate) fn equal<T: Debug + PartialEq + ?Sized>(what: &str, got: &T, wanted: &T) -> Outcome {
    if got == wanted {
        return Ok(());
    }
    Err(Mismatch(format!("{what}: got {}, not {}", shortened(got), shortened(wanted))))
}

/// Expects something to hold.
pub(crate) fn holds(what: &str, holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(Mismatch(format!("{what}: it does not hold"))) }
}

/// Expects a call to be refused.
pub(crate) fn refused<T: Debug>(what: &str, answer: Result<T, PortError>) -> Outcome {
    match answer {
        Err(_) => Ok(()),
        Ok(answer) => {
            Err(Mismatch(format!("{what}: it was not refused but gave {}", shortened(&answer))))
        }
    }
}

/// Runs `work` for each of `count` writers at once and returns what each of them saw.
pub(crate) async fn at_once<T, F>(
    count: usize,
    work: impl Fn(usize) -> F,
) -> Result<Vec<T>, Mismatch>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|n| tokio::spawn(work(n))).collect();
    futures::future::join_all(tasks)
        .await
        .into_iter()
        .map(|ended| ended.map_err(|error| Mismatch(format!("a writer broke: {error}"))))
        .collect()
}

/// Makes the list of checks from functions whose names are sentences.
macro_rules! checks {
    ($needs:expr; $($name:ident),* $(,)?) => {
        vec![$(crate::check::Check {
            name: stringify!($name),
            needs: $needs,
            run: |ground| Box::pin($name(ground)),
        }),*]
    };
}
pub(crate) use checks;

fn shortened(value: &(impl Debug + ?Sized)) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
