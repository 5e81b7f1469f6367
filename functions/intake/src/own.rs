//! What we said ourselves on a forge, which starts nothing that does not wait for it.
//!
//! A connection says which account its token acts as, or the forge does. An application's token has
//! no answer to that: there statuses are known by what we call them, by a tenant and a pipeline,
//! and what applications review is not made up for.

use crate::{Intake, again};
use sluice_forge::Verdict;
use sluice_gate::filter::Speaker;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{ConnectionName, TenantName};
use sluice_records::connection::{self, Connection};
use sluice_records::tenant;
use sluice_runtime::batch::LookError;

/// How the accounts of applications end.
const APPLICATION: &str = "[bot]";

/// Returns whether somebody may be the account that we act as: where nobody knows that, any
/// application.
pub(crate) fn may_be_own(connection: &Connection, by: &str) -> bool {
    match connection.login {
        Some(_) => connection.is_own(by),
        None => by.ends_with(APPLICATION),
    }
}

impl Intake {
    /// Returns who says what an event tells: of a status, a check run or votes it may be this
    /// service.
    pub(crate) async fn who_says(&self, event: &ForgeEvent) -> Result<Speaker, LookError> {
        let by: &str = match &event.kind {
            EventKind::Change { status: Some(_), .. } => &event.sender,
            EventKind::Gerrit(told) if !told.votes.is_empty() => &told.username,
            _ => return Ok(Speaker::Others),
        };
        let is_ours = match self.account(&event.connection).await? {
            Some(known) if known.login.is_some() => known.is_own(by),
            Some(_) | None => match name_of(event) {
                Some(name) => is_ours_by_name(name, &tenant::listed(&self.ports).await?),
                None => false,
            },
        };
        Ok(if is_ours { Speaker::Ourselves } else { Speaker::Others })
    }

    /// Returns a connection that is stored, with the account that its token acts as: its forge says
    /// whose it is where an operator has not. No account where neither does.
    pub(crate) async fn account(
        &self,
        name: &ConnectionName,
    ) -> Result<Option<Connection>, LookError> {
        let Some(mut known) = connection::load(&self.ports).await?.0.remove(name) else {
            return Ok(None);
        };
        if let Some(forge) = self.forges.get(name).filter(|_| known.login.is_none()) {
            known.login = match forge.own_account().await {
                Ok(login) => login,
                Err(error) if error.verdict() == Verdict::Final => None,
                Err(error) => return Err(again(error)),
            };
        }
        Ok(Some(known))
    }
}

/// Returns how a status or check run is called that an event tells of.
fn name_of(event: &ForgeEvent) -> Option<&str> {
    let EventKind::Change { status: Some(status), .. } = &event.kind else { return None };
    let (_, rest) = status.split_once(':')?;
    rest.rsplit_once(':').map(|(name, _)| name)
}

/// Whether a status is called as we call ours: by a tenant, and what follows its name.
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
    fn a_status_is_ours_by_name_where_it_is_called_by_one_of_the_tenants() {
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
