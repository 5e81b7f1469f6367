//! Builds that are paused (Z4.3): what runs beside them, when they go on, and what becomes of the
//! rest where they are lost.

use super::line::{Place, Stage, Task};
use super::turn::Turn;
use sluice_model::BuildId;
use std::collections::BTreeSet;

impl Place {
    fn has_paused(&self) -> bool {
        self.tasks.iter().any(Task::is_paused)
    }

    /// Returns where the jobs are that come after one, directly or not.
    fn behind(&self, name: &str) -> BTreeSet<usize> {
        let (mut found, mut open) = (BTreeSet::new(), vec![name.to_owned()]);
        while let Some(before) = open.pop() {
            for (at, task) in self.tasks.iter().enumerate() {
                let comes_after =
                    task.dependencies.iter().any(|dependency| dependency.name.as_str() == before);
                if comes_after && task.name != name && found.insert(at) {
                    open.push(task.name.clone());
                }
            }
        }
        found
    }

    /// Returns whether all is over that a paused job waits for: what runs after the report waits
    /// for the job itself.
    fn is_over_beside(&self, paused: &Task) -> bool {
        let behind = self.behind(&paused.name).into_iter().map(|at| &self.tasks[at]);
        behind.filter(|task| paused.reporter || !task.reporter).all(Task::is_over)
    }

    /// Has all that ran beside a paused job, or was to, wait for its next build: this one is gone
    /// with what it served. Returns the builds that were under way there.
    pub(super) fn begin_again_beside(&mut self, name: &str) -> Vec<BuildId> {
        let mut gone = Vec::new();
        for at in self.behind(name) {
            let task = &mut self.tasks[at];
            gone.extend(task.stage.build().cloned());
            task.stage = Stage::Waiting;
        }
        gone
    }
}

impl Turn<'_> {
    /// Returns how many places something begins at while the last jobs of the first keep the rest
    /// waiting: what a paused build waits for comes to its end, and may be asked of all that is
    /// ahead of it.
    pub(super) fn begins_until(&self) -> usize {
        self.line.places.iter().rposition(Place::has_paused).map_or(0, |last| last + 1)
    }

    /// Has paused builds go on that nothing is left to wait for, wherever in the queue they are.
    /// One that several changes of a bundle share waits for what each of them has behind it.
    pub(super) fn resume(&mut self) {
        let places = &self.line.places;
        let mut ready: Vec<(usize, usize)> = Vec::new();
        for (at, place) in places.iter().enumerate() {
            for (nth, task) in place.tasks.iter().enumerate() {
                let Stage::Paused { build, goes_on: false } = &task.stage else { continue };
                let is_over_there = |other: &Place| {
                    let mut shared =
                        other.tasks.iter().filter(|task| task.stage.build() == build.as_ref());
                    shared.all(|task| other.is_over_beside(task))
                };
                if place.is_over_beside(task)
                    && (build.is_none() || places.iter().all(is_over_there))
                {
                    ready.push((at, nth));
                }
            }
        }
        for (at, nth) in ready {
            let place = &mut self.line.places[at];
            let (change, task) = (&place.change, &mut place.tasks[nth]);
            self.steps.push(format!("{} of {change} goes on: all behind it is over", task.name));
            if let Stage::Paused { build, goes_on } = &mut task.stage {
                *goes_on = true;
                self.resumes.extend(build.clone());
            }
        }
    }
}
