//! Which provider of a tenant serves the labels of a nodeset. All nodes of a job come from one
//! provider. A provider of static nodes offers the labels of its nodes only: a label that it lists
//! and no node has cannot be launched.

use super::{Layout, ProviderConfig};
use sluice_model::ZoneName;
use std::collections::{BTreeMap, BTreeSet};

/// The providers of a layout by the labels that they offer, those of static nodes included.
#[derive(Debug)]
pub struct LabelOffers<'l> {
    /// All providers, in order of preference.
    providers: &'l [ProviderConfig],
    /// The providers that name a label, by their position.
    named: BTreeMap<&'l str, BTreeSet<usize>>,
    /// The providers that can launch or lend a node with the label, by their position.
    able: BTreeMap<&'l str, BTreeSet<usize>>,
}

/// Which provider serves some labels at once.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelOffer<'l> {
    /// The first provider, in order of preference (L2.2), that can launch nodes of all labels.
    /// Without any, the first that names them all, which declines the request with a reason.
    Provider(&'l ProviderConfig),
    /// No provider names these labels.
    Missing(Vec<String>),
    /// Each label has a provider, and no provider has all of them: the names of the providers by
    /// label.
    Split(BTreeMap<String, Vec<String>>),
}

impl Layout {
    /// Returns the providers by the labels that they offer.
    pub fn label_offers(&self) -> LabelOffers<'_> {
        let (mut named, mut able) = (BTreeMap::new(), BTreeMap::new());
        for (position, provider) in self.providers().iter().enumerate() {
            let add = |map: &mut BTreeMap<_, BTreeSet<usize>>, label| {
                map.entry(label).or_default().insert(position);
            };
            let launched = provider.labels.iter().filter(|_| !self.has_static_nodes(provider));
            for label in launched {
                add(&mut named, label.name.as_str());
                if label.obstacle().is_none() {
                    add(&mut able, label.name.as_str());
                }
            }
            for label in provider.nodes.iter().flat_map(|node| &node.labels) {
                add(&mut named, label.as_str());
                add(&mut able, label.as_str());
            }
        }
        LabelOffers { providers: self.providers(), named, able }
    }
}

impl<'l> LabelOffers<'l> {
    /// Returns the provider that serves all these labels at once, or why there is none. The first
    /// provider for no labels, if there is any.
    pub fn offer<'n>(&self, labels: impl IntoIterator<Item = &'n str>) -> LabelOffer<'l> {
        let labels: BTreeSet<&str> = labels.into_iter().collect();
        let missing = labels.iter().filter(|label| !self.named.contains_key(**label));
        let missing: Vec<String> = missing.map(|label| (*label).to_owned()).collect();
        if !missing.is_empty() {
            return LabelOffer::Missing(missing);
        }
        let serves = |by_label: &BTreeMap<&str, BTreeSet<usize>>, position: usize| {
            let of = |label: &&str| by_label.get(*label).is_some_and(|all| all.contains(&position));
            labels.iter().all(of)
        };
        let first = |by_label| {
            self.providers.iter().enumerate().find(|(position, _)| serves(by_label, *position))
        };
        match first(&self.able).or_else(|| first(&self.named)) {
            Some((_, provider)) => LabelOffer::Provider(provider),
            None => {
                LabelOffer::Split(labels.iter().map(|label| self.providers_of(label)).collect())
            }
        }
    }

    /// Returns a label with the short names of the providers that name it, in order of preference.
    fn providers_of(&self, label: &str) -> (String, Vec<String>) {
        let positions = self.named.get(label).into_iter().flatten();
        let names = positions.filter_map(|position| self.providers.get(*position));
        (label.to_owned(), names.map(|provider| provider.name.to_string()).collect())
    }
}

impl ProviderConfig {
    /// Returns the zone of executors that reach nodes of these labels: the `executor-zone` of the
    /// first label that has one; `None` if every executor reaches them.
    pub fn executor_zone<'n>(&self, labels: impl IntoIterator<Item = &'n str>) -> Option<ZoneName> {
        labels.into_iter().find_map(|name| {
            let label = self.labels.iter().find(|label| label.name.as_str() == name)?;
            label.executor_zone.clone().filter(|zone| !zone.is_empty()).map(ZoneName)
        })
    }
}

impl LabelOffer<'_> {
    /// Returns why no provider serves the labels, for users; `None` if one does.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Provider(_) => None,
            Self::Missing(labels) => {
                Some(format!("no provider of the tenant offers {}", labels.join(", ")))
            }
            Self::Split(labels) => {
                let names: Vec<&str> = labels.keys().map(String::as_str).collect();
                let places =
                    labels.iter().map(|(label, at)| format!("{label} at {}", at.join(" and ")));
                Some(format!(
                    "no provider of the tenant offers all of {} ({}), and all nodes of a job come \
                     from one provider: add the labels to one provider",
                    names.join(", "),
                    places.collect::<Vec<_>>().join(", ")
                ))
            }
        }
    }
}
