//! S3 through the SDK: conditions under races, ranges, pages, parts, copies, signed URLs.

use std::time::Duration;

use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    CompletedMultipartUpload, CompletedPart, CorsConfiguration, CorsRule, Delete,
    MetadataDirective, ObjectIdentifier,
};

use super::*;

const BUCKET: &str = "objects";

async fn bucket(lab: &Lab) -> aws_sdk_s3::Client {
    let s3 = lab.clients().s3;
    s3.create_bucket().bucket(BUCKET).send().await.unwrap();
    s3
}

async fn put(s3: &aws_sdk_s3::Client, key: &str, body: &[u8]) -> String {
    let put = s3.put_object().bucket(BUCKET).key(key).body(ByteStream::from(body.to_vec()));
    put.send().await.unwrap().e_tag.unwrap()
}

async fn get(s3: &aws_sdk_s3::Client, key: &str) -> Vec<u8> {
    let got = s3.get_object().bucket(BUCKET).key(key).send().await.unwrap();
    got.body.collect().await.unwrap().to_vec()
}

#[tokio::test]
async fn bodies_small_and_large_and_what_is_said_of_them_come_back_as_they_were_put() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    for size in [0, 1, 64 * 1024, 64 * 1024 + 1, 3 << 20] {
        let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        put(&s3, "k", &body).await;
        assert!(get(&s3, "k").await == body, "{size} bytes");
    }
    let odd = "logs/ä b+c/%41?.txt";
    let written = s3.put_object().bucket(BUCKET).key(odd).body(ByteStream::from_static(b"x"));
    let written =
        written.content_type("text/plain").content_encoding("gzip").metadata("build", "17");
    written.cache_control("max-age=1").send().await.unwrap();
    let head = s3.head_object().bucket(BUCKET).key(odd).send().await.unwrap();
    assert_eq!((head.content_type(), head.content_encoding()), (Some("text/plain"), Some("gzip")));
    assert_eq!((head.cache_control(), head.content_length()), (Some("max-age=1"), Some(1)));
    assert_eq!(head.metadata().unwrap()["build"], "17");
    let plain = s3.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(
        (plain.content_type(), plain.content_encoding()),
        (Some("application/octet-stream"), None)
    );
}

#[tokio::test]
async fn of_many_who_put_what_must_not_be_there_one_wins() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    for round in 0..15 {
        let writer = |n: usize| {
            let put =
                s3.put_object().bucket(BUCKET).key(format!("race/{round}")).if_none_match("*");
            // Some bodies go through files, some through the row.
            put.body(ByteStream::from(vec![
                n as u8;
                if n.is_multiple_of(2) { 10 } else { 100_000 }
            ]))
            .send()
        };
        let results = futures::future::join_all((0..8).map(writer)).await;
        let won: Vec<usize> =
            results.iter().enumerate().filter(|(_, r)| r.is_ok()).map(|(n, _)| n).collect();
        assert_eq!(won.len(), 1, "round {round}");
        assert_eq!(get(&s3, &format!("race/{round}")).await[0], won[0] as u8);
        for lost in results.iter().filter_map(|result| result.as_ref().err()) {
            assert_eq!(lost.code(), Some("PreconditionFailed"));
        }
    }
}

#[tokio::test]
async fn a_tag_that_no_longer_fits_stops_a_write_and_a_delete() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    let old = put(&s3, "k", b"1").await;
    let new = put(&s3, "k", b"2").await;
    let write = |tag: &str| {
        s3.put_object().bucket(BUCKET).key("k").if_match(tag).body(ByteStream::from_static(b"3"))
    };
    assert_eq!(write(&old).send().await.unwrap_err().code(), Some("PreconditionFailed"));
    let delete = |tag: &str| s3.delete_object().bucket(BUCKET).key("k").if_match(tag).send();
    assert_eq!(delete(&old).await.unwrap_err().code(), Some("PreconditionFailed"));
    assert_eq!(get(&s3, "k").await, b"2");
    let races = futures::future::join_all((0..8).map(|_| write(&new).send())).await;
    assert_eq!(races.iter().filter(|result| result.is_ok()).count(), 1);
    let none = s3
        .put_object()
        .bucket(BUCKET)
        .key("none")
        .if_match(&new)
        .body(ByteStream::from_static(b""))
        .send()
        .await;
    assert_eq!(none.unwrap_err().code(), Some("NoSuchKey"));
    let unchanged = s3
        .get_object()
        .bucket(BUCKET)
        .key("k")
        .if_none_match(put(&s3, "k", b"4").await)
        .send()
        .await;
    assert_eq!(unchanged.unwrap_err().raw_response().unwrap().status().as_u16(), 304);
}

#[tokio::test]
async fn a_range_brings_its_part_only() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    let body: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    for key in ["large", "small"] {
        let body = if key == "small" { &body[..1000] } else { &body[..] };
        put(&s3, key, body).await;
        let got =
            s3.get_object().bucket(BUCKET).key(key).range("bytes=10-19").send().await.unwrap();
        assert_eq!(got.content_range(), Some(format!("bytes 10-19/{}", body.len()).as_str()));
        assert_eq!(got.body.collect().await.unwrap().to_vec(), &body[10..20]);
        let tail = s3.get_object().bucket(BUCKET).key(key).range("bytes=-5").send().await.unwrap();
        assert_eq!(tail.body.collect().await.unwrap().to_vec(), &body[body.len() - 5..]);
        let beyond = s3
            .get_object()
            .bucket(BUCKET)
            .key(key)
            .range("bytes=999999-")
            .send()
            .await
            .unwrap_err();
        assert_eq!(beyond.code(), Some("InvalidRange"));
    }
}

#[tokio::test]
async fn a_listing_goes_through_its_pages_in_order_with_prefixes_rolled_up() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    let keys = ["a", "b/1", "b/2", "b/c/3", "b0", "c", "ü"];
    for key in keys {
        put(&s3, key, b"x").await;
    }
    let page = |prefix: &str, delimiter: Option<&str>| {
        let list = s3
            .list_objects_v2()
            .bucket(BUCKET)
            .prefix(prefix)
            .set_delimiter(delimiter.map(str::to_owned))
            .max_keys(2);
        let mut pages = list.into_paginator().send();
        async move {
            let mut seen = Vec::new();
            while let Some(page) = pages.next().await {
                let page = page.unwrap();
                assert!(page.key_count().unwrap() <= 2);
                let objects = page.contents().iter().map(|object| object.key().unwrap().to_owned());
                let prefixes =
                    page.common_prefixes().iter().map(|prefix| prefix.prefix().unwrap().to_owned());
                let mut together: Vec<String> = objects.chain(prefixes).collect();
                together.sort();
                seen.extend(together);
            }
            seen
        }
    };
    assert_eq!(page("", None).await, keys);
    assert_eq!(page("", Some("/")).await, ["a", "b/", "b0", "c", "ü"]);
    assert_eq!(page("b/", Some("/")).await, ["b/1", "b/2", "b/c/"]);
    let after = s3.list_objects_v2().bucket(BUCKET).start_after("b/2").send().await.unwrap();
    assert_eq!(after.contents()[0].key(), Some("b/c/3"));
    assert_eq!(
        s3.list_objects_v2().bucket("nothing").send().await.unwrap_err().code(),
        Some("NoSuchBucket")
    );
}

#[tokio::test]
async fn an_upload_in_parts_becomes_one_object_and_small_parts_are_refused() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    let upload = s3
        .create_multipart_upload()
        .bucket(BUCKET)
        .key("big")
        .content_type("x/y")
        .send()
        .await
        .unwrap();
    let id = upload.upload_id().unwrap();
    let part = |number: i32, size: usize| {
        let part = s3.upload_part().bucket(BUCKET).key("big").upload_id(id).part_number(number);
        part.body(ByteStream::from(vec![number as u8; size])).send()
    };
    let complete = |tags: Vec<(i32, String)>| {
        let parts = tags
            .into_iter()
            .map(|(n, tag)| CompletedPart::builder().part_number(n).e_tag(tag).build());
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts.collect())).build();
        s3.complete_multipart_upload()
            .bucket(BUCKET)
            .key("big")
            .upload_id(id)
            .multipart_upload(parts)
            .send()
    };
    let small = part(1, 100).await.unwrap().e_tag.unwrap();
    let last = part(2, 7).await.unwrap().e_tag.unwrap();
    let refused = complete(vec![(1, small.clone()), (2, last.clone())]).await.unwrap_err();
    assert_eq!(refused.code(), Some("EntityTooSmall"));
    let large = part(1, 5 << 20).await.unwrap().e_tag.unwrap();
    assert_eq!(
        complete(vec![(1, small), (2, last.clone())]).await.unwrap_err().code(),
        Some("InvalidPart")
    );
    let done = complete(vec![(1, large), (2, last)]).await.unwrap();
    assert!(done.e_tag().unwrap().ends_with("-2\""));
    let head = s3.head_object().bucket(BUCKET).key("big").send().await.unwrap();
    assert_eq!((head.content_length(), head.content_type()), (Some((5 << 20) + 7), Some("x/y")));
    assert!(get(&s3, "big").await.ends_with(&[1, 2, 2, 2, 2, 2, 2, 2]));
    assert_eq!(part(3, 1).await.unwrap_err().code(), Some("NoSuchUpload"));
}

#[tokio::test]
async fn copies_keep_or_replace_what_is_said_and_deletes_take_many() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    s3.put_object()
        .bucket(BUCKET)
        .key("a")
        .metadata("m", "1")
        .body(ByteStream::from_static(b"x"))
        .send()
        .await
        .unwrap();
    s3.copy_object()
        .bucket(BUCKET)
        .key("b")
        .copy_source(format!("{BUCKET}/a"))
        .send()
        .await
        .unwrap();
    let replace = s3.copy_object().bucket(BUCKET).key("c").copy_source(format!("{BUCKET}/a"));
    replace.metadata_directive(MetadataDirective::Replace).metadata("m", "2").send().await.unwrap();
    let said = |key: &'static str| s3.head_object().bucket(BUCKET).key(key).send();
    assert_eq!(said("b").await.unwrap().metadata().unwrap()["m"], "1");
    assert_eq!(said("c").await.unwrap().metadata().unwrap()["m"], "2");
    let name = |key: &str| ObjectIdentifier::builder().key(key).build().unwrap();
    let delete = Delete::builder()
        .objects(name("a"))
        .objects(name("b"))
        .objects(name("never"))
        .build()
        .unwrap();
    let deleted = s3.delete_objects().bucket(BUCKET).delete(delete).send().await.unwrap();
    assert_eq!(deleted.deleted().len(), 3);
    assert!(
        s3.get_object()
            .bucket(BUCKET)
            .key("a")
            .send()
            .await
            .unwrap_err()
            .into_service_error()
            .is_no_such_key()
    );
    s3.delete_object().bucket(BUCKET).key("never").send().await.unwrap();
    assert_eq!(
        s3.delete_bucket().bucket(BUCKET).send().await.unwrap_err().code(),
        Some("BucketNotEmpty")
    );
}

#[tokio::test]
async fn a_signed_url_reads_one_object_and_is_refused_once_changed() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    put(&s3, "log", b"text").await;
    let signed = s3.get_object().bucket(BUCKET).key("log");
    let signed = signed
        .presigned(PresigningConfig::expires_in(Duration::from_secs(60)).unwrap())
        .await
        .unwrap();
    let ask = |uri: &str| {
        let mut request = plain("GET", uri);
        let host = request.uri().authority().unwrap().to_string();
        request.headers_mut().insert("host", host.parse().unwrap());
        lab.front.call(request)
    };
    let answer = ask(signed.uri()).await;
    assert_eq!((answer.status().as_u16(), answer.body().as_ref()), (200, b"text".as_slice()));
    let other = signed.uri().replace("/log?", "/other?");
    assert_eq!(ask(&other).await.status().as_u16(), 403);
    let unsigned = plain("GET", &format!("{ENDPOINT}/{BUCKET}/log"));
    assert_eq!(lab.front.call(unsigned).await.status().as_u16(), 403);
}

/// Z7.7: roles that upload logs let the pages read them, which are of another origin.
#[tokio::test]
async fn pages_of_allowed_origins_may_read_a_bucket() {
    let lab = lab();
    let s3 = bucket(&lab).await;
    put(&s3, "k", b"body").await;
    let none = s3.get_bucket_cors().bucket(BUCKET).send().await.unwrap_err();
    assert_eq!(none.code(), Some("NoSuchCORSConfiguration"));
    let rule = CorsRule::builder().allowed_methods("GET").allowed_origins("https://*.test");
    let rules = CorsConfiguration::builder().cors_rules(rule.build().unwrap()).build().unwrap();
    s3.put_bucket_cors().bucket(BUCKET).cors_configuration(rules.clone()).send().await.unwrap();
    let read = s3.get_bucket_cors().bucket(BUCKET).send().await.unwrap();
    assert_eq!(read.cors_rules(), rules.cors_rules());
    let config = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let url = s3.get_object().bucket(BUCKET).key("k").presigned(config).await.unwrap();
    let allowed = async |origin: &str| {
        let mut request = plain("GET", url.uri());
        let host = request.uri().authority().unwrap().to_string();
        request.headers_mut().insert("host", host.parse().unwrap());
        request.headers_mut().insert("origin", origin.parse().unwrap());
        let answer = lab.front.call(request).await;
        assert_eq!(answer.body().as_ref(), b"body".as_slice());
        let header = answer.headers().get("access-control-allow-origin").cloned();
        header.map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(allowed("https://logs.test").await.as_deref(), Some("https://logs.test"));
    assert_eq!(allowed("https://elsewhere").await, None);
    s3.delete_bucket_cors().bucket(BUCKET).send().await.unwrap();
    assert_eq!(allowed("https://logs.test").await, None);
}
