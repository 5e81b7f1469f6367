//! `sluice status` and `sluice tenant show`: print answers of the API as text or JSON.

use super::{OutputFormat, counted, print_json};
use crate::operator_access::OperatorAccess;
use crate::output::print_line;
use anyhow::{Context as _, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use url::form_urlencoded::Serializer;

/// Selects the system whose API is queried.
#[derive(Debug, Clone, Default)]
pub struct ApiLocation {
    /// The data directory of a local system; `None` takes the default one.
    pub data: Option<PathBuf>,
    /// The address of the pages; takes precedence over the data directory.
    pub api: Option<String>,
}

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
        let mut query = Serializer::for_suffix("?".to_owned(), 1);
        for (name, value) in [("pipeline", &self.pipeline), ("project", &self.project)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        Some(query.finish()).filter(|query| query.len() > 1).unwrap_or_default()
    }
}

/// A client of the API.
#[derive(Debug, Clone)]
pub struct Client {
    root: String,
    http: reqwest::Client,
}

impl Client {
    /// Returns a client for the system whose pages are at `root`; a final slash does not matter.
    /// Nothing is called. Each request may take 20 seconds, and proxies of the environment are
    /// ignored.
    ///
    /// # Errors
    /// When the HTTP client cannot be created.
    pub fn new(root: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(20))
            .no_proxy()
            .build()
            .context("could not create the HTTP client")?;
        Ok(Self { root: root.trim_end_matches('/').to_owned(), http })
    }

    /// Returns a client for the address in `location`, or else for the local system of its data
    /// directory. An error if the address is no http or https URL, or no system ever ran in the
    /// directory. Nothing is called.
    pub(super) fn of(location: &ApiLocation) -> anyhow::Result<Self> {
        if let Some(api) = &location.api {
            let is_address =
                url::Url::parse(api).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            if !is_address {
                bail!(
                    "could not use {api:?} as the address of the pages: an example is http://127.0.0.1:9000/ (--api, SLUICE_WEB)"
                );
            }
            return Self::new(api);
        }
        let data = super::data_or_default(location.data.clone())?;
        let Some(desk) = OperatorAccess::read(&data)? else {
            bail!(
                "no system has ever run in {}: start one with `sluice up`, name another directory with --data, or an address of the pages with --api URL",
                data.display()
            );
        };
        Self::new(&desk.web_root)
    }

    /// Reads the API path below `/api/` and decodes its JSON. `path` may have a query and must be
    /// percent-encoded.
    ///
    /// # Errors
    /// When the system does not answer, or answers with an error; the error has the answer's
    /// description.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}/api/{path}", self.root);
        let answer = self.http.get(&url).send().await.with_context(|| {
            format!("nothing answers at {}; is the system running? (`sluice up`)", self.root)
        })?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| {
            format!("could not read the answer of {url}: the connection broke off")
        })?;
        if !status.is_success() {
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            match body.get("description").and_then(Value::as_str) {
                // The description of a client error is sufficient; the address adds nothing.
                Some(description) if status.is_client_error() => bail!("{description}"),
                description => bail!("{url} answered {status}: {}", description.unwrap_or(&text)),
            }
        }
        serde_json::from_str(&text).with_context(|| {
            format!("could not read the answer of {url}: it is not the expected JSON")
        })
    }

    /// Reads a page or file at a whole URL as text; `None` if the answer is not a success (any
    /// status but 2xx).
    ///
    /// # Errors
    /// When the system does not answer.
    pub async fn text(&self, url: &str) -> anyhow::Result<Option<String>> {
        let answer =
            self.http.get(url).send().await.with_context(|| format!("nothing answers at {url}"))?;
        if !answer.status().is_success() {
            return Ok(None);
        }
        Ok(Some(answer.text().await.with_context(|| {
            format!("could not read the answer of {url}: the connection broke off")
        })?))
    }

    /// Returns the tenant with this name, or the only one if no name is given. An error that lists
    /// the tenants if it does not exist, there are none, or no name is given and there are several.
    pub(super) async fn tenant(&self, name: Option<&str>) -> anyhow::Result<String> {
        let names = self.tenants().await?;
        match (name, names.as_slice()) {
            (_, []) => bail!(
                "there are no tenants; store a main configuration with `sluice tenant load FILE`"
            ),
            (Some(name), names) if names.iter().any(|existing| existing == name) => {
                Ok(name.to_owned())
            }
            (Some(name), names) => {
                bail!("there is no tenant {name}; tenants: {}", names.join(", "))
            }
            (None, [one]) => Ok(one.clone()),
            (None, many) => bail!("there are several tenants ({}); name one", many.join(", ")),
        }
    }

    /// Returns the names of all tenants that the API lists, in its order.
    async fn tenants(&self) -> anyhow::Result<Vec<String>> {
        let list: Vec<Value> = self.get("tenants").await?;
        Ok(list.iter().map(|tenant| text(tenant, "name").to_owned()).collect())
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
    location: &ApiLocation,
    tenant: Option<&str>,
    filter: &StatusFilter,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let client = Client::of(location)?;
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
    let board = client.get(&format!("tenant/{name}/board{}", filter.query())).await?;
    let ledger = client.get(&format!("tenant/{name}/ledger")).await?;
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
        print_line!("  EVENTS ON HOLD: {held} (`sluice manage-events`)");
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
            for (job, why) in
                list(item, "jobs").iter().filter_map(|job| Some((job, job_detail(job)?)))
            {
                print_line!("    {:<18} {}: {why}", "", text(job, "name"));
            }
            let members: Vec<String> = list(item, "bundle").iter().map(change_name).collect();
            if !members.is_empty() {
                print_line!("    {:<18} bundled with {}", "", members.join(", "));
            }
            if let Some(reason) =
                list(item, "reasons").last().and_then(|last| last["text"].as_str())
            {
                print_line!("    {:<18} {reason}", "");
            }
        }
    }
    if empty {
        print_line!("    nothing");
    }
}

/// Prints the pipelines, projects and configuration errors of a tenant, or of the only one if no
/// name is given. Then prints its warnings. At most 1,000 errors and warnings are read. As JSON,
/// prints one object with the answers of the API.
///
/// # Errors
/// When the API does not answer.
pub async fn tenant(
    location: &ApiLocation,
    name: Option<&str>,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let client = Client::of(location)?;
    let name = client.tenant(name).await?;
    let pipelines: Vec<Value> = client.get(&format!("tenant/{name}/pipelines")).await?;
    let projects: Vec<Value> = client.get(&format!("tenant/{name}/projects")).await?;
    let errors: Vec<Value> = client.get(&format!("tenant/{name}/config-errors?limit=1000")).await?;
    if format == OutputFormat::Json {
        print_json(
            &json!({"tenant": name, "pipelines": pipelines, "projects": projects, "config_errors": errors}),
        );
        return Ok(());
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
    Ok(())
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

/// Returns why a job failed, or the text `waiting for` with what it waits for. `None` for SUCCESS,
/// and if the API gives no reason.
pub fn job_detail(job: &Value) -> Option<String> {
    match job["result"].as_str() {
        Some("SUCCESS") => None,
        Some(_) => job["detail"].as_str().map(str::to_owned),
        None => job["waits_for"].as_str().map(|what| format!("waiting for {what}")),
    }
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
        let location = ApiLocation { data: None, api: Some(api) };
        for format in [OutputFormat::Text, OutputFormat::Json] {
            let error = status(&location, None, &StatusFilter::default(), format)
                .await
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("1 of 2 tenants could not be shown: one;"), "{error}");
            let requested = std::mem::take(&mut *paths.lock().unwrap());
            assert!(requested.contains(&"/api/tenant/two/ledger".to_owned()), "{requested:?}");
        }
        let alone =
            status(&location, Some("two"), &StatusFilter::default(), OutputFormat::Json).await;
        assert!(alone.is_ok(), "{alone:?}");
        served.abort();
    }
}
