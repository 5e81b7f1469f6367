//! Layers of provider objects: which layer wins, which attributes reach the provider, and that each
//! object is defined once.

use crate::common::*;
use serde_json::json;
use sluice_config::layout::ImageNode;
use sluice_config::{Driver, Layout, Severity};

/// The eight layers of L3.2 in order, each with the stanza or entry that sets a value there.
const LAYERS: [&str; 8] = [
    "image",
    "flavor",
    "label",
    "section",
    "image within section",
    "flavor within section",
    "provider",
    "label within provider",
];

/// Returns the provider `p` with one label, where layers set the given values.
fn layered(said: impl Fn(&str) -> String) -> Layout {
    let at = |layer: &str| said(layer);
    let text = format!(
        "
- image: {{name: i, type: cloud{}}}
- flavor: {{name: f{}}}
- label: {{name: l, image: i, flavor: f{}}}
- section: {{name: s, connection: ec2{}, images: [{{name: i{}}}], flavors: [{{name: f{}}}]}}
- provider: {{name: p, section: s{}, labels: [{{name: l{}}}]}}
",
        at(LAYERS[0]),
        at(LAYERS[1]),
        at(LAYERS[2]),
        at(LAYERS[3]),
        at(LAYERS[4]),
        at(LAYERS[5]),
        at(LAYERS[6]),
        at(LAYERS[7]),
    );
    tenant().file("org/config", &text).build()
}

/// L3.2: each layer wins over the one before; scalars override, mappings merge.
#[test]
fn each_layer_wins_over_the_one_before() {
    // Sections can set what their images and flavors can, and so can providers.
    for (number, layer) in LAYERS.iter().enumerate() {
        let layout = layered(|at| {
            let place = LAYERS.iter().position(|one| *one == at).unwrap();
            if place <= number {
                format!(", userdata: from {at}, tags: {{all: {at}, t{place}: x}}")
            } else {
                String::new()
            }
        });
        // Userdata and tags belong to images, flavors and labels, and to sections and providers as
        // defaults.
        let errors: Vec<_> =
            messages(&layout).into_iter().filter(|text| !text.contains("declines")).collect();
        assert!(errors.is_empty(), "{layer}: {errors:?}");
        let label = &layout.providers()[0].labels[0];
        assert_eq!(label.userdata.as_deref(), Some(format!("from {layer}").as_str()), "{layer}");
        assert_eq!(label.tags["all"], *layer);
        assert_eq!(label.tags.len(), number + 2, "each layer's own tag stays: {:?}", label.tags);
    }
}

/// L3.2: a provider offers its own labels and those of its sections, outermost first, each once.
/// Attributes set in the provider's entry win over those of the section's.
#[test]
fn a_provider_offers_its_sections_labels_and_its_own() {
    let with = |labels: &str| {
        let text = format!(
            "
- label: {{name: a}}
- label: {{name: b}}
- label: {{name: c}}
- section: {{name: top, connection: null, labels: [a]}}
- section: {{name: s, parent: top, labels: [{{name: b, max-age: 20}}]}}
- provider: {{name: p, section: s{labels}}}
"
        );
        let layout = tenant().file("org/config", &text).sound();
        let labels = layout.providers()[0].labels.iter();
        labels.map(|label| (label.name.to_string(), label.max_age_seconds)).collect::<Vec<_>>()
    };
    let named = |list: &[(&str, u64)]| {
        list.iter().map(|(name, age)| ((*name).to_owned(), *age)).collect::<Vec<_>>()
    };
    assert_eq!(with(""), named(&[("a", 0), ("b", 20)]));
    assert_eq!(with(", labels: [c]"), named(&[("a", 0), ("b", 20), ("c", 0)]));
    assert_eq!(
        with(", labels: [c, {name: b, max-age: 40}]"),
        named(&[("a", 0), ("b", 40), ("c", 0)])
    );
    // A missing label is reported where it is listed, not for each provider.
    let unknown = "
- section: {name: s, connection: null, labels: [nosuch]}
- provider: {name: p, section: s}
- provider: {name: q, section: s, labels: [nor-such]}
";
    let diagnostics = messages(&tenant().file("org/config", unknown).build());
    assert_eq!(
        diagnostics,
        ["The label \"nosuch\" was not found.", "The label \"nor-such\" was not found."]
    );
}

/// L3.2: the innermost of nested sections wins, even if it repeats the outermost value.
#[test]
fn a_value_repeated_by_an_inner_section_wins() {
    let text = "
- image: {name: i, type: cloud}
- flavor: {name: f}
- label: {name: l, image: i, flavor: f}
- section: {name: outer, connection: ec2, images: [{name: i, userdata: usual}]}
- section: {name: middle, parent: outer, images: [{name: i, userdata: other}]}
- section: {name: inner, parent: middle, images: [{name: i, userdata: usual}]}
- provider: {name: p, section: inner, labels: [l]}
";
    let layout = tenant().file("org/config", text).sound();
    assert_eq!(layout.providers()[0].labels[0].userdata.as_deref(), Some("usual"));
    assert_eq!(layout.providers()[0].images.len(), 1);
}

/// L3.2: a provider's image and flavor entries come between the provider and its label.
#[test]
fn image_and_flavor_entries_of_a_provider_precede_its_labels() {
    let with = |image: &str, flavor: &str, label: &str| {
        let text = format!(
            "
- image: {{name: i, type: cloud}}
- flavor: {{name: f}}
- label: {{name: l, image: i, flavor: f}}
- section: {{name: s, connection: ec2}}
- provider: {{name: p, section: s, userdata: provider, images: [{{name: i{image}}}], flavors: [{{name: f{flavor}}}], labels: [{{name: l{label}}}]}}
"
        );
        tenant().file("org/config", &text).sound().providers()[0].labels[0]
            .userdata
            .clone()
            .unwrap()
    };
    let [image, flavor, label] = [", userdata: image", ", userdata: flavor", ", userdata: label"];
    assert_eq!(with("", "", ""), "provider");
    assert_eq!(with(image, "", ""), "image");
    assert_eq!(with(image, flavor, ""), "flavor");
    assert_eq!(with(image, flavor, label), "label");
}

/// L3.2: only the label's own attribute restricts it to a zone, and the innermost wins. A list of
/// zones does not restrict it.
#[test]
fn a_labels_own_zone_is_not_the_first_of_its_section() {
    let with = |label: &str, section: &str, provider: &str| {
        let text = format!(
            "
- image: {{name: i, type: cloud}}
- flavor: {{name: f}}
- label: {{name: l, image: i, flavor: f{label}}}
- section: {{name: s, connection: ec2, az: [a, b, c]{section}}}
- provider: {{name: p, section: s{provider}}}
"
        );
        let layout = tenant().file("org/config", &text).sound();
        assert_eq!(layout.providers()[0].zones, ["a", "b", "c"]);
        layout.providers()[0].labels[0].zone.clone()
    };
    let plain = ", labels: [l]";
    assert_eq!(with("", "", plain), None);
    assert_eq!(with(", az: b", "", plain).as_deref(), Some("b"));
    assert_eq!(with(", az: b", ", labels: [{name: l, az: c}]", "").as_deref(), Some("c"));
    assert_eq!(
        with(", az: b", ", labels: [{name: l, az: c}]", ", labels: [{name: l, az: a}]").as_deref(),
        Some("a")
    );
    assert_eq!(
        with("", "", ", labels: [{name: l, availability-zones: [c]}]").as_deref(),
        Some("c")
    );
    assert_eq!(with("", "", ", labels: [{name: l, az: [b, c]}]"), None);
}

/// L3.2, L3.7: min-ready is set by the label or by its entry in a section or provider; the
/// innermost wins.
#[test]
fn min_ready_may_be_set_in_a_section_or_provider() {
    let with = |label: &str, section: &str, provider: &str| {
        let text = format!(
            "- label: {{name: l{label}}}\n- section: {{name: s, connection: null, labels: [{{name: l{section}}}]}}\n- provider: {{name: p, section: s{provider}}}\n"
        );
        tenant().file("org/config", &text).sound().providers()[0].labels[0].min_ready
    };
    assert_eq!(with("", "", ""), 0);
    assert_eq!(with(", min-ready: 1", "", ""), 1);
    assert_eq!(with(", min-ready: 1", ", min-ready: 2", ""), 2);
    assert_eq!(with(", min-ready: 1", ", min-ready: 2", ", labels: [{name: l, min-ready: 0}]"), 0);
}

/// L3.1, L3.8: the import method and retention of an image are typed, from any layer.
#[test]
fn an_images_attributes_reach_the_provider() {
    let text = "
- image: {name: built, type: zuul, image-format: qcow2, import-timeout: 60, upload-methods: [copy], retain-count: 2}
- image: {name: plain, type: cloud}
- image: {name: elsewhere, type: zuul}
- flavor: {name: f}
- label: {name: l, image: built, flavor: f}
- section:
    name: s
    connection: ec2
    object-storage: {bucket-name: images}
    import-method: snapshot
    image-defaults: {image-format: raw, import-timeout: 90}
    images: [plain, {name: built, max-retain-count: 9}]
- provider: {name: p, section: s, labels: [l], images: [{name: built, image-format: vhd, retain-count: 3}]}
";
    let layout = tenant().file("org/config", text).sound();
    let provider = &layout.providers()[0];
    assert_eq!(provider.bucket.as_deref(), Some("images"));
    let mut images = serde_json::to_value(&provider.images).unwrap();
    // The image's node attributes have a test of their own.
    images
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .for_each(|image| drop(image.as_object_mut().unwrap().remove("node")));
    assert_eq!(
        images,
        json!([
            {
                "name": "built", "canonical_name": "github.com/org/config/built", "is_built": true, "format": "vhd",
                "import_method": "snapshot", "import_timeout_seconds": 90, "upload_methods": ["copy"],
                "retain_count": 3, "max_retain_count": 9,
            },
            {
                "name": "plain", "canonical_name": "github.com/org/config/plain", "is_built": false, "format": "raw",
                "import_method": "snapshot", "import_timeout_seconds": 90, "upload_methods": [],
                "retain_count": null, "max_retain_count": null,
            },
        ])
    );
    assert_eq!(
        (layout.image_formats("built"), layout.image_formats("plain")),
        (vec!["vhd".to_owned()], vec![])
    );
}

/// L3.1, L3.2: an image's node attributes are typed on the image itself, even if no label uses it.
#[test]
fn node_attributes_of_an_image_are_typed_on_the_image() {
    let with = |of_image: &str, of_section: &str, of_provider: &str| {
        let text = format!(
            "
- image: {{name: built, type: zuul{of_image}}}
- section: {{name: s, connection: ec2{of_section}}}
- provider: {{name: p, section: s, images: [{{name: built{of_provider}}}]}}
"
        );
        let layout = tenant().file("org/config", &text).sound();
        let provider = &layout.providers()[0];
        assert!(provider.labels.is_empty(), "{:?}", provider.labels);
        let image = &provider.images[0];
        assert!(image.is_built);
        image.node.clone()
    };
    let nothing = with("", "", "");
    assert_eq!(nothing, ImageNode::default());
    let all = ", username: root, python-path: /usr/bin/python3, shell-type: sh, connection-type: winrm, connection-port: 2222, \
               config-drive: true, image-id: ami-1, image-name: noble, image-filters: [{name: n, values: [v]}], architecture: arm64, \
               ena-support: true, imds-support: v2.0, imds-http-tokens: required";
    let expected = json!({
        "username": "root", "python_path": "/usr/bin/python3", "shell_type": "sh", "connection_type": "winrm",
        "connection_port": 2222, "config_drive": true, "image_id": "ami-1", "image_name": "noble",
        "image_filters": [{"name": "n", "values": ["v"]}], "architecture": "arm64", "ena_support": true,
        "imds_support": "v2.0", "imds_http_tokens": "required",
    });
    assert_eq!(serde_json::to_value(with(all, "", "")).unwrap(), expected);
    // Each layer extends or overrides the one above.
    let layered =
        with(", username: a, shell-type: sh", ", image-defaults: {username: b}", ", username: c");
    assert_eq!(
        (layered.username.as_deref(), layered.shell_type.as_deref()),
        (Some("c"), Some("sh"))
    );
    assert_eq!(
        with(", username: a", ", image-defaults: {username: b}", "").username.as_deref(),
        Some("b")
    );
}

/// L3.7, L3.10: all attributes of static nodes are preserved.
#[test]
fn all_attributes_of_static_nodes_are_preserved() {
    let text = "
- label: {name: big}
- section:
    name: s
    connection: null
    nodes: [{name: a.example.com, labels: [big], host-key: [k], username: me, connection-port: 2222, aliases: [a, alpha]}]
- provider: {name: p, section: s, labels: [big]}
";
    let layout = tenant().file("org/config", text).sound();
    let node = serde_json::to_value(&layout.providers()[0].nodes[0]).unwrap();
    assert_eq!(
        node,
        json!({
            "name": "a.example.com", "labels": ["big"], "host_keys": ["k"], "username": "me", "connection_port": 2222,
            "aliases": ["a", "alpha"],
        })
    );
    let stored = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert_eq!(stored.providers(), layout.providers());
}

/// L3.3: each object is defined once per tenant. An identical definition in another branch is
/// allowed; otherwise the second one is reported.
#[test]
fn each_object_is_defined_once() {
    let rows = [
        ("image", "{name: x, type: cloud}", "{name: x, type: zuul}"),
        ("flavor", "{name: x}", "{name: x, description: other}"),
        ("label", "{name: x, min-ready: 1}", "{name: x, min-ready: 2}"),
        ("section", "{name: x, connection: null}", "{name: x, connection: ec2}"),
        ("provider", "{name: x, section: rack}", "{name: x, section: rack, launch-attempts: 5}"),
        ("queue", "{name: x}", "{name: x, per-branch: true}"),
        ("semaphore", "{name: x, max: 1}", "{name: x, max: 2}"),
        ("secret", "{name: x, data: {a: b}}", "{name: x, data: {a: c}}"),
        ("nodeset", "{name: x, nodes: []}", "{name: x, nodes: [{name: n, label: l}]}"),
    ];
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{org/project: {include-provider-config: true}}, {org/project1: {include-provider-config: true}}]\n";
    for (kind, one, other) in rows {
        let with = |stable: &str, elsewhere: &str| {
            let stanza = |body: &str| {
                if body.is_empty() { String::new() } else { format!("- {kind}: {body}\n") }
            };
            let layout = tenant_of(main)
                .file("org/config", "- section: {name: rack, connection: null}\n")
                .file("org/project", &stanza(one))
                .at("org/project", "stable", ".zuul.yaml", &stanza(stable))
                .file("org/project1", &stanza(elsewhere))
                .build();
            let errors =
                layout.errors().iter().filter(|error| error.diagnostic.severity == Severity::Error);
            errors
                .map(|error| (error.project.name().to_owned(), error.branch.to_string()))
                .collect::<Vec<_>>()
        };
        assert!(with(one, "").is_empty(), "{kind}: {:?}", with(one, ""));
        assert_eq!(with(other, ""), [("org/project".to_owned(), "stable".to_owned())], "{kind}");
        assert_eq!(with("", one), [("org/project1".to_owned(), "master".to_owned())], "{kind}");
        assert_eq!(with(other, one).len(), 2, "{kind}");
    }
}

/// L3.4: an image name may mean a cloud image in one tenant and a built image in another.
#[test]
fn a_name_may_have_different_meanings_in_different_tenants() {
    let of = |tenant: &str, project: &str, kind: &str| {
        let main = format!(
            "- tenant:\n    name: {tenant}\n    source:\n      github:\n        config-projects: [{project}]\n"
        );
        let text = format!(
            "- image: {{name: debian, type: {kind}}}\n- flavor: {{name: small}}\n- label: {{name: debian, flavor: small}}\n- section: {{name: s, connection: ec2}}\n- provider: {{name: p, section: s, labels: [debian]}}\n"
        );
        tenant_of(&main).file(project, &text).sound()
    };
    let (one, two) = (of("one", "org/one", "cloud"), of("two", "org/two", "zuul"));
    let diagnostics = |layout: &Layout| {
        let provider = &layout.providers()[0];
        let label = &provider.labels[0];
        (
            provider.canonical_name.clone(),
            label.canonical_name.clone(),
            label.image.clone().unwrap(),
            label.image_is_built,
        )
    };
    let names = |tenant: &str, is_built| {
        let of = |name: &str| format!("github.com/org/{tenant}/{name}");
        (of("p"), of("debian"), of("debian"), is_built)
    };
    assert_eq!(diagnostics(&one), names("one", false));
    assert_eq!(diagnostics(&two), names("two", true));
    assert_eq!(
        one.providers()[0].labels[0].name,
        two.providers()[0].labels[0].name,
        "users write the short one"
    );
}

/// L3.5, L3.6, L3.9: the outermost section that sets a connection binds all below it. Otherwise an
/// author of sections or providers could use any connection of the system.
#[test]
fn a_connection_cannot_be_overridden_by_inner_sections() {
    let connections = connections().with("other", Driver::Aws, "");
    let of_section = |name: &str, is: &str| {
        format!("The connection of the section \"{name}\", which is {is}, cannot be")
    };
    let rows = [
        ("connection: ec2", "", "", None),
        ("connection: ec2", ", connection: ec2", ", connection: ec2", None),
        ("connection: null", "", ", connection: null", None),
        ("description: none", ", connection: ec2", "", None),
        ("description: none", "", ", connection: null", None),
        ("connection: ec2", "", ", connection: other", Some(of_section("s", "\"ec2\""))),
        ("connection: ec2", "", ", connection: null", Some(of_section("s", "\"ec2\""))),
        ("connection: null", "", ", connection: ec2", Some(of_section("s", "null"))),
        ("description: none", "", ", connection: ec2", Some(of_section("s", "null"))),
        ("connection: ec2", ", connection: other", "", Some(of_section("top", "\"ec2\""))),
        ("connection: ec2", ", connection: null", "", Some(of_section("top", "\"ec2\""))),
        (
            "connection: ec2",
            ", connection: other",
            ", connection: other",
            Some(of_section("top", "\"ec2\"")),
        ),
        ("connection: null", ", connection: ec2", "", Some(of_section("top", "null"))),
    ];
    for (top, section, provider, diagnostics) in rows {
        let text = format!(
            "
- section: {{name: top, {top}}}
- section: {{name: between, parent: top}}
- section: {{name: s, parent: between{section}}}
- provider: {{name: p, section: s{provider}}}
"
        );
        let layout = tenant().file("org/config", &text).build_with(&connections);
        let found = messages(&layout);
        assert_eq!(found.len(), usize::from(diagnostics.is_some()), "{text}: {found:?}");
        assert!(
            found
                .iter()
                .zip(&diagnostics)
                .all(|(found, diagnostics)| found.starts_with(diagnostics)),
            "{text}: {found:?}"
        );
        assert_eq!(layout.providers().is_empty(), diagnostics.is_some(), "{text}");
    }
}

/// L3.2: final defaults bind the layers below, unless a label sets the attribute itself.
#[test]
fn final_defaults_of_a_section_bind_the_provider() {
    let made = |is_final: &str, own: &str| {
        let text = format!(
            "
- label: {{name: l{own}}}
- section: {{name: s, connection: null, label-defaults: {{boot-timeout: 10{is_final}}}, labels: [{{name: l, max-age: 20}}]}}
- provider: {{name: p, section: s, label-defaults: {{boot-timeout: 30}}, labels: [{{name: l, max-age: 40}}]}}
"
        );
        let layout = tenant().file("org/config", &text).build();
        let label = &layout.providers()[0].labels[0];
        (label.boot_timeout_seconds, label.max_age_seconds, messages(&layout).len())
    };
    assert_eq!(made("", ""), (30, 40, 0));
    assert_eq!(made(", final: allow-override", ""), (10, 40, 0));
    assert_eq!(made(", final: true", ""), (10, 20, 1));
    assert_eq!(made(", final: true", ", final: false"), (30, 40, 0), "the label says so of itself");
}

/// L3.6, Z2.2: a config project whose provider objects are excluded, and a group that includes them
/// except for one member.
#[test]
fn provider_objects_are_included_and_excluded_as_one_kind() {
    let made = |list: &str, member: &str| {
        let main = format!("- tenant: {{name: one, source: {{github: {{{list}: [{member}]}}}}}}\n");
        let tenant = tenant_of(&main);
        let project = tenant.config.projects[0].clone();
        project.kinds.iter().filter(|kind| kind.is_provider_config()).count()
    };
    assert_eq!(made("config-projects", "org/a"), 5);
    assert_eq!(made("config-projects", "org/a: {include-provider-config: false}"), 0);
    assert_eq!(made("untrusted-projects", "org/a: {include-provider-config: true}"), 5);
    let group =
        "{include-provider-config: true, projects: [org/a: {include-provider-config: false}]}";
    assert_eq!(made("untrusted-projects", group), 0);
}

/// L3.6, Z2.2: only tenants that include node objects can use them. Permitted projects define
/// providers, images and labels on a section that only a central repository may define.
#[test]
fn node_objects_need_inclusion_and_permission() {
    let central = "
- image: {name: debian, type: cloud}
- flavor: {name: small}
- label: {name: shared, image: debian, flavor: small}
- section: {name: s, connection: ec2, flavors: [{name: small, instance-type: t3.small}]}
- provider: {name: central, section: s, labels: [shared], images: [{name: debian, image-id: ami-1}]}
";
    let own = "
- image: {name: mine, type: cloud}
- label: {name: mine, image: mine, flavor: small}
- section: {name: forbidden, connection: ec2}
- provider: {name: own, section: s, labels: [mine], images: [{name: mine, image-id: ami-2}]}
";
    let uses = |label: &str| {
        format!(
            "- job: {{name: test, run: r, nodeset: {{nodes: [{{name: n, label: {label}}}]}}}}\n"
        )
    };
    let of = |projects: &str| {
        let main = format!(
            "- tenant:\n    name: one\n    use-nodepool: false\n    source:\n      github:\n        config-projects: [{projects}\n"
        );
        tenant_of(&main).file("org/config", BASE).file("org/infra", central)
    };
    let providers = |layout: &Layout| -> Vec<String> {
        layout.providers().iter().map(|provider| provider.name.to_string()).collect()
    };
    let missing = |label: &str| vec![format!("The label \"{label}\" was not found.")];

    let with = of("org/config, org/infra]\n        untrusted-projects: [org/project]")
        .file("org/project", &uses("shared"))
        .sound();
    assert_eq!(providers(&with), ["central"]);
    let without = of("org/config]\n        untrusted-projects: [org/project]")
        .file("org/project", &uses("shared"))
        .build();
    assert_eq!((providers(&without), messages(&without)), (Vec::new(), missing("shared")));

    let chosen = "org/config, org/infra]\n        untrusted-projects: [org/project: {include: [job, image, label, provider]}, org/project1]";
    let layout = of(chosen).file("org/project", own).file("org/project1", &uses("mine")).sound();
    assert_eq!(providers(&layout), ["central", "own"], "and others of the tenant use them");
    let on = |section: &str| {
        of(chosen)
            .file("org/project", &own.replace("section: s,", &format!("section: {section},")))
            .build()
    };
    assert_eq!(
        providers(&on("forbidden")),
        ["central"],
        "a section of its own does not count: {:?}",
        messages(&on("forbidden"))
    );
    let layout = of(chosen).file("org/project1", &format!("{own}{}", uses("mine"))).build();
    assert_eq!(
        (providers(&layout), messages(&layout)),
        (vec!["central".to_owned()], missing("mine")),
        "it was not chosen"
    );
}
