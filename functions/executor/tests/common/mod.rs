//! Stores the objects that an order refers to: the jobs of its item and the tested state.

use bytes::Bytes;
use serde_json::json;
use sluice_model::build::Speculation;
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;

/// Stores jobs without nodes by their names, and a state in which nothing is merged, under the keys
/// that orders name.
pub async fn store_jobs(ports: &Ports, graph: &str, state: &str, jobs: &[&str]) {
    let frozen = |name: &&str| -> FrozenJob {
        let text = json!({"name": name, "voting": true, "attempts": 1, "nodesets": [], "dependencies": []});
        serde_json::from_value(text).unwrap()
    };
    store_graph(ports, graph, state, &JobGraph { jobs: jobs.iter().map(frozen).collect() }).await;
}

/// Stores a graph of jobs, and a state in which nothing is merged, under the keys that orders name.
pub async fn store_graph(ports: &Ports, graph: &str, state: &str, jobs: &JobGraph) {
    let nothing = Speculation {
        changes: Vec::new(),
        branches: Vec::new(),
        config_branches: Vec::new(),
        applied_members: Vec::new(),
        containing: None,
        defaults: Vec::new(),
    };
    for (key, text) in [
        (graph, serde_json::to_string(jobs).unwrap()),
        (state, serde_json::to_string(&nothing).unwrap()),
    ] {
        ports
            .objects
            .put(key, Bytes::from(text), PutMode::Always, "application/json")
            .await
            .unwrap();
    }
}
