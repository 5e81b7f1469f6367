//! Tests mail with a test server that speaks SMTP on a socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_keys::Secret;
use sluice_notify::{Address, Mail, Notification, Notify as _, NotifyError, Publication, Smtp};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Answers of the server that replace its usual ones, by the beginning of the command.
type Answer = (&'static str, &'static str);

/// Starts a server that returns each mail with its envelope. Returns its port.
async fn server(said: &'static [Answer]) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, (mails, taken)) = (listener.local_addr().unwrap().port(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mails = mails.clone();
            tokio::spawn(async move {
                let (read, mut write) = stream.into_split();
                let mut lines = BufReader::new(read).lines();
                let mut mail = String::new();
                write.write_all(b"220 sink ready\r\n").await.unwrap();
                while let Ok(Some(line)) = lines.next_line().await {
                    let other = said
                        .iter()
                        .find(|(command, _)| line.starts_with(command))
                        .map(|(_, answer)| *answer);
                    let answer = match other {
                        Some(answer) => answer,
                        None if line.starts_with("EHLO") => "250-sink\r\n250 AUTH PLAIN",
                        None if line == "DATA" => {
                            write.write_all(b"354 go on\r\n").await.unwrap();
                            while let Ok(Some(line)) = lines.next_line().await {
                                if line == "." {
                                    break;
                                }
                                mail.push_str(&format!("{line}\n"));
                            }
                            mails.send(std::mem::take(&mut mail)).unwrap();
                            "250 taken"
                        }
                        None if line == "QUIT" => "221 bye",
                        None if line.starts_with("AUTH") => "235 welcome",
                        None => "250 ok",
                    };
                    mail.push_str(&format!("> {line}\n"));
                    if write.write_all(format!("{answer}\r\n").as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, taken)
}

fn smtp(port: u16, query: &str, password: Option<&str>) -> Smtp {
    let address = Address::parse(&format!("smtp://127.0.0.1:{port}{query}")).unwrap();
    let password = password.map(|text| Secret::from(text.to_owned()));
    Smtp::new(address, password.as_ref().map(|_| "ci"), password.as_ref()).unwrap()
}

fn mail(to: Option<&str>) -> Notification {
    Notification::Mail(Mail {
        id: "report-1.0".to_owned(),
        from: None,
        to: to.map(str::to_owned),
        subject: "Grüße\r\nBcc: everybody@example.org".to_owned(),
        text: "Build failed.\n.\n- unit : FAILURE".to_owned(),
    })
}

const FROM_AND_TO: &str = "?from=Sluice%20%3Cci@example.org%3E&to=dev@example.org";

/// R07: every attempt has the same message id; the connection has the default sender and recipient.
#[tokio::test]
async fn a_mail_arrives_with_its_id_and_a_repeat_bears_the_same_one() {
    let (port, mut taken) = server(&[]).await;
    let smtp = smtp(port, FROM_AND_TO, None);
    for to in [None, Some("a@example.org, B <b@example.org>")] {
        smtp.notify(&mail(to)).await.unwrap();
        let got = taken.recv().await.unwrap();
        let receivers = if to.is_some() { 2 } else { 1 };
        assert_eq!(got.matches("> RCPT TO:<").count(), receivers, "{got}");
        assert!(got.contains("> MAIL FROM:<ci@example.org>"), "{got}");
        assert!(got.contains("\nMessage-ID: <report-1.0@example.org>\n"), "{got}");
        assert!(!got.contains("\nBcc:"), "a subject is one line: {got}");
        assert!(got.contains("Build failed.\n") && got.contains("- unit : FAILURE"), "{got}");
        assert!(!got.contains("AUTH"), "no login is sent without a login: {got}");
    }
}

/// Z5.4
#[tokio::test]
async fn a_login_is_used_and_stays_secret() {
    let (port, mut taken) = server(&[]).await;
    smtp(port, FROM_AND_TO, Some("hush")).notify(&mail(None)).await.unwrap();
    // base64 of NUL ci NUL hush
    assert!(taken.recv().await.unwrap().contains("> AUTH PLAIN AGNpAGh1c2g="));
    let (port, _taken) = server(&[("AUTH", "535 5.7.8 bad login")]).await;
    let error = smtp(port, FROM_AND_TO, Some("hush")).notify(&mail(None)).await.unwrap_err();
    assert!(matches!(error, NotifyError::Unknown { .. }), "an operator mends it: {error:?}");
    assert!(!format!("{error} {error:?}").contains("hush"));
}

/// R07: a mail that the server rejects for good is not retried, other errors are.
#[tokio::test]
async fn a_refusal_is_final_when_the_server_says_so() {
    let final_ = |error: NotifyError| matches!(error, NotifyError::Refused { .. });
    let (port, _taken) = server(&[("RCPT", "550 5.1.1 no mailbox of that name")]).await;
    let error = smtp(port, FROM_AND_TO, None).notify(&mail(None)).await.unwrap_err();
    assert!(error.to_string().contains("no mailbox of that name"), "{error}");
    assert!(final_(error));
    let (port, _taken) = server(&[("RCPT", "451 4.3.0 later")]).await;
    assert!(!final_(smtp(port, FROM_AND_TO, None).notify(&mail(None)).await.unwrap_err()));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert!(
        !final_(smtp(closed, FROM_AND_TO, None).notify(&mail(None)).await.unwrap_err()),
        "no server listens"
    );
    for query in ["", "?from=ci@example.org", "?from=ci@example.org&to=invalid"] {
        assert!(final_(smtp(port, query, None).notify(&mail(None)).await.unwrap_err()), "{query}");
    }
    let (id, topic, payload) = (String::new(), "t".to_owned(), String::new());
    let publication = Notification::Publication(Publication { id, topic, qos: 0, payload });
    assert!(final_(smtp(port, FROM_AND_TO, None).notify(&publication).await.unwrap_err()));
}
