//! EC2 on one machine: the Query calls that launch, list and terminate machines, and make images of
//! them. Each machine has a file system and an SSH server of its own.
//!
//! A call is answered from one SQLite file, so nothing acknowledged is lost when the process is
//! killed; what runs follows the file: [`machine`] starts and ends the servers, and takes back
//! those that outlived a killed emulator.

mod answer;
mod boot;
mod checks;
mod image;
mod images;
pub mod machine;
mod network;
mod operations;
mod parameters;
mod process;
mod rights;
mod sandbox;
mod server;
mod store;
mod user_data;

use crate::data::{Caller, Denied, Extra, StoreError, now_ms};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use image::NodeFiles;
use machine::{Form, Host};
use network::Network;
use parameters::{Parameters, Refusal};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{State, Store};

pub use rights::NodeError;

/// What the emulated regions offer. There is each region that a call names; a machine is only in
/// the one that it was launched in, and the images are in all.
#[derive(Debug, Clone)]
pub struct Ec2Options {
    /// Account and region that ARNs name.
    pub account: crate::data::Account,
    /// The directory of the machines' files and of the record of them.
    pub directory: PathBuf,
    /// Images that can be launched from the beginning.
    pub images: Vec<MachineImage>,
    /// The directory of the files of these images, which all emulators of a user can share.
    pub image_cache: PathBuf,
    /// Zones of the account's region; other regions have zones with the same last letters.
    pub zones: Vec<String>,
    /// Subnets and their zones; empty takes any subnet.
    pub subnets: BTreeMap<String, String>,
    /// Machines that may exist at once.
    pub instance_limit: u32,
    /// The preferred SSH port of the machines, each on its own address. The tag `sluice:ssh-port`
    /// shows a port other than 22.
    pub ssh_port: u16,
    /// How far the machines are separated from this one, at most.
    pub isolation: Isolation,
}

impl Ec2Options {
    /// Returns the default options: account and region of the data services, three zones, no
    /// subnets (any is accepted), the images `ami-debian12` and `ami-silent` (which accepts no
    /// login), at most 32 machines, port 22, and all isolation that this machine allows.
    /// Images are kept in `sluice/node-images` of the user's cache directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let account = crate::data::Account::default();
        Self {
            zones: ["a", "b", "c"].iter().map(|zone| format!("{}{zone}", account.region)).collect(),
            account,
            directory: directory.into(),
            images: vec![
                MachineImage {
                    id: "ami-debian12".to_owned(),
                    name: "debian-12".to_owned(),
                    created: "2026-01-01T00:00:00.000Z".to_owned(),
                    suite: "bookworm".to_owned(),
                    boot: Boot::Normal,
                },
                // A fault for tests: nodes that accept no login.
                MachineImage {
                    id: "ami-silent".to_owned(),
                    name: "silent".to_owned(),
                    created: "2026-01-01T00:00:00.000Z".to_owned(),
                    suite: "bookworm".to_owned(),
                    boot: Boot::Never,
                },
            ],
            subnets: BTreeMap::new(),
            image_cache: image::default_cache(),
            instance_limit: 32,
            ssh_port: 22,
            isolation: Isolation::Full,
        }
    }

    /// Returns the zones of a region.
    fn zones_of(&self, region: &str) -> Vec<String> {
        let of_region = |zone: &String| match zone.strip_prefix(&self.account.region) {
            Some(letters) => format!("{region}{letters}"),
            None => zone.clone(),
        };
        self.zones.iter().map(of_region).collect()
    }
}

/// How far machines are separated from this one, at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// Each has files and users of its own where user namespaces are allowed, else it is a sandbox;
    /// and a network of its own if root runs the emulator, with `ip` and `nft`.
    Full,
    /// As [`Self::Full`], but all share this machine's network.
    SharedNetwork,
    /// Sandboxes, which read this machine's files and share its network.
    Sandbox {
        /// The reason, as a text for people.
        why: String,
    },
}

/// An image that can be launched, made of the packages of a Debian suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineImage {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When it was made, as ISO text.
    pub created: String,
    /// The suite, for example `bookworm`.
    pub suite: String,
    /// How its machines boot, unless a fault says otherwise.
    pub boot: Boot,
}

/// How a machine is to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// At once.
    Normal,
    /// The machine runs but never answers.
    Never,
    /// Its SSH server starts after so many milliseconds.
    Slow {
        /// Milliseconds to wait.
        millis: u64,
    },
}

/// What happens to one launch to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFault {
    /// The machines boot like this.
    Boots(Boot),
    /// The call is refused with this code, and nothing is made (`InsufficientInstanceCapacity`).
    Refused {
        /// The error's code.
        code: String,
    },
}

/// The service. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Ec2 {
    inner: Arc<Inner>,
}

struct Inner {
    options: Ec2Options,
    store: Mutex<Store>,
    host: Host,
    faults: Mutex<VecDeque<LaunchFault>>,
}

impl Ec2 {
    /// Opens the list of machines in the options' directory, which is created if it is missing. In
    /// the background, starts again the machines that should run and ends those that were being
    /// terminated. A machine whose address is not in the network of the machines any more is
    /// terminated. Also ends machines of this user, and their networks, whose directory was deleted
    /// after their emulator was killed. Needs a tokio runtime.
    pub fn open(options: Ec2Options) -> Result<Self, StoreError> {
        let store = Store::open(&options.directory, &options.account.region)?;
        let host = Host::new(&options);
        let ec2 = Self {
            inner: Arc::new(Inner {
                options,
                store: Mutex::new(store),
                host,
                faults: Mutex::default(),
            }),
        };
        process::end_abandoned();
        images::fail_unfinished(&ec2)?;
        let records = ec2.store().all()?;
        for mut record in records.into_iter().filter(|record| record.state.exists()) {
            if !ec2.inner.host.network().contains(&record.address) {
                tracing::warn!(
                    instance = record.id,
                    address = record.address,
                    "a node ends: its address is not in the network of the nodes any more"
                );
                let alive = [State::Pending, State::Running];
                ec2.store().advance(&record.id, &alive, State::ShuttingDown, None)?;
                record.state = State::ShuttingDown;
            }
            boot::resume(&ec2, record);
        }
        Ok(ec2)
    }

    /// Returns a text for people, one line: what the machines have of their own, and what they
    /// share with this machine and why. Tries what this machine allows if that was not done.
    pub fn isolation(&self) -> String {
        let host = &self.inner.host;
        if let Form::Sandboxes { why } = host.form() {
            return format!(
                "sandboxes that READ THIS MACHINE'S FILES and share its network ({why}): gate only code that you would run yourself"
            );
        }
        let files = match host.files() {
            Ok(NodeFiles::Overlay) => "files (an overlay)".to_owned(),
            Ok(NodeFiles::Copy) => {
                "files (copies: this machine has no overlay for them)".to_owned()
            }
            Err(error) => format!("files (could not be tried: {error})"),
        };
        match host.network() {
            Network::Own(bridge) => {
                let gateway = bridge.gateway();
                format!("machines with their own {files}, users and network (behind {gateway})")
            }
            Network::Shared { why } => format!(
                "machines with their own {files} and users; they SHARE THIS MACHINE'S NETWORK: {why}"
            ),
        }
    }

    /// Adds a fault that affects one launch: the next one, after those for which faults were added
    /// before.
    pub fn add_fault(&self, fault: LaunchFault) {
        self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// Ends the servers of all machines and waits until they are gone. Their records stay, so the
    /// next start restarts them; this emulator starts none any more.
    pub async fn shut_down(&self) {
        let host = self.inner.host.clone();
        // Waits for each server to be gone, so that its address is free afterwards.
        let _ = tokio::task::spawn_blocking(move || host.end_all()).await;
    }

    /// Locks the list of machines.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.inner.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the fault that was added first; `None` if there is none.
    fn next_fault(&self) -> Option<LaunchFault> {
        self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Runs the action of a request, after checking the caller's permission, and returns its XML
    /// response. An error for an unknown action or another version of the API, a denial, or if the
    /// action fails. Blocks on the disk, and needs a tokio runtime.
    fn answer(&self, caller: &Caller, request: &Request<Bytes>) -> Result<String, Refusal> {
        let parameters = Parameters::read(request)?;
        match parameters.action() {
            "RunInstances" => operations::run(self, caller, &parameters),
            "DescribeInstances" => operations::describe(self, caller, &parameters),
            "TerminateInstances" => operations::terminate(self, caller, &parameters),
            "DescribeImages" => images::describe(self, caller, &parameters),
            "CreateImage" => images::create(self, caller, &parameters),
            "DeregisterImage" => images::deregister(self, caller, &parameters),
            "CreateTags" => operations::create_tags(self, caller, &parameters),
            other => Err(Refusal::new(
                400,
                "InvalidAction",
                format!("The action {other} is not valid for this web service."),
            )),
        }
    }
}

/// Makes the images of the options that are missing, so that the first launch need not wait, and
/// deletes what is left of interrupted attempts.
/// `progress` gets lines about what takes long, and none if the images exist. Blocks, about a
/// minute if an image is missing.
///
/// # Errors
/// When this machine allows sandboxes only, or an image cannot be made; the text says what to do.
pub fn prepare(options: &Ec2Options, progress: &dyn Fn(&str)) -> Result<(), NodeError> {
    let rights = image::rights_to_boot(options)?;
    image::remove_unfinished(&options.image_cache, &rights);
    for known in options.images.iter().filter(|image| image.boot != Boot::Never) {
        image::of_suite(&options.image_cache, &known.suite, &rights, progress)?;
    }
    Ok(())
}

/// Ends the servers that a killed emulator left in its [directory](Ec2Options::directory), each by
/// the note of its process, waits until they are gone, and removes their network; failures are
/// logged. Files and the record of machines stay: an emulator that is started there brings the
/// machines back.
pub fn end_left(directory: &Path) {
    host_of(directory).end_all();
}

/// Ends the servers that a killed emulator left in its [directory](Ec2Options::directory), as
/// [`end_left`], and deletes the directory; no error if it does not exist.
///
/// # Errors
/// When the files of machines cannot be deleted.
pub fn remove_left(directory: &Path) -> std::io::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    let host = host_of(directory);
    host.end_all();
    host.remove(directory)
}

/// Returns what ends the machines of a directory, which it does not begin.
fn host_of(directory: &Path) -> Host {
    Host::new(&Ec2Options { isolation: Isolation::SharedNetwork, ..Ec2Options::new(directory) })
}

#[async_trait]
impl Extra for Ec2 {
    /// Answers one call of a verified caller, whose permissions each action checks. A panic is an
    /// internal error (500).
    async fn call(&self, caller: &Caller, request: Request<Bytes>) -> Response<Bytes> {
        let (ec2, caller) = (self.clone(), caller.clone());
        // SQLite and the look for free addresses block.
        let runtime = tokio::runtime::Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            let _inside = runtime.enter();
            ec2.answer(&caller, &request)
        });
        let answer = done
            .await
            .unwrap_or_else(|_| Err(Refusal::new(500, "InternalError", "the call broke off")));
        match answer {
            Ok(body) => answer::xml(200, body),
            Err(refusal) => refusal.into_response(),
        }
    }

    /// Returns the action that a request names; empty if it names none or another version of the
    /// API.
    fn operation(&self, request: &Request<Bytes>) -> String {
        Parameters::read(request)
            .map(|parameters| parameters.action().to_owned())
            .unwrap_or_default()
    }
}

impl From<Denied> for Refusal {
    /// Converts a denial by a policy to EC2's error (403).
    fn from(denied: Denied) -> Self {
        Self::new(403, "UnauthorizedOperation", denied.to_string())
    }
}

impl From<StoreError> for Refusal {
    /// Logs an error of the record of machines and converts it to an internal error (500).
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the record of machines failed");
        Self::new(500, "InternalError", error.to_string())
    }
}

/// The time that a machine stays listed after it is gone.
const SHOWN_AFTER_END: Duration = Duration::from_secs(3_600);

/// Returns whether a machine that ended at this time, in milliseconds since the epoch, is not
/// listed any longer: after an hour. False for one that has not ended.
fn is_forgotten(ended_ms: Option<u64>) -> bool {
    ended_ms.is_some_and(|ended| {
        u128::from(now_ms().saturating_sub(ended)) > SHOWN_AFTER_END.as_millis()
    })
}
