//! Which requests may read: the access rules of tenants and of what belongs to no tenant (C2.2,
//! Z2.3, Z9.1).
//!
//! The guard runs before the routes, over the same decoded path parts, so a new route is guarded
//! without knowing it. A tenant that the caller may not read is answered as one that does not
//! exist: 401 without a token, 404 with one, before anything of the tenant is read.

use crate::Api;
use crate::authentication::{self, CACHE_SECONDS, Caller};
use crate::load;
use crate::reply::ErrorResponse;
use futures::lock::Mutex;
use sluice_auth::{AccessPolicy, RequestedAction};
use sluice_config::Severity;
use sluice_config::layout::Layout;
use sluice_config::tenant::{MainConfig, TenantConfig, parse_main};
use sluice_model::{TenantName, Timestamp};
use sluice_records::connection;
use sluice_runtime::Ports;
use std::sync::Arc;

/// The path of the main configuration in messages.
const MAIN_PATH: &str = "main.yaml";

/// The cached main configuration, which has the access rules.
#[derive(Default)]
pub(crate) struct AccessRules {
    cached: Mutex<Option<CachedRules>>,
}

struct CachedRules {
    read_at: Timestamp,
    tag: Option<String>,
    /// `None` if no main configuration is stored; then there are no rules.
    config: Option<Arc<MainConfig>>,
}

impl AccessRules {
    /// Returns the main configuration, at most [`CACHE_SECONDS`] old; `None` if none is stored. One
    /// that has errors is an error: a rule may be among what cannot be read.
    pub(crate) async fn config(
        &self,
        ports: &Ports,
    ) -> Result<Option<Arc<MainConfig>>, ErrorResponse> {
        let now = ports.clock.now();
        let mut cached = self.cached.lock().await;
        if let Some(rules) = &*cached
            && now.since(rules.read_at) < CACHE_SECONDS * 1_000
        {
            return Ok(rules.config.clone());
        }
        let object = ports.objects.get(connection::MAIN).await?;
        let tag = object.as_ref().map(|object| object.etag.clone());
        let config = match (cached.take(), object) {
            (Some(rules), _) if rules.tag == tag => rules.config,
            (_, None) => None,
            (_, Some(object)) => Some(Arc::new(parse(ports, &object.bytes).await?)),
        };
        *cached = Some(CachedRules { read_at: now, tag, config: config.clone() });
        Ok(config)
    }
}

/// Parses the main configuration with the stored connections.
async fn parse(ports: &Ports, bytes: &[u8]) -> Result<MainConfig, ErrorResponse> {
    let unusable = |why: String| {
        tracing::error!(
            why,
            "the stored main configuration has errors, so the API refuses every request; load it again with `sluice tenant load`"
        );
        ErrorResponse::Unavailable { detail: "the access rules cannot be read".to_owned() }
    };
    let text = std::str::from_utf8(bytes).map_err(|error| unusable(error.to_string()))?;
    let connections = connection::load_if_stored(ports).await?.unwrap_or_default();
    let (config, errors) = parse_main(MAIN_PATH, text, &connections.vocabulary());
    let error = errors.iter().find(|error| error.diagnostic.severity == Severity::Error);
    match error {
        Some(error) => Err(unusable(error.diagnostic.message.clone())),
        None => Ok(config),
    }
}

/// Whether an answer may be kept by caches that serve several users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerSharing {
    /// It may.
    Shared,
    /// It depends on who makes the request.
    Private,
}

/// One tenant and the main configuration, which defines the rules that its access rules name.
pub(crate) struct TenantAccess<'c> {
    config: &'c MainConfig,
    tenant: TenantSource<'c>,
}

/// What holds the attributes of a tenant.
enum TenantSource<'c> {
    /// The main configuration.
    Main(&'c TenantConfig),
    /// The live layout of a tenant that the main configuration lacks.
    Live(Arc<Layout>),
}

impl TenantAccess<'_> {
    /// Returns the policy of the tenant.
    pub(crate) fn policy(&self) -> AccessPolicy<'_> {
        match &self.tenant {
            TenantSource::Main(tenant) => AccessPolicy::of_tenant(self.config, tenant),
            TenantSource::Live(layout) => AccessPolicy::of_tenant(self.config, layout.tenant()),
        }
    }

    /// Returns whether the caller may read the tenant.
    fn may_be_read_by(&self, caller: &Caller) -> bool {
        self.policy().decide(caller.principal(), &RequestedAction::read()).is_allowed()
    }
}

/// Returns the access rules of a tenant: those of the main configuration, or of the live layout for
/// a tenant that is being removed. `None` if there is no such tenant.
async fn find_access<'c>(
    api: &Api,
    config: &'c MainConfig,
    tenant: &TenantName,
) -> Result<Option<TenantAccess<'c>>, ErrorResponse> {
    if let Some(found) = config.tenants.iter().find(|one| one.name == *tenant) {
        return Ok(Some(TenantAccess { config, tenant: TenantSource::Main(found) }));
    }
    let live = api.layouts.load_live(&api.ports, tenant).await?;
    let live = live.filter(|live| !live.tenant.is_removed);
    Ok(live.map(|live| TenantAccess { config, tenant: TenantSource::Live(live.layout) }))
}

/// Returns whether reading any tenant, or what belongs to none, needs a token.
fn protects_anything(config: &MainConfig) -> bool {
    let policies = config.tenants.iter().map(|tenant| AccessPolicy::of_tenant(config, tenant));
    policies.chain([AccessPolicy::of_root(config)]).any(|policy| policy.is_read_protected())
}

/// Decides whether a request with this path may be answered, and whether the answer may be shared.
/// See the module's documentation.
pub(crate) async fn guard(
    api: &Api,
    parts: &[&str],
    caller: &Caller,
) -> Result<AnswerSharing, ErrorResponse> {
    match parts {
        ["api", "tenant", _, "info"] | ["api", "info"] => Ok(AnswerSharing::Shared),
        ["api", "tenant", name, ..] | ["logs", name, ..] => {
            guard_tenant(api, &TenantName::from(*name), caller).await
        }
        ["api"] | ["api", "tenants" | "components" | "connections", ..] => {
            guard_root(api, caller).await
        }
        _ => Ok(AnswerSharing::Shared),
    }
}

/// Decides about what belongs to no tenant. A caller whose token allows nothing gets 403: that
/// there is a list of tenants is no secret.
async fn guard_root(api: &Api, caller: &Caller) -> Result<AnswerSharing, ErrorResponse> {
    let config = api.access.config(&api.ports).await?.unwrap_or_default();
    if AccessPolicy::of_root(&config)
        .decide(caller.principal(), &RequestedAction::read())
        .is_allowed()
    {
        // Where there are tokens, a tenant that is being removed may still be closed.
        let has_tokens = !api.authentication.known(&api.ports).await?.is_empty();
        return Ok(match protects_anything(&config) || has_tokens {
            true => AnswerSharing::Private,
            false => AnswerSharing::Shared,
        });
    }
    Err(match caller {
        Caller::Anonymous => authentication::missing_token(api).await,
        Caller::Bearer(_) => ErrorResponse::forbidden("no access rule of api-root matches"),
    })
}

/// Decides about a tenant.
async fn guard_tenant(
    api: &Api,
    tenant: &TenantName,
    caller: &Caller,
) -> Result<AnswerSharing, ErrorResponse> {
    // Without a stored main configuration, live layouts have the rules.
    let config = api.access.config(&api.ports).await?.unwrap_or_default();
    match find_access(api, &config, tenant).await? {
        Some(access) if access.may_be_read_by(caller) => {
            Ok(match access.policy().is_read_protected() {
                true => AnswerSharing::Private,
                false => AnswerSharing::Shared,
            })
        }
        None if !protects_anything(&config) => Err(load::missing(tenant)),
        // A tenant that is being removed is answered as an unknown one, whatever the others need.
        Some(TenantAccess { tenant: TenantSource::Live(_), .. }) if !protects_anything(&config) => {
            Err(load::missing(tenant))
        }
        Some(_) | None => Err(hidden(api, caller, tenant).await),
    }
}

/// Returns the error for a tenant that the caller may not know of: 401 without a token, otherwise
/// 404. It is the same whether there is such a tenant or not.
async fn hidden(api: &Api, caller: &Caller, tenant: &TenantName) -> ErrorResponse {
    match caller {
        Caller::Anonymous => authentication::missing_token(api).await,
        Caller::Bearer(_) => ErrorResponse::missing(format!(
            "There is no tenant {tenant}, or the token may not read it."
        )),
    }
}

/// Returns the access rules of a tenant that the caller may read, by the main configuration
/// `config`. The error is that of [`guard`].
pub(crate) async fn readable_tenant<'c>(
    api: &Api,
    config: &'c MainConfig,
    tenant: &TenantName,
    caller: &Caller,
) -> Result<TenantAccess<'c>, ErrorResponse> {
    guard_tenant(api, tenant, caller).await?;
    load::require_tenant(&api.ports, tenant).await?;
    let found = find_access(api, config, tenant).await?;
    found.ok_or_else(|| load::missing(tenant))
}

/// What of the access rules concerns the lists and information outside of tenants.
pub(crate) struct Visibility {
    config: Arc<MainConfig>,
    caller: Caller,
}

impl Visibility {
    /// Reads the access rules.
    pub(crate) async fn read(api: &Api, caller: &Caller) -> Result<Self, ErrorResponse> {
        let config = api.access.config(&api.ports).await?.unwrap_or_default();
        Ok(Self { config, caller: caller.clone() })
    }

    /// Returns whether the caller may know of a tenant.
    pub(crate) async fn is_visible(
        &self,
        api: &Api,
        tenant: &TenantName,
    ) -> Result<bool, ErrorResponse> {
        let config = &self.config;
        let access = find_access(api, config, tenant).await?;
        // A tenant without a layout that the main configuration lacks has no rules that are known.
        Ok(match access {
            Some(access) => access.may_be_read_by(&self.caller),
            None => !protects_anything(config),
        })
    }

    /// Returns whether the caller may know of a connection: it is used by no tenant, or by one that
    /// the caller may read.
    pub(crate) fn is_connection_visible(&self, name: &str) -> bool {
        let config = &self.config;
        let mut users = config
            .tenants
            .iter()
            .filter(|tenant| {
                tenant.projects.iter().any(|project| project.connection.as_str() == name)
            })
            .peekable();
        users.peek().is_none()
            || users.any(|tenant| {
                AccessPolicy::of_tenant(config, tenant)
                    .decide(self.caller.principal(), &RequestedAction::read())
                    .is_allowed()
            })
    }

    /// Returns whether anything needs a token to be read.
    pub(crate) fn protects_anything(&self) -> bool {
        protects_anything(&self.config)
    }

    /// Returns the realm of a tenant, or of what belongs to none (`None`), if it has one of its own
    /// and the caller may know it.
    pub(crate) fn realm(&self, tenant: Option<&TenantName>) -> Option<&str> {
        let config = &self.config;
        let access = match tenant {
            None => &config.api_root,
            Some(name) => {
                let found = config.tenants.iter().find(|one| one.name == *name)?;
                let policy = AccessPolicy::of_tenant(config, found);
                policy
                    .decide(self.caller.principal(), &RequestedAction::read())
                    .is_allowed()
                    .then_some(&found.access)?
            }
        };
        access.authentication_realm.as_deref()
    }

    /// Returns whether reading a tenant, or what belongs to none (`None`), needs a token. A tenant
    /// that does not exist seems protected if anything is.
    pub(crate) fn is_read_protected(&self, tenant: Option<&TenantName>) -> bool {
        let config = &self.config;
        let Some(name) = tenant else { return AccessPolicy::of_root(config).is_read_protected() };
        match config.tenants.iter().find(|one| one.name == *name) {
            Some(found) => AccessPolicy::of_tenant(config, found).is_read_protected(),
            None => protects_anything(config),
        }
    }
}
