//! Autoholds: operators' requests to keep the nodes of failing builds, and the choice of the
//! request that a failed build meets (Zuul's `autohold`).

use serde::{Deserialize, Serialize};
use sluice_config::pattern::Pattern;
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, JobName, NodeId, ProjectName, ProviderName, TenantName, Timestamp};

/// The most builds that one request may hold; its record lists their nodes.
pub const COUNT_MAX: u32 = 40;

/// The most characters of a stored reason, as in Zuul.
pub const REASON_CHARS_MAX: usize = 1_024;

/// The `ref_filter` that matches every change and ref.
pub const ANY: &str = ".*";

/// An operator's request to keep the nodes of failed builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autohold {
    /// The request's id in its tenant: ten digits, counted from 1.
    pub id: String,
    /// The tenant.
    pub tenant: TenantName,
    /// The project of the change.
    pub project: ProjectName,
    /// The job.
    pub job: JobName,
    /// A regular expression that the change's ref has to match as a whole. An invalid one matches
    /// only the identical ref.
    pub ref_filter: String,
    /// The operator's reason.
    pub reason: String,
    /// The operator who made the request.
    pub by: String,
    /// The number of builds whose nodes are to be kept; further ones are not.
    pub max_count: u32,
    /// Seconds for which the nodes of a build are kept. With `None` or 0 they are kept until an
    /// operator deletes the request.
    pub node_expiration_seconds: Option<u64>,
    /// The holder's public key as a line of `authorized_keys`, which the executor adds to the nodes
    /// of a build that meets the request. `None` where the holder uses the key of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<String>,
    /// When the request was made.
    pub created_at: Timestamp,
    /// The builds whose nodes are or were kept.
    #[serde(default)]
    pub held: Vec<HeldNodes>,
}

/// Nodes that are kept of one build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNodes {
    /// The build.
    pub build: BuildId,
    /// Where the nodes are.
    pub provider: ProviderName,
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// Until when; `None` until the request is deleted.
    pub until: Option<Timestamp>,
}

impl Autohold {
    /// Returns the number of builds whose nodes the request has kept.
    pub fn current_count(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// Returns until when nodes that the request holds from `now` on are kept: for its
    /// `node_expiration_seconds`; `None` where that is unset or 0, until the request is deleted.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let seconds = self.node_expiration_seconds.filter(|seconds| *seconds > 0);
        seconds.map(|seconds| now.plus_seconds(seconds))
    }

    /// Returns when the last of its holds ends; `None` without any, and where one of them has no
    /// end.
    pub fn last_until(&self) -> Option<Timestamp> {
        let ends: Option<Vec<Timestamp>> = self.held.iter().map(|held| held.until).collect();
        ends?.into_iter().max()
    }

    /// Returns when the request expired: its count was reached and the hold of all its nodes has
    /// ended. `None` while it has not expired.
    pub fn expired_at(&self, now: Timestamp) -> Option<Timestamp> {
        let last = self.last_until()?;
        (self.current_count() >= self.max_count && last <= now).then_some(last)
    }
}

/// Returns whether autoholds apply to a build with this result: it failed by itself and is not
/// retried (failure, post failure, timeout or retry limit).
pub fn is_held_for(result: BuildResult) -> bool {
    matches!(
        result,
        BuildResult::Failure
            | BuildResult::PostFailure
            | BuildResult::TimedOut
            | BuildResult::RetryLimit
    )
}

/// Returns the request that a failed build meets; `None` where none matches. `requests` are those
/// of the build's tenant, and the caller has checked the result ([`is_held_for`]). Of several, the
/// one with the most exact `ref_filter` is returned, then the oldest. Requests whose count is
/// reached are ignored. The request is not changed.
pub fn choose_request<'a>(
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
        // An invalid pattern matches only the identical ref, which was compared above.
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
            ssh_key: None,
            created_at: Timestamp(0),
            held: Vec::new(),
        }
    }

    fn held(until: u64) -> HeldNodes {
        HeldNodes {
            build: "b".into(),
            provider: "p".into(),
            nodes: Vec::new(),
            until: Some(Timestamp(until)),
        }
    }

    fn chosen(requests: &[Autohold], job: &str, git_ref: &str) -> Option<String> {
        let project = ProjectName::new("forge.test", "org/one");
        choose_request(requests.iter(), &project, &job.into(), git_ref)
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
        assert_eq!(request.until(Timestamp(0)), Some(Timestamp(60_000)));
        request.node_expiration_seconds = Some(0);
        assert_eq!(request.until(Timestamp(0)), None, "as in Zuul, 0 means no expiry");
        request.held[0].until = None;
        assert_eq!(request.expired_at(Timestamp(u64::MAX)), None, "a hold without an end stays");
    }
}
