//! What the API shows about polls of plain git servers.

use crate::common::{each, json, story};
use sluice_config::connection::Driver;
use sluice_config::layout::{Layout, LayoutSources};
use sluice_model::ProjectName;
use sluice_records::layout::Layouts;
use sluice_records::seen_refs::{self, SeenRefs};
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;

/// C5, Z9.1: where the last poll of a project left something out, the tenant's list of errors has a
/// warning with the reason.
#[tokio::test]
async fn a_project_whose_tags_are_not_polled_is_listed_with_the_reason() {
    let story = story().await;
    let ports = story.world.ports();
    let live = Layouts::default().load_live(&ports, &"acme".into()).await.unwrap().unwrap();
    let mut tenant = live.layout.tenant().clone();
    for project in tenant.projects.iter_mut().filter(|one| one.name.name() == "org/lib") {
        project.connection = "plain".into();
    }
    let connections = live.layout.connections().clone().with("plain", Driver::Git, "github.com");
    let fragments = live.layout.fragments().to_vec();
    let sources = LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments };
    let layout = Layout::build(sources).to_bytes();
    let object = live.tenant.layout_object.unwrap();
    ports.objects.put(&object, layout.into(), PutMode::Always, "application/json").await.unwrap();
    let path = "/api/tenant/acme/config-errors?name=Incomplete%20Poll";
    assert_eq!(json(&story.api, path).await.as_array().unwrap().len(), 0);
    let why = "tags of github.com/org/lib are not polled, only branches";
    let seen = SeenRefs { problem: Some(why.to_owned()), ..SeenRefs::default() };
    let project = ProjectName::from("github.com/org/lib");
    let write = seen_refs::put(&project, &"plain".into(), &seen).unwrap();
    story.world.write_unchecked(write);
    let found = json(&story.api, path).await;
    assert_eq!(each(&found, "error"), [why]);
    assert_eq!(each(&found, "severity"), ["warning"]);
    assert_eq!(found[0]["source_context"]["project"], "org/lib");
}
