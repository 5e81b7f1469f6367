//! Rules of the gate as tables: a bench plays merger, executors and forge, and each test tells what
//! the plans decided.

mod bench;
mod bounds;
mod bundles;
mod cycles;
mod entry;
mod forward;
mod graph;
mod guests;
mod hold;
mod jobs;
mod landing;
mod lines;
mod needs;
mod operators;
mod reporters;
mod semaphores;
mod speculation;
mod story;
mod turns;
