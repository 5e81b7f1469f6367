//! Behaviour of standard queues, and what both kinds refuse.

use super::*;

const T: u64 = 1_700_000_000_000;

fn queue(settings: SqsQueueSettings) -> Queue {
    Queue::new("wakes", settings).unwrap()
}

fn poll(max: usize) -> Poll {
    Poll { max, visibility_seconds: None }
}

fn receive(queue: &mut Queue, max: usize, now_ms: u64) -> Vec<Delivered> {
    queue.receive(poll(max), now_ms, &mut Oldest).unwrap().messages
}

fn bodies(delivered: &[Delivered]) -> Vec<&str> {
    delivered.iter().map(|d| d.message.body.as_str()).collect()
}

#[test]
fn a_received_message_is_invisible_until_its_time_out_and_then_comes_again_with_a_higher_count() {
    let mut queue = queue(SqsQueueSettings::standard());
    queue.send(NewMessage::body("a"), T).unwrap();
    let first = receive(&mut queue, 10, T);
    assert_eq!(bodies(&first), ["a"]);
    assert!(receive(&mut queue, 10, T + 29_999).is_empty());
    assert_eq!(queue.next_wake_ms(T), Some(T + 30_000));
    let second = receive(&mut queue, 10, T + 30_000);
    assert_eq!(second[0].message.receives, 2);
    assert_ne!(first[0].receipt, second[0].receipt);
    assert_eq!(second[0].message.first_received_ms, Some(T));
}

#[test]
fn a_stale_receipt_deletes_nothing_and_changes_no_visibility() {
    let mut queue = queue(SqsQueueSettings::standard());
    queue.send(NewMessage::body("a"), T).unwrap();
    let first = receive(&mut queue, 1, T).remove(0);
    let second = receive(&mut queue, 1, T + 30_000).remove(0);
    assert_eq!(queue.delete(&first.receipt, T + 30_001), Ok(Deletion::Stale));
    assert!(matches!(
        queue.change_visibility(&first.receipt, 5, T + 30_001),
        Err(Refusal::NotInFlight { .. })
    ));
    assert_eq!(queue.delete(&second.receipt, T + 30_001), Ok(Deletion::Deleted));
    assert_eq!(queue.delete(&second.receipt, T + 30_001), Ok(Deletion::Gone));
}

#[test]
fn a_standard_message_can_be_deleted_after_its_timeout_unless_received_again() {
    let mut queue = queue(SqsQueueSettings::standard());
    queue.send(NewMessage::body("a"), T).unwrap();
    let first = receive(&mut queue, 1, T).remove(0);
    assert_eq!(queue.delete(&first.receipt, T + 60_000), Ok(Deletion::Deleted));
}

#[test]
fn visibility_can_be_given_back_and_extended_but_never_past_twelve_hours_after_the_receive() {
    let mut queue = queue(SqsQueueSettings::standard());
    queue.send(NewMessage::body("a"), T).unwrap();
    let held = receive(&mut queue, 1, T).remove(0);
    queue.change_visibility(&held.receipt, 43_200, T).unwrap();
    let beyond = queue.change_visibility(&held.receipt, 43_200, T + 1).unwrap_err();
    assert_eq!(beyond.code(), "InvalidParameterValue");
    queue.change_visibility(&held.receipt, 0, T + 2).unwrap();
    assert_eq!(receive(&mut queue, 1, T + 2).len(), 1);
}

#[test]
fn a_delay_holds_a_message_back_and_counts_as_delayed() {
    let mut queue = queue(SqsQueueSettings::standard());
    queue.send(NewMessage::body("later").delay(900), T).unwrap();
    queue.send(NewMessage::body("now"), T).unwrap();
    assert_eq!(queue.counts(T), Counts { visible: 1, in_flight: 0, delayed: 1 });
    assert_eq!(bodies(&receive(&mut queue, 10, T)), ["now"]);
    assert_eq!(queue.counts(T), Counts { visible: 0, in_flight: 1, delayed: 1 });
    assert_eq!(bodies(&receive(&mut queue, 10, T + 900_000)), ["later", "now"]);
}

#[test]
fn the_queues_own_delay_holds_for_messages_without_one() {
    let mut queue = queue(SqsQueueSettings { delay_seconds: 5, ..SqsQueueSettings::standard() });
    queue.send(NewMessage::body("a"), T).unwrap();
    queue.send(NewMessage::body("b").delay(0), T).unwrap();
    assert_eq!(bodies(&receive(&mut queue, 10, T)), ["b"]);
    assert_eq!(queue.next_wake_ms(T), Some(T + 5_000));
}

#[test]
fn a_message_received_too_often_goes_to_the_dead_letters_instead() {
    let mut queue =
        queue(SqsQueueSettings::standard().with_redrive("arn:aws:sqs:x:y:wakes-dead", 2));
    queue.send(NewMessage::body("poison"), T).unwrap();
    for attempt in 0..2 {
        assert_eq!(receive(&mut queue, 1, T + attempt * 30_000).len(), 1);
    }
    let third = queue.receive(poll(1), T + 60_000, &mut Oldest).unwrap();
    assert!(third.messages.is_empty());
    assert_eq!(third.dead.len(), 1);
    let mut dead = Queue::new("wakes-dead", SqsQueueSettings::standard()).unwrap();
    dead.accept_dead(third.dead[0].clone(), "arn:aws:sqs:x:y:wakes", T + 60_000);
    let letter = receive(&mut dead, 1, T + 60_000).remove(0).message;
    assert_eq!((letter.body.as_str(), letter.sent_ms), ("poison", T));
    assert_eq!(letter.dead_letter_source.as_deref(), Some("arn:aws:sqs:x:y:wakes"));
}

#[test]
fn a_message_past_its_retention_is_gone_and_its_receipt_with_it() {
    let mut queue =
        queue(SqsQueueSettings { retention_seconds: 60, ..SqsQueueSettings::standard() });
    queue.send(NewMessage::body("a"), T).unwrap();
    let held = receive(&mut queue, 1, T).remove(0);
    assert!(receive(&mut queue, 1, T + 60_000).is_empty());
    assert_eq!(queue.delete(&held.receipt, T + 60_000), Ok(Deletion::Gone));
    assert_eq!(queue.counts(T + 60_000), Counts::default());
}

#[test]
fn a_group_with_many_messages_in_flight_yields_to_a_quiet_one() {
    let mut queue = queue(SqsQueueSettings::standard());
    for n in 0..50 {
        queue.send(NewMessage::body(format!("noisy {n}")).group("noisy"), T).unwrap();
    }
    assert_eq!(receive(&mut queue, 10, T).len(), 10);
    queue.send(NewMessage::body("quiet").group("quiet"), T + 1).unwrap();
    assert_eq!(bodies(&receive(&mut queue, 1, T + 1)), ["quiet"]);
    assert_eq!(
        receive(&mut queue, 10, T + 1).len(),
        10,
        "a group is never blocked on a standard queue"
    );
}

#[test]
fn an_injected_chooser_reorders_and_repeats_the_same_way_for_the_same_seed() {
    let run = |seed| {
        let mut queue = queue(SqsQueueSettings::standard());
        for n in 0..10 {
            queue.send(NewMessage::body(n.to_string()), T).unwrap();
        }
        let mut chooser = Seeded::new(seed, 500);
        let first = queue.receive(poll(10), T, &mut chooser).unwrap().messages;
        let again = queue.receive(poll(10), T, &mut chooser).unwrap().messages;
        (first, again)
    };
    let (first, again) = run(7);
    assert_eq!((first.clone(), again.clone()), run(7));
    assert_ne!(bodies(&first), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(!again.is_empty(), "half of them stay visible");
}

#[test]
fn what_aws_refuses_is_refused_with_its_code() {
    let mut queue = queue(SqsQueueSettings::standard());
    let attribute = |data_type: &str, value: &str| Attribute {
        data_type: data_type.into(),
        value: value.as_bytes().to_vec(),
    };
    let with = |name: &str, a: Attribute| NewMessage {
        attributes: [(name.to_owned(), a)].into(),
        ..NewMessage::body("a")
    };
    let table: Vec<(&str, NewMessage)> = vec![
        ("MissingParameter", NewMessage::body("")),
        ("InvalidMessageContents", NewMessage::body("\u{1}")),
        ("InvalidParameterValue", NewMessage::body("a".repeat(limits::MESSAGE_BYTES_MAX + 1))),
        (
            "InvalidParameterValue",
            with("n", attribute("String", &"v".repeat(limits::MESSAGE_BYTES_MAX))),
        ),
        ("InvalidParameterValue", with("aws.trace", attribute("String", "v"))),
        ("InvalidParameterValue", with("n", attribute("Date", "v"))),
        ("InvalidParameterValue", with("n", attribute("String", ""))),
        ("InvalidParameterValue", NewMessage::body("a").delay(901)),
        ("InvalidParameterValue", NewMessage::body("a").dedup("d")),
        ("InvalidParameterValue", NewMessage::body("a").group("a b")),
        ("InvalidParameterValue", NewMessage::body("a").group("g".repeat(129))),
    ];
    for (code, message) in table {
        let refusal = queue.send(message.clone(), T).unwrap_err();
        assert_eq!(refusal.code(), code, "{refusal} for {:.60?}", message);
    }
    queue.send(NewMessage::body("a".repeat(limits::MESSAGE_BYTES_MAX)), T).unwrap();
    for max in [0, 11] {
        assert!(queue.receive(poll(max), T, &mut Oldest).is_err());
    }
    let long = Poll { max: 1, visibility_seconds: Some(43_201) };
    assert!(queue.receive(long, T, &mut Oldest).is_err());
    assert_eq!(queue.delete("invented", T).unwrap_err().code(), "ReceiptHandleIsInvalid");
    assert_eq!(
        queue.delete("1-1-000000000000000000000000", T).unwrap_err().code(),
        "ReceiptHandleIsInvalid"
    );
}

#[test]
fn a_receipt_of_one_queue_means_nothing_to_another() {
    let mut one = queue(SqsQueueSettings::standard());
    one.send(NewMessage::body("a"), T).unwrap();
    let held = receive(&mut one, 1, T).remove(0);
    let mut other = Queue::new("other", SqsQueueSettings::standard()).unwrap();
    assert_eq!(other.delete(&held.receipt, T).unwrap_err().code(), "ReceiptHandleIsInvalid");
}

#[test]
fn names_and_attributes_outside_their_limits_make_no_queue() {
    let cases: [(&str, SqsQueueSettings); 7] = [
        ("a.fifo", SqsQueueSettings::standard()),
        ("a", SqsQueueSettings::fifo()),
        ("a b", SqsQueueSettings::standard()),
        ("a", SqsQueueSettings { delay_seconds: 901, ..SqsQueueSettings::standard() }),
        ("a", SqsQueueSettings { visibility_seconds: 43_201, ..SqsQueueSettings::standard() }),
        ("a", SqsQueueSettings { retention_seconds: 59, ..SqsQueueSettings::standard() }),
        ("a", SqsQueueSettings::standard().with_redrive("arn:aws:sqs:x:y:d.fifo", 5)),
    ];
    for (name, settings) in cases {
        assert!(Queue::new(name, settings.clone()).is_err(), "{name} {settings:?}");
    }
    let queue_wide = SqsQueueKind::Fifo {
        content_dedup: true,
        dedup_scope: DedupScope::Queue,
        throughput: Throughput::PerMessageGroupId,
    };
    assert!(
        Queue::new("a.fifo", SqsQueueSettings { kind: queue_wide, ..SqsQueueSettings::standard() })
            .is_err()
    );
}

#[test]
fn purging_throws_away_also_what_is_in_flight() {
    let mut queue = queue(SqsQueueSettings::standard());
    queue.send(NewMessage::body("a"), T).unwrap();
    queue.send(NewMessage::body("b"), T).unwrap();
    receive(&mut queue, 1, T);
    queue.purge();
    assert_eq!(queue.counts(T), Counts::default());
    assert_eq!(queue.next_wake_ms(T), None);
}
