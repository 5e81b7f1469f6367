//! [`Items`]: what stands in a queue, shared with whoever keeps it, so that a plan over a thousand copies those alone that it changes.

use crate::item::Item;
use sluice_model::ItemId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Items by id. A copy shares every item until one of the two changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Items(BTreeMap<ItemId, Arc<Item>>);

impl Items {
    /// Returns an item.
    pub fn get(&self, id: &ItemId) -> Option<&Item> {
        self.0.get(id).map(|item| &**item)
    }

    /// Returns an item to hold on to while others are changed.
    pub(crate) fn shared(&self, id: &ItemId) -> Option<Arc<Item>> {
        self.0.get(id).cloned()
    }

    /// Returns an item to change it; whoever shares it keeps it as it is.
    pub fn get_mut(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.0.get_mut(id).map(Arc::make_mut)
    }

    /// Returns all of them in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &Item> {
        self.0.values().map(|item| &**item)
    }

    /// Puts an item in, in the place of one with its id.
    pub fn insert(&mut self, id: ItemId, item: Item) {
        self.0.insert(id, Arc::new(item));
    }

    /// Takes an item out.
    pub fn remove(&mut self, id: &ItemId) -> Option<Item> {
        self.0.remove(id).map(Arc::unwrap_or_clone)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Arc<Item>> for Items {
    fn from_iter<T: IntoIterator<Item = Arc<Item>>>(items: T) -> Self {
        Self(items.into_iter().map(|item| (item.id.clone(), item)).collect())
    }
}
