//! The report detail: `debug` of the triggers that match an event (Z6.1).

use sluice_config::Pattern;
use sluice_config::pipeline::{
    ForgePermission as Needed, GitHubTrigger, Manager, Pipeline, Trigger, TriggerKind, ZuulTrigger,
};
use sluice_gate::Candidate;
use sluice_gate::filter::{
    ReportDetail, depends_on_sender, detail_by_images, detail_by_zuul, report_detail,
};
use sluice_model::ProjectName;
use sluice_model::change::{ChangeKey, ChangeRef, RepositoryPermission};
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent, ZuulEvent};

/// A comment on a change.
fn comment(text: &str) -> ForgeEvent {
    let kind = EventKind::Change {
        number: 1,
        event: "pull_request".to_owned(),
        action: "comment".to_owned(),
        comment: Some(text.to_owned()),
        label: None,
        state: None,
        status: None,
    };
    let project = ProjectName::new("github.com", "org/one");
    ForgeEvent { connection: "github".into(), project, sender: "ada".to_owned(), kind }
}

/// A trigger for comments that contain a word.
fn on_comment(word: &str, permission: Option<Needed>, debug: bool) -> Trigger {
    let on = GitHubTrigger {
        event: vec!["pull_request".to_owned()],
        action: vec!["comment".to_owned()],
        comment: vec![Pattern::new(word).unwrap()],
        permission,
        ..GitHubTrigger::default()
    };
    Trigger { connection: "github".into(), kind: TriggerKind::GitHub(on), debug }
}

fn pipeline(triggers: &[Trigger]) -> Pipeline {
    let mut pipeline = Pipeline::new("check", Manager::Independent);
    pipeline.triggers = triggers.to_vec();
    pipeline
}

#[test]
fn jobs_are_explained_where_a_matching_trigger_has_debug() {
    let plain = on_comment("recheck", None, false);
    let debug = on_comment("recheck debug", None, true);
    for triggers in [[plain.clone(), debug.clone()], [debug.clone(), plain.clone()]] {
        let of = |text: &str| report_detail(&pipeline(&triggers), &comment(text), None, None);
        assert_eq!(of("recheck"), Some(ReportDetail::Outcome));
        assert_eq!(of("recheck debug"), Some(ReportDetail::Debug), "in any order");
        assert_eq!(of("nice"), None);
    }
    let elsewhere = Trigger { connection: "elsewhere".into(), ..debug };
    assert_eq!(report_detail(&pipeline(&[elsewhere]), &comment("recheck debug"), None, None), None);
}

/// The sender's permission is read only where it decides: here whether the jobs are explained.
#[test]
fn a_sender_without_the_permission_gets_the_outcome_only() {
    let plain = on_comment("recheck", None, false);
    let debug = on_comment("recheck debug", Some(Needed::Write), true);
    let both = pipeline(&[plain.clone(), debug.clone()]);
    assert!(depends_on_sender(&both, &comment("recheck debug"), None));
    assert!(!depends_on_sender(&both, &comment("recheck"), None));
    for (may, detail) in [
        (None, ReportDetail::Outcome),
        (Some(RepositoryPermission::Read), ReportDetail::Outcome),
        (Some(RepositoryPermission::Write), ReportDetail::Debug),
        (Some(RepositoryPermission::Admin), ReportDetail::Debug),
    ] {
        assert_eq!(
            report_detail(&both, &comment("recheck debug"), None, may),
            Some(detail),
            "{may:?}"
        );
    }
    assert!(depends_on_sender(
        &pipeline(std::slice::from_ref(&debug)),
        &comment("recheck debug"),
        None
    ));
    let anyway = pipeline(&[on_comment("recheck", None, true), debug]);
    assert!(
        !depends_on_sender(&anyway, &comment("recheck debug"), None),
        "jobs are explained anyway"
    );
    let outcome = on_comment("recheck debug", Some(Needed::Write), false);
    assert!(
        !depends_on_sender(&pipeline(&[plain, outcome]), &comment("recheck debug"), None),
        "it enters anyway"
    );
}

#[test]
fn zuul_and_image_events_use_the_debug_of_their_own_triggers() {
    let on = |event: &str, debug| {
        let on = ZuulTrigger { event: vec![event.to_owned()], ..ZuulTrigger::default() };
        Trigger { connection: "zuul".into(), kind: TriggerKind::Zuul(on), debug }
    };
    let pipeline = pipeline(&[
        on("project-change-merged", true),
        on("parent-change-enqueued", false),
        on("image-build", true),
        on("image-validate", false),
    ]);
    let happened = |what| detail_by_zuul(&pipeline, what, &"gate".into());
    assert_eq!(happened(ZuulEvent::ProjectChangeMerged), Some(ReportDetail::Debug));
    assert_eq!(happened(ZuulEvent::ParentChangeEnqueued), Some(ReportDetail::Outcome));
    let asked = |what| detail_by_images(&pipeline, what);
    assert_eq!(asked(ImageEvent::ImageBuild), Some(ReportDetail::Debug));
    assert_eq!(asked(ImageEvent::ImageValidate), Some(ReportDetail::Outcome));
    assert_eq!(asked(ImageEvent::ImageDelete), None);
}

/// A record without the field means no explanation.
#[test]
fn a_record_without_debug_means_the_outcome_only() {
    let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 1);
    let change =
        ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "abc".to_owned() };
    let plain = Candidate::bare(&change);
    let stored = serde_json::to_value(&plain).unwrap();
    assert!(stored.get("debug").is_none(), "{stored}");
    assert_eq!(serde_json::from_value::<Candidate>(stored).unwrap(), plain);
    let detailed = Candidate { debug: true, ..plain };
    assert_eq!(
        serde_json::from_value::<Candidate>(serde_json::to_value(&detailed).unwrap()).unwrap(),
        detailed
    );
    let tick = |debug| {
        let (tenant, pipeline, branches) = ("demo".into(), "nightly".into(), vec!["main".into()]);
        EventKind::Timer { tenant, pipeline, branches, dereference: false, debug }
    };
    for debug in [false, true] {
        let stored = serde_json::to_value(tick(debug)).unwrap();
        assert_eq!(stored["timer"].get("debug").is_some(), debug, "{stored}");
        assert_eq!(serde_json::from_value::<EventKind>(stored).unwrap(), tick(debug));
    }
}
