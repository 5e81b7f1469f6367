//! Each principal of the template may make exactly the listed calls.

use super::{Context, Document, Policies, Policy, PolicyDecision, PolicyError};
use crate::template::{DeploymentTarget, TemplatePlan};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// A role that the template's parameter names.
const NODE_ROLE: &str = "arn:aws:iam::123456789012:role/nodes";

fn our_plan() -> TemplatePlan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/template.yaml");
    let mut target = DeploymentTarget::machine("http://127.0.0.1:9324");
    let roles = format!("{NODE_ROLE}, arn:aws:iam::123456789012:role/more");
    target.parameters.insert("NodeRoles".to_owned(), roles);
    crate::template::read(&path, &target).unwrap()
}

fn policy(statements: &str) -> Result<Policy, PolicyError> {
    let document = format!(r#"{{"Version": "2012-10-17", "Statement": {statements}}}"#);
    Policy::new([serde_json::from_str::<Document>(&document).unwrap()])
}

/// Every call that any part of Sluice makes, by a short name and on a short resource.
const CALLS: &[(&str, &[&str])] = &[
    ("dynamodb:GetItem", &["table"]),
    ("dynamodb:BatchGetItem", &["table"]),
    ("dynamodb:Query", &["table", "table/index/due", "table/index/find"]),
    ("dynamodb:PutItem", PARTITIONS),
    ("dynamodb:UpdateItem", PARTITIONS),
    ("dynamodb:DeleteItem", PARTITIONS),
    ("dynamodb:ConditionCheckItem", &["table"]),
    ("dynamodb:Scan", &["table"]),
    ("dynamodb:DeleteTable", &["table"]),
    ("s3:GetObject", OBJECTS),
    ("s3:PutObject", OBJECTS),
    ("s3:DeleteObject", OBJECTS),
    ("s3:AbortMultipartUpload", OBJECTS),
    ("s3:ListBucket", &["bucket", "uploads"]),
    ("sqs:SendMessage", QUEUES),
    ("sqs:ReceiveMessage", QUEUES),
    ("sqs:DeleteMessage", QUEUES),
    ("sqs:ChangeMessageVisibility", QUEUES),
    ("sqs:GetQueueAttributes", QUEUES),
    ("sqs:PurgeQueue", QUEUES),
    (
        "kms:Decrypt",
        &[
            "connection/github/webhook-secret",
            "connection/github/token",
            "connection/ec2/secret-access-key",
            "pool-key",
            "keys/1",
            "oidc/1",
            "returned/1",
        ],
    ),
    ("kms:Encrypt", &["key", "keys/1", "oidc/1", "returned/1"]),
    ("ec2:RunInstances", &["instance"]),
    ("ec2:TerminateInstances", &["instance"]),
    ("ec2:CreateTags", &["instance"]),
    ("ec2:DescribeInstances", &["*"]),
    ("ec2:DescribeImages", &["*"]),
    ("sts:AssumeRole", &["node-role", "upload-role", "another-role"]),
    ("iam:PassRole", &["*"]),
];

/// One partition of each kind of records (ARCHITECTURE.md, Records).
const PARTITIONS: &[&str] = &[
    "delivery#1",
    "change#1",
    "refs#1",
    "tenant#1",
    "system-events#1",
    "tenants",
    "tenants-listing",
    "queue#1",
    "merge#1",
    "build#1",
    "provided#1",
    "landing#1",
    "branch#1",
    "non-config-merge#1",
    "report#1",
    "buildset#1",
    "provider#1",
    "session#1",
    "zone-builds#1",
    "repository#1",
    "health#1",
    "schedule#1",
    "semaphores#1",
    "autohold#1",
    "dead-letter#1",
    "image#1",
    "quarantine",
];

/// One object of each kind.
const OBJECTS: &[&str] = &[
    "deliveries/1",
    "system/main.yaml",
    "system/included/1",
    "system/connections.json",
    "system/pool-key.json",
    "layouts/1",
    "layouts/projects/1",
    "jobs/1",
    "speculations/1",
    "git/1/1.joined",
    "git/1/deltas/1",
    "refs/1",
    "images/1",
    "logs/1",
    "returned/1",
    "keys/1.pem",
    "oidc/1.pem",
    "uploads/1",
];

const QUEUES: &[&str] = &[
    "events.fifo",
    "gate.fifo",
    "tenants.fifo",
    "pool.fifo",
    "reports.fifo",
    "images.fifo",
    "merges",
    "wakes",
    "builds-high",
    "builds-normal",
    "builds-low",
    "events-dead.fifo",
    "gate-dead.fifo",
    "tenants-dead.fifo",
    "pool-dead.fifo",
    "reports-dead.fifo",
    "images-dead.fifo",
    "merges-dead",
    "wakes-dead",
    "builds-high-dead",
    "builds-normal-dead",
    "builds-low-dead",
];

fn arn(plan: &TemplatePlan, action: &str, short: &str) -> String {
    match (action.split(':').next().unwrap(), short) {
        // A partition is of the table itself, and asked about by its key.
        ("dynamodb", _) => {
            plan.tables[0].arn.clone() + short.strip_prefix("table").unwrap_or_default()
        }
        ("s3", "bucket") => plan.buckets[0].arn.clone(),
        ("s3", "uploads") => plan.buckets[1].arn.clone(),
        ("s3", "uploads/1") => format!("{}/1", plan.buckets[1].arn),
        ("s3", key) => format!("{}/{key}", plan.buckets[0].arn),
        ("sqs", name) => format!("arn:aws:sqs:us-east-1:000000000000:sluice-{name}"),
        ("kms", _) => plan.keys[0].arn.clone(),
        ("ec2", "instance") => "arn:aws:ec2:us-east-1:000000000000:instance/i-1".to_owned(),
        ("sts", "node-role") => NODE_ROLE.to_owned(),
        ("sts", "upload-role") => plan.roles[0].arn.clone(),
        ("sts", other) => format!("arn:aws:iam::123456789012:role/{other}"),
        (_, other) => other.to_owned(),
    }
}

/// Returns, for each principal, what it may do of [`CALLS`]: one line per set of resources.
fn table_of_allowed() -> String {
    let plan = our_plan();
    let policies = Policies::of(&plan);
    let context = Context::none()
        .with("aws:RequestTag/sluice:provider", "here")
        .with("aws:ResourceTag/sluice:provider", "here")
        .with("s3:if-none-match", "*");
    let mut text = String::new();
    let roles = plan.roles.iter().map(|role| role.name.as_str());
    for principal in plan.principals().map(|(principal, _)| principal).chain(roles) {
        writeln!(text, "{principal}").unwrap();
        for (action, shorts) in CALLS {
            let allowed: Vec<_> = shorts
                .iter()
                .filter(|short| {
                    let context = context
                        .clone()
                        .with("kms:EncryptionContext:sluice", short)
                        .with("dynamodb:LeadingKeys", short);
                    policies.decide(principal, action, &arn(&plan, action, short), &context)
                        == PolicyDecision::Allowed
                })
                .copied()
                .collect();
            if !allowed.is_empty() {
                writeln!(text, "  {action}: {}", allowed.join(" ")).unwrap();
            }
        }
    }
    text
}

/// C2.2
#[test]
fn each_principal_may_make_exactly_the_listed_calls() {
    insta::assert_snapshot!(table_of_allowed());
}

/// C2.2
#[test]
fn a_principal_without_policy_may_do_nothing() {
    let plan = our_plan();
    let decision = Policies::of(&plan).decide(
        "stranger",
        "dynamodb:GetItem",
        &plan.tables[0].arn,
        &Context::none(),
    );
    assert_eq!(decision, PolicyDecision::NotAllowed);
}

/// C2.2
#[test]
fn every_principal_is_refused_without_tls() {
    let plan = our_plan();
    let policies = Policies::of(&plan);
    let bare = Context::none().with("aws:SecureTransport", "false");
    let sealed = Context::none().with("aws:SecureTransport", "true");
    for (principal, _) in plan.principals() {
        let ask = |context: &Context| {
            policies.decide(principal, "dynamodb:GetItem", &plan.tables[0].arn, context)
        };
        assert_eq!(
            ask(&bare),
            PolicyDecision::Denied { statement: "OnlyOverTls".into() },
            "{principal}"
        );
        assert_eq!(ask(&sealed), PolicyDecision::Allowed, "{principal}");
    }
}

/// C2.2
#[test]
fn the_launcher_ends_and_marks_only_instances_that_a_launcher_made() {
    let plan = our_plan();
    let policies = Policies::of(&plan);
    let instance = "arn:aws:ec2:us-east-1:000000000000:instance/i-1";
    let other = Context::none().with("aws:ResourceTag/owner", "another");
    for action in ["ec2:TerminateInstances", "ec2:CreateTags"] {
        assert_eq!(
            policies.decide("launcher", action, instance, &other),
            PolicyDecision::NotAllowed
        );
        assert_eq!(
            policies.decide("launcher", action, instance, &Context::none()),
            PolicyDecision::NotAllowed
        );
    }
    assert_eq!(
        policies.decide("launcher", "ec2:RunInstances", instance, &Context::none()),
        PolicyDecision::NotAllowed
    );
    let subnet = "arn:aws:ec2:us-east-1:000000000000:subnet/subnet-1";
    let inside = |vpc: &str| {
        Context::none().with("ec2:Vpc", &format!("arn:aws:ec2:us-east-1:000000000000:vpc/{vpc}"))
    };
    let run_in = |vpc: &str| policies.decide("launcher", "ec2:RunInstances", subnet, &inside(vpc));
    assert_eq!(run_in("vpc-loopback"), PolicyDecision::Allowed);
    assert_eq!(run_in("vpc-other"), PolicyDecision::NotAllowed);
}

/// C2.2, Z5.2: a key pair is made when it is first needed, and none is replaced or opened.
#[test]
fn the_api_stores_key_pairs_and_can_neither_replace_nor_decrypt_one() {
    let plan = our_plan();
    let policies = Policies::of(&plan);
    let put = |key: &str, context: &Context| {
        policies.decide("api", "s3:PutObject", &arn(&plan, "s3:PutObject", key), context)
    };
    let if_absent = Context::none().with("s3:if-none-match", "*");
    assert_eq!(put("keys/github/a.pem", &if_absent), PolicyDecision::Allowed);
    assert_eq!(put("keys/github/a.pem", &Context::none()), PolicyDecision::NotAllowed);
    assert_eq!(put("logs/acme/1/a", &if_absent), PolicyDecision::NotAllowed);
    let seal = |action: &str| {
        let context = Context::none().with("kms:EncryptionContext:sluice", "keys/github/a.pem");
        policies.decide("api", action, &plan.keys[0].arn, &context)
    };
    assert_eq!(seal("kms:Encrypt"), PolicyDecision::Allowed);
    assert_eq!(seal("kms:Decrypt"), PolicyDecision::NotAllowed);
}

/// C2.2, Z2.2: who runs or digests what strangers wrote cannot order a landing, whatever becomes of
/// it.
#[test]
fn functions_that_face_the_internet_write_only_their_own_records() {
    let plan = our_plan();
    let policies = Policies::of(&plan);
    let table = &plan.tables[0].arn;
    let may = |principal: &str, action: &str, partition: &str| {
        let context = Context::none().with("dynamodb:LeadingKeys", partition);
        policies.decide(principal, action, table, &context) == PolicyDecision::Allowed
    };
    for (principal, own, others) in [
        (
            "executor",
            ["build#1", "session#1"],
            ["landing#1", "queue#one/gate/a", "tenant#one", "report#1", "merge#1"],
        ),
        (
            "merger",
            ["merge#1", "repository#a"],
            ["landing#1", "queue#one/gate/a", "tenant#one", "report#1", "build#1"],
        ),
        (
            "intake",
            ["delivery#1", "refs#a"],
            ["landing#1", "branch#a@main", "build#1", "report#1", "merge#1"],
        ),
        (
            "tenant",
            ["tenant#one", "tenants"],
            ["landing#1", "queue#one/gate/a", "branch#a@main", "report#1", "build#1"],
        ),
        (
            "reporter",
            ["landing#1", "report#1"],
            ["branch#a@main", "queue#one/gate/a", "tenant#one", "merge#1", "build#1"],
        ),
        (
            "launcher",
            ["provider#a", "autohold#one"],
            ["landing#1", "queue#one/gate/a", "tenant#one", "merge#1", "build#1"],
        ),
        (
            "timer",
            ["delivery#1", "dead-letter#1"],
            ["landing#1", "queue#one/gate/a", "branch#a@main", "merge#1", "build#1"],
        ),
    ] {
        for action in ["dynamodb:PutItem", "dynamodb:DeleteItem"] {
            assert!(
                own.iter().all(|partition| may(principal, action, partition)),
                "{principal} {action}"
            );
            assert!(
                !others.iter().any(|partition| may(principal, action, partition)),
                "{principal} {action}"
            );
        }
    }
    assert!(may("webhook", "dynamodb:PutItem", "delivery#1"));
    assert!(!may("webhook", "dynamodb:PutItem", "change#1"));
    assert!(may("gate", "dynamodb:PutItem", "landing#1"));
}

/// C2.2: whatever a function has to write, the quarantine takes what it cannot read. The API only
/// stores commands, and reads no messages.
#[test]
fn functions_that_write_records_may_quarantine_unreadable_ones() {
    let plan = our_plan();
    let policies = Policies::of(&plan);
    let table = &plan.tables[0].arn;
    let may = |principal: &str, partition: &str| {
        let context = Context::none().with("dynamodb:LeadingKeys", partition);
        policies.decide(principal, "dynamodb:PutItem", table, &context) == PolicyDecision::Allowed
    };
    for (principal, _) in plan.principals() {
        let writes = PARTITIONS.iter().any(|partition| may(principal, partition));
        assert_eq!(may(principal, "quarantine"), writes && principal != "api", "{principal}");
        assert!(!may(principal, "of-no-kind#1"), "{principal}");
    }
}

/// Z4.8, C2.2: executors issue upload credentials by a role that nothing else may assume, and that
/// may only upload.
#[test]
fn only_the_executor_may_assume_the_upload_role() {
    let plan = our_plan();
    let [role] = plan.roles.as_slice() else { panic!("{:?}", plan.roles) };
    assert_eq!(role.trusted, ["executor"]);
    let policies = Policies::of(&plan);
    for (principal, _) in plan.principals() {
        let decision = policies.decide(principal, "sts:AssumeRole", &role.arn, &Context::none());
        let expected = principal == "executor";
        assert_eq!(decision == PolicyDecision::Allowed, expected, "{principal}");
    }
    let executor = &plan.executor.as_ref().unwrap().environment;
    assert_eq!(executor["SLUICE_UPLOAD_ROLE"], role.arn);
    assert_eq!(executor["SLUICE_UPLOAD_BUCKET"], plan.buckets[1].name);
}

/// C2.2
#[test]
fn every_queue_of_the_table_is_in_the_template() {
    let plan = our_plan();
    let names: BTreeSet<_> =
        plan.queues.iter().map(|queue| queue.name.replacen("sluice-", "", 1)).collect();
    assert_eq!(names, QUEUES.iter().map(|name| (*name).to_owned()).collect());
}

/// C2.2
#[test]
fn a_statement_that_denies_wins_over_one_that_allows() {
    let policy = policy(
        r#"[{"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Sid": "Keep", "Effect": "Deny", "Action": "s3:Delete*", "Resource": "arn:aws:s3:::b/logs/*"}]"#,
    )
    .unwrap();
    let decide = |action: &str, key: &str| {
        policy.decide(action, &format!("arn:aws:s3:::b/{key}"), &Context::none())
    };
    assert_eq!(
        decide("s3:DeleteObject", "logs/1"),
        PolicyDecision::Denied { statement: "Keep".into() }
    );
    assert_eq!(decide("s3:DeleteObject", "git/1"), PolicyDecision::Allowed);
    assert_eq!(decide("sqs:SendMessage", "git/1"), PolicyDecision::NotAllowed);
}

/// C2.2
#[test]
fn actions_know_no_case_and_resources_do() {
    let policy = policy(
        r#"[{"Effect": "Allow", "Action": "S3:getobject", "Resource": "arn:aws:s3:::b/a?c*"}]"#,
    )
    .unwrap();
    let decide = |resource: &str| policy.decide("s3:GetObject", resource, &Context::none());
    assert_eq!(decide("arn:aws:s3:::b/abc/d"), PolicyDecision::Allowed);
    assert_eq!(decide("arn:aws:s3:::b/abc"), PolicyDecision::Allowed);
    assert_eq!(decide("arn:aws:s3:::b/ABC"), PolicyDecision::NotAllowed);
    assert_eq!(decide("arn:aws:s3:::b/ac"), PolicyDecision::NotAllowed);
}

/// C2.2
#[test]
fn a_condition_of_an_unknown_operator_is_an_error_and_not_left_out() {
    let statements = r#"[{"Effect": "Allow", "Action": "*", "Resource": "*",
        "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}]"#;
    assert!(
        matches!(policy(statements), Err(PolicyError::Operator { operator }) if operator == "IpAddress")
    );
    let unknown = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "NotAction": "s3:*", "Resource": "*"}]}"#;
    assert!(serde_json::from_str::<Document>(unknown).is_err());
}
