//! oidc-provider: a certified OpenID provider in JavaScript, MIT licence, from npm.

use super::{Foreign, accepts, installed, started, step};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Its name and version.
pub const NAME: &str = "oidc-provider-9.13.3";
const TOOL: &str = "Node.js 20 or later with npm";

/// Installs it and returns the directory of its packages, among them jose, which verifies tokens.
fn packages() -> PathBuf {
    installed(NAME, |directory| {
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(sources().join(name), directory.join(name)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(directory);
        step(&mut npm, TOOL);
    })
}

/// Returns the directory of its programs.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc-provider")
}

/// Verifies a token with jose, as a service does that trusts the issuer, and returns its claims.
/// `input` has the issuer's `configuration`, its `jwks`, the `token`, and the time `now` in
/// seconds.
///
/// # Errors
/// The message of jose, when it refuses the token.
pub fn verify(input: &Value, audience: &str) -> Result<Value, String> {
    let mut command = Command::new("node");
    command.arg(sources().join("verify.js")).arg(packages()).arg(audience);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Starts it with two clients, `alice` and `root`, whose secrets are `secret-of-alice` and
/// `secret-of-root`. `POST /test/rotate` replaces its key.
pub async fn start() -> Foreign {
    let directory = packages();
    started(
        NAME,
        |port, data| {
            let mut command = Command::new("node");
            command.arg(sources().join("provider.js")).arg(port.to_string()).arg(&directory);
            command.env("HOME", data).current_dir(data);
            command
        },
        accepts,
    )
    .await
}
