//! From a document to a [`TemplatePlan`]: each provided resource resolved, checked, and put into
//! its typed form.

use super::intrinsic::Scope;
use super::{
    BucketPlan, DeploymentTarget, ExecutorPlan, FunctionPlan, KeyPlan, ResponseFormat, RolePlan,
    RouteMethod, RoutePlan, SchedulePlan, SourcePlan, TemplateError, TemplatePlan, known, raw,
    store,
};
use crate::policy::{Document, Policy};
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Value as Yaml};
use std::collections::BTreeMap;
use std::time::Duration;

/// What Lambda takes where the template says nothing.
mod default {
    pub(super) const FUNCTION_TIMEOUT_SECONDS: u32 = 3;
    pub(super) const MEMORY_MB: u32 = 128;
    pub(super) const BATCH_SIZE: u32 = 10;
    pub(super) const ASYNCHRONOUS_RETRIES: u32 = 2;
}

/// Resolves a whole template to the plan of what to create, and lists in it what is not provided.
/// Of several task definitions the last one is the executor. An error if a provided part has
/// another form than expected, or an event source names a queue that is not in the template.
pub(super) fn plan(
    document: &Yaml,
    place: &DeploymentTarget,
) -> Result<TemplatePlan, TemplateError> {
    let nothing = Mapping::new();
    let section = |name: &str| document.get(name).and_then(Yaml::as_mapping);
    let resources = section("Resources")
        .ok_or_else(|| TemplateError::shape("Resources", "is missing, or is not a map"))?;
    let globals = section("Globals");
    let answers = known::answers(document, globals, resources);
    let scope = Scope::new(document, place, &nothing);
    let mut plan = TemplatePlan {
        ignored: answers.ignored,
        elsewhere: answers.elsewhere,
        absent: answers.absent,
        ..TemplatePlan::default()
    };
    let common: raw::Function = match globals.and_then(|globals| globals.get("Function")) {
        Some(function) => typed(&scope, "Globals", function)?,
        None => raw::Function::default(),
    };
    let roles = roles(&scope, resources)?;
    let policies: BTreeMap<String, Policy> =
        roles.iter().map(|role| (role.plan.arn.clone(), role.plan.policy.clone())).collect();
    for (logical, resource) in resources {
        let logical = logical.as_str().unwrap_or_default();
        let empty = Yaml::Mapping(Mapping::new());
        let properties = resource.get("Properties").unwrap_or(&empty);
        let reference = |name: &str| scope.resolve(logical, &tagged(name, logical)).map(into_text);
        let arn =
            || scope.resolve(logical, &tagged("GetAtt", &format!("{logical}.Arn"))).map(into_text);
        match kind(resource) {
            "AWS::DynamoDB::Table" => {
                let raw: raw::Table = typed(&scope, logical, properties)?;
                plan.tables.push(store::table(logical, reference("Ref")?, arn()?, raw)?);
            }
            "AWS::S3::Bucket" => {
                let name = reference("Ref")?;
                plan.buckets.push(BucketPlan { name, arn: arn()? });
            }
            "AWS::SQS::Queue" => {
                let raw: raw::Queue = typed(&scope, logical, properties)?;
                plan.queues.push(store::queue(logical, reference("Ref")?, arn()?, raw)?);
            }
            "AWS::KMS::Key" => plan.keys.push(KeyPlan { id: reference("Ref")?, arn: arn()? }),
            "AWS::Serverless::Function" => {
                let raw: raw::Function = typed(&scope, logical, properties)?;
                function(
                    &mut plan,
                    &scope,
                    &common,
                    &policies,
                    Named { logical, name: reference("Ref")?, arn: arn()? },
                    raw,
                )?;
            }
            "AWS::ECS::TaskDefinition" => {
                let raw: raw::Task = typed(&scope, logical, properties)?;
                plan.executor = Some(executor(logical, &policies, raw)?);
            }
            _ => {}
        }
    }
    for source in &plan.sources {
        if plan.queue(&source.queue_arn).is_none() {
            let problem =
                format!("is called by {}, which is no queue of the template", source.queue_arn);
            return Err(TemplateError::shape(&source.function, problem));
        }
    }
    plan.roles = assumable(roles, &plan)?;
    Ok(plan)
}

/// A role of the template, with the ARNs of the roles that it trusts; the principals that have
/// these are not known yet.
struct ResolvedRole {
    plan: RolePlan,
    trusted_arns: Vec<String>,
}

/// Returns the roles that trust others, with the principals that have these. An error for a role
/// that trusts something else than the role of a function or of the executor.
fn assumable(
    roles: Vec<ResolvedRole>,
    plan: &TemplatePlan,
) -> Result<Vec<RolePlan>, TemplateError> {
    let of_functions = plan.functions.iter().map(|function| (&function.role_arn, &*function.id));
    let of_executor =
        plan.executor.iter().map(|executor| (&executor.role_arn, ExecutorPlan::PRINCIPAL));
    let principals: Vec<(&String, &str)> = of_functions.chain(of_executor).collect();
    let mut found = Vec::new();
    for ResolvedRole { plan: mut role, trusted_arns } in roles {
        for arn in &trusted_arns {
            let mut having = principals.iter().filter(|(of, _)| *of == arn).peekable();
            if having.peek().is_none() {
                let problem = format!("trusts {arn}, which is no role of a function or executor");
                return Err(TemplateError::shape(&role.name, problem));
            }
            role.trusted.extend(having.map(|(_, principal)| (*principal).to_owned()));
        }
        if !role.trusted.is_empty() {
            found.push(role);
        }
    }
    Ok(found)
}

struct Named<'a> {
    logical: &'a str,
    name: String,
    arn: String,
}

/// Returns the type of a resource; empty if it has none.
fn kind(resource: &Yaml) -> &str {
    resource.get("Type").and_then(Yaml::as_str).unwrap_or_default()
}

/// Returns the intrinsic function `name` of the text `argument` as YAML, such as `!Ref argument`.
fn tagged(name: &str, argument: &str) -> Yaml {
    let tag = serde_yaml::value::Tag::new(name);
    Yaml::Tagged(Box::new(serde_yaml::value::TaggedValue {
        tag,
        value: Yaml::String(argument.to_owned()),
    }))
}

/// Returns a text as it is, and any other value as its JSON.
fn into_text(value: serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Resolves the properties of a resource and decodes them; unknown ones are ignored. An error that
/// names `logical` if one does not resolve, is missing or has another type.
fn typed<T: DeserializeOwned>(
    scope: &Scope<'_>,
    logical: &str,
    properties: &Yaml,
) -> Result<T, TemplateError> {
    let resolved = scope.resolve(logical, properties)?;
    serde_json::from_value(resolved)
        .map_err(|source| TemplateError::Fields { place: logical.to_owned(), source })
}

/// Returns each role with its policy: its own statements, and those of the managed policies that it
/// names and of policies that name it. Managed policies that are not in the template, AWS's own,
/// are left out. Roles and managed policies without properties are left out, too.
fn roles(scope: &Scope<'_>, resources: &Mapping) -> Result<Vec<ResolvedRole>, TemplateError> {
    let of_kind = |wanted: &'static str| {
        resources.iter().filter(move |(_, resource)| kind(resource) == wanted).filter_map(
            |(logical, resource)| Some((logical.as_str()?, resource.get("Properties")?)),
        )
    };
    let mut managed = BTreeMap::new();
    for (logical, properties) in of_kind("AWS::IAM::ManagedPolicy") {
        let raw: raw::InlinePolicy = typed(scope, logical, properties)?;
        let arn = scope.resolve(logical, &tagged("Ref", logical)).map(into_text)?;
        managed.insert(arn, statements(logical, vec![raw.policy_document])?);
    }
    let mut roles = Vec::new();
    for (logical, properties) in of_kind("AWS::IAM::Role") {
        let raw: raw::Role = typed(scope, logical, properties)?;
        let documents = raw.policies.into_iter().map(|inline| inline.policy_document).collect();
        let mut policy = statements(logical, documents)?;
        for arn in &raw.managed_policy_arns {
            match managed.get(arn) {
                Some(shared) => policy.extend(shared),
                // AWS's own policies allow; leaving one out refuses more than AWS would, never
                // less.
                None => {
                    tracing::debug!(role = logical, policy = %arn, "leaving out a policy that is AWS's own")
                }
            }
        }
        let trust = raw.assume_role_policy_document.statement;
        if let Some(other) = trust.iter().find(|one| one.action != "sts:AssumeRole") {
            let problem = format!("has a trust policy for {}, which is not known", other.action);
            return Err(TemplateError::shape(logical, problem));
        }
        let name = into_text(scope.resolve(logical, &tagged("Ref", logical))?);
        let arn = scope.arn("AWS::IAM::Role", &name);
        roles.push(ResolvedRole {
            plan: RolePlan { name, arn, trusted: Vec::new(), policy },
            trusted_arns: trust.into_iter().filter_map(|one| one.principal.role_arn).collect(),
        });
    }
    for (logical, properties) in of_kind("AWS::IAM::RolePolicy") {
        let raw: raw::RolePolicy = typed(scope, logical, properties)?;
        let role = roles.iter_mut().find(|role| role.plan.name == raw.role_name);
        let role =
            role.ok_or_else(|| TemplateError::shape(logical, "needs a RoleName of the template"))?;
        role.plan.policy.extend(&statements(logical, vec![raw.policy_document])?);
    }
    Ok(roles)
}

/// Returns the policy with the statements of all documents; an error that names `logical` for one
/// that is not supported.
fn statements(logical: &str, documents: Vec<Document>) -> Result<Policy, TemplateError> {
    Policy::new(documents).map_err(|problem| TemplateError::shape(logical, problem.to_string()))
}

/// Adds a function with its sources, schedules and routes to the plan. Its id is the environment
/// variable `SLUICE_FUNCTION`, or else its name. Environment variables, time limit and memory that
/// its properties leave open are taken from `common`, the section `Globals`, of which nothing else
/// is read; the rest has Lambda's defaults. An error if its role is not among `policies` or a
/// schedule is no `rate(…)`. That the sources' queues exist is not checked.
fn function(
    plan: &mut TemplatePlan,
    scope: &Scope<'_>,
    common: &raw::Function,
    policies: &BTreeMap<String, Policy>,
    named: Named<'_>,
    raw: raw::Function,
) -> Result<(), TemplateError> {
    let Named { logical, name, arn } = named;
    let role_arn = raw.role.unwrap_or_default();
    let policy = policies
        .get(&role_arn)
        .ok_or_else(|| TemplateError::shape(logical, "needs a Role that is in the template"))?
        .clone();
    let mut environment = common.environment.variables.clone();
    environment.extend(raw.environment.variables);
    let id = environment.get("SLUICE_FUNCTION").unwrap_or(&name).clone();
    let seconds = raw.timeout.or(common.timeout).unwrap_or(default::FUNCTION_TIMEOUT_SECONDS);
    let retries = raw.event_invoke_config.as_ref().and_then(|config| config.maximum_retry_attempts);
    for (event_name, event) in raw.events {
        match event {
            raw::Event::Queue(event) => plan.sources.push(SourcePlan {
                function: id.clone(),
                queue_arn: event.queue,
                batch_size: event.batch_size.unwrap_or(default::BATCH_SIZE),
                response_format: response_format(&event.function_response_types),
                concurrency_max: event.scaling_config.map(|scaling| scaling.maximum_concurrency),
            }),
            raw::Event::HttpApi(event) => plan.routes.push(RoutePlan {
                function: id.clone(),
                method: match event.method.to_uppercase().as_str() {
                    "ANY" => RouteMethod::Any,
                    one => RouteMethod::One(one.to_owned()),
                },
                path: event.path,
            }),
            raw::Event::Schedule(event) => plan.schedules.push(SchedulePlan {
                function: id.clone(),
                rule_arn: scope.arn("AWS::Events::Rule", &format!("{name}-{event_name}")),
                period: period(logical, &event.schedule)?,
            }),
        }
    }
    plan.functions.push(FunctionPlan {
        id,
        name,
        arn,
        timeout: Duration::from_secs(seconds.into()),
        memory_mb: raw.memory_size.or(common.memory_size).unwrap_or(default::MEMORY_MB),
        reserved_concurrency: raw.reserved_concurrent_executions,
        asynchronous_retries: retries.unwrap_or(default::ASYNCHRONOUS_RETRIES),
        environment,
        role_arn,
        policy,
    });
    Ok(())
}

/// Parses a schedule of the form `rate(5 minutes)`, in minutes, hours or days. Any other form, also
/// `cron(…)`, is an error.
fn period(logical: &str, schedule: &str) -> Result<Duration, TemplateError> {
    let inside = schedule.strip_prefix("rate(").and_then(|rest| rest.strip_suffix(')'));
    let (number, unit) = inside.and_then(|inside| inside.split_once(' ')).unwrap_or_default();
    let unit_seconds = match unit.trim_end_matches('s') {
        "minute" => Some(60_u64),
        "hour" => Some(3_600),
        "day" => Some(86_400),
        _ => None,
    };
    let count = number.parse::<u64>().ok().filter(|count| *count > 0);
    let seconds = unit_seconds.zip(count).and_then(|(unit, count)| unit.checked_mul(count));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        TemplateError::shape(
            logical,
            format!("has the schedule {schedule}; this machine knows rate(N minutes|hours|days)"),
        )
    })
}

/// Returns the plan of the executor from its task definition, with the environment of all its
/// containers. An error if its role is not in the template.
fn executor(
    logical: &str,
    policies: &BTreeMap<String, Policy>,
    raw: raw::Task,
) -> Result<ExecutorPlan, TemplateError> {
    let policy = policies.get(&raw.task_role_arn).cloned();
    let policy = policy.ok_or_else(|| {
        TemplateError::shape(logical, "needs a TaskRoleArn that is in the template")
    })?;
    let variables =
        raw.container_definitions.into_iter().flat_map(|container| container.environment);
    Ok(ExecutorPlan {
        environment: variables.map(|variable| (variable.name, variable.value)).collect(),
        role_arn: raw.task_role_arn,
        policy,
    })
}

/// Returns how the responses of a function are read, from its `FunctionResponseTypes`: without
/// `ReportBatchItemFailures` they are ignored.
fn response_format(response_types: &[String]) -> ResponseFormat {
    if response_types.iter().any(|kind| kind == "ReportBatchItemFailures") {
        ResponseFormat::BatchItemFailures
    } else {
        ResponseFormat::Ignored
    }
}
