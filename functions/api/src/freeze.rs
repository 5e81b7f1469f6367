//! `freeze-jobs` and `freeze-job`: the jobs that would run for a branch; `freeze-pipeline`: the
//! parameters for enqueuing by hand. Answers never contain the ciphertext of secrets (Z5.4).

use crate::Api;
use crate::configuration::find_project;
use crate::load;
use crate::reply::{self, ErrorResponse};
use crate::variant::nodeset;
use bytes::Bytes;
use http::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_config::FreezeInput;
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantProject;
use sluice_model::TenantName;
use sluice_model::job::{FrozenJob, JobGraph, Playbook, RoleUse};

/// The pipeline, project and branch to freeze jobs for.
pub(crate) struct FreezeQuery<'a> {
    /// The pipeline in which the jobs would run.
    pub(crate) pipeline: &'a str,
    /// The project, by short or canonical name.
    pub(crate) project: &'a str,
    /// The branch for which the jobs would run.
    pub(crate) branch: &'a str,
}

/// Answers `…/freeze-jobs` with the names and dependencies of the jobs that would run for a change
/// to a branch of a project in a pipeline. File matchers are not applied: they exclude no job. 404
/// for an unknown project or pipeline, 400 if the jobs cannot be frozen. Whether the branch exists
/// is not checked.
pub(crate) async fn jobs(
    api: &Api,
    tenant: &TenantName,
    query: &FreezeQuery<'_>,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let (_, graph) = freeze(&live.layout, query)?;
    let list =
        graph.jobs.iter().map(|job| json!({"name": job.name, "dependencies": job.dependencies}));
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Answers `…/freeze-job/{job}` with one job as it would run for a change to a branch of a project.
/// File matchers are not applied: they exclude no job. 404 if the job would not run, or for an
/// unknown project or pipeline; 400 if the jobs cannot be frozen.
pub(crate) async fn job(
    api: &Api,
    tenant: &TenantName,
    query: &FreezeQuery<'_>,
    name: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let layout = &*live.layout;
    let (project, graph) = freeze(layout, query)?;
    let missing = || ErrorResponse::missing(format!("The job {name} would not run."));
    let job = graph.jobs.iter().find(|job| job.name.as_str() == name).ok_or_else(missing)?;
    Ok(reply::json(&frozen_json(layout, tenant, project, query, job)))
}

/// The body of a `freeze-pipeline` query.
#[derive(Deserialize)]
struct FreezePipelineQuery {
    /// The pipeline's name.
    pipeline: String,
    /// The full name of the ref.
    #[serde(rename = "ref")]
    git_ref: String,
}

/// Answers `T/project/{p}/freeze-pipeline` with the parameters that a pipeline accepts for a ref of
/// a project; empty if it accepts none. `sent` is the request's body, JSON with `pipeline` and
/// `ref`: 400 if it is invalid. 404 for an unknown project or pipeline.
pub(crate) async fn pipeline(
    api: &Api,
    tenant: &TenantName,
    project: &str,
    sent: &[u8],
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let request: FreezePipelineQuery = serde_json::from_slice(sent).map_err(|error| {
        ErrorResponse::bad(format!(
            "The body must be {{\"pipeline\": NAME, \"ref\": \"refs/heads/BRANCH\"}}: {error}."
        ))
    })?;
    let project = find_project(&live.layout, project)?;
    let missing = || {
        ErrorResponse::missing(format!(
            "There is no pipeline {} in the tenant {tenant}.",
            request.pipeline
        ))
    };
    let pipeline = live.layout.pipeline(&request.pipeline).ok_or_else(missing)?;
    let branch = request.git_ref.strip_prefix("refs/heads/");
    let parameters = match pipeline.allow_parameters {
        true => live.layout.parameters(&project.name, &request.pipeline, branch),
        false => Vec::new(),
    };
    let shown = parameters.into_iter().map(|parameter| {
        let mut shown = Map::new();
        shown.insert("name".into(), json!(parameter.name));
        shown.insert("type".into(), json!(parameter.r#type));
        shown.insert("required".into(), json!(parameter.required));
        let more = [
            ("description", parameter.description.as_ref().map(|text| json!(text))),
            (
                "values",
                Some(&parameter.values)
                    .filter(|values| !values.is_empty())
                    .map(|values| json!(values)),
            ),
            ("default", parameter.default.clone()),
        ];
        shown.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Value::Object(shown)
    });
    Ok(reply::json(&json!({"parameters": shown.collect::<Vec<_>>()})))
}

/// Freezes the jobs for a change with unknown files, so that file matchers exclude no job, and
/// returns them with the project. The error is 404 for an unknown project or pipeline, and 400 for
/// jobs that cannot be frozen.
fn freeze<'l>(
    layout: &'l Layout,
    query: &FreezeQuery<'_>,
) -> Result<(&'l TenantProject, JobGraph), ErrorResponse> {
    let project = find_project(layout, query.project)?;
    if layout.pipeline(query.pipeline).is_none() {
        return Err(ErrorResponse::missing(format!(
            "There is no pipeline {} in the tenant {}.",
            query.pipeline,
            layout.tenant().name
        )));
    }
    let input = FreezeInput::change(query.pipeline, &project.name, query.branch);
    let graph = layout.freeze(&input).map_err(|errors| {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ErrorResponse::bad(format!("Could not freeze jobs: {}", words.join("; ")))
    })?;
    Ok((project, graph))
}

/// Returns a frozen job in the shape that Zuul's API has. Of secrets it has only the names; the job
/// `noop` has no playbooks.
fn frozen_json(
    layout: &Layout,
    tenant: &TenantName,
    project: &TenantProject,
    query: &FreezeQuery<'_>,
    job: &FrozenJob,
) -> Value {
    let mut shown = json!({
        "job": job.name,
        "branch": query.branch,
        "zuul": zuul_json(tenant, project, query, job),
        "items": [],
        "projects": projects_json(layout, project, job),
        "repo_state_keys": [],
        "ssh_keys": ["REDACTED"],
        "pipeline_builds_images": job.image_build_name.is_some(),
        "pre_timeout": job.pre_timeout_seconds,
        "timeout": job.timeout_seconds,
        "post_timeout": job.post_timeout_seconds,
        "override_branch": null,
        "override_checkout": job.override_checkout,
        "ansible_version": job.ansible_version.as_deref().or(layout.tenant().default_ansible_version.as_deref()).unwrap_or("default"),
        "ansible_split_streams": job.run_time.ansible_split_streams,
        "workspace_scheme": job.workspace_scheme,
        "workspace_checkout": job.run_time.workspace_checkout,
        "nodeset": job.nodesets.first().map_or_else(|| json!({"name": "", "nodes": [], "groups": [], "alternatives": []}), nodeset),
        "vars": job.vars,
        "extra_vars": job.extra_vars,
        "host_vars": job.host_vars,
        "group_vars": job.group_vars,
        "secret_vars": null,
        "failure_output": job.run_time.failure_output,
    });
    if let Some(map) = shown.as_object_mut().filter(|_| job.name.as_str() != "noop") {
        let list = |playbooks: &[Playbook], cleanup: bool| {
            let chosen = playbooks.iter().filter(|playbook| playbook.cleanup == cleanup);
            Value::Array(chosen.map(|playbook| playbook_json(layout, playbook)).collect())
        };
        map.insert("playbooks".into(), list(&job.run, false));
        map.insert("pre_playbooks".into(), list(&job.pre_run, false));
        map.insert("post_playbooks".into(), list(&job.post_run, false));
        map.insert("cleanup_playbooks".into(), list(&job.post_run, true));
    }
    shown
}

/// Returns the `zuul` variables that the job would get, with placeholders for what only a build
/// has.
fn zuul_json(
    tenant: &TenantName,
    project: &TenantProject,
    query: &FreezeQuery<'_>,
    job: &FrozenJob,
) -> Value {
    json!({
        "build": "0".repeat(32),
        "buildset": null,
        "branch": query.branch,
        "ref": format!("refs/heads/{}", query.branch),
        "pipeline": query.pipeline,
        "post_review": job.post_review,
        "job": job.name,
        "voting": job.voting,
        "project": {
            "name": project.name.name(),
            "short_name": project.name.short_name(),
            "canonical_hostname": project.name.host(),
            "canonical_name": project.name,
            "src_dir": format!("src/{}", project.name),
        },
        "tenant": tenant,
        "timeout": job.timeout_seconds,
        "jobtags": job.tags,
        "_inheritance_path": job.inheritance,
        "items": [],
        "child_jobs": [],
    })
}

/// Returns as JSON the repositories that the job would check out: the project itself, then its
/// required projects.
fn projects_json(layout: &Layout, project: &TenantProject, job: &FrozenJob) -> Value {
    let own = (&project.connection, &project.name, None);
    let required = job.required_projects.iter().filter(|required| required.project != project.name);
    let required = required.map(|required| {
        (&required.connection, &required.project, required.override_checkout.as_ref())
    });
    let list = std::iter::once(own).chain(required).map(|(connection, name, checkout)| {
        let mut shown = Map::new();
        shown.insert("connection".into(), json!(connection));
        shown.insert("name".into(), json!(name.name()));
        shown.insert("canonical_name".into(), json!(name));
        shown.insert("override_branch".into(), Value::Null);
        shown.insert("override_checkout".into(), json!(checkout));
        shown.insert("default_branch".into(), json!(layout.default_branch(name)));
        Value::Object(shown)
    });
    Value::Array(list.collect())
}

/// Returns a playbook in the shape that Zuul's API has. Of secrets it has only the names.
fn playbook_json(layout: &Layout, playbook: &Playbook) -> Value {
    let roles = playbook.roles.iter().map(|role| match role {
        RoleUse::Zuul(role) => json!({
            "target_name": role.target_name,
            "type": "zuul",
            "project_canonical_name": role.project,
            "implicit": role.implicit,
            "connection": role.connection,
            "project": role.project.name(),
            "project_default_branch": layout.default_branch(&role.project),
        }),
        RoleUse::Galaxy(role) => json!({
            "target_name": role.target_name,
            "type": "galaxy",
            "galaxy": role.galaxy,
            "project_canonical_name": role.project,
        }),
    });
    let secrets: Map<String, Value> =
        playbook.secrets.keys().map(|name| (name.clone(), json!("REDACTED"))).collect();
    json!({
        "connection": playbook.connection,
        "project": playbook.project.name(),
        "branch": playbook.branch,
        "trusted": playbook.trusted,
        "path": playbook.path,
        "roles": roles.collect::<Vec<_>>(),
        "secrets": secrets,
        "semaphores": playbook.semaphores,
        "cleanup": playbook.cleanup,
        "nesting_level": playbook.nesting_level,
        "preserve_home_paths": playbook.preserve_home_paths,
    })
}
