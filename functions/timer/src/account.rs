//! The ledger, each minute: what nobody sees to any more is counted, told, and has its cell poked.

use crate::Timer;
use crate::sweep::Failures;
use serde_json::{Map, Value, json};
use sluice_model::Timestamp;
use sluice_model::poke::Poke;
use sluice_records::ledger::{self, Kind, Ledger};
use sluice_runtime::PortError;
use std::collections::BTreeSet;

/// The metric of frozen cells.
const FROZEN: &str = "FrozenCells";

/// Lines about single things that one sweep writes into the log.
const TOLD_MAX: usize = 20;

impl Timer {
    /// Counts what is past its bound, and pokes whoever should have seen to it: a wake-up may have
    /// been lost.
    pub(crate) async fn account(
        &self,
        now: Timestamp,
        failures: &mut Failures,
    ) -> Result<(), PortError> {
        let ledger = ledger::read(&self.ports, ledger::past_bound(now), now).await?;
        for open in ledger.unaccounted().take(TOLD_MAX) {
            tracing::error!(
                kind = open.kind.plural(),
                id = open.id,
                why = open.unaccounted,
                "unaccounted for"
            );
        }
        for cell in ledger.frozen.iter().take(TOLD_MAX) {
            tracing::error!(
                cell,
                "frozen, and what stands in it waits until an operator has looked at it"
            );
        }
        // CloudWatch reads the metrics out of this line (embedded metric format); each must be 0.
        let (counts, frozen) = (ledger.counts(), ledger.frozen.len());
        tracing::info!(?counts, frozen, is_cut = ledger.is_cut, "past their bound");
        if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
            println!("{}", metrics(&ledger, now));
        }
        let pokes: BTreeSet<Poke> =
            ledger.unaccounted().filter_map(|open| open.poke.clone()).collect();
        self.send_each(pokes, failures).await;
        Ok(())
    }
}

/// Returns the line that CloudWatch takes the metrics `Sluice/UnaccountedDeliveries` (`…Arrivals`,
/// `…Items`, `…Builds`, `…Requests`) and `Sluice/FrozenCells` from: frozen queues and providers in
/// which something is past its bound.
fn metrics(ledger: &Ledger, now: Timestamp) -> String {
    let stack = std::env::var("SLUICE_STACK").unwrap_or_else(|_| "sluice".to_owned());
    let names = Kind::ALL.into_iter().map(metric).chain([FROZEN]);
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
    line.insert(FROZEN.to_owned(), json!(ledger.frozen.len()));
    line.extend(
        ledger.counts().into_iter().map(|(kind, count)| (metric(kind).to_owned(), json!(count))),
    );
    Value::Object(line).to_string()
}

fn metric(kind: Kind) -> &'static str {
    match kind {
        Kind::Delivery => "UnaccountedDeliveries",
        Kind::Arrival => "UnaccountedArrivals",
        Kind::Item => "UnaccountedItems",
        Kind::Build => "UnaccountedBuilds",
        Kind::Request => "UnaccountedRequests",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = include_str!("../../../infra/template.yaml");

    /// C5, Z6.4: a frozen cell is counted beside what nobody sees to, and each count has an alarm.
    #[test]
    fn each_count_is_a_metric_that_an_alarm_looks_at() {
        let ledger =
            Ledger { frozen: ["queue#demo/gate/q".to_owned()].into(), ..Ledger::default() };
        let line: Value = serde_json::from_str(&metrics(&ledger, Timestamp(5))).unwrap();
        assert_eq!((&line["FrozenCells"], &line["UnaccountedItems"]), (&json!(1), &json!(0)));
        let named = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        let names: Vec<&str> =
            named.iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
        assert_eq!((names.len(), names.contains(&"FrozenCells")), (Kind::ALL.len() + 1, true));
        for name in names {
            assert!(line[name].is_u64(), "{name} has no value");
            assert!(TEMPLATE.contains(&format!("MetricName: {name}\n")), "{name} has no alarm");
        }
    }
}
