//! `sluice executor`: runs an executor in a process of its own.

use crate::playbook_options::PlaybookOptions;
use crate::running::{ExecutorOptions, RunningExecutor};
use crate::upload_options::UploadOptions;
use anyhow::Context as _;
use clap::Args;
use sluice_executor::service::admission::AdmissionLimits;
use sluice_executor::service::zone::ServedZone;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The environment variable with the address of the pages, ending in `/`.
pub const WEB_VARIABLE: &str = "SLUICE_WEB";

/// The default time to drain. Container services and hosts that are taken away give 120 seconds;
/// this leaves 30 of them to run the cleanup playbooks of the builds that are stopped, and to store
/// their logs.
const DRAIN_SECONDS: u64 = 90;

/// The options of `sluice executor` and of `sluice-executor`.
#[derive(Debug, Clone, Args)]
pub struct ExecutorArguments {
    /// Directory of the build directories and cached repositories
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sluice")]
    pub state: PathBuf,
    /// Zone of the executor: it takes the builds whose nodes' labels have this `executor-zone`, and
    /// no others [default: none; it takes builds whose nodes have no zone]
    #[arg(long, env = "SLUICE_ZONE", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub zone: Option<String>,
    /// Take builds without a zone too
    #[arg(long, env = "SLUICE_ALLOW_UNZONED", requires = "zone")]
    pub allow_unzoned: bool,
    /// Number of builds that run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    pub slots: usize,
    /// Take no builds while less than this share of memory is available
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub memory_min: u8,
    /// Take no builds while less than this share of the disk below --state is free
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub disk_min: u8,
    /// Take no builds while the load average of the last minute is higher, for each processor; by
    /// default there is no limit
    #[arg(long, value_name = "LOAD", value_parser = positive_load)]
    pub load_max: Option<f64>,
    /// Number of builds that prepare their workspace at once; by default twice the number of
    /// processors, at least 4
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub starting_max: Option<u32>,
    /// Address that serves live logs, reachable by the API function. 0.0.0.0 is announced as the
    /// address of the ECS task or the EC2 instance
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7900")]
    pub logs: SocketAddr,
    /// Seconds that running builds get to finish after SIGTERM or SIGINT; those that are left are
    /// retried. A second signal stops them at once
    #[arg(long, value_name = "SECONDS", default_value_t = DRAIN_SECONDS)]
    pub drain: u64,
    /// Run even as root; playbooks can then read those of root's files that are visible in their
    /// sandbox
    #[arg(long)]
    pub allow_root: bool,
    /// Stop when standard input closes, because the parent process has ended.
    #[arg(long, hide = true)]
    pub with_parent: bool,
    /// What playbooks find on this machine, and reach from it.
    #[command(flatten)]
    pub playbooks: PlaybookOptions,
    /// Where jobs upload to.
    #[command(flatten)]
    pub uploads: UploadOptions,
}

/// Reads the value of `--load-max`.
///
/// # Errors
/// When it is no number above 0.
fn positive_load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(load) if load.is_finite() && load > 0.0 => Ok(load),
        _ => Err("a number above 0 is needed, such as 2.5".to_owned()),
    }
}

/// Runs an executor until SIGINT or SIGTERM, then drains and stops it: running builds get the time
/// of `drain` to finish, or until a second signal, and are then retried elsewhere. With
/// `with_parent`, also stops when standard input closes, and may run as root. Sets up logging to
/// standard output. Returns an error if the executor ends by itself, because its session was lost;
/// the service manager has to start it again.
///
/// # Errors
/// When the environment, Ansible or the pool's key is missing, or the process runs as root and that
/// is not allowed.
pub async fn run(arguments: ExecutorArguments) -> anyhow::Result<()> {
    let default = AdmissionLimits::default();
    let limits = AdmissionLimits {
        memory_min_percent: arguments.memory_min,
        disk_min_percent: arguments.disk_min,
        load_max: arguments.load_max,
        starting_max: arguments.starting_max.map_or(default.starting_max, |max| max as usize),
    };
    let zone = match arguments.zone.as_deref() {
        None => ServedZone::Unzoned,
        Some(name) => {
            ServedZone::Zone { name: name.into(), allow_unzoned: arguments.allow_unzoned }
        }
    };
    let ExecutorArguments {
        state,
        slots,
        logs,
        drain,
        allow_root,
        with_parent,
        playbooks,
        uploads,
        ..
    } = arguments;
    // A local system runs as the user that started it.
    anyhow::ensure!(
        with_parent || allow_root || !sluice_executor::sandbox::is_root(),
        "could not start the executor: running as root would let playbooks read root's files; use an account of its own, as the container image does, or add --allow-root"
    );
    let lines = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_ansi(false).with_env_filter(lines).init();
    let stop = stop_signal()?;
    let settings = sluice_aws::AwsSettings::from_environment()?;
    let sdk_config = sluice_aws::sdk_config_from_environment().await;
    let uploads = uploads.site(&sdk_config)?;
    let ports = sluice_aws::ports(&sdk_config, settings).await;
    let web_root = std::env::var(WEB_VARIABLE)
        .context("SLUICE_WEB is not set: set it to the address of the pages, ending in /")?;
    let running = RunningExecutor::start(
        ports,
        ExecutorOptions {
            state,
            zone,
            slots,
            limits,
            logs,
            web_root,
            drain_seconds: drain,
            ansible: None,
            playbooks,
            uploads,
        },
    )
    .await?;
    tracing::info!(logs = %running.logs_address(), slots, "the executor is running");
    tokio::select! {
        () = stop => {}
        () = running.ended() => {}
        _ = async { parent_ended().await }, if with_parent => {
            tracing::info!("the parent process has ended; stopping");
            running.service().end_drain();
        }
    }
    let (ended_by_itself, service, second) =
        (running.has_ended(), running.service(), stop_signal()?);
    let end_drain = async {
        second.await;
        tracing::info!("stopping at once");
        service.end_drain();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = running.stop() => {}
        () = end_drain => {}
    }
    // The service manager restarts it, under a new session.
    anyhow::ensure!(!ended_by_itself, "the executor ended unexpectedly: see its last log messages");
    Ok(())
}

/// Returns a receiver that completes when standard input closes or cannot be read. Discards what is
/// read from it. The thread that reads it may block for ever, so it is never joined.
fn parent_ended() -> tokio::sync::oneshot::Receiver<()> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut some = [0; 64];
        while std::io::stdin().read(&mut some).is_ok_and(|count| count > 0) {}
        // The receiver is gone if the executor stops for another reason.
        let _ = ended.send(());
    });
    end
}

/// Installs handlers for SIGINT (Ctrl-C) and SIGTERM, and returns a future that completes when one
/// of them comes. From then on these signals no longer end the process by themselves.
///
/// # Errors
/// When signal handlers cannot be installed.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("could not listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
