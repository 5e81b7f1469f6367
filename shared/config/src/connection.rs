//! The configured connections. Their drivers decide how triggers and reporters are parsed.

use serde::{Deserialize, Serialize};
use sluice_model::{ConnectionName, ProjectName};
use std::collections::BTreeMap;

/// The driver of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// GitHub or GitHub Enterprise.
    GitHub,
    /// Gerrit.
    Gerrit,
    /// GitLab.
    GitLab,
    /// Pagure.
    Pagure,
    /// A plain git server.
    Git,
    /// Mail.
    Smtp,
    /// An MQTT broker.
    Mqtt,
    /// A database of results.
    Sql,
    /// Elasticsearch.
    Elasticsearch,
    /// The built-in clock; its connection need not be configured.
    Timer,
    /// Zuul's own events; its connection need not be configured.
    Zuul,
    /// Amazon EC2.
    Aws,
    /// Nodes that always exist.
    Static,
    /// An unknown driver, whose attributes are stored as written.
    Other,
}

/// One configured connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its driver.
    pub driver: Driver,
    /// The host in canonical project names; empty for a connection without projects.
    #[serde(default)]
    pub canonical_host: String,
}

/// All configured connections by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Connections(pub BTreeMap<ConnectionName, Connection>);

impl Connections {
    /// Returns the connections of a system that has only the built-in ones, `timer` and `zuul`,
    /// which are not stored.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a connection; it replaces one with the same name. `canonical_host` may be empty.
    #[must_use]
    pub fn with(mut self, name: &str, driver: Driver, canonical_host: &str) -> Self {
        self.0
            .insert(name.into(), Connection { driver, canonical_host: canonical_host.to_owned() });
        self
    }

    /// Returns the driver of a connection; `None` if it is unknown. `timer` and `zuul` are always
    /// known: they are built in if no connection of that name is configured.
    pub fn driver(&self, name: &str) -> Option<Driver> {
        match self.0.get(&ConnectionName::from(name)) {
            Some(connection) => Some(connection.driver),
            None if name == "timer" => Some(Driver::Timer),
            None if name == "zuul" => Some(Driver::Zuul),
            None => None,
        }
    }

    /// Returns the canonical name of a project; `None` for a connection that is not configured.
    /// Without a canonical host, the connection's name takes its place. Whether the project exists
    /// is not checked.
    pub fn project(&self, connection: &str, name: &str) -> Option<ProjectName> {
        let found = self.0.get(&ConnectionName::from(connection))?;
        let host = if found.canonical_host.is_empty() { connection } else { &found.canonical_host };
        Some(ProjectName::new(host, name))
    }
}
