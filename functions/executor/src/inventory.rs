//! Builds the Ansible inventory: nodes, groups and variables (Z7.1).

use crate::frozen_vars::{self, FrozenVars};
use crate::job::JobAttempt;
use crate::jobdir::Jobdir;
use crate::restricted_vars::{VarScope, restrict};
use crate::vars::{UNSAFE, is_template, mark_all_unsafe, mark_unsafe, to_map};
use serde_json::{Map, Value, json};
use serde_yaml::value::{Tag, TaggedValue};
use sluice_model::job::{ALL_NODES, NodeSet, is_path_outwards, names_executor};
use sluice_model::node::NodeAccess;
use std::collections::{BTreeMap, BTreeSet};

/// A host of the inventory. A node with several names is several hosts.
#[derive(Debug, Clone)]
pub struct InventoryHost<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its node.
    pub node: &'a NodeAccess,
}

/// Returns the hosts of the build, one for each name of each node, in the nodeset's order. Names
/// that contain a template, mean the executor, such as `localhost`, or lead out of a directory,
/// such as `../x`, are left out.
pub fn hosts<'a>(job: &JobAttempt<'a>) -> Vec<InventoryHost<'a>> {
    let named = |node: &'a NodeAccess| {
        node.names
            .iter()
            .filter(|name| is_host_name(name))
            .map(move |name| InventoryHost { name, node })
    };
    job.nodes.iter().flat_map(named).collect()
}

/// Returns whether a name is safe as a host or group: it contains no template, does not mean the
/// executor, as `localhost` does, and is no path out of a directory. Ansible expands templates in
/// these names even in trusted playbooks, a node named like the executor would receive the
/// executor's tasks, and playbooks name directories by their hosts. The configuration refuses such
/// names, too.
fn is_host_name(name: &str) -> bool {
    !is_template(name) && !names_executor(name) && !is_path_outwards(name)
}

/// A node or group of the job has a name that is reserved in playbooks.
#[derive(Debug, thiserror::Error)]
pub enum ReservedName {
    /// The name means the executor.
    #[error(
        "the job's nodeset has a {kind} named \"{name}\", which is reserved for the executor: give it another name"
    )]
    Executor {
        /// "node" or "group".
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Ansible's built-in group of all nodes; an inventory must not define it.
    #[error(
        "the job's nodeset has a group named \"all\", which Ansible defines itself: rename or remove it"
    )]
    AllNodes,
}

/// Checks that no node and no group is named like the executor, as `localhost` is, and that no
/// group is called `all`. The first such name is the error. The configuration refuses these names
/// too; this check protects the executor.
pub fn check_names(job: &JobAttempt<'_>) -> Result<(), ReservedName> {
    let nodes = job.nodes.iter().flat_map(|node| &node.names).map(|name| ("node", name));
    let groups = || nodeset(job).groups.iter().map(|group| ("group", &group.name));
    if let Some((kind, name)) = nodes.chain(groups()).find(|(_, name)| names_executor(name)) {
        return Err(ReservedName::Executor { kind, name: name.clone() });
    }
    if groups().any(|(_, name)| name == ALL_NODES) { Err(ReservedName::AllNodes) } else { Ok(()) }
}

/// In which form the job's own variables are in an inventory.
#[derive(Debug, Clone, Copy)]
pub enum JobVars<'a> {
    /// As written: templates are expanded where they are used.
    AsWritten,
    /// As written, but without restricted variables, for the run that expands them.
    ToExpand,
    /// Expanded before the first playbook, per host (including `localhost`).
    Frozen(&'a BTreeMap<String, Map<String, Value>>),
}

/// Returns an inventory as JSON in the structure of Ansible's YAML, with hosts, their connection
/// data, groups, the job's variables, and the data that parent jobs returned, which job variables
/// override. `vars` selects the form of the job's variables; frozen ones are listed by host, those
/// of `localhost` for all, with the written ones in `unsafe_vars`, and the nodeset's groups then
/// have none. Variables that a job may not set in this form are left out, as are hosts and groups
/// with unsafe names; the members of a group are taken as configured. `interpreters` are Python
/// paths by host name, used where the node's label configures none. The hosts in `unreachable`,
/// which an earlier playbook lost, form the group `zuul_unreachable`.
///
/// Ansible parses JSON faster than other YAML.
pub fn inventory(
    job: &JobAttempt<'_>,
    jobdir: &Jobdir,
    vars: JobVars<'_>,
    interpreters: &BTreeMap<String, String>,
    unreachable: &BTreeSet<String>,
) -> Value {
    let all_hosts = hosts(job);
    let mut entries = Map::new();
    let (on_node, everywhere) = match vars {
        JobVars::AsWritten => (VarScope::Unprivileged, VarScope::Unprivileged),
        JobVars::ToExpand | JobVars::Frozen(_) => (VarScope::OneNode, VarScope::Everywhere),
    };
    let original = originals(job, vars, &all_hosts);
    for host in &all_hosts {
        let mut of_host = match vars {
            JobVars::AsWritten | JobVars::ToExpand => {
                job.job.host_vars.get(host.name).cloned().unwrap_or_default()
            }
            JobVars::Frozen(frozen) => frozen_for(frozen, host.name),
        };
        restrict(&mut of_host, on_node);
        // Last, so that job variables cannot override the address or the login.
        of_host.extend(executor_vars(host, interpreters));
        of_host.extend(original_for(&original, host.name));
        entries.insert(host.name.to_owned(), Value::Object(of_host));
    }
    let mut all_vars = mark_all_unsafe(job.inherited.data.clone());
    match vars {
        JobVars::AsWritten | JobVars::ToExpand => all_vars.extend(job.job.vars.clone()),
        // The implicit localhost is in no group, but takes the variables of `all`.
        JobVars::Frozen(frozen) => all_vars.extend(frozen_for(frozen, "localhost")),
    }
    restrict(&mut all_vars, everywhere);
    all_vars.extend(original_for(&original, "localhost"));
    // Hosts override it; tasks on the executor use the work directory.
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

/// Returns the job's variables of each host and of `localhost` as they are written, where playbooks
/// see expanded ones; otherwise none.
fn originals(job: &JobAttempt<'_>, vars: JobVars<'_>, hosts: &[InventoryHost<'_>]) -> FrozenVars {
    let names: Vec<&str> = hosts.iter().map(|host| host.name).collect();
    match vars {
        JobVars::Frozen(_) => frozen_vars::literal(job, &names),
        JobVars::AsWritten | JobVars::ToExpand => FrozenVars::new(),
    }
}

/// Returns the variable `unsafe_vars` of a host: its job variables as they are written, of which no
/// template is expanded. Nothing if there are no originals.
fn original_for(original: &FrozenVars, host: &str) -> Option<(String, Value)> {
    let written = original.get(host)?.clone();
    Some(("unsafe_vars".to_owned(), mark_unsafe(Value::Object(written))))
}

/// Returns the expanded job variables of a host, marked as unsafe, so that Ansible does not expand
/// them again; empty if it has none.
fn frozen_for(frozen: &BTreeMap<String, Map<String, Value>>, host: &str) -> Map<String, Value> {
    mark_all_unsafe(frozen.get(host).cloned().unwrap_or_default())
}

/// Returns the first of the job's nodesets whose node names are those of the build's nodes, in
/// order. If none matches, returns the job's first nodeset; without nodesets, an empty one.
pub fn nodeset<'a>(job: &JobAttempt<'a>) -> &'a NodeSet {
    static NONE: NodeSet = NodeSet { name: String::new(), nodes: Vec::new(), groups: Vec::new() };
    let given = || job.nodes.iter().map(|node| &node.names);
    let fits = |set: &&NodeSet| {
        set.nodes.len() == job.nodes.len() && set.nodes.iter().map(|node| &node.names).eq(given())
    };
    job.job.nodesets.iter().find(fits).or(job.job.nodesets.first()).unwrap_or(&NONE)
}

/// Returns `inventory` as YAML text for the logs, with the dictionary `zuul` added to the variables
/// of all hosts. Texts that Ansible could expand and must not get the tag `!unsafe`. Empty if it
/// cannot be written as YAML.
pub fn to_readable_yaml(inventory: &Value, zuul: &Map<String, Value>) -> String {
    let mut inventory = inventory.clone();
    if let Some(vars) = inventory.pointer_mut("/all/vars").and_then(Value::as_object_mut) {
        vars.insert("zuul".to_owned(), mark_unsafe(Value::Object(zuul.clone())));
    }
    serde_yaml::to_string(&tagged(inventory, Expansion::Allowed)).unwrap_or_default()
}

/// Returns the variables of a host that the executor defines: Ansible's connection variables,
/// `nodepool`, `zuul_node` and `zuul_user_dir`. The Python path is that of the node's label,
/// otherwise that in `interpreters`, otherwise `auto`.
fn executor_vars(
    host: &InventoryHost<'_>,
    interpreters: &BTreeMap<String, String>,
) -> Map<String, Value> {
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
        "public_ipv6": node.public_ipv6,
        "private_ipv6": null,
        "node_properties": {},
    });
    let mut zuul_node = to_map(place.clone());
    zuul_node.extend(to_map(
        json!({ "uuid": node.id, "reuse": false, "private_ipv4": node.private_ipv4 }),
    ));
    to_map(json!({
        "ansible_connection": "ssh",
        "ansible_host": mark_unsafe(json!(node.interface_ip)),
        "ansible_port": node.ssh_port,
        "ansible_user": mark_unsafe(json!(node.username)),
        "ansible_python_interpreter": mark_unsafe(json!(python)),
        "nodepool": mark_unsafe(place),
        "zuul_node": mark_unsafe(Value::Object(zuul_node)),
        "zuul_user_dir": "{{ ansible_user_dir }}",
    }))
}

/// Whether Ansible may expand a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expansion {
    /// It may: the text is a job's variable.
    Allowed,
    /// It must not.
    Forbidden,
}

/// Converts JSON to YAML. An object whose only key is [`UNSAFE`] becomes its value, as do such
/// objects in it. There, and everywhere if `expansion` is forbidden, a text that Ansible could
/// expand gets the tag `!unsafe`.
fn tagged(value: Value, expansion: Expansion) -> serde_yaml::Value {
    match value {
        Value::Object(mut entries) => match entries.get_mut(UNSAFE).map(Value::take) {
            Some(value) if entries.len() == 1 => tagged(value, Expansion::Forbidden),
            taken => {
                entries.extend(taken.map(|value| (UNSAFE.to_owned(), value)));
                let entries = entries.into_iter();
                serde_yaml::Value::Mapping(
                    entries
                        .map(|(key, item)| {
                            (serde_yaml::Value::String(key), tagged(item, expansion))
                        })
                        .collect(),
                )
            }
        },
        Value::Array(items) => serde_yaml::Value::Sequence(
            items.into_iter().map(|item| tagged(item, expansion)).collect(),
        ),
        Value::String(text) if expansion == Expansion::Forbidden && is_template(&text) => {
            let (tag, value) = (Tag::new("unsafe"), serde_yaml::Value::String(text));
            serde_yaml::Value::Tagged(Box::new(TaggedValue { tag, value }))
        }
        other => serde_yaml::to_value(other).unwrap_or(serde_yaml::Value::Null),
    }
}
