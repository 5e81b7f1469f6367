//! Code shared by two programs: `sluice`, the command for operators and users, and `bootstrap`,
//! which runs every function on AWS Lambda.
//!
//! [`function::FunctionHandler`] is one function with its ports. It answers the same Lambda events
//! in `bootstrap` and inside `sluice up`. [`environment`] reads its settings, and
//! [`connection_drivers`] builds the forges, repositories and clouds from the stored connections.
//! [`local`] runs the whole system on one machine, [`demo`] plays a scenario on it, and
//! [`commands`] implements the commands.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod commands;
pub mod connection_drivers;
pub mod demo;
pub mod environment;
pub mod event;
pub mod executor;
pub mod function;
pub mod local;
pub mod output;
pub mod pool_key;
mod reachable_address;
