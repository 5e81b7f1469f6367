//! MQTT 3.1.1: one connection for each message, open until the broker has accepted it as its
//! quality of service requires.
//!
//! The packets are rumqttc's. Its client is not used: it reconnects and resends by itself, which
//! here is the task of the report's record, and its TLS needs an unmaintained certificate reader.

use crate::address::{Address, Scheme};
use crate::{Notification, Notify, NotifyError, Publication};
use async_trait::async_trait;
use bytes::BytesMut;
use rumqttc::{Connect, ConnectReturnCode, Packet, PubRel, Publish, QoS};
use rustls_platform_verifier::ConfigVerifierExt as _;
use sluice_keys::Secret;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Seconds that sending one message may take.
const TIMEOUT_SECONDS: u64 = 30;

/// Seconds of silence after which a broker closes a connection.
const KEEP_ALIVE_SECONDS: u16 = 60;

/// The largest packet that is read: brokers answer in a few bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// The largest packet that is sent; MQTT itself takes 256 MiB.
const PACKET_BYTES_MAX: usize = 16 << 20;

/// The packet id of the only packet of a connection.
const PACKET_ID: u16 = 1;

/// A broker.
pub struct Mqtt {
    /// The address of the broker.
    address: Address,
    /// The user and password, if any.
    login: Option<(String, Secret)>,
    /// The TLS settings; `None` for an unencrypted connection.
    tls: Option<TlsConnector>,
}

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

impl Mqtt {
    /// Creates a channel to a broker, with `login` as user and password; connects only for each
    /// message. An error if TLS cannot be set up, or if there is a login and its password would
    /// leave this machine without encryption. Neither that the address is a broker's nor that the
    /// password is text is checked.
    ///
    /// # Errors
    ///
    /// When TLS cannot be set up, or the password would be sent without encryption.
    pub fn new(address: Address, login: Option<(String, Secret)>) -> Result<Self, NotifyError> {
        let refused = |why: String| NotifyError::Refused {
            attempted: format!("prepare for {}", address.host),
            why,
        };
        if login.is_some() && !address.keeps_secrets() {
            return Err(refused(
                "the password would be sent in the clear: use mqtts://".to_owned(),
            ));
        }
        let tls = match address.scheme {
            Scheme::Mqtts => {
                let config = ClientConfig::with_platform_verifier()
                    .map_err(|error| refused(error.to_string()))?;
                Some(TlsConnector::from(Arc::new(config)))
            }
            _ => None,
        };
        Ok(Self { address, login, tls })
    }

    /// Connects to the broker, with TLS if the address says so. Sends nothing of MQTT yet, and has
    /// no time limit of its own.
    async fn connect(&self) -> std::io::Result<Box<dyn Wire>> {
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name =
            ServerName::try_from(self.address.host.clone()).map_err(std::io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }

    /// Connects, publishes one message, waits until the broker has accepted it as its quality of
    /// service requires, and disconnects. With quality 0 it counts as accepted when it was sent
    /// completely; a quality above 2 counts as 2. A refused login is a failure to retry. A password
    /// that is no text is sent as an empty one.
    async fn pass_on(&self, publication: &Publication) -> Result<(), Failure> {
        let mut talk = Talk { wire: self.connect().await?, read: BytesMut::new() };
        let mut connect = Connect::new(client_id(&publication.id));
        connect.keep_alive = KEEP_ALIVE_SECONDS;
        connect.clean_session = true;
        if let Some((user, password)) = &self.login {
            connect.set_login(user.as_str(), password.expose_text().unwrap_or_default());
        }
        talk.send(Packet::Connect(connect)).await?;
        match talk.answer().await? {
            Packet::ConnAck(answer) if answer.code == ConnectReturnCode::Success => {}
            // An operator can fix a login, and a broker can recover: neither is final.
            Packet::ConnAck(answer) => {
                return Err(Failure::Later(format!("the broker says {:?}", answer.code)));
            }
            other => return Err(unexpected(&other)),
        }
        let qos = match publication.qos {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        let mut publish =
            Publish::new(publication.topic.as_str(), qos, publication.payload.as_str());
        publish.pkid = if qos == QoS::AtMostOnce { 0 } else { PACKET_ID };
        talk.send(Packet::Publish(publish)).await?;
        match qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => match talk.answer().await? {
                Packet::PubAck(answer) if answer.pkid == PACKET_ID => {}
                other => return Err(unexpected(&other)),
            },
            QoS::ExactlyOnce => {
                match talk.answer().await? {
                    Packet::PubRec(answer) if answer.pkid == PACKET_ID => {}
                    other => return Err(unexpected(&other)),
                }
                talk.send(Packet::PubRel(PubRel::new(PACKET_ID))).await?;
                match talk.answer().await? {
                    Packet::PubComp(answer) if answer.pkid == PACKET_ID => {}
                    other => return Err(unexpected(&other)),
                }
            }
        }
        match (talk.leave().await, qos) {
            // The broker sends no acknowledgement, so the message has to be sent completely at
            // least.
            (Err(failure), QoS::AtMostOnce) => Err(failure),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Notify for Mqtt {
    /// Publishes a message within 30 seconds. A mail, and a message that is too large, is
    /// [`NotifyError::Refused`]; all other failures, also a refused login, are
    /// [`NotifyError::Unknown`].
    async fn notify(&self, message: &Notification) -> Result<(), NotifyError> {
        let attempted = || format!("publish through {}", self.address.host);
        let Notification::Publication(publication) = message else {
            let why = "a broker sends no mail".to_owned();
            return Err(NotifyError::Refused { attempted: attempted(), why });
        };
        let passed =
            tokio::time::timeout(Duration::from_secs(TIMEOUT_SECONDS), self.pass_on(publication))
                .await;
        match passed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Failure::Never(why))) => {
                Err(NotifyError::Refused { attempted: attempted(), why })
            }
            Ok(Err(Failure::Later(why))) => {
                Err(NotifyError::Unknown { attempted: attempted(), why })
            }
            Err(_) => Err(NotifyError::Unknown {
                attempted: attempted(),
                why: "it took too long".to_owned(),
            }),
        }
    }
}

enum Failure {
    Never(String),
    Later(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Later(error.to_string())
    }
}

struct Talk {
    wire: Box<dyn Wire>,
    read: BytesMut,
}

impl Talk {
    /// Sends a packet. A packet that is too large or invalid can never be sent; other failures may
    /// pass.
    async fn send(&mut self, packet: Packet) -> Result<(), Failure> {
        let mut bytes = BytesMut::new();
        packet
            .write(&mut bytes, PACKET_BYTES_MAX)
            .map_err(|error| Failure::Never(error.to_string()))?;
        self.wire.write_all(&bytes).await?;
        Ok(self.wire.flush().await?)
    }

    /// Sends the disconnect packet and closes the connection with the broker.
    async fn leave(&mut self) -> Result<(), Failure> {
        self.send(Packet::Disconnect).await?;
        Ok(self.wire.shutdown().await?)
    }

    /// Waits for the next packet of the broker, without a time limit of its own. An error if it is
    /// invalid, too large, or the connection closes.
    async fn answer(&mut self) -> Result<Packet, Failure> {
        loop {
            match Packet::read(&mut self.read, ANSWER_BYTES_MAX) {
                Ok(packet) => return Ok(packet),
                Err(rumqttc::mqttbytes::Error::InsufficientBytes(_)) => {}
                Err(error) => {
                    return Err(Failure::Later(format!(
                        "the broker answers with no packet: {error}"
                    )));
                }
            }
            if self.wire.read_buf(&mut self.read).await? == 0 {
                return Err(Failure::Later("the broker closed the connection".to_owned()));
            }
        }
    }
}

/// Returns the error, after which a retry may help, for a packet that the protocol does not allow
/// here.
fn unexpected(packet: &Packet) -> Failure {
    Failure::Later(format!("the broker answers with {packet:?}"))
}

/// Returns the client id for a publication: `sluice` and the first 17 letters and digits of its id.
/// A broker closes an earlier connection with the same client id. MQTT 3.1.1 guarantees 23 letters
/// and digits.
fn client_id(id: &str) -> String {
    let letters: String = id.chars().filter(char::is_ascii_alphanumeric).take(17).collect();
    format!("sluice{letters}")
}
