//! Tenants that take no change in which needs more than so many others, all the way down.

/// The most changes that one may need. A tenant with projects at the Gerrit sets no bound: what
/// shares a topic there comes to need more and less by what is done to others.
pub const NEEDS_MAX: usize = 1;

/// What such a tenant says.
pub const LIMIT: &str = "max-dependencies: 1, ";
