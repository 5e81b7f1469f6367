//! Nodesets that name nodesets: put in line, and never without end (Z3.1).
//!
//! A few lines can name each other so often that what they come to has no bound, so steps are
//! counted and not only results.

use crate::objects::nodeset::ALTERNATIVES_MAX;
use crate::objects::{Alternative, NodesetBody};
use sluice_model::job::NodeSet;
use std::fmt;

/// Greatest number of names that are followed for one nodeset; a name may come to nothing.
const NAMES_MAX: usize = 1_024;
/// Depth of nodesets that name nodesets.
const DEPTH_MAX: usize = 32;

/// What a nodeset comes to.
#[derive(Debug, Default)]
pub(crate) struct InLine<'l> {
    /// Nodes and groups in order of preference.
    pub(crate) sets: Vec<&'l NodeSet>,
    /// Nodesets that come back to themselves: each name in the order in which one names the next,
    /// the first one last again.
    pub(crate) circles: Vec<Vec<String>>,
    names: usize,
}

/// A nodeset that comes to more than anybody could want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endless {
    /// It comes to too many nodesets.
    Wide,
    /// Names lead on too far.
    Deep,
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wide => {
                write!(f, "comes to more than {ALTERNATIVES_MAX} alternatives; give fewer")
            }
            Self::Deep => {
                write!(f, "names nodesets that name nodesets, more than {DEPTH_MAX} deep")
            }
        }
    }
}

/// Returns what a nodeset comes to, alternatives of alternatives put in line. `own` is its name; a
/// name that `find` does not know comes to nothing.
pub(crate) fn in_line<'l>(
    own: Option<&str>,
    body: &'l NodesetBody,
    find: &mut dyn FnMut(&str) -> Option<&'l NodesetBody>,
) -> Result<InLine<'l>, Endless> {
    let mut found = InLine::default();
    let mut above: Vec<String> = own.map(str::to_owned).into_iter().collect();
    found.add(body, &mut above, find)?;
    Ok(found)
}

impl<'l> InLine<'l> {
    fn add(
        &mut self,
        body: &'l NodesetBody,
        above: &mut Vec<String>,
        find: &mut dyn FnMut(&str) -> Option<&'l NodesetBody>,
    ) -> Result<(), Endless> {
        match body {
            NodesetBody::Nodes(set) => self.put(set),
            NodesetBody::Alternatives(list) => {
                list.iter().try_for_each(|alternative| match alternative {
                    Alternative::Inline(set) => self.put(set),
                    Alternative::Named(name) => self.named(name, above, find),
                })
            }
        }
    }

    fn put(&mut self, set: &'l NodeSet) -> Result<(), Endless> {
        self.sets.push(set);
        if self.sets.len() > ALTERNATIVES_MAX { Err(Endless::Wide) } else { Ok(()) }
    }

    fn named(
        &mut self,
        name: &str,
        above: &mut Vec<String>,
        find: &mut dyn FnMut(&str) -> Option<&'l NodesetBody>,
    ) -> Result<(), Endless> {
        self.names += 1;
        if self.names > NAMES_MAX {
            return Err(Endless::Wide);
        }
        if let Some(first) = above.iter().position(|one| one == name) {
            let circle = above.iter().skip(first).cloned().chain([name.to_owned()]);
            self.circles.push(circle.collect());
            return Ok(());
        }
        if above.len() > DEPTH_MAX {
            return Err(Endless::Deep);
        }
        let Some(body) = find(name) else { return Ok(()) };
        above.push(name.to_owned());
        let added = self.add(body, above, find);
        above.pop();
        added
    }
}
