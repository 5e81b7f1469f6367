//! Sessions of the template's upload role, limited by a session policy (Z4.8).

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::policy::Policies;
use crate::template::{DeploymentTarget, TemplatePlan};

/// Allows uploads below one prefix.
const UPLOADS: &str = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
    "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
    "Resource": "arn:aws:s3:::sluice-uploads-000000000000/acme/logs/*"}]}"#;
/// Allows everything.
const EVERYTHING: &str = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
    "Action": "*", "Resource": "*"}]}"#;
const BUCKET: &str = "sluice-uploads-000000000000";

/// Returns an account with our template's roles, policies and buckets, whose executor has the key
/// of the tests.
fn account(life_seconds_max: Option<u64>) -> (Lab, TemplatePlan) {
    let lab = lab();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/template.yaml");
    let target = DeploymentTarget::machine("http://127.0.0.1:9324");
    let plan = crate::template::read(&path, &target).unwrap();
    for bucket in &plan.buckets {
        lab.front.s3().ensure_bucket(&bucket.name).unwrap();
    }
    for principal in ["executor", "api"] {
        let key = format!("AKID{}", principal.to_uppercase());
        lab.front.keys().insert(key, Principal::new(principal), SecretAccessKey::new(SECRET));
    }
    lab.front
        .add_roles(plan.assumable_roles().map(|role| AssumableRole { life_seconds_max, ..role }));
    lab.front.set_authorizer(Arc::new(Policies::of(&plan)));
    (lab, plan)
}

/// Asks for a session of the upload role; the error is its code.
async fn assume(
    lab: &Lab,
    plan: &TemplatePlan,
    principal: &str,
    policy: Option<&str>,
    seconds: i32,
) -> Result<Credentials, String> {
    let key = format!("AKID{}", principal.to_uppercase());
    let config = aws_sdk_sts::Config::builder()
        .behavior_version(aws_sdk_sts::config::BehaviorVersion::latest())
        .region(Region::new(DEFAULT_REGION))
        .credentials_provider(Credentials::new(key, SECRET, None, None, "tests"))
        .endpoint_url(ENDPOINT)
        .http_client(Connector::new(Arc::clone(&lab.front)).into_client());
    let client = aws_sdk_sts::Client::from_conf(config.build());
    let call = client.assume_role().role_arn(&plan.roles[0].arn).role_session_name("build");
    let call = call.set_policy(policy.map(str::to_owned)).duration_seconds(seconds);
    let issued = call.send().await.map_err(|error| error.code().unwrap_or_default().to_owned())?;
    let issued = issued.credentials.unwrap();
    let (id, secret) = (issued.access_key_id, issued.secret_access_key);
    Ok(Credentials::new(id, secret, Some(issued.session_token), None, "tests"))
}

fn s3(lab: &Lab, credentials: Credentials) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(DEFAULT_REGION))
        .credentials_provider(credentials)
        .retry_config(aws_sdk_s3::config::retry::RetryConfig::disabled())
        .force_path_style(true)
        .endpoint_url(ENDPOINT)
        .http_client(Connector::new(Arc::clone(&lab.front)).into_client());
    aws_sdk_s3::Client::from_conf(config.build())
}

/// Puts an object and returns the code of the error, or `stored`.
async fn put(s3: &aws_sdk_s3::Client, bucket: &str, key: &str) -> String {
    let body = ByteStream::from_static(b"content");
    match s3.put_object().bucket(bucket).key(key).body(body).send().await {
        Ok(_) => "stored".to_owned(),
        Err(error) => error.code().unwrap_or_default().to_owned(),
    }
}

/// Z4.8: a session may do what both its role and its own policy allow: upload below one prefix, and
/// nothing else.
#[tokio::test]
async fn a_session_uploads_below_its_prefix_and_does_nothing_else() {
    let (lab, plan) = account(None);
    let credentials = assume(&lab, &plan, "executor", Some(UPLOADS), 900).await.unwrap();
    let client = s3(&lab, credentials);
    assert_eq!(put(&client, BUCKET, "acme/logs/a").await, "stored");
    for key in ["acme/other/a", "acme/logs", "acme/logs2/a", "other/logs/a", "a"] {
        assert_eq!(put(&client, BUCKET, key).await, "AccessDenied", "{key}");
    }
    let objects = &plan.buckets[0].name;
    assert_eq!(put(&client, objects, "acme/logs/a").await, "AccessDenied");
    let read = client.get_object().bucket(BUCKET).key("acme/logs/a").send().await.unwrap_err();
    assert_eq!(read.code(), Some("AccessDenied"));
    let delete = client.delete_object().bucket(BUCKET).key("acme/logs/a").send().await;
    assert_eq!(delete.unwrap_err().code(), Some("AccessDenied"));
    let list = client.list_objects_v2().bucket(BUCKET).prefix("acme/logs/").send().await;
    assert_eq!(list.unwrap_err().code(), Some("AccessDenied"));
    let source = format!("{BUCKET}/acme/logs/a");
    let copy = client.copy_object().bucket(BUCKET).key("acme/logs/c").copy_source(source);
    assert_eq!(copy.send().await.unwrap_err().code(), Some("AccessDenied"), "it may not read");
}

/// Z4.8: uploads in parts need no further right; they may also be given up.
#[tokio::test]
async fn a_session_uploads_in_parts() {
    let (lab, plan) = account(None);
    let credentials = assume(&lab, &plan, "executor", Some(UPLOADS), 900).await.unwrap();
    let client = s3(&lab, credentials);
    let key = "acme/logs/large";
    let begin = || client.create_multipart_upload().bucket(BUCKET).key(key).send();
    let id = begin().await.unwrap().upload_id.unwrap();
    let part = client.upload_part().bucket(BUCKET).key(key).upload_id(&id).part_number(1);
    let part = part.body(ByteStream::from_static(b"part")).send().await.unwrap();
    let part = CompletedPart::builder().part_number(1).set_e_tag(part.e_tag).build();
    let parts = CompletedMultipartUpload::builder().parts(part).build();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key(key).upload_id(id);
    complete.multipart_upload(parts).send().await.unwrap();
    let id = begin().await.unwrap().upload_id.unwrap();
    client.abort_multipart_upload().bucket(BUCKET).key(key).upload_id(id).send().await.unwrap();
    let elsewhere = client.create_multipart_upload().bucket(BUCKET).key("acme/large").send().await;
    assert_eq!(elsewhere.unwrap_err().code(), Some("AccessDenied"));
}

/// Z4.8: a session policy adds no right to its role.
#[tokio::test]
async fn a_session_policy_allows_no_more_than_the_role() {
    let (lab, plan) = account(None);
    for policy in [Some(EVERYTHING), None] {
        let credentials = assume(&lab, &plan, "executor", policy, 900).await.unwrap();
        let client = s3(&lab, credentials);
        assert_eq!(put(&client, BUCKET, "any/key").await, "stored");
        assert_eq!(put(&client, &plan.buckets[0].name, "logs/a").await, "AccessDenied");
        let read = client.get_object().bucket(BUCKET).key("any/key").send().await.unwrap_err();
        assert_eq!(read.code(), Some("AccessDenied"));
    }
}

/// Z4.8: temporary credentials are worth nothing without their token, and after their time; also in
/// signed URLs.
#[tokio::test]
async fn a_session_needs_its_token_and_expires() {
    let (lab, plan) = account(None);
    let issued = assume(&lab, &plan, "executor", Some(UPLOADS), 900).await.unwrap();
    let (id, secret) = (issued.access_key_id(), issued.secret_access_key());
    for token in [None, Some("another".to_owned())] {
        let without = Credentials::new(id, secret, token, None, "tests");
        assert_eq!(put(&s3(&lab, without), BUCKET, "acme/logs/a").await, "InvalidToken");
    }
    let signing = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let client = s3(&lab, issued);
    for (key, status) in [("acme/logs/a", 200), ("acme/other/a", 403)] {
        let signed = client.put_object().bucket(BUCKET).key(key).presigned(signing.clone());
        let signed = signed.await.unwrap();
        let mut request = http::Request::builder().method("PUT").uri(signed.uri());
        for (name, value) in signed.headers() {
            request = request.header(name, value);
        }
        let mut request = request.body(Bytes::from_static(b"content")).unwrap();
        let host = request.uri().authority().unwrap().to_string();
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(lab.front.call(request).await.status().as_u16(), status, "{key}");
    }
    let (expired, plan) = account(Some(0));
    let issued = assume(&expired, &plan, "executor", Some(UPLOADS), 900).await.unwrap();
    assert_eq!(put(&s3(&expired, issued), BUCKET, "acme/logs/a").await, "ExpiredToken");
}

/// Z4.8: the role is the executor's alone; and what AWS refuses is refused.
#[tokio::test]
async fn the_upload_role_is_refused_to_others_and_for_longer_than_an_hour() {
    let (lab, plan) = account(None);
    for (principal, policy, seconds, code) in [
        ("api", UPLOADS, 900, "AccessDenied"),
        ("executor", UPLOADS, 899, "ValidationError"),
        ("executor", UPLOADS, 3_601, "ValidationError"),
        ("executor", "{}", 900, "MalformedPolicyDocument"),
        ("executor", &" ".repeat(2_049), 900, "ValidationError"),
    ] {
        let refused = assume(&lab, &plan, principal, Some(policy), seconds).await;
        assert_eq!(refused.unwrap_err(), code, "{principal} {seconds}");
    }
}
