//! The closed list: every resource type and property that this machine has an answer to.
//!
//! A property is read by `resolve.rs`, provided in another way that the list names, or not
//! available on one machine, which the list describes for users. Any other property is ignored and
//! therefore printed: a template must not request something that local runs never have.

use super::intrinsic::long_form;
use serde_yaml::{Mapping, Value as Yaml};
use std::collections::{BTreeMap, BTreeSet};

/// What the machine does about a property.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    /// `resolve.rs` reads it.
    Provided,
    /// It stands for something that is here by other means.
    Otherwise(&'static str),
    /// It asks for something that is not done here at all.
    Absent(&'static str),
}

use Answer::{Absent, Otherwise, Provided};

/// Paths are dotted; `*` is any one part; a path covers all beneath it.
type Properties = &'static [(&'static str, Answer)];

const LOGGED: Answer = Otherwise("printed with the function's name before each line");
const NAMED: Answer = Otherwise("read where it is referred to");
const PROCESS: Answer = Otherwise("the executor is a process of this machine");
const LOOPBACK: Answer = Otherwise("everything is bound to loopback");

const THROTTLING: Answer = Absent("throttling (nothing is refused for coming too fast)");
const ENCRYPTION: Answer = Absent("encryption of the disk (what Sluice seals is sealed)");
const ALARMS: Answer =
    Absent("alarms (`sluice status` lists stuck work, the queues' attributes count messages)");
const SCALING: Answer = Absent("scaling (there is one executor)");

const TABLE: Properties = &[
    ("TableName", Provided),
    ("AttributeDefinitions", Provided),
    ("KeySchema", Provided),
    ("GlobalSecondaryIndexes.IndexName", Provided),
    ("GlobalSecondaryIndexes.KeySchema", Provided),
    ("GlobalSecondaryIndexes.Projection.ProjectionType", Provided),
    ("TimeToLiveSpecification", Provided),
    ("BillingMode", THROTTLING),
    (
        "PointInTimeRecoverySpecification",
        Absent("recovery of an earlier state (copy the data folder instead)"),
    ),
    ("SSESpecification", ENCRYPTION),
];

const BUCKET: Properties = &[
    ("BucketName", Provided),
    (
        "LifecycleConfiguration",
        Absent("expiry of objects (they stay until the data folder is deleted)"),
    ),
    ("BucketEncryption", ENCRYPTION),
    ("PublicAccessBlockConfiguration", LOOPBACK),
    ("OwnershipControls", Otherwise("there is one account")),
];

const QUEUE: Properties = &[
    ("QueueName", Provided),
    ("FifoQueue", Provided),
    ("DeduplicationScope", Provided),
    ("VisibilityTimeout", Provided),
    ("MessageRetentionPeriod", Provided),
    ("RedrivePolicy.deadLetterTargetArn", Provided),
    ("RedrivePolicy.maxReceiveCount", Provided),
    ("FifoThroughputLimit", THROTTLING),
    ("SqsManagedSseEnabled", ENCRYPTION),
];

const KEY: Properties = &[
    ("Description", NAMED),
    ("EnableKeyRotation", Absent("rotation of keys")),
    ("KeyPolicy", Absent("policies of keys (the roles' policies alone rule them)")),
];

const ROLE: Properties = &[
    ("Policies.PolicyName", NAMED),
    ("Policies.PolicyDocument", Provided),
    ("ManagedPolicyArns", Provided),
    ("AssumeRolePolicyDocument", Provided),
];

const ROLE_POLICY: Properties =
    &[("PolicyName", NAMED), ("RoleName", Provided), ("PolicyDocument", Provided)];

const MANAGED_POLICY: Properties = &[("PolicyDocument", Provided), ("Description", NAMED)];

const FUNCTION: Properties = &[
    ("FunctionName", Provided),
    ("Role", Provided),
    ("Timeout", Provided),
    ("MemorySize", Provided),
    ("ReservedConcurrentExecutions", Provided),
    ("Environment.Variables", Provided),
    ("EventInvokeConfig.MaximumRetryAttempts", Provided),
    (
        "EventInvokeConfig.MaximumEventAgeInSeconds",
        Otherwise("a schedule's event is delivered at once or lost"),
    ),
    ("Events.*.Type", Provided),
    ("Events.*.Properties.Queue", Provided),
    ("Events.*.Properties.BatchSize", Provided),
    ("Events.*.Properties.FunctionResponseTypes", Provided),
    ("Events.*.Properties.ScalingConfig.MaximumConcurrency", Provided),
    ("Events.*.Properties.Schedule", Provided),
    ("Events.*.Properties.ApiId", Provided),
    ("Events.*.Properties.Method", Provided),
    ("Events.*.Properties.Path", Provided),
    ("Runtime", Otherwise("in-process, or a binary of the host's own architecture")),
    ("Architectures", Otherwise("in-process, or a binary of the host's own architecture")),
    ("Handler", Otherwise("in-process, or a binary of the host's own architecture")),
    ("CodeUri", Otherwise("in-process, or a binary of the host's own architecture")),
    ("LoggingConfig.LogGroup", LOGGED),
    ("VpcConfig", LOOPBACK),
];

const HTTP_API: Properties = &[("DefaultRouteSettings", THROTTLING)];

const LOG_GROUP: Properties = &[("LogGroupName", NAMED), ("RetentionInDays", LOGGED)];

const TASK: Properties = &[
    ("Family", PROCESS),
    ("RequiresCompatibilities", PROCESS),
    ("NetworkMode", LOOPBACK),
    ("TaskRoleArn", Provided),
    ("ExecutionRoleArn", PROCESS),
    ("ContainerDefinitions.Environment", Provided),
    ("ContainerDefinitions.Name", PROCESS),
    ("ContainerDefinitions.Image", PROCESS),
    ("ContainerDefinitions.Essential", PROCESS),
    ("ContainerDefinitions.Cpu", PROCESS),
    ("ContainerDefinitions.MemoryReservation", PROCESS),
    ("ContainerDefinitions.StopTimeout", PROCESS),
    ("ContainerDefinitions.LinuxParameters.InitProcessEnabled", PROCESS),
    ("ContainerDefinitions.Ulimits", PROCESS),
    ("ContainerDefinitions.LogConfiguration", LOGGED),
];

/// Types whose every property has one answer.
const WHOLE: &[(&str, Answer)] = &[
    ("AWS::S3::BucketPolicy", LOOPBACK),
    ("AWS::SNS::Topic", ALARMS),
    ("AWS::CloudWatch::Alarm", ALARMS),
    ("AWS::EC2::SecurityGroup", LOOPBACK),
    ("AWS::EC2::LaunchTemplate", PROCESS),
    ("AWS::AutoScaling::AutoScalingGroup", SCALING),
    ("AWS::IAM::InstanceProfile", PROCESS),
    ("AWS::ECS::CapacityProvider", PROCESS),
    ("AWS::ECS::Cluster", PROCESS),
    ("AWS::ECS::ClusterCapacityProviderAssociations", PROCESS),
    ("AWS::ECS::Service", PROCESS),
    ("AWS::ApplicationAutoScaling::ScalableTarget", SCALING),
    ("AWS::ApplicationAutoScaling::ScalingPolicy", SCALING),
];

/// What stands beside a resource's properties and says nothing about what runs.
const BESIDE: &[&str] =
    &["Type", "Properties", "DeletionPolicy", "UpdateReplacePolicy", "UpdatePolicy", "DependsOn"];

/// Sections of a template that are read, or that describe it.
const SECTIONS: &[&str] = &[
    "AWSTemplateFormatVersion",
    "Transform",
    "Description",
    "Parameters",
    "Globals",
    "Resources",
    "Outputs",
];

/// Returns the properties of a resource type that this machine handles, each with what it does
/// about them; `None` for an unknown type and for types that are handled as a whole.
fn properties_of(kind: &str) -> Option<Properties> {
    Some(match kind {
        "AWS::DynamoDB::Table" => TABLE,
        "AWS::S3::Bucket" => BUCKET,
        "AWS::SQS::Queue" => QUEUE,
        "AWS::KMS::Key" => KEY,
        "AWS::IAM::Role" => ROLE,
        "AWS::IAM::RolePolicy" => ROLE_POLICY,
        "AWS::IAM::ManagedPolicy" => MANAGED_POLICY,
        "AWS::Serverless::Function" => FUNCTION,
        "AWS::Serverless::HttpApi" => HTTP_API,
        "AWS::Logs::LogGroup" => LOG_GROUP,
        "AWS::ECS::TaskDefinition" => TASK,
        _ => return None,
    })
}

/// What the closed list says about a document.
#[derive(Default)]
pub(super) struct Answers {
    /// `Logical (Type): path` of what has no answer.
    pub(super) ignored: Vec<String>,
    /// `Logical (Type): how` of what is provided otherwise.
    pub(super) elsewhere: Vec<String>,
    /// What is not done here at all, each with the `Logical (Type)` of what asks for it.
    pub(super) absent: BTreeMap<String, BTreeSet<String>>,
}

impl Answers {
    /// Adds how a part of a resource is handled to the matching list; adds nothing for a part that
    /// is simply read.
    fn add(&mut self, logical: &str, kind: &str, answer: Answer) {
        let part = format!("{logical} ({kind})");
        match answer {
            Provided => {}
            Otherwise(how) => self.elsewhere.push(format!("{part}: {how}")),
            Absent(what) => drop(self.absent.entry(what.to_owned()).or_default().insert(part)),
        }
    }
}

/// Compares a document with the list of handled resource types and properties, and returns what is
/// ignored, provided in another way, or absent here. `globals` and `resources` are its sections.
pub(super) fn answers(document: &Yaml, globals: Option<&Mapping>, resources: &Mapping) -> Answers {
    let mut answers = Answers::default();
    for name in keys(document.as_mapping()).filter(|name| !SECTIONS.contains(name)) {
        answers.ignored.push(format!("section {name}"));
    }
    for (logical, resource) in resources {
        let logical = logical.as_str().unwrap_or("(a resource without a name)");
        let kind = resource.get("Type").and_then(Yaml::as_str).unwrap_or("no type");
        for name in keys(resource.as_mapping()).filter(|name| !BESIDE.contains(name)) {
            answers.ignored.push(format!("{logical} ({kind}): {name}"));
        }
        check_properties(&mut answers, logical, kind, resource.get("Properties"));
    }
    for (name, value) in globals.into_iter().flatten() {
        match name.as_str() {
            Some("Function") => {
                check_properties(&mut answers, "Globals", "AWS::Serverless::Function", Some(value))
            }
            other => answers.ignored.push(format!("Globals: {}", other.unwrap_or("(no name)"))),
        }
    }
    answers
}

/// Adds to `answers` how the properties of one resource are handled. A resource of an unknown type
/// is listed as ignored without its properties. Each way of handling is listed once for the
/// resource; each unknown property is listed by itself.
fn check_properties(answers: &mut Answers, logical: &str, kind: &str, properties: Option<&Yaml>) {
    if let Some((_, answer)) = WHOLE.iter().find(|(name, _)| *name == kind) {
        return answers.add(logical, kind, *answer);
    }
    let Some(known) = properties_of(kind) else {
        answers.ignored.push(format!("{logical} ({kind})"));
        return;
    };
    let mut paths = BTreeSet::new();
    if let Some(properties) = properties {
        leaves(properties, &mut Vec::new(), &mut paths);
    }
    let mut ways = BTreeSet::new();
    for path in paths {
        match known.iter().find(|(pattern, _)| covers(pattern, &path)) {
            Some((_, answer)) => drop(ways.insert(*answer)),
            None => answers.ignored.push(format!("{logical} ({kind}): {}", path.join("."))),
        }
    }
    ways.into_iter().for_each(|answer| answers.add(logical, kind, answer));
}

/// Returns the keys of a mapping that are texts; none without a mapping.
fn keys(map: Option<&Mapping>) -> impl Iterator<Item = &str> {
    map.into_iter().flat_map(Mapping::keys).filter_map(Yaml::as_str)
}

/// Adds the paths of all scalars in `value` to `into`; items of a list have their list's path. An
/// intrinsic function, an empty list or an empty mapping counts as a scalar. `path` is the path of
/// `value`, and is the same afterwards.
fn leaves(value: &Yaml, path: &mut Vec<String>, into: &mut BTreeSet<Vec<String>>) {
    match value {
        Yaml::Mapping(map) if long_form(map).is_none() && !map.is_empty() => {
            for (key, inner) in map {
                path.push(key.as_str().unwrap_or("(no text)").to_owned());
                leaves(inner, path, into);
                path.pop();
            }
        }
        Yaml::Sequence(items) if !items.is_empty() => {
            for item in items {
                leaves(item, path, into);
            }
        }
        _ => drop(into.insert(path.clone())),
    }
}

/// Returns whether a dotted pattern of property names matches a path or the start of it; `*` is any
/// one name.
fn covers(pattern: &str, path: &[String]) -> bool {
    let mut parts = path.iter();
    pattern
        .split('.')
        .all(|wanted| parts.next().is_some_and(|part| wanted == "*" || wanted == part))
}
