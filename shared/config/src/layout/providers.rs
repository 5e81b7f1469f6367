//! Providers of nodes with image, flavor, label and section applied in order (L3.2).

use super::{Defined, Layout};
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::objects::{ObjectKind, ProviderObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::{ConnectionName, LabelName, ProviderName, TenantName};
use std::collections::BTreeMap;

/// A provider with everything resolved. Providers stand in the order of the tenant's configuration, which is their preference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// Its short name.
    pub name: ProviderName,
    /// Its name across tenants: the canonical name of its project, a slash and the short name (L3.4).
    pub canonical_name: String,
    /// Its tenant.
    pub tenant: TenantName,
    /// The connection to its cloud; `None` for nodes that always exist.
    pub connection: Option<ConnectionName>,
    /// The name of its section across tenants.
    pub section: String,
    /// The cloud's region.
    pub region: Option<String>,
    /// Zones it may use; empty leaves it to the cloud.
    pub zones: Vec<String>,
    /// Limits of its own (`instances`, `cores`, `ram` …).
    pub quota: BTreeMap<String, u64>,
    /// Limits it shares with all providers of its section (L3.11).
    pub section_quota: Option<SectionQuota>,
    /// Seconds a node may take from the launch to being usable; `None` for no limit.
    pub launch_timeout_seconds: Option<u64>,
    /// Launches of one node before its request is declined.
    pub launch_attempts: u32,
    /// What it offers, in order.
    pub labels: Vec<LabelConfig>,
    /// Nodes that always exist.
    pub nodes: Vec<StaticNode>,
    /// Attributes without a field of their own, as configured.
    pub attributes: Map<String, Json>,
}

/// Limits shared by all providers of a section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionQuota {
    /// The section's name across tenants: who counts together.
    pub section: String,
    /// The limits.
    pub limits: BTreeMap<String, u64>,
}

/// A label as one provider makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelConfig {
    /// Its short name.
    pub name: LabelName,
    /// Its name across tenants.
    pub canonical_name: String,
    /// The image's name across tenants; `None` for static nodes.
    pub image: Option<String>,
    /// Whether the image is built here (`zuul`), not the cloud's own.
    pub image_is_built: bool,
    /// The cloud's id of the image.
    pub image_id: Option<String>,
    /// The cloud's name of the image.
    pub image_name: Option<String>,
    /// The flavor's short name.
    pub flavor: Option<String>,
    /// The cloud's name of the machine's size.
    pub instance_type: Option<String>,
    /// The user to log in as.
    pub username: String,
    /// Python's path on the node; `auto` lets Ansible look.
    pub python_path: String,
    /// `ssh`, `winrm` …
    pub connection_type: String,
    /// The port to log in at.
    pub connection_port: u16,
    /// The shell's type, for Ansible.
    pub shell_type: Option<String>,
    /// Nodes to keep ready.
    pub min_ready: u32,
    /// Greatest number in the tenant.
    pub max_nodes: Option<u32>,
    /// Seconds after which an unused ready node is replaced; 0 for never.
    pub max_ready_age_seconds: u64,
    /// Seconds after which a node that can be used again is deleted; 0 for never.
    pub max_age_seconds: u64,
    /// Seconds from the launch until the node answers.
    pub boot_timeout_seconds: u64,
    /// The cloud's name of the key put on the node.
    pub key_name: Option<String>,
    /// Whether host keys are gathered and checked.
    pub host_key_checking: bool,
    /// Subnets to choose from.
    pub subnet_ids: Vec<String>,
    /// Security groups.
    pub security_group_ids: Vec<String>,
    /// Tags put on the node.
    pub tags: BTreeMap<String, String>,
    /// User data for the instance.
    pub userdata: Option<String>,
    /// The disk's size in GiB.
    pub volume_size_gib: Option<u32>,
    /// Builds that may share one node.
    pub slots: u32,
    /// Whether a used node becomes ready again.
    pub reuse: bool,
    /// Everything that applies to it, merged, as configured.
    pub attributes: Map<String, Json>,
}

/// A node that always exists (Z1.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticNode {
    /// Its host name.
    pub name: String,
    /// Short names of its labels.
    pub labels: Vec<String>,
    /// Its host keys.
    pub host_keys: Vec<String>,
    /// The user to log in as.
    pub username: String,
    /// The port to log in at.
    pub connection_port: u16,
}

/// Depth of sections that inherit from sections.
const SECTIONS_MAX: usize = 20;
/// What describes a provider or section itself and is no part of a label.
const NOT_OF_LABELS: [&str; 17] = [
    "name",
    "description",
    "parent",
    "abstract",
    "section",
    "connection",
    "region",
    "launch-timeout",
    "launch-attempts",
    "object-storage",
    "resource-limits",
    "images",
    "flavors",
    "labels",
    "nodes",
    "include-all-node-labels",
    "min-ready",
];

/// Returns every provider resolved, and what is wrong.
pub(super) fn resolve(layout: &Layout) -> (Vec<ProviderConfig>, Vec<ConfigError>) {
    let mut resolver = Resolver { layout, tenant: &layout.tenant().name, errors: Vec::new() };
    let list = layout.standing(ObjectKind::Provider);
    let providers = list.into_iter().filter_map(|defined| resolver.provider(defined)).collect();
    (providers, resolver.errors)
}

struct Resolver<'o> {
    layout: &'o Layout,
    tenant: &'o TenantName,
    errors: Vec<ConfigError>,
}

type Found<'o> = (Defined<'o, ProviderObject>, &'o ProviderObject);

impl<'o> Resolver<'o> {
    fn find(&self, kind: ObjectKind, name: &str) -> Option<Found<'o>> {
        self.layout.one(kind, name).map(|defined| (defined, defined.object))
    }

    fn error(&mut self, (defined, object): Found<'_>, word: &str, attribute: &str, kind: ProblemKind, message: String) {
        let problem = Problem::new(kind, object.place.start, object.place.end, message)
            .in_stanza(&format!("{word} {}", object.name))
            .about(attribute);
        self.errors.push(defined.source().error(problem));
    }

    fn provider(&mut self, defined: Defined<'o, ProviderObject>) -> Option<ProviderConfig> {
        let provider = defined.object;
        let at = (defined, provider);
        let chain = self.sections(at)?;
        let (nearest, section) = *chain.first()?;
        if section.attributes.get("abstract") == Some(&Json::Bool(true)) {
            self.error(
                at,
                "provider",
                "section",
                ProblemKind::NotPermitted,
                format!("The section \"{}\" is abstract", section.name),
            );
            return None;
        }
        let mut of_section = Map::new();
        let mut limits = Map::new();
        for (_, object) in chain.iter().rev() {
            let mut attributes = object.attributes.clone();
            // Whether a section is abstract is its own affair.
            attributes.remove("abstract");
            if let Some(Json::Object(own)) = attributes.remove("resource-limits") {
                limits.extend(own);
            }
            merge(&mut of_section, attributes);
        }
        let mut whole = of_section.clone();
        merge(&mut whole, provider.attributes.clone());
        let labels = self.labels(at, &of_section);
        let text = |name: &str| whole.get(name).and_then(Json::as_str).map(str::to_owned);
        Some(ProviderConfig {
            name: provider.name.as_str().into(),
            canonical_name: canonical(defined, &provider.name),
            tenant: self.tenant.clone(),
            connection: text("connection").map(ConnectionName),
            section: canonical(nearest, &section.name),
            region: text("region"),
            zones: texts(&whole, "az"),
            quota: counts(provider.attributes.get("resource-limits")),
            section_quota: (!limits.is_empty()).then(|| SectionQuota {
                section: canonical(nearest, &section.name),
                limits: counts(Some(&Json::Object(limits))),
            }),
            launch_timeout_seconds: whole.get("launch-timeout").and_then(Json::as_u64),
            launch_attempts: count(&whole, "launch-attempts").unwrap_or(3),
            labels,
            nodes: static_nodes(&whole),
            attributes: whole
                .into_iter()
                .filter(|(name, _)| !matches!(name.as_str(), "images" | "flavors" | "labels" | "nodes"))
                .collect(),
        })
    }

    /// Returns the section of a provider and those it inherits from, the nearest first.
    fn sections(&mut self, at: Found<'o>) -> Option<Vec<Found<'o>>> {
        let mut chain: Vec<Found<'o>> = Vec::new();
        let mut wanted = at.1.attributes.get("section")?.as_str()?.to_owned();
        loop {
            let Some(found) = self.find(ObjectKind::Section, &wanted) else {
                let (from, word, attribute) =
                    chain.last().map_or((at, "provider", "section"), |section| (*section, "section", "parent"));
                self.error(
                    from,
                    word,
                    attribute,
                    ProblemKind::UnknownName,
                    format!("The section \"{wanted}\" was not found."),
                );
                return None;
            };
            if chain.len() >= SECTIONS_MAX || chain.iter().any(|(_, section)| section.name == found.1.name) {
                self.error(
                    found,
                    "section",
                    "parent",
                    ProblemKind::Conflict,
                    format!("The section \"{wanted}\" inherits from itself"),
                );
                return None;
            }
            chain.push(found);
            match found.1.attributes.get("parent").and_then(Json::as_str) {
                Some(parent) => parent.clone_into(&mut wanted),
                None => return Some(chain),
            }
        }
    }

    fn labels(&mut self, at: Found<'o>, of_section: &Map<String, Json>) -> Vec<LabelConfig> {
        let provider = &at.1.attributes;
        let mut names = names_in(provider, "labels");
        if names.is_empty() {
            names = names_in(of_section, "labels");
        }
        if provider.get("include-all-node-labels") == Some(&Json::Bool(true)) {
            names.extend(
                static_nodes(of_section).into_iter().chain(static_nodes(provider)).flat_map(|node| node.labels),
            );
        }
        let mut labels: Vec<LabelConfig> = Vec::new();
        for name in names {
            if labels.iter().any(|label| label.name.as_str() == name) {
                continue;
            }
            match self.find(ObjectKind::Label, &name) {
                Some(label) => labels.push(self.label(at, of_section, label)),
                None => self.error(
                    at,
                    "provider",
                    "labels",
                    ProblemKind::UnknownName,
                    format!("The label \"{name}\" was not found."),
                ),
            }
        }
        labels
    }

    fn label(&mut self, at: Found<'o>, of_section: &Map<String, Json>, (defined, label): Found<'o>) -> LabelConfig {
        let provider = &at.1.attributes;
        let layers = [of_section, provider];
        let choice = |what: &str| {
            let entries = layers.iter().flat_map(|layer| entries(layer, "labels", &label.name));
            let chosen =
                entries.filter_map(|entry| entry.get(what)).chain(label.attributes.get(what)).filter_map(Json::as_str);
            // Entries come from the outermost to the innermost, the label itself is outermost of all.
            let mut all: Vec<&str> = chosen.collect();
            all.rotate_right(usize::from(label.attributes.contains_key(what)));
            all.last().map(|text| (*text).to_owned())
        };
        let image_name =
            choice("image").or_else(|| self.find(ObjectKind::Image, &label.name).map(|_| label.name.clone()));
        let flavor_name = choice("flavor");
        let image = image_name.as_deref().and_then(|name| self.find(ObjectKind::Image, name));
        let flavor = flavor_name.as_deref().and_then(|name| self.find(ObjectKind::Flavor, name));
        let mut merged = Map::new();
        for object in [image, flavor].into_iter().flatten() {
            merge(&mut merged, of_label(&object.1.attributes));
        }
        merge(&mut merged, of_label(&label.attributes));
        for layer in layers {
            for defaults in ["image-defaults", "flavor-defaults", "label-defaults"] {
                if let Some(Json::Object(defaults)) = layer.get(defaults) {
                    merge(&mut merged, of_label(defaults));
                }
            }
            merge(&mut merged, of_label(layer));
            let parts = [("images", &image_name), ("flavors", &flavor_name), ("labels", &Some(label.name.clone()))];
            for (list, name) in parts {
                for entry in name.iter().flat_map(|name| entries(layer, list, name)) {
                    merge(&mut merged, of_label(entry));
                }
            }
        }
        let cloud = of_section.get("connection").is_some_and(Json::is_string)
            || provider.get("connection").is_some_and(Json::is_string);
        if cloud && (image.is_none() || flavor_name.is_none()) {
            let missing = if image.is_none() { "image" } else { "flavor" };
            let message = format!(
                "The label \"{}\" has no {missing} here, so this provider declines requests for it",
                label.name
            );
            let problem = Problem::new(ProblemKind::UnknownName, at.1.place.start, at.1.place.end, message);
            let problem = problem.in_stanza(&format!("provider {}", at.1.name)).about("labels").as_warning();
            self.errors.push(at.0.source().error(problem));
        }
        let min_ready = count(&label.attributes, "min-ready").unwrap_or(0);
        typed(
            merged,
            LabelIdentity {
                name: label.name.as_str().into(),
                canonical_name: canonical(defined, &label.name),
                image: image.map(|(defined, image)| canonical(defined, &image.name)),
                image_is_built: image
                    .is_some_and(|(_, image)| image.attributes.get("type").and_then(Json::as_str) == Some("zuul")),
                flavor: flavor_name,
                min_ready,
            },
        )
    }
}

struct LabelIdentity {
    name: LabelName,
    canonical_name: String,
    image: Option<String>,
    image_is_built: bool,
    flavor: Option<String>,
    min_ready: u32,
}

/// Puts the merged attributes of a label into their fields.
fn typed(merged: Map<String, Json>, identity: LabelIdentity) -> LabelConfig {
    let text = |name: &str| merged.get(name).and_then(Json::as_str).map(str::to_owned);
    let seconds = |name: &str| merged.get(name).and_then(Json::as_u64);
    let flag = |name: &str| merged.get(name).and_then(Json::as_bool);
    let connection_type = text("connection-type").unwrap_or_else(|| "ssh".to_owned());
    let standard_port = if connection_type == "winrm" { 5986 } else { 22 };
    let tags = merged.get("tags").and_then(Json::as_object).into_iter().flatten();
    LabelConfig {
        name: identity.name,
        canonical_name: identity.canonical_name,
        image: identity.image,
        image_is_built: identity.image_is_built,
        image_id: text("image-id"),
        image_name: text("image-name"),
        flavor: identity.flavor,
        instance_type: text("instance-type").or_else(|| text("flavor-name")),
        username: text("username").unwrap_or_else(|| "zuul".to_owned()),
        python_path: text("python-path").unwrap_or_else(|| "auto".to_owned()),
        connection_port: seconds("connection-port").and_then(|port| u16::try_from(port).ok()).unwrap_or(standard_port),
        connection_type,
        shell_type: text("shell-type"),
        min_ready: identity.min_ready,
        max_nodes: count(&merged, "max-nodes"),
        max_ready_age_seconds: seconds("max-ready-age").unwrap_or(0),
        max_age_seconds: seconds("max-age").unwrap_or(0),
        boot_timeout_seconds: seconds("boot-timeout").unwrap_or(300),
        key_name: text("key-name"),
        host_key_checking: flag("host-key-checking").unwrap_or(true),
        subnet_ids: texts(&merged, "subnet-ids"),
        security_group_ids: texts(&merged, "security-group-ids"),
        tags: tags
            .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect(),
        userdata: text("userdata"),
        volume_size_gib: count(&merged, "volume-size"),
        slots: count(&merged, "slots").unwrap_or(1),
        reuse: flag("reuse").unwrap_or(false),
        attributes: merged,
    }
}

fn canonical(defined: Defined<'_, ProviderObject>, name: &str) -> String {
    format!("{}/{name}", defined.source().project)
}

/// Scalars override, mappings merge, lists concatenate (L3.2).
fn merge(into: &mut Map<String, Json>, from: Map<String, Json>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Json::Object(old)), Json::Object(new)) => merge(old, new),
            (Some(Json::Array(old)), Json::Array(new)) => {
                for member in new {
                    if !old.contains(&member) {
                        old.push(member);
                    }
                }
            }
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

fn of_label(attributes: &Map<String, Json>) -> Map<String, Json> {
    let concerns = |name: &str| {
        !NOT_OF_LABELS.contains(&name) && !name.ends_with("-defaults") && !matches!(name, "image" | "flavor" | "type")
    };
    attributes.iter().filter(|(name, _)| concerns(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the entries of a list that bear a name.
fn entries<'j>(attributes: &'j Map<String, Json>, list: &str, name: &str) -> Vec<&'j Map<String, Json>> {
    let list = attributes.get(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .filter_map(Json::as_object)
        .filter(|entry| entry.get("name").and_then(Json::as_str) == Some(name))
        .collect()
}

fn names_in(attributes: &Map<String, Json>, list: &str) -> Vec<String> {
    let list = attributes.get(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|entry| entry.get("name")?.as_str().map(str::to_owned)).collect()
}

fn texts(attributes: &Map<String, Json>, name: &str) -> Vec<String> {
    let list = attributes.get(name).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn count(attributes: &Map<String, Json>, name: &str) -> Option<u32> {
    attributes.get(name).and_then(Json::as_u64).and_then(|number| u32::try_from(number).ok())
}

fn counts(limits: Option<&Json>) -> BTreeMap<String, u64> {
    let limits = limits.and_then(Json::as_object).into_iter().flatten();
    limits.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

fn static_nodes(attributes: &Map<String, Json>) -> Vec<StaticNode> {
    let list = attributes.get("nodes").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts_of = |node: &Json, name: &str| node.as_object().map(|node| texts(node, name)).unwrap_or_default();
    list.iter()
        .filter_map(|node| {
            Some(StaticNode {
                name: node.get("name")?.as_str()?.to_owned(),
                labels: texts_of(node, "labels"),
                host_keys: texts_of(node, "host-key"),
                username: node.get("username").and_then(Json::as_str).unwrap_or("zuul").to_owned(),
                connection_port: node
                    .get("connection-port")
                    .and_then(Json::as_u64)
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(22),
            })
        })
        .collect()
}
