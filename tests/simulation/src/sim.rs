//! What moves a site: one thread, one clock, and a seed that says who goes on next.
//!
//! Every look at a message, every claim and every end of a build is a future that is polled here
//! and nowhere else. It stops where a call of a port *waits*, and others go on; so two functions
//! stand in the middle of one cell as often as not.

mod executing;
#[cfg(test)]
mod exhaustive;
mod landings;
mod tasks;

use crate::executors::{self, Executor};
use crate::faults::Faults;
use crate::oracle::Oracle;
use crate::people::People;
use crate::random::Random;
use crate::replay::Replay;
use crate::shape::Shape;
use crate::site::{HANDLED, START, Site, name_of};
use crate::story::Story;
use crate::task::{Done, Kind, Task};
use crate::watch::{News, Watch};
use crate::{Failure, Mutation, Settings};
use sluice_executor::claim::{self, Asked};
use sluice_forge::Secret;
use sluice_forge::webhook::sign;
use sluice_gate::LandingState;
use sluice_memory::Fate;
use sluice_model::build::BuildResult;
use sluice_model::event::ForgeEvent;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{SessionId, Timestamp};
use sluice_runtime::Clock;
use sluice_runtime::batch::{self, Look};
use sluice_runtime::port::Incoming;
use sluice_scenarios::forge::Webhook;
use sluice_scenarios::site::WEBHOOK_SECRET;
use sluice_timer::Timer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// Turns after which a site is taken for stuck.
const TURNS_MAX: u64 = 400_000;
/// Times that a task is polled before it is taken for one that never ends.
const POLLS_MAX: u32 = 100_000;
/// Seconds for which a received message is hidden.
const HIDDEN_SECONDS: u32 = 30;
/// Milliseconds after a change's entry into the gate, or its landing's beginning, within which
/// somebody changes their mind.
const GATE_MILLIS: u64 = 60_000;
const LANDING_MILLIS: u64 = 200;
/// Seconds from one tick of the timer to the next.
const TICK_SECONDS: u64 = 60;
/// How long before it is cut off an executor may have renewed its session last, at most.
const RENEWED_MILLIS: u64 = 1_000;

/// Calls that do something outside, which no fence guards. Whoever sleeps before one of them does
/// so within the time that a function has, after which its process is ended.
const OUTSIDE: [&str; 8] = [
    "forge.merge",
    "forge.fast_forward",
    "forge.set_status",
    "forge.put_comment",
    "forge.put_check_run",
    "forge.put_line_comments",
    "forge.change_labels",
    "forge.put_votes",
];

/// A site in motion.
pub struct Sim {
    /// What it is made of.
    pub site: Site,
    /// What the seed chose.
    pub shape: Shape,
    /// What must hold.
    pub watch: Watch,
    /// What should have come out.
    pub oracle: Oracle,
    /// What comes out once more.
    pub(crate) replay: Replay,
    /// What happened.
    pub story: Story,
    pub(crate) people: People,
    pub(crate) faults: Arc<Mutex<Faults>>,
    pub(crate) executors: Vec<Executor>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) webhooks: Vec<(Timestamp, Webhook)>,
    /// What the Gerrit tells, in its order.
    pub(crate) told: VecDeque<(Timestamp, String, ForgeEvent)>,
    told_count: u64,
    pub(crate) dead: Vec<(Timestamp, Incoming)>,
    random: Random,
    hosts: BTreeMap<Queue, Vec<Arc<dyn Look>>>,
    timer: Arc<Timer>,
    webhook: Arc<sluice_webhook::Webhook>,
    respawn_at: Vec<Timestamp>,
    executors_started: usize,
    next_tick: Timestamp,
    last_beat: Timestamp,
    merges_seen: usize,
    moves_seen: usize,
    /// Pushes that landed several changes at once.
    pub(crate) runs: u64,
    silent_since: BTreeMap<SessionId, Timestamp>,
    tasks_begun: u64,
    pub(crate) settings: Settings,
    pub(crate) faults_are_on: bool,
}

impl Sim {
    /// Makes the site of a seed.
    pub fn new(seed: u64, settings: Settings) -> Self {
        let shape = (settings.shape.clone()).unwrap_or_else(|| Shape::draw(seed));
        let mut site = Site::new(seed, &shape, settings.mutation);
        let faults = Arc::new(Mutex::new(Faults::new(seed, shape.weather.clone())));
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
            for (name, _) in shape.projects() {
                for branch in
                    shape.branches.iter().map(|branch| crate::site::branch_of(&name, branch))
                {
                    if let Some(tip) = store.tip(&branch) {
                        oracle.moved(&branch, &tip, &store);
                    }
                }
            }
        }
        let watch = Watch::new(&shape);
        // Other broken rules are to be noticed by what else is looked at.
        let is_replayed = settings.mutation.is_none_or(Mutation::is_for_replay);
        let replay = Replay::new(&shape, is_replayed);
        site.world.take_journal();
        let mut sim = Self {
            people: People::new(seed, &shape, START.plus_millis(3_000)),
            story: Story::new(START),
            random: Random::new(seed, 5),
            site,
            watch,
            oracle,
            replay,
            faults,
            executors: Vec::new(),
            tasks: Vec::new(),
            webhooks: Vec::new(),
            told: VecDeque::new(),
            told_count: 0,
            dead: Vec::new(),
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

    pub(crate) fn now(&self) -> Timestamp {
        self.site.world.now()
    }

    pub(crate) fn tell(&mut self, line: impl AsRef<str>) {
        let now = self.now();
        self.story.tell(now, line);
    }

    /// Switches what goes wrong on or off.
    pub(crate) fn set_faults(&mut self, is_on: bool) {
        self.faults_are_on = is_on;
        if let Ok(mut faults) = self.faults.lock() {
            faults.set_on(is_on);
        }
        if !is_on {
            self.site.forge.accept_merges();
            self.site.forge.accept_pushes();
            self.oracle.takes_merges();
            self.site.forge.set_behind(0);
            self.tell("nothing goes wrong from now on");
        }
    }

    /// Moves on until `is_over`.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn run_until(
        &mut self,
        mut is_over: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        for _ in 0..TURNS_MAX {
            if is_over(self) {
                return Ok(());
            }
            self.turn()?;
        }
        Err(self.failure("it does not come to an end"))
    }

    /// Returns a failure with the story so far.
    pub(crate) fn failure(&self, why: impl Into<String>) -> Failure {
        Failure { why: why.into(), story: self.story.text() }
    }

    /// Lets one thing happen.
    fn turn(&mut self) -> Result<(), Failure> {
        self.gather();
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
            for queue in [Queue::BuildsHigh, Queue::BuildsNormal, Queue::BuildsLow] {
                if world.has_visible(queue) && self.executors.iter().any(Executor::has_place) {
                    choices.push(Choice::Claim(queue));
                }
            }
            choices.extend((self.next_tick <= now).then_some(Choice::Tick));
        }
        choices.extend(self.webhooks.iter().position(|(at, _)| *at <= now).map(Choice::Webhook));
        choices
            .extend(self.told.front().is_some_and(|(at, ..)| *at <= now).then_some(Choice::Told));
        choices.extend(self.dead.iter().position(|(at, _)| *at <= now).map(Choice::Revive));
        choices.extend(self.people.next_at.is_some_and(|at| at <= now).then_some(Choice::People));
        choices.extend(
            self.people.next_thought().is_some_and(|at| at <= now).then_some(Choice::Thought),
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
            Choice::Told => {
                if let Some((_, id, event)) = self.told.pop_front() {
                    self.site.hear(&id, &event);
                }
            }
            Choice::Revive(at) => self.revive(at),
            Choice::People => {
                self.people.act(&self.site, &self.watch.heads, &mut self.oracle, &mut self.story)
            }
            Choice::Thought => {
                self.people.think_again(&self.site, &mut self.oracle, &mut self.story)
            }
            Choice::End(executor, build) => self.end_build(executor, build),
            Choice::WillFail(executor, build) => self.will_fail(executor, build),
        }
        let millis = self.random.between(0, 8);
        self.pass(millis);
        self.look()
    }

    /// Takes in what forge and queues put outside: webhooks on their way, messages that died.
    fn gather(&mut self) {
        let now = self.now();
        while let Some(webhook) = self.site.forge.next_webhook() {
            let weather = &self.shape.weather;
            if self.faults_are_on && self.random.per_mille(weather.lost_webhooks) {
                self.story
                    .tell(now, format!("the webhook {} ({}) is lost", webhook.id, webhook.event));
                continue;
            }
            let copies = if self.random.per_mille(weather.double_webhooks) { 2 } else { 1 };
            let most = *self.random.one(&[10, 10, 200, 5_000]).unwrap_or(&10);
            for _ in 0..copies {
                self.webhooks
                    .push((now.plus_millis(self.random.between(0, most)), webhook.clone()));
            }
        }
        self.listen(now);
        for (queue, body) in self.site.world.take_dead() {
            self.story.tell(now, format!("a message of {queue:?} dies: {body}"));
            let id = format!("dead-{}", self.random.between(0, u64::MAX / 2));
            let message = Incoming { receipt: id.clone(), id, body, group: None, receive_count: 1 };
            self.dead.push((now.plus_millis(1_000), message));
        }
    }

    /// Takes in what the Gerrit tells: one thing after the other, whenever.
    fn listen(&mut self, now: Timestamp) {
        while let Some(event) = self.site.forge.next_told() {
            self.told_count += 1;
            let id = format!("stream-{}", self.told_count);
            if self.faults_are_on && self.random.per_mille(self.shape.weather.lost_webhooks) {
                self.story.tell(now, format!("the event {id} is lost: {:?}", event.kind));
                continue;
            }
            let most = *self.random.one(&[10, 10, 200, 5_000]).unwrap_or(&10);
            let at = now.plus_millis(self.random.between(0, most));
            let at = self.told.back().map_or(at, |(last, ..)| at.max(*last));
            let copies =
                if self.random.per_mille(self.shape.weather.double_webhooks) { 2 } else { 1 };
            for _ in 0..copies {
                self.told.push_back((at, id.clone(), event.clone()));
            }
        }
    }

    /// Lets time pass until something can be done.
    fn wait(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let world = &self.site.world;
        let builds = self.executors.iter().flat_map(|executor| &executor.builds);
        let builds = builds.flat_map(|running| [Some(running.ends_at), running.fails_at]).flatten();
        let next = [
            Some(self.next_tick),
            world.next_message_at(),
            self.people.next_at,
            self.people.next_thought(),
        ]
        .into_iter()
        .flatten()
        .chain(self.tasks.iter().map(|task| task.resume_at))
        .chain(self.webhooks.iter().map(|(at, _)| *at))
        .chain(self.told.front().map(|(at, ..)| *at))
        .chain(self.dead.iter().map(|(at, _)| *at))
        .chain(self.executors.iter().filter_map(|executor| executor.silent_until))
        .chain(self.respawn_at.iter().copied())
        .chain(builds)
        .filter(|at| *at > now)
        .min();
        let millis = next.map_or(1_000, |next| next.since(now).clamp(1, TICK_SECONDS * 1_000));
        self.pass(millis);
        self.look()
    }

    /// Lets time pass, second by second where seconds count.
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
                self.accidents();
            }
        }
        self.wake_executors();
        for executor in &mut self.executors {
            executor.renew(&self.site);
            executor.hear_stops(&self.site, now);
            executor.hear_resumes(
                &self.site,
                now,
                self.settings.mutation == Some(Mutation::HastyResumes),
            );
        }
        self.settle_doubtful();
        let due = self.respawn_at.iter().filter(|at| **at <= now).count();
        self.respawn_at.retain(|at| *at > now);
        for _ in 0..due {
            self.start_executor();
        }
    }

    /// What may happen in a second.
    fn accidents(&mut self) {
        let weather = self.shape.weather.clone();
        if self.random.per_mille(weather.executors) && !self.executors.is_empty() {
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
                self.tell(format!("{session} is cut off for {seconds} s"));
                self.silent_since.insert(session, now);
            }
        }
        if self.random.per_mille(weather.machines) {
            let at = self.random.below(16);
            if let Some(machine) = self.site.cloud.lose(at) {
                self.tell(format!("the machine {machine} vanishes"));
            }
        }
        if self.random.per_mille(weather.outages / 15 + u64::from(weather.outages > 0)) {
            let begun = self.faults.lock().ok().map(|mut faults| faults.begin_outage());
            if let Some((service, seconds)) = begun {
                self.tell(format!("{service}* does not answer for {seconds} s"));
            }
        }
    }

    /// Executors that were cut off come back; those whose time was over have given their builds up,
    /// or know nothing of it.
    fn wake_executors(&mut self) {
        let now = self.now();
        for at in 0..self.executors.len() {
            let executor = &mut self.executors[at];
            let session = executor.session.clone();
            let Some(since) = self.silent_since.get(&session).copied() else { continue };
            let is_over = executor.is_over(since, now);
            // Others count from when it renewed its session last, which was before it was cut off.
            if executor.is_over(since, now.plus_millis(RENEWED_MILLIS)) {
                let builds =
                    executor.builds.iter().map(|running| running.claimed.run.build.clone());
                self.oracle.unlucky.extend(builds.chain(executor.busy.iter().cloned()));
            }
            if executor.silent_until.is_none_or(|until| until > now) {
                continue;
            }
            executor.silent_until = None;
            self.silent_since.remove(&session);
            let gives_up = is_over && self.random.per_mille(500);
            if gives_up {
                for running in &mut executor.builds {
                    (running.ends_at, running.instead) = (now, Some(BuildResult::Retry));
                }
            }
            let what =
                if gives_up { "is back, and gives its builds up" } else { "is back, and goes on" };
            self.story.tell(now, format!("{session} {what}"));
        }
    }

    fn start_executor(&mut self) {
        self.executors_started += 1;
        let executor = Executor::start(&mut self.site, self.executors_started);
        let skew = executor.skew_millis();
        let session = executor.session.clone();
        self.executors.push(executor);
        self.tell(format!("{session} starts; its clock is {skew} ms off"));
    }

    pub(crate) fn kill_executor(&mut self, at: usize, how: &str) {
        let executor = self.executors.swap_remove(at);
        let session = executor.session;
        self.tasks.retain(|task| task.kind.session() != Some(&session));
        self.silent_since.remove(&session);
        let builds = executor.builds.iter().map(|running| running.claimed.run.build.clone());
        self.oracle.unlucky.extend(builds.chain(executor.busy));
        self.tell(format!("{session} {how}"));
        let seconds = self.random.between(1, 30);
        self.respawn_at.push(self.now().plus_seconds(seconds));
    }

    /// Looks at everything that was written and merged since the last look.
    fn look(&mut self) -> Result<(), Failure> {
        self.look_at_merges().map_err(|why| self.failure(why))?;
        let written = self.site.world.take_journal();
        if written.is_empty() {
            return Ok(());
        }
        let news = self.watch.see(&written).map_err(|why| self.failure(why))?;
        for news in news {
            self.hear(news).map_err(|why| self.failure(why))?;
        }
        let (steps, why) = match self.replay.see(&written) {
            Ok(steps) => (steps, None),
            Err(difference) => (difference.steps, Some(difference.why)),
        };
        for step in steps {
            self.tell(step);
        }
        why.map_or(Ok(()), |why| Err(self.failure(why)))
    }

    fn hear(&mut self, news: News) -> Result<(), String> {
        match news {
            News::Entered(item, queue, ahead, is_to_leave) => {
                self.tell(format!("{} enters {queue}", item.candidate.change));
                if self.faults_are_on && crate::plays::lands(queue.pipeline.as_str()) {
                    self.people.is_tempted(
                        &item.candidate.change.key,
                        GATE_MILLIS,
                        self.site.world.now(),
                    );
                }
                self.oracle.has_come(&item.id, self.site.world.now());
                self.oracle.came_to_stand(
                    &item.candidate.change.key,
                    &queue,
                    self.site.world.now(),
                );
                self.oracle.entered(&item, &queue, &ahead, is_to_leave)
            }
            News::Left(set) => {
                let change = &set.item.candidate.change;
                let why = set.why.lines().next().unwrap_or_default();
                let now = self.site.world.now();
                self.story
                    .tell(now, format!("{change} leaves {}: {}: {why}", set.queue, set.result));
                self.oracle.left(&set, &self.site.store.lock().unwrap(), now)
            }
            News::Landing(landing) => {
                self.tell(format!("the landing of {} is {:?}", landing.change, landing.state));
                if self.faults_are_on && landing.state == LandingState::Wanted {
                    self.people.is_tempted(
                        &landing.change.key,
                        LANDING_MILLIS,
                        self.site.world.now(),
                    );
                }
                Ok(())
            }
            News::AfterReport(order, done) => {
                self.tell(format!(
                    "{} of {} is ordered, after its report",
                    order.job, order.change
                ));
                self.oracle.last_job_ordered(&order, done.as_ref())
            }
            News::Over(set) => {
                self.tell(format!(
                    "the jobs of {} after its report are over: {}",
                    set.item.candidate.change, set.why
                ));
                self.oracle.over(&set, &self.site.store.lock().unwrap())
            }
            News::NoRoom(change, queue) => {
                self.tell(format!("there is no room for {change} in {queue}"));
                self.oracle.has_no_room(&change.key, queue.pipeline.as_str());
                Ok(())
            }
            News::Line(line) => {
                self.tell(line);
                Ok(())
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    Poll(usize),
    Handle(Queue),
    Claim(Queue),
    Tick,
    Webhook(usize),
    Told,
    Revive(usize),
    People,
    Thought,
    End(usize, usize),
    WillFail(usize, usize),
}
