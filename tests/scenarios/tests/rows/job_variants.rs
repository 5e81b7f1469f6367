//! Job variants: which definitions apply to a change, by branch, files and its own edits.

use super::{CONFIG, MAIN, approve, comments, judge, merged, ordered, propose, unlinked};
use sluice_model::ProjectName;
use sluice_model::build::{Order, Phase, Run};
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_model::job::Playbook;
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use std::collections::BTreeMap;

/// Returns a configuration with the pipelines, a base job and `more`.
fn config(more: &str) -> String {
    let pipelines = CONFIG.split("- job:").next().unwrap();
    let base =
        "- job: {name: base, parent: null, pre-run: base-pre.yaml, post-run: base-post.yaml}\n";
    format!("{pipelines}{base}{more}")
}

fn site(config: &str, projects: &[(&str, &str)]) -> Site {
    let files: Vec<(&str, [(&str, &str); 1])> =
        projects.iter().map(|(name, text)| (*name, [(".zuul.yaml", *text)])).collect();
    let config = [("zuul.yaml", config)];
    let mut repositories: Vec<(&str, &[(&str, &str)])> = vec![("org/config", &config)];
    repositories.extend(files.iter().map(|(name, files)| (*name, files.as_slice())));
    Site::new(7, MAIN, &repositories, judge)
}

/// Pushes a branch with this configuration to a project.
fn branch(site: &mut Site, project: &str, name: &str, text: &str) {
    let key = BranchKey { project: ProjectName::new("forge.test", project), branch: name.into() };
    site.forge.push(&key, &[(".zuul.yaml", text)]);
    site.run();
}

/// Proposes a change to a branch of org/one and returns the jobs that run for it in check.
fn runs(site: &mut Site, branch: &str, number: u64, edits: &[(&str, &str)]) -> Vec<String> {
    site.forge.propose_on("org/one", branch, number, "a change", "", edits);
    site.run();
    let end = format!(" {number}");
    let builds = site.builds().into_iter().filter(|build| build.ends_with(&end));
    builds
        .filter_map(|build| Some(build.strip_prefix("check ")?.strip_suffix(&end)?.to_owned()))
        .collect()
}

fn paths(playbooks: &[Playbook]) -> Vec<&str> {
    playbooks.iter().map(|playbook| playbook.path.as_str()).collect()
}

/// Returns job, change and result of each build.
fn results(site: &Site) -> Vec<String> {
    let records = site.world.records();
    let of = |sort: &'static str| {
        records.iter().filter(move |record| {
            record.key.partition.starts_with("build#") && record.key.sort == sort
        })
    };
    let runs: BTreeMap<&str, Run> =
        of("run").map(|record| (record.key.partition.as_str(), decode(record).unwrap())).collect();
    let line = |record: &sluice_runtime::Record| {
        let order: Order = decode(record).unwrap();
        let result = runs.get(record.key.partition.as_str()).and_then(|run| match &run.phase {
            Phase::Ended(ended) => Some(ended.result),
            _ => None,
        });
        format!("{} {} {:?}", order.job, order.change.key.local_id(), result)
    };
    let mut lines: Vec<String> = of("order").map(line).collect();
    lines.sort();
    lines
}

/// J01, Z4.1, Z4.2: changes of three branches run the variants for their branch: timeout, nodes,
/// the order of pre-run and post-run, and the run playbook of the most specific definition only.
#[test]
fn each_branch_runs_its_own_variants() {
    let jobs = "
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
- label: {name: new, image: debian, flavor: small}
- label: {name: old, image: debian, flavor: small}
- section:
    name: here
    connection: ec2
    region: us-east-1
    images: [{name: debian, image-id: ami-1}]
    flavors: [{name: small, instance-type: t3.small}]
- provider: {name: main, section: here, labels: [new, old]}
- job: {name: py27, timeout: 40, nodeset: {nodes: [{name: n, label: new}]}, pre-run: py27-pre.yaml, run: py27.yaml, post-run: py27-post.yaml}
- job: {name: py27, branches: stable/diablo, timeout: 50, nodeset: {nodes: [{name: n, label: old}]}, pre-run: diablo-pre.yaml, run: diablo.yaml, post-run: diablo-post.yaml}
- job: {name: py27, branches: stable/essex, pre-run: essex-pre.yaml, run: essex.yaml, post-run: essex-post.yaml}
- project: {name: org/one, check: {jobs: [py27]}}
";
    let mut site = site(&config(jobs), &[("org/one", "")]);
    let rows = [
        (1, "main", 40, "new", "py27.yaml", &[][..]),
        (2, "stable/diablo", 50, "old", "diablo.yaml", &["diablo"][..]),
        (3, "stable/essex", 40, "new", "essex.yaml", &["essex"][..]),
    ];
    for (number, name, timeout, label, run, variants) in rows {
        branch(&mut site, "org/one", name, "");
        assert_eq!(runs(&mut site, name, number, &[("a", "x")]), ["py27"]);
        let (_, job) = ordered(&site, "py27", number);
        assert_eq!(
            (job.timeout_seconds, job.nodesets[0].nodes[0].label.as_str()),
            (Some(timeout), label),
            "{name}"
        );
        assert_eq!(paths(&job.run), [run]);
        let inner: Vec<String> =
            variants.iter().map(|variant| format!("{variant}-pre.yaml")).collect();
        let mut pre = vec!["base-pre.yaml", "py27-pre.yaml"];
        pre.extend(inner.iter().map(String::as_str));
        assert_eq!(paths(&job.pre_run), pre);
        let mut post: Vec<String> = pre.iter().map(|path| path.replace("-pre", "-post")).collect();
        post.reverse();
        assert_eq!(paths(&job.post_run), post);
    }
    assert_eq!(
        results(&site),
        ["py27 1 Some(Success)", "py27 2 Some(Success)", "py27 3 Some(Success)"]
    );
}

/// J03: when the job's repository lacks the change's branch, `override-checkout` selects the branch
/// of the job's definition.
#[test]
fn override_checkout_selects_the_branch_of_a_foreign_job() {
    let theirs = "- job: {name: parent, run: playbooks/parent.yaml}\n- job: {name: test2, run: playbooks/test2.yaml}\n";
    let mut site = site(&config(""), &[("org/one", ""), ("org/two", theirs)]);
    // In a repository with two branches, a definition applies to its own branch.
    branch(&mut site, "org/two", "stable", "");
    let own = |entry: &str| {
        format!(
            "- job: {{name: test1, parent: parent, override-checkout: main}}\n- project: {{check: {{jobs: [test1, {entry}]}}}}\n"
        )
    };
    branch(&mut site, "org/one", "devel", &own("test2: {override-checkout: main}"));
    assert_eq!(runs(&mut site, "devel", 1, &[("a", "x")]), ["test1", "test2"]);
    assert_eq!(paths(&ordered(&site, "test1", 1).1.run), ["playbooks/parent.yaml"]);
    assert_eq!(
        runs(&mut site, "devel", 2, &[(".zuul.yaml", &own("test2"))]),
        ["test1"],
        "nothing says where test2 is from"
    );
}

/// J03, Z4.3: `override-checkout` applies to the change's project and to required projects that
/// have the branch; the setting of a single required project applies to that project.
#[test]
fn override_checkout_selects_the_branch_of_checked_out_projects() {
    let required = "[org/two, {name: org/bare, override-checkout: old}]";
    let own = format!(
        "- job: {{name: test, override-checkout: stable, required-projects: {required}, run: playbooks/test.yaml}}\n- project: {{check: {{jobs: [test]}}}}\n"
    );
    let mut site = site(&config(""), &[("org/one", &own), ("org/two", ""), ("org/bare", "")]);
    for (project, name) in [("org/one", "stable"), ("org/two", "stable"), ("org/bare", "old")] {
        branch(&mut site, project, name, "");
    }
    assert_eq!(runs(&mut site, "main", 1, &[("a", "x")]), ["test"]);
    let orders = super::ref_updates::orders(&site);
    let (_, state) = orders.iter().find(|(order, _)| order.job.as_str() == "test").unwrap();
    let placed: Vec<String> = state.branches.iter().map(|state| state.branch.to_string()).collect();
    for wanted in ["org/one@main", "org/one@stable", "org/two@stable", "org/bare@old"] {
        assert!(placed.iter().any(|branch| branch == wanted), "{wanted} is not among {placed:?}");
    }
    assert!(!placed.iter().any(|branch| branch == "org/config@stable"), "{placed:?}");
}

/// Z4.3: a variables file is read from the branch that the job checks out, also when nothing else
/// of its repository is used.
#[test]
fn override_checkout_selects_the_branch_of_variables_files() {
    let own = "- job: {name: test, override-checkout: stable, include-vars: [{name: all.yaml, project: org/two}], run: playbooks/test.yaml}\n- project: {check: {jobs: [test]}}\n";
    let mut site = site(&config(""), &[("org/one", own), ("org/two", "")]);
    branch(&mut site, "org/two", "stable", "");
    assert_eq!(runs(&mut site, "main", 1, &[("a", "x")]), ["test"]);
    let orders = super::ref_updates::orders(&site);
    let (_, state) = orders.iter().find(|(order, _)| order.job.as_str() == "test").unwrap();
    let placed: Vec<String> = state.branches.iter().map(|state| state.branch.to_string()).collect();
    assert!(
        placed.iter().any(|branch| branch == "org/two@stable"),
        "org/two@stable is not among {placed:?}"
    );
}

/// Z4.3: `override-checkout` may name a tag if no branch has the name; a job-wide setting does not
/// apply to config projects.
#[test]
fn override_checkout_may_name_a_tag() {
    let required = "[org/two, org/config, {name: org/bare, override-checkout: old}]";
    let own = format!(
        "- job: {{name: test, override-checkout: '1.0', required-projects: {required}, run: playbooks/test.yaml}}\n- project: {{check: {{jobs: [test]}}}}\n"
    );
    let mut site = site(&config(""), &[("org/one", &own), ("org/two", ""), ("org/bare", "")]);
    branch(&mut site, "org/two", "1.0", "");
    for (project, tag) in
        [("org/one", "1.0"), ("org/two", "1.0"), ("org/config", "1.0"), ("org/bare", "old")]
    {
        let key =
            BranchKey { project: ProjectName::new("forge.test", project), branch: "main".into() };
        site.forge.tag(&key, tag);
    }
    let tagged = site.forge.tip(&BranchKey {
        project: ProjectName::new("forge.test", "org/bare"),
        branch: "main".into(),
    });
    branch(&mut site, "org/bare", "main", "# later\n");
    assert_eq!(runs(&mut site, "main", 1, &[("a", "x")]), ["test"]);
    let orders = super::ref_updates::orders(&site);
    let (_, state) = orders.iter().find(|(order, _)| order.job.as_str() == "test").unwrap();
    let placed: Vec<String> = state.branches.iter().map(|state| state.branch.to_string()).collect();
    for wanted in [
        "org/one@main",
        "org/one@refs/tags/1.0",
        "org/two@1.0",
        "org/config@main",
        "org/bare@refs/tags/old",
    ] {
        assert!(placed.iter().any(|branch| branch == wanted), "{wanted} is not among {placed:?}");
    }
    for other in ["org/two@refs/tags/1.0", "org/config@refs/tags/1.0"] {
        assert!(!placed.iter().any(|branch| branch == other), "{other} is among {placed:?}");
    }
    let bare = state
        .branches
        .iter()
        .find(|state| state.branch.to_string() == "org/bare@refs/tags/old")
        .unwrap();
    assert_eq!(
        (&bare.base.id, &bare.result.id),
        (&tagged, &tagged),
        "it is where the tag is, not the branch"
    );
}

/// Z4.3: a required project without the change's branch is checked out at its default branch, which
/// the tested state names.
#[test]
fn a_required_project_without_the_changes_branch_uses_its_default_branch() {
    let own = "- job: {name: test, required-projects: [org/two], run: playbooks/test.yaml}\n- project: {check: {jobs: [test]}}\n";
    let mut site = site(&config(""), &[("org/one", ""), ("org/two", "")]);
    site.store.lock().unwrap().set_default(&ProjectName::new("forge.test", "org/two"), "trunk");
    branch(&mut site, "org/two", "trunk", "");
    branch(&mut site, "org/one", "devel", own);
    assert_eq!(runs(&mut site, "devel", 1, &[("a", "x")]), ["test"]);
    let orders = super::ref_updates::orders(&site);
    let (_, state) = orders.first().unwrap();
    let named = |keys: Vec<&BranchKey>| keys.iter().any(|key| key.to_string() == "org/two@trunk");
    assert!(
        named(state.branches.iter().map(|state| &state.branch).collect()),
        "{:?}",
        state.branches
    );
    assert!(named(state.defaults.iter().collect()), "{:?}", state.defaults);
}

/// J04: a project stanza on one branch applies to changes of that branch.
#[test]
fn a_project_stanza_applies_to_its_own_branch() {
    let central = config("- job: {name: central, run: playbooks/central.yaml}\n");
    let mut site = site(&central, &[("org/one", "- project: {check: {jobs: [central]}}\n")]);
    branch(&mut site, "org/one", "stable", "");
    assert_eq!(runs(&mut site, "main", 1, &[("a", "x")]), ["central"]);
    assert_eq!(runs(&mut site, "stable", 2, &[("a", "x")]), Vec::<String>::new());
}

/// J05, J06: a change of irrelevant files runs only the jobs without that matcher. If there are
/// none, nothing runs and nothing is reported.
#[test]
fn irrelevant_files_skip_the_jobs_with_that_matcher() {
    let jobs = "
- job: {name: test, run: playbooks/test.yaml, irrelevant-files: [^README$, ^docs/]}
- job: {name: reset, parent: test, irrelevant-files: !override []}
- job: {name: other, run: playbooks/other.yaml}
- project: {name: org/one, check: {jobs: [test, reset, other]}}
- project: {name: org/two, check: {jobs: [test]}}
";
    let mut site = site(&config(jobs), &[("org/one", ""), ("org/two", "")]);
    assert_eq!(runs(&mut site, "main", 1, &[("README", "x")]), ["other", "reset"]);
    assert_eq!(
        runs(&mut site, "main", 2, &[("README", "x"), ("src", "x")]),
        ["other", "reset", "test"]
    );
    let before = site.builds().len();
    let alone = site.forge.propose("org/two", 3, "a change", "", &[("docs/a", "x")]);
    site.run();
    assert_eq!((site.builds().len(), comments(&site, &alone).as_str()), (before, ""));
    assert!(site.forge.change(&alone).unwrap().facts.statuses.is_empty());
}

/// J17: a change that edits a job's definition runs the job whatever its file matchers are.
#[test]
fn a_job_runs_for_a_change_that_edits_it_whatever_its_file_matchers() {
    let jobs = |run: &str, more: &str| {
        format!(
            "- job: {{name: one, run: playbooks/{run}.yaml, files: [^src/]}}\n- job: {{name: two, run: playbooks/two.yaml, files: [^src/]{more}}}\n\
             - job: {{name: three, run: playbooks/three.yaml, files: [^src/]}}\n- project: {{check: {{jobs: [one, two, three]}}}}\n"
        )
    };
    let merged = jobs("one", "");
    let mut site = site(&config(""), &[("org/one", &merged)]);
    assert_eq!(runs(&mut site, "main", 1, &[("docs", "x")]), Vec::<String>::new());
    assert_eq!(
        runs(&mut site, "main", 2, &[(".zuul.yaml", &jobs("another", ", vars: {a: 1}"))]),
        ["one", "two"]
    );
    assert_eq!(runs(&mut site, "main", 3, &[("src/a", "x")]), ["one", "three", "two"]);
}

/// J18: a merged pragma removes the implied branch matcher of a job.
#[test]
fn a_merged_pragma_removes_the_implied_branch_of_a_job() {
    let job = "- job: {name: everywhere, run: playbooks/everywhere.yaml}\n- project: {gate: {jobs: [noop]}}\n";
    let mut site = site(&config(""), &[("org/one", job)]);
    branch(&mut site, "org/one", "stable", "- project: {check: {jobs: [everywhere]}}\n");
    assert_eq!(runs(&mut site, "stable", 1, &[("a", "x")]), Vec::<String>::new());
    let pragma = format!("- pragma: {{implied-branch-matchers: false}}\n{job}");
    let change = propose(&site, 2, &[(".zuul.yaml", &pragma)]);
    approve(&mut site, &[&change]);
    assert_eq!(merged(&site), [2]);
    assert_eq!(runs(&mut site, "stable", 3, &[("a", "x")]), ["everywhere"]);
}

/// X09: a project may shadow another one's jobs if the tenant allows it. The other project's
/// definition applies and its own is ignored; both jobs of a change run.
#[test]
fn a_shadowed_definition_is_ignored_in_favour_of_the_other_projects() {
    let ours = "- job: {name: test1, run: playbooks/ours.yaml}\n- project: {check: {jobs: [test1, test2]}}\n";
    let library = "- job: {name: test1, run: playbooks/library.yaml}\n- job: {name: test2, parent: test1, post-run: playbooks/test2-post.yaml}\n";
    let projects: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config(""))]),
        ("org/one", &[(".zuul.yaml", ours)]),
        ("org/two", &[(".zuul.yaml", library)]),
    ];
    let main = MAIN.replace("org/two,", "org/two: {shadow: org/one},");
    let mut site = Site::new(7, &main, projects, judge);
    let change = propose(&site, 1, &[("a", "x")]);
    site.run();
    assert_eq!(results(&site), ["test1 1 Some(Success)", "test2 1 Some(Success)"]);
    for job in ["test1", "test2"] {
        assert_eq!(paths(&ordered(&site, job, 1).1.run), ["playbooks/ours.yaml"], "{job}");
    }
    let reported = comments(&site, &change);
    assert!(
        unlinked(&reported).contains("test1 : SUCCESS")
            && unlinked(&reported).contains("test2 : SUCCESS"),
        "{reported}"
    );
}

/// C03: a new patch set of a configuration change stops the builds of the first one and runs its
/// own jobs.
#[test]
fn a_new_patch_set_stops_the_builds_of_the_first_and_runs_its_own_jobs() {
    let with = |job: &str| {
        format!(
            "- job: {{name: {job}, run: playbooks/{job}.yaml}}\n- project: {{check: {{jobs: [{job}]}}}}\n"
        )
    };
    let mut site = site(&config(""), &[("org/one", "")]);
    site.held.insert("first".to_owned());
    let change: ChangeKey = propose(&site, 1, &[(".zuul.yaml", &with("first"))]);
    site.run_until(|site| site.running() == ["first"]);
    site.forge.revise(&change, ".zuul.yaml", &with("second"));
    site.run();
    assert_eq!(results(&site), ["first 1 Some(Aborted)", "second 1 Some(Success)"]);
    let reported = comments(&site, &change);
    assert!(
        unlinked(&reported).contains("second : SUCCESS") && !reported.contains("first"),
        "{reported}"
    );
    let statuses = site.forge.change(&change).unwrap().facts.statuses;
    assert_eq!(
        statuses.iter().map(|status| status.state.as_str()).collect::<Vec<_>>(),
        ["success"]
    );
}
