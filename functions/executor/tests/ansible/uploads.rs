//! Upload credentials for containers of object storage (Z4.8), with the real boto3 and
//! `community.aws` on the emulator's S3 and STS, which have the template's roles and policies.

use crate::support::*;
use async_trait::async_trait;
use aws_credential_types::Credentials;
use sluice_aws::{StsSessions, endpoint::DataEndpoint, object_storage_address};
use sluice_emulator::data::{DataOptions, Front, Principal, SecretAccessKey, serve};
use sluice_emulator::policy::Policies;
use sluice_emulator::template::{self, DeploymentTarget};
use sluice_executor::UploadSite;
use sluice_model::build::BuildResult::*;
use sluice_runtime::PortError;
use sluice_runtime::role_session::{RoleSessions, SessionCredentials, SessionRequest};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// The executor's own key.
const KEY: (&str, &str) = ("AKIDEXECUTOR", "a secret of the tests");

/// Uploads with the credentials of one container, and tries all else that they must not allow.
/// Prints the answers, and whether a variable is there that must not be.
const UPLOAD: &str = r#"
- hosts: localhost
  gather_facts: false
  vars:
    logs: "{{ upload_credentials.logs }}"
  environment:
    AWS_ACCESS_KEY_ID: "{{ logs.access_key_id }}"
    AWS_SECRET_ACCESS_KEY: "{{ logs.secret_access_key }}"
    AWS_SESSION_TOKEN: "{{ logs.session_token }}"
    AWS_DEFAULT_REGION: "{{ logs.region }}"
  tasks:
    - copy: {content: hello, dest: "{{ zuul.executor.work_root }}/note.txt"}
    - community.aws.s3_sync:
        endpoint_url: "{{ logs.endpoint_url }}"
        bucket: "{{ logs.bucket }}"
        key_prefix: "{{ logs.prefix }}{{ zuul.build }}"
        file_root: "{{ zuul.executor.work_root }}/note.txt"
        file_change_strategy: force
      register: module
    - debug: msg="module stored {{ module.uploads | map(attribute='s3_path') | join(',') }}"
    - command: "{{ ansible_playbook_python }} {{ playbook_dir }}/try.py"
      environment:
        ENDPOINT: "{{ logs.endpoint_url }}"
        BUCKET: "{{ logs.bucket }}"
        PREFIX: "{{ logs.prefix }}"
    - debug: msg="containers {{ upload_credentials | sort | join(',') }}, key {{ logs.secret_access_key }}"
"#;

const TRY: &str = r#"
import os
import tempfile
import boto3
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

s3 = boto3.client("s3", endpoint_url=os.environ["ENDPOINT"])
bucket, prefix = os.environ["BUCKET"], os.environ["PREFIX"]

def attempt(name, call):
    try:
        call()
        print("try", name, "allowed", flush=True)
    except ClientError as error:
        print("try", name, error.response["Error"]["Code"], flush=True)

large = tempfile.NamedTemporaryFile()
large.write(b"x" * (9 << 20))
large.flush()
parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
put = lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b"hello")
attempt("own", lambda: put(prefix + "a/b"))
attempt("parts", lambda: s3.upload_file(large.name, bucket, prefix + "large", Config=parts))
attempt("container", lambda: put("one/releases/a"))
attempt("tenant", lambda: put("two/logs/a"))
attempt("root", lambda: put("a"))
attempt("read", lambda: s3.get_object(Bucket=bucket, Key=prefix + "a/b"))
attempt("list", lambda: s3.list_objects_v2(Bucket=bucket, Prefix=prefix))
attempt("delete", lambda: s3.delete_object(Bucket=bucket, Key=prefix + "a/b"))
attempt("records", lambda: s3.put_object(Bucket="sluice-objects-000000000000", Key="logs/a", Body=b""))
sts = boto3.client("sts", endpoint_url=os.environ["ENDPOINT"])
role = "arn:aws:iam::000000000000:role/sluice-UploadRole"
attempt("again", lambda: sts.assume_role(RoleArn=role, RoleSessionName="again"))
"#;

const LOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="sees {{ upload_credentials | default({}) | sort | join(',') }}."
"#;

/// Object storage and STS with the template's roles, policies and buckets.
struct Storage {
    endpoint: String,
    uploads: String,
    role_arn: String,
    server: JoinHandle<()>,
    _directory: TempDir,
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Issues sessions, and keeps what was issued and requested for the test.
struct Recorded {
    sessions: StsSessions,
    issued: Mutex<Vec<(SessionRequest, SessionCredentials)>>,
}

#[async_trait]
impl RoleSessions for Recorded {
    async fn issue(&self, request: &SessionRequest) -> Result<SessionCredentials, PortError> {
        let issued = self.sessions.issue(request).await?;
        self.issued.lock().unwrap().push((request.clone(), issued.clone()));
        Ok(issued)
    }
}

impl Storage {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let front = Front::open(&directory.path().join("data"), DataOptions::default()).unwrap();
        front.keys().insert(KEY.0, Principal::new("executor"), SecretAccessKey::new(KEY.1));
        let (address, server) = serve(Arc::clone(&front), 0).await.unwrap();
        let endpoint = format!("http://{address}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/template.yaml");
        let plan = template::read(&path, &DeploymentTarget::machine(&endpoint)).unwrap();
        for bucket in &plan.buckets {
            front.s3().ensure_bucket(&bucket.name).unwrap();
        }
        front.add_roles(plan.assumable_roles());
        front.set_authorizer(Arc::new(Policies::of(&plan)));
        let environment = &plan.executor.as_ref().unwrap().environment;
        Self {
            uploads: environment["SLUICE_UPLOAD_BUCKET"].clone(),
            role_arn: environment["SLUICE_UPLOAD_ROLE"].clone(),
            endpoint,
            server,
            _directory: directory,
        }
    }

    /// Lets a story's executor issue credentials, and returns what it issues.
    async fn serve_uploads(&self, story: &mut Story) -> Arc<Recorded> {
        let credentials = Credentials::new(KEY.0, KEY.1, None, None, "test");
        let config = DataEndpoint::usual_sources()
            .region("us-east-1")
            .endpoint_url(&self.endpoint)
            .credentials_provider(credentials)
            .load()
            .await;
        let (region, endpoint_url) = object_storage_address(&config).unwrap();
        let sessions = StsSessions::new(&config);
        let recorded = Arc::new(Recorded { sessions, issued: Mutex::default() });
        let site = UploadSite {
            sessions: recorded.clone(),
            role_arn: self.role_arn.clone(),
            bucket: self.uploads.clone(),
            region,
            endpoint_url,
        };
        story.setup.push(Box::new(move |settings| settings.uploads = Some(site)));
        recorded
    }
}

/// Z4.8, Z5.4: a playbook uploads to its container with the credentials that it gets, and can do
/// nothing else with them; no log, file or other playbook has them.
#[tokio::test]
async fn a_playbook_uploads_to_its_container_and_nowhere_else() {
    let storage = Storage::start().await;
    let files = [(CONFIG, "up.yaml", UPLOAD), (CONFIG, "try.py", TRY), (CONFIG, "look.yaml", LOOK)];
    let mut story = Story::new(&[files[0], files[1], files[2], (PROJECT, "other.yaml", LOOK)]);
    let recorded = storage.serve_uploads(&mut story).await;
    let mut upload = story.trusted("up");
    upload.containers = vec!["logs".to_owned(), "releases".to_owned()];
    story.job.run = vec![untrusted("other")];
    story.job.post_run = vec![upload, story.trusted("look"), untrusted("other")];
    story.job.post_timeout_seconds = Some(1_000);
    let build = story.order.build.clone();
    let outcome = story.run().await;
    let tried = |name: &str, answer: &str| {
        let line = format!("try {name} {answer}");
        assert!(outcome.log.contains(&line), "{line}\n{}", outcome.log);
    };
    tried("own", "allowed");
    tried("parts", "allowed");
    for name in ["container", "tenant", "root", "read", "list", "delete", "records", "again"] {
        tried(name, "AccessDenied");
    }
    let stored = format!("module stored one/logs/{build}/note.txt");
    assert!(outcome.log.contains(&stored), "{}", outcome.log);
    assert!(outcome.log.contains("containers logs,releases, key [REDACTED]"), "{}", outcome.log);
    assert_eq!(outcome.log.matches("sees .").count(), 3, "{}", outcome.log);
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let issued = recorded.issued.lock().unwrap();
    assert_eq!(issued.len(), 2, "one for each container of the one playbook");
    for (request, credentials) in issued.iter() {
        assert_eq!(request.duration_seconds, 1_060);
        for secret in
            [&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token]
        {
            let found = std::process::Command::new("grep")
                .args(["-rlF", secret])
                .arg(outcome.jobdir.parent().unwrap())
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        }
    }
}

/// Z4.8: an executor that issues no credentials ends the build with what to configure.
#[tokio::test]
async fn an_executor_without_a_bucket_for_uploads_names_its_options() {
    let mut story = Story::new(&[(CONFIG, "look.yaml", LOOK)]);
    let mut look = story.trusted("look");
    look.containers = vec!["logs".to_owned()];
    story.job.run = vec![look];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
    let detail = outcome.ended.detail.as_deref().unwrap();
    assert!(detail.contains("--upload-bucket and --upload-role"), "{detail}");
    assert!(!outcome.log.contains("sees"), "nothing ran: {}", outcome.log);
}

/// Z4.8: if the role cannot be assumed, the playbook does not start, and the build is retried.
#[tokio::test]
async fn a_refused_role_is_named_and_the_build_is_retried() {
    let mut storage = Storage::start().await;
    storage.role_arn = "arn:aws:iam::000000000000:role/none".to_owned();
    let mut story = Story::new(&[(CONFIG, "look.yaml", LOOK)]);
    storage.serve_uploads(&mut story).await;
    let mut look = story.trusted("look");
    look.containers = vec!["logs".to_owned()];
    story.job.run = vec![look];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    let detail = outcome.ended.detail.as_deref().unwrap();
    assert!(detail.contains("container logs"), "{detail}");
    assert!(detail.contains("role/none: STS answered AccessDenied"), "{detail}");
    assert!(!outcome.log.contains("sees"), "{}", outcome.log);
}
