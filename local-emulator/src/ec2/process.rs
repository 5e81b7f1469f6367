//! Starts the first process of a machine's server or user data script. It waits until it is noted
//! in the machine's directory, so that a restarted emulator finds it. Then it waits until the
//! machine's network is attached.
//!
//! It leads its own session, so that neither signals to the emulator's group nor the emulator's
//! terminal reach it. If it ran before it was noted, an emulator killed in between would leave an unknown machine, because
//! remaining machines are found by their notes.

use super::server::PLACE;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group,
};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The file that says which process it is: number and start time.
pub(super) const NOTE: &str = "pid";
/// The file that says in the same way which process is the first inside of the machine.
const FIRST: &str = "first";

/// A shell script that waits for a line on standard input and then executes the following program,
/// keeping its process id, start time and standard input. It ends if the other end is closed first.
const ONCE_NOTED: &str = "read -r noted && exec \"$@\"";
/// How long a process may take until it has namespaces of its own.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(10);

/// Starts a program as the first process of the machine in this directory, which is its working
/// directory, once its id is noted there, and returns it. It leads its own session;
/// `complaints` is where its errors go. `attach` gets its id while it runs; afterwards the program
/// gets a line on its standard input, which is then closed. Its environment is only the emulator's
/// `PATH`, whatever `program` says of it. On an error no process is left.
pub(super) fn start(
    program: &Command,
    directory: &Path,
    output: impl Into<Stdio>,
    complaints: impl Into<Stdio>,
    attach: impl FnOnce(u32) -> io::Result<()>,
) -> io::Result<Child> {
    let mut child = held_back(program, directory, output, complaints)?;
    let begun = note(&child, directory).and_then(|()| permit(&mut child)).and_then(|mut input| {
        attach(child.id())?;
        match input.write_all(b"attached\n") {
            // A program that reads nothing may have ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    });
    match begun {
        Ok(()) => Ok(child),
        Err(error) => {
            kill_machine(Some(child.id()), directory);
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Starts a process in a session of its own that runs `program` only after [`permit`]. It ends
/// without running it if the emulator dies before. Only the program's name and arguments are used.
fn held_back(
    program: &Command,
    directory: &Path,
    output: impl Into<Stdio>,
    complaints: impl Into<Stdio>,
) -> io::Result<Child> {
    let mut command = Command::new("setsid");
    command.args(["/bin/sh", "-c", ONCE_NOTED, "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    clear_environment(&mut command).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(output).stderr(complaints).spawn()
}

/// Takes the emulator's environment from a command whose program runs what belongs to a node: it may
/// have secrets. `PATH` stays.
pub(super) fn clear_environment(command: &mut Command) -> &mut Command {
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
}

/// Writes the id and start time of the machine's process to a file in its directory. An error if
/// the process has ended.
fn note(child: &Child, directory: &Path) -> io::Result<()> {
    let pid = child.id();
    let time = start_time(pid)
        .ok_or_else(|| io::Error::other("the machine's process ended before it began"))?;
    write_whole(&directory.join(NOTE), &format!("{pid} {time}"))
}

/// Permits a process of [`held_back`] to begin its program; only once. The caller has called
/// [`note`]: a program that is not noted is not found again. Returns its standard input.
fn permit(child: &mut Child) -> io::Result<ChildStdin> {
    let stdin = child.stdin.take();
    let mut stdin =
        stdin.ok_or_else(|| io::Error::other("the machine's process has no standard input"))?;
    stdin.write_all(b"noted\n")?;
    Ok(stdin)
}

/// Returns the id, outside, of the first process of the process namespace that `leader` has made;
/// `None` if it has none.
pub(super) fn first_inside(leader: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{leader}/task/{leader}/children")).ok()?;
    let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
    children.find(|child| is_first(*child))
}

/// Returns whether a process is the first one of a process namespace within this one.
fn is_first(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // Its ids, from this namespace inwards.
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let ids: Vec<&str> = ids.split_whitespace().collect();
    ids.len() > 1 && ids.last() == Some(&"1")
}

/// A process and no later one with its id.
pub(super) struct Identity {
    process: u32,
    started: Option<String>,
}

impl Identity {
    /// Returns the identity of the process that has this id now, if any.
    pub(super) fn of(process: u32) -> Self {
        Self { process, started: start_time(process) }
    }

    /// Returns the identity that a file holds; `None` without one.
    fn noted(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let (process, started) = text.split_once(' ')?;
        Some(Self { process: process.parse().ok()?, started: Some(started.to_owned()) })
    }

    /// Returns the id of the process.
    pub(super) fn id(&self) -> u32 {
        self.process
    }

    /// Returns whether the process has not ended.
    pub(super) fn lives(&self) -> bool {
        self.started.is_some() && start_time(self.process) == self.started
    }

    /// Kills the process, and no later one with its id. Does nothing if it has ended.
    fn kill(&self) {
        let process = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        let handle = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        // The handle is of this process if it lived after the handle was opened.
        if let Some(handle) = handle.filter(|_| self.lives()) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// Waits until `leader` has made a process namespace, at most ten seconds, and writes the id and
/// start time of the first process there to a file in the machine's directory: it could not be
/// found after its parent ended. An error if there is none by then.
pub(super) fn note_first(leader: u32, directory: &Path) -> io::Result<()> {
    let until = Instant::now() + NAMESPACE_LIMIT;
    loop {
        if let Some(process) = first_inside(leader)
            && let Some(started) = start_time(process)
        {
            return write_whole(&directory.join(FIRST), &format!("{process} {started}"));
        }
        if Instant::now() > until || start_time(leader).is_none() {
            return Err(io::Error::other("the machine has no process of its own"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills the machine in this directory: the group of processes that `leader` leads, and the first
/// process inside, which may have left the group. With that one the kernel ends everything in the
/// machine, which takes its time; returns it, if there is one.
pub(super) fn kill_machine(leader: Option<u32>, directory: &Path) -> Option<Identity> {
    let first = leader.and_then(first_inside).map(Identity::of);
    let first = first.or_else(|| Identity::noted(&directory.join(FIRST)));
    // Before its parent, by which it is found.
    if let Some(first) = &first {
        first.kill();
    }
    if let Some(leader) = leader {
        // By its own id too: at its very beginning it does not lead its group.
        Identity::of(leader).kill();
        let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    }
    first
}

/// Deletes the notes of a machine whose processes have ended.
pub(super) fn forget(directory: &Path) {
    for note in [NOTE, FIRST] {
        let _ = fs::remove_file(directory.join(note));
    }
}

/// Ends the first processes of machines whose directory was deleted while no emulator ran there,
/// with all that runs in them: no note leads to them. Other users' machines stay.
pub(super) fn end_abandoned() {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    for process in processes {
        let at = Path::new("/proc").join(process.to_string());
        let directory = fs::read_link(at.join("cwd")).unwrap_or_default();
        let arguments = fs::read(at.join("cmdline")).unwrap_or_default();
        if directory.to_string_lossy().ends_with(" (deleted)")
            && String::from_utf8_lossy(&arguments).contains(PLACE)
            && let Some(group) = Pid::from_raw(process)
            // Others than the leader of a group have none by their number.
            && test_kill_process_group(group).is_ok()
        {
            kill_machine(u32::try_from(process).ok(), &directory);
            tracing::warn!(process, directory = %directory.display(), "ended a node whose files were deleted");
        }
    }
}

/// Returns the id of the process that is noted in this directory, if that very process still runs.
/// `None` if none is noted, it has ended, or its id was given to another process.
pub(super) fn living(directory: &Path) -> Option<u32> {
    let noted = Identity::noted(&directory.join(NOTE))?;
    noted.lives().then_some(noted.process)
}

/// Returns when a process started, in ticks since boot, as text; `None` if there is none, or if it
/// has ended and only waits to be reaped.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the command's name, which may hold anything: state first, start time twentieth.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (*fields.first()? != "Z").then_some(())?;
    fields.get(19).map(|time| (*time).to_owned())
}

/// Writes a file that is complete or unchanged also after a kill.
pub(super) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, text)?;
    fs::rename(part, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, kill_process};
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;

    const DIRECTORY: &str = "SLUICE_TEST_PROCESS_DIRECTORY";
    /// What the program leaves that says that it began.
    const MARK: &str = "begun";

    fn marks(directory: &Path) -> Command {
        let mut program = Command::new("touch");
        program.arg(directory.join(MARK));
        program
    }

    /// C4
    #[test]
    fn a_process_begins_when_it_is_noted_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let mut child = held_back(&marks(at), at, Stdio::null(), Stdio::null()).unwrap();
        note(&child, at).unwrap();
        assert_eq!(living(at), Some(child.id()));
        assert!(!at.join(MARK).exists());
        drop(permit(&mut child).unwrap());
        assert!(child.wait().unwrap().success());
        assert!(at.join(MARK).exists());
        assert_eq!(living(at), None);
    }

    /// C4
    #[test]
    fn a_process_has_a_session_of_its_own_and_of_the_environment_only_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let output = fs::File::create(at.join("output")).unwrap();
        let mut program = Command::new("sh");
        program.args(["-c", "ps -o sid= -p $$; env"]).env("SECRET", "no");
        let mut child = start(&program, at, output, Stdio::null(), |_| Ok(())).unwrap();
        assert!(child.wait().unwrap().success());
        let output = fs::read_to_string(at.join("output")).unwrap();
        let mut lines = output.lines();
        assert_eq!(lines.next().unwrap().trim(), child.id().to_string(), "its session");
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is nothing to take away");
        let names: Vec<&str> = lines.filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(names.contains(&"PATH"), "{names:?}");
        let shells = ["PATH", "PWD", "OLDPWD", "SHLVL", "_"];
        assert!(names.iter().all(|name| shells.contains(name)), "{names:?}");
    }

    /// C4
    #[test]
    fn a_process_that_cannot_be_noted_never_begins() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        // Where its note goes is no file.
        fs::create_dir_all(at.join(NOTE).join("full")).unwrap();
        start(&marks(at), at, Stdio::null(), Stdio::null(), |_| Ok(())).unwrap_err();
        assert!(!at.join(MARK).exists());
    }

    /// Not a test of its own: the emulator that the next one starts. It dies while a process of its
    /// waits to begin.
    #[test]
    #[ignore = "run as a child process by the test that looks at what it leaves"]
    #[expect(clippy::zombie_processes, reason = "the test kills the process that starts it")]
    fn dies_before_its_process_begins() {
        let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
            return;
        };
        let child =
            held_back(&marks(&directory), &directory, Stdio::null(), Stdio::null()).unwrap();
        // So that the test knows the process; to the process it is the same when there is no note
        // yet.
        note(&child, &directory).unwrap();
        kill_process(getpid(), Signal::KILL).unwrap();
    }

    /// C4: a machine's process must not run if the emulator is killed before it is noted.
    #[test]
    fn a_process_ends_when_its_emulator_is_killed_before_it_begins() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let emulator = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "ec2::process::tests::dies_before_its_process_begins"])
            .env(DIRECTORY, at)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(emulator.signal(), Some(9));
        assert!(at.join(NOTE).exists(), "it was killed before its process was started");
        let until = Instant::now() + Duration::from_secs(60);
        while living(at).is_some() {
            assert!(Instant::now() < until, "it waits for ever");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!at.join(MARK).exists(), "it began");
    }
}
