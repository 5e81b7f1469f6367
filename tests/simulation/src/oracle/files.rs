//! Which of the jobs that files decide about an item had to have.

use super::{Merged, Oracle};
use crate::plays::files::chosen;
use crate::plays::{Play, lands};
use crate::reviews::is_review;
use sluice_records::report::Buildset;

impl Oracle {
    /// Judges which of the jobs that files decide about an item has, in order, by what its change
    /// makes of what it was made on. Not judged is what may have been in its branch already when it
    /// was tested, of which nothing shows what it touched, and what is made on other changes at a
    /// Gerrit.
    pub(super) fn judged_files(&self, set: &Buildset, has: &[&str]) -> Result<(), String> {
        let (change, pipeline) = (&set.item.candidate.change, set.queue.pipeline.as_str());
        if !self.plays.contains(&Play::Files) || !["check", "gate"].contains(&pipeline) {
            return if has.is_empty() {
                Ok(())
            } else {
                Err(format!("it has the jobs {has:?}, and nothing names them"))
            };
        }
        let known = self.changes.get(&change.key).ok_or("nobody proposed it")?;
        let has_landed_here = lands(pipeline) && known.merged == Some(Merged::ByGate);
        let may_be_there =
            set.item.candidate.merged.is_some() || (known.merged.is_some() && !has_landed_here);
        if may_be_there || is_review(change.key.project.name()) {
            return Ok(());
        }
        let revision = known.revisions.get(&change.head).ok_or("nobody uploaded that revision")?;
        let due = chosen(&revision.base, revision.tree().ok_or("its revision has no commit")?);
        if has == due {
            return Ok(());
        }
        Err(format!(
            "it has the jobs {has:?} of those that files decide about, and what it touches asks for {due:?}"
        ))
    }
}
