//! Record kinds, derived from keys, and the rules of each kind.

use sluice_runtime::record::Key;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Delivery,
    Queue,
    Item,
    InboxMessage,
    Landing,
    Order,
    Stop,
    Resume,
    Run,
    Merge,
    Report,
    Buildset,
    Tenant,
    Health,
    Provider,
    Node,
    Request,
    Autohold,
    Semaphore,
    SeenEvents,
    BranchLock,
    Quarantine,
    Halted,
    Other,
}

impl Kind {
    /// Returns whether each write must be based on the previous revision.
    pub(super) fn requires_known_revision(self) -> bool {
        matches!(
            self,
            Self::Delivery
                | Self::Queue
                | Self::Item
                | Self::Landing
                | Self::Run
                | Self::Report
                | Self::Tenant
                | Self::Provider
                | Self::Node
                | Self::Request
                | Self::Semaphore
                | Self::SeenEvents
                | Self::BranchLock
        )
    }

    /// Returns whether it is removed at its end and never comes back.
    pub(super) fn is_removed_at_end(self) -> bool {
        matches!(self, Self::Item | Self::Node | Self::Request)
    }

    /// Returns whether it is kept for weeks.
    pub(super) fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::Delivery
                | Self::Queue
                | Self::Landing
                | Self::Order
                | Self::Run
                | Self::Merge
                | Self::Report
                | Self::Buildset
        )
    }
}

/// Returns the kind of the record with this key.
pub(super) fn kind(key: &Key) -> Kind {
    let (partition, _) = key.partition.split_once('#').unwrap_or((key.partition.as_str(), ""));
    let (sort, _) = key.sort.split_once('#').unwrap_or((key.sort.as_str(), ""));
    match (partition, sort) {
        ("quarantine", _) => Kind::Quarantine,
        (_, "halted") => Kind::Halted,
        ("delivery", "head") => Kind::Delivery,
        ("queue", "head") => Kind::Queue,
        ("queue", "item") => Kind::Item,
        ("queue", "inbox") => Kind::InboxMessage,
        ("landing", _) => Kind::Landing,
        ("build", "order") => Kind::Order,
        ("build", "stop") => Kind::Stop,
        ("build", "resume") => Kind::Resume,
        ("build", "run") => Kind::Run,
        ("merge", _) => Kind::Merge,
        ("report", _) => Kind::Report,
        ("buildset", "head") => Kind::Buildset,
        ("tenant", "head") => Kind::Tenant,
        ("provider", "head") => Kind::Provider,
        ("health", _) => Kind::Health,
        ("provider", "node") => Kind::Node,
        ("provider", "request") => Kind::Request,
        ("autohold", _) => Kind::Autohold,
        ("semaphores", _) => Kind::Semaphore,
        ("change", "seen-events") => Kind::SeenEvents,
        ("branch", "lock") => Kind::BranchLock,
        _ => Kind::Other,
    }
}
