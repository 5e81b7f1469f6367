//! Checks of object storage.

use crate::check::{Check, Mismatch, Needs, Outcome, TestPorts, at_once, checks, equal, holds};
use bytes::Bytes;
use sluice_runtime::PortError;
use sluice_runtime::object::{Object, ObjectPart, PutMode, PutOutcome};
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Objects;
        an_object_comes_back_as_it_was_put,
        a_part_of_an_object_comes_with_the_length_of_the_whole,
        other_content_has_another_tag,
        if_absent_stores_where_there_is_nothing,
        if_match_stores_over_that_very_object,
        one_of_sixteen_makes_an_object,
        one_of_sixteen_replaces_an_object,
        a_deleted_object_is_gone_and_can_be_made_again,
        a_listing_gives_the_keys_under_a_prefix_in_byte_order,
        a_name_may_be_the_beginning_of_another,
        a_listing_goes_on_over_pages,
        odd_characters_in_a_key_are_kept,
    ]
}

const WRITERS: usize = 16;
const ROUNDS: usize = 5;

async fn put(
    target: &TestPorts,
    key: &str,
    body: impl Into<Bytes>,
    mode: PutMode,
) -> Result<PutOutcome, PortError> {
    let objects = &target.ports.objects;
    objects.put(key, body.into(), mode, "application/octet-stream").await
}

async fn store(target: &TestPorts, key: &str, body: impl Into<Bytes>) -> Outcome {
    let stored = put(target, key, body, PutMode::Always).await?;
    equal(&format!("storing {key}"), &stored, &PutOutcome::Yes)
}

async fn read(target: &TestPorts, key: &str) -> Result<Object, Mismatch> {
    let found = target.ports.objects.get(key).await?;
    found.ok_or_else(|| Mismatch(format!("{key} is missing")))
}

async fn missing(target: &TestPorts, key: &str) -> Outcome {
    let found = target.ports.objects.get(key).await?;
    equal(&format!("the object {key}"), &found, &None)
}

async fn list(
    target: &TestPorts,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, PortError> {
    target.ports.objects.list(prefix, after, limit).await
}

async fn an_object_comes_back_as_it_was_put(target: Arc<TestPorts>) -> Outcome {
    missing(&target, "packs/none").await?;
    for size in [0, 1, 65_537, 3 << 20] {
        let key = format!("packs/{size}");
        let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        store(&target, &key, body.clone()).await?;
        let (one, two) = (read(&target, &key).await?, read(&target, &key).await?);
        holds(&format!("{size} bytes come back"), one.bytes == body)?;
        equal("the tag of the same object", &one.etag, &two.etag)?;
        holds("the tag is not empty", !one.etag.is_empty())?;
    }
    Ok(())
}

async fn a_part_of_an_object_comes_with_the_length_of_the_whole(target: Arc<TestPorts>) -> Outcome {
    let objects = &target.ports.objects;
    equal("a part of nothing", &objects.get_part("packs/none", 0, 4).await?, &None)?;
    store(&target, "packs/part", &b"0123456789"[..]).await?;
    store(&target, "packs/empty", &b""[..]).await?;
    for (key, first, most, bytes, length) in [
        ("packs/part", 0, 4, "0123", 10),
        ("packs/part", 8, 4, "89", 10),
        ("packs/part", 10, 4, "", 10),
        ("packs/part", 99, 4, "", 10),
        ("packs/empty", 0, 4, "", 0),
    ] {
        let part = ObjectPart { bytes: Bytes::from_static(bytes.as_bytes()), length };
        equal(
            &format!("{most} bytes of {key} from {first} on"),
            &objects.get_part(key, first, most).await?,
            &Some(part),
        )?;
    }
    Ok(())
}

async fn other_content_has_another_tag(target: Arc<TestPorts>) -> Outcome {
    store(&target, "k", "one").await?;
    let one = read(&target, "k").await?;
    store(&target, "k", "two").await?;
    let two = read(&target, "k").await?;
    equal("the last writer's content", &two.bytes[..], b"two")?;
    holds("the tags differ", one.etag != two.etag)
}

async fn if_absent_stores_where_there_is_nothing(target: Arc<TestPorts>) -> Outcome {
    let first = put(&target, "k", "one", PutMode::IfAbsent).await?;
    equal("the first", &first, &PutOutcome::Yes)?;
    let second = put(&target, "k", "two", PutMode::IfAbsent).await?;
    equal("the second", &second, &PutOutcome::ConditionFailed)?;
    equal("the content", &read(&target, "k").await?.bytes[..], b"one")
}

async fn if_match_stores_over_that_very_object(target: Arc<TestPorts>) -> Outcome {
    let nothing = PutMode::IfMatch("\"00000000000000000000000000000000\"".into());
    let stored = put(&target, "k", "x", nothing).await?;
    equal("over nothing", &stored, &PutOutcome::ConditionFailed)?;
    missing(&target, "k").await?;
    store(&target, "k", "one").await?;
    let tag = PutMode::IfMatch(read(&target, "k").await?.etag);
    let stored = put(&target, "k", "two", tag.clone()).await?;
    equal("over what was read", &stored, &PutOutcome::Yes)?;
    let stored = put(&target, "k", "three", tag).await?;
    equal("over what it no longer is", &stored, &PutOutcome::ConditionFailed)?;
    equal("the content", &read(&target, "k").await?.bytes[..], b"two")
}

/// Has all writers put at the same time, and expects one winner, whose content is read. A writer
/// may also get an unknown outcome; then there may be no winner.
async fn race(target: &Arc<TestPorts>, key: &str, mode: &PutMode) -> Outcome {
    let endings = at_once(WRITERS, |n| {
        let (target, key, mode) = (Arc::clone(target), key.to_owned(), mode.clone());
        async move { put(&target, &key, format!("writer {n}"), mode).await }
    })
    .await?;
    let won = |ended: &Result<PutOutcome, PortError>| matches!(ended, Ok(PutOutcome::Yes));
    let winners: Vec<usize> = (0..WRITERS).filter(|n| won(&endings[*n])).collect();
    let unknown = endings.iter().any(Result::is_err);
    match winners.as_slice() {
        [winner] => {
            let content = read(target, key).await?.bytes;
            equal("the content", &content[..], format!("writer {winner}").as_bytes())
        }
        [] if unknown => Ok(()),
        _ => Err(Mismatch(format!("{} writers won", winners.len()))),
    }
}

async fn one_of_sixteen_makes_an_object(target: Arc<TestPorts>) -> Outcome {
    for round in 0..ROUNDS {
        race(&target, &format!("race/{round}"), &PutMode::IfAbsent).await?;
    }
    Ok(())
}

async fn one_of_sixteen_replaces_an_object(target: Arc<TestPorts>) -> Outcome {
    store(&target, "race", "no writer").await?;
    for round in 0..ROUNDS {
        // The content differs from that of the writers, so that no tag of an earlier round matches.
        store(&target, "race", format!("round {round}")).await?;
        let tag = read(&target, "race").await?.etag;
        race(&target, "race", &PutMode::IfMatch(tag)).await?;
    }
    Ok(())
}

async fn a_deleted_object_is_gone_and_can_be_made_again(target: Arc<TestPorts>) -> Outcome {
    target.ports.objects.delete("never/was").await?;
    store(&target, "a/k", "one").await?;
    target.ports.objects.delete("a/k").await?;
    missing(&target, "a/k").await?;
    equal("the listing", &list(&target, "a/", None, 10).await?, &vec![])?;
    let again = put(&target, "a/k", "two", PutMode::IfAbsent).await?;
    equal("made again", &again, &PutOutcome::Yes)
}

async fn a_listing_gives_the_keys_under_a_prefix_in_byte_order(target: Arc<TestPorts>) -> Outcome {
    let keys = ["l/B", "l/a-b", "l/a/b", "l/a0", "l/é", "m/a"];
    for key in keys.iter().rev() {
        store(&target, key, "x").await?;
    }
    let want = |keys: &[&str]| -> Vec<String> { keys.iter().map(|key| (*key).into()).collect() };
    let all = list(&target, "l/", None, 100).await?;
    equal("all under l/", &all, &want(&keys[..5]))?;
    let two = list(&target, "l/", None, 2).await?;
    equal("the first two", &two, &want(&keys[..2]))?;
    let after = list(&target, "l/", Some("l/a-b"), 2).await?;
    equal("two after l/a-b", &after, &want(&keys[2..4]))?;
    let between = list(&target, "l/", Some("l/a-x"), 1).await?;
    equal("one after what is not there", &between, &want(&keys[2..3]))?;
    let early = list(&target, "l/a", Some("a"), 9).await?;
    equal("after what lies before", &early, &want(&keys[1..4]))?;
    equal("none", &list(&target, "l/", None, 0).await?, &vec![])?;
    equal("nothing there", &list(&target, "none/", None, 9).await?, &vec![])
}

async fn a_name_may_be_the_beginning_of_another(target: Arc<TestPorts>) -> Outcome {
    store(&target, "logs/a/b", "below").await?;
    store(&target, "logs/a", "above").await?;
    equal("one", &read(&target, "logs/a").await?.bytes[..], b"above")?;
    equal("two", &read(&target, "logs/a/b").await?.bytes[..], b"below")?;
    let listed = list(&target, "logs/", None, 9).await?;
    equal("both", &listed, &vec!["logs/a".into(), "logs/a/b".into()])
}

async fn a_listing_goes_on_over_pages(target: Arc<TestPorts>) -> Outcome {
    let keys: Vec<String> = (0..1_003).map(|n| format!("many/{n:04}")).collect();
    let stores = at_once(8, |writer| {
        let (target, keys) = (Arc::clone(&target), keys.clone());
        async move {
            for key in keys.iter().skip(writer).step_by(8) {
                store(&target, key, "x").await?;
            }
            Ok::<(), Mismatch>(())
        }
    });
    stores.await?.into_iter().collect::<Outcome>()?;
    let all = list(&target, "many/", None, 5_000).await?;
    holds("all of 1003 are listed", all == keys)?;
    let most = list(&target, "many/", Some("many/0000"), 1_001).await?;
    holds("1001 after the first are listed", most == keys[1..1_002])
}

async fn odd_characters_in_a_key_are_kept(target: Arc<TestPorts>) -> Outcome {
    let key = "odd/ä b+c/%41&d=?#'\"(1)~.txt";
    store(&target, key, "x").await?;
    equal("its content", &read(&target, key).await?.bytes[..], b"x")?;
    equal("its name", &list(&target, "odd/", None, 9).await?, &vec![key.into()])
}
