//! Reads what a build receives from earlier builds: data that parent jobs returned, and artifacts
//! of parent jobs and of changes ahead.

use crate::job::InheritedData;
use crate::returned_data;
use serde_json::{Map, Value, json};
use sluice_model::BuildId;
use sluice_model::build::{Order, Phase, Run};
use sluice_records::artifact::artifact_address;
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;

/// Reads what an order's build receives from earlier builds. Builds of parent jobs pass on their
/// data, their secret data and their artifacts; the data of later parents override those of earlier
/// ones. Builds of changes ahead (`providers`) pass on only artifacts, which are listed first. The
/// parents' `zuul` part is left out. Builds that are missing or still run are skipped; paused ones
/// are read.
///
/// # Errors
/// Returns an error if the store does not answer, or a record cannot be decoded.
pub async fn read_inherited(ports: &Ports, order: &Order) -> Result<InheritedData, ReconcileError> {
    let mut inherited = InheritedData::default();
    for build in read_data(ports, &order.providers).await? {
        inherited.artifacts.extend(artifacts(&build));
    }
    for mut build in read_data(ports, &order.parents).await? {
        inherited.artifacts.extend(artifacts(&build));
        merge(
            &mut inherited.secret_data,
            returned_data::open_secrets(ports, &build.order.build, &build.data).await?,
        );
        // The `zuul` part is for Sluice itself.
        build.data.remove("zuul");
        merge(&mut inherited.data, build.data);
    }
    Ok(inherited)
}

/// The returned data of one build.
struct BuildData {
    /// The order of the build.
    order: Order,
    /// All data that it returned.
    data: Map<String, Value>,
    /// The address of its logs, if known.
    log_url: Option<String>,
}

/// Reads the returned data of builds that have ended or are paused, with their orders and log
/// addresses, in the given order. Builds that are running, or whose run or order is missing, are
/// left out. An error if a record cannot be decoded, or the object with the data of a build is
/// missing.
async fn read_data(ports: &Ports, builds: &[BuildId]) -> Result<Vec<BuildData>, ReconcileError> {
    let keys: Vec<Key> =
        builds.iter().flat_map(|build| [build::run_key(build), build::order_key(build)]).collect();
    let mut returned = Vec::new();
    // The maximum number of keys in one read.
    for page in keys.chunks(100) {
        for pair in ports.records.get(page).await?.chunks_exact(2) {
            let [Some(run), Some(order)] = pair else { continue };
            let (run, order): (Run, Order) = (decode(run)?, decode(order)?);
            let (data, object, log_url) = match run.phase {
                Phase::Ended(ended) => (ended.data, ended.data_object, ended.log_url),
                Phase::Paused(pause) => (pause.data, pause.data_object, pause.log_url),
                Phase::Running | Phase::Failing => continue,
            };
            let data = all_data(ports, data, object).await?;
            returned.push(BuildData { order, data, log_url });
        }
    }
    Ok(returned)
}

/// Returns all data that a job returned: the content of the object with the key `object`, or `data`
/// if there is no object. An object that is missing or no JSON mapping is an error that is retried.
async fn all_data(
    ports: &Ports,
    data: Map<String, Value>,
    object: Option<String>,
) -> Result<Map<String, Value>, ReconcileError> {
    let Some(key) = object else { return Ok(data) };
    let missing =
        || ReconcileError::Retry(format!("the data {key} returned by an earlier job is missing"));
    let object = ports.objects.get(&key).await?.ok_or_else(missing)?;
    serde_json::from_slice(&object.bytes).map_err(|error| {
        ReconcileError::Retry(format!(
            "the data {key} returned by an earlier job cannot be decoded: {error}"
        ))
    })
}

/// Returns the artifacts that a build returned in `zuul.artifacts`, each with the project, job and
/// change (or ref) of the build; these replace what the job returned under the same keys. An
/// relative address is completed by that of the build's logs, if it is known. Entries that are no
/// mappings are left out.
fn artifacts(build: &BuildData) -> Vec<Value> {
    let named =
        build.data.get("zuul").and_then(|own| own.get("artifacts")).and_then(Value::as_array);
    let artifacts = named.into_iter().flatten().filter_map(Value::as_object).map(|artifact| {
        let mut artifact = artifact.clone();
        if let (Some(Value::String(url)), Some(logs)) = (artifact.get_mut("url"), &build.log_url) {
            *url = artifact_address(logs, url);
        }
        let change = &build.order.change;
        let of_item = match change.key.number() {
            Some(number) => json!({"change": number.to_string(), "patchset": change.patchset}),
            None => json!({"ref": change.github_ref()}),
        };
        artifact.insert("project".to_owned(), json!(change.key.project.name()));
        artifact.insert("job".to_owned(), json!(build.order.job));
        artifact.extend(of_item.as_object().cloned().unwrap_or_default());
        Value::Object(artifact)
    });
    artifacts.collect()
}

/// Merges `from` into `into`: where both have a mapping, it is merged by key, at any depth; any
/// other value of `from` replaces the one in `into`.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(more)) => merge(old, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_memory::World;
    use sluice_model::Timestamp;
    use sluice_model::build::{BuildResult, Pause, RunEnd};
    use sluice_runtime::record::{Expect, Write};

    fn order(build: &str, job: &str, change: u64) -> Order {
        let change = json!({
            "key": { "connection": "github", "project": "forge.test/org/one", "number": change },
            "branch": "main", "head": "aa", "patchset": "aa",
        });
        serde_json::from_value(json!({
            "build": build, "queue": { "tenant": "t", "pipeline": "gate", "queue": "q" }, "item": "i", "generation": 1,
            "job": job, "attempt": 1, "max_attempts": 3, "voting": true, "graph": "", "speculation": "",
            "change": change, "event_id": "", "post_review": false, "request": null, "ordered_at": 0,
        }))
        .unwrap()
    }

    fn ended(data: Value) -> Phase {
        Phase::Ended(RunEnd {
            result: BuildResult::Success,
            detail: None,
            started_at: None,
            ended_at: Timestamp(0),
            data: data.as_object().cloned().unwrap(),
            data_object: None,
            log_url: Some("https://logs/b1".to_owned()),
        })
    }

    fn paused(data: Value) -> Phase {
        let data = data.as_object().cloned().unwrap();
        Phase::Paused(Pause { since: Timestamp(0), data, data_object: None, log_url: None })
    }

    /// Returns a world with these builds.
    fn world(builds: Vec<(Order, Phase)>) -> World {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        for (order, phase) in builds {
            world.write_unchecked(build::put_order(&order).unwrap());
            let (session, claimed_at) = ("life".into(), Timestamp(0));
            let run =
                Run { build: order.build, session, phase, claimed_at, playbook: None, lost: None };
            world.write_unchecked(Write::Put {
                record: build::new_run(&run).unwrap(),
                expect: Expect::Anything,
            });
        }
        world
    }

    /// Z4.3: returned data become variables of dependents; mappings are merged, the nearest parent
    /// wins.
    #[tokio::test]
    async fn data_of_parents_is_merged_and_the_nearest_wins() {
        let far = ended(json!({ "a": { "x": 1, "y": 1 }, "b": 1 }));
        let near =
            paused(json!({ "a": { "y": 2 }, "zuul": { "child_jobs": ["later"], "pause": true } }));
        let world = world(vec![(order("far", "far", 1), far), (order("near", "near", 1), near)]);
        let later = Order { parents: vec!["far".into(), "near".into()], ..order("b", "later", 1) };
        let inherited = read_inherited(&world.ports(), &later).await.unwrap();
        assert_eq!(Value::Object(inherited.data), json!({ "a": { "x": 1, "y": 2 }, "b": 1 }));
        assert!(inherited.artifacts.is_empty());
    }

    /// Z5.4, Z4.3: secret data of a parent reaches its dependents, but no change behind.
    #[tokio::test]
    async fn secret_data_of_parents_is_opened_for_their_dependents_only() {
        let seed = World::new(2, 0, Timestamp(1_800_000_000_000));
        let mut data = json!({ "a": 1 }).as_object().cloned().unwrap();
        let secret = json!({ "token": "correct horse" }).as_object().cloned().unwrap();
        returned_data::store_secrets(&seed.ports(), &"one".into(), &mut data, &secret)
            .await
            .unwrap();
        seed.write_unchecked(build::put_order(&order("one", "build", 1)).unwrap());
        let (session, claimed_at) = ("life".into(), Timestamp(0));
        let phase = ended(Value::Object(data));
        let run =
            Run { build: "one".into(), session, phase, claimed_at, playbook: None, lost: None };
        seed.write_unchecked(Write::Put {
            record: build::new_run(&run).unwrap(),
            expect: Expect::Anything,
        });
        let later = Order { parents: vec!["one".into()], ..order("b", "later", 1) };
        let given = read_inherited(&seed.ports(), &later).await.unwrap();
        assert_eq!((given.secret_data, Value::Object(given.data)), (secret, json!({ "a": 1 })));
        let behind = Order { providers: vec!["one".into()], ..order("b", "later", 2) };
        assert!(read_inherited(&seed.ports(), &behind).await.unwrap().secret_data.is_empty());
    }

    /// Z7.1: artifacts name their change and job; an address without a host is below that job's
    /// logs.
    #[tokio::test]
    async fn artifacts_of_parents_are_passed_on_with_their_origin() {
        let parent = ended(json!({ "zuul": { "artifacts": [
            { "name": "image", "url": "image.tar", "metadata": { "type": "x" } },
            { "name": "site", "url": "https://site/" },
        ] } }));
        let world = world(vec![(order("one", "build", 1), parent)]);
        let later = Order { parents: vec!["one".into()], ..order("b", "later", 1) };
        assert_eq!(
            Value::Array(read_inherited(&world.ports(), &later).await.unwrap().artifacts),
            json!([
                { "name": "image", "url": "https://logs/b1/image.tar", "metadata": { "type": "x" }, "job": "build",
                  "project": "org/one", "change": "1", "patchset": "aa" },
                { "name": "site", "url": "https://site/", "job": "build", "project": "org/one", "change": "1", "patchset": "aa" },
            ])
        );
    }

    /// Z4.3: a change ahead provides only artifacts, listed before those of the job's own parents.
    #[tokio::test]
    async fn changes_ahead_provide_only_artifacts() {
        let image = |url: &str| json!({ "secret_word": "x", "zuul": { "artifacts": [{ "name": "image", "url": url }] } });
        let world = world(vec![
            (order("ahead", "image", 1), paused(image("https://ahead/"))),
            (order("parent", "image", 2), ended(image("https://own/"))),
        ]);
        let (parents, providers) = (vec!["parent".into()], vec!["ahead".into()]);
        let later = Order { parents, providers, ..order("b", "later", 2) };
        let inherited = read_inherited(&world.ports(), &later).await.unwrap();
        let artifacts: Vec<String> = inherited
            .artifacts
            .iter()
            .map(|one| format!("{} {}", one["change"], one["url"]))
            .collect();
        assert_eq!(artifacts, ["\"1\" \"https://ahead/\"", "\"2\" \"https://own/\""]);
        let nothing = Order { parents: Vec::new(), ..later };
        assert!(super::read_inherited(&world.ports(), &nothing).await.unwrap().data.is_empty());
    }
}
