//! Which builds and buildsets a list shows.

use crate::asked::Asked;
use crate::build_row::{BuildRow, NUMBERS_PER_MS};
use crate::reply::Refusal;
use sluice_model::change::ChangeRef;
use sluice_model::{JobName, PipelineName, Timestamp};

/// The parameters of the lists of builds, besides those of [`BUILDSETS`].
pub(crate) const BUILDS: &[&str] = &["job_name", "voting", "nodeset", "held", "final"];

/// The parameters of the lists of buildsets and of builds.
pub(crate) const BUILDSETS: &[&str] = &[
    "project",
    "pipeline",
    "branch",
    "change",
    "patchset",
    "ref",
    "newrev",
    "uuid",
    "queue_item_uuid",
    "result",
    "complete",
    "exclude_result",
    "idx_min",
    "idx_max",
    "limit",
    "skip",
];

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Filter<'a> {
    asked: &'a Asked,
    idx_min: Option<u64>,
    idx_max: Option<u64>,
}

/// What a list shows of a build or buildset, as far as filters ask.
pub(crate) struct Subject<'a> {
    pub(crate) change: &'a ChangeRef,
    pub(crate) pipeline: &'a PipelineName,
    pub(crate) job: Option<&'a JobName>,
    pub(crate) uuid: &'a str,
    pub(crate) item: &'a str,
}

impl<'a> Filter<'a> {
    /// Reads a filter.
    ///
    /// # Errors
    /// When `idx_min` or `idx_max` is no number.
    pub(crate) fn read(asked: &'a Asked) -> Result<Self, Refusal> {
        Ok(Self { asked, idx_min: asked.number("idx_min")?, idx_max: asked.number("idx_max")? })
    }

    /// Returns where the index begins for `idx_max`: before this sort key.
    pub(crate) fn before(&self) -> Option<String> {
        // `$` sorts after `#`, so that everything of that very millisecond is still read.
        self.idx_max.map(|number| format!("{:015}$", number / NUMBERS_PER_MS))
    }

    /// Returns whether everything older than `at` is too old.
    pub(crate) fn ends_before(&self, at: Timestamp) -> bool {
        self.idx_min.is_some_and(|number| at.0 < number / NUMBERS_PER_MS)
    }

    /// Returns whether everything of earlier milliseconds than this number's is too old.
    pub(crate) fn ends_before_number(&self, number: u64) -> bool {
        self.ends_before(Timestamp(number / NUMBERS_PER_MS))
    }

    /// Returns whether a number is wanted.
    pub(crate) fn takes_number(&self, number: u64) -> bool {
        self.idx_min.is_none_or(|min| number >= min) && self.idx_max.is_none_or(|max| number <= max)
    }

    /// Returns whether it is wanted as far as its order tells; this needs no further record.
    pub(crate) fn takes_subject(&self, subject: &Subject<'_>) -> bool {
        let key = &subject.change.key;
        let project = |pattern: &str| {
            wild(pattern, key.project.name()) || wild(pattern, key.project.as_str())
        };
        let number = key.number().map(|number| number.to_string());
        let newrev = key.moved().and_then(|moved| moved.newrev.as_ref());
        let branch = subject.change.on_branch();
        self.any("project", project)
            && self.any("pipeline", |pattern| wild(pattern, subject.pipeline.as_str()))
            && self.any("branch", |pattern| {
                branch.is_some_and(|branch| wild(pattern, branch.as_str()))
            })
            && self.any("job_name", |pattern| {
                subject.job.is_some_and(|job| wild(pattern, job.as_str()))
            })
            && self.any("change", |value| number.as_deref() == Some(value))
            && self.any("patchset", |value| value == subject.change.patchset)
            && self.any("ref", |value| value == subject.change.git_ref())
            && self.any("newrev", |value| newrev.is_some_and(|newrev| newrev.as_str() == value))
            && self.any("uuid", |value| value == subject.uuid)
            && self.any("queue_item_uuid", |value| value == subject.item)
    }

    /// Returns whether a build is wanted whose subject is.
    pub(crate) fn takes_build(&self, row: &BuildRow) -> bool {
        let end = row.end();
        let result = end.as_ref().map(|end| end.result.as_str());
        self.takes_held(row.held)
            && self.takes_end(result, row.order.voting, row.nodeset.as_deref())
    }

    /// Returns whether builds are wanted whose nodes are kept, or those whose nodes are not.
    pub(crate) fn takes_held(&self, held: bool) -> bool {
        self.any("held", |value| truth(value) == Some(held))
    }

    /// Returns whether a job is wanted that came to this, and whose subject is.
    pub(crate) fn takes_end(
        &self,
        result: Option<&str>,
        voting: bool,
        nodeset: Option<&str>,
    ) -> bool {
        let is_final = result.map(|result| result != "RETRY");
        self.takes_result(result)
            && self.any("voting", |value| truth(value) == Some(voting))
            && self.any("nodeset", |value| nodeset == Some(value))
            && self.any("final", |value| truth(value) == is_final)
    }

    /// Returns whether jobs that ended without a build may be wanted: they have no id, and are
    /// over.
    pub(crate) fn may_be_unbuilt(&self) -> bool {
        self.asked.one("uuid").is_none() && self.any("complete", |value| truth(value) == Some(true))
    }

    /// Returns whether a result is wanted; `None` is that of something that is not over.
    pub(crate) fn takes_result(&self, result: Option<&str>) -> bool {
        self.any("result", |value| result == Some(value))
            && self.any("complete", |value| truth(value) == Some(result.is_some()))
            && !self.asked.all("exclude_result").any(|value| result == Some(value))
    }

    /// A parameter that is given several times is met by any of its values.
    fn any(&self, name: &str, fits: impl Fn(&str) -> bool) -> bool {
        let mut values = self.asked.all(name).peekable();
        values.peek().is_none() || values.any(fits)
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// Returns whether `text` fits a pattern in which `*` stands for anything.
pub(crate) fn wild(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match left.find(piece) {
            Some(at) => left = left.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::wild;

    /// Z9.1
    #[test]
    fn a_star_stands_for_anything() {
        assert!(
            wild("org/*", "org/one")
                && wild("*one", "org/one")
                && wild("o*/*e", "org/one")
                && wild("*", "")
        );
        assert!(!wild("org/*", "other/one") && !wild("a*a", "a") && !wild("one", "org/one"));
    }
}
