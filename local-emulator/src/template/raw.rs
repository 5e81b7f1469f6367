//! Properties of the provided resources, as the template writes them (references already resolved).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Table {
    pub(super) attribute_definitions: Vec<AttributeDefinition>,
    pub(super) key_schema: Vec<KeyElement>,
    #[serde(default)]
    pub(super) global_secondary_indexes: Vec<Index>,
    pub(super) time_to_live_specification: Option<TimeToLive>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AttributeDefinition {
    pub(super) attribute_name: String,
    pub(super) attribute_type: super::AttributeType,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct KeyElement {
    pub(super) attribute_name: String,
    pub(super) key_type: KeyType,
}

#[derive(Deserialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum KeyType {
    Hash,
    Range,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Index {
    pub(super) index_name: String,
    pub(super) key_schema: Vec<KeyElement>,
    pub(super) projection: Projection,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Projection {
    pub(super) projection_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TimeToLive {
    pub(super) attribute_name: String,
    #[serde(default)]
    pub(super) enabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Queue {
    #[serde(default)]
    pub(super) fifo_queue: bool,
    pub(super) deduplication_scope: Option<String>,
    #[serde(default, deserialize_with = "number")]
    pub(super) visibility_timeout: Option<u32>,
    #[serde(default, deserialize_with = "number")]
    pub(super) message_retention_period: Option<u32>,
    pub(super) redrive_policy: Option<RedrivePolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RedrivePolicy {
    pub(super) dead_letter_target_arn: String,
    pub(super) max_receive_count: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Role {
    #[serde(default)]
    pub(super) policies: Vec<InlinePolicy>,
    #[serde(default)]
    pub(super) managed_policy_arns: Vec<String>,
    pub(super) assume_role_policy_document: TrustPolicy,
}

/// Who may assume a role. An unknown part is an error: not applied, it would allow more than AWS.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct TrustPolicy {
    #[serde(rename = "Version")]
    _version: String,
    pub(super) statement: Vec<TrustStatement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct TrustStatement {
    #[serde(rename = "Effect")]
    _effect: AllowedEffect,
    pub(super) principal: TrustedPrincipal,
    pub(super) action: String,
}

/// The only effect of a trust policy that is known.
#[derive(Deserialize)]
enum AllowedEffect {
    Allow,
}

/// A service, which is given keys of its own here, or a role.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrustedPrincipal {
    #[serde(rename = "Service")]
    _service: Option<String>,
    #[serde(rename = "AWS")]
    pub(super) role_arn: Option<String>,
}

/// A policy of a role that is a resource of its own.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RolePolicy {
    pub(super) role_name: String,
    pub(super) policy_document: crate::policy::Document,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InlinePolicy {
    pub(super) policy_document: crate::policy::Document,
}

/// A function, or what `Globals` says of all of them.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Function {
    pub(super) role: Option<String>,
    #[serde(default, deserialize_with = "number")]
    pub(super) timeout: Option<u32>,
    #[serde(default, deserialize_with = "number")]
    pub(super) memory_size: Option<u32>,
    #[serde(default, deserialize_with = "number")]
    pub(super) reserved_concurrent_executions: Option<u32>,
    #[serde(default)]
    pub(super) environment: Environment,
    pub(super) event_invoke_config: Option<EventInvoke>,
    #[serde(default)]
    pub(super) events: BTreeMap<String, Event>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Environment {
    #[serde(default)]
    pub(super) variables: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EventInvoke {
    #[serde(default, deserialize_with = "number")]
    pub(super) maximum_retry_attempts: Option<u32>,
}

/// What triggers a function. An unknown type is an error, because a function that is never called
/// would look idle.
#[derive(Deserialize)]
#[serde(tag = "Type", content = "Properties")]
pub(super) enum Event {
    #[serde(rename = "SQS")]
    Queue(QueueEvent),
    HttpApi(HttpEvent),
    Schedule(ScheduleEvent),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct QueueEvent {
    pub(super) queue: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) batch_size: Option<u32>,
    #[serde(default)]
    pub(super) function_response_types: Vec<String>,
    pub(super) scaling_config: Option<Scaling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Scaling {
    pub(super) maximum_concurrency: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HttpEvent {
    pub(super) method: String,
    pub(super) path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ScheduleEvent {
    pub(super) schedule: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Task {
    pub(super) task_role_arn: String,
    pub(super) container_definitions: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    #[serde(default)]
    pub(super) environment: Vec<Variable>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

/// Reads a number, or a text of digits, to which a parameter of type Number resolves. `None` for
/// null.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Option::<serde_json::Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(serde_json::Value::String(digits)) => {
            digits.parse().map(Some).map_err(D::Error::custom)
        }
        Some(other) => serde_json::from_value(other).map(Some).map_err(D::Error::custom),
    }
}
