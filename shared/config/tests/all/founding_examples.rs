//! Every configuration example of the founding documents loads as printed (E1, E2, E3). The text is
//! extracted from the documents. Only names that no example defines may be missing; each test lists
//! them.

use crate::common::*;
use sluice_config::fragment::{Fragment, parse};
use sluice_config::{
    ConfigError, Connections, FreezeInput, Layout, LayoutSources, MainConfig, Severity, Source,
    SourceFile, TenantConfig, Trust, parse_main,
};
use sluice_model::ProjectName;
use sluice_model::job::JobGraph;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An example: the name of its file, and its text.
struct Example {
    file: String,
    text: String,
}

/// Returns the examples of the first document. Each extends from a line with a file name, or a
/// list, to the next line of prose.
fn first_document() -> Vec<Example> {
    let text =
        std::fs::read_to_string(founding_material().unwrap().join("seeds/zuul-v3.txt")).unwrap();
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("### ") {
            let file = file.trim_end_matches(" (continued)").to_owned();
            examples.push(Example { file, text: String::new() });
            inside = true;
        } else if !inside && line.starts_with("- ") {
            examples
                .push(Example { file: "global_config.yaml".to_owned(), text: format!("{line}\n") });
            inside = true;
        } else if inside && (line.is_empty() || line.starts_with([' ', '-', '#'])) {
            let text = &mut examples.last_mut().unwrap().text;
            text.push_str(line);
            text.push('\n');
        } else {
            inside = false;
        }
    }
    // Playbooks are Ansible's; the executor tests E5 (functions/executor/tests/seeds.rs).
    examples.retain(|example| !example.file.contains("playbooks"));
    examples
}

/// Returns the configuration examples of the second document: its YAML blocks without their common
/// indentation.
fn second_document() -> Vec<String> {
    let text =
        std::fs::read_to_string(founding_material().unwrap().join("seeds/nodepool-in-zuul.rst"))
            .unwrap();
    let blocks = text.split(".. code-block:: yaml\n").skip(1).map(|rest| {
        let lines: Vec<&str> =
            rest.lines().take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
        let indents = lines
            .iter()
            .filter(|line| !line.is_empty())
            .map(|line| line.len() - line.trim_start().len());
        let indent = indents.min().unwrap_or_default();
        lines
            .iter()
            .map(|line| line.get(indent..).unwrap_or_default())
            .fold(String::new(), |text, line| text + line + "\n")
    });
    // Data returned by jobs is no configuration; the executor tests it
    // (functions/executor/tests/seeds.rs).
    blocks.filter(|block| !block.trim_start().starts_with("artifacts:")).collect()
}

/// Returns a file of the first document: all its examples in order.
fn file_of(examples: &[Example], file: &str) -> String {
    examples
        .iter()
        .filter(|example| example.file == file)
        .map(|example| example.text.as_str())
        .collect()
}

fn parsed(source: &Source, text: &str) -> Arc<Fragment> {
    Arc::new(parse(&SourceFile { source: source.clone(), text: text.to_owned() }))
}

/// The two lines of the first document's nodesets that lack one column of indentation (E2).
const MISPRINT: &str = "      - name: controller\n       image: ubuntu-trusty\n";

fn corrected(text: &str) -> String {
    text.replace("\n       image: ", "\n        image: ")
}

fn main_config(connections: &Connections) -> (MainConfig, Vec<ConfigError>) {
    parse_main("main.yaml", &file_of(&first_document(), "main.yaml"), connections)
}

fn with_gerrit() -> Connections {
    connections().with("my-gerrit", sluice_config::Driver::Gerrit, "review.openstack.org")
}

fn tenant_named(name: &str) -> TenantConfig {
    let (main, errors) = main_config(&with_gerrit());
    assert!(errors.is_empty(), "{errors:#?}");
    main.tenants.into_iter().find(|tenant| tenant.name.as_str() == name).unwrap()
}

/// E1, Z2.1: the tenants' file; no example defines its connection.
#[test]
fn the_tenants_of_the_first_document_load() {
    let Some(_) = founding_material() else { return };
    let (main, errors) = main_config(&connections());
    let diagnostics: Vec<&str> =
        errors.iter().map(|error| error.diagnostic.message.as_str()).collect();
    assert_eq!(diagnostics, ["Unknown connection named \"my-gerrit\""]);
    let names: Vec<&str> = main.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["openstack", "openstack-infra", "random-stackforge-project"]);
    assert_eq!(tenant_named("openstack").include, ["global_config.yaml", "openstack.yaml"]);
    let random = tenant_named("random-stackforge-project");
    assert_eq!(random.projects[0].name.as_str(), "review.openstack.org/stackforge/random");
    assert_eq!(random.projects[0].trust, Trust::Untrusted);
}

/// E1, E3: each example by itself has valid attributes, except the misprinted one.
#[test]
fn each_example_of_the_first_document_is_read() {
    let Some(_) = founding_material() else { return };
    let examples = first_document();
    assert_eq!(
        examples.len(),
        16,
        "{:?}",
        examples.iter().map(|example| &example.file).collect::<Vec<_>>()
    );
    let source = tenant_named("openstack").included_source("example.yaml").unwrap();
    for example in examples.iter().filter(|example| example.file != "main.yaml") {
        let problems = &parsed(&source, &example.text).diagnostics;
        assert_eq!(
            problems.is_empty(),
            !example.text.contains(MISPRINT),
            "{}\n{problems:#?}",
            example.text
        );
        let stanzas = parsed(&source, &corrected(&example.text)).stanzas().count();
        assert_eq!(
            stanzas,
            example.text.lines().filter(|line| line.starts_with("- ")).count(),
            "{}",
            example.text
        );
    }
}

/// E2: the two short lines are invalid YAML. The first is reported, and the corrected text loads.
#[test]
fn the_misprinted_nodesets_are_reported_at_their_place() {
    let Some(_) = founding_material() else { return };
    let examples = first_document();
    let nodesets = &examples.iter().find(|example| example.text.contains(MISPRINT)).unwrap().text;
    let source = tenant_named("openstack").included_source("global_config.yaml").unwrap();
    let fragment = parsed(&source, nodesets);
    let place =
        nodesets.lines().position(|line| line == "       image: ubuntu-trusty").unwrap() + 1;
    let [problem] = &fragment.diagnostics[..] else { panic!("{:#?}", fragment.diagnostics) };
    assert_eq!(usize::try_from(problem.start.line()).unwrap(), place);
    let error = fragment.errors().next().unwrap();
    assert_eq!(
        error.render(Some(nodesets)),
        "error: while parsing a block collection, did not find expected '-' indicator\n  \
         --> system/included@main: global_config.yaml:10:8\n10 |        image: ubuntu-trusty\n   |        ^\n"
    );
    let fixed = parsed(&source, &corrected(nodesets));
    assert!(fixed.diagnostics.is_empty() && fixed.stanzas().count() == 3);
}

/// Builds the layout of a tenant of the first document, with files of its projects.
fn layout_of(tenant: &str, of_projects: &[(&str, &str)]) -> Layout {
    let examples = first_document();
    let tenant = tenant_named(tenant);
    let mut fragments = Vec::new();
    for file in &tenant.include {
        let source = tenant.included_source(file).unwrap();
        fragments.push(parsed(&source, &corrected(&file_of(&examples, file))));
    }
    for (project, file) in of_projects {
        let source = Source {
            connection: "my-gerrit".into(),
            project: ProjectName::new("review.openstack.org", project),
            branch: "master".into(),
            path: ".zuul.yaml".to_owned(),
            trust: Trust::Untrusted,
        };
        fragments.push(parsed(&source, &file_of(&examples, file)));
    }
    Layout::build(LayoutSources {
        tenant,
        connections: with_gerrit(),
        branches: BTreeMap::new(),
        fragments,
    })
}

/// E1: the included files are the tenant's configuration. Only names that no example defines are
/// reported.
#[test]
fn the_first_documents_openstack_tenant_loads() {
    let Some(_) = founding_material() else { return };
    let layout = layout_of("openstack", &[]);
    let jobs: Vec<&str> = layout.job_names().collect();
    let expected = [
        "ansible-nova",
        "base",
        "devstack",
        "devstack-multinode",
        "pypi-upload",
        "python27",
        "run-puppet-apply",
    ];
    assert_eq!(jobs, expected);
    let mut diagnostics = messages(&layout);
    diagnostics.sort();
    diagnostics.dedup();
    assert_eq!(
        diagnostics,
        [
            // The tenant lists no repositories, so those named by examples are missing.
            "The project \"openstack-infra/infra-roles\" was not found.",
            "The project \"openstack/glance\" was not found.",
            "The project \"openstack/keystone\" was not found.",
            "The project \"openstack/nova\" was not found.",
        ]
    );
}

/// E1: a project's own file, with jobs of the files included by its tenant. No example defines the
/// pipelines.
#[test]
fn the_first_documents_random_project_loads() {
    let Some(_) = founding_material() else { return };
    let layout = layout_of(
        "random-stackforge-project",
        &[("stackforge/random", "stackforge/random/.zuul.yaml")],
    );
    let mut diagnostics = messages(&layout);
    diagnostics.retain(|diagnostics| !diagnostics.starts_with("The project \"openstack"));
    assert_eq!(diagnostics, ["The pipeline \"gate\" was not found."]);
    let job = layout.job_names().find(|name| *name == "random-job");
    assert_eq!(job, Some("random-job"));
}

/// E1, Z4.3, Z4.8, Z8.1: with the named pipelines, the project of the first document runs the
/// documented jobs.
#[test]
fn the_first_documents_projects_freeze() {
    let Some(_) = founding_material() else { return };
    let examples = first_document();
    let main = file_of(&examples, "main.yaml")
        + "- tenant:\n    name: whole\n    include: [pipelines.yaml, global_config.yaml, openstack.yaml, shade.yaml]\n    source:\n      \
           my-gerrit:\n        repos: [openstack/nova, openstack/keystone, openstack/glance, openstack-infra/infra-roles, openstack-infra/shade]\n";
    let (main, errors) = parse_main("main.yaml", &main, &with_gerrit());
    assert!(errors.is_empty(), "{errors:#?}");
    let tenant = main.tenants.into_iter().next_back().unwrap();
    // Names that no example defines.
    let missing = "
- pipeline: {name: gate, manager: dependent, allow-secrets: true}
- pipeline: {name: post, manager: independent, allow-secrets: true}
- job: {name: pep8}
- job: {name: devstack-deprecated-feature}
- job: {name: tarball}
- secret: {name: shade-cloud-credentials, data: {password: none}}
";
    let fragments = tenant.include.iter().map(|file| {
        let text = if file == "pipelines.yaml" {
            missing.to_owned()
        } else {
            corrected(&file_of(&examples, file))
        };
        parsed(&tenant.included_source(file).unwrap(), &text)
    });
    let fragments = fragments.collect();
    let layout = Layout::build(LayoutSources {
        tenant,
        connections: with_gerrit(),
        branches: BTreeMap::new(),
        fragments,
    });
    assert!(layout.errors().is_empty(), "{:#?}", messages(&layout));
    let nova = ProjectName::new("review.openstack.org", "openstack/nova");
    let frozen = |pipeline: &str, branch: &str| {
        layout.freeze(&FreezeInput::change(pipeline, &nova, branch)).unwrap()
    };
    assert_eq!(names(&frozen("gate", "master")), ["python27", "pep8", "devstack"]);
    let juno = frozen("gate", "stable/juno");
    assert_eq!(names(&juno), ["python27", "pep8", "devstack", "devstack-deprecated-feature"]);
    let label =
        |graph: &JobGraph, name: &str| job(graph, name).nodesets[0].nodes[0].label.to_string();
    assert_eq!(label(&frozen("gate", "master"), "python27"), "ubuntu-trusty");
    assert_eq!(label(&juno, "python27"), "ubuntu-precise");
    assert_eq!(label(&frozen("gate", "stable/diablo"), "python27"), "ubuntu-lucid");
    assert_eq!(label(&juno, "pep8"), "ubuntu-trusty");
    assert!(!job(&juno, "devstack-deprecated-feature").voting);
    assert_eq!(job(&juno, "devstack").required_projects.len(), 3);
    assert_eq!(layout.queue(&nova, "gate").name.as_str(), "integrated");
    let post = frozen("post", "master");
    assert_eq!(names(&post), ["tarball", "pypi-upload"]);
    assert_eq!(job(&post, "pypi-upload").dependencies[0].name.as_str(), "tarball");
    // E4: the secret loads, and would only fail when used.
    let secret = &job(&post, "pypi-upload").run[0].secrets["pypi-credentials"];
    assert_eq!(
        secret.data["username"]["!encrypted/pkcs1"].as_str(),
        Some("o+7OscBFYWJh26rlLWpBIg==")
    );
}

/// E1, L3: the second document's central objects. No example defines the flavor `small` and the
/// cloud's connection.
#[test]
fn each_example_of_the_second_document_loads() {
    let Some(_) = founding_material() else { return };
    let examples = second_document();
    assert_eq!(examples.len(), 5);
    let connections = connections().with("rackspace", sluice_config::Driver::Other, "");
    let layout_with = |files: &[&str]| {
        let mut tenant = tenant();
        for (at, file) in files.iter().enumerate() {
            tenant = tenant.at("org/config", "master", &format!("zuul.d/{at}.yaml"), file);
        }
        tenant.build_with(&connections)
    };
    let base = "- job: {name: base, parent: null, run: r}\n";
    // The image that the jobs build is defined by the third example.
    let image = "- image: {name: debian-unstable, type: zuul}\n";
    for pipelines in &examples[..2] {
        let layout = layout_with(&[base, image, pipelines]);
        assert!(layout.errors().is_empty(), "{:#?}", messages(&layout));
        assert_eq!((layout.pipelines().len(), layout.job_names().count()), (1, 2));
    }
    let central = layout_with(&[&examples[2]]);
    let diagnostics: Vec<(Severity, String)> = central
        .errors()
        .iter()
        .map(|error| (error.diagnostic.severity, error.short_text()))
        .collect();
    // The label names it, and so does the section.
    assert_eq!(
        diagnostics,
        vec![(Severity::Error, "The flavor \"small\" was not found.".to_owned()); 2]
    );
    let providers: Vec<&str> =
        central.providers().iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(providers, ["rax-dfw-main"]);
    // The tenant's own provider names a section of the central file.
    let small = "- flavor: {name: small}\n";
    let both = layout_with(&[small, &examples[2], &examples[3]]);
    let diagnostics: Vec<(Severity, String)> =
        both.errors().iter().map(|error| (error.diagnostic.severity, error.short_text())).collect();
    let warning = "The label \"devstack\" has no flavor here, so this provider declines requests for it: add \"flavor\" to the label";
    assert_eq!(diagnostics, [(Severity::Warning, warning.to_owned())]);
    let statics = layout_with(&[&examples[4]]);
    assert!(statics.errors().is_empty(), "{:#?}", messages(&statics));
    assert_eq!(statics.providers()[0].nodes[0].name, "static.example.com");
}

/// L3.2: the layers of the second document apply in the documented order.
#[test]
fn the_second_documents_layers_apply_in_order() {
    let Some(_) = founding_material() else { return };
    let examples = second_document();
    let connections = connections().with("rackspace", sluice_config::Driver::Other, "");
    let layout = tenant()
        .file("org/config", &format!("- flavor: {{name: small}}\n{}", examples[2]))
        .build_with(&connections);
    let provider = &layout.providers()[0];
    assert_eq!(
        (provider.region.as_deref(), provider.zones.as_slice()),
        (Some("DFW"), ["a".to_owned(), "b".to_owned()].as_slice())
    );
    assert_eq!(
        (
            provider.section_quota.as_ref().unwrap().limits["instances"],
            provider.launch_timeout_seconds
        ),
        (2000, Some(600))
    );
    let label =
        |name: &str| provider.labels.iter().find(|label| label.name.as_str() == name).unwrap();
    let (centos, ubuntu) = (label("centos-7"), label("ubuntu"));
    assert_eq!(
        (centos.instance_type.as_deref(), centos.min_ready, centos.boot_timeout_seconds),
        (Some("Performance 16G"), 1, 120)
    );
    assert_eq!(centos.attributes["config-drive"], serde_json::json!(true));
    assert!(centos.image_is_built && !ubuntu.image_is_built);
    assert_eq!(ubuntu.image_name.as_deref(), Some("ibm-ubuntu-20-04-3-minimal-amd64-1"));
    assert_eq!(
        (ubuntu.instance_type.as_deref(), ubuntu.tags.len(), centos.tags.len()),
        (Some("Performance 8G"), 2, 1)
    );
}

/// E1: if the documents are missing, a test fails, unless that is explicitly permitted.
#[test]
#[should_panic(expected = "set SLUICE_WAIVE to \"no such thing\"")]
fn missing_documents_fail_the_tests() {
    waived("no such thing", "there is nothing");
}
