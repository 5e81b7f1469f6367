//! The one account and region of the emulator, and the ARNs of what lives in them.

/// The default account id.
pub const DEFAULT_ACCOUNT: &str = "000000000000";
/// The default region, whose prices are used.
pub const DEFAULT_REGION: &str = "us-east-1";

/// An account in a region. Every resource of the emulator lives in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Twelve digits.
    pub id: String,
    /// For example `us-east-1`.
    pub region: String,
}

impl Default for Account {
    fn default() -> Self {
        Self { id: DEFAULT_ACCOUNT.to_owned(), region: DEFAULT_REGION.to_owned() }
    }
}

impl Account {
    /// Returns the ARN of a DynamoDB table.
    #[must_use]
    pub fn table_arn(&self, table: &str) -> String {
        format!("arn:aws:dynamodb:{}:{}:table/{table}", self.region, self.id)
    }

    /// Returns the ARN of an index of a DynamoDB table.
    #[must_use]
    pub fn index_arn(&self, table: &str, index: &str) -> String {
        format!("{}/index/{index}", self.table_arn(table))
    }

    /// Returns the ARN of a queue.
    #[must_use]
    pub fn queue_arn(&self, queue: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{queue}", self.region, self.id)
    }

    /// Returns the ARN of a KMS key.
    #[must_use]
    pub fn key_arn(&self, key: &str) -> String {
        format!("arn:aws:kms:{}:{}:key/{key}", self.region, self.id)
    }

    /// Returns the ARN of a bucket; buckets have neither region nor account in theirs.
    #[must_use]
    pub fn bucket_arn(bucket: &str) -> String {
        format!("arn:aws:s3:::{bucket}")
    }

    /// Returns the ARN of an object.
    #[must_use]
    pub fn object_arn(bucket: &str, key: &str) -> String {
        format!("arn:aws:s3:::{bucket}/{key}")
    }
}
