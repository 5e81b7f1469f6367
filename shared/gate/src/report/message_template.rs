//! Messages of pipelines with names in braces, and the values of the names.

use sluice_config::Pipeline;
use sluice_model::QueueKey;
use sluice_model::change::ChangeRef;

/// The values that a message may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageContext<'a> {
    /// The queue of the item.
    pub(crate) queue: &'a QueueKey,
    /// The pipeline of the queue.
    pub(crate) pipeline: &'a Pipeline,
    /// The item's change.
    pub(crate) change: &'a ChangeRef,
    /// The address of the change's page.
    pub(crate) url: &'a str,
    /// The address of the item's page.
    pub(crate) page: &'a str,
}

impl MessageContext<'_> {
    /// Returns a message with its names replaced: `{pipeline.name}`, `{change.number}`,
    /// `{status_url}` … An unknown name and any other text in braces stay as they are, so that a
    /// message never prevents a report. `{{` and `}}` are single braces.
    pub(crate) fn fill(&self, message: &str) -> String {
        let (mut filled, mut rest) = (String::with_capacity(message.len()), message);
        while let Some(at) = rest.find(['{', '}']) {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                filled.push_str(&rest[..1]);
                rest = &rest[2..];
                continue;
            }
            let name = rest
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'))
                .map(|(name, _)| name);
            match name.and_then(|name| Some((name, self.value(name)?))) {
                Some((name, value)) => {
                    filled.push_str(&value);
                    rest = &rest[name.len() + 2..];
                }
                None => {
                    filled.push_str(&rest[..1]);
                    rest = &rest[1..];
                }
            }
        }
        filled.push_str(rest);
        filled
    }

    /// Returns the value of a name, or `None` for an unknown one. Empty where the change has no
    /// such value.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let (change, key) = (self.change, &self.change.key);
        Some(match name {
            "tenant" | "tenant.name" => self.queue.tenant.to_string(),
            "pipeline" | "pipeline.name" => self.pipeline.name.to_string(),
            "status_url" => self.page.to_owned(),
            "change" => change.id(),
            "change.number" => key.number().map(|number| number.to_string()).unwrap_or_default(),
            "change.patchset" | "patchset" => change.patchset.clone(),
            "change.project" | "change.project.name" | "project" => key.project.name().to_owned(),
            "change.project.canonical_name" => key.project.to_string(),
            "change.branch" | "branch" => {
                change.on_branch().map(ToString::to_string).unwrap_or_default()
            }
            "change.ref" | "ref" => change.github_ref(),
            "change.url" => self.url.to_owned(),
            "connection" => key.connection.to_string(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::pipeline::Manager;
    use sluice_model::change::ChangeKey;

    fn fill(message: &str) -> String {
        let queue = QueueKey { tenant: "acme".into(), pipeline: "gate".into(), queue: "q".into() };
        let pipeline = Pipeline::new("gate", Manager::Dependent);
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 7);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        let (url, page) = ("https://forge.test/7", "https://sluice.test/t/acme/buildset/1");
        MessageContext { queue: &queue, pipeline: &pipeline, change: &change, url, page }
            .fill(message)
    }

    /// Z6.1: the names that Zuul's messages use.
    #[test]
    fn names_in_braces_are_replaced() {
        assert_eq!(
            fill("Starting {pipeline.name} jobs: {status_url}"),
            "Starting gate jobs: https://sluice.test/t/acme/buildset/1"
        );
        assert_eq!(
            fill(
                "[{change.project.name}] {change.number},{change.patchset} on {change.branch} ({change.url})"
            ),
            "[org/one] 7,abc on main (https://forge.test/7)"
        );
    }

    /// Z6.1: other text in braces is kept, and the report is made all the same.
    #[test]
    fn other_text_in_braces_is_kept() {
        for text in [
            "{}",
            "{",
            "}",
            "{unknown.name}",
            "a { b } c",
            "{pipeline.nam",
            "ä{ö}ü",
            "}{",
            "{change.number!r}",
        ] {
            assert_eq!(fill(text), text);
        }
        assert_eq!(fill("{{pipeline.name}} is {pipeline.name}"), "{pipeline.name} is gate");
    }
}
