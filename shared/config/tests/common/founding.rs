//! Access to the founding documents, and the waiver for tests whose material is missing.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Returns the folder of the founding documents next to the checkout. `undone` describes the test
/// that needs them.
///
/// If the folder is missing, the test fails, unless `SLUICE_WAIVE` contains `seeds`. Then it prints
/// the waiver and returns `None`.
pub fn founding_material(undone: &str) -> Option<PathBuf> {
    let given = std::env::var_os("SLUICE_SHARED").map(PathBuf::from);
    let is_given = given.is_some();
    // Every crate with such tests is two folders deep.
    let folder =
        given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    if folder.join("seeds").is_dir() {
        return Some(folder);
    }
    assert!(!is_given, "SLUICE_SHARED names {}, which has no folder seeds", folder.display());
    waived(
        "seeds",
        &format!("no ../shared/seeds next to the checkout and no SLUICE_SHARED, so {undone}"),
    );
    None
}

/// Prints which check was waived if `SLUICE_WAIVE` contains `word`.
///
/// # Panics If it does not: a test without its material has not passed.
pub fn waived(word: &str, missing: &str) {
    let waived = std::env::var("SLUICE_WAIVE").unwrap_or_default();
    let is_waived = waived.split([' ', ',']).any(|one| one == word);
    assert!(is_waived, "{missing}; to pass without them, set SLUICE_WAIVE to \"{word}\"");
    // Written past the test harness, which hides the output of passing tests; `.ci/run` repeats it
    // at its end.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {missing} (waived by SLUICE_WAIVE)");
}
