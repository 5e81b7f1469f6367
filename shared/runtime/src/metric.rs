//! Metrics: lines on standard output in CloudWatch's embedded metric format, from which Lambda's log
//! makes metrics of the namespace `Sluice`. The dimension `Stack` is the variable `SLUICE_STACK`, or
//! `sluice`.

use serde_json::{Map, Value, json};
use sluice_model::Timestamp;

/// The metric of bundles of which only a part was merged when the attempts ended.
pub const PARTLY_MERGED_BUNDLES: &str = "PartlyMergedBundles";

/// Prints counts as metrics on Lambda; elsewhere nothing reads them, and it does nothing.
pub fn print(counts: &[(&str, usize)], now: Timestamp) {
    if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
        println!("{}", line(counts, now));
    }
}

/// Returns the log line for counts, each with the name of its metric.
pub fn line(counts: &[(&str, usize)], now: Timestamp) -> String {
    let stack = std::env::var("SLUICE_STACK").unwrap_or_else(|_| "sluice".to_owned());
    let names: Vec<Value> =
        counts.iter().map(|(name, _)| json!({"Name": name, "Unit": "Count"})).collect();
    let mut line = Map::new();
    line.insert(
        "_aws".to_owned(),
        json!({
            "Timestamp": now.0,
            "CloudWatchMetrics": [{"Namespace": "Sluice", "Dimensions": [["Stack"]], "Metrics": names}],
        }),
    );
    line.insert("Stack".to_owned(), json!(stack));
    line.extend(counts.iter().map(|(name, count)| ((*name).to_owned(), json!(count))));
    Value::Object(line).to_string()
}
