//! Reads the deployment template `infra/template.yaml` for one machine into a [`TemplatePlan`] of
//! typed parts.
//!
//! Nothing is silently left out. `known.rs` lists what the machine provides in another way
//! (containers, networks, alarms). [`TemplatePlan::ignored`] names everything that is neither
//! provided nor listed.

mod intrinsic;
mod known;
mod plan;
mod raw;
mod resolve;
mod store;

#[cfg(test)]
mod tests;

pub use plan::{
    AttributeType, BucketPlan, ExecutorPlan, FunctionPlan, IndexPlan, KeyAttributePlan, KeyPlan,
    KeySchema, MessageQueuePlan, QueueKind, RedrivePlan, ResponseFormat, RolePlan, RouteMethod,
    RoutePlan, SchedulePlan, SourcePlan, TablePlan, TemplatePlan,
};

use std::collections::BTreeMap;
use std::path::Path;

/// The target of a deployment: the values of pseudo parameters, parameters and queue URLs.
#[derive(Debug, Clone)]
pub struct DeploymentTarget {
    /// `AWS::StackName`; every physical name starts with it.
    pub stack: String,
    /// `AWS::AccountId`, twelve digits.
    pub account: String,
    /// `AWS::Region`.
    pub region: String,
    /// The address of the queues, without a trailing slash: `http://127.0.0.1:9324`.
    pub endpoint: String,
    /// Values of parameters, over the template's defaults.
    pub parameters: BTreeMap<String, String>,
}

impl DeploymentTarget {
    /// Returns the target for a machine whose data services listen at `endpoint`: the stack
    /// `sluice` in the default account and region, with values for the parameters that have no
    /// default in the template.
    ///
    /// The network and the executor's image have no default in the template; here they get names of
    /// things that exist on no network, since instances and the executor are processes.
    #[must_use]
    pub fn machine(endpoint: &str) -> Self {
        let parameters = [
            ("Network", "vpc-loopback"),
            ("Subnets", "subnet-loopback"),
            ("ExecutorImage", "process"),
            ("WebRoot", "http://127.0.0.1/"),
        ];
        Self {
            stack: "sluice".into(),
            account: "000000000000".into(),
            region: "us-east-1".into(),
            endpoint: endpoint.trim_end_matches('/').into(),
            parameters: parameters
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }
}

/// Why a template could not be read for this machine.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The file could not be read.
    #[error("could not read the template {path}; name the checkout's infra/template.yaml")]
    Read {
        /// The file.
        path: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The file is not valid YAML.
    #[error("the template is not YAML")]
    Yaml(#[from] serde_yaml::Error),
    /// A part has a shape that this machine does not understand.
    #[error("{place} in the template {problem}")]
    Shape {
        /// Logical id, and property where known.
        place: String,
        /// The problem, as the rest of a sentence.
        problem: String,
    },
    /// A part of a resource does not have the fields it needs.
    #[error("{place} in the template does not have the expected fields")]
    Fields {
        /// Logical id, and property where known.
        place: String,
        /// The missing or mistyped field.
        source: serde_json::Error,
    },
}

impl TemplateError {
    /// Returns the error for a part of the template with another form than expected.
    fn shape(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Shape { place: place.into(), problem: problem.into() }
    }
}

/// Reads the template in a file, for deployment to `place`, and returns what to provide. Creates
/// nothing. Parts that this machine does not provide are no error, but are listed in the plan.
///
/// # Errors
/// [`TemplateError`] when the file is not there, is no YAML, or asks in a provided part for
/// something the machine cannot do (an unknown intrinsic function, condition operator or schedule):
/// running without it would differ from AWS.
pub fn read(path: &Path, place: &DeploymentTarget) -> Result<TemplatePlan, TemplateError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TemplateError::Read { path: path.display().to_string(), source })?;
    parse(&text, place)
}

/// Reads the template in a text, for deployment to `place`, and returns what to provide. See
/// [`read`].
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, place: &DeploymentTarget) -> Result<TemplatePlan, TemplateError> {
    let document: serde_yaml::Value = serde_yaml::from_str(text)?;
    resolve::plan(&document, place)
}
