//! What an item is about: a change as its forge showed it, a fact with one writer (intake), or a
//! ref that moved.

use crate::{BranchName, ConnectionName, ProjectName, Timestamp, gerrit::Vote, git::Oid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which change or ref: its connection, its project, and what of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "StoredKey", into = "StoredKey")]
pub struct ChangeKey {
    /// The connection to the forge.
    pub connection: ConnectionName,
    /// The project's canonical name.
    pub project: ProjectName,
    /// What of the project.
    pub what: What,
}

/// What an item is about: a proposed change, or a ref as it was pushed or stands (Zuul's Change;
/// Branch, Tag and Ref).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// The change or pull request of this number.
    Number(u64),
    /// A ref. Each move of it is something else to test.
    Ref(RefMove),
}

/// A ref with the move that it made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RefMove {
    /// The whole ref: `refs/heads/main`, `refs/tags/1.0`.
    #[serde(rename = "name")]
    pub git_ref: String,
    /// Where it was; `None` for one that is new, or that did not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldrev: Option<Oid>,
    /// Where it is; `None` for one that was deleted, or whose commit is known only when it is
    /// tested (a timer's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newrev: Option<Oid>,
    /// The images that an event asks something of; each such event is something else to run than
    /// the branch by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Box<ImagesAsked>>,
}

/// Of which images an event asks something (`image-build`, `image-validate`, `image-delete`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ImagesAsked {
    /// Their names in the tenant, as jobs name them by `image-build-name`.
    pub names: Vec<String>,
    /// The upload that is to be validated; each has an item of its own (L1.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// The build that is deleted; each has an item of its own (L1.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

impl ImagesAsked {
    /// Returns what asks for one image, whichever build or upload of it.
    pub fn one(name: impl Into<String>) -> Self {
        Self { names: vec![name.into()], upload: None, build: None }
    }
}

impl fmt::Display for ImagesAsked {
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
    /// Returns a ref that moved; commits of zeros only are none.
    pub fn new(git_ref: impl Into<String>, oldrev: Oid, newrev: Oid) -> Self {
        let commit = |oid: Oid| (!oid.is_zero()).then_some(oid);
        Self {
            git_ref: git_ref.into(),
            oldrev: commit(oldrev),
            newrev: commit(newrev),
            images: None,
        }
    }

    /// Returns a branch as it will stand when it is tested.
    pub fn standing(branch: &BranchName) -> Self {
        Self { git_ref: format!("{HEADS}{branch}"), oldrev: None, newrev: None, images: None }
    }

    /// Returns the same as an event names it that asks something of images.
    #[must_use]
    pub fn asking(self, images: ImagesAsked) -> Self {
        Self { images: Some(Box::new(images)), ..self }
    }

    /// Returns the branch that it is, if it is one.
    pub fn branch(&self) -> Option<BranchName> {
        self.git_ref.strip_prefix(HEADS).map(BranchName::from)
    }

    /// Returns the tag that it is, if it is one.
    pub fn tag(&self) -> Option<&str> {
        self.git_ref.strip_prefix(TAGS)
    }

    /// Returns whether it was deleted.
    pub fn is_deleted(&self) -> bool {
        self.newrev.is_none() && self.oldrev.is_some()
    }
}

/// What the whole name of a branch begins with.
const HEADS: &str = "refs/heads/";
/// What the whole name of a tag begins with.
const TAGS: &str = "refs/tags/";

/// A key as records hold it: a number or a ref.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    connection: ConnectionName,
    project: ProjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    moved: Option<RefMove>,
}

impl From<ChangeKey> for StoredKey {
    fn from(key: ChangeKey) -> Self {
        let ChangeKey { connection, project, what } = key;
        let (number, moved) = match what {
            What::Number(number) => (Some(number), None),
            What::Ref(moved) => (None, Some(moved)),
        };
        Self { connection, project, number, moved }
    }
}

impl TryFrom<StoredKey> for ChangeKey {
    type Error = &'static str;

    fn try_from(stored: StoredKey) -> Result<Self, Self::Error> {
        let what = match (stored.number, stored.moved) {
            (Some(number), None) => What::Number(number),
            (None, Some(moved)) => What::Ref(moved),
            _ => return Err("a change has either a number or a ref"),
        };
        Ok(Self { connection: stored.connection, project: stored.project, what })
    }
}

impl ChangeKey {
    /// Returns the key of a change or pull request.
    pub fn change(connection: ConnectionName, project: ProjectName, number: u64) -> Self {
        Self { connection, project, what: What::Number(number) }
    }

    /// Returns the number of the change; a ref has none.
    pub fn number(&self) -> Option<u64> {
        match self.what {
            What::Number(number) => Some(number),
            What::Ref(_) => None,
        }
    }

    /// Returns the ref that it is about; a change is about none.
    pub fn moved(&self) -> Option<&RefMove> {
        match &self.what {
            What::Number(_) => None,
            What::Ref(moved) => Some(moved),
        }
    }

    /// Returns the images that an event asked something of; most of what is tested is about none.
    pub fn images(&self) -> Option<&ImagesAsked> {
        self.moved()?.images.as_deref()
    }

    /// Returns the text that tells it from everything else of its project: its number, or its ref
    /// with the move, and the images that are asked for.
    pub fn local(&self) -> String {
        let RefMove { git_ref, oldrev, newrev, images } = match &self.what {
            What::Number(number) => return number.to_string(),
            What::Ref(moved) => moved,
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Number(number) => write!(f, "{}#{number}", self.project.name()),
            What::Ref(RefMove { git_ref, images: Some(images), .. }) => {
                write!(f, "{} {git_ref} for {images}", self.project.name())
            }
            What::Ref(moved) => write!(f, "{} {}", self.project.name(), moved.git_ref),
        }
    }
}

/// One revision of a change, or one state of a ref: what is tested, and of a change what may be
/// merged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeRef {
    /// The change or ref.
    pub key: ChangeKey,
    /// The branch a change is to be merged into, or that a ref is. Of a tag, or another ref that is
    /// no branch, it is the whole ref, under which its state is known; [`Self::on_branch`] tells
    /// the two apart.
    pub branch: BranchName,
    /// The commit that was proposed (GitHub: the head of the pull request) or pushed; of a deleted
    /// ref the one it was at. Zeros where only whoever tests it will see which.
    pub head: Oid,
    /// The patchset as users see it: Gerrit's number, GitHub's head commit. Empty for a ref.
    pub patchset: String,
}

impl ChangeRef {
    /// Returns what an item about a ref tests.
    pub fn of_ref(connection: ConnectionName, project: ProjectName, moved: RefMove) -> Self {
        let branch = moved.branch().unwrap_or_else(|| BranchName(moved.git_ref.clone()));
        let head = moved.newrev.clone().or_else(|| moved.oldrev.clone()).unwrap_or_else(Oid::zero);
        let key = ChangeKey { connection, project, what: What::Ref(moved) };
        Self { key, branch, head, patchset: String::new() }
    }

    /// Returns the branch that it is on; a tag is on none.
    pub fn on_branch(&self) -> Option<&BranchName> {
        match &self.key.what {
            What::Ref(moved) if moved.branch().is_none() => None,
            What::Number(_) | What::Ref(_) => Some(&self.branch),
        }
    }

    /// Returns Zuul's `number,patchset`, of a ref the commit it is at.
    pub fn id(&self) -> String {
        match &self.key.what {
            What::Number(number) => format!("{number},{}", self.patchset),
            What::Ref(moved) => {
                moved.newrev.as_ref().map_or_else(|| moved.git_ref.clone(), ToString::to_string)
            }
        }
    }

    /// Returns the ref under which the forge offers the proposed commit, or that moved.
    pub fn git_ref(&self) -> String {
        match &self.key.what {
            What::Number(number) => format!("refs/pull/{number}/head"),
            What::Ref(moved) => moved.git_ref.clone(),
        }
    }
}

impl fmt::Display for ChangeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.head.is_zero() {
            true => write!(f, "{}", self.key),
            false => write!(f, "{} at {}", self.key, self.head.short()),
        }
    }
}

/// Whether a change can still be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeStatus {
    /// Proposed and neither merged nor given up.
    Open,
    /// In its branch.
    Merged,
    /// Given up without being merged.
    Closed,
}

/// What a reviewer said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewState {
    /// The reviewer approves.
    Approved,
    /// The reviewer asks for changes.
    ChangesRequested,
    /// The reviewer commented without a verdict.
    Commented,
    /// The review was dismissed.
    Dismissed,
}

/// How much a reviewer may do in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// No more than anybody.
    None,
    /// May read.
    Read,
    /// May push.
    Write,
    /// May administer.
    Admin,
}

/// The latest verdict of one reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// The reviewer's login.
    pub by: String,
    /// The reviewer's address, where the forge shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// What was said.
    pub state: ReviewState,
    /// The reviewer's permission in the repository.
    pub permission: Permission,
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
    /// `success`, `failure`, `error` or `pending`; of a check run its conclusion.
    pub state: String,
    /// Whether it is a check run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_check: bool,
    /// The forge's number of it, where it has one: one that is set again has a greater one, also
    /// where it says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// Of what a change has more than is read. What is asked for of it counts only where it was read;
/// what is refused because of it counts as being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cut {
    /// Reviews, or reviewers.
    #[serde(default)]
    pub reviews: bool,
    /// Statuses and check runs.
    #[serde(default)]
    pub statuses: bool,
    /// All check runs: its forge does not show them to this token. Nothing is refused because of
    /// what nobody can ever see.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_runs: bool,
}

impl Cut {
    /// Returns whether everything was read.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the forge, asked once more, may show what is missing.
    pub fn is_partial(&self) -> bool {
        self.reviews || self.statuses
    }
}

/// Everything a decision may ask about a change, as the forge showed it at `seen_at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeFacts {
    /// The revision these facts are about.
    pub change: ChangeRef,
    /// Open, merged or closed.
    pub status: ChangeStatus,
    /// Whether its author marked it as not ready.
    pub draft: bool,
    /// The title, one line.
    pub title: String,
    /// The description or commit message.
    pub message: String,
    /// The author's login.
    pub author: String,
    /// Where people look at it.
    pub url: String,
    /// Labels or hashtags, sorted.
    pub labels: Vec<String>,
    /// The latest review of each reviewer, sorted by login.
    pub reviews: Vec<Review>,
    /// The newest status per context, sorted by context.
    pub statuses: Vec<CommitStatus>,
    /// What of [`Self::reviews`] and [`Self::statuses`] is not whole.
    #[serde(default, skip_serializing_if = "Cut::is_nothing")]
    pub cut: Cut,
    /// Paths the change touches, sorted; `None` when the forge could not tell them all.
    pub files: Option<Vec<String>>,
    /// URLs after `Depends-On:` in the message, in order (Z6.5); where there are more than are
    /// read, one more than those.
    pub depends_on: Vec<String>,
    /// Changes whose commits it is built on, as far as the forge shows them, the nearest one or
    /// several of a merge (Gerrit).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ChangeKey>,
    /// The topic that it belongs to with other changes, where the forge has topics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Votes on the newest patchset, where the forge has votes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// Whether the forge says it can be merged; `None` while it has not decided.
    pub mergeable: Option<bool>,
    /// Whether the forge's own rules would let it land (Gerrit's submit requirements); `None` where
    /// it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submittable: Option<bool>,
    /// The commit that put it into its branch, once merged.
    pub merge_commit: Option<Oid>,
    /// When it changed last, by the forge's clock: its description, head, labels, comments,
    /// reviews; not its statuses.
    #[serde(default)]
    pub updated_at: Timestamp,
    /// When the forge was asked.
    pub seen_at: Timestamp,
}

impl ChangeFacts {
    /// Returns an open change of which nothing is known but its revision.
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
            cut: Cut::default(),
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

/// An open change as a forge lists it.
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

    fn key(what: What) -> ChangeKey {
        ChangeKey { connection: "github".into(), project: "forge.test/org/one".into(), what }
    }

    /// S06: no change number; a key is stored as what it is.
    #[test]
    fn a_key_is_stored_as_a_number_or_a_ref_and_never_as_both() {
        let zero = Oid::zero();
        let pushed = RefMove::new("refs/heads/main", zero, "abc".into());
        for (key, text) in [
            (
                key(What::Number(7)),
                r#"{"connection":"github","project":"forge.test/org/one","number":7}"#,
            ),
            (
                key(What::Ref(pushed)),
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
    fn a_ref_is_on_a_branch_unless_it_is_a_tag_and_tests_what_was_pushed() {
        let of = |moved| ChangeRef::of_ref("github".into(), "forge.test/org/one".into(), moved);
        let pushed = of(RefMove::new("refs/heads/stable/1", "a".into(), "b".into()));
        assert_eq!((pushed.on_branch().unwrap().as_str(), pushed.head.as_str()), ("stable/1", "b"));
        assert_eq!(pushed.key.local(), "refs/heads/stable/1 a..b");
        let tag = of(RefMove::new("refs/tags/1.0", Oid::zero(), "b".into()));
        assert_eq!((tag.on_branch(), tag.key.moved().unwrap().tag()), (None, Some("1.0")));
        let deleted = of(RefMove::new("refs/heads/old", "a".into(), Oid::zero()));
        assert!(deleted.key.moved().unwrap().is_deleted() && deleted.head.as_str() == "a");
        let nightly = of(RefMove::standing(&"main".into()));
        assert!(nightly.head.is_zero() && !nightly.key.moved().unwrap().is_deleted());
        assert_eq!(nightly.to_string(), "org/one refs/heads/main");
    }

    /// L1.2, L1.5: one event for an image is one item, another image's or another upload's is
    /// another one.
    #[test]
    fn a_branch_that_images_are_asked_of_is_something_else_for_each_of_them() {
        let of =
            |moved: RefMove| ChangeRef::of_ref("github".into(), "forge.test/org/one".into(), moved);
        let asked = |images: ImagesAsked| of(RefMove::standing(&"main".into()).asking(images)).key;
        let debian = asked(ImagesAsked::one("debian"));
        assert_eq!(debian.to_string(), "org/one refs/heads/main for image debian");
        assert_eq!(debian.images().unwrap().names, ["debian"]);
        let text = serde_json::to_string(&debian).unwrap();
        assert!(
            text.ends_with(r#""ref":{"name":"refs/heads/main","images":{"names":["debian"]}}}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<ChangeKey>(&text).unwrap(), debian);
        let upload = |name: &str| ImagesAsked {
            upload: Some(name.to_owned()),
            ..ImagesAsked::one("debian")
        };
        let build = ImagesAsked { build: Some("1".to_owned()), ..ImagesAsked::one("debian") };
        let all = [
            of(RefMove::standing(&"main".into())).key,
            debian.clone(),
            asked(ImagesAsked::one("ubuntu")),
            asked(upload("1")),
            asked(upload("2")),
            asked(build),
        ];
        let texts: std::collections::BTreeSet<String> = all.iter().map(ChangeKey::local).collect();
        assert_eq!(texts.len(), all.len(), "{texts:?}");
        assert!(all[0].images().is_none() && !texts.contains(""));
    }
}
