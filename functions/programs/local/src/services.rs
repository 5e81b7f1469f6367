//! The data services of a local system and what invokes its functions: the emulator's machine, or
//! another endpoint.

use crate::environment::{in_process, sdk_config};
use crate::external_services::ExternalServices;
use anyhow::{Context as _, bail};
use sluice_emulator::data::Kill;
use sluice_emulator::machine::{Equipment, LocalMachine};
use sluice_emulator::policy::OPERATOR;
use sluice_emulator::template::{ExecutorPlan, TemplatePlan};
use sluice_executor_program::{UploadOptions, UploadSite};
use sluice_handler::FunctionEnvironment;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) enum Services {
    Machine(Box<LocalMachine>),
    ExternalServices(Box<ExternalServices>),
}

impl Services {
    /// Returns the plan of the template.
    pub(super) fn plan(&self) -> &TemplatePlan {
        match self {
            Self::Machine(machine) => machine.plan(),
            Self::ExternalServices(elsewhere) => elsewhere.plan(),
        }
    }

    /// Returns the address of the data services, as a URL.
    pub(super) fn endpoint(&self) -> String {
        match self {
            Self::Machine(machine) => format!("http://{}", machine.data_address()),
            Self::ExternalServices(elsewhere) => elsewhere.endpoint().url().to_owned(),
        }
    }

    /// Returns the address of EC2 if it differs from that of the data services, as with another
    /// endpoint; otherwise `None`.
    pub(super) fn nodes_url(&self) -> Option<String> {
        match self {
            Self::Machine(_) => None,
            Self::ExternalServices(elsewhere) => Some(elsewhere.nodes_url()),
        }
    }

    /// Returns the environment of a caller in this process with an operator's rights. With another
    /// endpoint, all callers have the same credentials and rights. `cache` is the caller's cache
    /// directory, which is not created.
    pub(super) async fn operator(&self, cache: PathBuf) -> anyhow::Result<FunctionEnvironment> {
        match self {
            Self::Machine(machine) => Ok(in_process(&equipment(machine, OPERATOR)?, cache).await?),
            Self::ExternalServices(elsewhere) => elsewhere.environment_for(cache).await,
        }
    }

    /// Returns the environment of an executor in this process, with the rights of an executor. With
    /// another endpoint, all callers have the same credentials and rights. `cache` is its cache
    /// directory, which is not created.
    pub(super) async fn executor(&self, cache: PathBuf) -> anyhow::Result<FunctionEnvironment> {
        match self {
            Self::Machine(machine) => {
                Ok(in_process(&equipment(machine, ExecutorPlan::PRINCIPAL)?, cache).await?)
            }
            Self::ExternalServices(elsewhere) => elsewhere.environment_for(cache).await,
        }
    }

    /// Returns where the jobs of an executor in this process upload to, with the bucket and the
    /// role of the template. `None` with another endpoint, which has no role of the template.
    pub(super) fn upload_site(&self) -> anyhow::Result<Option<UploadSite>> {
        let Self::Machine(machine) = self else { return Ok(None) };
        let equipment = equipment(machine, ExecutorPlan::PRINCIPAL)?;
        let options =
            UploadOptions::from_variables(|name| equipment.environment.get(name).cloned());
        options.site(&sdk_config(&equipment))
    }

    /// Returns the executor's variables and credentials, for a process of its own. An error with
    /// another endpoint, which supports only one process.
    pub(super) fn executor_equipment(&self) -> anyhow::Result<Equipment> {
        match self {
            Self::Machine(machine) => equipment(machine, ExecutorPlan::PRINCIPAL),
            Self::ExternalServices(_) => {
                bail!("another endpoint supports only one process: omit --processes")
            }
        }
    }

    /// Sets the function that kills the executor for fault injection. Does nothing with another
    /// endpoint.
    pub(super) fn set_executor_kill(&self, kill: Kill) {
        if let Self::Machine(machine) = self {
            machine.data().deaths().set_executor(kill);
        }
    }

    /// Returns the environment variables for commands of an operator, with the addresses of the data
    /// services. For data services on this machine, also has the credentials and the region.
    /// Credentials of another endpoint are left out, because the caller stores the result: commands
    /// take them from their own environment.
    pub(super) fn operator_environment(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let environment = match self {
            Self::Machine(machine) => {
                let equipment = equipment(machine, OPERATOR)?;
                let mut environment = equipment.environment;
                let keys = equipment.credentials.environment().into_iter();
                environment.extend(keys.map(|(name, value)| (name.to_owned(), value)));
                environment.insert("AWS_REGION".to_owned(), equipment.region);
                environment.insert("AWS_ENDPOINT_URL".to_owned(), self.endpoint());
                environment
            }
            Self::ExternalServices(elsewhere) => {
                let mut environment = elsewhere.environment()?.clone();
                environment.extend(elsewhere.endpoint().variables());
                environment
            }
        };
        Ok(environment)
    }

    /// Stops the functions and the data services on this machine. What is at another endpoint
    /// stays.
    pub(super) async fn stop(self) {
        match self {
            Self::Machine(machine) => machine.stop().await,
            Self::ExternalServices(elsewhere) => elsewhere.stop().await,
        }
    }
}

/// Returns the variables and credentials of a function, of `executor` or of the operator. An error
/// if the template has no such principal.
fn equipment(machine: &LocalMachine, principal: &str) -> anyhow::Result<Equipment> {
    machine.equipment(principal).with_context(|| format!("the template has no {principal}"))
}
