//! Starts tasks, polls them one step at a time, and applies their results or their deaths.

use super::*;
use crate::executors::{PauseState, Running};
use crate::task::Confirmation;
use sluice_model::build::Phase;

impl Sim {
    /// Starts a task that may be polled at once.
    pub(super) fn begin(&mut self, kind: Kind, future: impl Future<Output = Done> + 'static) {
        let resume_at = self.now();
        self.tasks_begun += 1;
        self.tasks.push(Task {
            id: self.tasks_begun,
            kind,
            future: Box::pin(future),
            resume_at,
            polls: 0,
        });
    }

    /// Receives a random number of messages and starts a function instance with them. Does nothing
    /// if no message is visible.
    pub(super) fn handle(&mut self, queue: MessageQueue) {
        let most = u32::try_from(self.random.between(1, 10)).unwrap_or(1);
        let messages = self.site.world.take_messages(queue, most, HIDDEN_SECONDS);
        if messages.is_empty() {
            return;
        }
        let hosts = self.hosts.get(&queue).map(Vec::as_slice).unwrap_or_default();
        let host = self.random.below(hosts.len());
        let Some(function) = hosts.get(host).cloned() else { return };
        let given = messages.clone();
        self.begin(Kind::Handle { queue, host, messages }, async move {
            Done::Handled(batch::handle(&*function, queue, given).await)
        });
    }

    /// Starts a timer instance with the dead letter at this index.
    pub(super) fn revive(&mut self, at: usize) {
        let (_, message) = self.dead.swap_remove(at);
        let host = self.random.below(2);
        let Some(function) =
            self.hosts.get(&MessageQueue::Wakes).and_then(|hosts| hosts.get(host)).cloned()
        else {
            return;
        };
        let given = vec![message.clone()];
        self.begin(Kind::Revive { host, message }, async move {
            Done::Handled(batch::handle(&*function, MessageQueue::Wakes, given).await)
        });
    }

    /// Starts the timer's tick and schedules the next one.
    pub(super) fn tick(&mut self) {
        self.next_tick = self.next_tick.max(self.now()).plus_seconds(TICK_SECONDS);
        let timer = self.timer.clone();
        self.begin(Kind::Tick, async move {
            // The timer logs a failure, and the next tick continues its work.
            let _ = timer.tick().await;
            Done::Nothing
        });
    }

    /// Signs the webhook at this index and starts the webhook function with it.
    pub(super) fn receive(&mut self, at: usize) {
        let (_, webhook) = self.webhooks.swap_remove(at);
        let mut headers = http::HeaderMap::new();
        let signature = sign(&ForgeSecret::new(WEBHOOK_SECRET), &webhook.body);
        for (name, value) in [
            ("x-github-delivery", &webhook.id),
            ("x-github-event", &webhook.event),
            ("x-hub-signature-256", &signature),
        ] {
            let Ok(value) = value.parse() else { return };
            headers.insert(name, value);
        }
        let (function, body) = (self.webhook.clone(), bytes::Bytes::from(webhook.body));
        self.begin(Kind::Webhook { id: webhook.id }, async move {
            function.receive(&"github".into(), &headers, &body).await;
            Done::Nothing
        });
    }

    /// Has a random executor with free capacity receive messages with builds, and claim those.
    pub(super) fn claim(&mut self, queue: MessageQueue) {
        let able: Vec<usize> =
            (0..self.executors.len()).filter(|at| self.executors[*at].has_capacity()).collect();
        let Some(at) = self.random.one(&able).copied() else { return };
        let messages = self.site.world.take_messages(queue, 3, 60);
        self.claim_by(at, queue, messages);
    }

    /// Starts an executor's claim of the builds in these messages. Skips builds that it already
    /// has.
    pub(super) fn claim_by(&mut self, at: usize, queue: MessageQueue, messages: Vec<Incoming>) {
        let executor = &mut self.executors[at];
        let (mut requests, mut receipts): (Vec<BuildMessage>, Vec<String>) =
            (Vec::new(), Vec::new());
        for message in messages {
            let Some(build) = serde_json::from_str::<Wakeup>(&message.body)
                .ok()
                .and_then(BuildMessage::from_wakeup)
            else {
                continue;
            };
            // Like the real executor: a running build is acknowledged, and the message of a build
            // that is still being claimed comes again.
            if executor.builds.iter().any(|running| running.claimed.run.build == build.build) {
                self.site.world.drop_message(queue, &message.receipt);
                continue;
            }
            if !executor.busy.insert(build.build.clone()) {
                continue;
            }
            requests.push(build);
            receipts.push(message.receipt);
        }
        if requests.is_empty() {
            return;
        }
        let (session, claims) = (executor.session.clone(), executor.claims.clone());
        let builds = requests.iter().map(|request| request.build.clone()).collect();
        self.begin(Kind::Claim { session, queue, receipts, builds }, async move {
            Done::Claimed(claims.claim(&requests).await)
        });
    }

    /// Has an executor end a build, or pause it if the build is one that pauses.
    pub(super) fn end_build(&mut self, executor: usize, build: usize) {
        if self.executors[executor].builds[build].is_to_pause() {
            return self.pause_build(executor, build);
        }
        let executor = &mut self.executors[executor];
        let running = executor.builds.swap_remove(build);
        let mut claimed = running.claimed;
        let truth = if self.settings.mutation == Some(crate::Mutation::LyingExecutor) {
            BuildResult::Success
        } else {
            executors::judge(&self.site, &claimed)
        };
        let mut ended =
            executors::ended(running.result_override.unwrap_or(truth), executor.ports.clock.now());
        if ended.result.passed() && self.settings.mutation != Some(Mutation::IgnoredChildJobs) {
            ended.data = executors::returned(&self.site, &claimed);
        }
        let (session, ports, id) =
            (executor.session.clone(), executor.ports.clone(), claimed.run.build.clone());
        executor.busy.insert(id.clone());
        if self.settings.mutation == Some(crate::Mutation::ForgottenEnds)
            && self.random.per_mille(300)
        {
            return;
        }
        let result_override = running.result_override;
        self.begin(Kind::End { session, build: id, result_override }, async move {
            let result = claim::end(&ports, &mut claimed, ended).await;
            Done::Ended(Box::new(claimed), Confirmation::of(&result))
        });
    }

    /// Has an executor announce that a build will fail. Does nothing if the build will pass.
    pub(super) fn will_fail(&mut self, executor: usize, build: usize) {
        let executor = &mut self.executors[executor];
        executor.builds[build].fails_at = None;
        if executors::judge(&self.site, &executor.builds[build].claimed).passed() {
            return;
        }
        let running = executor.builds.swap_remove(build);
        let (session, ports) = (executor.session.clone(), executor.ports.clone());
        let (mut claimed, ends_at) = (running.claimed, running.ends_at);
        let build = claimed.run.build.clone();
        executor.busy.insert(build.clone());
        self.begin(Kind::WillFail { session, build, ends_at }, async move {
            // Without the announcement, the gate reacts to the failure only at the end of the
            // build.
            let _ = claim::will_fail(&ports, &mut claimed).await;
            Done::Ended(Box::new(claimed), Confirmation::Unconfirmed)
        });
    }

    /// Polls a task once, and then applies its result, its death, or its next delay.
    ///
    /// # Errors
    /// A violated expectation, or that the task does not end.
    pub(super) fn poll(&mut self, at: usize) -> Result<(), Failure> {
        let mut task = self.tasks.swap_remove(at);
        task.polls += 1;
        if task.polls > POLLS_MAX {
            return Err(self.failure(format!("{} does not end", task.kind.name())));
        }
        let name = task.kind.name();
        self.site.forge.set_reader(task.id);
        self.publish_builds(&task.kind);
        let done = task.poll();
        let death = self.site.world.take_death();
        let struck = self.faults.lock().map(|mut faults| faults.take_struck()).unwrap_or_default();
        for fault in struck {
            self.log(format!("{name}: {fault}"));
        }
        if done.is_some() || death.is_some() {
            self.site.forge.forget_reader(task.id);
        }
        match (done, death) {
            (Some(done), _) => self.finished(task, done)?,
            (None, Some(_)) => self.died(task),
            (None, None) => {
                let now = self.now();
                let sleeps =
                    self.faults_are_on && self.random.per_mille(self.shape.fault_profile.sleeps);
                let step = self.site.world.last_step();
                let (least, most) = match (sleeps, EXTERNAL_CALLS.contains(&step)) {
                    (false, _) => (0, 30),
                    (true, false) => (20_000, 400_000),
                    (true, true) => (5_000, 20_000),
                };
                task.resume_at = now.plus_millis(self.random.between(least, most));
                if sleeps {
                    let seconds = task.resume_at.since(now) / 1_000;
                    self.log(format!("{name} sleeps for {seconds} s before {step}"));
                }
                self.tasks.push(task);
            }
        }
        Ok(())
    }

    /// Checks that the outbox of a message's cell was sent when the message is acknowledged: after
    /// a crash between a commit and its wakeups, only a message has them sent soon. Another message
    /// of the cell does that if it was received and not deleted: it is delivered again. So does a
    /// task that has a message of the cell, even one that is deleted.
    ///
    /// # Errors
    /// That the outbox was not sent.
    fn check_outbox(&self, queue: MessageQueue, acknowledged: &Incoming) -> Result<(), Failure> {
        let Some(key) = cell_of(&acknowledged.body) else { return Ok(()) };
        if !self.site.world.is_unsent(&key) {
            return Ok(());
        }
        let names_it = |body: &str| cell_of(body).as_ref() == Some(&key);
        let has_it = |task: &Task| match &task.kind {
            Kind::Handle { messages, .. } => messages.iter().any(|message| names_it(&message.body)),
            _ => false,
        };
        let received = self.site.world.received_messages(queue);
        if received.iter().any(|body| names_it(body)) || self.tasks.iter().any(has_it) {
            return Ok(());
        }
        Err(self.failure(format!(
            "the message for {key}, received {} times, is acknowledged, but its outbox was not sent",
            acknowledged.receive_count
        )))
    }

    /// Applies the result of a task: acknowledges messages, and starts or returns builds.
    ///
    /// # Errors
    /// That a build was given a secret that it must not have, or that it lacks what it requires.
    pub(super) fn finished(&mut self, task: Task, done: Done) -> Result<(), Failure> {
        match (task.kind, done) {
            (Kind::Handle { queue, messages, .. }, Done::Handled(failed)) => {
                let keeps = self.faults_are_on
                    && self.random.per_mille(self.shape.fault_profile.undeleted_messages);
                let is_done = |message: &Incoming| !keeps && !failed.contains(&message.id);
                let done: Vec<Incoming> = messages.into_iter().filter(is_done).collect();
                for message in &done {
                    self.site.world.drop_message(queue, &message.receipt);
                }
                for message in &done {
                    self.check_outbox(queue, message)?;
                }
            }
            (Kind::Revive { message, .. }, Done::Handled(failed)) if !failed.is_empty() => {
                self.retry_dead_letter(message)
            }
            (Kind::Claim { session, queue, receipts, builds }, Done::Claimed(claims)) => {
                let now = self.now();
                let Some(executor) =
                    self.executors.iter_mut().find(|executor| executor.session == session)
                else {
                    return Ok(());
                };
                let mut leaked = None;
                for ((claim, receipt), build) in claims.into_iter().zip(receipts).zip(builds) {
                    executor.busy.remove(&build);
                    if claim.is_err() {
                        executor.unconfirmed.insert(build);
                    } else {
                        executor.unconfirmed.remove(&build);
                    }
                    if let Ok(claimed) = claim {
                        self.site.world.drop_message(queue, &receipt);
                        if let Some(claimed) = claimed {
                            leaked = leaked.or(executors::leak(&claimed));
                            leaked = leaked.or_else(|| {
                                self.oracle.find_required_project_error(
                                    &claimed,
                                    &self.site.store.lock().unwrap(),
                                )
                            });
                            executor.begin(claimed, now, &mut self.random);
                        }
                    }
                }
                if let Some(leak) = leaked {
                    return Err(self.failure(leak));
                }
            }
            (Kind::Settle { session }, _) => self.settled(&session),
            (
                Kind::End { session, build, .. } | Kind::WillFail { session, build, .. },
                Done::Ended(_, Confirmation::Confirmed),
            ) => {
                let executor =
                    self.executors.iter_mut().find(|executor| executor.session == session);
                if let Some(executor) = executor {
                    executor.busy.remove(&build);
                }
            }
            (
                kind @ (Kind::End { .. } | Kind::WillFail { .. }),
                Done::Ended(claimed, Confirmation::Unconfirmed),
            ) => {
                let now = self.now();
                let later = now.plus_millis(self.random.between(200, 5_000));
                let Some(session) = kind.session() else { return Ok(()) };
                let Some(executor) =
                    self.executors.iter_mut().find(|executor| executor.session == *session)
                else {
                    return Ok(());
                };
                executor.busy.remove(&claimed.run.build);
                let claimed = *claimed;
                // A build that was stopped or given up while paused keeps that result.
                let is_paused = matches!(claimed.run.phase, Phase::Paused(_));
                let (ends_at, result_override) = match kind {
                    Kind::WillFail { ends_at, .. } => (ends_at.max(now), None),
                    Kind::End { result_override, .. } => {
                        (later, result_override.filter(|_| is_paused))
                    }
                    _ => (later, None),
                };
                let pause_state = PauseState::after(&claimed.run.phase);
                let fails_at = None;
                executor.builds.push(Running {
                    claimed,
                    ends_at,
                    fails_at,
                    result_override,
                    pause_state,
                });
            }
            (Kind::Pause { session, build }, Done::Paused(claimed, confirmation)) => {
                self.paused(&session, &build, *claimed, confirmation);
            }
            _ => {}
        }
        Ok(())
    }

    /// Replaces the process in which a task died: starts the function again or kills the executor.
    pub(super) fn died(&mut self, task: Task) {
        match task.kind {
            Kind::Handle { queue, host, .. } => self.restart_function(queue, host),
            Kind::Revive { host, message } => {
                self.restart_function(MessageQueue::Wakes, host);
                self.retry_dead_letter(message);
            }
            Kind::Tick => self.timer = self.site.timer(),
            Kind::Webhook { .. } => self.webhook = self.site.webhook(),
            kind => {
                let at = self
                    .executors
                    .iter()
                    .position(|executor| kind.session() == Some(&executor.session));
                if let Some(at) = at {
                    self.kill_executor(at, "dies");
                }
            }
        }
    }

    /// Replaces a function instance by a new one.
    pub(super) fn restart_function(&mut self, queue: MessageQueue, host: usize) {
        let function = self.site.function(queue);
        if let Some(instance) = self.hosts.get_mut(&queue).and_then(|hosts| hosts.get_mut(host)) {
            *instance = function;
        }
        let now = self.now();
        self.story.log(now, format!("a new instance of {} starts", name_of(queue)));
    }

    /// Puts a dead letter back, to be handled again after 30 s.
    pub(super) fn retry_dead_letter(&mut self, message: Incoming) {
        let at = self.now().plus_seconds(30);
        self.dead.push((at, Incoming { receive_count: message.receive_count + 1, ..message }));
    }
}

/// Returns the record whose outbox a message guards: the head of the queue or provider, or the
/// delivery. `None` for other messages; the outbox of a tenant is left to the sweep.
fn cell_of(body: &str) -> Option<sluice_runtime::Key> {
    match serde_json::from_str(body).ok()? {
        Wakeup::Queue { queue } | Wakeup::Answer { queue } => {
            Some(sluice_records::queue::head_key(&queue))
        }
        Wakeup::Pool { provider } | Wakeup::ProviderChange { provider, .. } => {
            Some(sluice_records::provider::head_key(&provider))
        }
        Wakeup::Delivery { delivery, .. } => Some(sluice_records::delivery::key(&delivery)),
        _ => None,
    }
}
