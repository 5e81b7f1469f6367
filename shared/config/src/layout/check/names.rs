//! Name lookups of the reference checks. They record which names a stanza references.

use super::super::Layout;
use super::super::inheritance_rules::InheritanceRules;
use super::super::symbol_table::{StanzaId, short_hash};
use super::NOOP;
use super::parents::Ancestor;
use crate::error::SuggestionBudget;
use crate::objects::{Alternative, NodesetBody, ObjectKind, ProviderObject, SecretStanza};
use sluice_model::ProjectName;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// The facts that a check can see about a name.
///
/// Checks look up names through [`NameLookup`] only. So an overlay can check exactly the stanzas
/// again that reference a name whose facts changed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::layout) enum Facts {
    /// The name is undefined.
    Undefined,
    /// A job and its inheritance rules.
    Job(Rc<InheritanceRules>),
    /// An image and the project that defines it.
    Image(ProjectName),
    /// A secret and the project that defines it.
    Secret(ProjectName),
    /// A nodeset: the nodesets it names, and the number of alternatives it defines itself.
    Nodeset(Vec<String>, usize),
    /// An object of another kind.
    Present,
}

/// Returns the facts about a name on which the checks of references depend; `Facts::Undefined` if
/// it has no accepted definition. If the facts in two layouts are equal, stanzas that reference the
/// name need not be checked again. The built-in job `noop` is undefined here.
pub(in crate::layout) fn facts(layout: &Layout, kind: ObjectKind, name: &str) -> Facts {
    match kind {
        ObjectKind::Job => InheritanceRules::of(layout, name)
            .map_or(Facts::Undefined, |job| Facts::Job(Rc::new(job))),
        ObjectKind::Secret => match layout.one::<SecretStanza>(kind, name) {
            Some(rules) => Facts::Secret(rules.source().project.clone()),
            None => Facts::Undefined,
        },
        ObjectKind::Image => match layout.one::<ProviderObject>(kind, name) {
            Some(rules) => Facts::Image(rules.source().project.clone()),
            None => Facts::Undefined,
        },
        ObjectKind::Nodeset => match layout.nodeset(name).map(|rules| &rules.object.body) {
            None => Facts::Undefined,
            Some(NodesetBody::Nodes(_)) => Facts::Nodeset(Vec::new(), 1),
            Some(NodesetBody::Alternatives(list)) => {
                let mut named = Vec::new();
                for alternative in list {
                    if let Alternative::Named(name) = alternative {
                        named.push(name.clone());
                    }
                }
                let inline = list.len() - named.len();
                Facts::Nodeset(named, inline)
            }
        },
        _ if is_defined(layout, kind, name) => Facts::Present,
        _ => Facts::Undefined,
    }
}

/// Returns whether a name has an accepted definition.
fn is_defined(layout: &Layout, kind: ObjectKind, name: &str) -> bool {
    layout.symbol(kind, name).is_some_and(|entry| !entry.accepted.is_empty())
}

/// Cached lookups of jobs by name. Many stanzas reference the same job, which may have many
/// definitions.
#[derive(Default)]
pub(super) struct JobCache {
    /// The inheritance rules; `None` for undefined jobs.
    rules: HashMap<String, Option<Rc<InheritanceRules>>>,
    /// Jobs with their ancestors.
    pub(super) ancestors: HashMap<String, Rc<[Ancestor]>>,
}

/// Looks up names for one stanza and records the references.
pub(super) struct NameLookup<'c> {
    /// The layout.
    pub(super) layout: &'c Layout,
    /// The stanza that is checked.
    pub(super) stanza_id: StanzaId,
    /// The recorded references: hashes of names with the stanza.
    pub(super) references: &'c mut Vec<(u32, StanzaId)>,
    /// The cache of job lookups.
    pub(super) jobs: &'c mut JobCache,
    /// The budget for suggestions.
    pub(super) hints: &'c SuggestionBudget,
    /// Collects undefined names, if given.
    pub(super) undefined: Option<&'c mut BTreeSet<(ObjectKind, String)>>,
}

impl<'c> NameLookup<'c> {
    /// Returns the facts about a name on which the checks of references depend, and records that
    /// the stanza references the name, defined or not. Facts about jobs are cached.
    pub(super) fn facts(&mut self, kind: ObjectKind, name: &str) -> Facts {
        let facts = match kind {
            ObjectKind::Job => self.job(name).map_or(Facts::Undefined, Facts::Job),
            _ => facts(self.layout, kind, name),
        };
        self.record(kind, name, facts != Facts::Undefined);
        facts
    }

    /// Returns the inheritance rules of a job, from the cache if they are there; `None` if it is
    /// undefined. Adds them to the cache. Records no reference: the caller does that if the stanza
    /// names the job.
    pub(super) fn job(&mut self, name: &str) -> Option<Rc<InheritanceRules>> {
        if let Some(names) = self.jobs.rules.get(name) {
            return names.clone();
        }
        let rules = InheritanceRules::of(self.layout, name).map(Rc::new);
        self.jobs.rules.insert(name.to_owned(), rules.clone());
        rules
    }

    /// Returns whether a name has an accepted definition, and records that the stanza references
    /// it.
    pub(super) fn has(&mut self, kind: ObjectKind, name: &str) -> bool {
        !self.under(kind, name).is_empty()
    }

    /// Returns the accepted definitions of a name, and records that the stanza references it. Empty
    /// if it is undefined.
    pub(super) fn under(&mut self, kind: ObjectKind, name: &str) -> &'c [StanzaId] {
        let layout = self.layout;
        let stanza_ids =
            layout.symbol(kind, name).map(|entry| entry.accepted.as_slice()).unwrap_or_default();
        self.record(kind, name, !stanza_ids.is_empty());
        stanza_ids
    }

    /// Records that the stanza references a name. With `is_defined` false, also adds the name to
    /// the undefined ones if these are collected, except for the built-in job `noop`. The caller
    /// has looked up whether the name is defined.
    pub(super) fn record(&mut self, kind: ObjectKind, name: &str, is_defined: bool) {
        self.references.push((short_hash(kind, name), self.stanza_id));
        // The built-in job needs no definition.
        let is_built_in = kind == ObjectKind::Job && name == NOOP;
        if let Some(undefined) =
            self.undefined.as_deref_mut().filter(|_| !is_defined && !is_built_in)
        {
            undefined.insert((kind, name.to_owned()));
        }
    }

    /// Returns all defined names of a kind, for suggestions. Records no reference.
    pub(super) fn defined_names(
        &self,
        kind: ObjectKind,
    ) -> impl Iterator<Item = &'c str> + use<'c> {
        self.layout.names(kind)
    }
}
