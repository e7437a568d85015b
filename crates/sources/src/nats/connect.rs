//! Reaching the server, and telling a refusal from an absence.

use std::error::Error as _;
use std::io;
use std::sync::Weak;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};
use tokio::time::timeout;

use super::settings::{Login, NatsSettings};
use super::shared::Shared;
use crate::OpenError;
use crate::network::tls::client_config;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the server may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// A connection on which nothing comes is asked this often; the third silence ends it.
const PING: Duration = Duration::from_secs(5);
/// How often the library tries to get a lost connection back before a new one is made here. It
/// would go on for ever otherwise, also when nobody wants the connection any more.
const RECONNECTS: usize = 3;

/// Connects. Whoever listens hears what becomes of the connection.
pub(super) async fn connect(
    settings: &NatsSettings,
    listener: Weak<Shared>,
    epoch: u64,
) -> Result<Client, OpenError> {
    let options = options(settings)
        .await?
        .name("sluicegate")
        .connection_timeout(CONNECT)
        .request_timeout(Some(ANSWER))
        .ping_interval(PING)
        .max_reconnects(RECONNECTS)
        .reconnect_delay_callback(|attempt| match attempt {
            0 | 1 => Duration::ZERO,
            more => Duration::from_millis(100 << more.min(6)),
        })
        // In any case: a server may ask for TLS by itself.
        .tls_client_config(client_config(settings.ca.as_deref())?)
        .require_tls(settings.tls)
        .event_callback(move |event| {
            let listener = listener.clone();
            async move {
                if let Some(shared) = listener.upgrade() {
                    shared.hear(&event, epoch);
                }
            }
        });
    let address: ServerAddr = format!("nats://{}", settings.place())
        .parse()
        .map_err(|_| OpenError::Address("the host is none".into()))?;
    match timeout(CONNECT, options.connect(address)).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => Err(classify(settings, &error)),
        Err(_) => Err(unreachable(settings, "no answer within 5 s")),
    }
}

async fn options(settings: &NatsSettings) -> Result<ConnectOptions, OpenError> {
    let options = ConnectOptions::new();
    Ok(match &settings.login {
        Login::Nobody => options,
        Login::User { name, password } => options.user_and_password(name.clone(), password.clone()),
        Login::Token(token) => options.token(token.clone()),
        Login::Credentials(path) => options.credentials_file(path).await.map_err(|error| {
            OpenError::Refused(format!("creds={} cannot be used: {error}", path.display()))
        })?,
    })
}

fn unreachable(settings: &NatsSettings, why: &str) -> OpenError {
    OpenError::Unreachable(format!("{}: {why}", settings.place()))
}

fn classify(settings: &NatsSettings, error: &ConnectError) -> OpenError {
    let place = settings.place();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            OpenError::Refused(format!(
                "{place} does not accept the credentials: check user and password, token or creds="
            ))
        }
        _ => match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(why)) => OpenError::Refused(format!(
                "the certificate of {place} is not trusted ({why:?}): name its authority by ca="
            )),
            Some(why) => OpenError::Refused(format!("{place} does not speak TLS as asked: {why}")),
            None => {
                let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                unreachable(settings, &cause)
            }
        },
    }
}

/// What went wrong with TLS, if that is what went wrong.
fn tls_error(error: &ConnectError) -> Option<&rustls::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(found) = found.or_else(|| error.downcast_ref()) {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
