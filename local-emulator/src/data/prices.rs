//! What calls cost on AWS, by the prices of requests that stand beside the rules of the services in
//! memory.

use super::wire::{Service, Usage};
pub use sluice_memory::prices::{
    DYNAMODB_READ_UNIT, DYNAMODB_WRITE_UNIT, KMS_REQUEST, S3_READ_REQUEST, S3_WRITE_REQUEST,
    SQS_FIFO_REQUEST, SQS_STANDARD_REQUEST,
};

/// Returns what AWS charges for one call, in dollars: DynamoDB by units, SQS by billed requests, S3
/// by operation (deletes are free) and KMS by call. Added services cost nothing here. Stored and
/// transferred bytes are not included.
#[must_use]
pub fn dollars(service: &Service, operation: &str, usage: &Usage) -> f64 {
    match service {
        Service::DynamoDb => {
            usage.write_units * DYNAMODB_WRITE_UNIT + usage.read_units * DYNAMODB_READ_UNIT
        }
        Service::S3 => s3_request(operation),
        Service::Sqs if usage.fifo => usage.billed_requests as f64 * SQS_FIFO_REQUEST,
        Service::Sqs => usage.billed_requests as f64 * SQS_STANDARD_REQUEST,
        Service::Kms => KMS_REQUEST,
        Service::Other(_) => 0.0,
    }
}

/// Returns the price of one S3 request in dollars: nothing for deletes, the price of reads or of
/// writes; an unknown operation costs as a write.
fn s3_request(operation: &str) -> f64 {
    match operation {
        "DeleteObject" | "DeleteObjects" | "AbortMultipartUpload" | "DeleteBucket" => 0.0,
        "GetObject" | "HeadObject" | "HeadBucket" | "GetBucketLocation" => S3_READ_REQUEST,
        _ => S3_WRITE_REQUEST,
    }
}
