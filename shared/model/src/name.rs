//! Names that people give to things. Each is a type of its own, so that one cannot be used as
//! another.

use crate::text::text;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        text! {
            $(#[$doc])*
            $name
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

name!(
    /// A tenant's name (Z2.1).
    TenantName
);
name!(
    /// A pipeline's name, unique in its tenant (Z6.1).
    PipelineName
);
name!(
    /// A shared change queue's name (Z6.3); for a project without one, the project's canonical
    /// name.
    QueueName
);
name!(
    /// A job's name, unique in its tenant.
    JobName
);
name!(
    /// A branch without `refs/heads/`.
    BranchName
);
name!(
    /// The name of a configured connection to a forge, for example `github`.
    ConnectionName
);
name!(
    /// A label of the node pool (Z1.13).
    LabelName
);
name!(
    /// The name of a provider of nodes.
    ProviderName
);
name!(
    /// A zone of executors: those that reach the nodes of labels with this `executor-zone`.
    ZoneName
);

text!(
    /// A project's canonical name: the forge's host name and the repository's path there
    /// (`github.com/org/project`).
    ProjectName
);

impl ProjectName {
    /// Returns the canonical name of `name` on `host`.
    pub fn new(host: &str, name: &str) -> Self {
        Self(format!("{host}/{name}"))
    }

    /// Returns the host part; empty if the name has none.
    pub fn host(&self) -> &str {
        self.0.split_once('/').map_or("", |(host, _)| host)
    }

    /// Returns the repository's path on its forge (`org/project`), which is how users name it; the
    /// whole text if it has no host.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }

    /// Returns the last part of the path (`project`).
    pub fn short_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the name under which playbooks use a role at the project's root: the last part of
    /// the path without leading repetitions of `ansible` and then of `role`, each with the
    /// separators after it, if any (`nginx` for `org/ansible-role-nginx`). If nothing is left,
    /// returns the whole last part.
    pub fn role_name(&self) -> &str {
        let name = self.short_name();
        match strip_prefixes(strip_prefixes(name, "ansible"), "role") {
            "" => name,
            rest => rest,
        }
    }
}

/// Returns `name` without all leading repetitions of `prefix` and the separators (`-`, `_`, `.`,
/// `+`) after each.
fn strip_prefixes<'n>(name: &'n str, prefix: &str) -> &'n str {
    let mut left = name;
    while let Some(rest) = left.strip_prefix(prefix) {
        left = rest.trim_start_matches(['-', '_', '.', '+']);
    }
    left
}

/// The key of a queue cell: tenant, pipeline and change queue.
///
/// An independent pipeline has one queue for each change it tests. Its `queue` is then the change's
/// own text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueKey {
    /// The tenant the queue belongs to.
    pub tenant: TenantName,
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The queue within the pipeline.
    pub queue: QueueName,
}

impl fmt::Display for QueueKey {
    /// Writes tenant, pipeline and queue, each escaped by [`escape`], with `/` between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            escape(self.tenant.as_str()),
            escape(self.pipeline.as_str()),
            escape(self.queue.as_str())
        )
    }
}

/// Returns `text` with `%`, `/` and `#` escaped as `%25`, `%2f` and `%23`, so that it is one part
/// of a key (C2.1).
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '%' => escaped.push_str("%25"),
            '/' => escaped.push_str("%2f"),
            '#' => escaped.push_str("%23"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns the text that [`escape`] was called with.
pub fn unescape(part: &str) -> String {
    part.replace("%23", "#").replace("%2f", "/").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L3.4, C2.1
    #[test]
    fn a_canonical_name_is_one_part_of_a_key() {
        let project = ProjectName::new("github.com", "org/pro#ject");
        assert_eq!(
            (project.host(), project.name(), project.short_name()),
            ("github.com", "org/pro#ject", "pro#ject")
        );
        let key = QueueKey {
            tenant: "one".into(),
            pipeline: "gate".into(),
            queue: project.as_str().into(),
        };
        assert_eq!(key.to_string(), "one/gate/github.com%2forg%2fpro%23ject");
    }

    /// Z4.6: as in Zuul, repeated prefixes and all kinds of separators are removed.
    #[test]
    fn a_role_repository_is_named_without_its_ansible_prefixes() {
        for (project, role) in [
            ("org/ansible-role-nginx", "nginx"),
            ("org/ansible_nginx", "nginx"),
            ("org/role.nginx", "nginx"),
            ("org/ansible-ansible+role-_nginx-role", "nginx-role"),
            ("org/nginx", "nginx"),
            ("org/my-ansible", "my-ansible"),
            ("org/ansible", "ansible"),
            ("org/ansible-role", "ansible-role"),
        ] {
            assert_eq!(ProjectName::new("github.com", project).role_name(), role, "{project}");
        }
    }
}
