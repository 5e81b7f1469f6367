//! `sluice status` and `sluice tenant show`: print answers of the API as text or JSON.

use super::counted;
use crate::api_client::{Client, SystemArguments, api_path};
use crate::api_objects::ListQuery;
use crate::output::{OutputFormat, print_json, print_line};
use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

/// Selects which part of the queues is shown.
#[derive(Debug, Clone, Default, Args)]
pub struct StatusFilter {
    /// Show only this pipeline
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: Option<String>,
    /// Show only changes of this project, by short or canonical name; `*` matches anything
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
}

impl StatusFilter {
    /// Returns the query string with its question mark, percent-encoded; empty if everything is
    /// shown.
    fn query(&self) -> String {
        ListQuery::default()
            .with("pipeline", self.pipeline.as_deref())
            .with("project", self.project.as_deref())
            .text()
    }
}

/// Prints the queues of a tenant, or of all tenants, and the work that no function has handled in
/// time. `filter` limits the shown queues, but not that work. As JSON, prints one list with the
/// answers of the API for each tenant. With several tenants, prints an error in place of each that
/// cannot be shown, and returns an error at the end.
///
/// # Errors
/// When the API does not answer. With several tenants, prints those that it can, then returns an
/// error that names the others.
pub async fn status(
    system: &SystemArguments,
    tenant: Option<&str>,
    filter: &StatusFilter,
) -> anyhow::Result<()> {
    let (client, format) = (system.client()?, system.format());
    let tenants = match tenant {
        Some(_) => vec![client.tenant(tenant).await?],
        None => client.tenants().await?,
    };
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for name in &tenants {
        match (read_tenant(&client, name, filter).await, format) {
            (Err(error), _) if tenants.len() == 1 => return Err(error),
            (Err(error), OutputFormat::Text) => {
                print_line!("tenant {name} CANNOT BE SHOWN: {error:#}");
                missing.push(name.as_str());
            }
            (Err(error), OutputFormat::Json) => {
                rows.push(json!({"tenant": name, "error": format!("{error:#}")}));
                missing.push(name.as_str());
            }
            (Ok((board, ledger)), OutputFormat::Text) => show_tenant(name, &board, &ledger),
            (Ok((board, ledger)), OutputFormat::Json) => {
                rows.push(json!({"tenant": name, "board": board, "ledger": ledger}));
            }
        }
    }
    match format {
        OutputFormat::Json => print_json(&Value::Array(rows)),
        OutputFormat::Text if tenants.is_empty() => {
            print_line!(
                "There are no tenants; store a main configuration with `sluice tenant load FILE`."
            );
        }
        OutputFormat::Text => {}
    }
    if !missing.is_empty() {
        let (some, all) = (missing.len(), tenants.len());
        bail!(
            "{some} of {all} tenants could not be shown: {}; see the reasons above",
            missing.join(", ")
        );
    }
    Ok(())
}

/// Reads from the API a tenant's board, limited by `filter`, and its ledger: the work that has
/// begun and not ended. Returns them in this order, as the API answers them.
async fn read_tenant(
    client: &Client,
    name: &str,
    filter: &StatusFilter,
) -> anyhow::Result<(Value, Value)> {
    let path = |last| api_path(&["tenant", name, last]);
    let board = client.get(&format!("{}{}", path("board")?, filter.query())).await?;
    let ledger = client.get(&path("ledger")?).await?;
    Ok((board, ledger))
}

/// Prints a tenant as text: its layout, what is on hold or halted, its pipelines with their queues,
/// and overdue work. `board` and `ledger` are the API's answers.
fn show_tenant(name: &str, board: &Value, ledger: &Value) {
    let errors = board.get("errors").and_then(Value::as_u64).unwrap_or(0);
    print_line!(
        "tenant {name}, layout {}{}",
        board["layout"]["live"],
        if errors > 0 {
            format!(", {}", counted(errors, "configuration error"))
        } else {
            String::new()
        }
    );
    if let Some(held) = board["held"].as_str() {
        print_line!("  EVENTS ON HOLD: {held} (`sluice tenant set-state`)");
    }
    for provider in list(board, "halted_providers") {
        print_line!("  provider {} is HALTED: {}", text(provider, "name"), text(provider, "why"));
        print_line!(
            "    to resume it after you fixed the cause: sluice provider resume {}",
            text(provider, "name")
        );
    }
    for problem in list(board, "problems") {
        print_line!("  NOT SHOWN: {}", problem.as_str().unwrap_or_default());
    }
    for pipeline in list(board, "pipelines") {
        show_pipeline(name, pipeline);
    }
    show_ledger(ledger);
}

/// Prints the work that no function has handled in time, with its number. Prints nothing if there
/// is none.
fn show_ledger(ledger: &Value) {
    let count = ledger["unaccounted"].as_u64().unwrap_or(0);
    if count == 0 {
        return;
    }
    let minutes = ledger["bound_seconds"].as_u64().unwrap_or(0) / 60;
    print_line!("\n  UNACCOUNTED: {count} in all, not handled for {minutes} minutes or more");
    for thing in list(ledger, "things") {
        print_line!(
            "    {:<11} {}: {}",
            text(thing, "kind"),
            text(thing, "id"),
            text(thing, "why")
        );
    }
}

/// Prints a pipeline as text: whether it is disabled, its halted queues, and each item with its
/// jobs, its bundle and its newest reason. Prints `nothing` if no queue has an item.
fn show_pipeline(tenant: &str, pipeline: &Value) {
    print_line!("\n  {} ({})", text(pipeline, "name"), text(pipeline, "manager"));
    if let Some(failures) = pipeline["disabled"].as_u64() {
        print_line!(
            "    DISABLED after {failures} consecutive failures: only its disabled reporters report"
        );
        print_line!(
            "      to enable it again after you fixed the cause: sluice tenant reload {tenant}"
        );
    }
    let mut empty = true;
    for queue in list(pipeline, "queues") {
        if let Some(halted) = queue["halted"].as_str() {
            print_line!("    queue {} is HALTED: {halted}", text(queue, "name"));
            print_line!(
                "      to resume it after you fixed the cause: sluice queue resume {tenant} {} {} --reason TEXT",
                text(pipeline, "name"),
                text(queue, "name")
            );
        }
        for item in list(queue, "items") {
            empty = false;
            let jobs: Vec<String> = list(item, "jobs")
                .iter()
                .map(|job| format!("{} {}", text(job, "name"), job_state(job)))
                .collect();
            // In these pipelines, each change or branch has its own queue, whose name adds nothing.
            let has_own_queue = ["independent", "supercedent"].contains(&text(pipeline, "manager"));
            let name = if has_own_queue { "" } else { text(queue, "name") };
            print_line!("    {:<18} {name:<14} {}", change_name(&item["change"]), jobs.join(", "));
            for line in job_lines(item) {
                print_line!("    {:<18} {line}", "");
            }
            let members: Vec<String> = list(item, "bundle").iter().map(change_name).collect();
            if !members.is_empty() {
                print_line!("    {:<18} bundled with {}", "", members.join(", "));
            }
            if let Some(reason) = last_reason(item) {
                print_line!("    {:<18} last: {reason}", "");
            }
        }
    }
    if empty {
        print_line!("    nothing");
    }
}

/// Returns a line for each job of an item that has more to say than its state.
fn job_lines(item: &Value) -> Vec<String> {
    let line = |job: &Value| {
        let detail = job_detail(job).filter(|detail| detail != job_state(job))?;
        Some(format!("{}: {detail}", text(job, "name")))
    };
    list(item, "jobs").iter().filter_map(line).collect()
}

/// Returns the newest reason in the history of an item; `None` if it is about a job whose line says
/// it already.
fn last_reason(item: &Value) -> Option<&str> {
    let reason = list(item, "reasons").last()?["text"].as_str()?;
    let lines = job_lines(item);
    let is_said = |line: &String| {
        line.split_once(": ").is_some_and(|(job, _)| {
            reason.strip_prefix(job).is_some_and(|rest| rest.starts_with(": "))
        })
    };
    if lines.iter().any(is_said) { None } else { Some(reason) }
}

/// Prints the pipelines, projects and configuration errors of a tenant, or of each if no name is
/// given. Then prints its warnings. At most 1,000 errors and warnings are read. As JSON, prints one
/// object with the answers of the API, or a list of them for several tenants.
///
/// # Errors
/// When the API does not answer, or there is no tenant.
pub async fn tenant(system: &SystemArguments, name: Option<&str>) -> anyhow::Result<()> {
    let (client, format) = (system.client()?, system.format());
    let names = match name {
        None => client.tenants().await?,
        Some(_) => Vec::new(),
    };
    if names.len() < 2 {
        // The client explains an unknown tenant, and that there is none.
        let name = client.tenant(name).await?;
        if let Some(object) = show_configuration(&client, &name, format).await? {
            print_json(&object);
        }
        return Ok(());
    }
    let mut objects = Vec::new();
    for name in &names {
        objects.extend(show_configuration(&client, name, format).await?);
    }
    if format == OutputFormat::Json {
        print_json(&Value::Array(objects));
    }
    Ok(())
}

/// Prints the configuration of one tenant as text, or returns it as JSON.
async fn show_configuration(
    client: &Client,
    name: &str,
    format: OutputFormat,
) -> anyhow::Result<Option<Value>> {
    let path = |last| api_path(&["tenant", name, last]);
    let pipelines: Vec<Value> = client.get(&path("pipelines")?).await?;
    let projects: Vec<Value> = client.get(&path("projects")?).await?;
    let errors: Vec<Value> = client.get(&format!("{}?limit=1000", path("config-errors")?)).await?;
    if format == OutputFormat::Json {
        return Ok(Some(json!({
            "tenant": name,
            "pipelines": pipelines,
            "projects": projects,
            "config_errors": errors,
        })));
    }
    print_line!("tenant {name}");
    print_line!(
        "  pipelines  {}",
        pipelines.iter().map(|pipeline| text(pipeline, "name")).collect::<Vec<_>>().join(", ")
    );
    let unreadable = |project: &Value| {
        errors.iter().any(|error| {
            text(error, "name") == "Project Not Found"
                && error["source_context"]["project"] == project["name"]
        })
    };
    for project in &projects {
        print_line!(
            "  project    {} ({}, {}){}",
            text(project, "canonical_name"),
            text(project, "connection_name"),
            text(project, "type"),
            if unreadable(project) { ", CANNOT BE READ" } else { "" }
        );
    }
    let (warnings, failures): (Vec<&Value>, Vec<&Value>) =
        errors.iter().partition(|error| text(error, "severity") == "warning");
    for error in &failures {
        print_line!("\n{}", text(error, "error"));
    }
    for warning in &warnings {
        print_line!("\nwarning: {}", text(warning, "error"));
    }
    if failures.is_empty() {
        print_line!("  no configuration errors");
    }
    Ok(None)
}

/// Returns a job's result, or its state in a word or two. `ordered` becomes `waiting for nodes` or
/// `waiting for an executor`; other states are as the API names them.
pub fn job_state(job: &Value) -> &str {
    match (job["result"].as_str(), text(job, "state")) {
        (Some(result), _) => result,
        (None, "ordered") if text(job, "waits_for").starts_with("an executor") => {
            "waiting for an executor"
        }
        (None, "ordered") if !list(job, "labels").is_empty() => "waiting for nodes",
        (None, "ordered") => "waiting for an executor",
        (None, state) => state,
    }
}

/// Returns why a job failed, in one line; for a job that has not ended, why its attempt before does
/// not count and what it waits for. `None` for SUCCESS, and if the API gives no reason.
pub fn job_detail(job: &Value) -> Option<String> {
    let waiting = || job["waits_for"].as_str().map(|what| format!("waiting for {what}"));
    match job["result"].as_str() {
        Some("SUCCESS") => None,
        Some(_) => job["detail"].as_str().map(|detail| detail.replace('\n', " – ")),
        None => match (retrying(job), waiting()) {
            (Some(retrying), Some(waiting)) => Some(format!("{retrying}; {waiting}")),
            (retrying, waiting) => retrying.or(waiting),
        },
    }
}

/// Returns which attempt of a job follows or is under way, and why the one before does not count;
/// `None` for the first.
fn retrying(job: &Value) -> Option<String> {
    let why = job["retry_reason"].as_str()?;
    let (attempt, attempts) = (job["attempt"].as_u64()?, job["attempts"].as_u64()?);
    let next = if text(job, "state") == "waiting" { attempt + 1 } else { attempt };
    Some(format!("retrying ({why}), attempt {next} of {attempts}"))
}

/// Returns a change as `project#number`, or a ref as `project ref`. `change` is the object in an
/// answer of the API.
pub fn change_name(change: &Value) -> String {
    match change["number"].as_u64() {
        Some(number) => format!("{}#{number}", text(change, "project")),
        None => format!("{} {}", text(change, "project"), text(change, "ref")),
    }
}

/// Returns a text field of an object; empty if it is missing or no text.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a list field of an object; empty if it is missing or no list.
pub fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use std::sync::{Arc, Mutex};

    /// Z9.1
    #[test]
    fn status_filters_are_percent_encoded() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(StatusFilter::default().query(), "");
        assert_eq!(
            StatusFilter { pipeline: some("gate"), project: None }.query(),
            "?pipeline=gate"
        );
        let both = StatusFilter { pipeline: some("a b"), project: some("org/one&x") };
        assert_eq!(both.query(), "?pipeline=a+b&project=org%2Fone%26x");
    }

    /// Z1.6, J16: a job that is attempted again says why, and a failed one what failed.
    #[test]
    fn a_job_says_why_it_is_attempted_again_and_what_failed() {
        let mut job = json!({"state": "waiting", "attempt": 1, "attempts": 3});
        assert_eq!(job_detail(&job), None);
        job["retry_reason"] = json!("executor lost: ci-1 is silent");
        let why = "retrying (executor lost: ci-1 is silent), attempt 2 of 3";
        assert_eq!(job_detail(&job).as_deref(), Some(why));
        (job["state"], job["attempt"]) = (json!("ordered"), json!(2));
        job["waits_for"] = json!("an executor");
        let waiting = format!("{why}; waiting for an executor");
        assert_eq!(job_detail(&job), Some(waiting));
        (job["result"], job["detail"]) = (json!("FAILURE"), json!("Task \"x\" failed on a\nIn b."));
        assert_eq!(job_detail(&job).as_deref(), Some("Task \"x\" failed on a – In b."));
    }

    /// Z1.6, Z9.1: a job has one line, and the newest reason of the item is not repeated.
    #[test]
    fn status_says_each_thing_once() {
        let waiting = json!({"name": "docs", "state": "ordered", "waits_for": "an executor"});
        let again = json!({
            "name": "unit", "state": "waiting", "attempt": 1, "attempts": 3,
            "retry_reason": "executor lost: ci-1 has been silent",
        });
        let mut item = json!({
            "jobs": [waiting, again],
            "reasons": [
                {"text": "prepared: its jobs test the tree 95823fc8"},
                {"text": "unit: RETRY (executor lost: ci-1 has been silent), attempt 2 of 3 follows"},
            ],
        });
        let line = "unit: retrying (executor lost: ci-1 has been silent), attempt 2 of 3";
        assert_eq!(job_lines(&item), [line]);
        assert_eq!(last_reason(&item), None);
        item["reasons"].as_array_mut().unwrap().pop();
        assert_eq!(last_reason(&item), Some("prepared: its jobs test the tree 95823fc8"));
    }

    /// Z9.1: a tenant that cannot be shown does not hide the others, but is an error.
    #[tokio::test]
    async fn status_continues_after_a_tenant_that_cannot_be_shown() {
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorder = paths.clone();
        let answer = move |uri: Uri| {
            recorder.lock().unwrap().push(uri.path().to_owned());
            let answer = match uri.path() {
                "/api/tenants" => {
                    (StatusCode::OK, json!([{"name": "one"}, {"name": "two"}]).to_string())
                }
                "/api/tenant/one/board" => {
                    (StatusCode::SERVICE_UNAVAILABLE, json!({"description": "no"}).to_string())
                }
                _ => (StatusCode::OK, "{}".to_owned()),
            };
            async move { answer }
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let api = format!("http://{}/", listener.local_addr().unwrap());
        let served =
            tokio::spawn(
                async move { axum::serve(listener, Router::new().fallback(answer)).await },
            );
        let mut system = SystemArguments { api: Some(api), ..SystemArguments::default() };
        for is_json in [false, true] {
            system.local.json = is_json;
            let error =
                status(&system, None, &StatusFilter::default()).await.unwrap_err().to_string();
            assert!(error.starts_with("1 of 2 tenants could not be shown: one;"), "{error}");
            let requested = std::mem::take(&mut *paths.lock().unwrap());
            assert!(requested.contains(&"/api/tenant/two/ledger".to_owned()), "{requested:?}");
        }
        let alone = status(&system, Some("two"), &StatusFilter::default()).await;
        assert!(alone.is_ok(), "{alone:?}");
        served.abort();
    }
}
