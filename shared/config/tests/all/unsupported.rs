//! Attributes that are accepted but not supported are reported.

use crate::common::{BASE, tenant, tenant_of};
use sluice_config::layout::{LabelOffer, Scope};
use sluice_config::{Severity, parse_main};

fn warnings(text: &str) -> Vec<String> {
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let unserved = layout.ignored_attributes();
    assert!(unserved.iter().all(|warning| warning.diagnostic.severity == Severity::Warning));
    assert!(
        unserved.iter().all(|warning| warning.diagnostic.start.line() > 0),
        "each has its place"
    );
    unserved
        .iter()
        .map(|warning| format!("{}: {}", warning.diagnostic.stanza, warning.diagnostic.message))
        .collect()
}

/// Z6.6: supported configuration yields no warnings.
#[test]
fn supported_configuration_yields_no_warnings() {
    let text = "- label: {name: big}\n- section: {name: s, connection: null, nodes: [{name: a.example.com, labels: [big]}]}\n- provider: {name: p, section: s, include-all-node-labels: true}\n- job: {name: unit, run: r, nodeset: {nodes: [{name: n, label: big}]}}\n";
    assert_eq!(warnings(text), Vec::<String>::new());
}

/// Z6.6: a pipeline whose triggers never fire is reported.
#[test]
fn triggers_that_never_fire_are_reported() {
    let text = "
- pipeline: {name: periodic, manager: independent, trigger: {timer: [{time: '0 0 * * *'}]}}
- pipeline: {name: images, manager: independent, trigger: {zuul: [{event: image-build}]}}
- pipeline: {name: validated, manager: independent, trigger: {zuul: [{event: [image-validate, image-delete]}]}}
- pipeline: {name: merged, manager: independent, trigger: {zuul: [{event: project-change-merged}]}}
- pipeline: {name: post, manager: supercedent, trigger: {github: [{event: push}]}}
- pipeline: {name: urgent, manager: independent, supersedes: [periodic, images, merged, post, asked, MORE], trigger: {github: [{event: push}]}}
- pipeline: {name: asked, manager: independent, trigger: {github: [{event: pull_request, action: comment, permission: write}]}}
- secret: {name: token, oidc: null}
- secret: {name: password, data: {a: b}}
";
    let more = ["validated"; 28].join(", ");
    assert_eq!(
        warnings(&text.replace("MORE", &more)),
        [
            "pipeline images: missing images are not built automatically yet: only `sluice image build` sends the event image-build to pipeline images",
            "pipeline urgent: at most 32 superseded pipelines are supported: the others keep changes that enter this pipeline",
            "pipeline validated: the event image-delete is not sent yet: this trigger never starts pipeline validated",
            "pipeline validated: the event image-validate is not sent yet: this trigger never starts pipeline validated",
        ]
    );
}

/// Z6.1, Z6.6: `debug` of a trigger is supported, so it yields no warning.
#[test]
fn debug_of_a_trigger_yields_no_warning() {
    for trigger in [
        "github: [{event: push, debug: true}, {event: pull_request, debug: true}]",
        "timer: [{time: '0 0 * * *', debug: true}]",
    ] {
        let pipeline =
            format!("- pipeline: {{name: asked, manager: independent, trigger: {{{trigger}}}}}\n");
        assert_eq!(warnings(&pipeline), Vec::<String>::new(), "{trigger}");
    }
}

/// Z6.6: labels that no provider offers, in named nodesets and in a job's own.
#[test]
fn a_label_that_no_provider_offers_is_reported() {
    let text = "
- nodeset: {name: pair, nodes: [{name: a, label: jammy}, {name: b, label: jammy}]}
- job: {name: unit, run: r, nodeset: {nodes: [{name: n, label: focal}]}}
- job: {name: both, run: r, nodeset: pair}
";
    assert_eq!(
        warnings(text),
        [
            "job unit: no provider of the tenant offers label focal: jobs that need it end with NODE_FAILURE",
            "nodeset pair: no provider of the tenant offers label jammy: jobs that need it end with NODE_FAILURE",
        ]
    );
}

/// L2.4: labels that only several providers offer together are reported, unless an alternative is
/// at one provider.
#[test]
fn labels_at_several_providers_are_reported() {
    let text = "
- label: {name: big}
- label: {name: odd}
- label: {name: small}
- section: {name: one, connection: null, nodes: [{name: a.example.com, labels: [big, small]}]}
- section: {name: two, connection: null, nodes: [{name: b.example.com, labels: [small, odd]}]}
- provider: {name: first, section: one}
- provider: {name: second, section: two}
- nodeset: {name: split, nodes: [{name: a, label: odd}, {name: b, label: big}, {name: c, label: small}]}
- nodeset: {name: either, alternatives: [split, {nodes: [{name: n, label: small}]}]}
- nodeset: {name: none, alternatives: [split, {nodes: [{name: n, label: focal}]}]}
- nodeset: {name: together, nodes: [{name: a, label: small}, {name: b, label: big}]}
- job: {name: unit, run: r, nodeset: {nodes: [{name: a, label: odd}, {name: b, label: big}]}}
";
    let split = "no provider of the tenant offers all of big, odd, small (big at first, odd at second, small at first and second), and all nodes of a job come from one provider: add the labels to one provider; jobs with these nodes end with NODE_FAILURE";
    assert_eq!(
        warnings(text),
        [
            "job unit: no provider of the tenant offers all of big, odd (big at first, odd at second), and all nodes of a job come from one provider: add the labels to one provider; jobs with these nodes end with NODE_FAILURE".to_owned(),
            format!("nodeset none: {split}"),
            "nodeset none: no provider of the tenant offers label focal: jobs that need it end with NODE_FAILURE".to_owned(),
            format!("nodeset split: {split}"),
        ]
    );
}

/// Z1.10, Z6.6: a label that a provider of static nodes lists, and that none of its nodes has, is
/// reported. A nodeset with it is served by another provider that has it.
#[test]
fn a_listed_label_without_a_static_node_is_reported() {
    let text = "
- label: {name: big}
- label: {name: small}
- section: {name: one, connection: null, labels: [small], nodes: [{name: a.example.com, labels: [big]}]}
- provider: {name: first, section: one, labels: [big]}
- job: {name: unit, run: r, nodeset: {nodes: [{name: n, label: small}]}}
- job: {name: other, run: r, nodeset: {nodes: [{name: n, label: big}]}}
";
    assert_eq!(
        warnings(text),
        [
            "job unit: no provider of the tenant offers label small: jobs that need it end with NODE_FAILURE"
        ]
    );
    let second = "
- section: {name: two, connection: null, nodes: [{name: b.example.com, labels: [small]}]}
- provider: {name: second, section: two}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}{second}")).sound();
    let LabelOffer::Provider(provider) = layout.label_offers().offer(["small"]) else {
        panic!("a node has the label")
    };
    assert_eq!(provider.name.as_str(), "second");
    assert_eq!(layout.ignored_attributes(), []);
}

/// L2.4, C12: a proposed edit has the warnings about the nodesets that it adds, not those that its
/// files have already.
#[test]
fn a_proposed_edit_is_warned_of_labels_at_several_providers() {
    let text = "
- label: {name: big}
- label: {name: small}
- section: {name: one, connection: null, nodes: [{name: a.example.com, labels: [big]}]}
- section: {name: two, connection: null, nodes: [{name: b.example.com, labels: [small]}]}
- provider: {name: first, section: one, labels: [big]}
- provider: {name: second, section: two, labels: [small]}
";
    let nodes = "nodes: [{name: a, label: big}, {name: b, label: small}]";
    let old = format!("- nodeset: {{name: old, {nodes}}}\n");
    let source = tenant().file("org/config", &format!("{BASE}{text}")).file("org/project", &old);
    let layout = source.sound();
    assert!(layout.proposed_label_warnings().is_empty(), "nothing is proposed");
    let edit = format!(
        "{old}- nodeset: {{name: new, {nodes}}}\n- queue: {{name: t, allow-circular-dependencies: true, dependencies-by-topic: true}}\n"
    );
    let proposed =
        layout.overlay(&[source.proposal("org/project", "master", &edit)], Scope::UntrustedOnly);
    let found = proposed.proposed_label_warnings();
    let stanzas: Vec<&str> =
        found.iter().map(|warning| warning.diagnostic.stanza.as_str()).collect();
    assert_eq!(stanzas, ["nodeset new"], "{found:?}");
    assert!(found[0].diagnostic.message.contains("offers all of big, small"), "{found:?}");
}

/// N14: one available alternative is enough; if none is available, all missing labels are reported.
#[test]
fn alternatives_are_reported_only_if_none_is_available() {
    let provider = "
- label: {name: noble}
- section: {name: s, connection: null, nodes: [{name: a.example.com, labels: [noble]}]}
- provider: {name: p, section: s, include-all-node-labels: true}
";
    let sets = "
- nodeset: {name: old, nodes: [{name: n, label: focal}]}
- nodeset: {name: any, alternatives: [old, {nodes: [{name: n, label: noble}]}]}
- job: {name: unit, run: r, nodeset: any}
";
    let of_any = |text: &str| {
        warnings(text)
            .into_iter()
            .filter(|diagnostics| diagnostics.contains("nodeset any"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of_any(&format!("{provider}{sets}")), Vec::<String>::new());
    assert_eq!(
        of_any(sets),
        [
            "nodeset any: no provider of the tenant offers label focal: jobs that need it end with NODE_FAILURE",
            "nodeset any: no provider of the tenant offers label noble: jobs that need it end with NODE_FAILURE",
        ]
    );
}

/// Z4.3, Z8.1, L1.1: unsupported job attributes are reported at definitions and entries.
#[test]
fn unsupported_job_attributes_are_reported() {
    let text = "
- image: {name: disk, type: zuul}
- job:
    name: odd
    run: r
    image-build-name: disk
- job: {name: plain, run: r, ansible-version: 9}
- pipeline: {name: asked, manager: independent, allow-parameters: true, allow-other-connections: false}
";
    let diagnostics = warnings(text);
    let of = |words: &str| diagnostics.iter().filter(|line| line.contains(words)).count();
    assert_eq!(
        (
            of("job odd: "),
            of("job plain"),
            of("pipeline asked: "),
            of("image disk: images are not built yet")
        ),
        (1, 0, 1, 1),
        "{diagnostics:#?}"
    );
    assert_eq!(of("job odd: \"image-build-name\": "), 1, "{diagnostics:#?}");
    let entry = "- image: {name: disk, type: zuul}\n- job: {name: unit, run: r}\n- project: {name: org/project, check: {jobs: [unit: {image-build-name: disk}]}}\n";
    let found = warnings(entry);
    assert!(
        found.contains(
            &"job unit: \"image-build-name\": images that the job builds are not imported yet"
                .to_owned()
        ),
        "{found:#?}"
    );
}

/// L3.8, L3.9, L3.11: unsupported attributes of node objects, and shared limits, are reported at
/// every layer.
#[test]
fn unsupported_attributes_of_node_objects_are_reported() {
    let text = "
- image: {name: i, type: cloud, image-id: ami-1}
- flavor: {name: f, instance-type: t3.small, market-type: on-demand}
- label: {name: l, image: i, flavor: f, max-nodes: 3, slots: 1}
- section: {name: s, connection: ec2, region: r, quota: {instances: 4}, subnet-ids: [a], launch-timeout: 60, label-defaults: {tags: {a: b}}}
- provider: {name: p, section: s, labels: [{name: l, key-name: k}]}
- provider: {name: q, section: s, labels: [l]}
";
    let diagnostics = warnings(text);
    let expected = [
        "label l: \"max-nodes\" is not supported yet and has no effect on nodes",
        "section s: \"subnet-ids\" is not supported yet and has no effect on nodes",
        "section s: \"launch-timeout\" is not supported yet and has no effect on nodes",
        "section s: \"tags\" is not supported yet and has no effect on nodes",
        "provider p: \"key-name\" is not supported yet and has no effect on nodes",
        "provider p: the limits of section github.com/org/config/s apply to each of its 2 providers separately, not to all of them together: they can use 2 times as much",
        "provider q: the limits of section github.com/org/config/s apply to each of its 2 providers separately, not to all of them together: they can use 2 times as much",
    ];
    let (mut diagnostics, mut expected) = (diagnostics, expected.map(str::to_owned).to_vec());
    diagnostics.sort();
    expected.sort();
    assert_eq!(diagnostics, expected);
}

/// L3.8: several zones of one label and unchecked host keys are reported. One zone of a label, and
/// zones of sections and providers, are supported.
#[test]
fn several_zones_of_one_label_and_unchecked_host_keys_are_reported() {
    let with = |label: &str, section: &str, provider: &str| {
        warnings(&format!(
            "
- image: {{name: i, type: cloud, image-id: ami-1}}
- flavor: {{name: f, instance-type: t3.small}}
- label: {{name: l, image: i, flavor: f{label}}}
- section: {{name: s, connection: ec2, region: r, az: [a, b]{section}}}
- provider: {{name: p, section: s, availability-zones: [a], labels: [{{name: l{provider}}}]}}
"
        ))
    };
    let diagnostics = |stanza: &str, attribute: &str| {
        vec![format!("{stanza}: \"{attribute}\" is not supported yet and has no effect on nodes")]
    };
    assert_eq!(
        with(", host-key-checking: true", ", host-key-checking: true", ""),
        Vec::<String>::new()
    );
    assert_eq!(with(", az: a", ", label-defaults: {az: b}", ", az: [b]"), Vec::<String>::new());
    assert_eq!(with(", az: [a, b]", "", ""), diagnostics("label l", "az"));
    assert_eq!(with("", ", label-defaults: {az: [a, b]}", ""), diagnostics("section s", "az"));
    assert_eq!(with("", "", ", availability-zones: [a, b]"), diagnostics("provider p", "az"));
    assert_eq!(
        with(", host-key-checking: false", "", ""),
        diagnostics("label l", "host-key-checking")
    );
    assert_eq!(
        with("", ", host-key-checking: false", ""),
        diagnostics("section s", "host-key-checking")
    );
    assert_eq!(
        with("", "", ", host-key-checking: false"),
        diagnostics("provider p", "host-key-checking")
    );
}

/// L3.1, L3.7, L3.8: limits of uncounted resources, and unused attributes of labels, images and
/// hosts, are reported.
#[test]
fn limits_of_uncounted_resources_are_reported() {
    let with = |section: &str| {
        warnings(&format!(
            "
- section: {{name: s, connection: ec2, region: r{section}}}
- provider: {{name: p, section: s}}
"
        ))
    };
    assert_eq!(with(", quota: {instances: 3}"), Vec::<String>::new());
    let diagnostics =
        "section s: limits of cores, ram are not enforced yet: only those of instances are";
    assert_eq!(with(", quota: {instances: 3, ram: 4096, cores: 8}"), [diagnostics]);
    assert_eq!(with(", resource-limits: {cores: 8, ram: 4096}"), [diagnostics]);
    let text = "- image: {name: i, type: cloud, config-drive: true}\n- label: {name: l, aliases: [m], snapshot-timeout: 60}\n";
    assert_eq!(
        warnings(text),
        ["image i: \"config-drive\"", "label l: \"aliases\"", "label l: \"snapshot-timeout\""]
            .map(|what| format!("{what} is not supported yet and has no effect on nodes"))
    );
}

/// Z1.10, L3.10, Z6.6: what only nodes of clouds have is reported for static nodes, in the section
/// and in the provider, and what static nodes themselves have is not.
#[test]
fn attributes_of_cloud_nodes_are_reported_for_static_nodes() {
    let with = |section: &str, provider: &str| {
        warnings(&format!(
            "
- label: {{name: big}}
- section: {{name: s, connection: null, nodes: [{{name: a.example.com, labels: [big], username: u, connection-port: 2222}}]{section}}}
- provider: {{name: p, section: s, include-all-node-labels: true{provider}}}
"
        ))
    };
    assert_eq!(with("", ""), Vec::<String>::new());
    let diagnostics = |stanza: &str, attribute: &str| {
        vec![format!(
            "{stanza}: \"{attribute}\" has no effect on static nodes: only nodes of clouds have it; user and port of a static node are in `nodes`"
        )]
    };
    let limits = diagnostics("section s", "resource-limits");
    assert_eq!(with(", quota: {instances: 3, ram: 4096}", ""), limits);
    let timeout = diagnostics("section s", "boot-timeout");
    assert_eq!(with(", label-defaults: {boot-timeout: 60}", ""), timeout);
    let user = diagnostics("provider p", "username");
    assert_eq!(with("", ", image-defaults: {username: root}"), user);
}

/// Z6.1, Z6.6: parameters of manual enqueues, dependencies by topic and requirements for changes of
/// forges that are not read are reported.
#[test]
fn what_no_forge_or_command_can_meet_is_reported() {
    let text = "
- pipeline: {name: asked, manager: independent, require: {gerrit: {open: true}}, trigger: {github: [{event: push}]}}
- queue: {name: q, allow-circular-dependencies: true, dependencies-by-topic: true}
- project: {name: org/project, check: {parameters: [{name: a, type: string}], jobs: [base]}}
";
    assert_eq!(
        warnings(text),
        [
            "pipeline asked: requirements for changes of gerrit are not supported yet: no change of it is read",
            "project org/project: parameters of manual enqueues are not supported yet: those in check have no effect",
            "queue q: \"dependencies-by-topic\" has no effect yet: no supported forge has topics",
        ]
    );
}

/// Z2.3, Z9.1: access rules are enforced, so only what is not is reported.
#[test]
fn access_rules_of_a_tenant_yield_no_warning() {
    let main = "
- tenant:
    name: one
    access-rules: [ours]
    admin-rules: [ours]
    anonymous-read-access: false
    authentication-realm: company
    report-build-page: false
    role-mappings: {ours: [read]}
    source: {github: {config-projects: [org/config]}}
- authorization-rule: {name: ours, conditions: [{groups: ours}]}
";
    let diagnostics = crate::common::tenant_of(main).build().ignored_attributes();
    let attributes: Vec<_> =
        diagnostics.iter().filter_map(|warning| warning.diagnostic.attribute.as_deref()).collect();
    assert_eq!(attributes, ["report-build-page"], "{diagnostics:#?}");
}

/// Z9.1, C2.2: an authorization rule that no token can match is reported.
#[test]
fn a_rule_that_never_matches_is_reported() {
    for (conditions, is_reported) in [
        ("[]", true),
        ("[{}]", true),
        ("[{groups: null}]", true),
        ("[{groups: [a, b]}]", true),
        ("[{account: {}}]", true),
        ("[{groups: null}, {groups: a}]", true),
        ("[{account: {roles: null}}]", true),
        ("[{account: {roles: a}}]", false),
    ] {
        let main = format!("- authorization-rule: {{name: ours, conditions: {conditions}}}\n");
        let (main, diagnostics) = parse_main("main.yaml", &main, &crate::common::connections());
        assert_eq!(main.authorization_rules.len(), 1, "{conditions}: {diagnostics:#?}");
        let texts: Vec<_> =
            diagnostics.iter().map(|one| (one.diagnostic.severity, one.short_text())).collect();
        assert_eq!(texts.len(), usize::from(is_reported), "{conditions}: {texts:?}");
        for (severity, text) in texts {
            assert_eq!(severity, Severity::Warning);
            assert!(text.contains("ours") && text.contains("never matches"), "{text}");
        }
    }
}

/// Z2.3, Z9.1: access rules outside of tenants do not reconfigure a tenant.
#[test]
fn access_rules_of_the_api_belong_to_no_tenant() {
    let main = "- tenant: {name: one, source: {github: {config-projects: [org/config]}}}\n- api-root: {access-rules: [ours]}\n- authorization-rule: {name: ours, conditions: [{groups: ours}]}\n";
    let (main, errors) = parse_main("main.yaml", main, &crate::common::connections());
    assert!(errors.is_empty(), "{errors:#?}");
    let plain = crate::common::tenant_of(
        "- tenant: {name: one, source: {github: {config-projects: [org/config]}}}",
    );
    assert_eq!(main.tenants, [plain.config]);
    assert_eq!(main.api_root.access_rules, ["ours"]);
}

/// Z2.5: playbooks and roles of included files are supported, so included files yield no warning.
#[test]
fn files_included_by_a_tenant_yield_no_warnings() {
    let main = "- tenant: {name: one, include: [more.yaml], source: {github: {config-projects: [org/config]}}}";
    let layout = crate::common::tenant_of(main).build();
    assert!(layout.ignored_attributes().is_empty(), "{:?}", layout.ignored_attributes());
}

/// Z2.2: objects that the tenant excludes yield no warnings.
#[test]
fn objects_excluded_by_a_tenant_yield_no_warnings() {
    for (said, expected) in [("", 1), ("exclude: job", 0), ("include: []", 0)] {
        let main = format!(
            "- tenant: {{name: one, source: {{github: {{config-projects: [org/config], untrusted-projects: [org/project: {{{said}}}]}}}}}}\n"
        );
        let image = format!("{BASE}- image: {{name: disk, type: zuul}}\n");
        let tenant = tenant_of(&main).file("org/config", &image);
        let layout = tenant
            .file("org/project", "- job: {name: s, run: r, image-build-name: disk}\n")
            .sound();
        let found = layout.ignored_attributes();
        let diagnostics =
            found.iter().filter(|warning| warning.diagnostic.message.contains("image-build-name"));
        assert_eq!(diagnostics.count(), expected, "{said}: {found:#?}");
    }
}
