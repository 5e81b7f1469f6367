//! The tenant's limits for jobs and secrets (Z2.2): labels, nodes, timeouts and tokens.
//!
//! A definition that exceeds a limit is reported where it is written. A job that was merged before
//! the limit existed does not run.

use super::TenantConfig;
use crate::objects::SecretStanza;
use sluice_model::job::NodeSet;

/// The algorithm that signs OIDC tokens.
const OIDC_ALGORITHM: &str = "RS256";

impl TenantConfig {
    /// Returns why a job may not use a label, as a message: the tenant has `allowed-labels` and the
    /// label matches none, or it matches one of `disallowed-labels`. `None` if it may. A pattern
    /// must match the whole label.
    pub(crate) fn label_refusal(&self, label: &str) -> Option<String> {
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

    /// Returns why a job may not use a nodeset, as a message: it has more nodes than the tenant's
    /// `max-nodes-per-job`. `None` if it may, or without a limit.
    pub(crate) fn nodes_refusal(&self, set: &NodeSet) -> Option<String> {
        let limit = self.max_nodes_per_job?;
        let count = set.nodes.len();
        (count > usize::try_from(limit).unwrap_or(usize::MAX)).then(|| {
            format!("The nodeset exceeds tenant max-nodes-per-job {limit}: it has {count} nodes")
        })
    }

    /// Returns why a timeout of the job with this name is refused, as a message: it exceeds the
    /// tenant's `max-job-timeout`. `None` if not, or without a timeout or a limit.
    pub(crate) fn timeout_refusal(&self, job: &str, seconds: Option<u64>) -> Option<String> {
        let limit = self.max_job_timeout_seconds?;
        seconds
            .is_some_and(|seconds| seconds > limit)
            .then(|| format!("The job \"{job}\" exceeds tenant max-job-timeout {limit}."))
    }

    /// Returns why a secret is refused, as a message: the lifetime of its OIDC token exceeds the
    /// tenant's `max-oidc-ttl`. `None` if not, if the secret is no token or sets no lifetime, or
    /// without a limit.
    pub(crate) fn lifetime_refusal(&self, secret: &SecretStanza) -> Option<String> {
        let (limit, ttl) = (self.max_oidc_ttl_seconds?, secret.oidc.as_ref()?.ttl_seconds?);
        (ttl > limit).then(|| {
            format!(
                "The secret \"{}\" exceeds tenant max-oidc-ttl {limit}: its ttl is {ttl}",
                secret.name
            )
        })
    }

    /// Returns the lifetime in seconds of an OIDC token whose secret sets none: three hours, or the
    /// tenant's `max-oidc-ttl` if that is less.
    pub(crate) fn default_token_lifetime(&self) -> u64 {
        let default = u64::from(super::OIDC_TTL_SECONDS);
        self.max_oidc_ttl_seconds.map_or(default, |limit| limit.min(default))
    }

    /// Returns why a secret is refused, as a message: its OIDC token is signed with another
    /// algorithm than the supported one. `None` if not, or if the secret is no token.
    pub(crate) fn algorithm_refusal(&self, secret: &SecretStanza) -> Option<String> {
        let algorithm = secret.oidc.as_ref()?.algorithm.as_ref()?;
        (algorithm != OIDC_ALGORITHM).then(|| {
            format!(
                "The secret \"{}\" requests a token with the algorithm {algorithm}; only \
                 {OIDC_ALGORITHM} is supported",
                secret.name
            )
        })
    }

    /// Returns why a secret is refused, as a message: the issuer of its OIDC token is not one of
    /// the tenant's `allowed-oidc-issuers`. `None` if it is, or if the secret is no token or names
    /// no issuer. An empty list allows no issuer.
    pub(crate) fn issuer_refusal(&self, secret: &SecretStanza) -> Option<String> {
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
