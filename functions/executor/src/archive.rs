//! Puts a build's logs into object storage (Z7.4).
//!
//! Playbooks wrote them, and anybody may read them afterwards: nothing outside of the build's own
//! logs may get among them, and no amount of them may use up the executor that other builds run on
//! (Z7.5).
//!
//! Small files, the log among them, are stored together by one call ([`sluice_records::logs`]),
//! before the large ones: whoever dies between the calls has stored what people look at first.

use crate::beneath;
use crate::jobdir::log_path;
use bytes::Bytes;
use rustix::fs::{Dir, FileType};
use sluice_model::BuildId;
use sluice_records::logs::{self, LOG, Packed};
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::sync::Semaphore;

/// Files of one build that are archived; more are left out with a word in the executor's own log.
const FILES_MAX: usize = 2_000;
/// Directories that are looked into, and how deep they may lie.
const DIRECTORIES_MAX: usize = 5_000;
const DEPTH_MAX: usize = 40;
/// Bytes of one file: as much as the log itself may have. A larger one is left out, whatever it
/// holds on disk.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of those files of one build that are not small, together; the log comes first and is
/// always kept.
const BUILD_BYTES_MAX: u64 = 2 << 30;
/// Bytes of a file that is stored with others, and of all that one build stores so: the API reads
/// them whole. Any other file is an object of its own.
const PACKED_FILE_BYTES_MAX: u64 = 256 << 10;
const PACKED_BYTES_MAX: u64 = 1 << 20;
/// MiB of files that all builds of this process hold in memory at once; a build's small files come
/// on top, which is one each.
const MEMORY_MIB: u32 = 512;

static MEMORY: Semaphore = Semaphore::const_new(MEMORY_MIB as usize);

/// Uploads the log and everything below `work/logs` of the job directory at `root`, and returns the
/// address to read it from, which begins with `address`; `None` when there is nothing, or it
/// failed.
///
/// A failed upload never changes a build's result: what was tested was tested.
pub async fn archive(ports: &Ports, build: &BuildId, root: &Path, address: &str) -> Option<String> {
    let (of, at) = (build.clone(), root.to_owned());
    // In one go beside the other work: most builds leave a few small files and no other.
    let Sorted { packed, mut small, mut alone } =
        match tokio::task::spawn_blocking(move || sort(&of, &at)).await {
            Ok(sorted) => sorted,
            Err(error) => {
                tracing::error!(%build, %error, "the logs could not be read, and are not archived");
                return None;
            }
        };
    let mut stored_any = false;
    if !packed.is_empty() {
        match logs::store_packed(ports, build, &packed).await {
            Ok(()) => stored_any = true,
            Err(error) => {
                tracing::error!(%build, %error, "small logs could not be archived together; each is tried by itself");
                small.append(&mut alone);
                alone = small;
            }
        }
    }
    drop(packed);
    let mut left = BUILD_BYTES_MAX;
    for path in alone {
        let held = match read(root, &path, left).await {
            Ok(held) => held,
            Err(error) => {
                tracing::warn!(%build, file = %path.display(), %error, "a log is not archived");
                continue;
            }
        };
        left = left.saturating_sub(held.content.len() as u64);
        let key = logs::key(build, &path.to_string_lossy());
        match ports.objects.put(&key, held.content, PutMode::Always, content_type(&path)).await {
            Ok(_) => stored_any = true,
            Err(error) => {
                tracing::error!(%build, file = %path.display(), %error, "a log could not be archived")
            }
        }
    }
    stored_any.then(|| format!("{address}{build}/"))
}

/// The files of a build by how they are stored.
#[derive(Default)]
struct Sorted {
    /// Small ones, read.
    packed: Packed,
    /// Where these lie, in their order.
    small: Vec<PathBuf>,
    /// The others, in their order.
    alone: Vec<PathBuf>,
}

/// Reads small files, as far as one object holds them, and tells which are to be stored by
/// themselves. It blocks.
fn sort(build: &BuildId, root: &Path) -> Sorted {
    // The log as it was written: what lies under its name below work/logs may be a playbook's.
    let mut paths = vec![PathBuf::from(LOG)];
    paths.extend(files(root).into_iter().filter(|path| path != Path::new(LOG)));
    let (mut sorted, mut room) = (Sorted::default(), PACKED_BYTES_MAX);
    for path in paths {
        // Names count: anybody may give many empty files long ones.
        let name_bytes = path.as_os_str().len() as u64;
        let content_max = PACKED_FILE_BYTES_MAX.min(room.saturating_sub(name_bytes));
        let read = match open(root, &path, FILE_BYTES_MAX) {
            Ok(opened) if opened.bytes > content_max || name_bytes > room => {
                sorted.alone.push(path);
                continue;
            }
            Ok(opened) => opened.read_now(),
            Err(error) => Err(error),
        };
        match read {
            Ok(content) => {
                room = room.saturating_sub(name_bytes + content.len() as u64);
                sorted.packed.add(path.to_string_lossy().into_owned(), content);
                sorted.small.push(path);
            }
            Err(error) => {
                tracing::warn!(%build, file = %path.display(), %error, "a log is not archived")
            }
        }
    }
    sorted
}

/// Returns the ordinary files below `work/logs` of the job directory at `root`: paths relative to
/// it, sorted.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let logs = root.join("work/logs");
    let (mut found, mut waiting, mut looked_into) = (Vec::new(), vec![PathBuf::new()], 0);
    while let Some(path) = waiting.pop() {
        looked_into += 1;
        if looked_into > DIRECTORIES_MAX || found.len() >= FILES_MAX {
            tracing::warn!(logs = %logs.display(), "too many logs: the rest is left out");
            break;
        }
        let Ok(directory) = beneath::open_directory(&logs, &path)
            .and_then(|directory| Ok(Dir::read_from(directory)?))
        else {
            continue;
        };
        for entry in directory.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            match entry.file_type() {
                _ if name == "." || name == ".." => {}
                FileType::Directory if path.components().count() < DEPTH_MAX => {
                    waiting.push(path.join(name))
                }
                FileType::RegularFile if found.len() < FILES_MAX => found.push(path.join(name)),
                // Links are left out: what they lead to may lie outside of the logs.
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The content of a file, and its share of the memory that all of them may have.
struct Held {
    content: Bytes,
    _memory: tokio::sync::SemaphorePermit<'static>,
}

/// A file that may be archived, and how many bytes of it.
struct Opened {
    file: File,
    bytes: u64,
}

async fn read(root: &Path, path: &Path, left: u64) -> std::io::Result<Held> {
    open(root, path, left)?.read().await
}

/// Opens a file to archive; one that is larger than a file may be, or than `left`, is refused.
fn open(root: &Path, path: &Path, left: u64) -> std::io::Result<Opened> {
    let below = || beneath::open(&root.join("work/logs"), path);
    let file = match path == Path::new(LOG) {
        true => match File::open(log_path(root)) {
            // A runner that keeps none out of its jobs' reach.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => below()?,
            opened => opened?,
        },
        false => below()?,
    };
    let size = file.metadata()?.len();
    // Of the log, the beginning is better than nothing.
    let bytes = if path == Path::new(LOG) { size.min(FILE_BYTES_MAX) } else { size };
    if bytes > FILE_BYTES_MAX.min(left) {
        return Err(Error::other(format!(
            "it has {bytes} bytes, and {} are left for it",
            FILE_BYTES_MAX.min(left)
        )));
    }
    Ok(Opened { file, bytes })
}

impl Opened {
    /// Returns what is in the file, once there is memory for it.
    async fn read(self) -> std::io::Result<Held> {
        let mib =
            u32::try_from(self.bytes >> 20).unwrap_or(MEMORY_MIB).saturating_add(1).min(MEMORY_MIB);
        let memory = MEMORY.acquire_many(mib).await.map_err(Error::other)?;
        let content =
            tokio::task::spawn_blocking(move || self.read_now()).await.map_err(Error::other)??;
        Ok(Held { content, _memory: memory })
    }

    fn read_now(self) -> std::io::Result<Bytes> {
        let Self { file, bytes } = self;
        let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
        // No further than it was long: what writes to it still is nobody's log.
        file.take(bytes).read_to_end(&mut content)?;
        Ok(content.into())
    }
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => "application/json",
        Some("html") => "text/html; charset=utf-8",
        Some("gz") => "application/gzip",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("txt" | "log" | "yaml" | "yml" | "xml" | "conf" | "cfg" | "ini" | "md") | None => {
            "text/plain; charset=utf-8"
        }
        Some(_) => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobdir::Jobdir;
    use sluice_memory::{Fate, World};
    use std::os::unix::fs::symlink;

    fn jobdir(scratch: &Path, build: &BuildId) -> Jobdir {
        let runtime = scratch.join("runtime");
        std::fs::create_dir(&runtime).unwrap();
        let jobdir = Jobdir::make(&scratch.join("job"), &runtime, build).unwrap();
        std::fs::write(&jobdir.log, "what the executor wrote\n").unwrap();
        jobdir
    }

    /// Returns the names of all files that are kept of a build.
    async fn stored(ports: &Ports, build: &BuildId) -> Vec<String> {
        let prefix = format!("logs/{build}/");
        let keys = ports.objects.list(&prefix, None, 100).await.unwrap();
        let mut names: Vec<String> =
            keys.iter().map(|key| key.trim_start_matches(&prefix).to_owned()).collect();
        names.extend(logs::packed(ports, build).await.unwrap().names().map(str::to_owned));
        names.sort_unstable();
        names
    }

    /// Writes what an executor leaves beside the log of every build.
    fn leave_papers(jobdir: &Jobdir) {
        std::fs::create_dir(jobdir.logs.join("zuul-info")).unwrap();
        for (name, text) in PAPERS {
            std::fs::write(jobdir.logs.join(name), text).unwrap();
        }
    }

    const PAPERS: [(&str, &str); 3] = [
        ("job-output.json", "[]"),
        ("workspace-repos.json", "[{}]"),
        ("zuul-info/inventory.yaml", "all: {}\n"),
    ];

    /// Z7.4: one call for all that every build leaves, and nothing that is large among it.
    #[tokio::test]
    async fn small_files_are_stored_together_and_a_large_one_by_itself() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["together"]);
        let jobdir = jobdir(scratch.path(), &build);
        leave_papers(&jobdir);
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        let address = archive(&ports, &build, &jobdir.root, "http://pages/logs/").await;
        assert_eq!(address, Some(format!("http://pages/logs/{build}/")));
        assert_eq!(world.object_keys(), [format!("logs/{build}.files")]);
        for (name, text) in PAPERS.into_iter().chain([(LOG, "what the executor wrote\n")]) {
            assert_eq!(logs::whole(&ports, &build, name).await.unwrap().unwrap(), text, "{name}");
        }
        assert_eq!(logs::whole(&ports, &build, "none.txt").await.unwrap(), None);

        let limit = usize::try_from(PACKED_FILE_BYTES_MAX).unwrap();
        let other = BuildId::derive(&["large"]);
        std::fs::write(jobdir.logs.join("job-output.json"), vec![b' '; limit + 1]).unwrap();
        std::fs::write(jobdir.logs.join("just.txt"), vec![b'x'; limit]).unwrap();
        assert!(archive(&ports, &other, &jobdir.root, "http://pages/logs/").await.is_some());
        let keys: Vec<String> =
            world.object_keys().into_iter().filter(|key| key.contains(other.as_str())).collect();
        assert_eq!(keys, [format!("logs/{other}.files"), format!("logs/{other}/job-output.json")]);
        assert_eq!(
            logs::whole(&ports, &other, "job-output.json").await.unwrap().unwrap().len(),
            limit + 1
        );
        assert_eq!(logs::whole(&ports, &other, "just.txt").await.unwrap().unwrap().len(), limit);
    }

    /// Z7.4, Z7.5: what is read whole is bounded, whatever a job leaves.
    #[tokio::test]
    async fn files_beyond_what_one_object_holds_are_stored_by_themselves() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["many"]);
        let jobdir = jobdir(scratch.path(), &build);
        for number in 0..6 {
            std::fs::write(jobdir.logs.join(format!("{number}.txt")), vec![b'x'; 200 << 10])
                .unwrap();
        }
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        assert!(archive(&ports, &build, &jobdir.root, "http://pages/logs/").await.is_some());
        assert_eq!(
            world.object_keys(),
            [format!("logs/{build}.files"), format!("logs/{build}/5.txt")]
        );
        assert_eq!(stored(&ports, &build).await.len(), 7);
    }

    /// Z7.4: an executor may die between any two calls; what people look at first is there by then.
    #[tokio::test]
    async fn the_log_is_kept_when_nothing_can_be_stored_after_the_small_files() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["cut"]);
        let jobdir = jobdir(scratch.path(), &build);
        leave_papers(&jobdir);
        std::fs::write(jobdir.logs.join("a.txt"), vec![b'x'; 1 << 20]).unwrap();
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        world.decide_fates(|step| if step.number == 0 { Fate::Works } else { Fate::FailsBefore });
        assert!(archive(&ports, &build, &jobdir.root, "http://pages/logs/").await.is_some());
        world.decide_fates(|_| Fate::Works);
        let names = stored(&ports, &build).await;
        assert_eq!(
            names,
            [
                "job-output.json",
                "job-output.txt",
                "workspace-repos.json",
                "zuul-info/inventory.yaml"
            ]
        );
    }

    /// Z7.4: one call that fails is not the end of all small files.
    #[tokio::test]
    async fn small_files_that_cannot_be_stored_together_are_stored_by_themselves() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["refused"]);
        let jobdir = jobdir(scratch.path(), &build);
        leave_papers(&jobdir);
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        world.set_fate(0, Fate::FailsBefore);
        assert!(archive(&ports, &build, &jobdir.root, "http://pages/logs/").await.is_some());
        let expected = [
            "job-output.json",
            "job-output.txt",
            "workspace-repos.json",
            "zuul-info/inventory.yaml",
        ];
        assert_eq!(world.object_keys(), expected.map(|name| format!("logs/{build}/{name}")));
    }

    /// Z7.4, Z7.5: what is archived, anybody may read.
    #[tokio::test]
    async fn nothing_is_archived_but_the_log_when_the_logs_were_replaced_by_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["replaced"]);
        let jobdir = jobdir(scratch.path(), &build);
        let state = scratch.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("node-key"), "private").unwrap();
        std::fs::rename(&jobdir.logs, jobdir.work.join("moved")).unwrap();
        symlink(&state, &jobdir.logs).unwrap();
        let ports = World::new(1, 0, sluice_model::Timestamp(0)).ports();
        assert!(archive(&ports, &build, &jobdir.root, "http://pages/logs/").await.is_some());
        assert_eq!(stored(&ports, &build).await, ["job-output.txt"]);
    }

    /// Z7.4: of what a build said, the beginning is better than nothing.
    #[tokio::test]
    async fn a_log_that_is_too_long_is_archived_as_far_as_a_file_may_go() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["long"]);
        let jobdir = jobdir(scratch.path(), &build);
        let log = std::fs::File::options().write(true).open(&jobdir.log).unwrap();
        log.set_len(FILE_BYTES_MAX + 7).unwrap();
        let ports = World::new(1, 0, sluice_model::Timestamp(0)).ports();
        assert!(archive(&ports, &build, &jobdir.root, "http://pages/logs/").await.is_some());
        let kept = ports
            .objects
            .get(&format!("logs/{build}/job-output.txt"))
            .await
            .unwrap()
            .unwrap()
            .bytes;
        assert_eq!(kept.len() as u64, FILE_BYTES_MAX);
        assert!(kept.starts_with(b"what the executor wrote\n"));
    }

    /// Z7.4, Z7.5
    #[tokio::test]
    async fn the_archived_log_is_the_executors_and_links_pipes_and_huge_files_are_left_out() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["forged"]);
        let jobdir = jobdir(scratch.path(), &build);
        std::fs::remove_file(jobdir.logs.join("job-output.txt")).unwrap();
        symlink("/proc/self/environ", jobdir.logs.join("job-output.txt")).unwrap();
        symlink("/etc/passwd", jobdir.logs.join("accounts")).unwrap();
        std::fs::File::create(jobdir.logs.join("huge")).unwrap().set_len(60 << 30).unwrap();
        assert!(
            std::process::Command::new("mkfifo")
                .arg(jobdir.logs.join("pipe"))
                .status()
                .unwrap()
                .success()
        );
        std::fs::create_dir(jobdir.logs.join("unit")).unwrap();
        std::fs::write(jobdir.logs.join("unit/report.txt"), "fine").unwrap();
        let ports = World::new(1, 0, sluice_model::Timestamp(0)).ports();
        let address = archive(&ports, &build, &jobdir.root, "http://pages/logs/").await;
        assert_eq!(address, Some(format!("http://pages/logs/{build}/")));
        assert_eq!(stored(&ports, &build).await, ["job-output.txt", "unit/report.txt"]);
        assert_eq!(
            logs::whole(&ports, &build, LOG).await.unwrap().unwrap(),
            "what the executor wrote\n"
        );
    }
}
