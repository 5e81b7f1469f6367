//! How much a status says: what would be too large to be carried says less of each change, and says
//! so.

use crate::asked::Asked;
use crate::filter::wild;
use serde_json::Value;
use sluice_model::change::ChangeRef;

/// The most bytes of an answer as it is carried, a text within JSON: a function may answer with 6
/// MiB, and headers need some of it.
const CARRIED_MAX: usize = (6 << 20) - (64 << 10);

/// What is told of the changes in queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Everything.
    Whole,
    /// Of changes outside the window of their queue no jobs.
    Window,
    /// Of no change its jobs.
    Changes,
}

impl Detail {
    /// Returns whether everything is told of a change that is within the window of its queue, or is
    /// not.
    pub(crate) fn tells_all_of(self, is_active: bool) -> bool {
        match self {
            Self::Whole => true,
            Self::Window => is_active,
            Self::Changes => false,
        }
    }

    /// Returns what is left out and where it is told, for people.
    pub(crate) fn left_out(self) -> Option<String> {
        let of = match self {
            Self::Whole => return None,
            Self::Window => "changes outside the window of their queue",
            Self::Changes => "all changes",
        };
        Some(format!(
            "The whole would be too large to be answered at once: of {of} the jobs are left out. The status page, `T/board` and `sluice status` tell them of one pipeline (`pipeline`) or project (`project`)."
        ))
    }
}

/// Returns the most detailed of what is made that can be carried; the least detailed where none of
/// them can.
pub(crate) fn fitting(make: impl Fn(Detail) -> Value) -> Value {
    fitting_within(CARRIED_MAX, make)
}

fn fitting_within(bytes_max: usize, make: impl Fn(Detail) -> Value) -> Value {
    let details = [Detail::Whole, Detail::Window].into_iter();
    let fits = |body: &Value| carried_bytes(&body.to_string()) <= bytes_max;
    details.map(&make).find(fits).unwrap_or_else(|| make(Detail::Changes))
}

/// Returns how long a text becomes as a text within JSON; that of an answer holds no character that
/// needs more than a stroke before it.
fn carried_bytes(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// Which part of a status is wanted. What is tested as one is wanted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Narrowed<'a> {
    /// Only this pipeline.
    pub(crate) pipeline: Option<&'a str>,
    /// Only changes of this project, by its whole name or the forge's; `*` stands for anything.
    project: Option<&'a str>,
    /// Only this change, as in `7,1`.
    change: Option<&'a str>,
}

impl<'a> Narrowed<'a> {
    /// The parameters.
    pub(crate) const PARAMETERS: &'static [&'static str] = &["pipeline", "project", "change"];

    /// Reads them; an empty one asks for nothing.
    pub(crate) fn read(asked: &'a Asked) -> Self {
        let one = |name: &str| asked.one(name).filter(|value| !value.is_empty());
        Self { pipeline: one("pipeline"), project: one("project"), change: one("change") }
    }

    /// Returns whether a pipeline is wanted.
    pub(crate) fn takes_pipeline(&self, name: &str) -> bool {
        self.pipeline.is_none_or(|pipeline| pipeline == name)
    }

    /// Returns whether some changes are wanted and others are not, whatever their pipeline.
    pub(crate) fn names_changes(&self) -> bool {
        self.project.is_some() || self.change.is_some()
    }

    /// Returns whether a change is wanted, as far as its pipeline does not say.
    pub(crate) fn takes(&self, change: &ChangeRef) -> bool {
        let project = &change.key.project;
        self.project
            .is_none_or(|named| wild(named, project.name()) || wild(named, project.as_str()))
            && self.change.is_none_or(|id| change.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z9.1: a status is cut where it has to be, and no further.
    #[test]
    fn what_fits_is_told_with_as_much_as_fits() {
        let make = |detail: Detail| match detail {
            Detail::Whole => json!("x".repeat(30)),
            Detail::Window => json!("\"".repeat(6)),
            Detail::Changes => json!("x"),
        };
        // Two quotes around it, each two when it is carried, and each of those within has four.
        for (bytes_max, told) in [
            (34, Detail::Whole),
            (33, Detail::Window),
            (28, Detail::Window),
            (27, Detail::Changes),
            (0, Detail::Changes),
        ] {
            assert_eq!(fitting_within(bytes_max, make), make(told), "{bytes_max}");
        }
    }

    /// Z9.1: whoever sees less is told so, and where the rest is.
    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(Detail::Whole.left_out(), None);
        for detail in [Detail::Window, Detail::Changes] {
            let said = detail.left_out().unwrap();
            assert!(
                said.contains("the jobs are left out") && said.contains("`pipeline`"),
                "{said}"
            );
        }
        let told = |detail: Detail| [true, false].map(|is_active| detail.tells_all_of(is_active));
        assert_eq!(
            [Detail::Whole, Detail::Window, Detail::Changes].map(told),
            [[true; 2], [true, false], [false; 2]]
        );
    }
}
