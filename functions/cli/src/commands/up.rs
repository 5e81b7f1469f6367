//! `sluice up`: the whole system on this machine.

use crate::local::{
    CALLS_FILE, CONFIG, CREDENTIALS_FILE, Endpoint, Functions, Local, Loudness, ONE, OWNER,
    Options, REVIEWER, TWO, header_file, log_to, write_calls,
};
use crate::say::tell;
use anyhow::{Context as _, bail};
use sluice_emulator::data::{Death, Latency};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How often what was called is written beside the state.
const CALLS_WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where all state is kept; `None` takes the usual place.
    pub data: Option<PathBuf>,
    /// Where to serve.
    pub listen: SocketAddr,
    /// Whether functions run in this process.
    pub functions: Functions,
    /// Another endpoint for the data services.
    pub endpoint: Option<Endpoint>,
    /// How long data services take to answer.
    pub latency: Latency,
    /// Seconds between two sweeps.
    pub tick_seconds: Option<u64>,
    /// Whether a forge runs beside it.
    pub forge: bool,
    /// Builds that run at once.
    pub slots: usize,
    /// Another template.
    pub template: Option<PathBuf>,
    /// Minutes between two questions to a forge about a project's open changes.
    pub ask_minutes: Option<u64>,
    /// Who is killed at which calls.
    pub deaths: Vec<Death>,
    /// Where people and the forge find the pages, when that is another address (a tunnel's, a
    /// proxy's).
    pub web_root: Option<String>,
    /// Whether the terminal shows every line.
    pub verbose: bool,
}

/// Runs the system until it is asked to stop.
///
/// # Errors
/// When it cannot be started.
pub async fn run(wanted: Wanted) -> anyhow::Result<()> {
    if wanted.listen.ip() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
        bail!(
            "a local system listens on 127.0.0.1 only, not on {}: anybody who reaches it may do everything",
            wanted.listen.ip()
        );
    }
    if wanted.slots == 0 {
        bail!("--slots 0 runs no build at all; name at least 1");
    }
    let data = super::data_or_default(wanted.data)?;
    let log =
        log_to(&data, if wanted.verbose { Loudness::Everything } else { Loudness::Warnings })?;
    let stop = stop_asked()?;
    let begun = Instant::now();
    let options = Options {
        data: data.clone(),
        port: wanted.listen.port(),
        functions: wanted.functions,
        endpoint: wanted.endpoint,
        template: wanted.template,
        latency: wanted.latency,
        tick_seconds: wanted.tick_seconds,
        forge: wanted.forge,
        slots: wanted.slots,
        ask_minutes: wanted.ask_minutes,
        deaths: wanted.deaths,
        web_root: wanted.web_root.as_deref().map(address_of_pages).transpose()?,
    };
    let local = Local::start(options).await?;
    tell!("sluice is up after {:.1} s.\n", begun.elapsed().as_secs_f64());
    print_addresses(&local, &data, &log);
    let mut calls = Calls::default();
    let mut ticks = tokio::time::interval(CALLS_WRITTEN_EVERY);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = ticks.tick() => calls.write(&local),
        }
    }
    calls.write(&local);
    tell!("\nStopping …");
    local.stop().await;
    tell!("Stopped. Nothing is lost: `sluice up` on the same directory goes on.");
    Ok(())
}

/// Keeps the file of what was called up to date.
#[derive(Debug, Default)]
struct Calls {
    has_failed: bool,
}

impl Calls {
    /// Writes what was called since the start, if the data services are our own. That it cannot be
    /// written is told once and not at each tick.
    fn write(&mut self, local: &Local) {
        let Some(meter) = local.meter() else { return };
        match write_calls(local.data(), &meter.snapshot()) {
            Ok(_) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                let error = format!("{error:#}");
                tracing::warn!(%error, "what was called is not written as long as this lasts: is the disk full?");
            }
        }
    }
}

/// Checks an address that goes into statuses and comments; it ends in `/`.
fn address_of_pages(text: &str) -> anyhow::Result<String> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.with_context(|| format!("--web-root {text} is no http or https address"))?;
    if url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
        bail!("--web-root is an address without user, `?` and `#`");
    }
    Ok(format!("{}/", text.trim_end_matches('/')))
}

fn print_addresses(local: &Local, data: &Path, log: &Path) {
    tell!("  pages, API     {}", local.pages());
    tell!("  data services  {}", local.endpoint());
    if let Some(address) = local.logs_address() {
        tell!("  live logs      http://{address}/");
    }
    if let Some(forge) = local.forge() {
        tell!("  forge          {}", forge.web_url());
    }
    tell!(
        "  nodes          see this machine's files, read-only, and its network: gate only what you would run yourself"
    );
    tell!("  state          {}", data.display());
    tell!("  log            {}", log.display());
    if local.meter().is_some() {
        tell!(
            "  calls          {}: what each function called, and what it would cost",
            data.join(CALLS_FILE).display()
        );
    }
    let ignored = local.ignored();
    match ignored.as_slice() {
        [] => {
            let otherwise = data.join("template-otherwise.txt");
            let parts = local.elsewhere().len();
            let is_written = std::fs::write(&otherwise, local.otherwise());
            let told = match is_written {
                Ok(()) => otherwise.display().to_string(),
                Err(error) => format!("(could not be written to {}: {error})", otherwise.display()),
            };
            tell!(
                "  template       ignored: nothing; {parts} parts are provided in another way: {told}"
            );
            local.absent().for_each(|what| tell!("                 not on one machine: {what}"));
        }
        parts => {
            tell!("  template       IGNORED on this machine:");
            parts.iter().for_each(|part| tell!("                 {part}"));
        }
    }
    if let Some(forge) = local.forge() {
        print_first_steps(data, forge.web_url());
    }
    tell!("\nCtrl-C stops everything.");
}

/// Tells a newcomer how a first change is proposed and approved. Tokens stay in files that only
/// their owner may read.
fn print_first_steps(data: &Path, forge: &str) {
    let address = forge.trim_start_matches("http://");
    let header = |login: &str| format!("curl -H @{}", header_file(data, login).display());
    let pulls = format!("{forge}/api/v3/repos/{ONE}/pulls");
    tell!(
        "\nRepositories {CONFIG}, {ONE} and {TWO} are there. Propose a change to one, and approve it:"
    );
    tell!(
        "  git clone -c credential.helper='store --file={}' http://{OWNER}@{address}/{ONE}.git",
        data.join(CREDENTIALS_FILE).display()
    );
    tell!(
        "  cd one && git checkout -b change-mine && echo 'Moin!' > greetings/moin && git add greetings"
    );
    tell!("  git commit -m 'Greet the north' && git push origin change-mine");
    tell!(
        "  {} {pulls} -d '{{\"title\": \"Greet the north\", \"head\": \"change-mine\", \"base\": \"main\"}}'",
        header(OWNER)
    );
    tell!("  {} {pulls}/NUMBER/reviews -d '{{\"event\": \"APPROVE\"}}'", header(REVIEWER));
}

/// Returns what completes when the process is asked to stop: Ctrl-C or SIGTERM.
///
/// # Errors
/// When signals cannot be listened to.
pub fn stop_asked() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("could not listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
