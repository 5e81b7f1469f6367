//! The classification of EC2's refusals.

use crate::driver::CloudError;
use crate::query::CallFailure;

/// Prefixes of error codes that mean an invalid parameter or a missing object.
const FINAL: [&str; 10] = [
    "InvalidAMIID",
    "InvalidParameter",
    "InvalidSubnet",
    "InvalidGroup",
    "InvalidSecurityGroupID",
    "InvalidKeyPair",
    "InvalidInstanceType",
    "InvalidBlockDeviceMapping",
    "InvalidUserData",
    "InvalidAvailabilityZone",
];

impl CallFailure {
    /// Returns whether EC2 refused the call because a machine does not exist.
    pub(super) fn is_missing_instance(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "InvalidInstanceID.NotFound")
    }

    /// Classifies the failure of a call. `attempt` is what was attempted, after "could not", and
    /// `origin` with what the call was made, for the message. Only a closed list of EC2's codes is
    /// permanent; other codes mean quota, capacity, a token of another launch, or a later attempt
    /// after 2 or 5 seconds. Everything else, and an unanswered call, has an unknown outcome.
    pub(super) fn into_error(self, attempt: String, origin: &str) -> CloudError {
        let (status, code, message) = match self {
            Self::Unanswered(why) => {
                return CloudError::Unknown { attempt, why: format!("{why} ({origin})") };
            }
            Self::Refused { status, code, message } => (status, code, message),
        };
        let why = format!("{code}: {message} ({origin})");
        match code.as_str() {
            "InstanceLimitExceeded"
            | "VcpuLimitExceeded"
            | "VolumeLimitExceeded"
            | "MaxSpotInstanceCountExceeded" => CloudError::Quota { attempt, why },
            "InsufficientInstanceCapacity"
            | "InsufficientHostCapacity"
            | "InsufficientCapacity"
            | "InsufficientFreeAddressesInSubnet" => CloudError::NoCapacity { attempt, why },
            "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => {
                CloudError::TokenTaken { attempt, why }
            }
            "UnauthorizedOperation"
            | "OptInRequired"
            | "MissingParameter"
            | "Unsupported"
            | "UnsupportedOperation" => CloudError::Permanent { attempt, why },
            // `InvalidSignature` and similar codes are excluded: credentials and clocks are
            // repaired without a new request.
            code if FINAL.iter().any(|start| code.starts_with(start)) => {
                CloudError::Permanent { attempt, why }
            }
            "RequestLimitExceeded" | "Throttling" | "ThrottlingException" => {
                CloudError::Transient { attempt, why, retry_after_seconds: 5 }
            }
            "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable" => {
                CloudError::Transient { attempt, why, retry_after_seconds: 2 }
            }
            _ if status == 503 => CloudError::Transient { attempt, why, retry_after_seconds: 2 },
            _ => CloudError::Unknown { attempt, why },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(status: u16, code: &str) -> CloudError {
        CallFailure::Refused { status, code: code.into(), message: String::new() }
            .into_error(String::new(), "")
    }

    /// Z1.6
    #[test]
    fn only_a_closed_list_of_codes_is_permanent() {
        assert!(matches!(classify(400, "InvalidAMIID.NotFound"), CloudError::Permanent { .. }));
        assert!(matches!(classify(400, "InstanceLimitExceeded"), CloudError::Quota { .. }));
        assert!(matches!(
            classify(500, "InsufficientInstanceCapacity"),
            CloudError::NoCapacity { .. }
        ));
        assert!(matches!(
            classify(400, "IdempotentParameterMismatch"),
            CloudError::TokenTaken { .. }
        ));
        assert!(matches!(
            classify(503, "RequestLimitExceeded"),
            CloudError::Transient { retry_after_seconds: 5, .. }
        ));
        assert!(matches!(classify(401, "AuthFailure"), CloudError::Unknown { .. }));
        assert!(matches!(classify(403, "InvalidSignature"), CloudError::Unknown { .. }));
        assert!(matches!(classify(502, "HTTP 502"), CloudError::Unknown { .. }));
    }
}
