//! What a change waits for in each pipeline, and why it is not in those that it is not in: the end
//! of `sluice explain`.

use super::show::{Client, list, text};
use crate::say::say;
use serde_json::Value;

/// Says why a change is not in the pipelines that its project takes part in. Returns whether
/// anything is known of it.
///
/// # Errors
/// When the API does not answer.
pub async fn not_there(
    client: &Client,
    tenant: &str,
    number: u64,
    project: Option<&str>,
) -> anyhow::Result<bool> {
    let project_part = project.map(|project| format!("&project={project}")).unwrap_or_default();
    let changes: Vec<Value> =
        client.get(&format!("tenant/{tenant}/why?change={number}{project_part}")).await?;
    let mut is_known = false;
    for change in &changes {
        let name = format!("{}#{}", text(change, "project"), change["number"]);
        // A change that was seen is known, also where what is known of it cannot be read.
        is_known |= change["seen"].as_bool().unwrap_or_default();
        match (change["status"].as_str(), change["seen_at"].as_str()) {
            (Some(status), Some(at)) => {
                is_known = true;
                say!(
                    "{name} \u{201c}{}\u{201d}: {status}, as its forge showed it at {at}",
                    text(change, "title")
                );
            }
            _ => say!("{name}"),
        }
        for trouble in list(change, "troubles") {
            say!("  NOT TOLD WHOLE: {}", trouble.as_str().unwrap_or_default());
        }
        if let Some(nowhere) = change["nowhere"].as_str() {
            say!("  is nowhere: {nowhere}");
        }
        for event in list(change, "kept") {
            let event = event.as_str().unwrap_or_default();
            say!(
                "  an event of it waits for configuration that is on its way, or for one before it: {event}"
            );
        }
        for pipeline in
            list(change, "pipelines").iter().filter(|pipeline| !list(pipeline, "now").is_empty())
        {
            say!("  is in {}, and now:", text(pipeline, "pipeline"));
            for waits in list(pipeline, "now") {
                say!("  - {}", waits.as_str().unwrap_or_default());
            }
        }
        for pipeline in
            list(change, "pipelines").iter().filter(|pipeline| pipeline["item"].is_null())
        {
            say!("  is not in {}:", text(pipeline, "pipeline"));
            for why in list(pipeline, "why") {
                say!("  - {}", why.as_str().unwrap_or_default());
            }
        }
    }
    Ok(is_known)
}
