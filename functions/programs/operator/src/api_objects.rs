//! Lists and single objects of the API, shown as text or JSON: one table says for each noun where
//! it is and which columns its list has.

use crate::api_client::{Client, SystemArguments, api_path};
use crate::counted;
use crate::output::{OutputFormat, print_json, print_line};
use crate::selectors::TenantSelector;
use anyhow::ensure;
use clap::Args;
use serde_json::Value;
use sluice_config::plain;

/// The widest that a column of text gets, in characters; longer texts are shown in full, and only
/// shift the rest of their row.
const WIDTH_MAX: usize = 48;

/// A noun of the API.
#[derive(Debug)]
pub struct ApiNoun {
    /// The noun in messages, in the singular.
    noun: &'static str,
    /// The path of the list, below a tenant.
    list: &'static str,
    /// The path of an object, below a tenant and followed by its name; empty if there is none.
    object: &'static str,
    /// The columns of the list as text.
    columns: &'static [Column],
}

/// A column of a list.
#[derive(Debug)]
struct Column {
    title: &'static str,
    /// The members that may have the value, the first that is set first. `a.b` is a member of a
    /// member, also of each object of a list.
    members: &'static [&'static str],
}

/// Creates a column.
const fn column(title: &'static str, members: &'static [&'static str]) -> Column {
    Column { title, members }
}

/// Autohold requests.
pub const AUTOHOLDS: ApiNoun = ApiNoun {
    noun: "autohold request",
    list: "autohold",
    object: "autohold",
    columns: &[
        column("ID", &["id"]),
        column("PROJECT", &["project"]),
        column("JOB", &["job"]),
        column("REF", &["ref_filter"]),
        column("HELD", &["current_count"]),
        column("OF", &["max_count"]),
        column("REQUESTED BY", &["requested_by"]),
        column("HELD UNTIL", &["held_until"]),
        column("REASON", &["reason"]),
    ],
};

/// Builds.
pub const BUILDS: ApiNoun = ApiNoun {
    noun: "build",
    list: "builds",
    object: "build",
    columns: &[
        column("BUILD", &["uuid"]),
        column("JOB", &["job_name"]),
        column("RESULT", &["result"]),
        column("PROJECT", &["ref.project"]),
        column("CHANGE OR REF", &["ref.change", "ref.ref"]),
        column("PIPELINE", &["pipeline"]),
        column("STARTED", &["start_time"]),
        column("SECONDS", &["duration"]),
    ],
};

/// Buildsets.
pub const BUILDSETS: ApiNoun = ApiNoun {
    noun: "buildset",
    list: "buildsets",
    object: "buildset",
    columns: &[
        column("BUILDSET", &["uuid"]),
        column("RESULT", &["result"]),
        column("PROJECT", &["refs.project"]),
        column("CHANGE OR REF", &["refs.change", "refs.ref"]),
        column("PIPELINE", &["pipeline"]),
        column("STARTED", &["first_build_start_time", "event_timestamp"]),
    ],
};

/// System events of a tenant.
pub const EVENTS: ApiNoun = ApiNoun {
    noun: "system event",
    list: "system-events",
    object: "",
    columns: &[
        column("TIME", &["event_time"]),
        column("TYPE", &["event_type"]),
        column("DESCRIPTION", &["description"]),
    ],
};

/// The jobs that a change would run.
const FROZEN_JOBS: ApiNoun = ApiNoun {
    noun: "job",
    list: "",
    object: "",
    columns: &[column("JOB", &["name"]), column("AFTER", &["dependencies.name"])],
};

/// Jobs.
pub const JOBS: ApiNoun = ApiNoun {
    noun: "job",
    list: "jobs",
    object: "job",
    columns: &[
        column("JOB", &["name"]),
        column("PARENT", &["variants.parent"]),
        column("DESCRIPTION", &["description"]),
    ],
};

/// Labels.
pub const LABELS: ApiNoun = ApiNoun {
    noun: "label",
    list: "labels",
    object: "",
    columns: &[column("LABEL", &["name"]), column("CANONICAL NAME", &["canonical_name"])],
};

/// Nodes.
pub const NODES: ApiNoun = ApiNoun {
    noun: "node",
    list: "nodes",
    object: "",
    columns: &[
        column("NODE", &["uuid", "id"]),
        column("LABEL", &["type", "label"]),
        column("STATE", &["state"]),
        column("SINCE", &["state_time"]),
        column("PROVIDER", &["provider"]),
        column("CONNECTION", &["connection_type"]),
        column("COMMENT", &["comment"]),
    ],
};

/// Pipelines.
pub const PIPELINES: ApiNoun = ApiNoun {
    noun: "pipeline",
    list: "pipelines",
    object: "",
    columns: &[column("PIPELINE", &["name"]), column("TRIGGERS", &["triggers.driver"])],
};

/// Projects.
pub const PROJECTS: ApiNoun = ApiNoun {
    noun: "project",
    list: "projects",
    object: "project",
    columns: &[
        column("PROJECT", &["name"]),
        column("CONNECTION", &["connection_name"]),
        column("TYPE", &["type"]),
        column("CANONICAL NAME", &["canonical_name"]),
    ],
};

/// Requests for nodes.
pub const REQUESTS: ApiNoun = ApiNoun {
    noun: "node request",
    list: "nodeset-requests",
    object: "",
    columns: &[
        column("REQUEST", &["uuid"]),
        column("LABELS", &["labels"]),
        column("STATE", &["state"]),
        column("SINCE", &["request_time"]),
        column("PIPELINE", &["pipeline_name"]),
        column("JOB", &["job_name"]),
        column("BUILDSET", &["buildset_uuid"]),
    ],
};

/// Semaphores.
pub const SEMAPHORES: ApiNoun = ApiNoun {
    noun: "semaphore",
    list: "semaphores",
    object: "",
    columns: &[
        column("SEMAPHORE", &["name"]),
        column("HELD", &["holders.count"]),
        column("OF", &["max"]),
        column("GLOBAL", &["global"]),
        column("HOLDERS", &["holders.this_tenant.job_name"]),
    ],
};

/// Tenants.
const TENANTS: ApiNoun =
    ApiNoun { noun: "tenant", list: "", object: "", columns: &[column("TENANT", &["name"])] };

/// The part of a query that selects among the objects of a list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery(Vec<(&'static str, String)>);

impl ListQuery {
    /// Adds a parameter, if it has a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Option<&str>) -> Self {
        self.0.extend(value.map(|value| (name, value.to_owned())));
        self
    }

    /// Returns the query with its question mark, percent-encoded; empty without parameters.
    pub(super) fn text(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut query = url::form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        query.extend_pairs(&self.0);
        query.finish()
    }
}

/// Limits the length of a list.
#[derive(Debug, Clone, Args)]
pub struct PageArguments {
    /// Maximum number of rows
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    pub limit: u32,
    /// Number of rows to leave out
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub skip: u32,
}

impl PageArguments {
    fn add_to(&self, query: ListQuery) -> ListQuery {
        query
            .with("limit", Some(&self.limit.to_string()))
            .with("skip", Some(&self.skip.to_string()))
    }
}

/// Selects buildsets, or builds by what they share with their buildset.
#[derive(Debug, Clone, Args)]
pub struct BuildsetFilter {
    /// Only of this project; `*` is any text
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only of this pipeline; `*` is any text
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: Option<String>,
    /// Only of the change of this number
    #[arg(long, value_name = "NUMBER")]
    pub change: Option<String>,
    /// Only of this branch; `*` is any text
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Only of this patch set of a change
    #[arg(long, value_name = "PATCHSET")]
    pub patchset: Option<String>,
    /// Only of this full ref
    #[arg(long = "ref", value_name = "REF")]
    pub git_ref: Option<String>,
    /// Only of refs that were moved to this commit
    #[arg(long, value_name = "COMMIT")]
    pub newrev: Option<String>,
    /// Only with this result, such as SUCCESS
    #[arg(long, value_name = "RESULT")]
    pub result: Option<String>,
    /// How many rows are shown.
    #[command(flatten)]
    pub page: PageArguments,
}

impl BuildsetFilter {
    /// Returns the query that selects these buildsets.
    pub fn query(&self) -> ListQuery {
        let query = ListQuery::default()
            .with("project", self.project.as_deref())
            .with("pipeline", self.pipeline.as_deref())
            .with("change", self.change.as_deref())
            .with("branch", self.branch.as_deref())
            .with("patchset", self.patchset.as_deref())
            .with("ref", self.git_ref.as_deref())
            .with("newrev", self.newrev.as_deref())
            .with("result", self.result.as_deref());
        self.page.add_to(query)
    }
}

/// Selects builds.
#[derive(Debug, Clone, Args)]
pub struct BuildFilter {
    /// What builds share with their buildset.
    #[command(flatten)]
    pub of_buildset: BuildsetFilter,
    /// Only of this job; `*` is any text
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Only voting builds
    #[arg(long, conflicts_with = "non_voting")]
    pub voting: bool,
    /// Only builds that do not vote
    #[arg(long)]
    pub non_voting: bool,
    /// Only the last attempt of each job
    #[arg(long = "final")]
    pub is_final: bool,
    /// Only builds whose nodes are held
    #[arg(long)]
    pub held: bool,
}

impl BuildFilter {
    /// Returns the query that selects these builds.
    pub fn query(&self) -> ListQuery {
        let set = |is_set: bool, value: &'static str| is_set.then_some(value);
        let voting = set(self.voting, "true").or(set(self.non_voting, "false"));
        self.of_buildset
            .query()
            .with("job_name", self.job.as_deref())
            .with("voting", voting)
            .with("final", set(self.is_final, "true"))
            .with("held", set(self.held, "true"))
    }
}

/// Selects system events.
#[derive(Debug, Clone, Args)]
pub struct EventFilter {
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// How many rows are shown.
    #[command(flatten)]
    pub page: PageArguments,
}

impl EventFilter {
    /// Returns the query that selects these events.
    pub fn query(&self) -> ListQuery {
        self.page.add_to(ListQuery::default().with("event_type", self.event_type.as_deref()))
    }
}

/// Prints the objects of a tenant that a query selects, as a table or as the API's JSON.
///
/// # Errors
/// When the API does not answer, or the tenant is unknown.
pub async fn list(
    noun: &ApiNoun,
    selector: &TenantSelector,
    query: &ListQuery,
) -> anyhow::Result<()> {
    let client = selector.system.client()?;
    let tenant = client.tenant(selector.tenant.as_deref()).await?;
    let path = format!("{}{}", api_path(&["tenant", &tenant, noun.list])?, query.text());
    let rows: Vec<Value> = client.get(&path).await?;
    print_list(noun, rows, selector.system.format());
    Ok(())
}

/// Prints an object of a tenant by its name or id, as lines of `member: value` or as the API's
/// JSON.
///
/// # Errors
/// When the API does not answer, or the tenant has no such object.
pub async fn show(noun: &ApiNoun, selector: &TenantSelector, name: &str) -> anyhow::Result<()> {
    ensure!(!noun.object.is_empty(), "a {} cannot be shown alone", noun.noun);
    let client = selector.system.client()?;
    let tenant = client.tenant(selector.tenant.as_deref()).await?;
    let object: Value = client.get(&api_path(&["tenant", &tenant, noun.object, name])?).await?;
    print_object(&object, selector.system.format());
    Ok(())
}

/// Prints the tenants that the API lists.
///
/// # Errors
/// When the API does not answer.
pub async fn list_tenants(system: &SystemArguments) -> anyhow::Result<()> {
    let rows: Vec<Value> = system.client()?.get("tenants").await?;
    print_list(&TENANTS, rows, system.format());
    Ok(())
}

/// Prints the jobs at a path that a change would run, with the jobs after which each runs.
pub(super) async fn list_frozen_jobs(
    client: &Client,
    path: &str,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let rows: Vec<Value> = client.get(path).await?;
    print_list(&FROZEN_JOBS, rows, format);
    Ok(())
}

/// Prints a list.
fn print_list(noun: &ApiNoun, rows: Vec<Value>, format: OutputFormat) {
    if format == OutputFormat::Json {
        print_json(&Value::Array(rows));
        return;
    }
    if rows.is_empty() {
        print_line!("{}.", counted(0, noun.noun));
        return;
    }
    for line in table(noun.columns, &rows) {
        print_line!("{line}");
    }
}

/// Prints an object, or the objects of a list with an empty line between them.
pub(super) fn print_object(object: &Value, format: OutputFormat) {
    if format == OutputFormat::Json {
        print_json(object);
        return;
    }
    let all = match object {
        Value::Array(all) => all.as_slice(),
        one => std::slice::from_ref(one),
    };
    for (nth, one) in all.iter().enumerate() {
        if nth > 0 {
            print_line!("");
        }
        let mut lines = Vec::new();
        member_lines("", one, &mut lines);
        for line in lines {
            print_line!("{line}");
        }
    }
}

/// Returns the lines of a table: the titles and a line for each row.
fn table(columns: &[Column], rows: &[Value]) -> Vec<String> {
    let titles = columns.iter().map(|column| column.title.to_owned()).collect();
    let cells = |row: &Value| columns.iter().map(|column| cell(row, column)).collect();
    let all: Vec<Vec<String>> = std::iter::once(titles).chain(rows.iter().map(cells)).collect();
    let width = |nth: usize| {
        let lengths = all.iter().filter_map(|row| Some(row.get(nth)?.chars().count()));
        lengths.filter(|length| *length <= WIDTH_MAX).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

/// Returns the text of a column in a row: the first of its members that is set.
fn cell(row: &Value, column: &Column) -> String {
    let texts = column.members.iter().map(|path| {
        let mut texts = Vec::new();
        collect(row, path, &mut texts);
        texts.dedup();
        texts.join(", ")
    });
    let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    // A cell is one line.
    plain(text.replace(['\n', '\t'], " "))
}

/// Collects the texts of the values at a path of members; lists on the way are searched as a whole.
fn collect(value: &Value, path: &str, texts: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| collect(one, path, texts)),
        Value::Object(members) if !path.is_empty() => {
            let (first, rest) = path.split_once('.').unwrap_or((path, ""));
            if let Some(member) = members.get(first) {
                collect(member, rest, texts);
            }
        }
        value if path.is_empty() => texts.extend(scalar(value)),
        _ => {}
    }
}

/// Returns a value that is no list and no object as text; `None` for null and for others.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(true) => Some("yes".to_owned()),
        Value::Bool(false) => Some("no".to_owned()),
        Value::Number(number) => Some(number.to_string()),
    }
}

/// Adds the lines `member: value` of a value; those of a member's members begin with its name. What
/// is null or empty has no line.
fn member_lines(name: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let separator = if name.is_empty() { "" } else { "." };
                member_lines(&format!("{name}{separator}{member}"), value, lines);
            }
        }
        Value::Array(all) => {
            let scalars: Vec<String> = all.iter().filter_map(scalar).collect();
            if scalars.len() == all.len() {
                if !all.is_empty() {
                    lines.push(format!("{name}: {}", scalars.join(", ")));
                }
                return;
            }
            for (nth, one) in all.iter().enumerate() {
                member_lines(&format!("{name}.{nth}"), one, lines);
            }
        }
        value => lines.extend(scalar(value).map(|text| format!("{name}: {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z9.1: a list is a table whose columns fit its content, in the order of the API.
    #[test]
    fn a_list_is_a_table() {
        let rows = [
            json!({"uuid": "b1", "job_name": "unit", "result": null,
                "ref": {"project": "org/one", "change": 7}, "pipeline": "gate", "duration": 3.5}),
            json!({"uuid": "b2", "job_name": "a\u{1b}[2Jb", "result": "SUCCESS",
                "ref": {"project": "org/one", "change": null, "ref": "refs/heads/main"}}),
        ];
        let lines = table(BUILDS.columns, &rows);
        assert_eq!(
            lines,
            [
                "BUILD  JOB          RESULT   PROJECT  CHANGE OR REF    PIPELINE  STARTED  SECONDS",
                "b1     unit                  org/one  7                gate               3.5",
                "b2     a\\u{1b}[2Jb  SUCCESS  org/one  refs/heads/main",
            ]
        );
        let row = json!({"refs": [{"project": "a"}, {"project": "b"}], "labels": ["x", "y"]});
        assert_eq!(cell(&row, &column("", &["refs.project"])), "a, b");
        assert_eq!(cell(&row, &column("", &["none", "labels"])), "x, y");
    }

    /// Z9.1: an object shows all of its members that have a value.
    #[test]
    fn an_object_is_shown_with_all_its_members() {
        let mut lines = Vec::new();
        let object = json!({"id": "1", "none": null, "held": true, "empty": [], "labels": ["a", "b"],
            "nodes": [{"build": "b1", "nodes": ["n1", "n2"]}]});
        member_lines("", &object, &mut lines);
        assert_eq!(
            lines,
            ["id: 1", "held: yes", "labels: a, b", "nodes.0.build: b1", "nodes.0.nodes: n1, n2"]
        );
    }

    /// Z9.1: filters are the parameters of the API, percent-encoded.
    #[test]
    fn filters_are_the_parameters_of_the_api() {
        assert_eq!(ListQuery::default().with("a", None).text(), "");
        let query =
            ListQuery::default().with("project", Some("org/one&x")).with("limit", Some("5"));
        assert_eq!(query.text(), "?project=org%2Fone%26x&limit=5");
    }
}
