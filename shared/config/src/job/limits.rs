//! What a job asks for that its tenant does not let jobs have: it is not run, however long ago it
//! was merged (Z2.2, X13); and times that contradict each other.

use super::apply::{Building, Refused};
use crate::objects::JobStanza;
use crate::tenant::TenantConfig;
use std::collections::BTreeSet;

/// Returns every limit of the tenant that a job exceeds with all its definitions merged, each once.
///
/// Who wrote it is told by the checks of references as well, where it stands.
pub(super) fn exceeded(building: &Building<'_>, tenant: &TenantConfig, name: &str) -> Vec<Refused> {
    let job = &building.job;
    let mut found: BTreeSet<(&'static str, String)> = BTreeSet::new();
    // A host of one's own asks nothing of the pool (Z8.1).
    for set in job.nodesets.iter().filter(|_| job.run_time.host.is_none()) {
        let labels = set.nodes.iter().filter_map(|node| tenant.refuses_label(node.label.as_str()));
        found.extend(labels.chain(tenant.refuses_nodes(set)).map(|message| ("nodeset", message)));
    }
    let timeouts = [
        ("timeout", job.timeout_seconds),
        ("pre-timeout", job.pre_timeout_seconds),
        ("post-timeout", job.post_timeout_seconds),
    ];
    let timeouts = timeouts.into_iter();
    found.extend(
        timeouts.filter_map(|(word, seconds)| Some((word, tenant.refuses_timeout(name, seconds)?))),
    );
    found
        .into_iter()
        .map(|(attribute, message)| Refused { attribute, message, is_told: true })
        .collect()
}

/// Returns why a job with all its definitions merged contradicts itself by its times. `said` are
/// those who speak, in order: blamed is what was said last.
pub(super) fn contradicted<'j>(
    building: &Building<'_>,
    name: &str,
    said: impl DoubleEndedIterator<Item = &'j JobStanza>,
) -> Option<Refused> {
    let job = &building.job;
    let message = outlasts(name, job.pre_timeout_seconds, job.timeout_seconds)?;
    let last = said
        .rev()
        .find_map(|stanza| ["pre-timeout", "timeout"].into_iter().find(|word| says(stanza, word)));
    Some(Refused::of(last.unwrap_or("pre-timeout"), message))
}

/// Returns why a job may not let its pre-run take so long: the job as a whole would end sooner
/// (Z4.3).
pub(crate) fn outlasts(
    job: &str,
    pre_seconds: Option<u64>,
    seconds: Option<u64>,
) -> Option<String> {
    let (pre, whole) = (pre_seconds?, seconds?);
    (pre > whole).then(|| {
        format!("The job \"{job}\" has a pre-timeout of {pre} seconds, which may be at most its timeout of {whole}")
    })
}

/// Returns whether a definition or an entry says something of one of the attributes that are told
/// of here.
pub(super) fn says(job: &JobStanza, attribute: &str) -> bool {
    match attribute {
        "nodeset" => job.nodeset.is_some(),
        "timeout" => job.timeout_seconds.is_some(),
        "pre-timeout" => job.pre_timeout_seconds.is_some(),
        "post-timeout" => job.post_timeout_seconds.is_some(),
        "ansible-version" => job.ansible_version.is_some(),
        "image-build-name" => job.image_build_name.is_some(),
        _ => false,
    }
}
