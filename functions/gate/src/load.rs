//! Reads everything that a decision about one queue may ask: one query for the cell, one read by
//! keys for what it waits for.
//!
//! What a gate read or wrote of a cell it keeps in memory. Every write to a queue's items shows the
//! head's revision, so while the head, read by its key, is the one that is kept, so are the items:
//! an answer costs one read by keys, and no query. Of a long queue those items alone are read that
//! were written since, which the head tells: a thousand that wait cost nothing.

use crate::aside::{broken, readable, set_aside};
use crate::doors::{self, Doors};
use crate::provided;
use crate::semaphores::{self, Semaphores};
use crate::sessions::{self, Watch};
use crate::turns::{self, Turns};
use sluice_config::layout::Layout;
use sluice_config::pipeline::Manager;
use sluice_gate::landing::lands_in;
use sluice_gate::plan::RunSeen;
use sluice_gate::{
    Ask, Item, Landing, MergeOutcome, MergeResult, Provided, Report, ReportState, Standing,
};
use sluice_model::build::{RequestRef, Run};
use sluice_model::change::ChangeRef;
use sluice_model::git::BranchKey;
use sluice_model::{BuildId, ItemId, QueueKey, Timestamp};
use sluice_pool::{Request, RequestState, Row, Told};
use sluice_records::codec::decode;
use sluice_records::layout::{Layouts, Live};
use sluice_records::{build, landing, merge, provider, queue, report, session, tenant, turn};
use sluice_runtime::batch::LookError;
use sluice_runtime::quarantine::frozen_key;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Items of a queue from which on those are read again that were written meanwhile, and not all.
const LONG_ITEMS: usize = 20;

/// Milliseconds for which a tenant's head that was read may be used for an idle queue.
const TENANT_MILLIS: u64 = 10_000;

/// A queue with the answers it waits for.
pub(crate) struct Loaded {
    /// Its tenant.
    pub(crate) live: Live,
    /// The cell.
    pub(crate) queue: queue::Loaded,
    /// The merger's answers.
    pub(crate) outcomes: BTreeMap<ItemId, MergeOutcome>,
    /// What is known of builds under way.
    pub(crate) runs: BTreeMap<BuildId, RunSeen>,
    /// Landings under way.
    pub(crate) landings: BTreeMap<ItemId, Landing>,
    /// Their records, whose revisions guard what is taken back.
    pub(crate) landing_records: BTreeMap<ItemId, Record>,
    /// Reports that the last jobs of items wait for.
    pub(crate) reports: BTreeMap<ItemId, ReportState>,
    /// What changes of other queues provide to items of this one.
    pub(crate) provided: BTreeMap<ChangeRef, Provided>,
    /// Semaphores that its builds hold or its jobs may take, with their records.
    pub(crate) semaphores: Semaphores,
    /// Queues in line for those that cannot come.
    pub(crate) gone: BTreeSet<QueueKey>,
    /// Builds that hold what its builds wait for with their nodes in hand, and that are not at
    /// work, each with since when.
    pub(crate) idle: BTreeMap<BuildId, Timestamp>,
    /// Branches that its next landings need, with their records.
    pub(crate) turns: Turns,
    /// The own queues of changes that stand here, or are to, as guests.
    pub(crate) doors: Doors,
    /// What is known of executors.
    pub(crate) watch: Watch,
    /// When a doubt about one of them is to be settled.
    pub(crate) look_at: Option<Timestamp>,
}

impl Loaded {
    /// Returns a cell of which nothing else is known yet.
    fn bare(live: Live, queue: queue::Loaded, watch: Watch) -> Self {
        let (outcomes, runs, landings, landing_records, reports) = Default::default();
        let (provided, semaphores, gone, idle, turns, doors) = Default::default();
        Self {
            live,
            queue,
            outcomes,
            runs,
            landings,
            landing_records,
            reports,
            provided,
            semaphores,
            gone,
            idle,
            turns,
            doors,
            watch,
            look_at: None,
        }
    }

    /// Returns what is kept of it.
    pub(crate) fn kept(self) -> Kept {
        Kept { layout: self.live.number(), queue: self.queue, watch: self.watch }
    }
}

/// A cell as it is kept in memory between looks.
pub(crate) struct Kept {
    /// The cell.
    pub(crate) queue: queue::Loaded,
    /// The layout number that it was decided on by; the next one may be another.
    pub(crate) layout: u64,
    /// What is known of executors.
    pub(crate) watch: Watch,
}

/// What is read of one queue, and with what.
pub(crate) struct Reader<'a> {
    pub(crate) ports: &'a Ports,
    pub(crate) layouts: &'a Layouts,
    pub(crate) key: &'a QueueKey,
    /// The gate whose clock is asked.
    pub(crate) name: &'a str,
}

impl Reader<'_> {
    /// Reads the whole cell, of a long one that is known what is new. What is known of executors
    /// may come from an earlier look.
    pub(crate) async fn whole(&self, kept: Option<Kept>) -> Result<Loaded, LookError> {
        match kept {
            Some(kept) if kept.queue.items.len() >= LONG_ITEMS => self.news(kept).await,
            Some(kept) => self.all(kept.watch).await,
            None => self.all(Watch::default()).await,
        }
    }

    async fn all(&self, watch: Watch) -> Result<Loaded, LookError> {
        let queue = queue::load(self.ports, self.key).await?;
        if let Some(live) = self.seen(&queue) {
            let mut loaded = Loaded::bare(live, queue, watch);
            loaded.doors = self.doors(&loaded).await?;
            return Ok(loaded);
        }
        let guess = self.layouts.seen(&self.key.tenant).map(|live| live.number());
        let guess = guess.or(queue.head.as_ref().map(|head| head.layout)).unwrap_or_default();
        let found = self.found(&queue, guess, &watch, Vec::new()).await?;
        self.complete(queue, watch, found).await
    }

    /// Reads what a cell that is known waits for, what arrived, and the items that were written
    /// meanwhile.
    async fn news(&self, kept: Kept) -> Result<Loaded, LookError> {
        let Kept { queue, layout, watch } = kept;
        let (head, frozen) = (queue::head_key(self.key), frozen_key(&queue::partition(self.key)));
        let mut found =
            self.found(&queue, layout, &watch, vec![head.clone(), frozen.clone()]).await?;
        if found.records.contains_key(&frozen) {
            return self.all(watch).await;
        }
        let Some(head) = found.records.remove(&head) else { return self.all(watch).await };
        if !queue.is_at(&head) {
            found.wanted = None;
        }
        match queue::refresh(self.ports, self.key, queue, head).await? {
            Some(queue) => self.complete(queue, watch, found).await,
            None => self.all(watch).await,
        }
    }

    /// Reads what the cell waits for, by keys alone where the kept cell is still the cell. Arrivals
    /// have pokes of their own.
    pub(crate) async fn answers(&self, kept: Kept) -> Result<Loaded, LookError> {
        let (head, frozen) = (queue::head_key(self.key), frozen_key(&queue::partition(self.key)));
        let found = self
            .found(&kept.queue, kept.layout, &kept.watch, vec![head.clone(), frozen.clone()])
            .await?;
        let is_same = found.records.get(&head).is_some_and(|head| kept.queue.is_at(head));
        if !is_same || found.records.contains_key(&frozen) {
            return self.whole(Some(kept)).await;
        }
        self.complete(kept.queue, kept.watch, found).await
    }

    /// Returns the tenant as it was read of late, for a queue where nothing stands yet. What
    /// arrived is admitted and asked for, no more; it was routed by that layout or an older one.
    /// Should a newer one be live, the next look freezes again what this one asked, as it does when
    /// the layout changes right after.
    fn seen(&self, queue: &queue::Loaded) -> Option<Live> {
        let is_idle = queue.items.is_empty()
            && queue
                .head
                .as_ref()
                .is_none_or(|head| head.slots.is_empty() && head.semaphores.is_empty());
        // What is held back is asked anew: whoever lets it go on is obeyed at once.
        let live = self
            .layouts
            .seen(&self.key.tenant)
            .filter(|live| is_idle && !live.tenant.events.holds())?;
        let knows = |layout: u64| layout > 0 && layout <= live.number();
        let is_fresh = self.ports.clock.now().since(live.read_at) < TENANT_MILLIS;
        (is_fresh && queue.arrivals.iter().all(|arrival| knows(arrival.layout))).then_some(live)
    }

    async fn doors(&self, loaded: &Loaded) -> Result<Doors, LookError> {
        let pipeline = loaded.live.layout.pipeline(self.key.pipeline.as_str());
        doors::load(self.ports, self.key, &loaded.queue, pipeline).await
    }

    async fn found(
        &self,
        queue: &queue::Loaded,
        layout: u64,
        watch: &Watch,
        more: Vec<Key>,
    ) -> Result<Found, LookError> {
        let at = self.ports.clock.now();
        let mut keys = vec![tenant::key(&self.key.tenant)];
        keys.extend(more);
        let lands = lands(queue, None);
        let wanted = wanted(queue, layout, lands);
        keys.extend(wanted.keys().cloned());
        keys.extend(watch.keys_due(at));
        let records = get_all(self.ports, &keys).await?;
        Ok(Found { records, asked: keys, at, wanted: Some(((layout, lands), wanted)) })
    }

    /// Puts together what was read; reads on where it was read for another layout than the live one
    /// or for an older head, or sessions are missing.
    async fn complete(
        &self,
        queue: queue::Loaded,
        mut watch: Watch,
        mut found: Found,
    ) -> Result<Loaded, LookError> {
        let name = &self.key.tenant;
        let record = found.records.remove(&tenant::key(name));
        let live = self.layouts.live_of(self.ports, name, record, found.at).await?;
        let live =
            live.ok_or_else(|| LookError::Again(format!("tenant {name} has no layout yet")))?;
        let by = (live.number(), lands(&queue, Some((&live.layout, self.key))));
        let wanted = match found.wanted.take() {
            // A long queue waits for much: what was asked for is not worked out once more.
            Some((asked_by, asked)) if asked_by == by => asked,
            _ => {
                let wanted = wanted(&queue, by.0, by.1);
                let asked: BTreeSet<&Key> = found.asked.iter().collect();
                let keys: Vec<Key> =
                    wanted.keys().filter(|key| !asked.contains(key)).cloned().collect();
                if !keys.is_empty() {
                    found.records.extend(get_all(self.ports, &keys).await?);
                }
                wanted
            }
        };
        let mut loaded = Loaded::bare(live, queue, Watch::default());
        let mut running: Vec<Run> = Vec::new();
        for (key, wanted) in wanted {
            let Some(record) = found.records.get(&key) else { continue };
            match wanted {
                Wanted::Outcome(item) => {
                    let outcome = match readable(self.ports, record).await? {
                        Ok(outcome) => outcome,
                        Err(why) => unmergeable(&loaded.queue, &item, loaded.live.number(), why)?,
                    };
                    loaded.outcomes.insert(item, outcome);
                }
                Wanted::Landing(item) => {
                    // Whether it is in its branch is nothing to guess: the queue waits for a
                    // person.
                    let landing = decode(record).map_err(|bad| broken(self.key, &bad))?;
                    loaded.landing_records.insert(item.clone(), record.clone());
                    loaded.landings.insert(item, landing);
                }
                Wanted::Report(item) => {
                    let state = match readable::<Report>(self.ports, record).await? {
                        Ok(report) => report.state,
                        Err(why) => ReportState::Refused { why, at: found.at },
                    };
                    loaded.reports.insert(item, state);
                }
                Wanted::Turn(branch) => turns::take(&mut loaded.turns, self.key, branch, record)?,
                Wanted::Run(build) => match readable(self.ports, record).await? {
                    Ok(run) => running.push(run),
                    Err(why) => {
                        loaded.runs.insert(build, RunSeen::Lost { why });
                    }
                },
                Wanted::Request(build) => {
                    let seen = match readable::<Request>(self.ports, record).await? {
                        Ok(request) => match request.state {
                            RequestState::Failed { reason } => Some(RunSeen::NoNodes(reason)),
                            RequestState::Fulfilled(_) if request.told == Told::Queue => {
                                Some(RunSeen::NodesReady)
                            }
                            _ => None,
                        },
                        Err(why) => Some(RunSeen::NoNodes(why)),
                    };
                    // What its run says is newer.
                    if let Some(seen) = seen {
                        loaded.runs.entry(build).or_insert(seen);
                    }
                }
            }
        }
        turns::judge(self.ports, self.key, &mut loaded.turns).await?;
        loaded.doors = self.doors(&loaded).await?;
        loaded.provided = provided::load(self.ports, self.key, &loaded).await?;
        loaded.semaphores = semaphores::load(self.ports, self.key, &loaded).await?;
        loaded.gone = semaphores::gone(self.ports, self.key, &loaded.semaphores).await?;
        loaded.idle = semaphores::idle(self.ports, &loaded).await?;
        for build in
            semaphores::leaving(self.ports, self.key, &loaded.semaphores, &mut running).await?
        {
            loaded.runs.insert(build, RunSeen::NeverBegun);
        }
        let asked = watch.meet(&running, found.at);
        let due = asked.iter().flat_map(sessions::keys);
        let missing = due.filter(|key| !found.records.contains_key(key));
        found.records.extend(get_all(self.ports, &missing.collect::<Vec<_>>()).await?);
        let judged =
            watch.judge(self.name, running, &asked, &found.records, self.ports.clock.now());
        for bad in &judged.unreadable {
            set_aside(self.ports, bad).await?;
        }
        for (id, doubt) in &judged.doubts {
            tracing::warn!(session = %id, "an executor may be dead: its session has run out");
            let write = session::put_doubt(id, doubt)?;
            self.ports.records.commit(vec![write], &self.ports.entropy.token()).await?;
        }
        loaded.runs.extend(judged.runs);
        (loaded.watch, loaded.look_at) = (watch, judged.look_at);
        Ok(loaded)
    }
}

/// Returns the answer for an item whose own answer cannot be read: it was written once and is not
/// written again.
fn unmergeable(
    queue: &queue::Loaded,
    item: &ItemId,
    layout: u64,
    detail: String,
) -> Result<MergeOutcome, LookError> {
    let Some((_, of)) = queue.items.get(item) else {
        return Err(LookError::Again(format!("{item} is not in its queue: {detail}")));
    };
    let result = MergeResult::Conflict { change: of.candidate.change.clone(), detail };
    Ok(MergeOutcome { item: item.clone(), generation: of.generation, layout, result })
}

struct Found {
    records: BTreeMap<Key, Record>,
    /// What was asked for, whether it is there or not.
    asked: Vec<Key>,
    /// When the reading began.
    at: Timestamp,
    /// What the queue waits for, by the number of the layout and whether it lands changes; `None`
    /// where the queue is another one by now.
    wanted: Option<((u64, bool), BTreeMap<Key, Wanted>)>,
}

enum Wanted {
    Outcome(ItemId),
    Landing(ItemId),
    Report(ItemId),
    Turn(BranchKey),
    Run(BuildId),
    Request(BuildId),
}

/// Returns whether a queue may put changes into their branches, by its pipeline where that is
/// known.
fn lands(queue: &queue::Loaded, live: Option<(&Layout, &QueueKey)>) -> bool {
    let Some(head) = &queue.head else { return false };
    let is_dependent = head.manager == Manager::Dependent;
    let pipeline = live.and_then(|(layout, key)| layout.pipeline(key.pipeline.as_str()));
    is_dependent
        || head.slots.iter().any(|slot| slot.standing.is_landing())
        || pipeline.is_some_and(lands_in)
}

fn wanted(queue: &queue::Loaded, layout: u64, lands: bool) -> BTreeMap<Key, Wanted> {
    let mut wanted = BTreeMap::new();
    if lands {
        wanted.extend(
            turns::needed(queue)
                .into_iter()
                .map(|branch| (turn::key(&branch), Wanted::Turn(branch))),
        );
    }
    let landing_slots = queue
        .head
        .iter()
        .flat_map(|head| &head.slots)
        .filter(|slot| slot.standing == Standing::Landing);
    for slot in landing_slots {
        wanted.insert(landing::key(&slot.id, slot.generation), Wanted::Landing(slot.id.clone()));
    }
    for (_, item) in queue.items.values() {
        if matches!(item.ask, Ask::Asked { .. }) {
            wanted.insert(
                merge::key(&item.id, item.generation, layout),
                Wanted::Outcome(item.id.clone()),
            );
        }
        if let Some(awaited) =
            item.reporting.as_ref().and_then(|reporting| reporting.awaits.as_ref())
        {
            wanted.insert(report::key(awaited), Wanted::Report(item.id.clone()));
        }
        wanted_of_jobs(item, &mut wanted);
    }
    wanted
}

fn wanted_of_jobs(item: &Item, wanted: &mut BTreeMap<Key, Wanted>) {
    for job in item.jobs.iter().filter(|job| job.is_under_way()) {
        let Some(build) = &job.build else { continue };
        wanted.insert(build::run_key(build), Wanted::Run(build.clone()));
        if let Some(RequestRef { provider, row }) = &job.request {
            wanted.insert(
                provider::request_key(provider, &Row(row.clone())),
                Wanted::Request(build.clone()),
            );
        }
    }
}

pub(crate) async fn get_all(
    ports: &Ports,
    keys: &[Key],
) -> Result<BTreeMap<Key, Record>, PortError> {
    let mut found = BTreeMap::new();
    for page in keys.chunks(KEYS_MAX) {
        for record in ports.records.get(page).await?.into_iter().flatten() {
            found.insert(record.key.clone(), record);
        }
    }
    Ok(found)
}
