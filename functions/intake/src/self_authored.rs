//! Recognises events that Sluice itself caused on a forge. They trigger only pipelines that ask for
//! them.
//!
//! The connection's configuration names the account of its token, or the forge does. An
//! application's token has no account: its statuses are recognised by their name, which is a tenant
//! and a pipeline, and the sweep synthesizes no reviews of applications.

use crate::{Intake, retry_error};
use sluice_forge::ErrorClass;
use sluice_gate::filter::EventAuthor;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{ConnectionName, TenantName};
use sluice_records::connection::{self, StoredConnection};
use sluice_records::tenant;
use sluice_runtime::batch::ReconcileError;

/// The suffix of application accounts.
const APPLICATION: &str = "[bot]";

/// Returns whether an account may be the connection's own; if its own account is unknown, every
/// application may be.
pub(crate) fn may_be_self(connection: &StoredConnection, by: &str) -> bool {
    match connection.login {
        Some(_) => connection.is_own_account(by),
        None => by.ends_with(APPLICATION),
    }
}

impl Intake {
    /// Returns whether Sluice or another account caused an event; only statuses, check runs and
    /// votes can be Sluice's. They are if their account is the connection's own. Where that is
    /// unknown, a status is Sluice's if its name is the name of a tenant, a slash and more; a vote
    /// never is.
    pub(crate) async fn event_speaker(
        &self,
        event: &ForgeEvent,
    ) -> Result<EventAuthor, ReconcileError> {
        let by: &str = match &event.kind {
            EventKind::Change { status: Some(_), .. } => &event.sender,
            EventKind::Gerrit(gerrit) if !gerrit.votes.is_empty() => &gerrit.username,
            _ => return Ok(EventAuthor::ThirdParty),
        };
        let is_ours = match self.connection_with_account(&event.connection).await? {
            Some(connection) if connection.login.is_some() => connection.is_own_account(by),
            Some(_) | None => match name_of(event) {
                Some(name) => is_ours_by_name(name, &tenant::list_tenants(&self.ports).await?),
                None => false,
            },
        };
        Ok(if is_ours { EventAuthor::Sluice } else { EventAuthor::ThirdParty })
    }

    /// Returns a stored connection with its account, read from the forge where it is not
    /// configured. The account stays `None` where neither knows it. `None` if the connection is not
    /// stored.
    pub(crate) async fn connection_with_account(
        &self,
        name: &ConnectionName,
    ) -> Result<Option<StoredConnection>, ReconcileError> {
        let Some(mut connection) = connection::load(&self.ports).await?.0.remove(name) else {
            return Ok(None);
        };
        if let Some(forge) = self.forges.get(name).filter(|_| connection.login.is_none()) {
            connection.login = match forge.own_account().await {
                Ok(login) => login,
                Err(error) if error.class() == ErrorClass::Final => None,
                Err(error) => return Err(retry_error(error)),
            };
        }
        Ok(Some(connection))
    }
}

/// Returns the name of the status or check run that an event reports; `None` for other events.
fn name_of(event: &ForgeEvent) -> Option<&str> {
    let EventKind::Change { status: Some(status), .. } = &event.kind else { return None };
    let (_, rest) = status.split_once(':')?;
    rest.rsplit_once(':').map(|(name, _)| name)
}

/// Returns whether a status has the form that Sluice uses: one of these tenants, a slash and
/// something after it.
fn is_ours_by_name(name: &str, tenants: &[TenantName]) -> bool {
    let rest = |tenant: &TenantName| {
        name.strip_prefix(tenant.as_str()).and_then(|rest| rest.strip_prefix('/'))
    };
    tenants.iter().filter_map(rest).any(|pipeline| !pipeline.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1
    #[test]
    fn a_status_is_ours_if_its_name_begins_with_a_tenant() {
        let tenants: [TenantName; 2] = ["demo".into(), "org/other".into()];
        for (name, is_ours) in [
            ("demo/check", true),
            ("org/other/gate", true),
            ("demo/", false),
            ("demo", false),
            ("demonstration/check", false),
            ("org/gate", false),
            ("ci/demo/check", false),
            ("", false),
        ] {
            assert_eq!(is_ours_by_name(name, &tenants), is_ours, "{name}");
        }
        assert!(!is_ours_by_name("demo/check", &[]));
    }
}
