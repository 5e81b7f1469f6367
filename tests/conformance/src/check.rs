//! Defines checks, the ports they run on, and the helpers they use.

use futures::future::BoxFuture;
use sluice_memory::World;
use sluice_runtime::record::{Expect, Key, Record, TransactionOutcome, Write};
use sluice_runtime::{PortError, Ports};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The ports that a check uses. An endpoint may lack others.
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

/// One conformance check.
#[derive(Clone, Copy)]
pub struct Check {
    /// The rule that is checked, as a sentence.
    pub name: &'static str,
    /// The ports that it uses.
    pub needs: Needs,
    pub(crate) run: fn(Arc<TestPorts>) -> BoxFuture<'static, Outcome>,
}

impl Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The result of a check.
pub(crate) type Outcome = Result<(), Mismatch>;

/// An unexpected observation of a check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

impl From<PortError> for Mismatch {
    fn from(error: PortError) -> Self {
        Self(error.to_string())
    }
}

/// Fresh ports for one check.
pub struct TestPorts {
    /// The ports.
    pub ports: Ports,
    time: Time,
}

enum Time {
    Real,
    Virtual(World),
}

impl TestPorts {
    /// Returns ports whose time passes by itself.
    pub fn real(ports: Ports) -> Self {
        Self { ports, time: Time::Real }
    }

    /// Returns ports in memory.
    pub fn in_memory(world: World) -> Self {
        Self { ports: world.ports(), time: Time::Virtual(world) }
    }

    /// Advances the clock in memory by a second, because a poll does not wait there. Does nothing
    /// elsewhere.
    pub(crate) fn a_poll_has_waited(&self) {
        if let Time::Virtual(world) = &self.time {
            world.advance_millis(1_000);
        }
    }

    /// Waits a moment before an index that may lag is read again.
    pub(crate) async fn moment(&self) {
        match &self.time {
            Time::Real => tokio::time::sleep(Duration::from_millis(100)).await,
            Time::Virtual(world) => world.advance_millis(100),
        }
    }

    /// Writes, and expects success.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Outcome {
        let committed = self.commit(writes).await?;
        equal("the write", &committed, &TransactionOutcome::Written)
    }

    /// Writes with a fresh write id.
    pub(crate) async fn commit(&self, writes: Vec<Write>) -> Result<TransactionOutcome, PortError> {
        let write_id = self.ports.entropy.token();
        self.ports.records.commit(writes, &write_id).await
    }

    /// Reads one record.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<Record>, PortError> {
        let mut found = self.ports.records.get(std::slice::from_ref(key)).await?;
        Ok(found.pop().flatten())
    }
}

/// Returns a record with this revision, whose body is a JSON text.
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
pub(crate) fn equal<T: Debug + PartialEq + ?Sized>(what: &str, got: &T, expected: &T) -> Outcome {
    if got == expected {
        return Ok(());
    }
    Err(Mismatch(format!("{what}: got {}, not {}", shortened(got), shortened(expected))))
}

/// Expects a condition to hold.
pub(crate) fn holds(what: &str, holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(Mismatch(format!("{what}: it does not hold"))) }
}

/// Expects a call to fail.
pub(crate) fn refused<T: Debug>(what: &str, answer: Result<T, PortError>) -> Outcome {
    match answer {
        Err(_) => Ok(()),
        Ok(answer) => {
            Err(Mismatch(format!("{what}: it was not refused but gave {}", shortened(&answer))))
        }
    }
}

/// Runs `work` concurrently for each of `count` writers and returns their results.
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

/// Makes the list of checks from functions whose names state the rules.
macro_rules! checks {
    ($needs:expr; $($name:ident),* $(,)?) => {
        vec![$(crate::check::Check {
            name: stringify!($name),
            needs: $needs,
            run: |target| Box::pin($name(target)),
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
