//! Jobs that wait for themselves, through others: each such circle, in the order in which one waits
//! for the next.

use sluice_model::JobName;
use sluice_model::job::FrozenJob;
use std::collections::{BTreeMap, BTreeSet};

/// Circles that are told of the jobs of one item.
const CIRCLES_MAX: usize = 20;

/// Returns circles of jobs that wait for each other, none of which shares a job with another: each
/// begins with the job that is listed first, and is followed by the one that this waits for. What
/// only waits for a circle is in none.
pub(super) fn circles(jobs: &[FrozenJob]) -> Vec<Vec<JobName>> {
    let waits: BTreeMap<&JobName, Vec<&JobName>> = jobs
        .iter()
        .map(|job| {
            (&job.name, job.dependencies.iter().map(|dependency| &dependency.name).collect())
        })
        .collect();
    let mut left: BTreeSet<&JobName> = waits.keys().copied().collect();
    let mut found = Vec::new();
    while found.len() < CIRCLES_MAX {
        run_what_may(&waits, &mut left);
        let Some(first) = jobs.iter().map(|job| &job.name).find(|name| left.contains(name)) else {
            break;
        };
        let mut circle = walk(first, &waits, &left);
        circle.iter().for_each(|name| {
            left.remove(name);
        });
        let place = |name: &JobName| jobs.iter().position(|job| job.name == *name);
        let listed_first =
            (0..circle.len()).min_by_key(|number| circle.get(*number).map(|name| place(name)));
        circle.rotate_left(listed_first.unwrap_or_default());
        found.push(circle.into_iter().cloned().collect());
    }
    found
}

/// Takes out whatever waits for nothing that is left, again and again: what stays waits for a
/// circle, or is in one.
fn run_what_may<'j>(
    waits: &BTreeMap<&'j JobName, Vec<&'j JobName>>,
    left: &mut BTreeSet<&'j JobName>,
) {
    loop {
        let is_free = |name: &&JobName| {
            !waits.get(*name).is_some_and(|others| others.iter().any(|one| left.contains(one)))
        };
        let free: Vec<&'j JobName> = left.iter().copied().filter(is_free).collect();
        if free.is_empty() {
            return;
        }
        free.into_iter().for_each(|name| {
            left.remove(name);
        });
    }
}

/// Returns the circle that one comes to who goes from a job to what it waits for: of those that are
/// left each waits for another.
fn walk<'j>(
    first: &'j JobName,
    waits: &BTreeMap<&'j JobName, Vec<&'j JobName>>,
    left: &BTreeSet<&'j JobName>,
) -> Vec<&'j JobName> {
    let mut way = vec![first];
    let mut here = first;
    while let Some(next) =
        waits.get(here).and_then(|others| others.iter().copied().find(|one| left.contains(one)))
    {
        if let Some(start) = way.iter().position(|one| *one == next) {
            return way.split_off(start);
        }
        way.push(next);
        here = next;
    }
    way
}

#[cfg(test)]
mod tests {
    use super::super::blank::blank;
    use super::*;
    use sluice_model::job::Dependency;

    fn told(jobs: &[(&str, &[&str])]) -> Vec<String> {
        let jobs: Vec<FrozenJob> = jobs
            .iter()
            .map(|(name, waits)| {
                let dependencies = waits
                    .iter()
                    .map(|one| Dependency { name: JobName((*one).to_owned()), soft: false })
                    .collect();
                FrozenJob { dependencies, ..blank(name) }
            })
            .collect();
        let names = |circle: &Vec<JobName>| {
            circle.iter().map(JobName::as_str).collect::<Vec<_>>().join(" ")
        };
        circles(&jobs).iter().map(names).collect()
    }

    /// Z4.3: who only waits for a circle is in none; each circle is told once, from what is listed
    /// first on.
    #[test]
    fn each_circle_is_found_with_the_jobs_that_are_in_it() {
        assert_eq!(told(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b", "gone"])]), [""; 0]);
        assert_eq!(told(&[("a", &["a"])]), ["a"]);
        assert_eq!(
            told(&[
                ("after", &["c"]),
                ("c", &["d"]),
                ("d", &["b", "z"]),
                ("b", &["c"]),
                ("z", &[])
            ]),
            ["c d b"]
        );
        assert_eq!(told(&[("d", &["c"]), ("c", &["b"]), ("b", &["d"])]), ["d c b"]);
        let two: &[(&str, &[&str])] = &[
            ("x", &["y"]),
            ("p", &["q"]),
            ("q", &["p"]),
            ("y", &["x", "p"]),
            ("between", &["x", "q"]),
        ];
        assert_eq!(told(two), ["x y", "p q"]);
    }

    /// Z6.7: a long chain of jobs that wait for each other, and very many circles, end.
    #[test]
    fn many_circles_and_long_chains_have_an_end() {
        let names: Vec<String> = (0..2_000).map(|number| format!("job-{number:04}")).collect();
        let job = |(number, name): (usize, &String)| {
            let other = names[number ^ 1].clone();
            FrozenJob {
                dependencies: vec![Dependency { name: JobName(other), soft: false }],
                ..blank(name)
            }
        };
        let pairs: Vec<FrozenJob> = names.iter().enumerate().map(job).collect();
        assert_eq!(circles(&pairs).len(), CIRCLES_MAX);
        let job = |(number, name): (usize, &String)| {
            let other = names[(number + 1) % names.len()].clone();
            FrozenJob {
                dependencies: vec![Dependency { name: JobName(other), soft: false }],
                ..blank(name)
            }
        };
        let ring: Vec<FrozenJob> = names.iter().enumerate().map(job).collect();
        assert_eq!(circles(&ring).iter().map(Vec::len).collect::<Vec<_>>(), [2_000]);
    }
}
