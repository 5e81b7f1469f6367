//! Reads everything that a decision about one queue may ask, in at most four calls.

use sluice_gate::plan::RunSeen;
use sluice_gate::{Ask, Item, Landing, MergeOutcome, Standing};
use sluice_model::build::{Phase, RequestRef, Run};
use sluice_model::{BuildId, ItemId, QueueKey, SessionId, Timestamp};
use sluice_pool::{Request, RequestState, Row};
use sluice_records::codec::decode;
use sluice_records::session::{self, Session};
use sluice_records::{build, landing, merge, provider, queue};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// A queue with the answers it waits for.
pub struct Loaded {
    /// The cell.
    pub queue: queue::Loaded,
    /// The merger's answers.
    pub outcomes: BTreeMap<ItemId, MergeOutcome>,
    /// What is known of builds under way.
    pub runs: BTreeMap<BuildId, RunSeen>,
    /// Landings under way.
    pub landings: BTreeMap<ItemId, Landing>,
}

/// Reads a queue and what it waits for.
pub async fn load(ports: &Ports, key: &QueueKey, layout: u64) -> Result<Loaded, LookError> {
    let queue = queue::load(ports, key).await?;
    let wanted = wanted(&queue, layout);
    let keys: Vec<Key> = wanted.keys().cloned().collect();
    let found = get_all(ports, &keys).await?;
    let mut loaded = Loaded { queue, outcomes: BTreeMap::new(), runs: BTreeMap::new(), landings: BTreeMap::new() };
    let mut running: Vec<Run> = Vec::new();
    for (key, record) in found {
        match &wanted[&key] {
            Wanted::Outcome(item) => {
                loaded.outcomes.insert(item.clone(), decode(&record)?);
            }
            Wanted::Landing(item) => {
                loaded.landings.insert(item.clone(), decode(&record)?);
            }
            Wanted::Run => running.push(decode(&record)?),
            Wanted::Request(build) => {
                let request: Request = decode(&record)?;
                if let RequestState::Failed { reason } = request.state {
                    loaded.runs.insert(build.clone(), RunSeen::NoNodes(reason));
                }
            }
        }
    }
    let sessions = sessions(ports, &running).await?;
    let now = ports.clock.now();
    for run in running {
        let seen = seen(&run, sessions.get(&run.session), now);
        loaded.runs.insert(run.build, seen);
    }
    Ok(loaded)
}

enum Wanted {
    Outcome(ItemId),
    Landing(ItemId),
    Run,
    Request(BuildId),
}

fn wanted(queue: &queue::Loaded, layout: u64) -> BTreeMap<Key, Wanted> {
    let mut wanted = BTreeMap::new();
    let landing_slots =
        queue.head.iter().flat_map(|head| &head.slots).filter(|slot| slot.standing == Standing::Landing);
    for slot in landing_slots {
        wanted.insert(landing::key(&slot.id, slot.generation), Wanted::Landing(slot.id.clone()));
    }
    for (_, item) in queue.items.values() {
        if matches!(item.ask, Ask::Asked { .. }) {
            wanted.insert(merge::key(&item.id, item.generation, layout), Wanted::Outcome(item.id.clone()));
        }
        wanted_of_jobs(item, &mut wanted);
    }
    wanted
}

fn wanted_of_jobs(item: &Item, wanted: &mut BTreeMap<Key, Wanted>) {
    for job in item.jobs.iter().filter(|job| job.is_under_way()) {
        let Some(build) = &job.build else { continue };
        wanted.insert(build::run_key(build), Wanted::Run);
        if let Some(RequestRef { provider, row }) = &job.request {
            wanted.insert(provider::request_key(provider, &Row(row.clone())), Wanted::Request(build.clone()));
        }
    }
}

async fn sessions(ports: &Ports, running: &[Run]) -> Result<BTreeMap<SessionId, Session>, LookError> {
    let open = running.iter().filter(|run| !matches!(run.phase, Phase::Ended(_)));
    let ids: BTreeSet<SessionId> = open.map(|run| run.session.clone()).collect();
    let keys: Vec<Key> = ids.iter().map(session::key).collect();
    let found = get_all(ports, &keys).await?;
    let mut sessions = BTreeMap::new();
    for (_, record) in found {
        let session: Session = decode(&record)?;
        sessions.insert(session.id.clone(), session);
    }
    Ok(sessions)
}

/// Says what a run shows: a build whose executor has not renewed its session is lost, whatever its run says (Z7.3).
fn seen(run: &Run, session: Option<&Session>, now: Timestamp) -> RunSeen {
    if let Phase::Ended(end) = &run.phase {
        return RunSeen::Ended(end.clone());
    }
    let started_at = Some(run.claimed_at);
    match session {
        Some(session) if session.alive_until > now => RunSeen::Running { started_at },
        Some(session) => RunSeen::Lost {
            why: format!("the executor {} has been silent since {}", session.hostname, session.alive_until.to_iso()),
        },
        None => RunSeen::Lost { why: format!("the executor's session {} is gone", run.session) },
    }
}

async fn get_all(ports: &Ports, keys: &[Key]) -> Result<BTreeMap<Key, Record>, PortError> {
    let mut found = BTreeMap::new();
    for page in keys.chunks(KEYS_MAX) {
        for record in ports.records.get(page).await?.into_iter().flatten() {
            found.insert(record.key.clone(), record);
        }
    }
    Ok(found)
}
