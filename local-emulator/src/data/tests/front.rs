//! Signatures, policies, faults and the socket, across services.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::ByteStream;

use super::*;

/// Allows the actions that are named, on resources that begin as named.
struct Only(Vec<(&'static str, &'static str)>);

impl Authorizer for Only {
    fn allow(&self, principal: &Principal, action: &str, resource_arn: &str) -> Decision {
        assert_eq!(principal.as_str(), "tester");
        if self
            .0
            .iter()
            .any(|(allowed, resource)| *allowed == action && resource_arn.starts_with(resource))
        {
            return Decision::Allow;
        }
        Decision::Deny { why: "no identity-based policy allows it".to_owned() }
    }
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

#[tokio::test]
async fn an_unknown_key_and_a_wrong_secret_are_refused_by_every_service_in_its_own_shape() {
    let lab = lab();
    let table = [
        (
            "AKIDNOBODY",
            SECRET,
            "UnrecognizedClientException",
            "InvalidClientTokenId",
            "InvalidAccessKeyId",
        ),
        (
            KEY,
            "wrong",
            "InvalidSignatureException",
            "SignatureDoesNotMatch",
            "SignatureDoesNotMatch",
        ),
    ];
    for (key, secret, dynamo, sqs, s3) in table {
        let clients = lab.clients_of(key, secret);
        let refused = clients.dynamo.list_tables().send().await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.raw_response().unwrap().status().as_u16()),
            (Some(dynamo), 400)
        );
        let refused = clients.sqs.list_queues().send().await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.raw_response().unwrap().status().as_u16()),
            (Some(sqs), 403)
        );
        let refused = clients.s3.list_buckets().send().await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.raw_response().unwrap().status().as_u16()),
            (Some(s3), 403)
        );
    }
    assert_eq!(lab.front.call(plain("POST", "/")).await.status().as_u16(), 403);
    assert!(
        lab.front.meter().snapshot().rows.is_empty(),
        "a call without a valid signature is not counted"
    );
}

#[tokio::test]
async fn a_body_that_was_changed_after_signing_is_refused() {
    let lab = lab();
    let request = http::Request::post("http://127.0.0.1/")
        .header("host", "127.0.0.1")
        .header("x-amz-target", "AmazonSQS.ListQueues")
        .header("x-amz-date", "20200101T000000Z")
        .header("x-amz-content-sha256", "00")
        .header(
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={KEY}/20200101/us-east-1/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=00"),
        )
        .body(Bytes::from_static(b"{}"))
        .unwrap();
    let answer = lab.front.call(request).await;
    assert_eq!(answer.status().as_u16(), 403);
    assert!(String::from_utf8_lossy(answer.body()).contains("SignatureDoesNotMatch"));
}

#[tokio::test]
async fn what_the_policies_do_not_allow_is_refused_by_each_service() {
    let lab = lab();
    let clients = lab.clients();
    create_records(&clients.dynamo).await;
    clients.s3.create_bucket().bucket("objects").send().await.unwrap();
    let url =
        clients.sqs.create_queue().queue_name("wakes").send().await.unwrap().queue_url.unwrap();
    lab.front.set_authorizer(Arc::new(Only(vec![
        ("dynamodb:PutItem", "arn:aws:dynamodb:us-east-1:000000000000:table/records"),
        ("sqs:SendMessage", "arn:aws:sqs:us-east-1:000000000000:wakes"),
        ("s3:PutObject", "arn:aws:s3:::objects/deliveries/"),
        ("s3:GetObject", "arn:aws:s3:::objects/"),
    ])));
    let put = clients.dynamo.put_item().table_name("records").item("pk", s("a")).item("sk", s("a"));
    put.send().await.unwrap();
    let delete =
        clients.dynamo.delete_item().table_name("records").key("pk", s("a")).key("sk", s("a"));
    let refused = delete.send().await.unwrap_err();
    assert_eq!(refused.code(), Some("AccessDeniedException"));
    assert!(refused.message().unwrap().contains("dynamodb:DeleteItem"));

    clients.sqs.send_message().queue_url(&url).message_body("x").send().await.unwrap();
    let refused = clients.sqs.receive_message().queue_url(&url).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("AccessDenied"));

    let body = || ByteStream::from_static(b"x");
    clients
        .s3
        .put_object()
        .bucket("objects")
        .key("deliveries/1")
        .body(body())
        .send()
        .await
        .unwrap();
    let refused = clients
        .s3
        .put_object()
        .bucket("objects")
        .key("layouts/1")
        .body(body())
        .send()
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some("AccessDenied"));
    let missing =
        clients.s3.get_object().bucket("objects").key("nothing").send().await.unwrap_err();
    assert_eq!(
        missing.code(),
        Some("AccessDenied"),
        "a caller that may not list cannot learn that the object is missing"
    );
}

#[tokio::test]
async fn a_call_to_s3_that_a_policy_refuses_is_counted_and_one_that_is_badly_signed_is_not() {
    let lab = lab();
    let clients = lab.clients();
    clients.s3.create_bucket().bucket("objects").send().await.unwrap();
    lab.front.set_authorizer(Arc::new(Only(vec![("s3:GetObject", "arn:aws:s3:::objects/")])));
    lab.front.meter().reset();
    let badly_signed = lab.clients_of(KEY, "wrong").s3;
    let refused = badly_signed.list_objects_v2().bucket("objects").send().await.unwrap_err();
    assert_eq!(refused.code(), Some("SignatureDoesNotMatch"));
    assert!(lab.front.meter().snapshot().rows.is_empty(), "it did not prove who it is");

    let refused = clients.s3.list_objects_v2().bucket("objects").send().await.unwrap_err();
    assert_eq!(refused.code(), Some("AccessDenied"));
    let body = ByteStream::from_static(b"x");
    let refused =
        clients.s3.put_object().bucket("objects").key("k").body(body).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("AccessDenied"));
    // Refused by the operation and not at the door; without a body that could say why.
    let refused =
        clients.s3.head_object().bucket("objects").key("nothing").send().await.unwrap_err();
    assert_eq!(refused.raw_response().unwrap().status().as_u16(), 403);
    let report = lab.front.meter().snapshot();
    for operation in ["ListObjectsV2", "PutObject", "HeadObject"] {
        let count = report.total(|row| {
            row.principal == "tester" && row.service == "s3" && row.operation == operation
        });
        assert_eq!((count.calls, count.refused), (1, 1), "{operation}");
    }
    assert_eq!(report.total(|_| true).calls, 3);
}

#[tokio::test]
async fn failures_are_injected_into_s3_and_sqs_and_counted() {
    let lab = lab();
    let clients = lab.clients();
    clients.s3.create_bucket().bucket("objects").send().await.unwrap();
    clients.sqs.create_queue().queue_name("wakes").send().await.unwrap();
    lab.front.meter().reset();
    let faults = lab.front.faults();
    faults.add(Rule::on(
        Service::S3,
        "PutObject",
        When::Next(1),
        Fault::Before(InjectedError::Throttled),
    ));
    let put = || {
        clients
            .s3
            .put_object()
            .bucket("objects")
            .key("k")
            .body(ByteStream::from_static(b"x"))
            .send()
    };
    assert_eq!(put().await.unwrap_err().code(), Some("SlowDown"));
    faults.add(Rule::on(
        Service::S3,
        "PutObject",
        When::Next(1),
        Fault::After(InjectedError::Internal),
    ));
    assert_eq!(put().await.unwrap_err().code(), Some("InternalError"));
    clients.s3.head_object().bucket("objects").key("k").send().await.unwrap();
    faults.add(Rule::on(
        Service::Sqs,
        "ListQueues",
        When::Always,
        Fault::Before(InjectedError::Internal),
    ));
    assert_eq!(clients.sqs.list_queues().send().await.unwrap_err().code(), Some("InternalError"));
    faults.clear();
    clients.sqs.list_queues().send().await.unwrap();
    let report = lab.front.meter().snapshot();
    assert_eq!(report.total(|row| row.operation == "PutObject").failed, 1);
    assert_eq!(report.total(|row| row.service == "sqs").calls, 2);
}

#[tokio::test]
async fn a_share_of_calls_is_struck_the_same_way_for_the_same_seed() {
    let run = |seed| {
        let faults = CallFaults::new(seed);
        faults.add(Rule::on(
            Service::Sqs,
            "SendMessage",
            When::PerMille(300),
            Fault::Before(InjectedError::Throttled),
        ));
        let strike =
            |_| faults.strike(&Principal::new("a"), &Service::Sqs, "SendMessage").before.is_some();
        (0..1000).map(strike).collect::<Vec<bool>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let struck = run(1).iter().filter(|struck| **struck).count();
    assert!((200..400).contains(&struck), "{struck}");
}

#[tokio::test]
async fn with_awss_latency_calls_take_about_as_long_as_there() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    sqs.list_queues().send().await.unwrap();
    lab.front.faults().set_latency(CallLatency::Aws);
    let began = Instant::now();
    sqs.list_queues().send().await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(4));
}

#[tokio::test]
async fn the_same_clients_work_over_a_socket() {
    let lab = lab();
    let (address, server) = serve(Arc::clone(&lab.front), 0).await.unwrap();
    assert!(address.ip().is_loopback());
    let clients = Clients::new(KEY, SECRET, &format!("http://{address}"), None);
    create_records(&clients.dynamo).await;
    clients
        .dynamo
        .put_item()
        .table_name("records")
        .item("pk", s("a"))
        .item("sk", s("a"))
        .send()
        .await
        .unwrap();
    clients.s3.create_bucket().bucket("objects").send().await.unwrap();
    let body = vec![7; 300_000];
    clients
        .s3
        .put_object()
        .bucket("objects")
        .key("k ö")
        .body(ByteStream::from(body.clone()))
        .send()
        .await
        .unwrap();
    let got = clients.s3.get_object().bucket("objects").key("k ö").send().await.unwrap();
    assert!(got.body.collect().await.unwrap().to_vec() == body);
    let made = clients.sqs.create_queue().queue_name("wakes").send().await.unwrap();
    let url = made.queue_url().unwrap();
    assert!(url.starts_with(&format!("http://{address}/")));
    clients.sqs.send_message().queue_url(url).message_body("x").send().await.unwrap();
    let got =
        clients.sqs.receive_message().queue_url(url).wait_time_seconds(5).send().await.unwrap();
    assert_eq!(got.messages().len(), 1);
    let lost = Rule::on(
        Service::Sqs,
        "SendMessage",
        When::Next(1),
        Fault::After(InjectedError::ConnectionLost),
    );
    lab.front.faults().add(lost);
    let lost =
        clients.sqs.send_message().queue_url(url).message_body("y").send().await.unwrap_err();
    assert!(lost.as_service_error().is_none());
    assert_eq!(
        lab.front.sqs().counts("wakes").unwrap().visible,
        1,
        "the message was sent although the response was lost"
    );
    server.abort();
}
