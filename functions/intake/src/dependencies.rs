//! Resolves what a change depends on, transitively: the open changes in merge order, or the reason
//! why the change cannot be tested (Z6.5).
//!
//! Changes may form dependency cycles; each pipeline decides whether it accepts them
//! ([`Dependencies::refusal`]).
//!
//! A tenant's changes depend on its own projects only. Changes outside of the tenant are never
//! tested, shown or followed: the forge's token may read repositories that the author of the
//! `Depends-On` may not (Z2.1, D05).

use crate::{Intake, retry_error};
use sluice_config::layout::Layout;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_forge::{DEPENDENCIES_MAX, ErrorClass, names_too_many, urls_of_no_change};
use sluice_gate::bundle_order::bundle_landing_order;
use sluice_gate::filter::{self, EventAuthor};
use sluice_gate::plan::{BUNDLE_MAX, change_outside_tenant_reason};
use sluice_gate::{Candidate, MergedChange};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, RepositoryPermission};
use sluice_model::event::ForgeEvent;
use sluice_model::{ConnectionName, PipelineName, ProjectName, Timestamp};
use sluice_records::connection;
use sluice_records::layout::LiveLayout;
use sluice_runtime::batch::ReconcileError;
use std::collections::{BTreeMap, BTreeSet};

/// The most changes that a change may depend on, transitively.
pub(crate) const NEEDS_MAX: usize = 20;

/// The most changes that one delivery reads from forges besides its own; a run has 30 seconds.
const READS_MAX: usize = 30;

/// The most bytes of the paths that a merged change carries; with more, its jobs run whatever they
/// match.
const FILES_BYTES_MAX: usize = 8_000;

/// The most characters of a dependency's description.
const NEED_MESSAGE_CHARS: usize = 500;

/// The most characters of a URL that a refusal repeats.
const URL_CHARS_MAX: usize = 200;

/// The most unresolvable URLs that are reported with a change.
const UNFOLLOWED_MAX: usize = 3;

/// The dependencies of a change.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// The open dependencies, in merge order.
    pub(crate) open: Vec<ChangeFacts>,
    /// The reason why the change cannot be tested, if any.
    pub(crate) refused: Option<String>,
    /// Whether a refusal is not reported: there are more dependencies than the tenant allows.
    pub(crate) is_ignored: bool,
    /// Some URLs that the change itself names and that no connection leads to. As in Zuul, they are
    /// ignored.
    unfollowed: Vec<String>,
    /// The direct dependencies that are not merged.
    direct: Vec<ChangeKey>,
    /// The dependency edges between open changes, from dependent to dependency.
    named: Vec<(ChangeKey, ChangeKey)>,
    /// The edges between changes whose commits are based on each other.
    parents: Vec<(ChangeKey, ChangeKey)>,
}

impl Dependencies {
    /// Returns the direct dependencies of the change that are not merged yet.
    pub(crate) fn direct(&self) -> &[ChangeKey] {
        &self.direct
    }

    /// Returns the changes of the dependency cycle of `key`, itself included, in merge order. The
    /// result is the same for all of them, and empty where `key` is in no cycle.
    pub(crate) fn cycle_of(&self, key: &ChangeKey) -> Vec<ChangeKey> {
        let forth = reachable(key, &self.named, |(from, to)| (from, to));
        let back = reachable(key, &self.named, |(from, to)| (to, from));
        bundle_landing_order(forth.intersection(&back).cloned().collect(), &self.parents)
    }

    /// Returns why a pipeline may not test the change `own`, or `None` if it may. Reasons are a
    /// refusal found while its dependencies were resolved, an open dependency of a connection that
    /// the pipeline does not accept, and a dependency cycle, of it or of an open dependency, that a
    /// queue forbids or that has more than [`BUNDLE_MAX`] members (D04, D11). That a pipeline may
    /// ignore dependencies is not considered here. The text is Zuul's where Zuul has one.
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
            let why = filter::connection_refusal(pipeline, &need.change.key.connection)?;
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
                let is_long = length > BUNDLE_MAX;
                is_long.then(|| format!("it is in a dependency cycle of {length} changes; at most {BUNDLE_MAX} are allowed"))
            },
        )
    }
}

/// Returns the changes that are reached from a change in one step or more; itself only if it is in
/// a cycle. `way` returns the start and the end of each edge.
fn reachable<'a>(
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

/// Cache of what one delivery read: each change is read once, and their number is limited.
#[derive(Debug, Default)]
pub(crate) struct ChangeCache {
    /// The changes that were read; `None` for one that its forge does not have.
    changes: BTreeMap<ChangeKey, Option<ChangeFacts>>,
    /// The open changes of each topic.
    topics: BTreeMap<(ConnectionName, String), Vec<ChangeKey>>,
    /// Whether any change depends on the event's own, or ever did.
    is_needed: bool,
    /// The permission of the event's sender, once it was read.
    sender_permission: Option<RepositoryPermission>,
    /// Whether Sluice caused the event, once that was checked.
    pub(crate) speaker: Option<EventAuthor>,
    /// The time on the forge's clock of the event's own change.
    as_of: Timestamp,
}

impl ChangeCache {
    /// Creates a cache that contains the event's own change. `is_needed` says whether other changes
    /// may depend on it, `as_of` when `facts` were true by the forge's clock.
    pub(crate) fn knowing(facts: &ChangeFacts, is_needed: bool, as_of: Timestamp) -> Self {
        let changes = BTreeMap::from([(facts.change.key.clone(), Some(facts.clone()))]);
        Self {
            changes,
            topics: BTreeMap::new(),
            is_needed,
            sender_permission: None,
            speaker: None,
            as_of,
        }
    }

    /// Returns when, on the forge's clock, the event's own change was as it is in this cache.
    pub(crate) fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// Returns whether any change may depend on the event's own.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Returns whether the delivery has read as many changes as it may ([`READS_MAX`]).
    pub(crate) fn is_full(&self) -> bool {
        self.changes.len() > READS_MAX
    }
}

impl Intake {
    /// Resolves the dependencies of a change within a tenant, transitively, by reading forges.
    /// Merged dependencies are left out. A refusal is part of the result, which is then incomplete;
    /// one reason is that `cache` has no room for another change. An error only has the message
    /// redelivered.
    pub(crate) async fn dependencies_of(
        &self,
        facts: &ChangeFacts,
        layout: &Layout,
        cache: &mut ChangeCache,
    ) -> Result<Dependencies, ReconcileError> {
        let mut needs = Dependencies::default();
        let mut path = Vec::new();
        Box::pin(self.follow_dependencies(facts, layout, cache, &mut path, &mut needs)).await?;
        Ok(needs)
    }

    /// Returns the permission of the event's sender in the repository. The first answer is kept in
    /// `cache`, which must belong to this event only. It is `RepositoryPermission::None` for an
    /// event without a sender, which a sweep found, if the forge refuses the question for good, or
    /// if the connection was removed or leads to no forge.
    pub(crate) async fn sender_permission(
        &self,
        event: &ForgeEvent,
        cache: &mut ChangeCache,
    ) -> Result<RepositoryPermission, ReconcileError> {
        if let Some(may) = cache.sender_permission {
            return Ok(may);
        }
        let may = match event.sender.as_str() {
            // A sweep found the event, so it has no sender.
            "" => RepositoryPermission::None,
            sender => match self.find_forge(&event.connection).await? {
                Ok(forge) => match forge.permission_of(&event.project, sender).await {
                    Ok(may) => may,
                    Err(error) if error.class() == ErrorClass::Final => RepositoryPermission::None,
                    Err(error) => return Err(retry_error(error)),
                },
                // The connection was removed, so no permission exists.
                Err(_) => RepositoryPermission::None,
            },
        };
        Ok(*cache.sender_permission.insert(may))
    }

    /// Reads a change from the cache or its forge, and caches the answer; `None` if the forge does
    /// not have it or refuses it for good, or the connection was removed or leads to no forge. How
    /// many changes are read is not limited here.
    pub(crate) async fn read(
        &self,
        key: &ChangeKey,
        cache: &mut ChangeCache,
    ) -> Result<Option<ChangeFacts>, ReconcileError> {
        if let Some(cached) = cache.changes.get(key) {
            return Ok(cached.clone());
        }
        let facts = match self.find_forge(&key.connection).await? {
            Ok(forge) => match forge.read_change(key).await {
                Ok(facts) => Some(facts),
                Err(error) if error.class() == ErrorClass::Final => None,
                Err(error) => return Err(retry_error(error)),
            },
            // The connection was removed, so the change has no forge.
            Err(_) => None,
        };
        cache.changes.insert(key.clone(), facts.clone());
        Ok(facts)
    }

    /// Returns the direct dependencies of a change, or for each that cannot be resolved the reason.
    /// Sources are its commits, its message, and its topic where a queue of its project uses
    /// topics, in this order. URLs in `ignored_urls` are left out. Merged changes, the change
    /// itself and repeated ones may be among them.
    async fn named_by(
        &self,
        facts: &ChangeFacts,
        ignored_urls: &[&String],
        layout: &Layout,
        cache: &mut ChangeCache,
    ) -> Result<Vec<Result<ChangeKey, String>>, ReconcileError> {
        let at = |url: &String| {
            self.change_at(url, layout).ok_or_else(|| {
                format!(
                    "it depends on {}, which is not a change of a configured forge",
                    cut_address(url)
                )
            })
        };
        let mut named: Vec<_> = facts.parents.iter().cloned().map(Ok).collect();
        named.extend(facts.depends_on.iter().filter(|url| !ignored_urls.contains(url)).map(at));
        let (key, branch) = (&facts.change.key, facts.change.branch.as_str());
        let pipelines = layout.project_pipelines(&key.project);
        let by_topic = |pipeline: &PipelineName| {
            layout.queue_on(&key.project, pipeline.as_str(), Some(branch)).dependencies_by_topic
        };
        if let Some(topic) = &facts.topic
            && pipelines.iter().any(by_topic)
        {
            // Its own key is left out.
            match self.changes_of_topic(&key.connection, topic, cache).await? {
                Ok(changes) => {
                    named.extend(changes.into_iter().filter(|change| change != key).map(Ok))
                }
                Err(why) => named.push(Err(why)),
            }
        }
        Ok(named)
    }

    /// Returns the open changes of a connection with a topic, from the cache or the forge; the
    /// inner error says why they cannot be listed. A transient error of the forge has the message
    /// delivered again.
    async fn changes_of_topic(
        &self,
        connection: &ConnectionName,
        topic: &str,
        cache: &mut ChangeCache,
    ) -> Result<Result<Vec<ChangeKey>, String>, ReconcileError> {
        let of = (connection.clone(), topic.to_owned());
        if let Some(cached) = cache.topics.get(&of) {
            return Ok(Ok(cached.clone()));
        }
        match self.forge(connection)?.open_changes_of_topic(topic).await {
            Ok(changes) => {
                cache.topics.insert(of, changes.clone());
                Ok(Ok(changes))
            }
            Err(error) if error.class() == ErrorClass::Final => Ok(Err(format!(
                "it depends on the changes of its topic, which cannot be read: {error}"
            ))),
            Err(error) => Err(retry_error(error)),
        }
    }

    /// Returns the key of the change whose web page has this URL; `None` if no connection leads
    /// there. Where several connections lead to the host, the tenant's own is preferred.
    fn change_at(&self, url: &str, layout: &Layout) -> Option<ChangeKey> {
        let mut fitting = self.forges.values().filter_map(|forge| forge.change_at(url));
        let first = fitting.next()?;
        if is_of_tenant(layout, &first) {
            return Some(first);
        }
        Some(fitting.find(|key| is_of_tenant(layout, key)).unwrap_or(first))
    }

    /// Adds the dependencies of a change to `needs`, and theirs in turn, depth first. `path` holds
    /// the changes that led here, from the event's own, without the change itself; it is empty for
    /// the event's own. A refusal is stored in `needs` and ends the search. Merged dependencies are
    /// left out.
    async fn follow_dependencies(
        &self,
        facts: &ChangeFacts,
        layout: &Layout,
        cache: &mut ChangeCache,
        path: &mut Vec<ChangeKey>,
        needs: &mut Dependencies,
    ) -> Result<(), ReconcileError> {
        if names_too_many(&facts.depends_on) {
            let is_own = path.is_empty();
            let who = if is_own {
                "it".to_owned()
            } else {
                format!("it depends on {}, which", facts.change.key)
            };
            needs.refused =
                Some(format!("{who} names more than {DEPENDENCIES_MAX} URLs in Depends-On lines"));
            return Ok(());
        }
        path.push(facts.change.key.clone());
        needs
            .parents
            .extend(facts.parents.iter().map(|below| (facts.change.key.clone(), below.clone())));
        // URLs on hosts that no connection leads to are ignored.
        let ignored_urls = connection::addresses_on_unknown_hosts(
            &self.ports,
            urls_of_no_change(&self.forges, &facts.depends_on),
        )
        .await?;
        if path.len() == 1 {
            needs.unfollowed =
                ignored_urls.iter().take(UNFOLLOWED_MAX).map(|url| cut_address(url)).collect();
        }
        for key in self.named_by(facts, &ignored_urls, layout, cache).await? {
            let key = match key {
                Ok(key) => key,
                Err(why) => {
                    needs.refused = Some(why);
                    break;
                }
            };
            if key == facts.change.key {
                continue; // A change that names itself has no further dependency.
            }
            // It is on the path that led here, or was resolved before.
            if path.contains(&key) || needs.open.iter().any(|open| open.change.key == key) {
                needs.named.push((facts.change.key.clone(), key.clone()));
                needs.direct.extend((path.len() == 1).then_some(key));
                continue;
            }
            if cache.is_full() && !cache.changes.contains_key(&key) {
                needs.refused = Some(format!(
                    "resolving its dependencies takes reading more than {READS_MAX} changes"
                ));
                break;
            }
            let needed = self.read(&key, cache).await?;
            if needed.as_ref().is_some_and(|needed| needed.status == ChangeStatus::Merged) {
                continue;
            }
            // Checked first: whether such a change exists is visible only to those who may see its
            // project.
            if !is_of_tenant(layout, &key) {
                needs.refused = Some(change_outside_tenant_reason(&key));
                break;
            }
            let Some(needed) = needed else {
                needs.refused =
                    Some(format!("it depends on {key}, which does not exist on its forge"));
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
            // The changes on the path are counted before they are resolved.
            if together > NEEDS_MAX {
                needs.refused = Some(format!("it depends on more than {NEEDS_MAX} open changes"));
                break;
            }
            Box::pin(self.follow_dependencies(&needed, layout, cache, path, needs)).await?;
            if needs.refused.is_some() {
                break;
            }
            needs.open.push(needed);
        }
        path.pop();
        Ok(())
    }
}

/// Shortens a URL to [`URL_CHARS_MAX`] characters for messages.
fn cut_address(url: &str) -> String {
    url.chars().take(URL_CHARS_MAX).collect()
}

/// Returns the reason if a tenant has a project by another connection to the same host than this
/// one; it then accepts no change or ref, as its requirements would not apply. Otherwise `None`,
/// also if it does not have the project.
pub(crate) fn other_connection_reason(
    live: &LiveLayout,
    connection: &ConnectionName,
    project: &ProjectName,
) -> Option<String> {
    let by = &live.layout.tenant().project(project)?.connection;
    let tenant = &live.tenant.name;
    (by != connection).then(|| {
        format!("tenant {tenant} has {project} by the connection {by}, not by {connection}")
    })
}

/// Returns whether a tenant has the change's project, by the change's connection.
pub(crate) fn is_of_tenant(layout: &Layout, change: &ChangeKey) -> bool {
    layout
        .tenant()
        .project(&change.project)
        .is_some_and(|project| project.connection == change.connection)
}

/// Builds the part of a message that offers a change to a queue; its texts are cut. With a reason
/// in `refused` it has neither dependencies nor a bundle. In a dependent pipeline it lists the
/// members of its bundle. Elsewhere it lists the other changes of its dependency cycle; whether
/// they are tested as one bundle is decided later, with all of them at hand ([`crate::bundle`]).
pub(crate) fn candidate(
    facts: &ChangeFacts,
    needs: &Dependencies,
    refused: Option<String>,
    pipeline: &Pipeline,
) -> Candidate {
    let below = if refused.is_some() { &[] } else { needs.open.as_slice() };
    let own = &facts.change.key;
    let tied = if refused.is_some() { Vec::new() } else { needs.cycle_of(own) };
    let (cycle, changes): (Vec<ChangeKey>, Vec<ChangeKey>) = match pipeline.manager {
        Manager::Dependent => (tied, Vec::new()),
        _ => (Vec::new(), tied.into_iter().filter(|key| key != own).collect()),
    };
    // The changes ahead in the queue carry their own descriptions. Jobs get the descriptions of all
    // bundle members from the first of them.
    let is_described = |need: &ChangeFacts| {
        pipeline.manager != Manager::Dependent || cycle.contains(&need.change.key)
    };
    Candidate {
        needs: below
            .iter()
            .map(|need| {
                candidate_without_dependencies(
                    need,
                    if is_described(need) { NEED_MESSAGE_CHARS } else { 0 },
                )
            })
            .collect(),
        bundle: cycle,
        cycle_needs: changes,
        unresolved_dependencies: needs.unfollowed.clone(),
        refused,
        ..candidate_without_dependencies(facts, 4_000)
    }
}

/// Returns the paths that a change touches; `None` if they are unknown or too many to store.
fn few_files(facts: &ChangeFacts) -> Option<Vec<String>> {
    facts
        .files
        .clone()
        .filter(|files| files.iter().map(String::len).sum::<usize>() <= FILES_BYTES_MAX)
}

/// Builds a candidate without dependencies or bundle, its texts cut, the message to `message_chars`
/// characters. Its time is that of the change's last update.
fn candidate_without_dependencies(facts: &ChangeFacts, message_chars: usize) -> Candidate {
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    Candidate {
        change: facts.change.clone(),
        url: facts.url.clone(),
        title: cut(&facts.title, 300),
        message: cut(&facts.message, message_chars),
        author: facts.author.clone(),
        topic: facts.topic.as_deref().map(|topic| cut(topic, 300)),
        needs: Vec::new(),
        bundle: Vec::new(),
        cycle_needs: Vec::new(),
        unresolved_dependencies: Vec::new(),
        refused: None,
        merged: (facts.status == ChangeStatus::Merged)
            .then(|| MergedChange { files: few_files(facts) }),
        moved_from: None,
        as_of: facts.updated_at,
        newer_head: None,
        debug: false,
    }
}
