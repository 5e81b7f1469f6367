//! The scheduler of a site: one thread, one clock, and a seed that draws which task runs next.
//!
//! Every reconciliation, every claim and every end of a build is a future that only this module
//! polls. A future is suspended where a call of a port *waits*, and other futures continue. So two
//! functions are often in the middle of the same cell.

mod executing;
#[cfg(test)]
mod exhaustive;
mod landings;
mod tasks;

use crate::actors::Actors;
use crate::executors::{self, Executor, ResumeRule};
use crate::faults::{FaultInjection, Faults};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::shape::Shape;
use crate::site::{HANDLED, START, Site, name_of};
use crate::story::Story;
use crate::task::{Done, Kind, Task};
use crate::watch::{Watch, WriteEffect};
use crate::{Failure, Mutation, Settings};
use sluice_executor::claim::{self, BuildMessage};
use sluice_forge::ForgeSecret;
use sluice_forge::webhook::sign;
use sluice_gate::LandingState;
use sluice_memory::Fate;
use sluice_model::build::BuildResult;
use sluice_model::event::ForgeEvent;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{SessionId, Timestamp};
use sluice_runtime::Clock;
use sluice_runtime::batch::{self, Reconciler};
use sluice_runtime::port::Incoming;
use sluice_scenarios::forge::Webhook;
use sluice_scenarios::site::WEBHOOK_SECRET;
use sluice_timer::Timer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

/// How many steps a phase of a run may take before the site counts as stuck.
const STEPS_MAX: u64 = 400_000;
/// How often a task may be polled before it counts as one that never ends.
const POLLS_MAX: u32 = 100_000;
/// Seconds for which a received message is hidden.
const HIDDEN_SECONDS: u32 = 30;
/// Milliseconds after a change enters a gate within which a reviewer may withdraw the approval.
const GATE_MILLIS: u64 = 60_000;
/// Milliseconds after a landing is ordered within which a reviewer may withdraw the approval.
const LANDING_MILLIS: u64 = 200;
/// Seconds from one tick of the timer to the next.
const TICK_SECONDS: u64 = 60;
/// The longest time between an executor's last renewal of its session and its disconnection.
const RENEWED_MILLIS: u64 = 1_000;

/// Calls with an external effect that no fence guards. A function that sleeps before one of them
/// sleeps for less than the function's time limit, which would end its process.
const EXTERNAL_CALLS: [&str; 8] = [
    "forge.merge",
    "forge.fast_forward",
    "forge.set_status",
    "forge.put_comment",
    "forge.put_check_run",
    "forge.put_line_comments",
    "forge.change_labels",
    "forge.put_votes",
];

/// A site together with everything that moves and checks it.
pub struct Sim {
    /// The world, the played external services and the real functions.
    pub site: Site,
    /// What the seed drew.
    pub shape: Shape,
    /// The checks of every write.
    pub watch: Watch,
    /// The expected decisions.
    pub oracle: Oracle,
    /// The log.
    pub story: Story,
    /// The people who use the site.
    pub(crate) actors: Actors,
    /// The outcome of each call.
    pub(crate) faults: Arc<Mutex<Faults>>,
    /// The executors that are alive.
    pub(crate) executors: Vec<Executor>,
    /// The functions and executor actions that are running.
    pub(crate) tasks: Vec<Task>,
    /// Webhooks that are on their way, and when each arrives.
    pub(crate) webhooks: Vec<(Timestamp, Webhook)>,
    /// Events of the Gerrit's stream that are on their way, in stream order: when each arrives, and
    /// its id.
    pub(crate) stream_events: VecDeque<(Timestamp, String, ForgeEvent)>,
    /// How many events the Gerrit's stream has had.
    stream_event_count: u64,
    /// Messages in the dead-letter queue, and when each is handled.
    pub(crate) dead: Vec<(Timestamp, Incoming)>,
    /// The message groups with a report that became a dead letter. It is sent after later reports
    /// of its group.
    pub(crate) late_report_groups: BTreeSet<String>,
    /// Draws which step is next, and how long it takes.
    random: Random,
    /// The function instances of each message queue.
    hosts: BTreeMap<MessageQueue, Vec<Arc<dyn Reconciler>>>,
    timer: Arc<Timer>,
    webhook: Arc<sluice_webhook::WebhookReceiver>,
    /// When executors start in place of those that died.
    respawn_at: Vec<Timestamp>,
    /// How many executors have been started.
    executors_started: usize,
    /// When the timer ticks next.
    next_tick: Timestamp,
    /// The last whole second for which accidents were drawn.
    last_beat: Timestamp,
    /// How many of the forge's merges were checked.
    merges_seen: usize,
    /// How many of the forge's branch moves were checked.
    moves_seen: usize,
    /// How many pushes landed several changes at once.
    pub(crate) runs: u64,
    /// Since when each disconnected executor is disconnected.
    silent_since: BTreeMap<SessionId, Timestamp>,
    /// How many tasks have been started.
    tasks_begun: u64,
    /// Overrides of what the seed drew.
    pub(crate) settings: Settings,
    /// Whether faults and accidents happen.
    pub(crate) faults_are_on: bool,
}

impl Sim {
    /// Returns the site of a seed before its first step, with faults switched off.
    pub fn new(seed: u64, settings: Settings) -> Self {
        let shape = (settings.shape.clone()).unwrap_or_else(|| Shape::draw(seed));
        let mut site = Site::new(seed, &shape, settings.mutation);
        let faults = Arc::new(Mutex::new(Faults::new(seed, shape.fault_profile.clone())));
        let decides = faults.clone();
        site.world.decide_fates(move |step| match step.caller {
            "operator" => Fate::Works,
            _ => decides.lock().map_or(Fate::Works, |mut faults| faults.decide(step)),
        });
        let mut hosts = BTreeMap::new();
        for queue in HANDLED {
            hosts.insert(queue, (0..2).map(|_| site.function(queue)).collect());
        }
        let (timer, webhook) = (site.timer(), site.webhook());
        let mut oracle = Oracle::new(&shape);
        {
            let store = site.store.lock().unwrap();
            let names = shape.projects().into_iter().map(|(name, _)| name);
            for name in names.chain(shape.newcomers()) {
                for branch in
                    shape.branches.iter().map(|branch| crate::site::branch_of(&name, branch))
                {
                    if let Some(tip) = store.tip(&branch) {
                        oracle.record_branch_move(&branch, &tip, &store);
                    }
                }
            }
        }
        let watch = Watch::new(&shape);
        site.world.take_journal();
        let mut sim = Self {
            actors: Actors::new(seed, &shape, START.plus_millis(3_000)),
            story: Story::new(START),
            random: Random::new(seed, 5),
            site,
            watch,
            oracle,
            faults,
            executors: Vec::new(),
            tasks: Vec::new(),
            webhooks: Vec::new(),
            stream_events: VecDeque::new(),
            stream_event_count: 0,
            dead: Vec::new(),
            late_report_groups: BTreeSet::new(),
            hosts,
            timer,
            webhook,
            respawn_at: Vec::new(),
            executors_started: 0,
            next_tick: START,
            last_beat: START,
            merges_seen: 0,
            moves_seen: 0,
            runs: 0,
            silent_since: BTreeMap::new(),
            tasks_begun: 0,
            faults_are_on: false,
            shape,
            settings,
        };
        if sim.settings.mutation == Some(crate::Mutation::LyingForge) {
            sim.site.forge.sabotage([("stray".to_owned(), String::new())].into());
        }
        if sim.settings.mutation == Some(crate::Mutation::Overreach) {
            sim.site.forge.overreach();
        }
        for _ in 0..sim.shape.executors {
            sim.start_executor();
        }
        sim
    }

    /// Returns the true virtual time.
    pub(crate) fn now(&self) -> Timestamp {
        self.site.world.now()
    }

    /// Appends a line to the log.
    pub(crate) fn log(&mut self, line: impl AsRef<str>) {
        let now = self.now();
        self.story.log(now, line);
    }

    /// Switches faults and accidents on or off. Off also makes the forge accept merges and pushes
    /// and show the current state.
    pub(crate) fn switch_faults(&mut self, state: FaultInjection) {
        self.faults_are_on = state == FaultInjection::On;
        if let Ok(mut faults) = self.faults.lock() {
            faults.switch(state);
        }
        if state == FaultInjection::Off {
            self.site.forge.accept_merges();
            self.site.forge.accept_pushes();
            self.oracle.stop_refusing_merges();
            self.site.forge.set_behind(0);
            self.log("faults are switched off");
        }
    }

    /// Runs steps until `is_over` returns true.
    ///
    /// # Errors
    /// The first violated expectation, or that the site is stuck.
    pub(crate) fn run_until(
        &mut self,
        mut is_over: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        for _ in 0..STEPS_MAX {
            if is_over(self) {
                return Ok(());
            }
            self.step()?;
        }
        Err(self.failure("the site does not come to rest"))
    }

    /// Returns a failure with the log so far.
    pub(crate) fn failure(&self, why: impl Into<String>) -> Failure {
        Failure { why: why.into(), story: self.story.text() }
    }

    /// Draws and runs one possible step, lets time pass, and checks what was written.
    fn step(&mut self) -> Result<(), Failure> {
        self.collect_external_output();
        let now = self.now();
        let mut choices: Vec<Choice> = Vec::new();
        let ready = (self.tasks.iter().enumerate()).filter(|(_, task)| task.resume_at <= now);
        choices.extend(ready.map(|(at, _)| Choice::Poll(at)));
        if self.tasks.len() < self.shape.tasks_max {
            let world = &self.site.world;
            let unserved = match self.settings.mutation {
                Some(Mutation::Unserved(queue)) => Some(queue),
                _ => None,
            };
            let served = HANDLED
                .into_iter()
                .filter(|queue| world.has_visible(*queue) && unserved != Some(*queue));
            choices.extend(served.map(Choice::Handle));
            for queue in
                [MessageQueue::BuildsHigh, MessageQueue::BuildsNormal, MessageQueue::BuildsLow]
            {
                if world.has_visible(queue) && self.executors.iter().any(Executor::has_capacity) {
                    choices.push(Choice::Claim(queue));
                }
            }
            choices.extend((self.next_tick <= now).then_some(Choice::Tick));
        }
        choices.extend(self.webhooks.iter().position(|(at, _)| *at <= now).map(Choice::Webhook));
        choices.extend(
            self.stream_events
                .front()
                .is_some_and(|(at, ..)| *at <= now)
                .then_some(Choice::StreamEvent),
        );
        choices.extend(self.dead.iter().position(|(at, _)| *at <= now).map(Choice::Revive));
        choices.extend(self.actors.next_at.is_some_and(|at| at <= now).then_some(Choice::Act));
        choices.extend(
            self.actors
                .next_intention_at()
                .is_some_and(|at| at <= now)
                .then_some(Choice::Reconsider),
        );
        for (at, executor) in self.executors.iter().enumerate() {
            let is_over = |running: &executors::Running| running.ends_at <= now;
            let may = executor.silent_until.is_none();
            choices.extend(
                executor
                    .builds
                    .iter()
                    .position(is_over)
                    .filter(|_| may)
                    .map(|b| Choice::End(at, b)),
            );
            let fails = |running: &executors::Running| {
                running.fails_at.is_some_and(|fails_at| fails_at <= now)
            };
            choices.extend(
                executor
                    .builds
                    .iter()
                    .position(fails)
                    .filter(|_| may)
                    .map(|b| Choice::WillFail(at, b)),
            );
        }
        let Some(choice) = self.random.one(&choices).copied() else { return self.wait() };
        match choice {
            Choice::Poll(at) => self.poll(at)?,
            Choice::Handle(queue) => self.handle(queue),
            Choice::Claim(queue) => self.claim(queue),
            Choice::Tick => self.tick(),
            Choice::Webhook(at) => self.receive(at),
            Choice::StreamEvent => {
                if let Some((_, id, event)) = self.stream_events.pop_front() {
                    self.site.store_stream_event(&id, &event);
                }
            }
            Choice::Revive(at) => self.revive(at),
            Choice::Act => {
                self.actors.act(&self.site, &self.watch.heads, &mut self.oracle, &mut self.story)
            }
            Choice::Reconsider => {
                self.actors.act_on_intention(&self.site, &mut self.oracle, &mut self.story)
            }
            Choice::End(executor, build) => self.end_build(executor, build),
            Choice::WillFail(executor, build) => self.will_fail(executor, build),
        }
        let millis = self.random.between(0, 8);
        self.pass(millis);
        self.check_written()
    }

    /// Collects new webhooks, stream events and dead letters. Faults drop or duplicate some events.
    fn collect_external_output(&mut self) {
        let now = self.now();
        while let Some(webhook) = self.site.forge.next_webhook() {
            let fault_profile = &self.shape.fault_profile;
            if self.faults_are_on && self.random.per_mille(fault_profile.dropped_webhooks) {
                self.story
                    .log(now, format!("the webhook {} ({}) is dropped", webhook.id, webhook.event));
                continue;
            }
            let copies =
                if self.random.per_mille(fault_profile.duplicated_webhooks) { 2 } else { 1 };
            let most = *self.random.one(&[10, 10, 200, 5_000]).unwrap_or(&10);
            for _ in 0..copies {
                self.webhooks
                    .push((now.plus_millis(self.random.between(0, most)), webhook.clone()));
            }
        }
        self.collect_stream_events(now);
        for (queue, body) in self.site.world.take_dead() {
            self.story
                .log(now, format!("a message of {queue:?} goes to the dead-letter queue: {body}"));
            if let Ok(Wakeup::Report { group, .. }) = serde_json::from_str(&body) {
                self.late_report_groups.insert(group);
            }
            let id = format!("dead-{}", self.random.between(0, u64::MAX / 2));
            let message = Incoming { receipt: id.clone(), id, body, group: None, receive_count: 1 };
            self.dead.push((now.plus_millis(1_000), message));
        }
    }

    /// Collects new events of the Gerrit's stream. Each gets a random delay and they stay in order.
    fn collect_stream_events(&mut self, now: Timestamp) {
        while let Some(event) = self.site.forge.next_stream_event() {
            self.stream_event_count += 1;
            let id = format!("stream-{}", self.stream_event_count);
            if self.faults_are_on
                && self.random.per_mille(self.shape.fault_profile.dropped_webhooks)
            {
                self.story.log(now, format!("the event {id} is dropped: {:?}", event.kind));
                continue;
            }
            let most = *self.random.one(&[10, 10, 200, 5_000]).unwrap_or(&10);
            let at = now.plus_millis(self.random.between(0, most));
            let at = self.stream_events.back().map_or(at, |(last, ..)| at.max(*last));
            let copies = if self.random.per_mille(self.shape.fault_profile.duplicated_webhooks) {
                2
            } else {
                1
            };
            for _ in 0..copies {
                self.stream_events.push_back((at, id.clone(), event.clone()));
            }
        }
    }

    /// Lets time pass until the next step is possible.
    fn wait(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let world = &self.site.world;
        let builds = self.executors.iter().flat_map(|executor| &executor.builds);
        let builds = builds.flat_map(|running| [Some(running.ends_at), running.fails_at]).flatten();
        let next = [
            Some(self.next_tick),
            world.next_message_at(),
            self.actors.next_at,
            self.actors.next_intention_at(),
        ]
        .into_iter()
        .flatten()
        .chain(self.tasks.iter().map(|task| task.resume_at))
        .chain(self.webhooks.iter().map(|(at, _)| *at))
        .chain(self.stream_events.front().map(|(at, ..)| *at))
        .chain(self.dead.iter().map(|(at, _)| *at))
        .chain(self.executors.iter().filter_map(|executor| executor.silent_until))
        .chain(self.respawn_at.iter().copied())
        .chain(builds)
        .filter(|at| *at > now)
        .min();
        let millis = next.map_or(1_000, |next| next.since(now).clamp(1, TICK_SECONDS * 1_000));
        self.pass(millis);
        self.check_written()
    }

    /// Advances the clock. For each whole second draws accidents; then executors renew and read
    /// their records, and new executors start.
    fn pass(&mut self, millis: u64) {
        self.site.world.advance_millis(millis);
        let now = self.now();
        if let Ok(mut faults) = self.faults.lock() {
            faults.set_now(now);
        }
        let seconds = now.since(self.last_beat) / 1_000;
        if seconds == 0 {
            return;
        }
        self.last_beat = self.last_beat.plus_seconds(seconds);
        if self.faults_are_on {
            for _ in 0..seconds {
                self.draw_accidents();
            }
        }
        self.reconnect_executors();
        let resume_rule = match self.settings.mutation {
            Some(Mutation::EarlyResumes) => ResumeRule::AtOnce,
            _ => ResumeRule::WhenRequested,
        };
        let lists_unconfirmed = self.settings.mutation == Some(Mutation::UnsettledClaims);
        for executor in &mut self.executors {
            executor.lists_unconfirmed = lists_unconfirmed;
            executor.renew(&self.site);
            executor.apply_stops(&self.site, now);
            executor.apply_resumes(&self.site, now, resume_rule);
        }
        self.settle_unconfirmed_claims();
        let due = self.respawn_at.iter().filter(|at| **at <= now).count();
        self.respawn_at.retain(|at| *at > now);
        for _ in 0..due {
            self.start_executor();
        }
    }

    /// Draws what goes wrong within one second: executors, machines and whole services.
    fn draw_accidents(&mut self) {
        let fault_profile = self.shape.fault_profile.clone();
        if self.random.per_mille(fault_profile.executors) && !self.executors.is_empty() {
            let at = self.random.below(self.executors.len());
            if self.random.per_mille(400) {
                self.kill_executor(at, "dies");
            } else if self.executors[at].silent_until.is_none() {
                let now = self.now();
                let seconds = self.random.between(3, 60);
                let executor = &mut self.executors[at];
                executor.silent_until = Some(now.plus_seconds(seconds));
                let session = executor.session.clone();
                for task in
                    self.tasks.iter_mut().filter(|task| task.kind.session() == Some(&session))
                {
                    task.resume_at = task.resume_at.max(now.plus_seconds(seconds));
                }
                self.log(format!("{session} is disconnected for {seconds} s"));
                self.silent_since.insert(session, now);
            }
        }
        if self.random.per_mille(fault_profile.machines) {
            let at = self.random.below(16);
            if let Some(machine) = self.site.cloud.lose(at) {
                self.log(format!("the machine {machine} vanishes"));
            }
        }
        if self.random.per_mille(fault_profile.outages / 15 + u64::from(fault_profile.outages > 0))
        {
            let begun = self.faults.lock().ok().map(|mut faults| faults.begin_outage());
            if let Some((service, seconds)) = begun {
                self.log(format!("calls of {service}* fail for {seconds} s"));
            }
        }
    }

    /// Reconnects executors whose disconnection is over. One whose session expired meanwhile either
    /// gives its builds up or continues them.
    fn reconnect_executors(&mut self) {
        let now = self.now();
        for at in 0..self.executors.len() {
            let executor = &mut self.executors[at];
            let session = executor.session.clone();
            let Some(since) = self.silent_since.get(&session).copied() else { continue };
            let has_expired = executor.has_expired(since, now);
            // The gate counts from the last renewal, which was before the disconnection.
            if executor.has_expired(since, now.plus_millis(RENEWED_MILLIS)) {
                let builds =
                    executor.builds.iter().map(|running| running.claimed.run.build.clone());
                self.oracle.interrupted_builds.extend(builds.chain(executor.busy.iter().cloned()));
            }
            if executor.silent_until.is_none_or(|until| until > now) {
                continue;
            }
            executor.silent_until = None;
            self.silent_since.remove(&session);
            let gives_up = has_expired && self.random.per_mille(500);
            if gives_up {
                for running in &mut executor.builds {
                    (running.ends_at, running.result_override) = (now, Some(BuildResult::Retry));
                }
            }
            let action = if gives_up {
                "is reconnected and gives its builds up"
            } else {
                "is reconnected and continues"
            };
            self.story.log(now, format!("{session} {action}"));
        }
    }

    /// Starts an executor with a clock of its own.
    fn start_executor(&mut self) {
        self.executors_started += 1;
        let executor = Executor::start(&mut self.site, self.executors_started);
        let skew = executor.skew_millis();
        let session = executor.session.clone();
        self.executors.push(executor);
        self.log(format!("{session} starts; its clock is {skew} ms off"));
    }

    /// Ends an executor with its tasks and builds, and schedules a replacement. `how` is the verb
    /// phrase for the log.
    pub(crate) fn kill_executor(&mut self, at: usize, how: &str) {
        let executor = self.executors.swap_remove(at);
        let session = executor.session;
        self.tasks.retain(|task| task.kind.session() != Some(&session));
        self.silent_since.remove(&session);
        let builds = executor.builds.iter().map(|running| running.claimed.run.build.clone());
        self.oracle.interrupted_builds.extend(builds.chain(executor.busy));
        self.log(format!("{session} {how}"));
        let seconds = self.random.between(1, 30);
        self.respawn_at.push(self.now().plus_seconds(seconds));
    }

    /// Checks everything that was merged and written since the last check: by the watch and the
    /// oracle.
    fn check_written(&mut self) -> Result<(), Failure> {
        self.oracle.record_time(self.now());
        self.check_merges().map_err(|why| self.failure(why))?;
        let written = self.site.world.take_journal();
        if written.is_empty() {
            return Ok(());
        }
        let effects = self.watch.check_writes(&written).map_err(|why| self.failure(why))?;
        for effect in effects {
            self.apply(effect).map_err(|why| self.failure(why))?;
        }
        Ok(())
    }

    /// Logs what a write did, and has the oracle check it.
    fn apply(&mut self, effect: WriteEffect) -> Result<(), String> {
        match effect {
            WriteEffect::Entered(item, queue, ahead, is_to_leave) => {
                self.log(format!("{} enters {queue}", item.candidate.change));
                if self.faults_are_on && crate::scenarios::lands(queue.pipeline.as_str()) {
                    self.actors.consider_withdrawal(
                        &item.candidate.change.key,
                        GATE_MILLIS,
                        self.site.world.now(),
                    );
                }
                self.oracle.record_entry(&item.id, self.site.world.now());
                self.oracle.record_gate_entry(
                    &item.candidate.change.key,
                    &queue,
                    self.site.world.now(),
                );
                self.oracle.check_entry(&item, &queue, &ahead, is_to_leave)
            }
            WriteEffect::Left(set) => {
                let change = &set.item.candidate.change;
                let why = set.why.lines().next().unwrap_or_default();
                let now = self.site.world.now();
                self.story
                    .log(now, format!("{change} leaves {}: {}: {why}", set.queue, set.result));
                self.oracle.check_result(&set, &self.site.store.lock().unwrap(), now)
            }
            WriteEffect::Landing(landing) => {
                self.log(format!("the landing of {} is {:?}", landing.change, landing.state));
                if self.faults_are_on && landing.state == LandingState::Ordered {
                    self.actors.consider_withdrawal(
                        &landing.change.key,
                        LANDING_MILLIS,
                        self.site.world.now(),
                    );
                }
                Ok(())
            }
            WriteEffect::ReporterJobOrdered(order, done) => {
                self.log(format!("the reporter job {} of {} is ordered", order.job, order.change));
                self.oracle.check_reporter_job_order(&order, done.as_ref())
            }
            WriteEffect::ReporterJobsEnded(set) => {
                self.log(format!(
                    "the reporter jobs of {} have ended: {}",
                    set.item.candidate.change, set.why
                ));
                self.oracle.check_reporter_job_result(&set, &self.site.store.lock().unwrap())
            }
            WriteEffect::NoRoom(change, queue) => {
                self.log(format!("there is no room for {change} in {queue}"));
                self.oracle.record_no_room(&change.key, queue.pipeline.as_str());
                Ok(())
            }
            WriteEffect::Line(line) => {
                self.log(line);
                Ok(())
            }
        }
    }
}

/// A possible step of the site.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// Continue the task with this index.
    Poll(usize),
    /// Start a function with messages of this queue.
    Handle(MessageQueue),
    /// Have an executor receive messages of this queue.
    Claim(MessageQueue),
    /// Start the timer's tick.
    Tick,
    /// Deliver the webhook with this index.
    Webhook(usize),
    /// Store the next event of the Gerrit's stream.
    StreamEvent,
    /// Handle the dead letter with this index.
    Revive(usize),
    /// Have an actor do something.
    Act,
    /// Have an actor act on an intention that is due.
    Reconsider,
    /// Have an executor end a build: their indexes.
    End(usize, usize),
    /// Have an executor announce that a build will fail: their indexes.
    WillFail(usize, usize),
}
