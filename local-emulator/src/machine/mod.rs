//! Runs everything that the template defines in one Tokio runtime, bound to 127.0.0.1.
//!
//! It starts data services, tables and queues, functions, and event sources, in this order. A kill
//! loses no acknowledged data: all state is on disk in the data services, and interrupted work is
//! redelivered by the queues.

mod keys;
mod ports;
mod provision;

#[cfg(test)]
mod tests;

use crate::data::{Connector, DataOptions, Extra, Front as Data, Principal, StoreError, serve};
use crate::http::{Front as HttpEvents, HostNames, HttpFront, Routes};
use crate::lambda::{
    Credentials, Handler, InProcess, Invoke, Limits, Print, ProcessSettings, Processes,
};
use crate::policy::{Context, OPERATOR, Policies, PolicyDecision};
use crate::sources::{Origin, QueuePort, SourceOptions, Sources};
use crate::template::{DeploymentTarget, ExecutorPlan, FunctionPlan, TemplateError, TemplatePlan};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use futures::future::BoxFuture;
use keys::Keys;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How often items past their TTL are deleted.
const TTL_SWEEP_PERIOD: Duration = Duration::from_secs(600);

/// The options of a machine.
pub struct MachineOptions {
    /// The directory of all state.
    pub data_directory: PathBuf,
    /// The template.
    pub template: PathBuf,
    /// Values of the template's parameters, over [`DeploymentTarget::machine`]'s.
    pub parameters: BTreeMap<String, String>,
    /// Port of the data services; 0 takes a free one. A machine whose executor outlives it needs
    /// the same port again.
    pub data_port: u16,
    /// Port of the HTTP front; 0 takes a free one.
    pub http_port: u16,
    /// By which names the HTTP front answers, besides addresses and `localhost`.
    pub http_names: HostNames,
    /// Account, durability and chance of the data services.
    pub data: DataOptions,
    /// The timing of event sources and schedules.
    pub sources: SourceOptions,
    /// Services besides the data services, by their name in signatures (`ec2`).
    pub extras: Vec<(String, Arc<dyn Extra>)>,
    /// How functions run.
    pub functions: Form,
}

/// How functions run.
pub enum Form {
    /// In this program: called once for each function of the template, with what is that function's
    /// own.
    InProcess(Make),
    /// As processes of programs that choose by `SLUICE_FUNCTION`.
    Processes {
        /// Called once for each function of the template.
        program: FindProgram,
        /// Where its lines go.
        print: Print,
    },
}

/// Creates the handler of a function, or returns why there is none.
pub type Make = Arc<dyn Fn(Equipment) -> BoxFuture<'static, Result<Handler, String>> + Send + Sync>;

/// Returns the program that has a function, or why there is none.
pub type FindProgram = Arc<dyn Fn(&str) -> Result<PathBuf, String> + Send + Sync>;

/// The environment, credentials and service addresses of a function or the executor.
#[derive(Debug, Clone)]
pub struct Equipment {
    /// Id of the function, or `executor`.
    pub id: String,
    /// Its environment from the template.
    pub environment: BTreeMap<String, String>,
    /// Its access keys; its policy applies to all calls signed with them.
    pub credentials: Credentials,
    /// `AWS_REGION`.
    pub region: String,
    /// `AWS_ENDPOINT_URL`, for callers over a socket.
    pub endpoint: String,
    /// For SDK clients in this program: carries calls without a socket.
    pub client: SharedHttpClient,
}

/// Why a machine did not start.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The template cannot be used.
    #[error("could not start the machine from its template")]
    Template(#[from] TemplateError),
    /// The data folder cannot be used.
    #[error("could not open the data folder")]
    Data(#[from] StoreError),
    /// A port or a file cannot be used.
    #[error("could not {action}; is another machine running on the same ports or data folder?")]
    Io {
        /// The operation that failed.
        action: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A table or a queue of the template could not be made, or is there with other keys.
    #[error(
        "could not provide {name}: {why}; an older data folder may hold it in another form, then start with a new one"
    )]
    Provision {
        /// Its name.
        name: String,
        /// The error message of the service.
        why: String,
    },
    /// A function may not read the queue that calls it.
    #[error(
        "{function} may not {action} on {queue_arn}: add it to the function's policy in the template"
    )]
    SourceRefused {
        /// The function.
        function: String,
        /// What its event source does.
        action: &'static str,
        /// The queue.
        queue_arn: String,
    },
    /// There is no handler for a function of the template.
    #[error("could not make the function {function}: {why}")]
    Function {
        /// Its id.
        function: String,
        /// Why it could not be created.
        why: String,
    },
    /// The system gave no random numbers, or the file of keys is damaged.
    #[error("could not make access keys: {why}")]
    Keys {
        /// What is known.
        why: String,
    },
}

/// A running machine. Dropping it without [`stop`](LocalMachine::stop) is like a kill.
pub struct LocalMachine {
    plan: TemplatePlan,
    data: Arc<Data>,
    data_address: SocketAddr,
    keys: Keys,
    region: String,
    functions: Arc<dyn Invoke>,
    processes: Option<Arc<Processes>>,
    sources: Sources,
    http: HttpFront,
    tasks: Vec<JoinHandle<()>>,
}

impl LocalMachine {
    /// Starts an emulated AWS account from a template: data services with the template's tables,
    /// buckets, keys and queues, functions, event sources and the HTTP front. Returns when all of
    /// it answers. State of an earlier machine in the data directory is kept. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`MachineError`]. After a late failure the data services go on listening until the runtime
    /// ends.
    pub async fn start(options: MachineOptions) -> Result<Self, MachineError> {
        let http_listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, options.http_port)).await.map_err(
                |source| io(&format!("listen on port {} for HTTP", options.http_port), source),
            )?;
        let origin = Origin {
            account: options.data.account.id.clone(),
            region: options.data.account.region.clone(),
        };
        let data = Data::open(&options.data_directory, options.data)?;
        for (scope, extra) in options.extras {
            data.add(scope, extra);
        }
        let (data_address, server) =
            serve(data.clone(), options.data_port).await.map_err(|source| {
                io(&format!("listen on port {} for data services", options.data_port), source)
            })?;
        let mut place = DeploymentTarget::machine(&format!("http://{data_address}"));
        place.account.clone_from(&origin.account);
        place.region.clone_from(&origin.region);
        place.parameters.extend(options.parameters);
        let plan = crate::template::read(&options.template, &place)?;
        let policies = Policies::of(&plan);
        check_sources(&plan, &policies)?;
        provision::provide(&data, &plan)?;
        let principals: Vec<&str> =
            plan.principals().map(|(principal, _)| principal).chain([OPERATOR]).collect();
        let keys = Keys::open(&options.data_directory, &principals)?;
        for (principal, key) in keys.iter() {
            data.keys().insert(
                &key.access_key_id,
                Principal::new(principal),
                key.secret_access_key.clone(),
            );
        }
        data.set_authorizer(Arc::new(policies));
        data.add_roles(plan.assumable_roles());

        let equip = |id: &str| equipment(&plan, &keys, &data, data_address, &origin.region, id);
        let (functions, processes) = match options.functions {
            Form::InProcess(make) => (in_process(&plan, &make, equip).await?, None),
            Form::Processes { program, print } => {
                let settings = settings(&plan, &program, equip)?;
                let processes = Arc::new(Processes::new(settings, &print));
                let functions: Arc<dyn Invoke> = processes.clone();
                let killed = Arc::downgrade(&processes);
                data.deaths().set_caller(Arc::new(move |function| {
                    if let Some(processes) = killed.upgrade() {
                        processes.kill(function);
                    }
                }));
                (functions, Some(processes))
            }
        };
        let queues: Arc<dyn QueuePort> =
            Arc::new(ports::EmulatedQueues::new(data.clone(), &plan.sources));
        let sources = Sources::start(&plan, &origin, &queues, &functions, &options.sources);
        let events = HttpEvents::new(&origin.account);
        let routes = Routes::new(&plan.routes);
        let http =
            HttpFront::start(http_listener, events, routes, options.http_names, functions.clone())
                .map_err(|source| io("start the HTTP front", source))?;
        let tasks = vec![server, tokio::spawn(sweep_ttl(data.clone()))];
        let region = origin.region;
        Ok(Self {
            plan,
            data,
            data_address,
            keys,
            region,
            functions,
            processes,
            sources,
            http,
            tasks,
        })
    }

    /// Returns the plan read from the template.
    #[must_use]
    pub fn plan(&self) -> &TemplatePlan {
        &self.plan
    }

    /// Returns the data services with their counts, faults and queues.
    #[must_use]
    pub fn data(&self) -> &Arc<Data> {
        &self.data
    }

    /// Returns the address of the data services.
    #[must_use]
    pub fn data_address(&self) -> SocketAddr {
        self.data_address
    }

    /// Returns the address of the HTTP front, for webhooks and pages.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Returns the functions, for direct calls by their ids.
    #[must_use]
    pub fn functions(&self) -> &Arc<dyn Invoke> {
        &self.functions
    }

    /// Returns the environment, keys and addresses for a function, the `executor` or the
    /// [`OPERATOR`]; `None` for any other name. The operator has the executor's environment and
    /// keys of its own. `None` for these two if the template has no executor.
    #[must_use]
    pub fn equipment(&self, id: &str) -> Option<Equipment> {
        equipment(&self.plan, &self.keys, &self.data, self.data_address, &self.region, id)
    }

    /// Stops the machine: accepts no further requests and messages, waits for running calls (at
    /// most ten seconds for requests, thirty for messages), and ends the processes. Messages of
    /// unfinished calls are redelivered by the next machine. Services that the options added, such
    /// as EC2, are not stopped.
    pub async fn stop(self) {
        self.http.stop().await;
        self.sources.stop().await;
        if let Some(processes) = &self.processes {
            processes.stop().await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns an error with the action that failed.
fn io(action: &str, source: std::io::Error) -> MachineError {
    MachineError::Io { action: action.to_owned(), source }
}

/// Returns an error for the first event source whose function may not receive and delete the
/// messages and read the attributes of its queue, by the policies of the template. AWS would refuse
/// such a source.
fn check_sources(plan: &TemplatePlan, policies: &Policies) -> Result<(), MachineError> {
    for source in &plan.sources {
        for action in ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"] {
            let decision =
                policies.decide(&source.function, action, &source.queue_arn, &Context::none());
            if decision != PolicyDecision::Allowed {
                let (function, queue_arn) = (source.function.clone(), source.queue_arn.clone());
                return Err(MachineError::SourceRefused { function, action, queue_arn });
            }
        }
    }
    Ok(())
}

/// Returns what a principal needs to run: its environment, keys, region, endpoint and a client.
/// `None` if it is neither a function nor the executor nor the operator, if it has no key, or if
/// the template has no executor for the latter two.
fn equipment(
    plan: &TemplatePlan,
    keys: &Keys,
    data: &Arc<Data>,
    address: SocketAddr,
    region: &str,
    id: &str,
) -> Option<Equipment> {
    let environment = match plan.function(id) {
        Some(function) => function.environment.clone(),
        None if id == ExecutorPlan::PRINCIPAL || id == OPERATOR => {
            plan.executor.as_ref()?.environment.clone()
        }
        None => return None,
    };
    Some(Equipment {
        id: id.to_owned(),
        environment,
        credentials: keys.get(id)?.clone(),
        region: region.to_owned(),
        endpoint: format!("http://{address}"),
        client: Connector::new(data.clone()).into_client(),
    })
}

/// Creates the functions that run in this process by a call of `make` for each. An error if `equip`
/// knows nothing about a function, or `make` fails for it.
async fn in_process(
    plan: &TemplatePlan,
    make: &Make,
    equip: impl Fn(&str) -> Option<Equipment>,
) -> Result<Arc<dyn Invoke>, MachineError> {
    let mut functions = InProcess::new();
    for function in &plan.functions {
        let failed = |why: String| MachineError::Function { function: function.id.clone(), why };
        let equipment = equip(&function.id).ok_or_else(|| failed("it has no keys".to_owned()))?;
        let handler = make(equipment).await.map_err(failed)?;
        functions = functions.with_handler(&function.id, Limits::of(function), handler);
    }
    Ok(Arc::new(functions))
}

/// Returns how to start the processes of each function; starts none. An error if `equip` knows
/// nothing about a function, or there is no program for it.
fn settings(
    plan: &TemplatePlan,
    program: &FindProgram,
    equip: impl Fn(&str) -> Option<Equipment>,
) -> Result<Vec<ProcessSettings>, MachineError> {
    let of = |function: &FunctionPlan| {
        let failed = |why: String| MachineError::Function { function: function.id.clone(), why };
        let equipment = equip(&function.id).ok_or_else(|| failed("it has no keys".to_owned()))?;
        let Equipment { id, environment, credentials, region, endpoint, .. } = equipment;
        Ok(ProcessSettings {
            binary: program(&id).map_err(failed)?,
            id,
            name: function.name.clone(),
            arn: function.arn.clone(),
            environment,
            credentials,
            region,
            endpoint,
            memory_mb: function.memory_mb,
            limits: Limits::of(function),
        })
    };
    plan.functions.iter().map(of).collect()
}

/// Deletes expired items at once and then every ten minutes, and logs failures. Never returns; the
/// machine aborts it when it stops.
async fn sweep_ttl(data: Arc<Data>) {
    let mut ticks = tokio::time::interval(TTL_SWEEP_PERIOD);
    loop {
        ticks.tick().await;
        let data = data.clone();
        match tokio::task::spawn_blocking(move || data.dynamo().sweep_ttl()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(items)) => tracing::debug!(items, "deleted items past their TTL"),
            Ok(Err(error)) => tracing::warn!(%error, "items past their TTL could not be deleted"),
            Err(error) => tracing::warn!(%error, "the TTL sweep ended"),
        }
    }
}
