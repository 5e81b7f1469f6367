//! The founding documents, for tests that read them where they are; and what is said where
//! something of that kind is not there.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Returns the folder of the documents that the system was conceived in, which lies beside a
/// checkout; `undone` says what is not done without them.
///
/// Where it does not, the test fails, unless `SLUICE_WAIVE` has the word `seeds`; then `None`, and
/// it is said aloud.
pub fn founding_material(undone: &str) -> Option<PathBuf> {
    let given = std::env::var_os("SLUICE_SHARED").map(PathBuf::from);
    let is_given = given.is_some();
    // Every crate that asks lies two folders deep.
    let folder =
        given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    if folder.join("seeds").is_dir() {
        return Some(folder);
    }
    assert!(!is_given, "SLUICE_SHARED names {}, which has no folder seeds", folder.display());
    waived(
        "seeds",
        &format!("no ../shared/seeds beside the checkout and no SLUICE_SHARED, so {undone}"),
    );
    None
}

/// Says what was not looked at where `SLUICE_WAIVE` has a word.
///
/// # Panics
/// Where it has not: a test that did not look has not passed.
pub fn waived(word: &str, missing: &str) {
    let waived = std::env::var("SLUICE_WAIVE").unwrap_or_default();
    let is_waived = waived.split([' ', ',']).any(|one| one == word);
    assert!(is_waived, "{missing}; to pass without them, set SLUICE_WAIVE to \"{word}\"");
    // Written past the harness, which shows nothing of a test that passes; `.ci/run` says it again
    // at its end.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {missing} (waived by SLUICE_WAIVE)");
}
