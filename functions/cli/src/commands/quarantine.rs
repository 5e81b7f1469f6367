//! `sluice quarantine`: what was set aside because nobody could read it.

use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::quarantine::{QUARANTINE, SetAside};
use sluice_runtime::record::Query;
use std::path::PathBuf;

/// Messages that are shown at most.
const SHOWN_MAX: usize = 200;

/// Shows what is in quarantine: where it came from, when and why. Its text is shown only on request, since it is a stranger's.
///
/// # Errors
/// When the store does not answer.
pub async fn list(data: Option<PathBuf>, with_text: bool) -> anyhow::Result<()> {
    let ports = super::operator(data).await?;
    let kept = read(&ports).await?;
    for (name, aside) in &kept {
        println!("{} {}: {}", aside.at.to_iso(), name.replace('#', " "), aside.reason);
        if with_text {
            println!("{}\n", aside.body);
        }
    }
    match kept.len() {
        0 => println!("Nothing is in quarantine."),
        SHOWN_MAX => println!("There may be more; the first {SHOWN_MAX} are shown."),
        _ => {}
    }
    Ok(())
}

/// Reads what is in quarantine, with the queue and the message's id as its name.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn read(ports: &Ports) -> anyhow::Result<Vec<(String, SetAside)>> {
    let records = ports.records.query(&Query::prefix(QUARANTINE, "", SHOWN_MAX)).await?;
    let kept = records.into_iter().map(|record| Ok((record.key.sort.clone(), decode(&record)?)));
    kept.collect()
}
