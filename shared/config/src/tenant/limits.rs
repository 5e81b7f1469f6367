//! The tenant's limits for jobs and secrets (Z2.2): labels, nodes, timeouts and tokens.
//!
//! A definition that exceeds a limit is reported where it is written. A job that was merged before
//! the limit existed does not run.

use super::TenantConfig;
use crate::objects::SecretStanza;
use sluice_model::job::NodeSet;

impl TenantConfig {
    /// Returns why a job may not use a label; `None` if it may.
    pub(crate) fn refuses_label(&self, label: &str) -> Option<String> {
        let is_one_of =
            |list: &Vec<crate::Pattern>| list.iter().any(|pattern| pattern.matches_whole(label));
        let is_allowed = self.allowed_labels.as_ref().is_none_or(is_one_of);
        let is_disallowed = self.disallowed_labels.as_ref().is_some_and(is_one_of);
        let is_refused = !is_allowed || is_disallowed;
        is_refused.then(|| {
            format!(
                "Label named \"{label}\" is not part of the allowed labels of tenant {}",
                self.name
            )
        })
    }

    /// Returns why a nodeset has too many nodes; `None` if it does not.
    pub(crate) fn refuses_nodes(&self, set: &NodeSet) -> Option<String> {
        let limit = self.max_nodes_per_job?;
        let count = set.nodes.len();
        (count > usize::try_from(limit).unwrap_or(usize::MAX)).then(|| {
            format!("The nodeset exceeds tenant max-nodes-per-job {limit}: it has {count} nodes")
        })
    }

    /// Returns why a job's timeout is too long; `None` if it is not.
    pub(crate) fn refuses_timeout(&self, job: &str, seconds: Option<u64>) -> Option<String> {
        let limit = self.max_job_timeout_seconds?;
        seconds
            .is_some_and(|seconds| seconds > limit)
            .then(|| format!("The job \"{job}\" exceeds tenant max-job-timeout {limit}."))
    }

    /// Returns why a token's lifetime is too long; `None` if it is not.
    pub(crate) fn refuses_lifetime(&self, secret: &SecretStanza) -> Option<String> {
        let (limit, ttl) = (self.max_oidc_ttl_seconds?, secret.oidc.as_ref()?.ttl_seconds?);
        (ttl > limit).then(|| {
            format!(
                "The secret \"{}\" exceeds tenant max-oidc-ttl {limit}: its ttl is {ttl}",
                secret.name
            )
        })
    }

    /// Returns why a token's issuer is not allowed; `None` if it is.
    pub(crate) fn refuses_issuer(&self, secret: &SecretStanza) -> Option<String> {
        let issuer = secret.oidc.as_ref()?.issuer.as_ref()?;
        (!self.allowed_oidc_issuers.contains(issuer)).then(|| {
            format!(
                "The secret \"{}\" uses the issuer {issuer}, which is not in allowed-oidc-issuers \
                 of tenant {}",
                secret.name, self.name
            )
        })
    }
}
