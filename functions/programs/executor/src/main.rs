//! The program in the executor's container image. `sluice executor` does the same.

use clap::Parser;
use sluice_executor_program::ExecutorArguments;
use std::process::ExitCode;

/// Run an executor against the services named in the environment (`SLUICE_TABLE`, …)
#[derive(Parser)]
#[command(name = "sluice-executor", version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    executor: ExecutorArguments,
}

/// Runs an executor until it is stopped. An error is printed to standard error, with exit status 1.
#[tokio::main]
async fn main() -> ExitCode {
    match sluice_executor_program::run(Cli::parse().executor).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-executor: {error:#}");
            ExitCode::FAILURE
        }
    }
}
