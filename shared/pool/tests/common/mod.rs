//! A provider to plan for, and a small cloud that does what a plan asks for.

use sluice_model::build::BuildResult;
use sluice_model::{NodeId, QueueKey, Timestamp, poke::Precedence};
use sluice_pool::*;
use std::collections::BTreeMap;

/// A label of one machine with the image `image-1`.
pub fn label(min_ready: u32) -> Label {
    Label {
        image: Image::Available { id: "image-1".into() },
        flavor: "small".into(),
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
        provider: "cloud".into(),
        region: Some("here".into()),
        zones: vec!["a".into(), "b".into()],
        quota: Resources::instances(quota),
        labels: BTreeMap::from([("small".into(), label(0)), ("large".into(), label(0))]),
        statics: Vec::new(),
        pace: Pace::default(),
    }
}

/// A request by build `build-<sequence>` in the order of `sequence`.
pub fn request(sequence: u64, labels: &[&str]) -> Request {
    Request::new(
        Row::new(200, 0, sequence),
        format!("build-{sequence}").as_str().into(),
        QueueKey { tenant: "one".into(), pipeline: "gate".into(), queue: "main".into() },
        "test",
        Precedence::Normal,
        labels.iter().map(|label| (*label).into()).collect(),
        Timestamp(0),
    )
}

/// Seconds after which a launcher that was to call a launch is dead for sure; below the pace's time
/// for a launch to settle.
const LAUNCHER_SECONDS: u64 = 240;

/// The cell and the cloud behind it.
#[derive(Clone)]
pub struct World {
    /// The cell; its facts are those of the next plan.
    pub cell: Snapshot,
    /// Machines that exist, with the node they were launched for.
    pub machines: BTreeMap<String, InstanceFact>,
    /// What was asked for and not done.
    pub actions: Vec<Action>,
    /// Every poke so far.
    pub pokes: Vec<sluice_model::poke::Poke>,
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
                facts: Facts::default(),
            },
            machines: BTreeMap::new(),
            actions: Vec::new(),
            pokes: Vec::new(),
            now: Timestamp(1_000_000_000),
            tokens: BTreeMap::new(),
        }
    }

    /// Plans once and commits; the facts are used up.
    pub fn step(&mut self) -> Plan {
        let plan = plan(&self.cell, self.now);
        self.cell.facts = Facts::default();
        self.commit(&plan);
        plan
    }

    /// Commits a plan and keeps its actions.
    pub fn commit(&mut self, plan: &Plan) {
        self.cell.head = plan.head.clone();
        for change in &plan.changes {
            match change {
                Change::PutRequest(request) => {
                    *self
                        .cell
                        .requests
                        .iter_mut()
                        .find(|other| other.row == request.row)
                        .expect("a request that was read") = request.clone();
                }
                Change::RemoveRequest(row) => {
                    self.cell.requests.retain(|request| request.row != *row)
                }
                Change::CreateNode(node) => {
                    assert!(
                        !self.cell.nodes.iter().any(|other| other.id == node.id),
                        "a node id was given twice"
                    );
                    self.cell.nodes.push(node.clone());
                }
                Change::PutNode(node) => {
                    *self
                        .cell
                        .nodes
                        .iter_mut()
                        .find(|other| other.id == node.id)
                        .expect("a node that was read") = node.clone();
                }
                Change::RemoveNode(id) => self.cell.nodes.retain(|node| node.id != *id),
            }
        }
        self.actions.extend(plan.actions.iter().cloned());
        self.pokes.extend(plan.pokes.iter().cloned());
    }

    /// Lists the machines as they are now.
    pub fn list(&mut self) {
        let instances = self.machines.values().cloned().collect();
        self.cell.facts.listing = Some(Listing { taken_at: self.now, instances });
    }

    /// Carries out one launch: the same token makes the same machine.
    pub fn launch(&mut self, node: &Node) -> Machine {
        let Origin::Cloud { client_token, .. } = &node.origin else {
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
            node: Some(node.id.clone()),
            state: InstanceState::Running,
        });
        fact.machine.clone()
    }

    /// Does everything that was asked for, well.
    pub fn carry_out(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                // A function lives for minutes: a launch that is left for longer is never called.
                Action::Launch(node)
                    if self.now >= node.updated_at.plus_seconds(LAUNCHER_SECONDS) => {}
                Action::Launch(node) => {
                    let machine = self.launch(&node);
                    self.cell.facts.launches.insert(node.id.clone(), LaunchFact::Launched(machine));
                }
                Action::Check(node) => {
                    self.cell.facts.checks.insert(
                        node.id.clone(),
                        CheckFact::Passed { host_keys: vec!["ssh-ed25519 AAAA".into()] },
                    );
                }
                Action::Terminate { instance, .. } => {
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

    /// Says where the build of a request is for the next plan.
    pub fn build(&mut self, sequence: u64, fact: BuildFact) {
        self.cell.facts.builds.insert(format!("build-{sequence}").as_str().into(), fact);
    }

    /// Writes a request as the executor of its build does: claimed when it is fulfilled, ended when
    /// it is claimed.
    pub fn executor_writes(&mut self, sequence: u64) {
        let row = Row::new(200, 0, sequence);
        let now = self.now;
        for request in self.cell.requests.iter_mut().filter(|request| request.row == row) {
            let next = request
                .clone()
                .claimed(now)
                .or_else(|| request.clone().ended(BuildResult::Success, now));
            *request = next.expect("a request that an executor may write");
        }
    }

    /// The state of a request as a word, with the number of nodes it holds.
    pub fn state(&self, sequence: u64) -> String {
        let row = Row::new(200, 0, sequence);
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

    /// Words of all nodes, sorted.
    pub fn words(&self) -> Vec<&'static str> {
        let mut words: Vec<_> = self.cell.nodes.iter().map(|node| node.state.word()).collect();
        words.sort_unstable();
        words
    }

    /// Machines that exist.
    pub fn alive(&self) -> usize {
        self.machines.values().filter(|fact| fact.state != InstanceState::Terminated).count()
    }

    /// The node that was asked to be launched.
    pub fn launched(&self, number: usize) -> NodeId {
        let launches: Vec<&Node> = self
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Launch(node) => Some(&**node),
                _ => None,
            })
            .collect();
        launches[number].id.clone()
    }
}
