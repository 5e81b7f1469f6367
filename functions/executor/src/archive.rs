//! Uploads a build's logs to object storage (Z7.4).
//!
//! Playbooks write the log files, and archived logs are public. So no file from outside the log
//! directory may be included, and the total size is limited to protect other builds on the
//! executor (Z7.5).
//!
//! Small files, including the job log, are stored first, in one object ([`sluice_records::logs`]).
//! If the executor dies before the large files are stored, the most important files are there.

use crate::confined_files;
use crate::jobdir::log_path;
use bytes::Bytes;
use rustix::fs::{Dir, FileType};
use sluice_model::BuildId;
use sluice_model::plain_text::plain_line;
use sluice_records::logs::{BuildLogs, LOG, PackedLogs};
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::sync::Semaphore;

/// The maximum number of archived files of one build; more are left out.
const FILES_MAX: usize = 2_000;
/// The maximum number of files and directories that are looked at.
const ENTRIES_MAX: usize = 20_000;
/// The maximum depth of a directory that is searched.
const DEPTH_MAX: usize = 40;
/// The files that the executor itself adds to the logs; they come before those of the playbooks.
const OWN_FILES: [&str; 5] =
    [LOG, "job-output.json", "workspace-repos.json", "zuul-info/inventory.yaml", COLLECTION_LOG];
/// The name of the log of a collection, if the build has a log of its own.
pub const COLLECTION_LOG: &str = "log-collection.txt";
/// The most characters of a file's name in a line of a log.
const NAME_CHARS_MAX: usize = 200;
/// The most files that are named in one line of a log.
const NAMED_MAX: usize = 5;
/// The maximum size of one file in bytes, equal to the limit of the job log. Larger files are
/// skipped.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The maximum total size of the large files of one build in bytes. The job log comes first.
const BUILD_BYTES_MAX: u64 = 2 << 30;
/// The maximum size of a file that is stored in the common object; larger files are separate
/// objects.
const PACKED_FILE_BYTES_MAX: u64 = 256 << 10;
/// The maximum size of the common object, which the API reads as a whole.
const PACKED_BYTES_MAX: u64 = 1 << 20;
/// The memory in MiB for large files of all builds of this process together. The common object of
/// each build, at most 1 MiB, comes in addition.
const MEMORY_MIB: u32 = 512;

static MEMORY: Semaphore = Semaphore::const_new(MEMORY_MIB as usize);

/// Whether a build's log is stored already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogCopy {
    /// It is not: it is archived as a file.
    Missing,
    /// It was stored while it grew ([`crate::stored_log`]), and is not archived again.
    Stored,
}

/// What became of the logs of a build.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ArchivedLogs {
    /// The address of the logs; `None` if nothing was stored.
    pub address: Option<String>,
    /// What could not be stored, in a sentence; `None` if all was.
    pub trouble: Option<String>,
}

/// Uploads the job log, unless `log` says that it is stored already, and the regular files below
/// `work/logs` of the job directory `root`. `address` is the address of all logs and ends in `/`.
/// Small files are stored together in one object, or each in its own if that fails; other files
/// each in their own. Files beyond the limits of number and size are left out, which
/// [`describe_left_out`] says, and an oversized job log is cut.
pub async fn archive(
    ports: &Ports,
    logs: BuildLogs<'_>,
    root: &Path,
    address: &str,
    log: LogCopy,
) -> ArchivedLogs {
    let build = logs.build;
    let (build_id, directory) = (build.clone(), root.to_owned());
    // One blocking task for all small files, because most builds have only a few of them.
    let ArchivePlan { packed, mut small, mut alone, mut failed } =
        match tokio::task::spawn_blocking(move || plan_archive(&build_id, &directory, log)).await {
            Ok(sorted) => sorted,
            Err(error) => {
                tracing::error!(%build, %error, "could not read the logs of a build; they are not archived");
                let trouble = Some("The log files could not be read; none is archived".to_owned());
                return ArchivedLogs { address: None, trouble };
            }
        };
    let mut stored_any = log == LogCopy::Stored;
    if !packed.is_empty() {
        match logs.store_packed(ports, &packed).await {
            Ok(()) => stored_any = true,
            Err(error) => {
                tracing::error!(%build, %error, "could not archive small logs together; trying each one alone");
                small.append(&mut alone);
                alone = small;
            }
        }
    }
    drop(packed);
    let mut left = BUILD_BYTES_MAX;
    for path in alone {
        let loaded = match read(root, &path, left).await {
            Ok(loaded) => loaded,
            // The log of the build says so.
            Err(error) if error.kind() == ErrorKind::FileTooLarge => continue,
            Err(error) => {
                tracing::warn!(%build, file = %path.display(), %error, "could not read a log file; it is not archived");
                failed.push(path);
                continue;
            }
        };
        left -= share_of_build(loaded.content.len() as u64).min(left);
        let key = logs.key(&path.to_string_lossy());
        match ports.objects.put(&key, loaded.content, PutMode::Always, content_type(&path)).await {
            Ok(_) => stored_any = true,
            Err(error) => {
                tracing::error!(%build, file = %path.display(), %error, "could not upload a log file");
                failed.push(path);
            }
        }
    }
    let failed: Vec<String> = failed.iter().map(|path| path.display().to_string()).collect();
    ArchivedLogs {
        address: stored_any.then(|| logs.address(address)),
        trouble: (!failed.is_empty()).then(|| {
            let (count, names) = (count(failed.len(), "log file"), named(&failed));
            format!("{count} could not be read or stored and will be missing: {names}")
        }),
    }
}

/// Stores the log of a build as a file of its own, which readers prefer to a copy in the common
/// object.
///
/// # Errors
/// Returns an error if the log cannot be read or stored.
pub async fn store_log(ports: &Ports, logs: BuildLogs<'_>, root: &Path) -> Result<(), PortError> {
    let path = Path::new(LOG);
    let failed = |error| PortError::unknown(format!("read the log of {}", logs.build), error);
    let loaded = read(root, path, FILE_BYTES_MAX).await.map_err(failed)?;
    let key = logs.key(LOG);
    ports.objects.put(&key, loaded.content, PutMode::Always, content_type(path)).await.map(drop)
}

/// Returns what [`archive`] will leave out of the logs below the job directory `root` because of
/// the limits of number and size, as lines for the log of the build; none if it leaves out nothing.
/// Blocks on file access.
pub fn describe_left_out(root: &Path) -> Vec<String> {
    let found = log_files(root);
    let mut notes = Vec::new();
    if found.left_out > 0 {
        let least = if found.is_complete { "" } else { "at least " };
        let were = if found.left_out == 1 { "was" } else { "were" };
        notes.push(format!(
            "{least}{} {were} not archived: the limit is {FILES_MAX}",
            count(found.left_out, "log file")
        ));
    } else if !found.is_complete {
        notes.push(format!(
            "Some log files were not archived: directories are searched to a depth of {DEPTH_MAX}, and {ENTRIES_MAX} entries of them"
        ));
    }
    let (mut left, mut too_large) = (BUILD_BYTES_MAX, Vec::new());
    for path in found.files {
        match open(root, &path, left) {
            Ok(opened) => left -= share_of_build(opened.bytes).min(left),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                too_large.push(path.display().to_string());
            }
            Err(_) => {}
        }
    }
    if !too_large.is_empty() {
        let were = if too_large.len() == 1 { "was" } else { "were" };
        notes.push(format!(
            "{} {were} not archived: a file may have {} MiB, and the large files of a build {} GiB: {}",
            count(too_large.len(), "log file"),
            FILE_BYTES_MAX >> 20,
            BUILD_BYTES_MAX >> 30,
            named(&too_large)
        ));
    }
    notes
}

/// Returns how many bytes of a file count to the total size of the large files of a build.
fn share_of_build(bytes: u64) -> u64 {
    if bytes > PACKED_FILE_BYTES_MAX { bytes } else { 0 }
}

/// Returns a number with a noun, such as `2 log files`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Names the first few files, and the number of the others.
fn named(files: &[String]) -> String {
    let mut names: Vec<String> =
        files.iter().take(NAMED_MAX).map(|name| plain_line(name, NAME_CHARS_MAX)).collect();
    if files.len() > NAMED_MAX {
        names.push(format!("{} more", files.len() - NAMED_MAX));
    }
    names.join(", ")
}

/// The files of a build, grouped by how they are stored.
#[derive(Default)]
struct ArchivePlan {
    /// The small files with their content.
    packed: PackedLogs,
    /// The paths of the small files, in order.
    small: Vec<PathBuf>,
    /// The paths of the files that are separate objects, in order.
    alone: Vec<PathBuf>,
    /// The paths of the files that could not be read.
    failed: Vec<PathBuf>,
}

/// Groups the files of a build: reads those that are stored together, and lists the others, which
/// become separate objects. A file is stored together with others if it has at most 256 KiB and the
/// common object, at most 1 MiB, has room for it. The job log, if it is not stored, comes first.
/// Files that are unreadable or too large to archive are logged and left out. Blocks on file
/// access.
fn plan_archive(build: &BuildId, root: &Path, log: LogCopy) -> ArchivePlan {
    // The executor's own log file. A playbook may have replaced its link below work/logs.
    let mut paths = match log {
        LogCopy::Missing => vec![PathBuf::from(LOG)],
        LogCopy::Stored => Vec::new(),
    };
    paths.extend(log_files(root).files.into_iter().filter(|path| path != Path::new(LOG)));
    let (mut plan, mut room) = (ArchivePlan::default(), PACKED_BYTES_MAX);
    for path in paths {
        // Names count too, because a job may create many empty files with long names.
        let name_bytes = path.as_os_str().len() as u64;
        let content_max = PACKED_FILE_BYTES_MAX.min(room.saturating_sub(name_bytes));
        let read = match open(root, &path, FILE_BYTES_MAX) {
            Ok(opened) if opened.bytes > content_max || name_bytes > room => {
                plan.alone.push(path);
                continue;
            }
            Ok(opened) => opened.read_now(),
            Err(error) => Err(error),
        };
        match read {
            Ok(content) => {
                room = room.saturating_sub(name_bytes + content.len() as u64);
                plan.packed.add(path.to_string_lossy().into_owned(), content);
                plan.small.push(path);
            }
            // The log of the build says so.
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {}
            Err(error) => {
                tracing::warn!(%build, file = %path.display(), %error, "could not read a log file; it is not archived");
                plan.failed.push(path);
            }
        }
    }
    plan
}

/// The files that were found below a log directory.
#[derive(Debug, Default)]
pub struct LogFiles {
    /// The paths of those that are archived, relative to `work/logs`.
    pub files: Vec<PathBuf>,
    /// The number of those beyond the limit of [`FILES_MAX`].
    pub left_out: usize,
    /// Whether everything was searched.
    pub is_complete: bool,
}

/// Searches `work/logs` of the job directory `root` for regular files. Links, pipes and directories
/// that cannot be opened are skipped. The executor's own files come first, the others in the order
/// of their names; at most 2,000 are listed, and the others are counted. At most 20,000 entries are
/// looked at, down to a depth of 40.
pub fn log_files(root: &Path) -> LogFiles {
    let logs = root.join("work/logs");
    let mut found = LogFiles { is_complete: true, ..LogFiles::default() };
    let is_file = |path: &Path| confined_files::open_file(&logs, path).is_ok();
    found.files.extend(OWN_FILES.map(PathBuf::from).into_iter().filter(|path| is_file(path)));
    // The first of a directory is on top.
    let (mut waiting, mut entries_left) =
        (vec![(FileType::Directory, PathBuf::new())], ENTRIES_MAX);
    while let Some((kind, path)) = waiting.pop() {
        if kind == FileType::RegularFile {
            let is_own = OWN_FILES.iter().any(|own| path == Path::new(own));
            match found.files.len() < FILES_MAX {
                _ if is_own => {}
                true => found.files.push(path),
                false => found.left_out += 1,
            }
            continue;
        }
        let Ok(directory) = confined_files::open_directory(&logs, &path)
            .and_then(|directory| Ok(Dir::read_from(directory)?))
        else {
            continue;
        };
        let mut entries = Vec::new();
        for entry in directory.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = entry.file_type();
            // Links are skipped, because they may lead out of the log directory.
            if name == "." || name == ".." {
                continue;
            }
            let is_too_deep = kind == FileType::Directory && path.components().count() >= DEPTH_MAX;
            if entries_left == 0 || is_too_deep {
                found.is_complete = false;
                continue;
            }
            entries_left -= 1;
            if matches!(kind, FileType::Directory | FileType::RegularFile) {
                entries.push((kind, path.join(name)));
            }
        }
        entries.sort_unstable_by(|one, other| other.1.cmp(&one.1));
        waiting.append(&mut entries);
    }
    found
}

/// The content of a file, with its share of the memory limit.
struct LoadedFile {
    /// The bytes of the file.
    content: Bytes,
    /// Frees the memory share when dropped.
    _memory: tokio::sync::SemaphorePermit<'static>,
}

/// An open file that may be archived.
struct OpenFile {
    /// The file.
    file: File,
    /// The number of bytes to archive.
    bytes: u64,
}

/// Opens a file to archive, waits for a share of the memory limit, and reads the file. `path` is
/// relative to `work/logs` of the job directory `root`, and `left` is how many bytes of the build
/// may still be stored. An error if the file is larger than `left` or the file limit, or is not a
/// regular file. Only of the job log the beginning is read instead, up to the file limit.
async fn read(root: &Path, path: &Path, left: u64) -> std::io::Result<LoadedFile> {
    open(root, path, left)?.read().await
}

/// Opens a file to archive and determines how many of its bytes to archive; reads nothing. `path`
/// is relative to `work/logs` of the job directory `root`, and `left` is how many bytes of the
/// build may still be stored. For the job log it opens the executor's own file, or the one below
/// `work/logs` if that does not exist. An error if the file exceeds the file limit or `left` bytes,
/// or is not a regular file. A job log beyond the file limit is no error: only its beginning is
/// archived, and the file is not changed.
fn open(root: &Path, path: &Path, left: u64) -> std::io::Result<OpenFile> {
    let below = || confined_files::open_file(&root.join("work/logs"), path);
    let file = match path == Path::new(LOG) {
        true => match File::open(log_path(root)) {
            // This runner writes the log only below work/logs.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => below()?,
            opened => opened?,
        },
        false => below()?,
    };
    let size = file.metadata()?.len();
    // An oversized job log is archived up to the limit.
    let bytes = if path == Path::new(LOG) { size.min(FILE_BYTES_MAX) } else { size };
    if bytes > FILE_BYTES_MAX || share_of_build(bytes) > left {
        let why = format!("it has {bytes} bytes, more than may be archived");
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(OpenFile { file, bytes })
}

impl OpenFile {
    /// Waits for a share of the memory limit, then reads the bytes to archive on a blocking thread;
    /// fewer if the file was shortened. The result holds the share until it is dropped.
    async fn read(self) -> std::io::Result<LoadedFile> {
        let mib =
            u32::try_from(self.bytes >> 20).unwrap_or(MEMORY_MIB).saturating_add(1).min(MEMORY_MIB);
        let memory = MEMORY.acquire_many(mib).await.map_err(Error::other)?;
        let content =
            tokio::task::spawn_blocking(move || self.read_now()).await.map_err(Error::other)??;
        Ok(LoadedFile { content, _memory: memory })
    }

    /// Reads the bytes to archive without waiting for memory; fewer if the file was shortened.
    /// Blocks.
    fn read_now(self) -> std::io::Result<Bytes> {
        let Self { file, bytes } = self;
        let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
        // Reads only the checked length, even if a process still appends to the file.
        file.take(bytes).read_to_end(&mut content)?;
        Ok(content.into())
    }
}

/// Returns the content type that browsers get for a log file, by the extension of its name. Plain
/// text without an extension, and `application/octet-stream` for an unknown one.
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
    use sluice_model::TenantName;
    use std::os::unix::fs::symlink;
    use std::sync::LazyLock;

    fn jobdir(scratch: &Path, build: &BuildId) -> Jobdir {
        let runtime = scratch.join("runtime");
        std::fs::create_dir(&runtime).unwrap();
        let jobdir = Jobdir::make(&scratch.join("job"), &runtime, build).unwrap();
        std::fs::write(&jobdir.log, "what the executor wrote\n").unwrap();
        jobdir
    }

    /// Returns the logs of a build of the tenant `acme`.
    fn logs_of(build: &BuildId) -> BuildLogs<'_> {
        static ACME: LazyLock<TenantName> = LazyLock::new(|| TenantName::from("acme"));
        BuildLogs { tenant: &ACME, build }
    }

    /// Returns the names of all stored files of a build.
    async fn stored(ports: &Ports, build: &BuildId) -> Vec<String> {
        let logs = logs_of(build);
        let prefix = logs.folder();
        let keys = ports.objects.list(&prefix, None, 100).await.unwrap();
        let mut names: Vec<String> =
            keys.iter().map(|key| key.trim_start_matches(&prefix).to_owned()).collect();
        names.extend(logs.load_packed(ports).await.unwrap().names().map(str::to_owned));
        names.sort_unstable();
        names
    }

    /// Writes the files that the executor adds to the logs of every build.
    fn write_standard_files(jobdir: &Jobdir) {
        std::fs::create_dir(jobdir.logs.join("zuul-info")).unwrap();
        for (name, text) in STANDARD_FILES {
            std::fs::write(jobdir.logs.join(name), text).unwrap();
        }
    }

    const STANDARD_FILES: [(&str, &str); 3] = [
        ("job-output.json", "[]"),
        ("workspace-repos.json", "[{}]"),
        ("zuul-info/inventory.yaml", "all: {}\n"),
    ];

    /// Z7.4: the files of every build take one call; large files are not among them.
    #[tokio::test]
    async fn small_files_are_stored_together_and_a_large_one_by_itself() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["together"]);
        let jobdir = jobdir(scratch.path(), &build);
        write_standard_files(&jobdir);
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        let stored_logs =
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await;
        assert_eq!(stored_logs.trouble, None);
        assert_eq!(stored_logs.address, Some(format!("http://pages/logs/acme/{build}/")));
        assert_eq!(world.object_keys(), [format!("logs/acme/{build}.files")]);
        for (name, text) in STANDARD_FILES.into_iter().chain([(LOG, "what the executor wrote\n")]) {
            assert_eq!(
                logs_of(&build).read_file(&ports, name).await.unwrap().unwrap(),
                text,
                "{name}"
            );
        }
        assert_eq!(logs_of(&build).read_file(&ports, "none.txt").await.unwrap(), None);

        let limit = usize::try_from(PACKED_FILE_BYTES_MAX).unwrap();
        let other = BuildId::derive(&["large"]);
        std::fs::write(jobdir.logs.join("job-output.json"), vec![b' '; limit + 1]).unwrap();
        std::fs::write(jobdir.logs.join("just.txt"), vec![b'x'; limit]).unwrap();
        assert!(
            archive(&ports, logs_of(&other), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await
                .address
                .is_some()
        );
        let keys: Vec<String> =
            world.object_keys().into_iter().filter(|key| key.contains(other.as_str())).collect();
        assert_eq!(
            keys,
            [format!("logs/acme/{other}.files"), format!("logs/acme/{other}/job-output.json")]
        );
        assert_eq!(
            logs_of(&other).read_file(&ports, "job-output.json").await.unwrap().unwrap().len(),
            limit + 1
        );
        assert_eq!(
            logs_of(&other).read_file(&ports, "just.txt").await.unwrap().unwrap().len(),
            limit
        );
    }

    /// Z7.4, Z7.5: the common object is bounded, whatever a job writes.
    #[tokio::test]
    async fn files_beyond_the_limit_of_the_common_object_are_separate_objects() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["many"]);
        let jobdir = jobdir(scratch.path(), &build);
        for number in 0..6 {
            std::fs::write(jobdir.logs.join(format!("{number}.txt")), vec![b'x'; 200 << 10])
                .unwrap();
        }
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        assert!(
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await
                .address
                .is_some()
        );
        assert_eq!(
            world.object_keys(),
            [format!("logs/acme/{build}.files"), format!("logs/acme/{build}/5.txt")]
        );
        assert_eq!(stored(&ports, &build).await.len(), 7);
    }

    /// Z7.4: an executor may die between any two calls; the most important files are stored first.
    #[tokio::test]
    async fn the_log_is_stored_even_if_nothing_can_be_stored_after_the_small_files() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["cut"]);
        let jobdir = jobdir(scratch.path(), &build);
        write_standard_files(&jobdir);
        std::fs::write(jobdir.logs.join("a.txt"), vec![b'x'; 1 << 20]).unwrap();
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        world.decide_fates(|step| if step.number == 0 { Fate::Works } else { Fate::FailsBefore });
        assert!(
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await
                .address
                .is_some()
        );
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

    /// Z7.4: a failure to store small files together does not lose them.
    #[tokio::test]
    async fn small_files_that_cannot_be_stored_together_are_stored_by_themselves() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["refused"]);
        let jobdir = jobdir(scratch.path(), &build);
        write_standard_files(&jobdir);
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        world.set_fate(0, Fate::FailsBefore);
        assert!(
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await
                .address
                .is_some()
        );
        let expected = [
            "job-output.json",
            "job-output.txt",
            "workspace-repos.json",
            "zuul-info/inventory.yaml",
        ];
        assert_eq!(world.object_keys(), expected.map(|name| format!("logs/acme/{build}/{name}")));
    }

    /// Z7.4, Z7.5: archived files are public.
    #[tokio::test]
    async fn only_the_job_log_is_archived_if_the_log_directory_was_replaced_by_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["replaced"]);
        let jobdir = jobdir(scratch.path(), &build);
        let state = scratch.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("node-key"), "private").unwrap();
        std::fs::rename(&jobdir.logs, jobdir.work.join("moved")).unwrap();
        symlink(&state, &jobdir.logs).unwrap();
        let ports = World::new(1, 0, sluice_model::Timestamp(0)).ports();
        assert!(
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await
                .address
                .is_some()
        );
        assert_eq!(stored(&ports, &build).await, ["job-output.txt"]);
    }

    /// Z7.4: the beginning of an oversized log is archived.
    #[tokio::test]
    async fn a_log_that_is_too_long_is_archived_up_to_the_file_limit() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["long"]);
        let jobdir = jobdir(scratch.path(), &build);
        let log = std::fs::File::options().write(true).open(&jobdir.log).unwrap();
        log.set_len(FILE_BYTES_MAX + 7).unwrap();
        let ports = World::new(1, 0, sluice_model::Timestamp(0)).ports();
        assert!(
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await
                .address
                .is_some()
        );
        let kept = ports
            .objects
            .get(&format!("logs/acme/{build}/job-output.txt"))
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
        let stored_logs =
            archive(&ports, logs_of(&build), &jobdir.root, "http://pages/logs/", LogCopy::Missing)
                .await;
        assert_eq!(stored_logs.trouble, None);
        assert_eq!(stored_logs.address, Some(format!("http://pages/logs/acme/{build}/")));
        assert_eq!(stored(&ports, &build).await, ["job-output.txt", "unit/report.txt"]);
        assert_eq!(
            logs_of(&build).read_file(&ports, LOG).await.unwrap().unwrap(),
            "what the executor wrote\n"
        );
    }

    /// Z7.4: whatever playbooks leave, the executor's own files are archived, and the log says how
    /// many of the others are not.
    #[test]
    fn the_executors_own_files_come_first_and_what_is_left_out_is_counted() {
        let scratch = tempfile::tempdir().unwrap();
        let jobdir = jobdir(scratch.path(), &BuildId::derive(&["crowded"]));
        write_standard_files(&jobdir);
        for directory in ["a", "zz"] {
            std::fs::create_dir(jobdir.logs.join(directory)).unwrap();
            for number in 0..FILES_MAX {
                std::fs::write(jobdir.logs.join(format!("{directory}/{number:04}")), "").unwrap();
            }
        }
        let found = log_files(&jobdir.root);
        let own: Vec<&str> =
            found.files.iter().take(4).map(|path| path.to_str().unwrap()).collect();
        assert_eq!(own, &OWN_FILES[..4]);
        assert!(found.files[4..].iter().is_sorted() && found.files[4] == Path::new("a/0000"));
        assert_eq!((found.files.len(), found.left_out), (FILES_MAX, FILES_MAX + 4));
        let note = "2004 log files were not archived: the limit is 2000";
        assert_eq!(describe_left_out(&jobdir.root), [note]);
    }

    /// Z7.4: the log names the files that are too large.
    #[test]
    fn files_that_are_too_large_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        let jobdir = jobdir(scratch.path(), &BuildId::derive(&["heavy"]));
        assert_eq!(describe_left_out(&jobdir.root), [""; 0]);
        let grow = |name: &str, bytes: u64| {
            std::fs::File::create(jobdir.logs.join(name)).unwrap().set_len(bytes).unwrap();
        };
        grow("huge.bin", FILE_BYTES_MAX + 1);
        (0..9).for_each(|number| grow(&format!("part-{number}"), FILE_BYTES_MAX));
        let notes = describe_left_out(&jobdir.root);
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(
            note.starts_with("2 log files were not archived: a file may have 256 MiB"),
            "{note}"
        );
        assert!(note.ends_with(": huge.bin, part-8"), "{note}");
    }

    /// Z7.4: a file that cannot be stored is named, and the others are stored.
    #[tokio::test]
    async fn a_file_that_cannot_be_stored_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["failing"]);
        let jobdir = jobdir(scratch.path(), &build);
        std::fs::write(jobdir.logs.join("big.txt"), vec![b'x'; 1 << 20]).unwrap();
        let world = World::new(1, 0, sluice_model::Timestamp(0));
        let ports = world.ports();
        world.set_fate(1, Fate::FailsBefore);
        let logs = logs_of(&build);
        let stored = archive(&ports, logs, &jobdir.root, "http://pages/", LogCopy::Missing).await;
        assert!(stored.address.is_some());
        let trouble = "1 log file could not be read or stored and will be missing: big.txt";
        assert_eq!(stored.trouble.as_deref(), Some(trouble));
        // The line that says so is stored in place of the packed log.
        std::fs::write(&jobdir.log, trouble).unwrap();
        store_log(&ports, logs, &jobdir.root).await.unwrap();
        assert_eq!(logs.read_file(&ports, LOG).await.unwrap().unwrap(), trouble);
    }
}
