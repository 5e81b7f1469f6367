//! The functions that call a cloud, as one program on AWS Lambda has them. Only this program and
//! the local system link the drivers of clouds.

use async_trait::async_trait;
use sluice_cloud::{Ec2Driver, Ec2Settings, LaunchSettings, LoginKey};
use sluice_config::connection::Driver;
use sluice_handler::{
    Function, FunctionEnvironment, FunctionHandler, FunctionName, InvocationError,
};
use sluice_launcher::{Cloud, Launcher, SshChecks};
use sluice_model::ConnectionName;
use sluice_records::connection::{ConnectionsFile, ec2_region};
use sluice_records::pool_key::PoolKey;
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
        let clouds = clouds(environment, connections, &key);
        let checks = Arc::new(SshChecks::new(login));
        Ok(Arc::new(Launcher::new(environment.ports.clone(), clouds, checks)))
    }
}

/// Returns a client for each AWS connection, by name. A connection without an own address or region
/// has those of `environment`; all have its credentials. Machines that are launched accept the
/// public key `key`. Leaves out, with an error in the log, connections whose address is no URL or
/// for which no client can be built. No cloud is called.
fn clouds(
    environment: &FunctionEnvironment,
    connections: &ConnectionsFile,
    key: &PoolKey,
) -> BTreeMap<ConnectionName, Cloud> {
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
        let settings =
            Ec2Settings { region, endpoint, connection: name.to_string(), role_arn: None };
        match Ec2Driver::new(settings, environment.credentials.clone()) {
            Ok(driver) => {
                let site = LaunchSettings {
                    authorized_keys: vec![key.public.clone()],
                    ..LaunchSettings::default()
                };
                clouds.insert(name.clone(), Cloud { driver: Arc::new(driver), site });
            }
            Err(error) => {
                tracing::error!(connection = %name, %error, "could not set up the connection; it is skipped")
            }
        }
    }
    clouds
}
