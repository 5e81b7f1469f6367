//! Checks the open work each minute: counts and logs overdue work, and wakes its cells.

use crate::Timer;
use crate::sweep::Failures;
use sluice_model::Timestamp;
use sluice_model::wakeup::Wakeup;
use sluice_records::open_work::{self, OpenKind, OpenWork};
use sluice_runtime::{PortError, metric};
use std::collections::BTreeSet;

/// The metric of halted cells.
const HALTED: &str = "HaltedCells";

/// The most log lines about single pieces of work of one sweep.
const LOGGED_MAX: usize = 20;

impl Timer {
    /// Reads the work that is overdue. Logs each such piece of work and each halted cell, at most
    /// 20 of each, and the counts. Wakes the cells of the overdue work as far as they are known,
    /// because a wakeup may have been lost; failures to send are added to `failures`. On Lambda it
    /// also prints the metrics. An error only if the open work cannot be read.
    pub(crate) async fn account(
        &self,
        now: Timestamp,
        failures: &mut Failures,
    ) -> Result<(), PortError> {
        let work = open_work::read(&self.ports, open_work::past_bound(now), now).await?;
        for open in work.unaccounted().take(LOGGED_MAX) {
            tracing::error!(
                kind = open.kind.plural(),
                id = open.id,
                why = open.unaccounted,
                "unaccounted for"
            );
        }
        for cell in work.halted.iter().take(LOGGED_MAX) {
            tracing::error!(cell, "halted until an operator resumes it");
        }
        // Each should be 0.
        let counts = counts(&work);
        tracing::info!(?counts, is_cut = work.is_cut, "overdue work");
        metric::print(&counts, now);
        let wakeups: BTreeSet<Wakeup> =
            work.unaccounted().filter_map(|open| open.wakeup.clone()).collect();
        self.send_each(wakeups, failures).await;
        Ok(())
    }
}

/// Returns the numbers of overdue work by kind, such as `UnaccountedDeliveries`, and of halted queues
/// and providers, by the names of their metrics.
fn counts(work: &OpenWork) -> Vec<(&'static str, usize)> {
    let by_kind = work.counts().into_iter().map(|(kind, count)| (metric_name(kind), count));
    by_kind.chain([(HALTED, work.halted.len())]).collect()
}

/// Returns the name of the CloudWatch metric that counts overdue work of this kind.
fn metric_name(kind: OpenKind) -> &'static str {
    match kind {
        OpenKind::Delivery => "UnaccountedDeliveries",
        OpenKind::InboxMessage => "UnaccountedMessages",
        OpenKind::Item => "UnaccountedItems",
        OpenKind::Build => "UnaccountedBuilds",
        OpenKind::Request => "UnaccountedRequests",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TEMPLATE: &str = include_str!("../../../infra/template.yaml");

    /// C5, Z6.4: a halted cell is counted separately from overdue work, and each count has an
    /// alarm.
    #[test]
    fn each_count_is_a_metric_that_an_alarm_looks_at() {
        let work =
            OpenWork { halted: ["queue#demo/gate/q".to_owned()].into(), ..OpenWork::default() };
        let line: Value =
            serde_json::from_str(&metric::line(&counts(&work), Timestamp(5))).unwrap();
        assert_eq!((&line["HaltedCells"], &line["UnaccountedItems"]), (&json!(1), &json!(0)));
        let named = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        let names: Vec<&str> =
            named.iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
        assert_eq!((names.len(), names.contains(&"HaltedCells")), (OpenKind::ALL.len() + 1, true));
        for name in &names {
            assert!(line[*name].is_u64(), "{name} has no value");
        }
        for name in names.into_iter().chain([metric::PARTLY_MERGED_BUNDLES]) {
            assert!(TEMPLATE.contains(&format!("MetricName: {name}\n")), "{name} has no alarm");
        }
        assert!(TEMPLATE.contains("SLUICE_STACK: !Ref AWS::StackName"), "alarms see no metric");
    }
}
