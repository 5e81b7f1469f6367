//! Jobs that are only for some files, so that changes have others than their neighbours.

use sluice_scenarios::repos::Tree;

/// The job that is for two files.
pub const DOCS: &str = "docs";
/// The job that two files are irrelevant for.
pub const CODE: &str = "code";

/// The files that [`DOCS`] is for.
const MEANT: [&str; 2] = ["f0", "f1"];
/// The files that are irrelevant for [`CODE`].
const IRRELEVANT: [&str; 2] = ["f0", "f2"];

/// Those jobs, and where they run.
pub const FILES_YAML: &str = "
- job: {name: docs, run: playbooks/docs.yaml, nodeset: {nodes: []}, files: ['^f0$', '^f1$']}
- job: {name: code, run: playbooks/code.yaml, nodeset: {nodes: []}, irrelevant-files: ['^f0$', '^f2$']}
- project: {name: ^org/t.*, check: {jobs: [docs, code]}, gate: {jobs: [docs, code]}}
";

/// Returns whether a job is one of those that files decide about.
pub fn is_chosen_by_files(job: &str) -> bool {
    job == DOCS || job == CODE
}

/// Returns which of those jobs a change has that made the second tree of the first one, in order.
/// One that touches nothing has both.
pub fn chosen(before: &Tree, after: &Tree) -> Vec<&'static str> {
    let paths = before.keys().chain(after.keys());
    let touched: Vec<&str> =
        paths.filter(|path| before.get(*path) != after.get(*path)).map(String::as_str).collect();
    let has_code = touched.is_empty() || touched.iter().any(|path| !IRRELEVANT.contains(path));
    let has_docs = touched.is_empty() || touched.iter().any(|path| MEANT.contains(path));
    [has_code.then_some(CODE), has_docs.then_some(DOCS)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// Z4.2: what the oracle expects is what the configuration says.
    #[test]
    fn a_job_is_chosen_where_a_file_is_touched_that_it_is_for() {
        let base = tree(&[("f0", "0"), ("f3", "0")]);
        assert_eq!(chosen(&base, &tree(&[("f0", "1"), ("f3", "0")])), [DOCS]);
        assert_eq!(chosen(&base, &tree(&[("f0", "1"), ("f3", "1")])), [CODE, DOCS]);
        assert_eq!(chosen(&base, &tree(&[("f0", "0")])), [CODE], "one that is gone is touched");
        assert_eq!(
            chosen(&base, &tree(&[("f0", "0"), ("f2", "1"), ("f3", "0")])),
            Vec::<&str>::new()
        );
        assert_eq!(chosen(&base, &base), [CODE, DOCS]);
    }
}
