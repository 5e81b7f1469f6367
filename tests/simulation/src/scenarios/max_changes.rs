//! [`super::Scenario::MaxChanges`]: tenants that limit the number of changes in each pipeline.

/// The limit. Tenants with Gerrit projects have none.
pub const CHANGES_MAX: u32 = 3;

/// The attribute in the tenant configuration.
pub const LIMIT: &str = "max-changes-per-pipeline: 3, ";

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1: the limit that is checked is the configured one.
    #[test]
    fn the_checked_limit_is_the_configured_one() {
        assert_eq!(LIMIT, format!("max-changes-per-pipeline: {CHANGES_MAX}, "));
    }
}
