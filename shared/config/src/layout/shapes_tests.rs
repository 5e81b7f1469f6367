//! Whether every file counts that says of what shape stanzas are.

use super::SHAPES;

#[test]
fn every_file_that_shapes_stanzas_counts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/objects");
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = format!("objects/{}", entry.unwrap().file_name().to_string_lossy());
        assert!(SHAPES.iter().any(|(path, _)| *path == file), "{file} is missing from SHAPES");
    }
}
