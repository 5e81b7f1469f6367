//! Files of variables that a job names (`include-vars`): read from the tested state before anything
//! of the job runs.
//!
//! What they say stands below the job's own variables and above what parents returned; a later file
//! overrides an earlier one. From there on it is treated as the job's own is: expanded with it,
//! restricted with it (see [`crate::steering`]).

use crate::beneath;
use crate::job::{Job, Sources};
use crate::jobdir::Jobdir;
use crate::workspace::{WorkspaceError, choose_branch, place_aside, states_of};
use serde::Deserialize;
use serde_json::{Map, Value};
use sluice_model::git::{BranchKey, BranchState, Oid};
use sluice_model::job::{FrozenJob, IncludeVars};
use sluice_model::{BranchName, ProjectName};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Bytes of one file of variables.
const BYTES_MAX: u64 = 1 << 20;

/// Why a job's files of variables do not give what they are to give.
#[derive(Debug, thiserror::Error)]
pub enum IncludeError {
    /// A repository is missing.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// There is no such file, and the job does not do without.
    #[error(
        "{project}@{branch} has no file {name} of variables, which the job needs (include-vars): add it, or say required: false"
    )]
    Missing {
        /// The project.
        project: ProjectName,
        /// The branch.
        branch: BranchName,
        /// The path within it.
        name: String,
    },
    /// The file is there, and is no mapping of variables.
    #[error("{name} of {project}@{branch} cannot be read as variables (include-vars): {why}")]
    Unreadable {
        /// The project.
        project: ProjectName,
        /// The branch.
        branch: BranchName,
        /// The path within it.
        name: String,
        /// What is the matter; nothing of its text.
        why: String,
    },
}

/// Returns the frozen job with the variables of its files below its own; as it is where it names
/// none.
///
/// # Errors
/// When a file that it needs is not there, or one cannot be read.
pub async fn with_files<'j>(
    job: &Job<'j>,
    sources: &dyn Sources,
    jobdir: &Jobdir,
) -> Result<Cow<'j, FrozenJob>, IncludeError> {
    let mut shelf =
        Shelf { job, sources, root: jobdir.root.join("variables"), placed: BTreeMap::new() };
    let mut vars = Map::new();
    for file in &job.job.run_time.include_vars {
        vars.extend(shelf.read(file).await?);
    }
    if vars.is_empty() {
        return Ok(Cow::Borrowed(job.job));
    }
    let mut whole = job.job.clone();
    vars.append(&mut whole.vars);
    whole.vars = vars;
    Ok(Cow::Owned(whole))
}

/// Checkouts that files share, where no playbook looks.
struct Shelf<'a, 'j> {
    job: &'a Job<'j>,
    sources: &'a dyn Sources,
    root: PathBuf,
    placed: BTreeMap<(ProjectName, Oid), PathBuf>,
}

impl Shelf<'_, '_> {
    async fn read(&mut self, file: &IncludeVars) -> Result<Map<String, Value>, IncludeError> {
        let (connection, project) = file.source.project(&self.job.order.change.key);
        let state = state_for(self.job, file, project)
            .ok_or_else(|| WorkspaceError::NotPrepared { project: project.clone() })?;
        let commit = file.commit.as_ref().unwrap_or(&state.result.id);
        let branch = state.branch.branch.clone();
        let key = (project.clone(), commit.clone());
        let checkout = match self.placed.get(&key) {
            Some(path) => path.clone(),
            None => {
                let path = self.root.join(format!("project_{}", self.placed.len()));
                let branch = BranchKey { project: project.clone(), branch: branch.clone() };
                place_aside(self.sources, connection, self.job.speculation, &branch, commit, &path)
                    .await?;
                self.placed.insert(key, path.clone());
                path
            }
        };
        let (project, name) = (project.clone(), file.name.clone());
        match beneath::read_text(&checkout, Path::new(&file.name), BYTES_MAX) {
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

/// Returns the branch that a file is read from: of the ref that the build is of, else beside the
/// definition that asks for it, else as for any other repository of the job.
fn state_for<'j>(
    job: &Job<'j>,
    file: &IncludeVars,
    project: &ProjectName,
) -> Option<&'j BranchState> {
    let own = &job.order.change;
    let states = || states_of(job.speculation, project).into_iter();
    let is_of_ref = own.key.moved().is_some() && own.key.project == *project;
    if is_of_ref && file.use_ref {
        return states().find(|state| state.branch.branch == own.branch);
    }
    let chosen = choose_branch(job, project, file.source.branch()).map(|(state, _)| state);
    let is_tag =
        |state: &&BranchState| own.on_branch().is_none() && state.branch.branch == own.branch;
    if is_of_ref && chosen.as_ref().is_some_and(is_tag) {
        // A tag's own tree was not wanted.
        return states().find(|state| !is_tag(state));
    }
    chosen
}

/// Reads variables out of YAML, of which JSON is a part. A file that says nothing has none.
fn variables(text: &str) -> Result<Map<String, Value>, String> {
    let mut yaml: serde_yaml::Value =
        serde_yaml::from_str(text).map_err(|error| place_of(&error))?;
    yaml.apply_merge().map_err(|error| place_of(&error))?;
    match Value::deserialize(yaml) {
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::Object(vars)) => match vars.keys().find(|name| !is_name(name)) {
            Some(name) => {
                Err(format!("\"{name}\" is no name of a variable: letters, digits and _ make one"))
            }
            None => Ok(vars),
        },
        Ok(_) => Err("it is no mapping of names to values".to_owned()),
        Err(_) => Err("it has a tag, or a key that is no text".to_owned()),
    }
}

/// Returns where a text stops being YAML; what it says there may be somebody's password.
fn place_of(error: &serde_yaml::Error) -> String {
    match error.location() {
        Some(place) => format!("it is no YAML at line {}, column {}", place.line(), place.column()),
        None => "it is no YAML".to_owned(),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z4.3
    #[test]
    fn variables_are_read_from_yaml_and_json_and_nothing_is_told_of_what_is_wrong_but_its_place() {
        let read = |text: &str| variables(text).map(Value::Object);
        assert_eq!(read("a: 1\nb: {c: [x]}\n"), Ok(json!({"a": 1, "b": {"c": ["x"]}})));
        assert_eq!(read("{\"a\": null}"), Ok(json!({"a": null})));
        assert_eq!(
            read("base: &b {x: 1}\nmore:\n  <<: *b\n  y: 2\n").unwrap()["more"],
            json!({"x": 1, "y": 2})
        );
        assert_eq!(read(""), Ok(json!({})));
        assert_eq!(read("# nothing\n"), Ok(json!({})));
        for (text, told) in [
            ("- a\n", "it is no mapping of names to values"),
            ("word\n", "it is no mapping of names to values"),
            ("a: !vault x\n", "it has a tag, or a key that is no text"),
            ("a-b: x\n", "\"a-b\" is no name of a variable: letters, digits and _ make one"),
        ] {
            assert_eq!(read(text), Err(told.to_owned()), "{text}");
        }
        let broken = read("a: b\npassword: [hunter2\n").unwrap_err();
        assert!(
            broken.starts_with("it is no YAML at line ") && !broken.contains("hunter2"),
            "{broken}"
        );
    }
}
