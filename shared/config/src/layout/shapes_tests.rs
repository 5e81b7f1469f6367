//! Whether every file counts that says of what shape stanzas are, and how they are parsed.

use super::SHAPES;

#[test]
fn every_file_that_shapes_stanzas_counts() {
    for folder in ["objects", "yaml"] {
        for entry in
            std::fs::read_dir(format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        {
            let file = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
            let counts = SHAPES.iter().any(|(path, _)| *path == file) || file.ends_with("tests.rs");
            assert!(counts, "{file} is missing from SHAPES");
        }
    }
}
