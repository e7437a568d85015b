//! Unsettled deliveries of messages that are gone.
//!
//! A server that was killed may know less of what was acknowledged than of what its stream has removed for
//! that. It then tries to deliver again what is not there any more. Servers before 2.10 stop at each such
//! message until the next question, keep it for the next time, and so hand out next to nothing for ever.
//! To acknowledge a message that is gone can do no harm, and ends that.

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream::Stream;
use async_nats::{Client, Subject};

use super::settle::tell;

/// More are not looked at: the server's answer would be too large.
const MOST: u64 = 100_000;

/// Acknowledges what is unsettled and gone. Answers whether there may have been any.
pub(super) async fn lay(client: &Client, stream: &Stream, consumer: &Info) -> bool {
    let gone = stream.cached_info().state.deleted_count.unwrap_or(0);
    if consumer.num_ack_pending == 0 || gone == 0 || gone > MOST {
        return false;
    }
    let Ok(info) = stream.info_builder().with_deleted(true).fetch().await else { return false };
    let unsettled = consumer.ack_floor.stream_sequence + 1..=consumer.delivered.stream_sequence;
    let gone = info.info.state.deleted.unwrap_or_default();
    let mut ghosts = gone.into_iter().filter(|seq| unsettled.contains(seq)).peekable();
    let any = ghosts.peek().is_some();
    while let Some(seq) = ghosts.next() {
        let reply = reply(&consumer.stream_name, &consumer.name, seq);
        // They are taken in one after the other: the last one's answer is that of all.
        let told = match ghosts.peek() {
            Some(_) => client.publish(reply, AckKind::Ack.into()).await.is_ok(),
            None => tell(client, reply, AckKind::Ack).await.is_ok(),
        };
        if !told {
            break;
        }
    }
    any
}

/// Where a message is acknowledged, whichever of its deliveries is meant.
fn reply(stream: &str, consumer: &str, seq: u64) -> Subject {
    format!("$JS.ACK.{stream}.{consumer}.1.{seq}.0.0.0").into()
}
