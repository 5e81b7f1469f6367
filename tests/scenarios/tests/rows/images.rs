//! What is asked of images: an event that names one runs its jobs only, for the branch that defines
//! it.

use super::operators::{ask_as, put_in};
use super::refs::orders;
use super::{MAIN, judge};
use sluice_model::ProjectName;
use sluice_model::change::ImagesAsked;
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

/// What `sluice image build` asks for, or somebody who knows what images there are.
fn asked(what: ImageEvent, images: ImagesAsked) -> ForgeEvent {
    let kind = EventKind::Image { tenant: "demo".into(), what, branch: "main".into(), images };
    let project = ProjectName::new("forge.test", "org/config");
    ForgeEvent { connection: "github".into(), project, sender: "jo".to_owned(), kind }
}

fn to_build(image: &str) -> ForgeEvent {
    asked(ImageEvent::ImageBuild, ImagesAsked::one(image))
}

fn row(image: &str) -> String {
    format!("images build-{image} refs/heads/main for image {image}")
}

/// Returns how many records have such a sort key.
fn count(site: &Site, sort: &str) -> usize {
    site.world.records().iter().filter(|record| record.key.sort.starts_with(sort)).count()
}

fn left_over(site: &Site) -> Vec<String> {
    site.ending(&["org/config"], &[]).left_over
}

/// L1.1, L1.2: nothing is enqueued in a pipeline that no such event starts, whatever of the image
/// runs there; the timer runs all.
#[test]
fn an_event_for_one_image_runs_its_job_only_and_a_timer_runs_all() {
    for twice in [false, true] {
        let mut site = site("independent");
        site.twice = twice;
        let told = ask_as(&mut site, to_build("debian")).unwrap();
        assert_eq!(
            told,
            [
                "org/config refs/heads/main for image debian may enter pipeline images of tenant demo"
            ]
        );
        assert_eq!(site.builds(), [row("debian")]);
        let (order, _) = &orders(&site)[0];
        assert_eq!(order.change.key.images().unwrap(), &ImagesAsked::one("debian"));
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

/// L1.2: no more than once while one is under way; another image's waits for nothing, and
/// afterwards it may be asked for again.
#[test]
fn an_image_that_is_being_built_is_not_built_a_second_time() {
    let mut site = site("independent");
    site.held.insert("build-debian".to_owned());
    put_in(&site, to_build("debian"));
    site.run_until(|site| site.running() == ["build-debian"]);
    put_in(&site, to_build("debian"));
    put_in(&site, to_build("ubuntu"));
    // Events of one project are handled in their order: once the last one's job runs, the one
    // before it has arrived.
    site.run_until(|site| site.builds().len() == 2 && count(site, "arrival#") == 0);
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), [row("debian"), row("ubuntu")]);
    ask_as(&mut site, to_build("debian")).unwrap();
    assert_eq!(site.builds(), [row("debian"), row("debian"), row("ubuntu")]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// L1.1: of several that one event names all are built, by one item.
#[test]
fn an_event_may_name_several_images() {
    let mut site = site("independent");
    let images = ImagesAsked {
        names: vec!["arch".to_owned(), "ubuntu".to_owned()],
        ..ImagesAsked::default()
    };
    ask_as(&mut site, asked(ImageEvent::ImageBuild, images)).unwrap();
    let local = "refs/heads/main for image arch, ubuntu";
    assert_eq!(
        site.builds(),
        [format!("images build-arch {local}"), format!("images build-ubuntu {local}")]
    );
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// L1.2: where only the newest of a branch counts, one image's build is no newer one of another's.
#[test]
fn images_do_not_take_each_others_place_where_only_the_newest_counts() {
    let mut site = site("supercedent");
    site.held.insert("build-debian".to_owned());
    put_in(&site, to_build("debian"));
    site.run_until(|site| site.running() == ["build-debian"]);
    put_in(&site, to_build("ubuntu"));
    put_in(&site, to_build("arch"));
    site.run_until(|site| count(site, "item#") == 3);
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), [row("arch"), row("debian"), row("ubuntu")]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// L1.5, L1.6: whoever asks hears why nothing comes of it.
#[test]
fn what_is_asked_of_images_and_starts_nothing_says_why() {
    let mut site = site("independent");
    let too_many = ImagesAsked { names: vec!["debian".to_owned(); 21], ..ImagesAsked::default() };
    for (event, word) in [
        (
            asked(ImageEvent::ImageValidate, ImagesAsked::one("debian")),
            "none has image-validate among its triggers",
        ),
        (
            asked(ImageEvent::ImageDelete, ImagesAsked::one("debian")),
            "none has image-delete among its triggers",
        ),
        (asked(ImageEvent::ImageBuild, ImagesAsked::default()), "names at least one"),
        (asked(ImageEvent::ImageBuild, too_many), "20 at most"),
        (
            ForgeEvent { project: ProjectName::new("forge.test", "org/one"), ..to_build("debian") },
            "none has image-build",
        ),
        (
            ForgeEvent {
                project: ProjectName::new("forge.test", "org/none"),
                ..to_build("debian")
            },
            "does not know",
        ),
    ] {
        let refused = ask_as(&mut site, event).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(site.builds(), Vec::<String>::new());
}
