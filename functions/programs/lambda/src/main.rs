//! The program on AWS Lambda with the functions that call no cloud.

use sluice_handler::LambdaProgram;
use sluice_handler::lambda::{Error, serve};

#[tokio::main]
async fn main() -> Result<(), Error> {
    serve(LambdaProgram::Functions, sluice_lambda::handler).await
}
