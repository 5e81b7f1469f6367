//! Checks of object storage.

use crate::check::{Check, Ground, Mismatch, Needs, Outcome, at_once, checks, equal, holds};
use bytes::Bytes;
use sluice_runtime::PortError;
use sluice_runtime::object::{Object, Part, PutMode, Stored};
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
    ground: &Ground,
    key: &str,
    body: impl Into<Bytes>,
    mode: PutMode,
) -> Result<Stored, PortError> {
    let objects = &ground.ports.objects;
    objects.put(key, body.into(), mode, "application/octet-stream").await
}

async fn store(ground: &Ground, key: &str, body: impl Into<Bytes>) -> Outcome {
    let stored = put(ground, key, body, PutMode::Always).await?;
    equal(&format!("storing {key}"), &stored, &Stored::Yes)
}

async fn read(ground: &Ground, key: &str) -> Result<Object, Mismatch> {
    let found = ground.ports.objects.get(key).await?;
    found.ok_or_else(|| Mismatch(format!("{key} is missing")))
}

async fn missing(ground: &Ground, key: &str) -> Outcome {
    let found = ground.ports.objects.get(key).await?;
    equal(&format!("the object {key}"), &found, &None)
}

async fn list(
    ground: &Ground,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, PortError> {
    ground.ports.objects.list(prefix, after, limit).await
}

async fn an_object_comes_back_as_it_was_put(ground: Arc<Ground>) -> Outcome {
    missing(&ground, "packs/none").await?;
    for size in [0, 1, 65_537, 3 << 20] {
        let key = format!("packs/{size}");
        let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        store(&ground, &key, body.clone()).await?;
        let (one, two) = (read(&ground, &key).await?, read(&ground, &key).await?);
        holds(&format!("{size} bytes come back"), one.bytes == body)?;
        equal("the tag of the same object", &one.etag, &two.etag)?;
        holds("the tag is not empty", !one.etag.is_empty())?;
    }
    Ok(())
}

async fn a_part_of_an_object_comes_with_the_length_of_the_whole(ground: Arc<Ground>) -> Outcome {
    let objects = &ground.ports.objects;
    equal("a part of nothing", &objects.get_part("packs/none", 0, 4).await?, &None)?;
    store(&ground, "packs/part", &b"0123456789"[..]).await?;
    store(&ground, "packs/empty", &b""[..]).await?;
    for (key, first, most, bytes, length) in [
        ("packs/part", 0, 4, "0123", 10),
        ("packs/part", 8, 4, "89", 10),
        ("packs/part", 10, 4, "", 10),
        ("packs/part", 99, 4, "", 10),
        ("packs/empty", 0, 4, "", 0),
    ] {
        let part = Part { bytes: Bytes::from_static(bytes.as_bytes()), length };
        equal(
            &format!("{most} bytes of {key} from {first} on"),
            &objects.get_part(key, first, most).await?,
            &Some(part),
        )?;
    }
    Ok(())
}

async fn other_content_has_another_tag(ground: Arc<Ground>) -> Outcome {
    store(&ground, "k", "one").await?;
    let one = read(&ground, "k").await?;
    store(&ground, "k", "two").await?;
    let two = read(&ground, "k").await?;
    equal("the last writer's content", &two.bytes[..], b"two")?;
    holds("the tags differ", one.etag != two.etag)
}

async fn if_absent_stores_where_there_is_nothing(ground: Arc<Ground>) -> Outcome {
    let first = put(&ground, "k", "one", PutMode::IfAbsent).await?;
    equal("the first", &first, &Stored::Yes)?;
    let second = put(&ground, "k", "two", PutMode::IfAbsent).await?;
    equal("the second", &second, &Stored::Lost)?;
    equal("the content", &read(&ground, "k").await?.bytes[..], b"one")
}

async fn if_match_stores_over_that_very_object(ground: Arc<Ground>) -> Outcome {
    let nothing = PutMode::IfMatch("\"00000000000000000000000000000000\"".into());
    let stored = put(&ground, "k", "x", nothing).await?;
    equal("over nothing", &stored, &Stored::Lost)?;
    missing(&ground, "k").await?;
    store(&ground, "k", "one").await?;
    let tag = PutMode::IfMatch(read(&ground, "k").await?.etag);
    let stored = put(&ground, "k", "two", tag.clone()).await?;
    equal("over what was read", &stored, &Stored::Yes)?;
    let stored = put(&ground, "k", "three", tag).await?;
    equal("over what it no longer is", &stored, &Stored::Lost)?;
    equal("the content", &read(&ground, "k").await?.bytes[..], b"two")
}

/// Lets all writers put at once and expects one winner, whose content is found. A writer may also
/// be told that it is not known who won; then nobody needs to have.
async fn race(ground: &Arc<Ground>, key: &str, mode: &PutMode) -> Outcome {
    let endings = at_once(WRITERS, |n| {
        let (ground, key, mode) = (Arc::clone(ground), key.to_owned(), mode.clone());
        async move { put(&ground, &key, format!("writer {n}"), mode).await }
    })
    .await?;
    let won = |ended: &Result<Stored, PortError>| matches!(ended, Ok(Stored::Yes));
    let winners: Vec<usize> = (0..WRITERS).filter(|n| won(&endings[*n])).collect();
    let unknown = endings.iter().any(Result::is_err);
    match winners.as_slice() {
        [winner] => {
            let content = read(ground, key).await?.bytes;
            equal("the content", &content[..], format!("writer {winner}").as_bytes())
        }
        [] if unknown => Ok(()),
        _ => Err(Mismatch(format!("{} writers won", winners.len()))),
    }
}

async fn one_of_sixteen_makes_an_object(ground: Arc<Ground>) -> Outcome {
    for round in 0..ROUNDS {
        race(&ground, &format!("race/{round}"), &PutMode::IfAbsent).await?;
    }
    Ok(())
}

async fn one_of_sixteen_replaces_an_object(ground: Arc<Ground>) -> Outcome {
    store(&ground, "race", "nobody").await?;
    for round in 0..ROUNDS {
        // Other content than the writers', so that no tag of an earlier round fits again.
        store(&ground, "race", format!("round {round}")).await?;
        let tag = read(&ground, "race").await?.etag;
        race(&ground, "race", &PutMode::IfMatch(tag)).await?;
    }
    Ok(())
}

async fn a_deleted_object_is_gone_and_can_be_made_again(ground: Arc<Ground>) -> Outcome {
    ground.ports.objects.delete("never/was").await?;
    store(&ground, "a/k", "one").await?;
    ground.ports.objects.delete("a/k").await?;
    missing(&ground, "a/k").await?;
    equal("the listing", &list(&ground, "a/", None, 10).await?, &vec![])?;
    let again = put(&ground, "a/k", "two", PutMode::IfAbsent).await?;
    equal("made again", &again, &Stored::Yes)
}

async fn a_listing_gives_the_keys_under_a_prefix_in_byte_order(ground: Arc<Ground>) -> Outcome {
    let keys = ["l/B", "l/a-b", "l/a/b", "l/a0", "l/é", "m/a"];
    for key in keys.iter().rev() {
        store(&ground, key, "x").await?;
    }
    let want = |keys: &[&str]| -> Vec<String> { keys.iter().map(|key| (*key).into()).collect() };
    let all = list(&ground, "l/", None, 100).await?;
    equal("all under l/", &all, &want(&keys[..5]))?;
    let two = list(&ground, "l/", None, 2).await?;
    equal("the first two", &two, &want(&keys[..2]))?;
    let after = list(&ground, "l/", Some("l/a-b"), 2).await?;
    equal("two after l/a-b", &after, &want(&keys[2..4]))?;
    let between = list(&ground, "l/", Some("l/a-x"), 1).await?;
    equal("one after what is not there", &between, &want(&keys[2..3]))?;
    let early = list(&ground, "l/a", Some("a"), 9).await?;
    equal("after what lies before", &early, &want(&keys[1..4]))?;
    equal("none", &list(&ground, "l/", None, 0).await?, &vec![])?;
    equal("nothing there", &list(&ground, "none/", None, 9).await?, &vec![])
}

async fn a_name_may_be_the_beginning_of_another(ground: Arc<Ground>) -> Outcome {
    store(&ground, "logs/a/b", "below").await?;
    store(&ground, "logs/a", "above").await?;
    equal("one", &read(&ground, "logs/a").await?.bytes[..], b"above")?;
    equal("two", &read(&ground, "logs/a/b").await?.bytes[..], b"below")?;
    let listed = list(&ground, "logs/", None, 9).await?;
    equal("both", &listed, &vec!["logs/a".into(), "logs/a/b".into()])
}

async fn a_listing_goes_on_over_pages(ground: Arc<Ground>) -> Outcome {
    let keys: Vec<String> = (0..1_003).map(|n| format!("many/{n:04}")).collect();
    let stores = at_once(8, |writer| {
        let (ground, keys) = (Arc::clone(&ground), keys.clone());
        async move {
            for key in keys.iter().skip(writer).step_by(8) {
                store(&ground, key, "x").await?;
            }
            Ok::<(), Mismatch>(())
        }
    });
    stores.await?.into_iter().collect::<Outcome>()?;
    let all = list(&ground, "many/", None, 5_000).await?;
    holds("all of 1003 are listed", all == keys)?;
    let most = list(&ground, "many/", Some("many/0000"), 1_001).await?;
    holds("1001 after the first are listed", most == keys[1..1_002])
}

async fn odd_characters_in_a_key_are_kept(ground: Arc<Ground>) -> Outcome {
    let key = "odd/ä b+c/%41&d=?#'\"(1)~.txt";
    store(&ground, key, "x").await?;
    equal("its content", &read(&ground, key).await?.bytes[..], b"x")?;
    equal("its name", &list(&ground, "odd/", None, 9).await?, &vec![key.into()])
}
