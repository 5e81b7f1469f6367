//! The errors of SQS, with AWS's codes.

/// Why SQS refuses an operation. [`Refusal::code`] is AWS's error code, the message AWS's wording
/// where it is documented.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A parameter the queue's kind needs is absent.
    #[error("The request must contain the parameter {parameter}.")]
    MissingParameter {
        /// AWS's name of the parameter.
        parameter: &'static str,
    },
    /// A parameter has a value outside its limits, or one that the queue's kind does not know.
    #[error("Value {value} for parameter {parameter} is invalid. Reason: {reason}")]
    InvalidParameter {
        /// AWS's name of the parameter.
        parameter: &'static str,
        /// The value as it was given, shortened.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The body has characters that SQS does not carry.
    #[error(
        "Message body contains characters outside the allowed set #x9 | #xA | #xD | #x20 to #xD7FF \
         | #xE000 to #xFFFD | #x10000 to #x10FFFF."
    )]
    InvalidContents,
    /// The receipt handle was not made by this queue.
    #[error("The input receipt handle \"{receipt}\" is not a valid receipt handle.")]
    ReceiptInvalid {
        /// The handle as it was given, shortened.
        receipt: String,
    },
    /// The message of the receipt handle is visible again, was received since, or is gone.
    #[error(
        "Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not exist or \
         is not available for visibility timeout change."
    )]
    NotInFlight {
        /// The handle as it was given, shortened.
        receipt: String,
    },
    /// Too many messages are in flight for another short poll.
    #[error(
        "Too many messages are in flight: {in_flight} of at most 120000; delete some before \
         receiving more."
    )]
    OverLimit {
        /// Messages in flight now.
        in_flight: usize,
    },
}

impl Refusal {
    /// Returns AWS's code of the refusal, as JSON clients see it after `com.amazonaws.sqs#`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingParameter { .. } => "MissingParameter",
            Self::InvalidParameter { .. } => "InvalidParameterValue",
            Self::InvalidContents => "InvalidMessageContents",
            Self::ReceiptInvalid { .. } => "ReceiptHandleIsInvalid",
            Self::NotInFlight { .. } => "MessageNotInflight",
            Self::OverLimit { .. } => "OverLimit",
        }
    }

    /// Returns the error for an invalid value of a parameter. The value is cut to 100 characters.
    pub(super) fn invalid(
        parameter: &'static str,
        value: impl ToString,
        reason: impl Into<String>,
    ) -> Self {
        Self::InvalidParameter {
            parameter,
            value: shortened(&value.to_string()),
            reason: reason.into(),
        }
    }
}

/// Returns at most 100 characters of `text`: an error is read by people.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
