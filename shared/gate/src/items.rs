//! [`Items`]: the items of a queue, shared copy-on-write with the gate's cache. A plan over a
//! thousand items copies only those that it changes.

use crate::item::Item;
use sluice_model::ItemId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Items by id. A clone shares every item until one of the two changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Items(BTreeMap<ItemId, Arc<Item>>);

impl Items {
    /// Returns the item with this id, or `None` where there is none.
    pub fn get(&self, id: &ItemId) -> Option<&Item> {
        self.0.get(id).map(|item| &**item)
    }

    /// Returns a shared reference to an item, or `None` where there is none. The reference stays
    /// valid and keeps its state while the map is changed.
    pub(crate) fn shared(&self, id: &ItemId) -> Option<Arc<Item>> {
        self.0.get(id).cloned()
    }

    /// Returns an item for modification, or `None` where there is none. Clones of the map keep the
    /// old state.
    pub fn get_mut(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.0.get_mut(id).map(Arc::make_mut)
    }

    /// Returns all items in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &Item> {
        self.0.values().map(|item| &**item)
    }

    /// Inserts an item, or replaces the one with its id.
    pub fn insert(&mut self, id: ItemId, item: Item) {
        self.0.insert(id, Arc::new(item));
    }

    /// Removes and returns an item; `None` where there is none.
    pub fn remove(&mut self, id: &ItemId) -> Option<Item> {
        self.0.remove(id).map(Arc::unwrap_or_clone)
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Arc<Item>> for Items {
    fn from_iter<T: IntoIterator<Item = Arc<Item>>>(items: T) -> Self {
        Self(items.into_iter().map(|item| (item.id.clone(), item)).collect())
    }
}
