//! A local machine whose data services are at another AWS-compatible endpoint (`--endpoint`).
//!
//! Creates a missing table, bucket, key and queues there from the template. Nodes stay on this
//! machine: they are the emulator's EC2, at its own address, with the same credentials.

use crate::{Endpoint, MachineSettings, TEMPLATE_FILE};
use anyhow::{Context as _, bail};
use async_trait::async_trait;
use aws_credential_types::provider::ProvideCredentials as _;
use sluice_aws::endpoint::{DataEndpoint, DataService};
use sluice_aws::provision::{KeyAttribute, KeyKind, QueueSpec, ResourceSpec, TableSpec, provision};
use sluice_aws::{AwsSettings, SdkConfig, removal};
use sluice_emulator::data::{DataOptions, Front as Data, Principal, SecretAccessKey, serve};
use sluice_emulator::ec2::Ec2;
use sluice_emulator::http::{Front as HttpEvents, HttpFront, Routes};
use sluice_emulator::lambda::{InProcess, Invoke, Limits};
use sluice_emulator::sources::{Delivered, Message, Origin, QueueError, QueuePort, Sources};
use sluice_emulator::template::{
    self, AttributeType, DeploymentTarget as TemplatePlace, KeySchema, TemplatePlan,
};
use sluice_handler::FunctionEnvironment;
use sluice_handler::FunctionName;
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::{PortError, Queues};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Seconds that one poll for messages waits.
const POLL_SECONDS: u32 = 2;
/// The variable with the id of an existing key, for endpoints that cannot create one.
const KEY_VARIABLE: &str = "SLUICE_KEY";
/// The variable with the bucket of functions.
const BUCKET_VARIABLE: &str = "SLUICE_BUCKET";
/// The file in the data directory that says at which endpoint there are resources.
const RESOURCES_FILE: &str = "endpoint.json";

/// Where a system has created resources at another endpoint.
#[derive(serde::Serialize, serde::Deserialize)]
struct ResourceLocation {
    /// The variables that lead to the endpoint.
    variables: BTreeMap<String, String>,
    /// The prefix of resource names there.
    stack: String,
}

/// A machine whose data services are at another endpoint.
pub(super) struct ExternalServices {
    plan: TemplatePlan,
    endpoint: DataEndpoint,
    sdk_config: SdkConfig,
    sources: Sources,
    http: HttpFront,
    nodes: (SocketAddr, JoinHandle<()>),
}

impl ExternalServices {
    /// Creates the missing table, bucket, key and queues at the endpoint, and starts on this
    /// machine the EC2 emulator, all functions in this process, and the HTTP front. Existing
    /// resources are not changed. Before it creates any, it stores in the data directory where they
    /// are, for [`remove`]. Credentials come from the environment; fault injection and latency are
    /// not supported.
    pub(super) async fn start(
        endpoint: &Endpoint,
        settings: MachineSettings<'_>,
        ec2: &Ec2,
    ) -> anyhow::Result<Self> {
        let Endpoint { services: endpoint, stack } = endpoint;
        let sdk_config = endpoint.sdk_config(DataEndpoint::usual_sources()).await;
        let keys = sdk_config
            .credentials_provider()
            .context("there are no AWS credentials in the environment")?;
        let keys = keys
            .provide_credentials()
            .await
            .context("there are no AWS credentials in the environment")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port))
            .await
            .context("could not listen for HTTP")?;
        let mut template_context = template_context(endpoint.url(), stack, &sdk_config);
        template_context.parameters.extend(settings.parameters.clone());
        let mut plan = template::read(&settings.template, &template_context)
            .context("could not read the template")?;
        let location = ResourceLocation { variables: endpoint.variables(), stack: stack.clone() };
        std::fs::write(settings.data.join(RESOURCES_FILE), serde_json::to_vec_pretty(&location)?)
            .context("could not store where resources are created")?;
        let provided = provision(&sdk_config, &required_resources(&plan, stack)?).await?;
        let key_id = std::env::var(KEY_VARIABLE).ok().or(provided.key_id.clone());
        set_queue_urls(&mut plan, &provided.queue_urls, key_id.as_deref());

        let nodes = Data::open(&settings.data.join("nodes"), DataOptions::default())?;
        nodes.add("ec2", Arc::new(ec2.clone()));
        nodes.keys().insert(
            keys.access_key_id(),
            Principal::new("launcher"),
            SecretAccessKey::new(keys.secret_access_key()),
        );
        let nodes = serve(nodes, settings.nodes_port).await.context("could not listen for EC2")?;

        let mut functions = InProcess::new();
        for function in &plan.functions {
            let name: FunctionName = function.id.parse()?;
            let cache = settings.data.join("cache").join(&function.id);
            let environment = FunctionEnvironment::from_variables(
                &sdk_config,
                &function.environment,
                endpoint.url(),
                cache,
            )
            .await?;
            functions = functions.with_handler(
                &function.id,
                Limits::of(function),
                crate::handler(name, environment)?,
            );
        }
        let functions: Arc<dyn Invoke> = Arc::new(functions);
        let origin = Origin {
            account: template_context.account.clone(),
            region: template_context.region.clone(),
        };
        let queues: Arc<dyn QueuePort> =
            Arc::new(PortQueues::new(&sdk_config, &plan, &provided.queue_urls).await?);
        let sources = Sources::start(&plan, &origin, &queues, &functions, &settings.sources);
        let (events, routes) =
            (HttpEvents::new(&template_context.account), Routes::new(&plan.routes));
        let http = HttpFront::start(listener, events, routes, settings.host_names, functions)
            .context("could not start the HTTP front")?;
        Ok(Self { plan, endpoint: endpoint.clone(), sdk_config, sources, http, nodes })
    }

    /// Returns the plan of the template, with the URLs and the key of the endpoint.
    pub(super) fn plan(&self) -> &TemplatePlan {
        &self.plan
    }

    /// Returns the address of the EC2 emulator on this machine.
    pub(super) fn nodes_url(&self) -> String {
        format!("http://{}", self.nodes.0)
    }

    /// Returns the addresses of the data services, as they were given.
    pub(super) fn endpoint(&self) -> &DataEndpoint {
        &self.endpoint
    }

    /// Returns the environment of the executor or the operator, which have the same credentials
    /// here. `cache` is its cache directory, which is not created.
    pub(super) async fn environment_for(
        &self,
        cache: PathBuf,
    ) -> anyhow::Result<FunctionEnvironment> {
        Ok(FunctionEnvironment::from_variables(
            &self.sdk_config,
            self.environment()?,
            self.endpoint.url(),
            cache,
        )
        .await?)
    }

    /// Returns the environment variables of the executor, without credentials. An error if the
    /// template has no executor.
    pub(super) fn environment(&self) -> anyhow::Result<&BTreeMap<String, String>> {
        Ok(&self.plan.executor.as_ref().context("the template has no executor")?.environment)
    }

    /// Stops the HTTP front, the event sources and the EC2 emulator, in this order. The resources
    /// at the endpoint stay.
    pub(super) async fn stop(self) {
        self.http.stop().await;
        self.sources.stop().await;
        self.nodes.1.abort();
    }
}

/// Returns the addresses of an endpoint, one line for each service.
pub(super) fn addresses(endpoint: &DataEndpoint) -> impl Iterator<Item = String> {
    DataService::ALL
        .into_iter()
        .map(|service| format!("{service:<14} {}", endpoint.url_of(service)))
}

/// Removes everything that a system with this data directory has created at another endpoint, by
/// the built-in template's copy there, and forgets it. Returns the prefix of the names of what was
/// removed; `None` without a call if no system with this directory has used another endpoint, or
/// its resources were removed. No system may use the directory at the same time. Credentials come
/// from the environment.
pub(super) async fn remove(data: &Path) -> anyhow::Result<Option<String>> {
    let file = data.join(RESOURCES_FILE);
    let text = match std::fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("could not read {}", file.display()))?,
    };
    let location: ResourceLocation = serde_json::from_slice(&text)
        .with_context(|| format!("could not read {}: it is damaged", file.display()))?;
    let ResourceLocation { variables, stack } = location;
    let endpoint = DataEndpoint::read(|name| variables.get(name).cloned())
        .with_context(|| format!("could not read {}: it has no endpoint", file.display()))?;
    let left = || {
        format!("resources with names that begin with {stack} may be left at {}", endpoint.url())
    };
    let sdk_config = endpoint.sdk_config(DataEndpoint::usual_sources()).await;
    let plan = template::read(
        &data.join(TEMPLATE_FILE),
        &template_context(endpoint.url(), &stack, &sdk_config),
    );
    let resources = required_resources(&plan.with_context(left)?, &stack).with_context(left)?;
    removal::remove(&sdk_config, &resources).await.with_context(left)?;
    std::fs::remove_file(&file).with_context(|| format!("could not remove {}", file.display()))?;
    Ok(Some(stack))
}

/// Returns the place of the template at an endpoint, without parameters.
fn template_context(url: &str, stack: &str, sdk_config: &SdkConfig) -> TemplatePlace {
    let mut place = TemplatePlace::machine(url);
    stack.clone_into(&mut place.stack);
    if let Some(region) = sdk_config.region() {
        place.region = region.to_string();
    }
    place
}

/// Returns the resources that the endpoint must have: table, bucket, key and queues, dead letter
/// queues first. Without a key if `SLUICE_KEY` names an existing one. `stack` is the alias of the
/// key. An error if the template has more or less than one table and one bucket of functions, or if
/// the table or an index has no range attribute.
fn required_resources(plan: &TemplatePlan, stack: &str) -> anyhow::Result<ResourceSpec> {
    // Jobs upload to another bucket, with a role that another endpoint does not have.
    let is_of_functions = |bucket: &&template::BucketPlan| {
        let mut environments = plan.functions.iter().map(|function| &function.environment);
        environments.any(|environment| environment.get(BUCKET_VARIABLE) == Some(&bucket.name))
    };
    let buckets: Vec<_> = plan.buckets.iter().filter(is_of_functions).collect();
    let ([table], [bucket]) = (plan.tables.as_slice(), buckets.as_slice()) else {
        bail!(
            "the template has {} tables and {} buckets of functions; another endpoint supports exactly one of each",
            plan.tables.len(),
            buckets.len()
        );
    };
    let keys = |schema: &KeySchema| -> anyhow::Result<[KeyAttribute; 2]> {
        let range = schema.range.as_ref().context("a key of the table has no RANGE attribute")?;
        let key = |key: &template::KeyAttributePlan| KeyAttribute {
            name: key.name.clone(),
            kind: if key.kind == AttributeType::N { KeyKind::Number } else { KeyKind::Text },
        };
        Ok([key(&schema.hash), key(range)])
    };
    let indexes = table.indexes.iter().map(|index| Ok((index.name.clone(), keys(&index.keys)?)));
    let mut queues: Vec<QueueSpec> = plan.queues.iter().map(wanted_queue).collect();
    // Dead letter queues first, because the others refer to them.
    queues.sort_by_key(|queue| queue.dead_letters.is_some());
    Ok(ResourceSpec {
        table: TableSpec {
            name: table.name.clone(),
            keys: keys(&table.keys)?,
            indexes: indexes.collect::<anyhow::Result<_>>()?,
            ttl_attribute: table.ttl_attribute.clone(),
        },
        bucket: bucket.name.clone(),
        key_alias: std::env::var_os(KEY_VARIABLE).is_none().then(|| stack.to_owned()),
        queues,
    })
}

/// Returns the settings of a queue, with the name of its dead letter queue and after how many
/// receipts messages go there, if it has one.
fn wanted_queue(queue: &template::MessageQueuePlan) -> QueueSpec {
    QueueSpec {
        name: queue.name.clone(),
        visibility_timeout_seconds: queue.visibility_timeout_seconds,
        retention_seconds: queue.retention_seconds,
        dead_letters: queue
            .redrive
            .as_ref()
            .map(|redrive| (queue_name(&redrive.dead_letter_arn).to_owned(), redrive.receives_max)),
    }
}

/// Replaces the planned queue URLs by the endpoint's own in the environment of every function and
/// of the executor. Also sets `SLUICE_KEY` where the template has it, if a key id is given. `urls`
/// has the URLs by queue name; a queue that is missing there keeps its planned URL.
fn set_queue_urls(plan: &mut TemplatePlan, urls: &BTreeMap<String, String>, key_id: Option<&str>) {
    let renamed: BTreeMap<String, String> = plan
        .queues
        .iter()
        .filter_map(|queue| Some((queue.url.clone(), urls.get(&queue.name)?.clone())))
        .collect();
    let functions = plan.functions.iter_mut().map(|function| &mut function.environment);
    for environment in
        functions.chain(plan.executor.iter_mut().map(|executor| &mut executor.environment))
    {
        for (variable, value) in environment.iter_mut() {
            if let Some(url) = renamed.get(value) {
                value.clone_from(url);
            }
            if let (KEY_VARIABLE, Some(key_id)) = (variable.as_str(), key_id) {
                key_id.clone_into(value);
            }
        }
    }
}

/// The queues of an endpoint, through the ports. Dead letter queues use a second port with other
/// URLs.
struct PortQueues {
    main: Arc<dyn Queues>,
    dead_letter: Arc<dyn Queues>,
    names: BTreeMap<String, (QueueRole, MessageQueue, u32)>,
}

#[derive(Clone, Copy)]
enum QueueRole {
    Main,
    DeadLetter,
}

impl PortQueues {
    /// Returns the queues whose URLs are in the executor's environment, each with its dead letter
    /// queue if the template has one. `urls` has the URLs by queue name; queues that are missing
    /// there are left out. `plan` must already have the endpoint's URLs. An error if the template
    /// has no executor, or a variable of it is missing.
    async fn new(
        sdk_config: &SdkConfig,
        plan: &TemplatePlan,
        urls: &BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let environment =
            &plan.executor.as_ref().context("the template has no executor")?.environment;
        let settings = AwsSettings::from_variables(|name| environment.get(name).cloned())?;
        let (mut dead_letter, mut names) = (settings.clone(), BTreeMap::new());
        for (queue, url) in &settings.queue_urls {
            let planned = plan.queues.iter().find(|planned| urls.get(&planned.name) == Some(url));
            let Some(planned) = planned else { continue };
            names.insert(
                planned.name.clone(),
                (QueueRole::Main, *queue, planned.visibility_timeout_seconds),
            );
            let letters =
                planned.redrive.as_ref().map(|redrive| queue_name(&redrive.dead_letter_arn));
            if let Some((letters, url)) =
                letters.and_then(|letters| Some((letters, urls.get(letters)?)))
            {
                dead_letter.queue_urls.insert(*queue, url.clone());
                names.insert(
                    letters.to_owned(),
                    (QueueRole::DeadLetter, *queue, planned.visibility_timeout_seconds),
                );
            }
        }
        Ok(Self {
            main: sluice_aws::ports(sdk_config, settings).await.queues,
            dead_letter: sluice_aws::ports(sdk_config, dead_letter).await.queues,
            names,
        })
    }

    /// Returns how to reach the queue with an ARN: the port, the queue to name there, and the
    /// visibility timeout in seconds. For a dead letter queue, these are another port and the queue
    /// that it belongs to. An error with `action` as its verb if the queue is unknown.
    fn find(
        &self,
        action: &'static str,
        arn: &str,
    ) -> Result<(&dyn Queues, MessageQueue, u32), QueueError> {
        let missing = || QueueError {
            action,
            queue_arn: arn.to_owned(),
            why: "it is not in the template".to_owned(),
        };
        let (role, queue, visibility) = self.names.get(queue_name(arn)).ok_or_else(missing)?;
        let port = match role {
            QueueRole::Main => &self.main,
            QueueRole::DeadLetter => &self.dead_letter,
        };
        Ok((port.as_ref(), *queue, *visibility))
    }
}

/// Returns the last part of an ARN; a text without `:` unchanged.
fn queue_name(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

/// Returns a function that turns the error of a port into the error of a queue, with the given
/// action and ARN.
fn failed(action: &'static str, arn: &str) -> impl Fn(PortError) -> QueueError {
    let queue_arn = arn.to_owned();
    move |error| QueueError { action, queue_arn: queue_arn.clone(), why: error.to_string() }
}

#[async_trait]
impl QueuePort for PortQueues {
    /// Receives at most `max` messages, and at most 10, waiting up to 2 seconds for the first. They
    /// are hidden for `hidden_for`, rounded up to seconds; `None` means the visibility timeout in
    /// the template. The port does not return all their attributes: times are the present one, and
    /// sequence, attributes and deduplication id are empty.
    async fn receive(
        &self,
        arn: &str,
        max: u32,
        hidden_for: Option<Duration>,
    ) -> Result<Vec<Delivered>, QueueError> {
        let (port, queue, visibility) = self.find("receive messages", arn)?;
        let seconds = hidden_for.map_or(visibility, whole_seconds);
        let received = port.receive(queue, max.min(10), POLL_SECONDS, seconds).await;
        let now = sluice_emulator::data::now_ms();
        let delivered = |message: sluice_runtime::port::Incoming| Delivered {
            receipt: message.receipt,
            message: Message {
                sequence: 0,
                id: message.id,
                body: message.body,
                attributes: BTreeMap::new(),
                group: message.group,
                dedup_id: None,
                sent_ms: now,
                visible_at_ms: now,
                receives: message.receive_count,
                first_received_ms: Some(now),
                last_received_ms: Some(now),
                dead_letter_source: None,
            },
        };
        Ok(received.map_err(failed("receive messages", arn))?.into_iter().map(delivered).collect())
    }

    /// Deletes messages one by one, and ends at the first error: the rest is then not deleted.
    async fn delete(&self, arn: &str, receipts: &[String]) -> Result<(), QueueError> {
        let (port, queue, _) = self.find("delete messages", arn)?;
        for receipt in receipts {
            port.acknowledge(queue, receipt).await.map_err(failed("delete messages", arn))?;
        }
        Ok(())
    }

    /// Makes messages visible again one by one, after `after` rounded up to seconds. Ends at the
    /// first error.
    async fn hide_for(
        &self,
        arn: &str,
        receipts: &[String],
        after: Duration,
    ) -> Result<(), QueueError> {
        let (port, queue, _) = self.find("release messages", arn)?;
        for receipt in receipts {
            port.postpone(queue, receipt, whole_seconds(after))
                .await
                .map_err(failed("release messages", arn))?;
        }
        Ok(())
    }

    /// Waits at most 20 ms to yield to other tasks. The poll itself has waited for messages.
    async fn wait(&self, _: &str, at_most: Duration) {
        tokio::time::sleep(Duration::from_millis(20).min(at_most)).await;
    }
}

/// Rounds up to whole seconds, so that nothing is visible too early. A time too long for the type
/// becomes the longest one.
fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}
