//! Tested states against a forge of this machine: what a merge asks of the forge, and that its
//! packs alone are the state.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use sluice_forge::{Forge as _, GitHub, GitHubOptions, Secret};
use sluice_git::{Credential, Kept, keys};
use sluice_local_forge::{Account, Edit, Forge, Options, Permission, Proposal, PullState};
use sluice_memory::World;
use sluice_model::git::{BranchKey, BranchState, LandingWay, MergeMode, Oid};
use sluice_model::{ProjectName, Timestamp};
use sluice_repos::{GitRepos, MergeAnswer, MergeAsk, ProjectAt, Remote, Repos, ReposError};
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// More than a state may name packs beyond its repository's: the chain becomes one pack on the way.
const CHANGES: usize = 16;

struct Ground {
    forge: Forge,
    world: World,
    folder: tempfile::TempDir,
}

impl Ground {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("forge");
        let accounts = vec![Account::new("ada", "ada-token", Permission::Admin)];
        let forge =
            Forge::start(Options { root, port: 0, accounts, first_hook: None }).await.unwrap();
        forge
            .create_repository("org/one", &[Edit::write(".zuul.yaml", "[]\n")], "ada")
            .await
            .unwrap();
        Self { forge, world: World::new(1, 0, Timestamp(1_800_000_000_000)), folder }
    }

    /// Repositories with a cache of their own, at this address of the forge.
    fn repos(&self, cache: &str, git_url: &str) -> GitRepos {
        self.repos_that_land(cache, git_url, LandingWay::Merge)
    }

    fn repos_that_land(&self, cache: &str, git_url: &str, landing: LandingWay) -> GitRepos {
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

fn ask(head: &Oid, onto: Option<BranchState>) -> MergeAsk {
    let branch = BranchKey { project: at().project, branch: "main".into() };
    let (head, mode, message) = (head.clone(), MergeMode::Merge, "Merge it".to_owned());
    MergeAsk { connection: "github".into(), branch, onto, head, mode, message }
}

async fn merged(repos: &GitRepos, ask: &MergeAsk) -> BranchState {
    match repos.merge(ask).await.unwrap() {
        MergeAnswer::Merged { state, .. } => state,
        MergeAnswer::Conflict { detail } => panic!("{detail}"),
    }
}

/// C2, Z6.4: an executor, or a merger on another machine, has the packs of a state and nothing
/// else.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_chain_of_states_is_complete_by_its_packs_alone() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let mut state = None;
    let mut heads = Vec::new();
    for number in 0..CHANGES {
        heads.push(ground.propose(number).await);
        state = Some(merged(&repos, &ask(&heads[number], state.take())).await);
        let packs = state.as_ref().map(|state| state.packs.len()).unwrap_or_default();
        assert!(packs <= 14, "{packs} packs after {} changes", number + 1);
    }
    let state = state.unwrap();
    // Nobody answers there: whatever is missing cannot be had.
    let elsewhere = ground.repos("two", "http://127.0.0.1:1");
    let files = elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
    assert_eq!(files, [(".zuul.yaml".to_owned(), b"[]\n".to_vec())]);
    // The last head came with the state, so it merges there too: its branch has it already.
    let again = merged(&elsewhere, &ask(&heads[CHANGES - 1], Some(state.clone()))).await;
    assert_eq!(again.result, state.result);
}

/// The budget: storing or loading a pack is one call.
#[tokio::test(flavor = "multi_thread")]
async fn each_pack_of_a_state_is_one_object() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let head = ground.propose(1).await;
    let state = merged(&repos, &ask(&head, None)).await;
    let mut packs = state.packs.clone();
    packs.sort();
    let mut stored = ground.world.object_keys();
    stored.sort();
    assert_eq!(stored, packs);
    assert!(packs.iter().all(|key| keys::index_beside(key).is_none()), "{packs:?}");
}

/// Z7.4: whoever tells lines of the change's own files has them by the state's packs, whichever way
/// the change is put on its branch.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_holds_the_commit_that_was_proposed_in_every_merge_mode() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let modes =
        [MergeMode::SquashMerge, MergeMode::CherryPick, MergeMode::Rebase, MergeMode::Merge];
    for (number, mode) in modes.into_iter().enumerate() {
        let head = ground.propose(number).await;
        let state = merged(&repos, &MergeAsk { mode, ..ask(&head, None) }).await;
        let elsewhere = ground.repos(&format!("of-{number}"), "http://127.0.0.1:1");
        let file = format!("file-{number}");
        let found = elsewhere
            .present(&at(), &head, Some(&state), std::slice::from_ref(&file))
            .await
            .unwrap();
        assert_eq!(found, [file], "{mode:?}");
    }
}

/// States and lists of an earlier version name packs whose index is an object of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_pack_of_an_earlier_version_is_read_with_the_index_beside_it() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let head = ground.propose(1).await;
    let mut state = merged(&repos, &ask(&head, None)).await;
    let objects = ground.world.ports().objects;
    let project = at().project;
    let held =
        ground.folder.path().join("one").join(keys::escape(project.as_str())).join("objects/pack");
    for key in &mut state.packs {
        let name = keys::pack_of(key).unwrap();
        objects.delete(key).await.unwrap();
        for ending in ["pack", "idx"] {
            let file = format!("{name}.{ending}");
            let bytes = Bytes::from(std::fs::read(held.join(&file)).unwrap());
            let beside = format!("{}{file}", keys::prefix(&project));
            objects.put(&beside, bytes, PutMode::Always, "application/octet-stream").await.unwrap();
        }
        *key = format!("{}{name}.pack", keys::prefix(&project));
    }
    let elsewhere = ground.repos("two", "http://127.0.0.1:1");
    let files = elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
    assert_eq!(files, [(".zuul.yaml".to_owned(), b"[]\n".to_vec())]);
    let again = merged(&elsewhere, &ask(&head, Some(state.clone()))).await;
    assert_eq!((again.result, again.packs), (state.result, state.packs));
}

/// Whoever mends it has to know which one it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_is_named_with_what_to_do() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let head = ground.propose(1).await;
    let state = merged(&repos, &ask(&head, None)).await;
    let (objects, key) = (ground.world.ports().objects, &state.packs[0]);
    let whole = objects.get(key).await.unwrap().unwrap().bytes;
    let cut = whole.slice(..whole.len() - 1);
    objects.put(key, cut, PutMode::Always, "application/octet-stream").await.unwrap();
    let elsewhere = ground.repos("two", "http://127.0.0.1:1");
    let error =
        elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(key) && text.contains("download it again"), "{text}");
    objects.put(key, whole, PutMode::Always, "application/octet-stream").await.unwrap();
    elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
}

/// The budget: a change that was merged before is merged again without a question to the forge.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_held_is_not_asked_for_again() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let (one, two) = (ground.propose(1).await, ground.propose(2).await);
    let ahead = merged(&repos, &ask(&one, None)).await;
    merged(&repos, &ask(&two, None)).await;
    let busy = ground.forge.busy();
    let state = merged(&repos, &ask(&two, Some(ahead))).await;
    assert_eq!(ground.forge.busy(), busy, "the forge was asked");
    let elsewhere = ground.repos("two", "http://127.0.0.1:1");
    elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
}

/// A branch that moves is listed for all who have no cache, whatever merges of this machine did
/// before.
#[tokio::test(flavor = "multi_thread")]
async fn a_tip_is_complete_by_the_packs_it_names() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let head = ground.propose(1).await;
    merged(&repos, &ask(&head, None)).await;
    ground
        .forge
        .commit("org/one", "main", "on", &[Edit::write("more", "x\n")], "ada")
        .await
        .unwrap();
    let tip = repos.tip(&at(), &"main".into()).await.unwrap();
    let elsewhere = ground.repos("two", "http://127.0.0.1:1");
    let files = elsewhere.configuration(&at(), &tip.result.id, Some(&tip), &[]).await.unwrap();
    assert_eq!(files.len(), 1);
}

/// S06: what was pushed is tested as it was pushed, although its branch has moved on.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_a_state_of_its_own_with_the_files_since_another() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let commit = async |file: &str| {
        Oid(ground
            .forge
            .commit("org/one", "main", file, &[Edit::write(file, "x\n")], "ada")
            .await
            .unwrap())
    };
    let (first, second) = (commit("first").await, commit("second").await);
    commit("third").await;
    let (state, files) = repos.at(&at(), &"main".into(), &second, Some(&first)).await.unwrap();
    assert_eq!((&state.base.id, &state.result.id), (&second, &second));
    assert_eq!(files, Some(vec!["second".to_owned()]));
    let (_, unknown) = repos.at(&at(), &"main".into(), &second, None).await.unwrap();
    assert_eq!(unknown, None);
    let forced = Oid("ab".repeat(20));
    let (_, gone) = repos.at(&at(), &"main".into(), &second, Some(&forced)).await.unwrap();
    assert_eq!(gone, None, "what it moved from is not there any more");
    assert!(repos.at(&at(), &"main".into(), &forced, None).await.is_err());
    let elsewhere = ground.repos("two", "http://127.0.0.1:1");
    elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
}

/// Z4.3: a job may check out a tag, an annotated one too; one that leads to no commit is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_the_state_of_its_whole_ref() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let tagged = repos.tip(&at(), &"main".into()).await.unwrap().result;
    for arguments in
        [&["1.0", "main"][..], &["-a", "-m", "two", "2.0", "main"], &["file", "main:.zuul.yaml"]]
    {
        ground.tag(arguments);
    }
    let edit = Edit::write("more", "x\n");
    ground.forge.commit("org/one", "main", "on", &[edit], "ada").await.unwrap();
    let other = ground.repos("two", ground.forge.web_url());
    for repos in [&repos, &other] {
        for tag in ["1.0", "2.0"] {
            let state = repos.tag(&at(), tag).await.unwrap();
            assert_eq!(state.branch.branch.as_str(), format!("refs/tags/{tag}"));
            assert_eq!((&state.base, &state.result), (&tagged, &tagged));
            let elsewhere = ground.repos(&format!("of-{tag}"), "http://127.0.0.1:1");
            elsewhere.configuration(&at(), &state.result.id, Some(&state), &[]).await.unwrap();
        }
        for none in ["3.0", "1", "main", "file"] {
            assert!(matches!(repos.tag(&at(), none).await, Err(ReposError::Gone(_))), "{none}");
        }
        // What is no commit is not told to the forge as held.
        repos.tip(&at(), &"main".into()).await.unwrap();
    }
}

/// Z4.2: which branches have a tag's commit is what the forge has now, by name.
#[tokio::test(flavor = "multi_thread")]
async fn the_branches_that_have_a_commit_are_told_by_name() {
    let ground = Ground::new().await;
    let repos = ground.repos("one", ground.forge.web_url());
    let start = repos.tip(&at(), &"main".into()).await.unwrap().result.id;
    let change = ground.propose(1).await;
    let edit = Edit::write("on", "x\n");
    let on = Oid(ground.forge.commit("org/one", "main", "on", &[edit], "ada").await.unwrap());
    let other = ground.repos("two", ground.forge.web_url());
    for repos in [&repos, &other] {
        for (commit, expected) in [
            (&start, &["change-1", "main"][..]),
            (&change, &["change-1"][..]),
            (&on, &["main"][..]),
        ] {
            let found = repos.containing(&at(), commit).await.unwrap();
            let found: Vec<&str> = found.iter().map(|branch| branch.as_str()).collect();
            assert_eq!(found, expected, "{commit}");
        }
    }
    assert!(repos.containing(&at(), &Oid("ab".repeat(20))).await.is_err());
}

/// Z6.4: what a tested commit adds is kept where branches are moved to it, and nowhere else; a mode
/// that leaves the change's own commit out of the branch never moves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tested_commit_is_kept_where_its_branch_may_be_moved_to_it() {
    let ground = Ground::new().await;
    let head = ground.propose(1).await;
    let rows = [
        (LandingWay::Merge, MergeMode::Merge, false),
        (LandingWay::FastForward, MergeMode::Merge, true),
        (LandingWay::FastForward, MergeMode::MergeResolve, true),
        (LandingWay::FastForward, MergeMode::SquashMerge, false),
        (LandingWay::FastForward, MergeMode::Rebase, false),
    ];
    for (number, (landing, mode, expected)) in rows.into_iter().enumerate() {
        let repos =
            ground.repos_that_land(&format!("cache-{number}"), ground.forge.web_url(), landing);
        let asked = MergeAsk { mode, message: format!("Merge it, {number}"), ..ask(&head, None) };
        let MergeAnswer::Merged { state, kept, .. } = repos.merge(&asked).await.unwrap() else {
            panic!("it merges")
        };
        let key = keys::kept(&at().project, &state.base.id, &state.result.id);
        let object = ground.world.ports().objects.get(&key).await.unwrap();
        assert_eq!((kept, object.is_some()), (expected, expected), "{landing:?} {mode:?}");
        if let Some(object) = object {
            // The change's commit with its tree and file, and the merge's with the same tree.
            let kept = Kept::read(&object.bytes).unwrap();
            assert_eq!(kept.pack().unwrap().get(8..12), Some(&4_u32.to_be_bytes()[..]));
        }
    }
}

/// Z6.4: a change that its branch holds already moves it nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_a_change_that_is_in_its_branch() {
    let ground = Ground::new().await;
    let repos = ground.repos_that_land("one", ground.forge.web_url(), LandingWay::FastForward);
    let head = ground.propose(1).await;
    let state = merged(&repos, &ask(&head, None)).await;
    let MergeAnswer::Merged { kept, .. } = repos.merge(&ask(&head, Some(state))).await.unwrap()
    else {
        panic!("it merges");
    };
    assert!(!kept);
}

/// Z6.4: two tested commits land by one push of what is kept of them, and the forge takes both
/// changes for merged.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_tested_commits_lands_by_one_push() {
    let ground = Ground::new().await;
    let repos = ground.repos_that_land("one", ground.forge.web_url(), LandingWay::FastForward);
    let heads = [ground.propose(1).await, ground.propose(2).await];
    let mut numbers = Vec::new();
    for number in [1, 2] {
        let (title, head) = (format!("Change {number}"), format!("change-{number}"));
        let proposal = Proposal { title, body: String::new(), head, base: "main".to_owned() };
        numbers.push(ground.forge.open_pull("org/one", proposal, "ada").await.unwrap());
    }
    let first = merged(&repos, &ask(&heads[0], None)).await;
    let second = merged(&repos, &ask(&heads[1], Some(first.clone()))).await;
    let (start, tested) =
        (first.base.id.clone(), [first.result.id.clone(), second.result.id.clone()]);
    let objects = ground.world.ports().objects;
    let mut all = Kept::default();
    for (from, to) in [(&start, &tested[0]), (&tested[0], &tested[1])] {
        let object = objects.get(&keys::kept(&at().project, from, to)).await.unwrap().unwrap();
        all = all.with(Kept::read(&object.bytes).unwrap());
    }
    let github = GitHub::new(GitHubOptions {
        connection: "github".into(),
        host: "forge.test".to_owned(),
        api_url: ground.forge.api_url(),
        web_url: ground.forge.web_url().to_owned(),
        token: Secret::new("ada-token"),
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
        let state = ground.forge.pull("org/one", number).unwrap().state;
        assert!(matches!(state, PullState::Merged { .. }), "{number}: {state:?}");
    }
}
