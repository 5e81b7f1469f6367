//! A client of the local forge's HTTP API: it does what developers and reviewers do there.

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use sluice_local::audit::SentWebhook;
use sluice_local::{OWNER, REVIEWER, header_file};
use sluice_operator::show::{list, text};
use std::path::Path;
use std::time::Duration;

/// A pull request on the local forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// The full name of its repository.
    pub repository: String,
    /// Its number in the repository.
    pub number: u64,
}

impl std::fmt::Display for PullRequest {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}#{}", self.repository, self.number)
    }
}

/// A webhook that the forge sent, with the outcome of the delivery.
#[derive(Debug, Clone)]
pub struct SentDelivery {
    /// The webhook as the audit identifies it.
    pub sent: SentWebhook,
    /// The forge's name for the event.
    pub event: String,
    /// The HTTP status of the answer; 0 when there was none.
    pub status: u64,
    /// Whether the delivery failed: the connection broke, or there was no answer within ten
    /// seconds.
    pub failed: bool,
    /// The API path that redelivers it.
    redelivery_path: String,
}

/// A client of the local forge with the tokens of its owner and its reviewer.
#[derive(Debug, Clone)]
pub struct ForgeUser {
    http: reqwest::Client,
    api: String,
    owner: String,
    reviewer: String,
}

impl ForgeUser {
    /// Returns a client of the forge at `port` of the system whose state lies in `data`.
    ///
    /// # Errors
    /// When the tokens of the owner and the reviewer cannot be read.
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

    async fn request(
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
        let (status, text) = (answer.status(), answer.text().await?);
        if !status.is_success() {
            bail!("the forge answered {method} {path} with {status}: {text}");
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a GET request for a path below `/repos/` and returns the JSON answer.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.request(Method::GET, &format!("/repos/{path}"), &self.owner, None).await
    }

    /// Writes a file on a branch; replaces the file if it exists.
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
        let replaced = self.blob_id(repository, branch, path).await?;
        let mut new = json!({"message": format!("Write {path}"), "branch": branch, "content": STANDARD.encode(content)});
        if let Some(sha) = replaced {
            new["sha"] = sha.into();
        }
        self.request(
            Method::PUT,
            &format!("/repos/{repository}/contents/{path}"),
            &self.owner,
            Some(new),
        )
        .await
        .map(drop)
    }

    /// Returns the blob id of a file; `None` when there is no such file.
    async fn blob_id(
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

    /// Opens a pull request that writes these files on `main`.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn propose(
        &self,
        repository: &str,
        title: &str,
        files: &[(&str, &str)],
    ) -> anyhow::Result<PullRequest> {
        self.propose_after(repository, title, files, None).await
    }

    /// Opens a pull request whose description names `needs` in a `Depends-On` line.
    ///
    /// Otherwise the same as [`ForgeUser::propose`].
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn propose_after(
        &self,
        repository: &str,
        title: &str,
        files: &[(&str, &str)],
        needs: Option<&PullRequest>,
    ) -> anyhow::Result<PullRequest> {
        let needs: Vec<&PullRequest> = needs.into_iter().collect();
        self.propose_after_all(repository, title, files, &needs).await
    }

    /// Returns a line `Depends-On` for each of these changes.
    async fn dependency_lines(&self, needs: &[&PullRequest]) -> anyhow::Result<String> {
        let mut lines = Vec::new();
        for PullRequest { repository, number } in needs {
            let pull = self.get(&format!("{repository}/pulls/{number}")).await?;
            lines.push(format!("Depends-On: {}", text(&pull, "html_url")));
        }
        Ok(lines.join("\n"))
    }

    /// Opens a pull request whose description names all of `needs`, one `Depends-On` line each.
    ///
    /// Otherwise the same as [`ForgeUser::propose`].
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn propose_after_all(
        &self,
        repository: &str,
        title: &str,
        files: &[(&str, &str)],
        needs: &[&PullRequest],
    ) -> anyhow::Result<PullRequest> {
        let body = self.dependency_lines(needs).await?;
        let branch = format!("change-{}", title.to_lowercase().replace(' ', "-"));
        let main = self.get(&format!("{repository}/branches/main")).await?;
        let new = json!({"ref": format!("refs/heads/{branch}"), "sha": main["commit"]["sha"]});
        self.request(
            Method::POST,
            &format!("/repos/{repository}/git/refs"),
            &self.owner,
            Some(new),
        )
        .await?;
        for (path, content) in files {
            self.write(repository, &branch, path, content).await?;
        }
        let new = json!({"title": title, "head": branch, "base": "main", "body": body});
        let pull = self
            .request(Method::POST, &format!("/repos/{repository}/pulls"), &self.owner, Some(new))
            .await?;
        let number = pull["number"].as_u64().context("the forge gave a change no number")?;
        Ok(PullRequest { repository: repository.to_owned(), number })
    }

    /// Approves a change; does nothing if it is approved already, so that a caller without an
    /// answer can repeat the call.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn approve(&self, change: &PullRequest) -> anyhow::Result<()> {
        let path = format!("/repos/{}/pulls/{}/reviews", change.repository, change.number);
        let reviews = self.request(Method::GET, &path, &self.reviewer, None).await?;
        if reviews
            .as_array()
            .is_some_and(|reviews| reviews.iter().any(|review| text(review, "state") == "APPROVED"))
        {
            return Ok(());
        }
        self.request(Method::POST, &path, &self.reviewer, Some(json!({"event": "APPROVE"})))
            .await
            .map(drop)
    }

    /// Dismisses every approval of a change.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn dismiss(&self, change: &PullRequest) -> anyhow::Result<()> {
        let path = format!("/repos/{}/pulls/{}/reviews", change.repository, change.number);
        let reviews = self.request(Method::GET, &path, &self.reviewer, None).await?;
        for review in reviews
            .as_array()
            .into_iter()
            .flatten()
            .filter(|review| text(review, "state") == "APPROVED")
        {
            let path = format!("{path}/{}/dismissals", review["id"]);
            self.request(Method::PUT, &path, &self.owner, Some(json!({"message": "not yet"})))
                .await?;
        }
        Ok(())
    }

    /// Closes a change without merging it.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn close(&self, change: &PullRequest) -> anyhow::Result<()> {
        self.edit(change, json!({"state": "closed"})).await
    }

    /// Replaces a change's description by a `Depends-On` line for another change.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn add_dependency(
        &self,
        change: &PullRequest,
        on: &PullRequest,
    ) -> anyhow::Result<()> {
        let body = self.dependency_lines(&[on]).await?;
        self.edit(change, json!({"body": body})).await
    }

    async fn edit(&self, change: &PullRequest, new: Value) -> anyhow::Result<()> {
        let path = format!("/repos/{}/pulls/{}", change.repository, change.number);
        self.request(Method::PATCH, &path, &self.owner, Some(new)).await.map(drop)
    }

    /// Pushes a commit that writes this file to the branch of a change.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn push(
        &self,
        change: &PullRequest,
        path: &str,
        content: &str,
    ) -> anyhow::Result<()> {
        let pull = self.get(&format!("{}/pulls/{}", change.repository, change.number)).await?;
        self.write(&change.repository, text(&pull["head"], "ref"), path, content).await
    }

    /// Makes the forge inject a fault into the next `times` requests for a repository.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn fault(&self, repository: &str, fault: Value, times: u32) -> anyhow::Result<()> {
        let body = json!({"fault": fault, "times": times});
        self.request(Method::POST, &format!("/faults/{repository}"), &self.owner, Some(body))
            .await
            .map(drop)
    }

    /// Makes the forge inject a fault into all requests for a repository whose path contains `path`,
    /// until [`Self::end_faults`].
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn fault_on(&self, repository: &str, fault: Value, path: &str) -> anyhow::Result<()> {
        let body = json!({"fault": fault, "path": path});
        self.request(Method::POST, &format!("/faults/{repository}"), &self.owner, Some(body))
            .await
            .map(drop)
    }

    /// Ends all faults of a repository.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn end_faults(&self, repository: &str) -> anyhow::Result<()> {
        let path = format!("/faults/{repository}");
        self.request(Method::DELETE, &path, &self.owner, None).await.map(drop)
    }

    /// Creates a repository `org/name` with a README.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn create_repository(&self, full_name: &str) -> anyhow::Result<()> {
        let (org, name) = full_name.split_once('/').context("the name has no organisation")?;
        let body = json!({"name": name, "auto_init": true});
        self.request(Method::POST, &format!("/orgs/{org}/repos"), &self.owner, Some(body))
            .await
            .map(drop)
    }

    /// Posts a comment on a change.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn comment(&self, change: &PullRequest, body: &str) -> anyhow::Result<()> {
        let path = format!("/repos/{}/issues/{}/comments", change.repository, change.number);
        self.request(Method::POST, &path, &self.owner, Some(json!({"body": body}))).await.map(drop)
    }

    /// Returns the comments on a change, the oldest first.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn comments(&self, change: &PullRequest) -> anyhow::Result<Vec<String>> {
        let path = format!("{}/issues/{}/comments?per_page=100", change.repository, change.number);
        let comments = self.get(&path).await?;
        Ok(comments
            .as_array()
            .into_iter()
            .flatten()
            .map(|comment| text(comment, "body").to_owned())
            .collect())
    }

    /// Returns the merge commit of a change; `None` when it is not merged.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn landed_as(&self, change: &PullRequest) -> anyhow::Result<Option<String>> {
        let pull = self.get(&format!("{}/pulls/{}", change.repository, change.number)).await?;
        let commit = pull["merge_commit_sha"].as_str().map(str::to_owned);
        Ok(commit.filter(|_| pull["merged"].as_bool() == Some(true)))
    }

    /// Returns the state of a commit status on a change's head; an empty string when there is none.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn status(&self, change: &PullRequest, context: &str) -> anyhow::Result<String> {
        let pull = self.get(&format!("{}/pulls/{}", change.repository, change.number)).await?;
        let head = text(&pull["head"], "sha").to_owned();
        let statuses = self.get(&format!("{}/commits/{head}/status", change.repository)).await?;
        let found =
            list(&statuses, "statuses").iter().find(|status| text(status, "context") == context);
        Ok(found.map(|status| text(status, "state").to_owned()).unwrap_or_default())
    }

    /// Returns the tree id of a commit.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn tree(&self, repository: &str, commit: &str) -> anyhow::Result<String> {
        let commit = self.get(&format!("{repository}/commits/{commit}")).await?;
        Ok(text(&commit["commit"]["tree"], "sha").to_owned())
    }

    /// Returns the webhook deliveries of a repository, the newest first.
    ///
    /// # Errors
    /// When the forge does not answer.
    pub async fn deliveries(&self, repository: &str) -> anyhow::Result<Vec<SentDelivery>> {
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
            SentDelivery {
                sent: SentWebhook { what, guid: text(one, "guid").to_owned() },
                event: text(one, "event").to_owned(),
                status: one["status_code"].as_u64().unwrap_or(0),
                failed: one["status_code"] == 0 && text(one, "status") != "PENDING",
                redelivery_path: format!(
                    "/repos/{repository}/hooks/{hook}/deliveries/{}/attempts",
                    one["id"]
                ),
            }
        };
        Ok(all.as_array().into_iter().flatten().map(of).collect())
    }

    /// Has the forge send a webhook again with the same id and body.
    ///
    /// # Errors
    /// When the forge does not answer, or refuses.
    pub async fn redeliver(&self, delivery: &SentDelivery) -> anyhow::Result<()> {
        self.request(Method::POST, &delivery.redelivery_path, &self.owner, None).await.map(drop)
    }
}
