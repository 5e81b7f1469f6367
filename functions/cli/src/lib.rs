//! What the two programs share: `sluice`, which people type, and `bootstrap`, which holds every
//! function for AWS Lambda.
//!
//! [`function::Function`] is one function with its ports, answering events as Lambda hands them
//! over; it is the same whether it runs in `bootstrap` or inside `sluice up`. [`place`] says where
//! it stands, [`outside`] makes the forges, repositories and clouds that an operator configured.
//! [`local`] is the whole system on one machine, [`demo`] a story told on it, [`commands`] what
//! operators and people ask.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod commands;
pub mod demo;
pub mod event;
pub mod executor;
pub mod function;
pub mod local;
pub mod outside;
mod own_address;
pub mod place;
pub mod pool_key;
pub mod say;
