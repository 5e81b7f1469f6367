//! KMS: what is sealed under a context opens under that context only.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::super::auth::AllowAll;
use super::*;

fn call(lab: &Lab, operation: &str, body: &Value) -> Result<Value, String> {
    let caller = Caller::new(Principal::new("tester"), Arc::new(AllowAll));
    let answer = lab.front.kms().call(operation, body.to_string().as_bytes(), &caller);
    answer.map(|text| serde_json::from_str(&text).unwrap()).map_err(|problem| problem.kind)
}

#[test]
fn what_is_sealed_under_a_context_opens_under_that_context_only() {
    let lab = lab();
    let arn = lab.front.kms().ensure_key("seal").unwrap();
    let plain = BASE64.encode(b"a webhook secret");
    let sealed = call(
        &lab,
        "Encrypt",
        &json!({"KeyId": "seal", "Plaintext": plain, "EncryptionContext": {"of": "a"}}),
    );
    let sealed = sealed.unwrap();
    assert_eq!(sealed["KeyId"], json!(arn));
    let open = |context: Value| {
        call(
            &lab,
            "Decrypt",
            &json!({"CiphertextBlob": sealed["CiphertextBlob"], "EncryptionContext": context}),
        )
    };
    assert_eq!(open(json!({"of": "a"})).unwrap()["Plaintext"], json!(plain));
    for context in [json!({}), json!({"of": "b"}), json!({"of": "a", "more": ""})] {
        assert_eq!(open(context).unwrap_err(), "InvalidCiphertextException");
    }
    let long = BASE64.encode(vec![0; 4097]);
    let refused = call(&lab, "Encrypt", &json!({"KeyId": arn, "Plaintext": long}));
    assert_eq!(refused.unwrap_err(), "ValidationException");
    let unknown = call(&lab, "Encrypt", &json!({"KeyId": "other", "Plaintext": plain}));
    assert_eq!(unknown.unwrap_err(), "NotFoundException");
}

#[test]
fn a_key_outlives_the_process_in_a_file_that_only_its_user_reads() {
    use std::os::unix::fs::PermissionsExt;
    let lab = lab();
    lab.front.kms().ensure_key("seal").unwrap();
    let sealed = call(&lab, "Encrypt", &json!({"KeyId": "seal", "Plaintext": "eA=="})).unwrap();
    let path = lab.directory.path().join("kms/seal.key");
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let Lab { front, directory } = lab;
    drop(front);
    let again = Lab { front: open(directory.path()), directory };
    let opened =
        call(&again, "Decrypt", &json!({"CiphertextBlob": sealed["CiphertextBlob"]})).unwrap();
    assert_eq!(opened["Plaintext"], json!("eA=="));
}

#[test]
fn secrets_do_not_show_themselves() {
    let shown = format!("{:?}", SecretAccessKey::new("hidden"));
    assert!(!shown.contains("hidden"));
}

#[tokio::test]
async fn a_signed_request_is_encrypted_and_the_policies_are_asked_for_the_key() {
    let lab = lab();
    lab.front.kms().ensure_key("seal").unwrap();
    let body = json!({"KeyId": "seal", "Plaintext": "eA=="}).to_string();
    let answer = lab.front.call(signed("Encrypt", body.clone())).await;
    assert_eq!(answer.status().as_u16(), 200, "{:?}", answer.body());
    lab.front.set_authorizer(Arc::new(Nothing));
    let answer = lab.front.call(signed("Encrypt", body)).await;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    assert!(text.contains("AccessDeniedException") && text.contains(":key/seal"), "{text}");
    assert_eq!(lab.front.meter().snapshot().total(|row| row.service == "kms").calls, 2);
}

/// Allows nothing.
struct Nothing;

impl Authorizer for Nothing {
    fn allow(&self, _principal: &Principal, _action: &str, _resource_arn: &str) -> Decision {
        Decision::Deny { why: "no identity-based policy allows it".to_owned() }
    }
}

/// A request to KMS, signed by AWS's own signer.
fn signed(operation: &str, body: String) -> http::Request<Bytes> {
    let target = format!("TrentService.{operation}");
    let credentials = aws_sdk_dynamodb::config::Credentials::new(KEY, SECRET, None, None, "tests");
    let identity = credentials.into();
    let params = aws_sigv4::sign::v4::SigningParams::builder()
        .identity(&identity)
        .region(DEFAULT_REGION)
        .name("kms")
        .time(std::time::SystemTime::now())
        .settings(aws_sigv4::http_request::SigningSettings::default())
        .build()
        .unwrap();
    let signable = aws_sigv4::http_request::SignableRequest::new(
        "POST",
        "http://127.0.0.1/",
        [("x-amz-target", target.as_str())].into_iter(),
        aws_sigv4::http_request::SignableBody::Bytes(body.as_bytes()),
    )
    .unwrap();
    let (instructions, _) =
        aws_sigv4::http_request::sign(signable, &params.into()).unwrap().into_parts();
    let mut request = http::Request::post("http://127.0.0.1/")
        .header("x-amz-target", target)
        .body(Bytes::from(body))
        .unwrap();
    instructions.apply_to_request_http1x(&mut request);
    request
}
