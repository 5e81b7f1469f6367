//! One configuration file, parsed once: its stanzas and its mistakes. Which files of a repository
//! are configuration.

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
    /// It may define pipelines and base jobs, and its playbooks run trusted; never used before it
    /// is merged.
    Config,
    /// It may define its own part, and a change of it is tested with itself.
    Untrusted,
}

impl Trust {
    /// Returns whether it is a config project.
    pub fn is_trusted(self) -> bool {
        self == Self::Config
    }
}

/// Where a file comes from.
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
    /// Returns a mistake at its place in this file.
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
    /// Where it comes from.
    pub source: Source,
    /// Its text.
    pub text: String,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Where it comes from.
    pub source: Source,
    /// The hash of source and text: equal hashes are equal fragments.
    pub hash: String,
    /// How the file is read.
    pub pragma: PragmaStanza,
    stanzas: Stanzas,
    /// How many of them, the first, are without mistakes.
    sound: usize,
    /// Its mistakes.
    pub diagnostics: Vec<Diagnostic>,
}

/// The stanzas of a file in order; those with mistakes come last, as far as they could be read.
#[derive(Debug, Clone)]
enum Stanzas {
    /// As they were parsed.
    Parsed(Vec<Stanza>),
    /// As they were stored; each is read when somebody asks for it.
    Packed(Arc<Packed>, Vec<Slot>),
}

/// Where a stored stanza lies, and itself once it was read; `None` for bytes that no longer are
/// one.
type Slot = (Range<usize>, OnceLock<Option<Box<Stanza>>>);

/// The stored stanzas of many files, and the table of their names.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) names: Vec<String>,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

/// Equal hashes are equal fragments.
impl PartialEq for Fragment {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Fragment {
    /// Returns a fragment whose stanzas are stored, the first `sound` of them without mistakes.
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

    /// Returns a fragment that says nothing and only tells of mistakes: of what is not there to be
    /// read.
    pub(crate) fn telling(source: Source, diagnostics: Vec<Diagnostic>) -> Self {
        let said = diagnostics
            .iter()
            .map(|diagnostic| format!("{:?} {}", diagnostic.start, diagnostic.message))
            .collect::<Vec<_>>();
        // Its text says nothing: whatever is written there, it is not read.
        let hash = digest(&[
            "telling-1",
            &hash(&SourceFile { source: source.clone(), text: said.join("\n") }),
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

    /// Returns its stanzas in order; those with mistakes are left out.
    pub fn stanzas(&self) -> impl Iterator<Item = &Stanza> {
        (0..self.sound).filter_map(|number| self.stanza(number))
    }

    /// Returns all that was read, by the numbers of [`Fragment::stanza`]: last the stanzas with
    /// mistakes, which nothing may be made of.
    pub(crate) fn read(&self) -> impl Iterator<Item = &Stanza> {
        (0..self.count()).filter_map(|number| self.stanza(number))
    }

    /// Returns the stanzas with mistakes.
    pub(crate) fn faulty(&self) -> impl Iterator<Item = &Stanza> {
        (self.sound..self.count()).filter_map(|number| self.stanza(number))
    }

    fn count(&self) -> usize {
        match &self.stanzas {
            Stanzas::Parsed(list) => list.len(),
            Stanzas::Packed(_, slots) => slots.len(),
        }
    }

    /// Returns whether the stanza of a number is without mistakes.
    pub(crate) fn is_sound(&self, number: usize) -> bool {
        number < self.sound
    }

    /// Returns one of its stanzas by its number; those with mistakes have the highest.
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

    /// Returns its mistakes with their place.
    pub fn errors(&self) -> impl Iterator<Item = ConfigError> + '_ {
        self.diagnostics.iter().map(|diagnostic| self.source.error(diagnostic.clone()))
    }
}

/// Returns the hash a fragment of this file would have, without parsing it.
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

/// Returns the name of what files come to together, whatever their order, by their hashes.
pub fn content<'h>(hashes: impl IntoIterator<Item = &'h str>) -> String {
    let mut sorted: Vec<&str> = hashes.into_iter().collect();
    sorted.sort_unstable();
    sorted.insert(0, "content-1");
    digest(&sorted)
}

/// Returns the text of a file's bytes. What is no UTF-8 becomes a character that no configuration
/// may have, so that [`parse`] tells where it stands.
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

/// Parses a file. It never fails: mistakes are part of the result, all at once.
pub fn parse(file: &SourceFile) -> Fragment {
    let (root, broken) = yaml::compose_all(&file.text);
    let mut found = root.as_ref().map(objects::stanzas).unwrap_or_default();
    if !broken.is_empty() {
        // Nothing of a file counts that is not read as it is written; what else is wrong with it is
        // told all the same.
        found = ParsedStanzas { diagnostics: beside(broken, found.diagnostics), ..ParsedStanzas::default() };
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

/// Returns mistakes of YAML and of shape in the order in which they stand; of two at one place the
/// one of YAML.
fn beside(broken: Vec<yaml::YamlError>, mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
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

/// Returns which of a repository's paths are configuration, in the order they are read (Z2.4).
///
/// `paths` are all paths of the tree; `extra` are the tenant's `extra-config-paths`, a directory
/// ending in `/`.
pub fn config_paths<'p>(
    paths: impl IntoIterator<Item = &'p str>,
    extra: &[String],
) -> Vec<&'p str> {
    let mut sorted: Vec<&str> = paths.into_iter().collect();
    sorted.sort_unstable();
    let ignored: Vec<&str> = sorted
        .iter()
        .filter_map(|path| path.strip_suffix(IGNORE))
        .filter(|folder| !folder.is_empty())
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

/// Returns those files of a branch that are configuration, in the order they are read
/// ([`config_paths`]); `files` are all that were found of it, as path and text.
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

/// Returns what stands for each place of a branch where configuration may lie and is not read,
/// since an earlier place is there: a fragment with nothing but a warning. `files` are all that
/// were found of the branch, as path and text.
pub fn passed_over(
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
            "Configuration in {path} ignored because project-branch is already configured: there is {}, and only the first of {} is read",
            ROOTS.get(first)?,
            ROOTS.join(", ")
        );
        let diagnostic = Diagnostic::new(DiagnosticKind::Conflict, Mark(1, 1), Mark(1, 1), message).as_warning();
        let source = Source {
            connection: project.connection.clone(),
            project: project.name.clone(),
            branch: branch.clone(),
            path: path.to_owned(),
            trust: project.trust,
        };
        Some(Arc::new(Fragment::telling(source, vec![diagnostic])))
    });
    passed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z2.4, Z2.2: what is read for the layout and what a change proposes are chosen alike, each
    /// with its project's trust.
    #[test]
    fn the_files_of_a_branch_stand_in_order_and_say_where_they_are_from() {
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
        let told: Vec<(&str, &str)> =
            found.iter().map(|file| (file.source.path.as_str(), file.text.as_str())).collect();
        assert_eq!(told, [("zuul.d/a.yaml", "a"), ("zuul.d/b.yaml", "b"), ("more/x.yaml", "x")]);
        let Source { connection, project, branch, trust, .. } = &found[0].source;
        assert_eq!(
            (connection.as_str(), project.as_str(), branch.as_str(), *trust),
            ("github", "github.com/org/p", "stable", Trust::Config)
        );
    }

    /// Z2.4, Z6.6: who adds a second place of configuration is told that it is not read.
    #[test]
    fn a_place_that_is_not_read_is_told_once() {
        let mut project = TenantProject::new("github", "github.com/org/p".into(), Trust::Untrusted);
        let told = |project: &TenantProject, paths: &[&str]| {
            let files: Vec<_> =
                paths.iter().map(|path| ((*path).to_owned(), String::new())).collect();
            let found = passed_over(project, &"main".into(), &files);
            found
                .iter()
                .flat_map(|one| one.errors())
                .map(|error| (error.path, error.diagnostic.message))
                .collect::<Vec<_>>()
        };
        let found = told(
            &project,
            &["zuul.d/b.yaml", ".zuul.yaml", ".zuul.d/x.yaml", ".zuul.d/y.yaml", ".zuul.d/z"],
        );
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, [".zuul.yaml", ".zuul.d/x.yaml"]);
        assert!(
            found[0].1.contains("there is zuul.d/, and only the first of zuul.yaml, zuul.d/"),
            "{found:?}"
        );
        assert_eq!(told(&project, &["zuul.yaml", ".zuul.d/x", "README.yaml"]), []);
        assert_eq!(told(&project, &["zuul.yaml", "zuul.d/x.yaml", "zuul.d/.zuul.ignore"]), []);
        assert_eq!(told(&project, &[".zuul.d/x.yaml"]), []);
        project.extra_config_paths = vec![".zuul.d/x.yaml".to_owned()];
        assert_eq!(
            told(&project, &["zuul.yaml", ".zuul.d/x.yaml"]),
            [],
            "the tenant reads it besides"
        );
    }

    /// Z2.4
    #[test]
    fn the_first_place_with_configuration_is_read_and_extra_paths_besides() {
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
        assert_eq!(
            config_paths(["zuul.d/a.yaml", "zuul.d/t/.zuul.ignore", "zuul.d/t/b.yaml"], &[]),
            ["zuul.d/a.yaml"]
        );
    }
}
