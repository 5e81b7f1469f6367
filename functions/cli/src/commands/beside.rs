//! Files that tenants include (Z2.5), where they lie: beside the main configuration.

use anyhow::Context as _;
use sluice_config::tenant::{MainConfig, included_collisions};
use sluice_config::{ConfigError, Fragment, SourceFile, fragment, text_of};
use sluice_records::included::IncludedFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Reads every file that tenants of a main configuration include. What is not there is left out, and told by [`mistakes`].
///
/// # Errors
/// When a file is there and cannot be read.
pub fn read(main_file: &Path, main: &MainConfig) -> anyhow::Result<IncludedFiles> {
    let folder = main_file.parent().unwrap_or(Path::new(""));
    let names: BTreeSet<&String> = main.tenants.iter().flat_map(|tenant| &tenant.include).collect();
    let mut files = IncludedFiles::new();
    for name in names {
        let path = folder.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => drop(files.insert(name.clone(), text_of(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }
    Ok(files)
}

/// Returns what is wrong with the files by themselves and beside each other, and which of them are not there, each once. `path` and
/// `text` are those of the main configuration.
pub fn mistakes(path: &str, text: &str, main: &MainConfig, files: &IncludedFiles) -> Vec<ConfigError> {
    let parse = |file: &SourceFile| Arc::new(fragment::parse(file));
    let of_tenants = main.tenants.iter().flat_map(|tenant| tenant.included_fragments((path, text), files, parse));
    let parsed: Vec<Arc<Fragment>> = of_tenants.collect();
    let by_path: BTreeMap<&str, &Arc<Fragment>> = parsed.iter().map(|file| (file.source.path.as_str(), file)).collect();
    let each: Vec<Arc<Fragment>> = by_path.into_values().cloned().collect();
    let found = parsed.iter().flat_map(|file| file.errors()).chain(included_collisions(&each));
    found.collect::<BTreeSet<ConfigError>>().into_iter().collect()
}
