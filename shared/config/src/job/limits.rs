//! Checks a merged job against the tenant's limits (Z2.2, X13) and for contradictory timeouts. A
//! job that exceeds a limit does not run, even if it was merged before the limit existed.

use super::apply::{JobBuilder, Rejection};
use crate::objects::JobStanza;
use crate::tenant::TenantConfig;
use std::collections::BTreeSet;

/// Returns an error for every limit of the tenant that a merged job exceeds, each once: labels that
/// are not allowed, too many nodes, and timeouts that are too long. `name` is the job's name. Nodes
/// are not checked if the job runs on a static host. The errors are marked as reported elsewhere,
/// because the reference checks of the layout also report them at the attribute.
pub(super) fn tenant_limit_errors(
    building: &JobBuilder<'_>,
    tenant: &TenantConfig,
    name: &str,
) -> Vec<Rejection> {
    let job = &building.job;
    let mut found: BTreeSet<(&'static str, String)> = BTreeSet::new();
    // A static host uses no nodes of the pool (Z8.1).
    for set in job.nodesets.iter().filter(|_| job.run_time.host.is_none()) {
        let labels = set.nodes.iter().filter_map(|node| tenant.label_refusal(node.label.as_str()));
        found.extend(labels.chain(tenant.nodes_refusal(set)).map(|message| ("nodeset", message)));
    }
    let timeouts = [
        ("timeout", job.timeout_seconds),
        ("pre-timeout", job.pre_timeout_seconds),
        ("post-timeout", job.post_timeout_seconds),
    ];
    let timeouts = timeouts.into_iter();
    found.extend(
        timeouts.filter_map(|(word, seconds)| Some((word, tenant.timeout_refusal(name, seconds)?))),
    );
    found
        .into_iter()
        .map(|(attribute, message)| Rejection { attribute, message, is_reported_elsewhere: true })
        .collect()
}

/// Returns the error if the pre-timeout of a merged job is longer than its timeout; `None` if it is
/// not, or if one of them is not set. `definitions` are the definitions and entries in order of
/// application. The error names the timeout attribute of the last definition that sets one of the
/// two: `pre-timeout` if that definition sets both.
pub(super) fn timeout_error<'j>(
    building: &JobBuilder<'_>,
    name: &str,
    definitions: impl DoubleEndedIterator<Item = &'j JobStanza>,
) -> Option<Rejection> {
    let job = &building.job;
    let message = pre_timeout_error(name, job.pre_timeout_seconds, job.timeout_seconds)?;
    let last = definitions
        .rev()
        .find_map(|stanza| ["pre-timeout", "timeout"].into_iter().find(|word| sets(stanza, word)));
    Some(Rejection::of(last.unwrap_or("pre-timeout"), message))
}

/// Returns the message of the error if the pre-timeout is longer than the timeout (Z4.3); `None` if
/// it is not, or if one of them is not set.
pub(crate) fn pre_timeout_error(
    job: &str,
    pre_seconds: Option<u64>,
    seconds: Option<u64>,
) -> Option<String> {
    let (pre, whole) = (pre_seconds?, seconds?);
    (pre > whole).then(|| {
        format!(
            "The job \"{job}\" has a pre-timeout of {pre} seconds, which exceeds its timeout \
                 of {whole} seconds"
        )
    })
}

/// Returns whether a definition or entry sets `attribute`: `nodeset`, `timeout`, `pre-timeout`,
/// `post-timeout`, `ansible-version` or `image-build-name`. `false` for any other attribute, set or
/// not.
pub(super) fn sets(job: &JobStanza, attribute: &str) -> bool {
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
