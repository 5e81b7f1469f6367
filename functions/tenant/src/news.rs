//! What is told of a layout that became live: that the tenant was configured anew, and due to what.

use sluice_config::layout::{Layout, Moved};
use sluice_model::Timestamp;
use sluice_records::system_event::SystemEvent;

/// The type of an event that tells of another configuration.
const RECONFIGURATION: &str = "tenant-reconfiguration";
/// The type of the event that tells of a tenant's first configuration, or of its coming back.
const LOADED: &str = "tenant-loaded";
/// Branches that one event names; the rest is counted.
const BRANCHES_MAX: usize = 10;

/// What was live before a layout.
pub(crate) enum Before<'l> {
    /// Nothing.
    Nothing,
    /// A layout that cannot be compared: of another version, or lost.
    Unknown,
    /// This one.
    Layout(&'l Layout),
}

/// Returns what is told of `layout`, which is live as the number and since the time given; `None`
/// where it says what was live before and no operator asked for it.
pub(crate) fn of(
    layout: &Layout,
    before: &Before<'_>,
    is_asked: bool,
    (number, at): (u64, Timestamp),
) -> Option<SystemEvent> {
    let (event_type, description) = match before {
        Before::Nothing => (LOADED, "Tenant loaded".to_owned()),
        Before::Unknown => (
            RECONFIGURATION,
            "Tenant reconfiguration: every file was parsed again by this version of Sluice"
                .to_owned(),
        ),
        Before::Layout(before) => {
            let moved = layout.moved_since(before);
            let operator = is_asked.then(|| "an operator's word".to_owned());
            let causes: Vec<String> = operator.into_iter().chain(causes(&moved)).collect();
            if causes.is_empty() {
                return None;
            }
            (RECONFIGURATION, format!("Tenant reconfiguration due to {}", causes.join(", ")))
        }
    };
    Some(SystemEvent { number, at, event_type: event_type.to_owned(), description })
}

/// Returns what moved, each branch as `project@branch`; of many the first ones, and how many more
/// there are.
fn causes(moved: &Moved) -> Vec<String> {
    let main = moved.is_main.then(|| "the main configuration".to_owned());
    let named = moved
        .branches
        .iter()
        .take(BRANCHES_MAX)
        .map(|(project, branch)| format!("{}@{branch}", project.name()));
    let more = moved.branches.len().saturating_sub(BRANCHES_MAX);
    let more = (more > 0).then(|| format!("{more} more branches"));
    main.into_iter().chain(named).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C01: the line stays short however much moved at once.
    #[test]
    fn a_few_branches_are_named_and_the_rest_is_counted() {
        let branches = (10..30)
            .map(|number| ("forge.test/org/one".into(), format!("b{number}").as_str().into()))
            .collect();
        let told = causes(&Moved { branches, is_main: true });
        assert_eq!(told[..3], ["the main configuration", "org/one@b10", "org/one@b11"]);
        assert_eq!((told.len(), told[11].as_str()), (12, "10 more branches"));
    }
}
