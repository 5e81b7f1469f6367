//! What a build gets from the builds before it: the data their jobs returned, and the artifacts they offer.

use crate::job::Inherited;
use serde_json::{Map, Value, json};
use sluice_model::JobName;
use sluice_model::build::{Ended, Order, Phase, Run};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;

/// Reads what the builds that an order names returned. They are over, and what ended never changes.
///
/// # Errors
/// When the store does not answer, or a record cannot be read.
pub async fn inherited(ports: &Ports, order: &Order) -> Result<Inherited, LookError> {
    if order.parents.is_empty() {
        return Ok(Inherited::default());
    }
    let keys: Vec<Key> =
        order.parents.iter().flat_map(|parent| [build::run_key(parent), build::order_key(parent)]).collect();
    let records = ports.records.get(&keys).await?;
    let mut told: Vec<(JobName, Ended)> = Vec::new();
    for pair in records.chunks_exact(2) {
        let [Some(run), Some(parent)] = pair else { continue };
        let (run, parent): (Run, Order) = (decode(run)?, decode(parent)?);
        if let Phase::Ended(ended) = run.phase {
            told.push((parent.job, whole(ports, ended).await?));
        }
    }
    Ok(together(order, told))
}

/// Returns the end of a build with all that its job returned, which may be more than its record holds.
async fn whole(ports: &Ports, ended: Ended) -> Result<Ended, LookError> {
    let Some(key) = &ended.data_object else { return Ok(ended) };
    let missing = || LookError::Again(format!("{key}, which a job before returned, is not there"));
    let object = ports.objects.get(key).await?.ok_or_else(missing)?;
    let data = serde_json::from_slice(&object.bytes)
        .map_err(|error| LookError::Again(format!("{key}, which a job before returned, cannot be read: {error}")))?;
    Ok(Ended { data, ..ended })
}

/// Puts together what several builds returned, the nearest last: its word counts where two say something of one name.
/// What is below `zuul` is for Sluice itself; of it, artifacts are passed on.
fn together(order: &Order, told: Vec<(JobName, Ended)>) -> Inherited {
    let mut inherited = Inherited::default();
    for (job, Ended { mut data, log_url, .. }) in told {
        let own = data.remove("zuul");
        merge(&mut inherited.data, data);
        let artifacts = own.as_ref().and_then(|own| own.get("artifacts")).and_then(Value::as_array);
        for artifact in artifacts.into_iter().flatten().filter_map(Value::as_object) {
            let mut artifact = artifact.clone();
            if let (Some(Value::String(url)), Some(logs)) = (artifact.get_mut("url"), &log_url)
                && !url.contains("://")
            {
                *url = format!("{logs}{url}");
            }
            let change = &order.change;
            let of_item = json!({
                "project": change.key.project.name(),
                "change": change.key.number.to_string(),
                "patchset": change.patchset,
                "job": job,
            });
            artifact.extend(of_item.as_object().cloned().unwrap_or_default());
            inherited.artifacts.push(Value::Object(artifact));
        }
    }
    inherited
}

/// Merges mappings into each other; anything else replaces what was there.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::Timestamp;
    use sluice_model::build::BuildResult;

    fn order() -> Order {
        let change = json!({
            "key": { "connection": "github", "project": "forge.test/org/one", "number": 1 },
            "branch": "main", "head": "aa", "patchset": "aa",
        });
        serde_json::from_value(json!({
            "build": "b", "queue": { "tenant": "t", "pipeline": "gate", "queue": "q" }, "item": "i", "generation": 1,
            "job": "later", "attempt": 1, "max_attempts": 3, "voting": true, "graph": "", "speculation": "",
            "change": change, "event_id": "", "post_review": false, "request": null, "ordered_at": 0,
        }))
        .unwrap()
    }

    fn ended(data: Value) -> Ended {
        Ended {
            result: BuildResult::Success,
            detail: None,
            started_at: None,
            ended_at: Timestamp(0),
            data: data.as_object().cloned().unwrap(),
            data_object: None,
            log_url: Some("https://logs/b1/".to_owned()),
        }
    }

    /// Z4.3: data of parents are variables of their dependents; mappings are merged, and the nearer one's word counts.
    #[test]
    fn what_parents_returned_is_merged_and_the_nearest_wins() {
        let far = ended(json!({ "a": { "x": 1, "y": 1 }, "b": 1 }));
        let near = ended(json!({ "a": { "y": 2 }, "zuul": { "child_jobs": ["later"] } }));
        let inherited = together(&order(), vec![("far".into(), far), ("near".into(), near)]);
        assert_eq!(Value::Object(inherited.data), json!({ "a": { "x": 1, "y": 2 }, "b": 1 }));
        assert!(inherited.artifacts.is_empty());
    }

    /// Z7.1: artifacts name the change and the job they come from; an address without a host lies in that job's logs.
    #[test]
    fn artifacts_of_parents_are_passed_on_with_where_they_come_from() {
        let parent = ended(json!({ "zuul": { "artifacts": [
            { "name": "image", "url": "image.tar", "metadata": { "type": "x" } },
            { "name": "site", "url": "https://site/" },
        ] } }));
        let inherited = together(&order(), vec![("build".into(), parent)]);
        assert_eq!(
            Value::Array(inherited.artifacts),
            json!([
                { "name": "image", "url": "https://logs/b1/image.tar", "metadata": { "type": "x" }, "job": "build",
                  "project": "org/one", "change": "1", "patchset": "aa" },
                { "name": "site", "url": "https://site/", "job": "build", "project": "org/one", "change": "1", "patchset": "aa" },
            ])
        );
    }
}
