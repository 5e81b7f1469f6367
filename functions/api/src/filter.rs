//! The filters of the lists of builds and buildsets.

use crate::build_row::{BuildRow, NUMBERS_PER_MS};
use crate::reply::ErrorResponse;
use crate::request::ApiRequest;
use sluice_model::change::ChangeRef;
use sluice_model::{JobName, PipelineName, Timestamp};

/// The filter parameters of a request.
#[derive(Debug, Clone)]
pub(crate) struct BuildFilter<'a> {
    /// The request with the parameters.
    request: &'a ApiRequest,
    /// The lowest number of a build to show.
    idx_min: Option<u64>,
    /// The highest number of a build to show.
    idx_max: Option<u64>,
}

/// The properties of a build or buildset that filters match.
pub(crate) struct BuildSubject<'a> {
    /// The change that is tested.
    pub(crate) change: &'a ChangeRef,
    /// The pipeline.
    pub(crate) pipeline: &'a PipelineName,
    /// The job; `None` for a buildset.
    pub(crate) job: Option<&'a JobName>,
    /// The id of the build or buildset.
    pub(crate) uuid: &'a str,
    /// The id of the item.
    pub(crate) item: &'a str,
}

impl<'a> BuildFilter<'a> {
    /// Takes the filter from a request; an error with status 400 if `idx_min` or `idx_max` is not a
    /// number. Other filters are not checked: an unknown value matches nothing, and in
    /// `exclude_result` excludes nothing. `limit` and `skip` are not part of the filter.
    pub(crate) fn read(request: &'a ApiRequest) -> Result<Self, ErrorResponse> {
        Ok(Self {
            request,
            idx_min: request.number_parameter("idx_min")?,
            idx_max: request.number_parameter("idx_max")?,
        })
    }

    /// Returns the position in the index before which a search starts, from the parameter
    /// `idx_max`; `None` if it is not given.
    pub(crate) fn before(&self) -> Option<String> {
        // `$` sorts after `#`, so the search includes the whole millisecond.
        self.idx_max.map(|number| format!("{:015}$", number / NUMBERS_PER_MS))
    }

    /// Returns whether a search may end at the time `at`, because everything older is below
    /// `idx_min`.
    pub(crate) fn ends_before(&self, at: Timestamp) -> bool {
        self.idx_min.is_some_and(|number| at.0 < number / NUMBERS_PER_MS)
    }

    /// Returns whether a search may end at a number, because everything older than its millisecond
    /// is below `idx_min`.
    pub(crate) fn ends_before_number(&self, number: u64) -> bool {
        self.ends_before(Timestamp(number / NUMBERS_PER_MS))
    }

    /// Returns whether a number is within `idx_min` and `idx_max`.
    pub(crate) fn matches_number(&self, number: u64) -> bool {
        self.idx_min.is_none_or(|min| number >= min) && self.idx_max.is_none_or(|max| number <= max)
    }

    /// Returns whether a build or buildset matches the filters about its subject: project,
    /// pipeline, branch, job, change, patch set, ref, newrev and the ids. Of several values of one
    /// filter one must match; in the first four, `*` stands for any text. A filter by job matches
    /// no buildset. Filters about the outcome are [`Self::matches_build`] and
    /// [`Self::matches_result`], those about the number [`Self::matches_number`].
    pub(crate) fn matches_subject(&self, subject: &BuildSubject<'_>) -> bool {
        let key = &subject.change.key;
        let project = |pattern: &str| {
            matches_wildcard(pattern, key.project.name())
                || matches_wildcard(pattern, key.project.as_str())
        };
        let number = key.number().map(|number| number.to_string());
        let newrev = key.ref_move().and_then(|moved| moved.newrev.as_ref());
        let branch = subject.change.on_branch();
        self.any("project", project)
            && self.any("pipeline", |pattern| matches_wildcard(pattern, subject.pipeline.as_str()))
            && self.any("branch", |pattern| {
                branch.is_some_and(|branch| matches_wildcard(pattern, branch.as_str()))
            })
            && self.any("job_name", |pattern| {
                subject.job.is_some_and(|job| matches_wildcard(pattern, job.as_str()))
            })
            && self.any("change", |value| number.as_deref() == Some(value))
            && self.any("patchset", |value| value == subject.change.patchset)
            && self.any("ref", |value| value == subject.change.github_ref())
            && self.any("newrev", |value| newrev.is_some_and(|newrev| newrev.as_str() == value))
            && self.any("uuid", |value| value == subject.uuid)
            && self.any("queue_item_uuid", |value| value == subject.item)
    }

    /// Returns whether a build matches the filters by result, completeness, voting, nodeset,
    /// finality and held nodes. The caller has set `held`; without a nodeset in the row, a filter
    /// by nodeset matches nothing. Those about its subject are [`Self::matches_subject`].
    pub(crate) fn matches_build(&self, row: &BuildRow) -> bool {
        let end = row.end();
        let result = end.as_ref().map(|end| end.result.as_str());
        self.matches_held(row.held)
            && self.matches_end(result, row.order.voting, row.nodeset.as_deref())
    }

    /// Returns whether the filter `held` accepts a build whose nodes are held (`held`), or are not.
    pub(crate) fn matches_held(&self, held: bool) -> bool {
        self.any("held", |value| parse_bool(value) == Some(held))
    }

    /// Returns whether a job matches the filters by result, completeness, voting, nodeset and
    /// finality. `result` is `None` for a job that has not ended; it matches neither value of
    /// `final`. A `nodeset` of `None` matches no filter by nodeset. Filters about its subject are
    /// [`Self::matches_subject`].
    pub(crate) fn matches_end(
        &self,
        result: Option<&str>,
        voting: bool,
        nodeset: Option<&str>,
    ) -> bool {
        let is_final = result.map(|result| result != "RETRY");
        self.matches_result(result)
            && self.any("voting", |value| parse_bool(value) == Some(voting))
            && self.any("nodeset", |value| nodeset == Some(value))
            && self.any("final", |value| parse_bool(value) == is_final)
    }

    /// Returns whether the filters may match jobs that ended without a build: not if an id is
    /// given, or only unfinished builds are wanted.
    pub(crate) fn may_be_unbuilt(&self) -> bool {
        self.request.parameter("uuid").is_none()
            && self.any("complete", |value| parse_bool(value) == Some(true))
    }

    /// Returns whether a result matches the filters `result`, `complete` and `exclude_result`;
    /// `None` is that of an unfinished build.
    pub(crate) fn matches_result(&self, result: Option<&str>) -> bool {
        self.any("result", |value| result == Some(value))
            && self.any("complete", |value| parse_bool(value) == Some(result.is_some()))
            && !self.request.parameter_values("exclude_result").any(|value| result == Some(value))
    }

    /// Returns whether any value of a parameter matches, or the parameter is not given.
    fn any(&self, name: &str, matches: impl Fn(&str) -> bool) -> bool {
        let mut values = self.request.parameter_values(name).peekable();
        values.peek().is_none() || values.any(matches)
    }
}

/// Parses `true`, `1`, `false` and `0` in any case; `None` for any other text.
fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
pub(crate) fn matches_wildcard(pattern: &str, text: &str) -> bool {
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
    use super::matches_wildcard;

    /// Z9.1
    #[test]
    fn a_star_stands_for_anything() {
        assert!(
            matches_wildcard("org/*", "org/one")
                && matches_wildcard("*one", "org/one")
                && matches_wildcard("o*/*e", "org/one")
                && matches_wildcard("*", "")
        );
        assert!(
            !matches_wildcard("org/*", "other/one")
                && !matches_wildcard("a*a", "a")
                && !matches_wildcard("one", "org/one")
        );
    }
}
