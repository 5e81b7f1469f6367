//! Logs: `T/build/{uuid}/log` follows a build while it runs and afterwards; `/logs/{build}/…`
//! serves what was archived (Z7.4).

use crate::Api;
use crate::asked::Asked;
use crate::build_row::BuildRow;
use crate::builds;
use crate::live::{LIVE_BYTES_MAX, LogPiece};
use crate::load;
use crate::page::text as escape_html;
use crate::reply::{self, Refusal};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, TenantName};
use sluice_records::codec::decode;
use sluice_records::logs::{self, LOG};
use sluice_records::session::{self, Session};
use sluice_runtime::object::Part;

/// The most bytes of a file in one answer: a function's answer holds 6 MB, of which base64 takes a
/// quarter.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Files that a listing names.
const LISTED_MAX: usize = 1_000;

/// `T/build/{uuid}/log?offset=N`: text from byte N. `X-Log-Length` is the length at that moment,
/// `X-Log-Next` the offset to ask for next, `X-Log-Ended` whether no more will come.
pub(crate) async fn follow(
    api: &Api,
    tenant: &TenantName,
    uuid: &str,
    asked: &Asked,
) -> Result<Response<Bytes>, Refusal> {
    asked.only(&["offset"])?;
    let offset = asked.number("offset")?.unwrap_or(0);
    let row = builds::row(&api.ports, tenant, uuid).await?;
    if let Some(piece) = running(api, &row, offset).await? {
        return Ok(text(&piece, offset, Ends::Later));
    }
    // Read again: it may have ended between the two looks, and then the archive is whole.
    let row = builds::row(&api.ports, tenant, uuid).await?;
    let ends = if row.end().is_some() { Ends::Here } else { Ends::Later };
    let piece = match logs::part(&api.ports, &row.order.build, LOG, offset, LIVE_BYTES_MAX).await? {
        Some(part) => LogPiece { bytes: part.bytes, length: part.length },
        None => LogPiece { bytes: Bytes::new(), length: 0 },
    };
    Ok(text(&piece, offset, ends))
}

/// Returns a piece from the executor, if the build runs and its executor answers.
async fn running(api: &Api, row: &BuildRow, offset: u64) -> Result<Option<LogPiece>, Refusal> {
    let Some(run) = row.run.as_ref().filter(|run| !matches!(run.phase, Phase::Ended(_))) else {
        return Ok(None);
    };
    let Some(address) = address(api, run).await? else {
        return Ok(None);
    };
    match api.live_logs.read(&address, &row.order.build, offset).await {
        Ok(piece) => Ok(piece),
        Err(error) => {
            // The executor may be gone; what was archived so far is better than nothing.
            tracing::info!(build = %row.order.build, %error, "an executor did not give a log");
            Ok(None)
        }
    }
}

async fn address(api: &Api, run: &Run) -> Result<Option<String>, Refusal> {
    if let Some(log) =
        run.log.as_ref().filter(|log| log.starts_with("http://") || log.starts_with("https://"))
    {
        // The whole address of the log and the executor's own are both understood.
        return Ok(Some(log.split("/log/").next().unwrap_or(log).to_owned()));
    }
    let records = load::many(&api.ports, &[session::key(&run.session)]).await?;
    let session: Option<Session> =
        records.first().and_then(Option::as_ref).map(decode).transpose()?;
    Ok(session.and_then(|session| session.log_address))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Here,
    Later,
}

fn text(piece: &LogPiece, offset: u64, ends: Ends) -> Response<Bytes> {
    let next = offset.saturating_add(piece.bytes.len() as u64);
    let is_rest = next >= piece.length;
    let mut bytes = piece.bytes.clone();
    // A character that is cut in two comes whole with the next piece; at the very end nothing more
    // would come.
    if !(is_rest && ends == Ends::Here) {
        bytes.truncate(bytes.len() - unfinished(&bytes));
    }
    let next = offset.saturating_add(bytes.len() as u64);
    let is_over = ends == Ends::Here && next >= piece.length;
    let builder = reply::open()
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::ACCESS_CONTROL_EXPOSE_HEADERS, "X-Log-Length, X-Log-Next, X-Log-Ended")
        .header("x-log-length", piece.length)
        .header("x-log-next", next)
        .header("x-log-ended", u16::from(is_over));
    reply::finish(builder, bytes)
}

/// Returns how many bytes at the end begin a character that is not complete.
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

/// `/logs/{build}/{path}`: a file, or the list of what lies below.
pub(crate) async fn file(
    api: &Api,
    build: &str,
    path: &[&str],
    asked: &Asked,
) -> Result<Response<Bytes>, Refusal> {
    let is_id = build.len() == 32 && build.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_odd = |part: &&str| matches!(*part, "." | "..") || part.contains(['/', '\\', '\0']);
    if !is_id || path.iter().any(is_odd) {
        return Err(Refusal::missing("There is no such log."));
    }
    let build = BuildId::from(build);
    let relative = path.join("/");
    if !path.is_empty()
        && let Some((part, range)) = part(api, &logs::key(&build, &relative), asked.range).await?
    {
        return whole_or_part(&part, &relative, range);
    }
    let packed = logs::packed(&api.ports, &build).await?;
    if let Some(content) = packed.find(&relative) {
        let (part, range) = packed_part(content, asked.range);
        return whole_or_part(&part, &relative, range);
    }
    let folder = if path.is_empty() {
        format!("logs/{build}/")
    } else {
        format!("logs/{build}/{relative}/")
    };
    let mut keys = api.ports.objects.list(&folder, None, LISTED_MAX).await?;
    keys.extend(
        packed.names().map(|name| logs::key(&build, name)).filter(|key| key.starts_with(&folder)),
    );
    keys.sort_unstable();
    keys.dedup();
    keys.truncate(LISTED_MAX);
    if keys.is_empty() {
        return Err(Refusal::missing(format!("There is no log {relative} of the build {build}.")));
    }
    let rows: String = keys
        .iter()
        .map(|key| {
            format!(
                "<li><a href=\"/{}\">{}</a></li>",
                link(key),
                escape_html(key.strip_prefix(&folder).unwrap_or(key))
            )
        })
        .collect();
    let title = escape_html(&format!("Logs of build {build}"));
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>:root{{color-scheme:light dark}}body{{font:16px/1.6 system-ui,sans-serif;margin:2rem}}</style>\
         <h1>{title}</h1><ul>{rows}</ul></html>"
    );
    let builder = archived().header(header::CONTENT_TYPE, "text/html; charset=utf-8");
    Ok(reply::finish(builder, page.into()))
}

/// Begins an answer with what a job left behind: it is a stranger's text, and nothing in it may act
/// as this site.
fn archived() -> http::response::Builder {
    reply::open()
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(
            header::CONTENT_SECURITY_POLICY,
            "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:",
        )
        .header(header::CACHE_CONTROL, "public, max-age=60")
        .header(header::ACCEPT_RANGES, "bytes")
}

/// Returns where an answer begins and how many bytes it may have, where a part is asked for.
fn wanted(range: Option<(u64, Option<u64>)>) -> Option<(u64, usize)> {
    let (first, last) = range.filter(|(first, last)| last.is_none_or(|last| last >= *first))?;
    let asked = last.map_or(u64::MAX, |last| (last - first).saturating_add(1));
    Some((first, usize::try_from(asked).unwrap_or(usize::MAX).min(FILE_BYTES_MAX)))
}

/// Reads what is asked of an archived file that is an object of its own, never more of it than one
/// answer holds, with the byte that it begins at where a part was asked for that there is.
async fn part(
    api: &Api,
    key: &str,
    range: Option<(u64, Option<u64>)>,
) -> Result<Option<(Part, Option<u64>)>, Refusal> {
    if let Some((first, most)) = wanted(range) {
        let Some(part) = api.ports.objects.get_part(key, first, most).await? else {
            return Ok(None);
        };
        if first < part.length {
            return Ok(Some((part, Some(first))));
        }
    }
    Ok(api.ports.objects.get_part(key, 0, FILE_BYTES_MAX).await?.map(|part| (part, None)))
}

/// Returns the same of a file that lies with others and was read whole.
fn packed_part(content: &Bytes, range: Option<(u64, Option<u64>)>) -> (Part, Option<u64>) {
    match wanted(range).filter(|(first, _)| *first < content.len() as u64) {
        Some((first, most)) => (logs::cut(content, first, most), Some(first)),
        None => (logs::cut(content, 0, FILE_BYTES_MAX), None),
    }
}

fn whole_or_part(part: &Part, path: &str, first: Option<u64>) -> Result<Response<Bytes>, Refusal> {
    let (kind, encoding) = content_type(path);
    let mut builder = archived().header(header::CONTENT_TYPE, kind);
    if let Some(encoding) = encoding {
        builder = builder.header(header::CONTENT_ENCODING, encoding);
    }
    let length = part.length;
    let Some(first) = first else {
        if length > part.bytes.len() as u64 {
            let why = format!(
                "The file has {length} bytes and one answer holds {FILE_BYTES_MAX}; ask for parts of it with Range."
            );
            return Err(Refusal::TooLarge { why });
        }
        return Ok(reply::finish(builder, part.bytes.clone()));
    };
    let end = first.saturating_add(part.bytes.len() as u64);
    let told = format!("bytes {first}-{}/{length}", end.saturating_sub(1));
    builder = builder.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, told);
    Ok(reply::finish(builder, part.bytes.clone()))
}

/// Returns type and encoding of a file by its name. A `.gz` is what is in it, packed; an archive
/// stays an archive.
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

/// Returns a key as a path in a link.
fn link(key: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~');
    key.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.4: the dashboard reads packed JSON as JSON.
    #[test]
    fn a_packed_file_is_told_as_what_is_in_it() {
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
        let response = text(&piece, 10, Ends::Later);
        assert_eq!(response.body(), "aé");
        assert_eq!(response.headers()["x-log-next"], "13");
    }

    /// Z7.4: one answer is bounded, and the rest can be asked for.
    #[test]
    fn a_large_file_is_read_in_parts() {
        let length = FILE_BYTES_MAX as u64 + 10;
        let some = |bytes: usize| Part { bytes: Bytes::from(vec![b'x'; bytes]), length };
        assert!(matches!(
            whole_or_part(&some(FILE_BYTES_MAX), "a.txt", None),
            Err(Refusal::TooLarge { .. })
        ));
        let part = whole_or_part(&some(10), "a.txt", Some(FILE_BYTES_MAX as u64)).unwrap();
        assert_eq!((part.status(), part.body().len()), (StatusCode::PARTIAL_CONTENT, 10));
        assert_eq!(
            part.headers()["content-range"],
            format!("bytes {}-{}/{}", FILE_BYTES_MAX, FILE_BYTES_MAX + 9, FILE_BYTES_MAX + 10)
        );
    }
}
