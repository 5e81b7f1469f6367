//! Image events: an event that names an image runs the jobs of that image only, for the branch that
//! defines it.

use super::operator_enqueues::{ask_as, put_in};
use super::ref_updates::orders;
use super::{MAIN, judge};
use sluice_model::ProjectName;
use sluice_model::change::ImageSelection;
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent};
use sluice_scenarios::Site;

const CONFIG: &str = r"
- pipeline:
    name: images
    manager: independent
    trigger:
      zuul: [{event: image-build}]
      timer: [{time: '0 2 * * *'}]
- pipeline:
    name: nightly
    manager: independent
    trigger: {timer: [{time: '0 3 * * *'}]}
- image: {name: debian, type: zuul}
- image: {name: ubuntu, type: zuul}
- image: {name: arch, type: zuul}
- job: {name: base, parent: null}
- job: {name: build-debian, image-build-name: debian, run: playbooks/any.yaml}
- job: {name: build-ubuntu, image-build-name: ubuntu, run: playbooks/any.yaml}
- job: {name: build-arch, image-build-name: arch, run: playbooks/any.yaml}
- job: {name: tidy, run: playbooks/any.yaml}
- project:
    images: {jobs: [build-debian, build-ubuntu, build-arch, tidy]}
    nightly: {jobs: [build-debian]}
";

const DAY_SECONDS: u64 = 86_400;

fn site(manager: &str) -> Site {
    let config = CONFIG.replacen("manager: independent", &format!("manager: {manager}"), 1);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config), ("playbooks/any.yaml", "[]")]),
        ("org/one", &[("README", "nothing yet")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// Returns the event of `sluice image build`, or of another client that names images.
fn image_event(what: ImageEvent, images: ImageSelection) -> ForgeEvent {
    let kind =
        EventKind::Image { tenant: "demo".into(), event: what, branch: "main".into(), images };
    let project = ProjectName::new("forge.test", "org/config");
    ForgeEvent { connection: "github".into(), project, sender: "jo".to_owned(), kind }
}

fn build_request(image: &str) -> ForgeEvent {
    image_event(ImageEvent::ImageBuild, ImageSelection::one(image))
}

fn row(image: &str) -> String {
    format!("images build-{image} refs/heads/main for image {image}")
}

/// Returns the number of records with this sort key.
fn count(site: &Site, sort: &str) -> usize {
    site.world.records().iter().filter(|record| record.key.sort.starts_with(sort)).count()
}

fn left_over(site: &Site) -> Vec<String> {
    site.ending(&["org/config"], &[]).left_over
}

/// L1.1, L1.2: an image event enqueues nothing in a pipeline without a matching trigger, even if
/// that pipeline runs the image's job. The timer runs all image jobs.
#[test]
fn an_event_for_one_image_runs_its_job_only_and_a_timer_runs_all() {
    for twice in [false, true] {
        let mut site = site("independent");
        site.twice = twice;
        let effects = ask_as(&mut site, build_request("debian")).unwrap();
        assert_eq!(
            effects,
            [
                "org/config refs/heads/main for image debian may enter pipeline images of tenant demo"
            ]
        );
        assert_eq!(site.builds(), [row("debian")]);
        let (order, _) = &orders(&site)[0];
        assert_eq!(order.change.key.images().unwrap(), &ImageSelection::one("debian"));
        assert_eq!(order.change.branch.as_str(), "main");
        site.pass(DAY_SECONDS);
        assert_eq!(
            site.builds(),
            [
                "images build-arch refs/heads/main".to_owned(),
                "images build-debian refs/heads/main".to_owned(),
                row("debian"),
                "images build-ubuntu refs/heads/main".to_owned(),
                "images tidy refs/heads/main".to_owned(),
                "nightly build-debian refs/heads/main".to_owned(),
            ]
        );
        assert_eq!(left_over(&site), Vec::<String>::new());
    }
}

/// L1.2: one image is built at most once at a time. Other images do not wait for it, and it may be
/// requested again afterwards.
#[test]
fn an_image_that_is_being_built_is_not_built_a_second_time() {
    let mut site = site("independent");
    site.held.insert("build-debian".to_owned());
    put_in(&site, build_request("debian"));
    site.run_until(|site| site.running() == ["build-debian"]);
    put_in(&site, build_request("debian"));
    put_in(&site, build_request("ubuntu"));
    // Events of one project are handled in order: once the job of the last event runs, the
    // previous event has been handled.
    site.run_until(|site| site.builds().len() == 2 && count(site, "inbox#") == 0);
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), [row("debian"), row("ubuntu")]);
    ask_as(&mut site, build_request("debian")).unwrap();
    assert_eq!(site.builds(), [row("debian"), row("debian"), row("ubuntu")]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// L1.1: one event that names several images builds all of them in one item.
#[test]
fn an_event_may_name_several_images() {
    let mut site = site("independent");
    let images = ImageSelection {
        names: vec!["arch".to_owned(), "ubuntu".to_owned()],
        ..ImageSelection::default()
    };
    ask_as(&mut site, image_event(ImageEvent::ImageBuild, images)).unwrap();
    let local = "refs/heads/main for image arch, ubuntu";
    assert_eq!(
        site.builds(),
        [format!("images build-arch {local}"), format!("images build-ubuntu {local}")]
    );
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// L1.2: in a pipeline where only the newest item of a branch counts, a build of one image does not
/// supersede another image's.
#[test]
fn a_build_of_one_image_does_not_supersede_another_image() {
    let mut site = site("supercedent");
    site.held.insert("build-debian".to_owned());
    put_in(&site, build_request("debian"));
    site.run_until(|site| site.running() == ["build-debian"]);
    put_in(&site, build_request("ubuntu"));
    put_in(&site, build_request("arch"));
    site.run_until(|site| count(site, "item#") == 3);
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), [row("arch"), row("debian"), row("ubuntu")]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// L1.5, L1.6: the client gets the reason why nothing was started.
#[test]
fn an_image_request_without_effect_returns_the_reason() {
    let mut site = site("independent");
    let too_many =
        ImageSelection { names: vec!["debian".to_owned(); 21], ..ImageSelection::default() };
    for (event, word) in [
        (
            image_event(ImageEvent::ImageValidate, ImageSelection::one("debian")),
            "has the trigger image-validate",
        ),
        (
            image_event(ImageEvent::ImageDelete, ImageSelection::one("debian")),
            "has the trigger image-delete",
        ),
        (image_event(ImageEvent::ImageBuild, ImageSelection::default()), "between 1 and 20"),
        (image_event(ImageEvent::ImageBuild, too_many), "between 1 and 20"),
        (
            ForgeEvent {
                project: ProjectName::new("forge.test", "org/one"),
                ..build_request("debian")
            },
            "no pipeline of org/one in tenant demo has the trigger image-build",
        ),
        (
            ForgeEvent {
                project: ProjectName::new("forge.test", "org/none"),
                ..build_request("debian")
            },
            "does not have the project forge.test/org/none",
        ),
    ] {
        let refused = ask_as(&mut site, event).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(site.builds(), Vec::<String>::new());
}
