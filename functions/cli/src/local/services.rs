//! The data services of a local system with what calls its functions: the emulator's machine, or
//! another endpoint's.

use super::elsewhere::Elsewhere;
use crate::place::Place;
use anyhow::{Context as _, bail};
use sluice_emulator::data::Kill;
use sluice_emulator::machine::{Equipment, Machine};
use sluice_emulator::policy::OPERATOR;
use sluice_emulator::template::{ExecutorPlan, Plan};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) enum Services {
    Machine(Box<Machine>),
    Elsewhere(Box<Elsewhere>),
}

impl Services {
    pub(super) fn plan(&self) -> &Plan {
        match self {
            Self::Machine(machine) => machine.plan(),
            Self::Elsewhere(elsewhere) => elsewhere.plan(),
        }
    }

    /// Returns where the data services answer.
    pub(super) fn endpoint(&self) -> String {
        match self {
            Self::Machine(machine) => format!("http://{}", machine.data_address()),
            Self::Elsewhere(elsewhere) => elsewhere.endpoint().to_owned(),
        }
    }

    /// Returns where EC2 answers, when that is not where the data services do.
    pub(super) fn nodes_url(&self) -> Option<String> {
        match self {
            Self::Machine(_) => None,
            Self::Elsewhere(elsewhere) => Some(elsewhere.nodes_url()),
        }
    }

    pub(super) async fn operator(&self, cache: PathBuf) -> anyhow::Result<Place> {
        match self {
            Self::Machine(machine) => {
                Ok(Place::beside(&equipment(machine, OPERATOR)?, cache).await?)
            }
            Self::Elsewhere(elsewhere) => elsewhere.place(cache).await,
        }
    }

    pub(super) async fn executor(&self, cache: PathBuf) -> anyhow::Result<Place> {
        match self {
            Self::Machine(machine) => {
                Ok(Place::beside(&equipment(machine, ExecutorPlan::PRINCIPAL)?, cache).await?)
            }
            Self::Elsewhere(elsewhere) => elsewhere.place(cache).await,
        }
    }

    /// Returns the executor's equipment, for a process of its own.
    pub(super) fn executor_equipment(&self) -> anyhow::Result<Equipment> {
        match self {
            Self::Machine(machine) => equipment(machine, ExecutorPlan::PRINCIPAL),
            Self::Elsewhere(_) => {
                bail!("at another endpoint everything runs in one process: leave out --processes")
            }
        }
    }

    /// Sets what kills the executor where that is tried.
    pub(super) fn set_executors_death(&self, kill: Kill) {
        if let Self::Machine(machine) = self {
            machine.data().deaths().set_executor(kill);
        }
    }

    /// Returns the variables of an operator; keys of another endpoint are the caller's own and are
    /// not written down.
    pub(super) fn operator_environment(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut environment = match self {
            Self::Machine(machine) => {
                let equipment = equipment(machine, OPERATOR)?;
                let mut environment = equipment.environment;
                let keys = equipment.credentials.environment().into_iter();
                environment.extend(keys.map(|(name, value)| (name.to_owned(), value)));
                environment.insert("AWS_REGION".to_owned(), equipment.region);
                environment
            }
            Self::Elsewhere(elsewhere) => elsewhere.environment()?.clone(),
        };
        environment.insert("AWS_ENDPOINT_URL".to_owned(), self.endpoint());
        Ok(environment)
    }

    pub(super) async fn stop(self) {
        match self {
            Self::Machine(machine) => machine.stop().await,
            Self::Elsewhere(elsewhere) => elsewhere.stop().await,
        }
    }
}

fn equipment(machine: &Machine, principal: &str) -> anyhow::Result<Equipment> {
    machine.equipment(principal).with_context(|| format!("the machine has no {principal}"))
}
