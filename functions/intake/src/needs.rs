//! What a change depends on, all the way down: open changes in the order they have to stand, or why
//! that cannot be had (Z6.5).
//!
//! Changes may need each other; whether they may do so where they are to be queued is asked for
//! each pipeline ([`Needs::refusal`]).
//!
//! A tenant's changes depend on its own projects only. What lies outside of it is never tested,
//! shown or followed further: the forge's token may read repositories that whoever wrote the
//! `Depends-On` may not (Z2.1, D05).

use crate::{Intake, again};
use sluice_config::layout::Layout;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_forge::{DEPENDENCIES_MAX, Verdict, names_too_many, no_changes};
use sluice_gate::chain::landing_order;
use sluice_gate::filter::{self, Speaker};
use sluice_gate::plan::CYCLE_MAX;
use sluice_gate::{Candidate, InBranch};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, Permission};
use sluice_model::event::ForgeEvent;
use sluice_model::{ConnectionName, PipelineName, ProjectName, Timestamp};
use sluice_records::connection;
use sluice_records::layout::Live;
use sluice_runtime::batch::LookError;
use std::collections::{BTreeMap, BTreeSet};

/// The most changes that one may depend on, all the way down.
pub(crate) const NEEDS_MAX: usize = 20;

/// The most changes that one delivery reads from forges besides its own; a look has 30 seconds.
const READS_MAX: usize = 30;

/// Bytes of the paths of a merged change that go along with it; jobs of one with more run whatever
/// they match.
const FILES_BYTES_MAX: usize = 8_000;

/// Characters of the description of a change that another one needs.
const NEED_MESSAGE_CHARS: usize = 500;

/// Characters of an address that a refusal repeats.
const URL_CHARS_MAX: usize = 200;

/// How many addresses that nobody can be asked about are told with a change.
const UNFOLLOWED_MAX: usize = 3;

/// What a change needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Open changes, those that are needed by others first.
    pub(crate) open: Vec<ChangeFacts>,
    /// Why it cannot be tested, if so.
    pub(crate) refused: Option<String>,
    /// Whether nobody is told of a refusal: more changes are needed than the tenant looks at.
    pub(crate) is_ignored: bool,
    /// Some of the addresses that the change itself names and that no connection leads to: as in
    /// Zuul they are not waited for.
    unfollowed: Vec<String>,
    direct: Vec<ChangeKey>,
    /// Which change names which, as far as both are open.
    named: Vec<(ChangeKey, ChangeKey)>,
    /// Which change's commits are made on which change's.
    parents: Vec<(ChangeKey, ChangeKey)>,
}

impl Needs {
    /// Returns the changes that the change itself names, merged ones left out.
    pub(crate) fn direct(&self) -> &[ChangeKey] {
        &self.direct
    }

    /// Returns the changes that `key` needs and that need it, itself among them, in the order in
    /// which they land, which is the same whichever of them is asked for; none where it is in no
    /// cycle.
    pub(crate) fn cycle_of(&self, key: &ChangeKey) -> Vec<ChangeKey> {
        let forth = reached(key, &self.named, |(from, to)| (from, to));
        let back = reached(key, &self.named, |(from, to)| (to, from));
        landing_order(forth.intersection(&back).cloned().collect(), &self.parents)
    }

    /// Returns why the change may not be tested in a pipeline, if so: for what it needs itself,
    /// because that is of a connection of which the pipeline takes nothing, or because a queue
    /// there forbids a cycle that is met (D04, D11). That text is Zuul's.
    pub(crate) fn refusal(
        &self,
        own: &ChangeRef,
        layout: &Layout,
        pipeline: &Pipeline,
    ) -> Option<String> {
        if self.refused.is_some() {
            return self.refused.clone();
        }
        let foreign = self.open.iter().find_map(|need| {
            let why = filter::refusal_of_connection(pipeline, &need.change.key.connection)?;
            Some(format!("it depends on {}, and {why}", need.change.key))
        });
        if foreign.is_some() || self.named.is_empty() {
            return foreign;
        }
        let met = self.open.iter().map(|facts| &facts.change).chain([own]);
        met.map(|change| (change, self.cycle_of(&change.key).len())).filter(|(_, length)| *length > 0).find_map(
            |(change, length)| {
                let (project, branch) = (&change.key.project, change.branch.as_str());
                let settings = layout.queue_on(project, pipeline.name.as_str(), Some(branch));
                if !settings.allow_circular_dependencies {
                    let name = project.name();
                    return Some(format!(
                        "Dependency cycle detected and project {name} doesn't allow circular dependencies"
                    ));
                }
                let is_long = length > CYCLE_MAX;
                is_long.then(|| format!("it is in a dependency cycle of {length} changes; there may be {CYCLE_MAX}"))
            },
        )
    }
}

/// Returns what can be reached from a change in one step or more.
fn reached<'a>(
    from: &ChangeKey,
    named: &'a [(ChangeKey, ChangeKey)],
    way: impl Fn(&'a (ChangeKey, ChangeKey)) -> (&'a ChangeKey, &'a ChangeKey),
) -> BTreeSet<ChangeKey> {
    let mut found = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(at) = ahead.pop() {
        let next = named.iter().map(&way).filter(|(start, _)| *start == at).map(|(_, end)| end);
        ahead.extend(next.filter(|end| found.insert((*end).clone())).collect::<Vec<_>>());
    }
    found
}

/// Changes as one delivery read them: each is asked for once, and only so many are.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    changes: BTreeMap<ChangeKey, Option<ChangeFacts>>,
    /// The open changes of topics.
    topics: BTreeMap<(ConnectionName, String), Vec<ChangeKey>>,
    /// Whether any change is known to need the event's own, or was.
    is_needed: bool,
    /// What the event's sender may do, once that was asked.
    may: Option<Permission>,
    /// Who says what the event tells, once that was looked up.
    pub(crate) speaker: Option<Speaker>,
    /// As of which moment of its forge's clock the event's own change is known.
    as_of: Timestamp,
}

impl Seen {
    /// Remembers the change of the event, and whether any may need it.
    pub(crate) fn knowing(facts: &ChangeFacts, is_needed: bool, as_of: Timestamp) -> Self {
        let changes = BTreeMap::from([(facts.change.key.clone(), Some(facts.clone()))]);
        Self { changes, topics: BTreeMap::new(), is_needed, may: None, speaker: None, as_of }
    }

    /// Returns as of which moment of its forge's clock the event's own change is known.
    pub(crate) fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// Returns whether any change may need the event's own.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Returns whether no further change is read.
    pub(crate) fn is_full(&self) -> bool {
        self.changes.len() > READS_MAX
    }
}

impl Intake {
    /// Follows `Depends-On` from `facts` within a tenant. Asks the forges; refusals are part of the
    /// answer.
    pub(crate) async fn needs_of(
        &self,
        facts: &ChangeFacts,
        layout: &Layout,
        seen: &mut Seen,
    ) -> Result<Needs, LookError> {
        let mut needs = Needs::default();
        let mut path = Vec::new();
        Box::pin(self.follow(facts, layout, seen, &mut path, &mut needs)).await?;
        Ok(needs)
    }

    /// Returns what the event's sender may do in its repository.
    pub(crate) async fn may(
        &self,
        event: &ForgeEvent,
        seen: &mut Seen,
    ) -> Result<Permission, LookError> {
        if let Some(may) = seen.may {
            return Ok(may);
        }
        let may = match event.sender.as_str() {
            // Found by asking, and not told by anybody.
            "" => Permission::None,
            sender => match self.forge_if_any(&event.connection).await? {
                Ok(forge) => match forge.permission_of(&event.project, sender).await {
                    Ok(may) => may,
                    Err(error) if error.verdict() == Verdict::Final => Permission::None,
                    Err(error) => return Err(again(error)),
                },
                // Its connection was removed: nobody may do anything by it.
                Err(_) => Permission::None,
            },
        };
        Ok(*seen.may.insert(may))
    }

    /// Returns a change as its forge has it; `None` where the forge does not know it.
    pub(crate) async fn read(
        &self,
        key: &ChangeKey,
        seen: &mut Seen,
    ) -> Result<Option<ChangeFacts>, LookError> {
        if let Some(known) = seen.changes.get(key) {
            return Ok(known.clone());
        }
        let facts = match self.forge_if_any(&key.connection).await? {
            Ok(forge) => match forge.read_change(key).await {
                Ok(facts) => Some(facts),
                Err(error) if error.verdict() == Verdict::Final => None,
                Err(error) => return Err(again(error)),
            },
            // Its connection was removed: what it knew is no change of a forge any more.
            Err(_) => None,
        };
        seen.changes.insert(key.clone(), facts.clone());
        Ok(facts)
    }

    /// Returns what a change needs by its commits, its message, and its topic where a queue of its
    /// project wants that, in this order; where that cannot be told of one of them, why. What of
    /// its message is `strange` is left out.
    async fn named_by(
        &self,
        facts: &ChangeFacts,
        strange: &[&String],
        layout: &Layout,
        seen: &mut Seen,
    ) -> Result<Vec<Result<ChangeKey, String>>, LookError> {
        let at = |url: &String| {
            self.change_at(url, layout).ok_or_else(|| {
                format!(
                    "it depends on {}, which is no change of a forge that is configured here",
                    cut_address(url)
                )
            })
        };
        let mut named: Vec<_> = facts.parents.iter().cloned().map(Ok).collect();
        named.extend(facts.depends_on.iter().filter(|url| !strange.contains(url)).map(at));
        let (key, branch) = (&facts.change.key, facts.change.branch.as_str());
        let pipelines = layout.project_pipelines(&key.project);
        let by_topic = |pipeline: &PipelineName| {
            layout.queue_on(&key.project, pipeline.as_str(), Some(branch)).dependencies_by_topic
        };
        if let Some(topic) = &facts.topic
            && pipelines.iter().any(by_topic)
        {
            // What it names itself is told by that.
            match self.of_topic(&key.connection, topic, seen).await? {
                Ok(mates) => named.extend(mates.into_iter().filter(|mate| mate != key).map(Ok)),
                Err(why) => named.push(Err(why)),
            }
        }
        Ok(named)
    }

    /// Returns the open changes of a topic, which are asked for once; the inner error says why
    /// nobody can tell. A forge that cannot be asked now is asked again.
    async fn of_topic(
        &self,
        connection: &ConnectionName,
        topic: &str,
        seen: &mut Seen,
    ) -> Result<Result<Vec<ChangeKey>, String>, LookError> {
        let of = (connection.clone(), topic.to_owned());
        if let Some(known) = seen.topics.get(&of) {
            return Ok(Ok(known.clone()));
        }
        match self.forge(connection)?.open_changes_of_topic(topic).await {
            Ok(mates) => {
                seen.topics.insert(of, mates.clone());
                Ok(Ok(mates))
            }
            Err(error) if error.verdict() == Verdict::Final => Ok(Err(format!(
                "it depends on the changes of its topic, and those are not known: {error}"
            ))),
            Err(error) => Err(again(error)),
        }
    }

    /// Returns the change that an address is the page of. Where several connections lead to its
    /// host, it is the one by which the tenant has the project, if it has it at all.
    fn change_at(&self, url: &str, layout: &Layout) -> Option<ChangeKey> {
        let mut fitting = self.forges.values().filter_map(|forge| forge.change_at(url));
        let first = fitting.next()?;
        if is_inside(layout, &first) {
            return Some(first);
        }
        Some(fitting.find(|key| is_inside(layout, key)).unwrap_or(first))
    }

    async fn follow(
        &self,
        facts: &ChangeFacts,
        layout: &Layout,
        seen: &mut Seen,
        path: &mut Vec<ChangeKey>,
        needs: &mut Needs,
    ) -> Result<(), LookError> {
        if names_too_many(&facts.depends_on) {
            let is_own = path.is_empty();
            let who = if is_own {
                "it".to_owned()
            } else {
                format!("it depends on {}, which", facts.change.key)
            };
            needs.refused = Some(format!(
                "{who} names more than {DEPENDENCIES_MAX} addresses in lines Depends-On"
            ));
            return Ok(());
        }
        path.push(facts.change.key.clone());
        needs
            .parents
            .extend(facts.parents.iter().map(|below| (facts.change.key.clone(), below.clone())));
        // Nobody can be asked about what is on a host that no connection leads to: it is not waited
        // for.
        let strange =
            connection::strange(&self.ports, no_changes(&self.forges, &facts.depends_on)).await?;
        if path.len() == 1 {
            needs.unfollowed =
                strange.iter().take(UNFOLLOWED_MAX).map(|url| cut_address(url)).collect();
        }
        for key in self.named_by(facts, &strange, layout, seen).await? {
            let key = match key {
                Ok(key) => key,
                Err(why) => {
                    needs.refused = Some(why);
                    break;
                }
            };
            if key == facts.change.key {
                continue; // That it needs itself says nothing.
            }
            // It stands above on the way here, or was met before.
            if path.contains(&key) || needs.open.iter().any(|known| known.change.key == key) {
                needs.named.push((facts.change.key.clone(), key.clone()));
                needs.direct.extend((path.len() == 1).then_some(key));
                continue;
            }
            if seen.is_full() && !seen.changes.contains_key(&key) {
                needs.refused = Some(format!(
                    "finding out what it depends on takes reading over {READS_MAX} changes"
                ));
                break;
            }
            let needed = self.read(&key, seen).await?;
            if needed.as_ref().is_some_and(|needed| needed.status == ChangeStatus::Merged) {
                continue;
            }
            // Said before anything else: whether there is such a change is the business of those
            // who may see its project.
            if !is_inside(layout, &key) {
                needs.refused = Some(format!(
                    "it depends on {key}, a change of a project outside of this tenant, and waits until that is merged"
                ));
                break;
            }
            let Some(needed) = needed else {
                needs.refused = Some(format!("it depends on {key}, which its forge does not know"));
                break;
            };
            if needed.status == ChangeStatus::Closed {
                needs.refused =
                    Some(format!("it depends on {key}, which was closed without being merged"));
                break;
            }
            needs.named.push((facts.change.key.clone(), key.clone()));
            needs.direct.extend((path.len() == 1).then_some(key));
            let together = needs.open.len() + path.len();
            if layout.tenant().max_dependencies.is_some_and(|most| together > most as usize) {
                needs.refused = Some(
                    "it depends on more open changes than the tenant's max-dependencies".to_owned(),
                );
                needs.is_ignored = true;
                break;
            }
            // Those above it wait to be counted until what is below them is known.
            if together > NEEDS_MAX {
                needs.refused = Some(format!("it depends on more than {NEEDS_MAX} open changes"));
                break;
            }
            Box::pin(self.follow(&needed, layout, seen, path, needs)).await?;
            if needs.refused.is_some() {
                break;
            }
            needs.open.push(needed);
        }
        path.pop();
        Ok(())
    }
}

fn cut_address(url: &str) -> String {
    url.chars().take(URL_CHARS_MAX).collect()
}

/// Returns why no pipeline of a tenant takes a change or ref that a connection tells of, if so: the
/// tenant has the project by another one to the same host. Nothing that the tenant asks of changes
/// is asked of those that are known by this one.
pub(crate) fn stranger(
    live: &Live,
    (connection, project): (&ConnectionName, &ProjectName),
) -> Option<String> {
    let by = &live.layout.tenant().project(project)?.connection;
    let tenant = &live.tenant.name;
    (by != connection).then(|| {
        format!(
            "tenant {tenant} has {project} by the connection {by}, and {connection} tells of it"
        )
    })
}

/// Returns whether a change is one of a tenant's project, by the connection that the tenant has the
/// project from.
pub(crate) fn is_inside(layout: &Layout, change: &ChangeKey) -> bool {
    layout
        .tenant()
        .project(&change.project)
        .is_some_and(|project| project.connection == change.connection)
}

/// Returns a change as it is offered to a queue. One that is refused is shown without what it
/// needs. In a dependent pipeline it says which changes are tested and landed together with it;
/// elsewhere it says which of what it needs need it in turn, and whether they are tested as one is
/// decided with all of them at hand ([`crate::mates`]).
pub(crate) fn candidate(
    facts: &ChangeFacts,
    needs: &Needs,
    refused: Option<String>,
    pipeline: &Pipeline,
) -> Candidate {
    let below = if refused.is_some() { &[] } else { needs.open.as_slice() };
    let own = &facts.change.key;
    let tied = if refused.is_some() { Vec::new() } else { needs.cycle_of(own) };
    let (cycle, mates): (Vec<ChangeKey>, Vec<ChangeKey>) = match pipeline.manager {
        Manager::Dependent => (tied, Vec::new()),
        _ => (Vec::new(), tied.into_iter().filter(|key| key != own).collect()),
    };
    // What stands ahead in the queue says of itself what is to be said; jobs are told of all
    // changes of a cycle by its first.
    let is_told = |need: &ChangeFacts| {
        pipeline.manager != Manager::Dependent || cycle.contains(&need.change.key)
    };
    Candidate {
        needs: below
            .iter()
            .map(|need| alone(need, if is_told(need) { NEED_MESSAGE_CHARS } else { 0 }))
            .collect(),
        cycle,
        mates,
        unfollowed: needs.unfollowed.clone(),
        refused,
        ..alone(facts, 4_000)
    }
}

/// Returns the paths that a change touches, unless they are too many to carry along.
fn few_files(facts: &ChangeFacts) -> Option<Vec<String>> {
    facts
        .files
        .clone()
        .filter(|files| files.iter().map(String::len).sum::<usize>() <= FILES_BYTES_MAX)
}

fn alone(facts: &ChangeFacts, message_chars: usize) -> Candidate {
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    Candidate {
        change: facts.change.clone(),
        url: facts.url.clone(),
        title: cut(&facts.title, 300),
        message: cut(&facts.message, message_chars),
        author: facts.author.clone(),
        needs: Vec::new(),
        cycle: Vec::new(),
        mates: Vec::new(),
        unfollowed: Vec::new(),
        refused: None,
        merged: (facts.status == ChangeStatus::Merged)
            .then(|| InBranch { files: few_files(facts) }),
        moved_from: None,
        as_of: facts.updated_at,
        moved_on: None,
        debug: false,
    }
}
