//! What was known before an event: what was told of the change, and the tenants with the queues it may stand in.
//!
//! All of it is read by keys in one call. Which keys those are follows from what is remembered: the list of tenants, as long
//! as its mark is the same, and each tenant's layout as it was read last. Where the remembered turns out to be old, the
//! rest is read by a second call, so an old memory costs a call and no more.

use crate::Intake;
use crate::route::{former_queues, may_configure, queue_key};
use crate::told::{self, Told};
use sluice_gate::explain::Verdicts;
use sluice_model::change::ChangeFacts;
use sluice_model::{BranchName, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::decode_foreign;
use sluice_records::layout::Live;
use sluice_records::{change, tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Milliseconds for which the list of tenants is used even though its mark is the same: a transaction's writes are not seen
/// all at once, so that a reader may see the mark a moment before the tenant.
const LISTED_MILLIS: u64 = 60_000;

/// What was known before an event on a change.
pub(crate) struct Before {
    /// What was told of the change; `None` for one that was never seen.
    pub(crate) told: Option<Told>,
    /// The revision of the record of that; `None` where there is none.
    pub(crate) told_revision: Option<u64>,
    /// The branches that it was for before.
    pub(crate) formerly: Vec<BranchName>,
    /// Whether any change is known to need it, or was.
    pub(crate) is_needed: bool,
    /// What became of its events so far.
    pub(crate) verdicts: Verdicts,
    /// The tenants that have its project, with those of its queues that are not empty.
    pub(crate) tenants: Vec<(Live, Vec<QueueKey>)>,
    /// Whether a tenant's record could not be read, so that nobody knows whether it has the project.
    pub(crate) is_partial: bool,
}

impl Before {
    /// Returns as of which moment of their forge's clock facts are known that no news of the change brought.
    pub(crate) fn moment(&self, facts: &ChangeFacts) -> Timestamp {
        self.told.as_ref().map_or(facts.updated_at, |told| told.moment(facts))
    }
}

/// The list of tenants as it was read last.
#[derive(Debug, Default)]
pub(crate) struct Tenants(Mutex<Option<List>>);

#[derive(Debug, Clone)]
struct List {
    read_at: Timestamp,
    /// The text of the mark when it was read; `None` where there was none.
    mark: Option<String>,
    names: Vec<TenantName>,
}

impl Tenants {
    fn recent(&self, now: Timestamp) -> Option<List> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        list.filter(|list| now.since(list.read_at) < LISTED_MILLIS)
    }

    fn remember(&self, list: List) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
    }
}

impl Intake {
    /// Reads what was known before an event on a change.
    pub(crate) async fn before(&self, facts: &ChangeFacts) -> Result<Before, LookError> {
        let told_key = change::told_key(&facts.change.key);
        // One that cannot be read is written anew: then everything is news once more.
        let told = |found: &Found| found.get(&told_key).and_then(decode_foreign::<Told>);
        let formerly = |told: &Option<Told>| -> Vec<BranchName> {
            told.iter().flat_map(|told| told::former_branches(told, facts)).collect()
        };
        let queues = |live: &Live, found: &Found| queues_of(live, facts, &formerly(&told(found)));
        let needed_key = change::needed_key(&facts.change.key);
        let verdicts_key = change::verdicts_key(&facts.change.key);
        let own = [told_key.clone(), needed_key.clone(), verdicts_key.clone()];
        let (lives, found, is_partial) = self.known(&facts.change.key.project, &own, queues).await?;
        let (told, is_needed) = (told(&found), found.contains_key(&needed_key));
        let told_revision = found.get(&told_key).map(|record| record.revision);
        let verdicts = found.get(&verdicts_key).and_then(decode_foreign).unwrap_or_default();
        let formerly = formerly(&told);
        let tenants = lives.into_iter().map(|live| {
            let listed = queues_of(&live, facts, &formerly);
            let listed = listed.into_iter().filter(|queue| found.contains_key(&tenant::queue_key(queue))).collect();
            (live, listed)
        });
        Ok(Before { tenants: tenants.collect(), told, told_revision, formerly, is_needed, verdicts, is_partial })
    }

    /// Returns the tenants whose live layout has the project, and the further records that are named, where they are there.
    pub(crate) async fn tenants_with(
        &self,
        project: &ProjectName,
        more: &[Key],
    ) -> Result<(Vec<Live>, Found), LookError> {
        let (lives, found, _) = self.known(project, more, |_, _| Vec::new()).await?;
        Ok((lives, found))
    }

    /// Reads the tenants that have a project, with further records and the lists' entries of queues. Also returns whether a
    /// tenant's record could not be read.
    async fn known(
        &self,
        project: &ProjectName,
        more: &[Key],
        queues: impl Fn(&Live, &Found) -> Vec<QueueKey>,
    ) -> Result<(Vec<Live>, Found, bool), LookError> {
        let now = self.ports.clock.now();
        let remembered = self.tenants.recent(now);
        let names = remembered.as_ref().map(|list| list.names.clone()).unwrap_or_default();
        let seen = names.iter().filter_map(|name| self.layouts.seen(name)).filter(|live| has(live, project));
        let mut keys = vec![tenant::listing_key()];
        keys.extend(more.iter().cloned());
        keys.extend(names.iter().map(tenant::key));
        for live in seen {
            keys.extend(queues(&live, &Found::new()).iter().map(tenant::queue_key));
        }
        let mut read = Read::default();
        read.get(&self.ports, keys).await?;
        let mark = read.found.get(&tenant::listing_key()).map(|record| record.body.clone());
        let names = match remembered.filter(|list| list.mark == mark) {
            Some(list) => list.names,
            None => {
                let names = tenant::listed(&self.ports).await?;
                self.tenants.remember(List { read_at: now, mark, names: names.clone() });
                read.get(&self.ports, names.iter().map(tenant::key).collect()).await?;
                names
            }
        };
        let (mut lives, mut is_partial) = (Vec::new(), false);
        for name in &names {
            let record = read.found.get(&tenant::key(name)).cloned();
            match self.layouts.live_of(&self.ports, name, record, now).await {
                Ok(live) => lives.extend(live.filter(|live| has(live, project))),
                // A person has to mend it; the other tenants' events go on meanwhile.
                Err(LookError::Broken { reason, .. }) => {
                    is_partial = true;
                    tracing::error!(tenant = %name, reason, "a tenant is told of nothing: its record cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
        let mut keys = Vec::new();
        for live in &lives {
            keys.extend(queues(live, &read.found).iter().map(tenant::queue_key));
        }
        read.get(&self.ports, keys).await?;
        Ok((lives, read.found, is_partial))
    }
}

/// Records that were found, by key.
pub(crate) type Found = BTreeMap<Key, Record>;

/// Records that were read, and which were asked for: what was not found is not asked for again.
#[derive(Default)]
struct Read {
    found: Found,
    asked: std::collections::BTreeSet<Key>,
}

impl Read {
    async fn get(&mut self, ports: &Ports, keys: Vec<Key>) -> Result<(), PortError> {
        let new: Vec<Key> = keys.into_iter().filter(|key| self.asked.insert(key.clone())).collect();
        for page in new.chunks(KEYS_MAX) {
            let found = ports.records.get(page).await?.into_iter().flatten();
            self.found.extend(found.map(|record| (record.key.clone(), record)));
        }
        Ok(())
    }
}

fn has(live: &Live, project: &ProjectName) -> bool {
    live.layout.project(project.as_str()).is_some() || live.tenant.projects.contains(project)
}

/// Returns the queues of a tenant that a change may stand in or enter.
fn queues_of(live: &Live, facts: &ChangeFacts, formerly: &[BranchName]) -> Vec<QueueKey> {
    let takes_part = live.layout.project_pipelines(&facts.change.key.project);
    let configures = may_configure(live, facts);
    let pipelines = live.layout.pipelines().iter();
    let concerned = pipelines.filter(|pipeline| configures || takes_part.contains(&pipeline.name));
    let queues = concerned.flat_map(|pipeline| {
        let now = queue_key(live, pipeline, &facts.change);
        std::iter::once(now).chain(former_queues(live, pipeline, &facts.change, formerly))
    });
    queues.collect()
}
