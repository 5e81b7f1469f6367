//! `T/status` in Zuul's format: pipelines, queues, items and their jobs.

use crate::Api;
use crate::build_row::seconds;
use crate::bundle::{self, QueueView};
use crate::estimate::Durations;
use crate::load;
use crate::node_waits::NodeWaits;
use crate::reply::{self, ErrorResponse};
use crate::status_detail::{DetailLevel, fit_detail};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use sluice_config::Pipeline;
use sluice_config::layout::Layout;
use sluice_config::pipeline::{Manager, TriggerKind};
use sluice_gate::{Entry, Head, Item, Job, JobStatus, MergeStatus, Slot};
use sluice_model::change::ChangeRef;
use sluice_model::{BranchName, QueueKey, TenantName, Timestamp};
use sluice_records::queue::LoadedQueue;
use std::collections::{BTreeMap, BTreeSet};

/// What is needed to show items.
#[derive(Clone, Copy)]
pub(crate) struct StatusContext<'a> {
    /// The tenant that is shown.
    pub(crate) tenant: &'a TenantName,
    /// The public address of the pages.
    pub(crate) web_root: &'a str,
    /// The estimated durations of jobs.
    pub(crate) durations: &'a Durations,
    /// What the jobs wait for that have no nodes yet.
    pub(crate) node_waits: &'a NodeWaits,
    /// The time of the answer.
    pub(crate) now: Timestamp,
    /// How much detail is shown.
    pub(crate) detail: DetailLevel,
}

/// Answers `T/status` in Zuul's format with all pipelines and queues of a tenant, with fewer jobs
/// if the answer would be too large. Unreadable queues are left out; a message in the answer says
/// so.
pub(crate) async fn status(
    api: &Api,
    tenant: &TenantName,
) -> Result<Response<Bytes>, ErrorResponse> {
    let live = load::live(api, tenant).await?;
    let read = load::queues(&api.ports, tenant).await?;
    let durations = api.estimates.of(&api.ports, tenant).await?;
    let now = api.ports.clock.now();
    // Like Zuul, this answer only names the node request; the board shows why it waits.
    let node_waits = NodeWaits::new();
    let context = StatusContext {
        tenant,
        web_root: &api.web_root,
        durations: &durations,
        node_waits: &node_waits,
        now,
        detail: DetailLevel::Whole,
    };
    let layout = &*live.layout;
    let body = fit_detail(|detail| {
        let context = StatusContext { detail, ..context };
        let pipelines = layout.pipelines().iter();
        let mut pipelines: Vec<Value> =
            pipelines.map(|pipeline| context.pipeline(layout, pipeline, &read.queues)).collect();
        pipelines.extend(context.pipelines_without_layout(layout, &read.queues));
        let note = Some(&live.tenant.events.info).filter(|note| !note.is_empty()).cloned();
        let problems: Vec<String> = note
            .into_iter()
            .chain(detail.left_out())
            .chain(read.problems.iter().cloned())
            .collect();
        json!({
            "zuul_version": concat!("sluice ", env!("CARGO_PKG_VERSION")),
            "last_reconfigured": live.tenant.live_since.0,
            "state": {
                "trigger_queue_discarding": live.tenant.events.trigger_queue_discarding,
                "trigger_queue_paused": live.tenant.events.trigger_queue_paused,
                "result_queue_paused": live.tenant.events.result_queue_paused,
                "reason": live.tenant.events.reason(),
                "info": info(live.tenant.layout.wanted > live.tenant.layout.live, &problems),
            },
            "trigger_event_queue": {"length": 0},
            "management_event_queue": {"length": 0},
            "connection_event_queues": {},
            "pipelines": pipelines,
        })
    });
    Ok(reply::cacheable_json(&body, 1, now))
}

/// Answers `T/status/change/{id}` with the queued items of one change, or of the bundle that
/// contains it; an empty list if there are none. `id` is the number with the patch set, as in
/// `7,1`, for a ref its commit or name; changes of all projects match. Unreadable queues are left
/// out without a message. An unknown tenant is 404, one that was never loaded 422.
pub(crate) async fn change(
    api: &Api,
    tenant: &TenantName,
    id: &str,
) -> Result<Response<Bytes>, ErrorResponse> {
    load::live(api, tenant).await?;
    let read = load::queues(&api.ports, tenant).await?;
    let durations = api.estimates.of(&api.ports, tenant).await?;
    let (node_waits, now) = (NodeWaits::new(), api.ports.clock.now());
    let context = StatusContext {
        tenant,
        web_root: &api.web_root,
        durations: &durations,
        node_waits: &node_waits,
        now,
        detail: DetailLevel::Whole,
    };
    let mut items = Vec::new();
    for (key, loaded) in &read.queues {
        let Some(head) = &loaded.head else { continue };
        let view = QueueView::of(head);
        // Any member of a bundle names the bundle.
        let is_named = |entry: &Entry| entry.members.iter().any(|slot| slot.change.id() == id);
        items.extend(
            (0..head.entries.len())
                .filter(|position| is_named(&head.entries[*position]))
                .filter_map(|position| context.item(key, &view, loaded, position)),
        );
    }
    Ok(reply::cacheable_json(&Value::Array(items), 1, context.now))
}

/// Returns the connections that trigger a pipeline, each once, with their drivers.
pub(crate) fn triggers(pipeline: &Pipeline) -> BTreeMap<&str, &'static str> {
    pipeline
        .triggers
        .iter()
        .map(|trigger| (trigger.connection.as_str(), trigger_driver(&trigger.kind)))
        .collect()
}

/// Returns Zuul's `number,patchset` of a change, or the commit of a ref. `None` for a branch that
/// is tested at its current head.
fn id_of(change: &ChangeRef) -> Option<String> {
    Some(change.id()).filter(|id| change.key.number().is_some() || *id != change.github_ref())
}

/// Returns the name of a queue as users know it, and its branch. A queue of one project has the
/// project's name without its host. Only a supercedent queue or one per branch has a branch. An
/// empty queue has the name of its record.
fn queue_name<'h>(layout: &Layout, head: &'h Head) -> (&'h str, Option<&'h BranchName>) {
    let whole = head.key.queue.0.as_str();
    let Some(change) = head.slots().next().map(|slot| &slot.change) else { return (whole, None) };
    let project = &change.key.project;
    let shared = |name: &'h str| if name == project.as_str() { project.name() } else { name };
    match head.manager {
        Manager::Independent => (project.name(), None),
        Manager::Supercedent => (project.name(), Some(&change.branch)),
        Manager::Dependent | Manager::Serial => {
            let branch = change.on_branch().map(BranchName::as_str);
            let branch_queue =
                whole.strip_suffix(change.branch.as_str()).and_then(|name| name.strip_suffix('@'));
            let branch_queue = branch_queue.filter(|_| {
                layout.queue_on(project, head.key.pipeline.as_str(), branch).per_branch
            });
            branch_queue.map_or((shared(whole), None), |name| (shared(name), Some(&change.branch)))
        }
    }
}

impl StatusContext<'_> {
    /// Returns a pipeline with its queues in the shape that Zuul's API has. `queues` may contain
    /// queues of other pipelines, which are skipped.
    fn pipeline(
        &self,
        layout: &Layout,
        pipeline: &Pipeline,
        queues: &[(QueueKey, LoadedQueue)],
    ) -> Value {
        let pipeline_queues = || queues.iter().filter(|(key, _)| key.pipeline == pipeline.name);
        let triggers = triggers(pipeline).into_values().map(|driver| json!({"driver": driver}));
        json!({
            "name": pipeline.name,
            "description": pipeline.description,
            "state": "normal",
            "manager": pipeline.manager.as_str(),
            "triggers": triggers.collect::<Vec<_>>(),
            "trigger_events": pipeline_queues().map(|(_, loaded)| loaded.inbox.len()).sum::<usize>(),
            "result_events": 0,
            "management_events": 0,
            "change_queues": pipeline_queues().filter_map(|(key, loaded)| self.queue(layout, key, loaded)).collect::<Vec<_>>(),
        })
    }

    /// Returns pipelines that the live configuration no longer has, but that still have queues, in
    /// the shape that Zuul's API has.
    fn pipelines_without_layout(
        &self,
        layout: &Layout,
        queues: &[(QueueKey, LoadedQueue)],
    ) -> Vec<Value> {
        let is_known = |key: &&QueueKey| {
            layout.pipelines().iter().any(|pipeline| pipeline.name == key.pipeline)
        };
        let gone: BTreeSet<_> = queues
            .iter()
            .map(|(key, _)| key)
            .filter(|key| !is_known(key))
            .map(|key| &key.pipeline)
            .collect();
        gone.into_iter()
            .map(|name| {
                let mut pipeline_queues = queues.iter().filter(|(key, _)| key.pipeline == *name);
                let manager = pipeline_queues
                    .find_map(|(_, loaded)| Some(loaded.head.as_ref()?.manager))
                    .unwrap_or(Manager::Independent);
                self.pipeline(layout, &Pipeline::new(name.as_str(), manager), queues)
            })
            .collect()
    }

    /// Returns a queue with its items in the shape that Zuul's API has; `None` if it is empty. A
    /// new list of items begins at each entry that is tested on top of no other one.
    fn queue(&self, layout: &Layout, key: &QueueKey, loaded: &LoadedQueue) -> Option<Value> {
        let head = loaded.head.as_ref().filter(|head| !head.entries.is_empty())?;
        let view = QueueView::of(head);
        let mut heads: Vec<Vec<Value>> = Vec::new();
        for (position, entry) in head.entries.iter().enumerate() {
            let has_ahead = entry.ahead.is_some();
            let Some(item) = self.item(key, &view, loaded, position) else {
                continue;
            };
            match heads.last_mut().filter(|_| has_ahead) {
                Some(list) => list.push(item),
                None => heads.push(vec![item]),
            }
        }
        let (name, branch) = queue_name(layout, head);
        Some(json!({"name": name, "branch": branch, "window": head.window, "heads": heads}))
    }

    /// Returns the members of the entry at `position` as one item, without jobs if the detail level
    /// leaves them out; `None` if the records of all its members are missing.
    fn item(
        &self,
        key: &QueueKey,
        view: &QueueView<'_>,
        loaded: &LoadedQueue,
        position: usize,
    ) -> Option<Value> {
        let is_active = view.head.is_active(position);
        let entry = view.head.entries.get(position)?;
        let (first, slots) = (entry.first(), entry.members.iter());
        let members: Vec<(&Slot, &Item)> =
            slots.filter_map(|slot| Some((slot, &*loaded.items.get(&slot.id)?.1))).collect();
        let items: Vec<&Item> = members.iter().map(|(_, item)| *item).collect();
        let since = items.first()?.admitted_at;
        let jobs = bundle::jobs(&items);
        let shown_jobs = if self.detail.includes_jobs(is_active) { jobs.as_slice() } else { &[] };
        Some(json!({
            "id": first.id,
            "active": is_active,
            "live": true,
            "refs": members.iter().map(|(slot, item)| reference(slot, item)).collect::<Vec<_>>(),
            "item_ahead": entry.ahead.as_ref().map(|ahead| view.shown_as(&ahead.item)),
            "items_behind": view.behind(&first.id),
            "failing_reasons": failing_reasons(&items),
            "zuul_ref": null,
            "enqueue_time": since.0,
            "remaining_time": self.remaining_of(&items, &jobs),
            "jobs": shown_jobs.iter().map(|(item, job)| self.job(key, item, job)).collect::<Vec<_>>(),
        }))
    }

    /// Returns a job of an item in the shape that Zuul's API has. Times and the estimate are in
    /// seconds; elapsed and remaining time in milliseconds. What only a build has is null without
    /// one.
    fn job(&self, key: &QueueKey, item: &Item, job: &Job) -> Value {
        let (started_at, ended_at) = match &job.status {
            JobStatus::Running { started_at, .. } | JobStatus::Paused { started_at, .. } => {
                (*started_at, None)
            }
            JobStatus::Ended { started_at, ended_at, .. } => (*started_at, Some(*ended_at)),
            JobStatus::Waiting | JobStatus::Ordered { .. } => (None, None),
        };
        let ordered_at = match &job.status {
            JobStatus::Ordered { at } => Some(*at),
            _ => None,
        };
        let estimate = self.estimate(item, job);
        let elapsed = started_at.map(|from| ended_at.unwrap_or(self.now).since(from));
        let has_build = job.build.as_ref();
        let epoch = |time: Option<Timestamp>| time.map(|time| seconds(time.0));
        json!({
            "name": job.summary.name,
            "dependencies": job.summary.dependencies.iter().map(|dependency| &dependency.name).collect::<Vec<_>>(),
            "result": job.result().map(|result| result.as_str()),
            "voting": job.summary.voting,
            "queued": matches!(job.status, JobStatus::Ordered { .. }),
            "waiting_status": waiting_status(item, job),
            "uuid": has_build,
            "url": has_build.map(|build| format!("stream/{build}?logfile=console.log")),
            "report_url": has_build.map(|build| format!("{}t/{}/build/{build}", self.web_root, self.tenant)),
            "elapsed_time": elapsed,
            "remaining_time": self.remaining(item, job),
            "execute_time": epoch(ordered_at.or(started_at)),
            "start_time": epoch(started_at),
            "end_time": epoch(ended_at),
            "estimated_time": estimate.map(seconds),
            "pipeline": key.pipeline,
            "canceled": has_build.map(|_| job.result() == Some(sluice_model::build::BuildResult::Aborted)),
            "paused": has_build.map(|_| matches!(job.status, JobStatus::Paused { resumed: false, .. })),
            "pre_fail": has_build.map(|_| matches!(job.status, JobStatus::Running { pre_fail: true, .. })),
            "retry": has_build.map(|_| job.attempt > 1),
            "snapshotting": has_build.map(|_| false),
            "tries": job.attempt,
        })
    }

    /// Returns the estimated duration of a job in milliseconds; `None` without a recent success.
    pub(crate) fn estimate(&self, item: &Item, job: &Job) -> Option<u64> {
        let project = item.candidate.change.key.project.clone();
        self.durations.get(&(job.summary.name.clone(), project)).copied()
    }

    /// Returns the estimated milliseconds until a job ends: 0 if it has ended, `None` if it waits,
    /// is paused or has no estimate.
    fn remaining(&self, item: &Item, job: &Job) -> Option<u64> {
        match &job.status {
            JobStatus::Ended { .. } => Some(0),
            JobStatus::Running { started_at: Some(started_at), .. } => {
                Some(self.estimate(item, job)?.saturating_sub(self.now.since(*started_at)))
            }
            _ => None,
        }
    }

    /// Returns the milliseconds until the last of some jobs ends, 0 if all have ended. `None`
    /// without jobs, if an unfinished one waits, is paused or has no estimate, or if the jobs of
    /// one of `items` are not known yet.
    fn remaining_of(&self, items: &[&Item], jobs: &[(&Item, &Job)]) -> Option<u64> {
        if items.iter().any(|item| item.jobs.is_empty() && item.merged().is_none()) {
            return None;
        }
        let times: Option<Vec<u64>> =
            jobs.iter().map(|(item, job)| self.remaining(item, job)).collect();
        times?.into_iter().max()
    }
}

/// Returns Zuul's name of a trigger's driver.
pub(crate) fn trigger_driver(kind: &TriggerKind) -> &'static str {
    match kind {
        TriggerKind::GitHub(_) => "github",
        TriggerKind::Gerrit(_) => "gerrit",
        TriggerKind::GitLab(_) => "gitlab",
        TriggerKind::Git(_) => "git",
        TriggerKind::Timer(_) => "timer",
        TriggerKind::Zuul(_) => "zuul",
        TriggerKind::Other(_) => "other",
    }
}

/// Returns in Zuul's words what a job waits for; `None` if it is running, paused or has ended.
pub(crate) fn waiting_status(item: &Item, job: &Job) -> Option<String> {
    match &job.status {
        JobStatus::Ordered { .. } if job.waits_for.is_some() => {
            job.waits_for.as_ref().map(ToString::to_string)
        }
        JobStatus::Ordered { .. } => Some(match &job.request {
            Some(request) => format!("node request: {}", request.row),
            None => "executor".to_owned(),
        }),
        JobStatus::Waiting => {
            let unmet = job.summary.dependencies.iter().map(|dependency| &dependency.name);
            let is_open = |name: &&sluice_model::JobName| {
                let is_open = |other: &Job| other.result().is_none() && !other.is_paused();
                item.jobs.iter().any(|other| other.summary.name == **name && is_open(other))
            };
            let unmet: Vec<&str> = unmet.filter(is_open).map(|name| name.as_str()).collect();
            let is_unreported =
                item.reporting.as_ref().is_none_or(|reporting| reporting.awaits.is_some());
            Some(match unmet.as_slice() {
                [] if job.summary.reporter && is_unreported => "reports".to_owned(),
                [] => job
                    .waits_for
                    .as_ref()
                    .map_or_else(|| "repo state".to_owned(), ToString::to_string),
                names => format!("dependencies: {}", names.join(", ")),
            })
        }
        JobStatus::Running { .. } | JobStatus::Paused { .. } | JobStatus::Ended { .. } => None,
    }
}

/// Returns why the items of an entry (one, or a bundle's members) fail or are certain to fail, each
/// reason once; empty if none does.
fn failing_reasons(items: &[&Item]) -> Vec<&'static str> {
    let merges = || items.iter().map(|item| &item.merge_status);
    let misconfigured =
        merges().any(|ask| matches!(ask, MergeStatus::Unmergeable { configuration: true, .. }));
    let unmergeable =
        merges().any(|ask| matches!(ask, MergeStatus::Unmergeable { configuration: false, .. }));
    let failed = items.iter().flat_map(|item| &item.jobs).any(Job::fails_item);
    let reasons = [
        (misconfigured, "its configuration has errors"),
        (unmergeable, "it does not merge"),
        (failed, "at least one job failed"),
    ];
    reasons.into_iter().filter_map(|(holds, why)| holds.then_some(why)).collect()
}

/// Returns a change in the shape of an item's ref.
fn reference(slot: &Slot, item: &Item) -> Value {
    let change = &slot.change;
    json!({
        "id": id_of(change),
        "ref": change.github_ref(),
        "url": Some(&item.candidate.url).filter(|url| !url.is_empty()),
        "project": change.key.project.name(),
        "project_canonical": change.key.project,
        "owner": Some(&item.candidate.author).filter(|author| !author.is_empty()),
    })
}

/// Returns the message about the tenant's state for users; `None` if there is nothing to say.
/// `is_settling` says that the newest configuration is not live yet; `problems` are appended.
fn info(is_settling: bool, problems: &[String]) -> Option<String> {
    let settling = is_settling.then(|| {
        "A new configuration is being loaded. Nothing is enqueued or merged until it is live."
            .to_owned()
    });
    let words: Vec<String> = settling.into_iter().chain(problems.iter().cloned()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::fragment::{Source, SourceFile, Trust, parse};
    use sluice_config::layout::LayoutSources;
    use sluice_config::{Connections, Driver, TenantConfig, TenantProject};
    use sluice_gate::queue::queue_of;
    use sluice_model::ProjectName;
    use sluice_model::change::{ChangeKey, RefMove};
    use sluice_model::git::Oid;
    use std::sync::Arc;

    const TEXT: &str = "
- pipeline: {name: check, manager: independent}
- pipeline: {name: gate, manager: dependent}
- pipeline: {name: post, manager: supercedent}
- queue: {name: integrated, per-branch: true}
- project: {name: org/app, queue: integrated}
";

    fn layout() -> Layout {
        let mut tenant = TenantConfig::new("acme");
        let name = |name: &str| ProjectName::new("github.com", name);
        for project in ["org/config", "org/app", "org/lib"] {
            tenant.projects.push(TenantProject::new("github", name(project), Trust::Config));
        }
        let source = Source {
            connection: "github".into(),
            project: name("org/config"),
            branch: "main".into(),
            path: "zuul.yaml".to_owned(),
            trust: Trust::Config,
        };
        let file = SourceFile { source, text: TEXT.to_owned() };
        let connections = Connections::new().with("github", Driver::GitHub, "github.com");
        let fragments = vec![Arc::new(parse(&file))];
        Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments })
    }

    /// Z9.1, Z6.3: the stored key of a queue is not shown.
    #[test]
    fn a_queue_is_shown_by_its_public_name() {
        let layout = layout();
        assert_eq!(layout.errors(), []);
        let change = |project: &str| ChangeRef {
            key: ChangeKey::change("github".into(), ProjectName::new("github.com", project), 7),
            branch: "stable/1".into(),
            head: Oid("5".repeat(40)),
            patchset: "5".repeat(40),
        };
        let moved = RefMove::at_tip(&"stable/1".into());
        let pushed = ChangeRef::of_ref("github".into(), "github.com/org/app".into(), moved);
        let named = |pipeline: &str, change: &ChangeRef| {
            let pipeline = layout.pipeline(pipeline).unwrap();
            let key = queue_of(&layout, &"acme".into(), pipeline, change);
            let mut head = Head::new(key, pipeline.manager, 20, 1);
            head.entries.push(Slot::new("item".into(), change.clone()).into());
            let (name, branch) = queue_name(&layout, &head);
            (name.to_owned(), branch.map(ToString::to_string))
        };
        let branch = Some("stable/1".to_owned());
        assert_eq!(named("check", &change("org/app")), ("org/app".to_owned(), None));
        assert_eq!(named("gate", &change("org/app")), ("integrated".to_owned(), branch.clone()));
        assert_eq!(named("gate", &change("org/lib")), ("org/lib".to_owned(), None));
        assert_eq!(named("post", &pushed), ("org/app".to_owned(), branch));
    }
}
