//! Real connections through a broker to servers on loopback.

use super::*;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

/// A broker, and a server on loopback that it is allowed to reach.
struct Stage {
    lease: Lease,
    directory: TempDir,
    broker: Broker,
    server: TcpListener,
    port: u16,
}

impl Stage {
    async fn new(bytes_max: u64) -> Self {
        Self::with(bytes_max, ConnectionLimits::default(), &[]).await
    }

    async fn with(bytes_max: u64, limits: ConnectionLimits, nodes: &[NodeAccess]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let allowed = vec![format!("127.0.0.1:{port}").parse().unwrap()];
        let settings = NetworkSettings { allowed, bytes_max, ..NetworkSettings::default() };
        let socket = directory.path().join("network.sock");
        let lease = Lease::unlimited();
        let broker = Broker::with_limits(&socket, &settings, nodes, lease.clone(), limits).unwrap();
        Self { lease, directory, broker, server, port }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("network.sock")).await.unwrap()
    }

    /// Sends bytes in which `HERE` is the server's address, and returns the whole answer.
    async fn ask(&self, request: &str) -> String {
        let mut client = self.connect().await;
        let request = request.replace("HERE", &format!("127.0.0.1:{}", self.port));
        // The broker may have closed already.
        let _ = client.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let read = client.read_to_end(&mut answer);
        let in_time = tokio::time::timeout(Duration::from_secs(30), read).await;
        assert!(in_time.is_ok(), "the broker keeps the connection of {request:.90?} open");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Serves one connection with `answer` and returns what the broker sent, up to `end`.
    async fn serve(&self, end: &str, answer: &[u8]) -> String {
        let (mut connection, _) = self.server.accept().await.unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(end) {
            match connection.read(&mut buffer).await.unwrap_or(0) {
                0 => break,
                count => seen.extend_from_slice(&buffer[..count]),
            }
        }
        let _ = connection.write_all(answer).await;
        let _ = connection.shutdown().await;
        // What comes after the answer counts too.
        let _ = connection.read_to_end(&mut seen).await;
        String::from_utf8(seen).unwrap()
    }
}

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\r\nhello";

fn node(address: &str, port: u16) -> NodeAccess {
    serde_json::from_value(serde_json::json!({
        "id": "n", "names": ["n"], "label": "l", "provider": "p", "region": null, "az": null,
        "external_id": null, "interface_ip": address, "public_ipv4": null, "private_ipv4": null,
        "ssh_port": port, "username": "u", "host_keys": [], "python_path": null,
    }))
    .unwrap()
}

/// Z7.3, Z7.5: an executor whose session was not renewed reaches the nodes no longer, not even over
/// connections that it has.
#[tokio::test]
async fn nodes_are_not_reached_after_the_lease() {
    let listener = TcpListener::bind("127.0.0.5:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::with(0, ConnectionLimits::default(), &[node("127.0.0.5", port)]).await;
    let mut client = stage.connect().await;
    client
        .write_all(format!("CONNECT 127.0.0.5:{port} HTTP/1.1\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"before").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"before") {
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "{answer:?}");
    }
    stage.lease.renew(std::time::Instant::now());
    client.write_all(b"later").await.unwrap();
    let mut received = Vec::new();
    // The connection ends, and nothing of the later bytes arrives.
    let _ = server.read_to_end(&mut received).await;
    assert_eq!(received, b"");
    let answer = stage.ask(&format!("CONNECT 127.0.0.5:{port} HTTP/1.1\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("session"), "{answer}");
}

/// Z7.5: a tunnel carries bytes both ways, also those that a client sends at once.
#[tokio::test]
async fn a_tunnel_to_the_outside_carries_bytes_in_both_directions() {
    let stage = Stage::new(1 << 20).await;
    let asked = stage.ask("CONNECT HERE HTTP/1.1\r\nHost: HERE\r\n\r\nping");
    let (answer, seen) = tokio::join!(asked, stage.serve("ping", b"pong"));
    assert_eq!(seen, "ping");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\npong"), "{answer}");
    assert!(stage.broker.waiting_refusals().await.is_empty());
}

/// Z7.5: a server gets a path and one host; what concerns one connection stays there.
#[tokio::test]
async fn a_request_is_forwarded_as_its_server_expects_it() {
    let stage = Stage::new(1 << 20).await;
    let asked = stage.ask(
        "POST http://HERE/a?b=1 HTTP/1.1\r\nHost: HERE\r\nProxy-Authorization: Basic x\r\n\
         Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nX-Kept: 1\r\nContent-Length: 4\r\n\r\nbody",
    );
    let (answer, seen) = tokio::join!(asked, stage.serve("body", ANSWER));
    let (seen, host) = (seen.to_lowercase(), format!("host: 127.0.0.1:{}", stage.port));
    assert!(
        seen.starts_with("post /a?b=1 http/1.1\r\n") && seen.ends_with("\r\n\r\nbody"),
        "{seen}"
    );
    for part in [&*host, "x-kept: 1", "content-length: 4", "connection: close"] {
        assert_eq!(seen.matches(part).count(), 1, "{part}: {seen}");
    }
    for part in ["proxy-", "x-mine", "keep-alive", "http://"] {
        assert!(!seen.contains(part), "{part}: {seen}");
    }
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
    assert!(!answer.to_lowercase().contains("x-hop"), "{answer}");
}

/// Z7.5: nodes are reached by exact address and port, although loopback is refused to all others.
#[tokio::test]
async fn the_builds_own_nodes_are_reached_at_their_ssh_port_only() {
    let listener = TcpListener::bind("127.0.0.3:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::with(0, ConnectionLimits::default(), &[node("127.0.0.3", port)]).await;
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.write_all(b"SSH-2.0-node\r\n").await.unwrap();
    });
    let answer = stage.ask(&format!("CONNECT 127.0.0.3:{port} HTTP/1.1\r\n\r\n")).await;
    assert!(answer.ends_with("SSH-2.0-node\r\n"), "not limited by bytes either: {answer}");
    for other in [format!("127.0.0.3:{}", port ^ 1), format!("127.0.0.4:{port}")] {
        let answer = stage.ask(&format!("CONNECT {other} HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{other}: {answer}");
    }
}

/// Z7.5, X01: no trick of a request leads past the decision; each refusal is a line that says what
/// was refused and by which rule.
#[tokio::test]
async fn every_trick_of_a_request_is_refused_with_a_line_in_the_log() {
    let many = format!("GET http://HERE/ HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200));
    let tunnel = |to: &str| format!("CONNECT {to} HTTP/1.1\r\n\r\n");
    let get = |url: &str| format!("GET {url} HTTP/1.1\r\n\r\n");
    let rows = [
        (tunnel("169.254.169.254:80"), "403", "169.254.169.254:80: metadata services"),
        (get("http://169.254.169.254/latest/"), "403", "169.254.169.254:80: metadata services"),
        (tunnel("[fd00:ec2::254]:80"), "403", "[fd00:ec2::254]:80: metadata services"),
        (tunnel("[::ffff:169.254.169.254]:80"), "403", "metadata services"),
        (tunnel("[64:ff9b::a9fe:a9fe]:80"), "403", "metadata services"),
        (tunnel("127.0.0.1:1"), "403", "127.0.0.1:1: loopback addresses"),
        (tunnel("[::1]:22"), "403", "[::1]:22: loopback addresses"),
        (tunnel("localhost:22"), "403", "localhost:22: (127.0.0.1) loopback addresses"),
        (tunnel("localhost.:22"), "403", "localhost:22: (127.0.0.1) loopback addresses"),
        (tunnel("0.0.0.0:22"), "403", "unspecified addresses"),
        (tunnel("10.0.0.5:443"), "403", "10.0.0.5:443: private networks"),
        (tunnel("2130706433:22"), "400", "usual form"),
        (tunnel("0x7f.1:22"), "400", "usual form"),
        (get("http://0177.0.0.1/"), "400", "usual form"),
        (get("http://HERE@169.254.169.254/"), "400", "user name"),
        (get("/latest/meta-data"), "400", "names no host"),
        (get("https://HERE/"), "400", "only http://"),
        (get("gopher://HERE/"), "400", "only http://"),
        (
            "GET http://HERE/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n".into(),
            "400",
            "another target",
        ),
        (
            "GET http://HERE/ HTTP/1.1\r\nHost: HERE\r\nHost: HERE\r\n\r\n".into(),
            "400",
            "several Host",
        ),
        ("CONNECT HERE HTTP/1.1\r\nContent-Length: 4\r\n\r\nGET ".into(), "400", "with a body"),
        (
            "CONNECT HERE HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            "400",
            "with a body",
        ),
        ("GET http://HERE/ HTTP/1.1\r\n Folded: x\r\n\r\n".into(), "400", "read as HTTP"),
        ("GET http://HERE/\x01 HTTP/1.1\r\n\r\n".into(), "400", "read as HTTP"),
        ("GET http://HERE/ HTTP/1.1 GET http://one/\r\n\r\n".into(), "400", "read as HTTP"),
        ("GET http://HERE/ HTTP/1.1\r\nX: a\rY: b\r\n\r\n".into(), "400", "read as HTTP"),
        (
            "POST http://HERE/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
            "400",
            "read as HTTP",
        ),
        (
            "POST http://HERE/ HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n".into(),
            "400",
            "read as HTTP",
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), "", "read as HTTP"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".into(), "400", "read as HTTP"),
        (many, "431", "read as HTTP"),
    ];
    let stage = Stage::new(1 << 20).await;
    for (request, status, line) in rows {
        let head: String = request.chars().take(90).collect();
        let answer = stage.ask(&request).await;
        // The preface of HTTP/2 has no answer that its clients could read.
        let is_answered = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_answered || (status.is_empty() && answer.is_empty()), "{head:?}: {answer}");
        let lines = stage.broker.waiting_refusals().await;
        assert!(lines.len() == 1 && lines[0].contains(line), "{head:?}: {lines:?}");
        assert!(lines[0].starts_with("Network: refused ") && lines[0].is_ascii(), "{lines:?}");
    }
    let reached = stage.server.accept();
    let reached = tokio::time::timeout(Duration::from_millis(50), reached).await;
    assert!(reached.is_err(), "the server saw none of them");
}

/// Z7.5: a head without end takes no memory without end.
#[tokio::test]
async fn a_huge_head_is_refused() {
    let stage = Stage::new(1 << 20).await;
    let huge = format!("GET http://HERE/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let answer = stage.ask(&huge).await;
    // The broker closes while bytes are on their way, which may discard its answer.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let lines = stage.broker.waiting_refusals().await;
    assert!(lines.len() == 1 && lines[0].contains("read as HTTP"), "{lines:?}");
}

/// Z7.5: one decision for one request: what a client appends to it reaches no server.
#[tokio::test]
async fn a_second_request_behind_the_first_is_carried_nowhere() {
    let stage = Stage::new(1 << 20).await;
    let second = "GET http://169.254.169.254/second HTTP/1.1\r\n\r\n";
    let requests = [
        format!("GET http://HERE/first HTTP/1.1\r\nHost: HERE\r\n\r\n{second}"),
        format!("POST http://HERE/first HTTP/1.1\r\nContent-Length: 0\r\n\r\n{second}"),
        format!(
            "POST http://HERE/first HTTP/1.1\r\nContent-Length: 80\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
        ),
    ];
    for request in requests {
        let (answer, seen) = tokio::join!(stage.ask(&request), stage.serve("/first", ANSWER));
        assert!(!seen.contains("second"), "{seen}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
}

/// Z7.5: a build that moves more than its limit gets no further bytes, and its log says so once.
#[tokio::test]
async fn the_bytes_of_a_build_are_bounded() {
    let stage = Stage::new(100_000).await;
    let asked = stage.ask("CONNECT HERE HTTP/1.1\r\n\r\n");
    let much = vec![b'x'; 10 << 20];
    let (answer, _) = tokio::join!(asked, stage.serve("", &much));
    assert!(answer.len() < 200_000, "{}", answer.len());
    let lines = [stage.broker.refusal().await];
    assert!(lines[0].contains("further traffic: the build has used up"), "{lines:?}");
    let answer = stage.ask("CONNECT HERE HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 the build has used up"), "{answer}");
    assert_eq!(stage.broker.waiting_refusals().await.len(), 1);
}

/// Z7.5: clients that send nothing, or a head that never ends, or that leave a tunnel idle, keep
/// their places for a while only; further clients get one then.
#[tokio::test]
async fn slow_and_idle_clients_lose_their_places() {
    let limits =
        ConnectionLimits { head: Duration::from_millis(300), idle: Duration::from_millis(50) };
    let stage = Stage::with(1 << 20, limits, &[]).await;
    let mut slow = Vec::new();
    for number in 0..CONNECTIONS_MAX {
        let mut client = stage.connect().await;
        if number % 2 == 0 {
            client.write_all(b"GET http://one.test/ HTTP/1.1\r\nX: ").await.unwrap();
        }
        slow.push(client);
    }
    let asked = stage.ask("CONNECT HERE HTTP/1.1\r\n\r\n");
    let idle = async {
        let (mut connection, _) = stage.server.accept().await.unwrap();
        connection.read(&mut [0; 1]).await.unwrap()
    };
    let (answer, read) = tokio::join!(asked, idle);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(read, 0, "the idle tunnel is closed");
    let lines = stage.broker.waiting_refusals().await;
    assert!(lines.iter().any(|line| line.contains("not complete in time")), "{lines:?}");
}

/// Z7.5: a playbook that tries for ever does not fill the log.
#[tokio::test]
async fn refusals_are_listed_up_to_a_limit() {
    let stage = Stage::new(1 << 20).await;
    let mut lines = Vec::new();
    for _ in 0..REFUSALS_MAX + 5 {
        stage.ask("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").await;
        lines.extend(stage.broker.waiting_refusals().await);
    }
    assert_eq!(lines.len(), REFUSALS_MAX as usize + 1);
    assert_eq!(lines.last().unwrap(), "Network: further refusals are not listed");
}

/// Z7.5: the broker ends with its build.
#[tokio::test]
async fn nothing_is_reached_through_the_broker_of_a_build_that_has_ended() {
    let Stage { directory, broker, server, port, .. } = Stage::new(1 << 20).await;
    let path = directory.path().join("network.sock");
    let mut client = UnixStream::connect(&path).await.unwrap();
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut connection, _) = server.accept().await.unwrap();
    drop(broker);
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = connection.read_to_end(&mut rest).await;
    let _ = client.read_to_end(&mut rest).await;
    assert!(!path.exists() || UnixStream::connect(&path).await.is_err());
}
