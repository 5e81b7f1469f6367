//! The directory a build lives in, as jobs know it, and a small one in memory for its sockets and
//! opened secrets.

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
    /// Its file [`ALIVE`], locked as long as this executor lives, if the directory was made.
    pub alive: Option<Arc<fs::File>>,
}

/// The file of a runtime directory that its executor holds locked: the kernel lets go of it with
/// the process, however that ends.
const ALIVE: &str = "alive";

/// How the names of runtime directories begin.
const PREFIX: &str = "sluice-";

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
            runtime: Runtime { control: runtime_root.join("cp"), root: runtime_root, alive: None },
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
        jobdir.runtime.alive = Some(Arc::new(show_life(&jobdir.runtime.root)?));
        fs::write(&jobdir.results, "")?;
        fs::File::create_new(&jobdir.log)?;
        fs::hard_link(&jobdir.log, jobdir.logs.join("job-output.txt"))?;
        Ok(jobdir)
    }

    /// Returns the home and Ansible's state of the processes that share them under the name
    /// `owner`, made if they are not there.
    ///
    /// What trusted playbooks have found out of hosts is there from the start: looking again takes
    /// a second on each.
    pub fn state_of(&self, owner: &str) -> std::io::Result<State> {
        let own = self.homes.join(owner);
        let is_new = !own.exists();
        let state = State {
            home: own.join("home"),
            dot_ansible: own.join("ansible"),
            facts: own.join("facts"),
        };
        for directory in [&state.home.join(".ssh"), &state.dot_ansible, &state.facts] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        if let (true, Ok(known)) = (is_new, fs::read_dir(self.homes.join(TRUSTED).join("facts"))) {
            for entry in
                known.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            {
                fs::copy(entry.path(), state.facts.join(entry.file_name()))?;
            }
        }
        Ok(state)
    }

    /// Returns what playbooks may write on disk.
    pub fn writable(&self) -> Vec<PathBuf> {
        vec![self.work.clone(), self.homes.clone()]
    }

    /// Removes what lies in memory. Done before the sandbox's last process is gone, a socket could
    /// come back.
    pub fn forget_runtime(&self) {
        if let Err(error) = remove_runtime(&self.runtime.root)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %self.runtime.root.display(), %error, "could not remove a build's runtime directory");
        }
    }
}

/// Holds a runtime directory as that of somebody who lives.
///
/// The file gets its name when it is locked: nobody finds it free while this executor is there.
fn show_life(root: &Path) -> std::io::Result<fs::File> {
    let unnamed = root.join("alive.new");
    let file = fs::File::create_new(&unnamed)?;
    file.lock()?;
    fs::rename(unnamed, root.join(ALIVE))?;
    Ok(file)
}

/// Removes a runtime directory, last the file by which it is found if whoever removes it dies
/// meanwhile.
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
        // A socket goes with its process.
        removed.or_else(
            |error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) },
        )?;
    }
    fs::remove_dir_all(root)
}

/// Removes the runtime directories below `runtime` of executors that died before they could: opened
/// secrets may lie there.
///
/// Those of others that live are held by a lock, which works across containers as well, where
/// process ids say nothing. What cannot be read or removed is another account's, or is found the
/// next time.
pub fn forget_the_dead(runtime: &Path) {
    let Ok(entries) = fs::read_dir(runtime) else { return };
    for entry in
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
    {
        let path = entry.path();
        let alive = path.join(ALIVE);
        // Anybody may put something else there, where memory is shared: whoever opened a pipe would
        // wait for its other end.
        let is_file = fs::symlink_metadata(&alive).is_ok_and(|found| found.is_file());
        let is_free = is_file && fs::File::open(&alive).is_ok_and(|file| file.try_lock().is_ok());
        if !is_free {
            continue;
        }
        match remove_runtime(&path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "removed what an executor that died had in memory of a build")
            }
            Err(error) => tracing::warn!(
                path = %path.display(),
                %error,
                "could not remove what an executor that died had in memory of a build: opened secrets may lie there, remove it by hand"
            ),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn build(name: &str) -> BuildId {
        BuildId::derive(&[name])
    }

    /// Z7.1, Z7.3: an executor that is killed leaves opened secrets in memory, which the next one
    /// on the machine removes.
    #[test]
    fn what_a_dead_executor_had_in_memory_is_removed_and_what_a_living_one_has_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let runtime = scratch.path().join("runtime");
        let living = Jobdir::make(&scratch.path().join("one"), &runtime, &build("one")).unwrap();
        let dead = Jobdir::make(&scratch.path().join("two"), &runtime, &build("two")).unwrap();
        write_private(&dead.runtime.root.join("secret"), b"x").unwrap();
        let foreign = runtime.join("somebody-else");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(ALIVE), "").unwrap();
        let elsewhere = runtime.join(format!("{PREFIX}elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(foreign.join(ALIVE), elsewhere.join(ALIVE)).unwrap();
        let root = dead.runtime.root.clone();
        forget_the_dead(&runtime);
        assert!(root.join("secret").exists(), "its executor lives");
        drop(dead);
        forget_the_dead(&runtime);
        assert!(!root.exists() && living.runtime.control.exists() && foreign.exists());
        assert!(elsewhere.exists(), "what is no file says nothing of an executor");
        write_private(&living.runtime.root.join("secret"), b"x").unwrap();
        living.forget_runtime();
        assert!(!living.runtime.root.exists());
    }
}
