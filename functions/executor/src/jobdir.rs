//! The directories of a build: the job directory on disk, and a runtime directory in memory for
//! sockets and decrypted secrets.

use crate::code_trust::CodeTrust;
use serde_json::{Map, Value};
use sluice_model::BuildId;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The paths of one build.
#[derive(Debug, Clone)]
pub struct Jobdir {
    /// The directory itself, absolute.
    pub root: PathBuf,
    /// The directory that playbooks may write (`zuul.executor.work_root`).
    pub work: PathBuf,
    /// The repositories under test (`zuul.executor.src_root`).
    pub src: PathBuf,
    /// The directory of logs, which is archived (`zuul.executor.log_root`).
    pub logs: PathBuf,
    /// The file that `zuul_return` writes (`zuul.executor.result_data_file`).
    pub results: PathBuf,
    /// The log. Playbooks cannot replace this path; `logs/job-output.txt` is a link to the file.
    pub log: PathBuf,
    /// Inventories, variables, configuration: read-only for playbooks.
    pub ansible: PathBuf,
    /// The path of the home directory inside a sandbox; see [`Self::state_of`].
    pub home: PathBuf,
    /// The path of Ansible's own state inside a sandbox; see [`Self::state_of`].
    pub dot_ansible: PathBuf,
    /// The path of cached facts and expanded variables inside a sandbox; see [`Self::state_of`].
    pub facts: PathBuf,
    /// Known hosts and the client configuration of ssh; read-only in every home but that of trusted
    /// playbooks.
    pub ssh: PathBuf,
    /// The state directories by owner; a playbook sees only its own.
    pub homes: PathBuf,
    /// The runtime directory in memory.
    pub runtime: RuntimeDirectory,
}

/// The runtime directory of a build, in memory.
#[derive(Debug, Clone)]
pub struct RuntimeDirectory {
    /// Its path; short, because paths of sockets are limited to 107 bytes.
    pub root: PathBuf,
    /// The path of OpenSSH's control sockets inside a sandbox; see [`Jobdir::control_of`].
    pub control: PathBuf,
    /// The directory of the SSH agent's socket.
    pub agent: PathBuf,
    /// The directory of the sockets to which playbooks report what they do.
    pub messages: PathBuf,
    /// The locked file [`ALIVE`], once the directory was created.
    pub alive: Option<Arc<fs::File>>,
}

impl RuntimeDirectory {
    /// Returns the path of the broker's socket.
    pub fn broker_socket(&self) -> PathBuf {
        self.root.join("network.sock")
    }
}

/// The name of the lock file in a runtime directory. The kernel releases the lock when the executor
/// process ends.
const ALIVE: &str = "alive";

/// The prefix of the names of runtime directories.
const PREFIX: &str = "sluice-";

/// The owner name of the state that trusted playbooks share.
pub const TRUSTED: &str = "trusted";

/// The file that says that facts of trusted playbooks are not passed on. No owner has this name.
const KEPT_FACTS: &str = "facts-are-kept";

/// The directories that a sandbox may write in addition to the work directory.
#[derive(Debug, Clone)]
pub struct SandboxState {
    /// Their home directory.
    pub home: PathBuf,
    /// Ansible's own state.
    pub dot_ansible: PathBuf,
    /// Cached facts of hosts, which include paths of interpreters.
    pub facts: PathBuf,
}

impl Jobdir {
    /// Creates all directories of `build`: the job directory at `root`, and a runtime directory
    /// below `runtime`, which replaces one that this process left for the same build. Also creates
    /// an empty results file and an empty log, and links the log into the log directory. The
    /// returned value holds the lock that marks the runtime directory as in use. An error if `root`
    /// already contains a log.
    pub fn make(root: &Path, runtime: &Path, build: &BuildId) -> std::io::Result<Self> {
        let work = root.join("work");
        let short = build.as_str().get(..16).unwrap_or(build.as_str());
        // The process id keeps two executors on one machine apart that run the same build.
        let runtime_root = runtime.join(format!("{PREFIX}{}-{short}", std::process::id()));
        if runtime_root.exists() {
            fs::remove_dir_all(&runtime_root)?;
        }
        let mut jobdir = Self {
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
            runtime: RuntimeDirectory {
                control: runtime_root.join("cp"),
                agent: runtime_root.join("ag"),
                messages: runtime_root.join("rx"),
                root: runtime_root,
                alive: None,
            },
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
            &runtime.agent,
            &runtime.messages,
        ] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        jobdir.runtime.alive = Some(Arc::new(create_alive_lock(&jobdir.runtime.root)?));
        fs::write(&jobdir.results, "")?;
        fs::File::create_new(&jobdir.log)?;
        fs::hard_link(&jobdir.log, jobdir.logs.join("job-output.txt"))?;
        Ok(jobdir)
    }

    /// Returns the state directories shared under the name `owner`, a plain directory name,
    /// creating them if necessary. New ones start with the facts that trusted playbooks have
    /// gathered, to save gathering them again, unless one of these had secrets
    /// ([`Self::keep_trusted_facts`]).
    pub fn state_of(&self, owner: &str) -> std::io::Result<SandboxState> {
        let owner_dir = self.homes.join(owner);
        let is_new = !owner_dir.exists();
        let state = SandboxState {
            home: owner_dir.join("home"),
            dot_ansible: owner_dir.join("ansible"),
            facts: owner_dir.join("facts"),
        };
        for directory in [&state.home.join(".ssh"), &state.dot_ansible, &state.facts] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let may_copy = is_new && !self.homes.join(KEPT_FACTS).exists();
        if let (true, Ok(known)) = (may_copy, fs::read_dir(self.homes.join(TRUSTED).join("facts")))
        {
            for entry in
                known.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            {
                if let Some(facts) = gathered_facts(&entry.path()) {
                    fs::write(state.facts.join(entry.file_name()), facts)?;
                }
            }
        }
        Ok(state)
    }

    /// Passes on no facts of trusted playbooks from now on. Call it before a trusted playbook gets
    /// secrets: facts contain the environment in which they were gathered, where a playbook may
    /// have put a secret.
    pub fn keep_trusted_facts(&self) -> std::io::Result<()> {
        // Beside the state directories, so that no playbook can remove it.
        fs::write(self.homes.join(KEPT_FACTS), "")
    }

    /// Returns the directory of OpenSSH's control sockets for playbooks of this trust, creating it
    /// if necessary. Sandboxes show it as [`RuntimeDirectory::control`]. It is on disk, because
    /// playbooks may write there and memory is shared by all builds. Trusted playbooks have another
    /// one than untrusted ones, which could make the name of a host lead to another host's
    /// connection.
    pub fn control_of(&self, trust: CodeTrust) -> std::io::Result<PathBuf> {
        let directory = self.homes.join("control").join(trust.as_str());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(directory)
    }

    /// Returns the directories on disk that playbooks may write: the work directory, and the state
    /// directories of all owners with the control sockets.
    pub fn writable(&self) -> Vec<PathBuf> {
        vec![self.work.clone(), self.homes.clone()]
    }

    /// Removes the runtime directory when the returned value is dropped, also by a panic, as
    /// [`Self::remove_runtime`] does.
    pub fn remove_runtime_at_end(&self) -> RuntimeRemoval<'_> {
        RuntimeRemoval(self)
    }

    /// Removes the runtime directory. A missing one is no failure; any other failure is only
    /// logged. Call it after the last sandbox process has ended, which could create a socket again.
    pub fn remove_runtime(&self) {
        if let Err(error) = remove_runtime(&self.runtime.root)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %self.runtime.root.display(), %error, "could not remove a build's runtime directory");
        }
    }
}

/// Removes the runtime directory of a build when it is dropped.
pub struct RuntimeRemoval<'a>(&'a Jobdir);

impl Drop for RuntimeRemoval<'_> {
    fn drop(&mut self) {
        self.0.remove_runtime();
    }
}

/// Returns what Ansible itself has gathered about a host, from a file of its cache. What a playbook
/// has put there (`set_fact` with `cacheable`) is left out, since it may be a secret of its own.
/// `None` if the file cannot be read.
fn gathered_facts(path: &Path) -> Option<Vec<u8>> {
    let mut facts: Map<String, Value> = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    // Without the last one, the next playbook would gather them again.
    let about_gathering = ["module_setup", "gather_subset", "_ansible_facts_gathered"];
    facts.retain(|name, _| {
        name.starts_with("ansible_")
            || name.starts_with("discovered_interpreter_")
            || about_gathering.contains(&name.as_str())
    });
    serde_json::to_vec(&facts).ok()
}

/// Creates the lock file of a runtime directory and returns it, open and locked. The lock marks the
/// directory as in use, until the last handle of the file is closed.
///
/// The file is renamed to its final name after it is locked, so it is never found unlocked while
/// this executor lives.
fn create_alive_lock(root: &Path) -> std::io::Result<fs::File> {
    let unnamed = root.join("alive.new");
    let file = fs::File::create_new(&unnamed)?;
    file.lock()?;
    fs::rename(unnamed, root.join(ALIVE))?;
    Ok(file)
}

/// Removes a runtime directory, its lock file last, so that it is still recognised if this is
/// interrupted. Entries that disappear meanwhile are ignored; a missing directory and any other
/// failure are errors.
fn remove_runtime(root: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_name() == ALIVE {
            continue;
        }
        let path = entry.path();
        let removed = if entry.file_type()?.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        // A socket may disappear with its process.
        removed.or_else(
            |error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) },
        )?;
    }
    fs::remove_dir_all(root)
}

/// Removes the runtime directories of dead executors below `runtime`, which may contain decrypted
/// secrets. These are the directories named `sluice-…` with a lock file that is not locked. Every
/// other entry stays, also one without a lock file. Each removal and each failed removal is logged.
/// Does nothing if `runtime` cannot be read.
///
/// The lock works across containers, unlike process ids.
pub fn remove_dead_runtimes(runtime: &Path) {
    let Ok(entries) = fs::read_dir(runtime) else { return };
    for entry in
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
    {
        let path = entry.path();
        let alive = path.join(ALIVE);
        // Other accounts may create entries here. Opening a pipe would block.
        let is_file = fs::symlink_metadata(&alive).is_ok_and(|found| found.is_file());
        let is_free = is_file && fs::File::open(&alive).is_ok_and(|file| file.try_lock().is_ok());
        if !is_free {
            continue;
        }
        match remove_runtime(&path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "removed the runtime directory of a dead executor")
            }
            Err(error) => tracing::warn!(
                path = %path.display(),
                %error,
                "could not remove the runtime directory of a dead executor: it may contain decrypted secrets, remove it manually"
            ),
        }
    }
}

/// Returns whether a path is, or lies in, a runtime directory of a build below `runtime`, which may
/// also hold files of other programs, as `/dev/shm` does.
pub fn is_runtime_path(runtime: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(runtime).ok().and_then(|below| below.components().next());
    below.is_some_and(|first| first.as_os_str().to_string_lossy().starts_with(PREFIX))
}

/// Returns the path of the log in the job directory `root`. This is the executor's own file, not
/// its link below `work/logs`.
pub fn log_path(root: &Path) -> PathBuf {
    root.join("job-output.txt")
}

/// Creates a file with this content that only its owner can read and write; an error if it exists.
pub fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(name: &str) -> BuildId {
        BuildId::derive(&[name])
    }

    /// Z7.1, Z7.3: a killed executor leaves decrypted secrets, which the next one removes.
    #[test]
    fn runtime_directories_of_dead_executors_are_removed_and_others_stay() {
        let scratch = tempfile::tempdir().unwrap();
        let runtime = scratch.path().join("runtime");
        let living = Jobdir::make(&scratch.path().join("one"), &runtime, &build("one")).unwrap();
        let dead = Jobdir::make(&scratch.path().join("two"), &runtime, &build("two")).unwrap();
        write_private(&dead.runtime.root.join("secret"), b"x").unwrap();
        let foreign = runtime.join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(ALIVE), "").unwrap();
        let elsewhere = runtime.join(format!("{PREFIX}elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(foreign.join(ALIVE), elsewhere.join(ALIVE)).unwrap();
        let root = dead.runtime.root.clone();
        remove_dead_runtimes(&runtime);
        assert!(root.join("secret").exists(), "its executor lives");
        drop(dead);
        remove_dead_runtimes(&runtime);
        assert!(!root.exists() && living.runtime.control.exists() && foreign.exists());
        assert!(elsewhere.exists(), "a link does not mark a runtime directory");
        write_private(&living.runtime.root.join("secret"), b"x").unwrap();
        living.remove_runtime();
        assert!(!living.runtime.root.exists());
    }
}
