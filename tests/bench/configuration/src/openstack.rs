//! Measures a real configuration: OpenStack's, if its data are next to the checkout.

use crate::measure::shortest;
use sluice_config::fragment::{Source, SourceFile, parse};
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::tenant::parse_main;
use sluice_config::{Connections, Driver};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The cost of the real configuration.
#[derive(Debug)]
pub struct Real {
    /// The bytes of configuration.
    pub bytes: usize,
    /// The number of stanzas.
    pub stanzas: usize,
    /// The time from texts to a layout, including the tenants' file.
    pub parse_and_layout: Duration,
    /// The number of configuration errors, nearly all about repositories that are missing in the
    /// data.
    pub errors: usize,
}

/// Returns the directory of the data: `SLUICE_TEST_DATA`, or next to the checkout; `None` when it
/// does not exist.
pub fn data() -> Option<PathBuf> {
    let given = std::env::var_os("SLUICE_TEST_DATA").map(PathBuf::from);
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data");
    let folder = given.unwrap_or_else(default).join("real-config/openstack");
    folder.is_dir().then_some(folder)
}

/// Measures OpenStack's own tenant.
pub fn measure(data: &Path) -> Real {
    let main = std::fs::read_to_string(data.join("project-config/zuul/main.yaml"))
        .expect("main.yaml can be read");
    let texts: Vec<(&str, String, String)> = [
        ("openstack/project-config", "project-config"),
        ("openstack/openstack-zuul-jobs", "openstack-zuul-jobs"),
    ]
    .into_iter()
    .flat_map(|(project, folder)| {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(data.join(folder).join("zuul.d"))
            .expect("the folder can be read")
            .map(|entry| entry.expect("an entry can be read").path())
            .collect();
        paths.sort();
        paths.into_iter().map(move |path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (
                project,
                format!("zuul.d/{name}"),
                std::fs::read_to_string(&path).expect("a file can be read"),
            )
        })
    })
    .collect();
    let connections = Connections::new()
        .with("gerrit", Driver::Gerrit, "opendev.org")
        .with("github", Driver::GitHub, "github.com")
        .with("googlesource", Driver::Gerrit, "gerrit.googlesource.com")
        .with("smtp", Driver::Smtp, "");
    let (parse_and_layout, (layout, stanzas)) = shortest(5, || {
        let (config, _) = parse_main("main.yaml", &main, &connections);
        let tenant = config
            .tenants
            .into_iter()
            .find(|tenant| tenant.name.as_str() == "openstack")
            .expect("it is there");
        let fragments: Vec<_> = texts
            .iter()
            .map(|(name, path, text)| {
                let project = connections.project("gerrit", name).expect("the connection is known");
                let trust = tenant.project(&project).expect("the tenant reads it").trust;
                let source = Source {
                    connection: "gerrit".into(),
                    project,
                    branch: "master".into(),
                    path: path.clone(),
                    trust,
                };
                Arc::new(parse(&SourceFile { source, text: text.clone() }))
            })
            .collect();
        let stanzas = fragments.iter().map(|fragment| fragment.stanzas().count()).sum();
        let sources = LayoutSources {
            tenant,
            connections: connections.clone(),
            branches: BTreeMap::new(),
            fragments,
        };
        (Layout::build(sources), stanzas)
    });
    Real {
        bytes: main.len() + texts.iter().map(|(_, _, text)| text.len()).sum::<usize>(),
        stanzas,
        parse_and_layout,
        errors: layout.errors().len(),
    }
}
