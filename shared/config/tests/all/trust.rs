//! Which projects may define what, and the diagnostics when they may not.

use crate::common::*;
use sluice_config::{FreezeInput, Layout, Scope, Severity};

/// Expects exactly one diagnostic that contains the text.
fn one_diagnostic(layout: &Layout, words: &str) {
    let messages = messages(layout);
    assert_eq!(messages.len(), 1, "{messages:#?}");
    assert!(messages[0].contains(words), "{messages:#?}");
}

const SECRET: &str = "- secret: {name: key, data: {value: !encrypted/pkcs1-oaep YWJj}}\n";

/// X01: a secret is available only to playbooks of the definition that lists it.
#[test]
fn secrets_stay_with_their_definition() {
    let text =
        format!("{BASE}{SECRET}- job: {{name: top, secrets: key, run: top, post-run: top-post}}\n");
    let layout = tenant()
        .file("org/config", &text)
        .file(
            "org/project",
            "- job: {name: child, parent: top, pre-run: child-pre, run: child}\n- project: {check: {jobs: [child]}}",
        )
        .sound();
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap();
    let child = &graph.jobs[0];
    let all = child.pre_run.iter().chain(&child.run).chain(&child.post_run);
    let with: Vec<&str> = all
        .filter(|playbook| !playbook.secrets.is_empty())
        .map(|playbook| playbook.path.as_str())
        .collect();
    assert_eq!(with, ["top-post"]);
    let secret =
        &child.post_run.iter().find(|playbook| playbook.path == "top-post").unwrap().secrets["key"];
    assert_eq!(
        (secret.project.as_str(), secret.data["value"]["!encrypted/pkcs1-oaep"].as_str()),
        ("github.com/org/config", Some("YWJj"))
    );
}

/// X03: a base job, a parent and a child with a secret each; the playbooks of each see its own
/// secret only.
#[test]
fn the_playbooks_of_a_parent_see_the_parents_secret_only() {
    let secret = |name: &str| format!("- secret: {{name: {name}, data: {{of: {name}}}}}\n");
    let config = format!(
        "- pipeline: {{name: gate, manager: dependent, post-review: true}}\n{}{}- job: {{name: base, parent: null, secrets: of-base, \
         pre-run: base-pre, post-run: base-post}}\n- job: {{name: top, secrets: [{{name: word, secret: of-top}}], pre-run: top-pre, run: top, \
         post-run: top-post}}\n",
        secret("of-base"),
        secret("of-top"),
    );
    let own = format!(
        "{}- job: {{name: child, parent: top, secrets: [{{name: word, secret: own}}], pre-run: child-pre, run: child, post-run: child-post}}\n\
         - project: {{gate: {{jobs: [child]}}}}\n",
        secret("own"),
    );
    let layout = tenant().file("org/config", &config).file("org/project", &own).sound();
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("gate", &name, "master")).unwrap();
    let job = &graph.jobs[0];
    let seen: Vec<String> = (job.pre_run.iter().chain(&job.run).chain(&job.post_run))
        .map(|playbook| {
            let secrets = playbook
                .secrets
                .iter()
                .map(|(name, used)| format!("{name}={}", used.data["of"].as_str().unwrap()));
            format!("{} {}", playbook.path, secrets.collect::<Vec<_>>().join(","))
        })
        .collect();
    assert_eq!(
        seen,
        [
            "base-pre of-base=of-base",
            "top-pre word=of-top",
            "child-pre word=own",
            "child word=own",
            "child-post word=own",
            "top-post word=of-top",
            "base-post of-base=of-base",
        ]
    );
}

/// Z4.4: the first design's `auth` is not inherited unless permitted.
#[test]
fn auth_is_inherited_only_if_permitted() {
    let with = |inherit: &str| {
        let text = format!(
            "{BASE}{SECRET}- job: {{name: top, auth: {{{inherit}secrets: [key]}}, run: top}}\n- job: {{name: child, parent: top, run: child}}\n- project: {{name: org/project, check: {{jobs: [child]}}}}\n"
        );
        tenant().file("org/config", &text).build()
    };
    assert!(messages(&with(""))[0].contains("can not act as a parent"));
    let name = project("org/project");
    let graph =
        with("inherit: true, ").freeze(&FreezeInput::change("check", &name, "master")).unwrap();
    assert!(graph.jobs[0].run[0].secrets.contains_key("key"));
}

/// Z5.3: an untrusted job with a secret needs review; a pipeline may refuse secrets altogether.
#[test]
fn jobs_with_secrets_run_only_in_permitted_pipelines() {
    let own = format!(
        "{SECRET}- job: {{name: publish, run: r, secrets: key}}\n- project: {{check: {{jobs: [publish]}}, gate: {{jobs: [publish]}}, none: {{jobs: [publish]}}}}\n"
    );
    let config = format!(
        "{BASE}- pipeline: {{name: none, manager: independent, post-review: true, allow-secrets: false}}\n"
    );
    let layout = tenant().file("org/config", &config).file("org/project", &own).sound();
    assert!(refusals(&layout, "check", "org/project").contains("does not allow post-review job"));
    assert_eq!(refusals(&layout, "gate", "org/project"), "runs publish");
    assert!(refusals(&layout, "none", "org/project").contains("does not allow jobs with secrets"));
}

/// Z5.3, X06: a secret passed to parents requires review if a parent's playbook is in an untrusted
/// project, in a definition or a config project's list. With trusted playbooks it does not.
#[test]
fn a_secret_that_reaches_an_untrusted_parent_needs_review() {
    let passing = "[{name: key, secret: key, pass-to-parent: true}]";
    let lib = "- job: {name: lib, run: lib.yaml}\n";
    let with = |config: &str, own: &str| {
        tenant()
            .file("org/config", &format!("{BASE}{SECRET}{config}"))
            .file("org/project", own)
            .sound()
    };
    let list = "- project: {check: {jobs: [publish]}, gate: {jobs: [publish]}}\n";
    let publish = format!("- job: {{name: publish, parent: lib, secrets: {passing}}}\n");
    let layout = with(&publish, &format!("{lib}{list}"));
    assert!(
        refusals(&layout, "check", "org/project")
            .contains("does not allow post-review job publish")
    );
    assert_eq!(refusals(&layout, "gate", "org/project"), "runs publish");
    // The playbook is implied by the job's name.
    let layout = with(&publish, &format!("- job: {{name: lib}}\n{list}"));
    assert!(
        refusals(&layout, "check", "org/project")
            .contains("does not allow post-review job publish")
    );
    let entry = format!(
        "- project: {{name: org/project, check: {{jobs: [lib: {{secrets: {passing}}}]}}}}\n"
    );
    let layout = with(&entry, lib);
    assert!(
        refusals(&layout, "check", "org/project").contains("does not allow post-review job lib")
    );
    let trusted = with(&format!("{lib}{publish}"), list);
    assert_eq!(refusals(&trusted, "check", "org/project"), "runs publish");
}

/// Z4.4, Z5.3: a child that inherits credentials and adds an untrusted playbook needs review, in a
/// definition, by its name or in a list. A child without one does not.
#[test]
fn inherited_credentials_reach_untrusted_playbooks_only_after_review() {
    let config = format!(
        "{BASE}- pipeline: {{name: none, manager: independent, post-review: true, allow-secrets: false}}\n{SECRET}\
         - job: {{name: top, auth: {{inherit: true, secrets: [key]}}, run: top.yaml}}\n\
         - job: {{name: bare, auth: {{inherit: true, secrets: [key]}}, abstract: true, parent: nothing}}\n\
         - job: {{name: nothing, parent: null}}\n"
    );
    let with = |job: &str, entry: &str| {
        let lists: Vec<String> = ["check", "gate", "none"]
            .iter()
            .map(|pipeline| format!("{pipeline}: {{jobs: [{entry}]}}"))
            .collect();
        let own = format!("{job}- project: {{{}}}\n", lists.join(", "));
        tenant().file("org/config", &config).file("org/project", &own).sound()
    };
    let bringing = [
        ("- job: {name: child, parent: top, run: own.yaml}\n", "child"),
        ("- job: {name: child, parent: top, post-run: own.yaml}\n", "child"),
        ("- job: {name: child, parent: top, cleanup-run: own.yaml}\n", "child"),
        ("- job: {name: child, parent: bare}\n", "child"),
        ("", "top: {pre-run: own.yaml}"),
    ];
    for (job, entry) in bringing {
        let layout = with(job, entry);
        let name = entry.split(':').next().unwrap();
        let refused = refusals(&layout, "check", "org/project");
        assert!(
            refused.contains(&format!("does not allow post-review job {name}")),
            "{job}{entry}: {refused}"
        );
        assert_eq!(
            refusals(&layout, "gate", "org/project"),
            format!("runs {name}"),
            "{job}{entry}"
        );
        assert!(
            refusals(&layout, "none", "org/project").contains("does not allow jobs with secrets"),
            "{job}{entry}"
        );
    }
    let layout = with("- job: {name: child, parent: top, timeout: 10}\n", "child");
    assert_eq!(refusals(&layout, "check", "org/project"), "runs child");
}

/// X05: a secret of one branch is available on all branches of its project.
#[test]
fn a_secret_is_available_on_all_branches_of_its_project() {
    let stable =
        "- job: {name: publish, run: r, secrets: key}\n- project: {gate: {jobs: [publish]}}\n";
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", SECRET)
        .at("org/project", "stable", ".zuul.yaml", stable)
        .sound();
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("gate", &name, "stable")).unwrap();
    assert!(graph.jobs[0].run[0].secrets.contains_key("key"));
}

/// X06, Z5.3: only allowed projects may list a job; a config project may list it for any project.
#[test]
fn allowed_projects_are_enforced() {
    let job = "- job: {name: own, run: r, allowed-projects: [org/project]}\n";
    let list = "- project: {check: {jobs: [own]}}\n";
    let with = |config: &str| {
        let layout = tenant().file("org/config", &format!("{BASE}{job}{config}"));
        layout.file("org/project", list).file("org/project1", list).sound()
    };
    let layout = with("");
    assert_eq!(refusals(&layout, "check", "org/project"), "runs own");
    assert_eq!(
        refusals(&layout, "check", "org/project1"),
        "Project org/project1 is not allowed to run job own"
    );
    let layout = with("- project: {name: ^org/project.*, check: {jobs: [own]}}\n");
    for name in ["org/project", "org/project1", "org/project2"] {
        assert_eq!(refusals(&layout, "check", name), "runs own", "{name}");
    }
    let canonical = job.replace("[org", "[github.com/org");
    let layout = tenant()
        .file("org/config", &format!("{BASE}{canonical}"))
        .file("org/project", list)
        .sound();
    assert_eq!(refusals(&layout, "check", "org/project"), "runs own");
    let without_permission = tenant()
        .file("org/config", &format!("{BASE}- job: {{name: own, run: r, allowed-projects: []}}\n"));
    assert_eq!(
        refusals(&without_permission.file("org/project", list).sound(), "check", "org/project"),
        "runs own"
    );
    let narrower = list.replace("own", "own: {allowed-projects: [org/project1]}");
    let layout =
        tenant().file("org/config", &format!("{BASE}{job}")).file("org/project", &narrower).sound();
    assert_eq!(
        refusals(&layout, "check", "org/project"),
        "Project org/project is not allowed to run job own"
    );
}

/// Z5.3, X06: a job with a secret in an untrusted project is restricted to that project. Review is
/// needed even if a config project lists it elsewhere.
#[test]
fn a_secret_restricts_its_job_to_its_own_project() {
    let lists = "check: {jobs: [publish]}, gate: {jobs: [publish]}";
    for allowed in [
        "",
        ", allowed-projects: [org/project1]",
        ", allowed-projects: [org/project, org/project1], post-review: true",
    ] {
        let own = format!(
            "{SECRET}- job: {{name: publish, run: r, secrets: key{allowed}}}\n- project: {{{lists}}}\n"
        );
        let config = format!("{BASE}- project: {{name: org/project2, {lists}}}\n");
        let tenant = tenant().file("org/config", &config).file("org/project", &own);
        let layout = tenant.file("org/project1", &format!("- project: {{{lists}}}\n")).sound();
        for name in ["org/project", "org/project2"] {
            assert_eq!(refusals(&layout, "gate", name), "runs publish", "{name}{allowed}");
            let refused = refusals(&layout, "check", name);
            let start = "Pre-review pipeline check does not allow post-review job publish: it uses \
                         the secret \"key\" of org/project in a playbook that changes can alter";
            assert!(refused.starts_with(start), "{name}{allowed}: {refused}");
            assert!(refused.contains("List it in a pipeline with"), "{refused}");
        }
        let refused = refusals(&layout, "gate", "org/project1");
        assert_eq!(refused, "Project org/project1 is not allowed to run job publish", "{allowed}");
    }
}

/// Z4.3: `post-review` cannot be removed once set; the attempt is reported.
#[test]
fn post_review_cannot_be_removed() {
    let config = format!("{BASE}- job: {{name: lib, run: r, post-review: true}}\n");
    let own =
        "- job: {name: own, parent: lib, post-review: false}\n- project: {check: {jobs: [own]}}\n";
    let layout = tenant().file("org/config", &config).file("org/project", own).build();
    one_diagnostic(&layout, "the post-review attribute may not be unset");
    assert_eq!(layout.errors()[0].diagnostic.severity, sluice_config::Severity::Warning);
    assert!(
        refusals(&layout, "check", "org/project").contains("does not allow post-review job own")
    );
}

/// X08, X09
#[test]
fn another_projects_job_is_shadowed_only_if_the_tenant_permits_it() {
    let files = |tenant: Tenant| {
        tenant
            .file("org/config", BASE)
            .file(
                "org/project",
                "- job: {name: test, run: first}\n- project: {check: {jobs: [test]}}",
            )
            .file("org/project1", "- job: {name: test, run: second}")
    };
    let layout = files(tenant()).build();
    one_diagnostic(&layout, "is not permitted to shadow job test");
    let shadowing = tenant_of(
        "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project, org/project1: {shadow: org/project}]\n",
    );
    let layout = files(shadowing).sound();
    let name = project("org/project");
    assert_eq!(
        layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap().jobs[0].run[0].path,
        "first"
    );
}

/// X10, X11, X12
#[test]
fn untrusted_projects_lack_the_privileged_features() {
    let with = |text: &str| tenant().file("org/config", BASE).file("org/project", text).build();
    one_diagnostic(
        &with("- job: {name: mine, parent: null, run: r}"),
        "Base jobs may only be defined",
    );
    one_diagnostic(
        &with("- pipeline: {name: mine, manager: independent}"),
        "Pipelines may only be defined in config projects",
    );
    one_diagnostic(
        &with("- project: {name: org/project1, check: {jobs: [noop]}}"),
        "only a stanza for the project itself is permitted",
    );
    one_diagnostic(
        &with("- project: {name: ^.*, check: {jobs: [noop]}}"),
        "only a stanza for the project itself is permitted",
    );
    assert!(
        messages(&with("- project: {name: github.com/org/project, check: {jobs: [noop]}}"))
            .is_empty()
    );
}

/// Z4.8: only config projects can grant storage credentials, in definitions, variants and entries.
#[test]
fn untrusted_projects_cannot_request_storage_credentials() {
    let asking = "auth: {swift: [{container: logs}]}";
    let forms = [
        format!("- job: {{name: own, run: r, {asking}}}"),
        format!("- project: {{check: {{jobs: [noop, lib: {{{asking}}}]}}}}"),
        format!("- project-template: {{name: all, check: {{jobs: [lib: {{{asking}}}]}}}}"),
    ];
    for text in forms {
        let config = format!("{BASE}- job: {{name: lib, run: r}}\n");
        let layout = tenant().file("org/config", &config).file("org/project", &text).build();
        assert_eq!(
            messages(&layout),
            ["Swift credentials may only be requested in config projects"],
            "{text}"
        );
        // A config project may request them.
        let text = text.replace("- project: {", "- project: {name: org/project, ");
        tenant().file("org/config", &format!("{config}{text}\n")).sound();
    }
}

/// C02, C08, C09, C10, C11: missing names are reported with their line.
#[test]
fn missing_names_are_reported_with_their_line() {
    let with = |text: &str| {
        tenant()
            .file("org/config", &format!("{BASE}- job: {{name: last, final: true}}\n"))
            .file("org/project", text)
            .build()
    };
    let layout = with("- project:\n    check:\n      jobs:\n        - bese\n");
    one_diagnostic(&layout, "Job bese not defined");
    let error = &layout.errors()[0];
    assert_eq!(
        (error.diagnostic.start.line(), error.diagnostic.suggestion.as_deref()),
        (4, Some("base"))
    );
    one_diagnostic(&with("- job: {name: a, secrets: nope}"), "secret \"nope\" was not found");
    one_diagnostic(&with("- job: {name: a, nodeset: nope}"), "nodeset \"nope\" was not found");
    one_diagnostic(
        &with("- job: {name: a, required-projects: org/nope}"),
        "The project \"org/nope\" was not found",
    );
    one_diagnostic(&with("- job: {name: a, parent: last}"), "is final and can not act as a parent");
    one_diagnostic(&with("- job: {name: a, parent: nope}"), "Job nope not defined");
    one_diagnostic(&with("- project: {templates: [nope]}"), "template \"nope\" was not found");
    one_diagnostic(&with("- project: {chekc: {jobs: []}}"), "pipeline \"chekc\" was not found");
}

/// C02, N16: dependencies must exist, even soft ones and those in a list, and so must semaphores of
/// jobs and playbooks.
#[test]
fn dependencies_and_semaphores_of_a_job_are_resolved_at_load() {
    let with = |text: &str| {
        let config = format!("{BASE}- job: {{name: unit, run: r}}\n");
        tenant().file("org/config", &config).file("org/project", text).build()
    };
    one_diagnostic(
        &with("- job: {name: a, run: r, dependencies: [unti]}"),
        "Job unti not defined (did you mean \"unit\"?)",
    );
    one_diagnostic(
        &with("- job: {name: a, run: r, dependencies: [{name: nosuch, soft: true}]}"),
        "Job nosuch not defined",
    );
    let layout = with(
        "- project:\n    check:\n      jobs:\n        - unit:\n            dependencies:\n              - nosuch\n",
    );
    one_diagnostic(&layout, "Job nosuch not defined");
    assert_eq!(layout.errors()[0].diagnostic.start.line(), 6);
    // An unknown listed job is reported once, not again for its nested jobs.
    one_diagnostic(
        &with("- project: {check: {jobs: [nosuch: {jobs: [unit]}]}}"),
        "Job nosuch not defined",
    );
    for fine in [
        "- job: {name: a, run: r, dependencies: [noop, b]}\n- job: {name: b, run: r}",
        "- job: {name: a, run: [{name: r, semaphores: [two]}], semaphores: [one]}",
    ] {
        assert_eq!(messages(&with(fine)), Vec::<String>::new(), "{fine}");
    }
    let twice = "Semaphore one is used by both job a and one of its playbooks";
    one_diagnostic(
        &with("- job: {name: a, run: [{name: r, semaphores: [one, two]}], semaphores: [one]}"),
        twice,
    );
    let inherited = "- job: {name: top, run: [{name: r, semaphores: [one]}]}\n- job: {name: a, parent: top, semaphores: [one]}\n- project: {check: {jobs: [a]}}\n";
    assert!(refusals(&with(inherited), "check", "org/project").contains(twice));
}

/// L1.1, L3.3: a job that builds an undefined image is reported and not run; it may be added
/// together with its image.
#[test]
fn a_job_builds_only_defined_images() {
    let image = "- image: {name: debian, type: zuul}\n";
    let list = "- job: {name: build, run: r, image-build-name: debian}\n- project: {check: {jobs: [build]}}\n";
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{org/project: {include-provider-config: true}}]\n";
    let tenant = tenant_of(main).file("org/config", BASE).file("org/project", list);
    let before = tenant.build();
    assert_eq!(messages(&before), ["The image \"debian\" was not found."]);
    let diagnostics = "Job build builds the image \"debian\", which was not found";
    assert_eq!(refusals(&before, "check", "org/project"), diagnostics);
    let proposed = tenant.proposal("org/project", "master", &format!("{image}{list}"));
    let with_image = before.overlay(&[proposed], Scope::UntrustedOnly);
    assert_eq!(
        (messages(&with_image).len(), refusals(&with_image, "check", "org/project")),
        (0, "runs build".to_owned())
    );
    let merged = tenant_of(main)
        .file("org/config", BASE)
        .file("org/project", &format!("{image}{list}"))
        .sound();
    assert_eq!(refusals(&merged, "check", "org/project"), "runs build");
}

/// C05, C07: invalid attributes and YAML are syntax errors, all reported at once; the rest of the
/// file still loads.
#[test]
fn invalid_attributes_are_syntax_errors_reported_at_once() {
    let with = |text: &str| tenant().file("org/config", BASE).file("org/project", text).build();
    let layout = with(
        "- job: {name: a, vottng: true, timeout: soon, attempts: 0}\n- job: {name: fine, run: r}\n- jobb: {name: b}\n",
    );
    let found = messages(&layout);
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found.iter().all(|text| text.starts_with("syntax error")));
    assert!(found.iter().any(|text| text.contains("did you mean \"voting\"?")), "{found:#?}");
    assert!(
        layout.job_names().any(|name| name == "fine")
            && !layout.job_names().any(|name| name == "a")
    );
    one_diagnostic(&with("- job: [\n"), "syntax error");
    one_diagnostic(&with("- job: {name: a, branches: ^(?!stable)}"), "look-around");
}

/// C16, C17: an invalid repository does not break the tenant, and its repair is tested.
#[test]
fn a_broken_repository_can_be_repaired() {
    let tenant = tenant()
        .file("org/config", BASE)
        .file("org/project", "- job: [\n")
        .file("org/project1", "- project: {check: {jobs: [noop]}}");
    let layout = tenant.build();
    assert_eq!(layout.errors().len(), 1);
    assert_eq!(refusals(&layout, "check", "org/project1"), "runs noop");
    let overlay = layout.overlay(
        &[tenant.proposal("org/project", "master", "- project: {check: {jobs: [noop]}}")],
        Scope::UntrustedOnly,
    );
    assert!(overlay.errors().is_empty() && overlay.errors_since(&layout).is_empty());
    assert_eq!(refusals(&overlay, "check", "org/project"), "runs noop");
}

/// Z6.6: existing errors are not reported for a change.
#[test]
fn only_new_errors_are_reported_for_a_change() {
    let tenant =
        tenant().file("org/config", BASE).file("org/project", "- job: {name: a, nodeset: nope}\n");
    let layout = tenant.build();
    let moved = tenant.proposal(
        "org/project",
        "master",
        "# moved\n- job: {name: a, nodeset: nope}\n- job: {name: b, secrets: nope}\n",
    );
    let fresh = layout.overlay(&[moved], Scope::UntrustedOnly).errors_since(&layout);
    assert_eq!(fresh.len(), 1, "{fresh:#?}");
    assert!(
        fresh[0].diagnostic.message.contains("secret") && fresh[0].diagnostic.start.line() == 3
    );
}

/// L3.3: nodesets and provider objects are defined once; an identical definition in another branch
/// is allowed.
#[test]
fn singletons_are_defined_once() {
    let one = "- nodeset: {name: n, nodes: [{name: a, label: x}]}\n";
    let other = "- nodeset: {name: n, nodes: [{name: a, label: y}]}\n";
    let with = |stable: &str, elsewhere: &str| {
        tenant()
            .file("org/config", BASE)
            .file("org/project", one)
            .at("org/project", "stable", ".zuul.yaml", stable)
            .file("org/project1", elsewhere)
            .build()
    };
    assert!(messages(&with(one, "")).is_empty());
    one_diagnostic(&with(other, ""), "does not match its definition in branch master");
    one_diagnostic(&with(one, one), "is already defined in project");
}

/// L3.7: a label without a flavor loads with a warning.
#[test]
fn an_incomplete_label_is_a_warning() {
    let text = format!(
        "{BASE}- image: {{name: i, type: zuul}}\n- label: {{name: i}}\n- section: {{name: s, connection: ec2}}\n- provider: {{name: p, section: s, labels: [i]}}\n"
    );
    let layout = tenant().file("org/config", &text).build();
    assert_eq!(
        layout.errors().iter().map(|error| error.diagnostic.severity).collect::<Vec<_>>(),
        [Severity::Warning]
    );
    assert!(layout.providers()[0].labels[0].image_is_built);
}

/// L3.10: static nodes define their labels.
#[test]
fn static_nodes_define_their_labels() {
    let text = format!(
        "{BASE}- label: {{name: big}}\n- section: {{name: s, connection: null, nodes: [{{name: a.example.com, labels: [big], host-key: ssh-ed25519 AAAA, username: me}}]}}\n- provider: {{name: p, section: s, include-all-node-labels: true}}\n"
    );
    let layout = tenant().file("org/config", &text).sound();
    let provider = &layout.providers()[0];
    assert_eq!(
        (
            provider.connection.clone(),
            provider.nodes[0].username.as_str(),
            provider.labels[0].name.as_str()
        ),
        (None, "me", "big")
    );
}

/// Z5.1: an undecipherable value is reported at its place when it is read, not when the job fails.
#[test]
fn an_encrypted_value_is_base64() {
    let with = |value: &str| {
        let text = format!(
            "- secret:\n    name: key\n    data:\n      plain: as it is\n      deep: {{a: [{value}]}}\n"
        );
        tenant().file("org/config", &text).build()
    };
    for sound in [
        "!encrypted/pkcs1-oaep YWJj",
        "!encrypted/pkcs1-oaep [YWI=, 'YW Jj']",
        "!encrypted/pkcs1 YQ==",
    ] {
        assert_eq!(with(sound).errors(), [], "{sound}");
    }
    for wrong in ["hunter2", "YWJ", "YW=j", "'===='", "[]", "[YWJj, 7]", "{a: YWJj}"] {
        let layout = with(&format!("!encrypted/pkcs1-oaep {wrong}"));
        one_diagnostic(&layout, "an encrypted value must be base64");
        assert_eq!(layout.errors()[0].diagnostic.start.line(), 5, "{wrong}");
    }
}

/// Z6.1: a pipeline with a reporter for an unknown connection keeps its other reporters; the error
/// is reported at its place.
#[test]
fn a_reporter_with_an_unknown_connection_does_not_disable_the_pipeline() {
    let text = "- pipeline:
    name: p
    manager: independent
    success:
      github: {comment: true}
      smpt: {to: a@example.org}
    failure:
      smpt: {to: a@example.org}
";
    let layout = tenant().file("org/config", text).build();
    let diagnostics: Vec<(&str, u32, Option<&str>)> = layout
        .errors()
        .iter()
        .map(|error| {
            (
                error.diagnostic.message.as_str(),
                error.diagnostic.start.line(),
                error.diagnostic.attribute.as_deref(),
            )
        })
        .collect();
    let message = "Unknown connection named \"smpt\"";
    assert_eq!(diagnostics, [(message, 6, Some("success")), (message, 8, Some("failure"))]);
    let pipeline = layout.pipeline("p").unwrap();
    let connections: Vec<&str> =
        pipeline.reporters.all().map(|reporter| reporter.connection.as_str()).collect();
    assert_eq!(connections, ["github"]);
    // An unknown connection of a requirement does disable it.
    let required = text.replace("success:", "require:").replace("{comment: true}", "{open: true}");
    assert!(tenant().file("org/config", &required).build().pipeline("p").is_none());
}

/// Z6.1: the key of a trigger is a connection; an unknown one is reported.
#[test]
fn an_unknown_connection_of_a_trigger_is_reported() {
    let layout = tenant()
        .file(
            "org/config",
            "- pipeline: {name: p, manager: independent, trigger: {githbu: [{event: push}]}}",
        )
        .build();
    one_diagnostic(&layout, "Unknown connection named \"githbu\" (did you mean \"github\"?)");
}

/// R01: a definition that moved within its file freezes to the same job, so its builds continue.
#[test]
fn a_moved_definition_is_the_same_job() {
    let text = "- job: {name: test, run: r}\n- project: {check: {jobs: [test]}}\n";
    let hash = |text: &str| {
        let layout = tenant().file("org/config", BASE).file("org/project", text).sound();
        let name = project("org/project");
        layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap().jobs[0].hash()
    };
    assert_eq!(hash(text), hash(&format!("# a comment\n\n{text}")));
}

/// Z7.1, Z7.5: with one of these variables a change could make the executor run its own file with a
/// trusted playbook's rights.
#[test]
fn variables_that_redirect_a_playbook_are_refused() {
    for name in [
        "zuul",
        "nodepool",
        "zuul_user_dir",
        "ansible_connection",
        "ansible_host",
        "ansible_python_interpreter",
        "ansible_shell_executable",
        "ansible_user",
    ] {
        for attribute in ["vars", "extra-vars", "host-vars", "group-vars"] {
            let values = match attribute {
                "vars" | "extra-vars" => format!("{{{name}: x}}"),
                _ => format!("{{node: {{{name}: x}}}}"),
            };
            let text = format!("- job: {{name: own, parent: base, {attribute}: {values}}}");
            let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
            one_diagnostic(&layout, name);
            one_diagnostic(&layout, "are not allowed in");
        }
    }
    // Variables that affect only the job's own node are permitted, as in Zuul.
    let text = "- job: {name: own, parent: base, vars: {ansible_become: true, zuul_work_dir: x}}";
    tenant().file("org/config", BASE).file("org/project", text).sound();
}

/// Z7.5: extra variables would override what Ansible says of hosts and roles, by which a trusted
/// playbook names the files that it writes.
#[test]
fn extra_variables_do_not_replace_what_ansible_says_of_hosts() {
    for name in ["inventory_hostname", "group_names", "inventory_dir", "hostvars", "role_path"] {
        let text = format!("- job: {{name: own, parent: base, extra-vars: {{{name}: x}}}}");
        let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
        one_diagnostic(&layout, "Ansible sets this variable itself");
    }
    // As ordinary variables they have no effect beside Ansible's own.
    let text = "- job: {name: own, parent: base, vars: {role_name: x}}";
    tenant().file("org/config", BASE).file("org/project", text).sound();
}

/// Z7.5: playbooks keep what they fetch from a host in a directory of its name.
#[test]
fn names_of_nodes_lead_out_of_no_directory() {
    for name in ["..", "../../.ansible", "/etc", "a/../../b", "a//b"] {
        let text = format!("- nodeset: {{name: own, nodes: [{{name: {name}, label: small}}]}}");
        let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
        one_diagnostic(&layout, "is not a valid name for an Ansible host or group");
    }
    let text = "- nodeset: {name: own, nodes: [{name: rack/one.test, label: small}]}";
    tenant().file("org/config", BASE).file("org/project", text).sound();
}

/// Z7.5
#[test]
fn templates_are_refused_as_names_of_nodes_and_groups() {
    for nodes in [
        "nodes: [{name: \"{{ lookup('pipe', 'id') }}\", label: small}]",
        "nodes: [{name: one, label: small}], groups: [{name: \"{% x %}\", nodes: [one]}]",
    ] {
        let text = format!("- nodeset: {{name: own, {nodes}}}");
        let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
        one_diagnostic(&layout, "is not a valid name for an Ansible host or group");
    }
}

/// Z3.1, Z7.5: no node may get the executor's names, so that trusted tasks for the executor do not
/// run on it.
#[test]
fn names_of_the_executor_are_refused_for_nodes_and_groups() {
    let (nodes, groups) =
        ("Nodes named 'localhost' are not allowed.", "Groups named 'localhost' are not allowed.");
    for (stanza, diagnostics) in [
        ("nodeset: {name: own, nodes: [{name: localhost, label: small}]}", nodes),
        ("nodeset: {name: own, nodes: [{name: [one, localhost], label: small}]}", nodes),
        (
            "nodeset: {name: own, nodes: [{name: one, label: small}], groups: [{name: localhost, nodes: one}]}",
            groups,
        ),
        ("nodeset: {name: own, alternatives: [{nodes: [{name: localhost, label: small}]}]}", nodes),
        (
            "job: {name: own, parent: base, nodeset: {nodes: [{name: localhost, label: small}]}}",
            nodes,
        ),
        // Ansible treats these names as equal, and ignores a port.
        (
            "nodeset: {name: own, nodes: [{name: '127.0.0.1', label: small}]}",
            "Nodes named '127.0.0.1' are",
        ),
        ("nodeset: {name: own, nodes: [{name: '::1', label: small}]}", "Nodes named '::1' are"),
        (
            "nodeset: {name: own, nodes: [{name: 'localhost:22', label: small}]}",
            "Nodes named 'localhost:22' are",
        ),
    ] {
        one_diagnostic(
            &tenant()
                .file("org/config", BASE)
                .file("org/project", &format!("- {stanza}\n"))
                .build(),
            diagnostics,
        );
    }
    let text = "- nodeset: {name: own, nodes: [{name: one, label: small}], groups: [{name: g, nodes: [one, localhost]}]}\n";
    tenant().file("org/config", BASE).file("org/project", text).sound();
}
