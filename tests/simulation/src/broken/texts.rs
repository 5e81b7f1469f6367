//! Changes to the bodies of records, for mutations.

use serde_json::Value;
use std::ops::Range;

/// Replaces the digits after each occurrence of `word`.
pub(super) fn with_number(text: &str, word: &str, number: &str) -> String {
    let mut parts = text.split(word);
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        changed.push_str(word);
        changed.push_str(number);
        changed.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    changed
}

/// Replaces the value at a path of an object; does nothing if the path does not exist.
pub(super) fn with_field(text: &str, path: &[&str], to: impl FnOnce(Value) -> Value) -> String {
    let mut value: Value = serde_json::from_str(text).expect("a record is JSON");
    let found = path.iter().try_fold(&mut value, |value, field| value.get_mut(*field));
    if let Some(found) = found {
        *found = to(found.take());
    }
    value.to_string()
}

/// Replaces the text of the second entry of a head (see `sluice_gate::queue::stored` for the
/// format), unless it is a bundle.
pub(super) fn with_second(entries: Value, to: impl FnOnce(&str) -> String) -> Value {
    match entries {
        Value::Array(mut entries) => {
            let second = entries.get(1).and_then(Value::as_str);
            if let Some(text) = second.filter(|text| !text.contains(',')).map(to) {
                entries[1] = text.into();
            }
            Value::Array(entries)
        }
        other => other,
    }
}

/// Returns a tested entry of one change in its next generation.
pub(super) fn next_generation(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    if !words.iter().any(|word| word == "t") {
        return text.to_owned();
    }
    match words.iter_mut().skip(1).find(|word| word.starts_with('g')) {
        Some(word) => {
            let state: u64 = word[1..].parse().unwrap_or(1);
            *word = format!("g{}", state + 1);
        }
        None => words.push("g2".to_owned()),
    }
    words.join(" ")
}

/// Returns an entry of one change that waits for a retest as tested on its branch, instead of on
/// the entry ahead.
pub(super) fn onto_branch(text: &str) -> String {
    let mut words = text.split(' ').skip(1);
    let is_retested =
        text.contains(" g") && words.all(|word| word.starts_with('g') || word.starts_with('v'));
    if is_retested { format!("{text} -") } else { text.to_owned() }
}

/// Returns the entries of a head with failing slots as tested ones.
pub(super) fn without_failures(entries: Value) -> Value {
    let passing = |slot: &str| {
        slot.split(' ')
            .map(|word| if word == "f" { "t" } else { word })
            .collect::<Vec<_>>()
            .join(" ")
    };
    let of_entry = |text: &str| text.split(',').map(passing).collect::<Vec<String>>().join(",");
    match entries {
        Value::Array(entries) => entries
            .iter()
            .filter_map(Value::as_str)
            .map(|text| Value::String(of_entry(text)))
            .collect(),
        other => other,
    }
}

/// Swaps the last two entries of a head if each is one change and the last one is new.
pub(super) fn with_last_before(entries: Value) -> Value {
    match entries {
        Value::Array(mut entries) => {
            let has_come = |entry: &str| !entry.contains([' ', ',']);
            let may_wait = |entry: &str| {
                !entry.contains(',') && (entry.ends_with(" t") || entry.contains(" t "))
            };
            if let [.., before, last] = entries.as_mut_slice()
                && last.as_str().is_some_and(has_come)
                && before.as_str().is_some_and(may_wait)
            {
                std::mem::swap(before, last);
            }
            Value::Array(entries)
        }
        other => other,
    }
}

/// Removes the last of several candidates.
pub(super) fn without_last(mut candidates: Value) -> Value {
    if let Some(all) = candidates.as_array_mut().filter(|all| all.len() > 1) {
        all.pop();
    }
    candidates
}

/// Removes the candidates with a title.
pub(super) fn without_titled(candidates: Value, title: &str) -> Value {
    match candidates {
        Value::Array(all) => all.into_iter().filter(|one| one["title"] != title).collect(),
        other => other,
    }
}

/// Swaps the last two candidates next to each other of which neither needs the other.
pub(super) fn with_swapped(mut candidates: Value) -> Value {
    let needs = |one: &Value, other: &Value| {
        let mut needs = one["needs"].as_array().into_iter().flatten();
        needs.any(|need| need["change"]["key"] == other["change"]["key"])
    };
    let Some(all) = candidates.as_array_mut() else { return candidates };
    if let Some(at) = (1..all.len()).rev().find(|at| !needs(&all[*at], &all[*at - 1])) {
        all.swap(at - 1, at);
    }
    candidates
}

/// Removes a job.
pub(super) fn without_job(jobs: Value, name: &str) -> Value {
    match jobs {
        Value::Array(jobs) => jobs.into_iter().filter(|job| job["name"] != name).collect(),
        other => other,
    }
}

/// Reduces jobs with two nodesets to these of them.
pub(super) fn with_nodesets(mut jobs: Value, kept: Range<usize>) -> Value {
    for job in jobs.as_array_mut().into_iter().flatten() {
        if let Some(sets) =
            job.get_mut("labels").and_then(Value::as_array_mut).filter(|sets| sets.len() == 2)
        {
            *sets = sets[kept.clone()].to_vec();
        }
    }
    jobs
}

/// Removes a field from every job.
pub(super) fn without_each(mut jobs: Value, field: &str) -> Value {
    for job in jobs.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        job.remove(field);
    }
    jobs
}

/// Removes a field of an object.
pub(super) fn without(text: &str, field: &str) -> String {
    let mut value: Value = serde_json::from_str(text).expect("a record is JSON");
    if let Some(object) = value.as_object_mut() {
        object.remove(field);
    }
    value.to_string()
}
