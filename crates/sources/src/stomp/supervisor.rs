//! The task behind a source: it keeps the connection, and gets a new one when it is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::codec::{Heard, Said};
use super::connect::{Reader, Session, Writer, connect};
use super::frame::{Command, Frame};
use super::shared::Shared;
use crate::network::pause::Pauses;

/// After a connection that lasted so long, or on which something was confirmed, the next pause is short
/// again. One that breaks at once each time is not tried for ever at the same pace.
const GOOD: Duration = Duration::from_secs(10);
/// How long the broker may take to confirm something.
const UNCONFIRMED: Duration = Duration::from_secs(30);
/// How often it is looked whether it does.
const WATCH: Duration = Duration::from_secs(1);

/// Keeps a source connected until it is over or its context ends. A session that is there already has
/// begun.
pub(crate) async fn supervise(shared: Arc<Shared>, mut session: Option<Session>, cx: Context) {
    let mut pauses = Pauses::default();
    loop {
        let connected = match session.take() {
            Some(session) => Ok(session),
            None => {
                let intent = shared.intent();
                match cx.until_interrupted(connect(&shared.settings, intent)).await {
                    Ok(connected) => connected.inspect(|_| shared.begin(intent)),
                    Err(_) => return,
                }
            }
        };
        match connected {
            Ok(session) => {
                let begun = Instant::now();
                let ended = cx.until_interrupted(run(&shared, session)).await;
                let cause = ended.unwrap_or_else(|_| "it was closed".to_owned());
                if shared.lose(cause) || begun.elapsed() >= GOOD {
                    pauses.reset();
                }
            }
            Err(error) => {
                shared.lose(error.to_string());
            }
        }
        if shared.is_over() || cx.until_interrupted(wait(&shared, pauses.next())).await.is_err() {
            return;
        }
    }
}

/// Waits between two attempts, unless it is all over.
async fn wait(shared: &Shared, pause: Duration) {
    let over = async {
        while !shared.is_over() {
            shared.outgoing.notified().await;
        }
    };
    timeout(pause, over).await.ok();
}

/// Reads and writes until the connection ends; answers why.
async fn run(shared: &Shared, session: Session) -> String {
    let Session { reader, writer, early, silence, beat } = session;
    for frame in early {
        if let Err(cause) = shared.hear(frame) {
            return cause;
        }
    }
    // Side by side: a broker that does not read before it is read from must not stop both.
    tokio::select! {
        cause = read(shared, reader, silence) => cause,
        cause = write(shared, writer, beat) => cause,
        cause = watch(shared) => cause,
    }
}

async fn read(shared: &Shared, mut reader: Reader, silence: Option<Duration>) -> String {
    loop {
        let heard = match silence {
            Some(silence) => timeout(silence, reader.next()).await,
            None => Ok(reader.next().await),
        };
        match heard {
            Ok(Some(Ok(Heard::Frame(frame)))) => {
                if let Err(cause) = shared.hear(frame) {
                    return cause;
                }
            }
            Ok(Some(Ok(Heard::Beat))) => {}
            Ok(Some(Err(error))) => return format!("the connection broke: {error}"),
            Ok(None) => return "the broker closed the connection".to_owned(),
            Err(_) => return format!("the broker was silent for {silence:?}"),
        }
    }
}

async fn write(shared: &Shared, mut writer: Writer, beat: Option<Duration>) -> String {
    loop {
        let frames = shared.take_outbox();
        let written = if !frames.is_empty() {
            send(&mut writer, frames).await
        } else if shared.is_over() {
            let goodbye = Said::Frame(Frame::new(Command::Disconnect));
            writer.send(goodbye).await.ok();
            return "it was stopped".to_owned();
        } else {
            let called = shared.outgoing.notified();
            match beat {
                None => {
                    called.await;
                    Ok(())
                }
                Some(beat) => match timeout(beat, called).await {
                    Ok(()) => Ok(()),
                    Err(_) => writer.send(Said::Beat).await,
                },
            }
        };
        if let Err(error) = written {
            return format!("the connection broke: {error}");
        }
    }
}

/// Writes what has gathered as one.
async fn send(
    writer: &mut Writer,
    frames: impl IntoIterator<Item = Frame>,
) -> Result<(), std::io::Error> {
    for frame in frames {
        writer.feed(Said::Frame(frame)).await?;
    }
    writer.flush().await
}

/// Ends when the broker owes an answer for too long: whoever waits for it is told then.
async fn watch(shared: &Shared) -> String {
    loop {
        sleep(WATCH).await;
        if let Some(since) = shared.waiting_since()
            && since.elapsed() > UNCONFIRMED
        {
            return format!("the broker has not confirmed anything for {UNCONFIRMED:?}");
        }
    }
}

/// Waits for a call, or until a time.
pub(crate) async fn called_or(called: impl Future<Output = ()>, until: Instant) {
    tokio::select! {
        () = called => {}
        () = sleep_until(until) => {}
    }
}
