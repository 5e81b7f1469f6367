//! Tests MQTT with a test broker: packets on a socket, with logins and all qualities of service.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::BytesMut;
use rumqttc::{ConnAck, ConnectReturnCode, Packet, PubAck, PubComp, PubRec, QoS};
use sluice_keys::Secret;
use sluice_notify::{Address, Mqtt, Notification, Notify as _, NotifyError, Publication};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How a test broker misbehaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whim {
    None,
    /// It closes the connection instead of acknowledging a message.
    Hangs,
    /// It rejects clients without this password.
    Wants(&'static str),
}

/// Starts a broker that returns each accepted message: client, topic and payload. Returns its port.
async fn broker(whim: Whim) -> (u16, mpsc::UnboundedReceiver<(String, String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, (messages, taken)) =
        (listener.local_addr().unwrap().port(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, whim, messages.clone()));
        }
    });
    (port, taken)
}

async fn serve(
    mut stream: TcpStream,
    whim: Whim,
    messages: mpsc::UnboundedSender<(String, String, String)>,
) -> Option<()> {
    let mut read = BytesMut::new();
    let Packet::Connect(connect) = next(&mut stream, &mut read).await? else { return None };
    let is_known = match whim {
        Whim::Wants(password) => {
            connect.login.as_ref().is_some_and(|login| login.validate("ci", password))
        }
        Whim::None | Whim::Hangs => connect.login.is_none(),
    };
    let code =
        if is_known { ConnectReturnCode::Success } else { ConnectReturnCode::BadUserNamePassword };
    say(&mut stream, Packet::ConnAck(ConnAck::new(code, false))).await?;
    let Packet::Publish(publish) = next(&mut stream, &mut read).await? else { return None };
    if whim == Whim::Hangs {
        return None;
    }
    match publish.qos {
        QoS::AtMostOnce => {}
        QoS::AtLeastOnce => say(&mut stream, Packet::PubAck(PubAck::new(publish.pkid))).await?,
        QoS::ExactlyOnce => {
            say(&mut stream, Packet::PubRec(PubRec::new(publish.pkid))).await?;
            let Packet::PubRel(_) = next(&mut stream, &mut read).await? else { return None };
            say(&mut stream, Packet::PubComp(PubComp::new(publish.pkid))).await?;
        }
    }
    // A broker accepts what was sent before the client's DISCONNECT.
    let Packet::Disconnect = next(&mut stream, &mut read).await? else { return None };
    let payload = String::from_utf8(publish.payload.to_vec()).unwrap();
    messages.send((connect.client_id, publish.topic, payload)).ok()
}

async fn next(stream: &mut TcpStream, read: &mut BytesMut) -> Option<Packet> {
    loop {
        if let Ok(packet) = Packet::read(read, 1 << 20) {
            return Some(packet);
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

async fn say(stream: &mut TcpStream, packet: Packet) -> Option<()> {
    let mut bytes = BytesMut::new();
    packet.write(&mut bytes, 1 << 20).ok()?;
    stream.write_all(&bytes).await.ok()
}

fn mqtt(port: u16, password: Option<&str>) -> Mqtt {
    let address = Address::parse(&format!("mqtt://127.0.0.1:{port}")).unwrap();
    Mqtt::new(address, password.map(|text| ("ci".to_owned(), Secret::from(text.to_owned()))))
        .unwrap()
}

fn publication(qos: u8) -> Notification {
    let id = "0123456789abcdef0123456789abcdef".to_owned();
    Notification::Publication(Publication {
        id,
        topic: "acme/gate".to_owned(),
        qos,
        payload: "{\"action\":\"success\"}".to_owned(),
    })
}

/// Z6.1: a message counts as sent when the broker has accepted it, with each quality of service.
#[tokio::test]
async fn a_message_is_taken_by_the_broker_by_each_quality_of_service() {
    let (port, mut taken) = broker(Whim::None).await;
    for qos in 0..3 {
        mqtt(port, None).notify(&publication(qos)).await.unwrap();
        let (client, topic, payload) = taken.recv().await.unwrap();
        assert_eq!((topic.as_str(), payload.as_str()), ("acme/gate", "{\"action\":\"success\"}"));
        assert!(client.len() <= 23 && client.starts_with("sluice0123"), "{client}");
    }
}

/// Z6.1: it is unknown whether the message arrived, so it is sent again.
#[tokio::test]
async fn a_broker_that_goes_away_is_asked_again() {
    let (port, _taken) = broker(Whim::Hangs).await;
    for qos in 1..3 {
        let error = mqtt(port, None).notify(&publication(qos)).await.unwrap_err();
        assert!(matches!(error, NotifyError::Unknown { .. }), "{error:?}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert!(matches!(
        mqtt(closed, None).notify(&publication(0)).await,
        Err(NotifyError::Unknown { .. })
    ));
}

/// Z5.4
#[tokio::test]
async fn a_login_is_used_and_never_sent_in_the_clear_over_a_network() {
    let (port, mut taken) = broker(Whim::Wants("hush")).await;
    mqtt(port, Some("hush")).notify(&publication(1)).await.unwrap();
    assert!(taken.recv().await.is_some());
    let error = mqtt(port, Some("wrong")).notify(&publication(1)).await.unwrap_err();
    assert!(matches!(error, NotifyError::Unknown { .. }), "an operator mends it: {error:?}");
    assert!(
        error.to_string().contains("BadUserNamePassword")
            && !format!("{error:?}").contains("wrong"),
        "{error:?}"
    );
    let far = Address::parse("mqtt://broker.example.org").unwrap();
    let refused = Mqtt::new(far, Some(("ci".to_owned(), Secret::from("hush".to_owned()))));
    assert!(refused.is_err_and(|error| error.to_string().contains("mqtts://")));
}

/// Starts a real broker on its own port and waits until it listens.
async fn mosquitto() -> (Child, u16) {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    // Debian installs it outside of a user's path.
    let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("mosquitto");
    command
        .args(["-p", &port.to_string()])
        .env("PATH", path)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut running = command.spawn().expect("mosquitto starts; infra/test-tools.sh installs it");
    let mut said = BufReader::new(running.stderr.take().unwrap()).lines();
    let mut all = String::new();
    while let Some(line) = said.next_line().await.unwrap() {
        if line.ends_with(" running") {
            tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
            return (running, port);
        }
        all += &(line + "\n");
    }
    panic!("mosquitto ended:\n{all}");
}

/// Z6.1: the same with a real broker.
#[tokio::test]
async fn mosquitto_takes_messages_by_each_quality_of_service() {
    let (_running, port) = mosquitto().await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut read = BytesMut::new();
    say(&mut stream, Packet::Connect(rumqttc::Connect::new("listener"))).await.unwrap();
    assert!(matches!(next(&mut stream, &mut read).await, Some(Packet::ConnAck(_))));
    let mut subscribe = rumqttc::Subscribe::new("acme/#", QoS::AtMostOnce);
    subscribe.pkid = 1;
    say(&mut stream, Packet::Subscribe(subscribe)).await.unwrap();
    assert!(matches!(next(&mut stream, &mut read).await, Some(Packet::SubAck(_))));
    for qos in 0..3 {
        mqtt(port, None).notify(&publication(qos)).await.unwrap();
        let Some(Packet::Publish(taken)) = next(&mut stream, &mut read).await else {
            panic!("nothing was published")
        };
        assert_eq!(
            (taken.topic.as_str(), &taken.payload[..]),
            ("acme/gate", &b"{\"action\":\"success\"}"[..])
        );
    }
}
