//! Plain pages for people: the repositories, a repository's pull requests, one pull request.

use crate::engine::{Engine, statuses_of};
use crate::error::ApiError;
use crate::model::{Comment, Life, Pull, Repository, Review, Status};
use axum::extract::{Path, State};
use axum::response::Html;
use std::collections::BTreeMap;
use std::sync::Arc;

type Page = Result<Html<String>, ApiError>;

/// Answers with the page that lists all repositories, in the order in which they were created, with
/// links. Needs no account.
pub(crate) async fn index(State(engine): State<Arc<Engine>>) -> Page {
    let repositories: Vec<Repository> = engine.store.within(|access| access.list(""))?;
    let row = |repository: &Repository| {
        let name = escape(&repository.full_name);
        format!("<li><a href=\"/{name}\">{name}</a></li>")
    };
    Ok(page(
        "Repositories",
        &format!("<ul>{}</ul>", repositories.iter().map(row).collect::<String>()),
    ))
}

/// Answers with the page of a repository: its pull requests, open or not, the newest first. Needs
/// no account; 404 if there is no such repository.
pub(crate) async fn repository(
    State(engine): State<Arc<Engine>>,
    Path((owner, name)): Path<(String, String)>,
) -> Page {
    let full_name = format!("{owner}/{name}");
    engine.repository(&full_name)?;
    let pulls: Vec<Pull> = engine.store.within(|access| access.list(&full_name))?;
    let row = |pull: &Pull| {
        let (number, title) = (pull.number, escape(&pull.title));
        format!(
            "<li><a href=\"/{}/pull/{number}\">#{number} {title}</a> <b>{}</b></li>",
            escape(&full_name),
            life(pull)
        )
    };
    Ok(page(&full_name, &format!("<ul>{}</ul>", pulls.iter().rev().map(row).collect::<String>())))
}

/// Answers with the page of a pull request: description, commits, the newest status of each context
/// on its head, then the reviews and then the comments. Needs no account; 404 if there is no such
/// pull request. An error if the pull request is not merged and its base branch is missing.
pub(crate) async fn pull(
    State(engine): State<Arc<Engine>>,
    Path((owner, name, number)): Path<(String, String, u64)>,
) -> Page {
    let full_name = format!("{owner}/{name}");
    let pull = engine.pull(&full_name, number)?;
    let base = match &pull.life {
        Life::Merged { base_before, .. } => base_before.clone(),
        _ => format!("refs/heads/{}", pull.base),
    };
    let commits = engine.git(&full_name).commits_between(&base, &pull.head_sha).await?;
    let (statuses, comments, reviews) = engine.store.within(|access| {
        let statuses: Vec<Status> = access.list(&statuses_of(&full_name, &pull.head_sha))?;
        let comments: Vec<Comment> = access.list(&full_name)?;
        let reviews: Vec<Review> = access.list(&full_name)?;
        Ok::<_, ApiError>((statuses, comments, reviews))
    })?;
    let newest: BTreeMap<&str, &Status> =
        statuses.iter().map(|status| (status.context.as_str(), status)).collect();
    let mut body = format!(
        "<p><b>{}</b> {} wants to merge <code>{}</code> into <code>{}</code></p><pre>{}</pre><h2>Commits</h2><ul>",
        life(&pull),
        escape(&pull.author),
        escape(&pull.head),
        escape(&pull.base),
        escape(&pull.body)
    );
    for commit in commits {
        let subject = commit.message.lines().next().unwrap_or_default();
        body += &format!("<li><code>{}</code> {}</li>", &commit.sha[..10], escape(subject));
    }
    body += "</ul><h2>Statuses</h2><ul>";
    for status in newest.values() {
        let text = escape(status.description.as_deref().unwrap_or_default());
        let link = status.target_url.as_deref().filter(|url| url.starts_with("http")).map(escape);
        let link = link.map(|url| format!(" <a href=\"{url}\">details</a>")).unwrap_or_default();
        body += &format!(
            "<li>{} <b>{}</b> {text}{link}</li>",
            escape(&status.context),
            escape(&status.state)
        );
    }
    body += "</ul><h2>Conversation</h2>";
    for review in reviews.iter().filter(|review| review.number == number) {
        body += &format!(
            "<p><b>{}</b> {}: {}</p>",
            escape(&review.author),
            escape(&review.state),
            escape(&review.body)
        );
    }
    for comment in comments.iter().filter(|comment| comment.number == number) {
        body += &format!(
            "<p><b>{}</b> {}</p><pre>{}</pre>",
            escape(&comment.author),
            comment.created_at,
            escape(&comment.body)
        );
    }
    Ok(page(&format!("{full_name}#{number} {}", pull.title), &body))
}

/// Returns the state of a pull request for its page: `draft`, `open`, `closed`, or `merged as` with
/// the first ten digits of the commit.
fn life(pull: &Pull) -> String {
    match &pull.life {
        Life::Open if pull.draft => "draft".to_owned(),
        Life::Open => "open".to_owned(),
        Life::Closed { .. } => "closed".to_owned(),
        Life::Merged { commit, .. } => format!("merged as {}", &commit[..10.min(commit.len())]),
    }
}

/// Returns an HTML page with its title as heading. The title is escaped here; `body` is HTML.
fn page(title: &str, body: &str) -> Html<String> {
    let title = escape(title);
    let style = "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{white-space:pre-wrap;background:#f4f4f4;padding:.7em}";
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{style}</style><h1>{title}</h1>{body}</html>"
    ))
}

/// Escapes text for HTML, also for attributes in double quotation marks.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
