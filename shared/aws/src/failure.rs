//! Converts failures of the SDK to errors of the ports.

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::display::DisplayErrorContext;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use sluice_runtime::PortError;
use std::error::Error;
use std::fmt;

/// Codes with which the services ask to slow down. The call then had no effect.
const THROTTLED: [&str; 12] = [
    "LimitExceededException",
    "OverLimit",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottledException",
    "ThrottlingException",
    "TransactionConflictException",
];

/// Returns whether a service's code asks to slow down.
pub(crate) fn is_throttling(code: &str) -> bool {
    THROTTLED.contains(&code)
}

/// Returns the error of a failed call of a service: its name, code and message, or why there is no
/// answer. It counts as throttled if the code asks to slow down; otherwise it counts as a call that may
/// have taken effect.
pub(crate) fn failed<E, R>(
    service: impl fmt::Display,
    attempt: impl Into<String>,
    error: SdkError<E, R>,
) -> PortError
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug,
{
    let attempt = attempt.into();
    let Some(answer) = error.as_service_error() else {
        return PortError::unknown(attempt, format!("{service}: {}", why_unanswered(&error)));
    };
    let code = answer.code().unwrap_or("no code");
    let message = answer.message().unwrap_or("no message");
    let why = format!("{service} answered {code}: {message}");
    PortError { attempt, why, throttled: is_throttling(code) }
}

/// Returns the HTTP status of an error answer; `None` without an answer.
pub(crate) fn status<E>(
    error: &SdkError<E, aws_smithy_runtime_api::client::orchestrator::HttpResponse>,
) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

/// Describes why a call got no answer that could be read. The answer itself is never shown, because
/// it may contain the requested data.
fn why_unanswered<E, R>(error: &SdkError<E, R>) -> String
where
    E: Error + 'static,
    R: std::fmt::Debug,
{
    match error {
        // These name causes below the service's answer: connections, time-outs, requests that could
        // not be built.
        SdkError::ConstructionFailure(_)
        | SdkError::TimeoutError(_)
        | SdkError::DispatchFailure(_) => {
            format!("{}", DisplayErrorContext(error))
        }
        // The raw answer is omitted, because it may contain the requested data.
        _ => "the answer could not be parsed".to_owned(),
    }
}
