//! [`super::Scenario::RequiredProjects`]: jobs that require another project of their tenant.

/// The prefix of the names of such jobs.
const PREFIX: &str = "beside-";

/// Returns a project's configuration with an additional job in `check` and `gate` that requires the
/// project `other`.
pub fn with_job(text: &str, other: &str) -> String {
    let name = format!("{PREFIX}{}", other.replace('/', "-"));
    let job = format!(
        "- job: {{name: {name}, run: playbooks/beside.yaml, nodeset: {{nodes: []}}{REQUIRED}{other}]}}\n"
    );
    let text = text.replace("{jobs: [unit, quick", &format!("{{jobs: [unit, quick, {name}"));
    text.replacen("- project:\n", &format!("{job}- project:\n"), 1)
}

/// The attribute of the job up to the name of the required project.
const REQUIRED: &str = ", required-projects: [";

/// Returns the project that a job requires, which is encoded in the job's name. Returns `None` for
/// other jobs.
pub fn required_by(job: &str) -> Option<String> {
    Some(job.strip_prefix(PREFIX)?.replacen('-', "/", 1))
}

/// Returns a configuration with `required-projects` removed from all jobs.
pub fn without_required_projects(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(REQUIRED) {
        Some((job, _)) => format!("{job}}}\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::project_yaml;

    /// Z4.3: the project that is checked is the configured one.
    #[test]
    fn the_name_of_a_job_encodes_the_project_that_it_requires() {
        let text = with_job(&project_yaml("org/t0p0", true, 1, ""), "org/t0p1");
        let name = "beside-org-t0p1";
        assert_eq!(text.matches(&format!("{{jobs: [unit, quick, {name}")).count(), 2, "{text}");
        let job =
            format!("- job: {{name: {name}, run: playbooks/beside.yaml, nodeset: {{nodes: []}}");
        assert_eq!(
            text.matches(&format!("{job}, required-projects: [org/t0p1]}}\n- project:\n")).count(),
            1,
            "{text}"
        );
        assert_eq!(required_by(name).as_deref(), Some("org/t0p1"));
        assert_eq!(required_by("deploy-org-t0p1"), None);
        let bare = without_required_projects(&text);
        assert!(bare.contains(&format!("{job}}}\n")) && !bare.contains("required"), "{text}");
    }
}
