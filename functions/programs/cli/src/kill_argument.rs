//! The value of `sluice up --kill`.

use sluice_local::{DeathError, DeliberateKill};

/// The parsed value of `--kill`: a sequence of deaths, given as one argument.
#[derive(Clone)]
pub(crate) struct KillArgument(pub(crate) Vec<DeliberateKill>);

/// Parses the value of `--kill`: deliberate kills, separated by `;`. For clap.
pub(crate) fn parse_deaths(text: &str) -> Result<KillArgument, DeathError> {
    sluice_local::read_deaths(text).map(KillArgument)
}
