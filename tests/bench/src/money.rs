//! What counted calls cost on AWS: on-demand prices of us-east-1 in dollars, from the services' public pricing pages
//! (aws.amazon.com/{dynamodb,s3,sqs,kms}/pricing, November 2026, before free tiers). The emulator's meter takes the same.
//! Function time, storage, nodes and transfer are left out.

use sluice_memory::Used;

/// DynamoDB on-demand, standard table class: one write request unit.
pub const DYNAMODB_WRITE_UNIT: f64 = 0.625e-6;
/// DynamoDB on-demand, standard table class: one read request unit.
pub const DYNAMODB_READ_UNIT: f64 = 0.125e-6;
/// S3 Standard: one PUT or LIST.
pub const S3_WRITE_REQUEST: f64 = 0.005e-3;
/// S3 Standard: one GET.
pub const S3_READ_REQUEST: f64 = 0.0004e-3;
/// SQS standard queue: one request of up to 64 KiB.
pub const SQS_STANDARD_REQUEST: f64 = 0.40e-6;
/// SQS FIFO queue: one request of up to 64 KiB.
pub const SQS_FIFO_REQUEST: f64 = 0.50e-6;
/// KMS, symmetric key: one request.
pub const KMS_REQUEST: f64 = 0.03e-4;

/// Returns the dollars of the calls of one operation of a port.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn dollars(operation: &str, used: &Used) -> f64 {
    let calls = used.calls as f64;
    let fifo = used.fifo_calls as f64;
    match operation {
        "objects.get" => calls * S3_READ_REQUEST,
        "objects.put" | "objects.list" => calls * S3_WRITE_REQUEST,
        _ => match service(operation) {
            Some("DynamoDB") => used.read_units * DYNAMODB_READ_UNIT + used.write_units * DYNAMODB_WRITE_UNIT,
            Some("SQS") => fifo * SQS_FIFO_REQUEST + (calls - fifo) * SQS_STANDARD_REQUEST,
            Some("KMS") => calls * KMS_REQUEST,
            _ => 0.0,
        },
    }
}

/// Returns the service behind an operation of a port.
pub fn service(operation: &str) -> Option<&'static str> {
    match operation.split_once('.')?.0 {
        "records" => Some("DynamoDB"),
        "objects" => Some("S3"),
        "queues" => Some("SQS"),
        "seal" => Some("KMS"),
        _ => None,
    }
}
