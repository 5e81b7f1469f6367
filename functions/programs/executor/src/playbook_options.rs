//! The options that say what playbooks find on the executor's machine, reach from it and may use of
//! it, for `sluice executor` and `sluice up`.

use clap::Args;
use sluice_executor::broker::policy::{AllowedNetwork, IpNet, read_network};
use sluice_executor::process_watch::ProcessLimits;
use sluice_executor::settings::{DISK_BYTES_MAX, SandboxPaths, SetupError, read_site_vars};
use sluice_executor::{AnsibleSettings, GalaxyServer, GalaxyToken, NetworkSettings};
use std::ffi::OsString;
use std::path::PathBuf;

/// The fewest processes and threads that a limit may allow: Ansible itself has about a dozen.
const PROCESSES_MIN: usize = 32;
/// The least memory that a limit may allow, in bytes: Ansible itself takes about 100 MiB.
const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// The least disk space that a limit may allow, in bytes: a build's own files take a few MiB.
const DISK_BYTES_MIN: u64 = 64 << 20;

/// What playbooks find on the executor's machine, reach from it and may use of it.
#[derive(Debug, Clone, Args)]
pub struct PlaybookOptions {
    /// Paths that trusted playbooks may read, separated by `:`
    #[arg(long, env = "SLUICE_TRUSTED_RO_PATHS", value_name = "PATHS", value_delimiter = ':')]
    pub trusted_ro_paths: Vec<PathBuf>,
    /// Paths that trusted playbooks may read and write
    #[arg(long, env = "SLUICE_TRUSTED_RW_PATHS", value_name = "PATHS", value_delimiter = ':')]
    pub trusted_rw_paths: Vec<PathBuf>,
    /// Paths that untrusted playbooks may read
    #[arg(long, env = "SLUICE_UNTRUSTED_RO_PATHS", value_name = "PATHS", value_delimiter = ':')]
    pub untrusted_ro_paths: Vec<PathBuf>,
    /// Paths that untrusted playbooks may read and write
    #[arg(long, env = "SLUICE_UNTRUSTED_RW_PATHS", value_name = "PATHS", value_delimiter = ':')]
    pub untrusted_rw_paths: Vec<PathBuf>,
    /// YAML file with site variables, which override all variables of jobs; read at the start
    #[arg(long, env = "SLUICE_SITE_VARS", value_name = "FILE")]
    pub site_vars: Option<PathBuf>,
    /// Networks that untrusted playbooks do not reach, separated by `,`, besides loopback,
    /// link-local, metadata and private ones
    #[arg(long, env = "SLUICE_REFUSED_NETWORKS", value_name = "NETWORKS", value_delimiter = ',',
          value_parser = read_network)]
    pub refused_networks: Vec<IpNet>,
    /// Private networks or addresses that untrusted playbooks reach, such as 10.1.0.0/16 or
    /// 10.1.2.3:3128
    #[arg(long, env = "SLUICE_ALLOWED_NETWORKS", value_name = "NETWORKS", value_delimiter = ',')]
    pub allowed_networks: Vec<AllowedNetwork>,
    /// Bytes that the untrusted playbooks of one build may exchange with the outside
    #[arg(long, env = "SLUICE_NETWORK_BYTES", value_name = "BYTES",
          default_value_t = NetworkSettings::default().bytes_max)]
    pub network_bytes: u64,
    /// Server that has the roles that jobs name as `galaxy: namespace.role`
    #[arg(long, env = "SLUICE_GALAXY_SERVER", value_name = "URL",
          default_value_t = GalaxyServer::default())]
    pub galaxy_server: GalaxyServer,
    /// File with a token for that server, and nothing else; read at the start
    #[arg(long, env = "SLUICE_GALAXY_TOKEN_FILE", value_name = "FILE")]
    pub galaxy_token_file: Option<PathBuf>,
    /// Processes and threads that one playbook may have on the executor; one with more is killed
    #[arg(long, env = "SLUICE_PLAYBOOK_PROCESSES", value_name = "NUMBER",
          default_value_t = ProcessLimits::default().processes_max, value_parser = playbook_processes)]
    pub playbook_processes: usize,
    /// Bytes of memory that one playbook may use on the executor; one that uses more is killed
    #[arg(long, env = "SLUICE_PLAYBOOK_MEMORY_BYTES", value_name = "BYTES",
          default_value_t = ProcessLimits::default().memory_bytes_max, value_parser = playbook_memory)]
    pub playbook_memory_bytes: u64,
    /// Bytes that the directory of one build may have on the executor; one with more is ended
    #[arg(long, env = "SLUICE_BUILD_DISK_BYTES", value_name = "BYTES",
          default_value_t = DISK_BYTES_MAX, value_parser = build_disk)]
    pub build_disk_bytes: u64,
}

/// Reads the value of `--playbook-processes`.
fn playbook_processes(text: &str) -> Result<usize, String> {
    let why = "Ansible itself has about a dozen processes";
    at_least(text, PROCESSES_MIN as u64, why)
        .and_then(|number| usize::try_from(number).map_err(|error| error.to_string()))
}

/// Reads the value of `--playbook-memory-bytes`.
fn playbook_memory(text: &str) -> Result<u64, String> {
    at_least(text, MEMORY_BYTES_MIN, "Ansible itself takes about 100 MiB")
}

/// Reads the value of `--build-disk-bytes`.
fn build_disk(text: &str) -> Result<u64, String> {
    at_least(text, DISK_BYTES_MIN, "each build has some files of its own")
}

/// Reads a whole number that is at least `min`; the error says what is needed, and why.
fn at_least(text: &str, min: u64, why: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(number) if number >= min => Ok(number),
        _ => Err(format!("a whole number of at least {min} is needed, as {why}")),
    }
}

impl Default for PlaybookOptions {
    /// Returns the options of a command line without any.
    fn default() -> Self {
        Self {
            trusted_ro_paths: Vec::new(),
            trusted_rw_paths: Vec::new(),
            untrusted_ro_paths: Vec::new(),
            untrusted_rw_paths: Vec::new(),
            site_vars: None,
            refused_networks: Vec::new(),
            allowed_networks: Vec::new(),
            network_bytes: NetworkSettings::default().bytes_max,
            galaxy_server: GalaxyServer::default(),
            galaxy_token_file: None,
            playbook_processes: ProcessLimits::default().processes_max,
            playbook_memory_bytes: ProcessLimits::default().memory_bytes_max,
            build_disk_bytes: DISK_BYTES_MAX,
        }
    }
}

impl PlaybookOptions {
    /// Sets the options in the executor's settings, and reads the files of site variables and of
    /// the token.
    ///
    /// # Errors
    /// When a path cannot be shown to playbooks, a file cannot be read, or site variables define
    /// what the executor itself defines.
    pub fn apply(&self, settings: &mut AnsibleSettings) -> Result<(), SetupError> {
        let paths = |read_only: &[PathBuf], read_write: &[PathBuf]| SandboxPaths {
            read_only: read_only.to_vec(),
            read_write: read_write.to_vec(),
        };
        settings.trusted_paths = paths(&self.trusted_ro_paths, &self.trusted_rw_paths);
        settings.untrusted_paths = paths(&self.untrusted_ro_paths, &self.untrusted_rw_paths);
        settings.network = NetworkSettings {
            refused: self.refused_networks.clone(),
            allowed: self.allowed_networks.clone(),
            bytes_max: self.network_bytes,
            ..NetworkSettings::default()
        };
        settings.galaxy.server = self.galaxy_server.clone();
        if let Some(path) = &self.galaxy_token_file {
            let failed = |message| SetupError::GalaxyToken { path: path.clone(), message };
            settings.galaxy.token = Some(GalaxyToken::read(path).map_err(failed)?);
        }
        settings.process_limits = ProcessLimits {
            processes_max: self.playbook_processes,
            memory_bytes_max: self.playbook_memory_bytes,
        };
        settings.disk_bytes_max = self.build_disk_bytes;
        if let Some(path) = &self.site_vars {
            settings.site_vars = read_site_vars(path)?;
        }
        settings.check_paths()
    }

    /// Returns the arguments that give another process the same options.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut push = |name: &str, value: OsString| {
            let mut argument = OsString::from(format!("--{name}="));
            argument.push(value);
            arguments.push(argument);
        };
        for (name, paths) in [
            ("trusted-ro-paths", &self.trusted_ro_paths),
            ("trusted-rw-paths", &self.trusted_rw_paths),
            ("untrusted-ro-paths", &self.untrusted_ro_paths),
            ("untrusted-rw-paths", &self.untrusted_rw_paths),
        ] {
            paths.iter().for_each(|path| push(name, path.into()));
        }
        if let Some(path) = &self.site_vars {
            push("site-vars", path.into());
        }
        self.refused_networks
            .iter()
            .for_each(|network| push("refused-networks", network.to_string().into()));
        self.allowed_networks
            .iter()
            .for_each(|network| push("allowed-networks", network.to_string().into()));
        for (name, number) in [
            ("network-bytes", self.network_bytes),
            ("playbook-processes", self.playbook_processes as u64),
            ("playbook-memory-bytes", self.playbook_memory_bytes),
            ("build-disk-bytes", self.build_disk_bytes),
        ] {
            push(name, number.to_string().into());
        }
        push("galaxy-server", self.galaxy_server.to_string().into());
        if let Some(path) = &self.galaxy_token_file {
            push("galaxy-token-file", path.into());
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: PlaybookOptions,
    }

    fn parse(arguments: &[OsString]) -> Result<PlaybookOptions, String> {
        let program = [OsString::from("program")];
        let parsed = Program::try_parse_from(program.iter().chain(arguments));
        parsed.map(|program| program.options).map_err(|error| error.to_string())
    }

    fn applied(arguments: &[OsString]) -> Result<AnsibleSettings, String> {
        let mut settings = AnsibleSettings::new("/var/lib/sluice-test".as_ref());
        parse(arguments)?.apply(&mut settings).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    /// Z7.1, Z7.5: each option arrives where a playbook meets it, also in an executor that is a
    /// process of its own.
    #[test]
    fn each_option_reaches_the_settings_of_playbooks() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = scratch.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let site = scratch.path().join("site.yaml");
        std::fs::write(&site, "zuul_site_mirror_fqdn: mirror.test\n").unwrap();
        let token = scratch.path().join("token");
        std::fs::write(&token, "abc123\n").unwrap();
        let text = |path: PathBuf| path.display().to_string();
        let arguments: Vec<OsString> = [
            format!("--trusted-ro-paths={}:{}", text(path("one")), text(path("two"))),
            format!("--trusted-rw-paths={}", text(path("three"))),
            format!("--untrusted-ro-paths={}", text(path("four"))),
            format!("--untrusted-rw-paths={}", text(path("five"))),
            format!("--site-vars={}", text(site)),
            "--refused-networks=203.0.113.0/24,2600::/16".to_owned(),
            "--allowed-networks=10.1.0.0/16,10.2.0.1:3128".to_owned(),
            "--allowed-networks=[fd00::1]:80".to_owned(),
            "--network-bytes=7".to_owned(),
            "--galaxy-server=https://hub.test/api/".to_owned(),
            format!("--galaxy-token-file={}", text(token)),
            "--playbook-processes=100".to_owned(),
            "--playbook-memory-bytes=300000000".to_owned(),
            "--build-disk-bytes=80000000".to_owned(),
        ]
        .map(OsString::from)
        .to_vec();
        let again = parse(&arguments).unwrap().to_arguments();
        for arguments in [arguments, again] {
            let settings = applied(&arguments).unwrap();
            assert_eq!(settings.trusted_paths.read_only, [path("one"), path("two")]);
            assert_eq!(settings.trusted_paths.read_write, [path("three")]);
            assert_eq!(settings.untrusted_paths.read_only, [path("four")]);
            assert_eq!(settings.untrusted_paths.read_write, [path("five")]);
            assert_eq!(settings.site_vars["zuul_site_mirror_fqdn"], json!("mirror.test"));
            assert_eq!(settings.network.refused.len(), 2);
            let allowed: Vec<_> =
                settings.network.allowed.iter().map(ToString::to_string).collect();
            assert_eq!(allowed, ["10.1.0.0/16", "10.2.0.1:3128", "[fd00::1]:80"]);
            assert_eq!(settings.network.bytes_max, 7);
            assert_eq!(settings.galaxy.server.to_string(), "https://hub.test/api/");
            let token = settings.galaxy.token.map(|token| token.to_masked_value());
            assert_eq!(token, Some(json!("abc123")));
            let limits = ProcessLimits { processes_max: 100, memory_bytes_max: 300_000_000 };
            assert_eq!(settings.process_limits, limits);
            assert_eq!(settings.disk_bytes_max, 80_000_000);
        }
    }

    /// Z7.1, Z7.5: an option that would have no effect, or the wrong one, is an error at the start.
    #[test]
    fn options_that_cannot_be_carried_out_are_errors_that_name_them() {
        for (argument, part) in [
            ("--trusted-ro-paths=/no/such/path", "/no/such/path"),
            ("--untrusted-rw-paths=/", "playbooks must not see /"),
            ("--site-vars=/no/such/file", "/no/such/file"),
            ("--refused-networks=ten", "\"ten\" is no network"),
            ("--allowed-networks=mirror.test:80", "is no network"),
            ("--galaxy-server=hub.test", "is no address of a Galaxy server"),
            ("--galaxy-token-file=/no/such/token", "/no/such/token"),
            ("--playbook-processes=8", "at least 32 is needed, as Ansible itself has"),
            ("--playbook-memory-bytes=4G", "at least 268435456 is needed, as Ansible itself takes"),
            ("--build-disk-bytes=-1", "at least 67108864 is needed"),
        ] {
            let error = applied(&[argument.into()]).unwrap_err();
            assert!(error.contains(part), "{argument}: {error}");
        }
    }
}
