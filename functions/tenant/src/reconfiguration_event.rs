//! Builds the system event of a layout that became live: that the tenant was configured, and why.

use sluice_config::layout::{Layout, LayoutChanges};
use sluice_model::Timestamp;
use sluice_records::system_event::SystemEvent;

/// The event type of a reconfiguration.
const RECONFIGURATION: &str = "tenant-reconfiguration";
/// The event type of a tenant's first configuration, or of its return.
const LOADED: &str = "tenant-loaded";
/// The most branches that one event names; the others are counted.
const BRANCHES_MAX: usize = 10;

/// What was live before a layout.
pub(crate) enum PreviousLayout<'l> {
    /// Nothing.
    Nothing,
    /// A layout that cannot be compared: of another version, or missing.
    Unknown,
    /// This one.
    Layout(&'l Layout),
}

/// Returns the system event that reports a new live layout to operators; `None` if it equals the
/// layout before and no operator requested it. The tuple has the layout's number and time.
pub(crate) fn of(
    layout: &Layout,
    before: &PreviousLayout<'_>,
    by_operator: bool,
    (number, at): (u64, Timestamp),
) -> Option<SystemEvent> {
    let (event_type, description) = match before {
        PreviousLayout::Nothing => (LOADED, "Tenant loaded".to_owned()),
        PreviousLayout::Unknown => (
            RECONFIGURATION,
            "Tenant reconfiguration: every file was parsed again by this version of Sluice"
                .to_owned(),
        ),
        PreviousLayout::Layout(before) => {
            let changed = layout.changes_since(before);
            let operator = by_operator.then(|| "an operator's command".to_owned());
            let causes: Vec<String> = operator.into_iter().chain(causes(&changed)).collect();
            if causes.is_empty() {
                return None;
            }
            (RECONFIGURATION, format!("Tenant reconfiguration due to {}", causes.join(", ")))
        }
    };
    Some(SystemEvent { number, at, event_type: event_type.to_owned(), description })
}

/// Lists what caused a change of the layout, each branch as `project@branch`. The first ones are
/// named, the others counted.
fn causes(changed: &LayoutChanges) -> Vec<String> {
    let main = changed.main_config_changed.then(|| "the main configuration".to_owned());
    let named = changed
        .branches
        .iter()
        .take(BRANCHES_MAX)
        .map(|(project, branch)| format!("{}@{branch}", project.name()));
    let more = changed.branches.len().saturating_sub(BRANCHES_MAX);
    let more = (more > 0).then(|| format!("{more} more branches"));
    main.into_iter().chain(named).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C01: the line stays short however much changed at once.
    #[test]
    fn a_few_branches_are_named_and_the_rest_is_counted() {
        let branches = (10..30)
            .map(|number| ("forge.test/org/one".into(), format!("b{number}").as_str().into()))
            .collect();
        let described = causes(&LayoutChanges { branches, main_config_changed: true });
        assert_eq!(described[..3], ["the main configuration", "org/one@b10", "org/one@b11"]);
        assert_eq!((described.len(), described[11].as_str()), (12, "10 more branches"));
    }
}
