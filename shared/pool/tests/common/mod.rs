//! A provider cell under test, and a fake cloud that carries out its actions.

use sluice_model::build::BuildResult;
use sluice_model::{NodeId, QueueKey, TenantName, Timestamp, wakeup::Precedence};
use sluice_pool::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A label of one machine with the image `image-1` in two zones.
pub fn label(min_ready: u32) -> LabelSpec {
    LabelSpec {
        image: LabelImage::Available { id: "image-1".into() },
        flavor: Some("small".into()),
        location: LaunchLocation {
            region: Some("here".into()),
            zones: vec!["a".into(), "b".into()],
        },
        zone: None,
        resources: Resources::instances(1),
        username: "zuul".into(),
        ssh_port: 22,
        python_path: None,
        interface: Interface::PublicFirst,
        min_ready,
        max_ready_age_seconds: None,
        boot_timeout_seconds: 60,
    }
}

/// A provider with the labels `small` and `large` (both one machine) in two zones.
pub fn limits(quota: u32) -> ProviderLimits {
    ProviderLimits {
        quota: Resources::instances(quota),
        labels: BTreeMap::from([("small".into(), label(0)), ("large".into(), label(0))]),
        ..ProviderLimits::retired("cloud".into())
    }
}

/// A static host at this address, with these labels, for one build at a time.
pub fn host(address: &str, labels: &[&str]) -> StaticHost {
    StaticHost {
        name: address.into(),
        labels: labels.iter().map(|label| (*label).into()).collect(),
        region: None,
        address: address.into(),
        ssh_port: 22,
        username: "zuul".into(),
        host_keys: Vec::new(),
        python_path: None,
        max_parallel: 1,
    }
}

/// The static hosts of the tenant `one`.
pub fn hosts(hosts: &[StaticHost]) -> BTreeMap<TenantName, Arc<Vec<StaticHost>>> {
    [("one".into(), Arc::new(hosts.to_vec()))].into()
}

/// A request by build `build-<sequence>` in the order of `sequence`.
pub fn request(sequence: u64, labels: &[&str]) -> NodeRequest {
    NodeRequest::new(
        RequestRow::new(200, 0, sequence),
        format!("build-{sequence}").as_str().into(),
        QueueKey { tenant: "one".into(), pipeline: "gate".into(), queue: "main".into() },
        "test",
        Precedence::Normal,
        labels.iter().map(|label| (*label).into()).collect(),
        Timestamp(0),
    )
}

/// Seconds after which a launcher has certainly timed out; less than `launch_settle_seconds`.
const LAUNCHER_SECONDS: u64 = 240;

/// The cell and the cloud behind it.
#[derive(Clone)]
pub struct World {
    /// The cell; its facts are those of the next plan.
    pub cell: Snapshot,
    /// Machines that exist, with the node they were launched for.
    pub machines: BTreeMap<String, InstanceFact>,
    /// Actions that are not yet carried out.
    pub actions: Vec<PoolAction>,
    /// Every wakeup so far.
    pub wakeups: Vec<sluice_model::wakeup::Wakeup>,
    /// The time.
    pub now: Timestamp,
    tokens: BTreeMap<String, String>,
}

impl World {
    /// A cell without requests.
    pub fn new(limits: ProviderLimits) -> Self {
        let head = ProviderHead::new(limits.provider.clone());
        Self {
            cell: Snapshot {
                head,
                limits,
                requests: Vec::new(),
                nodes: Vec::new(),
                facts: PoolFacts::default(),
            },
            machines: BTreeMap::new(),
            actions: Vec::new(),
            wakeups: Vec::new(),
            now: Timestamp(1_000_000_000),
            tokens: BTreeMap::new(),
        }
    }

    /// Plans once and commits; the facts are used up.
    pub fn step(&mut self) -> PoolPlan {
        let plan = plan(&self.cell, self.now);
        self.cell.facts = PoolFacts::default();
        self.commit(&plan);
        plan
    }

    /// Commits a plan and keeps its actions.
    pub fn commit(&mut self, plan: &PoolPlan) {
        self.cell.head = plan.head.clone();
        for change in &plan.changes {
            match change {
                PoolChange::PutRequest(request) => {
                    *self
                        .cell
                        .requests
                        .iter_mut()
                        .find(|other| other.row == request.row)
                        .expect("a request that was read") = request.clone();
                }
                PoolChange::RemoveRequest(row) => {
                    self.cell.requests.retain(|request| request.row != *row)
                }
                PoolChange::CreateNode(node) => {
                    assert!(
                        !self.cell.nodes.iter().any(|other| other.id == node.id),
                        "a node id was given twice"
                    );
                    self.cell.nodes.push(node.clone());
                }
                PoolChange::PutNode(node) => {
                    *self
                        .cell
                        .nodes
                        .iter_mut()
                        .find(|other| other.id == node.id)
                        .expect("a node that was read") = node.clone();
                }
                PoolChange::RemoveNode(id) => self.cell.nodes.retain(|node| node.id != *id),
                PoolChange::RemoveCommand(id) => {
                    self.cell.facts.commands.retain(|command| command.id != *id)
                }
            }
        }
        self.actions.extend(plan.actions.iter().cloned());
        self.wakeups.extend(plan.wakeups.iter().cloned());
    }

    /// Lists the machines of all regions as they are now.
    pub fn list(&mut self) {
        let regions = ["here", "there"].map(|region| Some(region.to_owned())).into();
        self.list_regions(regions);
    }

    /// Lists the machines of these regions as they are now.
    pub fn list_regions(&mut self, regions: BTreeSet<Option<String>>) {
        let is_in = |fact: &&InstanceFact| regions.contains(&fact.region);
        let instances = self.machines.values().filter(is_in).cloned().collect();
        self.cell.facts.listing = Some(MachineListing { taken_at: self.now, regions, instances });
    }

    /// Carries out one launch: the same token makes the same machine.
    pub fn launch(&mut self, node: &PoolNode) -> Machine {
        let NodeOrigin::Cloud { client_token, .. } = &node.origin else {
            panic!("a static host was launched")
        };
        let number = self.tokens.len();
        let id = self
            .tokens
            .entry(client_token.clone())
            .or_insert_with(|| format!("i-{number}"))
            .clone();
        let now = self.now;
        let machine = Machine {
            instance: InstanceId(id.clone()),
            private_ipv4: Some(format!("127.0.1.{number}")),
            public_ipv4: None,
            public_ipv6: None,
            ssh_port: None,
            launched_at: now,
        };
        let fact = self.machines.entry(id).or_insert_with(|| InstanceFact {
            machine,
            region: node.region.clone(),
            node: Some(node.id.clone()),
            state: InstanceState::Running,
        });
        fact.machine.clone()
    }

    /// Carries out all pending actions successfully.
    pub fn carry_out(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                // A function runs for minutes at most; an older launch action is never carried out.
                PoolAction::Launch(node)
                    if self.now >= node.updated_at.plus_seconds(LAUNCHER_SECONDS) => {}
                PoolAction::Launch(node) => {
                    let machine = self.launch(&node);
                    let region = node.region.clone();
                    let fact = LaunchFact::Launched { machine, region };
                    self.cell.facts.launches.insert(node.id.clone(), fact);
                }
                PoolAction::Check(node) => {
                    self.cell.facts.checks.insert(
                        node.id.clone(),
                        CheckFact::Passed { host_keys: vec!["ssh-ed25519 AAAA".into()] },
                    );
                }
                PoolAction::Terminate { instance, .. } => {
                    if let Some(fact) = self.machines.get_mut(&instance.0) {
                        fact.state = InstanceState::Terminated;
                    }
                }
            }
        }
        self.list();
    }

    /// Plans and carries out until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            if self.step().is_empty() && self.actions.is_empty() {
                return;
            }
            self.carry_out();
            self.now = self.now.plus_seconds(3);
        }
        panic!("the cell does not settle");
    }

    /// Sets the fact about a request's build for the next plan.
    pub fn build(&mut self, sequence: u64, fact: BuildFact) {
        self.cell.facts.builds.insert(format!("build-{sequence}").as_str().into(), fact);
    }

    /// Writes a request as the executor of its build does: claimed when it is fulfilled, ended when
    /// it is claimed.
    pub fn executor_writes(&mut self, sequence: u64) {
        let row = RequestRow::new(200, 0, sequence);
        let now = self.now;
        for request in self.cell.requests.iter_mut().filter(|request| request.row == row) {
            let next = request
                .clone()
                .claim(now)
                .or_else(|| request.clone().end(BuildResult::Success, now));
            *request = next.expect("a request that an executor may write");
        }
    }

    /// Returns the state of a request and the number of its nodes, as text.
    pub fn state(&self, sequence: u64) -> String {
        let row = RequestRow::new(200, 0, sequence);
        let Some(request) = self.cell.requests.iter().find(|request| request.row == row) else {
            return "removed".into();
        };
        match &request.state {
            RequestState::Requested => "requested".into(),
            RequestState::Placed(placement) => format!("placed {}", placement.nodes.len()),
            RequestState::Fulfilled(placement) => format!("fulfilled {}", placement.nodes.len()),
            RequestState::Claimed(placement) => format!("claimed {}", placement.nodes.len()),
            RequestState::Ended(placement) => format!("ended {}", placement.nodes.len()),
            RequestState::Failed { reason } => format!("failed: {reason}"),
        }
    }

    /// Returns the state names of all nodes, sorted.
    pub fn node_states(&self) -> Vec<&'static str> {
        let mut states: Vec<_> = self.cell.nodes.iter().map(|node| node.state.as_str()).collect();
        states.sort_unstable();
        states
    }

    /// Returns the number of machines that exist.
    pub fn alive(&self) -> usize {
        self.machines.values().filter(|fact| fact.state != InstanceState::Terminated).count()
    }

    /// Returns the node of the launch action with this index.
    pub fn launched(&self, number: usize) -> NodeId {
        let launches: Vec<&PoolNode> = self
            .actions
            .iter()
            .filter_map(|action| match action {
                PoolAction::Launch(node) => Some(&**node),
                _ => None,
            })
            .collect();
        launches[number].id.clone()
    }
}
