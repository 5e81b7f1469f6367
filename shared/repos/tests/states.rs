//! Tested states with a local forge: the requests of a merge, and that its packs alone are
//! complete.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_forge::{Forge as _, ForgeSecret, GitHub, GitHubOptions};
use sluice_git::{CommitDelta, Credential, keys};
use sluice_local_forge::{
    AccountPermission, Edit, ForgeAccount, ForgeOptions, LocalForge, Proposal, PullState,
};
use sluice_memory::World;
use sluice_model::git::{BranchKey, BranchState, LandingMethod, MergeMode, Oid};
use sluice_model::{ProjectName, Timestamp};
use sluice_repos::{
    BranchMerge, BranchMergeResult, GitRepos, ProjectAt, Remote, Repos, ReposError,
};
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// More packs than a state may have beyond those of its repository, so that they are combined.
const CHANGES: usize = 16;

struct TestForge {
    forge: LocalForge,
    world: World,
    folder: tempfile::TempDir,
}

impl TestForge {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("forge");
        let accounts = vec![ForgeAccount::new("ada", "ada-token", AccountPermission::Admin)];
        let forge = LocalForge::start(ForgeOptions { root, port: 0, accounts, first_hook: None })
            .await
            .unwrap();
        forge
            .create_repository("org/one", &[Edit::write(".zuul.yaml", "[]\n")], "ada")
            .await
            .unwrap();
        Self { forge, world: World::new(1, 0, Timestamp(1_800_000_000_000)), folder }
    }

    /// Returns repositories with a separate cache, at this address of the forge.
    fn repos(&self, cache: &str, git_url: &str) -> GitRepos {
        self.repos_that_land(cache, git_url, LandingMethod::Merge)
    }

    fn repos_that_land(&self, cache: &str, git_url: &str, landing: LandingMethod) -> GitRepos {
        let credential = Some(Credential::token("ada-token"));
        let remote = Remote { git_url: git_url.to_owned(), credential, landing };
        let cache = Path::join(self.folder.path(), cache);
        GitRepos::new(self.world.ports(), BTreeMap::from([("github".into(), remote)]), cache)
    }

    /// Makes a tag in the forge's repository.
    fn tag(&self, arguments: &[&str]) {
        let who = [
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.org",
            "-c",
            "tag.gpgsign=false",
            "tag",
        ];
        let output = Command::new("git")
            .args(who)
            .args(arguments)
            .current_dir(self.folder.path().join("forge/git/org/one.git"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git tag {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    async fn propose(&self, number: usize) -> Oid {
        let name = format!("change-{number}");
        let edit = Edit::write(format!("file-{number}"), "new\n");
        Oid(self.forge.commit("org/one", &name, &name, &[edit], "ada").await.unwrap())
    }
}

fn at() -> ProjectAt {
    ProjectAt { connection: "github".into(), project: ProjectName::new("forge.test", "org/one") }
}

fn ask(head: &Oid, onto: Option<BranchState>) -> BranchMerge {
    let branch = BranchKey { project: at().project, branch: "main".into() };
    let (head, mode, message) = (head.clone(), MergeMode::Merge, "Merge it".to_owned());
    BranchMerge { connection: "github".into(), branch, onto, head, mode, message }
}

async fn merged(repos: &GitRepos, ask: &BranchMerge) -> BranchState {
    match repos.merge(ask).await.unwrap() {
        BranchMergeResult::Merged { state, .. } => state,
        BranchMergeResult::Conflict { detail } => panic!("{detail}"),
    }
}

/// C2, Z6.4: an executor, or another merger, only has the packs of a state.
#[tokio::test(flavor = "multi_thread")]
async fn the_packs_of_a_long_chain_of_states_are_complete() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let mut state = None;
    let mut heads = Vec::new();
    for number in 0..CHANGES {
        heads.push(site.propose(number).await);
        state = Some(merged(&repos, &ask(&heads[number], state.take())).await);
        let packs = state.as_ref().map(|state| state.packs.len()).unwrap_or_default();
        assert!(packs <= 14, "{packs} packs after {} changes", number + 1);
    }
    let state = state.unwrap();
    // No forge is at this address, so missing objects cannot be fetched.
    let elsewhere = site.repos("two", "http://127.0.0.1:1");
    let files =
        elsewhere.configuration_files(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
    assert_eq!(files, [(".zuul.yaml".to_owned(), b"[]\n".to_vec())]);
    // The last head came with the state, so it merges there too: its branch has it already.
    let again = merged(&elsewhere, &ask(&heads[CHANGES - 1], Some(state.clone()))).await;
    assert_eq!(again.result, state.result);
}

/// C5: what a poll compares: every branch and tag, also an annotated one, with the commit that it
/// leads to.
#[tokio::test(flavor = "multi_thread")]
async fn branches_and_tags_are_listed_with_their_commits() {
    let site = TestForge::new().await;
    site.tag(&["1.0", "main"]);
    site.tag(&["-a", "2.0", "-m", "two", "main"]);
    let proposed = site.propose(1).await;
    let repos = site.repos("one", site.forge.web_url());
    let listed = repos.refs(&at()).await.unwrap();
    let main = listed.commits["refs/heads/main"].clone();
    let expected = [
        ("refs/heads/change-1", &proposed),
        ("refs/heads/main", &main),
        ("refs/tags/1.0", &main),
        ("refs/tags/2.0", &main),
    ];
    let expected = expected.map(|(name, commit)| (name.to_owned(), commit.clone()));
    assert_eq!(listed.commits, BTreeMap::from(expected));
    assert_eq!(listed.tags_left_out, None);
    let missing = ProjectName::new("forge.test", "org/none");
    let missing = repos.refs(&ProjectAt { project: missing, ..at() }).await;
    assert!(matches!(missing, Err(ReposError::Gone(_))), "{missing:?}");
}

/// The budget: storing or loading a pack is one call.
#[tokio::test(flavor = "multi_thread")]
async fn each_pack_of_a_state_is_one_object() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let head = site.propose(1).await;
    let state = merged(&repos, &ask(&head, None)).await;
    let mut packs = state.packs.clone();
    packs.sort();
    let mut stored = site.world.object_keys();
    stored.sort();
    assert_eq!(stored, packs);
}

/// Z7.4: file comments need the change's own files, so the packs of a state contain the proposed
/// commit in every merge mode.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_contains_the_proposed_commit_in_every_merge_mode() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let modes =
        [MergeMode::SquashMerge, MergeMode::CherryPick, MergeMode::Rebase, MergeMode::Merge];
    for (number, mode) in modes.into_iter().enumerate() {
        let head = site.propose(number).await;
        let state = merged(&repos, &BranchMerge { mode, ..ask(&head, None) }).await;
        let elsewhere = site.repos(&format!("of-{number}"), "http://127.0.0.1:1");
        let file = format!("file-{number}");
        let found = elsewhere
            .existing_files(&at(), &head, Some(&state), std::slice::from_ref(&file))
            .await
            .unwrap();
        assert_eq!(found, [file], "{mode:?}");
    }
}

/// The operator who repairs it needs to know which pack it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_is_named_with_what_to_do() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let head = site.propose(1).await;
    let state = merged(&repos, &ask(&head, None)).await;
    let (objects, key) = (site.world.ports().objects, &state.packs[0]);
    let whole = objects.get(key).await.unwrap().unwrap().bytes;
    let cut = whole.slice(..whole.len() - 1);
    objects.put(key, cut, PutMode::Always, "application/octet-stream").await.unwrap();
    let elsewhere = site.repos("two", "http://127.0.0.1:1");
    let error = elsewhere
        .configuration_files(&at(), &state.result.id, Some(&state), &[])
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains(key) && text.contains("download it again"), "{text}");
    objects.put(key, whole, PutMode::Always, "application/octet-stream").await.unwrap();
    elsewhere.configuration_files(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
}

/// The budget: a change that was merged before is merged again without a request to the forge.
#[tokio::test(flavor = "multi_thread")]
async fn a_cached_head_is_not_fetched_again() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let (one, two) = (site.propose(1).await, site.propose(2).await);
    let ahead = merged(&repos, &ask(&one, None)).await;
    merged(&repos, &ask(&two, None)).await;
    let busy = site.forge.busy();
    let state = merged(&repos, &ask(&two, Some(ahead))).await;
    assert_eq!(site.forge.busy(), busy, "the forge was asked");
    let elsewhere = site.repos("two", "http://127.0.0.1:1");
    elsewhere.configuration_files(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
}

/// The packs of a new branch tip are complete for a function without a cache, whatever was merged
/// here before.
#[tokio::test(flavor = "multi_thread")]
async fn the_packs_of_a_tip_are_complete() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let head = site.propose(1).await;
    merged(&repos, &ask(&head, None)).await;
    site.forge.commit("org/one", "main", "on", &[Edit::write("more", "x\n")], "ada").await.unwrap();
    let tip = repos.branch_tip(&at(), &"main".into()).await.unwrap();
    let elsewhere = site.repos("two", "http://127.0.0.1:1");
    let files =
        elsewhere.configuration_files(&at(), &tip.result.id, Some(&tip), &[]).await.unwrap();
    assert_eq!(files.len(), 1);
}

/// S06: a pushed commit is tested even when its branch has moved on.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_a_state_with_the_paths_that_differ_from_another() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let commit = async |file: &str| {
        Oid(site
            .forge
            .commit("org/one", "main", file, &[Edit::write(file, "x\n")], "ada")
            .await
            .unwrap())
    };
    let (first, second) = (commit("first").await, commit("second").await);
    commit("third").await;
    let (state, files) =
        repos.commit_state(&at(), &"main".into(), &second, Some(&first)).await.unwrap();
    assert_eq!((&state.base.id, &state.result.id), (&second, &second));
    assert_eq!(files, Some(vec!["second".to_owned()]));
    let (_, unknown) = repos.commit_state(&at(), &"main".into(), &second, None).await.unwrap();
    assert_eq!(unknown, None);
    let forced = Oid("ab".repeat(20));
    let (_, gone) =
        repos.commit_state(&at(), &"main".into(), &second, Some(&forced)).await.unwrap();
    assert_eq!(gone, None, "what it moved from is not there any more");
    assert!(repos.commit_state(&at(), &"main".into(), &forced, None).await.is_err());
    let elsewhere = site.repos("two", "http://127.0.0.1:1");
    elsewhere.configuration_files(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
}

/// Z4.3: a job may check out a tag, also an annotated one; a tag of another object counts as
/// missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_the_state_of_its_full_ref() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let tagged = repos.branch_tip(&at(), &"main".into()).await.unwrap().result;
    for arguments in
        [&["1.0", "main"][..], &["-a", "-m", "two", "2.0", "main"], &["file", "main:.zuul.yaml"]]
    {
        site.tag(arguments);
    }
    let edit = Edit::write("more", "x\n");
    site.forge.commit("org/one", "main", "on", &[edit], "ada").await.unwrap();
    let other = site.repos("two", site.forge.web_url());
    for repos in [&repos, &other] {
        for tag in ["1.0", "2.0"] {
            let state = repos.tag_state(&at(), tag).await.unwrap();
            assert_eq!(state.branch.branch.as_str(), format!("refs/tags/{tag}"));
            assert_eq!((&state.base, &state.result), (&tagged, &tagged));
            let elsewhere = site.repos(&format!("of-{tag}"), "http://127.0.0.1:1");
            elsewhere
                .configuration_files(&at(), &state.result.id, Some(&state), &[])
                .await
                .unwrap();
        }
        for none in ["3.0", "1", "main", "file"] {
            assert!(
                matches!(repos.tag_state(&at(), none).await, Err(ReposError::Gone(_))),
                "{none}"
            );
        }
        // An object that is not a commit is not offered to the forge.
        repos.branch_tip(&at(), &"main".into()).await.unwrap();
    }
}

/// Z4.2: the branches with a tag's commit are those on the forge, by name.
#[tokio::test(flavor = "multi_thread")]
async fn the_branches_with_a_commit_are_named() {
    let site = TestForge::new().await;
    let repos = site.repos("one", site.forge.web_url());
    let start = repos.branch_tip(&at(), &"main".into()).await.unwrap().result.id;
    let change = site.propose(1).await;
    let edit = Edit::write("on", "x\n");
    let on = Oid(site.forge.commit("org/one", "main", "on", &[edit], "ada").await.unwrap());
    let other = site.repos("two", site.forge.web_url());
    for repos in [&repos, &other] {
        for (commit, expected) in [
            (&start, &["change-1", "main"][..]),
            (&change, &["change-1"][..]),
            (&on, &["main"][..]),
        ] {
            let found = repos.branches_containing(&at(), commit).await.unwrap();
            let found: Vec<&str> = found.iter().map(|branch| branch.as_str()).collect();
            assert_eq!(found, expected, "{commit}");
        }
    }
    assert!(repos.branches_containing(&at(), &Oid("ab".repeat(20))).await.is_err());
}

/// Z6.4: the delta of a tested commit is stored only when its branch may be fast-forwarded to it.
/// That excludes modes in which the branch does not contain the change's own commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_delta_is_stored_when_the_branch_may_be_fast_forwarded() {
    let site = TestForge::new().await;
    let head = site.propose(1).await;
    let rows = [
        (LandingMethod::Merge, MergeMode::Merge, false),
        (LandingMethod::FastForward, MergeMode::Merge, true),
        (LandingMethod::FastForward, MergeMode::MergeResolve, true),
        (LandingMethod::FastForward, MergeMode::SquashMerge, false),
        (LandingMethod::FastForward, MergeMode::Rebase, false),
    ];
    for (number, (landing, mode, expected)) in rows.into_iter().enumerate() {
        let repos = site.repos_that_land(&format!("cache-{number}"), site.forge.web_url(), landing);
        let asked =
            BranchMerge { mode, message: format!("Merge it, {number}"), ..ask(&head, None) };
        let BranchMergeResult::Merged { state, has_delta, .. } = repos.merge(&asked).await.unwrap()
        else {
            panic!("it merges")
        };
        let key = keys::commit_delta(&at().project, &state.base.id, &state.result.id);
        let object = site.world.ports().objects.get(&key).await.unwrap();
        assert_eq!((has_delta, object.is_some()), (expected, expected), "{landing:?} {mode:?}");
        if let Some(object) = object {
            // The change's commit with its tree and file, and the merge commit with the same tree.
            let delta = CommitDelta::decode(&object.bytes).unwrap();
            assert_eq!(delta.pack().unwrap().get(8..12), Some(&4_u32.to_be_bytes()[..]));
        }
    }
}

/// Z6.4: a change that its branch contains already needs no fast-forward.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_in_its_branch_has_no_delta() {
    let site = TestForge::new().await;
    let repos = site.repos_that_land("one", site.forge.web_url(), LandingMethod::FastForward);
    let head = site.propose(1).await;
    let state = merged(&repos, &ask(&head, None)).await;
    let BranchMergeResult::Merged { has_delta, .. } =
        repos.merge(&ask(&head, Some(state))).await.unwrap()
    else {
        panic!("it merges");
    };
    assert!(!has_delta);
}

/// Z6.4: two tested commits land by one push of their deltas, and the forge marks both changes as
/// merged.
#[tokio::test(flavor = "multi_thread")]
async fn successive_tested_commits_land_by_one_push() {
    let site = TestForge::new().await;
    let repos = site.repos_that_land("one", site.forge.web_url(), LandingMethod::FastForward);
    let heads = [site.propose(1).await, site.propose(2).await];
    let mut numbers = Vec::new();
    for number in [1, 2] {
        let (title, head) = (format!("Change {number}"), format!("change-{number}"));
        let proposal = Proposal { title, body: String::new(), head, base: "main".to_owned() };
        numbers.push(site.forge.open_pull("org/one", proposal, "ada").await.unwrap());
    }
    let first = merged(&repos, &ask(&heads[0], None)).await;
    let second = merged(&repos, &ask(&heads[1], Some(first.clone()))).await;
    let (start, tested) =
        (first.base.id.clone(), [first.result.id.clone(), second.result.id.clone()]);
    let objects = site.world.ports().objects;
    let mut all = CommitDelta::default();
    for (from, to) in [(&start, &tested[0]), (&tested[0], &tested[1])] {
        let object =
            objects.get(&keys::commit_delta(&at().project, from, to)).await.unwrap().unwrap();
        all = all.with(CommitDelta::decode(&object.bytes).unwrap());
    }
    let github = GitHub::new(GitHubOptions {
        connection: "github".into(),
        host: "forge.test".to_owned(),
        api_url: site.forge.api_url(),
        web_url: site.forge.web_url().to_owned(),
        token: ForgeSecret::new("ada-token"),
        own_login: None,
    })
    .unwrap();
    let main = BranchKey { project: at().project, branch: "main".into() };
    github.fast_forward(&main, &start, &tested[1], &all.pack().unwrap()).await.unwrap();
    assert_eq!(github.branch_tip(&main).await.unwrap(), second.result);
    for commit in &tested {
        assert!(github.contains(&main, commit).await.unwrap());
    }
    for number in numbers {
        let state = site.forge.pull("org/one", number).unwrap().state;
        assert!(matches!(state, PullState::Merged { .. }), "{number}: {state:?}");
    }
}
