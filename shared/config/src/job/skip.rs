//! Decides whether a job is skipped because of the changed files or the requested images.

use super::apply::JobBuilder;
use sluice_model::job::FrozenJob;

/// Gerrit lists the commit message as a file; no matcher applies to it.
const COMMIT_MESSAGE: &str = "/COMMIT_MSG";

/// Returns why file matchers exclude a job: no changed file matches `files`, or all match
/// `irrelevant-files`. `None` if they do not, if `files` is `None` (unknown), or if the change has
/// no files. Gerrit's `/COMMIT_MSG` does not count as a file.
pub(super) fn skipped_by_files(
    builder: &JobBuilder<'_>,
    files: Option<&[String]>,
) -> Option<String> {
    let files = files?;
    let real: Vec<&String> = files.iter().filter(|file| *file != COMMIT_MESSAGE).collect();
    // A change without files has none that could match.
    if real.is_empty() {
        return None;
    }
    let is_matched = |file: &&String| builder.files.iter().any(|pattern| pattern.matches(file));
    if !builder.files.is_empty() && !real.iter().any(is_matched) {
        return Some("no changed file matches its \"files\"".to_owned());
    }
    let irrelevant =
        |file: &&String| builder.irrelevant_files.iter().any(|pattern| pattern.matches(file));
    if !builder.irrelevant_files.is_empty() && real.iter().all(irrelevant) {
        return Some("all changed files match its \"irrelevant-files\"".to_owned());
    }
    None
}

/// Returns why a job is skipped if an event requests only the images `images`, named as in
/// `image-build-name`, and the job builds none of them. `None` if it builds one, or if `images` is
/// empty: then nothing special is requested.
pub(super) fn skipped_by_image(job: &FrozenJob, images: &[String]) -> Option<String> {
    let is_requested =
        images.is_empty() || job.image_build_name.as_ref().is_some_and(|own| images.contains(own));
    (!is_requested)
        .then(|| format!("it builds none of the requested images: {}", images.join(", ")))
}
