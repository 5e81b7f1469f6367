//! The functions that call no cloud, as one program on AWS Lambda has them.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod connections;
mod http;

use crate::http::{ApiFunction, WebhookFunction};
use async_trait::async_trait;
use sluice_gate_function::Gate;
use sluice_handler::{
    Function, FunctionEnvironment, FunctionHandler, FunctionName, InvocationError,
};
use sluice_images::Images;
use sluice_intake::Intake;
use sluice_merger::Merger;
use sluice_records::connection::ConnectionsFile;
use sluice_reporter::Reporter;
use sluice_repos::GitRepos;
use sluice_runtime::batch::Reconciler;
use sluice_tenant::Tenants;
use sluice_timer::{ASK_MINUTES, Timer};
use std::sync::Arc;

/// Returns the handler of any function but the launcher. Calls nothing yet: connections are read
/// when the first message comes.
///
/// # Errors
/// When another program has the function.
pub fn handler(
    name: FunctionName,
    environment: FunctionEnvironment,
) -> Result<FunctionHandler, InvocationError> {
    let function: Box<dyn Function> = match name {
        FunctionName::Webhook => Box::new(WebhookFunction::new(&environment)),
        FunctionName::Api => Box::new(ApiFunction::new(&environment)),
        FunctionName::Timer => Box::new(TimerFunction(environment.clone())),
        FunctionName::Intake
        | FunctionName::Gate
        | FunctionName::Tenant
        | FunctionName::Merger
        | FunctionName::Images
        | FunctionName::Reporter => {
            Box::new(QueueFunction { name, environment: environment.clone() })
        }
        FunctionName::Launcher => return Err(InvocationError::in_another_program(name)),
    };
    Ok(FunctionHandler::new(name, &environment, function))
}

/// The function with the schedule; it also has a queue.
struct TimerFunction(FunctionEnvironment);

impl TimerFunction {
    /// Returns the timer, with the configured minutes between two polls of a forge or the default
    /// ones.
    fn timer(&self) -> Timer {
        Timer::new(self.0.ports.clone(), self.0.ask_minutes.unwrap_or(ASK_MINUTES))
    }
}

#[async_trait]
impl Function for TimerFunction {
    /// Returns a timer for messages. It uses no connections, so it ignores both inputs.
    async fn reconciler(
        &self,
        _: &ConnectionsFile,
        _: u64,
    ) -> Result<Arc<dyn Reconciler>, InvocationError> {
        Ok(Arc::new(self.timer()))
    }

    async fn tick(&self) -> Result<(), InvocationError> {
        Ok(self.timer().tick().await?)
    }
}

/// A function that has only a queue.
struct QueueFunction {
    name: FunctionName,
    environment: FunctionEnvironment,
}

#[async_trait]
impl Function for QueueFunction {
    /// Builds the function's reconciler with clients for the given connections. `generation` names
    /// the cache directory of git repositories, for functions that use them. An error if a token
    /// cannot be decrypted, and for the webhook, API, timer and launcher functions.
    async fn reconciler(
        &self,
        connections: &ConnectionsFile,
        generation: u64,
    ) -> Result<Arc<dyn Reconciler>, InvocationError> {
        let ports = || self.environment.ports.clone();
        let forges = || connections::forges(&self.environment, connections);
        Ok(match self.name {
            FunctionName::Intake => {
                let repos = self.repos(connections, generation).await?;
                Arc::new(Intake::new(ports(), forges().await?, repos))
            }
            FunctionName::Reporter => {
                let reporter = Reporter::new(ports(), forges().await?);
                let notifiers = connections::notifiers(&self.environment, connections).await?;
                Arc::new(reporter.with_notifiers(notifiers))
            }
            FunctionName::Gate => {
                Arc::new(Gate::new(ports(), self.environment.web_root.clone().unwrap_or_default()))
            }
            FunctionName::Merger => {
                Arc::new(Merger::new(ports(), self.repos(connections, generation).await?))
            }
            FunctionName::Tenant => {
                let forges = forges().await?;
                Arc::new(Tenants::new(ports(), self.repos(connections, generation).await?, forges))
            }
            FunctionName::Images => Arc::new(Images::new(ports())),
            FunctionName::Webhook
            | FunctionName::Api
            | FunctionName::Timer
            | FunctionName::Launcher => return Err(InvocationError::unhandled("messages")),
        })
    }
}

impl QueueFunction {
    /// Returns access to the git repositories of the connections. Each set of connections
    /// (`generation`) has its own cache directory, because two must not share one. Fetches nothing
    /// yet.
    async fn repos(
        &self,
        connections: &ConnectionsFile,
        generation: u64,
    ) -> Result<Arc<GitRepos>, InvocationError> {
        let remotes = connections::remotes(&self.environment, connections).await?;
        let directory = self.environment.cache.join(format!("git-{generation}"));
        Ok(Arc::new(GitRepos::new(self.environment.ports.clone(), remotes, directory)))
    }
}
