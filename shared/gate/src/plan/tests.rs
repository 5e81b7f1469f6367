//! Tests of [`plan`](super::plan): a test bench plays merger, executors and forge, and each test
//! compares what the plans decided.

mod bench;
mod branch_locks;
mod bundle_changes;
mod bundles;
mod commands;
mod dependencies;
mod entry;
mod forward;
mod hosting;
mod job_graph;
mod jobs;
mod landing;
mod plan_size;
mod random_runs;
mod reporter_jobs;
mod semaphore_lines;
mod semaphores;
mod speculation;
mod tenant_hold;
