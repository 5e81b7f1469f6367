//! Which configuration is live: all reviewed configuration, and what remains of it while a
//! repository cannot be read.

use super::{CONFIG, MAIN, PROJECT, approve, comments, gate_builds, judge, merged, propose, site};
use bytes::Bytes;
use sluice_memory::poll_once;
use sluice_model::git::BranchKey;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{ProjectName, TenantName};
use sluice_records::codec::decode;
use sluice_records::connection;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::cell;
use sluice_runtime::object::PutMode;
use sluice_scenarios::Site;
use sluice_scenarios::forge::PlayedProtection;
use sluice_scenarios::forge::REMOVED;
use sluice_scenarios::repos::PlayedRepos;
use sluice_tenant::Tenants;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

fn project(name: &str) -> ProjectName {
    ProjectName::new("forge.test", name)
}

fn branch(name: &str, branch: &str) -> BranchKey {
    BranchKey { project: project(name), branch: branch.into() }
}

fn demo() -> TenantName {
    TenantName::from("demo")
}

fn tenant(site: &Site) -> Tenant {
    let records = site.world.records();
    decode(
        records
            .iter()
            .find(|record| record.key == tenant::key(&demo()))
            .expect("the tenant was read"),
    )
    .unwrap()
}

/// Returns a configuration with one additional job.
fn with_job(text: &str, job: &str) -> String {
    format!("{text}\n- job: {{name: {job}, run: playbooks/{job}.yaml}}\n")
}

/// Proposes a change that runs `job` in check, and returns whether that job is defined.
fn job_runs_in_check(site: &mut Site, number: u64, job: &str) -> bool {
    let uses = PROJECT.replace("check: {jobs: [unit]}", &format!("check: {{jobs: [{job}]}}"));
    let change = site.forge.propose("org/two", number, "a change", "", &[(".zuul.yaml", &uses)]);
    site.run();
    let ran = site.builds().contains(&format!("check {job} {number}"));
    assert!(ran || comments(site, &change).contains(job), "{}", comments(site, &change));
    ran
}

/// Stores another main configuration and wakes the tenant.
pub(super) fn store_main(site: &Site, main: &str) {
    let ports = site.ports();
    let text = Bytes::from(main.to_owned());
    let put =
        || ports.objects.put(connection::MAIN, text.clone(), PutMode::Always, "application/yaml");
    Site::repeat(|| poll_once(put()));
    Site::repeat(|| poll_once(cell::send(&ports, &[Wakeup::Tenant { tenant: demo() }])));
}

/// Returns a job definition that applies to changes of every branch.
fn job_for_all_branches(job: &str) -> String {
    format!(
        "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: {job}, run: playbooks/{job}.yaml}}\n"
    )
}

/// Z2.2, X07: anyone with push rights may choose any branch name.
#[test]
fn a_pushed_branch_of_any_name_does_not_become_trusted_configuration() {
    let mut site = site();
    site.forge.push(&branch("org/config", "master"), &[("zuul.yaml", &with_job(CONFIG, "sneaky"))]);
    site.run();
    assert!(!job_runs_in_check(&mut site, 1, "sneaky"));
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "reviewed"))]);
    site.run();
    assert!(job_runs_in_check(&mut site, 2, "reviewed"));
}

/// Z2.2: only the files of the forge's current default branch count, not those of the former one.
#[test]
fn the_forge_decides_which_branch_is_the_default_branch() {
    let mut site = site();
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "former"))]);
    site.run();
    assert!(job_runs_in_check(&mut site, 1, "former"));
    site.forge.branch_off("org/config", "main", "devel");
    site.forge.push_silently(
        &branch("org/config", "devel"),
        &[("zuul.yaml", &with_job(CONFIG, "present"))],
    );
    site.store.lock().unwrap().set_default(&project("org/config"), "devel");
    site.forge.push(&branch("org/config", "topic"), &[("README", "unrelated text")]);
    site.run();
    assert!(job_runs_in_check(&mut site, 2, "present"));
    assert!(!job_runs_in_check(&mut site, 3, "former"), "main did not move, but no longer counts");
}

/// Z6.4, Z6.6: while a configuration change is landing, nothing else lands until that configuration
/// is live. Pushes to other projects do not change that.
#[test]
fn a_push_to_another_project_does_not_end_the_wait_for_landing_configuration() {
    let mut site = site();
    let a = propose(&site, 1, &[(".zuul.yaml", &with_job(PROJECT, "fresh"))]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    let before = tenant(&site).layout;
    assert!(before.live < before.wanted);
    site.forge.push(&branch("org/two", "topic"), &[("README", "x")]);
    site.take_in();
    site.handle(MessageQueue::Tenants);
    assert_eq!(tenant(&site).layout, before, "the landing has not ended");
    site.run();
    assert_eq!(merged(&site), [1]);
    let after = tenant(&site).layout;
    assert_eq!(after.live, after.wanted);
    assert!(job_runs_in_check(&mut site, 2, "fresh"));
}

/// Z6.4: a halted queue does not keep the tenant waiting. The landing record itself says that the
/// landing ended.
#[test]
fn a_tenant_sees_the_end_of_a_landing_in_a_halted_queue() {
    let mut site = site();
    let a = propose(&site, 1, &[(".zuul.yaml", &with_job(PROJECT, "fresh"))]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    let queue = sluice_model::QueueKey {
        tenant: demo(),
        pipeline: "gate".into(),
        queue: "integrated".into(),
    };
    let frozen = sluice_runtime::quarantine::halt_key(&sluice_records::queue::partition(&queue));
    let record = sluice_runtime::Record::new(frozen, "{}".to_owned());
    let expect = sluice_runtime::record::Expect::Anything;
    site.world.write_unchecked(sluice_runtime::record::Write::Put { record, expect });
    site.run_until(|site| tenant(site).layout.live == tenant(site).layout.wanted);
    assert_eq!(merged(&site), [1]);
    assert!(tenant(&site).landings.is_empty());
}

/// Z6.6: an event that arrives while a project is being read is not lost.
#[test]
fn a_push_during_the_read_of_its_project_is_read_too() {
    let mut site = site();
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "first"))]);
    site.take_in();
    let world = site.world.clone();
    site.store.lock().unwrap().meanwhile = Some(Box::new(move |store| {
        let main = branch("org/config", "main");
        let tip = store.tip(&main).unwrap();
        let mut tree = store.tree(&tip.id).clone();
        tree.insert("zuul.yaml".to_owned(), with_job(CONFIG, "second"));
        let commit = store.commit(tree, vec![tip.id], "pushed meanwhile");
        store.set(&main, &commit.id);
        world.write_unchecked(
            tenant::put_reread(&demo(), &main.project, "the second push").unwrap(),
        );
    }));
    site.handle(MessageQueue::Tenants);
    let wakeup = Wakeup::Tenant { tenant: demo() };
    sluice_memory::poll_once(cell::send(&site.ports(), &[wakeup])).unwrap().unwrap();
    site.run();
    assert!(job_runs_in_check(&mut site, 1, "second"));
}

/// C16: a repository that is missing for a moment loses no configuration, and is read again as soon
/// as it is back.
#[test]
fn configuration_stays_live_while_its_repository_is_unavailable() {
    let mut site = site();
    site.store.lock().unwrap().hide_project(&project("org/config"));
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "later"))]);
    site.run();
    let a = propose(&site, 1, &[("a", "x")]);
    site.store.lock().unwrap().show_project(&project("org/config"));
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1], "what was read last still counts");
    site.sweep();
    assert!(job_runs_in_check(&mut site, 2, "later"), "no further push was needed");
}

/// C16, Z6.7: unreadable configuration in one repository does not prevent the others from landing
/// configuration.
#[test]
fn an_unreadable_repository_does_not_stop_its_tenant() {
    let mut site = site();
    site.store
        .lock()
        .unwrap()
        .set_unreadable(&project("org/noop"), Some("zuul.d holds 10,001 files"));
    site.forge.push(&branch("org/noop", "topic"), &[("README", "x")]);
    site.run();
    let a = propose(&site, 1, &[(".zuul.yaml", &with_job(PROJECT, "fresh"))]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let layout = tenant(&site).layout;
    assert_eq!(layout.live, layout.wanted);
    assert!(job_runs_in_check(&mut site, 2, "fresh"));
    let problem =
        site.world.records().iter().any(|record| record.body.contains("zuul.d holds 10,001 files"));
    assert!(problem, "the error is stored for users to see");
}

/// Z6.7: many branches with long names and configuration on each do not displace the configuration
/// of the default branch.
#[test]
fn a_repository_with_five_hundred_branches_keeps_its_default_branch_in_the_gate() {
    let mut site = site();
    for number in 0..500 {
        let name = format!("a{number:03}-{}", "x".repeat(240));
        site.forge.branch_off("org/one", "main", &name);
        site.forge.branch_off("org/config", "main", &name);
    }
    site.forge.push(&branch("org/one", "another"), &[("README", "x")]);
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "later"))]);
    site.run();
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(gate_builds(&site, "unit"), ["1"]);
    assert_eq!(merged(&site), [1]);
    assert!(job_runs_in_check(&mut site, 2, "later"));
}

/// Z6.7: a large tenant gets its layout, in as many reconciliations as that takes.
#[test]
fn a_tenant_of_two_hundred_projects_gets_its_layout() {
    let long = "x".repeat(90);
    let names: Vec<String> = (0..200).map(|number| format!("org/p{number}-{long}")).collect();
    let mut main = MAIN.trim_end().trim_end_matches(']').to_owned();
    for name in &names {
        write!(main, ", {name}").unwrap();
    }
    main.push_str("]\n");
    let files: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let config: &[(&str, &str)] = &[("zuul.yaml", CONFIG)];
    let mut repositories: Vec<(&str, &[(&str, &str)])> =
        names.iter().map(|name| (name.as_str(), files)).collect();
    repositories.push(("org/config", config));
    let mut site = Site::new(7, &main, &repositories, judge);
    site.forge.propose(names.last().unwrap(), 1, "A", "", &[("a", "x")]);
    site.run_until(|site| !site.builds().is_empty());
    assert_eq!(site.builds(), ["check unit 1"], "{:?}", tenant(&site));
}

/// C02: an error in proposed configuration is reported as a line comment, once, and in the report.
#[test]
fn a_configuration_error_is_commented_on_its_line() {
    let mut site = site();
    let uses = PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [nosuch]}");
    let change = site.forge.propose("org/two", 1, "a change", "", &[(".zuul.yaml", &uses)]);
    site.twice = true;
    site.run();
    let line = uses.lines().position(|line| line.contains("nosuch")).unwrap() + 1;
    let shown = site.forge.change(&change).unwrap();
    let said: Vec<&String> = shown.lines.values().flatten().collect();
    let [said] = said.as_slice() else { panic!("{:?}", shown.lines) };
    assert!(said.starts_with(&format!(".zuul.yaml:{line}: ")) && said.contains("nosuch"), "{said}");
    assert!(comments(&site, &change).contains("nosuch"), "{}", comments(&site, &change));
}

/// Z2.2: configuration on a branch that the forge does not protect does not count. The forge is
/// asked for the protection periodically.
#[test]
fn unprotected_branches_are_excluded_if_the_tenant_says_so() {
    let main = MAIN.replace("[org/one,", "[org/one: {exclude-unprotected-branches: true},");
    let mut site = site();
    site.forge.protect("org/one", "main", PlayedProtection::Protected);
    store_main(&site, &main);
    site.run();
    site.forge
        .push(&branch("org/one", "topic"), &[(".zuul.yaml", &job_for_all_branches("topical"))]);
    site.forge
        .push(&branch("org/two", "topic"), &[(".zuul.yaml", &job_for_all_branches("unguarded"))]);
    site.run();
    assert!(!job_runs_in_check(&mut site, 1, "topical"));
    assert!(job_runs_in_check(&mut site, 2, "unguarded"), "of the other project none is left out");
    site.forge.protect("org/one", "topic", PlayedProtection::Protected);
    site.world.advance_millis(3_600_000);
    site.sweep();
    assert!(job_runs_in_check(&mut site, 3, "topical"), "nothing was pushed");
    let a = propose(&site, 4, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [4], "a guarded branch is what it was");
}

/// Z2.2
#[test]
fn locked_branches_are_excluded_if_the_tenant_says_so() {
    let mut site = site();
    site.forge.push(&branch("org/one", "old"), &[(".zuul.yaml", &job_for_all_branches("ancient"))]);
    site.run();
    assert!(job_runs_in_check(&mut site, 1, "ancient"));
    site.forge.protect("org/one", "old", PlayedProtection::Locked);
    store_main(&site, &MAIN.replace("[org/one,", "[org/one: {exclude-locked-branches: true},"));
    site.run();
    assert!(!job_runs_in_check(&mut site, 2, "ancient"));
}

/// Z2.2, Z2.4: a change to a project's entry in the main configuration takes effect at once. No
/// push to the project is needed.
#[test]
fn a_project_is_read_again_when_its_tenant_entry_changes() {
    let mut site = site();
    site.forge
        .push(&branch("org/one", "main"), &[("extra/more.yaml", &job_for_all_branches("hidden"))]);
    site.forge.push(&branch("org/one", "old"), &[(".zuul.yaml", &job_for_all_branches("ancient"))]);
    site.run();
    assert!(
        !job_runs_in_check(&mut site, 1, "hidden") && job_runs_in_check(&mut site, 2, "ancient")
    );
    let says = |words: &str| MAIN.replace("[org/one,", &format!("[org/one: {{{words}}},"));
    store_main(&site, &says("extra-config-paths: extra/, exclude-branches: old"));
    site.run();
    assert!(
        job_runs_in_check(&mut site, 3, "hidden") && !job_runs_in_check(&mut site, 4, "ancient")
    );
    store_main(&site, &says("load-branch: old"));
    site.run();
    assert!(
        !job_runs_in_check(&mut site, 5, "hidden") && job_runs_in_check(&mut site, 6, "ancient")
    );
    store_main(&site, MAIN);
    site.run();
    assert!(
        !job_runs_in_check(&mut site, 7, "hidden") && job_runs_in_check(&mut site, 8, "ancient")
    );
}

/// Z2.2, C16: a project that is no longer a config project loses its privileges at once, even while
/// it cannot be read.
#[test]
fn a_former_config_project_loses_its_privileges_even_if_it_cannot_be_read() {
    let mut site = site();
    let trusting = MAIN
        .replace("[org/config]", "[org/config, org/two]")
        .replace("[org/one, org/two,", "[org/one,");
    store_main(&site, &trusting);
    let rooted = "- job: {name: rooted, parent: null, run: playbooks/rooted.yaml}\n";
    site.forge.push(&branch("org/two", "main"), &[(".zuul.yaml", rooted)]);
    site.run();
    let uses = PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [rooted]}");
    propose(&site, 1, &[(".zuul.yaml", &uses)]);
    site.run();
    assert_eq!(site.builds(), ["check rooted 1"]);
    site.store.lock().unwrap().hide_project(&project("org/two"));
    store_main(&site, MAIN);
    site.run();
    let refused = propose(&site, 2, &[(".zuul.yaml", &uses)]);
    site.run();
    assert_eq!(site.builds(), ["check rooted 1"]);
    assert!(
        comments(&site, &refused)
            .contains("The job rooted is left out, because its definition has a mistake"),
        "{}",
        comments(&site, &refused)
    );
}

/// Z6.7: a push to one project causes only the files of that project to be fetched and parsed, both
/// by a warm and by a cold function.
#[test]
fn a_push_causes_only_the_files_of_its_project_to_be_read() {
    let fetched = |projects: usize| {
        let names: Vec<String> = (0..projects).map(|number| format!("org/p{number}")).collect();
        let main = format!("{}, {}]\n", MAIN.trim_end().trim_end_matches(']'), names.join(", "));
        let files: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
        let config: &[(&str, &str)] = &[("zuul.yaml", CONFIG)];
        let mut repositories: Vec<(&str, &[(&str, &str)])> =
            names.iter().map(|name| (name.as_str(), files)).collect();
        repositories.push(("org/config", config));
        let mut site = Site::new(7, &main, &repositories, judge);
        let push = |site: &mut Site, job: &str| {
            site.forge.push(&branch("org/p3", "main"), &[(".zuul.yaml", &with_job(PROJECT, job))]);
            site.take_in();
            drop(site.world.take_calls());
        };
        let gets = |site: &Site| {
            site.world.take_calls().by_operation.get("objects.get").copied().unwrap_or_default()
        };
        push(&mut site, "first");
        site.handle(MessageQueue::Tenants);
        let warm = gets(&site);
        push(&mut site, "second");
        let repos = PlayedRepos::new(site.world.clone(), site.store.clone());
        let cold = Tenants::new(site.ports(), Arc::new(repos), BTreeMap::new());
        poll_once(cold.reconcile_tenant(&demo())).unwrap().unwrap();
        let cold = gets(&site);
        site.run();
        assert!(tenant(&site).layout.live > 2, "{:?}", tenant(&site));
        (warm, cold)
    };
    let (few, many) = (fetched(10), fetched(40));
    assert_eq!(few, many);
    // Connections, the main configuration and the files; a cold function also reads the layout.
    assert_eq!(few, (3, 4));
}

/// Z4.9: a missing playbook with the name of the job is reported at the job's definition, before a
/// build is requested. The change that adds the playbook is tested with it.
#[test]
fn a_job_without_run_needs_a_playbook_of_its_name() {
    let mut site = site();
    site.store.lock().unwrap().lists_playbooks = true;
    let uses = "- job: {name: shaped, timeout: 60}\n- project: {check: {jobs: [shaped]}}\n";
    let lacking = site.forge.propose("org/two", 1, "a change", "", &[(".zuul.yaml", uses)]);
    let brings = [(".zuul.yaml", uses), ("playbooks/shaped.yml", "- hosts: all")];
    site.forge.propose("org/two", 2, "another", "", &brings);
    // A change to a config project has no effect before it is merged: the merged playbooks run.
    let of_config = with_job(CONFIG, "x").replace("run: playbooks/x.yaml", "timeout: 60")
        + "- project: {check: {jobs: [x]}}\n";
    let proposed = [("zuul.yaml", of_config.as_str()), ("playbooks/x.yaml", "- hosts: all")];
    let trusted = site.forge.propose("org/config", 3, "a trusted one", "", &proposed);
    site.run();
    let report = comments(&site, &lacking);
    assert!(
        report.contains("Job shaped has no \"run\"") && report.contains("shaped in org/two@main"),
        "{report}"
    );
    let lines = site.forge.change(&lacking).unwrap().lines;
    assert!(lines.values().flatten().any(|line| line.starts_with(".zuul.yaml:1: ")), "{lines:?}");
    assert_eq!(site.builds(), ["check shaped 2"]);
    assert!(!comments(&site, &trusted).contains("shaped"), "its jobs are those that are merged");
    // Once merged, the job has no playbook until its playbook is merged too.
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &of_config)]);
    site.run();
    let only_playbook = site.forge.propose(
        "org/config",
        4,
        "its playbook",
        "",
        &[("playbooks/x.yaml", "- hosts: all")],
    );
    site.run();
    assert!(
        comments(&site, &only_playbook).contains("Job x has no \"run\""),
        "{}",
        comments(&site, &only_playbook)
    );
    site.forge.push(&branch("org/config", "main"), &[("playbooks/x.yaml", "- hosts: all")]);
    site.run();
    site.forge.propose("org/config", 5, "anything", "", &[("README", "x")]);
    site.run();
    assert!(site.builds().contains(&"check x 5".to_owned()), "{:?}", site.builds());
}

/// Z4.9: a missing playbook is reported at the job's definition on the change that introduces it.
/// That includes changes to config projects, whose jobs are not tested before the merge. Other
/// changes get no report about it.
#[test]
fn a_playbook_that_a_change_makes_a_job_use_must_exist() {
    let mut site = site();
    site.store.lock().unwrap().lists_playbooks = true;
    let job = |run: &str| {
        format!(
            "- job: {{name: shaped, timeout: 60, pre-run: prepare, run: {run}}}\n- project: {{check: {{jobs: [shaped]}}}}\n"
        )
    };
    let lacking = site.forge.propose(
        "org/two",
        1,
        "a change",
        "",
        &[(".zuul.yaml", &job("playbooks/nosuch.yaml")), ("playbooks/prepare.yml", "- hosts: all")],
    );
    let brings = [
        (".zuul.yaml", job("shaped")),
        ("playbooks/prepare.yml", "x".to_owned()),
        ("shaped.yaml", "x".to_owned()),
    ];
    let brings: Vec<(&str, &str)> =
        brings.iter().map(|(path, text)| (*path, text.as_str())).collect();
    site.forge.propose("org/two", 2, "another", "", &brings);
    let of_config = with_job(CONFIG, "x");
    let trusted =
        site.forge.propose("org/config", 3, "a trusted one", "", &[("zuul.yaml", &of_config)]);
    // The playbooks of the live jobs do not exist either, but no change here is responsible.
    let unrelated = site.forge.propose("org/one", 4, "anything", "", &[("README", "x")]);
    site.run();
    let report = comments(&site, &lacking);
    assert!(
        report.contains("Playbook \"playbooks/nosuch.yaml\" was not found in org/two@main"),
        "{report}"
    );
    assert!(!report.contains("\"prepare\""), "{report}");
    let lines = site.forge.change(&lacking).unwrap().lines;
    assert!(lines.values().flatten().any(|line| line.starts_with(".zuul.yaml:1: ")), "{lines:?}");
    let report = comments(&site, &trusted);
    assert!(
        report.contains("Playbook \"playbooks/x.yaml\" was not found in org/config@main"),
        "{report}"
    );
    assert!(
        !report.contains("unit.yaml"),
        "playbooks that were used before are not reported: {report}"
    );
    assert!(
        comments(&site, &unrelated).starts_with("Build succeeded"),
        "{}",
        comments(&site, &unrelated)
    );
    assert_eq!(site.builds(), ["check shaped 2", "check unit 4"]);
    // Removing a playbook that a job uses is an error of the change that removes it if that
    // change also edits the job's definition.
    site.forge.push(&branch("org/two", "main"), &brings);
    site.run();
    let other = job("shaped").replace("timeout: 60", "timeout: 90");
    let takes = site.forge.propose(
        "org/two",
        5,
        "a third",
        "",
        &[(".zuul.yaml", &other), ("shaped.yaml", REMOVED)],
    );
    site.run();
    let report = comments(&site, &takes);
    assert!(report.contains("Playbook \"shaped\" was not found in org/two@main"), "{report}");
}

/// C12: a change on top of changes with configuration errors reports that it depends on one, with
/// the error. Its own errors are reported as line comments.
#[test]
fn a_change_on_top_of_a_configuration_error_reports_that_dependency() {
    let mut site = site();
    let needs = |number: u64| format!("Depends-On: https://forge.test/org/two/pull/{number}");
    let wrong =
        |job: &str| PROJECT.replace("check: {jobs: [unit]}", &format!("check: {{jobs: [{job}]}}"));
    let a = site.forge.propose("org/two", 1, "A", "", &[(".zuul.yaml", &wrong("nosuch"))]);
    let b = site.forge.propose("org/one", 2, "B", &needs(1), &[(".zuul.yaml", &wrong("neither"))]);
    let above = "Depends-On: https://forge.test/org/one/pull/2";
    let c = site.forge.propose("org/bare", 3, "C", above, &[(".zuul.yaml", PROJECT)]);
    let d = site.forge.propose("org/two", 4, "D", above, &[("file", "x")]);
    site.run();
    let sentence = "This change depends on a change with an invalid configuration.";
    assert!(
        !comments(&site, &a).contains(sentence) && comments(&site, &a).contains("nosuch"),
        "{}",
        comments(&site, &a)
    );
    for (change, words) in [(&b, "neither"), (&c, "nosuch"), (&d, "nosuch")] {
        let report = comments(&site, change);
        assert!(report.contains(sentence) && report.contains(words), "{report}");
    }
    let line_comments = |change| {
        site.forge.change(change).unwrap().lines.into_values().flatten().collect::<Vec<_>>()
    };
    assert!(
        line_comments(&b).iter().any(|line| line.contains("neither")),
        "{:?}",
        line_comments(&b)
    );
    assert_eq!(
        (line_comments(&c), line_comments(&d)),
        (Vec::<String>::new(), Vec::<String>::new()),
        "they have no errors of their own"
    );
    assert_eq!(site.builds(), Vec::<String>::new());
    // Once the lower change is fixed, the changes on top of it are tested.
    let mended = site.forge.propose(
        "org/two",
        5,
        "E",
        "",
        &[(".zuul.yaml", &PROJECT.replace("[unit]", "[other]"))],
    );
    let fine = site.forge.propose("org/one", 6, "F", &needs(5), &[("file", "x")]);
    site.run();
    for change in [&mended, &fine] {
        assert!(!comments(&site, change).contains(sentence), "{}", comments(&site, change));
    }
    assert!(site.builds().contains(&"check unit 5 6".to_owned()), "{:?}", site.builds());
}

/// C16, C17: a tenant loads although one repository has broken configuration and another is
/// missing. Both are recorded as configuration errors. The other projects are tested, and so is the
/// change that fixes the broken one.
#[test]
fn a_tenant_starts_with_a_broken_and_a_missing_repository() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/one", &[(".zuul.yaml", "- job: [\n")]),
        ("org/two", project),
        ("org/bare", &[("README", "nothing yet")]),
        ("org/noop", &[("README", "nothing yet")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let live = tenant(&site);
    let problems: Vec<&str> =
        live.unreadable_projects.iter().map(|problem| problem.project.as_str()).collect();
    assert_eq!((live.errors, problems), (2, vec!["forge.test/org/gone"]), "{live:?}");
    site.forge.propose("org/two", 1, "a change", "", &[("a", "x")]);
    let mended = site.forge.propose("org/one", 2, "the repair", "", &[(".zuul.yaml", PROJECT)]);
    approve(&mut site, &[&mended]);
    assert!(
        site.builds().contains(&"check unit 1".to_owned())
            && site.builds().contains(&"check unit 2".to_owned())
    );
    let statuses = site.forge.change(&mended).unwrap().facts.statuses;
    assert!(
        statuses.iter().any(|status| status.context == "demo/check" && status.state == "success"),
        "{statuses:?}"
    );
    assert_eq!((merged(&site), tenant(&site).errors), (vec![2], 1));
}

/// Z6.2, Z4.7: reports explain how the jobs were selected if the project sets `debug`, and only
/// then.
#[test]
fn reports_explain_the_job_selection_if_the_project_sets_debug() {
    let mut site = site();
    let debug = PROJECT.replace(
        "check: {jobs: [unit]}",
        "check: {debug: true, jobs: [unit, lint: {branches: stable}]}",
    );
    let plain = site.forge.propose("org/two", 1, "a change", "", &[("a", "x")]);
    let report = site.forge.propose("org/one", 2, "another", "", &[(".zuul.yaml", &debug)]);
    site.run();
    assert!(!comments(&site, &plain).contains("How the jobs were selected"));
    let text = comments(&site, &report);
    let lines: Vec<&str> =
        text.lines().skip_while(|line| *line != "How the jobs were selected:").skip(2).collect();
    assert_eq!(lines[0], "    job unit runs", "{text}");
    assert!(
        lines.iter().any(|line| line.contains("+ entry unit from org/one@main .zuul.yaml:4")),
        "{text}"
    );
    assert!(
        lines.iter().any(|line| line.contains(
            "job lint does not run: no job list entry of the project matches this branch"
        )),
        "{text}"
    );
}

/// Z2.1, G18: the changes of a project that leaves the tenant are dequeued under every manager,
/// without a report, and their builds are aborted. The others go on without them.
#[test]
fn the_changes_of_a_project_that_leaves_the_tenant_are_dequeued_silently() {
    let mut site = site();
    let leaves = site.forge.propose("org/two", 2, "leaves", "", &[("b", "x")]);
    let stays = site.forge.propose("org/one", 1, "stays", "", &[("a", "x")]);
    site.held = ["unit".to_owned()].into();
    site.run_until(|site| site.running().len() == 2);
    for change in [&leaves, &stays] {
        site.forge.approve(change);
        site.take_in();
    }
    site.run_until(|site| gate_builds(site, "unit") == ["2", "2 1"]);
    let before = comments(&site, &leaves);
    store_main(&site, &MAIN.replace("org/two, ", ""));
    site.run_until(|site| {
        let units = site.running().iter().filter(|job| *job == "unit").count();
        units == 2 && gate_builds(site, "unit").contains(&"1".to_owned())
    });
    site.held.clear();
    site.run();
    assert_eq!((merged(&site), comments(&site, &leaves)), (vec![1], before));
}

/// C14, Z6.6: a change of a project that no pipeline has yet is tested behind a change that adds the
/// project, in the gate behind it in the queue and in check with it as its dependency.
#[test]
fn a_change_is_tested_by_the_configuration_of_what_is_ahead_of_it() {
    let mut site = site();
    let adds = site.forge.propose("org/bare", 1, "adds", "", &[(".zuul.yaml", PROJECT)]);
    let body = "Depends-On: https://forge.test/org/bare/pull/1";
    let needs = site.forge.propose("org/bare", 2, "needs", body, &[("b", "x")]);
    let follows = site.forge.propose("org/bare", 3, "follows", "", &[("c", "x")]);
    site.run();
    let in_check: Vec<String> =
        site.builds().into_iter().filter(|build| build.starts_with("check unit")).collect();
    assert_eq!(in_check, ["check unit 1", "check unit 1 2"]);
    site.held = ["unit".to_owned()].into();
    for (change, built) in [(&adds, "1"), (&needs, "1 2"), (&follows, "1 2 3")] {
        site.forge.approve(change);
        site.run_until(|site| gate_builds(site, "unit").contains(&built.to_owned()));
    }
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2, 3]);
}

/// C14: without anything ahead that adds the project, such a change is in no pipeline.
#[test]
fn a_change_of_a_project_without_pipelines_enters_none() {
    let mut site = site();
    let change = site.forge.propose("org/bare", 1, "alone", "", &[("b", "x")]);
    approve(&mut site, &[&change]);
    assert_eq!((site.builds(), merged(&site)), (Vec::new(), Vec::new()));
}
