//! The `sluice` command: parses the command line, runs the command, and returns its exit status.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod aliases;
mod arguments;
mod commands;

use arguments::Cli;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use sluice_operator::output;
use std::process::ExitCode;

/// Runs the command of the command line and returns its exit status. An error is printed to
/// standard error, with exit status 1. So is output that could not be written, even if the command
/// succeeded; a closed pipe is no failure.
#[tokio::main]
async fn main() -> ExitCode {
    let words = aliases::canonical(std::env::args_os().collect());
    let matches = Cli::command().get_matches_from(words);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if prints_json(&matches) {
        output::begin_json();
    }
    let ended = commands::run(cli.command).await;
    output::finish();
    match ended {
        Ok(code) => match output::failure() {
            None => code,
            Some(why) => {
                eprintln!("sluice: could not write to standard output: {why}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("sluice: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the command has the option `--json` and it is given.
fn prints_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => prints_json(inner),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}
