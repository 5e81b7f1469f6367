//! The addresses of artifacts that jobs return (`zuul.artifacts`, Z7.4). An address may be relative
//! to the logs of its build.

use serde_json::{Map, Value};
use url::Url;

/// The address of a folder that no artifact has: in it a relative address cannot lead further up.
const ANY_FOLDER: &str = "http://logs.invalid/";

/// Returns the whole address of an artifact of a build whose logs are at `log_url`, with or without
/// a final slash. `url` is the address that the job returned: a whole one stays as it is, one that
/// begins with a slash begins at the host of the logs, and any other is relative to the logs. Of
/// the latter, `..` that would lead out of the logs is dropped, so that it does not show the files
/// of another build. Without a usable `log_url` the result is `url`.
pub fn artifact_address(log_url: &str, url: &str) -> String {
    let folder = format!("{}/", log_url.trim_end_matches('/'));
    let (Err(url::ParseError::RelativeUrlWithoutBase), Ok(logs), Ok(any)) =
        (Url::parse(url), Url::parse(&folder), Url::parse(ANY_FOLDER))
    else {
        return url.to_owned();
    };
    let is_below = |joined: &Url| joined.host() == any.host() && !url.starts_with(['/', '\\']);
    let joined = match any.join(url) {
        Ok(joined) if is_below(&joined) => {
            let path = joined.as_str().strip_prefix(ANY_FOLDER).unwrap_or_default();
            // The prefix keeps a path with a colon or a second slash a path.
            logs.join(&format!("./{path}"))
        }
        _ => logs.join(url),
    };
    joined.map_or_else(|_| url.to_owned(), String::from)
}

/// Completes the addresses of the artifacts in `data`, which a build with logs at `log_url`
/// returned, as [`artifact_address`] does. Entries without an address stay as they are.
pub fn complete_artifacts(data: &mut Map<String, Value>, log_url: &str) {
    let artifacts = data
        .get_mut("zuul")
        .and_then(|zuul| zuul.get_mut("artifacts"))
        .and_then(Value::as_array_mut);
    for artifact in artifacts.into_iter().flatten() {
        if let Some(Value::String(url)) = artifact.get_mut("url") {
            *url = artifact_address(log_url, url);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z7.4: as a browser would follow them from the list of the build's files.
    #[test]
    fn a_relative_address_is_below_the_logs_of_its_build() {
        for logs in ["https://ci.test/logs/acme/b1/", "https://ci.test/logs/acme/b1"] {
            for (url, whole) in [
                ("docs/", "https://ci.test/logs/acme/b1/docs/"),
                ("docs/index.html#top", "https://ci.test/logs/acme/b1/docs/index.html#top"),
                ("./image 1.tar", "https://ci.test/logs/acme/b1/image%201.tar"),
                ("docs?x=1", "https://ci.test/logs/acme/b1/docs?x=1"),
                ("./javascript:x", "https://ci.test/logs/acme/b1/javascript:x"),
                (".//other.test/x", "https://ci.test/logs/acme/b1//other.test/x"),
                ("/other/docs", "https://ci.test/other/docs"),
                ("https://site.test/a b", "https://site.test/a b"),
                ("docker://registry.test/image", "docker://registry.test/image"),
            ] {
                assert_eq!(artifact_address(logs, url), whole);
            }
        }
    }

    /// Z2.3, Z7.4: an artifact does not pass off the files of another build as its own.
    #[test]
    fn a_relative_address_does_not_lead_out_of_the_logs() {
        let logs = "https://ci.test/logs/acme/b1/";
        for url in ["../x", "a/../../x", "%2e%2e/x", "..\\x", "../../../../x"] {
            assert_eq!(artifact_address(logs, url), format!("{logs}x"), "{url}");
        }
        assert_eq!(artifact_address("", "../x"), "../x");
    }

    /// Z7.4
    #[test]
    fn the_artifacts_in_returned_data_are_completed_and_the_rest_stays() {
        let data = |url: &str| {
            let artifacts = json!([{"name": "docs", "url": url}, {"name": "odd"}, 7]);
            let data = json!({"a": "docs/", "zuul": {"artifacts": artifacts, "pause": true}});
            data.as_object().cloned().unwrap_or_default()
        };
        let mut completed = data("docs/");
        complete_artifacts(&mut completed, "https://ci.test/b1");
        assert_eq!(completed, data("https://ci.test/b1/docs/"));
    }
}
