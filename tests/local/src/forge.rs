//! The forge beside the system, over its HTTP API: what its people do and see.

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use sluice_cli::commands::show::{list, text};
use sluice_cli::local::ledger::Sent;
use sluice_cli::local::{OWNER, REVIEWER, header_file};
use std::path::Path;
use std::time::Duration;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its repository.
    pub repository: String,
    /// Its number.
    pub number: u64,
}

impl std::fmt::Display for Change {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}#{}", self.repository, self.number)
    }
}

/// A webhook that the forge sent, with the status that answered it; 0 is no answer.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What was sent.
    pub sent: Sent,
    /// The forge's name of the event.
    pub event: String,
    /// What it was answered.
    pub status: u64,
    /// Whether the forge gave up before it was answered: its connection broke, or ten seconds went
    /// by.
    pub failed: bool,
    /// The path of the API that sends it once more.
    again: String,
}

/// People's access to the forge.
#[derive(Debug, Clone)]
pub struct Forge {
    http: reqwest::Client,
    api: String,
    owner: String,
    reviewer: String,
}

impl Forge {
    /// Returns the forge of the system on `data` that listens at `port`.
    ///
    /// # Errors
    /// When the tokens of its people cannot be read.
    pub fn of(data: &Path, port: u16) -> anyhow::Result<Self> {
        let bearer = |login: &str| -> anyhow::Result<String> {
            let path = header_file(data, login);
            let headers = std::fs::read_to_string(&path)
                .with_context(|| format!("could not read {}", path.display()))?;
            let line = headers.lines().find_map(|line| line.strip_prefix("Authorization: "));
            Ok(line.context("the header file has no token")?.to_owned())
        };
        let http =
            reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build()?;
        let api = format!("http://127.0.0.1:{port}/api/v3");
        Ok(Self { http, api, owner: bearer(OWNER)?, reviewer: bearer(REVIEWER)? })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        bearer: &str,
        body: Option<Value>,
    ) -> anyhow::Result<Value> {
        let mut request = self
            .http
            .request(method.clone(), format!("{}{path}", self.api))
            .header("authorization", bearer);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("the forge does not answer {method} {path}"))?;
        let (status, said) = (answer.status(), answer.text().await?);
        if !status.is_success() {
            bail!("the forge answered {method} {path} with {status}: {said}");
        }
        Ok(serde_json::from_str(&said).unwrap_or_default())
    }

    /// Reads below `/repos/`.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, &format!("/repos/{path}"), &self.owner, None).await
    }

    /// Writes a file on a branch, whatever it held.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn write(
        &self,
        repository: &str,
        branch: &str,
        path: &str,
        content: &str,
    ) -> anyhow::Result<()> {
        let held = self.ask_blob(repository, branch, path).await?;
        let mut new = json!({"message": format!("Write {path}"), "branch": branch, "content": STANDARD.encode(content)});
        if let Some(sha) = held {
            new["sha"] = sha.into();
        }
        self.ask(
            Method::PUT,
            &format!("/repos/{repository}/contents/{path}"),
            &self.owner,
            Some(new),
        )
        .await
        .map(drop)
    }

    /// Returns the id of what a file holds; `None` when there is no such file.
    async fn ask_blob(
        &self,
        repository: &str,
        branch: &str,
        path: &str,
    ) -> anyhow::Result<Option<String>> {
        let url = format!("{}/repos/{repository}/contents/{path}?ref={branch}", self.api);
        let answer = self.http.get(url).header("authorization", &self.owner).send().await?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let file: Value = serde_json::from_str(&answer.error_for_status()?.text().await?)?;
        Ok(Some(text(&file, "sha").to_owned()))
    }

    /// Proposes files of a repository as a change to `main`.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn propose(
        &self,
        repository: &str,
        title: &str,
        files: &[(&str, &str)],
    ) -> anyhow::Result<Change> {
        self.propose_after(repository, title, files, None).await
    }

    /// As [`Forge::propose`]; the change depends on another one, by what its description says.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn propose_after(
        &self,
        repository: &str,
        title: &str,
        files: &[(&str, &str)],
        needs: Option<&Change>,
    ) -> anyhow::Result<Change> {
        let body = match needs {
            Some(Change { repository, number }) => {
                let pull = self.get(&format!("{repository}/pulls/{number}")).await?;
                format!("Depends-On: {}", text(&pull, "html_url"))
            }
            None => String::new(),
        };
        let branch = format!("change-{}", title.to_lowercase().replace(' ', "-"));
        let main = self.get(&format!("{repository}/branches/main")).await?;
        let new = json!({"ref": format!("refs/heads/{branch}"), "sha": main["commit"]["sha"]});
        self.ask(Method::POST, &format!("/repos/{repository}/git/refs"), &self.owner, Some(new))
            .await?;
        for (path, content) in files {
            self.write(repository, &branch, path, content).await?;
        }
        let new = json!({"title": title, "head": branch, "base": "main", "body": body});
        let pull = self
            .ask(Method::POST, &format!("/repos/{repository}/pulls"), &self.owner, Some(new))
            .await?;
        let number = pull["number"].as_u64().context("the forge gave a change no number")?;
        Ok(Change { repository: repository.to_owned(), number })
    }

    /// Approves a change; one that is approved is left as it is, so that whoever had no answer may
    /// ask again.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn approve(&self, change: &Change) -> anyhow::Result<()> {
        let path = format!("/repos/{}/pulls/{}/reviews", change.repository, change.number);
        let reviews = self.ask(Method::GET, &path, &self.reviewer, None).await?;
        if reviews
            .as_array()
            .is_some_and(|reviews| reviews.iter().any(|review| text(review, "state") == "APPROVED"))
        {
            return Ok(());
        }
        self.ask(Method::POST, &path, &self.reviewer, Some(json!({"event": "APPROVE"})))
            .await
            .map(drop)
    }

    /// Takes every approval of a change back.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn dismiss(&self, change: &Change) -> anyhow::Result<()> {
        let path = format!("/repos/{}/pulls/{}/reviews", change.repository, change.number);
        let reviews = self.ask(Method::GET, &path, &self.reviewer, None).await?;
        for review in reviews
            .as_array()
            .into_iter()
            .flatten()
            .filter(|review| text(review, "state") == "APPROVED")
        {
            let path = format!("{path}/{}/dismissals", review["id"]);
            self.ask(Method::PUT, &path, &self.owner, Some(json!({"message": "not yet"}))).await?;
        }
        Ok(())
    }

    /// Closes a change that is not to be merged.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn close(&self, change: &Change) -> anyhow::Result<()> {
        self.edit(change, json!({"state": "closed"})).await
    }

    /// Says in a change's description that it depends on another one.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn depend(&self, change: &Change, on: &Change) -> anyhow::Result<()> {
        let pull = self.get(&format!("{}/pulls/{}", on.repository, on.number)).await?;
        self.edit(change, json!({"body": format!("Depends-On: {}", text(&pull, "html_url"))})).await
    }

    async fn edit(&self, change: &Change, new: Value) -> anyhow::Result<()> {
        let path = format!("/repos/{}/pulls/{}", change.repository, change.number);
        self.ask(Method::PATCH, &path, &self.owner, Some(new)).await.map(drop)
    }

    /// Pushes one more commit to a change, which writes this file.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn push(&self, change: &Change, path: &str, content: &str) -> anyhow::Result<()> {
        let pull = self.get(&format!("{}/pulls/{}", change.repository, change.number)).await?;
        self.write(&change.repository, text(&pull["head"], "ref"), path, content).await
    }

    /// Switches a fault of a repository on, so many times.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn fault(&self, repository: &str, fault: Value, times: u32) -> anyhow::Result<()> {
        let wanted = json!({"fault": fault, "times": times});
        self.ask(Method::POST, &format!("/faults/{repository}"), &self.owner, Some(wanted))
            .await
            .map(drop)
    }

    /// Comments on a change.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn comment(&self, change: &Change, body: &str) -> anyhow::Result<()> {
        let path = format!("/repos/{}/issues/{}/comments", change.repository, change.number);
        self.ask(Method::POST, &path, &self.owner, Some(json!({"body": body}))).await.map(drop)
    }

    /// Returns the comments on a change, the oldest first.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn comments(&self, change: &Change) -> anyhow::Result<Vec<String>> {
        let path = format!("{}/issues/{}/comments?per_page=100", change.repository, change.number);
        let comments = self.get(&path).await?;
        Ok(comments
            .as_array()
            .into_iter()
            .flatten()
            .map(|comment| text(comment, "body").to_owned())
            .collect())
    }

    /// Returns the commit that a change landed as; `None` while it has not.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn landed_as(&self, change: &Change) -> anyhow::Result<Option<String>> {
        let pull = self.get(&format!("{}/pulls/{}", change.repository, change.number)).await?;
        let commit = pull["merge_commit_sha"].as_str().map(str::to_owned);
        Ok(commit.filter(|_| pull["merged"].as_bool() == Some(true)))
    }

    /// Returns the newest state of a status of a change's head; empty when there is none.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn status(&self, change: &Change, context: &str) -> anyhow::Result<String> {
        let pull = self.get(&format!("{}/pulls/{}", change.repository, change.number)).await?;
        let head = text(&pull["head"], "sha").to_owned();
        let statuses = self.get(&format!("{}/commits/{head}/status", change.repository)).await?;
        let found =
            list(&statuses, "statuses").iter().find(|status| text(status, "context") == context);
        Ok(found.map(|status| text(status, "state").to_owned()).unwrap_or_default())
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn tree(&self, repository: &str, commit: &str) -> anyhow::Result<String> {
        let commit = self.get(&format!("{repository}/commits/{commit}")).await?;
        Ok(text(&commit["commit"]["tree"], "sha").to_owned())
    }

    /// Returns the webhooks of a repository, the newest first.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn deliveries(&self, repository: &str) -> anyhow::Result<Vec<Delivery>> {
        let hooks = self.get(&format!("{repository}/hooks")).await?;
        let hook = hooks[0]["id"].as_u64().context("the repository has no hook")?;
        let all = self.get(&format!("{repository}/hooks/{hook}/deliveries?per_page=100")).await?;
        let of = |one: &Value| {
            let what = format!(
                "{repository}: {} {} ({})",
                text(one, "event"),
                text(one, "action"),
                text(one, "guid")
            );
            Delivery {
                sent: Sent { what, guid: text(one, "guid").to_owned() },
                event: text(one, "event").to_owned(),
                status: one["status_code"].as_u64().unwrap_or(0),
                failed: one["status_code"] == 0 && text(one, "status") != "PENDING",
                again: format!(
                    "/repos/{repository}/hooks/{hook}/deliveries/{}/attempts",
                    one["id"]
                ),
            }
        };
        Ok(all.as_array().into_iter().flatten().map(of).collect())
    }

    /// Sends a webhook once more, with its id and its body.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn redeliver(&self, delivery: &Delivery) -> anyhow::Result<()> {
        self.ask(Method::POST, &delivery.again, &self.owner, None).await.map(drop)
    }
}
