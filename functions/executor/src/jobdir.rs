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
    /// Where playbooks find their home directory. What lies there is one of [`Self::state_of`].
    pub home: PathBuf,
    /// Where playbooks find Ansible's own state; likewise.
    pub dot_ansible: PathBuf,
    /// Where playbooks find the facts of hosts, and leave expanded variables; likewise.
    pub facts: PathBuf,
    /// Known hosts and the client configuration of ssh; read-only in every home.
    pub ssh: PathBuf,
    /// The homes, by who may use them; no playbook sees another's.
    pub homes: PathBuf,
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

/// The owner of what trusted playbooks share.
pub const TRUSTED: &str = "trusted";

/// What processes of a build may write beside its work directory.
#[derive(Debug, Clone)]
pub struct State {
    /// Their home directory.
    pub home: PathBuf,
    /// What Ansible keeps.
    pub dot_ansible: PathBuf,
    /// Facts of hosts: they name interpreters, too.
    pub facts: PathBuf,
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
            facts: root.join("facts"),
            ssh: root.join("ssh"),
            homes: root.join("homes"),
            runtime: Runtime { control: runtime_root.join("cp"), root: runtime_root },
            work,
        };
        let tmp = jobdir.work.join("tmp");
        let runtime = &jobdir.runtime;
        for directory in [
            &jobdir.root,
            &jobdir.src,
            &jobdir.logs,
            &tmp,
            &jobdir.ansible,
            &jobdir.home,
            &jobdir.dot_ansible,
            &jobdir.facts,
            &jobdir.ssh,
            &jobdir.homes,
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

    /// Returns the home and Ansible's state of the processes that share them under the name `owner`, made if they are not there.
    ///
    /// What trusted playbooks have found out of hosts is there from the start: looking again takes a second on each.
    pub fn state_of(&self, owner: &str) -> std::io::Result<State> {
        let own = self.homes.join(owner);
        let is_new = !own.exists();
        let state = State { home: own.join("home"), dot_ansible: own.join("ansible"), facts: own.join("facts") };
        for directory in [&state.home.join(".ssh"), &state.dot_ansible, &state.facts] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        if let (true, Ok(known)) = (is_new, fs::read_dir(self.homes.join(TRUSTED).join("facts"))) {
            for entry in known.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
                fs::copy(entry.path(), state.facts.join(entry.file_name()))?;
            }
        }
        Ok(state)
    }

    /// Returns what playbooks may write on disk.
    pub fn writable(&self) -> Vec<PathBuf> {
        vec![self.work.clone(), self.homes.clone()]
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

/// Writes a file that only its owner can read; it must not be there yet.
pub fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}
