//! What happens to each message of a batch, by the answer of the function that reconciles it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use async_trait::async_trait;
use sluice_memory::{World, poll_once};
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{QueueKey, Timestamp};
use sluice_runtime::batch::{BROKEN_RECEIPTS_MAX, Reception, ReconcileError, Reconciler, handle};
use sluice_runtime::port::Incoming;
use sluice_runtime::quarantine::{QUARANTINE, halt_key};
use sluice_runtime::{Ports, record::Key};
use std::sync::Mutex;

/// A function that notes what it reconciles. It cannot decide on deliveries, queues and the tenant
/// `bad`; all else succeeds.
struct Function {
    ports: Ports,
    reconciled: Mutex<Vec<(Wakeup, Reception)>>,
}

impl Function {
    fn new(world: &World) -> Self {
        Self { ports: world.ports(), reconciled: Mutex::default() }
    }

    /// Handles a batch and returns the ids of the messages that must be delivered again.
    fn handle(&self, queue: MessageQueue, messages: Vec<Incoming>) -> Vec<String> {
        poll_once(handle(self, queue, messages)).unwrap()
    }
}

#[async_trait]
impl Reconciler for Function {
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        self.reconciled.lock().unwrap().push((wakeup.clone(), reception));
        let undecidable = |partition: &str| {
            Err(ReconcileError::Undecidable {
                partition: partition.to_owned(),
                reason: "its records contradict each other".to_owned(),
            })
        };
        match wakeup {
            Wakeup::Tenant { tenant } if tenant.to_string() == "bad" => undecidable("tenant#bad"),
            Wakeup::Delivery { .. } => undecidable("delivery#1"),
            Wakeup::Queue { .. } => undecidable("queue#t/gate/q"),
            _ => Ok(()),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

fn world() -> World {
    World::new(1, 0, Timestamp(1_000))
}

fn tenant(name: &str) -> Wakeup {
    Wakeup::Tenant { tenant: name.into() }
}

fn message(id: &str, group: &str, body: String, receive_count: u32) -> Incoming {
    Incoming {
        id: id.to_owned(),
        body,
        receipt: id.to_owned(),
        group: Some(group.to_owned()),
        receive_count,
    }
}

/// C2: a message that failed is delivered again, and so are those behind it in its group,
/// which keep their order. Other groups go on.
#[test]
fn a_failed_message_and_those_behind_it_in_its_group_are_delivered_again() {
    let function = Function::new(&world());
    let of = |id: &str, group: &str, name: &str| message(id, group, tenant(name).slot(), 1);
    let batch = vec![
        of("1", "a", "one"),
        of("2", "a", "bad"),
        of("3", "a", "two"),
        of("4", "b", "three"),
        of("5", "b", "three"),
    ];
    assert_eq!(function.handle(MessageQueue::Tenants, batch), ["2", "3"]);
    let reconciled = function.reconciled.lock().unwrap().clone();
    let first = |name: &str| (tenant(name), Reception::First);
    assert_eq!(reconciled, [first("one"), first("bad"), first("three")], "5 repeats 4");
}

/// C2: a function learns that a message was received before, and sends its outbox again.
#[test]
fn only_a_message_that_was_received_before_is_a_redelivery() {
    for (receipts, reception) in
        [(1, Reception::First), (2, Reception::Redelivery), (3, Reception::Redelivery)]
    {
        let function = Function::new(&world());
        let batch = vec![message("1", "a", tenant("one").slot(), receipts)];
        assert_eq!(function.handle(MessageQueue::Tenants, batch), Vec::<String>::new());
        assert_eq!(*function.reconciled.lock().unwrap(), [(tenant("one"), reception)]);
    }
}

/// C2: after the fourth receipt, a delivery that cannot be decided on no longer blocks its group,
/// since the sweep finds it; a tenant, which the sweep may not find, is delivered again.
#[test]
fn only_an_undecidable_message_that_the_sweep_finds_is_given_up() {
    let delivery = Wakeup::Delivery { delivery: "1".into(), project: "forge.test/org/one".into() };
    for (queue, wakeup, is_given_up) in
        [(MessageQueue::Events, delivery, true), (MessageQueue::Tenants, tenant("bad"), false)]
    {
        for receipts in 1..=BROKEN_RECEIPTS_MAX + 1 {
            let batch = vec![message("1", "a", wakeup.slot(), receipts)];
            let again = Function::new(&world()).handle(queue, batch);
            let is_last = is_given_up && receipts >= BROKEN_RECEIPTS_MAX;
            assert_eq!(again.len(), usize::from(!is_last), "{wakeup:?} {receipts}");
        }
    }
}

/// C2: a queue that cannot be decided on is halted at the fourth receipt, and not before.
#[test]
fn an_undecidable_queue_is_halted_at_the_fourth_receipt() {
    let queue = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() };
    for receipts in 1..=BROKEN_RECEIPTS_MAX + 1 {
        let world = world();
        let wakeup = Wakeup::Queue { queue: queue.clone() };
        let batch = vec![message("1", "a", wakeup.slot(), receipts)];
        let again = Function::new(&world).handle(MessageQueue::Gate, batch);
        let is_halted = world.record(&halt_key("queue#t/gate/q")).is_some();
        let is_last = receipts >= BROKEN_RECEIPTS_MAX;
        assert_eq!((again.len(), is_halted), (usize::from(!is_last), is_last), "{receipts}");
    }
}

/// C2: an unreadable message goes to quarantine, cut at a whole character within 32 KB.
#[test]
fn an_unreadable_message_is_quarantined_in_part() {
    for (characters, kept) in [(5, 5), (16 * 1024, 16 * 1024), (40_000, 16 * 1024)] {
        let world = world();
        let batch = vec![message("m1", "a", "ß".repeat(characters), 1)];
        let again = Function::new(&world).handle(MessageQueue::Gate, batch);
        assert_eq!(again, Vec::<String>::new());
        let record = world.record(&Key::new(QUARANTINE, "Gate#m1")).unwrap();
        assert_eq!(record.body.matches('ß').count(), kept, "{characters}");
    }
}
