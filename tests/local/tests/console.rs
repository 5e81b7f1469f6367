//! The delay between a line that a node prints and those who read the log of its build.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use sluice_local::{ONE, TENANT};
use sluice_local_tests::story::{Expected, approve, configure, ends_right};
use sluice_local_tests::system::{System, UpOptions};
use sluice_local_tests::until;
use sluice_operator::show::text;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_tungstenite::tungstenite::Message;

/// The time between two reads of Sluice's page, as `functions/api/src/page/build.js` has it.
const PAGE_READS: Duration = Duration::from_millis(700);
/// The longest usual delay of a line.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the time of day.
fn now() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::from_micros((since.as_micros() % DAY.as_micros()) as u64)
}

/// Returns the time of day that a node has printed in a line of a log.
fn printed(line: &str) -> Option<Duration> {
    let (_, stamp) = line.split_once("| node | at ")?;
    let part = |from: usize, to: usize| stamp.get(from..to)?.parse::<u64>().ok();
    let seconds = (part(11, 13)? * 60 + part(14, 16)?) * 60 + part(17, 19)?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(part(20, 26)?))
}

/// The delays of the lines that one reader of a log gets.
struct Delays {
    /// When the reader began; earlier lines do not count.
    begun: Duration,
    /// The delays so far.
    of_lines: Vec<Duration>,
    /// The last line, as far as it was read.
    rest: String,
}

impl Delays {
    fn begin() -> Self {
        Self { begun: now(), of_lines: Vec::new(), rest: String::new() }
    }

    /// Takes in the next part of the log, which was read just now.
    fn read(&mut self, part: &str) {
        let now = now();
        self.rest.push_str(part);
        while let Some((line, rest)) = self.rest.split_once('\n') {
            // Of two times, the earlier one is less than half a day before the later one.
            let after =
                |from: Duration, to: Duration| (to + DAY - from).as_micros() % DAY.as_micros();
            if let Some(at) =
                printed(line).filter(|at| after(self.begun, *at) < DAY.as_micros() / 2)
            {
                self.of_lines.push(Duration::from_micros(after(at, now) as u64));
            }
            self.rest = rest.to_owned();
        }
    }

    /// Prints the delays and checks that the usual one is below [`DELAY_MAX`].
    fn check(mut self, reader: &str) {
        self.of_lines.sort();
        assert!(self.of_lines.len() >= 20, "{reader} read {} lines", self.of_lines.len());
        let (median, longest) =
            (self.of_lines[self.of_lines.len() / 2], self.of_lines[self.of_lines.len() - 1]);
        println!(
            "delay of streamed lines, from the node to {reader}: median {} ms, longest {} ms",
            median.as_millis(),
            longest.as_millis()
        );
        assert!(median < DELAY_MAX, "{reader}: {:?}", self.of_lines);
    }
}

/// Z7.4: a line that a node prints reaches within a second those who read the log meanwhile: over
/// the WebSocket, as Zuul's pages do, and over the API, as Sluice's page does. `make bench` prints
/// the delays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_printed_line_reaches_the_readers_of_a_running_build_within_a_second() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["printing", "noop"]).await.unwrap();
    let forge = system.forge().unwrap();
    let change = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n")]).await.unwrap();
    approve(&system, &change).await.unwrap();
    let client = system.client().unwrap();
    let uuid = until("the build to run", async || {
        let path = format!("tenant/{TENANT}/builds?pipeline=gate");
        let builds: Vec<Value> = client.get(&path).await?;
        let running = builds.iter().find(|build| build["start_time"].is_string());
        Ok(running.map(|build| text(build, "uuid").to_owned()))
    })
    .await
    .unwrap();
    let (over_websocket, on_page) =
        tokio::join!(read_console(&system, &uuid), read_as_page(&system, &uuid));
    over_websocket.check("the WebSocket");
    on_page.check("the page");
    ends_right(&system, Expected { landed: &[&change], refused: &[] }).await.unwrap();
}

/// Reads the log of a build to its end over the WebSocket.
async fn read_console(system: &System, uuid: &str) -> Delays {
    let address = system.web_root().replacen("http:", "ws:", 1);
    let url = format!("{address}api/tenant/{TENANT}/console-stream");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let request = json!({"uuid": uuid, "logfile": "console.log"}).to_string();
    socket.send(Message::text(request)).await.unwrap();
    let mut delays = Delays::begin();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Text(part) = message {
            delays.read(&part);
        }
    }
    delays
}

/// Reads the log of a build to its end piece by piece, as often as the page does.
async fn read_as_page(system: &System, uuid: &str) -> Delays {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let log = format!("{}api/tenant/{TENANT}/build/{uuid}/log", system.web_root());
    let (mut offset, mut delays) = ("0".to_owned(), Delays::begin());
    loop {
        let answer = client.get(format!("{log}?offset={offset}")).send().await.unwrap();
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let (next, is_over) = (header("x-log-next"), header("x-log-ended") == "1");
        delays.read(&answer.text().await.unwrap());
        if is_over {
            return delays;
        }
        if next == offset {
            tokio::time::sleep(PAGE_READS).await;
        }
        offset = next;
    }
}
