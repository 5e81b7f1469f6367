//! `T/build/{uuid}/log` follows the log of a build, and `/logs/{tenant}/{build}/…` serves archived
//! files (Z7.4). Both answer only for builds of the tenant in the path (Z2.3).

use crate::Api;
use crate::build_row::BuildRow;
use crate::builds;
use crate::live_logs::{LIVE_BYTES_MAX, LogPiece};
use crate::load;
use crate::page::text as escape_html;
use crate::reply::{self, ErrorResponse};
use crate::request::ApiRequest;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, TenantName};
use sluice_records::codec::decode;
use sluice_records::logs::{self, BuildLogs, LOG};
use sluice_records::session::{self, LiveLogServer, Session};
use sluice_runtime::object::ObjectPart;

/// The maximum size of a file in one answer, in bytes: a response holds 6 MB, and base64 adds a
/// third.
const FILE_BYTES_MAX: usize = 4 << 20;
/// The number of keys that one call lists.
const PAGE_KEYS: usize = 1_000;
/// The maximum number of files in a listing: a build archives at most 2,000 and its log.
const LISTED_MAX: usize = 2_100;
/// The maximum size of the rows of a listing, in bytes.
const LISTING_BYTES_MAX: usize = 3 << 20;

/// Answers `T/build/{uuid}/log?offset=N` with the log's text from byte N (default 0), at most
/// [`LIVE_BYTES_MAX`] bytes: from the executor while the build runs there and the executor answers,
/// otherwise from the archive. `X-Log-Length` is the current length and `X-Log-Next` the next
/// offset. `X-Log-Ended` is 1 if the build has ended and the text reaches the end of the log, else
/// 0. 404 if there is no such build in the tenant, 400 for an invalid offset; without a log the
/// text is empty.
pub(crate) async fn follow(
    api: &Api,
    tenant: &TenantName,
    uuid: &str,
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let offset = request.number_parameter("offset")?.unwrap_or(0);
    let row = builds::row(&api.ports, tenant, uuid).await?;
    if let Some(piece) = running(api, &row, offset).await? {
        return Ok(text(&piece, offset, LogEnd::Later));
    }
    // Read again: the build may have ended in between, and then the archived log is complete.
    let row = builds::row(&api.ports, tenant, uuid).await?;
    let ends = if row.end().is_some() { LogEnd::Here } else { LogEnd::Later };
    let logs = BuildLogs { tenant, build: &row.order.build };
    let piece = match logs.read_file_part(&api.ports, LOG, offset, LIVE_BYTES_MAX).await? {
        Some(part) => LogPiece { bytes: part.bytes, length: part.length },
        None => LogPiece { bytes: Bytes::new(), length: 0 },
    };
    Ok(text(&piece, offset, ends))
}

/// Returns a piece of the log from the executor; `None` if the build is not running, no longer runs
/// there, or its executor has no address or does not answer. An error only if the executor's
/// session cannot be read.
async fn running(
    api: &Api,
    row: &BuildRow,
    offset: u64,
) -> Result<Option<LogPiece>, ErrorResponse> {
    let Some(run) = row.run.as_ref().filter(|run| !matches!(run.phase, Phase::Ended(_))) else {
        return Ok(None);
    };
    let Some(server) = server(api, run).await? else {
        return Ok(None);
    };
    match api.live_logs.read(&server, &row.order.build, offset).await {
        Ok(piece) => Ok(piece),
        Err(error) => {
            // The executor may be gone; the archived part is better than nothing.
            tracing::info!(build = %row.order.build, %error, "could not read a log from its executor");
            Ok(None)
        }
    }
}

/// Returns the server of live logs of the executor that runs a build, from the executor's session;
/// `None` if it serves none, or its session is gone.
async fn server(api: &Api, run: &Run) -> Result<Option<LiveLogServer>, ErrorResponse> {
    let records = load::read_many(&api.ports, &[session::key(&run.session)]).await?;
    let session: Option<Session> =
        records.first().and_then(Option::as_ref).map(decode).transpose()?;
    Ok(session.and_then(|session| session.live_logs))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LogEnd {
    Here,
    Later,
}

/// Returns the response with a piece of a log that begins at `offset`. `ends` says whether the log
/// gets more than `piece.length` bytes later. A character that is cut at the end of the piece is
/// left for the next piece, unless the log ends there.
fn text(piece: &LogPiece, offset: u64, ends: LogEnd) -> Response<Bytes> {
    let next = offset.saturating_add(piece.bytes.len() as u64);
    let is_rest = next >= piece.length;
    let mut bytes = piece.bytes.clone();
    // A multi-byte character that is cut is sent whole with the next piece, except at the very end.
    if !(is_rest && ends == LogEnd::Here) {
        bytes.truncate(bytes.len() - unfinished(&bytes));
    }
    let next = offset.saturating_add(bytes.len() as u64);
    let is_over = ends == LogEnd::Here && next >= piece.length;
    let builder = reply::builder()
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::ACCESS_CONTROL_EXPOSE_HEADERS, "X-Log-Length, X-Log-Next, X-Log-Ended")
        .header("x-log-length", piece.length)
        .header("x-log-next", next)
        .header("x-log-ended", u16::from(is_over));
    reply::finish(builder, bytes)
}

/// Returns the number of bytes at the end that belong to an incomplete UTF-8 character.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = bytes.iter().rev().take(4).enumerate();
    for (back, byte) in tail {
        let needs = match byte {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if back + 1 < needs { back + 1 } else { 0 };
    }
    0
}

/// Answers `/logs/{tenant}/{build}/{path}` with an archived file or the requested part of it, or
/// with an HTML listing of all files below a folder, which ends in "… and more" beyond
/// [`LISTED_MAX`] or [`LISTING_BYTES_MAX`]; without a path, below the build. 404 if the tenant does
/// not exist, if it has no such build or file, or if the build's id or the path is malformed. 413
/// for a whole file of more than [`FILE_BYTES_MAX`] bytes; a longer part is cut.
pub(crate) async fn file(
    api: &Api,
    tenant: &TenantName,
    build: &str,
    path: &[&str],
    request: &ApiRequest,
) -> Result<Response<Bytes>, ErrorResponse> {
    let is_id = build.len() == 32 && build.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_odd = |part: &&str| matches!(*part, "." | "..") || part.contains(['/', '\\', '\0']);
    if !is_id || path.iter().any(is_odd) {
        return Err(ErrorResponse::missing("There is no log at this path."));
    }
    load::require_tenant(&api.ports, tenant).await?;
    let build = BuildId::from(build);
    let logs = BuildLogs { tenant, build: &build };
    let relative = path.join("/");
    if !path.is_empty()
        && let Some((part, range)) = part(api, &logs.key(&relative), request.range).await?
    {
        return whole_or_part(&part, &relative, range);
    }
    let packed = logs.load_packed(&api.ports).await?;
    if let Some(content) = packed.find(&relative) {
        let (part, range) = packed_part(content, request.range);
        return whole_or_part(&part, &relative, range);
    }
    if relative == LOG
        && let Some((part, range)) = segmented_part(api, logs, request.range).await?
    {
        return whole_or_part(&part, &relative, range);
    }
    let root = logs.folder();
    let folder = if path.is_empty() { root.clone() } else { format!("{root}{relative}/") };
    let mut keys = list_keys(api, &folder).await?;
    keys.extend(packed.names().map(|name| logs.key(name)).filter(|key| key.starts_with(&folder)));
    if path.is_empty() && logs.has_log_segments(&api.ports).await? {
        keys.push(logs.key(LOG));
    }
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Err(ErrorResponse::missing(format!(
            "There is no log {relative} of the build {build} in the tenant {tenant}."
        )));
    }
    let address = logs.address("/logs/");
    let mut rows = String::new();
    for (listed, key) in keys.iter().enumerate() {
        if listed >= LISTED_MAX || rows.len() >= LISTING_BYTES_MAX {
            rows.push_str("<li>… and more</li>");
            break;
        }
        rows.push_str(&format!(
            "<li><a href=\"{address}{}\">{}</a></li>",
            link(key.strip_prefix(&root).unwrap_or(key)),
            escape_html(key.strip_prefix(&folder).unwrap_or(key))
        ));
    }
    let title = escape_html(&format!("Logs of build {build}"));
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>:root{{color-scheme:light dark}}body{{font:16px/1.6 system-ui,sans-serif;margin:2rem}}</style>\
         <h1>{title}</h1><ul>{rows}</ul></html>"
    );
    let builder = archived().header(header::CONTENT_TYPE, "text/html; charset=utf-8");
    Ok(reply::finish(builder, page.into()))
}

/// Lists the keys of a folder, some more than [`LISTED_MAX`] if it has so many.
async fn list_keys(api: &Api, folder: &str) -> Result<Vec<String>, ErrorResponse> {
    let mut keys: Vec<String> = Vec::new();
    while keys.len() <= LISTED_MAX {
        let after = keys.last().cloned();
        let page = api.ports.objects.list(folder, after.as_deref(), PAGE_KEYS).await?;
        let is_last = page.len() < PAGE_KEYS;
        keys.extend(page);
        if is_last {
            break;
        }
    }
    Ok(keys)
}

/// Starts a response with a job's file. The content is untrusted, so it must not run as part of
/// this site.
fn archived() -> http::response::Builder {
    reply::builder()
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(
            header::CONTENT_SECURITY_POLICY,
            "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:",
        )
        .header(header::CACHE_CONTROL, "public, max-age=60")
        .header(header::ACCEPT_RANGES, "bytes")
}

/// Returns the first byte and the maximum length of a range request, at most [`FILE_BYTES_MAX`];
/// `None` if there is no range or it is invalid.
fn requested_part(range: Option<(u64, Option<u64>)>) -> Option<(u64, usize)> {
    let (first, last) = range.filter(|(first, last)| last.is_none_or(|last| last >= *first))?;
    let request = last.map_or(u64::MAX, |last| (last - first).saturating_add(1));
    Some((first, usize::try_from(request).unwrap_or(usize::MAX).min(FILE_BYTES_MAX)))
}

/// Reads an archived file, or the requested part of it, up to [`FILE_BYTES_MAX`] bytes; `None` if
/// it does not exist. The second value is the offset at which the requested part begins; it is
/// `None` if the file is read from its start because no valid range is requested. A range that
/// begins behind the end counts as none.
async fn part(
    api: &Api,
    key: &str,
    range: Option<(u64, Option<u64>)>,
) -> Result<Option<(ObjectPart, Option<u64>)>, ErrorResponse> {
    if let Some((first, most)) = requested_part(range) {
        let Some(part) = api.ports.objects.get_part(key, first, most).await? else {
            return Ok(None);
        };
        if first < part.length {
            return Ok(Some((part, Some(first))));
        }
    }
    Ok(api.ports.objects.get_part(key, 0, FILE_BYTES_MAX).await?.map(|part| (part, None)))
}

/// Reads the log, or the requested part of it, from its segments, as [`part`] does from one object;
/// `None` without segments.
async fn segmented_part(
    api: &Api,
    logs: BuildLogs<'_>,
    range: Option<(u64, Option<u64>)>,
) -> Result<Option<(ObjectPart, Option<u64>)>, ErrorResponse> {
    if let Some((first, most)) = requested_part(range) {
        let Some(part) = logs.read_log_segments(&api.ports, first, most).await? else {
            return Ok(None);
        };
        if first < part.length {
            return Ok(Some((part, Some(first))));
        }
    }
    let whole = logs.read_log_segments(&api.ports, 0, FILE_BYTES_MAX).await?;
    Ok(whole.map(|part| (part, None)))
}

/// Returns a file from a pack, or the requested part of it, up to [`FILE_BYTES_MAX`] bytes. The
/// second value is the offset at which the requested part begins; it is `None` if the file is
/// returned from its start because no valid range is requested. A range that begins behind the end
/// counts as none.
fn packed_part(content: &Bytes, range: Option<(u64, Option<u64>)>) -> (ObjectPart, Option<u64>) {
    match requested_part(range).filter(|(first, _)| *first < content.len() as u64) {
        Some((first, most)) => (logs::slice_of(content, first, most), Some(first)),
        None => (logs::slice_of(content, 0, FILE_BYTES_MAX), None),
    }
}

/// Returns the response with a whole file, or with status 206 and the part of it from `first`,
/// which is `None` for the whole file. The error is 413 if the whole file is wanted and `part` has
/// less of it, because the file does not fit into a response. `path` decides the content type.
fn whole_or_part(
    part: &ObjectPart,
    path: &str,
    first: Option<u64>,
) -> Result<Response<Bytes>, ErrorResponse> {
    let (kind, encoding) = content_type(path);
    let mut builder = archived().header(header::CONTENT_TYPE, kind);
    if let Some(encoding) = encoding {
        builder = builder.header(header::CONTENT_ENCODING, encoding);
    }
    let length = part.length;
    let Some(first) = first else {
        if length > part.bytes.len() as u64 {
            let why = format!(
                "The file has {length} bytes, and a response holds at most {FILE_BYTES_MAX}; request parts of it with a Range header."
            );
            return Err(ErrorResponse::TooLarge { why });
        }
        return Ok(reply::finish(builder, part.bytes.clone()));
    };
    let end = first.saturating_add(part.bytes.len() as u64);
    let content_range = format!("bytes {first}-{}/{length}", end.saturating_sub(1));
    builder =
        builder.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, content_range);
    Ok(reply::finish(builder, part.bytes.clone()))
}

/// Returns the content type and encoding of a file, by name; an unknown one is text. A `.gz` has
/// the type of its content, with the encoding `gzip`; an archive stays an archive.
fn content_type(path: &str) -> (&'static str, Option<&'static str>) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let inner = name.strip_suffix(".gz").filter(|inner| !inner.ends_with(".tar"));
    let extension =
        |name: &str| name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let kind = match extension(inner.unwrap_or(name)).as_deref() {
        Some("json") => "application/json",
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("xml") => "text/xml; charset=utf-8",
        Some("pdf") => "application/pdf",
        Some("gz" | "tgz") => "application/gzip",
        Some("zip" | "whl" | "jar" | "tar" | "xz" | "bz2" | "zst" | "deb" | "rpm") => {
            "application/octet-stream"
        }
        _ => "text/plain; charset=utf-8",
    };
    (kind, inner.map(|_| "gzip"))
}

/// Percent-encodes the name of a file as a path; slashes stay.
fn link(name: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~');
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.4: the dashboard reads compressed JSON as JSON.
    #[test]
    fn a_compressed_file_has_the_type_of_its_content() {
        assert_eq!(content_type("job-output.json.gz"), ("application/json", Some("gzip")));
        assert_eq!(content_type("a/b.tar.gz"), ("application/gzip", None));
        assert_eq!(content_type("zuul-info/inventory.yaml"), ("text/plain; charset=utf-8", None));
    }

    /// Z7.4
    #[test]
    fn a_character_is_never_cut_in_two() {
        let bytes = "aé€".as_bytes();
        assert_eq!(
            (
                unfinished(bytes),
                unfinished(&bytes[..5]),
                unfinished(&bytes[..2]),
                unfinished(b"ab")
            ),
            (0, 2, 1, 0)
        );
        let piece = LogPiece { bytes: Bytes::copy_from_slice(&bytes[..5]), length: 5 };
        let response = text(&piece, 10, LogEnd::Later);
        assert_eq!(response.body(), "aé");
        assert_eq!(response.headers()["x-log-next"], "13");
    }

    /// Z7.4: a response is bounded, and the rest can be read in parts.
    #[test]
    fn a_large_file_is_read_in_parts() {
        let length = FILE_BYTES_MAX as u64 + 10;
        let some = |bytes: usize| ObjectPart { bytes: Bytes::from(vec![b'x'; bytes]), length };
        assert!(matches!(
            whole_or_part(&some(FILE_BYTES_MAX), "a.txt", None),
            Err(ErrorResponse::TooLarge { .. })
        ));
        let part = whole_or_part(&some(10), "a.txt", Some(FILE_BYTES_MAX as u64)).unwrap();
        assert_eq!((part.status(), part.body().len()), (StatusCode::PARTIAL_CONTENT, 10));
        assert_eq!(
            part.headers()["content-range"],
            format!("bytes {}-{}/{}", FILE_BYTES_MAX, FILE_BYTES_MAX + 9, FILE_BYTES_MAX + 10)
        );
    }
}
