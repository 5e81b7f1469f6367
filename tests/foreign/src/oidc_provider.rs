//! oidc-provider: a certified OpenID provider in JavaScript, MIT licence, from npm.

use super::{Foreign, accepts, installed, started, step};
use std::path::Path;
use std::process::Command;

/// Its name and version.
pub const NAME: &str = "oidc-provider-9.13.3";
const TOOL: &str = "Node.js 20 or later with npm";

/// Starts it with two clients, `alice` and `root`, whose secrets are `secret-of-alice` and
/// `secret-of-root`. `POST /test/rotate` replaces its key.
pub async fn start() -> Foreign {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc-provider");
    let directory = installed(NAME, |directory| {
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(sources.join(name), directory.join(name)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(directory);
        step(&mut npm, TOOL);
    });
    started(
        NAME,
        |port, data| {
            let mut command = Command::new("node");
            command.arg(sources.join("provider.js")).arg(port.to_string()).arg(&directory);
            command.env("HOME", data).current_dir(data);
            command
        },
        accepts,
    )
    .await
}
