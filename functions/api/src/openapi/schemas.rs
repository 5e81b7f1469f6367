//! The schemas of what the API answers and takes, as JSON Schema 2020-12.
//!
//! A member whose name ends with `?` may be absent; the others are always there. Clients must
//! ignore members that they do not know.

use serde_json::{Map, Value, json};
use sluice_gate::autohold::COUNT_MAX;

/// The largest number that clients may send.
pub(super) const NUMBER_MAX: u64 = u64::MAX;

/// Returns the schema of an object with these members.
fn object(members: &[(&str, Value)]) -> Value {
    let names = |(name, _): &(&str, Value)| name.trim_end_matches('?').to_owned();
    let required: Vec<String> =
        members.iter().filter(|(name, _)| !name.ends_with('?')).map(names).collect();
    let properties: Map<String, Value> =
        members.iter().map(|member| (names(member), member.1.clone())).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

/// Returns the schema of a whole number of 0 or more.
fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn number() -> Value {
    json!({"type": "number"})
}

/// Returns the schema of a UTC time without a zone, as in `2026-11-21T11:03:45`.
fn time() -> Value {
    json!({"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?$"})
}

fn any_object() -> Value {
    json!({"type": "object"})
}

fn list(element: Value) -> Value {
    json!({"type": "array", "items": element})
}

/// Returns the schema of a value of another one, or null.
fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Returns a reference to a named schema.
pub(super) fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns every named schema.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    for (name, schema) in system().into_iter().chain(queues()).chain(configuration()) {
        all.insert(name.to_owned(), schema);
    }
    for (name, schema) in builds().into_iter().chain(nodes()).chain(requests()) {
        all.insert(name.to_owned(), schema);
    }
    all
}

/// Returns the schemas about the whole system.
fn system() -> Vec<(&'static str, Value)> {
    let realm = object(&[
        ("type", text()),
        ("driver", text()),
        ("authority", or_null(text())),
        ("client_id", or_null(text())),
        ("scope?", or_null(text())),
        ("load_user_info?", flag()),
    ]);
    let auth = object(&[
        ("realms", json!({"type": "object", "additionalProperties": realm})),
        ("default_realm", or_null(text())),
        ("read_protected", flag()),
        ("auth_log_file_requests", flag()),
    ]);
    let capabilities = object(&[("job_history", flag()), ("auth", auth)]);
    let stats = object(&[("prefix", or_null(text())), ("type", text()), ("url", or_null(text()))]);
    let info = object(&[
        ("capabilities", capabilities),
        ("websocket_url", or_null(text())),
        ("stats", stats),
        ("tenant?", text()),
    ]);
    let permissions = json!({"type": "object", "additionalProperties": {"const": true}});
    let zuul = object(&[("admin?", flag()), ("permissions", permissions), ("scope", list(text()))]);
    let component =
        object(&[("hostname", text()), ("state", text()), ("version", text()), ("zone?", text())]);
    vec![
        ("Any", any_object()),
        ("Document", object(&[("openapi", text()), ("paths", any_object())])),
        ("Error", object(&[("error", text()), ("description", text()), ("realm?", text())])),
        ("Info", object(&[("info", info)])),
        ("Tenant", object(&[("name", text())])),
        ("Connection", object(&[("name", text()), ("driver", text())])),
        ("Components", json!({"type": "object", "additionalProperties": list(component)})),
        ("Authorizations", object(&[("zuul", zuul)])),
    ]
}

/// Returns the schemas of queues and their events.
fn queues() -> Vec<(&'static str, Value)> {
    let length = || object(&[("length", count())]);
    let state = object(&[
        ("trigger_queue_discarding", flag()),
        ("trigger_queue_paused", flag()),
        ("result_queue_paused", flag()),
        ("reason", or_null(text())),
        ("info", or_null(text())),
    ]);
    let queue = object(&[
        ("name", text()),
        ("branch", or_null(text())),
        ("window", count()),
        ("heads", list(list(named("Item")))),
    ]);
    let pipeline = object(&[
        ("name", text()),
        ("description", or_null(text())),
        ("state", text()),
        ("manager", text()),
        ("triggers", list(object(&[("driver", text())]))),
        ("trigger_events", count()),
        ("result_events", count()),
        ("management_events", count()),
        ("change_queues", list(queue)),
    ]);
    let status = object(&[
        ("zuul_version", text()),
        ("last_reconfigured", count()),
        ("state", state),
        ("trigger_event_queue", length()),
        ("management_event_queue", length()),
        ("connection_event_queues", any_object()),
        ("pipelines", list(pipeline)),
    ]);
    let change = object(&[
        ("id", or_null(text())),
        ("ref", or_null(text())),
        ("url", or_null(text())),
        ("project", text()),
        ("project_canonical", text()),
        ("owner", or_null(text())),
    ]);
    let item = object(&[
        ("id", text()),
        ("active", flag()),
        ("live", flag()),
        ("refs", list(change)),
        ("item_ahead", or_null(text())),
        ("items_behind", list(text())),
        ("failing_reasons", list(text())),
        ("zuul_ref", or_null(text())),
        ("enqueue_time", count()),
        ("remaining_time", or_null(count())),
        ("jobs", list(named("ItemJob"))),
    ]);
    let item_job = object(&[
        ("name", text()),
        ("dependencies", list(text())),
        ("result", or_null(text())),
        ("voting", flag()),
        ("queued", flag()),
        ("waiting_status", or_null(text())),
        ("uuid", or_null(text())),
        ("url", or_null(text())),
        ("report_url", or_null(text())),
        ("elapsed_time", or_null(count())),
        ("remaining_time", or_null(count())),
        ("execute_time", or_null(number())),
        ("start_time", or_null(number())),
        ("end_time", or_null(number())),
        ("estimated_time", or_null(number())),
        ("pipeline", or_null(text())),
        ("canceled", or_null(flag())),
        ("paused", or_null(flag())),
        ("pre_fail", or_null(flag())),
        ("retry", or_null(flag())),
        ("snapshotting", or_null(flag())),
        ("tries", count()),
    ]);
    let event = object(&[
        ("event_id", text()),
        ("event_time", time()),
        ("event_type", text()),
        ("description", or_null(text())),
    ]);
    let holder = object(&[("buildset_uuid", text()), ("job_name", text())]);
    let holders =
        object(&[("count", count()), ("other_tenants", count()), ("this_tenant", list(holder))]);
    let semaphore =
        object(&[("name", text()), ("global", flag()), ("max", count()), ("holders", holders)]);
    vec![
        ("Status", status),
        ("Item", item),
        ("ItemJob", item_job),
        ("SystemEvent", event),
        ("Semaphore", semaphore),
    ]
}

/// Returns the schemas of projects, pipelines and jobs.
fn configuration() -> Vec<(&'static str, Value)> {
    let source = || object(&[("project", text()), ("branch", text()), ("path", text())]);
    let error = object(&[
        ("source_context", source()),
        ("error", text()),
        ("short_error", or_null(text())),
        ("severity", json!({"enum": ["error", "warning"]})),
        ("name", text()),
    ]);
    let project = object(&[
        ("name", text()),
        ("connection_name", text()),
        ("canonical_name", text()),
        ("type", json!({"enum": ["config", "untrusted"]})),
    ]);
    let project_pipeline = object(&[("name", text()), ("jobs", list(list(named("JobVariant"))))]);
    let stanza = object(&[
        ("source_context", source()),
        ("default_branch", or_null(text())),
        ("merge_mode", or_null(text())),
        ("is_template", flag()),
        ("templates", list(text())),
        ("queue_name", or_null(text())),
        ("pipelines", list(project_pipeline)),
    ]);
    let project_config = object(&[
        ("name", text()),
        ("connection_name", text()),
        ("canonical_name", text()),
        ("metadata", any_object()),
        ("configs", list(stanza)),
    ]);
    let trigger = object(&[("name", text()), ("driver", text())]);
    let variant = object(&[("parent?", text()), ("branches?", list(text()))]);
    let job = object(&[
        ("name", text()),
        ("description?", text()),
        ("tags?", list(text())),
        ("variants?", list(variant)),
    ]);
    let dependency = || object(&[("name", text()), ("soft", flag())]);
    let job_variant = object(&[
        ("name", text()),
        ("parent", or_null(text())),
        ("description", or_null(text())),
        ("variant_description", or_null(text())),
        ("branches", or_null(list(text()))),
        ("source_context", or_null(source())),
        ("files", list(text())),
        ("irrelevant_files", list(text())),
        ("required_projects", list(any_object())),
        ("semaphores", list(any_object())),
        ("variables", any_object()),
        ("extra_variables", any_object()),
        ("host_variables", any_object()),
        ("group_variables", any_object()),
        ("final", flag()),
        ("abstract", flag()),
        ("intermediate", flag()),
        ("protected", or_null(flag())),
        ("voting", flag()),
        ("pre_timeout", or_null(count())),
        ("timeout", or_null(count())),
        ("post_timeout", or_null(count())),
        ("tags", list(text())),
        ("provides", list(text())),
        ("requires", list(text())),
        ("dependencies", list(dependency())),
        ("attempts", count()),
        ("roles", list(any_object())),
        ("run", list(any_object())),
        ("pre_run", list(any_object())),
        ("post_run", list(any_object())),
        ("cleanup_run", list(any_object())),
        ("post_review", or_null(flag())),
        ("ansible_version", or_null(text())),
        ("nodeset?", any_object()),
        ("nodeset_alternatives?", list(any_object())),
    ]);
    let frozen = object(&[
        ("job", text()),
        ("branch", or_null(text())),
        ("zuul", any_object()),
        ("projects", list(any_object())),
        ("timeout", or_null(count())),
        ("playbooks?", list(any_object())),
        ("pre_playbooks?", list(any_object())),
        ("post_playbooks?", list(any_object())),
        ("cleanup_playbooks?", list(any_object())),
        ("nodeset", any_object()),
        ("vars", any_object()),
        ("extra_vars", any_object()),
        ("host_vars", any_object()),
        ("group_vars", any_object()),
    ]);
    vec![
        ("TenantStatus", object(&[("config_error_count", count())])),
        ("ConfigError", error),
        ("Project", project),
        ("ProjectConfig", project_config),
        ("Pipeline", object(&[("name", text()), ("triggers", list(trigger))])),
        ("Job", job),
        ("JobVariant", job_variant),
        ("FrozenJobName", object(&[("name", text()), ("dependencies", list(dependency()))])),
        ("FrozenJob", frozen),
        ("FrozenPipeline", object(&[("parameters", list(any_object()))])),
    ]
}

/// Returns the schemas of builds and buildsets.
fn builds() -> Vec<(&'static str, Value)> {
    let change = object(&[
        ("project", text()),
        ("branch", or_null(text())),
        ("change", or_null(count())),
        ("patchset", or_null(text())),
        ("ref", or_null(text())),
        ("oldrev", or_null(text())),
        ("newrev", or_null(text())),
        ("ref_url", or_null(text())),
    ]);
    let artifact =
        object(&[("name", text()), ("url", text()), ("metadata?", or_null(any_object()))]);
    let build = object(&[
        ("_id", count()),
        ("uuid", or_null(text())),
        ("job_name", text()),
        ("result", or_null(text())),
        ("held", or_null(flag())),
        ("execute_time", or_null(time())),
        ("start_time", or_null(time())),
        ("end_time", or_null(time())),
        ("duration", or_null(number())),
        ("voting", flag()),
        ("log_url", or_null(text())),
        ("nodeset", or_null(text())),
        ("error_detail", or_null(text())),
        ("final", or_null(flag())),
        ("artifacts", list(artifact)),
        ("provides", list(object(&[("name", text())]))),
        // The builds of a buildset do not repeat what they share.
        ("ref", named("BuildRef")),
        ("pipeline?", text()),
        ("event_id?", or_null(text())),
        ("event_timestamp?", or_null(time())),
        ("queue_item_uuid?", text()),
        ("buildset?", object(&[("uuid", text()), ("refs?", list(named("BuildRef")))])),
        ("held_nodes?", list(named("HeldNode"))),
        ("warnings?", list(text())),
    ]);
    let build_time = object(&[
        ("_id", count()),
        ("uuid", text()),
        ("job_name", text()),
        ("result", text()),
        ("start_time", or_null(time())),
        ("end_time", or_null(time())),
        ("duration", or_null(number())),
        ("final", flag()),
        ("project", text()),
        ("branch", or_null(text())),
        ("pipeline", text()),
        ("ref", or_null(text())),
    ]);
    let event =
        object(&[("event_time", time()), ("event_type", text()), ("description", or_null(text()))]);
    let buildset = object(&[
        ("_id", count()),
        ("uuid", text()),
        ("result", or_null(text())),
        ("message", or_null(text())),
        ("pipeline", text()),
        ("event_id", or_null(text())),
        ("event_timestamp", or_null(time())),
        ("queue_item_uuid", text()),
        ("first_build_start_time", or_null(time())),
        ("last_build_end_time", or_null(time())),
        ("user_id", or_null(text())),
        ("parameters", or_null(any_object())),
        ("refs", list(named("BuildRef"))),
        ("builds?", list(named("Build"))),
        ("events?", list(event)),
    ]);
    vec![("BuildRef", change), ("Build", build), ("BuildTime", build_time), ("Buildset", buildset)]
}

/// Returns the schemas of nodes, requests for them and holds.
fn nodes() -> Vec<(&'static str, Value)> {
    let address = || or_null(text());
    let node = object(&[
        ("id", text()),
        ("uuid", text()),
        ("type", list(text())),
        ("label", text()),
        ("connection_type", text()),
        ("external_id", or_null(text())),
        ("state", text()),
        ("state_time", time()),
        ("next_state?", or_null(text())),
        ("comment?", or_null(text())),
        ("max_ready_age", or_null(count())),
        ("max_age", or_null(count())),
        ("hold_expiration", or_null(count())),
        ("interface_ip", address()),
        ("connection_port", or_null(count())),
        ("public_ipv4", address()),
        ("private_ipv4", address()),
        ("public_ipv6", address()),
        ("private_ipv6", address()),
        ("az", or_null(text())),
        ("provider", text()),
        ("region", or_null(text())),
        ("username", or_null(text())),
        ("request_id", or_null(text())),
        ("is_locked", flag()),
        ("request_time", or_null(time())),
    ]);
    let progress = object(&[
        ("uuid", text()),
        ("executor_zone", or_null(text())),
        ("failed_providers", list(text())),
    ]);
    let request = object(&[
        ("uuid", text()),
        ("state", text()),
        ("pipeline_name", or_null(text())),
        ("buildset_uuid", or_null(text())),
        ("job_name", or_null(text())),
        ("labels", list(text())),
        ("priority", count()),
        ("relative_priority", or_null(count())),
        ("request_time", time()),
        ("zuul_event_id", or_null(text())),
        ("provider_node_data", list(progress)),
        ("is_locked", flag()),
    ]);
    let held = object(&[("build", text()), ("nodes", list(text()))]);
    let hold = object(&[
        ("id", text()),
        ("tenant", text()),
        ("project", text()),
        ("job", text()),
        ("ref_filter", text()),
        ("max_count", count()),
        ("current_count", count()),
        ("reason", or_null(text())),
        ("node_expiration", or_null(count())),
        ("expired", or_null(number())),
        ("nodes", list(held)),
        ("requested_by", or_null(text())),
        ("requested_at", time()),
        ("held_until", or_null(time())),
        ("ssh_key", or_null(text())),
        ("held_nodes?", list(named("HeldNode"))),
    ]);
    let login = object(&[
        ("autohold", text()),
        ("build", text()),
        ("node", text()),
        ("provider", text()),
        ("held_until", or_null(time())),
        ("address", text()),
        ("port", count()),
        ("username", text()),
        ("ssh_key", or_null(text())),
        ("ssh", text()),
        ("host_key", or_null(text())),
        ("known_hosts", or_null(text())),
    ]);
    let label = object(&[("name", text()), ("canonical_name?", text()), ("description?", text())]);
    vec![
        ("Label", label),
        ("Node", node),
        ("NodesetRequest", request),
        ("Autohold", hold),
        ("HeldNode", login),
    ]
}

/// Returns the schemas of bodies that the API takes.
fn requests() -> Vec<(&'static str, Value)> {
    let words = || json!({"type": "string", "minLength": 1});
    let number = || json!({"type": "string", "pattern": "^[1-9][0-9]{0,8}(,[0-9a-f]{1,40})?$"});
    let change =
        || json!({"anyOf": [number(), {"type": "integer", "minimum": 1, "maximum": 999_999_999}]});
    let commit = || json!({"type": ["string", "null"], "pattern": "^([0-9a-f]{40})?$"});
    let git_ref = || json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$"});
    // A number is taken as its text.
    let optional_text = || json!({"type": ["string", "number", "null"]});
    let switch = || json!({"type": ["boolean", "null"]});
    let whole = || json!({"type": ["integer", "null"], "minimum": 0, "maximum": NUMBER_MAX});
    let either = |of_change: Value, of_ref: Value| json!({"oneOf": [of_change, of_ref]});
    let of_change = || object(&[("pipeline", words()), ("change", change())]);
    let enqueue_ref = object(&[
        ("pipeline", words()),
        ("ref", git_ref()),
        ("oldrev?", commit()),
        ("newrev?", commit()),
    ]);
    let enqueue = either(of_change(), enqueue_ref);
    let dequeue_ref =
        object(&[("pipeline", words()), ("ref", git_ref()), ("reason?", optional_text())]);
    let dequeue_change =
        object(&[("pipeline", words()), ("change", change()), ("reason?", optional_text())]);
    let dequeue = either(dequeue_change, dequeue_ref);
    let promote = object(&[
        ("pipeline", words()),
        ("changes", json!({"type": "array", "items": number(), "minItems": 1})),
    ]);
    let state = object(&[
        ("trigger_queue_discarding?", switch()),
        ("trigger_queue_paused?", switch()),
        ("result_queue_paused?", switch()),
        ("reason?", optional_text()),
        ("info?", optional_text()),
    ]);
    let autohold = object(&[
        ("job", words()),
        ("count?", json!({"type": ["integer", "null"], "minimum": 1, "maximum": COUNT_MAX})),
        ("reason", words()),
        ("change?", or_null(change())),
        ("ref?", optional_text()),
        ("node_hold_expiration?", whole()),
        ("ssh_key?", optional_text()),
    ]);
    let node = object(&[
        ("state", json!({"enum": ["hold", "used", "outdated"]})),
        ("comment?", optional_text()),
    ]);
    vec![
        ("EnqueueRequest", enqueue),
        ("DequeueRequest", dequeue),
        ("PromoteRequest", promote),
        ("TenantStateRequest", state),
        ("AutoholdRequest", autohold),
        ("NodeStateRequest", node),
        ("FreezePipelineRequest", object(&[("pipeline", words()), ("ref", words())])),
    ]
}
