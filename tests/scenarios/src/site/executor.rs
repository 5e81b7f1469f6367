//! The played executor: claims builds like a real one, and ends them as the test's judge decides.

use super::Site;
use crate::repos::Tree;
use sluice_executor::claim::{self, BuildMessage, Claimed, Claims};
use sluice_memory::poll_once;
use sluice_model::build::{BuildResult, Pause, Phase, RunEnd};
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{BuildId, SessionId};
use sluice_runtime::Clock;
use sluice_runtime::record::Key;
use std::collections::BTreeMap;

impl Site {
    /// Returns the job of each build that a played executor runs.
    pub fn running(&self) -> Vec<String> {
        // A build with a written end has ended, even if its wakeup must be sent again.
        let runs =
            self.building.iter().filter(|claimed| !matches!(claimed.run.phase, Phase::Ended(_)));
        runs.map(|claimed| claimed.order.job.to_string()).collect()
    }

    /// Returns whether a played executor runs a build.
    pub fn is_building(&self) -> bool {
        !self.building.is_empty()
    }

    pub(super) fn claim_build(&mut self, queue: MessageQueue) {
        let (mut received, mut receipts): (Vec<BuildMessage>, Vec<Option<String>>) =
            (Vec::new(), Vec::new());
        for message in self.take(queue, 3) {
            let wakeup = serde_json::from_str::<Wakeup>(&message.body).unwrap();
            let build = BuildMessage::from_wakeup(wakeup).expect("a message about a build");
            let is_known = self.building.iter().any(|claimed| claimed.run.build == build.build)
                || received.iter().any(|message| message.build == build.build);
            if is_known {
                self.world.drop_message(queue, &message.receipt);
                continue;
            }
            received.push(build);
            receipts.push((!self.stays_for_redelivery(&message)).then_some(message.receipt));
        }
        let Some(claims) = poll_once(self.claims.claim(&received)) else { return self.die() };
        for (claim, receipt) in claims.into_iter().zip(receipts) {
            if let Ok(claimed) = claim {
                self.building.extend(claimed);
                match receipt {
                    Some(receipt) => self.world.drop_message(queue, &receipt),
                    None => self.came_again += 1,
                }
            }
        }
    }

    /// Ends the builds of a job, of all changes or of one, even if the job is held.
    pub fn release(&mut self, job: &str, change: Option<u64>) {
        let is_meant = |claimed: &Claimed| {
            claimed.order.job.as_str() == job
                && !matches!(claimed.run.phase, Phase::Paused(_))
                && (change.is_none() || claimed.order.change.key.number() == change)
        };
        while let Some(at) = self.building.iter().position(is_meant) {
            self.end_build_at(at);
        }
    }

    pub(super) fn may_end(&self, claimed: &Claimed) -> bool {
        let build = &claimed.run.build;
        match &claimed.run.phase {
            _ if self.is_stopped(build) => true,
            Phase::Paused(_) => self.has_record(&sluice_records::build::resume_key(build)),
            _ => !self.held.contains(claimed.order.job.as_str()),
        }
    }

    pub(super) fn end_build(&mut self) {
        let may_end: Vec<usize> =
            (0..self.building.len()).filter(|at| self.may_end(&self.building[*at])).collect();
        let at = may_end[self.draw(may_end.len())];
        self.end_build_at(at);
    }

    fn end_build_at(&mut self, at: usize) {
        let mut claimed = self.building.swap_remove(at);
        let ports = self.ports();
        if self.is_stopped(&claimed.run.build) {
            let ended = self.ended(BuildResult::Aborted);
            if poll_once(claim::end(&ports, &mut claimed, ended)).is_none() {
                self.die();
            }
            return;
        }
        let job = claimed.order.job.as_str();
        let result = (self.judge)(job, claimed.order.attempt, &self.files(&claimed));
        let data = (self.returns)(job);
        let pauses =
            data.get("zuul").and_then(|zuul| zuul.get("pause")).is_some_and(|pause| pause == true);
        let has_paused = matches!(claimed.run.phase, Phase::Paused(_));
        if pauses && !has_paused && result == BuildResult::Success {
            let pause = Pause { since: self.world.now(), data, data_object: None, log_url: None };
            match poll_once(claim::pause(&ports, &mut claimed, pause)) {
                None => self.die(),
                // Kept, so that a failed pause is repeated.
                Some(_) => self.building.push(claimed),
            }
            return;
        }
        let ended = RunEnd { data, ..self.ended(result) };
        match poll_once(claim::end(&ports, &mut claimed, ended)) {
            None => self.die(),
            Some(Ok(())) => {}
            // Repeated later, like a running executor does.
            Some(Err(_)) => self.building.push(claimed),
        }
    }

    /// Kills the executor process with all its builds and starts another one.
    pub fn die(&mut self) {
        self.deaths += 1;
        self.building.clear();
        self.session = SessionId(format!("executor-{}", self.deaths + 1));
        self.claims = Claims::new(self.ports(), self.session.clone());
        self.renew_session();
    }

    /// Lets the executor fall silent with all its builds, which are returned, and starts another
    /// one.
    pub fn fall_silent(&mut self) -> Vec<Claimed> {
        let silent = std::mem::take(&mut self.building);
        self.die();
        silent
    }

    fn is_stopped(&self, build: &BuildId) -> bool {
        self.has_record(&sluice_records::build::stop_key(build))
    }

    fn has_record(&self, key: &Key) -> bool {
        self.world.record(key).is_some()
    }

    fn ended(&self, result: BuildResult) -> RunEnd {
        let now = self.world.now();
        RunEnd {
            result,
            detail: None,
            started_at: Some(now),
            ended_at: now,
            data: serde_json::Map::new(),
            data_object: None,
            log_url: None,
        }
    }

    fn files(&self, claimed: &Claimed) -> BTreeMap<String, Tree> {
        let store = self.store.lock().unwrap();
        let branches = claimed.speculation.branches.iter();
        branches
            .map(|state| {
                (state.branch.project.name().to_owned(), store.tree(&state.result.id).clone())
            })
            .collect()
    }
}
