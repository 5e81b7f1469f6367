//! Maps line numbers of file comments (`zuul.file_comments`) from the tested files to the proposed
//! change (Z7.4).
//!
//! A job sees files merged with the changes ahead, but forges show the change's own files. So line
//! numbers are mapped, unless the job returns `disable_file_comment_line_mapping`. The packs of
//! both versions are cached already, because the workspace was made from them.

use crate::job::{JobAttempt, RepositorySources};
use crate::jobdir::Jobdir;
use crate::phases::chain;
use crate::workspace::packs_of_own_project;
use serde_json::{Map, Value};
use sluice_git::{GitReadError, LineMap, LinePosition, ReadLimits, Repository};
use sluice_model::git::Oid;
use std::time::Duration;

/// The maximum number of files that are compared; lines in further files are not mapped.
const FILES_MAX: usize = 100;

/// The maximum size of a compared file in bytes; lines in larger files are not mapped.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The time limit of the mapping.
const SECONDS_MAX: u64 = 60;

/// JSON pointers to the line numbers in a comment.
const LINES: [&str; 3] = ["/line", "/range/end_line", "/range/start_line"];

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Maps the lines of the file comments in `data` (`zuul.file_comments`) from the commit `tested`,
/// which is checked out for the change's project, to the proposed change; works once for each job
/// directory. A comment on a line that the change lacks gets the nearest line and a note in its
/// message. Does nothing for a pushed ref, for a change that was tested unmodified, without
/// comments, or if the job disabled the mapping. Comments that cannot be mapped within 60 seconds
/// stay as they are; returns log lines about them. This never fails the build.
pub async fn map_to_proposed_change(
    job: &JobAttempt<'_>,
    sources: &dyn RepositorySources,
    jobdir: &Jobdir,
    tested: &Oid,
    data: &mut Map<String, Value>,
) -> Vec<String> {
    let change = &job.order.change;
    // A pushed ref is tested unmodified.
    if change.key.ref_move().is_some() || *tested == change.head {
        return Vec::new();
    }
    let Some(files) = comments_to_map(data) else { return Vec::new() };
    let limit = Duration::from_secs(SECONDS_MAX);
    match tokio::time::timeout(limit, compare_and_map(job, sources, jobdir, tested, files)).await {
        Ok(Ok((files, notes))) => {
            if let Some(Value::Object(zuul)) = data.get_mut("zuul") {
                zuul.insert("file_comments".to_owned(), Value::Object(files));
            }
            notes
        }
        Ok(Err(error)) => vec![not_mapped("files", &chain(error.as_ref()))],
        Err(_) => {
            vec![not_mapped("files", &format!("comparing them took longer than {SECONDS_MAX} s"))]
        }
    }
}

/// Returns a copy of the file comments in `data`, by file; `None` if there are none or the job
/// disabled the mapping.
fn comments_to_map(data: &Map<String, Value>) -> Option<Map<String, Value>> {
    let zuul = data.get("zuul")?;
    let is_left_alone = zuul.get("disable_file_comment_line_mapping") == Some(&Value::Bool(true));
    let files = zuul
        .get("file_comments")?
        .as_object()
        .filter(|files| !is_left_alone && !files.is_empty())?;
    Some(files.clone())
}

/// Compares each commented file in the commit `tested` and the proposed change, and returns all
/// comments with mapped lines, by file. Also returns log lines about files whose comments were left
/// as they are. Creates a repository below the job directory, from packs that are downloaded if
/// missing, and leaves it there; so it works once.
async fn compare_and_map(
    job: &JobAttempt<'_>,
    sources: &dyn RepositorySources,
    jobdir: &Jobdir,
    tested: &Oid,
    files: Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<String>), Cause> {
    let packs = packs_of_own_project(job, sources, tested).await?;
    // Not from the workspace, where the job may change everything, including Git's files.
    let (project, dir) = (job.order.change.key.project.clone(), jobdir.root.join("lines"));
    let (tested, proposed) = (tested.clone(), job.order.change.head.clone());
    let work = move || {
        let repository = Repository::of_packs(&project, &dir, &packs.directory, &packs.names)?;
        Ok::<_, Cause>(map_all(&repository, &tested, &proposed, files))
    };
    tokio::task::spawn_blocking(work).await?
}

/// Maps the comments of the first [`FILES_MAX`] files and returns all comments, with log lines
/// about files whose comments were left as they are. If the repository lacks the commit `proposed`,
/// that concerns all files. Comments on a file that the proposed change lacks keep their lines and
/// get a note in their messages, without a log line.
fn map_all(
    repository: &Repository,
    tested: &Oid,
    proposed: &Oid,
    mut files: Map<String, Value>,
) -> (Map<String, Value>, Vec<String>) {
    if !repository.has(proposed) {
        let why =
            format!("the tested state does not hold the change's proposed revision {proposed}");
        return (files, vec![not_mapped("files", &why)]);
    }
    let mut notes = Vec::new();
    if files.len() > FILES_MAX {
        let more = format!("{} files", files.len() - FILES_MAX);
        notes.push(not_mapped(&more, &format!("only {FILES_MAX} files are compared")));
    }
    for (path, comments) in files.iter_mut().take(FILES_MAX) {
        let Some(comments) = comments.as_array_mut() else { continue };
        match compare_file(repository, tested, proposed, path) {
            Ok(FileComparison::Alike) => {}
            Ok(FileComparison::Differs(map)) => {
                comments.iter_mut().for_each(|comment| map_lines(comment, Some(&map)))
            }
            Ok(FileComparison::NotProposed) => {
                comments.iter_mut().for_each(|comment| map_lines(comment, None))
            }
            Ok(FileComparison::NotTested) => {
                notes.push(not_mapped(path, "there is no such file in the tested state"))
            }
            Err(GitReadError::TooLarge { .. }) => {
                notes.push(not_mapped(
                    path,
                    &format!("files of more than {FILE_BYTES_MAX} bytes are not compared"),
                ));
            }
            Err(error) => notes.push(not_mapped(path, &chain(&error))),
        }
    }
    (files, notes)
}

/// Formats the log line about comments that could not be mapped.
fn not_mapped(files: &str, why: &str) -> String {
    format!("Line numbers of comments on {files} were not mapped to the change: {why}")
}

/// How a file differs between the tested and the proposed state.
enum FileComparison {
    Alike,
    Differs(LineMap),
    /// The proposed state has no such file: it comes from a change ahead.
    NotProposed,
    /// The tested state has no such file: the job created it.
    NotTested,
}

/// Compares one file of the commit `tested` with that of the commit `proposed`. `NotTested` if the
/// tested commit lacks the file, otherwise `NotProposed` if the proposed one does. An error if one
/// of both is larger than [`FILE_BYTES_MAX`] or cannot be read.
fn compare_file(
    repository: &Repository,
    tested: &Oid,
    proposed: &Oid,
    path: &str,
) -> Result<FileComparison, GitReadError> {
    let limits = ReadLimits { file_bytes_max: FILE_BYTES_MAX, ..ReadLimits::default() };
    let Some(from) = repository.read_file(tested, path, limits)? else {
        return Ok(FileComparison::NotTested);
    };
    let Some(to) = repository.read_file(proposed, path, limits)? else {
        return Ok(FileComparison::NotProposed);
    };
    Ok(if from == to {
        FileComparison::Alike
    } else {
        FileComparison::Differs(LineMap::new(&from, &to))
    })
}

/// Maps the line numbers of one comment. A line that the change does not contain becomes the
/// nearest one, and the message gets a note with the number in the tested file. Without a map the
/// change contains none of the lines: their numbers stay and the message gets the note. An empty
/// message gets none.
fn map_lines(comment: &mut Value, map: Option<&LineMap>) {
    let mut missing = None;
    for pointer in LINES {
        let Some(named) = comment.pointer_mut(pointer) else { continue };
        let line =
            named.as_u64().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0);
        let Some(line) = line else { continue };
        match map.and_then(|map| map.find(line)) {
            Some(LinePosition::Same(own)) => *named = own.into(),
            Some(LinePosition::Nearest(own)) => {
                *named = own.into();
                missing = missing.or(Some(line));
            }
            None => missing = missing.or(Some(line)),
        }
    }
    if let (Some(line), Some(Value::String(message))) = (missing, comment.get_mut("message"))
        && !message.trim().is_empty()
    {
        *message =
            format!("{} (line {line} of the tested file; not part of this change)", message.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OWN: &str = "one\ntwo\nthree\n";
    const MERGED: &str = "new\none\ntwo\nput in\nthree\n";

    fn moved(mut comment: Value) -> Value {
        map_lines(&mut comment, Some(&LineMap::new(MERGED.as_bytes(), OWN.as_bytes())));
        comment
    }

    /// Z7.4
    #[test]
    fn lines_and_ranges_are_mapped_to_the_change() {
        assert_eq!(moved(json!({"line": 3, "message": "x"})), json!({"line": 2, "message": "x"}));
        let ranged = |start: u32, end: u32| {
            let range = json!({"start_line": start, "start_character": 1, "end_line": end, "end_character": 4});
            json!({"range": range, "message": "x"})
        };
        assert_eq!(moved(ranged(2, 5)), ranged(1, 3));
    }

    /// Z7.4: a comment on a line of another change moves to the nearest line, with a note.
    #[test]
    fn a_line_that_the_change_does_not_contain_is_noted_in_the_message() {
        let comment = moved(json!({"line": 4, "message": "too long\n", "level": "error"}));
        let message = "too long (line 4 of the tested file; not part of this change)";
        assert_eq!(comment, json!({"line": 2, "message": message, "level": "error"}));
        let mut of_another = json!({"line": 4, "message": "too long"});
        map_lines(&mut of_another, None);
        assert_eq!(of_another, json!({"line": 4, "message": message}));
    }

    /// Z7.4: a job may return anything.
    #[test]
    fn invalid_comments_are_not_modified() {
        for odd in [
            json!(7),
            json!({"line": "3"}),
            json!({"line": 0, "message": "x"}),
            json!({"line": 4, "message": " "}),
        ] {
            let comment = moved(odd.clone());
            assert_eq!(comment.get("message"), odd.get("message"), "{odd}");
        }
        assert_eq!(
            moved(json!({"line": "3", "message": "x"})),
            json!({"line": "3", "message": "x"})
        );
    }

    /// Z7.4
    #[test]
    fn a_job_may_disable_the_mapping() {
        let of =
            |zuul: Value| comments_to_map(&crate::vars::to_map(json!({"zuul": zuul}))).is_some();
        let files = json!({"a": [{"line": 1, "message": "x"}]});
        assert!(of(json!({"file_comments": files.clone()})));
        assert!(of(
            json!({"file_comments": files.clone(), "disable_file_comment_line_mapping": false})
        ));
        assert!(!of(json!({"file_comments": files, "disable_file_comment_line_mapping": true})));
        assert!(
            !of(json!({"file_comments": {}}))
                && !of(json!({"file_comments": [1]}))
                && !of(json!(7))
        );
    }
}
