//! Tests that the version covers every source that defines stanza types or parses them.

use super::SOURCES;

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
