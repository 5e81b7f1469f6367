//! What a change may depend on, and how far that is followed.

use super::operators::ask_as;
use super::standard::told;
use super::{approve, comments, gate_builds, merged, opened, site};
use sluice_gate::explain::Verdicts;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_records::change;
use sluice_records::codec::decode;
use sluice_records::report::Buildset;
use sluice_scenarios::Site;

/// D05, Z2.1: whoever may write a `Depends-On` may not have what it names tested, shown or told.
#[test]
fn a_need_outside_the_tenant_is_waited_for_and_never_tested_or_reported_on() {
    let mut site = site();
    let outside = site.forge.propose("org/outside", 9, "Hidden", "", &[("b", "x")]);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/outside/pull/9",
        &[("a", "x")],
    );
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert_eq!(site.builds(), Vec::<String>::new(), "not even in check");
    assert!(
        comments(&site, &a).contains("a change of a project outside of this tenant"),
        "{}",
        comments(&site, &a)
    );
    let records = site.world.records();
    let told = records
        .iter()
        .filter(|record| record.body.contains("Hidden"))
        .map(|record| &record.key.partition);
    let elsewhere: Vec<&String> =
        told.filter(|at| !at.starts_with("change#github/forge.test%2forg%2foutside/")).collect();
    assert_eq!(elsewhere, Vec::<&String>::new(), "its title stays with what its own webhook told");
    site.forge.merge_silently(&outside);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert!(site.forge.change(&outside).unwrap().comments.is_empty());
}

/// Z2.1, Z2.3: whoever may write a `Depends-On` does not learn by it which changes there are where
/// he may not look.
#[test]
fn of_a_need_outside_the_tenant_nothing_is_told_by_which_it_could_be_known() {
    let mut site = site();
    site.forge.propose("org/outside", 91, "Hidden", "", &[("b", "x")]);
    let closed = site.forge.propose("org/outside", 92, "Hidden", "", &[("b", "x")]);
    site.forge.close(&closed);
    let told = [(1, 91), (2, 92), (3, 93)].map(|(number, needed)| {
        let body = format!("Depends-On: https://forge.test/org/outside/pull/{needed}");
        let change = site.forge.propose("org/one", number, "A", &body, &[("a", "x")]);
        approve(&mut site, &[&change]);
        let plain = comments(&site, &change).replace(&format!("outside#{needed}"), "outside#N");
        let mut plain: Vec<String> =
            plain.lines().filter(|line| line.contains("outside#N")).map(Into::into).collect();
        plain.dedup();
        plain
    });
    assert!(!told[0].is_empty(), "it is told that it waits");
    assert_eq!((&told[1], &told[2]), (&told[0], &told[0]));
}

/// Z6.5, D01, D02: where several connections lead to a host, an address names the change by the one
/// that the tenant has its project from: it is followed, brings in who waits for it, and lands.
#[test]
fn a_need_is_known_by_the_tenants_own_connection_where_several_lead_to_its_host() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", super::CONFIG)]),
        ("org/one", project),
        ("org/two", project),
    ];
    // By name one stands before the tenant's own and one behind it.
    let mut site = Site::beside(7, super::MAIN, repositories, super::judge, &["aside", "hub"]);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert!(!comments(&site, &b).contains("outside of this tenant"), "{}", comments(&site, &b));
    approve(&mut site, &[&a]);
    assert_eq!(
        (merged(&site), gate_builds(&site, "unit")),
        (vec![1, 2], vec!["1".to_owned(), "1 2".to_owned()])
    );
    // What has landed is known by it as well.
    let c = site.forge.propose(
        "org/two",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("c", "x")],
    );
    approve(&mut site, &[&c]);
    assert_eq!(merged(&site), [1, 2, 3]);
}

/// Z6.5, D01: what is on a host of no connection is told with the change and keeps it from nothing;
/// what is on the host of one, and is no change there, keeps it out.
#[test]
fn a_need_is_waited_for_only_where_a_connection_leads_to_its_host() {
    let mut site = site();
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://elsewhere.test/org/two/pull/7",
        &[("a", "x")],
    );
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert!(!comments(&site, &a).contains("elsewhere.test"), "{}", comments(&site, &a));
    let told = "it depends on https://elsewhere.test/org/two/pull/7, where no connection leads to";
    let records = site.world.records();
    let sets = records.iter().filter_map(|record| decode::<Buildset>(record).ok());
    let tellers: Vec<String> = sets
        .filter(|set| set.item.reasons.iter().any(|reason| reason.contains(told)))
        .map(|set| set.queue.pipeline.to_string())
        .collect();
    assert!(
        tellers.contains(&"check".to_owned()) && tellers.contains(&"gate".to_owned()),
        "{tellers:?}"
    );
    // A real need beside it counts.
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let body = "Depends-On: https://elsewhere.test/org/two/pull/7\nDepends-On: https://forge.test/org/two/pull/2";
    let c = site.forge.propose("org/one", 3, "C", body, &[("c", "x")]);
    approve(&mut site, &[&c]);
    assert_eq!(merged(&site), [1]);
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [1, 2, 3]);
    for (number, page) in [(4, "forge.test/org/two/issues/2"), (5, "www.forge.test/org/two/pull/9")]
    {
        let change = site.forge.propose(
            "org/one",
            number,
            "D",
            &format!("Depends-On: https://{page}"),
            &[("d", "x")],
        );
        approve(&mut site, &[&change]);
        let said = comments(&site, &change);
        assert!(
            said.contains(&format!(
                "{page}, which is no change of a forge that is configured here"
            )),
            "{said}"
        );
    }
    assert_eq!(merged(&site), [1, 2, 3]);
}

/// Z6.1: a pipeline that allows no other connections takes no change of one that it does not name,
/// and none that depends on one; both are told why.
#[test]
fn a_pipeline_may_keep_out_what_other_connections_bring() {
    let main = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one]
      gerrit:
        untrusted-projects: [org/two]
";
    let project: &[(&str, &str)] =
        &[(".zuul.yaml", "- project: {check: {jobs: [unit]}}\n"), ("shared", "0")];
    for allowed in [true, false] {
        let config = format!(
            "
- pipeline:
    name: check
    manager: independent
    allow-other-connections: {allowed}
    trigger:
      github: [{{event: pull_request, action: [opened, changed, reopened]}}]
    success: {{github: {{status: success}}}}
    failure: {{github: {{status: failure}}}}
{}",
            super::jobs()
        );
        let repositories: &[(&str, &[(&str, &str)])] = &[
            ("org/config", &[("zuul.yaml", &config)]),
            ("org/one", project),
            ("review.test/org/two", project),
        ];
        let mut site = Site::new(7, main, repositories, super::judge);
        let b = site.forge.upload("org/two", 2, None, &[("b", "x")]);
        site.take_in();
        site.run();
        let a = site.forge.propose(
            "org/one",
            1,
            "A",
            "Depends-On: https://review.test/org/two/pull/2",
            &[("a", "x")],
        );
        site.take_in();
        site.run();
        let said = comments(&site, &a);
        assert_eq!(
            said.contains("does not name the connection gerrit and takes no others"),
            !allowed,
            "{said}"
        );
        assert_eq!(site.builds().is_empty(), !allowed, "{:?}", site.builds());
        let kind = EventKind::Enqueue {
            tenant: "demo".into(),
            pipeline: "check".into(),
            number: 2,
            head: None,
        };
        let (connection, project) = (b.connection.clone(), b.project.clone());
        let asked =
            ask_as(&mut site, ForgeEvent { connection, project, sender: "ada".into(), kind });
        assert_eq!(asked.is_ok(), allowed, "{asked:?}");
        let why = asked.err().unwrap_or_default();
        assert_eq!(why.contains("allow-other-connections"), !allowed, "{why}");
    }
}

/// Z2.1, D02: what is known by another connection to the same host than the tenant's own enters no
/// pipeline: not by an event, not by an operator, and not behind the change that it needs. Nothing
/// that the gate requires is asked of it.
#[test]
fn a_change_by_another_connection_than_the_tenants_enters_nothing() {
    let also = "
- pipeline:
    name: also
    manager: independent
    trigger: {gerrit: [{event: patchset-created}]}
";
    let (config, project) = (
        format!("{}{also}", super::CONFIG),
        format!("{}    also: {{jobs: [unit]}}\n", super::PROJECT),
    );
    let project: &[(&str, &str)] = &[(".zuul.yaml", &project), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", project)];
    let mut site = Site::new(7, super::MAIN, repositories, super::judge);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    while site.forge.next_webhook().is_some() {}
    let b = site.forge.move_to("gerrit", &b);
    let about = |kind| ForgeEvent {
        connection: "gerrit".into(),
        project: b.project.clone(),
        sender: "ada".into(),
        kind,
    };
    let effects = ask_as(&mut site, about(opened(2))).unwrap().join("\n");
    assert!(!effects.contains("may enter"), "{effects}");
    let verdicts = site.world.record(&change::verdicts_key(&b)).unwrap();
    let verdicts: Verdicts = decode(&verdicts).unwrap();
    let why = verdicts
        .pipelines
        .iter()
        .find(|verdict| verdict.pipeline.as_str() == "also")
        .unwrap()
        .taken
        .clone()
        .unwrap();
    assert!(why.why.contains("by the connection github, and gerrit tells of it"), "{why:?}");
    let enqueue = EventKind::Enqueue {
        tenant: "demo".into(),
        pipeline: "check".into(),
        number: 2,
        head: None,
    };
    let refused = ask_as(&mut site, about(enqueue)).unwrap_err();
    assert!(refused.contains("by the connection github, and gerrit tells of it"), "{refused}");
    approve(&mut site, &[&a]);
    assert_eq!((merged(&site), gate_builds(&site, "unit")), (vec![1], vec!["1".to_owned()]));
    let of_b =
        site.ending(&["org/one"], &[&a]).buildsets.into_iter().filter(|set| set.contains("#2"));
    assert_eq!(of_b.collect::<Vec<_>>(), Vec::<String>::new());
    assert!(site.forge.change(&b).unwrap().comments.is_empty(), "it is told nothing either");
}

/// Z2.1: the chain ends at the tenant's border, also two steps away.
#[test]
fn a_need_of_a_need_outside_the_tenant_is_not_tested_either() {
    let mut site = site();
    site.forge.propose("org/outside", 9, "Hidden", "", &[("b", "x")]);
    site.forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/outside/pull/9",
        &[("b", "x")],
    );
    site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    site.run();
    assert_eq!(site.builds(), Vec::<String>::new());
}

/// Z6.5: a chain is followed so far and no further, and whoever wrote it is told.
#[test]
fn a_chain_of_more_changes_than_one_may_depend_on_is_refused_without_following_it() {
    let mut site = site();
    for number in 1..=200 {
        let body = format!("Depends-On: https://forge.test/org/one/pull/{}", number + 1);
        let body = if number == 200 { String::new() } else { body };
        site.forge.propose("org/one", number, "a link", &body, &[(&format!("f{number}"), "x")]);
        while site.forge.next_webhook().is_some() {}
    }
    let top = site.forge.propose(
        "org/one",
        300,
        "A",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("a", "x")],
    );
    let before = site.forge.reads();
    site.take_in();
    let reads = site.forge.reads() - before;
    assert!(reads <= 22, "{reads} changes were read for one event");
    site.run();
    assert!(
        comments(&site, &top).contains("more than 20 open changes"),
        "{}",
        comments(&site, &top)
    );
}

/// Z6.5: merged needs cost reads as well.
#[test]
fn a_change_that_names_a_hundred_merged_ones_is_refused_after_few_reads() {
    let mut site = site();
    let mut body = String::new();
    for number in 1..=100 {
        let key =
            site.forge.propose("org/one", number, "merged", "", &[(&format!("f{number}"), "x")]);
        site.forge.merge_silently(&key);
        while site.forge.next_webhook().is_some() {}
        body.push_str(&format!("Depends-On: https://forge.test/org/one/pull/{number}\n"));
    }
    let top = site.forge.propose("org/one", 300, "A", &body, &[("a", "x")]);
    let before = site.forge.reads();
    site.take_in();
    let reads = site.forge.reads() - before;
    assert!(reads <= 31, "{reads} changes were read for one event");
    site.run();
    assert!(
        comments(&site, &top).contains("takes reading over 30 changes"),
        "{}",
        comments(&site, &top)
    );
}

/// Returns a description that names a hundred changes of which nobody can be asked, and behind them
/// `change`.
fn hidden_behind_a_hundred(change: &str) -> String {
    let foreign: String = (1..=100)
        .map(|n| format!("Depends-On: https://elsewhere.test/org/far/pull/{n}\n"))
        .collect();
    format!("{foreign}Depends-On: https://forge.test/{change}\n")
}

/// Z6.5: what is behind more addresses than are read may be any change, so that nothing is tested
/// as if it were not there.
#[test]
fn a_change_that_names_more_addresses_than_are_read_is_refused() {
    let mut site = site();
    site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    while site.forge.next_webhook().is_some() {}
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        &hidden_behind_a_hundred("org/two/pull/2"),
        &[("a", "x")],
    );
    let c = site.forge.propose(
        "org/one",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("c", "x")],
    );
    site.run();
    // The sweep finds the other one, of which nobody told.
    assert_eq!(site.builds(), ["check unit 2"]);
    let why = "names more than 100 addresses in lines Depends-On";
    let (of_a, of_c) = (comments(&site, &a), comments(&site, &c));
    assert!(of_a.contains(&format!("it {why}")), "{of_a}");
    assert!(of_c.contains(&format!("it depends on {a}, which {why}")), "{of_c}");
}

/// Z6.5, Z6.4: the same of one that came to name them where nobody told of it.
#[test]
fn a_change_does_not_land_that_came_to_name_more_addresses_than_are_read() {
    let mut site = site();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| site.is_building() && site.builds().contains(&"gate unit 1".to_owned()));
    site.forge.describe(&a, &hidden_behind_a_hundred("org/two/pull/2"), false);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    let told = comments(&site, &a);
    assert!(told.contains("it names more than 100 addresses in lines Depends-On now"), "{told}");
    site.forge.describe(&a, "Depends-On: https://forge.test/org/two/pull/2", false);
    site.forge.approve(&b);
    site.forge.approve(&a);
    site.take_in();
    site.run();
    assert_eq!(merged(&site), [2, 1]);
}

/// Z6.5, D01: a dependency that is added while a change is in the gate counts, told or not.
#[test]
fn a_change_does_not_land_without_what_it_came_to_depend_on_in_the_gate() {
    for is_told in [true, false] {
        let mut site = site();
        let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
        site.run();
        site.forge.approve(&a);
        site.run_until(|site| {
            site.is_building() && site.builds().contains(&"gate unit 1".to_owned())
        });
        site.forge.describe(&a, "Depends-On: https://forge.test/org/two/pull/2", is_told);
        site.take_in();
        site.run();
        assert_eq!(merged(&site), Vec::<u64>::new());
        let told = comments(&site, &a);
        let word = if is_told { "its dependencies changed" } else { "it depends on org/two#2 now" };
        assert!(told.contains(word), "{told}");
        site.forge.approve(&b);
        site.forge.approve(&a);
        site.take_in();
        site.run();
        assert_eq!(merged(&site), [2, 1]);
    }
}

/// Z6.5: one status that speaks of three changes at once, each of which needs twenty, is told to
/// each, and ends.
#[test]
fn a_status_of_three_changes_with_twenty_needs_each_is_taken_in() {
    let mut site = super::commits::site_that_heeds_statuses();
    let mut heads = Vec::new();
    for top in 1..=3_u64 {
        let needed = (1..=19).map(|n| top * 100 + n);
        let mut body = String::new();
        for number in needed {
            site.forge.propose("org/two", number, "needed", "", &[(&format!("f{number}"), "x")]);
            body.push_str(&format!("Depends-On: https://forge.test/org/two/pull/{number}\n"));
        }
        heads.push(site.forge.propose("org/one", top, "A", &body, &[("a", "x")]));
    }
    // Nobody was told of any of it.
    while site.forge.next_webhook().is_some() {}
    site.forge.share_head(&heads);
    site.forge.tell_status(&heads[0], "ci", "bot");
    site.take_in();
    let records = site.world.records();
    let needed = records.iter().filter(|record| record.key.sort.starts_with("needed-by#")).count();
    assert_eq!(needed, 3 * 19, "who needs whom is remembered of each");
    let ended = records.iter().filter(|record| record.key.partition.starts_with("delivery#"));
    let states: Vec<&str> = ended.map(|record| record.body.as_str()).collect();
    assert!(
        !states.is_empty() && states.iter().all(|body| !body.contains("accepted")),
        "{states:?}"
    );
}

/// D06: nobody told of B, and B is told nothing.
#[test]
fn a_change_is_checked_on_what_it_needs_of_which_nobody_ever_told() {
    let mut site = site();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    assert!(site.forge.next_webhook().is_some(), "nobody hears that B was proposed");
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    site.run();
    assert_eq!(site.builds(), ["check unit 2 1"]);
    assert_eq!(
        (told(&site, "check", &a), told(&site, "check", &b)),
        (vec!["Build succeeded.".to_owned()], Vec::new())
    );
    let ending = site.ending(&[], &[&a, &b]);
    assert_eq!(ending.changes[&a.to_string()].1, ["demo/check success"]);
    assert_eq!(ending.changes[&b.to_string()], ("Open".to_owned(), Vec::new(), 0));
    assert_eq!(ending.left_over, Vec::<String>::new(), "no queue either");
}

/// D01: nobody hears of B's approval; what comes of A afterwards brings both in. What a merged
/// change needed is not asked for.
#[test]
fn an_event_of_a_change_brings_what_it_needs_in_ahead_and_asks_for_nothing_below_what_is_merged() {
    let mut site = site();
    let m2 = site.forge.propose("org/one", 102, "M2", "", &[("m2", "x")]);
    let m1 = site.forge.propose(
        "org/one",
        101,
        "M1",
        "Depends-On: https://forge.test/org/one/pull/102",
        &[("m1", "x")],
    );
    for merged in [&m2, &m1] {
        site.forge.merge_silently(merged);
    }
    site.forge.forget_webhooks();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let needs = ["org/two/pull/2", "org/one/pull/101"]
        .map(|need| format!("Depends-On: https://forge.test/{need}"));
    let a = site.forge.propose("org/one", 1, "A", &needs.join("\n"), &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!((merged(&site), gate_builds(&site, "unit")), (Vec::new(), Vec::new()));
    site.forge.approve(&b);
    assert!(site.forge.next_webhook().is_some(), "nobody hears that B was approved");
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [2, 1]);
    assert_eq!(gate_builds(&site, "unit"), ["2", "2 1"]);
    for change in [&a, &b] {
        assert_eq!(told(&site, "gate", change), ["start", "Build succeeded."]);
    }
    let read = site.forge.read_numbers();
    assert!(read.contains(&101) && !read.contains(&102), "{read:?}");
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}
