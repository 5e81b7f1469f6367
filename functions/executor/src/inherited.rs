//! What a build gets from the builds before it: the data their jobs returned, and the artifacts
//! that they, and changes ahead, offer.

use crate::job::Inherited;
use crate::returned;
use serde_json::{Map, Value, json};
use sluice_model::BuildId;
use sluice_model::build::{Order, Phase, Run};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;

/// Reads what the builds that an order names returned: all of it from those its job depends on,
/// artifacts alone from those of changes ahead. They are over, or paused for this very build.
///
/// # Errors
/// When the store does not answer, or a record cannot be read.
pub async fn inherited(ports: &Ports, order: &Order) -> Result<Inherited, LookError> {
    let mut inherited = Inherited::default();
    for told in told_by(ports, &order.providers).await? {
        inherited.artifacts.extend(artifacts(&told));
    }
    for mut told in told_by(ports, &order.parents).await? {
        inherited.artifacts.extend(artifacts(&told));
        merge(
            &mut inherited.secret_data,
            returned::open_secrets(ports, &told.order.build, &told.data).await?,
        );
        // What is below `zuul` is for Sluice itself.
        told.data.remove("zuul");
        merge(&mut inherited.data, told.data);
    }
    Ok(inherited)
}

/// What a build returned.
struct Told {
    order: Order,
    data: Map<String, Value>,
    log_url: Option<String>,
}

/// Returns what builds returned, in their order.
async fn told_by(ports: &Ports, builds: &[BuildId]) -> Result<Vec<Told>, LookError> {
    let keys: Vec<Key> =
        builds.iter().flat_map(|build| [build::run_key(build), build::order_key(build)]).collect();
    let mut told = Vec::new();
    // As many keys as one call may name.
    for page in keys.chunks(100) {
        for pair in ports.records.get(page).await?.chunks_exact(2) {
            let [Some(run), Some(order)] = pair else { continue };
            let (run, order): (Run, Order) = (decode(run)?, decode(order)?);
            let (data, object, log_url) = match run.phase {
                Phase::Ended(ended) => (ended.data, ended.data_object, ended.log_url),
                Phase::Paused(pause) => (pause.data, pause.data_object, pause.log_url),
                Phase::Running | Phase::Failing => continue,
            };
            let data = whole(ports, data, object).await?;
            told.push(Told { order, data, log_url });
        }
    }
    Ok(told)
}

/// Returns all that a job returned, which may be more than its record holds.
async fn whole(
    ports: &Ports,
    data: Map<String, Value>,
    object: Option<String>,
) -> Result<Map<String, Value>, LookError> {
    let Some(key) = object else { return Ok(data) };
    let missing = || LookError::Again(format!("{key}, which a job before returned, is not there"));
    let object = ports.objects.get(&key).await?.ok_or_else(missing)?;
    serde_json::from_slice(&object.bytes).map_err(|error| {
        LookError::Again(format!("{key}, which a job before returned, cannot be read: {error}"))
    })
}

/// Returns the artifacts that a build told of, with where they come from; an address without a host
/// lies in its logs.
fn artifacts(told: &Told) -> Vec<Value> {
    let named =
        told.data.get("zuul").and_then(|own| own.get("artifacts")).and_then(Value::as_array);
    let whole = named.into_iter().flatten().filter_map(Value::as_object).map(|artifact| {
        let mut artifact = artifact.clone();
        if let (Some(Value::String(url)), Some(logs)) = (artifact.get_mut("url"), &told.log_url)
            && !url.contains("://")
        {
            *url = format!("{logs}{url}");
        }
        let change = &told.order.change;
        let of_item = match change.key.number() {
            Some(number) => json!({"change": number.to_string(), "patchset": change.patchset}),
            None => json!({"ref": change.git_ref()}),
        };
        artifact.insert("project".to_owned(), json!(change.key.project.name()));
        artifact.insert("job".to_owned(), json!(told.order.job));
        artifact.extend(of_item.as_object().cloned().unwrap_or_default());
        Value::Object(artifact)
    });
    whole.collect()
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
    use sluice_memory::World;
    use sluice_model::Timestamp;
    use sluice_model::build::{BuildResult, Ended, Pause};
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
        Phase::Ended(Ended {
            result: BuildResult::Success,
            detail: None,
            started_at: None,
            ended_at: Timestamp(0),
            data: data.as_object().cloned().unwrap(),
            data_object: None,
            log_url: Some("https://logs/b1/".to_owned()),
        })
    }

    fn paused(data: Value) -> Phase {
        let data = data.as_object().cloned().unwrap();
        Phase::Paused(Pause { since: Timestamp(0), data, data_object: None, log_url: None })
    }

    /// A world with these builds.
    fn world(builds: Vec<(Order, Phase)>) -> World {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        for (order, phase) in builds {
            world.write_directly(build::put_order(&order).unwrap());
            let (session, claimed_at) = ("life".into(), Timestamp(0));
            let run = Run { build: order.build, session, fence: 1, phase, claimed_at, log: None };
            world.write_directly(Write::Put {
                record: build::new_run(&run).unwrap(),
                expect: Expect::Anything,
            });
        }
        world
    }

    /// Z4.3: data of parents are variables of their dependents; mappings are merged, and the nearer
    /// one's word counts.
    #[tokio::test]
    async fn what_parents_returned_is_merged_and_the_nearest_wins() {
        let far = ended(json!({ "a": { "x": 1, "y": 1 }, "b": 1 }));
        let near =
            paused(json!({ "a": { "y": 2 }, "zuul": { "child_jobs": ["later"], "pause": true } }));
        let world = world(vec![(order("far", "far", 1), far), (order("near", "near", 1), near)]);
        let later = Order { parents: vec!["far".into(), "near".into()], ..order("b", "later", 1) };
        let inherited = inherited(&world.ports(), &later).await.unwrap();
        assert_eq!(Value::Object(inherited.data), json!({ "a": { "x": 1, "y": 2 }, "b": 1 }));
        assert!(inherited.artifacts.is_empty());
    }

    /// Z5.4, Z4.3: what a parent returned as secret reaches those that depend on it, and no change
    /// behind.
    #[tokio::test]
    async fn what_parents_returned_as_secret_is_opened_for_their_dependents_alone() {
        let seed = World::new(2, 0, Timestamp(1_800_000_000_000));
        let mut data = json!({ "a": 1 }).as_object().cloned().unwrap();
        let secret = json!({ "token": "correct horse" }).as_object().cloned().unwrap();
        returned::keep_secrets(&seed.ports(), &"one".into(), &mut data, &secret).await.unwrap();
        seed.write_directly(build::put_order(&order("one", "build", 1)).unwrap());
        let (session, claimed_at) = ("life".into(), Timestamp(0));
        let phase = ended(Value::Object(data));
        let run = Run { build: "one".into(), session, fence: 1, phase, claimed_at, log: None };
        seed.write_directly(Write::Put {
            record: build::new_run(&run).unwrap(),
            expect: Expect::Anything,
        });
        let later = Order { parents: vec!["one".into()], ..order("b", "later", 1) };
        let given = inherited(&seed.ports(), &later).await.unwrap();
        assert_eq!((given.secret_data, Value::Object(given.data)), (secret, json!({ "a": 1 })));
        let behind = Order { providers: vec!["one".into()], ..order("b", "later", 2) };
        assert!(inherited(&seed.ports(), &behind).await.unwrap().secret_data.is_empty());
    }

    /// Z7.1: artifacts name the change and the job they come from; an address without a host lies
    /// in that job's logs.
    #[tokio::test]
    async fn artifacts_of_parents_are_passed_on_with_where_they_come_from() {
        let parent = ended(json!({ "zuul": { "artifacts": [
            { "name": "image", "url": "image.tar", "metadata": { "type": "x" } },
            { "name": "site", "url": "https://site/" },
        ] } }));
        let world = world(vec![(order("one", "build", 1), parent)]);
        let later = Order { parents: vec!["one".into()], ..order("b", "later", 1) };
        assert_eq!(
            Value::Array(inherited(&world.ports(), &later).await.unwrap().artifacts),
            json!([
                { "name": "image", "url": "https://logs/b1/image.tar", "metadata": { "type": "x" }, "job": "build",
                  "project": "org/one", "change": "1", "patchset": "aa" },
                { "name": "site", "url": "https://site/", "job": "build", "project": "org/one", "change": "1", "patchset": "aa" },
            ])
        );
    }

    /// Z4.3: of a change ahead come artifacts and nothing else, before those of the job's own
    /// parents.
    #[tokio::test]
    async fn of_changes_ahead_artifacts_alone_are_given() {
        let image = |url: &str| json!({ "secret_word": "x", "zuul": { "artifacts": [{ "name": "image", "url": url }] } });
        let world = world(vec![
            (order("ahead", "image", 1), paused(image("https://ahead/"))),
            (order("parent", "image", 2), ended(image("https://own/"))),
        ]);
        let (parents, providers) = (vec!["parent".into()], vec!["ahead".into()]);
        let later = Order { parents, providers, ..order("b", "later", 2) };
        let inherited = inherited(&world.ports(), &later).await.unwrap();
        let told: Vec<String> = inherited
            .artifacts
            .iter()
            .map(|one| format!("{} {}", one["change"], one["url"]))
            .collect();
        assert_eq!(told, ["\"1\" \"https://ahead/\"", "\"2\" \"https://own/\""]);
        let nothing = Order { parents: Vec::new(), ..later };
        assert!(super::inherited(&world.ports(), &nothing).await.unwrap().data.is_empty());
    }
}
