//! Writes the records that the functions would have written.

use super::parts::{
    StoryChange, before, build_id, candidate, change, ended, frozen, item_id, merged, queue_key,
    status_of, summary, url,
};
use super::{LOG_ADDRESS, LOG_TOKEN, NOW, TENANT};
use sluice_config::layout::Layout;
use sluice_gate::item::Onto;
use sluice_gate::plan::LayoutNumbers;
use sluice_gate::{
    Candidate, Head, InboxMessage, InboxMessageKind, Item, Job, JobStatus, MergeStatus,
};
use sluice_model::build::{BuildResult, Order, Phase, RequestRef, Run};
use sluice_model::change::ChangeFacts;
use sluice_model::id::digest;
use sluice_model::job::JobGraph;
use sluice_model::name::escape;
use sluice_model::{ItemId, QueueKey, SessionId, TenantName, Timestamp};
use sluice_records::codec::encode_first;
use sluice_records::report::Buildset;
use sluice_records::session::{LiveLogServer, LiveLogToken, Session, SessionState};
use sluice_records::tenant::Tenant;
use sluice_records::{build, change as change_records, queue, report, session, tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Key, Write};
use sluice_runtime::{PortError, Ports};

/// The state of a job.
#[derive(Debug, Clone, Copy)]
pub(super) enum JobState {
    Waiting,
    Ordered,
    /// The seconds since the first playbook started.
    Running(u64),
    /// The result, the duration in seconds, and the reason.
    Ended(BuildResult, u64, Option<&'static str>),
}

/// Writes records and objects.
pub(super) struct Writer {
    ports: Ports,
    writes: u64,
}

impl Writer {
    pub(super) fn new(ports: Ports) -> Self {
        Self { ports, writes: 0 }
    }

    async fn commit(&mut self, writes: Vec<Write>) -> Result<(), PortError> {
        self.writes += 1;
        self.ports.records.commit(writes, &format!("story-{}", self.writes)).await.map(|_| ())
    }

    fn put<T: serde::Serialize>(key: Key, value: &T) -> Result<Write, PortError> {
        Ok(Write::Put { record: encode_first(key, value)?, expect: Expect::Anything })
    }

    /// Writes a tenant with its layout.
    pub(super) async fn tenant(&mut self, name: &str, layout: &Layout) -> Result<(), PortError> {
        let object = format!("layouts/{}", layout.id());
        self.ports
            .objects
            .put(&object, layout.to_bytes().into(), PutMode::Always, "application/json")
            .await?;
        let mut head = Tenant::new(name.into());
        head.layout = LayoutNumbers { wanted: 3, live: 3 };
        head.layout_object = Some(object);
        head.live_since = before(86_400);
        head.errors = u32::try_from(layout.errors().len()).unwrap_or(u32::MAX);
        let listed = Key::new("tenants", escape(name));
        let writes = vec![
            Self::put(tenant::key(&head.name), &head)?,
            Self::put(listed, &TenantName::from(name))?,
        ];
        self.commit(writes).await
    }

    /// Writes the session of the executor that runs everything.
    pub(super) async fn session(&mut self) -> Result<(), PortError> {
        let id = SessionId::from("session-1");
        let life = Session {
            id: id.clone(),
            hostname: "executor-1".into(),
            live_logs: Some(LiveLogServer {
                address: LOG_ADDRESS.to_owned(),
                token: LiveLogToken::new(LOG_TOKEN.to_owned()),
            }),
            started_at: before(7_200),
            alive_until: NOW.plus_seconds(10),
            builds: Vec::new(),
            zone: None,
            state: SessionState::Running,
        };
        let mut record = encode_first(session::key(&id), &life)?;
        record.find = Some(("sessions".into(), id.to_string()));
        self.commit(vec![Write::Put { record, expect: Expect::Anything }]).await
    }

    /// Writes a queue's head record, and lists the queue as not empty.
    pub(super) async fn head(&mut self, head: &Head) -> Result<(), PortError> {
        let writes = vec![
            Self::put(queue::head_key(&head.key), &head.stored())?,
            Self::put(tenant::queue_key(&head.key), &head.key)?,
        ];
        self.commit(writes).await
    }

    /// Writes an item with the orders and runs of its jobs.
    pub(super) async fn item(
        &mut self,
        key: &QueueKey,
        of: &StoryChange,
        generation: u64,
        jobs: &[(&str, JobState)],
        reasons: &[&str],
    ) -> Result<(), PortError> {
        let mut item = self.new_item(of, generation).await?;
        for reason in reasons {
            item.add_reason(item.admitted_at, *reason);
        }
        item.merge_status = match jobs {
            [] if of.number == 15 => {
                let onto = Onto {
                    item: item_id(&super::D),
                    generation: 2,
                    speculation: "speculations/d".into(),
                };
                MergeStatus::Requested {
                    at: before(4),
                    since: None,
                    onto: Some(onto),
                    landed: Vec::new(),
                }
            }
            [] => MergeStatus::NotRequested,
            _ => merged(of),
        };
        for (name, state) in jobs {
            let job = self.job(key, of, &item, name, *state).await?;
            item.builds.extend(job.build.clone());
            item.jobs.push(job);
        }
        let write = Self::put(queue::item_key(key, &item.id), &item)?;
        self.commit(vec![write]).await
    }

    async fn new_item(&mut self, of: &StoryChange, generation: u64) -> Result<Item, PortError> {
        let change = change(of);
        let needs = if of.number == 12 { vec![candidate(&super::A)] } else { Vec::new() };
        let facts = ChangeFacts {
            title: of.title.into(),
            author: of.author.into(),
            url: url(of),
            mergeable: Some(true),
            ..ChangeFacts::bare(change.clone(), before(400))
        };
        self.commit(vec![change_records::put_facts(&facts)?]).await?;
        let slot = sluice_gate::Slot { generation, ..sluice_gate::Slot::new(item_id(of), change) };
        let event = digest(&["event", of.title]);
        let admitted_at = before(360 - of.number * 2);
        Ok(Item::admitted(&slot, Candidate { needs, ..candidate(of) }, &event, admitted_at))
    }

    async fn job(
        &mut self,
        key: &QueueKey,
        of: &StoryChange,
        item: &Item,
        name: &str,
        state: JobState,
    ) -> Result<Job, PortError> {
        let mut job = Job::new(summary(name));
        let build = build_id(of, name, 1);
        let (ordered_at, phase, status) = match state {
            JobState::Waiting => return Ok(job),
            JobState::Ordered => (before(5), None, JobStatus::Ordered { at: before(5) }),
            JobState::Running(seconds) => {
                let started_at = before(seconds);
                (
                    before(seconds + 2),
                    Some(Phase::Running),
                    JobStatus::Running { started_at: Some(started_at), pre_fail: false },
                )
            }
            JobState::Ended(result, seconds, why) => {
                let ended = ended(&build, result, before(20), seconds, why);
                let status = status_of(&ended);
                (before(seconds + 30), Some(Phase::Ended(ended)), status)
            }
        };
        job.attempt = 1;
        job.build = Some(build.clone());
        job.request = matches!(state, JobState::Ordered)
            .then(|| RequestRef { provider: "cloud".into(), row: "200-0000-000000000042".into() });
        job.status = status;
        self.build(key, of, &item.id, name, ordered_at, phase).await?;
        Ok(job)
    }

    async fn build(
        &mut self,
        key: &QueueKey,
        of: &StoryChange,
        item: &ItemId,
        name: &str,
        ordered_at: Timestamp,
        phase: Option<Phase>,
    ) -> Result<(), PortError> {
        let graph = format!("jobs/{name}");
        let text = serde_json::to_vec(&JobGraph { jobs: vec![frozen(name)] })
            .map_err(|error| PortError::unknown("write a graph", error))?;
        self.ports.objects.put(&graph, text.into(), PutMode::Always, "application/json").await?;
        let order = Order {
            item: item.clone(),
            max_attempts: 3,
            voting: name != "docs",
            graph,
            speculation: "speculations/x".into(),
            event_id: digest(&["event", of.title]),
            post_review: key.pipeline.as_str() == "gate",
            ordered_at,
            ..Order::sample(build_id(of, name, 1), key.clone(), name.into(), change(of))
        };
        let mut writes = vec![build::put_order(&order)?];
        if let Some(phase) = phase {
            let run = Run {
                build: order.build.clone(),
                session: "session-1".into(),
                phase,
                claimed_at: ordered_at.plus_seconds(2),
                playbook: None,
                lost: None,
            };
            let mut record = build::new_run(&run)?;
            record.revision = 1;
            writes.push(Write::Put { record, expect: Expect::Anything });
        }
        self.commit(writes).await
    }

    /// Writes an item that left `ago` seconds ago.
    pub(super) async fn buildset(
        &mut self,
        key: &QueueKey,
        of: &StoryChange,
        result: &str,
        why: &str,
        ago: u64,
    ) -> Result<(), PortError> {
        let mut item = self.new_item(of, 1).await?;
        item.add_reason(item.admitted_at, "enqueued: approved by ada");
        item.add_reason(before(ago), format!("left gate: {result}: {why}"));
        let ended_at = before(ago);
        if result == "MERGE_CONFLICT" {
            item.merge_status = MergeStatus::Unmergeable {
                why: why.into(),
                configuration: false,
                notes: Vec::new(),
            };
        } else {
            item.merge_status = merged(of);
            for name in ["unit", "integration"] {
                let is_skipped = result == "FAILURE" && name == "integration";
                let mut job = Job::new(summary(name));
                let word = match (result, is_skipped) {
                    (_, true) => BuildResult::Skipped,
                    ("SUCCESS", _) => BuildResult::Success,
                    _ => BuildResult::Failure,
                };
                let build = build_id(of, name, 1);
                let seconds = if name == "unit" { 95 } else { 240 };
                let ended = ended(&build, word, Timestamp(ended_at.0 - 5_000), seconds, None);
                job.status = status_of(&ended);
                if !is_skipped {
                    job.attempt = 1;
                    job.build = Some(build.clone());
                    item.builds.push(build);
                    self.build(
                        key,
                        of,
                        &item.id,
                        name,
                        Timestamp(ended_at.0 - 300_000),
                        Some(Phase::Ended(ended)),
                    )
                    .await?;
                }
                item.jobs.push(job);
            }
        }
        let buildset = Buildset {
            id: item.id.clone(),
            queue: key.clone(),
            item,
            result: result.into(),
            why: why.into(),
            ended_at,
        };
        self.commit(vec![report::put_buildset(&buildset)?]).await
    }

    /// Writes an item, a build and a queue of another tenant, and an inbox message of the first
    /// one.
    pub(super) async fn second_tenant(&mut self, tenant: &str) -> Result<(), PortError> {
        let of = StoryChange {
            project: "org/app",
            number: 99,
            title: "A change of another tenant",
            author: "eve",
        };
        let key = queue_key(tenant, "gate", "integrated");
        let mut head = Head::new(key.clone(), sluice_config::pipeline::Manager::Dependent, 5, 3);
        let status = sluice_gate::SlotStatus::Testing;
        let (id, change) = (item_id(&of), change(&of));
        let slot = sluice_gate::Slot { status, ..sluice_gate::Slot::new(id, change) };
        head.entries = vec![slot.into()];
        self.head(&head).await?;
        self.item(&key, &of, 1, &[("unit", JobState::Running(10))], &["enqueued"]).await?;
        let message = InboxMessage {
            id: "message-1".into(),
            at: before(1),
            event_id: "event".into(),
            layout: 0,
            by_operator: false,
            in_progress: false,
            kind: InboxMessageKind::Enqueue { candidates: vec![candidate(&super::G)] },
        };
        let write = queue::put_message(&queue_key(TENANT, "gate", "integrated"), &message)?;
        self.commit(vec![write]).await
    }
}
