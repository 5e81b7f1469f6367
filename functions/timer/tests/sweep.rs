//! The sweep continues past failures, and dead letters do not multiply.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use async_trait::async_trait;
use bytes::Bytes;
use sluice_config::connection::Driver;
use sluice_memory::{Meddled, World, poll_once};
use sluice_model::git::LandingMethod;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{DeliveryId, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, encode_first};
use sluice_records::connection::{self, AwsAccess, ConnectionsFile, StoredConnection};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::tenant::Tenant;
use sluice_records::{open_work, queue, tenant};
use sluice_runtime::batch::Reconciler;
use sluice_runtime::object::PutMode;
use sluice_runtime::port::{Incoming, Outgoing, due_shard};
use sluice_runtime::quarantine::halt_key;
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports, Queues};
use sluice_timer::Timer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const START: Timestamp = Timestamp(1_800_000_060_000);

const BAD: &str = "bad";

/// Refuses to read a page with a record whose key says so, like an adapter that cannot decode it.
fn read(keys: &[Key]) -> Result<(), PortError> {
    match keys.iter().find(|key| key.partition.contains(BAD)) {
        Some(bad) => {
            Err(PortError::unknown(format!("read {bad}"), "an attribute of a newer version"))
        }
        None => Ok(()),
    }
}

/// Refuses to send a message whose text says so.
struct Picky(World);

#[async_trait]
impl Queues for Picky {
    async fn send(&self, queue: MessageQueue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        if messages.iter().any(|message| message.body.contains("refused")) {
            return Err(PortError::unknown(format!("send to {queue:?}"), "one message is refused"));
        }
        self.0.send(queue, messages).await
    }
    async fn receive(
        &self,
        queue: MessageQueue,
        max: u32,
        wait: u32,
        visible: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        self.0.receive(queue, max, wait, visible).await
    }
    async fn acknowledge(&self, queue: MessageQueue, receipt: &str) -> Result<(), PortError> {
        self.0.acknowledge(queue, receipt).await
    }
    async fn acknowledge_all(
        &self,
        queue: MessageQueue,
        receipts: &[String],
    ) -> Result<(), PortError> {
        self.0.acknowledge_all(queue, receipts).await
    }
    async fn postpone(
        &self,
        queue: MessageQueue,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), PortError> {
        self.0.postpone(queue, receipt, seconds).await
    }
}

fn world() -> World {
    World::new(1, 0, START)
}

fn timer(world: &World) -> Timer {
    let ports = world.ports();
    let records = Arc::new(Meddled::reading(ports.records.clone(), read));
    // The minute of the project sweeps never comes here.
    Timer::new(Ports { records, queues: Arc::new(Picky(world.clone())), ..ports }, 1_000_003)
}

fn queue_of(name: &str) -> QueueKey {
    QueueKey { tenant: TenantName::from("demo"), pipeline: "gate".into(), queue: name.into() }
}

/// Writes a head that is due.
fn write_due(world: &World, key: Key, wakeup: Wakeup) {
    write_due_at(world, key, wakeup, START);
}

fn write_due_at(world: &World, key: Key, wakeup: Wakeup, at: Timestamp) {
    let mut record = Record::new(key, "{}".to_owned());
    record.revision = 1;
    record.sweep_at = Some(at);
    record.due = Some(Due { at, wakeup });
    world.write_unchecked(Write::Put { record, expect: Expect::Anything });
}

/// Returns the wakeups in a queue, sorted, and removes them.
fn sent(world: &World, queue: MessageQueue) -> Vec<Wakeup> {
    sorted(sent_in_order(world, queue))
}

/// Returns the wakeups in a queue, in order, and removes them.
fn sent_in_order(world: &World, queue: MessageQueue) -> Vec<Wakeup> {
    let mut wakeups = Vec::new();
    loop {
        let messages = world.take_messages(queue, 10, 30);
        if messages.is_empty() {
            return wakeups;
        }
        for message in messages {
            wakeups.push(serde_json::from_str(&message.body).unwrap());
            world.drop_message(queue, &message.receipt);
        }
    }
}

/// Z3.3: a record that cannot be read does not stop the sweep; it is still reported as an error.
#[test]
fn one_unreadable_record_does_not_stop_the_others() {
    let world = world();
    let names: Vec<String> =
        (0..30).map(|n| if n % 10 == 5 { format!("{BAD}{n}") } else { format!("q{n}") }).collect();
    let mut expected = Vec::new();
    for name in &names {
        let wakeup = Wakeup::Queue { queue: queue_of(name) };
        write_due(&world, queue::head_key(&queue_of(name)), wakeup.clone());
        expected.extend((!name.contains(BAD)).then_some(wakeup));
    }
    expected.sort();
    let error = poll_once(timer(&world).tick()).unwrap().unwrap_err().to_string();
    assert!(
        error.contains("3 parts of the sweep failed")
            && error.contains("an attribute of a newer version"),
        "{error}"
    );
    assert_eq!(sent(&world, MessageQueue::Gate), expected);
}

/// Z3.3: what was due first is woken first: deferred events continue in order.
#[test]
fn due_records_are_woken_in_order() {
    let world = world();
    // It reads shard by shard; the records of one tenant are in one shard.
    let ids = (0..).map(|n| DeliveryId::from(format!("d{n}").as_str()));
    let ids = ids.filter(|id| due_shard(&delivery::key(id).partition) == 0);
    let project = ProjectName::new("forge.test", "org/one");
    let wakeup = |delivery| Wakeup::Delivery { delivery, project: project.clone() };
    let mut expected: Vec<Wakeup> = ids.take(6).map(wakeup).collect();
    expected.sort();
    expected.reverse();
    for (n, wakeup) in expected.iter().enumerate() {
        let Wakeup::Delivery { delivery, .. } = wakeup else { unreachable!() };
        write_due_at(
            &world,
            delivery::key(delivery),
            wakeup.clone(),
            Timestamp(START.0 - 1_000 + n as u64),
        );
    }
    poll_once(timer(&world).tick()).unwrap().unwrap();
    assert_eq!(sent_in_order(&world, MessageQueue::Events), expected);
}

/// Z3.3: however many bad records come first: they stay the oldest due ones.
#[test]
fn many_unreadable_records_do_not_stop_the_others() {
    let world = world();
    let mut expected = Vec::new();
    for n in 0..400 {
        let name = if n < 380 { format!("{BAD}{n}") } else { format!("q{n}") };
        let wakeup = Wakeup::Queue { queue: queue_of(&name) };
        write_due(&world, queue::head_key(&queue_of(&name)), wakeup.clone());
        expected.extend((n >= 380).then_some(wakeup));
    }
    expected.sort();
    let error = poll_once(timer(&world).tick()).unwrap().unwrap_err().to_string();
    assert!(error.contains("380 parts of the sweep failed"), "{error}");
    assert_eq!(sent(&world, MessageQueue::Gate), expected);
}

/// Z3.3: a queue that refuses a message gets the others, and so do the other queues.
#[test]
fn one_unsendable_message_does_not_stop_the_others() {
    let world = world();
    let mut expected = Vec::new();
    for name in ["a", "refused", "b"] {
        let tenant = TenantName::from(name);
        let wakeup = Wakeup::Tenant { tenant: tenant.clone() };
        write_due(&world, tenant::key(&tenant), wakeup.clone());
        expected.extend((name != "refused").then_some(wakeup));
    }
    let queue = Wakeup::Queue { queue: queue_of("q") };
    write_due(&world, queue::head_key(&queue_of("q")), queue.clone());
    assert!(poll_once(timer(&world).tick()).unwrap().is_err());
    assert_eq!(
        (sent(&world, MessageQueue::Tenants), sent(&world, MessageQueue::Gate)),
        (sorted(expected), vec![queue])
    );
}

fn sorted(mut wakeups: Vec<Wakeup>) -> Vec<Wakeup> {
    wakeups.sort();
    wakeups
}

/// Z3.3: a message that dies again and again stays one message.
#[test]
fn many_dead_letters_of_one_wakeup_are_sent_as_one() {
    let world = world();
    let timer = timer(&world);
    let dead = Wakeup::Tenant { tenant: TenantName::from("demo") };
    let other = Wakeup::Tenant { tenant: TenantName::from("mine") };
    for round in 0..4 {
        for _ in 0..20 {
            poll_once(timer.reconcile_first(&dead)).unwrap().unwrap();
        }
        poll_once(timer.reconcile_first(&other)).unwrap().unwrap();
        world.advance_millis(300_000);
        assert_eq!(sent(&world, MessageQueue::Wakes).len(), 2, "round {round}");
    }
    // A run that died after it stored that the message is in flight may not have sent it.
    poll_once(timer.reconcile_first(&dead)).unwrap().unwrap();
    poll_once(timer.reconcile_again(&dead)).unwrap().unwrap();
    world.advance_millis(300_000);
    assert_eq!(sent(&world, MessageQueue::Wakes).len(), 2);
}

/// Z3.3: the sweep wakes a due cell each minute, so its dead letters are not needed. The unsent
/// outbox of its runs is sent.
#[test]
fn a_dead_letter_of_a_due_cell_is_dropped() {
    let world = world();
    let dead = Wakeup::Queue { queue: queue_of("q") };
    let left_behind = Wakeup::Tenant { tenant: TenantName::from("demo") };
    let mut record = Record::new(queue::head_key(&queue_of("q")), "{}".to_owned());
    record.revision = 1;
    record.due = Some(Due { at: START, wakeup: dead.clone() });
    record.sweep_at = Some(START);
    record.outbox = vec![left_behind.clone()];
    world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    poll_once(timer(&world).reconcile_first(&dead)).unwrap().unwrap();
    world.advance_millis(900_000);
    assert_eq!(
        (sent(&world, MessageQueue::Wakes), sent(&world, MessageQueue::Tenants)),
        (Vec::new(), vec![left_behind])
    );
}

/// Z3.3: a cell that is due in days is not woken by the sweep until then, so its dead letter is.
#[test]
fn a_dead_letter_of_a_cell_that_is_due_much_later_is_sent() {
    let world = world();
    let dead = Wakeup::Queue { queue: queue_of("q") };
    let mut record = Record::new(queue::head_key(&queue_of("q")), "{}".to_owned());
    record.revision = 1;
    let at = START.plus_seconds(86_400);
    record.due = Some(Due { at, wakeup: dead.clone() });
    record.sweep_at = Some(at);
    world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    poll_once(timer(&world).reconcile_first(&dead)).unwrap().unwrap();
    world.advance_millis(900_000);
    let wake = Wakeup::Wake { then: Box::new(dead), delay_seconds: 300 };
    assert_eq!(sent(&world, MessageQueue::Wakes), [wake]);
}

/// Z1.7, Z6.7: the cell of overdue work is woken for as long as the work exists; other work is left
/// alone.
#[test]
fn the_cells_of_overdue_work_are_woken() {
    let world = world();
    let listed = |queue: &QueueKey, due: Option<Timestamp>| {
        let mut head = Record::new(queue::head_key(queue), "{}".to_owned());
        head.revision = 1;
        head.sweep_at = due;
        world.write_unchecked(Write::Put { record: head, expect: Expect::Anything });
        let mut message =
            Record::new(Key::new(queue::partition(queue), "inbox#1"), "{}".to_owned());
        message.revision = 1;
        message.find = Some(open_work::index_entry(&message.key, START));
        world.write_unchecked(Write::Put { record: message, expect: Expect::Anything });
    };
    listed(&queue_of("forgotten"), None);
    listed(&queue_of("waiting"), Some(START.plus_seconds(10_000)));
    let mut frozen = Record::new(halt_key(&queue::partition(&queue_of("frozen"))), "{}".to_owned());
    frozen.revision = 1;
    world.write_unchecked(Write::Put { record: frozen, expect: Expect::Anything });
    listed(&queue_of("frozen"), None);
    poll_once(timer(&world).tick()).unwrap().unwrap();
    assert_eq!(sent(&world, MessageQueue::Gate), Vec::new(), "nothing is past its bound");
    world.advance_millis(660_000);
    poll_once(timer(&world).tick()).unwrap().unwrap();
    assert_eq!(sent(&world, MessageQueue::Gate), [Wakeup::Queue { queue: queue_of("forgotten") }]);
    // What waits for an operator is counted separately.
    let now = world.ports().clock.now();
    let counted = poll_once(open_work::read(&world.ports(), open_work::past_bound(now), now))
        .unwrap()
        .unwrap();
    assert_eq!(
        counted.halted.into_iter().collect::<Vec<_>>(),
        [queue::partition(&queue_of("frozen"))]
    );
}

/// Writes connections, and two tenants with their projects.
fn with_forges(world: &World) {
    with_forges_polled_every(world, None);
}

/// Writes connections whose git servers are polled every so many minutes, and two tenants with
/// their projects.
fn with_forges_polled_every(world: &World, poll_minutes: Option<u32>) {
    let of = |driver: Driver, host: &str| StoredConnection {
        driver,
        canonical_hostname: host.to_owned(),
        api_url: None,
        git_url: format!("https://{host}"),
        login: None,
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingMethod::default(),
        poll_minutes,
        aws: AwsAccess::default(),
    };
    let file = ConnectionsFile(
        [
            // It sorts before the forge of the same host.
            ("code", of(Driver::Git, "forge.test")),
            ("hub", of(Driver::GitHub, "forge.test")),
            ("one", of(Driver::GitHub, "both.test")),
            ("other", of(Driver::GitHub, "both.test")),
            ("plain", of(Driver::Git, "git.test")),
            ("review", of(Driver::Gerrit, "review.test")),
        ]
        .map(|(name, connection)| (name.into(), connection))
        .into(),
    );
    let text = Bytes::from(serde_json::to_string(&file).unwrap());
    let put = world.ports();
    poll_once(put.objects.put(connection::OBJECT, text, PutMode::Always, "application/json"))
        .unwrap()
        .unwrap();
    let projects = [
        "forge.test/org/one",
        "both.test/two",
        "git.test/org/one",
        "review.test/one",
        "gone.test/one",
        "forge.test/org/two",
    ];
    for name in ["demo", "mine"] {
        let name = TenantName::from(name);
        let projects = projects.iter().map(|project| ProjectName::from(*project)).collect();
        let record =
            encode_first(tenant::key(&name), &Tenant { projects, ..Tenant::new(name.clone()) })
                .unwrap();
        world.write_unchecked(Write::Put { record, expect: Expect::Anything });
        world.write_unchecked(tenant::put_on_tenant_list(&name).unwrap());
    }
}

/// C5: only a forge with an API is swept, once for each project however many tenants and
/// connections have it.
#[test]
fn projects_of_forges_with_an_api_are_swept() {
    let world = world();
    with_forges(&world);
    let timer = Timer::new(world.ports(), 1);
    for _ in 0..2 {
        // Two ticks in one minute start one sweep.
        poll_once(timer.tick()).unwrap().unwrap();
    }
    let mut asked: Vec<String> = sent(&world, MessageQueue::Events)
        .into_iter()
        .map(|wakeup| match wakeup {
            Wakeup::Delivery { project, delivery } => {
                let record = world.record(&delivery::key(&delivery)).unwrap();
                let stored: DeliveryRecord = decode(&record).unwrap();
                format!("{} {project}", stored.connection)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    asked.sort();
    asked.dedup();
    let expected = [
        "hub forge.test/org/one",
        "hub forge.test/org/two",
        "one both.test/two",
        "other both.test/two",
        "review review.test/one",
    ];
    assert_eq!(asked, expected);
    let stored =
        world.records().into_iter().filter(|record| record.key.partition.starts_with("delivery#"));
    assert_eq!(stored.count(), 5);
}

/// C5: a project at a plain git server is polled once in each interval of its connection, in a
/// minute of its own, by the connections that lead to its host.
#[test]
fn projects_at_plain_git_servers_are_polled_once_in_an_interval() {
    let world = world();
    with_forges(&world);
    let mut polled = Vec::new();
    for _ in 0..150 {
        poll_once(Timer::new(world.ports(), 10_000).tick()).unwrap().unwrap();
        for wakeup in sent(&world, MessageQueue::Events) {
            let Wakeup::Delivery { project, delivery } = wakeup else { panic!("{wakeup:?}") };
            let record = world.record(&delivery::key(&delivery)).unwrap();
            let stored: DeliveryRecord = decode(&record).unwrap();
            if stored.event_name == "poll" {
                polled.push((format!("{} {project}", stored.connection), delivery));
            }
        }
        world.advance_millis(60_000);
    }
    // A due record is sent again until it is processed.
    polled.sort();
    polled.dedup();
    let names: Vec<&str> = polled.iter().map(|(name, _)| name.as_str()).collect();
    let within = |name: &str| names.iter().filter(|one| **one == name).count();
    let expected = ["code forge.test/org/one", "code forge.test/org/two", "plain git.test/org/one"];
    for name in expected {
        assert!((1..=2).contains(&within(name)), "{name}: {names:?}");
    }
    assert!(names.iter().all(|name| expected.contains(name)), "{names:?}");
}

/// Returns the stored polls of the project at `git.test`, oldest first, with their keys.
fn polls(world: &World) -> Vec<(Key, DeliveryRecord)> {
    let all = world.records().into_iter().filter(|one| one.key.partition.starts_with("delivery#"));
    let all = all.map(|one| (one.key.clone(), decode::<DeliveryRecord>(&one).unwrap()));
    let mut polls: Vec<_> = all.filter(|(_, one)| one.connection == "plain".into()).collect();
    polls.sort_by_key(|(_, poll)| poll.received_at);
    polls
}

/// C5: a server that answers late has one poll of a project at a time, so that its polls do not
/// take the time of intake that others need. Polling goes on when the poll has ended, and after
/// some intervals also if it has not.
#[test]
fn no_poll_starts_while_the_last_one_is_open() {
    let world = world();
    with_forges_polled_every(&world, Some(1));
    let pass = || {
        poll_once(Timer::new(world.ports(), 10_000).tick()).unwrap().unwrap();
        world.advance_millis(60_000);
    };
    pass();
    pass();
    pass();
    assert_eq!(polls(&world).len(), 1);
    let (key, first) = polls(&world).remove(0);
    let state = DeliveryState::Failed { why: "silent".to_owned(), at: START };
    let record = encode_first(key, &DeliveryRecord { state, ..first }).unwrap();
    world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    pass();
    assert_eq!(polls(&world).len(), 2);
    for _ in 0..4 {
        pass();
    }
    assert_eq!(polls(&world).len(), 3, "the open one does not stop polling forever");
}

/// The budget: the tenants are read together, and once for sweeps and polls.
#[test]
fn many_tenants_are_read_in_few_calls() {
    let world = world();
    with_forges(&world);
    for number in 0..148 {
        let name = TenantName::from(format!("more{number}").as_str());
        let record = encode_first(tenant::key(&name), &Tenant::new(name.clone())).unwrap();
        world.write_unchecked(Write::Put { record, expect: Expect::Anything });
        world.write_unchecked(tenant::put_on_tenant_list(&name).unwrap());
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let count = move |keys: &[Key]| {
        let is_tenant = keys.iter().any(|key| key.partition.starts_with("tenant#"));
        counted.fetch_add(usize::from(is_tenant), Ordering::Relaxed);
        Ok(())
    };
    let ports = world.ports();
    let records = Arc::new(Meddled::reading(ports.records.clone(), count));
    // Sweeps and polls in the same minute.
    poll_once(Timer::new(Ports { records, ..ports }, 1).tick()).unwrap().unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), 2, "150 tenants");
}

/// C5: ticks come about a minute apart: one right before the minute of the sweep, and the next
/// right after it, leave nothing out.
#[test]
fn the_next_minute_starts_missing_sweeps() {
    let world = world();
    with_forges(&world);
    let timer = Timer::new(world.ports(), 10);
    assert_eq!(START.seconds() / 60 % 10, 1);
    poll_once(timer.tick()).unwrap().unwrap();
    let asked = sent(&world, MessageQueue::Events).len();
    assert!(asked > 0);
    let of_one = world
        .records()
        .into_iter()
        .find(|record| record.key.partition.starts_with("delivery#"))
        .unwrap();
    poll_once(timer.tick()).unwrap().unwrap();
    assert_eq!(sent(&world, MessageQueue::Events).len(), 0, "all of them were");
    let forget = || {
        world.write_unchecked(Write::Delete { key: of_one.key.clone(), expect: Expect::Anything })
    };
    forget();
    poll_once(timer.tick()).unwrap().unwrap();
    assert_eq!(sent(&world, MessageQueue::Events).len(), 1, "one was not");
    forget();
    world.advance_millis(60_000);
    poll_once(timer.tick()).unwrap().unwrap();
    assert!(world.record(&of_one.key).is_none(), "the next minute leaves it to the next question");
}
