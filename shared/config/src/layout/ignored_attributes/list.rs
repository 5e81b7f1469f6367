//! The list of attributes that are read and have no effect yet. The warnings use it, and a test
//! compares the tables of `docs/moving-from-zuul.md` with it.

/// An attribute of the configuration language that is read and has no effect yet.
#[derive(Debug, Clone, Copy)]
pub struct IgnoredAttribute {
    /// The object: `job`, `pipeline`, `tenant`, …; `node` stands for images, flavors, labels,
    /// sections and providers, and the defaults and members in them; `static node` for sections and
    /// providers of static nodes, with their defaults and members, but without `nodes`.
    pub object: &'static str,
    /// The attribute's name, with its parent where that is needed to tell it apart.
    pub attribute: &'static str,
    /// The values that are ignored; empty if every value is.
    pub ignored_values: &'static str,
    /// Whether other values have an effect.
    pub is_partial: bool,
    /// What happens instead.
    pub consequence: &'static str,
}

/// Returns a list entry for an attribute of which no value has an effect. `consequence` says what
/// happens instead.
const fn ignored(
    object: &'static str,
    attribute: &'static str,
    consequence: &'static str,
) -> IgnoredAttribute {
    IgnoredAttribute { object, attribute, ignored_values: "", is_partial: false, consequence }
}

/// Returns a list entry for an attribute of which some values, `ignored_values`, have no effect.
/// `consequence` says what happens instead.
const fn partly(
    object: &'static str,
    attribute: &'static str,
    ignored_values: &'static str,
    consequence: &'static str,
) -> IgnoredAttribute {
    IgnoredAttribute { object, attribute, ignored_values, is_partial: true, consequence }
}

/// What happens instead when an attribute of a node object is ignored.
pub(super) const NO_EFFECT: &str = "not supported yet and has no effect on nodes";
/// What happens instead when an attribute is ignored that static nodes have no use for.
pub(super) const OF_CLOUD_NODES: &str =
    "only nodes of clouds have it; user and port of a static node are in `nodes`";

/// Every attribute that is read and has no effect yet. `sluice config check`, `sluice tenant show`
/// and `sluice tenant load` warn of these where they are used, and of no others.
pub const IGNORED_ATTRIBUTES: &[IgnoredAttribute] = &[
    partly("image", "type", "images that are built", "requests for its labels fail"),
    partly(
        "job",
        "image-build-name",
        "what the job returns",
        "images that the job builds are not imported yet",
    ),
    ignored("node", "aliases", NO_EFFECT),
    ignored("node", "architecture", NO_EFFECT),
    partly("node", "az", "several zones of one label", NO_EFFECT),
    ignored("node", "config-drive", NO_EFFECT),
    ignored("node", "connection-type", NO_EFFECT),
    ignored("node", "dedicated-host", NO_EFFECT),
    ignored("node", "ebs-optimized", NO_EFFECT),
    ignored("node", "ena-support", NO_EFFECT),
    ignored("node", "fleet", NO_EFFECT),
    partly("node", "host-key-checking", "false", NO_EFFECT),
    ignored("node", "iam-instance-profile", NO_EFFECT),
    ignored("node", "image-filters", NO_EFFECT),
    ignored("node", "image-name", NO_EFFECT),
    ignored("node", "imds-http-tokens", NO_EFFECT),
    ignored("node", "imds-support", NO_EFFECT),
    ignored("node", "import-method", NO_EFFECT),
    ignored("node", "import-timeout", NO_EFFECT),
    ignored("node", "iops", NO_EFFECT),
    ignored("node", "key-name", NO_EFFECT),
    ignored("node", "kms-key-id", NO_EFFECT),
    ignored("node", "launch-timeout", NO_EFFECT),
    ignored("node", "market-type", NO_EFFECT),
    ignored("node", "max-age", NO_EFFECT),
    ignored("node", "max-nodes", NO_EFFECT),
    ignored("node", "max-retain-count", NO_EFFECT),
    ignored("node", "min-retention-time", NO_EFFECT),
    ignored("node", "nested-virtualization", NO_EFFECT),
    ignored("node", "object-storage", NO_EFFECT),
    ignored("node", "public-ipv4", NO_EFFECT),
    ignored("node", "public-ipv6", NO_EFFECT),
    partly("node", "resource-limits", "all but `instances`", "only instances are counted"),
    ignored("node", "retain-count", NO_EFFECT),
    ignored("node", "reuse", NO_EFFECT),
    partly(
        "node",
        "section",
        "limits of a section with several providers",
        "each provider can use the limits in full",
    ),
    ignored("node", "security-group-ids", NO_EFFECT),
    ignored("node", "shell-type", NO_EFFECT),
    ignored("node", "slots", NO_EFFECT),
    ignored("node", "snapshot-expiration", NO_EFFECT),
    ignored("node", "snapshot-timeout", NO_EFFECT),
    ignored("node", "subnet-ids", NO_EFFECT),
    ignored("node", "tags", NO_EFFECT),
    ignored("node", "throughput", NO_EFFECT),
    ignored("node", "upload-methods", NO_EFFECT),
    ignored("node", "userdata", NO_EFFECT),
    ignored("node", "volume-size", NO_EFFECT),
    ignored("node", "volume-type", NO_EFFECT),
    ignored("pipeline", "allow-parameters", "manual enqueues have no parameters"),
    partly("pipeline", "reject", "those of Gerrit and GitLab", "no change of these forges is read"),
    partly(
        "pipeline",
        "reporters",
        "reporters other than GitHub, SMTP and MQTT",
        "nothing is reported there",
    ),
    partly(
        "pipeline",
        "require",
        "those of Gerrit and GitLab",
        "no change of these forges is read",
    ),
    partly("pipeline", "supersedes", "more than 32 pipelines", "the others keep their changes"),
    partly(
        "pipeline",
        "trigger",
        "Gerrit, GitLab; events `image-validate` and `image-delete`",
        "the trigger never starts the pipeline; only a command sends `image-build`",
    ),
    ignored("project", "parameters", "manual enqueues have no parameters"),
    ignored("project-template", "parameters", "manual enqueues have no parameters"),
    ignored("queue", "dependencies-by-topic", "no supported forge has topics"),
    ignored("static node", "boot-timeout", OF_CLOUD_NODES),
    ignored("static node", "connection-port", OF_CLOUD_NODES),
    ignored("static node", "host-key-checking", OF_CLOUD_NODES),
    ignored("static node", "launch-attempts", OF_CLOUD_NODES),
    ignored("static node", "max-ready-age", OF_CLOUD_NODES),
    ignored("static node", "min-ready", OF_CLOUD_NODES),
    ignored("static node", "python-path", OF_CLOUD_NODES),
    ignored("static node", "resource-limits", OF_CLOUD_NODES),
    ignored("static node", "username", OF_CLOUD_NODES),
    ignored("tenant", "report-build-page", "reports always link jobs to the pages of their builds"),
    ignored("tenant", "web-root", "links use the system's own address"),
];

/// The drivers' objects of the attribute list that have no effect yet, because no connection can
/// trigger or report by their driver.
pub const IGNORED_DRIVER_OBJECTS: &[&str] = &[
    "elasticsearch reporter",
    "gerrit reject",
    "gerrit require",
    "gerrit trigger",
    "gitlab reject",
    "gitlab reporter",
    "gitlab require",
    "gitlab trigger",
    "zuul reporter",
];

/// Returns the list's entries of an object.
pub(super) fn of(object: &str) -> impl Iterator<Item = &'static IgnoredAttribute> {
    IGNORED_ATTRIBUTES.iter().filter(move |entry| entry.object == object)
}

/// Returns whether the list of ignored attributes has an attribute of a stanza such as `job unit`,
/// of which only the first word counts. Provider objects also have the attributes that the list has
/// for `node` and `static node`.
pub(super) fn is_listed(stanza: &str, attribute: &str) -> bool {
    let kind = stanza.split(' ').next().unwrap_or(stanza);
    let of_node = matches!(kind, "image" | "flavor" | "label" | "section" | "provider");
    let of_nodes = of("node").chain(of("static node"));
    let mut entries = of(kind).chain(of_nodes.filter(|_| of_node));
    entries.any(|entry| entry.attribute == attribute)
}
