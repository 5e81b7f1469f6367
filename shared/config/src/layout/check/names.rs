//! What a check sees of the names that a stanza asks for.

use super::super::Layout;
use super::super::barriers::Barriers;
use super::super::shelf::{Unit, short_hash};
use super::NOOP;
use super::parents::Above;
use crate::error::Hints;
use crate::objects::{Alternative, NodesetBody, ObjectKind, ProviderObject, SecretStanza};
use sluice_model::ProjectName;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// What a check can see of another object. Checks read names through [`Names`] only, so that an
/// overlay knows what to check again: whatever asked for a name of which this changed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::layout) enum Facts {
    /// Nothing bears the name.
    Absent,
    /// A job, and what it is to others.
    Job(Rc<Barriers>),
    /// An image, and the project that it belongs to.
    Image(ProjectName),
    /// A secret, and the project it belongs to.
    Secret(ProjectName),
    /// A nodeset: the nodesets that it names, and how many it gives itself.
    Nodeset(Vec<String>, usize),
    /// Something of another kind.
    Present,
}

/// Returns what a check can see of a name.
pub(in crate::layout) fn facts(layout: &Layout, kind: ObjectKind, name: &str) -> Facts {
    match kind {
        ObjectKind::Job => {
            Barriers::of(layout, name).map_or(Facts::Absent, |job| Facts::Job(Rc::new(job)))
        }
        ObjectKind::Secret => match layout.one::<SecretStanza>(kind, name) {
            Some(found) => Facts::Secret(found.source().project.clone()),
            None => Facts::Absent,
        },
        ObjectKind::Image => match layout.one::<ProviderObject>(kind, name) {
            Some(found) => Facts::Image(found.source().project.clone()),
            None => Facts::Absent,
        },
        ObjectKind::Nodeset => match layout.nodeset(name).map(|found| &found.object.body) {
            None => Facts::Absent,
            Some(NodesetBody::Nodes(_)) => Facts::Nodeset(Vec::new(), 1),
            Some(NodesetBody::Alternatives(list)) => {
                let mut named = Vec::new();
                for alternative in list {
                    if let Alternative::Named(name) = alternative {
                        named.push(name.clone());
                    }
                }
                let own = list.len() - named.len();
                Facts::Nodeset(named, own)
            }
        },
        _ if stands(layout, kind, name) => Facts::Present,
        _ => Facts::Absent,
    }
}

/// Returns whether something stands under a name.
fn stands(layout: &Layout, kind: ObjectKind, name: &str) -> bool {
    layout.entry(kind, name).is_some_and(|entry| !entry.accepted.is_empty())
}

/// What was found of jobs while stanzas are checked, by name: each is asked for by many, and has
/// perhaps many definitions.
#[derive(Default)]
pub(super) struct Jobs {
    /// What each is to others.
    found: HashMap<String, Option<Rc<Barriers>>>,
    /// Parents with those above them.
    pub(super) above: HashMap<String, Rc<[Above]>>,
}

/// The names of a layout, for one stanza that is checked; remembers what was asked for.
pub(super) struct Names<'c> {
    pub(super) layout: &'c Layout,
    pub(super) unit: Unit,
    pub(super) asked: &'c mut Vec<(u32, Unit)>,
    pub(super) jobs: &'c mut Jobs,
    pub(super) hints: &'c Hints,
    /// What nothing bears, where somebody wants to know.
    pub(super) absent: Option<&'c mut BTreeSet<(ObjectKind, String)>>,
}

impl<'c> Names<'c> {
    pub(super) fn facts(&mut self, kind: ObjectKind, name: &str) -> Facts {
        let facts = match kind {
            ObjectKind::Job => self.job(name).map_or(Facts::Absent, Facts::Job),
            _ => facts(self.layout, kind, name),
        };
        self.ask(kind, name, facts != Facts::Absent);
        facts
    }

    /// Returns what a job is to others, of a name that the stanza asks for besides.
    pub(super) fn job(&mut self, name: &str) -> Option<Rc<Barriers>> {
        if let Some(known) = self.jobs.found.get(name) {
            return known.clone();
        }
        let found = Barriers::of(self.layout, name).map(Rc::new);
        self.jobs.found.insert(name.to_owned(), found.clone());
        found
    }

    pub(super) fn has(&mut self, kind: ObjectKind, name: &str) -> bool {
        !self.under(kind, name).is_empty()
    }

    /// Returns what stands under a name.
    pub(super) fn under(&mut self, kind: ObjectKind, name: &str) -> &'c [Unit] {
        let layout = self.layout;
        let units =
            layout.entry(kind, name).map(|entry| entry.accepted.as_slice()).unwrap_or_default();
        self.ask(kind, name, !units.is_empty());
        units
    }

    /// Remembers that the stanza asked for a name, under which something stands or does not.
    pub(super) fn ask(&mut self, kind: ObjectKind, name: &str, stands: bool) {
        self.asked.push((short_hash(kind, name), self.unit));
        // What is built in is borne by nothing else.
        let is_built_in = kind == ObjectKind::Job && name == NOOP;
        if let Some(absent) = self.absent.as_deref_mut().filter(|_| !stands && !is_built_in) {
            absent.insert((kind, name.to_owned()));
        }
    }

    /// Returns all names of a kind, to suggest one of them.
    pub(super) fn known(&self, kind: ObjectKind) -> impl Iterator<Item = &'c str> + use<'c> {
        self.layout.names(kind)
    }
}
