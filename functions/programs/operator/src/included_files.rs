//! Reads the files that tenants of a main configuration include (Z2.5), and the `playbooks/` and
//! `roles/` directories next to it. Other files there are never read.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use sluice_config::job::missing_included_playbooks;
use sluice_config::tenant::{MainConfig, MainConfigText, included_branch, included_collisions};
use sluice_config::{ConfigError, Fragment, SourceFile, fragment, text_of};
use sluice_git::{NewFile, Planted, is_spelling_of_dot_git, keys, plant};
use sluice_model::git::BranchState;
use sluice_records::included_files::IncludedFiles;
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// The directories next to the main configuration whose files are available to jobs of included
/// files.
const DIRECTORIES: [&str; 2] = ["playbooks", "roles"];
/// The maximum number of files and directories in them.
const ENTRIES_MAX: usize = 10_000;
/// The maximum depth of directories.
const DEPTH_MAX: usize = 32;
/// The maximum size of one file, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The maximum size of all files, in bytes. Every machine that runs such jobs gets all of them.
const TOTAL_BYTES_MAX: u64 = 32 << 20;
/// The advice to give when something is too large.
const ADVICE: &str = "move it into the repository of a config project, or let jobs download it";

/// The playbooks and roles, by path relative to the main configuration, separated by `/`.
pub type IncludedContent = BTreeMap<String, NewFile>;

/// Returns the text of every file that the tenants include, by its name in the main configuration,
/// a path relative to that file. Leaves out files that do not exist; [`diagnostics`] reports them.
/// `main_file` is the path of the main configuration.
///
/// # Errors
/// When an existing file cannot be read.
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

/// Returns the errors and warnings in the included files, names that two files define, and missing
/// files, sorted and each once. `path` and `text` are those of the main configuration, where
/// missing files are reported. `files` are those that [`read`] returned.
pub fn diagnostics(
    path: &str,
    text: &str,
    main: &MainConfig,
    files: &IncludedFiles,
) -> Vec<ConfigError> {
    let parsed = parse_included(path, text, main, files);
    let found =
        parsed.iter().flat_map(|file| file.errors()).chain(included_collisions(&distinct(&parsed)));
    found.collect::<BTreeSet<ConfigError>>().into_iter().collect()
}

/// Returns a warning for each playbook that jobs of the included files name and that is not in
/// `content`; playbooks that jobs only imply are not checked. Empty if the content is empty, since
/// all playbooks are then in config projects. `path` and `text` are those of the main
/// configuration; `files` are those that [`read`] returned.
pub fn missing_playbooks(
    path: &str,
    text: &str,
    main: &MainConfig,
    files: &IncludedFiles,
    content: &IncludedContent,
) -> Vec<ConfigError> {
    if content.is_empty() {
        return Vec::new();
    }
    missing_included_playbooks(&distinct(&parse_included(path, text, main, files)), |file| {
        content.contains_key(file)
    })
}

/// Parses the included files of every tenant: one that several tenants include is returned several
/// times. For a tenant with missing files, adds a fragment that has only the errors about them.
/// `path` and `text` are those of the main configuration, where missing files are reported; `files`
/// are those that [`read`] returned.
fn parse_included(
    path: &str,
    text: &str,
    main: &MainConfig,
    files: &IncludedFiles,
) -> Vec<Arc<Fragment>> {
    let parse = |file: &SourceFile| Arc::new(fragment::parse(file));
    main.tenants
        .iter()
        .flat_map(|tenant| tenant.included_fragments(MainConfigText { path, text }, files, parse))
        .collect()
}

/// Returns one file for each path, sorted by path: of several with the same path, the last.
fn distinct(parsed: &[Arc<Fragment>]) -> Vec<Arc<Fragment>> {
    let by_path: BTreeMap<&str, &Arc<Fragment>> =
        parsed.iter().map(|file| (file.source.path.as_str(), file)).collect();
    by_path.into_values().cloned().collect()
}

/// Reads every file and symbolic link below `playbooks/` and `roles/` next to the main
/// configuration. Empty if no tenant includes a file, or neither directory exists. Leaves out
/// `.git`, so the history of a cloned role, and empty directories. More than 10,000 files and
/// directories, directories more than 32 deep, 4 MiB in a file or 32 MiB in all are errors.
///
/// # Errors
/// When something cannot be read, is too large, or cannot be stored in git: a link out of the
/// directories, a socket, a device.
pub fn content(main_file: &Path, main: &MainConfig) -> anyhow::Result<IncludedContent> {
    let mut content = IncludedContent::new();
    if main.tenants.iter().all(|tenant| tenant.include.is_empty()) {
        return Ok(content);
    }
    let folder = main_file.parent().unwrap_or(Path::new(""));
    let mut ahead: Vec<String> = DIRECTORIES.map(str::to_owned).to_vec();
    let (mut entries, mut total_bytes) = (0_usize, 0_u64);
    // Terminates: each round visits one entry, and the number of entries is bounded.
    while let Some(at) = ahead.pop() {
        let path = folder.join(&at);
        let is_folder = DIRECTORIES.contains(&at.as_str());
        let found = match fs::symlink_metadata(&path) {
            Err(error) if is_folder && error.kind() == ErrorKind::NotFound => continue,
            found => found.with_context(|| format!("could not read {}", path.display()))?,
        };
        entries += 1;
        if entries > ENTRIES_MAX {
            bail!(
                "could not store the files next to the main configuration: {} contain more than {ENTRIES_MAX} files and directories; {ADVICE}",
                folders_in(folder)
            );
        }
        let kind = found.file_type();
        if kind.is_dir() {
            if at.split('/').count() > DEPTH_MAX {
                bail!(
                    "could not store {}: it is more than {DEPTH_MAX} directories deep; {ADVICE}",
                    path.display()
                );
            }
            ahead.extend(list_directory(&path, &at)?);
        } else if is_folder {
            bail!(
                "could not read {}: it is not a directory, but jobs of included files get their {at} from it; rename it or replace it by a directory",
                path.display()
            );
        } else if kind.is_symlink() {
            content.insert(at.clone(), NewFile::Link(link_target(&path, &at)?));
        } else if kind.is_file() {
            let bytes = read_file(&path, found.len())?;
            total_bytes += bytes.len() as u64;
            if total_bytes > TOTAL_BYTES_MAX {
                bail!(
                    "could not store the files next to the main configuration: {} contain more than {} MiB; {ADVICE}",
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
                "could not store {}: it is neither a file nor a directory; remove it",
                path.display()
            );
        }
    }
    Ok(content)
}

/// Builds a commit without parents that holds the content, with its pack; stores nothing. `None` if
/// there is no content. The same files give the same commit.
///
/// # Errors
/// When a file name is not valid in git.
pub fn commit(content: &IncludedContent) -> anyhow::Result<Option<Planted>> {
    match content.is_empty() {
        true => Ok(None),
        false => Ok(Some(plant(content, "Files next to the main configuration")?)),
    }
}

/// Stores the pack of a commit for the merger and the executors, and returns the state of the
/// included files' only branch with that commit. Keeps the packs of earlier commits, which frozen
/// builds may need.
///
/// # Errors
/// When the store does not answer.
pub async fn store(ports: &Ports, planted: Planted) -> anyhow::Result<BranchState> {
    let Planted { commit, pack, object } = planted;
    let branch = included_branch();
    let key = keys::pack(&branch.project, &pack);
    ports
        .objects
        .put(&key, Bytes::from(object), PutMode::Always, "application/octet-stream")
        .await?;
    Ok(BranchState::untouched(branch, commit, vec![key]))
}

/// Returns the members of a directory, as paths relative to the main configuration (`at/name`),
/// unordered. Leaves out `.git`. An error for a name that is not UTF-8, or for more than 10,000
/// members.
fn list_directory(path: &Path, at: &str) -> anyhow::Result<Vec<String>> {
    let unreadable = || format!("could not read {}", path.display());
    let mut found = Vec::new();
    for member in fs::read_dir(path).with_context(unreadable)? {
        let name = member.with_context(unreadable)?.file_name();
        let Some(text) = name.to_str() else {
            bail!(
                "could not store {}: its name is not UTF-8; rename it",
                path.join(&name).display()
            );
        };
        if is_spelling_of_dot_git(text) {
            continue;
        }
        found.push(format!("{at}/{text}"));
        if found.len() > ENTRIES_MAX {
            bail!(
                "could not store {}: it contains more than {ENTRIES_MAX} files; {ADVICE}",
                path.display()
            );
        }
    }
    Ok(found)
}

/// Reads a file. `said_bytes` is its size as the file system gives it: a file of more than 4 MiB is
/// an error, without reading it, and so is one that has grown beyond that.
fn read_file(path: &Path, said_bytes: u64) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("could not read {}", path.display());
    let mut bytes = Vec::new();
    if said_bytes <= FILE_BYTES_MAX {
        let opened = fs::File::open(path).with_context(unreadable)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(unreadable)?;
    }
    let has_bytes = said_bytes.max(bytes.len() as u64);
    if has_bytes > FILE_BYTES_MAX {
        bail!(
            "could not store {}: it has {has_bytes} bytes, the maximum is {FILE_BYTES_MAX}; {ADVICE}",
            path.display()
        );
    }
    Ok(bytes)
}

/// Returns the target of a symbolic link, as written. An error if it leads out of the directories:
/// jobs see these at another place, where nothing outside them exists. `at` is the path of the
/// link, relative to the main configuration.
fn link_target(path: &Path, at: &str) -> anyhow::Result<String> {
    let to = fs::read_link(path).with_context(|| format!("could not read {}", path.display()))?;
    match to.to_str() {
        Some(text) if stays_inside(at, text) => Ok(text.to_owned()),
        _ => bail!(
            "could not store {}: it is a link to {}, which is not a relative path to something in playbooks/ or roles/; replace it by a copy",
            path.display(),
            to.display()
        ),
    }
}

/// Returns whether a link at `at` with the target `to` leads to something in `playbooks/` or
/// `roles/`, or to one of them. `..` is allowed only at the beginning: a later `..` could follow
/// another link out of them. An absolute target is never allowed.
fn stays_inside(at: &str, to: &str) -> bool {
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
    !to.starts_with('/') && here.first().is_some_and(|first| DIRECTORIES.contains(first))
}

/// Returns the paths of the directories `playbooks` and `roles` in a folder as text: `… and …`.
fn folders_in(folder: &Path) -> String {
    DIRECTORIES.map(|name| folder.join(name).display().to_string()).join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::{Connections, parse_main};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// Creates a directory with a main configuration that includes a file, and the given files.
    fn directory_with(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf, MainConfig) {
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

    /// Z2.5: only playbooks and roles are read; equal files give an equal commit.
    #[test]
    fn playbooks_and_roles_become_one_commit() {
        let files = [
            ("global.yaml", "[]"),
            ("secret.txt", "hunter2"),
            ("playbooks/unit.yaml", "- hosts: all\n"),
            ("roles/a/tasks/main.yaml", "[]"),
            ("roles/a/.git/config", "token"),
        ];
        let (folder, file, main) = directory_with(&files);
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
        let planted = commit(&found).unwrap().unwrap();
        assert_eq!(commit(&content(&file, &main).unwrap()).unwrap().unwrap(), planted);
        fs::write(folder.path().join("playbooks/unit.yaml"), "- hosts: one\n").unwrap();
        assert_ne!(
            commit(&content(&file, &main).unwrap()).unwrap().unwrap().commit,
            planted.commit
        );

        fs::remove_dir_all(folder.path().join("playbooks")).unwrap();
        fs::remove_dir_all(folder.path().join("roles")).unwrap();
        assert!(commit(&content(&file, &main).unwrap()).unwrap().is_none());
        fs::write(folder.path().join("roles"), "no directory").unwrap();
        let none = MainConfig::default();
        assert!(
            content(&file, &none).unwrap().is_empty(),
            "nothing is read without included files"
        );
    }

    /// Z2.5: nothing outside the two directories reaches jobs; unsupported file types are errors.
    #[test]
    fn links_out_of_the_directories_and_special_files_are_refused() {
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
                directory_with(&[("playbooks/unit.yaml", ""), ("secret.txt", "hunter2")]);
            symlink(to, folder.path().join("playbooks/link")).unwrap();
            let error = refused(&file, &main);
            assert!(error.contains(&format!("playbooks/link: it is a link to {to},")), "{error}");
            assert!(error.ends_with("replace it by a copy"), "{error}");
        }
        let (folder, file, main) = directory_with(&[("playbooks/unit.yaml", "")]);
        let _socket =
            std::os::unix::net::UnixListener::bind(folder.path().join("playbooks/socket")).unwrap();
        let error = refused(&file, &main);
        assert!(
            error.contains("playbooks/socket: it is neither a file nor a directory"),
            "{error}"
        );
        let (folder, file, main) = directory_with(&[("elsewhere/unit.yaml", "")]);
        symlink("elsewhere", folder.path().join("playbooks")).unwrap();
        let error = refused(&file, &main);
        assert!(error.contains("playbooks: it is not a directory"), "{error}");
    }

    /// Z2.5
    #[test]
    fn too_large_files_are_refused_with_advice() {
        let (folder, file, main) = directory_with(&[("roles/a/files/small", "")]);
        let large = fs::File::create(folder.path().join("roles/a/files/disk.img")).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = refused(&file, &main);
        assert!(error.contains("roles/a/files/disk.img: it has 4194305 bytes"), "{error}");
        assert!(error.ends_with(ADVICE), "{error}");
        large.set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(content(&file, &main).unwrap().len(), 2);
        for number in 0..TOTAL_BYTES_MAX / FILE_BYTES_MAX {
            let another =
                fs::File::create(folder.path().join(format!("roles/a/files/{number}"))).unwrap();
            another.set_len(FILE_BYTES_MAX).unwrap();
        }
        let error = refused(&file, &main);
        assert!(error.contains("contain more than 32 MiB"), "{error}");
    }
}
