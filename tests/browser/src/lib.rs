//! Fixtures for tests of the API and its pages: a [`story`] in records as the functions write them,
//! a server on loopback ([`serve`]), and headless Chromium ([`browser`]).

pub mod browser;
pub mod configuration;
pub mod serve;
pub mod story;
