//! From the five objects to providers: inheritance of sections, the layers of each label, and what
//! is wrong with them. What they name is followed in `follow`.

mod follow;

use super::image::{self, ImageConfig, is_built};
use super::label::{LabelIdentity, typed};
use super::values::{
    canonical, count, counts, entries, merge, names_in, of_label, static_nodes, texts,
};
use super::{LabelConfig, ProviderConfig, SectionQuota};
use crate::connection::Driver;
use crate::error::{ConfigError, Diagnostic, DiagnosticKind, SuggestionBudget};
use crate::job::weight::of_map;
use crate::layout::{Definition, Layout};
use crate::objects::{ObjectKind, ProviderObject, Span};
use crate::yaml::Mark;
use serde_json::{Map, Value as Json};
use sluice_model::{ConnectionName, TenantName};
use std::collections::BTreeSet;

/// Depth of sections that inherit from sections.
const SECTIONS_MAX: usize = 20;
/// Greatest number of labels of one provider.
const LABELS_MAX: usize = 1_000;
/// What a label weighs that says nothing.
const LABEL_WEIGHT: usize = 1_024;
/// What the labels of all providers may weigh together, in about bytes: each has all of its
/// section's attributes.
const WEIGHT_MAX: usize = 64 << 20;
/// Attributes that only nodes of a cloud have.
const OF_CLOUDS_ONLY: [&str; 31] = [
    "region",
    "object-storage",
    "az",
    "volume-size",
    "volume-type",
    "iops",
    "throughput",
    "imds-http-tokens",
    "imds-support",
    "userdata",
    "security-group-ids",
    "subnet-ids",
    "iam-instance-profile",
    "kms-key-id",
    "instance-type",
    "flavor-name",
    "fleet",
    "dedicated-host",
    "ebs-optimized",
    "market-type",
    "nested-virtualization",
    "public-ipv4",
    "public-ipv6",
    "import-method",
    "image-format",
    "image-id",
    "image-name",
    "image-filters",
    "architecture",
    "ena-support",
    "config-drive",
];

/// Returns every provider resolved, and what is wrong. What could be read of objects with mistakes
/// of shape is followed as well.
pub(in crate::layout) fn resolve(layout: &Layout) -> (Vec<ProviderConfig>, Vec<ConfigError>) {
    let faulty_images = layout.faulty::<ProviderObject>(ObjectKind::Image);
    let mut resolver = Resolver {
        layout,
        tenant: &layout.tenant().name,
        errors: Vec::new(),
        left: WEIGHT_MAX,
        hints: SuggestionBudget::new(),
        faulty_images: faulty_images.into_iter().map(|image| image.object.name.as_str()).collect(),
    };
    for (kind, word) in [(ObjectKind::Section, "section"), (ObjectKind::Provider, "provider")] {
        let faulty = layout.faulty::<ProviderObject>(kind);
        // Of one that stands it is told where its sections are put together.
        if kind == ObjectKind::Provider {
            faulty.iter().for_each(|defined| resolver.section((*defined, defined.object)));
        }
        for defined in layout.accepted::<ProviderObject>(kind).into_iter().chain(faulty) {
            resolver.connection((defined, defined.object), word);
            if kind == ObjectKind::Section {
                resolver.parent((defined, defined.object));
                resolver.overridden((defined, defined.object));
            }
            resolver.lists((defined, defined.object), word);
            resolver.members((defined, defined.object), word);
        }
    }
    let labels = layout.accepted::<ProviderObject>(ObjectKind::Label).into_iter();
    let labels = labels.chain(layout.faulty(ObjectKind::Label));
    labels.for_each(|defined| resolver.parts((defined, defined.object)));
    let list = layout.accepted(ObjectKind::Provider);
    let providers = list.into_iter().filter_map(|defined| resolver.provider(defined)).collect();
    (providers, resolver.errors)
}

struct Resolver<'o> {
    layout: &'o Layout,
    tenant: &'o TenantName,
    errors: Vec<ConfigError>,
    /// What labels may still weigh.
    left: usize,
    hints: SuggestionBudget,
    /// The names of images with mistakes.
    faulty_images: BTreeSet<&'o str>,
}

type Found<'o> = (Definition<'o, ProviderObject>, &'o ProviderObject);

impl<'o> Resolver<'o> {
    fn find(&self, kind: ObjectKind, name: &str) -> Option<Found<'o>> {
        self.layout.one(kind, name).map(|defined| (defined, defined.object))
    }

    fn error(
        &mut self,
        at: Found<'_>,
        word: &str,
        attribute: &str,
        kind: DiagnosticKind,
        message: String,
    ) {
        let span = at.1.spans.of(attribute);
        self.put(
            at,
            word,
            span,
            Diagnostic::new(kind, Mark::default(), Mark::default(), message).about(attribute),
        );
    }

    /// Tells of a name that nothing bears: at the list's member where it is one, with the nearest
    /// name.
    fn unknown<'n>(
        &mut self,
        at: Found<'_>,
        word: &str,
        attribute: &str,
        (wrong, message): (&str, String),
        known: impl IntoIterator<Item = &'n str>,
    ) {
        let span = at.1.spans.of_member(attribute, wrong);
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, Mark::default(), Mark::default(), message);
        self.put(
            at,
            word,
            span,
            diagnostic.about(attribute).suggesting_within(&self.hints, wrong, known),
        );
    }

    fn put(
        &mut self,
        (defined, object): Found<'_>,
        word: &str,
        span: Option<Span>,
        diagnostic: Diagnostic,
    ) {
        let Span { start, end } = span.unwrap_or(object.span);
        let diagnostic = Diagnostic { start, end, ..diagnostic };
        let diagnostic = diagnostic
            .in_stanza(&format!("{word} {}", object.name))
            .from_stanza_at(object.span.start);
        self.errors.push(defined.source().error(diagnostic));
    }

    /// Returns whether a provider and its sections say one connection, and tells of a provider that
    /// says another one: with it whoever may write a provider could reach any connection of the
    /// system.
    fn keeps_connection(&mut self, at: Found<'o>, chain: &[Found<'o>]) -> bool {
        let mut said = chain.iter().filter_map(|(_, section)| section.attributes.get("connection"));
        let of_section = said.next();
        // Told at the section that says it.
        if said.any(|other| Some(other) != of_section) {
            return false;
        }
        let of_section = of_section.and_then(Json::as_str);
        let own = at.1.attributes.get("connection");
        if own.is_none_or(|own| own.as_str() == of_section) {
            return true;
        }
        let section = chain.first().map_or("", |(_, section)| section.name.as_str());
        let message = format!(
            "The connection of the section \"{section}\", {}, may not be overridden: remove \"connection\" from the provider, or name a section with the one you want",
            named(of_section)
        );
        self.error(at, "provider", "connection", DiagnosticKind::NotPermitted, message);
        false
    }

    /// Tells of what nodes of this kind cannot have: static ones nothing of a cloud, a cloud's no
    /// list of nodes (L3.10).
    fn kind_of_nodes(&mut self, at: Found<'o>, whole: &Map<String, Json>) {
        let connection = whole.get("connection").and_then(Json::as_str);
        let is_static = connection
            .is_none_or(|name| self.layout.connections().driver(name) == Some(Driver::Static));
        if !is_static {
            if whole.contains_key("nodes") {
                let message = "\"nodes\" may be given only where \"connection\" is null";
                self.error(
                    at,
                    "provider",
                    "nodes",
                    DiagnosticKind::NotPermitted,
                    message.to_owned(),
                );
            }
            return;
        }
        let lists = ["labels", "images", "flavors"].into_iter();
        let listed = lists
            .filter_map(|list| whole.get(list)?.as_array())
            .flatten()
            .filter_map(Json::as_object);
        let defaults = ["label-defaults", "image-defaults", "flavor-defaults"].into_iter();
        let defaults = defaults.filter_map(|name| whole.get(name)?.as_object());
        let layers: Vec<&Map<String, Json>> =
            std::iter::once(whole).chain(listed).chain(defaults).collect();
        for name in OF_CLOUDS_ONLY
            .into_iter()
            .filter(|name| layers.iter().any(|layer| layer.contains_key(*name)))
        {
            let message =
                format!("\"{name}\" is not for static nodes, and \"connection\" is null here");
            self.error(at, "provider", name, DiagnosticKind::NotPermitted, message);
        }
    }

    fn provider(&mut self, defined: Definition<'o, ProviderObject>) -> Option<ProviderConfig> {
        let provider = defined.object;
        let at = (defined, provider);
        let chain = self.sections(at)?;
        let (nearest, section) = *chain.first()?;
        let is_abstract = section.attributes.get("abstract") == Some(&Json::Bool(true));
        if is_abstract {
            let message = format!("The section \"{}\" is abstract", section.name);
            self.error(at, "provider", "section", DiagnosticKind::NotPermitted, message);
        }
        if !self.keeps_connection(at, &chain) || is_abstract {
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
        self.kind_of_nodes(at, &whole);
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
            images: self.images(at, &of_section, &labels),
            labels,
            bucket: whole
                .get("object-storage")
                .and_then(|storage| storage.get("bucket-name")?.as_str())
                .map(str::to_owned),
            nodes: static_nodes(&whole),
            attributes: whole
                .into_iter()
                .filter(|(name, _)| {
                    !matches!(name.as_str(), "images" | "flavors" | "labels" | "nodes")
                })
                .collect(),
        })
    }

    /// Returns the section of a provider and those it inherits from, the nearest first.
    fn sections(&mut self, at: Found<'o>) -> Option<Vec<Found<'o>>> {
        let mut chain: Vec<Found<'o>> = Vec::new();
        let mut wanted = at.1.attributes.get("section")?.as_str()?.to_owned();
        loop {
            let Some(found) = self.find(ObjectKind::Section, &wanted) else {
                // What a section inherits from is told there, whoever uses it.
                if chain.is_empty() {
                    self.section(at);
                }
                return None;
            };
            if chain.iter().any(|(_, section)| section.name == found.1.name) {
                return None;
            }
            if chain.len() >= SECTIONS_MAX {
                let message = format!(
                    "The section inherits from more than {SECTIONS_MAX} others, one from the next"
                );
                self.error(at, "provider", "section", DiagnosticKind::Conflict, message);
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
        // Lists concatenate (L3.2): what a section offers, all of its providers do.
        let mut names = names_in(of_section, "labels");
        names.extend(names_in(provider, "labels"));
        let listed: BTreeSet<String> = names.iter().cloned().collect();
        if provider.get("include-all-node-labels") == Some(&Json::Bool(true)) {
            names.extend(
                static_nodes(of_section)
                    .into_iter()
                    .chain(static_nodes(provider))
                    .flat_map(|node| node.labels),
            );
        }
        let mut labels: Vec<LabelConfig> = Vec::new();
        let mut known: BTreeSet<String> = BTreeSet::new();
        names.retain(|name| known.insert(name.clone()));
        if names.len() > LABELS_MAX {
            let message =
                format!("A provider has at most {LABELS_MAX} labels, and this one {}", names.len());
            self.error(at, "provider", "labels", DiagnosticKind::Conflict, message);
            names.truncate(LABELS_MAX);
        }
        for name in names {
            match self.find(ObjectKind::Label, &name) {
                // Told when it came to that.
                Some(_) if self.left == 0 => break,
                Some(label) => {
                    let label = self.label(at, of_section, label);
                    self.left = self.left.saturating_sub(LABEL_WEIGHT + of_map(&label.attributes));
                    labels.push(label);
                    if self.left == 0 {
                        let message = format!(
                            "The labels of the tenant's providers come to more than {} MiB; say less in sections that many labels share",
                            WEIGHT_MAX >> 20
                        );
                        self.error(at, "provider", "labels", DiagnosticKind::Conflict, message);
                    }
                }
                // Told where it is listed.
                None if listed.contains(&name) => {}
                None => {
                    let message = format!("The label \"{name}\" was not found.");
                    let known = self.layout.names(ObjectKind::Label);
                    self.unknown(at, "provider", "labels", (&name, message), known);
                }
            }
        }
        labels
    }

    /// Returns the images that a provider needs, each with every layer applied in order (L3.2).
    fn images(
        &self,
        at: Found<'o>,
        of_section: &Map<String, Json>,
        labels: &[LabelConfig],
    ) -> Vec<ImageConfig> {
        let layers = [of_section, &at.1.attributes];
        let mut names: BTreeSet<String> =
            layers.iter().flat_map(|layer| names_in(layer, "images")).collect();
        let of_labels =
            labels.iter().filter_map(|label| label.image.as_deref()?.rsplit('/').next());
        names.extend(of_labels.map(str::to_owned));
        let images = names.iter().filter_map(|name| self.find(ObjectKind::Image, name));
        let resolved = images.map(|(defined, object)| {
            let mut merged = object.attributes.clone();
            let mut part = PartOfLabel::new("image", Some(&object.name), Some(object));
            for layer in layers {
                if let Some(defaults) = part.defaults_in(layer) {
                    merge(&mut merged, of_label(defaults));
                }
                merge(&mut merged, of_label(layer));
                for entry in entries(layer, part.list, &object.name) {
                    if part.is_final != Final::Yes {
                        part.hear(entry);
                        let mut entry = entry.clone();
                        entry.remove("name");
                        merge(&mut merged, entry);
                    }
                }
                part.leave(layer);
            }
            image::typed(object, canonical(defined, &object.name), &merged)
        });
        resolved.collect()
    }

    fn label(
        &mut self,
        at: Found<'o>,
        of_section: &Map<String, Json>,
        (defined, label): Found<'o>,
    ) -> LabelConfig {
        let provider = &at.1.attributes;
        let layers = [of_section, provider];
        let choice = |what: &str| {
            let entries = layers.iter().flat_map(|layer| entries(layer, "labels", &label.name));
            let chosen = entries
                .filter_map(|entry| entry.get(what))
                .chain(label.attributes.get(what))
                .filter_map(Json::as_str);
            // Entries come from the outermost to the innermost, the label itself is outermost of
            // all.
            let mut all: Vec<&str> = chosen.collect();
            all.rotate_right(usize::from(label.attributes.contains_key(what)));
            all.last().map(|text| (*text).to_owned())
        };
        let image_name = choice("image")
            .or_else(|| self.find(ObjectKind::Image, &label.name).map(|_| label.name.clone()));
        let flavor_name = choice("flavor");
        let image = image_name.as_deref().and_then(|name| self.find(ObjectKind::Image, name));
        let flavor = flavor_name.as_deref().and_then(|name| self.find(ObjectKind::Flavor, name));
        let mut merged = Map::new();
        for object in [image, flavor].into_iter().flatten() {
            merge(&mut merged, of_label(&object.1.attributes));
        }
        merge(&mut merged, of_label(&label.attributes));
        let mut parts = [
            PartOfLabel::new("image", image_name.as_deref(), image.map(|(_, image)| image)),
            PartOfLabel::new("flavor", flavor_name.as_deref(), flavor.map(|(_, flavor)| flavor)),
            PartOfLabel::new("label", Some(&label.name), Some(label)),
        ];
        // A label binds itself to a zone by what is said of it alone, and of labels; the zones of
        // all nodes are the provider's affair. Several zones bind to none of them.
        let zone_in = |attributes: &Map<String, Json>| {
            Some(texts(attributes, "az")).filter(|all| all.len() == 1)?.pop()
        };
        let mut zone = zone_in(&label.attributes);
        for layer in layers {
            for part in &parts {
                if let Some(defaults) = part.defaults_in(layer) {
                    merge(&mut merged, of_label(defaults));
                    zone = zone_in(defaults).filter(|_| part.word == "label").or(zone);
                }
            }
            merge(&mut merged, of_label(layer));
            for part in &mut parts {
                let (name, list) = (part.name, part.list);
                for entry in name.into_iter().flat_map(|name| entries(layer, list, name)) {
                    if part.is_final == Final::Yes && entry.len() > 1 {
                        let name = part.name.unwrap_or_default();
                        let message = format!(
                            "The {} \"{name}\" is final and may not be given again here",
                            part.word
                        );
                        self.error(
                            at,
                            "provider",
                            part.list,
                            DiagnosticKind::NotPermitted,
                            message,
                        );
                        continue;
                    }
                    merge(&mut merged, of_label(entry));
                    zone = zone_in(entry).filter(|_| part.word == "label").or(zone);
                    part.hear(entry);
                }
                part.leave(layer);
            }
        }
        let cloud = of_section.get("connection").is_some_and(Json::is_string)
            || provider.get("connection").is_some_and(Json::is_string);
        // What is named and nothing bears is told where it is named, and what is wrong with the
        // image of a label's own name at that.
        let lacks_image = image_name.is_none() && !self.faulty_images.contains(label.name.as_str());
        if cloud && (lacks_image || flavor_name.is_none()) {
            let missing = if lacks_image { "image" } else { "flavor" };
            let message = format!(
                "The label \"{}\" has no {missing} here, so this provider declines requests for it",
                label.name
            );
            let span = at.1.spans.of_member("labels", &label.name);
            let diagnostic = Diagnostic::new(
                DiagnosticKind::UnknownName,
                Mark::default(),
                Mark::default(),
                message,
            );
            self.put(at, "provider", span, diagnostic.about("labels").as_warning());
        }
        // What a section or provider says of this label comes after what the label says; the
        // innermost last.
        let listed = layers.iter().flat_map(|layer| entries(layer, "labels", &label.name));
        let of_label_alone = std::iter::once(&label.attributes).chain(listed);
        let min_ready =
            of_label_alone.filter_map(|entry| count(entry, "min-ready")).next_back().unwrap_or(0);
        typed(
            merged,
            LabelIdentity {
                name: label.name.as_str().into(),
                canonical_name: canonical(defined, &label.name),
                image: image.map(|(defined, image)| canonical(defined, &image.name)),
                image_is_built: image.is_some_and(|(_, image)| is_built(image)),
                flavor: flavor_name,
                min_ready,
                zone,
            },
        )
    }
}

/// Returns a connection as a mistake names it.
fn named(connection: Option<&str>) -> String {
    connection.map_or_else(|| "which is null".to_owned(), |name| format!("which is \"{name}\""))
}

/// Whether what a section or provider says may change an image, flavor or label that was given
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Final {
    /// Defaults and further entries do.
    No,
    /// Further entries do, defaults do not.
    AllowOverride,
    /// Nothing does.
    Yes,
}

impl Final {
    fn of(attributes: &Map<String, Json>) -> Option<Self> {
        match attributes.get("final")? {
            Json::Bool(true) => Some(Self::Yes),
            Json::Bool(false) => Some(Self::No),
            _ => Some(Self::AllowOverride),
        }
    }
}

/// One of the three things that a label is made of.
struct PartOfLabel<'a> {
    word: &'static str,
    list: &'static str,
    defaults: &'static str,
    name: Option<&'a str>,
    is_final: Final,
    /// Whether somebody said so of it alone.
    is_said: bool,
}

impl<'a> PartOfLabel<'a> {
    fn new(word: &'static str, name: Option<&'a str>, object: Option<&ProviderObject>) -> Self {
        let (list, defaults) = match word {
            "image" => ("images", "image-defaults"),
            "flavor" => ("flavors", "flavor-defaults"),
            _ => ("labels", "label-defaults"),
        };
        let said = object.and_then(|object| Final::of(&object.attributes));
        Self {
            word,
            list,
            defaults,
            name,
            is_final: said.unwrap_or(Final::No),
            is_said: said.is_some(),
        }
    }

    /// Returns the defaults that a section or provider has for it: what is final is not what they
    /// are for.
    fn defaults_in<'j>(&self, layer: &'j Map<String, Json>) -> Option<&'j Map<String, Json>> {
        layer.get(self.defaults).and_then(Json::as_object).filter(|_| self.is_final == Final::No)
    }

    /// Takes in what an entry says of who may say more.
    fn hear(&mut self, entry: &Map<String, Json>) {
        if let Some(said) = Final::of(entry) {
            (self.is_final, self.is_said) = (said, true);
        }
    }

    /// Takes in what the defaults of a layer say of who may say more, where nobody said it of this
    /// one: those below may not.
    fn leave(&mut self, layer: &Map<String, Json>) {
        let by_default = layer.get(self.defaults).and_then(Json::as_object).and_then(Final::of);
        if let Some(by_default) = by_default.filter(|_| !self.is_said) {
            self.is_final = by_default;
        }
    }
}
