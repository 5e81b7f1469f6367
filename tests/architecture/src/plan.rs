//! The plan of the house as tables: which rooms there are, where their arrows may point, who alone
//! may name what.
//!
//! A new room gets its row here and in `ARCHITECTURE.md`. An arrow that turns upward is no row to
//! add: move what is needed down into a room that both stand on.

/// A room with the rooms it may build on.
#[derive(Debug)]
pub struct Room {
    /// Its directory under the root.
    pub path: &'static str,
    /// Directories it may name as dependencies.
    pub may_use: &'static [&'static str],
}

/// The rooms that decide: no async, clock, randomness, environment, files or sockets, and no SDK.
pub const PURE: [&str; 4] = ["shared/model", "shared/config", "shared/gate", "shared/pool"];

/// Everything below the functions, from the ground up.
pub const SHARED: &[Room] = &[
    Room { path: "shared/model", may_use: &[] },
    Room { path: "shared/config", may_use: &["shared/model"] },
    Room { path: "shared/gate", may_use: &["shared/config", "shared/model"] },
    Room { path: "shared/pool", may_use: &["shared/config", "shared/model"] },
    Room { path: "shared/runtime", may_use: &["shared/model"] },
    Room {
        path: "shared/records",
        may_use: &["shared/runtime", "shared/gate", "shared/pool", "shared/config", "shared/model"],
    },
    Room { path: "shared/aws", may_use: &["shared/runtime", "shared/model"] },
    Room { path: "shared/memory", may_use: &["shared/runtime", "shared/model"] },
    Room { path: "shared/forge", may_use: &["shared/model"] },
    Room { path: "shared/git", may_use: &["shared/model"] },
    Room { path: "shared/cloud", may_use: &["shared/pool", "shared/model"] },
    Room { path: "shared/keys", may_use: &["shared/model"] },
    Room { path: "shared/notify", may_use: &["shared/keys"] },
    Room {
        path: "shared/repos",
        may_use: &[
            "shared/git",
            "shared/records",
            "shared/runtime",
            "shared/config",
            "shared/model",
        ],
    },
    Room { path: "local-emulator", may_use: &["shared/memory", "shared/runtime", "shared/model"] },
    Room { path: "local-emulator/forge", may_use: &[] },
];

/// What a function may build on; with it, never another function. `functions/cli` puts all of them
/// together and is free.
pub const FUNCTIONS_MAY_USE: &[&str] = &[
    "shared/model",
    "shared/config",
    "shared/gate",
    "shared/pool",
    "shared/runtime",
    "shared/records",
    "shared/forge",
    "shared/git",
    "shared/cloud",
    "shared/keys",
    "shared/notify",
    "shared/repos",
];

/// Where everything is put together.
pub const COMPOSITION: &str = "functions/cli";

/// The rooms that only tests build on.
pub const TESTS: &str = "tests/";

/// Outer crates that a pure room may name, in its tests too. Each computes and does nothing else.
pub const PURE_MAY_NAME: &[&str] = &[
    "serde",
    "serde_json",
    "thiserror",
    "regex",
    "libyaml-safer",
    "flate2",
    "sha2",
    "hex",
    "proptest",
    "insta",
];

/// What must not be linked into a pure room, however far down. A `*` at the end stands for any
/// rest.
pub const PURE_NEVER_LINKS: &[&str] = &[
    "tokio*",
    "mio",
    "async-*",
    "futures*",
    "hyper*",
    "reqwest",
    "axum*",
    "tower*",
    "socket2",
    "rustls*",
    "aws-*",
    "lambda_*",
    "gix*",
    "russh*",
    "rusqlite",
    "rustix",
    "tempfile",
    "getrandom",
    "rand*",
    "chrono",
    "time",
    "tracing*",
];

/// Something that only some rooms may name outside of their tests.
#[derive(Debug)]
pub struct Only {
    /// The package; a `*` at the end stands for any rest.
    pub package: &'static str,
    /// The rooms.
    pub rooms: &'static [&'static str],
    /// Why these and no others.
    pub why: &'static str,
}

/// Who alone may name what. Rooms under `tests/` are free.
pub const ONLY: &[Only] = &[
    Only {
        package: "aws-sdk-*",
        rooms: &["shared/aws"],
        why: "the ports are what everybody else calls",
    },
    Only {
        package: "aws-config",
        rooms: &["shared/aws", "functions/cli"],
        why: "the composition says which account, region and client the ports get",
    },
    Only {
        package: "lambda_runtime",
        rooms: &["functions/cli"],
        why: "functions are libraries; only `bootstrap` answers Lambda",
    },
    Only {
        package: "reqwest",
        rooms: &[
            "shared/forge",
            "shared/git",
            "shared/cloud",
            "functions/api",
            "functions/cli",
            "local-emulator/forge",
        ],
        why: "HTTP leaves through forge (GitHub), git (fetches), cloud (EC2), api (an executor's live log), cli (our own API), and the local forge's webhooks",
    },
    Only { package: "gix*", rooms: &["shared/git"], why: "git's objects have one room" },
    Only {
        package: "russh*",
        rooms: &["shared/cloud"],
        why: "host keys are scanned where nodes are made",
    },
    Only {
        package: "libyaml-safer",
        rooms: &["shared/config"],
        why: "one composer reads Zuul's YAML",
    },
    Only {
        package: "serde_yaml_ng",
        rooms: &["functions/executor", "local-emulator"],
        why: "plain YAML of our own only",
    },
    Only { package: "dynoxide-rs", rooms: &["local-emulator"], why: "local DynamoDB" },
    Only { package: "s3s", rooms: &["local-emulator"], why: "local S3" },
    Only {
        package: "rusqlite",
        rooms: &["local-emulator", "local-emulator/forge"],
        why: "local stores",
    },
    Only { package: "anyhow", rooms: &["functions/cli"], why: "callers act on typed errors" },
    Only { package: "sluice-aws", rooms: &["functions/cli"], why: "functions are given ports" },
    Only {
        package: "sluice-memory",
        rooms: &["local-emulator"],
        why: "functions are given ports; the emulator shares its rules of queues",
    },
    Only {
        package: "sluice-emulator",
        rooms: &["functions/cli"],
        why: "`sluice up` runs it; nothing on AWS may need it",
    },
    Only { package: "sluice-local-forge", rooms: &["functions/cli"], why: "`sluice up` runs it" },
    Only {
        package: "sluice-forge",
        rooms: &[
            "functions/webhook",
            "functions/intake",
            "functions/tenant",
            "functions/reporter",
            "functions/cli",
        ],
        why: "a queue's group never waits for a forge",
    },
    Only {
        package: "sluice-notify",
        rooms: &["functions/reporter", "functions/cli"],
        why: "who is told, and of what, is decided before anybody speaks",
    },
    Only { package: "lettre", rooms: &["shared/notify"], why: "mail leaves through one room" },
    Only { package: "rumqttc", rooms: &["shared/notify"], why: "so does MQTT" },
    Only {
        package: "sluice-cloud",
        rooms: &["functions/launcher", "functions/cli"],
        why: "one function spends money",
    },
    Only {
        package: "sluice-git",
        rooms: &["shared/repos", "functions/executor", "functions/cli"],
        why: "functions read repositories through repos",
    },
];

/// Files longer than [`LINES_MAX`], each with why it is one room.
pub const LONG_FILES: &[(&str, &str)] = &[];

/// Lines a Rust file may have.
pub const LINES_MAX: usize = 750;

/// Returns whether a package's name fits a pattern of these tables.
#[must_use]
pub fn fits(pattern: &str, package: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == package, |start| package.starts_with(start))
}
