//! Finds dependency cycles between the jobs of an item.

use sluice_model::JobName;
use sluice_model::job::FrozenJob;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of cycles reported for the jobs of one item.
const CYCLES_MAX: usize = 20;

/// Returns dependency cycles between the jobs, at most 20. No job is in two of them, so of cycles
/// that share a job only one is returned. Each cycle names its jobs once, starts with the job that
/// comes first in `jobs`, and each job depends on the next. Jobs that only depend on a cycle are in
/// none. Soft dependencies count like hard ones, and dependencies on jobs that are not in `jobs`
/// are ignored.
pub(super) fn dependency_cycles(jobs: &[FrozenJob]) -> Vec<Vec<JobName>> {
    let dependencies_of: BTreeMap<&JobName, Vec<&JobName>> = jobs
        .iter()
        .map(|job| {
            (&job.name, job.dependencies.iter().map(|dependency| &dependency.name).collect())
        })
        .collect();
    let mut remaining: BTreeSet<&JobName> = dependencies_of.keys().copied().collect();
    let mut found = Vec::new();
    while found.len() < CYCLES_MAX {
        remove_acyclic(&dependencies_of, &mut remaining);
        let Some(first) = jobs.iter().map(|job| &job.name).find(|name| remaining.contains(name))
        else {
            break;
        };
        let mut cycle = follow(first, &dependencies_of, &remaining);
        cycle.iter().for_each(|name| {
            remaining.remove(name);
        });
        let place = |name: &JobName| jobs.iter().position(|job| job.name == *name);
        let listed_first =
            (0..cycle.len()).min_by_key(|number| cycle.get(*number).map(|name| place(name)));
        cycle.rotate_left(listed_first.unwrap_or_default());
        found.push(cycle.into_iter().cloned().collect());
    }
    found
}

/// Removes from `remaining`, repeatedly, the jobs that depend on no job in it. The jobs that stay
/// are in a cycle, if only with themselves, or depend on one.
fn remove_acyclic<'j>(
    dependencies_of: &BTreeMap<&'j JobName, Vec<&'j JobName>>,
    remaining: &mut BTreeSet<&'j JobName>,
) {
    loop {
        let is_free = |name: &&JobName| {
            !dependencies_of
                .get(*name)
                .is_some_and(|others| others.iter().any(|one| remaining.contains(one)))
        };
        let free: Vec<&'j JobName> = remaining.iter().copied().filter(is_free).collect();
        if free.is_empty() {
            return;
        }
        free.into_iter().for_each(|name| {
            remaining.remove(name);
        });
    }
}

/// Follows dependencies from `first` to other remaining jobs until a job repeats, and returns the
/// jobs of that cycle; `first` need not be one of them. The caller has made sure that every
/// remaining job depends on a remaining one (see [`remove_acyclic`]).
fn follow<'j>(
    first: &'j JobName,
    dependencies_of: &BTreeMap<&'j JobName, Vec<&'j JobName>>,
    remaining: &BTreeSet<&'j JobName>,
) -> Vec<&'j JobName> {
    let mut path = vec![first];
    let mut here = first;
    while let Some(next) = dependencies_of
        .get(here)
        .and_then(|others| others.iter().copied().find(|one| remaining.contains(one)))
    {
        if let Some(start) = path.iter().position(|one| *one == next) {
            return path.split_off(start);
        }
        path.push(next);
        here = next;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::super::defaults::empty_job;
    use super::*;
    use sluice_model::job::JobDependency;

    fn found_cycles(jobs: &[(&str, &[&str])]) -> Vec<String> {
        let jobs: Vec<FrozenJob> = jobs
            .iter()
            .map(|(name, dependencies_of)| {
                let dependencies = dependencies_of
                    .iter()
                    .map(|one| JobDependency { name: JobName((*one).to_owned()), soft: false })
                    .collect();
                FrozenJob { dependencies, ..empty_job(name) }
            })
            .collect();
        let names =
            |cycle: &Vec<JobName>| cycle.iter().map(JobName::as_str).collect::<Vec<_>>().join(" ");
        dependency_cycles(&jobs).iter().map(names).collect()
    }

    /// Z4.3: a job that only depends on a cycle is in none; each cycle is reported once, starting
    /// with the job listed first.
    #[test]
    fn each_cycle_is_found_with_its_jobs() {
        assert_eq!(found_cycles(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b", "gone"])]), [""; 0]);
        assert_eq!(found_cycles(&[("a", &["a"])]), ["a"]);
        assert_eq!(
            found_cycles(&[
                ("after", &["c"]),
                ("c", &["d"]),
                ("d", &["b", "z"]),
                ("b", &["c"]),
                ("z", &[])
            ]),
            ["c d b"]
        );
        assert_eq!(found_cycles(&[("d", &["c"]), ("c", &["b"]), ("b", &["d"])]), ["d c b"]);
        let two: &[(&str, &[&str])] = &[
            ("x", &["y"]),
            ("p", &["q"]),
            ("q", &["p"]),
            ("y", &["x", "p"]),
            ("between", &["x", "q"]),
        ];
        assert_eq!(found_cycles(two), ["x y", "p q"]);
    }

    /// Z6.7: long chains of dependencies and very many cycles terminate.
    #[test]
    fn many_cycles_and_long_chains_terminate() {
        let names: Vec<String> = (0..2_000).map(|number| format!("job-{number:04}")).collect();
        let job = |(number, name): (usize, &String)| {
            let other = names[number ^ 1].clone();
            FrozenJob {
                dependencies: vec![JobDependency { name: JobName(other), soft: false }],
                ..empty_job(name)
            }
        };
        let pairs: Vec<FrozenJob> = names.iter().enumerate().map(job).collect();
        assert_eq!(dependency_cycles(&pairs).len(), CYCLES_MAX);
        let job = |(number, name): (usize, &String)| {
            let other = names[(number + 1) % names.len()].clone();
            FrozenJob {
                dependencies: vec![JobDependency { name: JobName(other), soft: false }],
                ..empty_job(name)
            }
        };
        let ring: Vec<FrozenJob> = names.iter().enumerate().map(job).collect();
        assert_eq!(dependency_cycles(&ring).iter().map(Vec::len).collect::<Vec<_>>(), [2_000]);
    }
}
