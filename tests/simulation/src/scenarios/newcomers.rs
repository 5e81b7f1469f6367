//! [`super::Scenario::Newcomers`]: a project of each tenant that has no configuration at first. A
//! change adds it to the pipelines `check` and `gate`, and other changes of the project are tested
//! on top of that change.

/// The prefix of the names of such projects.
const PREFIX: &str = "org/n";

/// The number of the first change of a newcomer.
pub const NUMBERS_FROM: u64 = 200;

/// The title of the change that adds the configuration.
pub const ADDS: &str = "adds the project to the pipelines";

/// The title of a change that the configuration of another one concerns.
pub const FOLLOWS: &str = "follows the configuration";

/// Returns the newcomer of a tenant (`tenant0` has `org/n0`).
pub fn project_of(tenant: &str) -> String {
    format!("{PREFIX}{}", tenant.trim_start_matches(|c: char| !c.is_ascii_digit()))
}

/// Returns whether a project is a newcomer, which its name shows.
pub fn is_newcomer(project: &str) -> bool {
    project.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C14: no stanza of the config project applies to a newcomer.
    #[test]
    fn a_newcomer_is_known_by_its_name() {
        assert_eq!(project_of("tenant1"), "org/n1");
        assert!(is_newcomer("org/n1") && !is_newcomer("org/t1p0") && !is_newcomer("org/t1r0"));
    }
}
