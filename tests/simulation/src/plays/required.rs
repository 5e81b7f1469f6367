//! Jobs that are given another project of their tenant besides (`required-projects`).

/// What the names of such jobs begin with.
const BESIDE: &str = "beside-";

/// Returns a project's configuration with a job more, in check and in gate, that is given another
/// project.
pub fn with_job(text: &str, other: &str) -> String {
    let name = format!("{BESIDE}{}", other.replace('/', "-"));
    let job = format!(
        "- job: {{name: {name}, run: playbooks/beside.yaml, nodeset: {{nodes: []}}{REQUIRED}{other}]}}\n"
    );
    let text = text.replace("{jobs: [unit, quick", &format!("{{jobs: [unit, quick, {name}"));
    text.replacen("- project:\n", &format!("{job}- project:\n"), 1)
}

/// How it says which one.
const REQUIRED: &str = ", required-projects: [";

/// Returns the project that a job is given, by its name.
pub fn required_by(job: &str) -> Option<String> {
    Some(job.strip_prefix(BESIDE)?.replacen('-', "/", 1))
}

/// Returns a configuration of which no job says what it is given.
pub fn untold(text: &str) -> String {
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

    /// Z4.3: what is judged is what the configuration says.
    #[test]
    fn a_job_of_each_project_names_the_one_that_it_is_given() {
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
        assert!(
            untold(&text).contains(&format!("{job}}}\n")) && !untold(&text).contains("required"),
            "{text}"
        );
    }
}
