//! `sluice provider resume`: resumes a halted provider.

use super::operator;
use crate::output::print_line;
use anyhow::bail;
use sluice_aws::OsEntropy;
use sluice_model::ProviderName;
use sluice_model::wakeup::Wakeup;
use sluice_records::provider;
use sluice_runtime::quarantine::{halt_key, halt_reason};
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Entropy as _, cell};
use std::path::PathBuf;

/// Resumes a halted provider: deletes its halt mark, wakes the launcher, and prints why it was
/// halted. `name` is the canonical name. Repairs nothing: it halts again after a few attempts if
/// its records are still unreadable.
///
/// # Errors
/// When the provider is not halted, or the store does not answer.
pub async fn resume(data: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let provider = ProviderName(name.to_owned());
    let partition = provider::partition(&provider);
    let Some(why) = halt_reason(&ports, &partition).await? else {
        bail!(
            "could not resume the provider {name}: it is not halted (`sluice status` lists halted providers by canonical name)"
        );
    };
    let write = Write::Delete { key: halt_key(&partition), expect: Expect::Anything };
    ports.records.commit(vec![write], &OsEntropy.token()).await?;
    cell::send(&ports, &[Wakeup::Pool { provider }]).await?;
    print_line!("Resumed the provider {name}.");
    print_line!("It was halted because {why}");
    Ok(())
}
