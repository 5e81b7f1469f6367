//! Checks the open work each minute: counts and logs overdue work, and wakes its cells.

use crate::Timer;
use crate::sweep::Failures;
use serde_json::{Map, Value, json};
use sluice_model::Timestamp;
use sluice_model::wakeup::Wakeup;
use sluice_records::open_work::{self, OpenKind, OpenWork};
use sluice_runtime::PortError;
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
        // CloudWatch reads the metrics from this line (embedded metric format); each should be 0.
        let (counts, halted) = (work.counts(), work.halted.len());
        tracing::info!(?counts, halted, is_cut = work.is_cut, "overdue work");
        if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
            println!("{}", metrics(&work, now));
        }
        let wakeups: BTreeSet<Wakeup> =
            work.unaccounted().filter_map(|open| open.wakeup.clone()).collect();
        self.send_each(wakeups, failures).await;
        Ok(())
    }
}

/// Returns the log line, in CloudWatch's embedded metric format, with the numbers of overdue work
/// by kind, such as `Sluice/UnaccountedDeliveries`, and of halted queues and providers in
/// `Sluice/HaltedCells`. The dimension `Stack` is the variable `SLUICE_STACK`, or `sluice`.
fn metrics(work: &OpenWork, now: Timestamp) -> String {
    let stack = std::env::var("SLUICE_STACK").unwrap_or_else(|_| "sluice".to_owned());
    let names = OpenKind::ALL.into_iter().map(metric).chain([HALTED]);
    let names: Vec<Value> = names.map(|name| json!({"Name": name, "Unit": "Count"})).collect();
    let mut line = Map::new();
    line.insert(
        "_aws".to_owned(),
        json!({
            "Timestamp": now.0,
            "CloudWatchMetrics": [{"Namespace": "Sluice", "Dimensions": [["Stack"]], "Metrics": names}],
        }),
    );
    line.insert("Stack".to_owned(), json!(stack));
    line.insert(HALTED.to_owned(), json!(work.halted.len()));
    line.extend(
        work.counts().into_iter().map(|(kind, count)| (metric(kind).to_owned(), json!(count))),
    );
    Value::Object(line).to_string()
}

/// Returns the name of the CloudWatch metric that counts overdue work of this kind.
fn metric(kind: OpenKind) -> &'static str {
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

    const TEMPLATE: &str = include_str!("../../../infra/template.yaml");

    /// C5, Z6.4: a halted cell is counted separately from overdue work, and each count has an
    /// alarm.
    #[test]
    fn each_count_is_a_metric_that_an_alarm_looks_at() {
        let work =
            OpenWork { halted: ["queue#demo/gate/q".to_owned()].into(), ..OpenWork::default() };
        let line: Value = serde_json::from_str(&metrics(&work, Timestamp(5))).unwrap();
        assert_eq!((&line["HaltedCells"], &line["UnaccountedItems"]), (&json!(1), &json!(0)));
        let named = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        let names: Vec<&str> =
            named.iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
        assert_eq!((names.len(), names.contains(&"HaltedCells")), (OpenKind::ALL.len() + 1, true));
        for name in names {
            assert!(line[name].is_u64(), "{name} has no value");
            assert!(TEMPLATE.contains(&format!("MetricName: {name}\n")), "{name} has no alarm");
        }
    }
}
