//! Dependencies of changes: which are allowed, and how far they are followed.

use super::operator_enqueues::ask_as;
use super::standard_jobs::report_lines;
use super::{approve, comments, gate_builds, merged, opened, site};
use sluice_gate::explain::RoutingRecord;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_records::change;
use sluice_records::codec::decode;
use sluice_records::report::Buildset;
use sluice_scenarios::Site;
use sluice_scenarios::forge::Announcement;

/// D05, Z2.1: a `Depends-On` to a project outside the tenant has that change neither tested nor
/// shown nor reported on.
#[test]
fn a_dependency_outside_the_tenant_is_waited_for_and_never_tested_or_reported_on() {
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
    let mentions = records
        .iter()
        .filter(|record| record.body.contains("Hidden"))
        .map(|record| &record.key.partition);
    let elsewhere: Vec<&String> = mentions
        .filter(|at| !at.starts_with("change#github/forge.test%2forg%2foutside/"))
        .collect();
    assert_eq!(
        elsewhere,
        Vec::<&String>::new(),
        "only the record of the change itself has its title"
    );
    site.forge.merge_silently(&outside);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert!(site.forge.change(&outside).unwrap().comments.is_empty());
}

/// Z2.1, Z2.3: reports do not disclose which changes exist in a project outside the tenant.
#[test]
fn reports_do_not_disclose_whether_a_dependency_outside_the_tenant_exists() {
    let mut site = site();
    site.forge.propose("org/outside", 91, "Hidden", "", &[("b", "x")]);
    let closed = site.forge.propose("org/outside", 92, "Hidden", "", &[("b", "x")]);
    site.forge.close(&closed);
    let reported = [(1, 91), (2, 92), (3, 93)].map(|(number, needed)| {
        let body = format!("Depends-On: https://forge.test/org/outside/pull/{needed}");
        let change = site.forge.propose("org/one", number, "A", &body, &[("a", "x")]);
        approve(&mut site, &[&change]);
        let plain = comments(&site, &change).replace(&format!("outside#{needed}"), "outside#N");
        let mut plain: Vec<String> =
            plain.lines().filter(|line| line.contains("outside#N")).map(Into::into).collect();
        plain.dedup();
        plain
    });
    assert!(!reported[0].is_empty(), "the wait is reported");
    assert_eq!((&reported[1], &reported[2]), (&reported[0], &reported[0]));
}

/// Z6.5, D01, D02: with several connections to one host a URL means the change by the connection
/// that the tenant has the project from. Its dependents are enqueued behind it, and it lands.
#[test]
fn a_dependency_is_identified_by_the_tenants_connection_when_several_serve_its_host() {
    let project: &[(&str, &str)] = &[(".zuul.yaml", super::PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", super::CONFIG)]),
        ("org/one", project),
        ("org/two", project),
    ];
    // One of the other connections sorts before the tenant's own and one after it.
    let mut site =
        Site::with_connections(7, super::MAIN, repositories, super::judge, &["another", "hub"]);
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
    // A merged dependency is identified in the same way.
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

/// Z6.5, D01: a URL on a host without a connection is mentioned and ignored. A URL on the host of a
/// connection that is not a change keeps the change out.
#[test]
fn a_dependency_counts_only_when_a_connection_serves_its_host() {
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
    let reason = "it depends on https://elsewhere.test/org/two/pull/7, which no connection serves";
    let records = site.world.records();
    let sets = records.iter().filter_map(|record| decode::<Buildset>(record).ok());
    let pipelines: Vec<String> = sets
        .filter(|set| set.item.reasons.iter().any(|one| one.text.contains(reason)))
        .map(|set| set.queue.pipeline.to_string())
        .collect();
    assert!(
        pipelines.contains(&"check".to_owned()) && pipelines.contains(&"gate".to_owned()),
        "{pipelines:?}"
    );
    // A second, valid dependency counts.
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
        let comments = comments(&site, &change);
        assert!(
            comments.contains(&format!("{page}, which is not a change of a configured forge")),
            "{comments}"
        );
    }
    assert_eq!(merged(&site), [1, 2, 3]);
}

/// Z6.1: with `allow-other-connections: false` a pipeline accepts no change of an unnamed
/// connection and no change that depends on one; both refusals have a reason.
#[test]
fn a_pipeline_can_refuse_changes_of_other_connections() {
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
        let comments = comments(&site, &a);
        assert_eq!(
            comments.contains(
                "has no trigger, filter or reporter for the connection gerrit and accepts no other"
            ),
            !allowed,
            "{comments}"
        );
        assert_eq!(site.builds().is_empty(), !allowed, "{:?}", site.builds());
        let kind = EventKind::Enqueue {
            tenant: "demo".into(),
            pipeline: "check".into(),
            number: 2,
            head: None,
        };
        let (connection, project) = (b.connection.clone(), b.project.clone());
        let outcome =
            ask_as(&mut site, ForgeEvent { connection, project, sender: "ada".into(), kind });
        assert_eq!(outcome.is_ok(), allowed, "{outcome:?}");
        let why = outcome.err().unwrap_or_default();
        assert_eq!(why.contains("allow-other-connections"), !allowed, "{why}");
    }
}

/// Z2.1, D02: a change by another connection to the tenant's host enters no pipeline: not by an
/// event, not by an operator, and not behind its dependency.
#[test]
fn a_change_by_another_connection_than_the_tenants_enters_no_pipeline() {
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
    let record = site.world.record(&change::verdicts_key(&b)).unwrap();
    let routing: RoutingRecord = decode(&record).unwrap();
    let why = routing
        .pipelines
        .iter()
        .find(|pipeline| pipeline.pipeline.as_str() == "also")
        .unwrap()
        .triggered
        .clone()
        .unwrap();
    assert!(why.why.contains("by the connection github, not by gerrit"), "{why:?}");
    let enqueue = EventKind::Enqueue {
        tenant: "demo".into(),
        pipeline: "check".into(),
        number: 2,
        head: None,
    };
    let refused = ask_as(&mut site, about(enqueue)).unwrap_err();
    assert!(refused.contains("by the connection github, not by gerrit"), "{refused}");
    approve(&mut site, &[&a]);
    assert_eq!((merged(&site), gate_builds(&site, "unit")), (vec![1], vec!["1".to_owned()]));
    let of_b =
        site.ending(&["org/one"], &[&a]).buildsets.into_iter().filter(|set| set.contains("#2"));
    assert_eq!(of_b.collect::<Vec<_>>(), Vec::<String>::new());
    assert!(site.forge.change(&b).unwrap().comments.is_empty(), "nothing is reported on it");
}

/// Z2.1: a dependency of a dependency outside the tenant counts as well.
#[test]
fn an_indirect_dependency_outside_the_tenant_is_not_tested() {
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

/// Z6.5: a dependency chain is followed up to a limit, and the refusal is reported.
#[test]
fn a_dependency_chain_over_the_limit_is_refused_after_few_reads() {
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

/// Z6.5: merged dependencies count against the limit of reads.
#[test]
fn a_change_with_a_hundred_merged_dependencies_is_refused_after_few_reads() {
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
        comments(&site, &top).contains("takes reading more than 30 changes"),
        "{}",
        comments(&site, &top)
    );
}

/// Returns a description with a hundred URLs on an unknown host, followed by one for `change`.
fn behind_a_hundred_foreign_urls(change: &str) -> String {
    let foreign: String = (1..=100)
        .map(|n| format!("Depends-On: https://elsewhere.test/org/far/pull/{n}\n"))
        .collect();
    format!("{foreign}Depends-On: https://forge.test/{change}\n")
}

/// Z6.5: URLs beyond the limit are not read and may be real dependencies, so the change is refused.
#[test]
fn a_change_with_more_urls_than_the_limit_is_refused() {
    let mut site = site();
    site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    while site.forge.next_webhook().is_some() {}
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        &behind_a_hundred_foreign_urls("org/two/pull/2"),
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
    // The sweep finds the other change, whose webhook was missed.
    assert_eq!(site.builds(), ["check unit 2"]);
    let why = "names more than 100 URLs in Depends-On lines";
    let (of_a, of_c) = (comments(&site, &a), comments(&site, &c));
    assert!(of_a.contains(&format!("it {why}")), "{of_a}");
    assert!(of_c.contains(&format!("it depends on {a}, which {why}")), "{of_c}");
}

/// Z6.5, Z6.4: the URLs are added while the change is in the gate, and the webhook is missed.
#[test]
fn a_change_that_gains_more_urls_than_the_limit_in_the_gate_does_not_land() {
    let mut site = site();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| site.is_building() && site.builds().contains(&"gate unit 1".to_owned()));
    site.forge.describe(&a, &behind_a_hundred_foreign_urls("org/two/pull/2"), Announcement::None);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    let reported = comments(&site, &a);
    assert!(reported.contains("it now has more than 100 Depends-On lines"), "{reported}");
    site.forge.describe(&a, "Depends-On: https://forge.test/org/two/pull/2", Announcement::None);
    site.forge.approve(&b);
    site.forge.approve(&a);
    site.take_in();
    site.run();
    assert_eq!(merged(&site), [2, 1]);
}

/// Z6.5, D01: a dependency that is added in the gate counts, whether its webhook arrives or not.
#[test]
fn a_change_does_not_land_without_a_dependency_that_it_gained_in_the_gate() {
    for is_delivered in [true, false] {
        let mut site = site();
        let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
        site.run();
        site.forge.approve(&a);
        site.run_until(|site| {
            site.is_building() && site.builds().contains(&"gate unit 1".to_owned())
        });
        site.forge.describe(
            &a,
            "Depends-On: https://forge.test/org/two/pull/2",
            Announcement::of(is_delivered),
        );
        site.take_in();
        site.run();
        assert_eq!(merged(&site), Vec::<u64>::new());
        let reported = comments(&site, &a);
        let reason =
            if is_delivered { "its dependencies changed" } else { "it now depends on org/two#2" };
        assert!(reported.contains(reason), "{reported}");
        site.forge.approve(&b);
        site.forge.approve(&a);
        site.take_in();
        site.run();
        assert_eq!(merged(&site), [2, 1]);
    }
}

/// Z6.5: one status event about three changes with twenty dependencies each is processed for each
/// of them, and its delivery ends.
#[test]
fn a_status_of_three_changes_with_twenty_dependencies_each_is_processed() {
    let mut site = super::commits::site_with_status_trigger();
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
    // All webhooks so far are lost.
    while site.forge.next_webhook().is_some() {}
    site.forge.share_head(&heads);
    site.forge.send_status_webhook(&heads[0], "ci", "bot");
    site.take_in();
    let records = site.world.records();
    let needed = records.iter().filter(|record| record.key.sort.starts_with("needed-by#")).count();
    assert_eq!(needed, 3 * 19, "every dependency of each change is recorded");
    let ended = records.iter().filter(|record| record.key.partition.starts_with("delivery#"));
    let states: Vec<&str> = ended.map(|record| record.body.as_str()).collect();
    assert!(
        !states.is_empty() && states.iter().all(|body| !body.contains("accepted")),
        "{states:?}"
    );
}

/// D06: the webhook of the dependency is missed, and nothing is reported on it.
#[test]
fn a_change_is_checked_on_a_dependency_whose_webhook_was_missed() {
    let mut site = site();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    assert!(site.forge.next_webhook().is_some(), "the webhook of B is lost");
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
        (report_lines(&site, "check", &a), report_lines(&site, "check", &b)),
        (vec!["Build succeeded.".to_owned()], Vec::new())
    );
    let ending = site.ending(&[], &[&a, &b]);
    assert_eq!(ending.changes[&a.to_string()].1, ["demo/check success"]);
    assert_eq!(ending.changes[&b.to_string()], ("Open".to_owned(), Vec::new(), 0));
    assert_eq!(ending.left_over, Vec::<String>::new(), "no queue either");
}

/// D01: the webhook of B's approval is missed; a later event of A enqueues both. The dependencies
/// of a merged change are not read.
#[test]
fn an_event_enqueues_the_dependencies_ahead_and_reads_none_behind_a_merged_one() {
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
    assert!(site.forge.next_webhook().is_some(), "the webhook of the approval is lost");
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [2, 1]);
    assert_eq!(gate_builds(&site, "unit"), ["2", "2 1"]);
    for change in [&a, &b] {
        assert_eq!(report_lines(&site, "gate", change), ["start", "Build succeeded."]);
    }
    let read = site.forge.read_numbers();
    assert!(read.contains(&101) && !read.contains(&102), "{read:?}");
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}
