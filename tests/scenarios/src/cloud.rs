//! A cloud in memory whose machines start at once, and node checks that pass.

use async_trait::async_trait;
use sluice_cloud::{
    CloudDriver, CloudError, CloudImageFilter, ImageFact, Instance, LaunchSpec, TagFilter, tags,
};
use sluice_launcher::Checks;
use sluice_memory::World;
use sluice_model::Timestamp;
use sluice_model::id::digest;
use sluice_pool::{CheckFact, InstanceId, InstanceState, PoolNode};
use sluice_runtime::PortError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// A cloud in memory. Launches with the same client token create one machine.
pub struct PlayedCloud {
    world: World,
    machines: Mutex<BTreeMap<InstanceId, Instance>>,
    /// The region of each machine that a launch with a region created.
    regions: Mutex<BTreeMap<InstanceId, String>>,
    most: Mutex<usize>,
    refused: Mutex<BTreeSet<String>>,
    requested_types: Mutex<Vec<String>>,
    quota: Mutex<Option<usize>>,
}

impl PlayedCloud {
    /// Creates a cloud without machines.
    pub fn new(world: World) -> Self {
        let (refused, asked) = (Mutex::default(), Mutex::default());
        Self {
            world,
            machines: Mutex::default(),
            regions: Mutex::default(),
            most: Mutex::new(0),
            refused,
            requested_types: asked,
            quota: Mutex::default(),
        }
    }

    /// Refuses every launch of this instance type from now on, with a permanent error.
    pub fn refuse(&self, instance_type: &str) {
        self.refused.lock().unwrap().insert(instance_type.to_owned());
    }

    /// Returns the requested instance types in order, without repetitions of a client token.
    pub fn requested_types(&self) -> Vec<String> {
        self.requested_types.lock().unwrap().clone()
    }

    /// Limits the number of running machines, including foreign ones.
    pub fn allow(&self, machines: usize) {
        *self.quota.lock().unwrap() = Some(machines);
    }

    /// Runs a machine that does not belong to Sluice, with one tag.
    pub fn run_foreign(&self, id: &str, tag_key: &str, tag_value: &str) {
        let machine = machine(id, BTreeMap::from([(tag_key.to_owned(), tag_value.to_owned())]));
        self.machines.lock().unwrap().insert(machine.id.clone(), machine);
    }

    /// Returns whether the machine with this id is running.
    pub fn runs(&self, id: &str) -> bool {
        let machines = self.machines.lock().unwrap();
        machines
            .get(&InstanceId(id.to_owned()))
            .is_some_and(|machine| machine.state == InstanceState::Running)
    }

    /// Returns the number of running machines that belong to Sluice.
    pub fn running(&self) -> usize {
        let machines = self.machines.lock().unwrap();
        let ours = machines.values().filter(|machine| machine.tags.contains_key(tags::PROVIDER));
        ours.filter(|machine| machine.state == InstanceState::Running).count()
    }

    /// Returns the regions of the running machines, once for each machine, sorted.
    pub fn regions(&self) -> Vec<String> {
        let (machines, regions) = (self.machines.lock().unwrap(), self.regions.lock().unwrap());
        let running = machines.values().filter(|m| m.state == InstanceState::Running);
        let mut found: Vec<String> =
            running.filter_map(|machine| regions.get(&machine.id).cloned()).collect();
        found.sort();
        found
    }

    /// Returns whether a machine is in a region; a foreign machine is in each.
    fn is_in(&self, id: &InstanceId, region: Option<&str>) -> bool {
        self.regions.lock().unwrap().get(id).is_none_or(|of| Some(of.as_str()) == region)
    }

    /// Terminates the running machine at this index, modulo their number. Returns its id, or `None`
    /// without machines.
    pub fn lose(&self, at: usize) -> Option<InstanceId> {
        let mut machines = self.machines.lock().unwrap();
        let running: Vec<_> =
            machines.values_mut().filter(|m| m.state == InstanceState::Running).collect();
        let count = running.len().max(1);
        let machine = running.into_iter().nth(at % count)?;
        machine.state = InstanceState::Terminated;
        Some(machine.id.clone())
    }

    /// Returns the highest number of machines that ever ran at once.
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
impl CloudDriver for PlayedCloud {
    async fn launch(&self, spec: &LaunchSpec) -> Result<Instance, CloudError> {
        if self.refused.lock().unwrap().contains(&spec.instance_type) {
            self.requested_types.lock().unwrap().push(spec.instance_type.clone());
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
                self.requested_types.lock().unwrap().push(spec.instance_type.clone());
            }
            let machine = machines.entry(machine.id.clone()).or_insert(machine).clone();
            if let Some(region) = &spec.region {
                self.regions.lock().unwrap().insert(machine.id.clone(), region.clone());
            }
            let running =
                machines.values().filter(|machine| machine.state == InstanceState::Running).count();
            let mut most = self.most.lock().unwrap();
            *most = running.max(*most);
            Ok(machine)
        });
        launched.await?
    }

    async fn describe(
        &self,
        region: Option<&str>,
        filter: &TagFilter,
    ) -> Result<Vec<Instance>, CloudError> {
        self.step("cloud.describe", || {
            let machines = self.machines.lock().unwrap();
            machines
                .values()
                .filter(|machine| machine.tags.get(&filter.key) == Some(&filter.value))
                .filter(|machine| self.is_in(&machine.id, region))
                .cloned()
                .collect()
        })
        .await
    }

    async fn terminate(
        &self,
        region: Option<&str>,
        instances: &[InstanceId],
    ) -> Result<(), CloudError> {
        self.step("cloud.terminate", || {
            let mut machines = self.machines.lock().unwrap();
            for id in instances.iter().filter(|id| self.is_in(id, region)) {
                if let Some(machine) = machines.get_mut(id) {
                    machine.state = InstanceState::Terminated;
                }
            }
        })
        .await
    }

    async fn images(&self, _: &CloudImageFilter) -> Result<Vec<ImageFact>, CloudError> {
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

/// The host key of every played node.
const HOST_KEY: &str = "ssh-ed25519 AAAA";

/// Node checks that pass, except for a node whose configured host keys are others than
/// [`HOST_KEY`].
pub struct PlayedChecks(pub World);

#[async_trait]
impl Checks for PlayedChecks {
    async fn check(&self, node: &PoolNode) -> CheckFact {
        let required = node.required_host_keys();
        match self.0.step("checks.check", || Ok(())).await {
            Ok(()) if !required.is_empty() && !required.iter().any(|key| key == HOST_KEY) => {
                CheckFact::Failed(format!("it shows the host key {HOST_KEY}"))
            }
            Ok(()) => CheckFact::Passed { host_keys: vec![HOST_KEY.to_owned()] },
            Err(error) => CheckFact::NotYet(error.to_string()),
        }
    }
}
