//! The attributes of images, flavors, labels, sections and providers, with their types and older
//! names.

/// The type of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Text,
    TextOrNull,
    Count,
    /// A port number.
    Port,
    Flag,
    Texts,
    Mapping,
    /// A boolean, or whether lower layers may change it.
    Final,
    AtLeastOne,
    WordList(&'static [&'static str]),
    /// Counts by name.
    Limits,
    /// A mapping with known keys.
    Parts(&'static [Part]),
    /// A list of such mappings.
    PartsList(&'static [Part]),
    WordOrNull(&'static [&'static str]),
    Words(&'static [&'static str]),
    Images,
    Flavors,
    Labels,
    Nodes,
    Defaults(&'static [Word]),
}

/// A key of a mapping.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) word: Word,
    pub(super) need: Need,
}

/// Whether a key is required.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    Required,
    Optional,
}

/// An attribute.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    /// The name in the configuration.
    pub(super) name: &'static str,
    /// The current name, under which it is stored.
    pub(super) canonical: &'static str,
    /// Its type.
    pub(super) shape: Shape,
}

/// Returns an attribute with its name and shape.
const fn word(name: &'static str, shape: Shape) -> Word {
    Word { name, canonical: name, shape }
}

/// Returns an older name of the attribute whose current name is `canonical`.
const fn older(name: &'static str, canonical: &'static str, shape: Shape) -> Word {
    Word { name, canonical, shape }
}

/// Returns a required key of a mapping.
const fn needs(name: &'static str, shape: Shape) -> Part {
    Part { word: word(name, shape), need: Need::Required }
}

/// Returns an optional key of a mapping.
const fn may_have(name: &'static str, shape: Shape) -> Part {
    Part { word: word(name, shape), need: Need::Optional }
}

/// The resources that limits count, besides Amazon's quota codes.
pub(super) const LIMITS: [&str; 5] = ["instances", "cores", "ram", "volumes", "volume-gb"];

const FLEET: &[Part] = &[
    needs("instance-types", Shape::Texts),
    needs(
        "allocation-strategy",
        Shape::Words(&[
            "lowest-price",
            "diversified",
            "capacity-optimized",
            "price-capacity-optimized",
            "prioritized",
        ]),
    ),
];
const FILTER: &[Part] = &[needs("name", Shape::Text), needs("values", Shape::Texts)];
const PROFILE: &[Part] = &[may_have("name", Shape::Text), may_have("arn", Shape::Text)];
const STORAGE: &[Part] = &[needs("bucket-name", Shape::Text)];

const TOKENS: Shape = Shape::Words(&["optional", "required"]);

pub(super) const IMAGE: &[Word] = &[
    word("type", Shape::Words(&["zuul", "cloud"])),
    word("description", Shape::Text),
    word("username", Shape::Text),
    word("python-path", Shape::Text),
    word("shell-type", Shape::Text),
    word("connection-type", Shape::Words(&["ssh", "winrm"])),
    word("connection-port", Shape::Port),
    word("config-drive", Shape::Flag),
    word("retain-count", Shape::AtLeastOne),
    word("max-retain-count", Shape::AtLeastOne),
    word("import-timeout", Shape::Count),
    word("import-method", Shape::Words(&["snapshot", "image", "ebs-direct"])),
    word("image-format", Shape::Words(&["ova", "vhd", "vhdx", "vmdk", "raw", "snapshot", "qcow2"])),
    word("image-id", Shape::Text),
    word("image-name", Shape::Text),
    word("image-filters", Shape::PartsList(FILTER)),
    word("upload-methods", Shape::WordList(&["copy", "import", "upload"])),
    word("architecture", Shape::Text),
    word("ena-support", Shape::Flag),
    word("imds-support", Shape::WordOrNull(&["v2.0"])),
    word("imds-http-tokens", TOKENS),
    word("final", Shape::Final),
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
    word("fleet", Shape::Parts(FLEET)),
    word("dedicated-host", Shape::Flag),
    word("ebs-optimized", Shape::Flag),
    word("market-type", Shape::Words(&["on-demand", "spot"])),
    word("nested-virtualization", Shape::Flag),
    word("public-ipv4", Shape::Flag),
    word("public-ipv6", Shape::Flag),
    word("imds-http-tokens", TOKENS),
    word("final", Shape::Final),
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
    word("iam-instance-profile", Shape::Parts(PROFILE)),
    word("kms-key-id", Shape::Text),
    word("imds-http-tokens", TOKENS),
    word("final", Shape::Final),
    word("tags", Shape::Mapping),
    word("userdata", Shape::Text),
    word("volume-size", Shape::Count),
    word("volume-type", Shape::Text),
    word("iops", Shape::Count),
    word("throughput", Shape::Count),
];

/// Attributes of one image, flavor or label that have no meaning for a section or provider.
pub(super) const OF_ONE_ONLY: [&str; 9] = [
    "type",
    "image",
    "flavor",
    "min-ready",
    "max-nodes",
    "aliases",
    "final",
    "retain-count",
    "max-retain-count",
];

/// Attributes that distinguish images, flavors or labels, and thus have no default in a section or
/// provider.
pub(super) const NOT_BY_DEFAULT: [&str; 17] = [
    "description",
    "type",
    "image-id",
    "image-name",
    "image-filters",
    "image",
    "flavor",
    "min-ready",
    "max-nodes",
    "instance-type",
    "flavor-name",
    "cloud-flavor",
    "fleet",
    "dedicated-host",
    "ebs-optimized",
    "market-type",
    "nested-virtualization",
];

/// Attributes of sections only.
pub(super) const OF_A_SECTION: &[Word] =
    &[word("parent", Shape::Text), word("abstract", Shape::Flag)];

/// Attributes of providers only.
pub(super) const OF_A_PROVIDER: &[Word] = &[word("section", Shape::Text)];

/// Attributes of sections that providers override or extend (L3.9).
pub(super) const OF_BOTH: &[Word] = &[
    word("connection", Shape::TextOrNull),
    word("region", Shape::Text),
    word("launch-timeout", Shape::Count),
    word("launch-attempts", Shape::Count),
    word("object-storage", Shape::Parts(STORAGE)),
    word("resource-limits", Shape::Limits),
    older("quota", "resource-limits", Shape::Limits),
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
