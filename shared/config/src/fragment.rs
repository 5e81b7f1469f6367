//! A parsed configuration file: its stanzas and diagnostics. Also decides which files of a
//! repository are configuration.

use crate::error::{ConfigError, Diagnostic, DiagnosticKind};
use crate::objects::{self, ParsedStanzas, PragmaStanza, Stanza};
use crate::pack;
use crate::tenant::TenantProject;
use crate::yaml::{self, Mark};
use serde::{Deserialize, Serialize};
use sluice_model::id::digest;
use sluice_model::{BranchName, ConnectionName, ProjectName};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// How far a repository is trusted with configuration (Z2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// A config project: it may define pipelines and base jobs, and its playbooks run trusted. Its
    /// configuration takes effect only once merged.
    Config,
    /// An untrusted project: it configures its own part, and a change is tested with its own
    /// configuration.
    Untrusted,
}

impl Trust {
    /// Returns whether it is a config project.
    pub fn is_trusted(self) -> bool {
        self == Self::Config
    }
}

/// The origin of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// The connection of the project.
    pub connection: ConnectionName,
    /// The project.
    pub project: ProjectName,
    /// The branch.
    pub branch: BranchName,
    /// The path within the project.
    pub path: String,
    /// How far the project is trusted.
    pub trust: Trust,
}

impl Source {
    /// Returns the diagnostic, an error or a warning, together with this file's connection,
    /// project, branch and path.
    pub fn error(&self, diagnostic: Diagnostic) -> ConfigError {
        ConfigError {
            connection: self.connection.clone(),
            project: self.project.clone(),
            branch: self.branch.clone(),
            path: self.path.clone(),
            diagnostic,
        }
    }
}

/// A file and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its origin.
    pub source: Source,
    /// Its text.
    pub text: String,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Its origin.
    pub source: Source,
    /// The hash of source and text. Fragments with equal hashes are equal.
    pub hash: String,
    /// Its pragma settings.
    pub pragma: PragmaStanza,
    stanzas: Stanzas,
    /// The number of stanzas without errors. These come first.
    sound: usize,
    /// Its diagnostics.
    pub diagnostics: Vec<Diagnostic>,
}

/// The stanzas of a file in order. Those with errors come last, as far as they could be parsed.
#[derive(Debug, Clone)]
enum Stanzas {
    /// As parsed.
    Parsed(Vec<Stanza>),
    /// As stored; each stanza is decoded on first use.
    Packed(Arc<Packed>, Vec<Slot>),
}

/// The byte range of a stored stanza, and the decoded stanza after its first use; `None` if it
/// cannot be decoded.
type Slot = (Range<usize>, OnceLock<Option<Box<Stanza>>>);

/// The stored stanzas of many files, with their table of names.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) names: Vec<String>,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

/// Fragments with equal hashes are equal.
impl PartialEq for Fragment {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Fragment {
    /// Returns a fragment whose stanzas are decoded from `packed` when they are first used.
    /// `stanzas` are their byte ranges, in order; the first `sound` of them have no errors. `hash`
    /// and the diagnostics are those that were stored with it. Nothing is checked here: a range
    /// that cannot be decoded later counts as no stanza.
    pub(crate) fn packed(
        source: Source,
        hash: String,
        pragma: PragmaStanza,
        diagnostics: Vec<Diagnostic>,
        packed: &Arc<Packed>,
        stanzas: Vec<Range<usize>>,
        sound: usize,
    ) -> Self {
        let slots = stanzas.into_iter().map(|range| (range, OnceLock::new())).collect();
        Self {
            source,
            hash,
            pragma,
            stanzas: Stanzas::Packed(Arc::clone(packed), slots),
            sound,
            diagnostics,
        }
    }

    /// Returns a fragment without stanzas, only with diagnostics about the file `source`, whose
    /// text is not read. Its hash depends on the source, and on the positions and messages of the
    /// diagnostics.
    pub(crate) fn diagnostics_only(source: Source, diagnostics: Vec<Diagnostic>) -> Self {
        let texts = diagnostics
            .iter()
            .map(|diagnostic| format!("{:?} {}", diagnostic.start, diagnostic.message))
            .collect::<Vec<_>>();
        // The file has no other content: its text is not read.
        let hash = digest(&[
            "telling-1",
            &hash(&SourceFile { source: source.clone(), text: texts.join("\n") }),
        ]);
        Self {
            source,
            hash,
            pragma: PragmaStanza::default(),
            stanzas: Stanzas::Parsed(Vec::new()),
            sound: 0,
            diagnostics,
        }
    }

    /// Returns the stanzas without errors, in the order of the file. Stored ones that cannot be
    /// decoded are left out.
    pub fn stanzas(&self) -> impl Iterator<Item = &Stanza> {
        (0..self.sound).filter_map(|number| self.stanza(number))
    }

    /// Returns all stanzas, those without errors first, then those with errors, which must not
    /// define anything. The order is that of the indexes ([`Fragment::stanza`]). Stored stanzas
    /// that cannot be decoded are left out, so that later stanzas have another position here than
    /// their index.
    pub(crate) fn all_stanzas(&self) -> impl Iterator<Item = &Stanza> {
        (0..self.count()).filter_map(|number| self.stanza(number))
    }

    /// Returns the stanzas with errors, as far as they could be parsed. They must not define
    /// anything.
    pub(crate) fn faulty(&self) -> impl Iterator<Item = &Stanza> {
        (self.sound..self.count()).filter_map(|number| self.stanza(number))
    }

    /// Returns the number of stanzas, including those with errors.
    fn count(&self) -> usize {
        match &self.stanzas {
            Stanzas::Parsed(list) => list.len(),
            Stanzas::Packed(_, slots) => slots.len(),
        }
    }

    /// Returns whether the stanza at an index has no errors.
    pub(crate) fn is_sound(&self, number: usize) -> bool {
        number < self.sound
    }

    /// Returns a stanza by its index; `None` if there is none, or if a stored one cannot be
    /// decoded. Those with errors have the highest indexes.
    pub fn stanza(&self, number: usize) -> Option<&Stanza> {
        match &self.stanzas {
            Stanzas::Parsed(list) => list.get(number),
            Stanzas::Packed(packed, slots) => {
                let (range, slot) = slots.get(number)?;
                let read = || {
                    pack::read(packed.bytes.get(range.clone())?, &packed.names).ok().map(Box::new)
                };
                slot.get_or_init(read).as_deref()
            }
        }
    }

    /// Returns all diagnostics, warnings included, each with this file as its location.
    pub fn errors(&self) -> impl Iterator<Item = ConfigError> + '_ {
        self.diagnostics.iter().map(|diagnostic| self.source.error(diagnostic.clone()))
    }
}

/// Returns the hash that the fragment of a file would have, without parsing it. It depends on the
/// text, the origin and the trust.
pub fn hash(file: &SourceFile) -> String {
    let Source { connection, project, branch, path, trust } = &file.source;
    let trust = if trust.is_trusted() { "config" } else { "untrusted" };
    digest(&[
        "fragment-1",
        connection.as_str(),
        project.as_str(),
        branch.as_str(),
        path,
        trust,
        &file.text,
    ])
}

/// Returns one hash of several files from the hashes of each, regardless of their order. A hash
/// that is repeated counts twice. No hashes give a hash too.
pub fn content_hash<'h>(hashes: impl IntoIterator<Item = &'h str>) -> String {
    let mut sorted: Vec<&str> = hashes.into_iter().collect();
    sorted.sort_unstable();
    sorted.insert(0, "content-1");
    digest(&sorted)
}

/// Decodes a file as UTF-8. Invalid bytes become a character that configuration may not contain, so
/// that [`parse`] reports their position.
pub fn text_of(bytes: Vec<u8>) -> String {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return text,
        Err(error) => error.into_bytes(),
    };
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend((!chunk.invalid().is_empty()).then_some(yaml::UNREADABLE));
    }
    text
}

/// Parses a file. Never fails: the fragment has all errors and warnings at once. A file that is not
/// valid YAML has no stanzas at all. Otherwise the stanzas without errors come first, then those
/// with errors, which define nothing. The fragment's pragma has the settings of all pragmas without
/// errors; of a setting that is repeated the last counts.
pub fn parse(file: &SourceFile) -> Fragment {
    let (root, broken) = yaml::compose_all(&file.text);
    let mut found = root.as_ref().map(objects::stanzas).unwrap_or_default();
    if !broken.is_empty() {
        // A file with YAML errors defines nothing, but its other errors are reported too.
        found = ParsedStanzas {
            diagnostics: merge_diagnostics(broken, found.diagnostics),
            ..ParsedStanzas::default()
        };
    }
    let ParsedStanzas { sound: mut stanzas, faulty, diagnostics } = found;
    let mut pragma = PragmaStanza::default();
    for stanza in &stanzas {
        if let Stanza::Pragma(found) = stanza {
            pragma.implied_branch_matchers =
                found.implied_branch_matchers.or(pragma.implied_branch_matchers);
            pragma.implied_branches = found.implied_branches.clone().or(pragma.implied_branches);
        }
    }
    let sound = stanzas.len();
    stanzas.extend(faulty);
    let (source, hash) = (file.source.clone(), hash(file));
    Fragment { source, hash, pragma, stanzas: Stanzas::Parsed(stanzas), sound, diagnostics }
}

/// Returns YAML errors (`broken`) and structural diagnostics in order of position. If both are at
/// one position, only the YAML error is kept.
fn merge_diagnostics(
    broken: Vec<yaml::YamlError>,
    mut diagnostics: Vec<Diagnostic>,
) -> Vec<Diagnostic> {
    diagnostics.retain(|diagnostic| !broken.iter().any(|cause| cause.mark == diagnostic.start));
    let broken = broken.into_iter();
    diagnostics.extend(broken.map(|cause| {
        Diagnostic::new(DiagnosticKind::Syntax, cause.mark, cause.mark, cause.message)
    }));
    diagnostics.sort_by_key(|diagnostic| diagnostic.start);
    diagnostics
}

/// The places where a repository keeps configuration; the first that exists is read.
pub(crate) const ROOTS: [&str; 4] = ["zuul.yaml", "zuul.d/", ".zuul.yaml", ".zuul.d/"];
/// A file of this name keeps its directory from being read.
const IGNORE: &str = ".zuul.ignore";

/// Returns the paths of a repository that are configuration (Z2.4): those in the first of
/// `zuul.yaml`, `zuul.d/`, `.zuul.yaml` and `.zuul.d/` that has any, then those in `extra`. `paths`
/// are all paths of the tree; `extra` are the tenant's `extra-config-paths`, of which directories
/// end in `/`. Of a directory these are the files `*.yaml` at any depth, sorted, except in a
/// directory with a `.zuul.ignore` (other than the root) and below it. No path is returned twice.
pub fn config_paths<'p>(
    paths: impl IntoIterator<Item = &'p str>,
    extra: &[String],
) -> Vec<&'p str> {
    let mut sorted: Vec<&str> = paths.into_iter().collect();
    sorted.sort_unstable();
    let ignored: Vec<&str> = sorted
        .iter()
        .filter_map(|path| path.strip_suffix(IGNORE))
        .filter(|folder| folder.ends_with('/'))
        .collect();
    let below = |root: &str| -> Vec<&'p str> {
        let is_file = !root.ends_with('/');
        sorted
            .iter()
            .copied()
            .filter(|path| {
                if is_file {
                    *path == root
                } else {
                    path.starts_with(root) && path.ends_with(".yaml")
                }
            })
            .filter(|path| is_file || !ignored.iter().any(|folder| path.starts_with(folder)))
            .collect()
    };
    let mut found =
        ROOTS.iter().map(|root| below(root)).find(|paths| !paths.is_empty()).unwrap_or_default();
    for root in extra {
        for path in below(root) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the configuration files of a branch in reading order, each with its origin: those that
/// [`config_paths`] selects with the project's extra paths. `files` are all files of the branch, as
/// path and text; the other files are dropped. Whether the tenant reads the branch is not checked.
pub fn source_files(
    project: &TenantProject,
    branch: &BranchName,
    files: Vec<(String, String)>,
) -> Vec<SourceFile> {
    let paths =
        config_paths(files.iter().map(|(path, _)| path.as_str()), &project.extra_config_paths);
    let paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
    let mut texts: BTreeMap<String, String> = files.into_iter().collect();
    let file = |path: String| {
        let text = texts.remove(&path)?;
        let source = Source {
            connection: project.connection.clone(),
            project: project.name.clone(),
            branch: branch.clone(),
            path,
            trust: project.trust,
        };
        Some(SourceFile { source, text })
    };
    paths.into_iter().filter_map(file).collect()
}

/// Returns one fragment, with one warning and no stanzas, for each location of configuration
/// (`zuul.d/`, `.zuul.yaml` …) that is ignored because an earlier one has files. The warning is in
/// the first ignored file there. A location whose files are all read as extra paths is not
/// reported. `files` are all files of the branch, as path and text.
pub fn ignored_locations(
    project: &TenantProject,
    branch: &BranchName,
    files: &[(String, String)],
) -> Vec<Arc<Fragment>> {
    let paths = || files.iter().map(|(path, _)| path.as_str());
    let read = config_paths(paths(), &project.extra_config_paths);
    let lies_in =
        |path: &str, root: &str| path == root || (root.ends_with('/') && path.starts_with(root));
    let Some(first) = ROOTS.iter().position(|root| read.iter().any(|path| lies_in(path, root)))
    else {
        return Vec::new();
    };
    let later = ROOTS.get(first + 1..).unwrap_or_default().iter();
    let passed = later.filter_map(|root| {
        let of_root = config_paths(paths().filter(|path| lies_in(path, root)), &[]);
        let path = of_root.into_iter().find(|path| !read.contains(path))?;
        let message = format!(
            "Configuration in {path} ignored because project-branch is already configured in {}; \
             only the first of {} is read",
            ROOTS.get(first)?,
            ROOTS.join(", ")
        );
        let diagnostic =
            Diagnostic::new(DiagnosticKind::Conflict, Mark(1, 1), Mark(1, 1), message).as_warning();
        let source = Source {
            connection: project.connection.clone(),
            project: project.name.clone(),
            branch: branch.clone(),
            path: path.to_owned(),
            trust: project.trust,
        };
        Some(Arc::new(Fragment::diagnostics_only(source, vec![diagnostic])))
    });
    passed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z2.4, Z2.2: the layout and proposed changes select the same files, each with its project's
    /// trust.
    #[test]
    fn files_of_a_branch_are_in_order_with_their_source() {
        let mut project = TenantProject::new("github", "github.com/org/p".into(), Trust::Config);
        project.extra_config_paths = vec!["more/".to_owned()];
        let files = [
            ("more/x.yaml", "x"),
            ("zuul.d/b.yaml", "b"),
            (".zuul.yaml", "not read"),
            ("zuul.d/a.yaml", "a"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let found = source_files(&project, &"stable".into(), files.into());
        let reported: Vec<(&str, &str)> =
            found.iter().map(|file| (file.source.path.as_str(), file.text.as_str())).collect();
        assert_eq!(
            reported,
            [("zuul.d/a.yaml", "a"), ("zuul.d/b.yaml", "b"), ("more/x.yaml", "x")]
        );
        let Source { connection, project, branch, trust, .. } = &found[0].source;
        assert_eq!(
            (connection.as_str(), project.as_str(), branch.as_str(), *trust),
            ("github", "github.com/org/p", "stable", Trust::Config)
        );
    }

    /// Z2.4, Z6.6: a second location of configuration is reported as ignored.
    #[test]
    fn an_ignored_location_is_reported_once() {
        let mut project = TenantProject::new("github", "github.com/org/p".into(), Trust::Untrusted);
        let reported = |project: &TenantProject, paths: &[&str]| {
            let files: Vec<_> =
                paths.iter().map(|path| ((*path).to_owned(), String::new())).collect();
            let found = ignored_locations(project, &"main".into(), &files);
            found
                .iter()
                .flat_map(|one| one.errors())
                .map(|error| (error.path, error.diagnostic.message))
                .collect::<Vec<_>>()
        };
        let found = reported(
            &project,
            &["zuul.d/b.yaml", ".zuul.yaml", ".zuul.d/x.yaml", ".zuul.d/y.yaml", ".zuul.d/z"],
        );
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, [".zuul.yaml", ".zuul.d/x.yaml"]);
        assert!(
            found[0]
                .1
                .contains("already configured in zuul.d/; only the first of zuul.yaml, zuul.d/"),
            "{found:?}"
        );
        assert_eq!(reported(&project, &["zuul.yaml", ".zuul.d/x", "README.yaml"]), []);
        assert_eq!(reported(&project, &["zuul.yaml", "zuul.d/x.yaml", "zuul.d/.zuul.ignore"]), []);
        assert_eq!(reported(&project, &[".zuul.d/x.yaml"]), []);
        project.extra_config_paths = vec![".zuul.d/x.yaml".to_owned()];
        assert_eq!(
            reported(&project, &["zuul.yaml", ".zuul.d/x.yaml"]),
            [],
            "the tenant loads it as an extra path"
        );
    }

    /// Z2.4
    #[test]
    fn the_first_location_and_extra_paths_are_read() {
        let paths = [
            "README",
            "zuul.d/b.yaml",
            "zuul.d/a.yaml",
            "zuul.d/x/c.yaml",
            "zuul.d/no.txt",
            ".zuul.yaml",
            "extra/z.yaml",
            "one.yaml",
        ];
        assert_eq!(config_paths(paths, &[]), ["zuul.d/a.yaml", "zuul.d/b.yaml", "zuul.d/x/c.yaml"]);
        let extra = ["extra/".to_owned(), "one.yaml".to_owned()];
        assert_eq!(
            config_paths([".zuul.yaml", "extra/z.yaml", "one.yaml"], &extra),
            [".zuul.yaml", "extra/z.yaml", "one.yaml"]
        );
        let only_ends_like_it = ["zuul.d/a.yaml", "zuul.d/a.zuul.ignore"];
        assert_eq!(config_paths(only_ends_like_it, &[]), ["zuul.d/a.yaml"]);
        assert_eq!(
            config_paths(["zuul.d/a.yaml", "zuul.d/t/.zuul.ignore", "zuul.d/t/b.yaml"], &[]),
            ["zuul.d/a.yaml"]
        );
    }
}
