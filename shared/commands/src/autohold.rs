//! Autohold requests: operators ask to keep the nodes of failed builds.

use crate::authorized_key::authorized_key;
use crate::{CommandAuthor, StoreCommandError};
use sluice_config::pattern::Pattern;
use sluice_config::tenant::Permission;
use sluice_gate::autohold::{ANY, Autohold, COUNT_MAX, REASON_CHARS_MAX};
use sluice_model::wakeup::Wakeup;
use sluice_model::{JobName, ProjectName, ProviderName, TenantName};
use sluice_records::autohold;
use sluice_runtime::record::{Expect, TransactionOutcome, Write};
use sluice_runtime::{Ports, cell};
use std::collections::BTreeSet;

/// How often a request is created with another id when a concurrent writer takes the id first.
const TRIES_MAX: u32 = 5;

/// What an autohold request asks for.
#[derive(Debug, Clone)]
pub struct AutoholdSettings {
    /// The project, by its canonical name.
    pub project: ProjectName,
    /// The job; it need not exist yet.
    pub job: String,
    /// Hold only for this change, by number; it excludes `git_ref`.
    pub change: Option<u64>,
    /// Hold only for refs that match this regular expression as a whole.
    pub git_ref: Option<String>,
    /// Why; cut to 1,024 characters.
    pub reason: String,
    /// The number of failed builds whose nodes are held, from 1 to 40.
    pub count: u32,
    /// Seconds for which they are held; `None` or 0 until the request is deleted.
    pub node_expiration_seconds: Option<u64>,
    /// The holder's public key, the content of a `.pub` file of OpenSSH, with which the holder may
    /// log in on the nodes; `None` where the key of the pool is used.
    pub ssh_key: Option<String>,
}

/// Creates an autohold request and returns it. Its id was never used before in the tenant.
///
/// # Errors When the reason is empty, the count, the key or the ref's expression cannot be used,
/// the tenant has the maximum number of requests already, or the store does not answer.
pub async fn create_autohold(
    ports: &Ports,
    tenant: &TenantName,
    settings: &AutoholdSettings,
    author: &CommandAuthor,
) -> Result<Autohold, StoreCommandError> {
    let ref_filter = match (settings.change, &settings.git_ref) {
        (Some(number), _) => format!("refs/pull/{number}/head"),
        (None, Some(git_ref)) => git_ref.clone(),
        (None, None) => ANY.to_owned(),
    };
    Pattern::new(&ref_filter).map_err(|error| {
        StoreCommandError::Invalid(format!(
            "could not use the ref {ref_filter:?}: it is not a regular expression: {error}"
        ))
    })?;
    let reason: String = settings.reason.trim().chars().take(REASON_CHARS_MAX).collect();
    if reason.is_empty() {
        return Err(StoreCommandError::Invalid(
            "could not create the autohold request: say why, as its reason".to_owned(),
        ));
    }
    if !(1..=COUNT_MAX).contains(&settings.count) {
        return Err(StoreCommandError::Invalid(format!(
            "could not create the autohold request: the count must be from 1 to {COUNT_MAX}"
        )));
    }
    let ssh_key = settings.ssh_key.as_deref().map(authorized_key).transpose();
    let ssh_key = ssh_key.map_err(StoreCommandError::Invalid)?;
    let description = format!(
        "hold the nodes of {} failed builds in {} at {ref_filter}, of the job {}: {reason}",
        settings.count, settings.project, settings.job
    );
    for _ in 0..TRIES_MAX {
        let requests = autohold::load_tenant(ports, tenant).await?;
        if requests.len() >= autohold::LISTED_MAX {
            return Err(StoreCommandError::Invalid(format!(
                "could not create the autohold request: tenant {tenant} already has {}, the maximum; delete some",
                requests.len()
            )));
        }
        let last_id = autohold::LastId::load(ports, tenant).await?;
        let (id, write_of_id) = last_id.next(&requests)?;
        let request = Autohold {
            id,
            tenant: tenant.clone(),
            project: settings.project.clone(),
            job: JobName::from(settings.job.as_str()),
            ref_filter: ref_filter.clone(),
            reason: reason.clone(),
            by: author.name.clone(),
            max_count: settings.count,
            node_expiration_seconds: settings.node_expiration_seconds.filter(|time| *time > 0),
            ssh_key: ssh_key.clone(),
            created_at: ports.clock.now(),
            held: Vec::new(),
        };
        let audit = author.audit(ports, tenant, Permission::Autohold, &description)?;
        let writes = vec![autohold::create(&request)?, write_of_id, audit];
        if ports.records.commit(writes, &ports.entropy.token()).await?
            == TransactionOutcome::Written
        {
            return Ok(request);
        }
    }
    Err(StoreCommandError::Contended {
        attempt: "create the autohold request",
        what: format!("the list of requests of tenant {tenant}"),
    })
}

/// Deletes an autohold request, wakes the providers of the nodes that it held so that they release
/// them, and returns the request as it was. Tries again if a build is added to it meanwhile.
///
/// # Errors
/// When there is no request with this id, or the store does not answer.
pub async fn delete_autohold(
    ports: &Ports,
    tenant: &TenantName,
    id: &str,
    author: &CommandAuthor,
) -> Result<Autohold, StoreCommandError> {
    for _ in 0..TRIES_MAX {
        let requests = autohold::load_tenant(ports, tenant).await?;
        let found = requests.into_iter().find(|(_, request)| request.id == id);
        let Some((record, request)) = found else {
            return Err(StoreCommandError::NotFound(format!(
                "tenant {tenant} has no autohold request {id}"
            )));
        };
        let description = format!("delete the autohold request {id}");
        let audit = author.audit(ports, tenant, Permission::Autohold, &description)?;
        let delete =
            Write::Delete { key: record.key.clone(), expect: Expect::Revision(record.revision) };
        let outcome = ports.records.commit(vec![delete, audit], &ports.entropy.token()).await?;
        if outcome != TransactionOutcome::Written {
            continue; // A build was added concurrently: its nodes are released too.
        }
        let providers: BTreeSet<ProviderName> =
            request.held.iter().map(|held| held.provider.clone()).collect();
        let wakeups: Vec<Wakeup> =
            providers.into_iter().map(|provider| Wakeup::Pool { provider }).collect();
        cell::send(ports, &wakeups).await?;
        return Ok(request);
    }
    Err(StoreCommandError::Contended {
        attempt: "delete the autohold request",
        what: format!("the request {id}"),
    })
}
