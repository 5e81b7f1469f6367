//! Checks the names in sections, providers and labels: connections, parents, images, flavors and
//! labels.

use super::super::image::is_built;
use super::super::values::names_in;
use super::{Found, Resolver, SECTIONS_MAX, named};
use crate::error::{Diagnostic, DiagnosticKind};
use crate::objects::ObjectKind;
use crate::yaml::Mark;
use serde_json::{Map, Value as Json};

impl<'o> Resolver<'o> {
    /// Reports a connection of a section or provider that the system does not have. An absent one
    /// is no error here. `stanza` is the keyword of the object as errors name it (`section` or
    /// `provider`).
    pub(super) fn connection(&mut self, at: Found<'o>, stanza: &str) {
        let Some(name) = at.1.attributes.get("connection").and_then(Json::as_str) else { return };
        let connections = self.layout.connections();
        if connections.driver(name).is_none() {
            let message = format!("Unknown connection named \"{name}\"");
            self.unknown(
                at,
                stanza,
                "connection",
                (name, message),
                connections.0.keys().map(|name| name.as_str()),
            );
        }
    }

    /// Reports an undefined section of a provider. An absent one is no error here.
    pub(super) fn section(&mut self, at: Found<'o>) {
        let Some(section) = at.1.attributes.get("section").and_then(Json::as_str) else { return };
        if self.find(ObjectKind::Section, section).is_none() {
            let message = format!("The section \"{section}\" was not found.");
            self.unknown(
                at,
                "provider",
                "section",
                (section, message),
                self.layout.names(ObjectKind::Section),
            );
        }
    }

    /// Reports a section whose parent is undefined, or that inherits from itself within 20
    /// sections. Undefined names and cycles further up are reported at those sections. An absent
    /// parent is no error.
    pub(super) fn parent(&mut self, at: Found<'o>) {
        let Some(mut parent) = at.1.attributes.get("parent").and_then(Json::as_str) else { return };
        if self.find(ObjectKind::Section, parent).is_none() {
            let message = format!("The section \"{parent}\" was not found.");
            return self.unknown(
                at,
                "section",
                "parent",
                (parent, message),
                self.layout.names(ObjectKind::Section),
            );
        }
        let mut way = vec![at.1.name.as_str()];
        for _ in 0..SECTIONS_MAX {
            way.push(parent);
            if parent == at.1.name {
                let message =
                    format!("The section \"{parent}\" inherits from itself: {}", way.join(" → "));
                return self.error(at, "section", "parent", DiagnosticKind::Conflict, message);
            }
            // Cycles and undefined names among the ancestors are reported there.
            let above = self.find(ObjectKind::Section, parent).map(|(_, above)| above);
            let Some(next) = above.and_then(|above| above.attributes.get("parent")?.as_str())
            else {
                return;
            };
            parent = next;
        }
    }

    /// Reports a section whose connection differs from that of the nearest ancestor that sets one,
    /// since its author could otherwise use the ancestor's images and quota with any connection of
    /// the system. A section that sets none is not checked.
    pub(super) fn overridden(&mut self, at: Found<'o>) {
        let Some(connection) = at.1.attributes.get("connection") else { return };
        let mut parent = at.1.attributes.get("parent").and_then(Json::as_str);
        for _ in 0..SECTIONS_MAX {
            // An undefined one is reported by its name.
            let Some((_, above)) = parent.and_then(|name| self.find(ObjectKind::Section, name))
            else {
                return;
            };
            if let Some(inherited) = above.attributes.get("connection") {
                if inherited != connection {
                    let message = format!(
                        "The connection of the section \"{}\", {}, cannot be overridden: remove \
                         \"connection\" here, or inherit from another section",
                        above.name,
                        named(inherited.as_str())
                    );
                    self.error(at, "section", "connection", DiagnosticKind::NotPermitted, message);
                }
                return;
            }
            parent = above.attributes.get("parent").and_then(Json::as_str);
        }
    }

    /// Reports undefined images, flavors and labels in the lists of a section or provider. An
    /// absent list is no error here. `stanza` is the keyword of the object as errors name it
    /// (`section` or `provider`).
    pub(super) fn lists(&mut self, at: Found<'o>, stanza: &str) {
        for (kind, list, one) in [
            (ObjectKind::Image, "images", "image"),
            (ObjectKind::Flavor, "flavors", "flavor"),
            (ObjectKind::Label, "labels", "label"),
        ] {
            for name in names_in(&at.1.attributes, list) {
                if self.find(kind, &name).is_none() {
                    let message = format!("The {one} \"{name}\" was not found.");
                    self.unknown(at, stanza, list, (&name, message), self.layout.names(kind));
                }
            }
        }
    }

    /// Reports errors in the entries of the lists of a section or provider: a label with an
    /// undefined image or flavor, and an image with another type than its definition. Undefined
    /// labels and images themselves are not reported here. `stanza` is the keyword of the object as
    /// errors name it (`section` or `provider`).
    pub(super) fn members(&mut self, at: Found<'o>, stanza: &str) {
        for (name, label) in listed(&at.1.attributes, "labels") {
            for (kind, part) in PARTS {
                let Some(part_name) = label.get(part).and_then(Json::as_str) else { continue };
                if self.find(kind, part_name).is_none() {
                    let message = format!("The {part} \"{part_name}\" was not found.");
                    let diagnostic = Diagnostic::new(
                        DiagnosticKind::UnknownName,
                        Mark::default(),
                        Mark::default(),
                        message,
                    );
                    let diagnostic = diagnostic.about(&format!("labels.{part}"));
                    let diagnostic = diagnostic.suggesting_within(
                        &self.hints,
                        part_name,
                        self.layout.names(kind),
                    );
                    let span = at.1.spans.of_member(&format!("labels.{name}"), part);
                    self.put(at, stanza, span.or_else(|| at.1.spans.of("labels")), diagnostic);
                }
            }
        }
        for (name, said) in listed(&at.1.attributes, "images") {
            let Some(said) = said.get("type").and_then(Json::as_str) else { continue };
            let Some((_, image)) = self.find(ObjectKind::Image, name) else { continue };
            let own = if is_built(image) { "zuul" } else { "cloud" };
            if said != own {
                let message = format!(
                    "The image \"{name}\" is defined with type {own}, which cannot be changed \
                     here: remove \"type\", or define an image of type {said}"
                );
                let span = at.1.spans.of_member(&format!("images.{name}"), "type");
                let diagnostic = Diagnostic::new(
                    DiagnosticKind::Conflict,
                    Mark::default(),
                    Mark::default(),
                    message,
                );
                self.put(
                    at,
                    stanza,
                    span.or_else(|| at.1.spans.of("images")),
                    diagnostic.about("images.type"),
                );
            }
        }
    }

    /// Reports an undefined image or flavor of a label. An absent one is no error here.
    pub(super) fn parts(&mut self, at: Found<'o>) {
        for (kind, word) in PARTS {
            let Some(name) = at.1.attributes.get(word).and_then(Json::as_str) else { continue };
            if self.find(kind, name).is_none() {
                let message = format!("The {word} \"{name}\" was not found.");
                self.unknown(at, "label", word, (name, message), self.layout.names(kind));
            }
        }
    }
}

/// The parts of a label, by the attribute that names them.
const PARTS: [(ObjectKind, &str); 2] =
    [(ObjectKind::Image, "image"), (ObjectKind::Flavor, "flavor")];

/// Returns the members of a list of a section or provider, each with its name, in order. Members
/// without a name are left out; empty if the list is not set.
fn listed<'j>(
    attributes: &'j Map<String, Json>,
    list: &str,
) -> impl Iterator<Item = (&'j str, &'j Map<String, Json>)> {
    let list = attributes.get(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|member| Some((member.get("name")?.as_str()?, member.as_object()?)))
}
