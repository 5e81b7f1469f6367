//! Autoholds: what an operator wants of the nodes of builds that fail, and which request a failed
//! build meets (Zuul's `autohold`).

use serde::{Deserialize, Serialize};
use sluice_config::pattern::Pattern;
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, JobName, NodeId, ProjectName, ProviderName, TenantName, Timestamp};

/// The most builds that one request may ask for; a record holds their nodes.
pub const COUNT_MAX: u32 = 40;

/// Characters of a reason that are kept, as in Zuul.
pub const REASON_CHARS_MAX: usize = 1_024;

/// The filter that any change and any ref meets.
pub const ANY: &str = ".*";

/// A request to keep nodes of failed builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autohold {
    /// Its id in its tenant: ten digits, counted from 1.
    pub id: String,
    /// The tenant.
    pub tenant: TenantName,
    /// The project of the change.
    pub project: ProjectName,
    /// The job.
    pub job: JobName,
    /// A regular expression that the change's ref has to match as a whole.
    pub ref_filter: String,
    /// Why, for people.
    pub reason: String,
    /// Who asked.
    pub by: String,
    /// Builds whose nodes are to be kept.
    pub max_count: u32,
    /// Seconds for which nodes are kept; `None` until somebody deletes the request.
    pub node_expiration_seconds: Option<u64>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whose nodes are kept, or were.
    #[serde(default)]
    pub held: Vec<Held>,
}

/// Nodes that are kept of one build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The build.
    pub build: BuildId,
    /// Where the nodes are.
    pub provider: ProviderName,
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// Until when.
    pub until: Timestamp,
}

/// Milliseconds for which nodes without an end are kept: longer than anybody asks.
const FOR_EVER_MILLIS: u64 = 3_650 * 86_400_000;

impl Autohold {
    /// Returns how many builds' nodes it has had kept.
    pub fn current_count(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// Returns until when nodes are kept that it takes now.
    pub fn until(&self, now: Timestamp) -> Timestamp {
        match self.node_expiration_seconds.filter(|seconds| *seconds > 0) {
            Some(seconds) => now.plus_seconds(seconds),
            None => now.plus_millis(FOR_EVER_MILLIS),
        }
    }

    /// Returns since when it has nothing more to do: its count is reached, and the time of all its
    /// nodes is over.
    pub fn expired_at(&self, now: Timestamp) -> Option<Timestamp> {
        let last = self.held.iter().map(|held| held.until).max()?;
        (self.current_count() >= self.max_count && last <= now).then_some(last)
    }
}

/// Returns whether nodes of a build that ended so may be of interest: it failed by itself, and is
/// not tried again.
pub fn is_held_for(result: BuildResult) -> bool {
    matches!(
        result,
        BuildResult::Failure
            | BuildResult::PostFailure
            | BuildResult::TimedOut
            | BuildResult::RetryLimit
    )
}

/// Returns the request that a failed build of a job meets: of several the one that says most
/// exactly which change it means, then the oldest. Such as have their count are left alone.
pub fn choose<'a>(
    requests: impl Iterator<Item = &'a Autohold>,
    project: &ProjectName,
    job: &JobName,
    git_ref: &str,
) -> Option<&'a Autohold> {
    let open = requests.filter(|request| {
        request.project == *project
            && request.job == *job
            && request.current_count() < request.max_count
    });
    let exactness = |request: &&Autohold| match request.ref_filter.as_str() {
        filter if filter == git_ref => Some(0),
        ANY => Some(2),
        // What cannot be read as a pattern means what it says, and that is another ref.
        filter => {
            Pattern::new(filter).ok().filter(|pattern| pattern.matches_whole(git_ref)).map(|_| 1)
        }
    };
    open.filter_map(|request| Some((exactness(&request)?, request)))
        .min_by(|(a, left), (b, right)| (a, &left.id).cmp(&(b, &right.id)))
        .map(|(_, request)| request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u32, ref_filter: &str, max_count: u32) -> Autohold {
        Autohold {
            id: format!("{id:010}"),
            tenant: "demo".into(),
            project: ProjectName::new("forge.test", "org/one"),
            job: "unit".into(),
            ref_filter: ref_filter.to_owned(),
            reason: "to look at it".to_owned(),
            by: "ada".to_owned(),
            max_count,
            node_expiration_seconds: None,
            created_at: Timestamp(0),
            held: Vec::new(),
        }
    }

    fn held(until: u64) -> Held {
        Held { build: "b".into(), provider: "p".into(), nodes: Vec::new(), until: Timestamp(until) }
    }

    fn chosen(requests: &[Autohold], job: &str, git_ref: &str) -> Option<String> {
        let project = ProjectName::new("forge.test", "org/one");
        choose(requests.iter(), &project, &job.into(), git_ref)
            .map(|request| request.id.trim_start_matches('0').into())
    }

    /// N15
    #[test]
    fn a_build_meets_the_request_that_means_it_most_exactly_and_is_not_used_up() {
        let mut all = vec![
            request(1, ANY, 1),
            request(2, "refs/pull/1/.*", 1),
            request(3, "refs/pull/1/head", 1),
            request(4, "refs/pull/1/head", 1),
            request(5, "(", 1),
        ];
        assert_eq!(chosen(&all, "unit", "refs/pull/1/head").as_deref(), Some("3"));
        assert_eq!(chosen(&all, "unit", "refs/pull/2/head").as_deref(), Some("1"));
        assert_eq!(chosen(&all, "lint", "refs/pull/1/head"), None);
        all[2].held.push(held(5));
        all[3].held.push(held(5));
        assert_eq!(chosen(&all, "unit", "refs/pull/1/head").as_deref(), Some("2"));
        assert_eq!(chosen(&[request(1, ANY, 0)], "unit", "refs/pull/1/head"), None);
    }

    /// N15
    #[test]
    fn a_request_has_expired_when_its_count_is_reached_and_its_nodes_time_is_over() {
        let mut request = request(1, ANY, 2);
        assert_eq!(request.expired_at(Timestamp(9)), None);
        request.held.push(held(3));
        assert_eq!(request.expired_at(Timestamp(9)), None, "another build may come");
        request.held.push(held(5));
        assert_eq!(
            (request.expired_at(Timestamp(4)), request.expired_at(Timestamp(5))),
            (None, Some(Timestamp(5)))
        );
        request.node_expiration_seconds = Some(60);
        assert_eq!(request.until(Timestamp(0)), Timestamp(60_000));
        request.node_expiration_seconds = Some(0);
        assert!(
            request.until(Timestamp(0)) > Timestamp(86_400_000 * 365),
            "as in Zuul: nobody set an end"
        );
    }
}
