//! [`super::Scenario::MaxDependencies`]: tenants that limit the dependencies of a change, including
//! indirect ones.

/// The limit. Tenants with Gerrit projects have none, because topics change the dependencies of
/// other changes.
pub const NEEDS_MAX: usize = 1;

/// The attribute in the tenant configuration.
pub const LIMIT: &str = "max-dependencies: 1, ";
