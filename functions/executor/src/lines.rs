//! Lines that a job names (`zuul.file_comments`), as they are in the change as it was proposed
//! (Z7.4).
//!
//! A job sees files as they are merged with what came before the change, and forges show people the
//! change's own. So lines are told of those, unless the job says
//! `disable_file_comment_line_mapping`. Packs that hold both are here already: the workspace was
//! made of them.

use crate::job::{Job, Sources};
use crate::jobdir::Jobdir;
use crate::phases::chain;
use crate::workspace::own_packs;
use serde_json::{Map, Value};
use sluice_git::{LineMap, Place, ReadError, ReadLimits, Repository};
use sluice_model::git::Oid;
use std::time::Duration;

/// Files of one build that are compared; in more of them lines stay as the job named them.
const FILES_MAX: usize = 100;

/// Bytes of a file that is compared; in a larger one lines stay as the job named them.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The end of a build waits no longer for it.
const SECONDS_MAX: u64 = 60;

/// Where a comment names lines.
const LINES: [&str; 3] = ["/line", "/range/end_line", "/range/start_line"];

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Moves the lines that a job named, of files of its own project at the commit `tested`, to where
/// they are in the change as it was proposed. Returns what the log says of those that stay as they
/// were named: a build does not fail by its comments.
pub async fn told_of_the_change(
    job: &Job<'_>,
    sources: &dyn Sources,
    jobdir: &Jobdir,
    tested: &Oid,
    data: &mut Map<String, Value>,
) -> Vec<String> {
    let change = &job.order.change;
    // What was pushed is tested as it is.
    if change.key.moved().is_some() || *tested == change.head {
        return Vec::new();
    }
    let Some(files) = wanted(data) else { return Vec::new() };
    let limit = Duration::from_secs(SECONDS_MAX);
    match tokio::time::timeout(limit, compared(job, sources, jobdir, tested, files)).await {
        Ok(Ok((files, said))) => {
            if let Some(Value::Object(zuul)) = data.get_mut("zuul") {
                zuul.insert("file_comments".to_owned(), Value::Object(files));
            }
            said
        }
        Ok(Err(error)) => vec![stays("files", &chain(error.as_ref()))],
        Err(_) => {
            vec![stays("files", &format!("to compare them took longer than {SECONDS_MAX} s"))]
        }
    }
}

/// Returns the comments by file, where there are any and the job does not want their lines left
/// alone.
fn wanted(data: &Map<String, Value>) -> Option<Map<String, Value>> {
    let zuul = data.get("zuul")?;
    let is_left_alone = zuul.get("disable_file_comment_line_mapping") == Some(&Value::Bool(true));
    let files = zuul
        .get("file_comments")?
        .as_object()
        .filter(|files| !is_left_alone && !files.is_empty())?;
    Some(files.clone())
}

async fn compared(
    job: &Job<'_>,
    sources: &dyn Sources,
    jobdir: &Jobdir,
    tested: &Oid,
    files: Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<String>), Cause> {
    let packs = own_packs(job, sources, tested).await?;
    // Not in the workspace: what lies there, git's own files too, is the job's to change.
    let (project, dir) = (job.order.change.key.project.clone(), jobdir.root.join("lines"));
    let (tested, own) = (tested.clone(), job.order.change.head.clone());
    let work = move || {
        let repository = Repository::of_packs(&project, &dir, &packs.directory, &packs.names)?;
        Ok::<_, Cause>(all_moved(&repository, &tested, &own, files))
    };
    tokio::task::spawn_blocking(work).await?
}

fn all_moved(
    repository: &Repository,
    tested: &Oid,
    own: &Oid,
    mut files: Map<String, Value>,
) -> (Map<String, Value>, Vec<String>) {
    if !repository.has(own) {
        let why = format!("the tested state does not hold the change's own revision {own}");
        return (files, vec![stays("files", &why)]);
    }
    let mut said = Vec::new();
    if files.len() > FILES_MAX {
        let more = format!("{} files", files.len() - FILES_MAX);
        said.push(stays(&more, &format!("no more than {FILES_MAX} are compared")));
    }
    for (path, comments) in files.iter_mut().take(FILES_MAX) {
        let Some(comments) = comments.as_array_mut() else { continue };
        match between(repository, tested, own, path) {
            Ok(Between::Alike) => {}
            Ok(Between::Differs(map)) => {
                comments.iter_mut().for_each(|comment| move_lines(comment, Some(&map)))
            }
            Ok(Between::NotProposed) => {
                comments.iter_mut().for_each(|comment| move_lines(comment, None))
            }
            Ok(Between::NotTested) => {
                said.push(stays(path, "there is no such file in the tested state"))
            }
            Err(ReadError::TooLarge { .. }) => {
                said.push(stays(
                    path,
                    &format!("files of more than {FILE_BYTES_MAX} bytes are not compared"),
                ));
            }
            Err(error) => said.push(stays(path, &chain(&error))),
        }
    }
    (files, said)
}

fn stays(what: &str, why: &str) -> String {
    format!("Comments on {what} keep the lines that the job named: {why}")
}

/// How a file differs between what was tested and what was proposed.
enum Between {
    Alike,
    Differs(LineMap),
    /// What was proposed has no such file: it came by what is before the change.
    NotProposed,
    /// What was tested has no such file: the job made it.
    NotTested,
}

fn between(
    repository: &Repository,
    tested: &Oid,
    own: &Oid,
    path: &str,
) -> Result<Between, ReadError> {
    let limits = ReadLimits { file_bytes_max: FILE_BYTES_MAX, ..ReadLimits::default() };
    let Some(from) = repository.read_file(tested, path, limits)? else {
        return Ok(Between::NotTested);
    };
    let Some(to) = repository.read_file(own, path, limits)? else {
        return Ok(Between::NotProposed);
    };
    Ok(if from == to { Between::Alike } else { Between::Differs(LineMap::new(&from, &to)) })
}

/// Moves the lines of one comment; one that the change does not have is told in its message.
/// Without a map it has none of them.
fn move_lines(comment: &mut Value, map: Option<&LineMap>) {
    let mut missing = None;
    for pointer in LINES {
        let Some(named) = comment.pointer_mut(pointer) else { continue };
        let line =
            named.as_u64().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0);
        let Some(line) = line else { continue };
        match map.and_then(|map| map.find(line)) {
            Some(Place::Same(own)) => *named = own.into(),
            Some(Place::Nearest(own)) => {
                *named = own.into();
                missing = missing.or(Some(line));
            }
            None => missing = missing.or(Some(line)),
        }
    }
    if let (Some(line), Some(Value::String(message))) = (missing, comment.get_mut("message"))
        && !message.trim().is_empty()
    {
        *message = format!(
            "{} (line {line} of what was tested; the change itself does not have it)",
            message.trim()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OWN: &str = "one\ntwo\nthree\n";
    const MERGED: &str = "new\none\ntwo\nput in\nthree\n";

    fn moved(mut comment: Value) -> Value {
        move_lines(&mut comment, Some(&LineMap::new(MERGED.as_bytes(), OWN.as_bytes())));
        comment
    }

    /// Z7.4
    #[test]
    fn lines_and_ranges_are_told_of_the_change_itself() {
        assert_eq!(moved(json!({"line": 3, "message": "x"})), json!({"line": 2, "message": "x"}));
        let ranged = |start: u32, end: u32| {
            let range = json!({"start_line": start, "start_character": 1, "end_line": end, "end_character": 4});
            json!({"range": range, "message": "x"})
        };
        assert_eq!(moved(ranged(2, 5)), ranged(1, 3));
    }

    /// Z7.4: what came by others' changes is told at the nearest line, with what it was.
    #[test]
    fn a_line_that_the_change_does_not_have_is_told_in_the_message() {
        let told = moved(json!({"line": 4, "message": "too long\n", "level": "error"}));
        let message = "too long (line 4 of what was tested; the change itself does not have it)";
        assert_eq!(told, json!({"line": 2, "message": message, "level": "error"}));
        let mut of_another = json!({"line": 4, "message": "too long"});
        move_lines(&mut of_another, None);
        assert_eq!(of_another, json!({"line": 4, "message": message}));
    }

    /// Z7.4: a job may return anything.
    #[test]
    fn what_is_no_comment_stays_as_it_is() {
        for odd in [
            json!(7),
            json!({"line": "3"}),
            json!({"line": 0, "message": "x"}),
            json!({"line": 4, "message": " "}),
        ] {
            let told = moved(odd.clone());
            assert_eq!(told.get("message"), odd.get("message"), "{odd}");
        }
        assert_eq!(
            moved(json!({"line": "3", "message": "x"})),
            json!({"line": "3", "message": "x"})
        );
    }

    /// Z7.4
    #[test]
    fn a_job_may_want_its_lines_left_alone() {
        let of = |zuul: Value| wanted(&crate::vars::to_map(json!({"zuul": zuul}))).is_some();
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
