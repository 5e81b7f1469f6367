//! A job without definitions, and the attributes that `attribute-control` can make final.

use crate::objects::JobStanza;
use serde_json::Map;
use sluice_model::JobName;
use sluice_model::job::{FrozenJob, NodeSet, RunTime, WorkspaceScheme};
use std::collections::BTreeMap;

/// Returns a job with default values: voting, 3 attempts, one nodeset without nodes, no timeouts
/// and nothing to run.
pub(super) fn empty_job(name: &str) -> FrozenJob {
    FrozenJob {
        name: JobName(name.to_owned()),
        inheritance: Vec::new(),
        dependencies: Vec::new(),
        voting: true,
        attempts: 3,
        timeout_seconds: None,
        pre_timeout_seconds: None,
        post_timeout_seconds: None,
        nodesets: vec![NodeSet::default()],
        pre_run: Vec::new(),
        run: Vec::new(),
        post_run: Vec::new(),
        required_projects: Vec::new(),
        vars: Map::new(),
        extra_vars: Map::new(),
        host_vars: BTreeMap::new(),
        group_vars: BTreeMap::new(),
        semaphores: Vec::new(),
        tags: Vec::new(),
        provides: Vec::new(),
        requires: Vec::new(),
        override_checkout: None,
        post_review: false,
        workspace_scheme: WorkspaceScheme::default(),
        ansible_version: None,
        success_message: None,
        failure_message: None,
        image_build_name: None,
        match_on_config_updates: true,
        run_time: RunTime::default(),
    }
}

/// Returns the names of the attributes that a definition sets, without those that
/// `attribute-control` cannot make final.
pub(super) fn settable_final_attributes(from: &JobStanza) -> Vec<&'static str> {
    let set = [
        ("requires", from.requires.is_some()),
        ("provides", from.provides.is_some()),
        ("tags", from.tags.is_some()),
        ("files", from.files.is_some()),
        ("irrelevant-files", from.irrelevant_files.is_some()),
        ("required-projects", from.required_projects.is_some()),
        ("vars", from.vars.is_some()),
        ("extra-vars", from.extra_vars.is_some()),
        ("host-vars", from.host_vars.is_some()),
        ("group-vars", from.group_vars.is_some()),
        ("dependencies", from.dependencies.is_some()),
        ("pre-run", from.pre_run.is_some()),
        ("run", from.run.is_some()),
        ("post-run", from.post_run.is_some()),
        ("voting", from.voting.is_some()),
    ];
    let run_time = [
        ("include-projects", from.run_time.include_projects.is_some()),
        ("exclude-projects", from.run_time.exclude_projects.is_some()),
        ("include-vars", from.run_time.include_vars.is_some()),
        ("failure-output", from.run_time.failure_output.is_some()),
        ("type", from.run_time.kind.is_some()),
    ];
    set.into_iter().chain(run_time).filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}
