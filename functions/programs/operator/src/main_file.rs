//! Checks the main configuration (`main.yaml`) offline. It is not part of a repository, and has
//! stanzas of its own.

use super::{counted, included_files};
use anyhow::Context as _;
use serde_json::Value;
use sluice_config::{ConfigError, Connections, Driver, Severity, parse_main, text_of, yaml};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Stanzas that identify a main configuration: no repository's configuration has them.
const STANZAS: [&str; 6] = [
    "tenant",
    "authorization-rule",
    "admin-rule",
    "authorization-role",
    "global-semaphore",
    "api-root",
];

/// A main configuration that was checked.
#[derive(Debug)]
pub struct MainFile {
    /// The errors and warnings.
    pub diagnostics: Vec<ConfigError>,
    /// The text of the file and of the files that its tenants include, by path.
    texts: BTreeMap<String, String>,
    tenants: usize,
    projects: usize,
    /// The connections that the file names. Only a running system knows whether they exist.
    connections: BTreeSet<String>,
}

impl MainFile {
    /// Checks a file, the files that it includes, and the playbooks and roles next to it, if it is
    /// a main configuration. `None` for any other file: a directory, a file that is not YAML, or
    /// one without a stanza that only a main configuration has. What is wrong in the configuration
    /// is in the diagnostics, no error. Every connection that it names counts as existing.
    ///
    /// # Errors
    /// When the file or an included file cannot be read, or the playbooks and roles next to it
    /// could not be stored.
    pub fn check_if_main(path: &Path) -> anyhow::Result<Option<Self>> {
        if !path.is_file() {
            return Ok(None);
        }
        let bytes =
            std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
        let text = text_of(bytes);
        let Ok(root) = yaml::compose(&text).map(|root| root.to_json()) else { return Ok(None) };
        let stanzas = root.as_array().map(Vec::as_slice).unwrap_or_default();
        if !stanzas.iter().any(|stanza| STANZAS.iter().any(|word| stanza.get(word).is_some())) {
            return Ok(None);
        }
        // Only a running system knows the connections; here every name is accepted.
        let connections: BTreeSet<String> =
            stanzas.iter().flat_map(connections_of).map(str::to_owned).collect();
        let known = connections
            .iter()
            .fold(Connections::new(), |known, name| known.with(name, Driver::Git, ""));
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (main, mut diagnostics) = parse_main(&name, &text, &known);
        let mut texts = included_files::read(path, &main)?;
        diagnostics.extend(included_files::diagnostics(&name, &text, &main, &texts));
        let content = included_files::content(path, &main)?;
        included_files::commit(&content)?;
        diagnostics
            .extend(included_files::missing_playbooks(&name, &text, &main, &texts, &content));
        let of_tenants = main.tenants.iter().flat_map(|tenant| tenant.ignored_attributes(&name));
        diagnostics.extend(of_tenants.collect::<BTreeSet<ConfigError>>());
        texts.insert(name, text);
        let projects = main.tenants.iter().map(|tenant| tenant.projects.len()).sum();
        Ok(Some(Self { diagnostics, texts, tenants: main.tenants.len(), projects, connections }))
    }

    /// Returns the diagnostics with their source lines, then a summary with the numbers of tenants,
    /// projects, errors and warnings. If the file names connections, a last line says that they
    /// were not checked.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for error in &self.diagnostics {
            let _ =
                writeln!(text, "{}", error.render(self.texts.get(&error.path).map(String::as_str)));
        }
        let count = |severity| {
            self.diagnostics.iter().filter(|error| error.diagnostic.severity == severity).count()
        };
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let _ = writeln!(
            text,
            "main configuration: {}, {}: {}, {}",
            counted(self.tenants, "tenant"),
            counted(self.projects, "project"),
            counted(errors, "error"),
            counted(warnings, "warning")
        );
        if !self.connections.is_empty() {
            let names: Vec<&str> = self.connections.iter().map(String::as_str).collect();
            let _ = writeln!(
                text,
                "not checked offline: whether the connections {} exist and have these projects; `sluice tenant load` checks it",
                names.join(", ")
            );
        }
        text
    }
}

/// Returns the connections that a tenant stanza names in `source`, `allowed-triggers` and
/// `allowed-reporters`, possibly repeated, without the built-in `timer` and `zuul`. The attributes
/// may also be next to the `tenant` key. Empty for other stanzas without these attributes.
fn connections_of(stanza: &Value) -> impl Iterator<Item = &str> {
    let bodies = || stanza.get("tenant").into_iter().chain([stanza]);
    let sources = bodies().filter_map(|body| body.get("source")?.as_object());
    let allowed = bodies()
        .flat_map(|body| [body.get("allowed-triggers"), body.get("allowed-reporters")])
        .flatten();
    let allowed =
        allowed.flat_map(|list| list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice));
    // These two connections always exist.
    let allowed =
        allowed.filter_map(Value::as_str).filter(|name| !matches!(*name, "timer" | "zuul"));
    sources.flat_map(|source| source.keys().map(String::as_str)).chain(allowed)
}
