//! What a tenant includes (Z2.5): files that lie beside the main configuration, stored with it and
//! parsed once for each content, and the commit that their jobs' playbooks and roles are.

use crate::Tenants;
use sluice_config::fragment::{self, Fragment, SourceFile};
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantConfig;
use sluice_model::git::BranchState;
use sluice_records::included::{self, Included, IncludedFiles};
use sluice_runtime::batch::LookError;
use std::sync::Arc;

/// The files that a tenant includes.
pub(crate) enum Beside {
    /// As they were stored with the main configuration, and its text, which says where each is
    /// named.
    Stored {
        /// The main configuration.
        main: String,
        /// Every file that lies beside it.
        files: IncludedFiles,
    },
    /// As the live layout has them: what the main configuration says now does not count.
    AsLive(Vec<Arc<Fragment>>),
}

impl Tenants {
    /// Returns the files that a tenant of a main configuration includes, and the commit beside
    /// them.
    pub(crate) async fn beside(
        &self,
        config: &TenantConfig,
        main: &str,
    ) -> Result<(Beside, Option<BranchState>), LookError> {
        let Included { files, beside } = match config.included {
            Some(_) => included::load(&self.ports, main).await?,
            None => Included::default(),
        };
        Ok((Beside::Stored { main: main.to_owned(), files }, beside))
    }
}

impl Beside {
    /// Returns what a layout has of them.
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

    /// Returns them parsed, in the tenant's order; what is missing is told among them.
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
                config.included_fragments(("main.yaml", main), files, parse)
            }
            Self::AsLive(fragments) => fragments.clone(),
        }
    }
}
