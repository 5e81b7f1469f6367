//! Configuration that others wrote: the examples of the founding documents, and a large public tenant.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::fragment::parse;
use sluice_config::{
    Connections, Driver, FreezeInput, Layout, LayoutSources, ProblemKind, Source, SourceFile, Trust, config_paths,
    parse_main,
};
use sluice_model::ProjectName;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// E1: the job examples of the first design load in the form they were written in.
const FIRST_DESIGN: &str = "
- nodeset:
    name: precise
    nodes:
      - name: controller
        image: ubuntu-precise
- nodeset:
    name: multinode
    nodes:
      - name: controller
        image: ubuntu-xenial
      - name: compute
        image: ubuntu-xenial
- pipeline:
    name: gate
    manager: dependent
    post-review: true
- pipeline:
    name: post
    manager: independent
    post-review: true
- job:
    name: base
    timeout: 30m
    nodes: precise
    auth:
      inherit: true
      swift:
        - container: logs
    workspace: /opt/workspace
    post-run:
      - archive-logs
- job:
    name: python27
    parent: base
    branches: stable/diablo
    nodes:
      - name: controller
        image: ubuntu-lucid
- job:
    name: devstack
    parent: base
    repos:
      - org/project
      - org/project1
- job:
    name: devstack-multinode
    parent: devstack
    nodes: multinode
- secret:
  name: pypi-credentials
  data:
    username: !encrypted/pkcs1 o+7OscBFYWJh26rlLWpBIg==
    password: !encrypted/pkcs1 o+7OscBF8GHW26rlLWpBIg==
- job:
    name: pypi-upload
    parent: base
    auth:
      secrets:
        - pypi-credentials
- job:
    name: tarball
    parent: base
- job:
    name: ansible-nova
    parent: base
    roles:
      - zuul: org/project2
      - galaxy: openstack.nova
        name: nova
- job:
    name: run-puppet-apply
    parent: base
    host: review.openstack.org
    fingerprint: 4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b
- project:
    name: org/project
    gate:
      queue: integrated
      jobs:
        - devstack-multinode
        - python27:
            branches: stable/diablo
            voting: false
    post:
      jobs:
        - tarball:
            jobs:
              - pypi-upload
";

/// E1, E3
#[test]
fn the_first_designs_forms_load() {
    let layout = tenant().at("org/config", "master", "zuul.yaml", FIRST_DESIGN).sound();
    let name = project("org/project");
    assert_eq!(layout.queue(&name, "gate").name.as_str(), "integrated");
    let graph = layout.freeze(&FreezeInput::change("post", &name, "master")).unwrap();
    assert_eq!(names(&graph), ["tarball", "pypi-upload"]);
    let upload = job(&graph, "pypi-upload");
    assert_eq!(
        upload.run[0].secrets["pypi-credentials"].data["username"]["!encrypted/pkcs1"],
        "o+7OscBFYWJh26rlLWpBIg=="
    );
    assert_eq!((upload.timeout_seconds, upload.other["auth-swift"][0].as_str()), (Some(1800), Some("logs")));
    let graph = layout.freeze(&FreezeInput::change("gate", &name, "master")).unwrap();
    assert_eq!(names(&graph), ["devstack-multinode"]);
    assert_eq!((graph.jobs[0].nodesets[0].nodes.len(), graph.jobs[0].required_projects.len()), (2, 2));
}

/// E1, L1.1: the image pipelines of the second design.
#[test]
fn the_second_designs_pipelines_load() {
    let text = "
- pipeline:
    name: image
    trigger:
      zuul:
        events:
          - image-build
      timer:
        time: 0 0 * * *
    success:
      zuul:
        image-built: true
        image-validated: true
- job: {name: base, parent: null, run: r}
- job: {name: build-debian, image-build-name: debian}
- job: {name: build-centos, image-build-name: centos}
- project: {name: org/project, image: {jobs: [build-debian, build-centos]}}
";
    let layout = tenant().file("org/config", text).sound();
    assert_eq!(layout.pipeline("image").unwrap().triggers.len(), 2);
    let name = project("org/project");
    let input = FreezeInput { image_name: Some("centos"), ..FreezeInput::change("image", &name, "master") };
    assert_eq!(names(&layout.freeze(&input).unwrap()), ["build-centos"]);
}

fn real_config() -> Option<PathBuf> {
    let given = std::env::var_os("SLUICE_TEST_DATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = given.unwrap_or(beside).join("real-config/openstack");
    folder.is_dir().then_some(folder)
}

fn files_below(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files_below(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// Z6.7: a real tenant of a thousand projects loads; what is refused is refused for what is absent.
#[test]
fn a_large_public_tenant_loads() {
    let Some(folder) = real_config() else {
        println!("SKIPPED: no ../shared/data/real-config beside the checkout and no SLUICE_TEST_DATA");
        return;
    };
    let connections = Connections::new()
        .with("gerrit", Driver::Gerrit, "opendev.org")
        .with("github", Driver::GitHub, "github.com")
        .with("googlesource", Driver::Git, "gerrit.googlesource.com")
        .with("opendaylight", Driver::Gerrit, "git.opendaylight.org")
        .with("gitlab", Driver::GitLab, "gitlab.com")
        .with("smtp", Driver::Smtp, "")
        .with("mqtt", Driver::Mqtt, "");
    let main = std::fs::read_to_string(folder.join("project-config/zuul/main.yaml")).unwrap();
    let (config, errors) = parse_main("zuul/main.yaml", &main, &connections);
    assert!(errors.is_empty(), "{errors:#?}");
    let tenant = config.tenants.iter().find(|tenant| tenant.name.as_str() == "openstack").unwrap().clone();
    let mut fragments = Vec::new();
    for repository in ["project-config", "openstack-zuul-jobs"] {
        let root = folder.join(repository);
        let name = ProjectName::new("opendev.org", &format!("openstack/{repository}"));
        let trust = tenant.project(&name).unwrap().trust;
        let mut paths = Vec::new();
        files_below(&root, &root, &mut paths);
        for path in config_paths(paths.iter().map(String::as_str), &[]) {
            let source = Source {
                connection: "gerrit".into(),
                project: name.clone(),
                branch: "master".into(),
                path: path.to_owned(),
                trust,
            };
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            fragments.push(Arc::new(parse(&SourceFile { source, text })));
        }
    }
    let syntax: Vec<_> = fragments.iter().flat_map(|fragment| fragment.errors()).collect();
    assert!(syntax.is_empty(), "{:#?}", syntax.iter().map(ToString::to_string).collect::<Vec<_>>());
    let layout = Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments });
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for error in layout.errors() {
        *kinds
            .entry(format!("{:?} {}", error.problem.kind, error.problem.attribute.clone().unwrap_or_default()))
            .or_default() += 1;
    }
    println!(
        "pipelines {}, jobs {}, refusals {}: {kinds:#?}",
        layout.pipelines().len(),
        layout.job_names().count(),
        layout.errors().len()
    );
    assert!(layout.pipelines().len() >= 10 && layout.job_names().count() > 150);
    let other: Vec<_> = layout.errors().iter().filter(|error| error.problem.kind != ProblemKind::UnknownName).collect();
    assert!(other.is_empty(), "{other:#?}");
    assert_eq!(Layout::from_bytes(&layout.to_bytes()).unwrap().id(), layout.id());
    assert_eq!(Trust::Config, layout.project("openstack/project-config").unwrap().trust);
}
