//! The file systems that nodes boot from: one directory each, with the owners that root of a node
//! sees as its own.
//!
//! The image of a Debian suite is made once by a recipe and kept in a cache, under a digest of the
//! recipe; all emulators of a user share it. An image of a node is a copy of its files, below the
//! emulator's own directory.

use super::process::clear_environment;
use super::rights::{NodeError, Rights, is_root, need_program, succeed};
use super::{Boot, Ec2Options};
use std::collections::VecDeque;
use std::fs::{self, TryLockError};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes the files of a suite as an archive.
const RECIPE: &str = include_str!("scripts/image.sh");
/// The last lines of a failed recipe that its error shows.
const LINES_MAX: usize = 5;
/// How the lines begin that are shown of a recipe's output: the steps that take long.
const STEPS: [&str; 5] = ["running apt-get", "downloading", "extracting", "installing", "creating"];
/// What an image has nothing of: files of the running system.
const LEFT_OUT: [&str; 5] = ["./dev/*", "./proc/*", "./sys/*", "./run/*", "./tmp/*"];

/// The namespaces of a node and the options of `nsenter` for them.
const NAMESPACES: [(&str, &str); 6] = [
    ("user", "--user"),
    ("mnt", "--mount"),
    ("pid", "--pid"),
    ("net", "--net"),
    ("ipc", "--ipc"),
    ("uts", "--uts"),
];

/// Where a machine's image is mounted in its directory, which a sandbox lacks.
pub(super) const MOUNT_POINT: &str = "image";

/// How a node gets the files of its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeFiles {
    /// By an overlay, which keeps only what differs.
    Overlay,
    /// By a copy.
    Copy,
}

/// Returns the default directory of images that users of this machine share with none:
/// `sluice/node-images` in `XDG_CACHE_HOME`, else in `.cache` of `HOME`; without either, in the
/// directory for temporary files.
pub(super) fn default_cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let uid = rustix::process::geteuid().as_raw();
    cache
        .map(|cache| cache.join("sluice"))
        .unwrap_or_else(|| std::env::temp_dir().join(format!("sluice-{uid}")))
        .join("node-images")
}

/// Returns the directory with the files of a suite's image in `cache`; makes it first if it is
/// missing, which takes about a minute. Waits while another process makes it. `progress` gets a
/// line for each step of the work, and none if the image exists. The error has the end of the
/// recipe's output.
pub(super) fn of_suite(
    cache: &Path,
    suite: &str,
    rights: &Rights,
    progress: &dyn Fn(&str),
) -> Result<PathBuf, NodeError> {
    let name = cache_name(suite);
    let directory = cache.join(&name);
    if directory.exists() {
        return Ok(directory.join("root"));
    }
    let failed = |why: String| NodeError::ImageFailed {
        name: suite.to_owned(),
        directory: directory.display().to_string(),
        why,
    };
    need_program("mmdebstrap", "mmdebstrap")?;
    let make = || -> io::Result<()> {
        fs::create_dir_all(cache)?;
        let lock = open_lock(cache, &name)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress("waiting: another process makes the image of local nodes");
                lock.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if directory.exists() {
            return Ok(());
        }
        progress(&format!(
            "preparing the image of local nodes, Debian {suite}: once, a minute or two, in {}",
            directory.display()
        ));
        let part = cache.join(format!("{name}.part"));
        rights.remove(&part)?;
        if let Err(error) = run_recipe(suite, rights, &part, progress) {
            rights.remove(&part)?;
            return Err(error);
        }
        fs::rename(&part, &directory)
    };
    make().map_err(|error| failed(error.to_string()))?;
    Ok(directory.join("root"))
}

/// Returns the rights over machines whose images exist or can be made. An error if a program, ids
/// or the kernel's permission is missing for that, which is tried.
pub(super) fn rights_to_boot(options: &Ec2Options) -> Result<Rights, NodeError> {
    let rights = Rights::find()?;
    let mut booting = options.images.iter().filter(|image| image.boot != Boot::Never);
    match booting.all(|image| options.image_cache.join(cache_name(&image.suite)).exists()) {
        true => Ok(rights),
        false => need_program("mmdebstrap", "mmdebstrap").map(|()| rights),
    }
}

/// Deletes what is left in `cache` of images whose making was interrupted. A failure is logged. What
/// another process makes stays.
pub(super) fn remove_unfinished(cache: &Path, rights: &Rights) {
    for part in parts(cache) {
        let name = part.file_stem().unwrap_or_default().to_string_lossy();
        let removed = open_lock(cache, &name).and_then(|lock| match lock.try_lock() {
            Ok(()) => rights.remove(&part),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
        });
        if let Err(error) = removed {
            tracing::warn!(directory = %part.display(), %error, "an unfinished image is left behind");
        }
    }
}

/// Returns the unfinished images in a directory of images, which may be missing.
pub(super) fn parts(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "part"))
}

/// Opens the file that a process locks while it makes the image with this name; creates a missing
/// one, for this user only.
fn open_lock(cache: &Path, name: &str) -> io::Result<fs::File> {
    let file = cache.join(format!("{name}.lock"));
    fs::File::options().create(true).append(true).mode(0o600).open(file)
}

/// Returns the name of a suite's image in the cache, which has a digest of the recipe.
fn cache_name(suite: &str) -> String {
    let digest = sluice_model::id::digest(&[RECIPE, suite, std::env::consts::ARCH]);
    format!("{suite}-{}", digest.get(..16).unwrap_or(&digest))
}

/// Runs the recipe of a suite and unpacks what it writes below `part`, which must not exist.
fn run_recipe(
    suite: &str,
    rights: &Rights,
    part: &Path,
    progress: &dyn Fn(&str),
) -> io::Result<()> {
    let mut recipe = Command::new("/bin/sh");
    recipe.args(["-c", RECIPE, "image.sh", suite]);
    recipe.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recipe = recipe.spawn()?;
    let archive = recipe.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let unpacking = unpack(rights, part, archive).and_then(|mut tar| tar.spawn());
    let mut unpacking = unpacking.inspect_err(|_| {
        let _ = recipe.kill();
        let _ = recipe.wait();
    })?;
    let mut last = VecDeque::new();
    let printed =
        recipe.stderr.take().into_iter().flat_map(|output| BufReader::new(output).lines());
    for line in printed.map_while(Result::ok) {
        // What mmdebstrap prints as information is its steps.
        let step = line.strip_prefix("I: ");
        if let Some(step) = step.filter(|step| STEPS.iter().any(|begin| step.starts_with(begin))) {
            progress(&format!("  {}", step.trim_end_matches('.')));
        }
        last.push_back(line);
        if last.len() > LINES_MAX {
            last.pop_front();
        }
    }
    let (made, unpacked) = (recipe.wait()?, unpacking.wait()?);
    match made.success() && unpacked.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "its recipe ended with {made}, unpacking with {unpacked}: {}",
            last.into_iter().collect::<Vec<_>>().join("; ")
        ))),
    }
}

/// Returns the command that unpacks an archive as root of the nodes into the directory `root` of
/// `image`, both of which are created. It ends with the process that starts it.
fn unpack(rights: &Rights, image: &Path, archive: impl Into<Stdio>) -> io::Result<Command> {
    fs::create_dir(image)?;
    // Nodes reach their image by a mount, other users of this machine not at all.
    let mode = if is_root() { 0o711 } else { 0o700 };
    fs::set_permissions(image, fs::Permissions::from_mode(mode))?;
    let root = image.join("root");
    rights.create_directory(&root)?;
    let mut tar = rights.mapped("setpriv");
    tar.args(["--pdeathsig", "KILL", "tar", "--extract", "--numeric-owner", "--xattrs"]);
    tar.args(["--xattrs-include=security.capability", "--file=-"]);
    tar.args(LEFT_OUT.iter().map(|what| format!("--exclude={what}")));
    tar.current_dir(root).stdin(archive).stdout(Stdio::null());
    Ok(tar)
}

/// Copies the files of a running node, whose first process this is, into the directory `root` of
/// `image`, which must not exist. Files that change meanwhile are copied in some state of theirs.
/// Left out are temporary files and what other file systems hold. A failure leaves nothing.
pub(super) fn capture(rights: &Rights, process: u32, image: &Path) -> io::Result<()> {
    let part = image.with_extension("part");
    rights.remove(&part)?;
    let copied = copy_node(rights, process, &part).and_then(|()| fs::rename(&part, image));
    if copied.is_err() {
        rights.remove(&part)?;
    }
    copied
}

/// Copies the files of a running node into a new directory, as [`capture`].
fn copy_node(rights: &Rights, process: u32, part: &Path) -> io::Result<()> {
    if let Some(parent) = part.parent() {
        fs::create_dir_all(parent)?;
    }
    // The node's own tar, with the node's rights, and without this machine's terminal.
    let mut pack = Command::new("setsid");
    clear_environment(&mut pack).args(["nsenter", "--target", &process.to_string()]);
    let namespace = |of: &str, name: &str| fs::read_link(format!("/proc/{of}/ns/{name}"));
    for (name, option) in NAMESPACES {
        // One that the node shares with this machine, such as the network, cannot be entered.
        if namespace(&process.to_string(), name)? != namespace("self", name)? {
            pack.arg(option);
        }
    }
    pack.args(["--", "tar", "--create", "--one-file-system", "--numeric-owner", "--xattrs"]);
    pack.args(["--xattrs-include=security.capability", "--file=-", "--directory=/"]);
    pack.args(LEFT_OUT.iter().map(|what| format!("--exclude={what}"))).arg(".");
    pack.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut pack = pack.spawn()?;
    let archive = pack.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let unpacked = unpack(rights, part, archive).and_then(succeed);
    if unpacked.is_err() {
        let _ = pack.kill();
    }
    let packed = pack.wait()?;
    unpacked?;
    // 1: a file changed while it was read.
    match packed.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(io::Error::other(format!("reading the node's files ended with {packed}"))),
    }
}

/// Makes the file system of a new node in its directory from an image, as `files` says: empty
/// directories for an overlay, or a copy.
pub(super) fn place(
    rights: &Rights,
    files: NodeFiles,
    image: &Path,
    directory: &Path,
) -> io::Result<()> {
    fs::create_dir(directory.join(MOUNT_POINT))?;
    rights.create_directory(&directory.join("root"))?;
    match files {
        NodeFiles::Copy => rights.copy(image, &directory.join("root")),
        NodeFiles::Overlay => {
            rights.create_directory(&directory.join("upper"))?;
            rights.create_directory(&directory.join("work"))
        }
    }
}

/// Returns how nodes below this directory get their files: by an overlay if this machine's kernel
/// and the directory's file system can, which is tried; else by a copy.
pub(super) fn files_in(rights: &Rights, directory: &Path) -> io::Result<NodeFiles> {
    // A directory in which a name of the image is used again needs an attribute that some file
    // systems lack.
    const TRIAL: &str = "mkdir -p image/a upper work root && \
        mount -c -t overlay overlay -o lowerdir=image,upperdir=upper,workdir=work,userxattr root && \
        cd -P root && rmdir a && mkdir a && : >a/b";
    let trial = directory.join("trial");
    rights.remove(&trial)?;
    fs::create_dir_all(directory)?;
    rights.create_directory(&trial)?;
    let mut command = rights.mapped("unshare");
    command.args(["--mount", "--", "/bin/sh", "-c", TRIAL]).current_dir(&trial);
    let tried = succeed(command);
    rights.remove(&trial)?;
    Ok(match tried {
        Ok(()) => NodeFiles::Overlay,
        Err(error) => {
            tracing::info!(%error, "no overlay: nodes get a copy of their image");
            NodeFiles::Copy
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C4: neither a killed emulator nor a failure leaves files of an image for ever.
    #[test]
    fn an_unfinished_image_is_removed_unless_another_process_makes_it() {
        let rights = match Rights::find() {
            Ok(rights) => rights,
            Err(error) => return eprintln!("SKIPPED: unfinished images: {error}"),
        };
        let cache = tempfile::tempdir().unwrap();
        for name in ["left-1", "made-2"] {
            fs::create_dir_all(cache.path().join(format!("{name}.part/root"))).unwrap();
        }
        let lock = open_lock(cache.path(), "made-2").unwrap();
        assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        lock.lock().unwrap();
        remove_unfinished(cache.path(), &rights);
        let left: Vec<_> = parts(cache.path()).collect();
        assert_eq!(left, [cache.path().join("made-2.part")]);
        drop(lock);
        remove_unfinished(cache.path(), &rights);
        assert_eq!(parts(cache.path()).count(), 0);
        // The recipe fails at once without a suite.
        let failed = of_suite(cache.path(), "", &rights, &|_| ());
        assert!(
            matches!(failed, Err(NodeError::ImageFailed { .. } | NodeError::ProgramMissing { .. })),
            "{failed:?}"
        );
        assert_eq!(parts(cache.path()).count(), 0);
    }
}
