//! The playbooks of a job, which playbook sees which secret, and which gets credentials for which
//! container of object storage (Z4.4, Z4.8, Z4.9, Z5.3). Playbooks nest, and each keeps what its
//! own definition has.

use super::apply::{Form, JobBuilder, Origin, Rejection};
use super::weight;
use crate::fragment::Source;
use crate::objects::{JobStanza, PlaybookRef};
use serde_json::{Map, Value as Json};
use sluice_model::job::{OidcToken, Playbook, RoleUse, SecretUse};
use std::collections::BTreeMap;

type Secrets = BTreeMap<String, SecretUse>;

/// Returns the weight of secrets, in approximate bytes, with the claims of their tokens.
fn weight_of_secrets(secrets: &Secrets) -> usize {
    let token =
        |secret: &SecretUse| secret.oidc.as_ref().map_or(0, |token| weight::of_map(&token.claims));
    secrets
        .values()
        .map(|secret| weight::of_members(1) + weight::of_value(&secret.data) + token(secret))
        .sum()
}

/// Returns the weight of what a role from Ansible Galaxy names, in bytes.
fn weight_of_address(role: &RoleUse) -> usize {
    match role {
        RoleUse::Zuul(_) => 0,
        RoleUse::Galaxy(role) => {
            role.galaxy.len() + role.target_name.as_ref().map_or(0, String::len)
        }
    }
}

impl JobBuilder<'_> {
    /// Appends `pre-run`, puts `post-run` first and replaces `run`, if set, each with the roles,
    /// semaphores and secrets that the playbooks may use. These are the definition's secrets and
    /// those that earlier definitions share (`auth: inherit`); likewise the containers
    /// ([`Self::containers`]). The caller has applied the definition's `roles`. A `job` stanza
    /// without `run` adds an implied playbook to `implied_run`. Secrets mark the job as one that
    /// uses secrets; secrets of an untrusted project also require review and restrict the job to
    /// that project. Secrets with `pass-to-parent` go to the playbooks added before, too, and
    /// require review if one of these is untrusted. An error if a secret is missing or not allowed,
    /// or the budget is spent; then no playbook is added, but the mark, passed secrets and
    /// restrictions may stay.
    pub(super) fn playbooks(
        &mut self,
        from: &JobStanza,
        origin: &Origin<'_>,
    ) -> Result<(), Rejection> {
        let rejection =
            |message| Rejection { attribute: "secrets", message, is_reported_elsewhere: true };
        let (secrets_of_job, passed) = self.secrets(from, origin.source).map_err(rejection)?;
        if !secrets_of_job.is_empty() {
            self.uses_secrets = true;
            // Anyone who can change an untrusted repository could otherwise print its secrets
            // before review.
            if !origin.source.trust.is_trusted() {
                self.require_review(secrets_of_job.values().next().cloned());
            }
        }
        // A parent's untrusted playbook gets a secret from a child: that needs review.
        if !passed.is_empty() && self.named_playbooks().any(|playbook| !playbook.trusted) {
            self.require_review(passed.values().next().cloned());
        }
        let seen = self.job.pre_run.len()
            + self.job.run.len()
            + self.job.post_run.len()
            + self.implied_run.len();
        self.budget.take(seen.saturating_mul(weight_of_secrets(&passed)))?;
        for playbook in self
            .job
            .pre_run
            .iter_mut()
            .chain(&mut self.job.run)
            .chain(&mut self.job.post_run)
            .chain(&mut self.implied_run)
        {
            for (name, secret) in &passed {
                playbook.secrets.entry(name.clone()).or_insert_with(|| secret.clone());
            }
        }
        if !secrets_of_job.is_empty() && !origin.source.trust.is_trusted() {
            // The playbooks see the secrets now, so no other repository may use the job, whatever
            // its `allowed-projects` says.
            self.allow_only(vec![origin.source.project.clone()]);
        }
        let mut secrets = self.shared_secrets.clone();
        secrets.extend(secrets_of_job.clone());
        if from.auth_inherit == Some(true) {
            self.shared_secrets.extend(secrets_of_job);
        }
        let containers = self.containers(from)?;
        // Each playbook stores the secrets it sees.
        let lists = [&from.pre_run, &from.run, &from.post_run];
        let count: usize = lists.into_iter().flatten().map(Vec::len).sum::<usize>() + 1;
        let of_addresses: usize = self.roles.iter().map(weight_of_address).sum();
        let each = weight::of_members(1 + self.roles.len() + containers.len())
            + of_addresses
            + weight_of_secrets(&secrets);
        self.budget.take(count.saturating_mul(each))?;
        let is_trusted = origin.source.trust.is_trusted();
        // What an untrusted project lets `ansible-galaxy` install never runs with the rights of a
        // config project. Its repositories are used as they were merged.
        let is_seen = |role: &&RoleUse| match role {
            RoleUse::Zuul(_) => true,
            RoleUse::Galaxy(role) => role.trusted || !is_trusted,
        };
        let make = |playbook: &PlaybookRef| Playbook {
            connection: origin.source.connection.clone(),
            project: origin.source.project.clone(),
            branch: origin.source.branch.clone(),
            commit: None,
            path: playbook.path.clone(),
            trusted: is_trusted,
            roles: self.roles.iter().filter(is_seen).cloned().collect(),
            secrets: secrets.clone(),
            containers: containers.clone(),
            semaphores: playbook.semaphores.clone(),
            cleanup: playbook.cleanup,
            preserve_home_paths: from.run_time.preserve_home_paths.clone().unwrap_or_default(),
            nesting_level: origin.depth,
        };
        let all =
            |list: &Option<Vec<PlaybookRef>>| list.iter().flatten().map(make).collect::<Vec<_>>();
        let (pre_run, run, mut post_run) =
            (all(&from.pre_run), all(&from.run), all(&from.post_run));
        if from.run.is_none() && origin.form == Form::Definition {
            let implied = make(&PlaybookRef {
                path: from.name.clone(),
                semaphores: Vec::new(),
                cleanup: false,
            });
            self.implied_run.insert(0, implied);
        }
        self.job.pre_run.extend(pre_run);
        if from.run.is_some() {
            self.job.run = run;
        }
        post_run.append(&mut self.job.post_run);
        self.job.post_run = post_run;
        Ok(())
    }

    /// Returns the containers of object storage that the playbooks of a definition get credentials
    /// for (Z4.8): those that it requests, otherwise those that an earlier one shares with
    /// `auth: inherit`. What a definition or entry without playbooks of its own requests goes to
    /// the playbooks added before; only config projects write such a request. An error if the
    /// budget is spent.
    fn containers(&mut self, from: &JobStanza) -> Result<Vec<String>, Rejection> {
        let Some(requested) = &from.run_time.containers else {
            return Ok(self.shared_containers.clone());
        };
        if from.auth_inherit == Some(true) {
            self.shared_containers.clone_from(requested);
        }
        if from.pre_run.is_none() && from.run.is_none() && from.post_run.is_none() {
            let before = self.named_playbooks().count() + self.implied_run.len();
            self.budget.take(before.saturating_mul(weight::of_members(requested.len())))?;
            for playbook in self
                .job
                .pre_run
                .iter_mut()
                .chain(&mut self.job.run)
                .chain(&mut self.job.post_run)
                .chain(&mut self.implied_run)
            {
                playbook.containers.clone_from(requested);
            }
        }
        Ok(requested.clone())
    }

    /// Returns two maps by the name under which playbooks see a secret: first the secrets that a
    /// definition requests, then those of them that it passes to its parents. A secret with an OIDC
    /// token has no other data. The error is a message: a secret is not defined in the project of
    /// `source`, the definition's file, or its token's lifetime, issuer or algorithm is not
    /// allowed.
    fn secrets(&self, from: &JobStanza, source: &Source) -> Result<(Secrets, Secrets), String> {
        let mut requested_secrets = Secrets::new();
        let mut passed = Secrets::new();
        for requested in from.secrets.iter().flatten() {
            let found = self
                .layout
                .secret(&requested.secret)
                .filter(|found| found.source().project == source.project);
            let Some(found) = found else {
                return Err(format!(
                    "The secret \"{}\" was not found in {}.",
                    requested.secret, source.project
                ));
            };
            let secret = found.object;
            let tenant = self.layout.tenant();
            let refusal = tenant
                .lifetime_refusal(secret)
                .or_else(|| tenant.issuer_refusal(secret))
                .or_else(|| tenant.algorithm_refusal(secret));
            if let Some(why) = refusal {
                return Err(why);
            }
            // A token replaces the values.
            let data = if secret.oidc.is_some() { Map::new() } else { secret.data.clone() };
            let use_of = SecretUse {
                secret: secret.name.clone(),
                project: found.source().project.clone(),
                connection: found.source().connection.clone(),
                data: Json::Object(data),
                oidc: secret.oidc.clone().map(|token| OidcToken {
                    ttl_seconds: token.ttl_seconds.or(Some(tenant.default_token_lifetime())),
                    ..token
                }),
            };
            if requested.pass_to_parent {
                passed.insert(requested.name.clone(), use_of.clone());
            }
            requested_secrets.insert(requested.name.clone(), use_of);
        }
        Ok((requested_secrets, passed))
    }

    /// Returns the playbooks in `pre-run`, `run` and `post-run` so far. Implied ones are among them
    /// only after [`JobBuilder::imply_run`].
    fn named_playbooks(&self) -> impl Iterator<Item = &Playbook> {
        self.job.pre_run.iter().chain(&self.job.run).chain(&self.job.post_run)
    }

    /// Requires review if an untrusted playbook sees a secret (Z5.3): from its own definition, from
    /// a child that passes its secrets, or from a parent that shares its secrets (Z4.4). Call it
    /// after all definitions are applied and after [`JobBuilder::imply_run`].
    pub(super) fn require_review_for_secrets(&mut self) {
        let open = self
            .named_playbooks()
            .filter(|playbook| !playbook.trusted)
            .find_map(|playbook| playbook.secrets.values().next().cloned());
        if open.is_some() {
            self.require_review(open);
        }
    }

    /// Requires review because of a secret, of which the first is kept for messages.
    fn require_review(&mut self, secret: Option<SecretUse>) {
        self.job.post_review = true;
        if self.review_secret.is_none() {
            self.review_secret = secret.map(|secret| (secret.secret, secret.project));
        }
    }

    /// Returns why the job needs review and what to do, to be added to a message about it; empty
    /// where a definition says so itself (`post-review`).
    pub(super) fn review_cause(&self) -> String {
        let Some((secret, project)) = &self.review_secret else { return String::new() };
        format!(
            ": it uses the secret \"{secret}\" of {} in a playbook that changes can alter before \
             review. List it in a pipeline with \"post-review: true\", define the job with its \
             secret and playbooks in a config project, or remove the secret",
            project.name()
        )
    }

    /// If the job has no playbook in `run`, puts the candidates for the playbook with its own or an
    /// ancestor's name there, the most specific first, and marks the job with `implied_run` (Z4.9).
    /// Later only the first candidate that exists runs. The definitions of one job in one project
    /// share a candidate, which sees the secrets of all of them. Empties `self.implied_run` then.
    /// Does nothing if `run` has a playbook or `self.implied_run` is empty. Call it after all
    /// definitions are applied.
    pub(super) fn imply_run(&mut self) {
        if self.job.run.is_empty() && !self.implied_run.is_empty() {
            // The variants of a job imply the same playbook, which sees the secrets of all of them.
            let mut candidates: Vec<Playbook> = Vec::new();
            for playbook in std::mem::take(&mut self.implied_run) {
                match candidates.iter_mut().find(|existing| {
                    existing.project == playbook.project && existing.path == playbook.path
                }) {
                    Some(existing) => {
                        for (name, secret) in playbook.secrets {
                            existing.secrets.entry(name).or_insert(secret);
                        }
                    }
                    None => candidates.push(playbook),
                }
            }
            self.job.run = candidates;
            self.job.run_time.implied_run = true;
        }
    }
}
