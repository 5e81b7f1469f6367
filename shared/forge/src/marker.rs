//! Hidden markers in comments, by which a retry finds what an earlier attempt wrote.

use serde::{Deserialize, Serialize};

const OPEN: &str = "<!-- sluice:";
const CLOSE: &str = " -->";
const EXTERNAL: &str = "sluice:";

/// The key of one of Sluice's comments, hidden at its end as an HTML comment. Reports with the same
/// marker share one comment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marker(String);

impl Marker {
    /// Returns the marker of `key`, cut to 200 characters. Every character except ASCII letters,
    /// digits and `._:/#@+=` becomes `_`, so that it cannot end an HTML comment.
    pub fn new(key: &str) -> Self {
        let harmless =
            |c: char| if c.is_ascii_alphanumeric() || "._:/#@+=".contains(c) { c } else { '_' };
        Self(key.chars().take(200).map(harmless).collect())
    }

    /// Returns the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `text` with the marker as its last line.
    pub fn attach(&self, text: &str) -> String {
        format!("{}\n\n{OPEN}{}{CLOSE}", text.trim_end(), self.0)
    }

    /// Returns the marker as the `external_id` of a check run: `sluice:` and the key.
    pub fn external_id(&self) -> String {
        format!("{EXTERNAL}{}", self.0)
    }

    /// Returns the marker in a check run's `external_id`; `None` if it is not Sluice's or has no
    /// key.
    pub fn from_external_id(text: &str) -> Option<Self> {
        text.strip_prefix(EXTERNAL).filter(|key| !key.is_empty()).map(Self::new)
    }

    /// Returns the marker in the last line of `body`, which may be followed by white space; `None`
    /// if there is none. One further up, or quoted, is a copy and does not count.
    pub fn find(body: &str) -> Option<Self> {
        let key =
            body.trim_end().lines().next_back()?.trim().strip_prefix(OPEN)?.strip_suffix(CLOSE)?;
        let marker = Self::new(key);
        (marker.0 == key && !key.is_empty()).then_some(marker)
    }
}

#[cfg(test)]
mod tests {
    use super::Marker;

    #[test]
    fn a_marker_is_found_only_where_it_was_put() {
        let marker = Marker::new("gate report -->1");
        assert_eq!(marker.as_str(), "gate_report____1");
        let body = marker.attach("Build failed.\n");
        assert_eq!(Marker::find(&body), Some(marker.clone()));
        assert_eq!(Marker::find(&body.replace('\n', "\r\n")), Some(marker));
        assert_eq!(Marker::find(&format!("{body}\nI do not agree")), None);
        assert_eq!(Marker::find(&body.replace("<!--", "> <!--")), None);
        assert_eq!(Marker::find("<!-- sluice: -->"), None);
        assert_eq!(Marker::find(""), None);
    }
}
