//! Files that tenants include (Z2.5), where they lie: beside the main configuration. With them the
//! playbooks and roles of their jobs, in `playbooks/` and `roles/`; nothing else that lies there is
//! read.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use sluice_config::job::not_beside;
use sluice_config::tenant::{MainConfig, included_branch, included_collisions};
use sluice_config::{ConfigError, Fragment, SourceFile, fragment, text_of};
use sluice_git::{NewFile, Planted, is_own_directory, keys, plant};
use sluice_model::git::BranchState;
use sluice_records::included::IncludedFiles;
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// Directories beside the main configuration whose files jobs of included files have.
const FOLDERS: [&str; 2] = ["playbooks", "roles"];
/// Files and directories in them.
const ENTRIES_MAX: usize = 10_000;
/// Directories that one may lie in.
const DEPTH_MAX: usize = 32;
/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of all files together: each machine that runs jobs of them has them all.
const TOTAL_BYTES_MAX: u64 = 32 << 20;
/// What to do with what is too large.
const INSTEAD: &str = "put what jobs need of it into the repository of a config project, or have jobs fetch it from elsewhere";

/// Playbooks and roles, by their paths from the main configuration, with `/`.
pub type Content = BTreeMap<String, NewFile>;

/// Reads every file that tenants of a main configuration include. What is not there is left out,
/// and told by [`mistakes`].
///
/// # Errors
/// When a file is there and cannot be read.
pub fn read(main_file: &Path, main: &MainConfig) -> anyhow::Result<IncludedFiles> {
    let folder = main_file.parent().unwrap_or(Path::new(""));
    let names: BTreeSet<&String> = main.tenants.iter().flat_map(|tenant| &tenant.include).collect();
    let mut files = IncludedFiles::new();
    for name in names {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(bytes) => drop(files.insert(name.clone(), text_of(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", path.display()));
            }
        }
    }
    Ok(files)
}

/// Returns what is wrong with the files by themselves and beside each other, and which of them are
/// not there, each once. `path` and `text` are those of the main configuration.
pub fn mistakes(
    path: &str,
    text: &str,
    main: &MainConfig,
    files: &IncludedFiles,
) -> Vec<ConfigError> {
    let parsed = parsed(path, text, main, files);
    let found =
        parsed.iter().flat_map(|file| file.errors()).chain(included_collisions(&each(&parsed)));
    found.collect::<BTreeSet<ConfigError>>().into_iter().collect()
}

/// Returns a warning for each playbook that jobs of the files name and that is not among the
/// content. None where that is empty: then all playbooks are those of config projects.
pub fn unfound(
    path: &str,
    text: &str,
    main: &MainConfig,
    files: &IncludedFiles,
    content: &Content,
) -> Vec<ConfigError> {
    if content.is_empty() {
        return Vec::new();
    }
    not_beside(&each(&parsed(path, text, main, files)), |file| content.contains_key(file))
}

/// Returns the files as each tenant has them.
fn parsed(path: &str, text: &str, main: &MainConfig, files: &IncludedFiles) -> Vec<Arc<Fragment>> {
    let parse = |file: &SourceFile| Arc::new(fragment::parse(file));
    main.tenants
        .iter()
        .flat_map(|tenant| tenant.included_fragments((path, text), files, parse))
        .collect()
}

/// Returns each file once.
fn each(parsed: &[Arc<Fragment>]) -> Vec<Arc<Fragment>> {
    let by_path: BTreeMap<&str, &Arc<Fragment>> =
        parsed.iter().map(|file| (file.source.path.as_str(), file)).collect();
    by_path.into_values().cloned().collect()
}

/// Reads the playbooks and roles beside the files that tenants include: every file below
/// `playbooks/` and `roles/`. Nothing where no tenant includes any file, or neither directory is
/// there. Directories of git's own are left out: a role that was cloned is not its history.
///
/// # Errors
/// When something cannot be read, is too large, or is no file of a commit: a link that leads
/// elsewhere, a socket, a device.
pub fn content(main_file: &Path, main: &MainConfig) -> anyhow::Result<Content> {
    let mut content = Content::new();
    if main.tenants.iter().all(|tenant| tenant.include.is_empty()) {
        return Ok(content);
    }
    let folder = main_file.parent().unwrap_or(Path::new(""));
    let mut ahead: Vec<String> = FOLDERS.map(str::to_owned).to_vec();
    let (mut entries, mut total_bytes) = (0_usize, 0_u64);
    // Ends: each round looks at one of what is there, and of no more than these.
    while let Some(at) = ahead.pop() {
        let path = folder.join(&at);
        let is_folder = FOLDERS.contains(&at.as_str());
        let found = match fs::symlink_metadata(&path) {
            Err(error) if is_folder && error.kind() == ErrorKind::NotFound => continue,
            found => found.with_context(|| format!("could not read {}", path.display()))?,
        };
        entries += 1;
        if entries > ENTRIES_MAX {
            bail!(
                "there are more than {ENTRIES_MAX} files and directories below {}: {INSTEAD}",
                folders_in(folder)
            );
        }
        let kind = found.file_type();
        if kind.is_dir() {
            if at.split('/').count() > DEPTH_MAX {
                bail!("{} lies more than {DEPTH_MAX} directories deep: {INSTEAD}", path.display());
            }
            ahead.extend(members(&path, &at)?);
        } else if is_folder {
            bail!(
                "{} is no directory: jobs of included files have their {at} of a directory of that name; rename it, or put a directory with them in its place",
                path.display()
            );
        } else if kind.is_symlink() {
            content.insert(at.clone(), NewFile::Link(link(&path, &at)?));
        } else if kind.is_file() {
            let bytes = file(&path, found.len())?;
            total_bytes += bytes.len() as u64;
            if total_bytes > TOTAL_BYTES_MAX {
                bail!(
                    "the files below {} have more than {} MiB together: {INSTEAD}",
                    folders_in(folder),
                    TOTAL_BYTES_MAX >> 20
                );
            }
            let is_executable = found.permissions().mode() & 0o100 != 0;
            content.insert(
                at,
                if is_executable { NewFile::Executable(bytes) } else { NewFile::File(bytes) },
            );
        } else {
            bail!(
                "{} is neither a file nor a directory: of what lies there jobs have files only, so take it away",
                path.display()
            );
        }
    }
    Ok(content)
}

/// Makes the commit that jobs have of these files; `None` where there are none. Equal files make an
/// equal commit.
///
/// # Errors
/// When a name is none for git.
pub fn commit(content: &Content) -> anyhow::Result<Option<Planted>> {
    match content.is_empty() {
        true => Ok(None),
        false => Ok(Some(plant(content, "What lies beside the main configuration")?)),
    }
}

/// Stores a commit's objects, where merger and executors find them, and returns it as tenants have
/// it. What was stored before stays, for builds that were frozen with it.
///
/// # Errors
/// When the store does not answer.
pub async fn store(ports: &Ports, made: Planted) -> anyhow::Result<BranchState> {
    let Planted { commit, pack, object } = made;
    let branch = included_branch();
    let key = keys::pack(&branch.project, &pack);
    ports
        .objects
        .put(&key, Bytes::from(object), PutMode::Always, "application/octet-stream")
        .await?;
    Ok(BranchState::untouched(branch, commit, vec![key]))
}

/// Returns what a directory has, by paths from the main configuration.
fn members(path: &Path, at: &str) -> anyhow::Result<Vec<String>> {
    let unreadable = || format!("could not read {}", path.display());
    let mut found = Vec::new();
    for member in fs::read_dir(path).with_context(unreadable)? {
        let name = member.with_context(unreadable)?.file_name();
        let Some(text) = name.to_str() else {
            bail!("{} has a name that is not UTF-8: rename it", path.join(&name).display());
        };
        if is_own_directory(text) {
            continue;
        }
        found.push(format!("{at}/{text}"));
        if found.len() > ENTRIES_MAX {
            bail!("{} has more than {ENTRIES_MAX} files: {INSTEAD}", path.display());
        }
    }
    Ok(found)
}

/// Reads a file that has so many bytes, as its directory says.
fn file(path: &Path, said_bytes: u64) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("could not read {}", path.display());
    let mut bytes = Vec::new();
    if said_bytes <= FILE_BYTES_MAX {
        let opened = fs::File::open(path).with_context(unreadable)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(unreadable)?;
    }
    let has_bytes = said_bytes.max(bytes.len() as u64);
    if has_bytes > FILE_BYTES_MAX {
        bail!(
            "{} has {has_bytes} bytes, and a file that jobs have of what lies beside the main configuration may have {FILE_BYTES_MAX}: {INSTEAD}",
            path.display()
        );
    }
    Ok(bytes)
}

/// Returns where a link leads. Jobs find what is in the folders in another place, where nothing
/// else lies around it.
fn link(path: &Path, at: &str) -> anyhow::Result<String> {
    let to = fs::read_link(path).with_context(|| format!("could not read {}", path.display()))?;
    match to.to_str() {
        Some(text) if stays(at, text) => Ok(text.to_owned()),
        _ => bail!(
            "{} is a link to {}, which does not lead by a plain relative path to something in playbooks/ or roles/: put a copy in its place",
            path.display(),
            to.display()
        ),
    }
}

/// Returns whether a link at a path leads to something in the folders. It may lead upwards only
/// where it begins: a directory that it names may be a link by itself, and what is above that is
/// elsewhere.
fn stays(at: &str, to: &str) -> bool {
    let mut here: Vec<&str> = at.split('/').collect();
    here.pop();
    let mut has_named = false;
    for part in to.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part != ".." {
            has_named = true;
            here.push(part);
        } else if has_named || here.pop().is_none() {
            return false;
        }
    }
    !to.starts_with('/') && here.first().is_some_and(|first| FOLDERS.contains(first))
}

fn folders_in(folder: &Path) -> String {
    FOLDERS.map(|name| folder.join(name).display().to_string()).join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::{Connections, parse_main};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A directory with a main configuration that includes a file, and these files.
    fn beside(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf, MainConfig) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let text = "- tenant: {name: one, include: [global.yaml]}\n";
        let (main, errors) = parse_main("main.yaml", text, &Connections::new());
        assert!(errors.is_empty(), "{errors:?}");
        let file = folder.path().join("main.yaml");
        (folder, file, main)
    }

    fn refused(file: &Path, main: &MainConfig) -> String {
        format!("{:#}", content(file, main).unwrap_err())
    }

    /// Z2.5: playbooks and roles are taken, and nothing else that lies there; equal files are an
    /// equal commit, wherever they lie.
    #[test]
    fn playbooks_and_roles_beside_the_main_configuration_are_one_commit() {
        let files = [
            ("global.yaml", "[]"),
            ("secret.txt", "hunter2"),
            ("playbooks/unit.yaml", "- hosts: all\n"),
            ("roles/a/tasks/main.yaml", "[]"),
            ("roles/a/.git/config", "token"),
        ];
        let (folder, file, main) = beside(&files);
        let script = folder.path().join("roles/a/files/run");
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("../roles/a/files/run", folder.path().join("playbooks/run")).unwrap();
        let found = content(&file, &main).unwrap();
        let paths: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "playbooks/run",
                "playbooks/unit.yaml",
                "roles/a/files/run",
                "roles/a/tasks/main.yaml"
            ]
        );
        assert_eq!(found["playbooks/run"], NewFile::Link("../roles/a/files/run".to_owned()));
        assert_eq!(found["roles/a/files/run"], NewFile::Executable(b"#!/bin/sh\n".to_vec()));
        let made = commit(&found).unwrap().unwrap();
        assert_eq!(commit(&content(&file, &main).unwrap()).unwrap().unwrap(), made);
        fs::write(folder.path().join("playbooks/unit.yaml"), "- hosts: one\n").unwrap();
        assert_ne!(commit(&content(&file, &main).unwrap()).unwrap().unwrap().commit, made.commit);

        fs::remove_dir_all(folder.path().join("playbooks")).unwrap();
        fs::remove_dir_all(folder.path().join("roles")).unwrap();
        assert!(commit(&content(&file, &main).unwrap()).unwrap().is_none());
        fs::write(folder.path().join("roles"), "no directory").unwrap();
        let none = MainConfig::default();
        assert!(
            content(&file, &none).unwrap().is_empty(),
            "whoever includes nothing has nothing of it"
        );
    }

    /// Z2.5: nothing outside of the two directories gets to jobs, and what is no file is told
    /// rather than left out.
    #[test]
    fn links_out_of_the_directories_and_what_is_no_file_are_refused() {
        let targets = [
            "/etc/passwd",
            "../main.yaml",
            "../../x",
            "..",
            "../playbooks/../main.yaml",
            "deeper/../../secret.txt",
        ];
        for to in targets {
            let (folder, file, main) =
                beside(&[("playbooks/unit.yaml", ""), ("secret.txt", "hunter2")]);
            symlink(to, folder.path().join("playbooks/link")).unwrap();
            let told = refused(&file, &main);
            assert!(told.contains(&format!("playbooks/link is a link to {to},")), "{told}");
            assert!(told.ends_with("put a copy in its place"), "{told}");
        }
        let (folder, file, main) = beside(&[("playbooks/unit.yaml", "")]);
        let _socket =
            std::os::unix::net::UnixListener::bind(folder.path().join("playbooks/socket")).unwrap();
        let told = refused(&file, &main);
        assert!(told.contains("playbooks/socket is neither a file nor a directory"), "{told}");
        let (folder, file, main) = beside(&[("elsewhere/unit.yaml", "")]);
        symlink("elsewhere", folder.path().join("playbooks")).unwrap();
        let told = refused(&file, &main);
        assert!(told.contains("playbooks is no directory"), "{told}");
    }

    /// Z2.5
    #[test]
    fn what_is_too_large_is_told_with_what_to_do() {
        let (folder, file, main) = beside(&[("roles/a/files/small", "")]);
        let large = fs::File::create(folder.path().join("roles/a/files/disk.img")).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        let told = refused(&file, &main);
        assert!(told.contains("roles/a/files/disk.img has 4194305 bytes"), "{told}");
        assert!(told.ends_with(INSTEAD), "{told}");
        large.set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(content(&file, &main).unwrap().len(), 2);
        for number in 0..TOTAL_BYTES_MAX / FILE_BYTES_MAX {
            let another =
                fs::File::create(folder.path().join(format!("roles/a/files/{number}"))).unwrap();
            another.set_len(FILE_BYTES_MAX).unwrap();
        }
        let told = refused(&file, &main);
        assert!(told.contains("have more than 32 MiB together"), "{told}");
    }
}
