//! What a change depends on, all the way down: open changes in the order they have to stand, or why that cannot be had (Z6.5).

use crate::{Intake, again};
use sluice_forge::Verdict;
use sluice_gate::Candidate;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_runtime::batch::LookError;

/// The most changes that one may depend on, all the way down.
pub(crate) const NEEDS_MAX: usize = 20;

/// What a change needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Open changes, those that are needed by others first.
    pub(crate) open: Vec<ChangeFacts>,
    /// Why it cannot be tested, if so.
    pub(crate) refused: Option<String>,
    direct: Vec<ChangeKey>,
}

impl Needs {
    /// Returns the changes that the change itself names, merged ones left out.
    pub(crate) fn direct(&self) -> &[ChangeKey] {
        &self.direct
    }
}

impl Intake {
    /// Follows `Depends-On` from `facts`. Asks the forges; refusals are part of the answer.
    pub(crate) async fn needs_of(&self, facts: &ChangeFacts) -> Result<Needs, LookError> {
        let mut needs = Needs::default();
        let mut path = Vec::new();
        Box::pin(self.follow(facts, &mut path, &mut needs)).await?;
        Ok(needs)
    }

    async fn follow(&self, facts: &ChangeFacts, path: &mut Vec<ChangeKey>, needs: &mut Needs) -> Result<(), LookError> {
        path.push(facts.change.key.clone());
        for url in &facts.depends_on {
            if needs.refused.is_some() {
                break;
            }
            let Some(key) = self.forges.values().find_map(|forge| forge.change_at(url)) else {
                needs.refused =
                    Some(format!("it depends on {url}, which is no change of a forge that is configured here"));
                break;
            };
            if path.contains(&key) {
                needs.refused =
                    Some(format!("it depends on {key}, which depends on it again; queues here do not allow cycles"));
                break;
            }
            if needs.open.iter().any(|known| known.change.key == key) {
                continue;
            }
            let needed = match self.forge(&key.connection)?.read_change(&key).await {
                Ok(needed) => needed,
                Err(error) if error.verdict() == Verdict::Final => {
                    needs.refused = Some(format!("it depends on {key}, which its forge does not know"));
                    break;
                }
                Err(error) => return Err(again(error)),
            };
            match needed.status {
                ChangeStatus::Merged => continue,
                ChangeStatus::Closed => {
                    needs.refused = Some(format!("it depends on {key}, which was closed without being merged"));
                    break;
                }
                ChangeStatus::Open => {}
            }
            if path.len() == 1 {
                needs.direct.push(key);
            }
            if needs.open.len() >= NEEDS_MAX {
                needs.refused = Some(format!("it depends on more than {NEEDS_MAX} open changes"));
                break;
            }
            Box::pin(self.follow(&needed, path, needs)).await?;
            needs.open.push(needed);
        }
        path.pop();
        Ok(())
    }
}

/// Returns a change as it is offered to a queue.
pub(crate) fn candidate(facts: &ChangeFacts, needs: &[ChangeFacts], refused: Option<String>) -> Candidate {
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    Candidate {
        change: facts.change.clone(),
        url: facts.url.clone(),
        title: cut(&facts.title, 300),
        message: cut(&facts.message, 4_000),
        author: facts.author.clone(),
        needs: needs
            .iter()
            .map(|need| Candidate { message: cut(&need.message, 500), ..candidate(need, &[], None) })
            .collect(),
        refused,
    }
}
