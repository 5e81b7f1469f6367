//! `sluice change explain`: prints what was decided about a change or ref, and why. For one job,
//! prints which definitions apply to it.

use super::pipeline_reasons;
use super::show::{change_name, job_detail, job_state, list, text};
use crate::api_client::{Client, SystemArguments, api_path};
use crate::output::{OutputFormat, print_json, print_line};
use anyhow::bail;
use serde_json::{Value, json};
use sluice_commands::whole_ref;
use sluice_model::Timestamp;

/// The change or ref to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainTarget {
    /// A change, by number. Without a project, every project's change of that number.
    Change {
        /// The project, by full name or its last part.
        project: Option<String>,
        /// The number of the change.
        number: u64,
    },
    /// A branch, tag or other ref of a project.
    Ref {
        /// The project, by full name or its last part.
        project: String,
        /// The full ref.
        git_ref: String,
    },
}

impl ExplainTarget {
    /// Parses `org/project#7` or `7` as a change, and a project with the ref of `--ref` as a ref.
    /// Without `--ref`, also parses `org/project refs/heads/main`, as `sluice status` prints a ref.
    /// A ref without `refs/` is a branch. Whether the project exists is not checked.
    ///
    /// # Errors
    /// When the text is neither a change nor a project with a ref.
    pub fn read(named: &str, git_ref: Option<&str>) -> anyhow::Result<Self> {
        let shown = named.split_once(' ').filter(|(_, git_ref)| git_ref.starts_with("refs/"));
        if let Some((project, git_ref)) = git_ref.map(|git_ref| (named, git_ref)).or(shown) {
            if project.is_empty() || project.contains('#') {
                bail!(
                    "could not use {project:?} as a project: with --ref, give only its name, as in `org/project --ref main`"
                );
            }
            return Ok(Self::Ref { project: project.to_owned(), git_ref: whole_ref(git_ref) });
        }
        let (project, number) = match named.rsplit_once('#') {
            Some((project, number)) => (Some(project.to_owned()), number),
            None => (None, named),
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let Some(number) = number.parse().ok().filter(|_| is_number) else {
            bail!(
                "could not use {named:?} as a change: give `org/project#7`, or just its number; for a branch or tag, `org/project --ref main`"
            );
        };
        Ok(Self::Change { project, number })
    }
}

/// Prints, for each of the ten newest times that the change or ref was enqueued, oldest first: its
/// pipeline, the decisions with their reasons, and its jobs. For a change, also prints what it
/// waits for or why it is not in a pipeline. With `job`, prints only the definitions that apply to
/// that job. If a change was never enqueued, prints only why, also with `job`; for a ref, that is
/// an error. `tenant` may be omitted if there is only one.
///
/// # Errors
/// When the API does not answer, or knows neither the change or ref nor the job.
pub async fn explain(
    system: &SystemArguments,
    target: &ExplainTarget,
    tenant: Option<&str>,
    job: Option<&str>,
) -> anyhow::Result<()> {
    let (client, format) = (system.client()?, system.format());
    let tenant = client.tenant(tenant).await?;
    let (named, what) = match target {
        ExplainTarget::Change { project, number } => {
            (project.as_deref(), ("change", number.to_string()))
        }
        ExplainTarget::Ref { project, git_ref } => {
            (Some(project.as_str()), ("ref", git_ref.clone()))
        }
    };
    let project = match named {
        Some(project) if !project.contains('/') => {
            Some(full_name(&client, &tenant, project).await?)
        }
        other => other.map(str::to_owned),
    };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([what, ("limit", "10".to_owned())])
        .extend_pairs(project.iter().map(|project| ("project", project)))
        .finish();
    let path = api_path(&["tenant", &tenant, "buildsets"])?;
    let sets: Vec<Value> = client.get(&format!("{path}?{query}")).await?;
    if sets.is_empty() {
        let changes = explain_not_enqueued(&client, &tenant, target, project.as_deref()).await?;
        match format {
            OutputFormat::Json => {
                print_json(&json!({"tenant": tenant, "items": [], "changes": changes}));
            }
            OutputFormat::Text => pipeline_reasons::print(&changes),
        }
        return Ok(());
    }
    if let Some(job) = job {
        return explain_job(&client, &tenant, &sets, job, format).await;
    }
    let mut items: Vec<Value> = Vec::new();
    for set in sets.iter().rev() {
        items.push(client.get(&api_path(&["tenant", &tenant, "item", text(set, "uuid")])?).await?);
    }
    let changes = match target {
        ExplainTarget::Change { number, .. } => {
            pipeline_reasons::read(&client, &tenant, *number, project.as_deref()).await?
        }
        ExplainTarget::Ref { .. } => Vec::new(),
    };
    if format == OutputFormat::Json {
        print_json(&json!({"tenant": tenant, "items": items, "changes": changes}));
        return Ok(());
    }
    for item in &items {
        let path = api_path(&["tenant", &tenant, "buildset", text(item, "id")])?;
        // Only the attempts before the last are missing without it.
        let set: Value = client.get(&path).await.unwrap_or_default();
        print_item(item);
        for line in job_lines(item, list(&set, "builds"), |id| client.build_page(&tenant, id)) {
            print_line!("  {line}");
        }
    }
    pipeline_reasons::print(&changes);
    Ok(())
}

/// Prints an item and its decisions with their reasons.
fn print_item(item: &Value) {
    print_line!(
        "{} in {}{}",
        change_name(&item["change"]),
        text(item, "pipeline"),
        position_note(item)
    );
    for reason in list(item, "reasons") {
        let at = Timestamp(reason["at"].as_u64().unwrap_or_default());
        print_line!("  - {}Z  {}", at.to_iso(), text(reason, "text"));
    }
}

/// Returns the lines about the jobs of an item: for each job its earlier attempts, of which
/// `builds` has the builds, and its newest one, each with the page of its build (`page_of`) and
/// what failed.
fn job_lines(item: &Value, builds: &[Value], page_of: impl Fn(&str) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |name: &str, state: &str, build: Option<&str>, why: Option<&str>| {
        let page = build.map(&page_of).unwrap_or_default();
        lines.push(format!("{name:<14} {state:<10} {page}").trim_end().to_owned());
        lines.extend(why.map(|why| format!("{:<14} {why}", "")));
    };
    for job in list(item, "jobs") {
        let (name, newest) = (text(job, "name"), job["build"].as_str());
        let is_earlier = |build: &&Value| {
            text(build, "job_name") == name
                && build["result"] == "RETRY"
                && build["uuid"].as_str() != newest
        };
        for attempt in builds.iter().filter(is_earlier) {
            let why = text(attempt, "error_detail").lines().next();
            add(name, "RETRY", attempt["uuid"].as_str(), why);
        }
        add(name, job_state(job), newest, job_detail(job).as_deref());
    }
    lines
}

/// Returns the state in each pipeline of a change that was never enqueued. Returns an error for a
/// change that the system does not know, and always for a ref: it says how to enqueue the ref, or
/// that the project is unknown. For a ref, `project` must be given.
async fn explain_not_enqueued(
    client: &Client,
    tenant: &str,
    target: &ExplainTarget,
    project: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let name = project.unwrap_or_default();
    match target {
        ExplainTarget::Change { number, .. } => {
            let changes = pipeline_reasons::read(client, tenant, *number, project).await?;
            if pipeline_reasons::is_known(&changes) {
                return Ok(changes);
            }
            // What the forge says about an unseen change helps to find out why.
            pipeline_reasons::print(&changes);
            let change = project.map_or_else(
                || format!("a change {number}"),
                |project| format!("{project}#{number}"),
            );
            bail!(
                "{change} is unknown in tenant {tenant}: check that the forge sends webhooks and that the project is in the tenant (`sluice tenant show {tenant}`)"
            )
        }
        ExplainTarget::Ref { git_ref, .. } => {
            // Reports an unknown project as such.
            let _: Value = client.get(&api_path(&["tenant", tenant, "project", name])?).await?;
            bail!(
                "{git_ref} of {name} was never enqueued in tenant {tenant}: a push is enqueued in pipelines whose trigger matches and that list jobs for the project (`sluice tenant show {tenant}`). To enqueue it by hand: `sluice ref enqueue {git_ref} --project {name} --pipeline PIPELINE`"
            )
        }
    }
}

/// Prints which definitions apply to a job, for each buildset in `sets`, oldest first. Buildsets
/// for which the API gives an error are left out, as a job is usually not in every pipeline. An
/// error only if all of them fail: then that of the first buildset.
async fn explain_job(
    client: &Client,
    tenant: &str,
    sets: &[Value],
    job: &str,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let (mut traces, mut errors) = (Vec::<Value>::new(), Vec::new());
    for set in sets.iter().rev() {
        let path = api_path(&["tenant", tenant, "item", text(set, "uuid"), "explain", job])?;
        match client.get(&path).await {
            Ok(trace) => traces.push(trace),
            Err(error) => errors.push(error),
        }
    }
    match errors.pop() {
        // An error counts only if it occurs in every pipeline: a job is usually not in all of them.
        Some(error) if errors.len() + 1 == sets.len() => return Err(error),
        _ => {}
    }
    if format == OutputFormat::Json {
        print_json(&json!({"tenant": tenant, "job": job, "traces": traces}));
        return Ok(());
    }
    for trace in &traces {
        print_line!("{job} in {}", text(trace, "pipeline"));
        for note in list(trace, "notes") {
            print_line!("  {}", note.as_str().unwrap_or_default());
        }
        print_line!("{}", text(trace, "text").trim_end());
        if !list(trace, "applied").is_empty() {
            print_line!("  definitions applied when it was frozen, in this order:");
        }
        for applied in list(trace, "applied") {
            print_line!("    {}", applied.as_str().unwrap_or_default());
        }
    }
    Ok(())
}

/// Returns the full name of the only project of the tenant whose name is this or ends in `/` and
/// this: `org/one` for `one`. An error that lists the projects if none or several match.
async fn full_name(client: &Client, tenant: &str, last: &str) -> anyhow::Result<String> {
    let projects: Vec<Value> = client.get(&api_path(&["tenant", tenant, "projects"])?).await?;
    let names: Vec<&str> = projects.iter().map(|project| text(project, "name")).collect();
    let found: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| *name == last || name.ends_with(&format!("/{last}")))
        .collect();
    match found.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => bail!("tenant {tenant} has no project {last}; projects: {}", names.join(", ")),
        many => bail!("several projects match {last}: {}; give a full name", many.join(", ")),
    }
}

/// Returns a suffix for an item: `: RESULT` if it has left, else its position from 1 in its queue,
/// `, position 2 of QUEUE`. Empty if the API gives neither.
fn position_note(item: &Value) -> String {
    match (item["end"]["result"].as_str(), item["position"].as_u64()) {
        (Some(result), _) => format!(": {result}"),
        (None, Some(position)) => format!(", position {} of {}", position + 1, text(item, "queue")),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z1.6, J16: each attempt leads to the page of its own build.
    #[test]
    fn each_attempt_of_a_job_has_the_page_of_its_build() {
        let item = json!({"jobs": [
            {"name": "unit", "result": "FAILURE", "state": "ended", "build": "b2", "detail": "it failed"},
            {"name": "docs", "state": "waiting", "build": null},
        ]});
        let builds = [
            json!({"job_name": "unit", "result": "RETRY", "uuid": "b1", "error_detail": "Node lost\nIn b."}),
            json!({"job_name": "unit", "result": "FAILURE", "uuid": "b2", "error_detail": "it failed"}),
        ];
        let lines = job_lines(&item, &builds, |id| format!("https://ci.test/{id}"));
        assert_eq!(
            lines,
            [
                "unit           RETRY      https://ci.test/b1",
                "               Node lost",
                "unit           FAILURE    https://ci.test/b2",
                "               it failed",
                "docs           waiting",
            ]
        );
    }

    /// Z1.6: a change or ref can be named as `sluice status` prints it.
    #[test]
    fn a_change_is_named_by_its_number_and_a_ref_by_its_project() {
        let change = |project: Option<&str>| ExplainTarget::Change {
            project: project.map(str::to_owned),
            number: 7,
        };
        assert_eq!(ExplainTarget::read("org/one#7", None).unwrap(), change(Some("org/one")));
        assert_eq!(ExplainTarget::read("7", None).unwrap(), change(None));
        let git_ref = |git_ref: &str| ExplainTarget::Ref {
            project: "org/one".to_owned(),
            git_ref: git_ref.to_owned(),
        };
        assert_eq!(
            ExplainTarget::read("org/one", Some("main")).unwrap(),
            git_ref("refs/heads/main")
        );
        assert_eq!(
            ExplainTarget::read("org/one", Some("refs/tags/1.0")).unwrap(),
            git_ref("refs/tags/1.0")
        );
        let shown = change_name(
            &serde_json::json!({"project": "org/one", "number": null, "ref": "refs/heads/main"}),
        );
        assert_eq!(ExplainTarget::read(&shown, None).unwrap(), git_ref("refs/heads/main"));
        for (named, with_ref) in [
            ("org/one", None),
            ("org/one#", None),
            ("org/one#x", None),
            ("org/one#7", Some("main")),
        ] {
            let errors = ExplainTarget::read(named, with_ref).unwrap_err().to_string();
            assert!(errors.contains("org/project --ref main"), "{errors}");
        }
    }
}
