//! The job's environment: variable files (`include-vars`), facts about nodes, and which
//! repositories are put in place.

use crate::support::*;
use serde_json::{Value, json};
use sluice_model::build::BuildResult;
use sluice_model::job::IncludeVars;

const SAY: &str = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug:\n        msg: \"{{ who | default('unset') }} {{ level | default('none') }} {{ own | default('none') }} {{ parent | default('none') }}\"\n";

fn of_project(name: &str, project: &str) -> IncludeVars {
    let source = json!({ "project": { "connection": "forge", "project": project, "override_checkout": null } });
    file(name, source)
}

fn file(name: &str, source: Value) -> IncludeVars {
    serde_json::from_value(
        json!({ "name": name, "source": source, "required": true, "use_ref": true }),
    )
    .unwrap()
}

/// Z4.3: files are read in order from the tested state, a later one overrides an earlier one, the
/// job's own variables override them all, and they override what parents returned; trusted
/// playbooks see the same.
#[tokio::test]
async fn files_of_variables_stand_between_the_jobs_own_and_what_parents_returned() {
    let files = [
        (PROJECT, "say.yaml", SAY),
        (CONFIG, "say.yaml", SAY),
        (
            PROJECT,
            "vars/first.yaml",
            "who: first\nlevel: first\nown: first\nparent: first\nzuul: {change: stolen}\n",
        ),
        (CONFIG, "all.json", "{\"who\": \"{{ level }}-expanded\"}"),
    ];
    let mut story = Story::new(&files);
    story.put(&[(
        "vars/first.yaml",
        "who: tested\nlevel: tested\nown: tested\nparent: tested\nzuul: {change: stolen}\n",
    )]);
    story.job.run_time.include_vars =
        vec![file("vars/first.yaml", json!("of-change")), of_project("all.json", CONFIG)];
    story.job.vars = vars(json!({ "own": "job" }));
    story.inherited.data = vars(json!({ "parent": "returned", "own": "returned" }));
    story.job.run = vec![untrusted("say"), story.trusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, BuildResult::Success, "{}", outcome.log);
    assert_eq!(
        outcome.log.matches("tested-expanded tested job tested").count(),
        2,
        "{}",
        outcome.log
    );
    assert!(!outcome.read("work/logs/zuul-info/inventory.yaml").contains("stolen"));
}

/// Z4.3, X07: of a config project the merged file is read, whatever is proposed for it.
#[tokio::test]
async fn a_config_projects_file_is_read_as_it_is_merged() {
    let mut story =
        Story::new(&[(PROJECT, "say.yaml", SAY), (PROJECT, "vars.yaml", "who: merged\n")]);
    let merged = story.project.1.clone();
    story.put(&[("vars.yaml", "who: proposed\n")]);
    let mut pinned = file("vars.yaml", json!("of-change"));
    pinned.commit = Some(merged.id);
    story.job.run_time.include_vars = vec![pinned];
    story.job.run = vec![untrusted("say")];
    let outcome = story.run().await;
    assert!(
        outcome.log.contains("merged none") && !outcome.log.contains("proposed"),
        "{}",
        outcome.log
    );
}

/// Z4.3: a file that is not there ends the build with its name before anything runs, unless it is
/// not required.
#[tokio::test]
async fn a_missing_variable_file_is_an_error_unless_it_is_not_required() {
    let with = async |required: bool, text: &str| {
        let mut story = Story::new(&[(PROJECT, "say.yaml", SAY), (PROJECT, "wrong.yaml", text)]);
        let mut missing = file("nosuch.yaml", json!("of-change"));
        missing.required = required;
        story.job.run_time.include_vars = vec![missing, file("wrong.yaml", json!("of-change"))];
        story.job.run = vec![untrusted("say")];
        let outcome = story.run().await;
        (
            outcome.ended.result,
            outcome.ended.detail.clone().unwrap_or_default(),
            outcome.log.clone(),
        )
    };
    let (result, detail, log) = with(true, "who: me\n").await;
    assert_eq!(result, BuildResult::ConfigError, "{log}");
    assert!(
        detail.contains("forge.test/org/project@main has no variable file nosuch.yaml"),
        "{detail}"
    );
    assert!(!log.contains("RUN START"), "{log}");
    let (result, _, log) = with(false, "who: me\n").await;
    assert_eq!(result, BuildResult::Success, "{log}");
    assert!(log.contains("me none"), "{log}");
    // 25 KB of aliases would be 25 million values.
    let bomb = format!("a: &a [{}0]\nb: [{}0]\n", "0,".repeat(5_000), "*a,".repeat(5_000));
    let (result, detail, log) = with(false, &bomb).await;
    assert_eq!(result, BuildResult::ConfigError, "{log}");
    assert!(detail.contains("holds more than 100000 values"), "{detail}");
    let (result, detail, log) = with(false, "- no mapping\n").await;
    assert_eq!(result, BuildResult::ConfigError, "{log}");
    assert!(
        detail.contains("wrong.yaml of forge.test/org/project@main cannot be read"),
        "{detail}"
    );
}

/// S01, Z4.3: repositories of changes ahead are in the workspace, unless the job does without;
/// those that it requires, and the change's own, are there whatever it says.
#[tokio::test]
async fn repositories_that_a_job_does_without_are_not_put_in_place() {
    const LIBRARY: &str = "forge.test/org/library";
    let placed = async |change: &dyn Fn(&mut Story)| {
        let mut story = Story::new(&[(PROJECT, "say.yaml", SAY)]);
        story.ahead(LIBRARY);
        story.job.run = vec![untrusted("say")];
        change(&mut story);
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, BuildResult::Success, "{}", outcome.log);
        let is_there = |project: &str| outcome.jobdir.join("work/src").join(project).is_dir();
        assert!(is_there(PROJECT));
        is_there(LIBRARY)
    };
    let required =
        json!([{ "connection": "forge", "project": LIBRARY, "override_checkout": null }]);
    let exclude = |story: &mut Story| {
        story.job.run_time.exclude_projects = vec![LIBRARY.into(), PROJECT.into()];
    };
    let include_another =
        |story: &mut Story| story.job.run_time.include_projects = Some(vec![CONFIG.into()]);
    let include =
        |story: &mut Story| story.job.run_time.include_projects = Some(vec![LIBRARY.into()]);
    let require = |story: &mut Story| {
        story.job.run_time.exclude_projects = vec![LIBRARY.into()];
        story.job.required_projects = serde_json::from_value(required.clone()).unwrap();
    };
    // The builds run at once.
    let found = futures::join!(
        placed(&|_| {}),
        placed(&exclude),
        placed(&include_another),
        placed(&include),
        placed(&require),
    );
    assert_eq!(found, (true, false, false, true, true));
}

/// Z7.1: like after Zuul's setup, plays know the basic facts about nodes whether they gather facts
/// or not, and what one playbook has gathered, the next one need not.
#[tokio::test]
async fn plays_know_basic_facts_without_gathering_and_gather_all_once() {
    let pre = "- {hosts: localhost, gather_facts: false, tasks: [assert: {that: hostvars.one.ansible_distribution is defined}]}\n\
               - {hosts: all, gather_facts: false, tasks: [assert: {that: zuul_user_dir == ansible_user_dir}]}\n";
    let run = "- {hosts: all, tasks: [assert: {that: ansible_default_ipv4 is defined}]}\n";
    let files =
        [(CONFIG, "pre.yaml", pre), (CONFIG, "gather.yaml", run), (PROJECT, "run.yaml", run)];
    let mut story = Story::new(&files).with_nodes(&["one"], &[]);
    story.job.pre_run = vec![story.trusted("pre"), story.trusted("gather")];
    story.job.run = vec![untrusted("run")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, BuildResult::Success, "{}", outcome.log);
    // Gathering the basic facts is no part of the job.
    let playbooks: Value =
        serde_json::from_str(&outcome.read("work/logs/job-output.json")).unwrap();
    assert_eq!(playbooks[0]["plays"].as_array().map(Vec::len), Some(2), "{playbooks}");
    assert_eq!(playbooks[0]["stats"]["one"]["ok"], 1, "{playbooks}");
    assert_eq!(outcome.log.matches("TASK [Gathering Facts]").count(), 1, "{}", outcome.log);
}

/// Z7.4: the build says which of its assertions failed.
#[tokio::test]
async fn a_failed_assertion_is_named() {
    let run = "- {hosts: localhost, tasks: [assert: {that: [1 == 1, 1 == 2]}]}\n";
    let mut story = Story::new(&[(PROJECT, "run.yaml", run)]);
    story.job.run = vec![untrusted("run")];
    let outcome = story.run().await;
    let detail = outcome.ended.detail.clone().unwrap_or_default();
    assert!(detail.contains("Assertion failed: 1 == 2"), "{detail}");
    assert!(outcome.log.contains("ERROR: Assertion failed: 1 == 2"), "{}", outcome.log);
}
