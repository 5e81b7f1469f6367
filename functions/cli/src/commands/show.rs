//! `sluice status` and `sluice tenant show`: what the API tells, as text.

use super::{Format, say_json};
use crate::local::Desk;
use crate::say::say;
use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Which system is asked.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The local system's directory; `None` is the usual place.
    pub data: Option<PathBuf>,
    /// The address of its pages, before the local system's.
    pub api: Option<String>,
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
            let is_address = url::Url::parse(api).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
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
        let answer = self
            .http
            .get(&url)
            .send()
            .await
            .with_context(|| format!("nothing answers at {}; does the system run? (`sluice up`)", self.root))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("the answer of {url} broke off"))?;
        if !status.is_success() {
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            match told.get("description").and_then(Value::as_str) {
                // What was asked for is at fault, and the answer says how; its address would say nothing more.
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
        let answer = self.http.get(url).send().await.with_context(|| format!("nothing answers at {url}"))?;
        if !answer.status().is_success() {
            return Ok(None);
        }
        Ok(Some(answer.text().await.with_context(|| format!("the answer of {url} broke off"))?))
    }

    pub(super) async fn tenant(&self, wanted: Option<&str>) -> anyhow::Result<String> {
        let names = self.tenants().await?;
        match (wanted, names.as_slice()) {
            (_, []) => bail!("there are no tenants; store a main configuration with `sluice tenant load FILE`"),
            (Some(name), names) if names.iter().any(|known| known == name) => Ok(name.to_owned()),
            (Some(name), names) => bail!("there is no tenant {name}; there are: {}", names.join(", ")),
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
/// When the API does not answer.
pub async fn status(asked: &Asked, tenant: Option<&str>, format: Format) -> anyhow::Result<()> {
    let client = Client::of(asked)?;
    let tenants = match tenant {
        Some(_) => vec![client.tenant(tenant).await?],
        None => client.tenants().await?,
    };
    if format == Format::Json {
        let mut told = Vec::new();
        for name in &tenants {
            let board: Value = client.get(&format!("tenant/{name}/board")).await?;
            let ledger: Value = client.get(&format!("tenant/{name}/ledger")).await?;
            told.push(json!({"tenant": name, "board": board, "ledger": ledger}));
        }
        say_json(&Value::Array(told));
        return Ok(());
    }
    for name in &tenants {
        let board: Value = client.get(&format!("tenant/{name}/board")).await?;
        let errors = board.get("errors").and_then(Value::as_u64).unwrap_or(0);
        say!(
            "tenant {name}, layout {}{}",
            board["layout"]["live"],
            if errors > 0 { format!(", {errors} configuration error(s)") } else { String::new() }
        );
        if let Some(held) = board["held"].as_str() {
            say!("  HELD BACK: {held} (`sluice manage-events`)");
        }
        for provider in list(&board, "frozen_providers") {
            say!("  provider {} is FROZEN: {}", text(provider, "name"), text(provider, "why"));
            say!("    once that is looked into: sluice provider thaw {}", text(provider, "name"));
        }
        for trouble in list(&board, "troubles") {
            say!("  NOT SHOWN: {}", trouble.as_str().unwrap_or_default());
        }
        for pipeline in list(&board, "pipelines") {
            show_pipeline(name, pipeline);
        }
        show_ledger(&client.get(&format!("tenant/{name}/ledger")).await?);
    }
    if tenants.is_empty() {
        say!("There are no tenants; store a main configuration with `sluice tenant load FILE`.");
    }
    Ok(())
}

/// Says what nobody sees to any more; usually there is nothing, and nothing is said.
fn show_ledger(ledger: &Value) {
    let count = ledger["unaccounted"].as_u64().unwrap_or(0);
    if count == 0 {
        return;
    }
    let minutes = ledger["bound_seconds"].as_u64().unwrap_or(0) / 60;
    say!("\n  UNACCOUNTED for, {count} in all: nobody has seen to these for {minutes} minutes or more");
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
            let jobs: Vec<String> =
                list(item, "jobs").iter().map(|job| format!("{} {}", text(job, "name"), job_word(job))).collect();
            // Where each change, or each branch, is a queue of its own, its name says nothing more.
            let is_own = ["independent", "supercedent"].contains(&text(pipeline, "manager"));
            let name = if is_own { "" } else { text(queue, "name") };
            say!("    {:<18} {name:<14} {}", change_name(&item["change"]), jobs.join(", "));
            for (job, why) in list(item, "jobs").iter().filter_map(|job| Some((job, told(job)?))) {
                say!("    {:<18} {}: {why}", "", text(job, "name"));
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
        say_json(&json!({"tenant": name, "pipelines": pipelines, "projects": projects, "config_errors": errors}));
        return Ok(());
    }
    say!("tenant {name}");
    say!("  pipelines  {}", pipelines.iter().map(|pipeline| text(pipeline, "name")).collect::<Vec<_>>().join(", "));
    let unreadable = |project: &Value| {
        errors.iter().any(|error| {
            text(error, "name") == "Project Not Found" && error["source_context"]["project"] == project["name"]
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
        (None, "ordered") if text(job, "waits_for").starts_with("an executor") => "waits for an executor",
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
