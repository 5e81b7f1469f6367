//! Why a job is left out of one item's: the files that were touched, the images that are asked for.

use super::apply::Building;
use sluice_model::job::FrozenJob;

/// Gerrit lists the commit's message as a file; it is never one that matters.
const COMMIT_MESSAGE: &str = "/COMMIT_MSG";

/// Returns why a job does not run by what it says of files; `None` where it runs, and where nobody
/// knows which were touched.
pub(super) fn skipped_by_files(
    building: &Building<'_>,
    files: Option<&[String]>,
) -> Option<String> {
    let files = files?;
    let real: Vec<&String> = files.iter().filter(|file| *file != COMMIT_MESSAGE).collect();
    // Whoever touches no file has none that could be meant, or not.
    if real.is_empty() {
        return None;
    }
    let is_meant = |file: &&String| building.files.iter().any(|pattern| pattern.matches(file));
    if !building.files.is_empty() && !real.iter().any(is_meant) {
        return Some("no file that it is for was touched".to_owned());
    }
    let irrelevant =
        |file: &&String| building.irrelevant_files.iter().any(|pattern| pattern.matches(file));
    if !building.irrelevant_files.is_empty() && real.iter().all(irrelevant) {
        return Some("only irrelevant files were touched".to_owned());
    }
    None
}

/// Returns why a job does not run where an event asks for some images only.
pub(super) fn skipped_by_image(job: &FrozenJob, images: &[String]) -> Option<String> {
    let is_asked =
        images.is_empty() || job.image_build_name.as_ref().is_some_and(|own| images.contains(own));
    (!is_asked)
        .then(|| format!("it is for none of the images that are asked for: {}", images.join(", ")))
}
