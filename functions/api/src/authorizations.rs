//! `T/authorizations` and `/api/authorizations`: what the bearer of a token may do. Clients show
//! only that.

use crate::authentication::{self, Caller};
use crate::reply::{self, ErrorResponse};
use crate::{Api, access};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sluice_auth::{AccessPolicy, PermissionList, TokenBearer};
use sluice_model::TenantName;

/// The scope of what belongs to no tenant.
const ROOT: &str = "*";

/// Answers with what the bearer may do in a tenant. 401 without a token; 404 if there is no
/// authenticator, or no such tenant that the bearer may read.
pub(crate) async fn of_tenant(
    api: &Api,
    tenant: &TenantName,
    caller: &Caller,
) -> Result<Response<Bytes>, ErrorResponse> {
    let principal = required(api, caller).await?;
    let config = api.access.config(&api.ports).await?.unwrap_or_default();
    let access = access::readable_tenant(api, &config, tenant, caller).await?;
    Ok(answer(&access.policy().permissions(principal), tenant.as_str()))
}

/// Answers with what the bearer may do outside of tenants. 401 without a token; 404 if there is no
/// authenticator.
pub(crate) async fn of_root(api: &Api, caller: &Caller) -> Result<Response<Bytes>, ErrorResponse> {
    let principal = required(api, caller).await?;
    let config = api.access.config(&api.ports).await?.unwrap_or_default();
    Ok(answer(&AccessPolicy::of_root(&config).permissions(principal), ROOT))
}

/// Returns the principal of a request that needs a token.
async fn required<'c>(api: &Api, caller: &'c Caller) -> Result<&'c TokenBearer, ErrorResponse> {
    if api.authentication.known(&api.ports).await?.is_empty() {
        return Err(ErrorResponse::missing(crate::writes::NO_AUTHENTICATOR));
    }
    match caller.principal() {
        Some(principal) => Ok(principal),
        None => Err(authentication::missing_token(api).await),
    }
}

/// Returns the answer in Zuul's form. Without roles it says whether the bearer is an administrator;
/// with roles only the permissions do.
fn answer(list: &PermissionList, scope: &str) -> Response<Bytes> {
    let mut permissions: Map<String, Value> = Map::new();
    if list.may_read {
        permissions.insert("read".to_owned(), json!(true));
    }
    if list.is_admin {
        permissions.insert("admin".to_owned(), json!(true));
    }
    permissions.extend(list.actions.iter().map(|word| ((*word).to_owned(), json!(true))));
    let mut zuul = json!({"permissions": permissions, "scope": [scope]});
    if !list.has_roles {
        zuul["admin"] = json!(list.is_admin);
    }
    let mut response = reply::json(&json!({"zuul": zuul}));
    reply::make_private(&mut response);
    response
}
