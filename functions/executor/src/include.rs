//! Reads the variable files of a job (`include-vars`) from the tested state before the job runs.
//!
//! These variables override data returned by parents and are overridden by the job's own variables;
//! a later file overrides an earlier one. Afterwards they are treated like job variables: expanded
//! and restricted with them (see [`crate::restricted_vars`]).

use crate::confined_files;
use crate::job::{JobAttempt, RepositorySources};
use crate::jobdir::Jobdir;
use crate::vars::to_map;
use crate::workspace::{WorkspaceError, checkout_outside_workspace, choose_branch, states_of};
use serde_json::{Map, Value};
use sluice_config::yaml::{self, Node, compose_within};
use sluice_model::git::{BranchKey, BranchState, Oid};
use sluice_model::job::{FrozenJob, IncludeVars};
use sluice_model::{BranchName, ProjectName};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The maximum size of one variable file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// How much one variable file may hold. Aliases make gigabytes of a few kilobytes.
const LIMITS: yaml::SizeLimits = yaml::SizeLimits { nodes: 100_000, text_bytes: 4 << 20 };

/// Why a variable file of a job could not be used.
#[derive(Debug, thiserror::Error)]
pub enum IncludeError {
    /// A repository is missing.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A required file does not exist.
    #[error(
        "{project}@{branch} has no variable file {name}, which the job requires (include-vars): add it, or set required: false"
    )]
    Missing {
        /// The project.
        project: ProjectName,
        /// The branch.
        branch: BranchName,
        /// The path within it.
        name: String,
    },
    /// The file exists but is not a mapping of variables.
    #[error("{name} of {project}@{branch} cannot be read as variables (include-vars): {why}")]
    Unreadable {
        /// The project.
        project: ProjectName,
        /// The branch.
        branch: BranchName,
        /// The path within it.
        name: String,
        /// The cause, without quoting the file.
        why: String,
    },
}

/// Returns the frozen job with the variables of its `include-vars` files added; works once for each
/// job directory. A later file overrides an earlier one, and the job's own variables override all.
/// Returns the job unchanged if the files have no variables. An error if a required file is
/// missing, a file cannot be read as variables, or its repository is not in the tested state or
/// cannot be checked out.
pub async fn add_file_vars<'j>(
    job: &JobAttempt<'j>,
    sources: &dyn RepositorySources,
    jobdir: &Jobdir,
) -> Result<Cow<'j, FrozenJob>, IncludeError> {
    let mut checkouts =
        VarsCheckouts { job, sources, root: jobdir.root.join("variables"), paths: BTreeMap::new() };
    let mut vars = Map::new();
    for file in &job.job.run_time.include_vars {
        vars.extend(checkouts.read(file).await?);
    }
    if vars.is_empty() {
        return Ok(Cow::Borrowed(job.job));
    }
    let mut whole = job.job.clone();
    vars.append(&mut whole.vars);
    whole.vars = vars;
    Ok(Cow::Owned(whole))
}

/// Checkouts for variable files, one per project and commit, outside of all playbooks' reach.
struct VarsCheckouts<'a, 'j> {
    /// The attempt whose variables files are read.
    job: &'a JobAttempt<'j>,
    /// Provides the packs of repositories.
    sources: &'a dyn RepositorySources,
    /// The directory for the checkouts.
    root: PathBuf,
    /// The checkouts so far, by project and commit.
    paths: BTreeMap<(ProjectName, Oid), PathBuf>,
}

impl VarsCheckouts<'_, '_> {
    /// Reads one variable file from its repository, which it checks out if necessary: at the commit
    /// that the job records for it, otherwise at the tested one. Empty if the file has no
    /// variables, or is optional and does not exist. An error if a required file is missing, the
    /// tested state lacks the repository, or a file, also an optional one, is a link, has more than
    /// 1 MiB or holds no variables.
    async fn read(&mut self, file: &IncludeVars) -> Result<Map<String, Value>, IncludeError> {
        let (connection, project) = file.source.project(&self.job.order.change.key);
        let state = branch_of_file(self.job, file, project)
            .ok_or_else(|| WorkspaceError::NotPrepared { project: project.clone() })?;
        let commit = file.commit.as_ref().unwrap_or(&state.result.id);
        let branch = state.branch.branch.clone();
        let key = (project.clone(), commit.clone());
        let checkout = match self.paths.get(&key) {
            Some(path) => path.clone(),
            None => {
                let path = self.root.join(format!("project_{}", self.paths.len()));
                let branch = BranchKey { project: project.clone(), branch: branch.clone() };
                checkout_outside_workspace(
                    self.sources,
                    connection,
                    self.job.speculation,
                    &branch,
                    commit,
                    &path,
                )
                .await?;
                self.paths.insert(key, path.clone());
                path
            }
        };
        let (project, name) = (project.clone(), file.name.clone());
        match confined_files::read_text(&checkout, Path::new(&file.name), BYTES_MAX) {
            Ok(text) => variables(&text).map_err(|why| IncludeError::Unreadable {
                project,
                branch,
                name,
                why,
            }),
            Err(error) if error.kind() == ErrorKind::NotFound && file.required => {
                Err(IncludeError::Missing { project, branch, name })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Map::new()),
            Err(error) => {
                Err(IncludeError::Unreadable { project, branch, name, why: error.to_string() })
            }
        }
    }
}

/// Returns the state of the branch that a file of `project` is read from. A file in the project of
/// a pushed ref is read from that ref if `use_ref` is set. Otherwise the branch is chosen as for
/// other repositories of the job; if that is the pushed tag of this project, the first other branch
/// or tag of the project is returned. `None` if the tested state has no such branch.
fn branch_of_file<'j>(
    job: &JobAttempt<'j>,
    file: &IncludeVars,
    project: &ProjectName,
) -> Option<&'j BranchState> {
    let change = &job.order.change;
    let states = || states_of(job.speculation, project).into_iter();
    let is_of_ref = change.key.ref_move().is_some() && change.key.project == *project;
    if is_of_ref && file.use_ref {
        return states().find(|state| state.branch.branch == change.branch);
    }
    let chosen = choose_branch(job, project, file.source.branch()).map(|(state, _)| state);
    let is_tag =
        |state: &&BranchState| change.on_branch().is_none() && state.branch.branch == change.branch;
    if is_of_ref && chosen.as_ref().is_some_and(is_tag) {
        // With use_ref unset, the tag's own tree is not used.
        return states().find(|state| !is_tag(state));
    }
    chosen
}

/// Parses variables from YAML or JSON; an empty file has none. Scalars mean what they mean to
/// Ansible: `yes` is true. An error if it is no mapping, holds more than [`LIMITS`], or has an
/// invalid variable name, a key that is no text, a YAML tag or an integer beyond 64 bits. The error
/// does not quote values.
fn variables(text: &str) -> Result<Map<String, Value>, String> {
    let document = compose_within(text, LIMITS).map_err(|error| {
        // Not the parser's message, which may quote a password.
        format!(
            "at line {}, column {} it is not valid YAML, has a tag, or holds more than {} values or {} bytes, those repeated by aliases included",
            error.mark.line(),
            error.mark.column(),
            LIMITS.nodes,
            LIMITS.text_bytes,
        )
    })?;
    if document.is_null() {
        return Ok(Map::new());
    }
    let Some(members) = document.as_map() else {
        return Err("it is not a mapping of names to values".to_owned());
    };
    if !is_plain(&document) {
        return Err("it has a YAML tag, or a key that is not a string".to_owned());
    }
    if let Some(long) = document.first_unheld() {
        return Err(format!("at line {} it has an integer beyond 64 bits", long.start.line()));
    }
    let mut names = members.iter().filter_map(|(name, _)| name.as_text());
    match names.find(|name| !is_name(name)) {
        Some(name) => {
            Err(format!("\"{name}\" is not a valid variable name: use letters, digits and _"))
        }
        None => Ok(to_map(document.to_json())),
    }
}

/// Returns whether a value has no YAML tag and no key that is not a text, at any depth.
fn is_plain(node: &Node) -> bool {
    match &node.value {
        yaml::Value::Tagged(..) => false,
        yaml::Value::List(list) => list.iter().all(is_plain),
        yaml::Value::Map(map) => {
            map.iter().all(|(key, value)| key.as_text().is_some() && is_plain(value))
        }
        _ => true,
    }
}

/// Returns whether a text may be the name of an Ansible variable: only ASCII letters, digits and
/// `_`, and not empty.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z4.3
    #[test]
    fn variables_are_read_from_yaml_and_json_and_errors_do_not_quote_the_file() {
        let read = |text: &str| variables(text).map(Value::Object);
        assert_eq!(read("a: 1\nb: {c: [x]}\n"), Ok(json!({"a": 1, "b": {"c": ["x"]}})));
        assert_eq!(read("{\"a\": null}"), Ok(json!({"a": null})));
        assert_eq!(
            read("base: &b {x: 1}\nmore:\n  <<: *b\n  y: 2\n").unwrap()["more"],
            json!({"x": 1, "y": 2})
        );
        assert_eq!(read(""), Ok(json!({})));
        assert_eq!(read("# nothing\n"), Ok(json!({})));
        for (text, error) in [
            ("- a\n", "it is not a mapping of names to values"),
            ("word\n", "it is not a mapping of names to values"),
            ("a: {1: x}\n", "it has a YAML tag, or a key that is not a string"),
            ("a: 18446744073709551616\n", "at line 1 it has an integer beyond 64 bits"),
            ("a-b: x\n", "\"a-b\" is not a valid variable name: use letters, digits and _"),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text}");
        }
        for text in ["a: b\npassword: [hunter2\n", "a: b\npassword: !hunter2 x\n"] {
            let broken = read(text).unwrap_err();
            assert!(broken.starts_with("at line ") && !broken.contains("hunter2"), "{broken}");
        }
        assert_eq!(read("a: yes\n"), Ok(json!({"a": true})), "as Ansible reads it");
    }

    /// Z4.3: a file of a few kilobytes does not take the executor's memory by its aliases.
    #[test]
    fn what_aliases_repeat_counts() {
        let bomb = |values: usize, repeated: usize| {
            format!("a: &a [{}0]\nb: [{}*a]\n", "0,".repeat(values), "*a,".repeat(repeated))
        };
        assert!(variables(&bomb(100, 100)).is_ok());
        let refused = variables(&bomb(5_000, 5_000)).unwrap_err();
        assert!(refused.contains("more than 100000 values"), "{refused}");
        let long = format!("a: &a {}\nb: [{}*a]\n", "x".repeat(10_000), "*a,".repeat(5_000));
        let refused = variables(&long).unwrap_err();
        assert!(refused.contains("repeated by aliases"), "{refused}");
    }
}
