//! Handles renamed directories: one side adds a file to a directory that the other side renames.
//!
//! Git reports that as a conflict (`merge.directoryRenames = conflict`), while the library silently
//! moves the file. A forge refuses such a merge, so it is a conflict here too.

use crate::pack::text;
use crate::repository::Repository;
use gix::ObjectId;
use gix::bstr::{BString, ByteSlice};
use gix::merge::tree::{Outcome, Resolution};
use gix::object::tree::diff::ChangeDetached;
use std::collections::BTreeSet;

impl Repository {
    /// Lists the paths of files that one side added to a directory of `base` that the other side
    /// renamed: it has no such directory, and moved at least one file of it elsewhere. All
    /// arguments are trees.
    pub(crate) fn added_to_renamed(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> gix::Result<BTreeSet<String>> {
        let mut paths = BTreeSet::new();
        for (adding, renaming) in [(ours, theirs), (theirs, ours)] {
            // Only a vanished directory can have been renamed. That is rare, so renames are
            // searched only then.
            let mut candidates = Vec::new();
            for change in self.changes(base, adding, None)? {
                let ChangeDetached::Addition { location, entry_mode, .. } = change else {
                    continue;
                };
                if let Some(parent) = parent(&location)
                    && !entry_mode.is_tree()
                    && self.is_directory(base, &parent)?
                    && !self.is_directory(renaming, &parent)?
                {
                    candidates.push((parent, location));
                }
            }
            if candidates.is_empty() {
                continue;
            }
            let mut renamed = BTreeSet::new();
            for change in self.changes(
                base,
                renaming,
                Some(gix::diff::Rewrites { limit: 7000, ..Default::default() }),
            )? {
                if let ChangeDetached::Rewrite {
                    source_location,
                    location,
                    entry_mode,
                    copy: false,
                    ..
                } = change
                    && !entry_mode.is_tree()
                {
                    collect_renamed(&source_location, &location, &mut renamed);
                }
            }
            paths.extend(
                candidates
                    .into_iter()
                    .filter(|(parent, _)| renamed.contains(parent))
                    .map(|(_, path)| text(&path)),
            );
        }
        Ok(paths)
    }

    /// Reverts, in the merged tree of `outcome`, moves that the library made for a renamed
    /// directory although git makes none: files in directories that are new themselves. `base` is
    /// the tree of the merge base.
    pub(crate) fn put_back(&self, base: ObjectId, outcome: &mut Outcome<'_>) -> gix::Result<()> {
        let base = self.git.find_tree(base)?;
        for conflict in &outcome.conflicts {
            let Ok(Resolution::SourceLocationAffectedByRename { final_location }) =
                &conflict.resolution
            else {
                continue;
            };
            // One of the two is the rename of the directory, on either side.
            let Some(change) = [&conflict.ours, &conflict.theirs]
                .into_iter()
                .find(|change| !change.entry_mode().is_tree())
            else {
                continue;
            };
            let path = change.location();
            if path == final_location.as_bstr() || base.lookup_entry(path.split_str("/"))?.is_some()
            {
                continue;
            }
            if let Some(entry) = outcome.tree.get(final_location.as_bstr()) {
                let (kind, id) = (entry.kind(), entry.object_id());
                outcome.tree.remove(final_location.as_bstr())?.upsert(path, kind, id)?;
            }
        }
        Ok(())
    }

    /// Returns the differences between two trees, of files and of directories. `rewrites` says how
    /// renames are detected; `None`: a rename is a removal and an addition.
    fn changes(
        &self,
        old: ObjectId,
        new: ObjectId,
        rewrites: Option<gix::diff::Rewrites>,
    ) -> gix::Result<Vec<ChangeDetached>> {
        let (old, new) = (self.git.find_tree(old)?, self.git.find_tree(new)?);
        let mut options = gix::diff::Options::default();
        options.track_rewrites(rewrites);
        self.git.diff_tree_to_tree(&old, &new, options)
    }

    /// Returns whether a path is a directory in a tree.
    fn is_directory(&self, tree: ObjectId, path: &BString) -> gix::Result<bool> {
        let entry = self.git.find_tree(tree)?.lookup_entry(path.split_str("/"))?;
        Ok(entry.is_some_and(|entry| entry.mode().is_tree()))
    }
}

/// Returns the directory of a path; `None` at the root.
fn parent(path: &BString) -> Option<BString> {
    path.rfind_byte(b'/').map(|at| path[..at].into())
}

/// Adds to `renamed` the old paths of the directories that the rename of one file indicates: its
/// own directory, and each parent as long as the directory below it has the same name in both paths
/// (`a/x/f` to `b/x/f` gives `a/x` and `a`). Adds none if the file stayed in its directory.
fn collect_renamed(from: &BString, to: &BString, renamed: &mut BTreeSet<BString>) {
    let (mut from, mut to) = (parent(from), parent(to));
    // Terminates: each round shortens `from`.
    while let Some(old) = from {
        if Some(&old) == to.as_ref() {
            return;
        }
        renamed.insert(old.clone());
        let alike =
            to.as_ref().is_some_and(|new| old.rsplit_str("/").next() == new.rsplit_str("/").next());
        if !alike {
            return;
        }
        (from, to) = (parent(&old), to.as_ref().and_then(parent));
    }
}
