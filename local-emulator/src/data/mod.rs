//! The data services on one machine: DynamoDB, S3, SQS and KMS on disk, and STS. They are no kinder
//! than AWS, but that indexes lag and messages of standard queues come twice only where
//! [`CallFaults`] and [`DataOptions`] ask for it.
//!
//! [`Front`] opens them in one data directory and answers every request, whether it came over a
//! loopback socket ([`serve`]) or from the SDK in this process ([`Connector`]). In that order a
//! request is: read for the service and key it names, struck by [`CallFaults`] and [`Deaths`],
//! verified (Signature Version 4), asked of the [`Authorizer`] for every action on every resource,
//! done and written to disk, counted by the [`Meter`].
//!
//! Killing the process at any moment loses nothing that was acknowledged; see [`Durability`] for
//! power cuts.

mod account;
pub mod auth;
mod connector;
mod deaths;
pub mod dynamo;
mod extra;
mod faults;
mod front;
pub mod kms;
mod meter;
pub mod prices;
pub mod s3;
mod server;
mod sigv4;
pub mod sqs;
mod store;
mod sts;
mod wire;

pub use account::{Account, DEFAULT_ACCOUNT, DEFAULT_REGION};
pub use auth::{
    AllowAll, Authorizer, Caller, Decision, Denied, KeyRing, Principal, SecretAccessKey,
};
pub use connector::{Connector, ENDPOINT};
pub use deaths::{DeathError, Deaths, DeliberateKill, Kill, Moment, Victim, read_deaths};
pub use extra::Extra;
pub use faults::{CallFaults, CallLatency, Fault, InjectedError, Rule, RuleId, Struck, When};
pub use front::{ConnectionLost, DataOptions, Front};
pub use meter::{Call, Count, Meter, MeterReport, Purpose, Row};
pub use server::serve;
pub(crate) use sigv4::scope as credential_scope;
pub use store::{Durability, StoreError};
pub use sts::AssumableRole;
pub use wire::{Problem, Service, Usage, now_ms};

#[cfg(test)]
mod tests;
