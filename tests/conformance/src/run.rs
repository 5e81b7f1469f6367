//! Runs checks and compares their results with the known differences.

use crate::check::{Check, Mismatch, TestPorts};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Checks that run concurrently. There are more than cores, because several wait for a message to
/// become visible again.
const AT_ONCE: usize = 6;
/// The longest duration of one check.
const CHECK_SECONDS_MAX: u64 = 120;

/// A known difference of one implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The check that fails.
    pub check: &'static str,
    /// A part of its failure text.
    pub says: &'static str,
    /// What is different, and the consequences.
    pub because: &'static str,
}

/// The results of all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConformanceReport {
    /// The implementation of the ports.
    pub of: String,
    /// The checks that passed.
    pub held: usize,
    /// The known differences that still exist.
    pub known: usize,
    /// Unexpected results, one sentence each.
    pub unexpected: Vec<String>,
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, held, known, .. } = self;
        write!(f, "{of}: {held} checks held, {known} known differences")?;
        for line in &self.unexpected {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// Runs each of `checks` on separate ports made by `target`, and returns the results.
pub async fn run(
    of: &str,
    checks: Vec<Check>,
    target: impl Fn(Check) -> BoxFuture<'static, Result<TestPorts, Mismatch>>,
    differences: &[Difference],
) -> ConformanceReport {
    let mut unexpected: Vec<String> = differences
        .iter()
        .filter(|difference| !checks.iter().any(|check| check.name == difference.check))
        .map(|difference| format!("{}: listed, but there is no such check", difference.check))
        .collect();
    let endings = futures::stream::iter(checks)
        .map(|check| {
            let target = target(check);
            async move { (check, one(check, target).await) }
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let (mut held, mut known) = (0, 0);
    for (check, ended) in endings {
        let difference = differences.iter().find(|difference| difference.check == check.name);
        match (ended, difference) {
            (Ok(()), None) => held += 1,
            (Err(said), Some(difference)) if said.0.contains(difference.says) => known += 1,
            (Ok(()), Some(_)) => unexpected.push(format!(
                "{}: it holds; the listed difference went away, strike it off",
                check.name
            )),
            (Err(said), Some(_)) => {
                unexpected.push(format!("{}: it differs otherwise than listed: {said}", check.name))
            }
            (Err(said), None) => unexpected.push(format!("{}: {said}", check.name)),
        }
    }
    unexpected.sort();
    ConformanceReport { of: of.to_owned(), held, known, unexpected }
}

async fn one(
    check: Check,
    target: BoxFuture<'static, Result<TestPorts, Mismatch>>,
) -> Result<(), Mismatch> {
    let target = Arc::new(target.await?);
    let limit = Duration::from_secs(CHECK_SECONDS_MAX);
    tokio::time::timeout(limit, (check.run)(target)).await.unwrap_or_else(|_| {
        Err(Mismatch(format!("it did not end within {CHECK_SECONDS_MAX} seconds")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Needs;
    use sluice_memory::World;
    use sluice_model::Timestamp;

    fn check(
        name: &'static str,
        run: fn(Arc<TestPorts>) -> BoxFuture<'static, Result<(), Mismatch>>,
    ) -> Check {
        Check { name, needs: Needs::Records, run }
    }

    #[tokio::test]
    async fn a_difference_is_noticed_when_it_appears_changes_or_goes_away() {
        let good = check("good", |_| Box::pin(async { Ok(()) }));
        let bad = check("bad", |_| Box::pin(async { Err(Mismatch("seven".into())) }));
        let listed = |check, says| Difference { check, says, because: "of a test" };
        let target = |_| -> BoxFuture<'static, Result<TestPorts, Mismatch>> {
            Box::pin(async { Ok(TestPorts::in_memory(World::new(1, 0, Timestamp(0)))) })
        };
        let both = || vec![good, bad];
        let report = run("x", both(), target, &[listed("bad", "seven")]).await;
        assert_eq!((report.held, report.known), (1, 1));
        assert!(report.unexpected.is_empty());
        let unexpected = |differences: Vec<Difference>| async move {
            run("x", both(), target, &differences).await.unexpected.concat()
        };
        assert_eq!(unexpected(vec![]).await, "bad: seven");
        assert!(unexpected(vec![listed("bad", "eight")]).await.contains("otherwise"));
        let gone = unexpected(vec![listed("bad", "seven"), listed("good", "")]).await;
        assert!(gone.contains("went away"));
        let gone = unexpected(vec![listed("bad", "seven"), listed("ugly", "")]).await;
        assert!(gone.contains("no such check"));
    }
}
