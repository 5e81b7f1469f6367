//! Run-time attributes reach the frozen job, pipeline or layout, typed and combined by their rules.

use crate::common::*;
use sluice_config::fragment::parse;
use sluice_config::{FreezeInput, Layout, LayoutSources, SourceFile};
use sluice_model::job::{
    Fingerprint, FrozenJob, JobKind, OidcToken, RunTime, SecretExposure, Tristate, VarsSource,
    WorkspaceCheckout, WorkspaceScheme,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Freezes the job `test` of `org/project`, which the config project defines by `text`.
fn frozen(text: &str) -> FrozenJob {
    let list = "- project: {name: org/project, check: {jobs: [test]}}\n";
    let layout = tenant().file("org/config", &format!("{BASE}{text}{list}")).sound();
    frozen_by(&layout)
}

fn frozen_by(layout: &Layout) -> FrozenJob {
    let name = project("org/project");
    job(&layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap(), "test").clone()
}

/// Z4.3, Z4.7: each attribute reaches the job with a value other than its default.
#[test]
fn every_run_time_attribute_reaches_the_frozen_job() {
    let found = frozen(
        "
- job:
    name: test
    type: initializer
    failure-url: https://fail/{build.uuid}
    success-url: https://good/{build.uuid}
    hold-following-changes: true
    deduplicate: false
    failure-output: ^FATAL
    secret-exposure: redact
    include-projects: org/project1
    exclude-projects: [{type: name, name: org/project2}]
    include-vars: [vars/all.yaml, {name: own.yaml, zuul-project: true, required: false, use-ref: false}, {name: o.yaml, project: org/project2}]
    ansible-split-streams: true
    workspace-checkout: auto
    workspace-scheme: flat
    preserve-home-paths: [.cache]
    attempts: 5
    run: r
",
    );
    let RunTime { kind, failure_url, success_url, hold_following_changes, deduplicate, .. } =
        found.run_time.clone();
    assert_eq!(
        (kind, hold_following_changes, deduplicate),
        (JobKind::Initializer, true, Tristate::No)
    );
    assert_eq!(failure_url.as_deref(), Some("https://fail/{build.uuid}"));
    assert_eq!(success_url.as_deref(), Some("https://good/{build.uuid}"));
    let run_time = &found.run_time;
    assert_eq!(
        (run_time.failure_output.as_slice(), run_time.secret_exposure),
        (["^FATAL".to_owned()].as_slice(), SecretExposure::Redact)
    );
    assert_eq!(run_time.include_projects, Some(vec![project("org/project1")]));
    assert_eq!(run_time.exclude_projects, [project("org/project2")]);
    let files: Vec<(&str, bool, bool)> = run_time
        .include_vars
        .iter()
        .map(|file| (file.name.as_str(), file.required, file.use_ref))
        .collect();
    assert_eq!(
        files,
        [("vars/all.yaml", true, true), ("own.yaml", false, false), ("o.yaml", true, true)]
    );
    let sources: Vec<Option<&str>> = run_time
        .include_vars
        .iter()
        .map(|file| match &file.source {
            VarsSource::Project(found) => Some(found.project.name()),
            VarsSource::OfChange => None,
        })
        .collect();
    assert_eq!(sources, [Some("org/config"), None, Some("org/project2")]);
    assert_eq!(
        (run_time.ansible_split_streams, run_time.workspace_checkout),
        (Some(true), WorkspaceCheckout(Tristate::Auto))
    );
    assert_eq!((found.workspace_scheme, found.attempts), (WorkspaceScheme::Flat, 5));
    assert_eq!(found.run[0].preserve_home_paths, [".cache"]);
    assert!(
        found.pre_run[0].preserve_home_paths.is_empty(),
        "they are of the definition that lists them"
    );
}

/// Z4.3: the defaults are Zuul's.
#[test]
fn unset_attributes_have_zuuls_defaults() {
    let found = frozen("- job: {name: test, run: r}\n");
    assert_eq!(found.run_time, RunTime::default());
    assert_eq!(
        (found.attempts, found.voting, found.match_on_config_updates, found.timeout_seconds),
        (3, true, true, None)
    );
}

/// Z4.1: each run-time list extends or replaces its parent's by its own rule, and tags invert the
/// rule.
#[test]
fn run_time_lists_combine_by_their_own_rules() {
    let top = "- job: {name: top, run: r, failure-output: [a], include-vars: [a.yaml], exclude-projects: [org/project1]}\n";
    let child = frozen(&format!(
        "{top}- job: {{name: test, parent: top, failure-output: [b, a], include-vars: [b.yaml, a.yaml], exclude-projects: [org/project2]}}\n"
    ));
    assert_eq!(child.run_time.failure_output, ["a", "b"], "each once");
    assert_eq!(child.run_time.include_vars.len(), 2);
    assert_eq!(child.run_time.exclude_projects, [project("org/project1"), project("org/project2")]);
    let turned = frozen(&format!(
        "{top}- job: {{name: test, parent: top, failure-output: !override [b], include-vars: !override [b.yaml], exclude-projects: !override []}}\n"
    ));
    assert_eq!(turned.run_time.failure_output, ["b"]);
    assert_eq!(
        (turned.run_time.include_vars.len(), turned.run_time.exclude_projects.len()),
        (1, 0)
    );
}

/// Z5.5: a token secret is typed in the playbook and has no values. Without attributes it has the
/// system's defaults, and no lifetime beyond the tenant's limit. Another algorithm is an error.
#[test]
fn a_token_is_typed_in_the_frozen_job() {
    let secrets = "
- secret: {name: usual, oidc: null}
- secret:
    name: special
    oidc: {algorithm: RS256, ttl: 300, iss: 'https://issuer.example.com', claims: {aud: [a, b]}}
- job: {name: test, run: r, secrets: [usual, special]}
- project: {name: org/project, check: {jobs: [test]}}
";
    let tenant = tenant_of(
        "- tenant: {name: one, allowed-oidc-issuers: 'https://issuer.example.com', source: {github: {config-projects: [org/config], untrusted-projects: [org/project]}}}\n",
    );
    let layout = tenant.file("org/config", &format!("{BASE}{secrets}")).sound();
    let found = frozen_by(&layout).run[0].secrets.clone();
    let usual = |ttl| Some(OidcToken { ttl_seconds: Some(ttl), ..OidcToken::default() });
    assert_eq!(found["usual"].oidc, usual(10_800));
    let special = found["special"].oidc.clone().unwrap();
    assert_eq!((special.algorithm.as_deref(), special.ttl_seconds), (Some("RS256"), Some(300)));
    assert_eq!(special.issuer.as_deref(), Some("https://issuer.example.com"));
    assert_eq!(special.claims["aud"], serde_json::json!(["a", "b"]));
    assert!(found.values().all(|secret| secret.data == serde_json::json!({})));
    let strict = tenant_of(
        "- tenant: {name: one, max-oidc-ttl: 60, source: {github: {config-projects: [org/config], untrusted-projects: [org/project]}}}\n",
    );
    let job = "- secret: {name: usual, oidc: null}\n- job: {name: test, run: r, secrets: usual}\n- project: {name: org/project, check: {jobs: [test]}}\n";
    let layout = strict.file("org/config", &format!("{BASE}{job}")).sound();
    assert_eq!(frozen_by(&layout).run[0].secrets["usual"].oidc, usual(60));
    let other = "- secret: {name: s, oidc: {algorithm: ES256}}\n";
    let layout = crate::common::tenant().file("org/config", &format!("{BASE}{other}")).build();
    assert!(messages(&layout)[0].contains("only RS256 is supported"), "{:?}", messages(&layout));
    // With it, two projects could have the same subject, secret:TENANT/PROJECT/SECRET.
    let other = "- secret: {name: repo/s, oidc: null}\n";
    let layout = crate::common::tenant().file("org/config", &format!("{BASE}{other}")).build();
    assert!(messages(&layout)[0].contains("must not contain \"/\""), "{:?}", messages(&layout));
    let values = "- secret: {name: repo/s, data: {value: x}}\n";
    crate::common::tenant().file("org/config", &format!("{BASE}{values}")).sound();
}

/// Z8.1: a host replaces the nodes, and the form of its fingerprint is validated.
#[test]
fn a_host_replaces_the_nodes() {
    let found = frozen(
        "- job: {name: top, nodeset: {nodes: [{name: n, label: l}]}, run: r}\n- job: {name: test, parent: top, host: deploy.example.com, fingerprint: '4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b'}\n",
    );
    let host = found.run_time.host.unwrap();
    assert_eq!(host.name, "deploy.example.com");
    assert!(matches!(host.fingerprint, Fingerprint::Md5(_)));
    assert!(found.nodesets.iter().all(|set| set.nodes.is_empty()) && found.nodesets.len() == 1);
    let hash = "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8";
    let text =
        format!("- job: {{name: test, run: r, host: other.example.com, fingerprint: '{hash}'}}\n");
    let fingerprint = frozen(&text).run_time.host.unwrap().fingerprint;
    assert_eq!(fingerprint, Fingerprint::Sha256(hash["SHA256:".len()..].to_owned()));
    // A final job keeps its host.
    let text = "- job: {name: test, final: true, run: r}\n";
    let entry =
        format!("- project: {{check: {{jobs: [test: {{host: a, fingerprint: '{hash}'}}]}}}}\n");
    let layout =
        tenant().file("org/config", &format!("{BASE}{text}")).file("org/project", &entry).sound();
    assert!(refusals(&layout, "check", "org/project").contains("Unable to modify final job"));
    for (text, diagnostics) in [
        ("host: a", "a \"host\" requires the \"fingerprint\" of its key"),
        ("fingerprint: a", "a \"fingerprint\" requires a \"host\""),
        ("host: a, fingerprint: 'SHA256:abc'", "is not a valid fingerprint"),
        (
            "host: '-oProxyCommand=x', fingerprint: '4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b'",
            "\"-oProxyCommand=x\" is not a valid host: expected [user@]host[:port]",
        ),
        (
            "host: 'root@localhost', fingerprint: '4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b'",
            "is the executor itself",
        ),
    ] {
        let layout =
            tenant().file("org/config", &format!("{BASE}- job: {{name: test, {text}}}\n")).build();
        assert!(messages(&layout)[0].contains(diagnostics), "{:?}", messages(&layout));
    }
}

/// Z4.8: storage containers are frozen by name.
#[test]
fn storage_containers_are_frozen_by_name() {
    let found = frozen("- job: {name: test, run: r, auth: {swift: [{container: logs}]}}\n");
    assert_eq!(found.run[0].containers, ["logs"]);
}

/// Z4.4, Z4.8: storage credentials stay with their job unless its `auth` permits inheritance. A
/// child in any project then has them, and cannot request others.
#[test]
fn storage_credentials_are_inherited_only_if_permitted() {
    let with = |inherit: &str, own: &str| {
        let config = format!(
            "{BASE}- job: {{name: top, run: r, auth: {{{inherit}swift: [{{container: logs}}, {{container: images}}]}}}}\n"
        );
        let own = format!(
            "- job: {{name: test, parent: top{own}}}\n- project: {{check: {{jobs: [test]}}}}\n"
        );
        tenant().file("org/config", &config).file("org/project", &own).build()
    };
    let inherited = frozen_by(&with("inherit: true, ", ""));
    assert_eq!(inherited.run[0].containers, ["logs", "images"]);
    let own_playbook = frozen_by(&with("inherit: true, ", ", run: mine"));
    assert_eq!(own_playbook.run[0].project.name(), "org/project");
    assert_eq!(own_playbook.run[0].containers, ["logs", "images"]);
    assert!(messages(&with("", ""))[0].contains("can not act as a parent"));
    let diagnostics = messages(&with("inherit: true, ", ", auth: {swift: [{container: other}]}"));
    assert!(
        diagnostics[0].contains("Swift credentials may only be requested in config projects"),
        "{diagnostics:?}"
    );
    // Storage credentials are not secrets, so they require no review.
    assert!(!frozen_by(&with("inherit: true, ", "")).post_review);
}

/// Z2.5, Z4.8: files included by a tenant may request storage credentials, like config projects.
#[test]
fn included_files_may_request_storage_credentials() {
    let main = "- tenant: {name: one, include: [global.yaml], source: {github: {config-projects: [org/config], untrusted-projects: [org/project]}}}";
    let tenant = tenant_of(main).config;
    let text = format!(
        "{BASE}- job: {{name: test, run: r, auth: {{swift: [{{container: logs}}]}}}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
    );
    let source = tenant.included_source("global.yaml").unwrap();
    let fragments = vec![Arc::new(parse(&SourceFile { source, text }))];
    let layout = Layout::build(LayoutSources {
        tenant,
        connections: connections(),
        branches: BTreeMap::new(),
        fragments,
    });
    assert_eq!(messages(&layout), [""; 0]);
    assert_eq!(frozen_by(&layout).run[0].containers, ["logs"]);
}

/// Z4.8: the playbooks of the definition that requests credentials get them, and no other
/// definition's; a request without playbooks of its own is for those that the job has.
#[test]
fn storage_credentials_go_to_the_playbooks_of_the_definition_that_requests_them() {
    let with = |stanzas: &str| {
        let config = format!("{BASE}- job: {{name: lib, run: lib, pre-run: before}}\n{stanzas}\n");
        frozen_by(&tenant().file("org/config", &config).sound())
    };
    let of = |job: &FrozenJob| -> Vec<(String, Vec<String>)> {
        let all = job.pre_run.iter().chain(&job.run).chain(&job.post_run);
        all.map(|playbook| (playbook.path.clone(), playbook.containers.clone())).collect()
    };
    // The playbooks of `base`, around those of `lib`, around that of `test`.
    let expected = |before: &[&str], after: &[&str]| -> Vec<(String, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        [
            ("playbooks/pre.yaml", before),
            ("before", before),
            ("lib", before),
            ("after", after),
            ("playbooks/post.yaml", before),
        ]
        .map(|(path, names)| (path.to_owned(), owned(names)))
        .to_vec()
    };
    let listed =
        |extra: &str| format!("- project: {{name: org/project, check: {{jobs: [test{extra}]}}}}");
    let own = with(&format!(
        "- job: {{name: test, parent: lib, post-run: after, auth: {{swift: {{container: logs}}}}}}\n{}",
        listed("")
    ));
    assert_eq!(of(&own), expected(&[], &["logs"]));
    let entry = with(&format!(
        "- job: {{name: test, parent: lib, post-run: after}}\n{}",
        listed(": {auth: {swift: [{container: a}, {container: b}, {container: a}]}}")
    ));
    assert_eq!(of(&entry), expected(&["a", "b"], &["a", "b"]));
}

/// Z4.8: the name of a container is a part of keys and policies, so it is restricted.
#[test]
fn names_of_containers_are_checked() {
    let with = |list: &str| {
        let text = format!("{BASE}- job: {{name: test, run: r, auth: {{swift: {list}}}}}\n");
        messages(&tenant().file("org/config", &text).build())
    };
    for name in ["../other", "a/b", "'*'", "'a?'", "'..'", "''", "a..b"] {
        let found = with(&format!("[{{container: {name}}}]"));
        assert!(found[0].contains("can not be the name of a container"), "{name}: {found:?}");
    }
    let many: Vec<String> = (0..17).map(|number| format!("{{container: c{number}}}")).collect();
    assert!(with(&format!("[{}]", many.join(", ")))[0].contains("at most 16 containers"));
    assert_eq!(with(&format!("[{}]", many[..16].join(", "))), [""; 0]);
}

/// J07: run-time attributes of a final job cannot be changed.
#[test]
fn a_final_job_takes_no_run_time_attribute() {
    for attribute in [
        "secret-exposure: fail",
        "workspace-checkout: false",
        "include-vars: a.yaml",
        "failure-output: a",
    ] {
        let layout = tenant()
            .file("org/config", &format!("{BASE}- job: {{name: test, final: true, run: r}}\n"))
            .file(
                "org/project",
                &format!("- project: {{check: {{jobs: [test: {{{attribute}}}]}}}}"),
            )
            .sound();
        let name = project("org/project");
        let errors = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err();
        assert!(errors[0].short_text().contains("Unable to modify final job"), "{attribute}");
    }
}

/// Z4.1: attribute-control makes single attributes final for children and for entries.
#[test]
fn attribute_control_makes_attributes_final() {
    let refused = |control: &str, entry: &str| {
        let top = format!(
            "- job: {{name: test, run: r, attribute-control: {{{control}: {{final: true}}}}}}\n"
        );
        let layout = tenant()
            .file("org/config", &format!("{BASE}{top}"))
            .file("org/project", &format!("- project: {{check: {{jobs: [test: {{{entry}}}]}}}}"))
            .sound();
        let name = project("org/project");
        layout
            .freeze(&FreezeInput::change("check", &name, "master"))
            .err()
            .map(|errors| errors[0].short_text())
    };
    for (control, entry) in [
        ("vars", "vars: {a: 1}"),
        ("failure-output", "failure-output: a"),
        ("type", "type: initializer"),
        ("voting", "voting: false"),
        ("run", "run: other"),
        ("include-vars", "include-vars: a.yaml"),
    ] {
        let diagnostics = refused(control, entry).unwrap_or_default();
        assert!(diagnostics.contains(&format!("attribute {control}")), "{control}: {diagnostics}");
        assert_eq!(refused(control, "tags: [a]"), None, "{control}");
    }
}

/// L3.1: driver settings of machines reach the provider's label.
#[test]
fn a_clouds_settings_reach_the_label() {
    let text = "
- image: {name: i, type: cloud}
- flavor: {name: f}
- label: {name: l, image: i, flavor: f, max-nodes: 4, aliases: [other], executor-zone: west}
- section:
    name: s
    connection: ec2
    region: us-east-1
    az: [a, b]
    iam-instance-profile: {name: profile}
    flavors: [{name: f, fleet: {instance-types: [t3.small, t3.large], allocation-strategy: lowest-price}, market-type: spot, public-ipv4: true}]
    images: [{name: i, image-filters: [{name: name, values: [debian-*]}], imds-support: v2.0}]
- provider: {name: p, section: s, labels: [{name: l, az: b, slots: 2, iops: 3000, volume-type: gp3, imds-http-tokens: required}]}
";
    let layout = tenant().file("org/config", text).sound();
    let label = &layout.providers()[0].labels[0];
    assert_eq!(
        (label.max_nodes, label.slots, label.executor_zone.as_deref()),
        (Some(4), 2, Some("west"))
    );
    let zone = |labels: [&str; 2]| layout.providers()[0].executor_zone(labels);
    assert_eq!(zone(["other", "l"]), Some("west".into()), "the first label that has a zone");
    assert_eq!(zone(["other", "none"]), None);
    let cloud = &label.cloud;
    assert_eq!(cloud.fleet.as_ref().unwrap().instance_types, ["t3.small", "t3.large"]);
    assert_eq!(
        (cloud.market_type.as_deref(), cloud.public_ipv4, cloud.iops),
        (Some("spot"), Some(true), Some(3000))
    );
    assert_eq!(
        (cloud.iam_instance_profile.as_deref(), cloud.imds_support.as_deref()),
        (Some("profile"), Some("v2.0"))
    );
    assert_eq!(
        (cloud.image_filters[0].values[0].as_str(), cloud.volume_type.as_deref()),
        ("debian-*", Some("gp3"))
    );
}

/// L3.2: a final attribute cannot be set again below, and defaults do not affect it.
/// `allow-override` only excludes defaults.
#[test]
fn a_final_flavor_cannot_be_set_again() {
    let with = |word: &str, provider: &str| {
        let text = format!(
            "
- image: {{name: i, type: cloud}}
- flavor: {{name: f}}
- label: {{name: l, image: i, flavor: f}}
- section: {{name: s, connection: ec2, flavors: [{{name: f, instance-type: small, volume-size: 10, final: {word}}}]}}
- provider: {{name: p, section: s, labels: [l], flavor-defaults: {{volume-size: 20}}{provider}}}
"
        );
        let layout = tenant().file("org/config", &text).build();
        let label = layout.providers()[0].labels[0].clone();
        (label.volume_size_gib, label.instance_type, messages(&layout).join("\n"))
    };
    let again = ", flavors: [{name: f, instance-type: large}]";
    assert_eq!(with("false", again), (Some(20), Some("large".to_owned()), String::new()));
    assert_eq!(with("allow-override", again), (Some(10), Some("large".to_owned()), String::new()));
    let (size, kind, diagnostics) = with("true", again);
    assert_eq!((size, kind.as_deref()), (Some(10), Some("small")));
    assert!(diagnostics.contains("The flavor \"f\" is final"), "{diagnostics}");
}
