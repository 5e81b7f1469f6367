//! `sluice provider thaw`: a provider whose records could not be decided on goes on.

use super::operator;
use crate::say::say;
use anyhow::bail;
use sluice_aws::OsEntropy;
use sluice_model::ProviderName;
use sluice_model::poke::Poke;
use sluice_records::provider;
use sluice_runtime::quarantine::{frozen_because, frozen_key};
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Entropy as _, cell};
use std::path::PathBuf;

/// Lets a frozen provider go on. What is still unreadable has it frozen again after a few looks.
///
/// # Errors
/// When it is not frozen, or the store does not answer.
pub async fn thaw(data: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let provider = ProviderName(name.to_owned());
    let partition = provider::partition(&provider);
    let Some(why) = frozen_because(&ports, &partition).await? else {
        bail!(
            "the provider {name} is not frozen (`sluice status` shows those that are, by their canonical names)"
        );
    };
    let write = Write::Delete { key: frozen_key(&partition), expect: Expect::Anything };
    ports.records.commit(vec![write], &OsEntropy.token()).await?;
    cell::send(&ports, &[Poke::Pool { provider }]).await?;
    say!("The provider {name} goes on.");
    say!("It was frozen because {why}");
    Ok(())
}
