//! A tenant's configuration: pipelines, projects, jobs, configuration errors.

use crate::Api;
use crate::load;
use crate::reply::{self, ErrorResponse};
use crate::request::{ApiRequest, decode_form_text};
use crate::status::triggers;
use crate::variant;
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sluice_config::connection::Driver;
use sluice_config::fragment::Source;
use sluice_config::layout::Layout;
use sluice_config::objects::{JobStanza, ProjectStanza, Stanza};
use sluice_config::tenant::TenantProject;
use sluice_config::{DiagnosticKind, Pattern, Severity};
use sluice_model::{ProjectName, TenantName};
use sluice_records::codec::decode_or_log;
use sluice_records::seen_refs::{self, SeenRefs};
use sluice_runtime::record::Key;
use std::collections::BTreeMap;

/// Zuul's name of the error that a project of the main configuration cannot be read.
const UNREADABLE: &str = "Project Not Found";

/// The name of the warning that the last poll of a project at a plain git server did not read all
/// its branches and tags. Zuul has none.
const INCOMPLETE_POLL: &str = "Incomplete Poll";

/// Answers `T/pipelines` with the names of a tenant's pipelines, and the connections with drivers
/// that trigger them.
pub(crate) async fn pipelines(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let list = live.layout.pipelines().iter().map(|pipeline| {
        let triggers = triggers(pipeline)
            .into_iter()
            .map(|(name, driver)| json!({"name": name, "driver": driver}));
        json!({"name": pipeline.name, "triggers": triggers.collect::<Vec<_>>()})
    });
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Answers `T/tenant-status` with one number: that of the configuration errors and warnings plus
/// that of the unreadable projects. Attributes that Sluice ignores, which `T/config-errors` lists
/// too, are not counted.
pub(crate) async fn tenant_status(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    Ok(reply::json(
        &json!({"config_error_count": live.layout.errors().len() + live.tenant.unreadable_projects.len()}),
    ))
}

/// Answers `T/config-errors` with the page of a tenant's configuration errors and warnings that
/// match the parameters. Unreadable projects come first, then those whose last poll is incomplete;
/// attributes that Sluice ignores come last.
/// An unknown parameter or tenant is 404, an invalid number 400, a tenant that was never loaded
/// 422.
pub(crate) async fn errors(
    api: &Api,
    tenant: &TenantName,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let page = request.page()?;
    let live = load::live(api, tenant).await?;
    // Unreadable projects come first, because they cause most of the other errors.
    let unreadable = live.tenant.unreadable_projects.iter().filter(|problem| {
        matches_filter(request, &problem.project, "", Severity::Error, UNREADABLE)
    });
    let unreadable = unreadable.map(|problem| {
        let text =
            format!("The project {} could not be read: {}", problem.project.name(), problem.why);
        json!({
            "source_context": {"project": problem.project.name(), "branch": "", "path": ""},
            "error": text,
            "short_error": text,
            "severity": severity_name(Severity::Error),
            "name": UNREADABLE,
        })
    });
    let incomplete = incomplete_polls(api, &live.layout).await?;
    let incomplete = incomplete.iter().filter(|(project, _)| {
        matches_filter(request, project, "", Severity::Warning, INCOMPLETE_POLL)
    });
    let incomplete = incomplete.map(|(project, why)| {
        json!({
            "source_context": {"project": project.name(), "branch": "", "path": ""},
            "error": why,
            "short_error": why,
            "severity": severity_name(Severity::Warning),
            "name": INCOMPLETE_POLL,
        })
    });
    let unserved = live.layout.ignored_attributes();
    let found = live.layout.errors().iter().chain(&unserved).filter(|error| {
        let problem = &error.diagnostic;
        matches_filter(
            request,
            &error.project,
            error.branch.as_str(),
            problem.severity,
            kind_name(problem.kind),
        )
    });
    let found = found.map(|error| {
        json!({
            "source_context": {"project": error.project.name(), "branch": error.branch, "path": error.path},
            "error": error.render(None),
            "short_error": error.short_text(),
            "severity": severity_name(error.diagnostic.severity),
            "name": kind_name(error.diagnostic.kind),
        })
    });
    let list = unreadable.chain(incomplete).chain(found).skip(page.skip).take(page.limit);
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Returns the projects at plain git servers whose last poll did not read all branches and tags,
/// each with the reason. Reads nothing if the tenant has no project there.
async fn incomplete_polls(
    api: &Api,
    layout: &Layout,
) -> Result<Vec<(ProjectName, String)>, ErrorResponse> {
    let driver = |project: &TenantProject| layout.connections().driver(project.connection.as_str());
    let projects = layout.tenant().projects.iter();
    let polled: Vec<&TenantProject> =
        projects.filter(|project| driver(project) == Some(Driver::Git)).collect();
    let keys: Vec<Key> =
        polled.iter().map(|project| seen_refs::key(&project.name, &project.connection)).collect();
    let records = load::read_many(&api.ports, &keys).await?;
    let problems = polled.iter().zip(records).filter_map(|(project, record)| {
        let seen: SeenRefs = decode_or_log(&record?)?;
        Some((project.name.clone(), seen.problem?))
    });
    Ok(problems.collect())
}

/// Returns whether an error matches the request's filter parameters. A parameter that is not given
/// matches everything; of several values one must match. `name` is the name of the error's kind, as
/// the answer shows it. `branch` is empty for an unreadable project.
fn matches_filter(
    request: &ApiRequest,
    project: &ProjectName,
    branch: &str,
    severity: Severity,
    name: &str,
) -> bool {
    let is = |parameter: &str, words: &[&str]| {
        let mut values = request.parameter_values(parameter).peekable();
        values.peek().is_none() || values.any(|value| words.contains(&value))
    };
    is("project", &[project.as_str(), project.name()])
        && is("branch", &[branch])
        && is("severity", &[severity_name(severity)])
        && is("name", &[name])
}

/// Answers `T/projects` with the projects of a tenant, in order of the name without its host.
pub(crate) async fn projects(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let mut projects: Vec<&TenantProject> = live.layout.tenant().projects.iter().collect();
    projects.sort_by_key(|project| project.name.name());
    let list = projects.iter().map(|project| {
        json!({
            "name": project.name.name(),
            "connection_name": project.connection,
            "canonical_name": project.name,
            "type": if project.trust.is_trusted() { "config" } else { "untrusted" },
        })
    });
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Answers `T/project/{p}` with the stanzas and templates that configure one project; 404 if there
/// is no such project.
pub(crate) async fn project(
    api: &Api,
    tenant: &TenantName,
    name: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let layout = &*live.layout;
    let project = find_project(layout, name)?;
    let mut configs = Vec::new();
    for (source, stanza) in stanzas(layout).filter_map(|(source, stanza)| match stanza {
        Stanza::Project(project) => Some((source, project)),
        _ => None,
    }) {
        if !applies_to(layout, project, source, stanza) {
            continue;
        }
        configs.push(config_json(layout, source, stanza, IsTemplate::No));
        for template in &stanza.templates {
            let found = stanzas(layout).filter_map(|(source, stanza)| match stanza {
                Stanza::ProjectTemplate(found) if found.name.as_ref() == Some(template) => {
                    Some((source, found))
                }
                _ => None,
            });
            configs.extend(
                found.map(|(source, found)| config_json(layout, source, found, IsTemplate::Yes)),
            );
        }
    }
    let metadata = if configs.is_empty() {
        json!({})
    } else {
        let default_branch = layout.default_branch(&project.name);
        let first = layout.project_pipelines(&project.name);
        let queue =
            first.first().map(|pipeline| layout.queue(&project.name, pipeline.as_str()).name.0);
        json!({
            "merge_mode": layout.merge_mode(&project.name),
            "default_branch": default_branch,
            "is_template": false,
            "queue_name": queue.filter(|queue| queue != project.name.as_str()),
        })
    };
    Ok(reply::json(&json!({
        "name": project.name.name(),
        "connection_name": project.connection,
        "canonical_name": project.name,
        "metadata": metadata,
        "configs": configs,
    })))
}

/// Answers `T/jobs` with all jobs of a tenant, in order of name: the first line of the description,
/// the tags, and the parents and branches of the variants.
pub(crate) async fn jobs(api: &Api, tenant: &TenantName) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let layout = &*live.layout;
    let list = by_name(layout).into_iter().map(|(name, variants)| {
        let mut job = Map::new();
        job.insert("name".into(), json!(name));
        let described = variants.iter().find_map(|(_, variant)| variant.description.as_deref());
        if let Some(line) = described.and_then(|text| text.trim().lines().next()) {
            job.insert("description".into(), json!(line));
        }
        let tags: Vec<&String> = variants
            .iter()
            .flat_map(|(_, variant)| &variant.tags)
            .flat_map(|tags| &tags.value)
            .collect();
        if !tags.is_empty() {
            job.insert("tags".into(), json!(tags));
        }
        let variants = variants.iter().map(|(_, variant)| {
            let mut of_variant = Map::new();
            if let Some(parent) = variant::parent(layout, variant) {
                of_variant.insert("parent".into(), json!(parent));
            }
            if let Some(branches) = &variant.branches {
                of_variant.insert("branches".into(), json!(variant::texts(branches)));
            }
            Value::Object(of_variant)
        });
        job.insert("variants".into(), Value::Array(variants.collect()));
        Value::Object(job)
    });
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Answers `T/job/{name}` with the variants of a job; 404 if there is none. The name is decoded
/// once more than other path parts, with `+` for a space.
pub(crate) async fn job(
    api: &Api,
    tenant: &TenantName,
    name: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let layout = &*live.layout;
    let name = decode_form_text(name);
    let found = by_name(layout);
    let variants = found.get(name.as_str()).ok_or_else(|| {
        ErrorResponse::missing(format!("There is no job {name} in the tenant {tenant}."))
    })?;
    let list = variants.iter().map(|(source, variant)| variant::json(layout, source, variant));
    Ok(reply::json(&Value::Array(list.collect())))
}

/// Returns a project by its canonical name, or by its name without the host if that is unambiguous;
/// otherwise an error with status 404. The project of included files is not found.
pub(crate) fn find_project<'l>(
    layout: &'l Layout,
    name: &str,
) -> Result<&'l TenantProject, ErrorResponse> {
    let missing = || {
        ErrorResponse::missing(format!(
            "There is no project {name} in the tenant {}.",
            layout.tenant().name
        ))
    };
    layout.project(name).ok_or_else(missing)
}

/// Returns every stanza of the layout with its source.
pub(crate) fn stanzas(layout: &Layout) -> impl Iterator<Item = (&Source, &Stanza)> {
    layout
        .fragments()
        .iter()
        .flat_map(|fragment| fragment.stanzas().map(|stanza| (&fragment.source, stanza)))
}

/// Returns the variants of each job, by job name.
fn by_name(layout: &Layout) -> BTreeMap<&str, Vec<(&Source, &JobStanza)>> {
    let mut found: BTreeMap<&str, Vec<(&Source, &JobStanza)>> =
        layout.job_names().map(|name| (name, Vec::new())).collect();
    for (source, stanza) in stanzas(layout) {
        if let Stanza::Job(job) = stanza
            && let Some(variants) = found.get_mut(job.name.as_str())
        {
            variants.push((source, job));
        }
    }
    found
}

/// Returns whether a `project` stanza is about a project, and its source may configure that
/// project: a config project, the project itself, or, unless `project` is a config project, one
/// that the tenant lets configure it. Without a name it is about its own project; a name that
/// starts with `^` is a pattern.
fn applies_to(
    layout: &Layout,
    project: &TenantProject,
    source: &Source,
    stanza: &ProjectStanza,
) -> bool {
    let is_about = match &stanza.name {
        None => source.project == project.name,
        Some(name) if name.starts_with('^') => Pattern::new(name).is_ok_and(|pattern| {
            pattern.matches(project.name.as_str()) || pattern.matches(project.name.name())
        }),
        Some(name) => layout.project(name).is_some_and(|found| found.name == project.name),
    };
    let may = || {
        let writer = layout.tenant().project(&source.project);
        let named = |pattern: &Pattern| {
            pattern.matches_whole(project.name.as_str())
                || pattern.matches_whole(project.name.name())
        };
        writer.is_some_and(|writer| writer.configure_projects.iter().any(named))
    };
    let is_own = source.project == project.name;
    is_about && (source.trust.is_trusted() || is_own || !project.trust.is_trusted() && may())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IsTemplate {
    Yes,
    No,
}

/// Returns a project stanza or template in the shape that Zuul's API has: the pipelines in the
/// order of the layout, their jobs grouped by name.
fn config_json(
    layout: &Layout,
    source: &Source,
    stanza: &ProjectStanza,
    is_template: IsTemplate,
) -> Value {
    let order =
        |name: &str| layout.pipelines().iter().position(|pipeline| pipeline.name.as_str() == name);
    let mut pipelines: Vec<_> = stanza.pipelines.iter().collect();
    pipelines.sort_by_key(|(name, _)| order(name).unwrap_or(usize::MAX));
    let pipelines = pipelines.into_iter().map(|(name, of_pipeline)| {
        let mut jobs: Vec<(&str, Vec<Value>)> = Vec::new();
        for job in &of_pipeline.jobs {
            let shown = variant::json(layout, source, job);
            match jobs.iter_mut().find(|(name, _)| *name == job.name) {
                Some((_, variants)) => variants.push(shown),
                None => jobs.push((&job.name, vec![shown])),
            }
        }
        let jobs: Vec<Vec<Value>> = jobs.into_iter().map(|(_, variants)| variants).collect();
        json!({"name": name, "parameters": of_pipeline.parameters, "jobs": jobs})
    });
    json!({
        "source_context": variant::source_context(source),
        "default_branch": stanza.default_branch,
        "merge_mode": stanza.merge_mode,
        "is_template": is_template == IsTemplate::Yes,
        "templates": stanza.templates,
        "queue_name": stanza.queue,
        "pipelines": pipelines.collect::<Vec<_>>(),
    })
}

/// Returns the name of a severity in the API.
fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// Returns the name of a kind of diagnostic that users see.
fn kind_name(kind: DiagnosticKind) -> &'static str {
    match kind {
        DiagnosticKind::Syntax => "Syntax error",
        DiagnosticKind::UnknownName => "Unknown name",
        DiagnosticKind::Duplicate => "Duplicate definition",
        DiagnosticKind::NotPermitted => "Not permitted",
        DiagnosticKind::Conflict => "Conflicting definitions",
        DiagnosticKind::Unsupported => "Unsupported attribute",
    }
}
