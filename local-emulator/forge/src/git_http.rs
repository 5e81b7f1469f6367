//! Git over HTTP: requests are handed to `git http-backend`, which speaks CGI.

use crate::AccountPermission;
use crate::api::token_of;
use crate::engine::Engine;
use crate::error::ApiError;
use crate::git::base_command;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout};

const HEADER_BYTES_MAX: usize = 16 * 1024;
/// What git prints about a push, a line per ref.
const REPORT_BYTES_MAX: usize = 16 * 1024 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

type Here = Path<(String, String)>;

/// Answers a git client with the refs of a repository, with which each fetch and push begins. A
/// client that wants to push is refused here without valid credentials (401), or if its account may
/// only read (403). Everyone may fetch. 404 for an unknown repository.
pub(crate) async fn advertise(
    State(engine): State<Arc<Engine>>,
    Path((owner, name)): Here,
    request: Request,
) -> Response {
    let service = request.uri().query().unwrap_or_default().to_owned();
    let login = if service.contains("service=git-receive-pack") {
        match pusher(&engine, request.headers()) {
            Ok(login) => Some(login),
            Err(refusal) => return refusal.into_response(),
        }
    } else {
        None
    };
    serve(&engine, &owner, &name, "info/refs", login, request).await
}

/// Answers a fetch or clone, which needs no credentials. 404 for an unknown repository.
pub(crate) async fn upload_pack(
    State(engine): State<Arc<Engine>>,
    Path((owner, name)): Here,
    request: Request,
) -> Response {
    serve(&engine, &owner, &name, "git-upload-pack", None, request).await
}

/// Accepts a push from an account with write permission (otherwise 401 or 403). First makes another
/// commit if the fault for that is switched on. Other changes of the repository wait meanwhile.
/// Answers only after the events are recorded, so that every push that succeeded has its events;
/// marks of protection are ignored. 404 for an unknown repository.
pub(crate) async fn receive_pack(
    State(engine): State<Arc<Engine>>,
    Path((owner, name)): Here,
    request: Request,
) -> Response {
    let login = match pusher(&engine, request.headers()) {
        Ok(login) => login,
        Err(refusal) => return refusal.into_response(),
    };
    let full_name = format!("{owner}/{}", name.trim_end_matches(".git"));
    let held = engine.lock_repository(&full_name).await;
    if let Err(error) = engine.overtake(&held).await {
        return error.into_response();
    }
    let response =
        serve(&engine, &owner, &name, "git-receive-pack", Some(login.clone()), request).await;
    let (parts, body) = response.into_parts();
    let body = match axum::body::to_bytes(body, REPORT_BYTES_MAX).await {
        Ok(body) => body,
        Err(_) => Bytes::new(),
    };
    match engine.observe(&held, &login).await {
        Ok(()) => Response::from_parts(parts, Body::from(body)),
        Err(error) => error.into_response(),
    }
}

/// Why a push is not allowed.
enum NoPush {
    /// The caller is unknown. This response makes Git ask for a password.
    Unknown,
    /// May read only.
    Reader,
}

impl IntoResponse for NoPush {
    /// Answers an unknown caller with status 401 and a request for a password, and one that may
    /// only read with 403.
    fn into_response(self) -> Response {
        match self {
            Self::Unknown => {
                let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"forge\"")];
                (StatusCode::UNAUTHORIZED, challenge, "a token is needed as password\n")
                    .into_response()
            }
            Self::Reader => (StatusCode::FORBIDDEN, "this account may not push\n").into_response(),
        }
    }
}

/// Returns the login of the account whose token the request has. An error if there is no token or
/// an unknown one, or if the account may only read.
fn pusher(engine: &Engine, headers: &HeaderMap) -> Result<String, NoPush> {
    let token = token_of(headers).ok_or(NoPush::Unknown)?;
    let account =
        engine.accounts.iter().find(|account| account.token == token).ok_or(NoPush::Unknown)?;
    match account.permission {
        AccountPermission::Read => Err(NoPush::Reader),
        AccountPermission::Write | AccountPermission::Admin => Ok(account.login.clone()),
    }
}

/// Runs `git http-backend` for a request and returns its response. 404 for an unknown repository; a
/// failure to run it is logged and answered with 500. `service` is the path within the repository.
/// `login` is the account that pushes; the caller has checked its permission.
async fn serve(
    engine: &Engine,
    owner: &str,
    name: &str,
    service: &str,
    login: Option<String>,
    request: Request,
) -> Response {
    let full_name = format!("{owner}/{}", name.strip_suffix(".git").unwrap_or(name));
    // The name of a known repository is harmless as a path.
    if engine.repository(&full_name).is_err() {
        return ApiError::not_found().into_response();
    }
    match backend(engine, &full_name, service, login, request).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, repository = full_name, service, "git http-backend could not be run");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Runs `git http-backend` with a request's body as its input and returns its response, whose body
/// is streamed. An error if it cannot be run or ends before its headers do. The caller has checked
/// `full_name` and `login`. A push holds the lock of [`Git::moving`](crate::git::Git::moving).
async fn backend(
    engine: &Engine,
    full_name: &str,
    service: &str,
    login: Option<String>,
    request: Request,
) -> io::Result<Response> {
    let (parts, body) = request.into_parts();
    let text = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let mut command = base_command();
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", engine.git_root())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{full_name}.git/{service}"))
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("REMOTE_ADDR", "127.0.0.1");
    for (variable, value) in [
        ("CONTENT_TYPE", text(header::CONTENT_TYPE)),
        ("CONTENT_LENGTH", text(header::CONTENT_LENGTH)),
        ("HTTP_CONTENT_ENCODING", text(header::CONTENT_ENCODING)),
        ("GIT_PROTOCOL", text(HeaderName::from_static("git-protocol"))),
        ("REMOTE_USER", login.as_deref()),
    ] {
        if let Some(value) = value {
            command.env(variable, value);
        }
    }
    // Its error output is not read. A push may move refs.
    let complaints = match service {
        "git-receive-pack" => engine.git(full_name).moving()?.into(),
        _ => Stdio::null(),
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Git may answer before it has read everything: feeding goes on beside the answer.
        tokio::spawn(async move {
            let mut chunks = body.into_data_stream();
            while let Some(Ok(chunk)) = chunks.next().await {
                if stdin.write_all(&chunk).await.is_err() {
                    return;
                }
            }
        });
    }
    let stdout =
        child.stdout.take().ok_or_else(|| io::Error::other("git http-backend has no output"))?;
    answer(child, BufReader::new(stdout)).await
}

/// Converts the CGI output of git to a response whose body is streamed; takes the status from the
/// `Status` header, otherwise 200. An error if the output ends within the headers or these exceed
/// 16 KiB. The process is killed if the response is dropped early.
async fn answer(child: Child, mut output: BufReader<ChildStdout>) -> io::Result<Response> {
    let mut response = Response::new(Body::empty());
    let mut read = 0;
    loop {
        let mut line = String::new();
        let count = output.read_line(&mut line).await?;
        read += count;
        if count == 0 || read > HEADER_BYTES_MAX {
            return Err(io::Error::other("git http-backend ended within its headers"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(500);
            *response.status_mut() =
                StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        } else if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            response.headers_mut().insert(name, value);
        }
    }
    // The child lives as long as the stream: dropped early, it is killed.
    let stream = futures::stream::unfold((child, output), |(child, mut output)| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        match output.read(&mut chunk).await {
            Ok(0) => {
                let mut child = child;
                let _ = child.wait().await;
                None
            }
            Ok(count) => {
                chunk.truncate(count);
                Some((Ok::<_, io::Error>(Bytes::from(chunk)), (child, output)))
            }
            Err(error) => Some((Err(error), (child, output))),
        }
    });
    *response.body_mut() = Body::from_stream(stream);
    Ok(response)
}
