//! Builds the `zuul` dictionary for playbooks, with Zuul's names and types (Z5.5, Z7.1).

use crate::job::JobAttempt;
use crate::jobdir::Jobdir;
use crate::settings::AnsibleSettings;
use crate::workspace::{PlacedRepository, src_dir};
use base64::Engine;
use serde_json::{Map, Value, json};
use sluice_model::ProjectName;
use sluice_model::build::SpeculativeChange;
use sluice_model::change::{ChangeId, ChangeKey};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::job::{IncludeVars, VarsSource};

/// The keys of the item's own entry that are also keys of the dictionary itself.
const OWN_ITEM_KEYS: [&str; 11] = [
    "project",
    "branch",
    "change",
    "patchset",
    "change_url",
    "change_message",
    "topic",
    "commit_id",
    "oldrev",
    "newrev",
    "tag",
];

/// Returns the `zuul` dictionary that every playbook of the build sees. `placed` are the
/// repositories in the workspace, and `playbooks` becomes its `playbook_context`. Keys that do not
/// apply, such as `change` for a ref, are left out; a few, such as `change_url`, are null instead.
/// Its texts are not marked as unsafe yet; see [`mark_unsafe`].
pub fn zuul(
    job: &JobAttempt<'_>,
    placed: &[PlacedRepository],
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    playbooks: Value,
) -> Map<String, Value> {
    let (order, frozen) = (job.order, job.job);
    let own = job.speculation.changes.iter().find(|change| change.change == order.change);
    let text = |path: &std::path::Path| path.display().to_string();
    let this = own.map_or_else(|| item(job, &bare_change(job)), |change| item(job, change));
    let landed = with_merge_commit(&this, order.merge_commit.as_ref());
    let buildset_refs = members(job, &order.bundle, &landed);
    let build_refs = members(job, &order.shared_with, &landed);
    let mut zuul = to_map(json!({
        "build": order.build,
        "buildset": order.item,
        "ref": order.change.github_ref(),
        "pipeline": order.queue.pipeline,
        "job": frozen.name,
        "tenant": order.queue.tenant,
        "event_id": order.event_id,
        "post_review": order.post_review,
        "voting": order.voting,
        "attempts": order.attempt,
        "max_attempts": order.max_attempts,
        "pre_timeout": frozen.pre_timeout_seconds,
        "timeout": frozen.timeout_seconds,
        "post_timeout": frozen.post_timeout_seconds,
        "jobtags": frozen.tags,
        "child_jobs": job.child_jobs,
        "ansible_version": frozen.ansible_version(),
        "change_url": null,
        "projects": placed.iter().map(|repository| (repository.project.as_str().to_owned(), repository_entry(repository))).collect::<Map<_, _>>(),
        "items": job.speculation.changes.iter().map(|change| item(job, change)).collect::<Vec<_>>(),
        "buildset_refs": buildset_refs,
        "build_refs": build_refs,
        "workspace_checkout": frozen.run_time.workspace_checkout,
        "deduplicate": frozen.run_time.deduplicate,
        "image_build_name": frozen.image_build_name,
        "include_vars": frozen.run_time.include_vars.iter().map(include_vars).collect::<Vec<_>>(),
        "_inheritance_path": frozen.inheritance,
        "resources": {},
        "executor": {
            "hostname": settings.hostname,
            "src_root": text(&jobdir.src),
            "log_root": text(&jobdir.logs),
            "work_root": text(&jobdir.work),
            "result_data_file": text(&jobdir.results),
            "inventory_file": text(&jobdir.ansible.join("inventory.yaml")),
        },
        "playbook_context": playbooks,
    }));
    // Keys that an item does not have stay undefined, because jobs test `zuul.change is defined`.
    zuul.extend(
        OWN_ITEM_KEYS.into_iter().filter_map(|key| Some((key.to_owned(), this.get(key).cloned()?))),
    );
    if order.change.key.number().is_some() {
        let message = own.map(full_message).unwrap_or_default();
        zuul.insert(
            "message".to_owned(),
            json!(base64::engine::general_purpose::STANDARD.encode(message)),
        );
    }
    if !job.inherited.artifacts.is_empty() {
        zuul.insert("artifacts".to_owned(), Value::Array(job.inherited.artifacts.clone()));
    }
    if let Some(branch) = &frozen.override_checkout {
        zuul.insert("override_checkout".to_owned(), json!(branch));
    }
    if frozen.image_build_name.is_some() {
        zuul.insert("image_formats".to_owned(), json!(frozen.run_time.image_formats));
    }
    if let Some(root) = &frozen.run_time.workspace {
        zuul.insert("workspace_root".to_owned(), json!(root));
    }
    zuul
}

/// Returns the entry of a variable file in Zuul's format. `project_name` is null for a file of the
/// change's own project.
fn include_vars(file: &IncludeVars) -> Value {
    let project = match &file.source {
        VarsSource::Project(found) => json!(found.project),
        VarsSource::OfChange => Value::Null,
    };
    json!({ "name": file.name, "project_name": project, "required": file.required, "use_ref": file.use_ref })
}

/// The key of the JSON object in which Ansible reads its only value as unsafe.
pub const UNSAFE: &str = "__ansible_unsafe";

/// Returns `value` such that Ansible reads all its texts and keys, at any depth, as unsafe: an
/// object with the key [`UNSAFE`]. Numbers, booleans and null stay as they are.
///
/// Ansible expands no unsafe text, nor what a playbook makes of it. Texts by authors of changes,
/// like the title `{{ lookup('env', 'HOME') }}`, and frozen variables must not be expanded. All are
/// marked, not only those with a template: a text that begins with `#jinja2:` says itself what its
/// templates look like, and a filter can make a template out of a text that is none.
pub fn mark_unsafe(value: Value) -> Value {
    match value {
        Value::String(_) | Value::Array(_) | Value::Object(_) => json!({ UNSAFE: value }),
        other => other,
    }
}

/// Returns the variables `vars` with each value marked as by [`mark_unsafe`].
pub fn mark_all_unsafe(vars: Map<String, Value>) -> Map<String, Value> {
    vars.into_iter().map(|(name, value)| (name, mark_unsafe(value))).collect()
}

/// Returns whether Ansible could expand `text`: it contains the beginning of a template, `{{`, `{%`
/// or `{#`, or `#jinja2:`, by which a text says what its templates begin with.
pub fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#", "#jinja2:"].iter().any(|beginning| text.contains(beginning))
}

/// Returns whether any text in `value`, at any depth, contains an Ansible template. Keys do not
/// count.
pub fn has_templates(value: &Value) -> bool {
    match value {
        Value::String(text) => is_template(text),
        Value::Array(items) => items.iter().any(has_templates),
        Value::Object(entries) => entries.values().any(has_templates),
        _ => false,
    }
}

/// Returns the entries of an object; empty for any other value.
pub fn to_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}

/// Returns the entry of a change in the list of all tested changes (`zuul.items`): its project,
/// address, the keys of the change or ref, and the id of its bundle if it is a member of that of
/// the change under test. The merge commit is included if the change is merged already.
fn item(job: &JobAttempt<'_>, change: &SpeculativeChange) -> Value {
    let key = &change.change.key;
    let mut project = project_entry(&key.project);
    project.insert("src_dir".to_owned(), json!(src_dir(job.job.workspace_scheme, &key.project)));
    let mut item = to_map(json!({
        "project": project,
        "change_url": Some(&change.url).filter(|url| !url.is_empty()),
        "src_dir": src_dir(job.job.workspace_scheme, &key.project),
    }));
    item.extend(change_entry(change));
    if job.order.bundle.contains(key) {
        item.insert("bundle_id".to_owned(), json!(bundle_id(&job.order.bundle)));
    }
    if let Some(merge_commit) = &change.merge_commit {
        item.insert("merge_commit_id".to_owned(), json!(merge_commit));
    }
    Value::Object(item)
}

/// Returns the entries of the given members of the change's bundle, and of the change itself, whose
/// entry is `own`, in merge order. Members that the tested state does not contain are left out.
fn members(job: &JobAttempt<'_>, others: &[ChangeKey], own: &Value) -> Vec<Value> {
    let order = job.order;
    let is_listed = |key: &&ChangeKey| **key == order.change.key || others.contains(key);
    let entry = |key: &ChangeKey| {
        if *key == order.change.key {
            return Some(own.clone());
        }
        let mut changes = job.speculation.changes.iter();
        changes.find(|change| change.change.key == *key).map(|change| item(job, change))
    };
    match order.bundle.is_empty() {
        true => vec![own.clone()],
        false => order.bundle.iter().filter(is_listed).filter_map(entry).collect(),
    }
}

/// Returns the id of a bundle, which is the same for each of its members and each of their builds.
fn bundle_id(bundle: &[ChangeKey]) -> String {
    let names: Vec<String> = bundle.iter().map(ToString::to_string).collect();
    digest(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns a copy of an item's entry, with `merge_commit_id` set to the given commit; unchanged if
/// there is none.
fn with_merge_commit(item: &Value, merge_commit: Option<&Oid>) -> Value {
    let mut item = item.clone();
    if let (Some(entry), Some(commit)) = (item.as_object_mut(), merge_commit) {
        entry.insert("merge_commit_id".to_owned(), json!(commit));
    }
    item
}

/// Returns the keys that describe a change, branch or tag: its branch and commit, and a change's
/// number, patch set and message or a ref's old and new commit and tag. Keys that do not apply are
/// left out; a change without a topic has a null one.
fn change_entry(change: &SpeculativeChange) -> Map<String, Value> {
    let mut item = Map::new();
    if let Some(branch) = change.change.on_branch() {
        item.insert("branch".to_owned(), json!(branch));
    }
    if !change.change.head.is_zero() {
        item.insert("commit_id".to_owned(), json!(change.change.head));
    }
    match &change.change.key.id {
        ChangeId::Number(number) => item.extend(to_map(json!({
            "change": number.to_string(),
            "patchset": change.change.patchset,
            "change_message": full_message(change),
            "topic": change.topic,
        }))),
        ChangeId::Ref(moved) => {
            let entries = [
                ("oldrev", moved.oldrev.as_ref().map(|oid| oid.as_str())),
                ("newrev", moved.newrev.as_ref().map(|oid| oid.as_str())),
                ("tag", moved.tag()),
            ];
            item.extend(
                entries
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))),
            );
        }
    }
    item
}

/// Returns the order's own change with an empty address, title and message, for use if the tested
/// state does not contain it.
fn bare_change(job: &JobAttempt<'_>) -> SpeculativeChange {
    let change = job.order.change.clone();
    SpeculativeChange {
        change,
        url: String::new(),
        title: String::new(),
        message: String::new(),
        topic: None,
        merge_commit: None,
    }
}

/// Returns the change message like Zuul: the title, an empty line, and the description. A
/// description that begins with the title, or one without the other, is returned alone.
fn full_message(change: &SpeculativeChange) -> String {
    match (change.title.as_str(), change.message.as_str()) {
        (title, "") => title.to_owned(),
        ("", message) => message.to_owned(),
        (title, message) if message.starts_with(title) => message.to_owned(),
        (title, message) => format!("{title}\n\n{message}"),
    }
}

/// Returns the names of a project in Zuul's format.
fn project_entry(project: &ProjectName) -> Map<String, Value> {
    to_map(json!({
        "name": project.name(),
        "short_name": project.short_name(),
        "canonical_hostname": project.host(),
        "canonical_name": project,
    }))
}

/// Returns the entry of a checked-out repository (`zuul.projects`).
fn repository_entry(repository: &PlacedRepository) -> Value {
    let mut entry = project_entry(&repository.project);
    entry.extend(to_map(json!({
        "src_dir": repository.src_dir,
        "required": repository.required,
        "checkout": repository.checkout,
        "checkout_description": repository.checkout_description,
        "commit": repository.commit,
    })));
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::{ChangeKey, ChangeRef, RefMove};

    fn described(change: ChangeRef) -> Value {
        let (url, title) = (String::new(), "A title".to_owned());
        let change = SpeculativeChange {
            change,
            url,
            title,
            message: String::new(),
            topic: None,
            merge_commit: None,
        };
        Value::Object(change_entry(&change))
    }

    /// S06, R09, Z7.1: jobs test whether `zuul.change` or `zuul.newrev` is defined.
    #[test]
    fn a_ref_defines_only_applicable_keys() {
        let of = |moved| {
            described(ChangeRef::of_ref("github".into(), "forge.test/org/one".into(), moved))
        };
        let rows = [
            (
                RefMove::new("refs/heads/main", "a".into(), "b".into()),
                json!({"branch": "main", "commit_id": "b", "oldrev": "a", "newrev": "b"}),
            ),
            (
                RefMove::new("refs/tags/1.0", Oid::zero(), "b".into()),
                json!({"commit_id": "b", "newrev": "b", "tag": "1.0"}),
            ),
            (
                RefMove::new("refs/heads/old", "a".into(), Oid::zero()),
                json!({"branch": "old", "commit_id": "a", "oldrev": "a"}),
            ),
            (RefMove::at_tip(&"main".into()), json!({"branch": "main"})),
        ];
        for (moved, expected) in rows {
            assert_eq!(of(moved), expected);
        }
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 7);
        let change =
            ChangeRef { key, branch: "main".into(), head: "c".into(), patchset: "c".to_owned() };
        let expected = json!({"branch": "main", "commit_id": "c", "change": "7", "patchset": "c", "change_message": "A title", "topic": null});
        assert_eq!(described(change), expected);
    }

    /// Z7.5
    #[test]
    fn texts_by_authors_are_never_expanded() {
        for value in [json!("plain"), json!({"a": ["{{ x }}", "plain", 1]}), json!([1])] {
            assert_eq!(mark_unsafe(value.clone()), json!({ "__ansible_unsafe": value }));
        }
        assert_eq!(mark_unsafe(json!(1)), json!(1));
        assert_eq!(
            Value::Object(mark_all_unsafe(to_map(json!({"a": "x", "b": null})))),
            json!({"a": {"__ansible_unsafe": "x"}, "b": null})
        );
    }

    /// Z7.5: a text may bring the signs of its own templates.
    #[test]
    fn a_text_that_changes_the_signs_of_templates_is_one() {
        assert!(is_template("#jinja2:variable_start_string:'[['\n[[ x ]]"));
        assert!(is_template("{{ x }}") && is_template("{% if x %}") && is_template("{# x #}"));
        assert!(!is_template("# jinja2 {x} [[ y ]]"));
        assert!(has_templates(&json!({"a": ["#jinja2:"]})) && !has_templates(&json!({"{{": 1})));
    }
}
