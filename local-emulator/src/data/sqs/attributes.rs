//! Queue attributes as SQS names them on the wire, to settings and back.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_memory::sqs::{
    DedupScope, Redrive, Refusal, SqsQueueKind, SqsQueueSettings, Throughput,
};

/// Attributes that AWS has and that change nothing on one machine; they are taken and not kept.
const WITHOUT_EFFECT: [&str; 6] = [
    "Policy",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "SqsManagedSseEnabled",
    "RedriveAllowPolicy",
    "VpcEndpointPolicy",
];

/// A refusal, or the name of an attribute that SQS does not have.
#[derive(Debug)]
pub(super) enum Mistake {
    Refused(Refusal),
    Unknown(String),
}

impl From<Refusal> for Mistake {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Returns `settings` with the attributes of a request applied, whose values are texts. `FifoQueue`
/// with `true` makes them those of a FIFO queue. An error for an unknown name, an invalid value, or
/// an attribute of FIFO queues on a standard queue. Attributes without effect here, such as
/// `Policy`, are accepted and dropped. Limits are not checked.
pub(super) fn apply(
    mut settings: SqsQueueSettings,
    attributes: &BTreeMap<String, String>,
) -> Result<SqsQueueSettings, Mistake> {
    for (name, value) in attributes {
        match name.as_str() {
            "VisibilityTimeout" => {
                settings.visibility_seconds = number("VisibilityTimeout", value)?
            }
            "DelaySeconds" => settings.delay_seconds = number("DelaySeconds", value)?,
            "MessageRetentionPeriod" => {
                settings.retention_seconds = number("MessageRetentionPeriod", value)?
            }
            "MaximumMessageSize" => {
                settings.message_bytes_max = number("MaximumMessageSize", value)?
            }
            "ReceiveMessageWaitTimeSeconds" => {
                settings.wait_seconds = number("ReceiveMessageWaitTimeSeconds", value)?
            }
            "RedrivePolicy" => settings.redrive = redrive(value)?,
            "FifoQueue" if value == "true" => settings.kind = fifo(settings.kind),
            "FifoQueue" => {
                return Err(invalid(
                    "FifoQueue",
                    value,
                    "Must be true; leave it out for a standard queue.",
                )
                .into());
            }
            "ContentBasedDeduplication" | "DeduplicationScope" | "FifoThroughputLimit" => {}
            other if WITHOUT_EFFECT.contains(&other) => {}
            other => return Err(Mistake::Unknown(other.to_owned())),
        }
    }
    apply_fifo(&mut settings, attributes)?;
    Ok(settings)
}

/// Returns the settings under SQS's names of attributes, as texts. Those of FIFO queues and the
/// redrive policy are left out where they do not apply.
pub(super) fn describe(settings: &SqsQueueSettings) -> BTreeMap<&'static str, String> {
    let mut attributes = BTreeMap::from([
        ("VisibilityTimeout", settings.visibility_seconds.to_string()),
        ("DelaySeconds", settings.delay_seconds.to_string()),
        ("MessageRetentionPeriod", settings.retention_seconds.to_string()),
        ("MaximumMessageSize", settings.message_bytes_max.to_string()),
        ("ReceiveMessageWaitTimeSeconds", settings.wait_seconds.to_string()),
    ]);
    if let Some(redrive) = &settings.redrive {
        let policy = json!({"deadLetterTargetArn": redrive.dead_letter_arn, "maxReceiveCount": redrive.receives_max});
        attributes.insert("RedrivePolicy", policy.to_string());
    }
    if let SqsQueueKind::Fifo { content_dedup, dedup_scope, throughput } = settings.kind {
        attributes.insert("FifoQueue", "true".to_owned());
        attributes.insert("ContentBasedDeduplication", content_dedup.to_string());
        let scope = match dedup_scope {
            DedupScope::Queue => "queue",
            DedupScope::MessageGroup => "messageGroup",
        };
        attributes.insert("DeduplicationScope", scope.to_owned());
        let limit = match throughput {
            Throughput::PerQueue => "perQueue",
            Throughput::PerMessageGroupId => "perMessageGroupId",
        };
        attributes.insert("FifoThroughputLimit", limit.to_owned());
    }
    attributes
}

/// Returns the attributes in `all` whose names are in `asked`, where `All` stands for every name.
/// Empty if `asked` is empty; unknown names are ignored.
pub(super) fn chosen(all: BTreeMap<&'static str, String>, asked: &[String]) -> Map<String, Value> {
    let wanted = |name: &str| asked.iter().any(|one| one == "All" || one == name);
    all.into_iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}

/// Returns `kind` if it is FIFO already, otherwise the kind of a FIFO queue with AWS's defaults.
fn fifo(kind: SqsQueueKind) -> SqsQueueKind {
    match kind {
        SqsQueueKind::Standard => SqsQueueKind::Fifo {
            content_dedup: false,
            dedup_scope: DedupScope::Queue,
            throughput: Throughput::PerQueue,
        },
        fifo @ SqsQueueKind::Fifo { .. } => fifo,
    }
}

/// Applies those of `attributes` that only FIFO queues have to `settings`; ignores all others, also
/// `FifoQueue`. An error for an invalid value, or for such an attribute if `settings` are those of
/// a standard queue.
fn apply_fifo(
    settings: &mut SqsQueueSettings,
    attributes: &BTreeMap<String, String>,
) -> Result<(), Mistake> {
    for name in ["ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"] {
        let Some(value) = attributes.get(name) else {
            continue;
        };
        let SqsQueueKind::Fifo { content_dedup, dedup_scope, throughput } = &mut settings.kind
        else {
            return Err(Mistake::Unknown(name.to_owned()));
        };
        match (name, value.as_str()) {
            ("ContentBasedDeduplication", "true") => *content_dedup = true,
            ("ContentBasedDeduplication", "false") => *content_dedup = false,
            ("DeduplicationScope", "queue") => *dedup_scope = DedupScope::Queue,
            ("DeduplicationScope", "messageGroup") => *dedup_scope = DedupScope::MessageGroup,
            ("FifoThroughputLimit", "perQueue") => *throughput = Throughput::PerQueue,
            ("FifoThroughputLimit", "perMessageGroupId") => {
                *throughput = Throughput::PerMessageGroupId
            }
            _ => return Err(invalid(name, value, "Invalid value for the attribute.").into()),
        }
    }
    Ok(())
}

/// Parses a redrive policy in JSON; an empty text gives `None`, which removes the policy. An error
/// if it is invalid. The dead letter queue need not exist.
fn redrive(policy: &str) -> Result<Option<Redrive>, Refusal> {
    if policy.is_empty() {
        return Ok(None);
    }
    let wrong = || {
        invalid(
            "RedrivePolicy",
            policy,
            "Must be JSON with deadLetterTargetArn and maxReceiveCount.",
        )
    };
    let value: Value = serde_json::from_str(policy).map_err(|_| wrong())?;
    let dead_letter_arn =
        value.get("deadLetterTargetArn").and_then(Value::as_str).ok_or_else(wrong)?.to_owned();
    // Templates give the number as text, SDKs as a number.
    let count = value.get("maxReceiveCount").ok_or_else(wrong)?;
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).ok_or_else(wrong)?;
    Ok(Some(Redrive { dead_letter_arn, receives_max: u32::try_from(count).map_err(|_| wrong())? }))
}

/// Parses the value of the attribute `name` as a number; an error if it is none or does not fit.
fn number<T: std::str::FromStr>(name: &'static str, value: &str) -> Result<T, Refusal> {
    value.parse().map_err(|_| invalid(name, value, "Must be an integer."))
}

/// Returns the error for an invalid value of a parameter, which shows at most its first 100
/// characters.
fn invalid(parameter: &'static str, value: &str, reason: &str) -> Refusal {
    Refusal::InvalidParameter {
        parameter,
        value: value.chars().take(100).collect(),
        reason: reason.to_owned(),
    }
}
