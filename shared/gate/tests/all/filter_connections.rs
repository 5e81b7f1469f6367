//! The connections that a pipeline accepts changes of (Z6.1).

use sluice_config::pipeline::{
    Filter, FilterKind, GitHubFilter, GitHubReporter, GitHubTrigger, Manager, Pipeline,
    PipelineReporter, ReporterKind, Trigger, TriggerKind,
};
use sluice_gate::filter::{connection_refusal, refs_refusal, refusal};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef};
use sluice_model::{ProjectName, Timestamp};

fn facts() -> ChangeFacts {
    let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 1);
    let change =
        ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "abc".to_owned() };
    ChangeFacts::bare(change, Timestamp(0))
}

/// Z6.1: a pipeline names the connections of its triggers, requirements and reporters of any
/// occasion.
#[test]
fn a_pipeline_without_other_connections_accepts_only_named_ones() {
    let mut bare = Pipeline::new("check", Manager::Independent);
    assert_eq!(
        connection_refusal(&bare, &"github".into()),
        None,
        "all are allowed where nothing is said"
    );
    bare.allow_other_connections = false;
    let filter =
        Filter { connection: "github".into(), kind: FilterKind::GitHub(GitHubFilter::default()) };
    let kind = TriggerKind::GitHub(GitHubTrigger::default());
    let trigger = Trigger { connection: "github".into(), kind, debug: false };
    let triggered = Pipeline { triggers: vec![trigger], ..bare.clone() };
    let requires = Pipeline { require: vec![filter.clone()], ..bare.clone() };
    let rejects = Pipeline { reject: vec![filter], ..bare.clone() };
    let mut reports = bare.clone();
    let kind = ReporterKind::GitHub(GitHubReporter::default());
    reports.reporters.no_jobs = vec![PipelineReporter { connection: "github".into(), kind }];
    assert_eq!(refusal(&triggered, &facts(), Timestamp(0)), None);
    for pipeline in [triggered, requires, rejects, reports] {
        assert_eq!(connection_refusal(&pipeline, &"github".into()), None);
        assert!(refs_refusal(&pipeline, &"gerrit".into()).unwrap().contains("accepts no other"));
    }
    assert!(
        refs_refusal(&bare, &"github".into())
            .unwrap()
            .contains("has no trigger, filter or reporter for the connection github")
    );
    assert!(refusal(&bare, &facts(), Timestamp(0)).unwrap().contains("allow-other-connections"));
}
