//! The plan of a machine, read from a template: tables, buckets, queues, keys, functions and event
//! sources.

use crate::data::{AssumableRole, Principal};
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Everything that the machine provides from a template.
#[derive(Debug, Clone, Default)]
pub struct TemplatePlan {
    /// Tables, by the order of the template (so are all lists here).
    pub tables: Vec<TablePlan>,
    /// Buckets.
    pub buckets: Vec<BucketPlan>,
    /// Queues, dead letter queues included.
    pub queues: Vec<MessageQueuePlan>,
    /// Keys for sealing.
    pub keys: Vec<KeyPlan>,
    /// Functions.
    pub functions: Vec<FunctionPlan>,
    /// Queues that call functions.
    pub sources: Vec<SourcePlan>,
    /// Schedules that call functions.
    pub schedules: Vec<SchedulePlan>,
    /// HTTP routes that call functions.
    pub routes: Vec<RoutePlan>,
    /// The executor, where the template has one.
    pub executor: Option<ExecutorPlan>,
    /// The roles that functions or the executor may assume.
    pub roles: Vec<RolePlan>,
    pub(crate) ignored: Vec<String>,
    pub(crate) elsewhere: Vec<String>,
    pub(crate) absent: BTreeMap<String, BTreeSet<String>>,
}

impl TemplatePlan {
    /// Returns the template's sections, resources and properties that this machine does not know:
    /// `Logical (Type): property.path`. Empty for Sluice's own template.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        self.ignored.clone()
    }

    /// Returns the parts of the template that this machine provides in another way: `Logical
    /// (Type): how`.
    #[must_use]
    pub fn elsewhere(&self) -> &[String] {
        &self.elsewhere
    }

    /// Returns what this machine does not do at all, such as alarms, each with the parts of the
    /// template that ask for it: `Logical (Type)`.
    #[must_use]
    pub fn absent(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.absent
    }

    /// Returns the function with this id (`SLUICE_FUNCTION`, otherwise its name); `None` if there
    /// is none.
    #[must_use]
    pub fn function(&self, id: &str) -> Option<&FunctionPlan> {
        self.functions.iter().find(|function| function.id == id)
    }

    /// Returns the queue with this ARN; `None` if there is none.
    #[must_use]
    pub fn queue(&self, arn: &str) -> Option<&MessageQueuePlan> {
        self.queues.iter().find(|queue| queue.arn == arn)
    }

    /// Returns the roles as STS needs them: each acts as the principal of its name, with the
    /// policies of [`crate::policy::Policies::of`].
    pub fn assumable_roles(&self) -> impl Iterator<Item = AssumableRole> {
        self.roles.iter().map(|role| AssumableRole {
            arn: role.arn.clone(),
            trusted: Some(role.trusted.iter().map(Principal::new).collect()),
            external_id: None,
            acts_as: Principal::new(&role.name),
            life_seconds_max: None,
        })
    }

    /// Returns each function's id and, if there is an executor, `executor`, with its policy.
    pub fn principals(&self) -> impl Iterator<Item = (&str, &Policy)> {
        let functions =
            self.functions.iter().map(|function| (function.id.as_str(), &function.policy));
        functions
            .chain(self.executor.iter().map(|executor| (ExecutorPlan::PRINCIPAL, &executor.policy)))
    }
}

/// A table with its indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePlan {
    /// Physical name.
    pub name: String,
    /// `arn:aws:dynamodb:…:table/NAME`.
    pub arn: String,
    /// Its primary key.
    pub keys: KeySchema,
    /// Its global secondary indexes.
    pub indexes: Vec<IndexPlan>,
    /// The attribute (epoch seconds) after which an item may be deleted.
    pub ttl_attribute: Option<String>,
}

/// A global secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPlan {
    /// Its name within the table.
    pub name: String,
    /// Its key.
    pub keys: KeySchema,
    /// `KEYS_ONLY`, `ALL` or `INCLUDE`.
    pub projection: String,
}

/// A key: one attribute to spread by, perhaps one to order by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySchema {
    /// The partition key.
    pub hash: KeyAttributePlan,
    /// The sort key.
    pub range: Option<KeyAttributePlan>,
}

/// An attribute that is part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAttributePlan {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: AttributeType,
}

/// Types a key attribute may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub enum AttributeType {
    /// Text.
    S,
    /// A number.
    N,
    /// Bytes.
    B,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPlan {
    /// Physical name.
    pub name: String,
    /// `arn:aws:s3:::NAME`.
    pub arn: String,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageQueuePlan {
    /// Physical name, `.fifo` included.
    pub name: String,
    /// `arn:aws:sqs:REGION:ACCOUNT:NAME`.
    pub arn: String,
    /// What callers name it by.
    pub url: String,
    /// Its rules.
    pub kind: QueueKind,
    /// How long a received message is hidden, unless the receiver says otherwise.
    pub visibility_timeout_seconds: u32,
    /// How long a message lives.
    pub retention_seconds: u32,
    /// The dead-letter queue.
    pub redrive: Option<RedrivePlan>,
}

/// The two sorts of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// At least once, in no order.
    Standard,
    /// In order within a message group; deduplicated for five minutes within it.
    Fifo,
}

/// When and where a message becomes a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedrivePlan {
    /// ARN of the dead letter queue.
    pub dead_letter_arn: String,
    /// Receives after which a message is moved there.
    pub receives_max: u32,
}

/// A key that seals and unseals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPlan {
    /// Its id, the same at every start.
    pub id: String,
    /// `arn:aws:kms:…:key/ID`.
    pub arn: String,
}

/// A function.
#[derive(Debug, Clone)]
pub struct FunctionPlan {
    /// What this machine calls it, and whom its policy and its credentials are for: the value of
    /// `SLUICE_FUNCTION`, or the physical name where there is none.
    pub id: String,
    /// Physical name.
    pub name: String,
    /// `arn:aws:lambda:…:function:NAME`.
    pub arn: String,
    /// How long one invocation may take.
    pub timeout: Duration,
    /// The memory size, passed to the function but not enforced.
    pub memory_mb: u32,
    /// Invocations at once at most, where the template reserves a number.
    pub reserved_concurrency: Option<u32>,
    /// How often a failed asynchronous invocation (a schedule's) is repeated.
    pub asynchronous_retries: u32,
    /// Its environment, references resolved.
    pub environment: BTreeMap<String, String>,
    /// The ARN of its role.
    pub role_arn: String,
    /// What its role may do.
    pub policy: Policy,
}

/// A queue that calls a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    /// [`FunctionPlan::id`].
    pub function: String,
    /// The queue.
    pub queue_arn: String,
    /// Messages in one call, at most.
    pub batch_size: u32,
    /// How the function's response is read.
    pub response_format: ResponseFormat,
    /// Calls at once at most, where the template limits them.
    pub concurrency_max: Option<u32>,
}

/// How the response of a function to a batch of messages is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFormat {
    /// It names the messages that failed (`ReportBatchItemFailures`).
    BatchItemFailures,
    /// It is ignored: every response means success of the whole batch.
    Ignored,
}

/// A schedule that calls a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePlan {
    /// [`FunctionPlan::id`].
    pub function: String,
    /// ARN of its rule.
    pub rule_arn: String,
    /// Time between two calls.
    pub period: Duration,
}

/// A route that calls a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePlan {
    /// [`FunctionPlan::id`].
    pub function: String,
    /// Which methods.
    pub method: RouteMethod,
    /// `/a/{name}/{rest+}`.
    pub path: String,
}

/// Methods a route answers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteMethod {
    /// Every method.
    Any,
    /// This one, in capitals.
    One(String),
}

/// The executor: a container on AWS, a process here.
#[derive(Debug, Clone)]
pub struct ExecutorPlan {
    /// Its environment, references resolved.
    pub environment: BTreeMap<String, String>,
    /// The ARN of its task role.
    pub role_arn: String,
    /// What its task role may do.
    pub policy: Policy,
}

/// A role that trusts roles of the template.
#[derive(Debug, Clone)]
pub struct RolePlan {
    /// Physical name, by which policies know it as a principal.
    pub name: String,
    /// `arn:aws:iam::ACCOUNT:role/NAME`.
    pub arn: String,
    /// The principals that may assume it: ids of functions, or [`ExecutorPlan::PRINCIPAL`].
    pub trusted: Vec<String>,
    /// What it may do.
    pub policy: Policy,
}

impl ExecutorPlan {
    /// Whom the executor's policy and credentials are for.
    pub const PRINCIPAL: &'static str = "executor";
}
