//! Layouts as objects, decoded once per process and cached in memory.

use crate::codec::{decode, get};
use crate::tenant::{self, Tenant};
use sluice_config::layout::Layout;
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Record;
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Layouts cached by object key.
const CACHED_LAYOUTS_MAX: usize = 8;

/// Tenants whose last read head is cached.
const CACHED_TENANTS_MAX: usize = 256;

/// A cache of decoded layouts by object key, and of each tenant's last read head. An object never
/// changes, so a cached layout cannot be stale. A cached tenant can be: [`LiveLayout::read_at`]
/// says how old it is.
#[derive(Debug, Default)]
pub struct Layouts {
    /// The most recently used layouts by object key, the oldest first.
    cache: Mutex<VecDeque<(String, Arc<Layout>)>>,
    /// The last read of each tenant.
    last_read: Mutex<BTreeMap<TenantName, LiveLayout>>,
}

impl Layouts {
    /// Returns the layout stored under `key`, from the cache or the object, and caches it. A
    /// missing object is an error, because the object is stored before any record names it.
    ///
    /// # Errors
    /// When the object cannot be read, or does not exist. It is stored before any record names it.
    pub async fn load(&self, ports: &Ports, key: &str) -> Result<Arc<Layout>, PortError> {
        self.try_load(ports, key)
            .await?
            .map_err(|why| PortError::unknown(format!("open the layout {key}"), why))
    }

    /// Returns the layout stored under `key`, from the cache or the object, and caches it. The
    /// inner error says why the object is unusable (missing or undecodable); a retry would find the
    /// same. The outer error is a failed read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn try_load(
        &self,
        ports: &Ports,
        key: &str,
    ) -> Result<Result<Arc<Layout>, String>, PortError> {
        if let Some(layout) = self.cached(key) {
            return Ok(Ok(layout));
        }
        let Some(object) = ports.objects.get(key).await? else {
            return Ok(Err("the object does not exist".to_owned()));
        };
        match Layout::from_bytes(&object.bytes) {
            Ok(layout) => {
                let layout = Arc::new(layout);
                self.remember(key, layout.clone());
                Ok(Ok(layout))
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Adds a layout stored under `key` to the cache, as the most recently used one. Beyond
    /// `CACHED_LAYOUTS_MAX` layouts, drops the least recently used one.
    pub fn remember(&self, key: &str, layout: Arc<Layout>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|(cached_key, _)| cached_key != key);
        cache.push_back((key.to_owned(), layout));
        if cache.len() > CACHED_LAYOUTS_MAX {
            cache.pop_front();
        }
    }

    /// Reads a tenant's head from the table and returns it with the live layout, which may come
    /// from the cache; `None` when the tenant does not exist or has no layout yet. A removed tenant
    /// is returned, with an empty layout. Caches the result for [`Self::last_read`]. A layout that
    /// cannot be opened is an error.
    ///
    /// # Errors
    /// When the store does not answer or a record cannot be decoded.
    pub async fn load_live(
        &self,
        ports: &Ports,
        name: &TenantName,
    ) -> Result<Option<LiveLayout>, ReconcileError> {
        let read_at = ports.clock.now();
        let record = get(ports, &tenant::key(name)).await?;
        self.open_live(ports, name, record, read_at).await
    }

    /// Returns a tenant with its live layout, given the record of its head and when that was read;
    /// `None` when there is no record or no layout yet. A removed tenant is returned, with an empty
    /// layout. Caches the result for [`Self::last_read`]. A layout that cannot be opened is an
    /// error.
    ///
    /// # Errors
    /// As [`Self::load_live`].
    pub async fn open_live(
        &self,
        ports: &Ports,
        name: &TenantName,
        record: Option<Record>,
        read_at: Timestamp,
    ) -> Result<Option<LiveLayout>, ReconcileError> {
        let Some(record) = record else { return Ok(None) };
        let tenant: Tenant = decode(&record)?;
        let Some(key) = tenant.layout_object.clone() else { return Ok(None) };
        let live = self.open_live_or_reason(ports, record, tenant, read_at).await?;
        let live = live.map_err(|why| {
            PortError::unknown(format!("open the layout {key} of the tenant {name}"), why)
        })?;
        Ok(Some(live))
    }

    /// Returns a tenant with its live layout, given its head's record, its decoded head and when
    /// the record was read. The inner error says why there is no usable layout (none yet, missing,
    /// or undecodable), for a caller that goes on with other tenants. A success is cached for
    /// [`Self::last_read`]. The outer error is a failed read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn open_live_or_reason(
        &self,
        ports: &Ports,
        record: Record,
        tenant: Tenant,
        read_at: Timestamp,
    ) -> Result<Result<LiveLayout, String>, PortError> {
        let Some(key) = tenant.layout_object.clone() else {
            return Ok(Err("it has no layout yet".to_owned()));
        };
        let layout = match self.try_load(ports, &key).await? {
            Ok(layout) => layout,
            Err(why) => return Ok(Err(format!("its layout {key} cannot be opened: {why}"))),
        };
        let name = tenant.name.clone();
        let live = LiveLayout { record, tenant, layout, read_at };
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        if last_read.len() >= CACHED_TENANTS_MAX && !last_read.contains_key(&name) {
            last_read.pop_first();
        }
        last_read.insert(name, live.clone());
        Ok(Ok(live))
    }

    /// Returns the cached last read of a tenant, however old; `None` when this process never read
    /// it, or dropped it for others.
    pub fn last_read(&self, name: &TenantName) -> Option<LiveLayout> {
        self.last_read.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Returns a cached layout; `None` if it is not cached. Looks first in the cache of layouts,
    /// where it becomes the most recently used one, then in the cached tenants, which hold more
    /// layouts.
    fn cached(&self, key: &str) -> Option<Arc<Layout>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = cache.iter().position(|(cached_key, _)| cached_key == key) {
            let found = cache.remove(at)?;
            let layout = found.1.clone();
            cache.push_back(found);
            return Some(layout);
        }
        drop(cache);
        let last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let live =
            last_read.values().find(|live| live.tenant.layout_object.as_deref() == Some(key))?;
        Some(live.layout.clone())
    }
}

/// A tenant with its live layout.
#[derive(Debug, Clone)]
pub struct LiveLayout {
    /// The record of the tenant's head.
    pub record: Record,
    /// The tenant's head.
    pub tenant: Tenant,
    /// The live layout.
    pub layout: Arc<Layout>,
    /// When the head was read.
    pub read_at: Timestamp,
}

impl LiveLayout {
    /// Returns the number of the live layout.
    pub fn number(&self) -> u64 {
        self.tenant.layout.live
    }
}
