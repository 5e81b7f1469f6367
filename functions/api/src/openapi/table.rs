//! The table of routes: every path that the API answers, with its methods.

use super::routes::Answer::{
    CreatedNull, File, Json, List, NoContent, Null, Text as TextAnswer, True,
};
use super::routes::OperationMethod::{Delete, Get, Post, PostQuery, Put};
use super::routes::ParameterKind::{Number, RequiredNumber, Skip, Text, Texts};
use super::routes::{Answer, Operation, ParameterKind, QueryParameter, Route};

/// Creates a query parameter.
const fn parameter(
    name: &'static str,
    kind: ParameterKind,
    description: &'static str,
) -> QueryParameter {
    QueryParameter { name, kind, description }
}

/// Creates an operation that reads.
const fn read(
    summary: &'static str,
    query: &'static [QueryParameter],
    answer: Answer,
) -> Operation {
    Operation { method: Get, summary, query, body: None, answer }
}

const LIMIT: QueryParameter =
    parameter("limit", Number, "The maximum number of records, 50 by default.");
const SKIP: QueryParameter = parameter("skip", Skip, "The number of records to leave out.");
const IDX_MIN: QueryParameter = parameter("idx_min", Number, "The lowest `_id`.");
const IDX_MAX: QueryParameter = parameter("idx_max", Number, "The highest `_id`.");

/// The parameters of lists of buildsets.
const BUILDSET_FILTERS: [QueryParameter; 16] = [
    parameter("project", Texts, "A project; `*` is any text."),
    parameter("pipeline", Texts, "A pipeline; `*` is any text."),
    parameter("branch", Texts, "A branch; `*` is any text."),
    parameter("change", Texts, "The number of a change."),
    parameter("patchset", Texts, "The patch set of a change."),
    parameter("ref", Texts, "A full ref."),
    parameter("newrev", Texts, "The commit to which a ref was moved."),
    parameter("uuid", Texts, "The id of the build or buildset."),
    parameter("queue_item_uuid", Texts, "The id of the queue item."),
    parameter("result", Texts, "A result, for example `SUCCESS`."),
    parameter("complete", Texts, "`true`: has ended, `false`: has not."),
    parameter("exclude_result", Texts, "A result to leave out."),
    IDX_MIN,
    IDX_MAX,
    LIMIT,
    SKIP,
];

/// The parameters that only lists of builds have.
const BUILD_FILTERS: [QueryParameter; 5] = [
    parameter("job_name", Texts, "A job; `*` is any text."),
    parameter("voting", Texts, "`true` or `false`."),
    parameter("nodeset", Texts, "The name of a nodeset."),
    parameter("held", Texts, "`true`: its nodes are held, `false`: they are not."),
    parameter("final", Texts, "`true`: the last attempt, `false`: another one follows."),
];

/// Joins the parameters of buildsets and of builds.
const ALL_BUILD_FILTERS: [QueryParameter; 21] = {
    let mut all = [SKIP; 21];
    let mut index = 0;
    while index < 16 {
        all[index] = BUILDSET_FILTERS[index];
        index += 1;
    }
    while index < 21 {
        all[index] = BUILD_FILTERS[index - 16];
        index += 1;
    }
    all
};

const PROJECT: QueryParameter = parameter("project", Text, "A project.");

/// Every path of the API.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        name: "info",
        path: "/api/info",
        operations: &[read("What the system can do, and how to log in.", &[], Json("Info"))],
    },
    Route {
        name: "connections",
        path: "/api/connections",
        operations: &[read("The connections to forges.", &[], List("Connection"))],
    },
    Route {
        name: "components",
        path: "/api/components",
        operations: &[read("The executors and their states.", &[], Json("Components"))],
    },
    Route {
        name: "tenants",
        path: "/api/tenants",
        operations: &[read("The tenants that the caller may read.", &[], List("Tenant"))],
    },
    Route {
        name: "authorizations",
        path: "/api/authorizations",
        operations: &[read(
            "What the token's bearer may do outside of tenants.",
            &[],
            Json("Authorizations"),
        )],
    },
    Route {
        name: "openapi",
        path: "/api/openapi.json",
        operations: &[read("This document.", &[], Json("Document"))],
    },
    Route {
        name: "tenant_info",
        path: "/api/tenant/{tenant}/info",
        operations: &[read("The same as `/api/info` for a tenant.", &[], Json("Info"))],
    },
    Route {
        name: "tenant_authorizations",
        path: "/api/tenant/{tenant}/authorizations",
        operations: &[read(
            "What the token's bearer may do in a tenant.",
            &[],
            Json("Authorizations"),
        )],
    },
    Route {
        name: "status",
        path: "/api/tenant/{tenant}/status",
        operations: &[read("The pipelines with their queued items.", &[], Json("Status"))],
    },
    Route {
        name: "status_change",
        path: "/api/tenant/{tenant}/status/change/{change*}",
        operations: &[read(
            "The queued items of a change (`NUMBER,PATCHSET`) or ref.",
            &[],
            List("Item"),
        )],
    },
    Route {
        name: "board",
        path: "/api/tenant/{tenant}/board",
        operations: &[read(
            "The queues with the reasons of the last decisions, as the pages show them.",
            &[
                parameter("pipeline", Texts, "A pipeline."),
                parameter("project", Texts, "A project."),
                parameter("change", Texts, "The number of a change."),
            ],
            Json("Any"),
        )],
    },
    Route {
        name: "item",
        path: "/api/tenant/{tenant}/item/{item}",
        operations: &[read(
            "A queue item, also one that has left its queue, with its reasons.",
            &[],
            Json("Any"),
        )],
    },
    Route {
        name: "item_explain",
        path: "/api/tenant/{tenant}/item/{item}/explain/{job*}",
        operations: &[read(
            "Why an item has a job or does not have it, and where its attributes come from.",
            &[],
            Json("Any"),
        )],
    },
    Route {
        name: "ledger",
        path: "/api/tenant/{tenant}/ledger",
        operations: &[read(
            "Work that is not ended and that nothing is known to continue.",
            &[],
            Json("Any"),
        )],
    },
    Route {
        name: "why",
        path: "/api/tenant/{tenant}/why",
        operations: &[read(
            "In which pipelines a change is, and why it is not in the others.",
            &[parameter("change", RequiredNumber, "The number of the change."), PROJECT],
            List("Any"),
        )],
    },
    Route {
        name: "tenant_status",
        path: "/api/tenant/{tenant}/tenant-status",
        operations: &[read(
            "The number of configuration errors and warnings.",
            &[],
            Json("TenantStatus"),
        )],
    },
    Route {
        name: "config_errors",
        path: "/api/tenant/{tenant}/config-errors",
        operations: &[read(
            "The configuration errors and warnings.",
            &[
                PROJECT,
                parameter("branch", Text, "A branch."),
                parameter("severity", Text, "`error` or `warning`."),
                parameter("name", Text, "The kind of the error."),
                LIMIT,
                SKIP,
            ],
            List("ConfigError"),
        )],
    },
    Route {
        name: "system_events",
        path: "/api/tenant/{tenant}/system-events",
        operations: &[read(
            "What happened to the tenant, newest first.",
            &[parameter("event_type", Texts, "A kind of event."), IDX_MIN, IDX_MAX, LIMIT, SKIP],
            List("SystemEvent"),
        )],
    },
    Route {
        name: "projects",
        path: "/api/tenant/{tenant}/projects",
        operations: &[read("The projects, sorted by name.", &[], List("Project"))],
    },
    Route {
        name: "project",
        path: "/api/tenant/{tenant}/project/{project*}",
        operations: &[read("A project with its configuration.", &[], Json("ProjectConfig"))],
    },
    Route {
        name: "pipelines",
        path: "/api/tenant/{tenant}/pipelines",
        operations: &[read("The pipelines with their triggers.", &[], List("Pipeline"))],
    },
    Route {
        name: "jobs",
        path: "/api/tenant/{tenant}/jobs",
        operations: &[read("The jobs, sorted by name.", &[], List("Job"))],
    },
    Route {
        name: "job",
        path: "/api/tenant/{tenant}/job/{job_name*}",
        operations: &[read("The variants of a job.", &[], List("JobVariant"))],
    },
    Route {
        name: "project_freeze_jobs",
        path: "/api/tenant/{tenant}/pipeline/{pipeline}/project/{project*}/branch/{branch*}/freeze-jobs",
        operations: &[read(
            "The jobs that a change of a branch would run, with their dependencies.",
            &[],
            List("FrozenJobName"),
        )],
    },
    Route {
        name: "project_freeze_job",
        path: "/api/tenant/{tenant}/pipeline/{pipeline}/project/{project*}/branch/{branch*}/freeze-job/{job}",
        operations: &[read("A job as a change of a branch would run it.", &[], Json("FrozenJob"))],
    },
    Route {
        name: "project_freeze_pipeline",
        path: "/api/tenant/{tenant}/project/{project*}/freeze-pipeline",
        operations: &[Operation {
            method: PostQuery,
            summary: "The parameters that a pipeline takes for a ref.",
            query: &[],
            body: Some("FreezePipelineRequest"),
            answer: Json("FrozenPipeline"),
        }],
    },
    Route {
        name: "key",
        path: "/api/tenant/{tenant}/key/{project*}.pub",
        operations: &[read(
            "The public key with which secrets of a project are encrypted, in PEM.",
            &[],
            TextAnswer("text/plain"),
        )],
    },
    Route {
        name: "project_ssh_key",
        path: "/api/tenant/{tenant}/project-ssh-key/{project*}.pub",
        operations: &[read(
            "The public SSH key of a project, as a line for `authorized_keys`.",
            &[],
            TextAnswer("text/plain"),
        )],
    },
    Route {
        name: "tenant_ssh_key",
        path: "/api/tenant/{tenant}/tenant-ssh-key/ssh.pub",
        operations: &[read(
            "The public SSH key of a tenant, as a line for `authorized_keys`.",
            &[],
            TextAnswer("text/plain"),
        )],
    },
    Route {
        name: "labels",
        path: "/api/tenant/{tenant}/labels",
        operations: &[read("The labels that providers offer.", &[], List("Label"))],
    },
    Route {
        name: "flavors",
        path: "/api/tenant/{tenant}/flavors",
        operations: &[read("The flavors of providers.", &[], List("Any"))],
    },
    Route {
        name: "images",
        path: "/api/tenant/{tenant}/images",
        operations: &[read("The images with their builds and uploads.", &[], List("Any"))],
    },
    Route {
        name: "build_image",
        path: "/api/tenant/{tenant}/image/{image*}/build",
        operations: &[Operation {
            method: Post,
            summary: "Requests a build of an image.",
            query: &[],
            body: None,
            answer: Null,
        }],
    },
    Route {
        name: "providers",
        path: "/api/tenant/{tenant}/providers",
        operations: &[read("The providers with their labels.", &[], List("Any"))],
    },
    Route {
        name: "nodes",
        path: "/api/tenant/{tenant}/nodes",
        operations: &[read("The nodes that exist for the tenant.", &[], List("Node"))],
    },
    Route {
        name: "node",
        path: "/api/tenant/{tenant}/nodes/{node}",
        operations: &[Operation {
            method: Put,
            summary: "Changes the state of a node.",
            query: &[],
            body: Some("NodeStateRequest"),
            answer: CreatedNull,
        }],
    },
    Route {
        name: "nodeset_requests",
        path: "/api/tenant/{tenant}/nodeset-requests",
        operations: &[read("The open requests for nodes.", &[], List("NodesetRequest"))],
    },
    Route {
        name: "nodeset_request",
        path: "/api/tenant/{tenant}/nodeset-requests/{request}",
        operations: &[Operation {
            method: Delete,
            summary: "Deletes a request for nodes; its job fails.",
            query: &[],
            body: None,
            answer: NoContent,
        }],
    },
    Route {
        name: "builds",
        path: "/api/tenant/{tenant}/builds",
        operations: &[read("The builds, newest first.", &ALL_BUILD_FILTERS, List("Build"))],
    },
    Route {
        name: "build_times",
        path: "/api/tenant/{tenant}/build-times",
        operations: &[read(
            "The durations of builds that have ended, newest first.",
            &[
                parameter("project", Texts, "A project; `*` is any text."),
                parameter("pipeline", Texts, "A pipeline; `*` is any text."),
                parameter("branch", Texts, "A branch; `*` is any text."),
                parameter("ref", Texts, "A full ref."),
                parameter("job_name", Texts, "A job; `*` is any text."),
                parameter(
                    "final",
                    Texts,
                    "`true`: the last attempt, `false`: another one follows.",
                ),
                parameter("start_time", Text, "Builds that ended at this time or later."),
                parameter("end_time", Text, "Builds that ended at this time or earlier."),
                parameter("exclude_result", Texts, "A result to leave out."),
                LIMIT,
                SKIP,
            ],
            List("BuildTime"),
        )],
    },
    Route {
        name: "build",
        path: "/api/tenant/{tenant}/build/{uuid}",
        operations: &[read("A build.", &[], Json("Build"))],
    },
    Route {
        name: "build_log",
        path: "/api/tenant/{tenant}/build/{uuid}/log",
        operations: &[read(
            "The log of a build from a byte on, also while it grows.",
            &[parameter("offset", Number, "The first byte, 0 by default.")],
            TextAnswer("text/plain"),
        )],
    },
    Route {
        name: "buildsets",
        path: "/api/tenant/{tenant}/buildsets",
        operations: &[read("The buildsets, newest first.", &BUILDSET_FILTERS, List("Buildset"))],
    },
    Route {
        name: "buildset",
        path: "/api/tenant/{tenant}/buildset/{uuid}",
        operations: &[read("A buildset with its builds.", &[], Json("Buildset"))],
    },
    Route {
        name: "badge",
        path: "/api/tenant/{tenant}/badge",
        operations: &[read(
            "A picture of the result of the newest complete buildset.",
            &[
                parameter("project", Texts, "A project; `*` is any text."),
                parameter("pipeline", Texts, "A pipeline; `*` is any text."),
                parameter("branch", Texts, "A branch; `*` is any text."),
            ],
            TextAnswer("image/svg+xml"),
        )],
    },
    Route {
        name: "semaphores",
        path: "/api/tenant/{tenant}/semaphores",
        operations: &[read("The semaphores with their holders.", &[], List("Semaphore"))],
    },
    Route {
        name: "autohold_list",
        path: "/api/tenant/{tenant}/autohold",
        operations: &[read("The holds of nodes.", &[PROJECT], List("Autohold"))],
    },
    Route {
        name: "autohold",
        path: "/api/tenant/{tenant}/autohold/{id}",
        operations: &[
            read("A hold of nodes.", &[], Json("Autohold")),
            Operation {
                method: Delete,
                summary: "Deletes a hold and releases its nodes.",
                query: &[],
                body: None,
                answer: NoContent,
            },
        ],
    },
    Route {
        name: "autohold_by_project",
        path: "/api/tenant/{tenant}/project/{project*}/autohold",
        operations: &[
            read("The holds of nodes of a project.", &[], List("Autohold")),
            Operation {
                method: Post,
                summary: "Holds the nodes of the next builds of a job that fail.",
                query: &[],
                body: Some("AutoholdRequest"),
                answer: True,
            },
        ],
    },
    Route {
        name: "enqueue",
        path: "/api/tenant/{tenant}/project/{project*}/enqueue",
        operations: &[Operation {
            method: Post,
            summary: "Enqueues a change or a ref.",
            query: &[],
            body: Some("EnqueueRequest"),
            answer: True,
        }],
    },
    Route {
        name: "dequeue",
        path: "/api/tenant/{tenant}/project/{project*}/dequeue",
        operations: &[Operation {
            method: Post,
            summary: "Dequeues a change or a ref.",
            query: &[],
            body: Some("DequeueRequest"),
            answer: True,
        }],
    },
    Route {
        name: "promote",
        path: "/api/tenant/{tenant}/promote",
        operations: &[Operation {
            method: Post,
            summary: "Moves changes to the front of their queues.",
            query: &[],
            body: Some("PromoteRequest"),
            answer: True,
        }],
    },
    Route {
        name: "tenant_state",
        path: "/api/tenant/{tenant}/state",
        operations: &[Operation {
            method: Post,
            summary: "Pauses, discards or continues the tenant's events.",
            query: &[],
            body: Some("TenantStateRequest"),
            answer: Null,
        }],
    },
    Route {
        name: "logs",
        path: "/logs/{tenant}/{build}/{file*}",
        operations: &[read("A file of a build's log.", &[], File)],
    },
];
