//! The last part of `sluice change explain`: what a change waits for in each pipeline, or why it is
//! not in the pipeline.

use super::show::{list, text};
use crate::api_client::{Client, api_path};
use crate::output::print_line;
use serde_json::Value;

/// Reads the state of a change in each pipeline of its project, which is given by its full name.
/// Without `project`, does so for every change of that number.
///
/// # Errors
/// When the API does not answer.
pub(super) async fn read(
    client: &Client,
    tenant: &str,
    number: u64,
    project: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let query = reasons_query(number, project);
    client.get(&format!("{}?{query}", api_path(&["tenant", tenant, "why"])?)).await
}

/// Returns whether the system has seen one of the changes. A change that was seen is known even if
/// its record is unreadable.
pub(super) fn is_known(changes: &[Value]) -> bool {
    changes.iter().any(|change| {
        change["seen"].as_bool().unwrap_or_default()
            || (change["status"].is_string() && change["seen_at"].is_string())
    })
}

/// Prints what changes wait for now in each pipeline, or why they are not in it. A change that the
/// system has not seen is printed too.
pub(super) fn print(changes: &[Value]) {
    for change in changes {
        let name = format!("{}#{}", text(change, "project"), change["number"]);
        match (change["status"].as_str(), change["seen_at"].as_str()) {
            (Some(status), Some(at)) => {
                print_line!(
                    "{name} \u{201c}{}\u{201d}: {status} on the forge at {at}",
                    text(change, "title")
                );
            }
            _ => print_line!("{name}"),
        }
        for problem in list(change, "problems") {
            print_line!("  INCOMPLETE:  {}", problem.as_str().unwrap_or_default());
        }
        if let Some(nowhere) = change["not_enqueued"].as_str() {
            print_line!("  not in any pipeline: {nowhere}");
        }
        for event in list(change, "deferred_events") {
            let event = event.as_str().unwrap_or_default();
            print_line!("  an event of it is deferred until a new configuration is live: {event}");
        }
        for pipeline in
            list(change, "pipelines").iter().filter(|pipeline| !list(pipeline, "now").is_empty())
        {
            print_line!("  in {}, now:", text(pipeline, "pipeline"));
            for wait in list(pipeline, "now") {
                print_line!("  - {}", wait.as_str().unwrap_or_default());
            }
        }
        for pipeline in
            list(change, "pipelines").iter().filter(|pipeline| pipeline["item"].is_null())
        {
            print_line!("  not in {}:", text(pipeline, "pipeline"));
            for why in list(pipeline, "why") {
                print_line!("  - {}", why.as_str().unwrap_or_default());
            }
        }
    }
}

/// Returns the percent-encoded query for the reasons of a change, without a question mark.
fn reasons_query(number: u64, project: Option<&str>) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .append_pair("change", &number.to_string())
        .extend_pairs(project.map(|project| ("project", project)))
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: a project's name is percent-encoded, so that it cannot add parameters.
    #[test]
    fn a_project_in_the_query_is_percent_encoded() {
        assert_eq!(reasons_query(7, None), "change=7");
        let query = reasons_query(7, Some("org/a&change=8"));
        assert_eq!(query, "change=7&project=org%2Fa%26change%3D8");
    }
}
