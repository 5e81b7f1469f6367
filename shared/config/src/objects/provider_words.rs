//! The attributes of image, flavor, label, section and provider, with their types and the names that older forms have for them.

/// The type of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Text,
    TextOrNull,
    Count,
    Flag,
    Texts,
    Mapping,
    Any,
    Words(&'static [&'static str]),
    Images,
    Flavors,
    Labels,
    Nodes,
    Defaults(&'static [Word]),
}

/// One attribute.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    /// As users write it.
    pub(super) name: &'static str,
    /// As it is kept.
    pub(super) canonical: &'static str,
    /// What it may be.
    pub(super) shape: Shape,
}

const fn word(name: &'static str, shape: Shape) -> Word {
    Word { name, canonical: name, shape }
}

const fn older(name: &'static str, canonical: &'static str, shape: Shape) -> Word {
    Word { name, canonical, shape }
}

const TOKENS: Shape = Shape::Words(&["optional", "required"]);

pub(super) const IMAGE: &[Word] = &[
    word("type", Shape::Words(&["zuul", "cloud"])),
    word("description", Shape::Text),
    word("username", Shape::Text),
    word("python-path", Shape::Text),
    word("shell-type", Shape::Text),
    word("connection-type", Shape::Words(&["ssh", "winrm"])),
    word("connection-port", Shape::Count),
    word("config-drive", Shape::Flag),
    word("retain-count", Shape::Count),
    word("max-retain-count", Shape::Count),
    word("import-timeout", Shape::Count),
    word("import-method", Shape::Words(&["snapshot", "image", "ebs-direct"])),
    word("image-format", Shape::Words(&["ova", "vhd", "vhdx", "vmdk", "raw", "snapshot", "qcow2"])),
    word("image-id", Shape::Text),
    word("image-name", Shape::Text),
    word("image-filters", Shape::Any),
    word("upload-methods", Shape::Texts),
    word("architecture", Shape::Text),
    word("ena-support", Shape::Flag),
    word("imds-support", Shape::TextOrNull),
    word("imds-http-tokens", TOKENS),
    word("final", Shape::Any),
    word("tags", Shape::Mapping),
    word("userdata", Shape::Text),
    word("volume-size", Shape::Count),
    word("volume-type", Shape::Text),
    word("iops", Shape::Count),
    word("throughput", Shape::Count),
];

pub(super) const FLAVOR: &[Word] = &[
    word("description", Shape::Text),
    word("instance-type", Shape::Text),
    word("flavor-name", Shape::Text),
    older("cloud-flavor", "flavor-name", Shape::Text),
    word("fleet", Shape::Mapping),
    word("dedicated-host", Shape::Flag),
    word("ebs-optimized", Shape::Flag),
    word("market-type", Shape::Words(&["on-demand", "spot"])),
    word("nested-virtualization", Shape::Flag),
    word("public-ipv4", Shape::Flag),
    word("public-ipv6", Shape::Flag),
    word("imds-http-tokens", TOKENS),
    word("final", Shape::Any),
    word("tags", Shape::Mapping),
    word("userdata", Shape::Text),
    word("volume-size", Shape::Count),
    word("volume-type", Shape::Text),
    word("iops", Shape::Count),
    word("throughput", Shape::Count),
];

pub(super) const LABEL: &[Word] = &[
    word("description", Shape::Text),
    word("image", Shape::Text),
    word("flavor", Shape::Text),
    word("min-ready", Shape::Count),
    word("max-nodes", Shape::Count),
    word("max-ready-age", Shape::Count),
    word("max-age", Shape::Count),
    word("min-retention-time", Shape::Count),
    word("aliases", Shape::Texts),
    word("boot-timeout", Shape::Count),
    word("snapshot-timeout", Shape::Count),
    word("snapshot-expiration", Shape::Count),
    word("slots", Shape::Count),
    word("reuse", Shape::Flag),
    word("executor-zone", Shape::Text),
    word("key-name", Shape::Text),
    word("host-key-checking", Shape::Flag),
    word("az", Shape::Texts),
    older("availability-zones", "az", Shape::Texts),
    word("security-group-ids", Shape::Texts),
    word("subnet-ids", Shape::Texts),
    older("subnet", "subnet-ids", Shape::Texts),
    older("subnet-id", "subnet-ids", Shape::Texts),
    word("iam-instance-profile", Shape::Mapping),
    word("kms-key-id", Shape::Text),
    word("imds-http-tokens", TOKENS),
    word("final", Shape::Any),
    word("tags", Shape::Mapping),
    word("userdata", Shape::Text),
    word("volume-size", Shape::Count),
    word("volume-type", Shape::Text),
    word("iops", Shape::Count),
    word("throughput", Shape::Count),
];

pub(super) const SECTION: &[Word] = &[
    word("section", Shape::Text),
    word("parent", Shape::Text),
    word("abstract", Shape::Flag),
    word("connection", Shape::TextOrNull),
    word("region", Shape::Text),
    word("launch-timeout", Shape::Count),
    word("launch-attempts", Shape::Count),
    word("object-storage", Shape::Mapping),
    word("resource-limits", Shape::Mapping),
    older("quota", "resource-limits", Shape::Mapping),
    word("images", Shape::Images),
    older("image", "images", Shape::Images),
    word("flavors", Shape::Flavors),
    word("labels", Shape::Labels),
    word("label-defaults", Shape::Defaults(LABEL)),
    word("image-defaults", Shape::Defaults(IMAGE)),
    word("flavor-defaults", Shape::Defaults(FLAVOR)),
    word("nodes", Shape::Nodes),
    word("include-all-node-labels", Shape::Flag),
];
