//! Wakes the providers whose configuration a new layout changes, so that they launch what their
//! labels keep ready (Z1.11), and delete what no label needs.

use crate::reconfiguration_event::PreviousLayout;
use sluice_config::layout::Layout;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ProviderName, TenantName};
use std::collections::BTreeSet;

/// The most providers that one layout wakes. The next request wakes any other.
const PROVIDERS_MAX: usize = 500;

/// Returns the wakeups of the providers that a tenant's new layout has otherwise than `before`,
/// those that it adds or lacks included. All its providers if the layout before is unknown, or if
/// the tenant reloads (`is_reloading`).
pub(crate) fn wakeups(
    tenant: &TenantName,
    layout: &Layout,
    before: &PreviousLayout<'_>,
    is_reloading: bool,
) -> Vec<Wakeup> {
    let before = match before {
        PreviousLayout::Layout(before) => before.providers(),
        PreviousLayout::Nothing | PreviousLayout::Unknown => &[],
    };
    let new = layout.providers().iter();
    let changed = new.filter(|provider| is_reloading || !before.contains(provider));
    let removed = before.iter().filter(|old| {
        layout.providers().iter().all(|new| new.canonical_name != old.canonical_name)
    });
    let names: BTreeSet<&str> =
        changed.chain(removed).map(|provider| provider.canonical_name.as_str()).collect();
    if names.len() > PROVIDERS_MAX {
        tracing::warn!(
            %tenant,
            providers = names.len(),
            "a layout changes more than {PROVIDERS_MAX} providers: the others keep no nodes ready before their first request"
        );
    }
    let wakeup = |name: &str| Wakeup::ProviderChange {
        provider: ProviderName(name.to_owned()),
        tenant: tenant.clone(),
    };
    names.into_iter().take(PROVIDERS_MAX).map(wakeup).collect()
}
