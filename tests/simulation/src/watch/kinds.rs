//! The kinds of records, told by their keys, and what holds for all of a kind.

use sluice_runtime::record::Key;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Delivery,
    Queue,
    Item,
    Arrival,
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
    Told,
    Turn,
    Quarantine,
    Frozen,
    Other,
}

impl Kind {
    /// Whether each write of it must show what was seen.
    pub(super) fn is_ruled(self) -> bool {
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
                | Self::Told
                | Self::Turn
        )
    }

    /// Whether it is removed at its end, never to come back.
    pub(super) fn is_mortal(self) -> bool {
        matches!(self, Self::Item | Self::Node | Self::Request)
    }

    /// Whether it stays for weeks.
    pub(super) fn is_for_good(self) -> bool {
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

/// Returns what the record under a key is.
pub(super) fn kind(key: &Key) -> Kind {
    let (partition, _) = key.partition.split_once('#').unwrap_or((key.partition.as_str(), ""));
    let (sort, _) = key.sort.split_once('#').unwrap_or((key.sort.as_str(), ""));
    match (partition, sort) {
        ("quarantine", _) => Kind::Quarantine,
        (_, "frozen") => Kind::Frozen,
        ("delivery", "head") => Kind::Delivery,
        ("queue", "head") => Kind::Queue,
        ("queue", "item") => Kind::Item,
        ("queue", "arrival") => Kind::Arrival,
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
        ("change", "told") => Kind::Told,
        ("branch", "turn") => Kind::Turn,
        _ => Kind::Other,
    }
}
