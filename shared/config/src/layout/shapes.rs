//! Whether stored stanzas are what this program makes of their files, and have the shapes that it
//! reads.
//!
//! A stanza that is read only when somebody wants it must not turn out to be unreadable then: a job
//! would be missing, and nobody told. So a layout bears the name of the sources that parsed it;
//! under another name every stanza is read when it is opened, and whoever builds the next layout
//! parses its files anew: what a newer program understands counts.

use std::sync::LazyLock;

/// The files that say of what shape stanzas are and how they are parsed, with their texts: these,
/// hashed, are the name.
const SHAPES: [(&str, &str); 24] = [
    ("error.rs", include_str!("../error.rs")),
    ("fragment.rs", include_str!("../fragment.rs")),
    ("objects/combine.rs", include_str!("../objects/combine.rs")),
    ("objects/drivers.rs", include_str!("../objects/drivers.rs")),
    ("objects/job.rs", include_str!("../objects/job.rs")),
    ("objects/job_parts.rs", include_str!("../objects/job_parts.rs")),
    ("objects/mod.rs", include_str!("../objects/mod.rs")),
    ("objects/nodeset.rs", include_str!("../objects/nodeset.rs")),
    ("objects/pipeline.rs", include_str!("../objects/pipeline.rs")),
    ("objects/places.rs", include_str!("../objects/places.rs")),
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

/// Returns the name of what this program parses files by.
pub(super) fn name() -> u64 {
    static NAME: LazyLock<u64> = LazyLock::new(|| {
        let bytes = SHAPES.iter().flat_map(|(_, text)| text.bytes());
        // FNV-1a: it need not withstand anybody, only tell versions apart.
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    });
    *NAME
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
mod tests;
