//! The tenants' file (`main.yaml`), checked where it lies: it is no repository's configuration, and
//! has words of its own.

use super::beside;
use anyhow::Context as _;
use serde_json::Value;
use sluice_config::{ConfigError, Connections, Driver, Severity, parse_main, text_of, yaml};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Stanzas by which a tenants' file is known: no repository's configuration has them.
const WORDS: [&str; 6] = [
    "tenant",
    "authorization-rule",
    "admin-rule",
    "authorization-role",
    "global-semaphore",
    "api-root",
];

/// A tenants' file that was checked.
#[derive(Debug)]
pub struct MainFile {
    /// Every mistake in it.
    pub found: Vec<ConfigError>,
    /// Its text, and those of the files beside it that tenants include, by path.
    texts: BTreeMap<String, String>,
    tenants: usize,
    projects: usize,
    /// Connections that it names, which only a system knows.
    connections: BTreeSet<String>,
}

impl MainFile {
    /// Checks a file if it is a tenants' file; `None` for anything else.
    ///
    /// # Errors
    /// When the file, or one that a tenant includes, cannot be read, or what lies beside those
    /// could not be stored.
    pub fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        if !path.is_file() {
            return Ok(None);
        }
        let bytes =
            std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
        let text = text_of(bytes);
        let Ok(root) = yaml::compose(&text).map(|root| root.to_json()) else { return Ok(None) };
        let stanzas = root.as_array().map(Vec::as_slice).unwrap_or_default();
        if !stanzas.iter().any(|stanza| WORDS.iter().any(|word| stanza.get(word).is_some())) {
            return Ok(None);
        }
        // Which connections there are is for a system to say; here any name is one.
        let connections: BTreeSet<String> =
            stanzas.iter().flat_map(connections_of).map(str::to_owned).collect();
        let known = connections
            .iter()
            .fold(Connections::new(), |known, name| known.with(name, Driver::Git, ""));
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (main, mut found) = parse_main(&name, &text, &known);
        let mut texts = beside::read(path, &main)?;
        found.extend(beside::mistakes(&name, &text, &main, &texts));
        let content = beside::content(path, &main)?;
        beside::commit(&content)?;
        found.extend(beside::unfound(&name, &text, &main, &texts, &content));
        let of_tenants = main.tenants.iter().flat_map(|tenant| tenant.unserved(&name));
        let unserved: BTreeSet<ConfigError> = of_tenants.chain(main.unserved(&name)).collect();
        found.extend(unserved);
        texts.insert(name, text);
        let projects = main.tenants.iter().map(|tenant| tenant.projects.len()).sum();
        Ok(Some(Self { found, texts, tenants: main.tenants.len(), projects, connections }))
    }

    /// Returns the findings for people.
    pub fn told(&self) -> String {
        let mut told = String::new();
        for error in &self.found {
            let _ =
                writeln!(told, "{}", error.render(self.texts.get(&error.path).map(String::as_str)));
        }
        let count =
            |severity| self.found.iter().filter(|error| error.problem.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let (tenants, projects) = (self.tenants, self.projects);
        let _ = writeln!(
            told,
            "tenants' file: {tenants} tenant(s), {projects} project(s): {errors} error(s), {warnings} warning(s)"
        );
        if !self.connections.is_empty() {
            let names: Vec<&str> = self.connections.iter().map(String::as_str).collect();
            let _ = writeln!(
                told,
                "whether the system has the connection(s) {}, and these the projects, `sluice tenant load` finds out",
                names.join(", ")
            );
        }
        told
    }
}

/// Returns the connections that a tenant names: those of its `source`, and those that it may use.
/// The founding documents write both beside the word, too.
fn connections_of(stanza: &Value) -> impl Iterator<Item = &str> {
    let bodies = || stanza.get("tenant").into_iter().chain([stanza]);
    let sources = bodies().filter_map(|body| body.get("source")?.as_object());
    let allowed = bodies()
        .flat_map(|body| [body.get("allowed-triggers"), body.get("allowed-reporters")])
        .flatten();
    let allowed =
        allowed.flat_map(|list| list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice));
    // These two are there without anybody's adding them.
    let allowed =
        allowed.filter_map(Value::as_str).filter(|name| !matches!(*name, "timer" | "zuul"));
    sources.flat_map(|source| source.keys().map(String::as_str)).chain(allowed)
}
