//! The sweep goes on past what is bad, and dead letters do not become many.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use async_trait::async_trait;
use bytes::Bytes;
use sluice_config::connection::Driver;
use sluice_memory::{Meddled, World, poll_once};
use sluice_model::git::LandingWay;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{DeliveryId, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, encode_first};
use sluice_records::connection::{self, Connection, ConnectionsFile};
use sluice_records::delivery::{self, Delivery};
use sluice_records::tenant::Tenant;
use sluice_records::{ledger, queue, tenant};
use sluice_runtime::batch::Look;
use sluice_runtime::object::PutMode;
use sluice_runtime::port::{Incoming, Outgoing, due_shard};
use sluice_runtime::quarantine::frozen_key;
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports, Queues};
use sluice_timer::Timer;
use std::sync::Arc;

const START: Timestamp = Timestamp(1_800_000_060_000);

const BAD: &str = "bad";

/// Refuses to read a page that holds a record of which the key says so, as an adapter does that
/// cannot decode one of them.
fn read(keys: &[Key]) -> Result<(), PortError> {
    match keys.iter().find(|key| key.partition.contains(BAD)) {
        Some(bad) => {
            Err(PortError::unknown(format!("read {bad}"), "an attribute of a newer version"))
        }
        None => Ok(()),
    }
}

/// Refuses to send a message of which the text says so.
struct Picky(World);

#[async_trait]
impl Queues for Picky {
    async fn send(&self, queue: Queue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        if messages.iter().any(|message| message.body.contains("refused")) {
            return Err(PortError::unknown(format!("send to {queue:?}"), "one message is refused"));
        }
        self.0.send(queue, messages).await
    }
    async fn receive(
        &self,
        queue: Queue,
        max: u32,
        wait: u32,
        visible: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        self.0.receive(queue, max, wait, visible).await
    }
    async fn acknowledge(&self, queue: Queue, receipt: &str) -> Result<(), PortError> {
        self.0.acknowledge(queue, receipt).await
    }
    async fn acknowledge_all(&self, queue: Queue, receipts: &[String]) -> Result<(), PortError> {
        self.0.acknowledge_all(queue, receipts).await
    }
    async fn postpone(&self, queue: Queue, receipt: &str, seconds: u32) -> Result<(), PortError> {
        self.0.postpone(queue, receipt, seconds).await
    }
}

fn world() -> World {
    World::new(1, 0, START)
}

fn timer(world: &World) -> Timer {
    let ports = world.ports();
    let records = Arc::new(Meddled::reading(ports.records.clone(), read));
    // Its turn to ask forges never comes here.
    Timer::new(Ports { records, queues: Arc::new(Picky(world.clone())), ..ports }, 1_000_003)
}

fn queue_of(name: &str) -> QueueKey {
    QueueKey { tenant: TenantName::from("demo"), pipeline: "gate".into(), queue: name.into() }
}

/// Writes a head that is due.
fn write_due(world: &World, key: Key, poke: Poke) {
    write_due_at(world, key, poke, START);
}

fn write_due_at(world: &World, key: Key, poke: Poke, at: Timestamp) {
    let mut record = Record::new(key, "{}".to_owned());
    record.revision = 1;
    record.look_at = Some(at);
    record.due = Some(Due { at, poke });
    world.write_directly(Write::Put { record, expect: Expect::Anything });
}

/// Returns the pokes that a queue holds, sorted, and takes them.
fn sent(world: &World, queue: Queue) -> Vec<Poke> {
    sorted(sent_in_order(world, queue))
}

/// Returns the pokes that a queue holds in the order in which they come out, and takes them.
fn sent_in_order(world: &World, queue: Queue) -> Vec<Poke> {
    let mut pokes = Vec::new();
    loop {
        let messages = world.take_messages(queue, 10, 30);
        if messages.is_empty() {
            return pokes;
        }
        for message in messages {
            pokes.push(serde_json::from_str(&message.body).unwrap());
            world.drop_message(queue, &message.receipt);
        }
    }
}

/// Z3.3: what mends everything else does not stop at a record that nobody can read; that it is
/// there is an error all the same.
#[test]
fn one_record_that_cannot_be_read_keeps_no_other_from_being_poked() {
    let world = world();
    let names: Vec<String> =
        (0..30).map(|n| if n % 10 == 5 { format!("{BAD}{n}") } else { format!("q{n}") }).collect();
    let mut expected = Vec::new();
    for name in &names {
        let poke = Poke::Queue { queue: queue_of(name) };
        write_due(&world, queue::head_key(&queue_of(name)), poke.clone());
        expected.extend((!name.contains(BAD)).then_some(poke));
    }
    expected.sort();
    let told = poll_once(timer(&world).tick()).unwrap().unwrap_err().to_string();
    assert!(
        told.contains("3 parts of the sweep failed")
            && told.contains("an attribute of a newer version"),
        "{told}"
    );
    assert_eq!(sent(&world, Queue::Gate), expected);
}

/// Z3.3: what was due first is poked first: events that wait go on in the order in which they came.
#[test]
fn what_is_due_is_poked_in_the_order_in_which_it_was_due() {
    let world = world();
    // Shard by shard it looks; what waits for one tenant is in one.
    let ids = (0..).map(|n| DeliveryId::from(format!("d{n}").as_str()));
    let ids = ids.filter(|id| due_shard(&delivery::key(id).partition) == 0);
    let project = ProjectName::new("forge.test", "org/one");
    let poke = |delivery| Poke::Delivery { delivery, project: project.clone() };
    let mut expected: Vec<Poke> = ids.take(6).map(poke).collect();
    expected.sort();
    expected.reverse();
    for (n, poke) in expected.iter().enumerate() {
        let Poke::Delivery { delivery, .. } = poke else { unreachable!() };
        write_due_at(
            &world,
            delivery::key(delivery),
            poke.clone(),
            Timestamp(START.0 - 1_000 + n as u64),
        );
    }
    poll_once(timer(&world).tick()).unwrap().unwrap();
    assert_eq!(sent_in_order(&world, Queue::Events), expected);
}

/// Z3.3: however many bad records stand before the others: they were the oldest that are due in
/// each sweep to come.
#[test]
fn many_records_that_cannot_be_read_keep_no_other_from_being_poked() {
    let world = world();
    let mut expected = Vec::new();
    for n in 0..400 {
        let name = if n < 380 { format!("{BAD}{n}") } else { format!("q{n}") };
        let poke = Poke::Queue { queue: queue_of(&name) };
        write_due(&world, queue::head_key(&queue_of(&name)), poke.clone());
        expected.extend((n >= 380).then_some(poke));
    }
    expected.sort();
    let told = poll_once(timer(&world).tick()).unwrap().unwrap_err().to_string();
    assert!(told.contains("380 parts of the sweep failed"), "{told}");
    assert_eq!(sent(&world, Queue::Gate), expected);
}

/// Z3.3: a queue that refuses a message gets the others, and so do the other queues.
#[test]
fn one_message_that_cannot_be_sent_keeps_no_other_back() {
    let world = world();
    let mut expected = Vec::new();
    for name in ["a", "refused", "b"] {
        let tenant = TenantName::from(name);
        let poke = Poke::Tenant { tenant: tenant.clone() };
        write_due(&world, tenant::key(&tenant), poke.clone());
        expected.extend((name != "refused").then_some(poke));
    }
    let queue = Poke::Queue { queue: queue_of("q") };
    write_due(&world, queue::head_key(&queue_of("q")), queue.clone());
    assert!(poll_once(timer(&world).tick()).unwrap().is_err());
    assert_eq!(
        (sent(&world, Queue::Tenants), sent(&world, Queue::Gate)),
        (sorted(expected), vec![queue])
    );
}

fn sorted(mut pokes: Vec<Poke>) -> Vec<Poke> {
    pokes.sort();
    pokes
}

/// Z3.3: a message that dies again and again stays one message, however many copies of it died.
#[test]
fn many_dead_letters_of_one_poke_come_to_life_as_one() {
    let world = world();
    let timer = timer(&world);
    let dead = Poke::Tenant { tenant: TenantName::from("demo") };
    let other = Poke::Tenant { tenant: TenantName::from("mine") };
    for round in 0..4 {
        for _ in 0..20 {
            poll_once(timer.look(&dead)).unwrap().unwrap();
        }
        poll_once(timer.look(&other)).unwrap().unwrap();
        world.advance_millis(300_000);
        assert_eq!(sent(&world, Queue::Wakes).len(), 2, "round {round}");
    }
    // A look that died after it wrote that the message is on its way may not have sent it.
    poll_once(timer.look(&dead)).unwrap().unwrap();
    poll_once(timer.look_again(&dead)).unwrap().unwrap();
    world.advance_millis(300_000);
    assert_eq!(sent(&world, Queue::Wakes).len(), 2);
}

/// Z3.3: a cell that is due is poked by the sweep each minute; its dead letters would only be more
/// of the same. What its looks left unsent is sent.
#[test]
fn a_dead_letter_about_a_cell_that_is_due_is_left_to_the_sweep() {
    let world = world();
    let dead = Poke::Queue { queue: queue_of("q") };
    let left_behind = Poke::Tenant { tenant: TenantName::from("demo") };
    let mut record = Record::new(queue::head_key(&queue_of("q")), "{}".to_owned());
    record.revision = 1;
    record.due = Some(Due { at: START, poke: dead.clone() });
    record.look_at = Some(START);
    record.outbox = vec![left_behind.clone()];
    world.write_directly(Write::Put { record, expect: Expect::Anything });
    poll_once(timer(&world).look(&dead)).unwrap().unwrap();
    world.advance_millis(900_000);
    assert_eq!(
        (sent(&world, Queue::Wakes), sent(&world, Queue::Tenants)),
        (Vec::new(), vec![left_behind])
    );
}

/// Z3.3: a cell that is due in days only is not looked at until then, whatever its dead letter was
/// about.
#[test]
fn a_dead_letter_about_a_cell_that_is_due_much_later_comes_to_life() {
    let world = world();
    let dead = Poke::Queue { queue: queue_of("q") };
    let mut record = Record::new(queue::head_key(&queue_of("q")), "{}".to_owned());
    record.revision = 1;
    let at = START.plus_seconds(86_400);
    record.due = Some(Due { at, poke: dead.clone() });
    record.look_at = Some(at);
    world.write_directly(Write::Put { record, expect: Expect::Anything });
    poll_once(timer(&world).look(&dead)).unwrap().unwrap();
    world.advance_millis(900_000);
    let wake = Poke::Wake { then: Box::new(dead), delay_seconds: 300 };
    assert_eq!(sent(&world, Queue::Wakes), [wake]);
}

/// Z1.7, Z6.7: what nobody sees to any more is looked at again, as long as it is there; what is
/// seen to is left alone.
#[test]
fn what_nobody_sees_to_has_its_cell_poked() {
    let world = world();
    let listed = |queue: &QueueKey, due: Option<Timestamp>| {
        let mut head = Record::new(queue::head_key(queue), "{}".to_owned());
        head.revision = 1;
        head.look_at = due;
        world.write_directly(Write::Put { record: head, expect: Expect::Anything });
        let mut arrival =
            Record::new(Key::new(queue::partition(queue), "arrival#1"), "{}".to_owned());
        arrival.revision = 1;
        arrival.find = Some(ledger::listed(&arrival.key, START));
        world.write_directly(Write::Put { record: arrival, expect: Expect::Anything });
    };
    listed(&queue_of("forgotten"), None);
    listed(&queue_of("waiting"), Some(START.plus_seconds(10_000)));
    let mut frozen =
        Record::new(frozen_key(&queue::partition(&queue_of("frozen"))), "{}".to_owned());
    frozen.revision = 1;
    world.write_directly(Write::Put { record: frozen, expect: Expect::Anything });
    listed(&queue_of("frozen"), None);
    poll_once(timer(&world).tick()).unwrap().unwrap();
    assert_eq!(sent(&world, Queue::Gate), Vec::new(), "nothing is past its bound");
    world.advance_millis(660_000);
    poll_once(timer(&world).tick()).unwrap().unwrap();
    assert_eq!(sent(&world, Queue::Gate), [Poke::Queue { queue: queue_of("forgotten") }]);
    // What an operator has to see to is counted by itself.
    let now = world.ports().clock.now();
    let counted =
        poll_once(ledger::read(&world.ports(), ledger::past_bound(now), now)).unwrap().unwrap();
    assert_eq!(
        counted.frozen.into_iter().collect::<Vec<_>>(),
        [queue::partition(&queue_of("frozen"))]
    );
}

/// Writes connections, and two tenants with projects of theirs.
fn with_forges(world: &World) {
    let of = |driver: Driver, host: &str| Connection {
        driver,
        canonical_hostname: host.to_owned(),
        api_url: None,
        git_url: format!("https://{host}"),
        login: None,
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingWay::default(),
    };
    let file = ConnectionsFile(
        [
            // By name it comes before the forge of the same host.
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
        world.write_directly(Write::Put { record, expect: Expect::Anything });
        world.write_directly(tenant::put_listed(&name).unwrap());
    }
}

/// C5: only a forge whose API can be called is asked for what it never told, once for each project
/// however many tenants have it; whatever other connections lead to its host.
#[test]
fn the_projects_of_forges_are_asked_after_and_no_others() {
    let world = world();
    with_forges(&world);
    let timer = Timer::new(world.ports(), 1);
    for _ in 0..2 {
        // Twice in one minute is once.
        poll_once(timer.tick()).unwrap().unwrap();
    }
    let mut asked: Vec<String> = sent(&world, Queue::Events)
        .into_iter()
        .map(|poke| match poke {
            Poke::Delivery { project, delivery } => {
                let record = world.record(&delivery::key(&delivery)).unwrap();
                let stored: Delivery = decode(&record).unwrap();
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

/// C5: ticks come a minute apart, more or less: one that comes right before its minute, and the
/// next right after, leave nothing out.
#[test]
fn the_minute_after_has_those_asked_that_were_not() {
    let world = world();
    with_forges(&world);
    let timer = Timer::new(world.ports(), 10);
    assert_eq!(START.seconds() / 60 % 10, 1);
    poll_once(timer.tick()).unwrap().unwrap();
    let asked = sent(&world, Queue::Events).len();
    assert!(asked > 0);
    let of_one = world
        .records()
        .into_iter()
        .find(|record| record.key.partition.starts_with("delivery#"))
        .unwrap();
    poll_once(timer.tick()).unwrap().unwrap();
    assert_eq!(sent(&world, Queue::Events).len(), 0, "all of them were");
    let forget = || {
        world.write_directly(Write::Delete { key: of_one.key.clone(), expect: Expect::Anything })
    };
    forget();
    poll_once(timer.tick()).unwrap().unwrap();
    assert_eq!(sent(&world, Queue::Events).len(), 1, "one was not");
    forget();
    world.advance_millis(60_000);
    poll_once(timer.tick()).unwrap().unwrap();
    assert!(world.record(&of_one.key).is_none(), "the next minute leaves it to the next question");
}
