//! The example configurations of the founding documents.

use crate::common::*;
use sluice_config::FreezeInput;

/// E1: the job examples of the first design load unchanged.
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
    assert_eq!(
        (upload.timeout_seconds, upload.run[0].containers.as_slice()),
        (Some(1800), ["logs".to_owned()].as_slice())
    );
    let graph = layout.freeze(&FreezeInput::change("gate", &name, "master")).unwrap();
    assert_eq!(names(&graph), ["devstack-multinode"]);
    assert_eq!(
        (graph.jobs[0].nodesets[0].nodes.len(), graph.jobs[0].required_projects.len()),
        (2, 2)
    );
}

/// E1, L1.1, in part: the image pipelines of the second design. An image event runs only the jobs
/// of its images.
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
- image: {name: debian, type: zuul}
- image: {name: centos, type: zuul}
- image: {name: arch, type: zuul}
- job: {name: build-debian, image-build-name: debian}
- job: {name: build-centos, image-build-name: centos}
- project: {name: org/project, image: {jobs: [build-debian, build-centos, noop]}}
- project: {name: org/config, image: {jobs: [build-centos, noop]}}
";
    let layout = tenant().file("org/config", text).sound();
    assert_eq!(layout.pipeline("image").unwrap().triggers.len(), 2);
    let name = project("org/project");
    let centos = ["centos".to_owned()];
    let input =
        FreezeInput { image_names: &centos, ..FreezeInput::change("image", &name, "master") };
    assert_eq!(names(&layout.freeze(&input).unwrap()), ["build-centos"]);
    let both = ["centos".to_owned(), "debian".to_owned()];
    let rows: [(&[String], &[&str]); 2] = [
        (&both, &["build-debian", "build-centos"]),
        (&[], &["build-debian", "build-centos", "noop"]),
    ];
    for (all, expected) in rows {
        let input = FreezeInput { image_names: all, ..input };
        assert_eq!(names(&layout.freeze(&input).unwrap()), expected);
    }
    let home = layout.image_to_build("arch").unwrap();
    assert_eq!(layout.why_image_is_not_built(home, "centos"), None);
    let why = layout.why_image_is_not_built(home, "arch").unwrap();
    assert_eq!(
        why,
        "org/config lists no job with \"image-build-name: arch\" in pipeline image; add one"
    );
}
