//! Requests over a real socket, and the precedence of routes.

use super::{Front, HostNames, HttpFront, Routes};
use crate::lambda::{HandlerError, InProcess, Limits};
use crate::template::{RouteMethod, RoutePlan};
use axum::http::Method;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn plan(function: &str, method: &str, path: &str) -> RoutePlan {
    let method = if method == "ANY" { RouteMethod::Any } else { RouteMethod::One(method.into()) };
    RoutePlan { function: function.into(), method, path: path.into() }
}

fn routes() -> Routes {
    Routes::new(&[
        plan("api", "GET", "/{proxy+}"),
        plan("api", "POST", "/{proxy+}"),
        plan("root", "GET", "/"),
        plan("webhook", "POST", "/api/connection/{connection}/payload"),
        plan("fixed", "ANY", "/api/connection/local/payload"),
    ])
}

/// Answers with the event it was called with, or as the query says.
async fn answer(payload: Bytes) -> Result<Bytes, HandlerError> {
    let event: Value = serde_json::from_slice(&payload).unwrap();
    let answer = match event["queryStringParameters"]["answer"].as_str() {
        Some("image") => {
            json!({"statusCode": 201, "headers": {"content-type": "image/png", "x-number": 5},
            "cookies": ["a=1", "b=2"], "body": "iVBORw==", "isBase64Encoded": true})
        }
        Some("nonsense") => return Ok(Bytes::from_static(b"no json")),
        Some("status") => json!({"statusCode": 7}),
        Some("fail") => {
            return Err(HandlerError { kind: "Requested".into(), message: "to fail".into() });
        }
        _ => event,
    };
    Ok(Bytes::from(answer.to_string()))
}

async fn front() -> (HttpFront, String) {
    let limits = Limits { timeout: Duration::from_secs(10), reserved_concurrency: None };
    let none = Limits { reserved_concurrency: Some(0), ..limits.clone() };
    let functions = InProcess::new()
        .with("api", limits.clone(), answer)
        .with("webhook", limits, answer)
        .with("root", none, answer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let names = HostNames::default().with("ci.example.org").with_function("webhook");
    let front = HttpFront::start(
        listener,
        Front::new("000000000000"),
        routes(),
        names,
        Arc::new(functions),
    )
    .unwrap();
    let url = format!("http://{}", front.address());
    (front, url)
}

/// C5
#[test]
fn the_most_specific_route_is_taken() {
    let routes = routes();
    let find = |method: Method, path: &str| {
        routes.find(&method, path).map(|found| (found.function, found.parameters))
    };
    let (function, parameters) = find(Method::POST, "/api/connection/git%2Fhub/payload").unwrap();
    assert_eq!((function, parameters["connection"].as_str()), ("webhook", "git/hub"));
    assert_eq!(find(Method::POST, "/api/connection/local/payload").unwrap().0, "fixed");
    let (function, parameters) = find(Method::GET, "/api/connection/github/payload").unwrap();
    assert_eq!((function, parameters["proxy"].as_str()), ("api", "api/connection/github/payload"));
    assert_eq!(find(Method::GET, "/").unwrap().0, "root");
    assert_eq!(find(Method::POST, "/"), None);
    assert_eq!(find(Method::PATCH, "/x"), None);
}

/// C5
#[tokio::test]
async fn a_request_becomes_an_event_that_the_aws_types_read() {
    let (front, url) = front().await;
    let response = reqwest::Client::new()
        .post(format!("{url}/api/connection/github/payload?a=1&a=2&b=x%20y"))
        .header("X-Hub-Signature-256", "sha256=00")
        .header("Cookie", "one=1; two=2")
        .header("Content-Type", "application/json; charset=utf-8")
        .body(r#"{"ref":"ü"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    let text = response.text().await.unwrap();
    let event: aws_lambda_events::event::apigw::ApiGatewayV2httpRequest =
        serde_json::from_str(&text).unwrap();
    assert_eq!(event.route_key.as_deref(), Some("POST /api/connection/{connection}/payload"));
    assert_eq!(event.headers["x-hub-signature-256"], "sha256=00");
    assert_eq!(event.cookies.unwrap(), ["one=1", "two=2"]);
    assert_eq!(event.path_parameters["connection"], "github");
    assert_eq!(event.query_string_parameters.first("b"), Some("x y"));
    assert_eq!((event.body.as_deref(), event.is_base64_encoded), (Some(r#"{"ref":"ü"}"#), false));
    assert_eq!(event.request_context.http.source_ip.as_deref(), Some("127.0.0.1"));
    let bytes = reqwest::Client::new()
        .post(format!("{url}/x"))
        .body(vec![0xff_u8, 0])
        .send()
        .await
        .unwrap();
    let event: Value = bytes.json().await.unwrap();
    assert_eq!(
        (event["body"].as_str(), event["isBase64Encoded"].as_bool()),
        (Some("/wA="), Some(true))
    );
    front.stop().await;
}

/// C5
#[tokio::test]
async fn an_answer_becomes_a_response() {
    let (front, url) = front().await;
    let response = reqwest::get(format!("{url}/x?answer=image")).await.unwrap();
    assert_eq!(response.status().as_u16(), 201);
    assert_eq!(
        (&response.headers()["content-type"], &response.headers()["x-number"]),
        (&"image/png".parse().unwrap(), &"5".parse().unwrap())
    );
    let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().cloned().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert_eq!(response.bytes().await.unwrap().as_ref(), [0x89, b'P', b'N', b'G']);
    for (query, status) in [("nonsense", 500), ("status", 500), ("fail", 500)] {
        assert_eq!(
            reqwest::get(format!("{url}/x?answer={query}")).await.unwrap().status().as_u16(),
            status,
            "{query}"
        );
    }
    assert_eq!(reqwest::get(format!("{url}/")).await.unwrap().status().as_u16(), 503, "throttled");
    let missing = reqwest::Client::new().delete(format!("{url}/x")).send().await.unwrap();
    assert_eq!(missing.json::<Value>().await.unwrap(), json!({"message": "Not Found"}));
    front.stop().await;
}

/// C5: a forge's payload may have 25 MB; the front takes 10, a function 6 with all that is around
/// it.
#[tokio::test]
async fn a_body_that_is_too_large_is_answered_413() {
    let (front, url) = front().await;
    let post = |bytes: usize, kind: &'static str| {
        let request = reqwest::Client::new().post(format!("{url}/api/connection/github/payload"));
        request.header("Content-Type", kind).body(vec![b'x'; bytes]).send()
    };
    const MB: usize = 1024 * 1024;
    // The rest of the body is read first, so a client that is still sending gets the response.
    for _ in 0..20 {
        assert_eq!(post(25 * MB, "application/json").await.unwrap().status().as_u16(), 413);
    }
    assert_eq!(
        post(6 * MB, "application/json").await.unwrap().status().as_u16(),
        413,
        "with the rest of the event"
    );
    assert_eq!(
        post(5 * MB, "application/octet-stream").await.unwrap().status().as_u16(),
        413,
        "as base64"
    );
    assert_eq!(post(2 * MB, "application/json").await.unwrap().status().as_u16(), 200);
    let long = reqwest::Client::new()
        .get(format!("{url}/x"))
        .header("x-long", "x".repeat(11_000))
        .send()
        .await
        .unwrap();
    assert_eq!(long.status().as_u16(), 431);
    front.stop().await;
}

/// Z5.4: a page of a stranger whose name leads to this machine gets no answer of a function; a
/// webhook does, for it is signed.
#[tokio::test]
async fn a_request_under_a_foreign_name_is_answered_421() {
    let (front, url) = front().await;
    let client = reqwest::Client::new();
    let get =
        |host: &'static str| client.get(format!("{url}/api/tenants")).header("Host", host).send();
    for own in ["127.0.0.1:9000", "localhost", "[::1]:9000", "ci.example.org"] {
        assert_eq!(get(own).await.unwrap().status().as_u16(), 200, "{own}");
    }
    let refused = get("evil.example:9000").await.unwrap();
    assert_eq!(refused.status().as_u16(), 421);
    assert!(!refused.headers().contains_key("access-control-allow-origin"));
    let message = refused.json::<Value>().await.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("evil.example:9000") && message.contains("--web-root"), "{message}");
    let webhook = client
        .post(format!("{url}/api/connection/github/payload"))
        .header("Host", "tunnel.example");
    assert_eq!(webhook.body("{}").send().await.unwrap().status().as_u16(), 200);
    front.stop().await;
}

/// Answers like the API's route for logs: the log of build `abc` grows with each request.
async fn growing_log(payload: Bytes) -> Result<Bytes, HandlerError> {
    const LOG: [&str; 3] = ["first\n", "grüße\n", "last\n"];
    let event: Value = serde_json::from_slice(&payload).unwrap();
    let refuse = |status: u16, error: &str| json!({"statusCode": status, "body": json!({"error": error}).to_string()});
    let offset: usize =
        event["queryStringParameters"]["offset"].as_str().unwrap_or("0").parse().unwrap();
    let answer =
        match (event["rawPath"].as_str().unwrap(), event["headers"]["authorization"].as_str()) {
            ("/api/tenant/acme/build/abc/log", _)
            | ("/api/tenant/closed/build/abc/log", Some("Bearer good")) => {
                let sent = LOG.iter().scan(0, |length, piece| {
                    *length += piece.len();
                    Some((*length - piece.len(), *length, *piece))
                });
                let mut left = sent.skip_while(|(begin, _, _)| *begin < offset);
                let (next, piece) =
                    left.next().map_or((offset, ""), |(_, end, piece)| (end, piece));
                json!({"statusCode": 200, "body": piece, "headers": {
                    "x-log-next": next, "x-log-ended": u8::from(left.next().is_none()),
                }})
            }
            ("/api/tenant/closed/build/abc/log", _) => {
                refuse(401, "AuthTokenUnauthorizedException")
            }
            _ => refuse(404, "Not Found"),
        };
    Ok(Bytes::from(answer.to_string()))
}

/// Z9.2: Zuul's console protocol, spoken by a WebSocket client that is not ours: the log in text
/// frames to its end, with the API's own decision about each piece, and Zuul's close codes.
#[tokio::test]
async fn a_websocket_follows_the_log_of_a_build_as_zuuls_pages_expect() {
    use futures::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message;
    let limits = Limits { timeout: Duration::from_secs(10), reserved_concurrency: None };
    let functions = InProcess::new().with("api", limits, growing_log);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (names, functions) = (HostNames::default(), Arc::new(functions));
    let front = Front::new("000000000000");
    let front = HttpFront::start(listener, front, routes(), names, functions).unwrap();
    let console = |tenant: &str, message: String| {
        let url = format!("ws://{}/api/tenant/{tenant}/console-stream", front.address());
        async move {
            let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
            socket.send(Message::text(message)).await.unwrap();
            let (mut text, mut end) = (String::new(), None);
            while let Some(Ok(message)) = socket.next().await {
                match message {
                    Message::Text(part) => text.push_str(&part),
                    Message::Close(frame) => end = frame,
                    _ => {}
                }
            }
            let end = end.unwrap();
            (text, u16::from(end.code), end.reason.to_string())
        }
    };
    let ask = |uuid: &str, token: Option<&str>| {
        json!({"uuid": uuid, "logfile": "console.log", "token": token}).to_string()
    };
    let whole = ("first\ngrüße\nlast\n".to_owned(), 1000, "No more data".to_owned());
    assert_eq!(console("acme", ask("abc", None)).await, whole);
    assert_eq!(console("closed", ask("abc", Some("good"))).await, whole);
    let nothing = |code: u16, reason: &str| (String::new(), code, reason.to_owned());
    let refused = nothing(4000, "AuthTokenUnauthorizedException");
    assert_eq!(console("closed", ask("abc", None)).await, refused);
    assert_eq!(console("closed", ask("abc", Some("bad"))).await, refused);
    let unknown = nothing(4011, "Build not found");
    for uuid in ["def", "../x", "", "abc/log?offset=0#"] {
        assert_eq!(console("acme", ask(uuid, None)).await, unknown, "{uuid}");
    }
    let no_uuid = json!({"logfile": "console.log"}).to_string();
    let missing = |name: &str| nothing(4000, &format!("'{name}' missing from request payload"));
    assert_eq!(console("acme", no_uuid).await, missing("uuid"));
    assert_eq!(console("acme", json!({"uuid": "abc"}).to_string()).await, missing("logfile"));
    assert_eq!(console("acme", "no json".to_owned()).await.1, 4000);
}

/// C2.2: a page of a foreign name cannot open a console.
#[tokio::test]
async fn a_websocket_under_a_foreign_name_is_refused() {
    let (front, _) = front().await;
    let url = format!("ws://{}/api/tenant/acme/console-stream", front.address());
    let mut request =
        tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(url)
            .unwrap();
    request.headers_mut().insert("host", "evil.example".parse().unwrap());
    let refused = tokio_tungstenite::connect_async(request).await.unwrap_err();
    assert!(refused.to_string().contains("421"), "{refused}");
}
