//! Which configuration is live: what was reviewed, all of it, and what is left of it where a
//! repository cannot be read.

use super::{CONFIG, MAIN, PROJECT, approve, comments, gate_builds, judge, merged, propose, site};
use bytes::Bytes;
use sluice_memory::poll_once;
use sluice_model::git::BranchKey;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{ProjectName, TenantName};
use sluice_records::codec::decode;
use sluice_records::connection;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::cell;
use sluice_runtime::object::PutMode;
use sluice_scenarios::Site;
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

/// A configuration with one job more.
fn with_job(text: &str, job: &str) -> String {
    format!("{text}\n- job: {{name: {job}, run: playbooks/{job}.yaml}}\n")
}

/// Proposes a change that runs a job in check, and returns whether the job is known.
fn knows(site: &mut Site, number: u64, job: &str) -> bool {
    let uses = PROJECT.replace("check: {jobs: [unit]}", &format!("check: {{jobs: [{job}]}}"));
    let change = site.forge.propose("org/two", number, "a change", "", &[(".zuul.yaml", &uses)]);
    site.run();
    let ran = site.builds().contains(&format!("check {job} {number}"));
    assert!(ran || comments(site, &change).contains(job), "{}", comments(site, &change));
    ran
}

/// Stores another main configuration, and has the tenant looked at.
fn store_main(site: &Site, main: &str) {
    let ports = site.ports();
    let text = Bytes::from(main.to_owned());
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml"))
        .unwrap()
        .unwrap();
    poll_once(cell::send(&ports, &[Poke::Tenant { tenant: demo() }])).unwrap().unwrap();
}

/// A job that changes of every branch may run, whichever branch its file is of.
fn everywhere(job: &str) -> String {
    format!(
        "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: {job}, run: playbooks/{job}.yaml}}\n"
    )
}

/// Z2.2, X07: whoever may push a branch may give it any name.
#[test]
fn a_branch_that_somebody_pushes_is_not_the_trusted_configuration_whatever_its_name() {
    let mut site = site();
    site.forge.push(&branch("org/config", "master"), &[("zuul.yaml", &with_job(CONFIG, "sneaky"))]);
    site.run();
    assert!(!knows(&mut site, 1, "sneaky"));
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "reviewed"))]);
    site.run();
    assert!(knows(&mut site, 2, "reviewed"));
}

/// Z2.2: the forge says which branch is the default one; the files of the one before count no more.
#[test]
fn the_default_branch_is_the_one_that_the_forge_says() {
    let mut site = site();
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "former"))]);
    site.run();
    assert!(knows(&mut site, 1, "former"));
    site.forge.branch_off("org/config", "main", "devel");
    site.forge.push_silently(
        &branch("org/config", "devel"),
        &[("zuul.yaml", &with_job(CONFIG, "present"))],
    );
    site.store.lock().unwrap().set_default(&project("org/config"), "devel");
    site.forge.push(&branch("org/config", "topic"), &[("README", "news of anything")]);
    site.run();
    assert!(knows(&mut site, 2, "present"));
    assert!(!knows(&mut site, 3, "former"), "main did not move, and counts no more");
}

/// Z6.4, Z6.6: until configuration that is to land is there, nothing else lands, whoever pushes
/// whatever elsewhere.
#[test]
fn a_push_elsewhere_does_not_end_the_wait_for_configuration_that_is_landing() {
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
    site.handle(Queue::Tenants);
    assert_eq!(tenant(&site).layout, before, "the landing has not ended");
    site.run();
    assert_eq!(merged(&site), [1]);
    let after = tenant(&site).layout;
    assert_eq!(after.live, after.wanted);
    assert!(knows(&mut site, 2, "fresh"));
}

/// Z6.4: a queue that is frozen does not keep the tenant waiting: the landing's own record says
/// that it is over.
#[test]
fn the_end_of_a_landing_is_seen_although_its_queue_is_frozen() {
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
    let frozen = sluice_runtime::quarantine::frozen_key(&sluice_records::queue::partition(&queue));
    let record = sluice_runtime::Record::new(frozen, "{}".to_owned());
    let expect = sluice_runtime::record::Expect::Anything;
    site.world.write_directly(sluice_runtime::record::Write::Put { record, expect });
    site.run_until(|site| tenant(site).layout.live == tenant(site).layout.wanted);
    assert_eq!(merged(&site), [1]);
    assert!(tenant(&site).landings.is_empty());
}

/// Z6.6: what is told while a project is read is not lost.
#[test]
fn a_push_that_arrives_while_its_project_is_read_is_read_as_well() {
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
        world.write_directly(tenant::put_dirty(&demo(), &main.project, "the second push").unwrap());
    }));
    site.handle(Queue::Tenants);
    let poke = Poke::Tenant { tenant: demo() };
    sluice_memory::poll_once(cell::send(&site.ports(), &[poke])).unwrap().unwrap();
    site.run();
    assert!(knows(&mut site, 1, "second"));
}

/// C16: a repository that answers as if it were gone for a moment loses nothing, and is read as
/// soon as it is back.
#[test]
fn configuration_stays_while_its_repository_cannot_be_read_and_is_read_afterwards() {
    let mut site = site();
    site.store.lock().unwrap().set_missing(&project("org/config"), true);
    site.forge.push(&branch("org/config", "main"), &[("zuul.yaml", &with_job(CONFIG, "later"))]);
    site.run();
    let a = propose(&site, 1, &[("a", "x")]);
    site.store.lock().unwrap().set_missing(&project("org/config"), false);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1], "what was read last still counts");
    site.sweep();
    assert!(knows(&mut site, 2, "later"), "nobody had to push again");
}

/// C16, Z6.7: what cannot be read of one repository keeps none of the others from landing
/// configuration.
#[test]
fn a_repository_that_cannot_be_read_as_it_is_does_not_stop_its_tenant() {
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
    assert!(knows(&mut site, 2, "fresh"));
    let problem =
        site.world.records().iter().any(|record| record.body.contains("zuul.d holds 10,001 files"));
    assert!(problem, "it is kept for people to see");
}

/// Z6.7: many branches crowd nothing out that counts, with long names and configuration on each.
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
    assert!(knows(&mut site, 2, "later"));
}

/// Z6.7: a tenant of any size comes to its layout, in as many looks as it takes.
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

/// C02: what is wrong with the configuration that a change proposes is said beside its line, once,
/// and in the report.
#[test]
fn a_mistake_is_said_beside_the_line_that_it_is_in() {
    let mut site = site();
    let uses = PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [nosuch]}");
    let change = site.forge.propose("org/two", 1, "a change", "", &[(".zuul.yaml", &uses)]);
    site.twice = true;
    site.run();
    let line = uses.lines().position(|line| line.contains("nosuch")).unwrap() + 1;
    let kept = site.forge.change(&change).unwrap();
    let said: Vec<&String> = kept.lines.values().flatten().collect();
    let [said] = said.as_slice() else { panic!("{:?}", kept.lines) };
    assert!(said.starts_with(&format!(".zuul.yaml:{line}: ")) && said.contains("nosuch"), "{said}");
    assert!(comments(&site, &change).contains("nosuch"), "{}", comments(&site, &change));
}

/// Z2.2: configuration of a branch that its forge does not guard counts no more than its being
/// pushed; the forge is asked again by and by.
#[test]
fn branches_that_the_forge_does_not_guard_are_left_out_where_the_tenant_says_so() {
    let main = MAIN.replace("[org/one,", "[org/one: {exclude-unprotected-branches: true},");
    let mut site = site();
    site.forge.guard("org/one", "main", false);
    store_main(&site, &main);
    site.run();
    site.forge.push(&branch("org/one", "topic"), &[(".zuul.yaml", &everywhere("topical"))]);
    site.forge.push(&branch("org/two", "topic"), &[(".zuul.yaml", &everywhere("unguarded"))]);
    site.run();
    assert!(!knows(&mut site, 1, "topical"));
    assert!(knows(&mut site, 2, "unguarded"), "of the other project none is left out");
    site.forge.guard("org/one", "topic", false);
    site.world.advance_millis(3_600_000);
    site.sweep();
    assert!(knows(&mut site, 3, "topical"), "nobody pushed anything");
    let a = propose(&site, 4, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [4], "a guarded branch is what it was");
}

/// Z2.2
#[test]
fn branches_that_the_forge_takes_nothing_for_are_left_out_where_the_tenant_says_so() {
    let mut site = site();
    site.forge.push(&branch("org/one", "old"), &[(".zuul.yaml", &everywhere("ancient"))]);
    site.run();
    assert!(knows(&mut site, 1, "ancient"));
    site.forge.guard("org/one", "old", true);
    store_main(&site, &MAIN.replace("[org/one,", "[org/one: {exclude-locked-branches: true},"));
    site.run();
    assert!(!knows(&mut site, 2, "ancient"));
}

/// Z2.2, Z2.4: what the main configuration says of a project holds at once: nobody has to push to
/// it.
#[test]
fn a_project_of_which_the_tenant_says_something_else_is_read_again() {
    let mut site = site();
    site.forge.push(&branch("org/one", "main"), &[("extra/more.yaml", &everywhere("hidden"))]);
    site.forge.push(&branch("org/one", "old"), &[(".zuul.yaml", &everywhere("ancient"))]);
    site.run();
    assert!(!knows(&mut site, 1, "hidden") && knows(&mut site, 2, "ancient"));
    let says = |words: &str| MAIN.replace("[org/one,", &format!("[org/one: {{{words}}},"));
    store_main(&site, &says("extra-config-paths: extra/, exclude-branches: old"));
    site.run();
    assert!(knows(&mut site, 3, "hidden") && !knows(&mut site, 4, "ancient"));
    store_main(&site, &says("load-branch: old"));
    site.run();
    assert!(!knows(&mut site, 5, "hidden") && knows(&mut site, 6, "ancient"));
    store_main(&site, MAIN);
    site.run();
    assert!(!knows(&mut site, 7, "hidden") && knows(&mut site, 8, "ancient"));
}

/// Z2.2, C16: a project that the main configuration trusts no more loses its privileges at once,
/// also while nobody can read it.
#[test]
fn a_project_that_is_trusted_no_more_has_no_privileges_left_although_it_cannot_be_read() {
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
    site.store.lock().unwrap().set_missing(&project("org/two"), true);
    store_main(&site, MAIN);
    site.run();
    let refused = propose(&site, 2, &[(".zuul.yaml", &uses)]);
    site.run();
    assert_eq!(site.builds(), ["check rooted 1"]);
    assert!(
        comments(&site, &refused).contains("The job rooted does not count"),
        "{}",
        comments(&site, &refused)
    );
}

/// Z6.7: what one project brings has one project's files fetched and parsed, by a function that was
/// there before and by a cold one.
#[test]
fn a_push_to_one_project_has_the_files_of_one_project_read_however_many_there_are() {
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
        site.handle(Queue::Tenants);
        let warm = gets(&site);
        push(&mut site, "second");
        let repos = PlayedRepos::new(site.world.clone(), site.store.clone());
        let cold = Tenants::new(site.ports(), Arc::new(repos), BTreeMap::new());
        poll_once(cold.look_at(&demo())).unwrap().unwrap();
        let cold = gets(&site);
        site.run();
        assert!(tenant(&site).layout.live > 2, "{:?}", tenant(&site));
        (warm, cold)
    };
    let (few, many) = (fetched(10), fetched(40));
    assert_eq!(few, many);
    // Connections, the main configuration and the files; the cold one the layout besides.
    assert_eq!(few, (3, 4));
}

/// Z4.9: that there is no playbook of a job's name is told at the job's definition, before a build
/// is asked for; the change that brings one is tested with it.
#[test]
fn a_job_without_run_needs_a_playbook_of_its_name() {
    let mut site = site();
    site.store.lock().unwrap().lists_playbooks = true;
    let uses = "- job: {name: shaped, timeout: 60}\n- project: {check: {jobs: [shaped]}}\n";
    let lacking = site.forge.propose("org/two", 1, "a change", "", &[(".zuul.yaml", uses)]);
    let brings = [(".zuul.yaml", uses), ("playbooks/shaped.yml", "- hosts: all")];
    site.forge.propose("org/two", 2, "another", "", &brings);
    // What a change to a config project proposes does not count: its playbooks run as they are
    // merged.
    let of_config = with_job(CONFIG, "x").replace("run: playbooks/x.yaml", "timeout: 60")
        + "- project: {check: {jobs: [x]}}\n";
    let proposed = [("zuul.yaml", of_config.as_str()), ("playbooks/x.yaml", "- hosts: all")];
    let trusted = site.forge.propose("org/config", 3, "a trusted one", "", &proposed);
    site.run();
    let told = comments(&site, &lacking);
    assert!(
        told.contains("Job shaped has no \"run\"") && told.contains("shaped in org/two@main"),
        "{told}"
    );
    let beside = site.forge.change(&lacking).unwrap().lines;
    assert!(beside.values().flatten().any(|line| line.starts_with(".zuul.yaml:1: ")), "{beside:?}");
    assert_eq!(site.builds(), ["check shaped 2"]);
    assert!(!comments(&site, &trusted).contains("shaped"), "its jobs are those that are merged");
    // Merged, it has none until its playbook is merged as well.
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

/// Z4.9: a playbook that a job names and that is not there is told at the job's definition to the
/// change that brings it, also to one of a config project, whose jobs are not tried before they are
/// merged; nobody else is told of a mistake that is not theirs.
#[test]
fn a_playbook_that_a_change_has_a_job_name_must_be_there() {
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
    // The playbooks of the jobs that are live are not there either, and that is nobody's mistake
    // here.
    let beside = site.forge.propose("org/one", 4, "anything", "", &[("README", "x")]);
    site.run();
    let told = comments(&site, &lacking);
    assert!(
        told.contains("There is no playbook \"playbooks/nosuch.yaml\" in org/two@main"),
        "{told}"
    );
    assert!(!told.contains("\"prepare\""), "{told}");
    let lines = site.forge.change(&lacking).unwrap().lines;
    assert!(lines.values().flatten().any(|line| line.starts_with(".zuul.yaml:1: ")), "{lines:?}");
    let told = comments(&site, &trusted);
    assert!(
        told.contains("There is no playbook \"playbooks/x.yaml\" in org/config@main"),
        "{told}"
    );
    assert!(!told.contains("unit.yaml"), "those that were named before are not told: {told}");
    assert!(
        comments(&site, &beside).starts_with("Build succeeded"),
        "{}",
        comments(&site, &beside)
    );
    assert_eq!(site.builds(), ["check shaped 2", "check unit 4"]);
    // To take away what a job names is a mistake of who takes it, where the job's definition is
    // touched with it.
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
    let told = comments(&site, &takes);
    assert!(told.contains("There is no playbook \"shaped\" in org/two@main"), "{told}");
}

/// C12: a change above changes whose configuration is wrong is told that it depends on one, and
/// what is wrong there; its own is told beside its lines.
#[test]
fn a_change_above_a_wrong_configuration_is_told_that_it_depends_on_one() {
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
        let told = comments(&site, change);
        assert!(told.contains(sentence) && told.contains(words), "{told}");
    }
    let beside = |change| {
        site.forge.change(change).unwrap().lines.into_values().flatten().collect::<Vec<_>>()
    };
    assert!(beside(&b).iter().any(|line| line.contains("neither")), "{:?}", beside(&b));
    assert_eq!(
        (beside(&c), beside(&d)),
        (Vec::<String>::new(), Vec::<String>::new()),
        "they have no mistake of their own"
    );
    assert_eq!(site.builds(), Vec::<String>::new());
    // Mended below, those above are tested.
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

/// C16, C17: a tenant loads with a repository whose configuration is broken and one that is not
/// there; both are kept as mistakes, the others are tested, and so is what mends the broken one.
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
        live.problems.iter().map(|problem| problem.project.as_str()).collect();
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

/// Z6.2, Z4.7: where a project says `debug`, its reports tell how its jobs were decided; of a
/// project that does not, nothing.
#[test]
fn reports_tell_how_jobs_were_decided_where_the_project_wants_it() {
    let mut site = site();
    let debug = PROJECT.replace(
        "check: {jobs: [unit]}",
        "check: {debug: true, jobs: [unit, lint: {branches: stable}]}",
    );
    let plain = site.forge.propose("org/two", 1, "a change", "", &[("a", "x")]);
    let told = site.forge.propose("org/one", 2, "another", "", &[(".zuul.yaml", &debug)]);
    site.run();
    assert!(!comments(&site, &plain).contains("How the jobs were decided"));
    let text = comments(&site, &told);
    let lines: Vec<&str> =
        text.lines().skip_while(|line| *line != "How the jobs were decided:").skip(2).collect();
    assert_eq!(lines[0], "    job unit runs", "{text}");
    assert!(
        lines.iter().any(|line| line.contains("+ entry unit from org/one@main .zuul.yaml:4")),
        "{text}"
    );
    assert!(
        lines.iter().any(|line| line
            .contains("job lint does not run: no entry of the project is for this branch")),
        "{text}"
    );
}
