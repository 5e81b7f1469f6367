//! Starts the first process of a machine's server or user data script. It waits until it is noted
//! in the machine's directory, so that a restarted emulator finds it.
//!
//! It leads its own process group, so signals to the emulator's group do not reach it. If it ran
//! before it was noted, an emulator killed in between would leave an unknown machine, because
//! remaining machines are found by their notes.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The file that says which process it is: number and start time.
pub(super) const NOTE: &str = "pid";

/// A shell script that waits for a line on standard input and then executes the following program,
/// keeping its process id and start time. It ends if the other end is closed first.
const ONCE_NOTED: &str = "read -r noted && exec \"$@\" </dev/null";

/// Starts a program as the first process of the machine in this directory, once its id is noted
/// there, and returns it. It leads its own process group and has no input; `complaints` is where
/// its errors go. Its environment and directory are the emulator's own, whatever `program` says of
/// them. On an error no process is left.
pub(super) fn start(
    program: &Command,
    directory: &Path,
    output: impl Into<Stdio>,
    complaints: impl Into<Stdio>,
) -> io::Result<Child> {
    let mut child = held_back(program, output, complaints)?;
    match note(&child, directory).and_then(|()| permit(&mut child)) {
        Ok(()) => Ok(child),
        Err(error) => {
            // It has not begun, so that this one process is all of it.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Starts a process in a group of its own that runs `program` only after [`permit`]. It ends
/// without running it if the emulator dies before. Only the program's name and arguments are used.
fn held_back(
    program: &Command,
    output: impl Into<Stdio>,
    complaints: impl Into<Stdio>,
) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", ONCE_NOTED, "sh"]).arg(program.get_program()).args(program.get_args());
    command.stdin(Stdio::piped()).stdout(output).stderr(complaints).process_group(0).spawn()
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
/// [`note`]: a program that is not noted is not found again.
fn permit(child: &mut Child) -> io::Result<()> {
    let stdin = child.stdin.take();
    let mut stdin =
        stdin.ok_or_else(|| io::Error::other("the machine's process has no standard input"))?;
    stdin.write_all(b"noted\n")
}

/// Returns the id of the process that is noted in this directory, if that very process still runs.
/// `None` if none is noted, it has ended, or its id was given to another process.
pub(super) fn living(directory: &Path) -> Option<u32> {
    let text = fs::read_to_string(directory.join(NOTE)).ok()?;
    let (pid, started) = text.split_once(' ')?;
    let pid = pid.parse().ok()?;
    (start_time(pid)? == started).then_some(pid)
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
    use rustix::process::{Signal, getpid, kill_process};
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

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
        let mut child = held_back(&marks(at), Stdio::null(), Stdio::null()).unwrap();
        note(&child, at).unwrap();
        assert_eq!(living(at), Some(child.id()));
        assert!(!at.join(MARK).exists());
        permit(&mut child).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(at.join(MARK).exists());
        assert_eq!(living(at), None);
    }

    /// C4
    #[test]
    fn a_process_that_cannot_be_noted_never_begins() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        // Where its note goes is no file.
        fs::create_dir_all(at.join(NOTE).join("full")).unwrap();
        start(&marks(at), at, Stdio::null(), Stdio::null()).unwrap_err();
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
        let child = held_back(&marks(&directory), Stdio::null(), Stdio::null()).unwrap();
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
