//! Who makes a request of the API, and what they may do: decisions without I/O (Z9.1, C2.2).
//!
//! A request comes with a bearer token (a JWT). [`BearerToken::parse`] reads it,
//! [`BearerToken::check`] selects the [`Authenticator`] of its issuer and checks its claims against
//! what that authenticator pins, and [`UnverifiedPrincipal::verify`] gives the [`TokenBearer`] once
//! the caller has checked the signature with the authenticator's key. There is no other way to a
//! principal. [`AccessPolicy`] then decides what the principal, or a request without one, may read
//! and do, by the rules and roles of the main configuration.
//!
//! The crate knows no HTTP, reads no clock and computes no signature: times are arguments, and
//! keys and their algorithms are the caller's.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod authenticator;
mod claims;
mod issuer_keys;
mod policy;
mod token;

pub use authenticator::{
    Algorithm, Authenticator, AuthenticatorDriver, AuthenticatorSet, AuthenticatorSetError,
    LoadUserInfo, SKEW_SECONDS_MAX,
};
pub use issuer_keys::{IssuerKey, IssuerKeys, KeyLookup, READ_AGAIN_SECONDS, parse_keys};
pub use policy::{AccessDecision, AccessPolicy, PermissionList, RequestedAction, RequestedProject};
pub use token::{BearerToken, SignedBytes, TokenBearer, TokenError, UnverifiedPrincipal};
