//! `sluice status` and `sluice tenant show`: what the API tells, as text.

use super::{Format, say_json};
use crate::local::Desk;
use crate::say::say;
use anyhow::{Context as _, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use url::form_urlencoded::Serializer;

/// Which system is asked.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The local system's directory; `None` is the usual place.
    pub data: Option<PathBuf>,
    /// The address of its pages, before the local system's.
    pub api: Option<String>,
}

/// Which part of the queues is shown.
#[derive(Debug, Clone, Default, Args)]
pub struct Narrowed {
    /// Only this pipeline.
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: Option<String>,
    /// Only changes of this project, by its whole name or the forge's; `*` stands for anything.
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
}

impl Narrowed {
    /// Returns the question mark and what is behind it in an address; nothing where everything is
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

/// Asks the API.
#[derive(Debug, Clone)]
pub struct Client {
    root: String,
    http: reqwest::Client,
}

impl Client {
    /// Returns a client of the system with these pages.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(root: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(20))
            .no_proxy()
            .build()
            .context("no HTTP client could be made")?;
        Ok(Self { root: root.trim_end_matches('/').to_owned(), http })
    }

    pub(super) fn of(asked: &Asked) -> anyhow::Result<Self> {
        if let Some(api) = &asked.api {
            let is_address =
                url::Url::parse(api).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            if !is_address {
                bail!(
                    "{api:?} is not the address of a system's pages: one looks like http://127.0.0.1:9000/ (--api, SLUICE_WEB)"
                );
            }
            return Self::new(api);
        }
        let data = super::data_or_default(asked.data.clone())?;
        let Some(desk) = Desk::read(&data)? else {
            bail!(
                "no system ever ran on {}: start one with `sluice up`, name another directory with --data, or a system's pages with --api URL",
                data.display()
            );
        };
        Self::new(&desk.web_root)
    }

    /// Reads what is below `/api/`.
    ///
    /// # Errors
    /// When nothing answers, or the answer is an error; its description is part of the text.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}/api/{path}", self.root);
        let answer = self.http.get(&url).send().await.with_context(|| {
            format!("nothing answers at {}; does the system run? (`sluice up`)", self.root)
        })?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("the answer of {url} broke off"))?;
        if !status.is_success() {
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            match told.get("description").and_then(Value::as_str) {
                // What was asked for is at fault, and the answer says how; its address would say
                // nothing more.
                Some(said) if status.is_client_error() => bail!("{said}"),
                said => bail!("{url} answered {status}: {}", said.unwrap_or(&text)),
            }
        }
        serde_json::from_str(&text).with_context(|| format!("the answer of {url} cannot be read"))
    }

    /// Reads a page or a file of the system as text; `None` when it is not there.
    ///
    /// # Errors
    /// When nothing answers.
    pub async fn text(&self, url: &str) -> anyhow::Result<Option<String>> {
        let answer =
            self.http.get(url).send().await.with_context(|| format!("nothing answers at {url}"))?;
        if !answer.status().is_success() {
            return Ok(None);
        }
        Ok(Some(answer.text().await.with_context(|| format!("the answer of {url} broke off"))?))
    }

    pub(super) async fn tenant(&self, wanted: Option<&str>) -> anyhow::Result<String> {
        let names = self.tenants().await?;
        match (wanted, names.as_slice()) {
            (_, []) => bail!(
                "there are no tenants; store a main configuration with `sluice tenant load FILE`"
            ),
            (Some(name), names) if names.iter().any(|known| known == name) => Ok(name.to_owned()),
            (Some(name), names) => {
                bail!("there is no tenant {name}; there are: {}", names.join(", "))
            }
            (None, [one]) => Ok(one.clone()),
            (None, many) => bail!("there are several tenants ({}); name one", many.join(", ")),
        }
    }

    async fn tenants(&self) -> anyhow::Result<Vec<String>> {
        let list: Vec<Value> = self.get("tenants").await?;
        Ok(list.iter().map(|tenant| text(tenant, "name").to_owned()).collect())
    }
}

/// Shows the queues.
///
/// # Errors
/// When the API does not answer. Of several tenants all are shown that can be, then the others are
/// named.
pub async fn status(
    asked: &Asked,
    tenant: Option<&str>,
    narrowed: &Narrowed,
    format: Format,
) -> anyhow::Result<()> {
    let client = Client::of(asked)?;
    let tenants = match tenant {
        Some(_) => vec![client.tenant(tenant).await?],
        None => client.tenants().await?,
    };
    let (mut told, mut missing) = (Vec::new(), Vec::new());
    for name in &tenants {
        match (of_tenant(&client, name, narrowed).await, format) {
            (Err(error), _) if tenants.len() == 1 => return Err(error),
            (Err(error), Format::Text) => {
                say!("tenant {name} CANNOT BE SHOWN: {error:#}");
                missing.push(name.as_str());
            }
            (Err(error), Format::Json) => {
                told.push(json!({"tenant": name, "error": format!("{error:#}")}));
                missing.push(name.as_str());
            }
            (Ok((board, ledger)), Format::Text) => show_tenant(name, &board, &ledger),
            (Ok((board, ledger)), Format::Json) => {
                told.push(json!({"tenant": name, "board": board, "ledger": ledger}));
            }
        }
    }
    match format {
        Format::Json => say_json(&Value::Array(told)),
        Format::Text if tenants.is_empty() => {
            say!(
                "There are no tenants; store a main configuration with `sluice tenant load FILE`."
            );
        }
        Format::Text => {}
    }
    if !missing.is_empty() {
        let (some, all) = (missing.len(), tenants.len());
        bail!(
            "{some} of {all} tenants could not be shown: {}; why stands above in their place",
            missing.join(", ")
        );
    }
    Ok(())
}

/// Reads what is shown of a tenant: its board, and what nobody sees to.
async fn of_tenant(
    client: &Client,
    name: &str,
    narrowed: &Narrowed,
) -> anyhow::Result<(Value, Value)> {
    let board = client.get(&format!("tenant/{name}/board{}", narrowed.query())).await?;
    let ledger = client.get(&format!("tenant/{name}/ledger")).await?;
    Ok((board, ledger))
}

fn show_tenant(name: &str, board: &Value, ledger: &Value) {
    let errors = board.get("errors").and_then(Value::as_u64).unwrap_or(0);
    say!(
        "tenant {name}, layout {}{}",
        board["layout"]["live"],
        if errors > 0 { format!(", {errors} configuration error(s)") } else { String::new() }
    );
    if let Some(held) = board["held"].as_str() {
        say!("  HELD BACK: {held} (`sluice manage-events`)");
    }
    for provider in list(board, "frozen_providers") {
        say!("  provider {} is FROZEN: {}", text(provider, "name"), text(provider, "why"));
        say!("    once that is looked into: sluice provider thaw {}", text(provider, "name"));
    }
    for trouble in list(board, "troubles") {
        say!("  NOT SHOWN: {}", trouble.as_str().unwrap_or_default());
    }
    for pipeline in list(board, "pipelines") {
        show_pipeline(name, pipeline);
    }
    show_ledger(ledger);
}

/// Says what nobody sees to any more; usually there is nothing, and nothing is said.
fn show_ledger(ledger: &Value) {
    let count = ledger["unaccounted"].as_u64().unwrap_or(0);
    if count == 0 {
        return;
    }
    let minutes = ledger["bound_seconds"].as_u64().unwrap_or(0) / 60;
    say!(
        "\n  UNACCOUNTED for, {count} in all: nobody has seen to these for {minutes} minutes or more"
    );
    for thing in list(ledger, "things") {
        say!("    {:<11} {}: {}", text(thing, "kind"), text(thing, "id"), text(thing, "why"));
    }
}

fn show_pipeline(tenant: &str, pipeline: &Value) {
    say!("\n  {} ({})", text(pipeline, "name"), text(pipeline, "manager"));
    if let Some(failures) = pipeline["disabled"].as_u64() {
        say!(
            "    is DISABLED: {failures} failures followed each other, and reports go to its disabled reporters alone"
        );
        say!("      once that is looked into: sluice tenant reload {tenant}");
    }
    let mut empty = true;
    for queue in list(pipeline, "queues") {
        if let Some(frozen) = queue["frozen"].as_str() {
            say!("    queue {} is FROZEN: {frozen}", text(queue, "name"));
            say!(
                "      once that is looked into: sluice queue thaw {tenant} {} {} --reason TEXT",
                text(pipeline, "name"),
                text(queue, "name")
            );
        }
        for item in list(queue, "items") {
            empty = false;
            let jobs: Vec<String> = list(item, "jobs")
                .iter()
                .map(|job| format!("{} {}", text(job, "name"), job_word(job)))
                .collect();
            // Where each change, or each branch, is a queue of its own, its name says nothing more.
            let is_own = ["independent", "supercedent"].contains(&text(pipeline, "manager"));
            let name = if is_own { "" } else { text(queue, "name") };
            say!("    {:<18} {name:<14} {}", change_name(&item["change"]), jobs.join(", "));
            for (job, why) in list(item, "jobs").iter().filter_map(|job| Some((job, told(job)?))) {
                say!("    {:<18} {}: {why}", "", text(job, "name"));
            }
            let mates: Vec<String> = list(item, "together").iter().map(change_name).collect();
            if !mates.is_empty() {
                say!("    {:<18} tested as one with {}", "", mates.join(", "));
            }
            if let Some(reason) = list(item, "reasons").last().and_then(Value::as_str) {
                say!("    {:<18} {reason}", "");
            }
        }
    }
    if empty {
        say!("    nothing");
    }
}

/// Shows what a tenant consists of.
///
/// # Errors
/// When the API does not answer.
pub async fn tenant(asked: &Asked, name: Option<&str>, format: Format) -> anyhow::Result<()> {
    let client = Client::of(asked)?;
    let name = client.tenant(name).await?;
    let pipelines: Vec<Value> = client.get(&format!("tenant/{name}/pipelines")).await?;
    let projects: Vec<Value> = client.get(&format!("tenant/{name}/projects")).await?;
    let errors: Vec<Value> = client.get(&format!("tenant/{name}/config-errors?limit=1000")).await?;
    if format == Format::Json {
        say_json(
            &json!({"tenant": name, "pipelines": pipelines, "projects": projects, "config_errors": errors}),
        );
        return Ok(());
    }
    say!("tenant {name}");
    say!(
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
        say!(
            "  project    {} ({}, {}){}",
            text(project, "canonical_name"),
            text(project, "connection_name"),
            text(project, "type"),
            if unreadable(project) { ", CANNOT BE READ" } else { "" }
        );
    }
    let (warnings, mistakes): (Vec<&Value>, Vec<&Value>) =
        errors.iter().partition(|error| text(error, "severity") == "warning");
    for error in &mistakes {
        say!("\n{}", text(error, "error"));
    }
    for warning in &warnings {
        say!("\nwarning: {}", text(warning, "error"));
    }
    if mistakes.is_empty() {
        say!("  no configuration errors");
    }
    Ok(())
}

/// Returns a job's state in a word or two.
pub fn job_word(job: &Value) -> &str {
    match (job["result"].as_str(), text(job, "state")) {
        (Some(result), _) => result,
        (None, "ordered") if text(job, "waits_for").starts_with("an executor") => {
            "waits for an executor"
        }
        (None, "ordered") if !list(job, "labels").is_empty() => "waits for nodes",
        (None, "ordered") => "waits for an executor",
        (None, state) => state,
    }
}

/// Returns why a job did not pass, or what it waits for, where its word does not say all.
pub fn told(job: &Value) -> Option<String> {
    match job["result"].as_str() {
        Some("SUCCESS") => None,
        Some(_) => job["detail"].as_str().map(str::to_owned),
        None => job["waits_for"].as_str().map(|what| format!("waits for {what}")),
    }
}

/// Returns a change as people write it; a ref with its whole name.
pub fn change_name(change: &Value) -> String {
    match change["number"].as_u64() {
        Some(number) => format!("{}#{number}", text(change, "project")),
        None => format!("{} {}", text(change, "project"), text(change, "ref")),
    }
}

/// Returns a field's text; empty when there is none.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a field's list; empty when there is none.
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
    fn what_narrows_a_status_is_written_as_addresses_are() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(Narrowed::default().query(), "");
        assert_eq!(Narrowed { pipeline: some("gate"), project: None }.query(), "?pipeline=gate");
        let both = Narrowed { pipeline: some("a b"), project: some("org/one&x") };
        assert_eq!(both.query(), "?pipeline=a+b&project=org%2Fone%26x");
    }

    /// Z9.1: a tenant that cannot be shown hides no other, and is no success.
    #[tokio::test]
    async fn a_status_of_several_tenants_goes_on_after_one_that_cannot_be_shown() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let hearing = heard.clone();
        let answer = move |uri: Uri| {
            hearing.lock().unwrap().push(uri.path().to_owned());
            let told = match uri.path() {
                "/api/tenants" => {
                    (StatusCode::OK, json!([{"name": "one"}, {"name": "two"}]).to_string())
                }
                "/api/tenant/one/board" => {
                    (StatusCode::SERVICE_UNAVAILABLE, json!({"description": "no"}).to_string())
                }
                _ => (StatusCode::OK, "{}".to_owned()),
            };
            async move { told }
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let api = format!("http://{}/", listener.local_addr().unwrap());
        let served =
            tokio::spawn(
                async move { axum::serve(listener, Router::new().fallback(answer)).await },
            );
        let asked = Asked { data: None, api: Some(api) };
        for format in [Format::Text, Format::Json] {
            let error =
                status(&asked, None, &Narrowed::default(), format).await.unwrap_err().to_string();
            assert!(error.starts_with("1 of 2 tenants could not be shown: one;"), "{error}");
            let asked_for = std::mem::take(&mut *heard.lock().unwrap());
            assert!(asked_for.contains(&"/api/tenant/two/ledger".to_owned()), "{asked_for:?}");
        }
        let alone = status(&asked, Some("two"), &Narrowed::default(), Format::Json).await;
        assert!(alone.is_ok(), "{alone:?}");
        served.abort();
    }
}
