//! The subject of a queue item: a proposed change as its forge showed it, or a ref that moved. Only
//! intake writes facts about changes.

use crate::{BranchName, ConnectionName, ProjectName, Timestamp, gerrit::Vote, git::Oid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity of a change or ref: its connection, its project, and its id in the project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "StoredKey", into = "StoredKey")]
pub struct ChangeKey {
    /// The connection to the forge.
    pub connection: ConnectionName,
    /// The project's canonical name.
    pub project: ProjectName,
    /// The change's number, or the ref with its move.
    pub id: ChangeId,
}

/// Identifies a proposed change or a ref move within its project (Zuul's Change, Branch, Tag and
/// Ref).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeId {
    /// The number of a change or pull request.
    Number(u64),
    /// A ref with one move of it. Each move is tested as an item of its own.
    Ref(RefMove),
}

/// A ref and one move of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RefMove {
    /// The full ref name: `refs/heads/main`, `refs/tags/1.0`.
    #[serde(rename = "name")]
    pub git_ref: String,
    /// The commit before the move; `None` if the ref is new or did not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldrev: Option<Oid>,
    /// The commit after the move; `None` if the ref was deleted, or if the commit is only read when
    /// the item is tested (timer events).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newrev: Option<Oid>,
    /// The images that an image event names. Each image event is an item distinct from the plain
    /// branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Box<ImageSelection>>,
}

/// The images that an image event is about (`image-build`, `image-validate`, `image-delete`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ImageSelection {
    /// The image names in the tenant, as jobs name them in `image-build-name`.
    pub names: Vec<String>,
    /// The upload to validate; each upload has an item of its own (L1.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// The build to delete; each build has an item of its own (L1.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

impl ImageSelection {
    /// Selects one image, without a specific build or upload.
    pub fn one(name: impl Into<String>) -> Self {
        Self { names: vec![name.into()], upload: None, build: None }
    }
}

impl fmt::Display for ImageSelection {
    /// Writes `image`, the names separated by commas, and the upload and the build if they are set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image {}", self.names.join(", "))?;
        if let Some(upload) = &self.upload {
            write!(f, ", upload {upload}")?;
        }
        match &self.build {
            Some(build) => write!(f, ", build {build}"),
            None => Ok(()),
        }
    }
}

impl RefMove {
    /// Returns a ref move without images. An all-zeros `oldrev` or `newrev` becomes `None`: the ref
    /// did not exist before, or does not exist after.
    pub fn new(git_ref: impl Into<String>, oldrev: Oid, newrev: Oid) -> Self {
        let commit = |oid: Oid| (!oid.is_zero()).then_some(oid);
        Self {
            git_ref: git_ref.into(),
            oldrev: commit(oldrev),
            newrev: commit(newrev),
            images: None,
        }
    }

    /// Returns a branch without a move: its tip is read when the item is tested.
    pub fn at_tip(branch: &BranchName) -> Self {
        Self { git_ref: format!("{HEADS}{branch}"), oldrev: None, newrev: None, images: None }
    }

    /// Returns the same ref move, with the images that an image event names. They replace earlier
    /// ones.
    #[must_use]
    pub fn with_images(self, images: ImageSelection) -> Self {
        Self { images: Some(Box::new(images)), ..self }
    }

    /// Returns the name of the branch; `None` if the ref is not a branch.
    pub fn branch(&self) -> Option<BranchName> {
        self.git_ref.strip_prefix(HEADS).map(BranchName::from)
    }

    /// Returns the name of the tag; `None` if the ref is not a tag.
    pub fn tag(&self) -> Option<&str> {
        self.git_ref.strip_prefix(TAGS)
    }

    /// Returns whether the move deleted the ref: it has a commit before the move and none after it.
    pub fn is_deleted(&self) -> bool {
        self.newrev.is_none() && self.oldrev.is_some()
    }
}

/// The prefix of a branch's full ref name.
const HEADS: &str = "refs/heads/";
/// The prefix of a tag's full ref name.
const TAGS: &str = "refs/tags/";

/// The stored form of a [`ChangeKey`]: exactly one of number and ref is set.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    connection: ConnectionName,
    project: ProjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    ref_move: Option<RefMove>,
}

impl From<ChangeKey> for StoredKey {
    /// Returns the stored form of the key, with either a number or a ref.
    fn from(key: ChangeKey) -> Self {
        let ChangeKey { connection, project, id } = key;
        let (number, moved) = match id {
            ChangeId::Number(number) => (Some(number), None),
            ChangeId::Ref(moved) => (None, Some(moved)),
        };
        Self { connection, project, number, ref_move: moved }
    }
}

impl TryFrom<StoredKey> for ChangeKey {
    type Error = &'static str;

    /// Returns the key. An error unless exactly one of number and ref is set.
    fn try_from(stored: StoredKey) -> Result<Self, Self::Error> {
        let id = match (stored.number, stored.ref_move) {
            (Some(number), None) => ChangeId::Number(number),
            (None, Some(moved)) => ChangeId::Ref(moved),
            _ => return Err("a change has either a number or a ref"),
        };
        Ok(Self { connection: stored.connection, project: stored.project, id })
    }
}

impl ChangeKey {
    /// Returns the key of a change or pull request.
    pub fn change(connection: ConnectionName, project: ProjectName, number: u64) -> Self {
        Self { connection, project, id: ChangeId::Number(number) }
    }

    /// Returns the number of the change; `None` for a ref.
    pub fn number(&self) -> Option<u64> {
        match self.id {
            ChangeId::Number(number) => Some(number),
            ChangeId::Ref(_) => None,
        }
    }

    /// Returns the ref and its move; `None` for a change.
    pub fn ref_move(&self) -> Option<&RefMove> {
        match &self.id {
            ChangeId::Number(_) => None,
            ChangeId::Ref(moved) => Some(moved),
        }
    }

    /// Returns the images that an image event names; `None` for all other changes and refs.
    pub fn images(&self) -> Option<&ImageSelection> {
        self.ref_move()?.images.as_deref()
    }

    /// Returns a text that is unique within the project. For a change: its number. For a ref: its
    /// full name, its move as `old..new` if one of the two commits is known (a missing one is
    /// empty), and the images of an image event.
    pub fn local_id(&self) -> String {
        let RefMove { git_ref, oldrev, newrev, images } = match &self.id {
            ChangeId::Number(number) => return number.to_string(),
            ChangeId::Ref(moved) => moved,
        };
        let text = |oid: &Option<Oid>| oid.as_ref().map_or("", Oid::as_str).to_owned();
        let mut local = git_ref.clone();
        if oldrev.is_some() || newrev.is_some() {
            local += &format!(" {}..{}", text(oldrev), text(newrev));
        }
        if let Some(images) = images {
            local += &format!(" for {images}");
        }
        local
    }
}

impl fmt::Display for ChangeKey {
    /// Writes the project's path and the number, as `org/project#3`; for a ref the path, the full
    /// ref name and the images, without the commits of the move.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            ChangeId::Number(number) => write!(f, "{}#{number}", self.project.name()),
            ChangeId::Ref(RefMove { git_ref, images: Some(images), .. }) => {
                write!(f, "{} {git_ref} for {images}", self.project.name())
            }
            ChangeId::Ref(moved) => write!(f, "{} {}", self.project.name(), moved.git_ref),
        }
    }
}

/// One revision of a change, or one state of a ref: what an item tests and, for a change, may
/// merge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeRef {
    /// The change or ref.
    pub key: ChangeKey,
    /// The target branch of a change, or the branch that the ref is. For a tag or another ref
    /// outside `refs/heads/` it holds the full ref name; [`Self::on_branch`] distinguishes the two.
    pub branch: BranchName,
    /// The proposed commit (GitHub: the pull request's head) or the pushed one; for a deleted ref,
    /// its last commit. Zeros if the commit is only read when the item is tested.
    pub head: Oid,
    /// The patchset as users see it: Gerrit's number or GitHub's head commit. Empty for a ref.
    pub patchset: String,
}

impl ChangeRef {
    /// Returns the state of a ref that an item for this move tests. Its head is the commit after
    /// the move, for a deleted ref the last commit, and zeros if neither is known. Its branch is
    /// the branch's name, or the full ref name if the ref is no branch. Its patchset is empty.
    pub fn of_ref(connection: ConnectionName, project: ProjectName, moved: RefMove) -> Self {
        let branch = moved.branch().unwrap_or_else(|| BranchName(moved.git_ref.clone()));
        let head = moved.newrev.clone().or_else(|| moved.oldrev.clone()).unwrap_or_else(Oid::zero);
        let key = ChangeKey { connection, project, id: ChangeId::Ref(moved) };
        Self { key, branch, head, patchset: String::new() }
    }

    /// Returns the target branch of a change, or the branch that the ref is; `None` for a tag or
    /// another ref that is no branch.
    pub fn on_branch(&self) -> Option<&BranchName> {
        match &self.key.id {
            ChangeId::Ref(moved) if moved.branch().is_none() => None,
            ChangeId::Number(_) | ChangeId::Ref(_) => Some(&self.branch),
        }
    }

    /// Returns Zuul's `number,patchset`. For a ref: the commit after the move, or the full ref name
    /// if the ref was deleted or its commit is only read when tested.
    pub fn id(&self) -> String {
        match &self.key.id {
            ChangeId::Number(number) => format!("{number},{}", self.patchset),
            ChangeId::Ref(moved) => {
                moved.newrev.as_ref().map_or_else(|| moved.git_ref.clone(), ToString::to_string)
            }
        }
    }

    /// Returns the ref under which GitHub offers a change's head, `refs/pull/<number>/head`, also
    /// for changes of other forges. For a ref, returns its own full name.
    pub fn github_ref(&self) -> String {
        match &self.key.id {
            ChangeId::Number(number) => format!("refs/pull/{number}/head"),
            ChangeId::Ref(moved) => moved.git_ref.clone(),
        }
    }
}

impl fmt::Display for ChangeRef {
    /// Writes the key, followed by `at` and the short head commit unless that is all zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.head.is_zero() {
            true => write!(f, "{}", self.key),
            false => write!(f, "{} at {}", self.key, self.head.short()),
        }
    }
}

/// Whether a change is open, merged or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeStatus {
    /// The change is neither merged nor abandoned.
    Open,
    /// The change is merged into its branch.
    Merged,
    /// The change was closed or abandoned without being merged.
    Closed,
}

/// The state of a reviewer's latest review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewState {
    /// The reviewer approves.
    Approved,
    /// The reviewer asks for changes.
    ChangesRequested,
    /// The reviewer commented without approving or rejecting.
    Commented,
    /// The review was dismissed.
    Dismissed,
}

/// A reviewer's access level in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepositoryPermission {
    /// No access beyond the public's.
    None,
    /// Read access.
    Read,
    /// Push access.
    Write,
    /// Administrator access.
    Admin,
}

/// The latest review of one reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReview {
    /// The reviewer's login.
    pub by: String,
    /// The reviewer's e-mail address, if the forge shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The state of the review.
    pub state: ReviewState,
    /// The reviewer's permission in the repository.
    pub permission: RepositoryPermission,
    /// When it was submitted.
    pub submitted_at: Timestamp,
}

/// A commit status or check run on the head of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    /// The login or application that set it.
    pub by: String,
    /// The status's context (`tenant/check`).
    pub context: String,
    /// The state: `success`, `failure`, `error` or `pending`; for a check run, its conclusion.
    pub state: String,
    /// Whether it is a check run rather than a commit status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_check: bool,
    /// The forge's id of the status, if it has one. A status that is set again has a greater id,
    /// even if its state is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// Which lists of a change's facts are incomplete because the forge has more than we read. A
/// requirement counts only entries that were read. A rejection is assumed to match an unread entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Truncation {
    /// Whether reviews or reviewers are missing.
    pub reviews: bool,
    /// Whether statuses or check runs are missing.
    pub statuses: bool,
    /// Whether all check runs are missing because the forge does not show them to our token.
    /// Rejections do not apply to these, since no later read can show them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_runs: bool,
}

impl Truncation {
    /// Returns whether all lists are complete.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether reading from the forge again may complete the lists: reviews or statuses
    /// were cut. Check runs that the token may not see do not count.
    pub fn can_be_completed(&self) -> bool {
        self.reviews || self.statuses
    }
}

/// All facts about a change that a decision may use, as the forge showed them at `seen_at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeFacts {
    /// The revision these facts are about.
    pub change: ChangeRef,
    /// Open, merged or closed.
    pub status: ChangeStatus,
    /// Whether the author marked it as a draft.
    pub draft: bool,
    /// The title, one line.
    pub title: String,
    /// The description or commit message.
    pub message: String,
    /// The author's login.
    pub author: String,
    /// The address of its web page.
    pub url: String,
    /// Labels or hashtags, sorted.
    pub labels: Vec<String>,
    /// The latest review of each reviewer, sorted by login.
    pub reviews: Vec<ChangeReview>,
    /// The newest status per context, sorted by context.
    pub statuses: Vec<CommitStatus>,
    /// Which of [`Self::reviews`] and [`Self::statuses`] are incomplete.
    #[serde(default, skip_serializing_if = "Truncation::is_none")]
    pub truncated: Truncation,
    /// Paths the change touches, sorted; `None` if the forge did not return all of them.
    pub files: Option<Vec<String>>,
    /// URLs after `Depends-On:` in the message, in order (Z6.5). If there are more than the limit,
    /// it holds one more than the limit.
    pub depends_on: Vec<String>,
    /// Parent changes that its commits are built on, as far as the forge shows them; several for a
    /// merge commit (Gerrit).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ChangeKey>,
    /// The topic that groups it with other changes, if the forge has topics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Votes on the newest patchset, if the forge has votes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// Whether the forge reports it as mergeable; `None` while the forge has not decided.
    pub mergeable: Option<bool>,
    /// Whether the forge's own rules allow the merge (Gerrit's submit requirements); `None` if the
    /// forge does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submittable: Option<bool>,
    /// The commit that merged it into its branch, once merged.
    pub merge_commit: Option<Oid>,
    /// When it last changed by the forge's clock. Description, head, labels, comments and reviews
    /// count; statuses do not.
    pub updated_at: Timestamp,
    /// When these facts were read from the forge.
    pub seen_at: Timestamp,
}

impl ChangeFacts {
    /// Returns the facts of an open change of which only the revision is known. All other facts are
    /// empty, false or `None`, and `updated_at` is the epoch.
    pub fn bare(change: ChangeRef, seen_at: Timestamp) -> Self {
        Self {
            change,
            status: ChangeStatus::Open,
            draft: false,
            title: String::new(),
            message: String::new(),
            author: String::new(),
            url: String::new(),
            labels: Vec::new(),
            reviews: Vec::new(),
            statuses: Vec::new(),
            truncated: Truncation::default(),
            files: None,
            depends_on: Vec::new(),
            parents: Vec::new(),
            topic: None,
            votes: Vec::new(),
            mergeable: None,
            submittable: None,
            merge_commit: None,
            updated_at: Timestamp(0),
            seen_at,
        }
    }
}

/// An open change as listed by a forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenChange {
    /// The change.
    pub change: ChangeRef,
    /// See [`ChangeFacts::updated_at`].
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: ChangeId) -> ChangeKey {
        ChangeKey { connection: "github".into(), project: "forge.test/org/one".into(), id }
    }

    /// S06: a ref needs no change number.
    #[test]
    fn a_key_is_stored_as_a_number_or_a_ref_and_never_as_both() {
        let zero = Oid::zero();
        let pushed = RefMove::new("refs/heads/main", zero, "abc".into());
        for (key, text) in [
            (
                key(ChangeId::Number(7)),
                r#"{"connection":"github","project":"forge.test/org/one","number":7}"#,
            ),
            (
                key(ChangeId::Ref(pushed)),
                r#"{"connection":"github","project":"forge.test/org/one","ref":{"name":"refs/heads/main","newrev":"abc"}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&key).unwrap(), text);
            assert_eq!(serde_json::from_str::<ChangeKey>(text).unwrap(), key);
        }
        for wrong in [
            r#"{"connection":"c","project":"p"}"#,
            r#"{"connection":"c","project":"p","number":1,"ref":{"name":"refs/heads/main"}}"#,
        ] {
            assert!(serde_json::from_str::<ChangeKey>(wrong).is_err(), "{wrong}");
        }
    }

    /// S06, R09
    #[test]
    fn a_pushed_branch_tests_the_pushed_commit_and_a_tag_has_no_branch() {
        let of = |moved| ChangeRef::of_ref("github".into(), "forge.test/org/one".into(), moved);
        let pushed = of(RefMove::new("refs/heads/stable/1", "a".into(), "b".into()));
        assert_eq!((pushed.on_branch().unwrap().as_str(), pushed.head.as_str()), ("stable/1", "b"));
        assert_eq!(pushed.key.local_id(), "refs/heads/stable/1 a..b");
        let tag = of(RefMove::new("refs/tags/1.0", Oid::zero(), "b".into()));
        assert_eq!((tag.on_branch(), tag.key.ref_move().unwrap().tag()), (None, Some("1.0")));
        let deleted = of(RefMove::new("refs/heads/old", "a".into(), Oid::zero()));
        assert!(deleted.key.ref_move().unwrap().is_deleted() && deleted.head.as_str() == "a");
        let nightly = of(RefMove::at_tip(&"main".into()));
        assert!(nightly.head.is_zero() && !nightly.key.ref_move().unwrap().is_deleted());
        assert_eq!(nightly.to_string(), "org/one refs/heads/main");
    }

    /// L1.2, L1.5: events for different images or uploads have different keys.
    #[test]
    fn each_image_event_of_a_branch_has_a_key_of_its_own() {
        let of =
            |moved: RefMove| ChangeRef::of_ref("github".into(), "forge.test/org/one".into(), moved);
        let with_images =
            |images: ImageSelection| of(RefMove::at_tip(&"main".into()).with_images(images)).key;
        let debian = with_images(ImageSelection::one("debian"));
        assert_eq!(debian.to_string(), "org/one refs/heads/main for image debian");
        assert_eq!(debian.images().unwrap().names, ["debian"]);
        let text = serde_json::to_string(&debian).unwrap();
        assert!(
            text.ends_with(r#""ref":{"name":"refs/heads/main","images":{"names":["debian"]}}}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<ChangeKey>(&text).unwrap(), debian);
        let upload = |name: &str| ImageSelection {
            upload: Some(name.to_owned()),
            ..ImageSelection::one("debian")
        };
        let build = ImageSelection { build: Some("1".to_owned()), ..ImageSelection::one("debian") };
        let all = [
            of(RefMove::at_tip(&"main".into())).key,
            debian.clone(),
            with_images(ImageSelection::one("ubuntu")),
            with_images(upload("1")),
            with_images(upload("2")),
            with_images(build),
        ];
        let texts: std::collections::BTreeSet<String> =
            all.iter().map(ChangeKey::local_id).collect();
        assert_eq!(texts.len(), all.len(), "{texts:?}");
        assert!(all[0].images().is_none() && !texts.contains(""));
    }
}
