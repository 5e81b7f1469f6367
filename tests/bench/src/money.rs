//! Computes the price of counted calls on AWS, with the prices of the emulator's meter. Function
//! time, storage, nodes and transfer are not included.

use sluice_memory::Used;
use sluice_memory::prices::{
    DYNAMODB_READ_UNIT, DYNAMODB_WRITE_UNIT, KMS_REQUEST, S3_READ_REQUEST, S3_WRITE_REQUEST,
    SQS_FIFO_REQUEST, SQS_STANDARD_REQUEST,
};

/// Returns the dollars of the calls of one operation of a port.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn dollars(operation: &str, used: &Used) -> f64 {
    let calls = used.calls as f64;
    let fifo = used.fifo_calls as f64;
    match operation {
        "objects.get" => calls * S3_READ_REQUEST,
        "objects.put" | "objects.list" => calls * S3_WRITE_REQUEST,
        _ => match service(operation) {
            Some("DynamoDB") => {
                used.read_units * DYNAMODB_READ_UNIT + used.write_units * DYNAMODB_WRITE_UNIT
            }
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
