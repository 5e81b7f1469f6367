//! Resolves providers: inheritance of sections, the layers of each label, and their diagnostics.
//! `follow` checks the names that they use.

mod follow;

use super::image::{self, ImageConfig, is_built};
use super::label::{LabelIdentity, typed};
use super::values::{
    canonical, count, counts, entries, machine_attributes, merge, names_in, static_nodes, texts,
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

/// Maximum depth of inheritance between sections.
const SECTIONS_MAX: usize = 20;
/// Maximum number of labels of a provider.
const LABELS_MAX: usize = 1_000;
/// The weight of an empty label.
const LABEL_WEIGHT: usize = 1_024;
/// Maximum weight of the labels of all providers, in approximate bytes. Each label has all
/// attributes of its section.
const WEIGHT_MAX: usize = 64 << 20;
/// Attributes of cloud nodes only.
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

/// Resolves every accepted provider. Returns the valid ones in configuration order, and the errors
/// and warnings about the references of all sections, providers and labels. Sections, providers and
/// labels with structural errors are checked as far as they could be parsed, but providers with
/// such errors are not returned. A returned provider can have errors too.
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
    for (kind, stanza) in [(ObjectKind::Section, "section"), (ObjectKind::Provider, "provider")] {
        let faulty = layout.faulty::<ProviderObject>(kind);
        // For an accepted provider this is reported where its sections are merged.
        if kind == ObjectKind::Provider {
            faulty.iter().for_each(|defined| resolver.section((*defined, defined.object)));
        }
        for defined in layout.accepted::<ProviderObject>(kind).into_iter().chain(faulty) {
            resolver.connection((defined, defined.object), stanza);
            if kind == ObjectKind::Section {
                resolver.parent((defined, defined.object));
                resolver.overridden((defined, defined.object));
            }
            resolver.lists((defined, defined.object), stanza);
            resolver.members((defined, defined.object), stanza);
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
    /// The weight that labels may still use.
    left: usize,
    hints: SuggestionBudget,
    /// The names of images with errors.
    faulty_images: BTreeSet<&'o str>,
}

type Found<'o> = (Definition<'o, ProviderObject>, &'o ProviderObject);

impl<'o> Resolver<'o> {
    /// Returns an object by its kind and name; `None` if it is not defined.
    fn find(&self, kind: ObjectKind, name: &str) -> Option<Found<'o>> {
        self.layout.one(kind, name).map(|defined| (defined, defined.object))
    }

    /// Adds an error about an object, located at its attribute, or at its stanza if it does not set
    /// the attribute. `stanza` is the keyword of the object as errors name it, such as `section` or
    /// `provider`.
    fn error(
        &mut self,
        at: Found<'_>,
        stanza: &str,
        attribute: &str,
        kind: DiagnosticKind,
        message: String,
    ) {
        let span = at.1.spans.of(attribute);
        self.put(
            at,
            stanza,
            span,
            Diagnostic::new(kind, Mark::default(), Mark::default(), message).about(attribute),
        );
    }

    /// Adds an error about the undefined name `wrong` in an object, located at the list member
    /// `wrong` of the attribute, or else at the attribute. `message` is the whole text. The most
    /// similar of the `defined` names is suggested, if any is similar enough. `stanza` is the
    /// keyword of the object as errors name it.
    fn unknown<'n>(
        &mut self,
        at: Found<'_>,
        stanza: &str,
        attribute: &str,
        (wrong, message): (&str, String),
        defined: impl IntoIterator<Item = &'n str>,
    ) {
        let span = at.1.spans.of_member(attribute, wrong);
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, Mark::default(), Mark::default(), message);
        self.put(
            at,
            stanza,
            span,
            diagnostic.about(attribute).suggesting_within(&self.hints, wrong, defined),
        );
    }

    /// Adds a diagnostic about an object, located at `span`, or at its stanza for `None`; positions
    /// in `diagnostic` are replaced. `stanza` is the keyword of the object as errors name it.
    fn put(
        &mut self,
        (defined, object): Found<'_>,
        stanza: &str,
        span: Option<Span>,
        diagnostic: Diagnostic,
    ) {
        let Span { start, end } = span.unwrap_or(object.span);
        let diagnostic = Diagnostic { start, end, ..diagnostic };
        let diagnostic = diagnostic
            .in_stanza(&format!("{stanza} {}", object.name))
            .from_stanza_at(object.span.start);
        self.errors.push(defined.source().error(diagnostic));
    }

    /// Returns whether a provider and its sections, `chain`, have the same connection, since its
    /// author could otherwise use any connection of the system. A provider that sets none has that
    /// of its sections. Reports a provider that sets another connection than its sections, or any
    /// if these set none. `false` without a report if the sections differ among themselves, which
    /// is reported at the sections.
    fn keeps_connection(&mut self, at: Found<'o>, chain: &[Found<'o>]) -> bool {
        let mut connections =
            chain.iter().filter_map(|(_, section)| section.attributes.get("connection"));
        let of_section = connections.next();
        // Reported at the section with the other connection.
        if connections.any(|other| Some(other) != of_section) {
            return false;
        }
        let of_section = of_section.and_then(Json::as_str);
        let connection = at.1.attributes.get("connection");
        if connection.is_none_or(|connection| connection.as_str() == of_section) {
            return true;
        }
        let section = chain.first().map_or("", |(_, section)| section.name.as_str());
        let message = format!(
            "The connection of the section \"{section}\", {}, cannot be overridden: remove \
             \"connection\" from the provider, or use a section with this connection",
            named(of_section)
        );
        self.error(at, "provider", "connection", DiagnosticKind::NotPermitted, message);
        false
    }

    /// Reports attributes that do not apply to a provider: cloud attributes of static nodes, also
    /// in its list entries and defaults, and `nodes` of a cloud provider (L3.10). `whole` has the
    /// merged attributes of the provider and its sections. A provider without a connection, or with
    /// one of the static driver, has static nodes. The provider stays valid.
    fn kind_of_nodes(&mut self, at: Found<'o>, whole: &Map<String, Json>) {
        let connection = whole.get("connection").and_then(Json::as_str);
        let is_static = connection
            .is_none_or(|name| self.layout.connections().driver(name) == Some(Driver::Static));
        if !is_static {
            if whole.contains_key("nodes") {
                let message = "\"nodes\" is only allowed if \"connection\" is null";
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
                format!("\"{name}\" is not allowed for static nodes (\"connection\" is null)");
            self.error(at, "provider", name, DiagnosticKind::NotPermitted, message);
        }
    }

    /// Resolves all references of a provider, and reports what is wrong in it. `None` if it names
    /// no section, or its section is undefined, abstract or of another connection, or the section's
    /// ancestors are undefined, form a cycle, are too many or have different connections. Other
    /// errors are reported, but the provider is returned nevertheless.
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
            // Whether a section is abstract is not inherited.
            attributes.remove("abstract");
            if let Some(Json::Object(of_layer)) = attributes.remove("resource-limits") {
                limits.extend(of_layer);
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

    /// Returns the section of a provider and its ancestors, the nearest first. `None` if the
    /// provider names none, one is undefined, they form a cycle, or there are more than 20. An
    /// undefined section and too many ancestors are reported at the provider; the other errors are
    /// reported at the sections, not here.
    fn sections(&mut self, at: Found<'o>) -> Option<Vec<Found<'o>>> {
        let mut chain: Vec<Found<'o>> = Vec::new();
        let mut section_name = at.1.attributes.get("section")?.as_str()?.to_owned();
        loop {
            let Some(found) = self.find(ObjectKind::Section, &section_name) else {
                // Errors in the ancestors are reported there, regardless of providers.
                if chain.is_empty() {
                    self.section(at);
                }
                return None;
            };
            if chain.iter().any(|(_, section)| section.name == found.1.name) {
                return None;
            }
            if chain.len() >= SECTIONS_MAX {
                let message = format!("The section has more than {SECTIONS_MAX} ancestors");
                self.error(at, "provider", "section", DiagnosticKind::Conflict, message);
                return None;
            }
            chain.push(found);
            match found.1.attributes.get("parent").and_then(Json::as_str) {
                Some(parent) => parent.clone_into(&mut section_name),
                None => return Some(chain),
            }
        }
    }

    /// Returns the labels of a provider, each once with every layer of attributes applied: those
    /// that its sections list, then its own, and, if the provider itself sets
    /// `include-all-node-labels`, those of its and its sections' static nodes. Reports and drops
    /// undefined labels of static nodes and labels beyond 1,000. Drops labels beyond the weight
    /// that all providers share, which is reported once, at the provider that uses it up. Undefined
    /// labels of lists are dropped without a report. `of_section` has the merged attributes of the
    /// sections.
    fn labels(&mut self, at: Found<'o>, of_section: &Map<String, Json>) -> Vec<LabelConfig> {
        let provider = &at.1.attributes;
        // Lists are concatenated (L3.2): providers have all entries of their section.
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
        let mut seen: BTreeSet<String> = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        if names.len() > LABELS_MAX {
            let message = format!(
                "A provider can have at most {LABELS_MAX} labels, but this one has {}",
                names.len()
            );
            self.error(at, "provider", "labels", DiagnosticKind::Conflict, message);
            names.truncate(LABELS_MAX);
        }
        for name in names {
            match self.find(ObjectKind::Label, &name) {
                // Reported when the budget ran out.
                Some(_) if self.left == 0 => break,
                Some(label) => {
                    let label = self.label(at, of_section, label);
                    self.left = self.left.saturating_sub(LABEL_WEIGHT + of_map(&label.attributes));
                    labels.push(label);
                    if self.left == 0 {
                        let message = format!(
                            "The labels of the tenant's providers exceed {} MiB; reduce the \
                             attributes of sections with many labels",
                            WEIGHT_MAX >> 20
                        );
                        self.error(at, "provider", "labels", DiagnosticKind::Conflict, message);
                    }
                }
                // Reported where it is listed.
                None if listed.contains(&name) => {}
                None => {
                    let message = format!("The label \"{name}\" was not found.");
                    let labels = self.layout.names(ObjectKind::Label);
                    self.unknown(at, "provider", "labels", (&name, message), labels);
                }
            }
        }
        labels
    }

    /// Returns the images that a provider needs, sorted by name, each with every layer of
    /// attributes applied in order (L3.2): those that it or its sections list, and those of
    /// `labels`, its resolved labels. Undefined images are left out, and list entries of a final
    /// image are ignored, both without a report. `of_section` has the merged attributes of the
    /// sections.
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
                    merge(&mut merged, machine_attributes(defaults));
                }
                merge(&mut merged, machine_attributes(layer));
                for entry in entries(layer, part.list, &object.name) {
                    if part.is_final != Final::Yes {
                        part.apply_final(entry);
                        let mut entry = entry.clone();
                        entry.remove("name");
                        merge(&mut merged, entry);
                    }
                }
                part.apply_defaults_final(layer);
            }
            image::typed(object, canonical(defined, &object.name), &merged)
        });
        resolved.collect()
    }

    /// Returns a label with every layer of attributes applied. `of_section` has the merged
    /// attributes of the provider's sections. If nothing names its image, an image with the label's
    /// own name is used. List entries that a final image, flavor or label does not allow are
    /// reported and ignored. A label of a cloud provider without an image or flavor gets a warning,
    /// since the provider declines requests for it. An undefined image or flavor counts as set, and
    /// is not reported here.
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
            // Entries are ordered from the outermost to the innermost; the label itself is
            // outermost.
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
            merge(&mut merged, machine_attributes(&object.1.attributes));
        }
        merge(&mut merged, machine_attributes(&label.attributes));
        let mut parts = [
            PartOfLabel::new("image", image_name.as_deref(), image.map(|(_, image)| image)),
            PartOfLabel::new("flavor", flavor_name.as_deref(), flavor.map(|(_, flavor)| flavor)),
            PartOfLabel::new("label", Some(&label.name), Some(label)),
        ];
        // A label's own attributes and those of labels may bind it to a zone. Other zones belong to
        // the provider, and several zones bind it to none.
        let zone_in = |attributes: &Map<String, Json>| {
            Some(texts(attributes, "az")).filter(|all| all.len() == 1)?.pop()
        };
        let mut zone = zone_in(&label.attributes);
        for layer in layers {
            for part in &parts {
                if let Some(defaults) = part.defaults_in(layer) {
                    merge(&mut merged, machine_attributes(defaults));
                    zone = zone_in(defaults).filter(|_| part.word == "label").or(zone);
                }
            }
            merge(&mut merged, machine_attributes(layer));
            for part in &mut parts {
                let (name, list) = (part.name, part.list);
                for entry in name.into_iter().flat_map(|name| entries(layer, list, name)) {
                    if part.is_final == Final::Yes && entry.len() > 1 {
                        let name = part.name.unwrap_or_default();
                        let message = format!(
                            "The {} \"{name}\" is final and cannot be changed here",
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
                    merge(&mut merged, machine_attributes(entry));
                    zone = zone_in(entry).filter(|_| part.word == "label").or(zone);
                    part.apply_final(entry);
                }
                part.apply_defaults_final(layer);
            }
        }
        let cloud = of_section.get("connection").is_some_and(Json::is_string)
            || provider.get("connection").is_some_and(Json::is_string);
        // An undefined name is reported where it is used, and an error in an image at the image.
        let lacks_image = image_name.is_none() && !self.faulty_images.contains(label.name.as_str());
        let has_type = ["instance-type", "flavor-name"].iter().any(|it| merged.contains_key(*it));
        let lacks_flavor = flavor_name.is_none() && !has_type;
        if cloud && (lacks_image || lacks_flavor) {
            let missing = if lacks_image { "image" } else { "flavor" };
            let message = format!(
                "The label \"{}\" has no {missing} here, so this provider declines requests for \
                 it: add \"{missing}\" to the label",
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
        // The attributes of sections and providers for this label follow those of the label, the
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

/// Returns the words for a connection in a diagnostic: `which is "NAME"`, or `which is null` for
/// none.
fn named(connection: Option<&str>) -> String {
    connection.map_or_else(|| "which is null".to_owned(), |name| format!("which is \"{name}\""))
}

/// Whether a section or provider may change an attribute of an image, flavor or label that is set
/// already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Final {
    /// Defaults and further entries may.
    No,
    /// Further entries may, defaults may not.
    AllowOverride,
    /// Nothing may.
    Yes,
}

impl Final {
    /// Returns the `final` attribute of an object; `None` if it is not set. A text means
    /// `AllowOverride`, whatever it is.
    fn of(attributes: &Map<String, Json>) -> Option<Self> {
        match attributes.get("final")? {
            Json::Bool(true) => Some(Self::Yes),
            Json::Bool(false) => Some(Self::No),
            _ => Some(Self::AllowOverride),
        }
    }
}

/// An image, flavor or label, as part of a label.
struct PartOfLabel<'a> {
    word: &'static str,
    list: &'static str,
    defaults: &'static str,
    name: Option<&'a str>,
    is_final: Final,
    /// Whether `final` was set for this object itself.
    is_explicit: bool,
}

impl<'a> PartOfLabel<'a> {
    /// Returns the state of an object before any layer is applied. `word` is its kind: `image`,
    /// `flavor` or `label`. `name` is `None` if the label has no such part. `object` is its
    /// definition, of which only `final` counts; `None` if it is undefined.
    fn new(word: &'static str, name: Option<&'a str>, object: Option<&ProviderObject>) -> Self {
        let (list, defaults) = match word {
            "image" => ("images", "image-defaults"),
            "flavor" => ("flavors", "flavor-defaults"),
            _ => ("labels", "label-defaults"),
        };
        let configured = object.and_then(|object| Final::of(&object.attributes));
        Self {
            word,
            list,
            defaults,
            name,
            is_final: configured.unwrap_or(Final::No),
            is_explicit: configured.is_some(),
        }
    }

    /// Returns the defaults that a section or provider has for objects of this kind. `None` if it
    /// has none, or if the object is final, even if entries may change it: defaults do not apply
    /// then.
    fn defaults_in<'j>(&self, layer: &'j Map<String, Json>) -> Option<&'j Map<String, Json>> {
        layer.get(self.defaults).and_then(Json::as_object).filter(|_| self.is_final == Final::No)
    }

    /// Applies the `final` attribute of an entry in the list of a section or provider to what
    /// follows; changes nothing if the entry does not set it.
    fn apply_final(&mut self, entry: &Map<String, Json>) {
        if let Some(configured) = Final::of(entry) {
            (self.is_final, self.is_explicit) = (configured, true);
        }
    }

    /// Applies the `final` attribute of a layer's defaults to what follows. Changes nothing if the
    /// defaults do not set it, or the object or one of its entries sets its own.
    fn apply_defaults_final(&mut self, layer: &Map<String, Json>) {
        let by_default = layer.get(self.defaults).and_then(Json::as_object).and_then(Final::of);
        if let Some(by_default) = by_default.filter(|_| !self.is_explicit) {
            self.is_final = by_default;
        }
    }
}
