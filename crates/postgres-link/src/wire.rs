//! A connection that is driven by who uses it: no task of its own, and no way between tasks.

use std::future::poll_fn;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Notification, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{Broken, CONNECT};

type Driven = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A connection. It does nothing while nobody waits for it.
pub struct Wire {
    client: Client,
    connection: Driven,
}

impl Wire {
    /// Connects, within [`CONNECT`].
    ///
    /// # Errors
    /// The database is not reached, or refuses.
    pub async fn connect(config: &Config, tls: &MakeRustlsConnect) -> Result<Self, Broken> {
        match timeout(CONNECT, config.connect(tls.clone())).await {
            Ok(connected) => {
                let (client, connection) = connected?;
                Ok(Self { client, connection })
            }
            Err(_) => Err(Broken::late()),
        }
    }

    /// What calls are made with, and what drives them until it ends. Dropped, it can be driven again.
    pub fn parts(&mut self) -> (&mut Client, impl Future<Output = Broken>) {
        (&mut self.client, end(&mut self.connection, |_| {}))
    }

    /// The same, and what to do when a notification comes.
    pub fn listening(
        &mut self,
        told: impl FnMut(&Notification),
    ) -> (&mut Client, impl Future<Output = Broken>) {
        (&mut self.client, end(&mut self.connection, told))
    }

    /// Waits for the answer to a call, but not for ever. Dropped, or given up, the call may be done or not.
    ///
    /// # Errors
    /// The database said so, the connection ended, or the time is over.
    pub async fn ask<'c, T, Call>(
        &'c mut self,
        limit: Duration,
        call: impl FnOnce(&'c Client) -> Call,
    ) -> Result<T, Broken>
    where
        Call: Future<Output = Result<T, Error>> + 'c,
    {
        let Self { client, connection } = self;
        let call = call(client);
        let driven = async {
            tokio::select! {
                biased;
                answer = call => answer.map_err(Broken::from),
                broken = end(connection, |_| {}) => Err(broken),
            }
        };
        timeout(limit, driven).await.unwrap_or_else(|_| Err(Broken::late()))
    }

    /// Waits until the connection ends.
    pub async fn end(&mut self) -> Broken {
        end(&mut self.connection, |_| {}).await
    }
}

/// The answer to a call that somebody else drives, if it comes in time.
///
/// # Errors
/// The database said so, the connection ended, or the time is over.
pub async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Broken> {
    timeout(limit, call).await.map_or_else(|_| Err(Broken::late()), |answer| Ok(answer?))
}

async fn end(connection: &mut Driven, mut told: impl FnMut(&Notification)) -> Broken {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(note))) => told(&note),
            Some(Ok(_)) => {}
            Some(Err(error)) => break Broken::from(error),
            None => break Broken::Other("the connection has ended".to_owned()),
        }
    }
}
