//! versitygw: S3 onto a POSIX file system in Go, Apache-2.0 licence, from its module.

use super::{Foreign, accepts, installed, started, step};
use std::process::Command;

/// Its name and version.
pub const NAME: &str = "versitygw-1.8.0";
const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const TOOL: &str = "Go 1.25 or later (Debian 12 packages an older one)";

/// Starts it for one pair of keys.
pub async fn start(key: &str, secret: &str) -> Foreign {
    let directory = installed(NAME, |directory| {
        let mut go = Command::new("go");
        step(go.args(["install", MODULE]).env("GOBIN", directory), TOOL);
    });
    let program = directory.join("versitygw");
    started(
        NAME,
        |port, data| {
            let objects = data.join("objects");
            std::fs::create_dir(&objects).unwrap();
            let mut command = Command::new(&program);
            command
                .args(["--quiet", "--port", &format!("127.0.0.1:{port}"), "posix"])
                .arg(objects)
                .env("ROOT_ACCESS_KEY", key)
                .env("ROOT_SECRET_KEY", secret)
                .current_dir(data);
            command
        },
        accepts,
    )
    .await
}
