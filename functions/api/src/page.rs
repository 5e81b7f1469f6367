//! The pages: one self-contained document, built from the files next to this module, that reads
//! this API.

use crate::reply;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = concat!(
    include_str!("page/base.css"),
    include_str!("page/board.css"),
    include_str!("page/tables.css")
);
const SCRIPT: &str = concat!(
    "\"use strict\";(() => {\n",
    include_str!("page/tools.js"),
    include_str!("page/board.js"),
    include_str!("page/history.js"),
    include_str!("page/build.js"),
    include_str!("page/configuration.js"),
    include_str!("page/main.js"),
    "\n})();"
);
const ICON: &str = include_str!("page/icon.svg");

/// The document, and the content security policy that allows only its own script and style.
static DOCUMENT: LazyLock<(Bytes, String)> = LazyLock::new(|| {
    let icon = format!("data:image/svg+xml;base64,{}", STANDARD.encode(ICON));
    let document =
        FRAME.replace("{{icon}}", &icon).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data: 'self'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    (Bytes::from(document), policy)
});

/// Returns the HTML document of all pages. Its script selects the view by the address.
pub(crate) fn page() -> Response<Bytes> {
    with_status(StatusCode::OK)
}

/// Returns the HTML document with status 404; it says that nothing exists at its address.
pub(crate) fn not_found() -> Response<Bytes> {
    with_status(StatusCode::NOT_FOUND)
}

/// Returns the HTML document with a status.
fn with_status(status: StatusCode) -> Response<Bytes> {
    let (document, policy) = &*DOCUMENT;
    let builder = reply::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "text/html; charset=utf-8")
        .header(header::CONTENT_SECURITY_POLICY, policy.as_str())
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::REFERRER_POLICY, "no-referrer")
        .header(header::CACHE_CONTROL, "no-cache");
    reply::finish(builder, document.clone())
}

/// Returns the icon of the pages as SVG.
pub(crate) fn icon() -> Response<Bytes> {
    let builder = reply::builder()
        .header(header::CONTENT_TYPE, "image/svg+xml")
        .header(header::CACHE_CONTROL, "public, max-age=86400");
    reply::finish(builder, Bytes::from_static(ICON.as_bytes()))
}

/// Escapes `&`, `<`, `>` and `"` for HTML.
pub(crate) fn text(raw: &str) -> String {
    raw.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: nothing is loaded from other sites.
    #[test]
    fn the_document_needs_nothing_from_elsewhere() {
        let (document, policy) = &*DOCUMENT;
        let text = std::str::from_utf8(document).unwrap();
        assert!(!text.contains("{{") && text.contains(STYLE) && text.contains(SCRIPT));
        assert!(
            !text.contains("src=\"http") && !text.contains("@import") && !text.contains("url(http")
        );
        assert!(policy.contains("default-src 'none'") && policy.contains("'sha256-"));
    }

    /// Z5.4: untrusted text is shown as text.
    #[test]
    fn markup_in_a_name_is_shown_as_text() {
        assert_eq!(text("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
        assert!(!SCRIPT.contains("innerHTML"), "the page writes text, never markup");
        assert!(
            !SCRIPT.contains("/${place."),
            "what the address says is one part of a path, never more"
        );
    }
}
