//! Finds the address at which other machines reach a socket that listens on every address.
//!
//! On ECS it comes from the task's metadata, on EC2 from the instance's (IMDSv2). Elsewhere an
//! operator configures it.

use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The variable in which ECS puts the address of a task's metadata.
const TASK_VARIABLE: &str = "ECS_CONTAINER_METADATA_URI_V4";
/// The variable that overrides the address of the instance metadata.
const INSTANCE_VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
/// The default address of the instance metadata.
const INSTANCE: &str = "http://169.254.169.254";
/// The timeout of one metadata request: off AWS there is no answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the address at which other machines reach a socket, with its port. This is `bound`
/// itself, unless it is the unspecified address: then it is the IPv4 address in the metadata of the
/// ECS task, or off ECS of the EC2 instance. `None`, with a warning in the log, if these metadata
/// cannot be read or have no such address.
pub async fn reachable(bound: SocketAddr) -> Option<SocketAddr> {
    let task = std::env::var(TASK_VARIABLE).ok();
    let instance = std::env::var(INSTANCE_VARIABLE).unwrap_or_else(|_| INSTANCE.to_owned());
    let found = find(bound, task.as_deref(), &instance).await;
    if found.is_none() {
        tracing::warn!(%bound, "could not find this machine's own address: live logs cannot be read; configure it with --logs");
    }
    found
}

/// Does the same as [`reachable`] without the warning. `task` is the address of the ECS task's
/// metadata, if there is one; `instance` is that of the EC2 metadata service, which is asked only
/// without `task`. Failed requests are logged and give `None`.
async fn find(bound: SocketAddr, task: Option<&str>, instance: &str) -> Option<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return Some(bound);
    }
    let client = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build().ok()?;
    let own = match task {
        Some(task) => task_address(&client, task).await,
        None => instance_address(&client, instance).await,
    };
    match own {
        Ok(own) => own.map(|own| SocketAddr::new(IpAddr::V4(own), bound.port())),
        Err(error) => {
            tracing::info!(error = %error.without_url(), "could not read the machine's metadata");
            None
        }
    }
}

/// The relevant part of a task's metadata.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TaskMetadata {
    #[serde(default)]
    networks: Vec<TaskNetwork>,
}

#[derive(Deserialize)]
struct TaskNetwork {
    #[serde(rename = "IPv4Addresses", default)]
    addresses: Vec<String>,
}

/// Returns the first IPv4 address in the metadata of an ECS task. `None` if they contain none; an
/// error if they cannot be read.
async fn task_address(
    client: &reqwest::Client,
    url: &str,
) -> Result<Option<Ipv4Addr>, reqwest::Error> {
    let task: TaskMetadata = client.get(url).send().await?.error_for_status()?.json().await?;
    let mut addresses = task.networks.iter().flat_map(|network| &network.addresses);
    Ok(addresses.find_map(|address| address.parse().ok()))
}

/// Returns the private IPv4 address in the metadata of an EC2 instance (IMDSv2). `url` is the
/// address of the metadata service. `None` if the answer is no address; an error if it cannot be
/// read.
async fn instance_address(
    client: &reqwest::Client,
    url: &str,
) -> Result<Option<Ipv4Addr>, reqwest::Error> {
    let url = url.trim_end_matches('/');
    let token = client
        .put(format!("{url}/latest/api/token"))
        .header("x-aws-ec2-metadata-token-ttl-seconds", "60");
    let token = token.send().await?.error_for_status()?.text().await?;
    let address = client
        .get(format!("{url}/latest/meta-data/local-ipv4"))
        .header("x-aws-ec2-metadata-token", token);
    Ok(address.send().await?.error_for_status()?.text().await?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::{get, put};

    /// Serves metadata as ECS and EC2 do; returns the address.
    async fn metadata() -> String {
        let task = r#"{"DockerId": "x", "Networks": [{"NetworkMode": "awsvpc", "IPv4Addresses": ["10.0.2.106"]}]}"#;
        let token = |headers: HeaderMap| async move {
            if headers.contains_key("x-aws-ec2-metadata-token-ttl-seconds") {
                Ok("token")
            } else {
                Err(StatusCode::BAD_REQUEST)
            }
        };
        let address = |headers: HeaderMap| async move {
            let shown =
                headers.get("x-aws-ec2-metadata-token").is_some_and(|token| token == "token");
            if shown { Ok("10.0.3.7") } else { Err(StatusCode::UNAUTHORIZED) }
        };
        let router = Router::new()
            .route("/v4/task", get(move || async move { task }))
            .route(
                "/v4/host",
                get(|| async {
                    r#"{"Networks": [{"NetworkMode": "host", "IPv4Addresses": [""]}]}"#
                }),
            )
            .route("/latest/api/token", put(token))
            .route("/latest/meta-data/local-ipv4", get(address));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// Z7.4
    #[tokio::test]
    async fn the_address_comes_from_the_task_then_from_the_instance() {
        let url = metadata().await;
        let everywhere: SocketAddr = "0.0.0.0:7900".parse().unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(
            find(everywhere, Some(&format!("{url}/v4/task")), "http://127.0.0.1:9").await,
            at("10.0.2.106:7900")
        );
        assert_eq!(find(everywhere, None, &url).await, at("10.0.3.7:7900"));
        assert_eq!(
            find(everywhere, Some(&format!("{url}/v4/host")), &url).await,
            None,
            "the task has no address of its own"
        );
        assert_eq!(find(everywhere, None, &format!("{url}/none")).await, None);
        let named: SocketAddr = "127.0.0.1:7900".parse().unwrap();
        assert_eq!(
            find(named, Some("http://127.0.0.1:9/"), "http://127.0.0.1:9").await,
            Some(named)
        );
    }
}
