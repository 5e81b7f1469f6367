//! The functions that call a cloud, as one program on AWS Lambda has them. Only this program and
//! the local system link the drivers of clouds.

use async_trait::async_trait;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use sluice_cloud::{
    AssumedRole, Ec2Driver, Ec2Settings, LaunchSettings, LoginKey, RoleError, RoleToAssume,
};
use sluice_config::connection::Driver;
use sluice_handler::{
    Function, FunctionEnvironment, FunctionHandler, FunctionName, InvocationError,
};
use sluice_launcher::{Cloud, Launcher, SshChecks};
use sluice_model::ConnectionName;
use sluice_records::connection::{self, ConnectionsFile, StoredConnection, StoredRole, ec2_region};
use sluice_records::pool_key::PoolKey;
use sluice_runtime::PortError;
use sluice_runtime::batch::Reconciler;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the handler of the launcher. Calls nothing yet: connections and the key of the node pool
/// are read when the first message comes.
///
/// # Errors
/// When another program has the function.
pub fn handler(
    name: FunctionName,
    environment: FunctionEnvironment,
) -> Result<FunctionHandler, InvocationError> {
    if name != FunctionName::Launcher {
        return Err(InvocationError::in_another_program(name));
    }
    let function = LauncherFunction(environment.clone());
    Ok(FunctionHandler::new(name, &environment, Box::new(function)))
}

/// The function that launches nodes.
struct LauncherFunction(FunctionEnvironment);

#[async_trait]
impl Function for LauncherFunction {
    /// Builds the launcher with a client for each AWS connection. Reads and decrypts the SSH key of
    /// the node pool. An error if there is no such key, or it cannot be used.
    async fn reconciler(
        &self,
        connections: &ConnectionsFile,
        _: u64,
    ) -> Result<Arc<dyn Reconciler>, InvocationError> {
        let Self(environment) = self;
        let key = PoolKey::load_required(&environment.ports).await?;
        let private = key.open(&environment.ports).await?;
        let login = LoginKey::from_openssh(&private)
            .map_err(|error| InvocationError::setup(error.to_string()))?;
        let clouds = clouds(environment, connections, &key.public).await?;
        let checks = Arc::new(SshChecks::new(login));
        Ok(Arc::new(Launcher::new(environment.ports.clone(), clouds, checks)))
    }
}

/// Returns a client for each AWS connection, by name. A connection without an own address, region
/// or credentials has those of `environment`. Machines that are launched accept the public key
/// `authorized_key`. Leaves out, with an error in the log, connections whose address is no URL or
/// for which no client can be built. A secret that cannot be decrypted is an error. No cloud is
/// called.
async fn clouds(
    environment: &FunctionEnvironment,
    connections: &ConnectionsFile,
    authorized_key: &str,
) -> Result<BTreeMap<ConnectionName, Cloud>, PortError> {
    let mut clouds = BTreeMap::new();
    for (name, connection) in connections.with_driver(Driver::Aws) {
        let own = connection.api_url.as_deref().map(str::parse);
        let endpoint = match own.transpose() {
            Ok(own) => own.or_else(|| environment.endpoint.clone()),
            Err(error) => {
                tracing::error!(connection = %name, %error, "the connection's --api-url is not a URL; the connection is skipped");
                continue;
            }
        };
        let region =
            ec2_region(&connection.canonical_hostname).unwrap_or(&environment.region).to_owned();
        let settings = Ec2Settings {
            region,
            endpoint,
            connection: name.to_string(),
            role_arn: connection.aws.role.as_ref().map(|role| role.arn.clone()),
        };
        let base = access_key(environment, name, connection)
            .await?
            .unwrap_or_else(|| environment.credentials.clone());
        let driver = assumed_role(environment, name, connection, &settings.region, base)
            .map_err(|error| error.to_string())
            .and_then(|credentials| {
                Ec2Driver::new(settings, credentials).map_err(|error| error.to_string())
            });
        match driver {
            Ok(driver) => {
                let site = LaunchSettings {
                    authorized_keys: vec![authorized_key.to_owned()],
                    ..LaunchSettings::default()
                };
                clouds.insert(name.clone(), Cloud { driver: Arc::new(driver), site });
            }
            Err(error) => {
                tracing::error!(connection = %name, %error, "could not set up the connection; it is skipped")
            }
        }
    }
    Ok(clouds)
}

/// Decrypts the access key of a connection; `None` if it has none. An error if its secret cannot be
/// decrypted.
async fn access_key(
    environment: &FunctionEnvironment,
    name: &ConnectionName,
    stored: &StoredConnection,
) -> Result<Option<SharedCredentialsProvider>, PortError> {
    let Some(key) = &stored.aws.access_key else { return Ok(None) };
    let context = connection::seal_context(name, connection::SECRET_ACCESS_KEY);
    let secret = connection::open(&environment.ports, &context, &key.sealed_secret).await?;
    let credentials = Credentials::new(&key.id, secret, None, None, "connection");
    Ok(Some(SharedCredentialsProvider::new(credentials)))
}

/// Returns the credentials of a connection's role, which are requested with `base` when they are
/// first needed; `base` itself if the connection has no role.
fn assumed_role(
    environment: &FunctionEnvironment,
    name: &ConnectionName,
    stored: &StoredConnection,
    region: &str,
    base: SharedCredentialsProvider,
) -> Result<SharedCredentialsProvider, RoleError> {
    let Some(StoredRole { arn, external_id }) = stored.aws.role.clone() else { return Ok(base) };
    let role = RoleToAssume { arn, external_id, used_by: name.to_string() };
    let assumed = AssumedRole::new(role, region, environment.endpoint.clone(), base)?;
    Ok(SharedCredentialsProvider::new(assumed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
