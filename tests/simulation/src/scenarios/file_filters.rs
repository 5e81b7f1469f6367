//! [`super::Scenario::FileFilters`]: jobs that run only for some files, so that changes have
//! different jobs.

use sluice_scenarios::repos::Tree;

/// The job with `files`.
pub const DOCS: &str = "docs";
/// The job with `irrelevant-files`.
pub const CODE: &str = "code";

/// The files for which [`DOCS`] runs.
const RELEVANT: [&str; 2] = ["f0", "f1"];
/// The files for which [`CODE`] does not run.
const IRRELEVANT: [&str; 2] = ["f0", "f2"];

/// The configuration of the jobs and of the pipelines that run them.
pub const FILES_YAML: &str = "
- job: {name: docs, run: playbooks/docs.yaml, nodeset: {nodes: []}, files: ['^f0$', '^f1$']}
- job: {name: code, run: playbooks/code.yaml, nodeset: {nodes: []}, irrelevant-files: ['^f0$', '^f2$']}
- project: {name: ^org/t.*, check: {jobs: [docs, code]}, gate: {jobs: [docs, code]}}
";

/// Returns whether a job has a file filter.
pub fn has_file_filter(job: &str) -> bool {
    job == DOCS || job == CODE
}

/// Returns which of these jobs a change has that turns the tree `before` into `after`, in order. A
/// change of no file has both.
pub fn matching_jobs(before: &Tree, after: &Tree) -> Vec<&'static str> {
    let paths = before.keys().chain(after.keys());
    let touched: Vec<&str> =
        paths.filter(|path| before.get(*path) != after.get(*path)).map(String::as_str).collect();
    let has_code = touched.is_empty() || touched.iter().any(|path| !IRRELEVANT.contains(path));
    let has_docs = touched.is_empty() || touched.iter().any(|path| RELEVANT.contains(path));
    [has_code.then_some(CODE), has_docs.then_some(DOCS)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// Z4.2: the jobs that the oracle expects are those that the configuration selects.
    #[test]
    fn a_job_matches_when_a_relevant_file_is_changed() {
        let base = tree(&[("f0", "0"), ("f3", "0")]);
        assert_eq!(matching_jobs(&base, &tree(&[("f0", "1"), ("f3", "0")])), [DOCS]);
        assert_eq!(matching_jobs(&base, &tree(&[("f0", "1"), ("f3", "1")])), [CODE, DOCS]);
        assert_eq!(
            matching_jobs(&base, &tree(&[("f0", "0")])),
            [CODE],
            "a deleted file is changed"
        );
        assert_eq!(
            matching_jobs(&base, &tree(&[("f0", "0"), ("f2", "1"), ("f3", "0")])),
            Vec::<&str>::new()
        );
        assert_eq!(matching_jobs(&base, &base), [CODE, DOCS]);
    }
}
