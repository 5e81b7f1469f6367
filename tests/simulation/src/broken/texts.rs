//! Bodies of records as rules that are broken on purpose have them read.

use serde_json::Value;
use std::ops::Range;

/// Returns a text with the digits after each of these words replaced.
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

/// Returns an object's text with another value in a field that it has, of itself or of what is in
/// it.
pub(super) fn with_field(text: &str, path: &[&str], to: impl FnOnce(Value) -> Value) -> String {
    let mut value: Value = serde_json::from_str(text).expect("a record is JSON");
    let found = path.iter().try_fold(&mut value, |value, field| value.get_mut(*field));
    if let Some(found) = found {
        *found = to(found.take());
    }
    value.to_string()
}

/// Returns a head's slots with another text in the place of the second one's.
pub(super) fn with_second(slots: Value, to: impl FnOnce(&str) -> String) -> Value {
    match slots {
        Value::Array(mut slots) => {
            if let Some(text) = slots.get(1).and_then(Value::as_str).map(to) {
                slots[1] = text.into();
            }
            Value::Array(slots)
        }
        other => other,
    }
}

/// Returns a slot's text in the next state, where it is tested (`sluice_gate::queue::stored` says
/// what the words are).
pub(super) fn anew(text: &str) -> String {
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

/// Returns a slot's text on its branch, where it waits to be tested anew behind what is ahead of
/// it.
pub(super) fn aside(text: &str) -> String {
    let mut words = text.split(' ').skip(1);
    let is_anew =
        text.contains(" g") && words.all(|word| word.starts_with('g') || word.starts_with('v'));
    if is_anew { format!("{text} -") } else { text.to_owned() }
}

/// Returns a head's slots with the last one before the one before it, where it has just come and
/// waits by itself.
pub(super) fn with_last_before(slots: Value) -> Value {
    match slots {
        Value::Array(mut slots) => {
            let has_come = |slot: &Value| slot.as_str().is_some_and(|text| !text.contains(' '));
            let may_wait = |slot: &Value| {
                slot.as_str().is_some_and(|text| text.ends_with(" t") || text.contains(" t "))
            };
            if let [.., before, last] = slots.as_mut_slice()
                && has_come(last)
                && may_wait(before)
            {
                std::mem::swap(before, last);
            }
            Value::Array(slots)
        }
        other => other,
    }
}

/// Returns jobs without one of them.
pub(super) fn without_job(jobs: Value, name: &str) -> Value {
    match jobs {
        Value::Array(jobs) => jobs.into_iter().filter(|job| job["name"] != name).collect(),
        other => other,
    }
}

/// Returns jobs of which those that have two nodesets have but these of them.
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

/// Returns jobs of which none has such a field.
pub(super) fn without_each(mut jobs: Value, field: &str) -> Value {
    for job in jobs.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        job.remove(field);
    }
    jobs
}

/// Returns an object's text without one of its fields.
pub(super) fn without(text: &str, field: &str) -> String {
    let mut value: Value = serde_json::from_str(text).expect("a record is JSON");
    if let Some(object) = value.as_object_mut() {
        object.remove(field);
    }
    value.to_string()
}
