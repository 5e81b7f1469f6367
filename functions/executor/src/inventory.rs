//! The inventory: all nodes, groups and variables (Z7.1).

use crate::job::Job;
use crate::jobdir::Jobdir;
use crate::steering::{Reach, restrict};
use crate::vars::{is_template, to_map, unsafe_texts};
use serde_json::{Map, Value, json};
use serde_yaml::value::{Tag, TaggedValue};
use sluice_model::job::{ALL_NODES, NodeSet, means_executor};
use sluice_model::node::NodeAccess;
use std::collections::{BTreeMap, BTreeSet};

/// A host of the inventory: one per name of a node.
#[derive(Debug, Clone)]
pub struct Host<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its node.
    pub node: &'a NodeAccess,
}

/// Returns the hosts of the build in the nodeset's order.
pub fn hosts<'a>(job: &Job<'a>) -> Vec<Host<'a>> {
    let named = |node: &'a NodeAccess| {
        node.names.iter().filter(|name| is_host_name(name)).map(move |name| Host { name, node })
    };
    job.nodes.iter().flat_map(named).collect()
}

/// Ansible expands templates in the names of hosts and groups, in trusted playbooks too, and would
/// do on a node what is for the executor. Configuration refuses such names.
fn is_host_name(name: &str) -> bool {
    !is_template(name) && !means_executor(name)
}

/// A node or a group of the job has a name that playbooks have for something else.
#[derive(Debug, thiserror::Error)]
pub enum WrongName {
    /// They call the executor so.
    #[error(
        "the job's nodeset has a {kind} named \"{name}\", and that is what playbooks call the executor: give it another name"
    )]
    Executor {
        /// What has it.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Ansible has the group itself, and reads no inventory in which there is another one.
    #[error(
        "the job's nodeset has a group named \"all\", and Ansible has one of all nodes anyway: give it another name, or leave it out"
    )]
    AllNodes,
}

/// Checks that no node and no group stands where playbooks mean something else. Configuration
/// refuses these names; jobs that were frozen before it did come here.
pub fn check_names(job: &Job<'_>) -> Result<(), WrongName> {
    let nodes = job.nodes.iter().flat_map(|node| &node.names).map(|name| ("node", name));
    let groups = || nodeset(job).groups.iter().map(|group| ("group", &group.name));
    if let Some((kind, name)) = nodes.chain(groups()).find(|(_, name)| means_executor(name)) {
        return Err(WrongName::Executor { kind, name: name.clone() });
    }
    if groups().any(|(_, name)| name == ALL_NODES) { Err(WrongName::AllNodes) } else { Ok(()) }
}

/// How the job's own variables stand in an inventory.
#[derive(Debug, Clone, Copy)]
pub enum JobVars<'a> {
    /// As written: templates are expanded where they are used.
    AsWritten,
    /// As written, for the run that expands them: what the playbooks after it do not see is not
    /// there.
    ToExpand,
    /// As they were expanded before the first playbook, per host (`localhost` included).
    Frozen(&'a BTreeMap<String, Map<String, Value>>),
}

/// Returns the inventory in Ansible's YAML structure, as JSON, which Ansible reads several times
/// faster.
///
/// `interpreters` names the Python of hosts where it was looked for; `unreachable` the hosts that
/// have been lost so far.
pub fn inventory(
    job: &Job<'_>,
    jobdir: &Jobdir,
    vars: JobVars<'_>,
    interpreters: &BTreeMap<String, String>,
    unreachable: &BTreeSet<String>,
) -> Value {
    let all_hosts = hosts(job);
    let mut entries = Map::new();
    let (on_node, everywhere) = match vars {
        JobVars::AsWritten => (Reach::Harmless, Reach::Harmless),
        JobVars::ToExpand | JobVars::Frozen(_) => (Reach::OneNode, Reach::Everywhere),
    };
    for host in &all_hosts {
        let mut of_host = match vars {
            JobVars::AsWritten | JobVars::ToExpand => {
                job.job.host_vars.get(host.name).cloned().unwrap_or_default()
            }
            JobVars::Frozen(frozen) => frozen_for(frozen, host.name),
        };
        restrict(&mut of_host, on_node);
        // Last, so that nothing above says where or as whom a playbook logs in.
        of_host.extend(access(host, interpreters));
        entries.insert(host.name.to_owned(), Value::Object(of_host));
    }
    let mut all_vars = to_map(unsafe_texts(Value::Object(job.inherited.data.clone())));
    match vars {
        JobVars::AsWritten | JobVars::ToExpand => all_vars.extend(job.job.vars.clone()),
        // The implicit localhost is in no group, but takes the variables of `all`.
        JobVars::Frozen(frozen) => all_vars.extend(frozen_for(frozen, "localhost")),
    }
    restrict(&mut all_vars, everywhere);
    // Hosts override it; what runs on the executor works in its work directory.
    all_vars.insert("zuul_user_dir".to_owned(), json!(jobdir.work));
    let mut groups = Map::new();
    for group in nodeset(job).groups.iter().filter(|group| is_host_name(&group.name)) {
        let members: Map<String, Value> =
            group.nodes.iter().map(|name| (name.clone(), Value::Null)).collect();
        let mut entry = to_map(json!({ "hosts": members }));
        if let (JobVars::AsWritten | JobVars::ToExpand, Some(vars)) =
            (vars, job.job.group_vars.get(&group.name))
        {
            let mut vars = vars.clone();
            restrict(&mut vars, on_node);
            entry.insert("vars".to_owned(), Value::Object(vars));
        }
        groups.insert(group.name.clone(), Value::Object(entry));
    }
    let lost: Map<String, Value> =
        unreachable.iter().map(|name| (name.clone(), json!({}))).collect();
    groups.insert("zuul_unreachable".to_owned(), json!({ "hosts": lost }));
    json!({ "all": { "hosts": entries, "vars": all_vars, "children": groups } })
}

fn frozen_for(frozen: &BTreeMap<String, Map<String, Value>>, host: &str) -> Map<String, Value> {
    to_map(unsafe_texts(Value::Object(frozen.get(host).cloned().unwrap_or_default())))
}

/// Returns the nodeset that the nodes were given for.
pub fn nodeset<'a>(job: &Job<'a>) -> &'a NodeSet {
    static NONE: NodeSet = NodeSet { name: String::new(), nodes: Vec::new(), groups: Vec::new() };
    let given = || job.nodes.iter().map(|node| &node.names);
    let fits = |set: &&NodeSet| {
        set.nodes.len() == job.nodes.len() && set.nodes.iter().map(|node| &node.names).eq(given())
    };
    job.job.nodesets.iter().find(fits).or(job.job.nodesets.first()).unwrap_or(&NONE)
}

/// Returns `inventory` with the `zuul` dictionary as YAML for people and tools: what
/// `log-inventory` keeps.
pub fn for_people(inventory: &Value, zuul: &Map<String, Value>) -> String {
    let mut inventory = inventory.clone();
    if let Some(vars) = inventory.pointer_mut("/all/vars").and_then(Value::as_object_mut) {
        vars.insert("zuul".to_owned(), unsafe_texts(Value::Object(zuul.clone())));
    }
    serde_yaml::to_string(&tagged(inventory)).unwrap_or_default()
}

/// Every login variable of a host comes from us.
fn access(host: &Host<'_>, interpreters: &BTreeMap<String, String>) -> Map<String, Value> {
    let node = host.node;
    let python = node.python_path.as_deref().filter(|path| *path != "auto");
    let python =
        python.or_else(|| interpreters.get(host.name).map(String::as_str)).unwrap_or("auto");
    let place = json!({
        "label": node.label,
        "az": node.az,
        "cloud": node.provider,
        "provider": node.provider,
        "region": node.region,
        "host_id": null,
        "external_id": node.external_id,
        "slot": null,
        "interface_ip": node.interface_ip,
        "public_ipv4": node.public_ipv4,
        "private_ipv4": node.private_ipv4.as_ref().or(node.public_ipv4.as_ref()),
        "public_ipv6": null,
        "private_ipv6": null,
        "node_properties": {},
    });
    let mut zuul_node = to_map(place.clone());
    zuul_node.extend(to_map(
        json!({ "uuid": node.id, "reuse": false, "private_ipv4": node.private_ipv4 }),
    ));
    to_map(json!({
        "ansible_connection": "ssh",
        "ansible_host": node.interface_ip,
        "ansible_port": node.ssh_port,
        "ansible_user": node.username,
        "ansible_python_interpreter": python,
        "nodepool": place,
        "zuul_node": zuul_node,
        "zuul_user_dir": "{{ ansible_user_dir }}",
    }))
}

/// JSON's form of an unsafe text, in YAML's: a tag.
fn tagged(value: Value) -> serde_yaml::Value {
    match value {
        Value::Object(entries) => match entries.get("__ansible_unsafe") {
            Some(Value::String(text)) if entries.len() == 1 => {
                serde_yaml::Value::Tagged(Box::new(TaggedValue {
                    tag: Tag::new("unsafe"),
                    value: serde_yaml::Value::String(text.clone()),
                }))
            }
            _ => serde_yaml::Value::Mapping(
                entries
                    .into_iter()
                    .map(|(key, item)| (serde_yaml::Value::String(key), tagged(item)))
                    .collect(),
            ),
        },
        Value::Array(items) => serde_yaml::Value::Sequence(items.into_iter().map(tagged).collect()),
        other => serde_yaml::to_value(other).unwrap_or(serde_yaml::Value::Null),
    }
}
