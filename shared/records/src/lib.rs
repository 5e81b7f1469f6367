//! Where everything lies in the table: one file per entity with its keys, its encoding and its
//! conditions.
//!
//! | what | partition | sort key | written by |
//! |---|---|---|---|
//! | delivery | `delivery#<id>` | `head` | webhook, then intake |
//! | change facts | `change#<connection>/<project>/<number>` | `facts` | intake |
//! | what became of its events where it was not taken in | the same | `verdicts` | intake |
//! | who needs a change | the same | `needed-by#<change>` | intake |
//! | where a project's branches were when they were told of last | `refs#<project>` | `head` | intake |
//! | which of its changes are known to be open | the same | `open` | intake |
//! | tenant | `tenant#<tenant>` | `head` | tenant; `wanted` also by the gate |
//! | which statuses and check runs may start anything, of all tenants | `tenants-listing` | `status-triggers` | tenant |
//! | queues of a tenant that are not empty | the same | `queue#<pipeline>/<queue>` | gate |
//! | what happened to a tenant | `system-events#<tenant>` | the layout's number, counted down | tenant |
//! | change queue | `queue#<tenant>/<pipeline>/<queue>` | `head`, `item#<id>` | gate |
//! | what arrived there | the same | `arrival#<time>-<id>` | intake, operators; removed by the gate |
//! | merge outcome | `merge#<item>` | `<generation>-<layout>` | merger |
//! | build | `build#<id>` | `order`, `stop`, `resume` by the gate; `run` by the executor | |
//! | what a revision provides to those that need it | `provided#<tenant>/<pipeline>/<change>` | `<head>` | gate |
//! | landing | `landing#<item>` | `<generation>` | gate, then reporter |
//! | report | `report#<id>` | `head` | gate, then reporter |
//! | buildset | `buildset#<item>` | `head` | gate |
//! | provider (requests, nodes, quota) | `provider#<name>` | `head`, `request#<row>`, `node#<id>` | launcher; a request is created by the gate, and its executor's from claim to end |
//! | operators' requests to keep nodes of failed builds | `autohold#<tenant>` | `<id>` | operators; counted by the launcher |
//! | image (wish for a build, builds, uploads) | `image#<tenant>/<image>` | `head` by images; `request-build` by whoever wants one | |
//! | executor's life | `session#<id>` | `head` | executor |
//! | a dead letter that was sent again | `dead-letter#<hash of its poke>` | `head` | timer |
//! | a repository's packs | `repository#<project>` | `head` | merger, tenant |
//!
//! Objects: `system/main.yaml`, `system/included/<digest of main.yaml>.json`,
//! `system/connections.json`, `layouts/<hash>`, `jobs/<hash>`, `speculations/<hash>`, `git/…`,
//! `deliveries/<id>`, `logs/<build>/…`, `logs/<build>.files`, `returned/<build>/<hash>`,
//! `keys/<source name>/<repo name>.pem` and `.pub`.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod autohold;
pub mod build;
pub mod change;
pub mod codec;
pub mod connection;
pub mod dead;
pub mod delivery;
pub mod health;
pub mod image;
pub mod included;
pub mod landing;
pub mod layout;
pub mod ledger;
pub mod logs;
pub mod merge;
pub mod open;
pub mod project_key;
pub mod provided;
pub mod provider;
pub mod queue;
pub mod refs;
pub mod report;
pub mod repository;
pub mod schedule;
pub mod semaphore;
pub mod session;
pub mod status;
pub mod system_event;
pub mod tenant;
pub mod turn;
pub mod word;

pub use codec::{BadRecord, decode, encode};
