//! The records in the table: one module per entity with its keys, its encoding and its conditions.
//!
//! | record | partition | sort key | written by |
//! |---|---|---|---|
//! | delivery | `delivery#<id>` | `head` | webhook, intake |
//! | change facts | `change#<connection>/<project>/<number>` | `facts` | intake |
//! | processed events of a change | same | `seen-events` | intake |
//! | why pipelines did not enqueue a change | same | `routing` | intake |
//! | dependents of a change | same | `needed-by#<change>` | intake |
//! | branch tips of a project | `refs#<project>` | `head` | intake |
//! | open changes of a project | same | `open` | intake |
//! | refs that a poll saw | `refs#<project>` | `seen#<connection>` | intake |
//! | tenant | `tenant#<tenant>` | `head` | tenant; `wanted` also by the gate |
//! | reread request for a project | same | `reread#<project>#<cause>` | intake, operators |
//! | newest reread request of a push | same | `last-reread#<project>` | intake |
//! | deferred delivery | same | `deferred#<time>#<delivery>` | intake |
//! | last deferred event of a project | same | `last-deferred#<project>` | intake |
//! | request to remove the tenant | same | `removal` | operators |
//! | what was read from a project | same | `source#<project>` | tenant |
//! | non-empty queue | same | `queue#<pipeline>/<queue>` | gate |
//! | version of the list of tenants | `tenants-listing` | `head` | tenant |
//! | status triggers of all tenants | same | `status-triggers` | tenant |
//! | event of a tenant | `system-events#<tenant>` | layout number, counted down | tenant |
//! | change queue | `queue#<tenant>/<pipeline>/<queue>` | `head`, `item#<id>` | gate |
//! | inbox message | same | `inbox#<time>-<id>` | any function, operators |
//! | merge outcome | `merge#<item>` | `<generation>-<layout>` | merger |
//! | build | `build#<id>` | `order`, `stop`, `resume` | gate |
//! | run of a build | same | `run` | executor |
//! | provided artifacts | `provided#<tenant>/<pipeline>/<change>` | `<head>` | gate |
//! | landing | `landing#<item>` | `<generation>` | gate, reporter |
//! | branch lock | `branch#<project>@<branch>` | `lock` | gate |
//! | report | `report#<id>` | `head` | gate, reporter |
//! | buildset | `buildset#<item>` | `head` | gate |
//! | provider | `provider#<name>` | `head`, `node#<id>` | launcher |
//! | node request | same | `request#<row>` | gate, launcher, executor |
//! | command to a provider | same | `command#<time>-<token>` | api, operators; launcher removes it |
//! | autohold request | `autohold#<tenant>` | `<id>` | operators, launcher |
//! | last id of an autohold request | `autohold#<tenant>#last` | `id` | operators |
//! | write over the API or by an operator | `audit#<tenant>` | time, counted down | api, operators |
//! | build that waits for an executor of a zone | `zone-builds#<zone>` | `<priority>#<build>` | gate, launcher; executor removes it |
//! | image | `image#<tenant>/<image>` | `head`, `request-build` | images |
//! | session of an executor | `session#<id>` | `head` | executor |
//! | revived dead letter | `dead-letter#<hash of the wakeup>` | `head` | timer |
//! | packs of a repository | `repository#<project>` | `head` | merger, tenant |
//!
//! Objects: `system/main.yaml`, `system/included/<digest of main.yaml>.json`,
//! `system/connections.json`, `system/authenticators.json`, `system/pool-key.json`,
//! `layouts/<hash>`, `jobs/<hash>`, `speculations/<hash>`, `git/…`,
//! `refs/<project>/<connection>/…`, `deliveries/<id>`, `logs/<tenant>/<build>/…`,
//! `logs/<tenant>/<build>.files`, `returned/<build>/<hash>`, `keys/<source name>/<repo name>.pem`,
//! `keys/<source name>/<repo name>.ssh`, `keys/<tenant>.ssh`, `oidc/rs256-<week>.pem`.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod artifact;
pub mod audit;
pub mod authenticators;
pub mod autohold;
pub mod branch_lock;
pub mod branch_tips;
pub mod build;
pub mod change;
pub mod codec;
pub mod connection;
pub mod dead_letter;
pub mod delivery;
pub mod image;
pub mod included_files;
pub mod landing;
pub mod layout;
pub mod logs;
pub mod merge_outcome;
pub mod oidc_key;
pub mod open_changes;
pub mod open_work;
pub mod operator_command;
pub mod pipeline_health;
pub mod pool_key;
pub mod project_key;
pub mod provided_artifacts;
pub mod provider;
pub mod queue;
pub mod queue_positions;
pub mod report;
pub mod repository;
pub mod schedule;
pub mod seen_refs;
pub mod semaphore;
pub mod session;
pub mod ssh_key;
pub mod status_triggers;
pub mod system_event;
pub mod tenant;

pub use codec::{BadRecord, decode, encode};
