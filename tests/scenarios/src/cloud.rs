//! A cloud whose machines run at once, and checks that pass.

use async_trait::async_trait;
use sluice_cloud::{
    CloudError, Driver, ImageFact, ImageFilter, Instance, LaunchSpec, TagFilter, tags,
};
use sluice_launcher::Checks;
use sluice_memory::World;
use sluice_model::Timestamp;
use sluice_model::id::digest;
use sluice_pool::{CheckFact, InstanceId, InstanceState, Node};
use sluice_runtime::PortError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// A played cloud. A token launches one machine, however often it is used.
pub struct PlayedCloud {
    world: World,
    machines: Mutex<BTreeMap<InstanceId, Instance>>,
    most: Mutex<usize>,
    refused: Mutex<BTreeSet<String>>,
    asked: Mutex<Vec<String>>,
    quota: Mutex<Option<usize>>,
}

impl PlayedCloud {
    /// Makes a cloud without machines.
    pub fn new(world: World) -> Self {
        let (refused, asked) = (Mutex::default(), Mutex::default());
        Self {
            world,
            machines: Mutex::default(),
            most: Mutex::new(0),
            refused,
            asked,
            quota: Mutex::default(),
        }
    }

    /// Refuses every machine of this type from now on, for good.
    pub fn refuse(&self, instance_type: &str) {
        self.refused.lock().unwrap().insert(instance_type.to_owned());
    }

    /// Returns the types of machines that were asked for, in order, repeats of one token left out.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Lets no more machines than these be at once, whoever's they are.
    pub fn allow(&self, machines: usize) {
        *self.quota.lock().unwrap() = Some(machines);
    }

    /// Runs a machine of somebody else's, with a tag of theirs.
    pub fn run_foreign(&self, id: &str, tag: (&str, &str)) {
        let machine = machine(id, BTreeMap::from([(tag.0.to_owned(), tag.1.to_owned())]));
        self.machines.lock().unwrap().insert(machine.id.clone(), machine);
    }

    /// Returns whether a machine runs.
    pub fn runs(&self, id: &str) -> bool {
        let machines = self.machines.lock().unwrap();
        machines
            .get(&InstanceId(id.to_owned()))
            .is_some_and(|machine| machine.state == InstanceState::Running)
    }

    /// Returns how many machines of ours exist.
    pub fn running(&self) -> usize {
        let machines = self.machines.lock().unwrap();
        let ours = machines.values().filter(|machine| machine.tags.contains_key(tags::PROVIDER));
        ours.filter(|machine| machine.state == InstanceState::Running).count()
    }

    /// Has the machine at this place among the running ones vanish, counted around. Returns which,
    /// unless there is none.
    pub fn lose(&self, at: usize) -> Option<InstanceId> {
        let mut machines = self.machines.lock().unwrap();
        let running: Vec<_> =
            machines.values_mut().filter(|m| m.state == InstanceState::Running).collect();
        let count = running.len().max(1);
        let machine = running.into_iter().nth(at % count)?;
        machine.state = InstanceState::Terminated;
        Some(machine.id.clone())
    }

    /// Returns the most machines that ever existed at once.
    pub fn most(&self) -> usize {
        *self.most.lock().unwrap()
    }

    async fn step<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> Result<T, CloudError> {
        let unknown =
            |error: PortError| CloudError::Unknown { attempt: name.to_owned(), why: error.why };
        self.world.step(name, || Ok(work())).await.map_err(unknown)
    }
}

#[async_trait]
impl Driver for PlayedCloud {
    async fn launch(&self, spec: &LaunchSpec) -> Result<Instance, CloudError> {
        if self.refused.lock().unwrap().contains(&spec.instance_type) {
            self.asked.lock().unwrap().push(spec.instance_type.clone());
            let attempt = format!("launch a {}", spec.instance_type);
            return Err(CloudError::Permanent {
                attempt,
                why: "there is no such machine".to_owned(),
            });
        }
        let launched = self.step("cloud.launch", || {
            let machine =
                machine(&format!("i-{}", digest(&[&spec.client_token])), spec.tags.clone());
            let mut machines = self.machines.lock().unwrap();
            let running =
                machines.values().filter(|machine| machine.state == InstanceState::Running).count();
            if !machines.contains_key(&machine.id)
                && self.quota.lock().unwrap().is_some_and(|most| running >= most)
            {
                let attempt = format!("launch a {}", spec.instance_type);
                return Err(CloudError::Quota { attempt, why: format!("{running} machines run") });
            }
            if !machines.contains_key(&machine.id) {
                self.asked.lock().unwrap().push(spec.instance_type.clone());
            }
            let machine = machines.entry(machine.id.clone()).or_insert(machine).clone();
            let running =
                machines.values().filter(|machine| machine.state == InstanceState::Running).count();
            let mut most = self.most.lock().unwrap();
            *most = running.max(*most);
            Ok(machine)
        });
        launched.await?
    }

    async fn describe(&self, filter: &TagFilter) -> Result<Vec<Instance>, CloudError> {
        self.step("cloud.describe", || {
            let machines = self.machines.lock().unwrap();
            machines
                .values()
                .filter(|machine| machine.tags.get(&filter.key) == Some(&filter.value))
                .cloned()
                .collect()
        })
        .await
    }

    async fn terminate(&self, instances: &[InstanceId]) -> Result<(), CloudError> {
        self.step("cloud.terminate", || {
            let mut machines = self.machines.lock().unwrap();
            for id in instances {
                if let Some(machine) = machines.get_mut(id) {
                    machine.state = InstanceState::Terminated;
                }
            }
        })
        .await
    }

    async fn images(&self, _: &ImageFilter) -> Result<Vec<ImageFact>, CloudError> {
        Ok(Vec::new())
    }
}

fn machine(id: &str, tags: BTreeMap<String, String>) -> Instance {
    Instance {
        id: InstanceId(id.to_owned()),
        state: InstanceState::Running,
        private_ip: Some("127.0.0.9".to_owned()),
        public_ip: None,
        ipv6: None,
        az: None,
        tags,
        launched_at: Timestamp(0),
    }
}

/// Checks that pass.
pub struct PlayedChecks(pub World);

#[async_trait]
impl Checks for PlayedChecks {
    async fn check(&self, _: &Node) -> CheckFact {
        match self.0.step("checks.check", || Ok(())).await {
            Ok(()) => CheckFact::Passed { host_keys: vec!["ssh-ed25519 AAAA".to_owned()] },
            Err(error) => CheckFact::NotYet(error.to_string()),
        }
    }
}
