//! Tenants of which no pipeline holds more than a few changes.

/// The most changes that a pipeline of such a tenant may hold. A tenant with projects at the Gerrit
/// says nothing of it.
pub const CHANGES_MAX: u32 = 3;

/// What such a tenant says.
pub const LIMIT: &str = "max-changes-per-pipeline: 3, ";

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1: what is judged is what the configuration says.
    #[test]
    fn the_limit_that_a_tenant_says_is_the_one_that_is_judged() {
        assert_eq!(LIMIT, format!("max-changes-per-pipeline: {CHANGES_MAX}, "));
    }
}
