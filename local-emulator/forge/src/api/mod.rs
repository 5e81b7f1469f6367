//! GitHub's REST API under `/api/v3`, beside git over HTTP and the pages; and, not GitHub's, faults
//! to be switched on.

mod answer;
mod faults;
mod guard;
mod hooks;
mod pulls;
mod reports;
mod repositories;

use crate::engine::Engine;
use crate::{git_http, page};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post, put};
use std::sync::Arc;

pub(crate) use guard::token_of;

const BODY_MAX_BYTES: usize = 10 * 1024 * 1024;

/// Returns all HTTP routes of the forge: the API under `/api/v3`, pages for people, and git. Every
/// request must be addressed to this machine and is subject to faults. The API alone counts
/// requests and rejects unknown tokens. JSON bodies over 10 MiB are rejected.
pub(crate) fn router(engine: Arc<Engine>) -> Router {
    let repository = Router::new()
        .route("/branches", get(repositories::branches))
        .route("/branches/{*branch}", get(repositories::branch))
        .route("/git/ref/{*name}", get(repositories::git_ref))
        .route("/git/refs", post(repositories::create_ref))
        .route(
            "/git/refs/{*name}",
            axum::routing::patch(repositories::update_ref).delete(repositories::delete_ref),
        )
        .route("/git/commits/{sha}", get(repositories::git_commit))
        .route("/compare/{*range}", get(repositories::compare))
        .route("/contents/{*path}", get(repositories::contents).put(repositories::write))
        .route("/collaborators/{login}/permission", get(repositories::permission))
        .route("/commits/{sha}/status", get(reports::combined_status))
        .route("/commits/{sha}/statuses", get(reports::statuses))
        .route("/commits/{sha}/check-runs", get(reports::check_runs))
        .route("/commits/{sha}/pulls", get(pulls::of_commit))
        .route("/commits/{sha}", get(repositories::commit))
        .route("/statuses/{sha}", post(reports::set_status))
        .route("/check-runs", post(reports::create_check_run))
        .route("/check-runs/{id}", get(reports::check_run).patch(reports::update_check_run))
        .route("/pulls", get(pulls::list).post(pulls::create))
        .route("/pulls/{number}", get(pulls::read).patch(pulls::edit))
        .route("/pulls/{number}/files", get(pulls::files))
        .route("/pulls/{number}/commits", get(pulls::commits))
        .route("/pulls/{number}/merge", put(pulls::merge))
        .route("/pulls/{number}/reviews", get(pulls::reviews).post(pulls::review))
        .route("/pulls/{number}/reviews/{id}/dismissals", put(pulls::dismiss))
        .route("/pulls/{number}/comments", get(pulls::line_comments))
        .route("/issues/{number}/comments", get(reports::comments).post(reports::comment))
        .route("/issues/comments/{id}", get(reports::one_comment).patch(reports::edit_comment))
        .route(
            "/issues/{number}/labels",
            get(pulls::labels).post(pulls::add_labels).put(pulls::set_labels),
        )
        .route("/issues/{number}/labels/{label}", axum::routing::delete(pulls::remove_label))
        .route("/hooks", get(hooks::list).post(hooks::create))
        .route("/hooks/{id}/deliveries", get(hooks::deliveries))
        .route("/hooks/{id}/deliveries/{delivery}", get(hooks::delivery))
        .route("/hooks/{id}/deliveries/{delivery}/attempts", post(hooks::redeliver));
    let api = Router::new()
        .route("/user", get(repositories::own_user))
        .route("/user/repos", post(repositories::create_own))
        .route("/orgs/{org}/repos", post(repositories::create_in))
        .route("/users/{login}", get(repositories::user))
        .route("/rate_limit", get(guard::rate_limit))
        .route("/faults/{owner}/{name}", post(faults::set).delete(faults::clear))
        .route("/repos/{owner}/{name}", get(repositories::repository))
        .nest("/repos/{owner}/{name}", repository)
        .fallback(answer::no_such_path)
        .layer(from_fn_with_state(engine.clone(), guard::authenticate));
    Router::new()
        .nest("/api/v3", api)
        .route("/", get(page::index))
        .route("/{owner}/{name}", get(page::repository))
        .route("/{owner}/{name}/pull/{number}", get(page::pull))
        .route("/{owner}/{name}/info/refs", get(git_http::advertise))
        .route("/{owner}/{name}/git-upload-pack", any(git_http::upload_pack))
        .route("/{owner}/{name}/git-receive-pack", any(git_http::receive_pack))
        .layer(from_fn_with_state(engine.clone(), guard::apply_faults))
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .layer(from_fn(guard::by_own_name))
        .with_state(engine)
}
