//! Objects of providers: which layer counts, what arrives where, and that each is there once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use serde_json::json;
use sluice_config::layout::{ImageConfig, ImageNode};
use sluice_config::{Driver, Layout, Severity};

/// The eight places of L3.2, in their order, each with the stanza or entry that says something
/// there.
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

/// Returns a provider `p` with one label, where the given layers say what they are given.
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

/// L3.2: of each two neighbours in the order of application the later one wins; scalars override,
/// mappings merge.
#[test]
fn each_layer_beats_the_one_before() {
    // A section says what its images and flavors do, and a provider too.
    for (number, layer) in LAYERS.iter().enumerate() {
        let layout = layered(|at| {
            let place = LAYERS.iter().position(|one| *one == at).unwrap();
            if place <= number {
                format!(", userdata: from {at}, tags: {{all: {at}, t{place}: x}}")
            } else {
                String::new()
            }
        });
        // Userdata and tags belong to images, flavors and labels alike, and to sections and
        // providers for all of them.
        let errors: Vec<_> =
            messages(&layout).into_iter().filter(|text| !text.contains("declines")).collect();
        assert!(errors.is_empty(), "{layer}: {errors:?}");
        let label = &layout.providers()[0].labels[0];
        assert_eq!(label.userdata.as_deref(), Some(format!("from {layer}").as_str()), "{layer}");
        assert_eq!(label.tags["all"], *layer);
        assert_eq!(label.tags.len(), number + 2, "each layer's own tag stays: {:?}", label.tags);
    }
}

/// L3.2: lists concatenate, those of labels too: a provider offers what it lists besides what its
/// section and the section's parent list, each once, the outermost first; what is said of a label
/// within a provider comes after what is said within its section.
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
    // One that there is none of is told where it is listed, and not by each provider again.
    let unknown = "
- section: {name: s, connection: null, labels: [nosuch]}
- provider: {name: p, section: s}
- provider: {name: q, section: s, labels: [nor-such]}
";
    let told = messages(&tenant().file("org/config", unknown).build());
    assert_eq!(
        told,
        ["The label \"nosuch\" was not found.", "The label \"nor-such\" was not found."]
    );
}

/// L3.2: of sections that inherit from each other the innermost counts, also where it says again
/// what the outermost said.
#[test]
fn what_an_inner_section_says_again_counts_again() {
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

/// L3.2: image and flavor within a provider come between the provider and its label.
#[test]
fn what_a_provider_says_of_images_and_flavors_comes_before_its_labels() {
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

/// L3.2: a label binds itself to a zone by what is said of it alone; the innermost of that counts,
/// and a list of zones that all nodes may be in binds it to none.
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

/// L3.2, L3.7: nodes to keep ready are said by the label, or by a section or provider of it; the
/// innermost counts.
#[test]
fn ready_nodes_may_be_said_within_a_section_or_provider() {
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

/// L3.1, L3.8: what an image is taken in by, and how many are kept, arrives typed, from whichever
/// layer says it.
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
    // What an image says of its nodes has a test of its own.
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

/// L3.1, L3.2: what an image says of the nodes that run it arrives on the image itself, whether or
/// not a label takes it.
#[test]
fn what_an_image_says_of_its_nodes_is_typed_on_the_image() {
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
    // Each layer adds to, and takes the place of, what the one above says.
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
    // What was stored before knows nothing of it.
    let old = json!({
        "name": "built", "canonical_name": "github.com/org/config/built", "is_built": true, "format": "raw",
        "import_method": null, "import_timeout_seconds": null, "upload_methods": [], "retain_count": null,
        "max_retain_count": null,
    });
    let old: ImageConfig = serde_json::from_value(old).unwrap();
    assert_eq!(old.node, ImageNode::default());
}

/// L3.7, L3.10: static nodes keep all that is said of them.
#[test]
fn static_nodes_arrive_whole() {
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

/// L3.3: every sort of object is there once in a tenant. The same again in another branch of its
/// project is no mistake; otherwise the first stands and the second is told.
#[test]
fn each_object_is_there_once() {
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
                layout.errors().iter().filter(|error| error.problem.severity == Severity::Error);
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

/// L3.4: one short name is a cloud's image in one tenant and built here in another; across tenants
/// names do not collide.
#[test]
fn one_name_means_another_thing_in_another_tenant() {
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
    let told = |layout: &Layout| {
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
    assert_eq!(told(&one), names("one", false));
    assert_eq!(told(&two), names("two", true));
    assert_eq!(
        one.providers()[0].labels[0].name,
        two.providers()[0].labels[0].name,
        "users write the short one"
    );
}

/// L3.5, L3.6, L3.9: which connection nodes come from is for sections to say, and the outermost
/// that says it binds all below: else whoever may write a provider or a section could reach any
/// connection of the system.
#[test]
fn a_connection_is_not_overridden_along_a_chain() {
    let connections = connections().with("other", Driver::Aws, "");
    let of_section = |name: &str, is: &str| {
        format!("The connection of the section \"{name}\", which is {is}, may not be")
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
    for (top, section, provider, told) in rows {
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
        assert_eq!(found.len(), usize::from(told.is_some()), "{text}: {found:?}");
        assert!(
            found.iter().zip(&told).all(|(found, told)| found.starts_with(told)),
            "{text}: {found:?}"
        );
        assert_eq!(layout.providers().is_empty(), told.is_some(), "{text}");
    }
}

/// L3.2: defaults that are final bind what stands below them, except where a label says otherwise
/// of itself.
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

/// L3.6, Z2.2: a config project that leaves its provider objects out, and a group that takes them
/// in but for one of its members.
#[test]
fn provider_objects_are_taken_in_and_left_out_by_one_word() {
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

/// L3.6, Z2.2: what nodes are made of may be used by the tenants that include it, and by no others.
/// Where operators let them, chosen projects define providers, images and labels of their own on a
/// section that only a central repository may define.
#[test]
fn a_tenant_uses_what_it_includes_and_chosen_projects_define_what_they_may() {
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
