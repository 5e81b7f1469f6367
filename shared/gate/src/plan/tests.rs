//! Tests of [`plan`](super::plan): a test bench plays merger, executors and forge, and each test
//! compares what the plans decided.

mod bench;
mod plan_size;
mod bundle_changes;
mod bundles;
mod entry;
mod forward;
mod job_graph;
mod hosting;
mod tenant_hold;
mod jobs;
mod landing;
mod semaphore_lines;
mod dependencies;
mod commands;
mod reporter_jobs;
mod semaphores;
mod speculation;
mod random_runs;
mod branch_locks;
