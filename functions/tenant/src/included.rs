//! Reads the files that a tenant includes (Z2.5): they are stored with the main configuration and
//! parsed once for each content. Also returns the commit with the playbooks and roles of their
//! jobs.

use crate::Tenants;
use sluice_config::fragment::{self, Fragment, SourceFile};
use sluice_config::layout::Layout;
use sluice_config::tenant::{MainConfigText, TenantConfig};
use sluice_model::git::BranchState;
use sluice_records::included_files::{self, IncludedConfig, IncludedFiles};
use sluice_runtime::batch::ReconcileError;
use std::sync::Arc;

/// The files that a tenant includes.
pub(crate) enum TenantIncludes {
    /// As stored with the main configuration, and its text, which names them.
    Stored {
        /// The main configuration.
        main: String,
        /// Every file stored with it.
        files: IncludedFiles,
    },
    /// As in the live layout; the current main configuration is ignored.
    AsLive(Vec<Arc<Fragment>>),
}

impl Tenants {
    /// Reads the files that a tenant includes from what is stored with the main configuration
    /// `main`, and the commit with the playbooks and roles of their jobs. Without included files
    /// there is nothing to read, and no commit.
    pub(crate) async fn included_sources(
        &self,
        config: &TenantConfig,
        main: &str,
    ) -> Result<(TenantIncludes, Option<BranchState>), ReconcileError> {
        let IncludedConfig { files, roles } = match config.included {
            Some(_) => included_files::load(&self.ports, main).await?,
            None => IncludedConfig::default(),
        };
        Ok((TenantIncludes::Stored { main: main.to_owned(), files }, roles))
    }
}

impl TenantIncludes {
    /// Returns the included files that a layout was made from.
    pub(crate) fn of_layout(layout: &Layout) -> Self {
        let is_included = |file: &&Arc<Fragment>| {
            layout
                .tenant()
                .included
                .as_ref()
                .is_some_and(|included| included.name == file.source.project)
        };
        Self::AsLive(layout.fragments().iter().filter(is_included).cloned().collect())
    }

    /// Parses the included files in the tenant's order, and adds a diagnostic for each missing
    /// file. Those of the live layout are returned as they are.
    pub(crate) fn fragments(
        &self,
        config: &TenantConfig,
        live: Option<&Layout>,
    ) -> Vec<Arc<Fragment>> {
        let parse = |file: &SourceFile| match live {
            Some(live) => live.parse(file),
            None => Arc::new(fragment::parse(file)),
        };
        match self {
            Self::Stored { main, files } => {
                let main = MainConfigText { path: "main.yaml", text: main };
                config.included_fragments(main, files, parse)
            }
            Self::AsLive(fragments) => fragments.clone(),
        }
    }
}
