//! Identifies the version of the parser and of the stored stanza types.
//!
//! Stored stanzas are decoded lazily, and a stanza that turned out to be undecodable later would be
//! a job that is missing without a message. So a layout records a hash of the sources that parsed
//! it. If the hash differs, every stanza is decoded when the layout is opened, and the next layout
//! parses all files again.

use std::sync::LazyLock;

/// The sources that define the stanza types and the parser, by path. Their hash is the version.
const SOURCES: [(&str, &str); 24] = [
    ("error.rs", include_str!("../error.rs")),
    ("fragment.rs", include_str!("../fragment.rs")),
    ("objects/combine.rs", include_str!("../objects/combine.rs")),
    ("objects/drivers.rs", include_str!("../objects/drivers.rs")),
    ("objects/job.rs", include_str!("../objects/job.rs")),
    ("objects/job_parts.rs", include_str!("../objects/job_parts.rs")),
    ("objects/mod.rs", include_str!("../objects/mod.rs")),
    ("objects/nodeset.rs", include_str!("../objects/nodeset.rs")),
    ("objects/pipeline.rs", include_str!("../objects/pipeline.rs")),
    ("objects/spans.rs", include_str!("../objects/spans.rs")),
    ("objects/project.rs", include_str!("../objects/project.rs")),
    ("objects/provider.rs", include_str!("../objects/provider.rs")),
    ("objects/provider_words.rs", include_str!("../objects/provider_words.rs")),
    ("objects/read.rs", include_str!("../objects/read.rs")),
    ("objects/run_time.rs", include_str!("../objects/run_time.rs")),
    ("objects/small.rs", include_str!("../objects/small.rs")),
    ("pattern.rs", include_str!("../pattern.rs")),
    ("pattern_translation.rs", include_str!("../pattern_translation.rs")),
    ("yaml/compose.rs", include_str!("../yaml/compose.rs")),
    ("yaml/mod.rs", include_str!("../yaml/mod.rs")),
    ("yaml/scalar.rs", include_str!("../yaml/scalar.rs")),
    ("model/job/mod.rs", include_str!("../../../model/src/job/mod.rs")),
    ("model/job/run_time.rs", include_str!("../../../model/src/job/run_time.rs")),
    ("model/git.rs", include_str!("../../../model/src/git.rs")),
];

/// Returns the hash that identifies this version of the parser.
pub(super) fn parser_version() -> u64 {
    static VERSION: LazyLock<u64> =
        LazyLock::new(|| hash(SOURCES.iter().flat_map(|(_, text)| text.bytes())));
    *VERSION
}

/// Returns the hash FNV-1a of these bytes: it only has to tell versions apart, not to resist
/// attacks.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
#[path = "schema_version_tests.rs"]
mod tests;
