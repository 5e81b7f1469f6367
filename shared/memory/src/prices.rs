//! The prices of requests on AWS: on-demand prices of us-east-1 in dollars, from the public pricing
//! pages (aws.amazon.com/{dynamodb,s3,sqs,kms}/pricing, November 2026, before free tiers). Storage
//! and transfer are not included.

/// DynamoDB on-demand, standard table class: one write request unit.
pub const DYNAMODB_WRITE_UNIT: f64 = 0.625e-6;
/// DynamoDB on-demand, standard table class: one read request unit.
pub const DYNAMODB_READ_UNIT: f64 = 0.125e-6;
/// S3 Standard: one PUT, COPY, POST or LIST.
pub const S3_WRITE_REQUEST: f64 = 0.005e-3;
/// S3 Standard: one GET or any other request that is billed. Deletes and cancels are free.
pub const S3_READ_REQUEST: f64 = 0.0004e-3;
/// SQS standard queue: one request of up to 64 KiB.
pub const SQS_STANDARD_REQUEST: f64 = 0.40e-6;
/// SQS FIFO queue: one request of up to 64 KiB.
pub const SQS_FIFO_REQUEST: f64 = 0.50e-6;
/// KMS, symmetric key: one request.
pub const KMS_REQUEST: f64 = 0.03e-4;
