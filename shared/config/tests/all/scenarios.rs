//! Behaviour scenarios that depend only on configuration, in addition to those in `inheritance` and
//! `trust`.

use crate::common::*;
use sluice_config::pipeline::{ReporterKind, TriggerKind};
use sluice_config::{FreezeInput, Layout, Scope, Severity, parse_main};

fn jobs_of(layout: &Layout, pipeline: &str, name: &str, branch: &str) -> Vec<String> {
    let name = project(name);
    let graph = layout
        .freeze(&FreezeInput::change(pipeline, &name, branch))
        .unwrap_or_else(|errors| panic!("{errors:#?}"));
    names(&graph).into_iter().map(str::to_owned).collect()
}

/// C01, C03: a change is tested with the configuration it proposes, and each patchset with its own.
/// Merged configuration applies to the next change.
#[test]
fn a_change_is_tested_with_its_own_configuration() {
    let tenant =
        tenant().file("org/config", BASE).file("org/project", "- job: {name: one, run: r}\n");
    let layout = tenant.sound();
    assert!(jobs_of(&layout, "check", "org/project", "master").is_empty());
    for name in ["org/project", "github.com/org/project"] {
        let text = format!(
            "- job: {{name: one, run: r}}\n- job: {{name: two, run: r}}\n- project: {{name: {name}, check: {{jobs: [two]}}}}\n"
        );
        let first = layout
            .overlay(&[tenant.proposal("org/project", "master", &text)], Scope::UntrustedOnly);
        assert_eq!(jobs_of(&first, "check", "org/project", "master"), ["two"]);
    }
    let second = "- job: {name: one, run: r}\n- project: {check: {jobs: [one]}}\n";
    let second =
        layout.overlay(&[tenant.proposal("org/project", "master", second)], Scope::UntrustedOnly);
    assert_eq!(jobs_of(&second, "check", "org/project", "master"), ["one"]);
}

/// C02: a reference to a job with an invalid definition is not reported as undefined, in any
/// change.
#[test]
fn a_reference_to_an_invalid_job_is_not_reported_as_undefined() {
    let broken = format!("{BASE}- job: {{name: unit, run: r, vottng: true}}\n");
    let users = "- project: {check: {jobs: [unit, units]}}\n";
    let tenant = tenant().file("org/config", &broken).file("org/project", users);
    let layout = tenant.build();
    let diagnostics = messages(&layout);
    assert_eq!(diagnostics.len(), 3, "{diagnostics:#?}");
    assert!(diagnostics[0].contains("\"vottng\" is not an attribute here"), "{diagnostics:#?}");
    let why = "The job unit could not be read: its definition has a mistake (github.com/org/config@master: .zuul.yaml)";
    assert_eq!((diagnostics[1].as_str(), diagnostics[2].as_str()), (why, "Job units not defined"));
    let more = format!("{users}- job: {{name: mine, parent: unit, run: r}}\n");
    let proposed =
        layout.overlay(&[tenant.proposal("org/project", "master", &more)], Scope::UntrustedOnly);
    let new = proposed.errors_since(&layout);
    assert!(!new.is_empty() && new.iter().all(|error| error.diagnostic.message == why), "{new:#?}");
    let mended = tenant.proposal("org/config", "master", &broken.replace("vottng", "voting"));
    let mended = layout.overlay(&[mended], Scope::ToValidate);
    assert_eq!(messages(&mended), ["Job units not defined (did you mean \"unit\"?)"]);
}

/// C02: an unknown job is reported in Zuul's words at its line; the comment's range begins at its
/// stanza.
#[test]
fn an_unknown_job_is_commented_on_at_its_line() {
    let tenant = tenant().file("org/config", BASE);
    let text = "- job:\n    name: one\n    run: r\n\n- project:\n    name: org/project\n    check:\n      jobs:\n        - non-existent\n";
    let layout = tenant.sound();
    let errors = layout
        .overlay(&[tenant.proposal("org/project", "master", text)], Scope::UntrustedOnly)
        .errors_since(&layout);
    let [error] = &errors[..] else { panic!("{errors:#?}") };
    assert!(error.short_text().starts_with("Job non-existent not defined"));
    let comment = error.review_comment();
    assert_eq!(
        (comment.path.as_str(), comment.line, comment.start_line, comment.end_line),
        (".zuul.yaml", 9, 5, 9)
    );
    assert_eq!(
        error.render(Some(text)),
        "error: Job non-existent not defined\n  --> github.com/org/project@master: .zuul.yaml:9:11\n9 |         - non-existent\n  |           ^^^^^^^^^^^^\n  \
         in project org/project, attribute \"check\"\n"
    );
}

/// C06, X07: a config project's proposal is validated, but not used before it is merged.
#[test]
fn a_config_projects_proposal_is_checked_but_not_used() {
    let tenant = tenant()
        .file("org/config", BASE)
        .file("org/project", "- project: {check: {jobs: [noop]}}\n");
    let layout = tenant.sound();
    let wrong = tenant.proposal(
        "org/config",
        "master",
        &format!("{BASE}- job: {{name: a, vottng: true}}\n"),
    );
    let diagnostics =
        layout.overlay(std::slice::from_ref(&wrong), Scope::ToValidate).errors_since(&layout);
    assert!(
        diagnostics.len() == 1 && diagnostics[0].short_text().starts_with("syntax error"),
        "{diagnostics:#?}"
    );
    assert!(layout.overlay(&[wrong], Scope::UntrustedOnly).errors_since(&layout).is_empty());
    let adds = tenant.proposal(
        "org/config",
        "master",
        &format!(
            "{BASE}- job: {{name: central, run: r}}\n- project: {{name: org/project, check: {{jobs: [central]}}}}\n"
        ),
    );
    let used = layout.overlay(std::slice::from_ref(&adds), Scope::UntrustedOnly);
    assert_eq!(jobs_of(&used, "check", "org/project", "master"), ["noop"]);
    assert_eq!(
        jobs_of(&layout.overlay(&[adds], Scope::ToValidate), "check", "org/project", "master"),
        ["central", "noop"]
    );
}

/// X14, Z2.1: two tenants have projects, jobs and pipelines of the same names independently.
#[test]
fn tenants_are_isolated_from_each_other() {
    let main = |name: &str, config: &str| {
        format!(
            "- tenant:\n    name: {name}\n    source:\n      github:\n        config-projects: [{config}]\n        untrusted-projects: [org/project]\n"
        )
    };
    let of = |tenant: &str, config: &str, job: &str| {
        tenant_of(&main(tenant, config))
            .file(
                config,
                &format!(
                    "{BASE}- job: {{name: {job}, run: r}}\n- project: {{name: org/project, check: {{jobs: [{job}]}}}}\n"
                ),
            )
            .sound()
    };
    let (one, two) = (of("one", "org/config1", "first"), of("two", "org/config2", "second"));
    assert_eq!(jobs_of(&one, "check", "org/project", "master"), ["first"]);
    assert_eq!(jobs_of(&two, "check", "org/project", "master"), ["second"]);
    // A repository that is not in the tenant is never read, even if its files are available.
    let foreign = tenant_of(&main("one", "org/config1"))
        .file("org/config1", BASE)
        .file("org/config2", "- job: {name: foreign, run: r}\n")
        .sound();
    assert!(foreign.job_names().all(|name| name != "foreign"));
}

/// J12: dependencies decide which jobs are skipped after a failure.
#[test]
fn dependencies_make_a_graph() {
    let job = |name: &str, needs: &str| {
        format!("- job: {{name: {name}, run: r, dependencies: [{needs}]}}\n")
    };
    let text =
        [("a", ""), ("b", "a"), ("c", "a"), ("d", "b"), ("e", "c"), ("f", "b, c"), ("g", "f")]
            .map(|(name, needs)| job(name, needs))
            .concat();
    let list = "- project: {name: org/project, check: {jobs: [a, b, c, d, e, f, g]}}\n";
    let layout = tenant().file("org/config", &format!("{BASE}{text}{list}")).sound();
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap();
    let needs = |name: &str| -> Vec<String> {
        graph
            .jobs
            .iter()
            .find(|job| job.name.as_str() == name)
            .unwrap()
            .dependencies
            .iter()
            .map(|one| one.name.to_string())
            .collect()
    };
    assert_eq!(
        (needs("f"), needs("g"), needs("a").len()),
        (vec!["b".to_owned(), "c".to_owned()], vec!["f".to_owned()], 0)
    );
    let circle = text + &job("a", "g");
    let layout = tenant().file("org/config", &format!("{BASE}{circle}{list}")).sound();
    let errors = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err();
    assert!(errors[0].short_text().contains("Dependency cycle detected"), "{errors:#?}");
}

/// G18, D10, D11: a queue may be per branch and may allow dependency cycles, as merged.
#[test]
fn queue_attributes_take_effect() {
    let of_text = |queue: &str| {
        let list = "- project: {name: ^org/project.*, queue: integrated, gate: {jobs: [noop]}}\n";
        tenant().file("org/config", &format!("{BASE}- queue: {{name: integrated{queue}}}\n{list}"))
    };
    let with = |queue: &str| of_text(queue).sound();
    let of = |layout: &Layout| layout.queue(&project("org/project1"), "gate");
    assert!(of(&with(", per-branch: true")).per_branch);
    assert!(of(&with(", type: per-branch")).per_branch);
    // The ineffective older attribute is reported.
    assert!(!of(&of_text(", type: all-branches, per-branch: true").build()).per_branch);
    assert!(!of(&with("")).per_branch && !of(&with("")).allow_circular_dependencies);
    assert!(of(&with(", allow-circular-dependencies: true")).allow_circular_dependencies);
    assert_eq!(of(&with("")).name, with("").queue(&project("org/project2"), "gate").name);
}

/// Z6.3: a queue may be assigned per branch, by the stanza of that branch.
#[test]
fn a_queue_may_be_assigned_to_branches() {
    let layout = tenant()
        .file(
            "org/config",
            &format!(
                "{BASE}- queue: {{name: old, type: branch-assigned}}\n- queue: {{name: new, type: branch-assigned}}\n"
            ),
        )
        .file("org/project", "- project: {queue: new, gate: {jobs: [noop]}}\n")
        .at("org/project", "stable", ".zuul.yaml", "- project: {queue: old, gate: {jobs: [noop]}}\n")
        .sound();
    let of = |branch: &str| {
        layout.queue_on(&project("org/project"), "gate", Some(branch)).name.to_string()
    };
    assert_eq!(
        (of("master"), of("stable"), of("other")),
        ("new".into(), "old".into(), "github.com/org/project".into())
    );
}

/// L1.1, in part: an image is built in the formats of the providers that use it.
#[test]
fn an_image_is_needed_in_its_providers_formats() {
    let provider = |name: &str, format: &str| {
        format!(
            "- provider: {{name: {name}, section: s, labels: [l], images: [{{name: i, image-format: {format}}}]}}\n"
        )
    };
    let text = format!(
        "- image: {{name: i, type: zuul}}\n- flavor: {{name: f}}\n- label: {{name: l, image: i, flavor: f}}\n- section: {{name: s, connection: ec2}}\n{}{}{}",
        provider("one", "raw"),
        provider("two", "vmdk"),
        provider("three", "raw")
    );
    let layout = tenant().file("org/config", &text).sound();
    assert_eq!(
        (layout.image_formats("i"), layout.image_formats("other")),
        (vec!["raw".to_owned(), "vmdk".to_owned()], vec![])
    );
}

/// L1.1: a job that builds an image gets its formats for every event; other jobs get none.
#[test]
fn a_job_gets_the_formats_of_the_image_it_builds() {
    let text = format!(
        "{BASE}- image: {{name: i, type: zuul}}\n- flavor: {{name: f}}\n- label: {{name: l, image: i, flavor: f}}\n- section: {{name: s, connection: ec2}}\n- provider: {{name: p, section: s, labels: [l], images: [{{name: i, image-format: qcow2}}]}}\n- job: {{name: build, run: r, image-build-name: i}}\n- job: {{name: unit, run: r}}\n- project: {{name: org/project, check: {{jobs: [build, unit]}}}}\n"
    );
    let layout = tenant().file("org/config", &text).sound();
    let graph =
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap();
    let formats: Vec<_> = graph.jobs.iter().map(|job| job.run_time.image_formats.clone()).collect();
    assert_eq!(formats, [vec!["qcow2".to_owned()], vec![]]);
    let mut without = graph.jobs[0].clone();
    without.run_time.image_formats.clear();
    assert!(without.hash() != graph.jobs[0].hash());
}

/// L1.2: an image event uses the branch that defines the image. An unknown image is refused with
/// the nearest name.
#[test]
fn an_image_event_uses_the_branch_that_defines_the_image() {
    let text = "- image: {name: debian, type: zuul}\n- image: {name: stock, type: cloud}\n";
    let layout = tenant().file("org/config", text).sound();
    let home = layout.image_to_build("debian").unwrap();
    assert_eq!(
        (home.project.as_str(), home.branch.as_str(), home.connection.as_str()),
        ("github.com/org/config", "master", "github")
    );
    assert_eq!(
        ["debain", "x", "stock"].map(|name| layout.image_to_build(name).unwrap_err()),
        [
            "tenant one has no image \"debain\" (did you mean \"debian\"?)",
            "tenant one has no image \"x\"",
            "the image \"stock\" is of type cloud; only images of type zuul can be built",
        ]
    );
}

/// R07, R04, R09: reporters and messages default to Zuul's, and timers keep their time.
#[test]
fn reporters_and_messages_have_their_defaults() {
    let plain = "- pipeline: {name: p, manager: independent, failure: {github: {status: failure}}, trigger: {timer: [{time: '0 1 * * *'}]}}\n";
    let own = "- pipeline: {name: q, manager: independent, failure: {github: {status: failure}}, merge-conflict: {github: {comment: true}, smtp: {to: a@example.com}}, merge-conflict-message: Rebase!, disable-after-consecutive-failures: 3, disabled: {smtp: {}}}\n";
    let layout = tenant().file("org/config", &format!("{plain}{own}")).sound();
    let (plain, own) = (layout.pipeline("p").unwrap(), layout.pipeline("q").unwrap());
    assert!(plain.messages.merge_conflict.starts_with("Merge Failed."));
    assert_eq!(plain.reporters.merge_conflict, plain.reporters.failure);
    assert_eq!(plain.reporters.config_error, plain.reporters.failure);
    assert_eq!(
        (own.messages.merge_conflict.as_str(), own.reporters.merge_conflict.len()),
        ("Rebase!", 2)
    );
    assert!(
        own.reporters
            .merge_conflict
            .iter()
            .any(|one| matches!(one.kind, ReporterKind::Smtp { .. }))
    );
    assert_eq!(
        (own.disable_after_consecutive_failures, own.reporters.disabled.len()),
        (Some(3), 1)
    );
    assert!(
        matches!(&plain.triggers[0].kind, TriggerKind::Timer(timer) if timer.time == "0 1 * * *")
    );
}

/// Z6.1: without reporters for merge conflicts and configuration errors, those for failures report
/// them.
#[test]
fn conflicts_and_config_errors_default_to_the_reporters_of_failures() {
    let of = |lists: &str| {
        let text = format!(
            "- pipeline: {{name: p, manager: independent, failure: {{github: {{status: failure}}}}, {lists}}}\n"
        );
        let layout = tenant().file("org/config", &text).sound();
        layout.pipeline("p").unwrap().reporters.clone()
    };
    for lists in [
        "merge-conflict: {}, config-error: {}",
        "merge-failure: {}",
        "merge-conflict: {github: []}",
    ] {
        let found = of(lists);
        assert_eq!(found.failure.len(), 1);
        assert_eq!(
            (&found.merge_conflict, &found.config_error),
            (&found.failure, &found.failure),
            "{lists}"
        );
    }
    let found =
        of("merge-conflict: {}, merge-failure: {smtp: {}}, config-error: {smtp: {}}, success: {}");
    for list in [&found.merge_conflict, &found.config_error] {
        assert!(matches!(list[0].kind, ReporterKind::Smtp { .. }) && list.len() == 1, "{list:?}");
    }
    assert!(found.success.is_empty());
}

/// Z6.6: reporters under an older attribute name are ignored in favour of the newer one, with a warning.
/// The pipeline remains valid.
#[test]
fn ignored_reporters_under_an_older_name_are_reported() {
    let text = "- pipeline: {name: p, manager: independent, merge-conflict: {github: {comment: true}}, merge-failure: {smtp: {}}}\n";
    let layout = tenant().file("org/config", text).build();
    let diagnostics = "syntax error: \"merge-failure\" is another name for \"merge-conflict\"; use only one of them";
    assert_eq!(messages(&layout), [diagnostics]);
    let found = &layout.pipeline("p").unwrap().reporters.merge_conflict;
    assert!(matches!(found[0].kind, ReporterKind::GitHub(_)) && found.len() == 1, "{found:?}");
}

/// L4.1, in part: a label without an object yields a warning if others have one, and an error if
/// the tenant disallows the older form. The older form is not supported, as the warning states.
#[test]
fn labels_without_objects_are_reported() {
    let with = |flag: &str, nodes: &str| {
        tenant_of(&format!(
            "- tenant:\n    name: one\n    {flag}\n    source: {{github: {{config-projects: [org/config]}}}}\n"
        ))
        .file("org/config", &format!("{BASE}- label: {{name: new}}\n- nodeset: {{name: n, nodes: [{nodes}]}}\n"))
        .build()
    };
    let diagnostics = |layout: &Layout| -> Vec<(Severity, String)> {
        layout
            .errors()
            .iter()
            .map(|error| (error.diagnostic.severity, error.short_text()))
            .collect()
    };
    let (new, old) = ("{name: a, label: new}", "{name: b, label: old}");
    assert!(diagnostics(&with("use-nodepool: true", new)).is_empty());
    assert!(diagnostics(&with("use-nodepool: true", old)).is_empty());
    let mixed = diagnostics(&with("use-nodepool: true", &format!("{new}, {old}")));
    assert!(
        mixed.len() == 1
            && mixed[0].0 == Severity::Warning
            && mixed[0].1.contains("end with NODE_FAILURE"),
        "{mixed:?}"
    );
    assert_eq!(
        diagnostics(&with("use-nodepool: false", old)),
        [(Severity::Error, "The label \"old\" was not found.".to_owned())]
    );
}

/// J09: an intermediate job is itself abstract.
#[test]
fn an_intermediate_job_must_be_abstract() {
    let layout = tenant()
        .file("org/config", &format!("{BASE}- job: {{name: a, intermediate: true}}\n"))
        .build();
    assert_eq!(messages(&layout), ["syntax error: An intermediate job must also be abstract"]);
}

/// Z2.1, N16: references of tenants to other objects of the main file are resolved, and connections
/// can be restricted.
#[test]
fn the_main_file_is_checked_as_a_whole() {
    let main = "
- tenant: {name: one, semaphores: [shared, missing], access-rules: [staff], admin-rules: [absent], role-mappings: {helper: [none]}}
- global-semaphore: {name: shared, max: 2}
- authorization-rule: {name: staff, conditions: [{groups: staff}]}
";
    let (config, errors) = parse_main("main.yaml", main, &connections());
    let diagnostics: Vec<&str> =
        errors.iter().map(|error| error.diagnostic.message.as_str()).collect();
    assert_eq!(
        diagnostics,
        [
            "The global semaphore \"missing\" was not found.",
            "The authorization rule \"absent\" was not found.",
            "The authorization rule \"helper\" was not found.",
            "The authorization role \"none\" was not found.",
        ]
    );
    assert_eq!(config.tenants[0].global_semaphores["shared"], 2);
    let restricted = "- tenant:\n    name: one\n    allowed-triggers: [timer]\n    allowed-reporters: [github]\n    source: {github: {config-projects: [org/config]}}\n";
    let diagnostics = |pipeline: &str| {
        messages(
            &tenant_of(restricted)
                .file(
                    "org/config",
                    &format!("- pipeline: {{name: p, manager: independent, {pipeline}}}"),
                )
                .build(),
        )
    };
    assert!(
        diagnostics("trigger: {timer: [{time: 0 0 * * *}]}, success: {github: {comment: true}}")
            .is_empty()
    );
    assert!(diagnostics("trigger: {github: [{event: push}]}")[0].starts_with("Unknown trigger"));
    assert!(diagnostics("success: {smtp: {}}")[0].starts_with("Unknown reporter"));
}

/// Z2.1: a tenant maps rules to roles; the rules must be defined, except for two built-in ones.
#[test]
fn role_mappings_go_from_rules_to_roles() {
    let main = "
- authorization-rule: {name: chiefs, conditions: [{groups: chiefs}]}
- authorization-rule: {name: all, conditions: [{iss: ours}]}
- authorization-role: {name: holder, permissions: {autohold: true}}
- role: {name: enqueuer, permissions: {enqueue: {conditions: {project: org/project}}}}
- tenant: {name: one, role-mappings: {chiefs: [admin, enqueuer], all: [read, holder]}}
- api-root: {role-mappings: {all: read}}
";
    let (config, errors) = parse_main("main.yaml", main, &connections());
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(config.tenants[0].access.role_mappings["all"], ["read", "holder"]);
    assert_eq!(config.api_root.role_mappings["all"], ["read"]);
}

/// Z2.1: a permission whose condition cannot be read is not granted at all.
#[test]
fn a_permission_with_an_unreadable_condition_is_not_granted() {
    let main = "
- role: {name: enqueuer, permissions: {enqueue: {conditions: {project: 5, ref: main}}, autohold: true}}
";
    let (config, errors) = parse_main("main.yaml", main, &connections());
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert_eq!(config.authorization_roles["enqueuer"].permissions.len(), 1);
}

/// Z2.1: a project in the main file has a name.
#[test]
fn a_project_without_a_name_is_an_error() {
    for entry in ["{5: {}}", "{\"\": {}}", "\"\""] {
        let main = format!(
            "- tenant: {{name: one, source: {{github: {{untrusted-projects: [{entry}]}}}}}}\n"
        );
        let (config, errors) = parse_main("main.yaml", &main, &connections());
        assert_eq!(errors.len(), 1, "{entry}: {errors:#?}");
        assert!(errors[0].diagnostic.message.contains("a project's name"), "{errors:#?}");
        assert_eq!(config.tenants[0].projects.len(), 0);
    }
}

/// Z2.1: built-in roles cannot be defined, and every permission that a route needs can be granted.
#[test]
fn built_in_roles_are_not_defined_and_every_permission_of_a_route_can_be_given() {
    let read = |name: &str, permission: &str| {
        let role = format!(
            "- authorization-role: {{name: {name}, permissions: {{{permission}: true}}}}\n"
        );
        let (config, errors) = parse_main("main.yaml", &role, &connections());
        (
            config.authorization_roles.len(),
            errors.iter().map(|error| error.short_text()).collect::<Vec<_>>(),
        )
    };
    for name in ["admin", "read"] {
        let (count, diagnostics) = read(name, "autohold");
        assert_eq!((count, diagnostics.len()), (0, 1), "{diagnostics:?}");
        assert!(
            diagnostics[0].contains(&format!("the role \"{name}\" is built in")),
            "{diagnostics:?}"
        );
    }
    let asked = ATTRIBUTES.lines().filter_map(|row| row.split_once("role permission: "));
    let asked: Vec<&str> = asked.map(|(_, permission)| permission.trim()).collect();
    assert!(asked.contains(&"validate-image-upload"), "{asked:?}");
    for permission in asked {
        assert_eq!(read("operator", permission), (1, Vec::new()), "{permission}");
    }
}

/// N16: a global semaphore has the count of the main file, and no stanza may define its name.
#[test]
fn a_global_semaphore_is_not_redefined() {
    let main = "- global-semaphore: {name: shared, max: 3}\n- tenant:\n    name: one\n    semaphores: shared\n    source: {github: {config-projects: [org/config]}}\n";
    let layout = tenant_of(main)
        .file(
            "org/config",
            "- semaphore: {name: shared, max: 1}\n- semaphore: {name: own, max: 2}\n",
        )
        .build();
    assert!(messages(&layout)[0].contains("has the same name as a global semaphore"));
    let of = |name: &str| layout.semaphore(name);
    assert_eq!((of("shared"), of("own"), of("other")), ((true, 3), (false, 2), (false, 1)));
}

/// Z2.2, Z2.4: the standard configuration paths are refused as extra paths.
#[test]
fn standard_configuration_paths_are_refused_as_extra_paths() {
    let rows: [(&str, &[&str]); 4] = [
        ("[more/, zuul.yaml, .zuul.d/]", &["zuul.yaml", ".zuul.d/"]),
        ("[zuul.d/, .zuul.yaml]", &["zuul.d/", ".zuul.yaml"]),
        (".zuul.yaml", &[".zuul.yaml"]),
        ("[zuul.d, zuul.d/more/, a/zuul.yaml]", &[]),
    ];
    for (paths, expected) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - org/project: {{extra-config-paths: {paths}}}\n"
        );
        let (_, errors) = parse_main("main.yaml", &main, &connections());
        let found: Vec<String> = errors.iter().map(|error| marked(&main, error)).collect();
        assert_eq!(found, expected, "{errors:#?}");
        for error in errors {
            let diagnostics =
                "syntax error: Default zuul configs are not allowed in extra-config-paths";
            assert_eq!(error.short_text(), diagnostics);
        }
    }
}

/// J17: as in Zuul, a job that could not be frozen before is not treated as new. A change that
/// repairs it runs it if its files match.
#[test]
fn a_job_that_could_not_be_frozen_before_is_not_new() {
    let config = format!("{BASE}- job: {{name: shut, final: true, run: r, files: ^src/}}\n");
    let own = |said: &str| format!("- project: {{check: {{jobs: [shut: {{{said}}}]}}}}\n");
    let tenant = tenant().file("org/config", &config).file("org/project", &own("timeout: 3"));
    let before = tenant.sound();
    let mended = before.overlay(
        &[tenant.proposal("org/project", "master", &own("voting: false"))],
        Scope::UntrustedOnly,
    );
    let name = project("org/project");
    let runs = |before: &Layout, file: &str| {
        let files = [file.to_owned()];
        let input = FreezeInput::change("check", &name, "master").touching(&files);
        let graph = mended.freeze(&FreezeInput { before: Some(before), ..input }).unwrap();
        names(&graph).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(runs(&before, ".zuul.yaml"), [""; 0]);
    assert_eq!(runs(&before, "src/a"), ["shut"]);
    // A job that was not listed is new.
    let unlisted = tenant.proposal("org/project", "master", "- project: {check: {jobs: [noop]}}\n");
    let unlisted = before.overlay(&[unlisted], Scope::UntrustedOnly);
    assert_eq!(runs(&unlisted, ".zuul.yaml"), ["shut"]);
}

/// Z4.6: as in Zuul, a definition adds its own repository's roles, named without Ansible prefixes.
/// A list does not: its playbooks use the roles of the definitions, and those it names.
#[test]
fn a_list_adds_only_the_roles_that_it_names() {
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project, org/ansible-role-nginx, org/ansible-lib]\n";
    let roles = |entry: &str| {
        let layout = tenant_of(main)
            .file("org/config", BASE)
            .file(
                "org/ansible-role-nginx",
                "- job: {name: lib, run: r, roles: [{zuul: org/ansible-lib}]}\n",
            )
            .file("org/project", &format!("- project: {{check: {{jobs: [lib: {{{entry}}}]}}}}\n"))
            .sound();
        let graph = layout
            .freeze(&FreezeInput::change("check", &project("org/project"), "master"))
            .unwrap();
        let run = &graph.jobs[0].run[0];
        assert_eq!(
            run.project.name(),
            if entry.starts_with("run") { "org/project" } else { "org/ansible-role-nginx" }
        );
        run.role_repositories()
            .map(|role| (role.target_name.clone(), role.implicit))
            .collect::<Vec<_>>()
    };
    let role = |name: &str, implicit: bool| (name.to_owned(), implicit);
    // A listed repository keeps its own name, and so does a role named after its repository.
    let of_lib = [role("nginx", true), role("ansible-lib", false), role("config", true)];
    assert_eq!(roles("voting: true"), of_lib);
    assert_eq!(roles("run: own"), of_lib);
    let named = roles("run: own, roles: [{zuul: org/project, name: mine}]");
    assert_eq!(named[0], role("mine", false));
    assert_eq!(named[1..], of_lib);
}
