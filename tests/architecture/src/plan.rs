//! The rules of the workspace as tables: which crates exist, what each may depend on, and which
//! external crates only some may use.
//!
//! A new crate gets a row here and in `ARCHITECTURE.md`. For a dependency that points upward there
//! is no row to add: move the shared code down into a crate that both may use.

/// A crate of ours and the crates it may depend on.
#[derive(Debug)]
pub struct Layer {
    /// The crate's directory, relative to the root of the repository.
    pub path: &'static str,
    /// Directories of the crates that it may depend on.
    pub may_use: &'static [&'static str],
}

/// Directories of the pure crates: no async, clock, randomness, environment, files, sockets or SDK.
pub const PURE: [&str; 5] =
    ["shared/model", "shared/config", "shared/auth", "shared/gate", "shared/pool"];

/// All crates below the functions, lowest first.
pub const SHARED: &[Layer] = &[
    Layer { path: "shared/model", may_use: &[] },
    Layer { path: "shared/config", may_use: &["shared/model"] },
    Layer { path: "shared/auth", may_use: &["shared/config", "shared/model"] },
    Layer { path: "shared/gate", may_use: &["shared/config", "shared/model"] },
    Layer { path: "shared/pool", may_use: &["shared/config", "shared/model"] },
    Layer { path: "shared/runtime", may_use: &["shared/model"] },
    Layer {
        path: "shared/records",
        may_use: &[
            "shared/runtime",
            "shared/auth",
            "shared/gate",
            "shared/pool",
            "shared/config",
            "shared/model",
        ],
    },
    Layer {
        path: "shared/commands",
        may_use: &[
            "shared/records",
            "shared/runtime",
            "shared/gate",
            "shared/pool",
            "shared/config",
            "shared/model",
        ],
    },
    Layer { path: "shared/aws", may_use: &["shared/runtime", "shared/model"] },
    Layer { path: "shared/memory", may_use: &["shared/runtime", "shared/model"] },
    Layer { path: "shared/forge", may_use: &["shared/model"] },
    Layer { path: "shared/git", may_use: &["shared/model"] },
    Layer { path: "shared/cloud", may_use: &["shared/pool", "shared/model"] },
    Layer { path: "shared/keys", may_use: &["shared/model"] },
    Layer { path: "shared/notify", may_use: &["shared/keys"] },
    Layer {
        path: "shared/repos",
        may_use: &[
            "shared/git",
            "shared/records",
            "shared/runtime",
            "shared/config",
            "shared/model",
        ],
    },
    Layer { path: "local-emulator", may_use: &["shared/memory", "shared/runtime", "shared/model"] },
    Layer { path: "local-emulator/forge", may_use: &[] },
];

/// What a function's library may depend on; never on another function.
pub const FUNCTIONS_MAY_USE: &[&str] = &[
    "shared/model",
    "shared/config",
    "shared/gate",
    "shared/pool",
    "shared/runtime",
    "shared/records",
    "shared/auth",
    "shared/commands",
    "shared/forge",
    "shared/git",
    "shared/cloud",
    "shared/keys",
    "shared/notify",
    "shared/repos",
];

/// The programs and their libraries, lowest first: only they assemble functions.
pub const PROGRAMS: &[Layer] = &[
    Layer {
        path: "functions/programs/handler",
        may_use: &["shared/aws", "shared/records", "shared/runtime", "shared/model"],
    },
    Layer {
        path: "functions/programs/lambda",
        may_use: &[
            "functions/programs/handler",
            "functions/api",
            "functions/gate",
            "functions/images",
            "functions/intake",
            "functions/merger",
            "functions/reporter",
            "functions/tenant",
            "functions/timer",
            "functions/webhook",
            "shared/config",
            "shared/forge",
            "shared/git",
            "shared/keys",
            "shared/model",
            "shared/notify",
            "shared/records",
            "shared/repos",
            "shared/runtime",
        ],
    },
    Layer {
        path: "functions/programs/lambda-cloud",
        may_use: &[
            "functions/programs/handler",
            "functions/launcher",
            "shared/cloud",
            "shared/config",
            "shared/model",
            "shared/records",
            "shared/runtime",
        ],
    },
    Layer {
        path: "functions/programs/executor",
        may_use: &["functions/executor", "shared/aws", "shared/records", "shared/runtime"],
    },
    Layer {
        path: "functions/programs/operator",
        may_use: &[
            "shared/auth",
            "shared/aws",
            "shared/commands",
            "shared/config",
            "shared/forge",
            "shared/gate",
            "shared/git",
            "shared/keys",
            "shared/model",
            "shared/notify",
            "shared/records",
            "shared/runtime",
        ],
    },
    Layer {
        path: "functions/programs/local",
        may_use: &[
            "functions/programs/handler",
            "functions/programs/lambda",
            "functions/programs/lambda-cloud",
            "functions/programs/executor",
            "functions/programs/operator",
            "functions/gate",
            "local-emulator",
            "local-emulator/forge",
            "shared/auth",
            "shared/aws",
            "shared/config",
            "shared/gate",
            "shared/model",
            "shared/records",
            "shared/runtime",
        ],
    },
    Layer {
        path: "functions/programs/cli",
        may_use: &[
            "functions/programs/executor",
            "functions/programs/local",
            "functions/programs/operator",
            "shared/model",
        ],
    },
];

/// The directory of the program on Lambda that links no driver of a cloud.
pub const LAMBDA: &str = "functions/programs/lambda";
/// The directory of the program on Lambda for the functions that call a cloud.
pub const LAMBDA_CLOUD: &str = "functions/programs/lambda-cloud";

/// Crates that must not be linked into the program for the functions that call no cloud.
pub const CLOUD_DRIVERS: &[&str] = &["sluice-cloud", "russh*", "sluice-launcher"];

/// Crates that must not be linked into a program on Lambda.
pub const LAMBDA_NEVER_LINKS: &[&str] = &[
    "sluice-cli",
    "sluice-operator",
    "sluice-local",
    "sluice-emulator",
    "sluice-local-forge",
    "sluice-memory",
    "sluice-executor",
    "clap*",
    "dynoxide-rs",
    "rusqlite",
    "s3s",
];

/// Below this directory are crates that only tests may depend on.
pub const TESTS: &str = "tests/";

/// External crates that a pure crate may use, also in its tests. They only compute.
pub const PURE_MAY_NAME: &[&str] = &[
    "base64",
    "serde",
    "serde_json",
    "thiserror",
    "regex",
    "libyaml-safer",
    "flate2",
    "sha2",
    "hex",
    "smallvec",
    "proptest",
    "insta",
];

/// Crates that must not be linked into a pure crate, directly or not. A trailing `*` matches any rest.
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

/// A crate that only some of ours may use outside of tests.
#[derive(Debug)]
pub struct Restriction {
    /// The package; a trailing `*` matches any rest.
    pub package: &'static str,
    /// Directories of the crates that may use it.
    pub users: &'static [&'static str],
    /// Why only these.
    pub why: &'static str,
}

/// Crates that only some of ours may use. Crates under `tests/` are exempt.
pub const RESTRICTED: &[Restriction] = &[
    Restriction {
        package: "aws-sdk-*",
        users: &["shared/aws"],
        why: "all other crates call the ports",
    },
    Restriction {
        package: "aws-config",
        users: &[
            "shared/aws",
            "functions/programs/handler",
            "functions/programs/operator",
            "functions/programs/local",
        ],
        why: "the programs choose account, region and client",
    },
    Restriction {
        package: "lambda_runtime",
        users: &["functions/programs/handler"],
        why: "functions are libraries; one loop answers Lambda",
    },
    Restriction {
        package: "clap",
        users: &[
            "functions/programs/executor",
            "functions/programs/operator",
            "functions/programs/cli",
        ],
        why: "only the programs that people start have arguments",
    },
    Restriction {
        package: "reqwest",
        users: &[
            "shared/forge",
            "shared/git",
            "shared/cloud",
            "functions/api",
            "functions/programs/executor",
            "functions/programs/operator",
            "local-emulator/forge",
        ],
        why: "HTTP requests are made for GitHub, git fetches, EC2, live logs and our own API",
    },
    Restriction { package: "gix*", users: &["shared/git"], why: "one crate handles git objects" },
    Restriction {
        package: "russh*",
        users: &["shared/cloud"],
        why: "host keys are scanned where nodes are made",
    },
    Restriction {
        package: "libyaml-safer",
        users: &["shared/config"],
        why: "one composer reads Zuul's YAML",
    },
    Restriction {
        package: "serde_yaml_ng",
        users: &["functions/executor", "local-emulator"],
        why: "plain YAML of our own only",
    },
    Restriction { package: "dynoxide-rs", users: &["local-emulator"], why: "local DynamoDB" },
    Restriction { package: "s3s", users: &["local-emulator"], why: "local S3" },
    Restriction {
        package: "rusqlite",
        users: &["local-emulator", "local-emulator/forge"],
        why: "local stores",
    },
    Restriction {
        package: "anyhow",
        users: &[
            "functions/programs/executor",
            "functions/programs/operator",
            "functions/programs/local",
            "functions/programs/cli",
        ],
        why: "callers act on typed errors",
    },
    Restriction {
        package: "sluice-aws",
        users: &[
            "functions/programs/handler",
            "functions/programs/executor",
            "functions/programs/operator",
            "functions/programs/local",
        ],
        why: "functions receive ports",
    },
    Restriction {
        package: "sluice-memory",
        users: &["local-emulator"],
        why: "functions receive ports; the emulator shares the queue rules",
    },
    Restriction {
        package: "sluice-emulator",
        users: &["functions/programs/local"],
        why: "`sluice up` runs it; nothing on AWS may need it",
    },
    Restriction {
        package: "sluice-local-forge",
        users: &["functions/programs/local"],
        why: "`sluice up` runs it",
    },
    Restriction {
        package: "sluice-forge",
        users: &[
            "functions/webhook",
            "functions/intake",
            "functions/tenant",
            "functions/reporter",
            "functions/programs/lambda",
            "functions/programs/operator",
        ],
        why: "a queue's group never waits for a forge",
    },
    Restriction {
        package: "sluice-notify",
        users: &["functions/reporter", "functions/programs/lambda", "functions/programs/operator"],
        why: "the pure crates decide who is notified",
    },
    Restriction { package: "lettre", users: &["shared/notify"], why: "one crate sends mail" },
    Restriction {
        package: "rumqttc",
        users: &["shared/notify"],
        why: "one crate sends MQTT messages",
    },
    Restriction {
        package: "sluice-cloud",
        users: &["functions/launcher", LAMBDA_CLOUD],
        why: "one function spends money",
    },
    Restriction {
        package: "sluice-git",
        users: &[
            "shared/repos",
            "functions/executor",
            "functions/programs/lambda",
            "functions/programs/operator",
        ],
        why: "functions read repositories through repos",
    },
];

/// Files longer than [`LINES_MAX`], each with the reason.
pub const LONG_FILES: &[(&str, &str)] = &[];

/// Lines a Rust file may have.
pub const LINES_MAX: usize = 800;

/// Names of public types that two crates may define, each with the reason.
pub const TYPE_NAMES_ALLOWED: &[(&str, &str)] = &[
    ("Difference", "two test suites that share no code"),
    ("Measured", "two benchmarks that share no code"),
    ("Real", "two benchmarks that share no code"),
    ("Site", "each test suite has a site of its own kind"),
    ("Window", "two test suites that share no code"),
];

/// Public functions that may take a tuple or a `bool`: file, function, reason.
pub const PARAMETERS_ALLOWED: &[(&str, &str, &str)] = &[
    ("tests/bench/configuration/src/report.rs", "failures", "a pair of a label and a figure"),
    ("tests/scenarios/src/forge.rs", "of", "conversions from what a test writes"),
];

/// Modules that may form one import cycle.
pub const CYCLE_FILES_MAX: usize = 3;

/// Directories of crates whose larger module cycles are known, each with the reason.
pub const CYCLES_ALLOWED: &[(&str, &str)] = &[
    ("functions/intake", "routing and deferral are not separated yet"),
    ("shared/config", "jobs and layouts know each other"),
];

/// Returns whether a package's name matches a pattern of these tables.
#[must_use]
pub fn matches_pattern(pattern: &str, package: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == package, |start| package.starts_with(start))
}
