//! Behaviour of FIFO queues: order and exclusion within a group, deduplication.

use super::*;

const T: u64 = 1_700_000_000_000;

fn queue() -> Queue {
    Queue::new("gate.fifo", SqsQueueSettings::fifo()).unwrap()
}

fn send(queue: &mut Queue, group: &str, body: &str) {
    queue.send(NewMessage::body(body).group(group).dedup(format!("{group}{body}")), T).unwrap();
}

fn receive(queue: &mut Queue, max: usize, now_ms: u64) -> Vec<Delivered> {
    queue.receive(Poll { max, visibility_seconds: None }, now_ms, &mut Oldest).unwrap().messages
}

fn bodies(delivered: &[Delivered]) -> Vec<&str> {
    delivered.iter().map(|d| d.message.body.as_str()).collect()
}

#[test]
fn a_group_comes_in_order_and_waits_behind_what_is_in_flight() {
    let mut queue = queue();
    for body in ["1", "2", "3"] {
        send(&mut queue, "a", body);
    }
    let held = receive(&mut queue, 2, T);
    assert_eq!(bodies(&held), ["1", "2"]);
    assert!(receive(&mut queue, 10, T + 1).is_empty());
    queue.delete(&held[0].receipt, T + 2).unwrap();
    assert!(receive(&mut queue, 10, T + 2).is_empty(), "2 is still in flight");
    queue.delete(&held[1].receipt, T + 3).unwrap();
    assert_eq!(bodies(&receive(&mut queue, 10, T + 3)), ["3"]);
}

#[test]
fn other_groups_go_on_while_one_is_held() {
    let mut queue = queue();
    send(&mut queue, "a", "a1");
    send(&mut queue, "b", "b1");
    send(&mut queue, "a", "a2");
    assert_eq!(bodies(&receive(&mut queue, 1, T)), ["a1"]);
    assert_eq!(bodies(&receive(&mut queue, 10, T)), ["b1"]);
}

#[test]
fn one_receive_takes_as_much_of_one_group_as_it_can_before_the_next() {
    let mut queue = queue();
    for (group, body) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2")] {
        send(&mut queue, group, body);
    }
    assert_eq!(bodies(&receive(&mut queue, 3, T)), ["a1", "a2", "b1"]);
}

#[test]
fn a_message_given_back_comes_again_before_those_behind_it() {
    let mut queue = queue();
    for body in ["1", "2", "3"] {
        send(&mut queue, "a", body);
    }
    let held = receive(&mut queue, 2, T);
    queue.change_visibility(&held[0].receipt, 0, T + 1).unwrap();
    assert!(receive(&mut queue, 10, T + 1).is_empty(), "another receiver may hold 2");
    assert_eq!(queue.next_wake_ms(T + 1), Some(T + 30_000));
    queue.change_visibility(&held[1].receipt, 0, T + 2).unwrap();
    assert_eq!(queue.next_wake_ms(T + 2), Some(T + 2));
    assert_eq!(bodies(&receive(&mut queue, 10, T + 2)), ["1", "2", "3"]);
}

#[test]
fn a_receipt_past_its_time_out_is_refused() {
    let mut queue = queue();
    send(&mut queue, "a", "1");
    let held = receive(&mut queue, 1, T).remove(0);
    let refusal = queue.delete(&held.receipt, T + 30_000).unwrap_err();
    assert_eq!(refusal.code(), "InvalidParameterValue");
    assert!(matches!(
        queue.change_visibility(&held.receipt, 1, T + 30_000),
        Err(Refusal::NotInFlight { .. })
    ));
    let again = receive(&mut queue, 1, T + 30_000).remove(0);
    assert!(queue.delete(&held.receipt, T + 30_001).is_err());
    assert_eq!(queue.delete(&again.receipt, T + 30_001), Ok(Deletion::Deleted));
}

#[test]
fn a_repeat_within_five_minutes_is_taken_but_not_delivered_even_after_the_first_is_deleted() {
    let mut queue = queue();
    let message = || NewMessage::body("x").group("a").dedup("id");
    let first = queue.send(message(), T).unwrap();
    let held = receive(&mut queue, 1, T).remove(0);
    queue.delete(&held.receipt, T).unwrap();
    let repeat = queue.send(message(), T + 299_999).unwrap();
    assert_eq!(repeat, Sent { duplicate: true, ..first.clone() });
    assert!(receive(&mut queue, 1, T + 299_999).is_empty());
    let later = queue.send(message(), T + 300_000).unwrap();
    assert!(!later.duplicate && later.id != first.id);
}

#[test]
fn the_scope_decides_whether_one_id_in_two_groups_is_a_repeat() {
    for (dedup_scope, throughput, repeated) in [
        (DedupScope::MessageGroup, Throughput::PerMessageGroupId, false),
        (DedupScope::Queue, Throughput::PerQueue, true),
    ] {
        let kind = SqsQueueKind::Fifo { content_dedup: false, dedup_scope, throughput };
        let mut queue =
            Queue::new("q.fifo", SqsQueueSettings { kind, ..SqsQueueSettings::standard() })
                .unwrap();
        queue.send(NewMessage::body("x").group("a").dedup("id"), T).unwrap();
        let other = queue.send(NewMessage::body("y").group("b").dedup("id"), T).unwrap();
        assert_eq!(other.duplicate, repeated, "{dedup_scope:?}");
    }
}

#[test]
fn the_content_stands_in_for_a_missing_id_where_the_queue_says_so() {
    let kind = SqsQueueKind::Fifo {
        content_dedup: true,
        dedup_scope: DedupScope::Queue,
        throughput: Throughput::PerQueue,
    };
    let mut queue =
        Queue::new("q.fifo", SqsQueueSettings { kind, ..SqsQueueSettings::standard() }).unwrap();
    assert!(!queue.send(NewMessage::body("x").group("a"), T).unwrap().duplicate);
    assert!(queue.send(NewMessage::body("x").group("a"), T).unwrap().duplicate);
    assert!(!queue.send(NewMessage::body("x").group("a").dedup("own"), T).unwrap().duplicate);
}

#[test]
fn what_a_fifo_queue_does_not_know_is_refused() {
    let mut queue = queue();
    let base = || NewMessage::body("x").group("a").dedup("d");
    let table = [
        ("InvalidParameterValue", base().delay(1)),
        ("InvalidParameterValue", base().delay(0)),
        ("MissingParameter", NewMessage::body("x").dedup("d")),
        ("InvalidParameterValue", NewMessage::body("x").group("a")),
        ("InvalidParameterValue", base().dedup("é")),
        ("InvalidParameterValue", base().group("")),
    ];
    for (code, message) in table {
        assert_eq!(queue.send(message, T).unwrap_err().code(), code);
    }
    assert_eq!(queue.counts(T), Counts::default());
}

#[test]
fn a_queue_wide_delay_keeps_the_order() {
    let mut queue =
        Queue::new("q.fifo", SqsQueueSettings { delay_seconds: 10, ..SqsQueueSettings::fifo() })
            .unwrap();
    queue.send(NewMessage::body("1").group("a").dedup("1"), T).unwrap();
    queue.send(NewMessage::body("2").group("a").dedup("2"), T + 5_000).unwrap();
    assert_eq!(queue.next_wake_ms(T), Some(T + 10_000));
    assert_eq!(bodies(&receive(&mut queue, 10, T + 10_000)), ["1"]);
}

#[test]
fn a_dead_letter_frees_its_group_in_the_same_receive() {
    let mut queue =
        Queue::new("q.fifo", SqsQueueSettings::fifo().with_redrive("arn:aws:sqs:x:y:d.fifo", 1))
            .unwrap();
    send(&mut queue, "a", "poison");
    send(&mut queue, "a", "next");
    assert_eq!(bodies(&receive(&mut queue, 1, T)), ["poison"]);
    let then =
        queue.receive(Poll { max: 1, visibility_seconds: None }, T + 30_000, &mut Oldest).unwrap();
    assert_eq!(then.dead[0].body, "poison");
    assert_eq!(bodies(&then.messages), ["next"]);
}

#[test]
fn a_restored_queue_remembers_messages_receipts_ids_and_numbers() {
    let mut queue = Queue::restore("q.fifo", SqsQueueSettings::fifo(), 1, vec![], vec![]).unwrap();
    send(&mut queue, "a", "1");
    send(&mut queue, "a", "2");
    let held = receive(&mut queue, 1, T).remove(0);
    let changes = queue.take_changes();
    assert_eq!((changes.written.len(), changes.remembered.len(), changes.next_sequence), (2, 2, 3));
    assert!(queue.take_changes().is_empty());
    let mut again = Queue::restore(
        "q.fifo",
        SqsQueueSettings::fifo(),
        changes.next_sequence,
        changes.written,
        changes.remembered,
    )
    .unwrap();
    assert!(receive(&mut again, 10, T + 1).is_empty(), "1 is still in flight");
    assert!(again.send(NewMessage::body("2").group("a").dedup("a2"), T + 1).unwrap().duplicate);
    assert_eq!(again.delete(&held.receipt, T + 1), Ok(Deletion::Deleted));
    assert_eq!(again.take_changes().removed, [held.message.sequence]);
    assert_eq!(bodies(&receive(&mut again, 10, T + 1)), ["2"]);
}
