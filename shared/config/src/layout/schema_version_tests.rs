//! Tests that the version covers every source that defines stanza types or parses them.

use super::{SOURCES, hash};

#[test]
fn the_version_covers_every_source_of_the_parser() {
    for folder in ["objects", "yaml"] {
        for entry in
            std::fs::read_dir(format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        {
            let file = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
            let is_listed =
                SOURCES.iter().any(|(path, _)| *path == file) || file.ends_with("tests.rs");
            assert!(is_listed, "{file} is missing from SOURCES");
        }
    }
}

/// Z6.6: any change of a source is another version.
#[test]
fn the_version_is_the_published_hash() {
    // From the reference of FNV-1a.
    assert_eq!(hash("".bytes()), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash("a".bytes()), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(hash("foobar".bytes()), 0x8594_4171_f739_67e8);
}
