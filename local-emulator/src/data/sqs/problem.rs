//! SQS's errors in JSON, with the older codes that SDKs still match on.

use sluice_memory::sqs::Refusal;

use super::super::auth::Denied;
use super::super::faults::InjectedError;
use super::super::wire::Problem;
use super::SqsError;
use super::attributes::Mistake;

pub(super) const NO_QUEUE: &str = "AWS.SimpleQueueService.NonExistentQueue";

/// Returns SQS's form of an injected failure: throttling as such (403), every other one as an
/// internal error (500).
pub(in super::super) fn injected(failure: &InjectedError) -> Problem {
    match failure {
        InjectedError::Throttled => {
            problem(403, "RequestThrottled", "RequestThrottled", "Request was throttled.")
        }
        _ => problem(
            500,
            "InternalError",
            "InternalError",
            "We encountered an internal error. Please try again.",
        ),
    }
}

/// Returns an error with its name in the JSON protocol (`kind`) and in the older query protocol
/// (`query_code`).
fn problem(status: u16, kind: &str, query_code: &str, message: impl Into<String>) -> Problem {
    let mut problem = Problem::new(status, format!("com.amazonaws.sqs#{kind}"), message);
    problem.query_code = Some(query_code.to_owned());
    problem
}

/// Returns an error with status 400 about a whole request, whose name in the query protocol is
/// `AWS.SimpleQueueService.` and `kind`.
pub(super) fn batch_problem(kind: &str, message: impl Into<String>) -> Problem {
    problem(400, kind, &format!("AWS.SimpleQueueService.{kind}"), message)
}

/// Converts a denial by a policy to SQS's error (403).
pub(super) fn denied(denied: Denied) -> Problem {
    problem(403, "AccessDeniedException", "AccessDenied", denied.to_string())
}

/// Returns the error for a missing parameter.
pub(super) fn missing(parameter: &'static str) -> Problem {
    refused(&Refusal::MissingParameter { parameter })
}

/// Returns the error for an operation that SQS does not have.
pub(super) fn unknown_operation(operation: &str) -> Problem {
    let text = format!("the operation {operation} is not provided");
    Problem::new(400, "com.amazon.coral.service#UnknownOperationException", text)
}

/// Converts an error in a queue's attributes to SQS's error (400).
pub(super) fn mistake(mistake: Mistake) -> Problem {
    match mistake {
        Mistake::Refused(refusal) => refused(&refusal),
        Mistake::Unknown(name) => problem(
            400,
            "InvalidAttributeName",
            "InvalidAttributeName",
            format!("Unknown Attribute {name}."),
        ),
    }
}

/// Converts a refusal by the rules of SQS to its error (400).
pub(super) fn refused(refusal: &Refusal) -> Problem {
    let code = refusal.code();
    let query_code = match refusal {
        Refusal::NotInFlight { .. } => "AWS.SimpleQueueService.MessageNotInflight",
        _ => code,
    };
    problem(400, code, query_code, refusal.to_string())
}

impl From<SqsError> for Problem {
    /// Converts an error of the queues to SQS's error: 500 if a change could not be stored,
    /// otherwise 400.
    fn from(error: SqsError) -> Self {
        let text = error.to_string();
        match error {
            SqsError::NoQueue { .. } => problem(400, "QueueDoesNotExist", NO_QUEUE, text),
            SqsError::Exists { .. } => problem(400, "QueueNameExists", "QueueAlreadyExists", text),
            SqsError::PurgeInProgress { .. } => batch_problem("PurgeQueueInProgress", text),
            SqsError::Refused(refusal) => refused(&refusal),
            SqsError::Store(_) => problem(500, "InternalError", "InternalError", text),
        }
    }
}
