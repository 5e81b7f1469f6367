//! What all functions on AWS Lambda share: settings, events, and the loop that answers them.
//!
//! A program implements [`Function`] for what it links and hands a [`FunctionHandler`] to
//! [`lambda::serve`]. The local system calls the same handler inside its own process. No function
//! and no driver is linked here.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod environment;
pub mod event;
mod handler;
pub mod lambda;
mod name;

pub use environment::FunctionEnvironment;
pub use handler::{Function, FunctionHandler, InvocationError};
pub use name::{FunctionName, LambdaProgram};
