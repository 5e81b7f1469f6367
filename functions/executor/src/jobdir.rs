//! The directory a build lives in, as jobs know it, and a small one in memory for its sockets and opened secrets.

use sluice_model::BuildId;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The paths of one build.
#[derive(Debug, Clone)]
pub struct Jobdir {
    /// The directory itself, absolute.
    pub root: PathBuf,
    /// What playbooks may write (`zuul.executor.work_root`).
    pub work: PathBuf,
    /// The repositories under test (`zuul.executor.src_root`).
    pub src: PathBuf,
    /// What is archived (`zuul.executor.log_root`).
    pub logs: PathBuf,
    /// What `zuul_return` writes (`zuul.executor.result_data_file`).
    pub results: PathBuf,
    /// The log, out of playbooks' reach as a path; `logs/job-output.txt` is the same file.
    pub log: PathBuf,
    /// Inventories, variables, configuration: read-only for playbooks.
    pub ansible: PathBuf,
    /// The home directory of playbooks on the executor.
    pub home: PathBuf,
    /// Ansible's own state: fact cache, temporary files.
    pub dot_ansible: PathBuf,
    /// Sockets and opened secrets, in memory; removed with this value.
    pub runtime: Runtime,
}

/// The directory in memory.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Its path, short.
    pub root: PathBuf,
    /// OpenSSH's control sockets; the only part that playbooks may write.
    pub control: PathBuf,
}

impl Jobdir {
    /// Makes the directories of `build` at `root` and below `runtime`.
    pub fn make(root: &Path, runtime: &Path, build: &BuildId) -> std::io::Result<Self> {
        let work = root.join("work");
        let short = build.as_str().get(..16).unwrap_or(build.as_str());
        // The process id keeps two executors on one machine apart that both believe in the build.
        let runtime_root = runtime.join(format!("sluice-{}-{short}", std::process::id()));
        if runtime_root.exists() {
            fs::remove_dir_all(&runtime_root)?;
        }
        let jobdir = Self {
            root: root.to_owned(),
            src: work.join("src"),
            logs: work.join("logs"),
            results: work.join("results.json"),
            log: log_path(root),
            ansible: root.join("ansible"),
            home: root.join("home"),
            dot_ansible: root.join(".ansible"),
            runtime: Runtime { control: runtime_root.join("cp"), root: runtime_root },
            work,
        };
        let tmp = jobdir.work.join("tmp");
        let ssh = jobdir.home.join(".ssh");
        let runtime = &jobdir.runtime;
        for directory in [
            &jobdir.root,
            &jobdir.src,
            &jobdir.logs,
            &tmp,
            &jobdir.ansible,
            &ssh,
            &jobdir.dot_ansible,
            &runtime.root,
            &runtime.control,
        ] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        fs::write(&jobdir.results, "")?;
        fs::File::create_new(&jobdir.log)?;
        fs::hard_link(&jobdir.log, jobdir.logs.join("job-output.txt"))?;
        Ok(jobdir)
    }

    /// Removes what lies in memory. Done before the sandbox's last process is gone, a socket could come back.
    pub fn forget_runtime(&self) {
        if let Err(error) = fs::remove_dir_all(&self.runtime.root)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.runtime.root.display(), %error, "could not remove a build's runtime directory");
        }
    }
}

/// Returns where the log of the build in the job directory `root` lies while it runs.
pub fn log_path(root: &Path) -> PathBuf {
    root.join("job-output.txt")
}

/// Returns what there is to archive after a build: paths relative to `work/logs`, sorted.
///
/// Playbooks wrote there, so links are left out: one could lead to what only the executor may read. At most `count_max`.
pub fn log_files(root: &Path, count_max: usize) -> std::io::Result<Vec<PathBuf>> {
    let logs = root.join("work/logs");
    let mut found = Vec::new();
    // The directory itself may have been replaced, too.
    let mut waiting = if fs::symlink_metadata(&logs)?.is_dir() { vec![PathBuf::new()] } else { Vec::new() };
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(logs.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && found.len() < count_max {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file that only its owner can read; it must not be there yet.
pub fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}
