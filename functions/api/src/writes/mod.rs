//! Requests that change something: who may send them, and the commands that they store (Z9.1,
//! C2.2).
//!
//! Each stores the command that the command line stores ([`sluice_commands`]); the functions that
//! own the state carry it out, so a success says that the command is stored. There are no such
//! requests until an authenticator is configured.

mod body;
mod queues;
mod resources;

use crate::authentication::{self, Caller};
use crate::reply::{self, ErrorResponse};
use crate::request::{ApiRequest, WriteMethod};
use crate::{Api, access, load, openapi};
use body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use serde_json::Value;
use sluice_auth::{AccessDecision, RequestedAction, RequestedProject, TokenBearer};
use sluice_commands::{CommandAuthor, CommandSource};
use sluice_config::layout::Layout;
use sluice_config::tenant::{Permission, TenantProject};
use sluice_model::TenantName;
use sluice_runtime::Ports;

/// The message about a system without authenticators.
pub(crate) const NO_AUTHENTICATOR: &str = "Nothing can be changed over this API: no authenticator is configured. An operator adds one with `sluice authenticator add`, or uses `sluice`.";

/// What a request would change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WriteRoute {
    Enqueue {
        project: String,
    },
    Dequeue {
        project: String,
    },
    Promote,
    TenantState,
    CreateAutohold {
        project: String,
    },
    DeleteAutohold {
        id: String,
    },
    ChangeNode {
        id: String,
    },
    DeleteRequest {
        id: String,
    },
    BuildImage {
        name: String,
    },
    /// Something of Zuul's that has no subject here yet.
    Unsupported {
        permission: Permission,
    },
}

impl WriteRoute {
    /// Returns what a method at a path below a tenant would change; `None` if there is no such
    /// path.
    fn of(method: WriteMethod, rest: &[&str]) -> Option<Self> {
        use WriteMethod::{Delete, Post, Put};
        let named = |name: &[&str]| (!name.is_empty()).then(|| name.join("/"));
        Some(match (method, rest) {
            (Post, ["project", name @ .., "enqueue"]) => Self::Enqueue { project: named(name)? },
            (Post, ["project", name @ .., "dequeue"]) => Self::Dequeue { project: named(name)? },
            (Post, ["project", name @ .., "autohold"]) => {
                Self::CreateAutohold { project: named(name)? }
            }
            (Post, ["promote"]) => Self::Promote,
            (Post, ["state"]) => Self::TenantState,
            (Delete, ["autohold", id]) => Self::DeleteAutohold { id: (*id).to_owned() },
            (Put, ["nodes", id]) => Self::ChangeNode { id: (*id).to_owned() },
            (Delete, ["nodeset-requests", id]) => Self::DeleteRequest { id: (*id).to_owned() },
            (Post, ["image", name @ .., "build"]) => Self::BuildImage { name: named(name)? },
            (Post, ["image-upload", _, "validate"]) => {
                Self::Unsupported { permission: Permission::ValidateImageUpload }
            }
            (Post, ["image-upload", _, "upload"]) => {
                Self::Unsupported { permission: Permission::UploadImage }
            }
            (Delete, ["image-build-artifact", _]) => {
                Self::Unsupported { permission: Permission::DeleteImageBuildArtifact }
            }
            (Delete, ["image-upload", _]) => {
                Self::Unsupported { permission: Permission::DeleteImageUpload }
            }
            _ => return None,
        })
    }

    /// Returns the permission that it needs.
    fn permission(&self) -> Permission {
        match self {
            Self::Enqueue { .. } => Permission::Enqueue,
            Self::Dequeue { .. } => Permission::Dequeue,
            Self::Promote => Permission::Promote,
            Self::TenantState => Permission::SetTenantState,
            Self::CreateAutohold { .. } | Self::DeleteAutohold { .. } => Permission::Autohold,
            Self::ChangeNode { .. } => Permission::ModifyNode,
            Self::DeleteRequest { .. } => Permission::ModifyNodesetRequest,
            Self::BuildImage { .. } => Permission::BuildImage,
            Self::Unsupported { permission } => *permission,
        }
    }
}

/// Returns the error for something that the bearer may not do in a tenant.
fn forbidden(tenant: &TenantName, why: &str) -> ErrorResponse {
    ErrorResponse::forbidden(format!("you may not do this in the tenant {tenant}: {why}"))
}

/// A write whose bearer is known and may read the tenant. What it asks for is not decided yet.
struct PendingWrite<'a> {
    api: &'a Api,
    tenant: &'a TenantName,
    access: access::TenantAccess<'a>,
    principal: &'a TokenBearer,
    body: Body,
}

impl PendingWrite<'_> {
    fn ports(&self) -> &Ports {
        &self.api.ports
    }

    /// Decides whether the bearer may do something, and returns them as the author of its command.
    /// The error is 403; its reason is in the log.
    fn authorize(&self, action: &RequestedAction<'_>) -> Result<CommandAuthor, ErrorResponse> {
        let uid = self.principal.uid();
        match self.access.policy().decide(Some(self.principal), action) {
            AccessDecision::Allowed { why } => {
                tracing::info!(tenant = %self.tenant, uid, why, "a write over the API is allowed");
                let authenticator = self.principal.authenticator().to_owned();
                let source = CommandSource::Api { authenticator };
                Ok(CommandAuthor { name: uid.to_owned(), source })
            }
            AccessDecision::Forbidden { why } => {
                tracing::info!(tenant = %self.tenant, uid, why, permission = ?action.permission, "a write over the API is denied");
                Err(forbidden(self.tenant, &why))
            }
            // The guard has decided that already, a moment ago.
            AccessDecision::Hidden | AccessDecision::NeedsToken => Err(load::missing(self.tenant)),
        }
    }

    /// Decides about something that concerns no single project.
    fn authorize_for_all(&self, permission: Permission) -> Result<CommandAuthor, ErrorResponse> {
        self.authorize(&RequestedAction::for_all(permission))
    }
}

/// Answers a request that would change something. 404 if there is no authenticator, no such path,
/// or no such tenant that the bearer may read; 401 without a token; 403 if the bearer may not do
/// it; 400 for a body that cannot be used. A success says that the command is stored.
pub(crate) async fn answer(
    api: &Api,
    request: &ApiRequest,
    headers: &HeaderMap,
) -> Result<Response<Bytes>, ErrorResponse> {
    if api.authentication.known(&api.ports).await?.is_empty() {
        return Err(ErrorResponse::missing(NO_AUTHENTICATOR));
    }
    let caller = authentication::caller(api, headers).await?;
    let parts: Vec<&str> = request.parts.iter().map(String::as_str).collect();
    let (tenant, rest) = match parts.as_slice() {
        ["api", "tenant", tenant, rest @ ..] => (TenantName::from(*tenant), rest),
        _ => return Err(openapi::refusal(&parts)),
    };
    let Caller::Bearer(principal) = &caller else {
        return Err(authentication::missing_token(api).await);
    };
    let config = api.access.config(&api.ports).await?.unwrap_or_default();
    let access = access::readable_tenant(api, &config, &tenant, &caller).await?;
    request.allow_parameters(&[])?;
    let route = request.write.and_then(|method| WriteRoute::of(method, rest));
    let Some(route) = route else {
        return Err(openapi::refusal(&parts));
    };
    // A bearer who may never do this gets no answer about the rest of the request.
    if !access.policy().permissions(principal).may(route.permission()) {
        return Err(forbidden(&tenant, "no rule grants the permission"));
    }
    let bytes = request.body.as_deref().unwrap_or_default();
    if bytes.is_empty() && openapi::needs_body(&parts) {
        return Err(ErrorResponse::bad("The request must have a body: a JSON object."));
    }
    let body = Body::parse(bytes)?;
    let write = PendingWrite { api, tenant: &tenant, access, principal, body };
    let mut response = carry_out(&write, route).await?;
    reply::make_private(&mut response);
    Ok(response)
}

/// Authorizes a write and stores its command.
async fn carry_out(
    write: &PendingWrite<'_>,
    route: WriteRoute,
) -> Result<Response<Bytes>, ErrorResponse> {
    match route {
        WriteRoute::Enqueue { project } => queues::enqueue(write, &project).await,
        WriteRoute::Dequeue { project } => queues::dequeue(write, &project).await,
        WriteRoute::Promote => queues::promote(write).await,
        WriteRoute::TenantState => resources::change_tenant_state(write).await,
        WriteRoute::CreateAutohold { project } => resources::create_autohold(write, &project).await,
        WriteRoute::DeleteAutohold { id } => resources::delete_autohold(write, &id).await,
        WriteRoute::ChangeNode { id } => resources::change_node(write, &id).await,
        WriteRoute::DeleteRequest { id } => resources::delete_request(write, &id).await,
        WriteRoute::BuildImage { name } => resources::build_image(write, &name).await,
        WriteRoute::Unsupported { permission } => {
            write.authorize_for_all(permission)?;
            let why = "images are not uploaded yet, so there is nothing to validate or delete";
            Err(ErrorResponse::NotImplemented { why: why.to_owned() })
        }
    }
}

/// Returns the names that mean a project in a tenant, for conditions of roles.
fn requested<'p>(layout: &Layout, project: &'p TenantProject) -> RequestedProject<'p> {
    let short = project.name.name();
    let is_meant = layout.project(short).is_some_and(|found| found.name == project.name);
    RequestedProject { canonical: project.name.as_str(), short: is_meant.then_some(short) }
}

/// Returns the error for reading a path that is only written, which has the methods `allowed`: 405,
/// or 404 if there is no authenticator or no such tenant.
pub(crate) async fn not_read(api: &Api, tenant: &TenantName, allowed: String) -> ErrorResponse {
    if let Err(error) = load::require_tenant(&api.ports, tenant).await {
        return error;
    }
    match api.authentication.known(&api.ports).await {
        Ok(known) if known.is_empty() => ErrorResponse::missing(NO_AUTHENTICATOR),
        Ok(_) => ErrorResponse::Method { allowed },
        Err(error) => error,
    }
}

/// Returns the answer to a command that was stored, in Zuul's form.
fn stored(status: StatusCode, value: &Value) -> Response<Bytes> {
    let mut response = reply::json(value);
    *response.status_mut() = status;
    response
}

/// Returns the answer to something that was deleted.
fn deleted() -> Response<Bytes> {
    let mut response = reply::finish(reply::builder(), Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: a project's name may have slashes and parts that look like routes.
    #[test]
    fn a_project_is_named_up_to_the_last_part() {
        let of =
            |path: &str| WriteRoute::of(WriteMethod::Post, &path.split('/').collect::<Vec<_>>());
        let enqueue = |project: &str| Some(WriteRoute::Enqueue { project: project.to_owned() });
        assert_eq!(of("project/a/b/enqueue"), enqueue("a/b"));
        assert_eq!(of("project/enqueue/enqueue"), enqueue("enqueue"));
        assert_eq!(of("project/enqueue"), None);
        assert_eq!(of("enqueue"), None);
    }
}
