//! `sluice node set-state` and `sluice request delete`: commands to the provider of a node or of a
//! request for nodes.

use super::enqueue::load_live;
use super::queue::{author, named_or_only_tenant};
use crate::accepted::AcceptedWrite;
use crate::api_client::{ApiWrite, api_path};
use crate::output::{OutputFormat, print_line};
use crate::selectors::TenantSelector;
use anyhow::bail;
use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use sluice_commands::{NodeChange, change_node, delete_node_request};
use sluice_model::ProviderName;
use sluice_records::layout::LiveLayout;
use sluice_records::provider::{self, LoadedProvider};
use sluice_runtime::Ports;

/// The states that an operator can give to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeStateArgument {
    /// Keep the node for people to inspect
    Hold,
    /// Release the node; it is deleted
    Used,
}

/// The arguments of `sluice node set-state`.
#[derive(Debug, Clone, Args)]
pub struct SetNodeStateArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Id of the node, as `sluice node list` shows it
    pub node: String,
    /// New state
    #[arg(value_enum)]
    pub state: NodeStateArgument,
    /// Why the node is held; shown with the node
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub comment: String,
}

/// The arguments of `sluice request delete`.
#[derive(Debug, Clone, Args)]
pub struct RequestArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Id of the request, as `sluice request list` shows it
    pub id: String,
}

/// Stores the command that holds or releases a node, and prints how to see its effect, and how to
/// log in on a node that will be held. The command
/// has no effect if a build gets the node first.
///
/// # Errors
/// When there is no such node, it cannot be changed so in its present state, or the system does not
/// answer.
pub async fn set_state(arguments: SetNodeStateArguments) -> anyhow::Result<()> {
    let SetNodeStateArguments { selector, node: id, state, comment } = arguments;
    let becomes = match state {
        NodeStateArgument::Hold => "held",
        NodeStateArgument::Used => "released",
    };
    let what = format!("node {id} will be {becomes}");
    if let Some(client) = selector.system.api_client()? {
        let tenant = client.tenant(selector.tenant.as_deref()).await?;
        let path = api_path(&["tenant", &tenant, "nodes", &id])?;
        let state = match state {
            NodeStateArgument::Hold => "hold",
            NodeStateArgument::Used => "used",
        };
        let body = Some(json!({"state": state, "comment": comment}));
        let permission = "modify-node";
        client.write(ApiWrite { method: Method::PUT, path, body, permission }).await?;
        let outcome = format!("sluice node list --tenant {tenant}");
        AcceptedWrite { what, outcome }.print(&client, selector.system.format());
        if state == "hold" && selector.system.format() == OutputFormat::Text {
            let nodes: Vec<Value> = client.get(&api_path(&["tenant", &tenant, "nodes"])?).await?;
            let node = nodes.iter().find(|node| node["id"] == id.as_str());
            node.and_then(login_of).iter().for_each(NodeLogin::print);
        }
        return Ok(());
    }
    let ports = selector.system.ports().await?;
    let tenant = named_or_only_tenant(&ports, selector.tenant.as_deref()).await?;
    let live = load_live(&ports, &tenant).await?;
    let change = match state {
        NodeStateArgument::Hold => NodeChange::Hold { reason: comment },
        NodeStateArgument::Used => NodeChange::Release,
    };
    for (_, loaded) in providers(&ports, &live).await? {
        let mut nodes = loaded.nodes.into_values().map(|(_, node)| node);
        if let Some(node) = nodes.find(|node| node.id.as_str() == id) {
            change_node(&ports, &tenant, &node, &change, &author()).await?;
            print_line!("Stored the command: {what}. `sluice node list` shows its state.");
            if let (NodeStateArgument::Hold, Some((address, port))) = (state, node.endpoint()) {
                NodeLogin { address, port, username: node.username }.print();
            }
            return Ok(());
        }
    }
    bail!("there is no node {id} in tenant {tenant}: `sluice node list` shows its nodes")
}

/// How people log in on a node that is held by itself, for no autohold request.
struct NodeLogin {
    /// The address that executors connect to.
    address: String,
    /// The SSH port.
    port: u16,
    /// The login name.
    username: String,
}

impl NodeLogin {
    /// Prints the command that logs in, and with whose key.
    fn print(&self) {
        print_line!("{}", self.text());
    }

    /// Returns the command that logs in, and with whose key. A node that no build had accepts only
    /// the key of the node pool.
    fn text(&self) -> String {
        let Self { address, port, username } = self;
        format!(
            "To log in, with the private key of the node pool: ssh -i PRIVATE_KEY_FILE '{username}@{address}' -p {port}"
        )
    }
}

/// Returns how to log in on a node as the API shows it; `None` if it has no address.
fn login_of(node: &Value) -> Option<NodeLogin> {
    Some(NodeLogin {
        address: node["interface_ip"].as_str()?.to_owned(),
        port: u16::try_from(node["connection_port"].as_u64()?).ok()?,
        username: node["username"].as_str()?.to_owned(),
    })
}

/// Stores the command that deletes a request for nodes, which fails its build, and prints how to
/// see its effect. The command has no effect if the request gets its nodes first.
///
/// # Errors
/// When there is no such request of the tenant, it has its nodes or has ended, or the system does
/// not answer.
pub async fn delete_request(arguments: RequestArguments) -> anyhow::Result<()> {
    let RequestArguments { selector, id } = arguments;
    let what = format!("the node request {id} will be deleted");
    if let Some(client) = selector.system.api_client()? {
        let tenant = client.tenant(selector.tenant.as_deref()).await?;
        let path = api_path(&["tenant", &tenant, "nodeset-requests", &id])?;
        let permission = "modify-nodeset-request";
        client.write(ApiWrite { method: Method::DELETE, path, body: None, permission }).await?;
        let outcome = format!("sluice request list --tenant {tenant}");
        AcceptedWrite { what, outcome }.print(&client, selector.system.format());
        return Ok(());
    }
    let ports = selector.system.ports().await?;
    let tenant = named_or_only_tenant(&ports, selector.tenant.as_deref()).await?;
    let live = load_live(&ports, &tenant).await?;
    for (provider, loaded) in providers(&ports, &live).await? {
        let mut requests = loaded.requests.into_values().map(|(_, request)| request);
        let found =
            requests.find(|request| request.queue.tenant == tenant && request.row.as_str() == id);
        if let Some(request) = found {
            delete_node_request(&ports, &provider, &request, &author()).await?;
            print_line!("Stored the command: {what}. `sluice request list` shows what is left.");
            return Ok(());
        }
    }
    bail!("there is no node request {id} in tenant {tenant}: `sluice request list` shows them")
}

/// Loads the providers of a tenant. Those with an unreadable record are printed to standard error
/// and left out.
async fn providers(
    ports: &Ports,
    live: &LiveLayout,
) -> anyhow::Result<Vec<(ProviderName, LoadedProvider)>> {
    let mut all = Vec::new();
    for provider in live.layout.providers() {
        let name = ProviderName(provider.canonical_name.clone());
        match provider::load(ports, &name).await {
            Ok(loaded) => all.push((name, loaded)),
            Err(sluice_records::queue::LoadError::Bad(bad)) => {
                eprintln!("sluice: the provider {name} is skipped: {bad}; repair that record");
            }
            Err(sluice_records::queue::LoadError::Port(error)) => {
                bail!("could not read the provider {name}: {error}")
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// N15: who holds a node is shown how to reach it.
    #[test]
    fn a_node_that_will_be_held_is_shown_with_its_login() {
        let node = json!({"interface_ip": "10.0.0.7", "connection_port": 2222, "username": "root"});
        let text = login_of(&node).unwrap().text();
        assert!(text.contains("private key of the node pool"), "{text}");
        assert!(text.ends_with("ssh -i PRIVATE_KEY_FILE 'root@10.0.0.7' -p 2222"), "{text}");
        assert!(login_of(&json!({"interface_ip": null, "username": "root"})).is_none());
    }
}
