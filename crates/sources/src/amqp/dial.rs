//! Connecting once, and telling apart who refuses from who is not there.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::tcp::{AsyncTcpStream, RustlsConnector};
use lapin::{ConnectionProperties, ErrorKind};
use rustls::AlertDescription;
use tokio::time::timeout;

use super::address::AmqpAddress;
use crate::OpenError;
use crate::network::tls::client_config_as;

/// How long one connection may take to come about.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(5);

/// A connection with the socket below it.
#[derive(Debug)]
pub(crate) struct Dialled {
    connection: lapin::Connection,
    socket: Arc<OnceLock<TcpStream>>,
}

impl Dialled {
    /// Ends it without a word: who does not answer, or does not read, would not hear any.
    pub(crate) fn cut(&self) {
        if let Some(socket) = self.socket.get() {
            socket.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }
}

impl Deref for Dialled {
    type Target = lapin::Connection;

    fn deref(&self) -> &lapin::Connection {
        &self.connection
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        // The library writes nothing to a broker that is short of memory or disk, not even its goodbye, and
        // would keep socket and thread until that is over.
        if self.connection.status().blocked() {
            self.cut();
        }
    }
}

/// Connects. What it starts ends with it, also when it gives up.
pub(crate) async fn dial(address: &AmqpAddress, name: &str) -> Result<Dialled, OpenError> {
    let config = address
        .is_tls()
        .then(|| client_config_as(address.ca.as_deref(), address.identity.as_ref()))
        .transpose()?;
    let connector = config.map(RustlsConnector::from);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = lapin::runtime::default_runtime().map_err(|error| classify(address, &error))?;
    let socket = Arc::new(OnceLock::new());
    let kept = Arc::clone(&socket);
    let connect = lapin::Connection::connector(
        address.uri.clone(),
        runtime,
        async move |uri: lapin::uri::AMQPUri, runtime| {
            let host = uri.authority.host.clone();
            let target = (host.clone(), uri.authority.port);
            let dialling = async {
                let addresses = tokio::net::lookup_host(target).await?.collect::<Vec<_>>();
                let stream = AsyncTcpStream::connect(&runtime, addresses).await?;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    let socket = plain.get_ref().as_fd().try_clone_to_owned()?;
                    drop(kept.set(TcpStream::from(socket)));
                }
                match &connector {
                    Some(connector) => stream.into_rustls(connector, &host).await,
                    None => Ok(stream),
                }
            };
            match timeout(GIVE_UP, dialling).await {
                Ok(stream) => Ok(stream?),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        },
        properties,
    );
    match timeout(GIVE_UP, connect).await {
        Ok(Ok(connection)) => Ok(Dialled { connection, socket }),
        Ok(Err(error)) => Err(classify(address, &error)),
        Err(_) => {
            // A broker that took the connection and says nothing would keep its thread for ever.
            if let Some(socket) = socket.get() {
                socket.shutdown(Shutdown::Both).unwrap_or_default();
            }
            let why = format!("{} did not answer within {GIVE_UP:?}", address.host());
            Err(OpenError::Unreachable(why))
        }
    }
}

/// Whether a person must help, or trying again may.
pub(crate) fn classify(address: &AmqpAddress, error: &lapin::Error) -> OpenError {
    let (user, vhost, host) = (address.user(), address.vhost(), address.host());
    if let ErrorKind::ProtocolError(said) = error.kind() {
        let text = said.get_message();
        return match said.kind() {
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::INVALIDPATH) => {
                OpenError::Refused(format!(
                    "{host} does not let user {user} into vhost {vhost}: create the vhost, or \
                     give the user rights there ({text})"
                ))
            }
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => OpenError::Refused(format!(
                "{host} refuses user {user} at vhost {vhost}: check user, password and rights \
                 ({text})"
            )),
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => OpenError::Refused(format!(
                "something stands at {host} with other properties than declared: delete it there, \
                 or declare it as it is ({text})"
            )),
            AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => {
                OpenError::Refused(format!("it is locked by another connection ({text})"))
            }
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                OpenError::Refused(format!("it is not there ({text})"))
            }
            AMQPErrorKind::Hard(AMQPHardError::COMMANDINVALID) => {
                OpenError::Refused(format!("{host} does not know what is declared ({text})"))
            }
            _ => OpenError::Unreachable(format!("{host}: {text}")),
        };
    }
    if let ErrorKind::IOError(io) = error.kind()
        && let Some(tls) = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return match tls {
            rustls::Error::InvalidCertificate(why) => OpenError::Refused(format!(
                "the certificate of {host} is not trusted ({why}): name its issuer with ca="
            )),
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateUnknown,
            ) => OpenError::Refused(format!(
                "{host} wants a certificate that it trusts: name ours with cert= and key= ({tls})"
            )),
            _ => OpenError::Refused(format!("no TLS with {host}: {tls}")),
        };
    }
    OpenError::Unreachable(format!("{host}: {error}"))
}
