//! `sluice explain`: what was decided about a change or a ref, and why; of one job, which
//! definitions made it what it is.

use super::queue::whole_ref;
use super::show::{Asked, Client, change_name, job_word, list, text, told};
use super::why;
use crate::say::say;
use anyhow::bail;
use serde_json::Value;

/// What is to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A change by its number; without a project, of whichever has one of that number.
    Change {
        /// The project, by its name or the last part of it.
        project: Option<String>,
        /// The number.
        number: u64,
    },
    /// A branch, a tag or another ref of a project.
    Ref {
        /// The project, by its name or the last part of it.
        project: String,
        /// The whole ref.
        git_ref: String,
    },
}

impl About {
    /// Reads what was typed: `org/project#7`, `7`, or a project with the name of its ref.
    /// `org/project refs/heads/main`, as `sluice status` shows a ref, is one, too.
    ///
    /// # Errors
    /// When it is neither.
    pub fn read(named: &str, git_ref: Option<&str>) -> anyhow::Result<Self> {
        let shown = named.split_once(' ').filter(|(_, git_ref)| git_ref.starts_with("refs/"));
        if let Some((project, git_ref)) = git_ref.map(|git_ref| (named, git_ref)).or(shown) {
            if project.is_empty() || project.contains('#') {
                bail!(
                    "{project:?} is not a project: with --ref write its name alone, as in `org/project --ref main`"
                );
            }
            return Ok(Self::Ref { project: project.to_owned(), git_ref: whole_ref(git_ref) });
        }
        let (project, number) = match named.rsplit_once('#') {
            Some((project, number)) => (Some(project.to_owned()), number),
            None => (None, named),
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let Some(number) = number.parse().ok().filter(|_| is_number) else {
            bail!(
                "{named:?} is not a change: write `org/project#7`, or its number alone; for a branch or tag `org/project --ref main`"
            );
        };
        Ok(Self::Change { project, number })
    }
}

/// Says why a change or ref is where it is; of one job, why it is as it is.
///
/// # Errors
/// When the API does not answer or does not know the change or ref, or nowhere the job.
pub async fn explain(
    asked: &Asked,
    about: &About,
    tenant: Option<&str>,
    job: Option<&str>,
) -> anyhow::Result<()> {
    let client = Client::of(asked)?;
    let tenant = client.tenant(tenant).await?;
    let (named, what) = match about {
        About::Change { project, number } => (project.as_deref(), ("change", number.to_string())),
        About::Ref { project, git_ref } => (Some(project.as_str()), ("ref", git_ref.clone())),
    };
    let project = match named {
        Some(project) if !project.contains('/') => {
            Some(full_name(&client, &tenant, project).await?)
        }
        other => other.map(str::to_owned),
    };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([what, ("limit", "10".to_owned())])
        .extend_pairs(project.iter().map(|project| ("project", project)))
        .finish();
    let sets: Vec<Value> = client.get(&format!("tenant/{tenant}/buildsets?{query}")).await?;
    if sets.is_empty() {
        return unseen(&client, &tenant, about, project.as_deref()).await;
    }
    if let Some(job) = job {
        return explain_job(&client, &tenant, &sets, job).await;
    }
    for set in sets.iter().rev() {
        let item: Value =
            client.get(&format!("tenant/{tenant}/item/{}", text(set, "uuid"))).await?;
        say!("{} in {}{}", change_name(&item["change"]), text(&item, "pipeline"), place(&item));
        for reason in list(&item, "reasons") {
            say!("  - {}", reason.as_str().unwrap_or_default());
        }
        for job in list(&item, "jobs") {
            say!(
                "  {:<14} {:<10} {}",
                text(job, "name"),
                job_word(job),
                job["log_url"].as_str().unwrap_or_default()
            );
            if let Some(why) = told(job) {
                say!("  {:<14} {why}", "");
            }
        }
    }
    if let About::Change { number, .. } = about {
        why::not_there(&client, &tenant, *number, project.as_deref()).await?;
    }
    Ok(())
}

/// Tells of what was in no queue: of a change, by what became of its events.
async fn unseen(
    client: &Client,
    tenant: &str,
    about: &About,
    project: Option<&str>,
) -> anyhow::Result<()> {
    let name = project.unwrap_or_default();
    match about {
        About::Change { number, .. } => {
            if why::not_there(client, tenant, *number, project).await? {
                return Ok(());
            }
            let change = project.map_or_else(
                || format!("a change {number}"),
                |project| format!("{project}#{number}"),
            );
            bail!(
                "tenant {tenant} has not seen {change}: was its webhook sent, and is its project in the tenant? (`sluice tenant show {tenant}`)"
            )
        }
        About::Ref { git_ref, .. } => {
            // A misprinted project is told as such.
            let _: Value = client.get(&format!("tenant/{tenant}/project/{name}")).await?;
            bail!(
                "{git_ref} of {name} was in no pipeline of tenant {tenant}: a push enters those whose trigger takes it and in which the project takes part (`sluice tenant show {tenant}`); by hand it does with `sluice enqueue-ref --project {name} --ref {git_ref} --pipeline PIPELINE`"
            )
        }
    }
}

/// Says of one job, for each of a change's stays in pipelines, which definitions made it what it
/// is.
async fn explain_job(
    client: &Client,
    tenant: &str,
    sets: &[Value],
    job: &str,
) -> anyhow::Result<()> {
    // As one part of a path.
    let part: String = url::form_urlencoded::byte_serialize(job.as_bytes())
        .collect::<String>()
        .replace('+', "%20");
    let mut refused = Vec::new();
    for set in sets.iter().rev() {
        let id = text(set, "uuid");
        let told: Value =
            match client.get(&format!("tenant/{tenant}/item/{id}/explain/{part}")).await {
                Ok(told) => told,
                Err(error) => {
                    refused.push(error);
                    continue;
                }
            };
        say!("{job} in {}", text(&told, "pipeline"));
        for note in list(&told, "notes") {
            say!("  {}", note.as_str().unwrap_or_default());
        }
        say!("{}", text(&told, "text").trim_end());
        if !list(&told, "applied").is_empty() {
            say!("  as it was frozen, these were applied in this order:");
        }
        for applied in list(&told, "applied") {
            say!("    {}", applied.as_str().unwrap_or_default());
        }
    }
    match refused.pop() {
        // A pipeline where the job is not listed says nothing of it, as long as another does.
        Some(error) if refused.len() + 1 == sets.len() => Err(error),
        _ => Ok(()),
    }
}

/// Returns the project whose name ends like this: people know `org/one` as `one`.
async fn full_name(client: &Client, tenant: &str, last: &str) -> anyhow::Result<String> {
    let projects: Vec<Value> = client.get(&format!("tenant/{tenant}/projects")).await?;
    let names: Vec<&str> = projects.iter().map(|project| text(project, "name")).collect();
    let found: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| *name == last || name.ends_with(&format!("/{last}")))
        .collect();
    match found.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => bail!("tenant {tenant} has no project {last}; it has: {}", names.join(", ")),
        many => bail!("several projects are named {last}: {}", many.join(", ")),
    }
}

fn place(item: &Value) -> String {
    match (item["end"]["result"].as_str(), item["position"].as_u64()) {
        (Some(result), _) => format!(": {result}"),
        (None, Some(position)) => format!(", position {} of {}", position + 1, text(item, "queue")),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z1.6: whatever stands in a queue can be named as it is shown there.
    #[test]
    fn a_change_is_named_by_its_number_and_a_ref_by_its_project() {
        let change = |project: Option<&str>| About::Change {
            project: project.map(str::to_owned),
            number: 7,
        };
        assert_eq!(About::read("org/one#7", None).unwrap(), change(Some("org/one")));
        assert_eq!(About::read("7", None).unwrap(), change(None));
        let git_ref = |git_ref: &str| About::Ref {
            project: "org/one".to_owned(),
            git_ref: git_ref.to_owned(),
        };
        assert_eq!(About::read("org/one", Some("main")).unwrap(), git_ref("refs/heads/main"));
        assert_eq!(
            About::read("org/one", Some("refs/tags/1.0")).unwrap(),
            git_ref("refs/tags/1.0")
        );
        let shown = change_name(
            &serde_json::json!({"project": "org/one", "number": null, "ref": "refs/heads/main"}),
        );
        assert_eq!(About::read(&shown, None).unwrap(), git_ref("refs/heads/main"));
        for (named, with_ref) in [
            ("org/one", None),
            ("org/one#", None),
            ("org/one#x", None),
            ("org/one#7", Some("main")),
        ] {
            let refused = About::read(named, with_ref).unwrap_err().to_string();
            assert!(refused.contains("org/project --ref main"), "{refused}");
        }
    }
}
