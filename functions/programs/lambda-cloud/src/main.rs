//! The program on AWS Lambda with the functions that call a cloud.

use sluice_handler::LambdaProgram;
use sluice_handler::lambda::{Error, serve};

#[tokio::main]
async fn main() -> Result<(), Error> {
    serve(LambdaProgram::CloudFunctions, sluice_lambda_cloud::handler).await
}
