//! Installs roles with `ansible-galaxy` before the playbooks that use them start (Z4.6).
//!
//! A role comes from the Galaxy server of the executor's operator, or from the address that the job
//! names. Its own dependencies are installed with it. Each installation is one process of the job's
//! Ansible in a [sandbox](FetchSandbox) that sees one empty directory and a [broker](crate::broker)
//! of its own, with the rules for untrusted playbooks, and besides these the operator's server. No
//! key and no secret is there but the operator's token for the server.
//!
//! Every build installs its roles again: a role without a version is the newest one.

use crate::broker::Broker;
use crate::code_trust::CodeTrust;
use crate::disk::DiskWatch;
use crate::galaxy_server::GalaxyToken;
use crate::job::Lease;
use crate::jobdir::{Jobdir, write_private};
use crate::playbook::{PROXY_PORT, PYTHON, proxy_environment};
use crate::process::{Group, read_bounded};
use crate::process_watch::ProcessWatch;
use crate::receiver::LINGER;
use crate::sandbox::{FETCH_BROKER, FETCH_TOKEN, FetchSandbox};
use crate::settings::{AnsibleSettings, NetworkSettings};
use serde_json::{Map, Value, json};
use sluice_model::ProjectName;
use sluice_model::build::BuildResult;
use sluice_model::job::{GalaxyRequirement, GalaxyRole, GalaxySource};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The maximum size of the output of `ansible-galaxy` in bytes; the rest is dropped.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The maximum length of a reason in an error, in characters.
const REASON_CHARS_MAX: usize = 600;
/// The maximum number of lines that a build logs about its roles.
const NOTES_MAX: usize = 100;

/// Why a role could not be installed.
#[derive(Debug, thiserror::Error)]
#[error("could not install the role {role}{place}, which {project} lists: {reason}; {}", .cause.advice())]
pub struct InstallError {
    /// What the job names.
    role: String,
    /// ` from SERVER`; empty if the job names the address.
    place: String,
    /// The project whose job definition lists it.
    project: ProjectName,
    /// What went wrong.
    reason: String,
    /// What follows from it.
    cause: InstallCause,
}

impl InstallError {
    /// Returns the result of a build whose role could not be installed: `CONFIG_ERROR` if the job
    /// has to be changed, `DISK_FULL`, or `RETRY` if it may work later.
    pub fn result(&self) -> BuildResult {
        match self.cause {
            InstallCause::Missing | InstallCause::Unusable | InstallCause::Refused => {
                BuildResult::ConfigError
            }
            InstallCause::Unanswered => BuildResult::Retry,
            InstallCause::DiskFull => BuildResult::DiskFull,
        }
    }
}

/// What follows from a role that could not be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstallCause {
    /// The server or the repository does not have the role, or not in this version.
    Missing,
    /// It is no role, or not one that may be installed.
    Unusable,
    /// The broker refused a connection.
    Refused,
    /// A server does not answer, or not as expected.
    Unanswered,
    /// The disk or its limit for a build is full.
    DiskFull,
}

impl InstallCause {
    /// Returns what to do.
    fn advice(self) -> &'static str {
        match self {
            Self::Missing => {
                "correct its name and version in the job's \"roles\", or its dependencies"
            }
            Self::Unusable => "name another role or version in the job's \"roles\"",
            Self::Refused => {
                "name an address that executors reach, or let their operator allow this one"
            }
            Self::Unanswered => "the build is tried again",
            Self::DiskFull => "name a smaller role, or let the executor's operator raise the limit",
        }
    }
}

/// What went wrong with an installation.
type Failure = (InstallCause, String);

/// Installs the roles of one build. Dropping it closes its way to the network.
#[derive(Debug)]
pub struct RoleInstaller<'a> {
    /// The executor's settings.
    settings: &'a AnsibleSettings,
    /// The build's directories.
    jobdir: &'a Jobdir,
    /// The job's version of Ansible.
    ansible_version: &'a str,
    /// Until when the executor may work for the build.
    lease: Lease,
    /// The way to the network, once it is needed.
    broker: Option<Broker>,
    /// When all installations must have ended.
    deadline: Instant,
    /// The directories with roles, by what is installed and for whom.
    installed: BTreeMap<(String, &'static str), PathBuf>,
    /// Lines for the job's log.
    notes: Vec<String>,
}

impl<'a> RoleInstaller<'a> {
    /// Returns an installer for a build that uses this version of Ansible. The time limit begins
    /// now. The caller has written the sandbox's accounts.
    pub fn new(
        settings: &'a AnsibleSettings,
        jobdir: &'a Jobdir,
        ansible_version: &'a str,
        lease: Lease,
    ) -> Self {
        Self {
            settings,
            jobdir,
            ansible_version,
            lease,
            broker: None,
            deadline: Instant::now() + Duration::from_secs(settings.galaxy.timeout_seconds),
            installed: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Installs a role with its dependencies, unless that is done already, and returns the
    /// directory for Ansible's roles path. Playbooks of different trust never share a directory.
    pub async fn install(
        &mut self,
        role: &GalaxyRole,
        trust: CodeTrust,
    ) -> Result<PathBuf, InstallError> {
        let failed = |place: String, (cause, reason): Failure| InstallError {
            role: role.galaxy.clone(),
            place,
            project: role.project.clone(),
            reason,
            cause,
        };
        let requirement = GalaxyRequirement::new(&role.galaxy, role.target_name.as_deref())
            .map_err(|refusal| {
                failed(String::new(), (InstallCause::Unusable, refusal.to_string()))
            })?;
        let entry = requirement_entry(&requirement).to_string();
        let key = (entry.clone(), trust.as_str());
        if let Some(path) = self.installed.get(&key) {
            return Ok(path.clone());
        }
        let name = format!("{}_{}", trust.as_str(), self.installed.len());
        let directory = self.jobdir.root.join("galaxy").join(name);
        match self.install_at(&requirement, &entry, &directory).await {
            Ok(roles) => {
                self.installed.insert(key, roles.clone());
                Ok(roles)
            }
            Err(failure) => {
                let place = match requirement.source {
                    GalaxySource::Server(_) => format!(" from {}", self.settings.galaxy.server),
                    GalaxySource::Git(_) | GalaxySource::Archive(_) => String::new(),
                };
                Err(failed(place, failure))
            }
        }
    }

    /// Closes the way to the network and returns lines for the job's log: which versions were
    /// installed.
    pub fn finish(mut self) -> Vec<String> {
        self.broker = None;
        // Playbooks see its directory. A socket that is not there has no listener either.
        let _ = fs::remove_file(self.socket());
        self.notes
    }

    /// Returns the path of the broker's socket.
    fn socket(&self) -> PathBuf {
        self.jobdir.runtime.root.join("galaxy.sock")
    }

    /// Installs a role into `roles` below `directory`, which does not exist, and returns that path.
    /// Nothing else is left there.
    async fn install_at(
        &mut self,
        requirement: &GalaxyRequirement,
        entry: &str,
        directory: &Path,
    ) -> Result<PathBuf, Failure> {
        let roles = directory.join("roles");
        let (home, tmp) = (directory.join("home"), directory.join("tmp"));
        for path in [&roles, &home, &tmp] {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(of_disk)?;
        }
        let list = directory.join("requirements.yml");
        fs::write(&list, entry).map_err(of_disk)?;
        let output = self.run(directory).await?;
        for path in [&home, &tmp] {
            fs::remove_dir_all(path).map_err(of_disk)?;
        }
        fs::remove_file(list).map_err(of_disk)?;
        let is_there = fs::symlink_metadata(roles.join(&requirement.directory))
            .is_ok_and(|found| found.is_dir());
        if !is_there {
            return Err((InstallCause::Unusable, format!("it was not there: {}", reason(&output))));
        }
        let room = NOTES_MAX.saturating_sub(self.notes.len());
        self.notes.extend(installed_roles(&output.printed).take(room));
        Ok(roles)
    }

    /// Runs `ansible-galaxy` in a sandbox that may write `directory`, and returns what it has
    /// printed. It is killed at the time limit and at the limits of a playbook.
    async fn run(&mut self, directory: &Path) -> Result<Output, Failure> {
        let settings = self.settings;
        let socket = self.socket();
        let broker = match &mut self.broker {
            Some(broker) => broker,
            none => none.insert(
                Broker::open(&socket, &network(settings), &[], self.lease.clone())
                    .map_err(of_disk)?,
            ),
        };
        let token = match &settings.galaxy.token {
            Some(token) => Some(TokenFile::write(self.jobdir, token).map_err(of_disk)?),
            None => None,
        };
        let sandbox = FetchSandbox {
            settings,
            jobdir: self.jobdir,
            ansible_version: self.ansible_version,
            directory,
            broker: &socket,
            token: token.as_ref().map(|file| file.0.as_path()),
        };
        let mut command = sandbox.command(Path::new(PYTHON), &environment(settings, directory));
        command.arg("-ISE").arg(settings.content.join("bin/network_relay.py"));
        command.arg(FETCH_BROKER).arg(PROXY_PORT.to_string());
        command.arg(settings.program(self.ansible_version, "ansible-galaxy"));
        command.args(["role", "install", "--role-file", "requirements.yml"]);
        command.arg("--roles-path").arg(directory.join("roles"));
        let mut ansible = Group::spawn(&mut command)
            .map_err(|error| (InstallCause::Unanswered, format!("could not start it: {error}")))?;
        let printed =
            ansible.stdout().map(|pipe| tokio::spawn(read_bounded(pipe, OUTPUT_BYTES_MAX)));
        let errors =
            ansible.stderr().map(|pipe| tokio::spawn(read_bounded(pipe, OUTPUT_BYTES_MAX)));
        let processes = ProcessWatch::start(ansible.id(), settings.process_limits);
        let disk = DiskWatch::start(vec![directory.to_owned()], settings.disk_bytes_max);
        let ended = tokio::select! {
            status = ansible.wait() => status.map_err(of_disk),
            () = tokio::time::sleep_until(self.deadline) => Err((
                InstallCause::Unanswered,
                format!(
                    "the roles were not installed within {} s",
                    settings.galaxy.timeout_seconds,
                ),
            )),
            () = disk.full() => {
                Err((InstallCause::DiskFull, "it exceeded the disk limit of the build".to_owned()))
            }
            limit = processes.exceeded() => Err((
                InstallCause::Unusable,
                format!("it exceeded its limit of {limit} on the executor"),
            )),
        };
        ansible.kill();
        let mut texts = [String::new(), String::new()];
        for (text, reader) in texts.iter_mut().zip([printed, errors]) {
            let Some(mut reader) = reader else { continue };
            match timeout(LINGER, &mut reader).await {
                Ok(read) => *text = read.unwrap_or_default(),
                // A process outside of the sandbox still holds the pipe.
                Err(_) => reader.abort(),
            }
        }
        let [printed, errors] = texts;
        let output = Output { printed, errors };
        let refusals = broker.waiting_refusals().await;
        match ended?.success() && !lacks_versions(&output) {
            true => Ok(output),
            false => Err(failure(&output, &refusals)),
        }
    }
}

/// What `ansible-galaxy` has printed.
#[derive(Debug)]
struct Output {
    /// Its standard output.
    printed: String,
    /// Its standard error.
    errors: String,
}

/// The file with the token, in memory; removed when dropped.
struct TokenFile(PathBuf);

impl TokenFile {
    /// Writes the file as `ansible-galaxy` expects it.
    fn write(jobdir: &Jobdir, token: &GalaxyToken) -> std::io::Result<Self> {
        let path = jobdir.runtime.root.join("galaxy-token");
        write_private(&path, json!({ "token": token.to_masked_value() }).to_string().as_bytes())?;
        Ok(Self(path))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns what installations reach: what untrusted playbooks do, without nodes, and the operator's
/// server.
fn network(settings: &AnsibleSettings) -> NetworkSettings {
    let services = vec![settings.galaxy.server.target().clone()];
    NetworkSettings { services, ..settings.network.clone() }
}

/// Returns the environment of `ansible-galaxy`, which works in `directory`. git uses no other
/// transports than HTTP, asks for no passwords, and reads no configuration.
fn environment(settings: &AnsibleSettings, directory: &Path) -> BTreeMap<&'static str, String> {
    let text = |name: &str| directory.join(name).display().to_string();
    let mut environment = BTreeMap::from([
        ("HOME", text("home")),
        ("TMPDIR", text("tmp")),
        ("ANSIBLE_HOME", text("home/.ansible")),
        ("ANSIBLE_NOCOLOR", "1".to_owned()),
        ("ANSIBLE_GALAXY_SERVER", settings.galaxy.server.to_string()),
        ("ANSIBLE_GALAXY_TOKEN_PATH", FETCH_TOKEN.to_owned()),
        ("GIT_ALLOW_PROTOCOL", "https:http".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
    ]);
    if settings.galaxy.token.is_none() {
        environment.remove("ANSIBLE_GALAXY_TOKEN_PATH");
    }
    // A server on loopback is one of the executor's machine, not of the sandbox.
    let proxies = proxy_environment().filter(|(name, _)| !name.eq_ignore_ascii_case("no_proxy"));
    environment.extend(proxies);
    environment
}

/// Returns a list of requirements with one entry, in JSON, which is YAML too.
fn requirement_entry(requirement: &GalaxyRequirement) -> Value {
    let source = match &requirement.source {
        GalaxySource::Server(name) => name.clone(),
        GalaxySource::Git(address) => format!("git+{address}"),
        GalaxySource::Archive(address) => address.clone(),
    };
    let mut entry = Map::new();
    entry.insert("src".to_owned(), json!(source));
    entry.insert("name".to_owned(), json!(requirement.directory));
    if let Some(version) = &requirement.version {
        entry.insert("version".to_owned(), json!(version));
    }
    json!([entry])
}

/// What `ansible-galaxy` prints when the server does not list a role's versions. It then guesses a
/// branch and an address at GitHub.
const UNLISTED: &str = "Unable to retrieve role";

/// Returns whether the server did not list the versions of a role.
fn lacks_versions(output: &Output) -> bool {
    joined(&output.errors).contains(UNLISTED)
}

/// Parts of what `ansible-galaxy` and git print about a role or version that is not there.
const MISSING: [&str; 6] = [
    "was not found on ",
    "was not found in the list of available versions",
    "failed to download the file: HTTP Error 404",
    "' not found",
    "did not match any file(s) known to git",
    "could not read Username for",
];

/// Parts of what they print about files that are no role, or leave its directory.
const UNUSABLE: [&str; 6] = [
    "does not appear to have a",
    "does not appear to be a valid tar archive",
    "Invalid name for tarfile member",
    "Invalid linkname for tarfile member",
    "Invalid role",
    "' not allowed",
];

/// Returns why an installation failed. A connection that the broker refused counts before what was
/// printed about it. What is unknown may pass.
fn failure(output: &Output, refusals: &[String]) -> Failure {
    let reason = reason(output);
    if let Some(refusal) = refusals.first() {
        return (InstallCause::Refused, refusal.clone());
    }
    let has = |parts: &[&str]| parts.iter().any(|part| reason.contains(part));
    let cause = if lacks_versions(output) {
        InstallCause::Unanswered
    } else if has(&MISSING) {
        InstallCause::Missing
    } else if has(&UNUSABLE) {
        InstallCause::Unusable
    } else {
        InstallCause::Unanswered
    };
    (cause, reason)
}

/// Returns what `ansible-galaxy` says about a failure, in one line of limited length.
fn reason(output: &Output) -> String {
    let errors = joined(&output.errors);
    // Advice for people at a terminal.
    let said = errors.split(" ERROR! - you can use --ignore-errors").next().unwrap_or_default();
    let said = said.trim_start_matches("[WARNING]: ").trim_start_matches("- ");
    let said = if said.is_empty() { joined(&output.printed) } else { said.to_owned() };
    match said.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said,
    }
}

/// Returns a text in one line: `ansible-galaxy` breaks lines at the width of a terminal.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a line for the job's log for each role that was installed, with its version.
fn installed_roles(printed: &str) -> impl Iterator<Item = String> {
    let said = printed
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.strip_suffix(" was installed successfully"));
    said.map(|role| format!("Installed role {role}"))
}

/// Returns the failure of an operation of the executor itself.
fn of_disk(error: std::io::Error) -> Failure {
    let cause = match error.kind() {
        std::io::ErrorKind::StorageFull => InstallCause::DiskFull,
        _ => InstallCause::Unanswered,
    };
    (cause, format!("the executor could not prepare it: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(printed: &str, errors: &str) -> Output {
        Output { printed: printed.to_owned(), errors: errors.to_owned() }
    }

    /// Z4.6: what both versions of `ansible-galaxy` print, and what follows from it.
    #[test]
    fn a_role_that_is_not_there_is_no_server_that_does_not_answer() {
        use InstallCause::*;
        let cut = "\nERROR! - you can use --ignore-errors to skip failed roles and finish processing the list.\n";
        for (cause, errors, expected) in [
            (
                Missing,
                "[WARNING]: - a.b was NOT installed successfully: - sorry, a.b was not\nfound on http://127.0.0.1:1/api.",
                "a.b was NOT installed successfully: - sorry, a.b was not found on http://127.0.0.1:1/api.",
            ),
            (
                Missing,
                "[WARNING]: - a.b was NOT installed successfully: - the specified version\n(9) of a.b was not found in the list of available versions ([]).",
                "a.b was NOT installed successfully: - the specified version (9) of a.b was not found in the list of available versions ([]).",
            ),
            (
                Missing,
                " [ERROR]: failed to download the file: HTTP Error 404: Not Found\n[WARNING]: - a.b was NOT installed successfully.",
                "[ERROR]: failed to download the file: HTTP Error 404: Not Found [WARNING]: - a.b was NOT installed successfully.",
            ),
            (
                Missing,
                "[WARNING]: - b was NOT installed successfully: fatal: repository\n'https://forge.test/b.git/' not\nfound",
                "b was NOT installed successfully: fatal: repository 'https://forge.test/b.git/' not found",
            ),
            (
                Unusable,
                "[WARNING]: - b was NOT installed successfully: fatal: transport 'file' not\nallowed",
                "b was NOT installed successfully: fatal: transport 'file' not allowed",
            ),
            (
                Unanswered,
                "[WARNING]: - a.b was NOT installed successfully: Unknown error when\nattempting to call Galaxy at 'http://127.0.0.1:9/api'",
                "a.b was NOT installed successfully: Unknown error when attempting to call Galaxy at 'http://127.0.0.1:9/api'",
            ),
            (
                Unanswered,
                " [ERROR]: failed to download the file: HTTP Error 502: Bad Gateway",
                "[ERROR]: failed to download the file: HTTP Error 502: Bad Gateway",
            ),
            (
                Unanswered,
                "[WARNING]: Unable to retrieve role (id=1) data\n(versions)\n[ERROR]: failed to download the file: HTTP Error 404",
                "Unable to retrieve role (id=1) data (versions) [ERROR]: failed to download the file: HTTP Error 404",
            ),
        ] {
            let found = failure(&output("Starting", &format!("{errors}{cut}")), &[]);
            assert_eq!(found, (cause, expected.to_owned()));
        }
        let refused = failure(&output("", "x"), &["Network: refused a:1: no".to_owned()]);
        assert_eq!(refused, (Refused, "Network: refused a:1: no".to_owned()));
        assert_eq!(failure(&output("only  this", ""), &[]), (Unanswered, "only this".to_owned()));
        let long = failure(&output("", &"ä".repeat(1_000)), &[]).1;
        assert_eq!(long.chars().count(), REASON_CHARS_MAX + 1);
    }

    /// Z4.6
    #[test]
    fn the_log_says_which_version_was_installed() {
        let printed = "Starting\n- extracting a.b to /x\n- a.b (1.2) was installed successfully\n- c was installed successfully\n";
        let notes: Vec<String> = installed_roles(printed).collect();
        assert_eq!(notes, ["Installed role a.b (1.2)", "Installed role c"]);
    }
}
