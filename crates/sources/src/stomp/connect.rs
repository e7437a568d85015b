//! Getting to the broker: a socket, TLS, who we are, and the subscription.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::codec::{FramedRead, FramedWrite};

use super::codec::{Codec, Heard, Said};
use super::frame::{Command, Frame};
use super::settings::StompSettings;
use super::shared::said_error;
use crate::OpenError;
use crate::network::tls::client_config;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much is gathered before it is written.
const WRITE_AT_ONCE: usize = 64 * 1024;
/// The receipt of the subscription: no number, so that it is none of those that come later.
const SUBSCRIBED: &str = "subscribed";

pub(crate) type Reader = FramedRead<Box<dyn AsyncRead + Send + Unpin>, Codec>;
pub(crate) type Writer = FramedWrite<Box<dyn AsyncWrite + Send + Unpin>, Codec>;

/// A connection that is agreed upon.
pub(crate) struct Session {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// What the broker has sent before it confirmed the subscription.
    pub(crate) early: Vec<Frame>,
    /// How long the broker may be silent.
    pub(crate) silence: Option<Duration>,
    /// How long we may be.
    pub(crate) beat: Option<Duration>,
}

/// What is asked of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Receive,
    /// Nothing yet: who only publishes must not be sent messages that others wait for.
    Publish,
    /// Only to see whether one may.
    Look,
}

/// Connects, says who we are and subscribes, if that is what it is for.
pub(crate) async fn connect(
    settings: &StompSettings,
    intent: Intent,
) -> Result<Session, OpenError> {
    let connected = timeout(PATIENCE, connect_at_leisure(settings, intent)).await;
    connected.unwrap_or_else(|_| {
        let place = settings.place();
        Err(OpenError::Unreachable(format!("{place} did not answer within {PATIENCE:?}")))
    })
}

async fn connect_at_leisure(
    settings: &StompSettings,
    intent: Intent,
) -> Result<Session, OpenError> {
    let (reader, writer) = dial(settings).await?;
    let reader = FramedRead::new(reader, Codec::default());
    let mut writer = FramedWrite::new(writer, Codec::default());
    writer.set_backpressure_boundary(WRITE_AT_ONCE);
    let mut session = Session { reader, writer, early: Vec::new(), silence: None, beat: None };
    session.introduce(settings).await?;
    if intent != Intent::Publish {
        session.subscribe(settings, intent).await?;
    }
    Ok(session)
}

/// The frame that subscribes.
pub(crate) fn subscription(settings: &StompSettings, intent: Intent) -> Frame {
    let subscribe =
        Frame::new(Command::Subscribe).with("id", "0").with("destination", settings.destination());
    match intent {
        Intent::Receive | Intent::Publish => subscribe
            .with("ack", "client-individual")
            .with("activemq.prefetchSize", settings.prefetch.to_string()),
        // A browser takes nothing.
        Intent::Look => {
            subscribe.with("ack", "auto").with("browser", "true").with("activemq.prefetchSize", "1")
        }
    }
}

type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

async fn dial(settings: &StompSettings) -> Result<Halves, OpenError> {
    // Read first, so that a file that is not there is not taken for a broker that is not.
    let tls = settings.is_tls.then(|| client_config(settings.ca.as_deref())).transpose()?;
    let place = settings.place();
    let unreachable = |error: io::Error| OpenError::Unreachable(format!("{place}: {error}"));
    let stream = TcpStream::connect((&*settings.host, settings.port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(tls) = tls else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::new(reader), Box::new(writer)));
    };
    let name = ServerName::try_from(settings.host.clone())
        .map_err(|_| OpenError::Address(format!("host: {} is no name", settings.host)))?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.map_err(
        |error| match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(why)) => OpenError::Refused(format!(
                "the certificate of {place} is not trusted ({why:?}): name its authority with ca="
            )),
            Some(other) => OpenError::Refused(format!("no TLS with {place}: {other}")),
            None => unreachable(error),
        },
    )?;
    let (reader, writer) = tokio::io::split(stream);
    Ok((Box::new(reader), Box::new(writer)))
}

impl Session {
    async fn introduce(&mut self, settings: &StompSettings) -> Result<(), OpenError> {
        let beat = settings.heartbeat.as_millis();
        let mut connect = Frame::new(Command::Connect)
            .with("accept-version", "1.2")
            .with("host", &*settings.host)
            .with("heart-beat", format!("{beat},{beat}"));
        if let Some((user, password)) = &settings.login {
            connect = connect.with("login", &**user).with("passcode", &**password);
        }
        self.write(connect, settings).await?;
        let answer = self.read(settings).await?;
        match answer.command {
            Command::Connected => {}
            Command::Error => return Err(refused(settings, &answer)),
            other => {
                let why = format!("{} answers {} to CONNECT", settings.place(), other.name());
                return Err(OpenError::Unreachable(why));
            }
        }
        let beats = answer.header("heart-beat").unwrap_or("0,0");
        let (theirs, ours) = beats.split_once(',').unwrap_or(("0", "0"));
        let of = |millis: &str| millis.trim().parse().ok().filter(|&millis| millis > 0_u64);
        let agreed = |millis: u64| Duration::from_millis(millis).max(settings.heartbeat);
        self.silence = of(theirs).map(|theirs| agreed(theirs) * 2 + Duration::from_secs(1));
        self.beat = of(ours).map(|ours| agreed(ours) / 2);
        Ok(())
    }

    async fn subscribe(
        &mut self,
        settings: &StompSettings,
        intent: Intent,
    ) -> Result<(), OpenError> {
        let subscribe = subscription(settings, intent).with("receipt", SUBSCRIBED);
        self.write(subscribe, settings).await?;
        loop {
            let frame = self.read(settings).await?;
            match frame.command {
                Command::Receipt if frame.header("receipt-id") == Some(SUBSCRIBED) => return Ok(()),
                Command::Error => return Err(refused(settings, &frame)),
                _ => self.early.push(frame),
            }
        }
    }

    /// Says goodbye. Who does not hear it finds the connection closed.
    pub(crate) async fn leave(mut self) {
        let goodbye = Frame::new(Command::Disconnect);
        timeout(PATIENCE, self.writer.send(Said::Frame(goodbye))).await.ok();
    }

    async fn write(&mut self, frame: Frame, settings: &StompSettings) -> Result<(), OpenError> {
        let written = self.writer.send(Said::Frame(frame)).await;
        written.map_err(|error| OpenError::Unreachable(format!("{}: {error}", settings.place())))
    }

    async fn read(&mut self, settings: &StompSettings) -> Result<Frame, OpenError> {
        let place = settings.place();
        loop {
            match self.reader.next().await {
                Some(Ok(Heard::Frame(frame))) => return Ok(frame),
                Some(Ok(Heard::Beat)) => {}
                Some(Err(error)) => {
                    return Err(OpenError::Unreachable(format!("{place}: {error}")));
                }
                None => {
                    let why = format!("{place} closed the connection; does it speak STOMP there?");
                    return Err(OpenError::Unreachable(why));
                }
            }
        }
    }
}

fn refused(settings: &StompSettings, frame: &Frame) -> OpenError {
    let said = said_error(frame);
    let said = match &settings.login {
        // Should a broker repeat what it was told.
        Some((_, password)) if !password.is_empty() => said.replace(&**password, "***"),
        _ => said,
    };
    let (place, queue) = (settings.place(), &settings.queue);
    OpenError::Refused(format!(
        "{place} says: {said} Check user and password, and that the user may read queue {queue}"
    ))
}
