//! A smart HTTP server for tests: one thread per connection before `git http-backend`, on loopback.

use base64::Engine as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How the server answers.
#[derive(Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers every request.
    Open,
    /// Answers requests with this user name and password.
    Guarded(&'static str, &'static str),
    /// Accepts connections and never answers.
    Silent,
    /// Supports only version 0 of git's protocol.
    Old,
    /// Answers every request, several per connection.
    KeepAlive,
    /// Redirects to the same path at this address.
    Moved(String),
    /// Redirects to the requested address.
    Circle,
}

/// Request lines and the values of `Authorization`, in order.
pub type RequestLog = Vec<(String, Option<String>)>;

/// A running server; it ends with the test process.
pub struct Server {
    pub url: String,
    /// The requests so far.
    pub seen: Arc<Mutex<RequestLog>>,
    /// The number of connections so far.
    pub connections: Arc<AtomicUsize>,
}

impl Server {
    /// Serves the repositories below `root`.
    pub fn start(root: &Path, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (root, log, made) = (root.to_owned(), seen.clone(), connections.clone());
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                made.fetch_add(1, Ordering::Relaxed);
                if behaviour == Behaviour::Silent {
                    silent.push(stream);
                    continue;
                }
                let (root, behaviour, log) = (root.clone(), behaviour.clone(), log.clone());
                // The tests include clients that disconnect early.
                std::thread::spawn(move || serve(stream, &root, &behaviour, &log).ok());
            }
        });
        Self { url, seen, connections }
    }
}

fn serve(
    mut stream: TcpStream,
    root: &PathBuf,
    behaviour: &Behaviour,
    log: &Mutex<RequestLog>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while answer(&mut reader, &mut stream, root, behaviour, log)?
        && *behaviour == Behaviour::KeepAlive
    {}
    Ok(())
}

/// Answers one request; returns false when there is none.
fn answer(
    reader: &mut BufReader<TcpStream>,
    stream: &mut TcpStream,
    root: &PathBuf,
    behaviour: &Behaviour,
    log: &Mutex<RequestLog>,
) -> std::io::Result<bool> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(false);
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()))
            }
            None => break,
        }
    }
    let header = |name: &str| {
        headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    };
    log.lock().unwrap().push((first.trim_end().to_owned(), header("authorization")));
    let mut body = Vec::new();
    if header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = u64::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = Vec::new();
            reader.by_ref().take(size + 2).read_to_end(&mut chunk)?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size as usize]);
        }
    } else if let Some(length) = header("content-length") {
        reader.by_ref().take(length.parse().unwrap()).read_to_end(&mut body)?;
    }
    if let Behaviour::Guarded(user, password) = behaviour {
        let expected = format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
        );
        if header("authorization") != Some(expected) {
            stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
            return Ok(false);
        }
    }
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let to = match behaviour {
        Behaviour::Moved(to) => Some(to.as_str()),
        Behaviour::Circle => Some(""),
        _ => None,
    };
    if let Some(to) = to {
        let head = format!(
            "HTTP/1.1 301 Moved Permanently\r\nLocation: {to}{target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        return Ok(false);
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut command = Command::new("git");
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method)
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("CONTENT_TYPE", header("content-type").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(protocol) = header("git-protocol").filter(|_| *behaviour != Behaviour::Old) {
        command.env("GIT_PROTOCOL", protocol);
    }
    let mut child = command.spawn()?;
    child.stdin.take().unwrap().write_all(&body)?;
    let mut answer = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut answer)?;
    child.wait()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let rest: Vec<&str> = head.lines().filter(|line| !line.starts_with("Status:")).collect();
    let body = &answer[end + 4..];
    let after = if *behaviour == Behaviour::KeepAlive { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 {status}\r\n{}\r\nContent-Length: {}\r\nConnection: {after}\r\n\r\n",
        rest.join("\r\n"),
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    Ok(true)
}
