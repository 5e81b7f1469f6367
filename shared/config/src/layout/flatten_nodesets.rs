//! Flattens nodesets whose alternatives name other nodesets, with limits (Z3.1).
//!
//! A few lines can name each other so often that the result is unbounded, so the followed names are
//! counted as well as the results.

use crate::objects::nodeset::ALTERNATIVES_MAX;
use crate::objects::{Alternative, NodesetBody};
use sluice_model::job::NodeSet;
use std::fmt;

/// Maximum number of names followed for one nodeset. A name may yield nothing.
const NAMES_MAX: usize = 1_024;
/// Maximum depth of nodesets that name nodesets.
const DEPTH_MAX: usize = 32;

/// A nodeset with all alternatives flattened.
#[derive(Debug, Default)]
pub(crate) struct FlatNodeset<'l> {
    /// The nodesets in order of preference.
    pub(crate) sets: Vec<&'l NodeSet>,
    /// Nodesets that contain themselves: the path of names, with the first name repeated at the
    /// end.
    pub(crate) cycles: Vec<Vec<String>>,
    /// The number of names followed.
    names: usize,
}

/// Why a nodeset is too large to flatten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooLarge {
    /// It has too many alternatives.
    Wide,
    /// The names are nested too deeply.
    Deep,
}

impl fmt::Display for TooLarge {
    /// Writes why the nodeset is too large, as the end of a sentence whose subject is the nodeset.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wide => {
                write!(f, "has more than {ALTERNATIVES_MAX} alternatives; remove some")
            }
            Self::Deep => {
                write!(f, "nests nodesets more than {DEPTH_MAX} levels deep")
            }
        }
    }
}

/// Flattens the alternatives of a nodeset, depth first, and returns its sets of nodes in order of
/// preference and its cycles. A cycle is no error, and adds no nodes. An error if there are more
/// than 256 alternatives or 1,024 names, or they nest more than 32 levels deep. `own_name` is the
/// nodeset's name, without which a cycle back to it is found one level later. `find` returns the
/// body of a named nodeset, and is called for each name that is followed; names that it does not
/// know yield nothing.
pub(crate) fn flatten<'l>(
    own_name: Option<&str>,
    body: &'l NodesetBody,
    find: &mut dyn FnMut(&str) -> Option<&'l NodesetBody>,
) -> Result<FlatNodeset<'l>, TooLarge> {
    let mut found = FlatNodeset::default();
    let mut path: Vec<String> = own_name.map(str::to_owned).into_iter().collect();
    found.add(body, &mut path, find)?;
    Ok(found)
}

impl<'l> FlatNodeset<'l> {
    /// Adds the alternatives of a nodeset and of those it names, depth first. `path` has the names
    /// of the nodesets that led here. An error if there are too many or they nest too deep.
    fn add(
        &mut self,
        body: &'l NodesetBody,
        path: &mut Vec<String>,
        find: &mut dyn FnMut(&str) -> Option<&'l NodesetBody>,
    ) -> Result<(), TooLarge> {
        match body {
            NodesetBody::Nodes(set) => self.push_set(set),
            NodesetBody::Alternatives(list) => {
                list.iter().try_for_each(|alternative| match alternative {
                    Alternative::Inline(set) => self.push_set(set),
                    Alternative::Named(name) => self.follow(name, path, find),
                })
            }
        }
    }

    /// Adds one set of nodes. An error if there are more than 256 then.
    fn push_set(&mut self, set: &'l NodeSet) -> Result<(), TooLarge> {
        self.sets.push(set);
        if self.sets.len() > ALTERNATIVES_MAX { Err(TooLarge::Wide) } else { Ok(()) }
    }

    /// Adds the alternatives of a named nodeset; nothing if it is not defined. If the name is in
    /// `path`, records a cycle instead, which is no error. An error if there are too many names or
    /// alternatives, or they nest too deep.
    fn follow(
        &mut self,
        name: &str,
        path: &mut Vec<String>,
        find: &mut dyn FnMut(&str) -> Option<&'l NodesetBody>,
    ) -> Result<(), TooLarge> {
        self.names += 1;
        if self.names > NAMES_MAX {
            return Err(TooLarge::Wide);
        }
        if let Some(first) = path.iter().position(|one| one == name) {
            let cycle = path.iter().skip(first).cloned().chain([name.to_owned()]);
            self.cycles.push(cycle.collect());
            return Ok(());
        }
        if path.len() > DEPTH_MAX {
            return Err(TooLarge::Deep);
        }
        let Some(body) = find(name) else { return Ok(()) };
        path.push(name.to_owned());
        let added = self.add(body, path, find);
        path.pop();
        added
    }
}
