//! Webhooks, without any I/O: [`verify`] says whether a delivery is genuine, [`parse`] what it
//! hints at.

mod parse;
mod payload;
mod verify;

pub use parse::{CommitEvent, Parsed, parse};
pub use verify::{Rejected, sign, verify};
