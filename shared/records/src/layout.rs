//! Layouts as objects, opened once per function and kept in its memory.

use crate::codec::{decode, get};
use crate::tenant::{self, Tenant};
use sluice_config::layout::Layout;
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Record;
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Layouts kept in memory.
const KEPT_MAX: usize = 8;

/// Tenants whose newest reading is kept in memory.
const TENANTS_MAX: usize = 256;

/// Opened layouts by object key, and each tenant as it was read last. A layout never changes under
/// its key, so it cannot be stale; a tenant can, so [`Self::seen`] says when it was read, and
/// whoever uses it says why that does no harm.
#[derive(Debug, Default)]
pub struct Layouts {
    kept: Mutex<VecDeque<(String, Arc<Layout>)>>,
    seen: Mutex<BTreeMap<TenantName, Live>>,
}

impl Layouts {
    /// Returns the layout stored under `key`.
    ///
    /// # Errors
    /// When it cannot be read, or is not there (it is written before any record names it).
    pub async fn open(&self, ports: &Ports, key: &str) -> Result<Arc<Layout>, PortError> {
        self.try_open(ports, key)
            .await?
            .map_err(|why| PortError::unknown(format!("open the layout {key}"), why))
    }

    /// Returns the layout stored under `key`, or why what is stored there is none: it would be none
    /// the next time.
    async fn try_open(
        &self,
        ports: &Ports,
        key: &str,
    ) -> Result<Result<Arc<Layout>, String>, PortError> {
        if let Some(layout) = self.kept(key) {
            return Ok(Ok(layout));
        }
        let Some(object) = ports.objects.get(key).await? else {
            return Ok(Err("there is no such object".to_owned()));
        };
        match Layout::from_bytes(&object.bytes) {
            Ok(layout) => {
                let layout = Arc::new(layout);
                self.keep(key, layout.clone());
                Ok(Ok(layout))
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Remembers a layout that was stored under `key`.
    pub fn keep(&self, key: &str, layout: Arc<Layout>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| known != key);
        kept.push_back((key.to_owned(), layout));
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
    }

    /// Returns a tenant with its live layout; `None` when the tenant does not exist or was never
    /// read.
    ///
    /// # Errors
    /// When the store cannot answer or a record is bad.
    pub async fn live(&self, ports: &Ports, name: &TenantName) -> Result<Option<Live>, LookError> {
        let read_at = ports.clock.now();
        let record = get(ports, &tenant::key(name)).await?;
        self.live_of(ports, name, record, read_at).await
    }

    /// Returns a tenant with its live layout, of a head's record that was read together with others
    /// at this time.
    ///
    /// # Errors
    /// As [`Self::live`].
    pub async fn live_of(
        &self,
        ports: &Ports,
        name: &TenantName,
        record: Option<Record>,
        read_at: Timestamp,
    ) -> Result<Option<Live>, LookError> {
        let Some(record) = record else { return Ok(None) };
        let tenant: Tenant = decode(&record)?;
        let Some(key) = tenant.layout_object.clone() else { return Ok(None) };
        let live = self.live_or_damaged(ports, record, tenant, read_at).await?;
        let live = live.map_err(|why| {
            PortError::unknown(format!("open the layout {key} of the tenant {name}"), why)
        })?;
        Ok(Some(live))
    }

    /// Returns a tenant that has a layout with that, or why what is stored of the layout is none.
    /// For whoever goes on with other tenants where that is so.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn live_or_damaged(
        &self,
        ports: &Ports,
        record: Record,
        tenant: Tenant,
        read_at: Timestamp,
    ) -> Result<Result<Live, String>, PortError> {
        let Some(key) = tenant.layout_object.clone() else {
            return Ok(Err("it has no layout yet".to_owned()));
        };
        let layout = match self.try_open(ports, &key).await? {
            Ok(layout) => layout,
            Err(why) => return Ok(Err(format!("its layout {key} cannot be opened: {why}"))),
        };
        let name = tenant.name.clone();
        let live = Live { record, tenant, layout, read_at };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= TENANTS_MAX && !seen.contains_key(&name) {
            seen.pop_first();
        }
        seen.insert(name, live.clone());
        Ok(Ok(live))
    }

    /// Returns a tenant as it was read last, however long ago.
    pub fn seen(&self, name: &TenantName) -> Option<Live> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Returns a layout that is in memory anyway. One that is asked for stays longest; whoever goes
    /// round more tenants than are kept finds each among those that were seen.
    fn kept(&self, key: &str) -> Option<Arc<Layout>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| known == key) {
            let found = kept.remove(at)?;
            let layout = found.1.clone();
            kept.push_back(found);
            return Some(layout);
        }
        drop(kept);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let live = seen.values().find(|live| live.tenant.layout_object.as_deref() == Some(key))?;
        Some(live.layout.clone())
    }
}

/// A tenant with the layout that is live.
#[derive(Debug, Clone)]
pub struct Live {
    /// The head's record.
    pub record: Record,
    /// The head.
    pub tenant: Tenant,
    /// The layout.
    pub layout: Arc<Layout>,
    /// When the head was read.
    pub read_at: Timestamp,
}

impl Live {
    /// Returns the number of the live layout.
    pub fn number(&self) -> u64 {
        self.tenant.layout.live
    }
}
