//! An executor with the ports in memory, its nodes, and builds of one job on them.

use crate::support::{self, CONFIG, Node, PROJECT, Repo, keygen, untrusted};
use crate::world::ObservedWorld;
use serde_json::json;
use sluice_executor::AnsibleSettings;
use sluice_executor::service::admission::AdmissionLimits;
use sluice_executor::service::zone::ServedZone;
use sluice_executor::service::{ExecutorService, ExecutorSettings};
use sluice_git::{NewPack, keys};
use sluice_model::build::{Order, Phase, RequestRef, Run, RunEnd, Speculation, SpeculativeChange};
use sluice_model::git::{BranchKey, BranchState};
use sluice_model::job::JobGraph;
use sluice_model::wakeup::{Precedence, Wakeup};
use sluice_model::{BuildId, NodeId, ProjectName, Timestamp};
use sluice_pool::{
    InstanceId, Interface, Machine, NodeOrigin, NodeRequest, NodeState, Placement, PoolNode,
    RequestRow, RequestState, Resources,
};
use sluice_records::codec::{decode, encode};
use sluice_records::logs::{BuildLogs, LOG};
use sluice_records::{build, provider};
use sluice_runtime::cell;
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Record, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The tenant of all builds.
const TENANT: &str = "one";
/// The provider of all nodes.
const PROVIDER: &str = "local";

/// A running executor, with nodes for its builds.
pub struct Site {
    world: ObservedWorld,
    pub nodes: Vec<Node>,
    /// How many builds were sent.
    sent: u64,
    stop: watch::Sender<bool>,
    run: JoinHandle<()>,
    _state: TempDir,
}

impl Site {
    /// Starts an executor with as many slots and nodes as `size`, for builds with one node and one
    /// repository, whose only playbook has these tasks.
    pub async fn start(size: usize, tasks: &str, change: fn(&mut AnsibleSettings)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let key = state.path().join("node_key");
        keygen(&key);
        let world = ObservedWorld::new();
        store_job(&world, tasks).await;
        let nodes = (0..size).map(|at| Node::start(&node_id(at).0, &key)).collect();
        let ansible = support::ansible(&state.path().join("ansible"), change).await;
        let settings = ExecutorSettings {
            hostname: "here".to_owned(),
            slots: size,
            limits: AdmissionLimits {
                memory_min_percent: 0,
                disk_min_percent: 0,
                ..AdmissionLimits::default()
            },
            state: state.path().to_owned(),
            node_key: Some(key),
            log_address: None,
            zone: ServedZone::default(),
            log_root: "https://sluice.test/logs/".to_owned(),
            drain_seconds: 0,
            token_issuer: "https://sluice.test".to_owned(),
        };
        let executor = ExecutorService::new(world.ports(), Arc::new(ansible), settings);
        let (stop, stopped) = watch::channel(false);
        let run = tokio::spawn(async move { executor.run(stopped).await.unwrap() });
        Self { world, nodes, sent: 0, stop, run, _state: state }
    }

    /// Stores a new build of the job, with the node at this place, and sends it to the executor.
    pub async fn send(&mut self, at: usize) -> BuildId {
        self.sent += 1;
        let (build, node) = (BuildId::derive(&[&self.sent.to_string()]), node_id(at));
        let row = RequestRow::new(100, 0, self.sent);
        let request = RequestRef { provider: PROVIDER.into(), row: row.0.clone() };
        let order: Order = serde_json::from_value(json!({
            "build": build, "queue": { "tenant": TENANT, "pipeline": "check", "queue": "q" },
            "item": "b".repeat(32), "generation": 1, "job": "unit", "attempt": 1,
            "max_attempts": 1, "voting": true, "graph": "graph", "speculation": "state",
            "change": change(), "event_id": "e1", "post_review": false, "request": request,
            "ordered_at": 0,
        }))
        .unwrap();
        let placement = Placement { az: None, generation: self.sent, nodes: vec![node.clone()] };
        let queue = order.queue.clone();
        let placed = NodeRequest {
            state: RequestState::Fulfilled(placement),
            ..NodeRequest::new(
                row,
                build.clone(),
                queue,
                "check",
                Precedence::Normal,
                vec!["small".into()],
                Timestamp(0),
            )
        };
        let provider = PROVIDER.into();
        self.world.write(build::put_order(&order).unwrap());
        for record in [
            provider::request_record(&provider, &placed).unwrap(),
            encode(provider::node_key(&provider, &node), &self.node(at)).unwrap(),
        ] {
            let record = Record { revision: 1, ..record };
            self.world.write(Write::Put { record, expect: Expect::Anything });
        }
        let wakeup = Wakeup::Build {
            build: build.clone(),
            precedence: Precedence::Normal,
            tenant: TENANT.into(),
            request: Some(request),
            nodes: vec![node],
            zone: None,
        };
        cell::send(&self.world.ports(), &[wakeup]).await.unwrap();
        build
    }

    /// Returns the record of a node.
    fn node(&self, at: usize) -> PoolNode {
        let access = &self.nodes[at].access;
        let machine = Machine {
            instance: InstanceId(access.id.0.clone()),
            private_ipv4: Some(access.interface_ip.clone()),
            public_ipv4: None,
            public_ipv6: None,
            ssh_port: None,
            launched_at: Timestamp(0),
        };
        PoolNode {
            id: access.id.clone(),
            label: "small".into(),
            provider: PROVIDER.into(),
            region: None,
            az: None,
            origin: NodeOrigin::Cloud {
                client_token: access.id.0.clone(),
                image_id: "image".to_owned(),
                flavor: "small".to_owned(),
                resources: Resources { instances: 1, ..Resources::default() },
            },
            allocated_to: None,
            state: NodeState::Ready { machine, host_keys: access.host_keys.clone() },
            attempt: 1,
            username: access.username.clone(),
            ssh_port: access.ssh_port,
            python_path: None,
            interface: Interface::Private,
            boot_timeout_seconds: 60,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    /// Waits until the end of a build is stored, and returns it.
    pub async fn end_of(&self, build: &BuildId) -> RunEnd {
        let phase = |record: &Record| decode::<Run>(record).unwrap().phase;
        let is_ended = |record: &Record| matches!(phase(record), Phase::Ended(_));
        match phase(&self.world.until(&build::run_key(build), is_ended).await) {
            Phase::Ended(end) => end,
            other => unreachable!("{other:?}"),
        }
    }

    /// Returns the log of a build that has ended.
    pub async fn log_of(&self, build: &BuildId) -> String {
        let tenant = TENANT.into();
        let logs = BuildLogs { tenant: &tenant, build };
        let log = logs.read_file(&self.world.ports(), LOG).await.unwrap().unwrap();
        String::from_utf8(log.to_vec()).unwrap()
    }

    /// Waits until a file exists in the home directory of a node.
    pub async fn until_on_node(&self, at: usize, file: &str) {
        let path: PathBuf = self.nodes[at].home().join(file);
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the executor.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.run.await.unwrap();
    }
}

/// Returns the id of the node at a place.
fn node_id(at: usize) -> NodeId {
    format!("node-{at}").as_str().into()
}

/// Returns the change under test.
fn change() -> serde_json::Value {
    json!({
        "key": { "connection": "forge", "project": PROJECT, "number": 7 },
        "branch": "main", "head": "aa", "patchset": "1",
    })
}

/// Stores the job, the tested state and the packs of its repository.
async fn store_job(world: &ObservedWorld, tasks: &str) {
    let play = format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}");
    let mut branches = Vec::new();
    for (project, files) in [(PROJECT, vec![("run.yaml", play.as_str())]), (CONFIG, Vec::new())] {
        let repo = Repo::new();
        let base = repo.commit(&[("README", "before")]);
        let result = repo.commit(&files);
        let branch = BranchKey { project: project.into(), branch: "main".into() };
        let packs = store_packs(world, &branch.project, &repo).await;
        branches.push(BranchState { branch, base, result, packs });
    }
    let change = SpeculativeChange {
        change: serde_json::from_value(change()).unwrap(),
        url: "https://forge.test/org/project/pull/7".to_owned(),
        title: "Try".to_owned(),
        message: String::new(),
        topic: None,
        merge_commit: None,
    };
    let state = Speculation {
        changes: vec![change],
        branches,
        config_branches: Vec::new(),
        applied_members: Vec::new(),
        containing: None,
        defaults: Vec::new(),
    };
    let job = json!({
        "name": "unit", "voting": true, "attempts": 1, "timeout_seconds": 600,
        "run": [untrusted("run")], "dependencies": [],
        "nodesets": [{ "name": "", "nodes": [{ "names": ["node"], "label": "small" }], "groups": [] }],
    });
    let graph = JobGraph { jobs: vec![serde_json::from_value(job).unwrap()] };
    for (key, text) in [("graph", json!(graph)), ("state", json!(state))] {
        let objects = &world.ports().objects;
        let text = text.to_string().into();
        objects.put(key, text, PutMode::Always, "application/json").await.unwrap();
    }
}

/// Stores the packs of a repository and returns their keys.
async fn store_packs(world: &ObservedWorld, project: &ProjectName, repo: &Repo) -> Vec<String> {
    let packs = repo.packs();
    let mut stored = Vec::new();
    for name in packs.names {
        let pack = packs.directory.join(format!("{name}.pack"));
        let size_bytes = std::fs::metadata(&pack).unwrap().len();
        let key = keys::pack(project, &name);
        let new = NewPack { name, index: pack.with_extension("idx"), pack, objects: 0, size_bytes };
        let bytes = new.joined(project).unwrap().into();
        let objects = &world.ports().objects;
        objects.put(&key, bytes, PutMode::Always, "application/octet-stream").await.unwrap();
        stored.push(key);
    }
    stored
}
