//! Checks of the message queues.

use crate::check::{Check, Mismatch, Needs, Outcome, TestPorts, checks, equal, holds, refused};
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::PortError;
use sluice_runtime::port::{Incoming, Outgoing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Queues;
        a_group_keeps_its_order,
        a_group_waits_behind_its_message_in_flight,
        two_equal_texts_are_two_messages,
        a_fifo_queue_wants_a_group,
        any_text_can_be_a_group,
        an_acknowledged_message_never_comes_back,
        acknowledging_twice_is_harmless_on_a_standard_queue,
        acknowledging_twice_is_harmless_on_a_fifo_queue,
        an_unacknowledged_message_comes_back_counted,
        a_postponed_message_returns_after_its_delay,
        a_stale_receipt_removes_nothing_on_a_standard_queue,
        a_stale_receipt_removes_nothing_on_a_fifo_queue,
        a_delayed_message_is_not_there_before_its_time,
        twenty_five_messages_are_sent_in_one_call,
        large_texts_are_sent_in_one_call,
        a_text_comes_back_as_it_was_sent,
        a_standard_queue_returns_the_group,
        a_poll_may_take_longer_than_other_calls,
    ]
}

/// A visibility timeout longer than any check.
const LONG_SECONDS: u32 = 600;
/// Polls before a message counts as missing.
const POLLS_MAX: u32 = 15;

fn message(body: impl Into<String>, group: Option<&str>) -> Outgoing {
    Outgoing { body: body.into(), group: group.map(str::to_owned), delay_seconds: 0 }
}

async fn send(
    target: &TestPorts,
    queue: MessageQueue,
    messages: Vec<Outgoing>,
) -> Result<(), PortError> {
    target.ports.queues.send(queue, messages).await
}

/// Receives the messages that are visible.
async fn now(
    target: &TestPorts,
    queue: MessageQueue,
    max: u32,
) -> Result<Vec<Incoming>, PortError> {
    let queues = &target.ports.queues;
    queues.receive(queue, max, 0, LONG_SECONDS).await
}

/// Polls until `count` messages arrived, and hides them for `visibility_seconds`.
async fn soon(
    target: &TestPorts,
    queue: MessageQueue,
    count: usize,
    visibility_seconds: u32,
) -> Result<Vec<Incoming>, Mismatch> {
    let mut got = Vec::new();
    for _ in 0..POLLS_MAX {
        let max = u32::try_from(count - got.len()).unwrap_or(10).min(10);
        let poll = target.ports.queues.receive(queue, max, 2, visibility_seconds);
        let came = poll.await?;
        if came.is_empty() {
            target.a_poll_has_waited();
        }
        got.extend(came);
        if got.len() >= count {
            return Ok(got);
        }
    }
    Err(Mismatch(format!("{} of {count} messages came from {queue:?}", got.len())))
}

async fn one(
    target: &TestPorts,
    queue: MessageQueue,
    visibility_seconds: u32,
) -> Result<Incoming, Mismatch> {
    let mut got = soon(target, queue, 1, visibility_seconds).await?;
    got.pop().ok_or_else(|| Mismatch("no message".into()))
}

async fn acknowledge(
    target: &TestPorts,
    queue: MessageQueue,
    message: &Incoming,
) -> Result<(), PortError> {
    target.ports.queues.acknowledge(queue, &message.receipt).await
}

async fn nothing(target: &TestPorts, queue: MessageQueue, when: &str) -> Outcome {
    let bodies: Vec<String> = now(target, queue, 10).await?.into_iter().map(|m| m.body).collect();
    equal(when, &bodies, &vec![])
}

async fn a_group_keeps_its_order(target: Arc<TestPorts>) -> Outcome {
    let messages = (0..24).map(|n| message(n.to_string(), Some(["a", "b"][n % 2])));
    send(&target, MessageQueue::Gate, messages.collect()).await?;
    let mut by_group: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut left = 24;
    while left > 0 {
        let first = one(&target, MessageQueue::Gate, LONG_SECONDS).await?;
        let mut got = now(&target, MessageQueue::Gate, 9).await?;
        got.insert(0, first);
        for message in got {
            let group = message.group.clone().unwrap_or_default();
            let number = message.body.parse().unwrap_or(usize::MAX);
            by_group.entry(group).or_default().push(number);
            acknowledge(&target, MessageQueue::Gate, &message).await?;
            left -= 1;
        }
    }
    let each = |first| (first..24).step_by(2).collect::<Vec<usize>>();
    let expected = BTreeMap::from([("a".to_owned(), each(0)), ("b".to_owned(), each(1))]);
    equal("what came of each group", &by_group, &expected)
}

async fn a_group_waits_behind_its_message_in_flight(target: Arc<TestPorts>) -> Outcome {
    let queue = MessageQueue::Pool;
    let messages = vec![message("a1", Some("a")), message("a2", Some("a"))];
    send(&target, queue, messages).await?;
    let first = soon(&target, queue, 1, LONG_SECONDS).await?;
    equal("the first", first[0].body.as_str(), "a1")?;
    nothing(&target, queue, "while a1 is in flight").await?;
    send(&target, queue, vec![message("b1", Some("b"))]).await?;
    let other = one(&target, queue, LONG_SECONDS).await?;
    equal("of another group", other.body.as_str(), "b1")?;
    acknowledge(&target, queue, &first[0]).await?;
    let second = one(&target, queue, LONG_SECONDS).await?;
    equal("after a1 was acknowledged", second.body.as_str(), "a2")
}

async fn two_equal_texts_are_two_messages(target: Arc<TestPorts>) -> Outcome {
    for queue in [MessageQueue::Tenants, MessageQueue::Wakes] {
        let group = queue.is_fifo().then_some("g");
        let twice = vec![message("same", group), message("same", group)];
        send(&target, queue, twice).await?;
        send(&target, queue, vec![message("same", group)]).await?;
        let got = soon(&target, queue, 3, LONG_SECONDS).await?;
        let ids: BTreeSet<&str> = got.iter().map(|message| message.id.as_str()).collect();
        equal("different ids", &ids.len(), &3)?;
    }
    Ok(())
}

async fn a_fifo_queue_wants_a_group(target: Arc<TestPorts>) -> Outcome {
    let sent = send(&target, MessageQueue::Gate, vec![message("x", None)]).await;
    refused("a message without a group", sent)?;
    nothing(&target, MessageQueue::Gate, "after the refusal").await
}

async fn any_text_can_be_a_group(target: Arc<TestPorts>) -> Outcome {
    let (spaced, long) = ("tenant/a b/ü", "g".repeat(200));
    let queue = MessageQueue::Gate;
    for n in ["1", "2"] {
        let both = vec![message(n, Some(spaced)), message(n, Some(&long))];
        send(&target, queue, both).await?;
    }
    for n in ["1", "2"] {
        let got = soon(&target, queue, 1, LONG_SECONDS).await?;
        let other = soon(&target, queue, 1, LONG_SECONDS).await?;
        for got in got.iter().chain(&other) {
            equal("the next of its group", got.body.as_str(), n)?;
        }
        for got in got.iter().chain(&other) {
            acknowledge(&target, queue, got).await?;
        }
    }
    Ok(())
}

async fn an_acknowledged_message_never_comes_back(target: Arc<TestPorts>) -> Outcome {
    for queue in [MessageQueue::Reports, MessageQueue::Merges] {
        let group = queue.is_fifo().then_some("g");
        send(&target, queue, vec![message("x", group)]).await?;
        let got = one(&target, queue, 1).await?;
        equal("how often it was received", &got.receive_count, &1)?;
        acknowledge(&target, queue, &got).await?;
        // A second message, received after the first one's visibility timeout, shows that the time
        // has passed.
        send(&target, queue, vec![message("y", group)]).await?;
        let y = one(&target, queue, 1).await?;
        let again = one(&target, queue, LONG_SECONDS).await?;
        equal("the one that comes", &again.id, &y.id)?;
        nothing(&target, queue, "besides the second").await?;
        acknowledge(&target, queue, &again).await?;
    }
    Ok(())
}

async fn acknowledging_twice_is_harmless_on_a_standard_queue(target: Arc<TestPorts>) -> Outcome {
    twice(target, MessageQueue::Merges, None).await
}

async fn acknowledging_twice_is_harmless_on_a_fifo_queue(target: Arc<TestPorts>) -> Outcome {
    twice(target, MessageQueue::Reports, Some("g")).await
}

async fn twice(target: Arc<TestPorts>, queue: MessageQueue, group: Option<&str>) -> Outcome {
    let messages = vec![message("x", group), message("y", group)];
    send(&target, queue, messages).await?;
    let got = one(&target, queue, LONG_SECONDS).await?;
    acknowledge(&target, queue, &got).await?;
    acknowledge(&target, queue, &got).await?;
    let other = one(&target, queue, LONG_SECONDS).await?;
    holds("the other message is still there", other.id != got.id)
}

async fn an_unacknowledged_message_comes_back_counted(target: Arc<TestPorts>) -> Outcome {
    for queue in [MessageQueue::Images, MessageQueue::BuildsLow] {
        let group = queue.is_fifo().then_some("g");
        send(&target, queue, vec![message("x", group)]).await?;
        let first = one(&target, queue, 1).await?;
        let second = one(&target, queue, 1).await?;
        let third = one(&target, queue, LONG_SECONDS).await?;
        let ids = [&first.id, &second.id, &third.id];
        equal("its id", &ids, &[&first.id; 3])?;
        let counts = [first, second, third].map(|message| message.receive_count);
        equal("its counts", &counts, &[1, 2, 3])?;
    }
    Ok(())
}

async fn a_postponed_message_returns_after_its_delay(target: Arc<TestPorts>) -> Outcome {
    for queue in [MessageQueue::Events, MessageQueue::BuildsHigh] {
        let group = queue.is_fifo().then_some("g");
        let queues = &target.ports.queues;
        send(&target, queue, vec![message("x", group)]).await?;
        let first = one(&target, queue, LONG_SECONDS).await?;
        nothing(&target, queue, "while it is in flight").await?;
        queues.postpone(queue, &first.receipt, 0).await?;
        let second = one(&target, queue, LONG_SECONDS).await?;
        equal("given back at once", &second.receive_count, &2)?;
        queues.postpone(queue, &second.receipt, 2).await?;
        nothing(&target, queue, "before its time").await?;
        let third = one(&target, queue, LONG_SECONDS).await?;
        equal("after its time", &third.receive_count, &3)?;
    }
    Ok(())
}

async fn a_stale_receipt_removes_nothing_on_a_standard_queue(target: Arc<TestPorts>) -> Outcome {
    stale(target, MessageQueue::BuildsNormal, None).await
}

async fn a_stale_receipt_removes_nothing_on_a_fifo_queue(target: Arc<TestPorts>) -> Outcome {
    stale(target, MessageQueue::Gate, Some("g")).await
}

async fn stale(target: Arc<TestPorts>, queue: MessageQueue, group: Option<&str>) -> Outcome {
    send(&target, queue, vec![message("x", group)]).await?;
    let first = one(&target, queue, 1).await?;
    let second = one(&target, queue, LONG_SECONDS).await?;
    // Whether the stale receipt is refused is left open. The present receiver must keep the
    // message.
    let _ = acknowledge(&target, queue, &first).await;
    let queues = &target.ports.queues;
    let given_back = queues.postpone(queue, &second.receipt, 0).await;
    given_back.map_err(|error| Mismatch(format!("the newer receipt is worth nothing: {error}")))?;
    let third = one(&target, queue, LONG_SECONDS).await?;
    equal("the message", &third.id, &first.id)?;
    acknowledge(&target, queue, &third).await?;
    nothing(&target, queue, "after the newest receipt was used").await
}

async fn a_delayed_message_is_not_there_before_its_time(target: Arc<TestPorts>) -> Outcome {
    let queue = MessageQueue::Wakes;
    let mut later = message("later", None);
    later.delay_seconds = 2;
    send(&target, queue, vec![later, message("now", None)]).await?;
    let first = one(&target, queue, LONG_SECONDS).await?;
    equal("the first", first.body.as_str(), "now")?;
    nothing(&target, queue, "before its time").await?;
    let second = one(&target, queue, LONG_SECONDS).await?;
    equal("the second", second.body.as_str(), "later")
}

async fn twenty_five_messages_are_sent_in_one_call(target: Arc<TestPorts>) -> Outcome {
    let queue = MessageQueue::BuildsHigh;
    let messages = (0..25).map(|n| message(format!("{n:02}"), None)).collect();
    send(&target, queue, messages).await?;
    let got = soon(&target, queue, 25, LONG_SECONDS).await?;
    let bodies: BTreeSet<String> = got.into_iter().map(|message| message.body).collect();
    equal("different texts", &bodies.len(), &25)?;
    send(&target, queue, vec![]).await?;
    nothing(&target, queue, "besides").await
}

async fn large_texts_are_sent_in_one_call(target: Arc<TestPorts>) -> Outcome {
    let queue = MessageQueue::Gate;
    let large = |n: usize| message(n.to_string().repeat(150 * 1024), Some("g"));
    send(&target, queue, (0..8).map(large).collect()).await?;
    for n in 0..8 {
        let got = one(&target, queue, LONG_SECONDS).await?;
        holds(&format!("text {n} comes back in order"), got.body == large(n).body)?;
        acknowledge(&target, queue, &got).await?;
    }
    Ok(())
}

async fn a_text_comes_back_as_it_was_sent(target: Arc<TestPorts>) -> Outcome {
    let texts = ["{\"a\": \"<&>\"}", "ü 測試 𝄞", " line\n\tbreaks\r\n ", "%2B+&=", "x"];
    for text in texts {
        send(&target, MessageQueue::Events, vec![message(text, Some("org/project"))]).await?;
        let got = one(&target, MessageQueue::Events, LONG_SECONDS).await?;
        equal("the text", got.body.as_str(), text)?;
        equal("the group", &got.group.as_deref(), &Some("org/project"))?;
        acknowledge(&target, MessageQueue::Events, &got).await?;
    }
    Ok(())
}

async fn a_standard_queue_returns_the_group(target: Arc<TestPorts>) -> Outcome {
    let queue = MessageQueue::BuildsNormal;
    send(&target, queue, vec![message("x", Some("tenant"))]).await?;
    let got = one(&target, queue, LONG_SECONDS).await?;
    equal("the group", &got.group.as_deref(), &Some("tenant"))
}

async fn a_poll_may_take_longer_than_other_calls(target: Arc<TestPorts>) -> Outcome {
    let queues = &target.ports.queues;
    let got = queues.receive(MessageQueue::Merges, 1, 12, 1).await?;
    equal("what an empty queue gives after twelve seconds", &got, &vec![])
}
