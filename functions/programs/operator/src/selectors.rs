//! The arguments by which commands select a tenant, a pipeline, a project, a change or a ref.

use crate::api_client::SystemArguments;
use anyhow::{Context as _, ensure};
use clap::Args;

/// Selects a tenant of a system.
#[derive(Debug, Clone, Default, Args)]
pub struct TenantSelector {
    /// The system and the output format.
    #[command(flatten)]
    pub system: SystemArguments,
    /// Tenant [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

/// Selects a pipeline of a tenant.
#[derive(Debug, Clone, Default, Args)]
pub struct PipelineSelector {
    /// The tenant.
    #[command(flatten)]
    pub within: TenantSelector,
    /// Pipeline
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: String,
}

/// Selects a change in a pipeline.
#[derive(Debug, Clone, Default, Args)]
pub struct ChangeSelector {
    /// The pipeline.
    #[command(flatten)]
    pub within: PipelineSelector,
    /// Change: `org/project#7`, or `7` with --project. `7,REVISION` is that revision of it only
    pub change: String,
    /// Project, by short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
}

/// Selects a branch or tag in a pipeline.
#[derive(Debug, Clone, Default, Args)]
pub struct RefSelector {
    /// The pipeline.
    #[command(flatten)]
    pub within: PipelineSelector,
    /// Branch, or full ref such as refs/tags/1.0
    #[arg(value_name = "REF")]
    pub name: String,
    /// Project, by short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
}

/// A change as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedChange {
    /// The project, by short or canonical name.
    pub(super) project: String,
    /// The number, or `number,revision`.
    pub(super) change: String,
}

impl ChangeSelector {
    /// Returns the project and the number of the change. Whether they exist is not checked.
    ///
    /// # Errors
    /// When no project is named, or two.
    pub(super) fn named(&self) -> anyhow::Result<NamedChange> {
        let (in_name, change) = match self.change.rsplit_once('#') {
            Some((project, change)) => (Some(project), change),
            None => (None, self.change.as_str()),
        };
        let project = match (in_name, self.project.as_deref()) {
            (Some(named), Some(project)) => {
                ensure!(
                    named == project,
                    "could not use {:?}: --project names another project, {project}",
                    self.change
                );
                project
            }
            (named, project) => named.or(project).filter(|name| !name.is_empty()).with_context(|| {
                format!(
                    "could not use {:?} as a change: name its project too, as in `org/project#7`, or with --project",
                    self.change
                )
            })?,
        };
        Ok(NamedChange { project: project.to_owned(), change: change.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1, R06: a change is named with its project in one word, or with an option.
    #[test]
    fn a_change_is_named_with_its_project() {
        let named = |change: &str, project: Option<&str>| {
            let project = project.map(str::to_owned);
            ChangeSelector { change: change.to_owned(), project, ..ChangeSelector::default() }
                .named()
        };
        let expected =
            |change: &str| NamedChange { project: "org/one".to_owned(), change: change.to_owned() };
        assert_eq!(named("org/one#7", None).unwrap(), expected("7"));
        assert_eq!(named("7,abc", Some("org/one")).unwrap(), expected("7,abc"));
        assert_eq!(named("org/one#7", Some("org/one")).unwrap(), expected("7"));
        for (change, project) in [("7", None), ("#7", None), ("org/one#7", Some("org/two"))] {
            assert!(named(change, project).is_err(), "{change}");
        }
    }
}
