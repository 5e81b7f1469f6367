//! Prepares a build: its repositories, playbooks, secrets, nodes and variables.

use super::start_error::StartError;
use super::{Attempt, PreparedBuild};
use crate::broker::Broker;
use crate::code_trust::CodeTrust;
use crate::disk::DiskWatch;
use crate::frozen_vars::FrozenVars;
use crate::id_token;
use crate::inventory::{self, JobVars};
use crate::job::AttemptScope;
use crate::joblog::JobLog;
use crate::playbook_checkouts;
use crate::receiver::RECORD_BYTES_MAX;
use crate::sandbox::write_accounts;
use crate::ssh::{self, Agent, AgentKeys};
use crate::uploads;
use crate::vars::zuul;
use crate::workspace::{self, PlacedRepository};
use serde_json::{Map, Value, json};
use sluice_model::job::ANSIBLE_VERSIONS;
use std::collections::{BTreeMap, BTreeSet};

/// The build's way to the network, and the connections to its nodes; dropping it closes them.
pub(super) struct ConnectedNodes {
    /// The agent with the build's keys; `None` without any.
    pub(super) agent: Option<Agent>,
    /// The shared SSH connections.
    _shared: Vec<ssh::SharedConnection>,
    /// The only way of untrusted playbooks to the network.
    pub(super) broker: Broker,
    /// The Python path by host name.
    pub(super) interpreters: BTreeMap<String, String>,
    /// Log lines about nodes that could not be reached.
    troubles: Vec<String>,
}

impl<'a> Attempt<'a> {
    /// Prepares everything that playbooks need: repositories, playbooks, secrets, nodes and
    /// variables. Writes the inventory and the tested commits to the logs, and its progress to
    /// `log`. The returned value holds the connections to the nodes and watches the disk usage. A
    /// node that cannot be reached is only logged; anything else that is missing is an error.
    pub(super) async fn prepare(
        &self,
        log: &mut JobLog<'_>,
    ) -> Result<PreparedBuild<'a>, StartError> {
        let (job, jobdir) = (self.job, self.jobdir);
        inventory::check_names(job)?;
        let version = job.job.ansible_version();
        if !ANSIBLE_VERSIONS.contains(&version) {
            return Err(StartError::AnsibleVersion { version: version.to_owned() });
        }
        write_accounts(jobdir)?;
        self.check_secrets()?;
        uploads::check(job.job, self.settings.uploads.as_ref())?;
        log.say("Cloning repos into workspace");
        let repositories = async {
            Ok::<_, StartError>(workspace::place_repositories(job, self.sources, jobdir).await?)
        };
        let playbooks = async {
            Ok::<_, StartError>(
                playbook_checkouts::prepare_playbooks(job, self.sources, jobdir, self.settings)
                    .await?,
            )
        };
        let (placed, playbooks, nodes) =
            futures::try_join!(repositories, playbooks, self.connect())?;
        log.say("Preparing playbooks");
        nodes.troubles.iter().chain(&playbooks.notes).for_each(|line| log.say(line));
        let zuul = zuul(job, &placed, jobdir, self.settings, playbooks.context.clone());
        self.write_build_info(&placed, &zuul, &nodes)?;
        let own_project = &job.order.change.key.project;
        Ok(PreparedBuild {
            attempt: Attempt {
                settings: self.settings,
                job,
                sources: self.sources,
                jobdir,
                observer: self.observer,
            },
            zuul,
            tested: placed
                .iter()
                .find(|placed| placed.project == *own_project)
                .map(|placed| placed.commit.clone()),
            playbooks,
            nodes,
            frozen: FrozenVars::new(),
            unreachable: BTreeSet::new(),
            left_files: BTreeSet::new(),
            failure_output: None,
            records: Vec::new(),
            record_bytes_left: RECORD_BYTES_MAX,
            disk: DiskWatch::start(jobdir.writable(), self.settings.disk_bytes_max),
        })
    }

    /// Checks that every secret of the job was decrypted, and that its tokens can be issued; the
    /// error names the first one of which this is not so.
    fn check_secrets(&self) -> Result<(), StartError> {
        let frozen = self.job.job;
        for playbook in frozen.pre_run.iter().chain(&frozen.run).chain(&frozen.post_run) {
            for secret in playbook.secrets.values() {
                let (name, project) = (secret.secret.clone(), secret.project.to_string());
                if let Some(token) = &secret.oidc {
                    id_token::check(token).map_err(|source| StartError::Token {
                        secret: name,
                        project,
                        source,
                    })?;
                } else if self.job.secrets.get(secret).is_none() {
                    return Err(StartError::Secret { secret: name, project });
                }
            }
        }
        Ok(())
    }

    /// Writes the SSH configuration, opens the broker, starts the SSH agent and opens a shared
    /// connection to each node. Without keys there is no agent. Unreachable nodes are no error; an
    /// executor without a key for nodes is one. To collect logs, also ends what the lost executor has
    /// started on the nodes; an error if that fails, and for a host of the job's own: other sessions
    /// there are not the build's, and stay. The caller has written the sandbox's accounts
    /// ([`write_accounts`]).
    async fn connect(&self) -> Result<ConnectedNodes, StartError> {
        let nodes = self.job.nodes;
        let collects = self.job.scope == AttemptScope::CollectLogs;
        if collects && self.job.job.run_time.host.is_some() {
            return Err(StartError::SharedHost);
        }
        ssh::write_configuration(self.jobdir, self.settings, nodes)?;
        let socket = self.jobdir.runtime.broker_socket();
        let mut connected = ConnectedNodes {
            agent: None,
            _shared: Vec::new(),
            broker: Broker::open(&socket, &self.settings.network, nodes, self.job.lease.clone())?,
            interpreters: BTreeMap::new(),
            troubles: Vec::new(),
        };
        let of_build = self.job.secrets.ssh_keys();
        let of_nodes = match self.job.node_key {
            _ if nodes.is_empty() || self.job.job.run_time.host.is_some() => None,
            None => return Err(StartError::NoKey),
            key => key,
        };
        if nodes.is_empty() && of_build.is_empty() {
            return Ok(connected);
        }
        let agent = Agent::start(self.jobdir, AgentKeys { of_nodes, of_build }, nodes).await?;
        if !nodes.is_empty() {
            let open = |trust| ssh::open_shared(self.jobdir, self.settings, &agent, nodes, trust);
            let (opened, of_trusted) = if collects {
                let opened = open(CodeTrust::Untrusted).await;
                ssh::end_other_sessions(self.jobdir, self.settings, &agent, nodes).await?;
                // Opened afterwards, because it would have been ended as another session.
                (opened, open(CodeTrust::Trusted).await)
            } else {
                tokio::join!(open(CodeTrust::Untrusted), open(CodeTrust::Trusted))
            };
            (connected._shared, connected.interpreters, connected.troubles) = opened;
            connected._shared.extend(of_trusted.0);
        }
        connected.agent = Some(agent);
        Ok(connected)
    }

    /// Writes the inventory, with variables as written and the `zuul` dictionary, to the logs and
    /// to the path in `zuul.executor.inventory_file`. Also writes the placed repositories with
    /// their commits to `workspace-repos.json` in the logs. Works once for each job directory.
    fn write_build_info(
        &self,
        placed: &[PlacedRepository],
        zuul: &Map<String, Value>,
        nodes: &ConnectedNodes,
    ) -> std::io::Result<()> {
        let jobdir = self.jobdir;
        let inventory = inventory::inventory(
            self.job,
            jobdir,
            JobVars::AsWritten,
            &nodes.interpreters,
            &BTreeSet::new(),
        );
        let text = inventory::to_readable_yaml(&inventory, zuul);
        std::fs::write(jobdir.ansible.join("inventory.yaml"), &text)?;
        std::fs::create_dir(jobdir.logs.join("zuul-info"))?;
        std::fs::write(jobdir.logs.join("zuul-info/inventory.yaml"), &text)?;
        std::fs::write(jobdir.logs.join("workspace-repos.json"), json!(placed).to_string())
    }
}
