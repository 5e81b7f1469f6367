//! `sluice up`: runs the whole system on this machine.

use crate::output::print_progress;
use crate::{
    CALLS_FILE, CONFIG, CREDENTIALS_FILE, CallLatency, DeliberateKill, Endpoint, Functions, Local,
    LocalOptions, ONE, OWNER, REVIEWER, TWO, Verbosity, header_file, log_to, write_calls,
};
use anyhow::{Context as _, bail};
use sluice_executor_program::{PlaybookOptions, stop_signal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the report of calls is written to the data directory.
const CALLS_WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// The options of `sluice up`.
#[derive(Debug, Clone)]
pub struct UpArguments {
    /// The data directory; `None` takes the default one.
    pub data: Option<PathBuf>,
    /// The address of the pages, the API and the webhooks.
    pub listen: SocketAddr,
    /// Whether functions run in this process or in processes of their own.
    pub functions: Functions,
    /// Another AWS-compatible endpoint for the data services.
    pub endpoint: Option<Endpoint>,
    /// The response time of the data services.
    pub latency: CallLatency,
    /// Seconds between two sweeps.
    pub tick_seconds: Option<u64>,
    /// Whether to start the local forge.
    pub forge: bool,
    /// The number of builds that run at once.
    pub slots: usize,
    /// A template to use instead of the built-in one.
    pub template: Option<PathBuf>,
    /// Minutes between two polls of a forge for a project's open changes.
    pub ask_minutes: Option<u64>,
    /// Fault injection: which processes are killed at which calls.
    pub deaths: Vec<DeliberateKill>,
    /// The public address of the pages, if it differs from the listening address (a tunnel's, a
    /// proxy's).
    pub web_root: Option<String>,
    /// What playbooks find on this machine, and reach from it.
    pub playbooks: PlaybookOptions,
    /// Whether every log line is printed to the terminal.
    pub verbose: bool,
}

/// Runs the system until Ctrl-C or SIGTERM, then stops it. Prints its addresses when it answers,
/// logs to the data directory, and writes the report of calls there every 5 seconds. An error for
/// an address other than 127.0.0.1, without slots, and if the system cannot be started.
///
/// # Errors
/// When the system cannot be started.
pub async fn run(options: UpArguments) -> anyhow::Result<()> {
    if options.listen.ip() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
        bail!(
            "could not listen on {}: everyone who reaches a local system may read everything, so it listens on 127.0.0.1 only",
            options.listen.ip()
        );
    }
    if options.slots == 0 {
        bail!("could not start with --slots 0: no build would ever run; give at least 1");
    }
    let data = sluice_operator::data_or_default(options.data)?;
    let log =
        log_to(&data, if options.verbose { Verbosity::Everything } else { Verbosity::Warnings })?;
    let stop = stop_signal()?;
    let started = Instant::now();
    let local_options = LocalOptions {
        data: data.clone(),
        port: options.listen.port(),
        functions: options.functions,
        endpoint: options.endpoint,
        template: options.template,
        latency: options.latency,
        tick_seconds: options.tick_seconds,
        forge: options.forge,
        slots: options.slots,
        ask_minutes: options.ask_minutes,
        deaths: options.deaths,
        web_root: options.web_root.as_deref().map(address_of_pages).transpose()?,
        playbooks: options.playbooks,
    };
    let local = Local::start(local_options).await?;
    print_progress!("sluice is up after {:.1} s.\n", started.elapsed().as_secs_f64());
    print_addresses(&local, &data, &log);
    let mut calls = CallReportWriter::default();
    let mut ticks = tokio::time::interval(CALLS_WRITTEN_EVERY);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = ticks.tick() => calls.write(&local),
        }
    }
    calls.write(&local);
    print_progress!("\nStopping …");
    local.stop().await;
    print_progress!("Stopped. Nothing is lost: run `sluice up` on the same directory to resume.");
    Ok(())
}

/// Writes the report of calls, and logs the first of several failures.
#[derive(Debug, Default)]
struct CallReportWriter {
    has_failed: bool,
}

impl CallReportWriter {
    /// Writes the report of the calls that the cost meter has counted to the data directory. Does
    /// nothing if the data services are at another endpoint. A failure is not returned; it is
    /// logged only if the previous write did not fail.
    fn write(&mut self, local: &Local) {
        let Some(meter) = local.meter() else { return };
        match write_calls(local.data(), &meter.snapshot()) {
            Ok(_) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                let error = format!("{error:#}");
                tracing::warn!(%error, "could not write the report of calls; retrying at each tick. Is the disk full?");
            }
        }
    }
}

/// Checks the public address of the pages, and returns it with exactly one final `/`. An error if
/// it is not http or https, or has a user, password, query or fragment.
fn address_of_pages(text: &str) -> anyhow::Result<String> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.with_context(|| {
        format!("could not use --web-root {text}: it is not an http or https address")
    })?;
    if url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
        bail!("could not use --web-root {text}: it must not have a user, `?` or `#`");
    }
    Ok(format!("{}/", text.trim_end_matches('/')))
}

/// Prints the addresses and files of a system that has started, what differs from AWS, and with a
/// forge the first steps. If the template has no ignored parts, also writes the differences to
/// `template-differences.txt` in the data directory; a failure is only printed.
fn print_addresses(local: &Local, data: &Path, log: &Path) {
    print_progress!("  pages, API     {}", local.pages());
    print_progress!("  data services  {}", local.endpoint());
    if let Some(forge) = local.forge() {
        print_progress!("  forge          {}", forge.web_url());
    }
    print_progress!("  nodes          {}", local.isolation_of_nodes());
    print_progress!("  state          {}", data.display());
    print_progress!("  log            {}", log.display());
    if local.meter().is_some() {
        print_progress!(
            "  calls          {}: calls of each function and their cost on AWS",
            data.join(CALLS_FILE).display()
        );
    }
    let ignored = local.ignored();
    match ignored.as_slice() {
        [] => {
            let differences_file = data.join("template-differences.txt");
            let parts = local.elsewhere().len();
            let is_written = std::fs::write(&differences_file, local.differences());
            let location = match is_written {
                Ok(()) => differences_file.display().to_string(),
                Err(error) => {
                    format!("(could not be written to {}: {error})", differences_file.display())
                }
            };
            print_progress!(
                "  template       ignored: nothing; {parts} parts are provided differently: {location}"
            );
            local.absent().for_each(|what| {
                print_progress!("                 not available on one machine: {what}")
            });
        }
        parts => {
            print_progress!("  template       IGNORED on this machine:");
            parts.iter().for_each(|part| print_progress!("                 {part}"));
        }
    }
    if let Some(forge) = local.forge() {
        print_first_steps(data, forge.web_url());
    }
    print_progress!("\nCtrl-C stops everything.");
}

/// Prints the commands to propose and approve a first change. They read tokens from files in the
/// data directory `data` that only their owner may read. `forge` is the address of the local forge.
fn print_first_steps(data: &Path, forge: &str) {
    let address = forge.trim_start_matches("http://");
    let header = |login: &str| format!("curl -H @{}", header_file(data, login).display());
    let pulls = format!("{forge}/api/v3/repos/{ONE}/pulls");
    print_progress!(
        "\nThe repositories {CONFIG}, {ONE} and {TWO} are ready. Propose a change to one, and approve it:"
    );
    print_progress!(
        "  git clone -c credential.helper='store --file={}' http://{OWNER}@{address}/{ONE}.git",
        data.join(CREDENTIALS_FILE).display()
    );
    print_progress!(
        "  cd one && git checkout -b change-mine && echo 'Moin!' > greetings/moin && git add greetings"
    );
    print_progress!("  git commit -m 'Greet the north' && git push origin change-mine");
    print_progress!(
        "  {} {pulls} -d '{{\"title\": \"Greet the north\", \"head\": \"change-mine\", \"base\": \"main\"}}'",
        header(OWNER)
    );
    print_progress!(
        "  {} {pulls}/NUMBER/reviews -d '{{\"event\": \"APPROVE\"}}'",
        header(REVIEWER)
    );
}
