//! The busy state of one tenant, in records and objects as the functions write them, with a second
//! tenant.
//!
//! The gate queue `integrated`: A is being merged; B is tested on A; C failed on B; D was tested
//! behind C and is tested again on B; E is being merged speculatively on D; F is outside the window
//! of five. One change is in check, and four have left.

mod parts;
mod write;

pub use parts::{PAST, StoryChange, build_id, change, item_id, queue_key};

use crate::configuration;
use async_trait::async_trait;
use bytes::Bytes;
use sluice_api::{Api, LIVE_BYTES_MAX, LiveLogSource, LogPiece};
use sluice_config::pipeline::Manager;
use sluice_gate::queue::Predecessor;
use sluice_gate::{Entry, Head, Slot, SlotStatus};
use sluice_memory::World;
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, Timestamp};
use sluice_records::codec::encode_first;
use sluice_records::provider;
use sluice_records::session::LiveLogServer;
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Objects, PortError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use write::{JobState, Writer};

/// The current time.
pub const NOW: Timestamp = Timestamp(1_795_259_025_000);

/// The tenant with the busy queue.
pub const TENANT: &str = "acme";

/// The second tenant.
pub const OTHER: &str = "other";

/// The public address of the pages.
pub const WEB_ROOT: &str = "https://ci.example.org/";

/// The changes of the gate queue, in order.
pub const A: StoryChange = StoryChange {
    project: "org/lib",
    number: 11,
    title: "Read numbers without copying them",
    author: "ada",
};
/// Behind A.
pub const B: StoryChange = StoryChange {
    project: "org/app",
    number: 12,
    title: "Use the faster numbers in the importer",
    author: "grace",
};
/// Behind B; it failed.
pub const C: StoryChange = StoryChange {
    project: "org/lib",
    number: 13,
    title: "Drop the old parser <script>alert(1)</script>",
    author: "linus",
};
/// Behind C, then on B.
pub const D: StoryChange = StoryChange {
    project: "org/app",
    number: 14,
    title: "Retry a lost connection once",
    author: "barbara",
};
/// Behind D.
pub const E: StoryChange =
    StoryChange { project: "org/lib", number: 15, title: "Explain the grammar", author: "edsger" };
/// Outside the window.
pub const F: StoryChange = StoryChange {
    project: "org/app",
    number: 16,
    title: "Say which file was skipped",
    author: "margaret",
};
/// In check.
pub const G: StoryChange =
    StoryChange { project: "org/app", number: 17, title: "Add a dry run", author: "grace" };

/// The world with its records, and the API over it.
pub struct TestSystem {
    /// All records and objects.
    pub world: World,
    /// The logs of running builds.
    pub logs: Arc<StoryLogs>,
    /// The API.
    pub api: Arc<Api>,
}

impl TestSystem {
    /// Writes a node of a provider that is held for a build.
    ///
    /// # Errors
    /// When the record cannot be made.
    pub fn write_held_node(
        &self,
        node: &str,
        provider: &str,
        build: &BuildId,
    ) -> Result<(), PortError> {
        let machine = serde_json::json!({
            "instance": "i-1", "private_ipv4": "10.0.0.7", "public_ipv4": null, "public_ipv6": null,
            "ssh_port": null, "launched_at": 0,
        });
        let hold = serde_json::json!({
            "machine": machine, "host_keys": ["ssh-ed25519 AAAAhost"],
            "reason": "to look at it", "until": null,
            "hold": {"tenant": TENANT, "id": "0000000001"},
        });
        let body = serde_json::json!({
            "id": node, "label": "small", "provider": provider, "region": null, "az": null,
            "origin": {"cloud": {"client_token": "t", "image_id": "i", "flavor": "f",
                "resources": {"instances": 1}}},
            "allocated_to": {"row": "200-0000-000000000001", "build": build},
            "state": {"hold": hold}, "attempt": 1, "username": "zuul", "ssh_port": 2222,
            "python_path": null, "interface": "private", "boot_timeout_seconds": 60,
            "created_at": 0, "updated_at": 0,
        });
        let key = provider::node_key(&provider.into(), &node.into());
        let record = encode_first(key, &body)?;
        self.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
        Ok(())
    }
}

/// The address of the executor's live logs.
const LOG_ADDRESS: &str = "http://10.0.0.7:7900/";

/// The token without which the executor serves no live log.
const LOG_TOKEN: &str = "the token of session-1";

/// A source of the logs of running builds.
#[derive(Debug, Default)]
pub struct StoryLogs(Mutex<BTreeMap<BuildId, String>>, AtomicUsize);

impl StoryLogs {
    /// Appends text to the log of a build.
    pub fn append(&self, build: &BuildId, text: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(build.clone())
            .or_default()
            .push_str(text);
    }

    /// Returns how often any log was read.
    pub fn reads(&self) -> usize {
        self.1.load(Ordering::Acquire)
    }
}

#[async_trait]
impl LiveLogSource for StoryLogs {
    async fn read(
        &self,
        server: &LiveLogServer,
        build: &BuildId,
        offset: u64,
    ) -> Result<Option<LogPiece>, PortError> {
        if server.address != LOG_ADDRESS || server.token.reveal() != LOG_TOKEN {
            return Err(PortError::unknown(
                format!("read a log at {}", server.address),
                "nothing listens there for this token",
            ));
        }
        self.1.fetch_add(1, Ordering::AcqRel);
        let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = logs.get(build) else {
            return Ok(None);
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(log.len());
        let to = (from + LIVE_BYTES_MAX).min(log.len());
        let bytes = Bytes::copy_from_slice(log.as_bytes().get(from..to).unwrap_or_default());
        Ok(Some(LogPiece { bytes, length: log.len() as u64 }))
    }
}

/// Writes all records and returns the API over them.
///
/// # Errors
/// When a record cannot be written.
pub async fn write_story() -> Result<TestSystem, PortError> {
    let world = World::new(7, 0, NOW);
    let ports = world.ports();
    let mut writer = Writer::new(ports.clone());
    writer.tenant(TENANT, &configuration::layout(TENANT)).await?;
    writer.tenant(OTHER, &configuration::layout(OTHER)).await?;
    writer.session().await?;
    gate(&mut writer).await?;
    check(&mut writer).await?;
    write_finished(&mut writer).await?;
    writer.second_tenant(OTHER).await?;
    let logs = Arc::new(StoryLogs::default());
    logs.append(&build_id(&B, "integration", 1), LIVE_LOG);
    let live: Arc<dyn LiveLogSource> = logs.clone();
    let api = Arc::new(Api::new(ports.clone(), live, WEB_ROOT));
    archive(&world).await?;
    Ok(TestSystem { world, logs, api })
}

async fn gate(writer: &mut Writer) -> Result<(), PortError> {
    let queue = queue_key(TENANT, "gate", "integrated");
    let mut head = Head::new(queue.clone(), Manager::Dependent, 5, 3);
    let slot = |of: &StoryChange, generation, ahead: Option<(&StoryChange, u64)>, status| {
        let slot = Slot { generation, status, ..Slot::new(item_id(of), change(of)) };
        let ahead =
            ahead.map(|(change, generation)| Predecessor { item: item_id(change), generation });
        Entry { ahead, ..slot.into() }
    };
    head.entries = vec![
        slot(&A, 1, None, SlotStatus::Landing),
        slot(&B, 1, Some((&A, 1)), SlotStatus::Testing),
        slot(&C, 1, Some((&B, 1)), SlotStatus::Failing),
        slot(&D, 2, Some((&B, 1)), SlotStatus::Testing),
        slot(&E, 2, Some((&D, 2)), SlotStatus::Waiting),
        slot(&F, 1, Some((&E, 2)), SlotStatus::Waiting),
    ];
    head.landed = vec![change(&PAST[1]).key, change(&PAST[0]).key];
    writer.head(&head).await?;
    use JobState::{Ended, Running, Waiting};
    let success = |seconds| Ended(BuildResult::Success, seconds, None);
    writer
        .item(
            &queue,
            &A,
            1,
            &[
                ("unit", success(95)),
                ("docs", Ended(BuildResult::Failure, 12, Some("the spelling check found 3 words"))),
            ],
            &["enqueued: approved by grace", "tested on main", "every voting job passed: merging"],
        )
        .await?;
    writer
        .item(
            &queue,
            &B,
            1,
            &[("unit", success(102)), ("integration", Running(160))],
            &["enqueued: approved by ada; it depends on org/lib#11", "tested on org/lib#11"],
        )
        .await?;
    writer
        .item(
            &queue,
            &C,
            1,
            &[
                (
                    "unit",
                    Ended(
                        BuildResult::Failure,
                        41,
                        Some("2 of 314 tests failed\nIn the run playbook unit.yaml."),
                    ),
                ),
                ("docs", Running(30)),
            ],
            &[
                "enqueued: approved by ada",
                "tested on org/app#12",
                "unit failed; the changes behind it are tested without it",
            ],
        )
        .await?;
    writer
        .item(
            &queue,
            &D,
            2,
            &[("unit", Running(28)), ("integration", Waiting)],
            &[
                "enqueued: approved by margaret",
                "tested on org/lib#13",
                "testing again on top of org/app#12",
            ],
        )
        .await?;
    writer
        .item(
            &queue,
            &E,
            2,
            &[],
            &["enqueued: approved by ada", "testing again on top of org/app#14"],
        )
        .await?;
    writer
        .item(&queue, &F, 1, &[], &["enqueued: approved by grace", "the window of 5 is full"])
        .await?;
    Ok(())
}

async fn check(writer: &mut Writer) -> Result<(), PortError> {
    let queue = queue_key(TENANT, "check", "github.com/org/app#17");
    let mut head = Head::new(queue.clone(), Manager::Independent, 0, 3);
    let (id, change, status) = (item_id(&G), change(&G), SlotStatus::Testing);
    head.entries = vec![Slot { status, ..Slot::new(id, change) }.into()];
    writer.head(&head).await?;
    writer
        .item(
            &queue,
            &G,
            1,
            &[("unit", JobState::Running(12)), ("integration", JobState::Ordered)],
            &["enqueued: the pull request was opened"],
        )
        .await
}

async fn write_finished(writer: &mut Writer) -> Result<(), PortError> {
    let queue = queue_key(TENANT, "gate", "integrated");
    let ends = [
        ("SUCCESS", "merged as tested"),
        ("SUCCESS", "merged as tested"),
        ("FAILURE", "unit failed"),
        ("MERGE_CONFLICT", "src/lib.rs does not merge with main"),
    ];
    for (index, (change, (result, why))) in PAST.iter().zip(ends).enumerate() {
        writer.buildset(&queue, change, result, why, 600 * (index as u64 + 1)).await?;
    }
    Ok(())
}

async fn archive(world: &World) -> Result<(), PortError> {
    let build = build_id(&PAST[0], "unit", 1);
    let files: [(&str, &[u8]); 4] = [
        ("job-output.txt", ARCHIVED_LOG.as_bytes()),
        ("job-output.json.gz", b"\x1f\x8b-packed"),
        ("zuul-info/inventory.yaml", b"all: {}\n"),
        ("report/index.html", b"<script>alert(1)</script>"),
    ];
    for (name, bytes) in files {
        let put = sluice_runtime::object::PutMode::Always;
        Objects::put(
            world,
            &format!("logs/acme/{build}/{name}"),
            Bytes::copy_from_slice(bytes),
            put,
            "text/plain",
        )
        .await?;
    }
    Ok(())
}

/// The log of B's running integration job.
pub const LIVE_LOG: &str = "\
2026-11-21 11:01:02.104233 | Job integration of gate, attempt 1
2026-11-21 11:01:02.911402 | PLAY [all]
2026-11-21 11:01:03.127731 | TASK [Start the service on both nodes]
2026-11-21 11:01:09.002318 | primary | changed
2026-11-21 11:01:09.448120 | secondary | changed
2026-11-21 11:01:09.501945 | TASK [Import 40,000 records – größer als sonst]
2026-11-21 11:03:12.030018 | primary | imported 31,882 of 40,000
";

/// The log of a finished build.
pub const ARCHIVED_LOG: &str = "2026-11-21 10:50:00.000000 | Job unit of gate, attempt 1\n2026-11-21 10:51:35.000000 | PLAY RECAP: ok=12 failed=0 naïve\n";
