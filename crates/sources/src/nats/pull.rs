//! The one task of a source: it keeps the connection, asks for as many messages as are wanted, and
//! keeps alive what waits here.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull::Batch;
use async_nats::{Client, Message};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::attach::Attached;
use super::front::{Arrived, Errand};
use super::hold::LATE;
use super::message::{arrived, delivered, since_1970};
use super::settle::tell;
use super::shared::Shared;
use crate::network::pause::Pauses;

/// How long one question for messages stays open, at most.
const OPEN: Duration = Duration::from_secs(1);
/// How long its end may be under way.
const GRACE: Duration = Duration::from_millis(1500);
/// How many messages are asked for at once.
const MOST: usize = 1024;

/// Runs until its context ends, whatever it is doing then: what was received and not handed out comes
/// back by itself.
pub(super) async fn run(shared: Arc<Shared>, cx: Context) {
    let mut pauses = Pauses::default();
    loop {
        let step = async {
            match shared.attached() {
                Some((client, attached)) => round(&shared, &client, &attached).await,
                None => shared.link_up().await.map_err(|error| error.to_string()),
            }
        };
        let Ok(outcome) = cx.until_interrupted(step).await else { return };
        let Err(why) = outcome else {
            pauses.reset();
            continue;
        };
        shared.fails(why);
        let rest = async {
            tokio::select! {
                () = shared.connected.notified() => {}
                () = sleep(pauses.next()) => {}
            }
        };
        if cx.until_interrupted(rest).await.is_err() {
            return;
        }
    }
}

/// Does what is to be done now, and waits where that is nothing.
async fn round(shared: &Shared, client: &Client, attached: &Attached) -> Result<(), String> {
    keep_alive(shared, client).await;
    if shared.is_stopped() {
        let errands = shared.front.lock().give_back();
        run_errands(client, errands).await;
        shared.has_given_back();
        wait(shared, None).await;
        return Ok(());
    }
    ask_what_is_left(shared, attached).await;
    let (lack, pause) = {
        let now = Instant::now();
        let mut front = shared.front.lock();
        front.sweep(now);
        (front.lack(), front.pause(now))
    };
    if lack == 0 || pause.is_some() {
        wait(shared, pause).await;
        return Ok(());
    }
    let outcome = ask(shared, client, attached, lack.min(MOST)).await;
    match &outcome {
        Ok(()) => shared.works(),
        Err(_) => shared.detach(),
    }
    outcome
}

/// Asks how much of an earlier life the server still has, when all of it should have come.
async fn ask_what_is_left(shared: &Shared, attached: &Attached) {
    if !shared.front.lock().is_hold_in_question(Instant::now()) {
        return;
    }
    // Nothing is settled meanwhile, so that both count the same.
    let _alone = shared.words.write().await;
    if let Ok(info) = attached.consumer.get_info().await {
        shared.front.lock().hear_of_unsettled(info.num_ack_pending, Instant::now());
    }
}

/// Until there may be something to do.
async fn wait(shared: &Shared, until: Option<Instant>) {
    let tick = Instant::now() + shared.front.lock().window() / 6;
    let until = until.map_or(tick, |until| until.min(tick));
    tokio::select! {
        () = shared.woken.notified() => {}
        () = sleep_until(until) => {}
    }
}

/// Asks for at most `max` messages: for what is there, else for the first one to come.
async fn ask(
    shared: &Shared,
    client: &Client,
    attached: &Attached,
    max: usize,
) -> Result<(), String> {
    let open = {
        let front = shared.front.lock();
        let longest = if front.is_curious() { LATE } else { OPEN };
        longest.min(front.window() / 4)
    };
    let asked = Instant::now();
    let fetch = attached.consumer.fetch().max_messages(max.min(attached.max_batch)).expires(open);
    let mut batch = fetch.messages().await.map_err(|error| error.to_string())?;
    let mut any = false;
    loop {
        let next = timeout_at(asked + open + GRACE, batch.next()).await;
        let first = match next {
            // The answer got lost, with the connection perhaps, or the consumer is gone: the server
            // says nothing to that.
            Err(_) => {
                shared.detach();
                return Ok(());
            }
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(Some(Ok(message))) => message,
        };
        any = true;
        let (burst, failure) = burst(first, &mut batch);
        recall(shared, attached, &burst).await;
        let errands = take_in(shared, burst, asked);
        run_errands(client, errands).await;
        if let Some(why) = failure {
            return Err(why);
        }
    }
    if !any && asked.elapsed() >= open {
        shared.front.lock().nothing_arrived(asked);
        shared.changed.notify_waiters();
    } else if !any {
        // Others wait for the same messages; asking at once would be answered the same.
        sleep(Pauses::default().next()).await;
    }
    Ok(())
}

/// A message with all that came along.
fn burst(
    first: async_nats::jetstream::Message,
    batch: &mut Batch,
) -> (Vec<(Arrived<Message>, Duration)>, Option<String>) {
    let mut burst: Vec<_> = arrived(first).into_iter().collect();
    loop {
        match batch.next().now_or_never() {
            Some(Some(Ok(message))) => burst.extend(arrived(message)),
            Some(Some(Err(error))) => return (burst, Some(error.to_string())),
            Some(None) | None => return (burst, None),
        }
    }
}

/// Looks up how often messages of an earlier life were tried.
async fn recall(shared: &Shared, attached: &Attached, burst: &[(Arrived<Message>, Duration)]) {
    let Some(tally) = &attached.tally else { return };
    let keys: Vec<(u64, i128)> = {
        let front = shared.front.lock();
        let may_be_known = |arrived: &&Arrived<Message>| {
            tally.may_know(arrived.seq)
                && delivered(&arrived.reply) > 1
                && front.is_unknown(arrived.seq, arrived.published)
        };
        let arrived = burst.iter().map(|(arrived, _)| arrived).filter(may_be_known);
        arrived.map(|arrived| (arrived.seq, arrived.published)).collect()
    };
    if keys.is_empty() {
        return;
    }
    let known = tally.read(&keys).await;
    let mut front = shared.front.lock();
    for (key, known) in keys.into_iter().zip(known) {
        if let Some(known) = known {
            let rest = known.not_before.saturating_sub(since_1970());
            front.recall(key, known, rest, Instant::now());
        }
    }
}

fn take_in(
    shared: &Shared,
    burst: Vec<(Arrived<Message>, Duration)>,
    asked: Instant,
) -> Vec<Errand> {
    let errands = {
        let now = Instant::now();
        let mut front = shared.front.lock();
        let arrive = |(arrived, rest)| front.arrive(arrived, rest, asked, now);
        burst.into_iter().filter_map(arrive).collect()
    };
    shared.changed.notify_waiters();
    errands
}

/// Tells the server of deliveries that are not handed out. Where that fails, they come back.
async fn run_errands(client: &Client, errands: Vec<Errand>) {
    let told = errands.into_iter().map(|errand| {
        let (reply, kind) = match errand {
            Errand::Gone(reply) => (reply, AckKind::Ack),
            Errand::Again(reply, after) => (reply, again(after)),
        };
        tell(client, reply, kind)
    });
    join_all(told).await;
}

/// Without a delay it is left out: the server takes its word for it at once.
pub(super) fn again(after: Duration) -> AckKind {
    AckKind::Nak((!after.is_zero()).then_some(after))
}

/// Begins the windows of what waits here anew, in good time.
async fn keep_alive(shared: &Shared, client: &Client) {
    if shared.front.lock().ageing(Instant::now()).is_empty() {
        return;
    }
    let _alone = shared.words.write().await;
    let from = Instant::now();
    let ageing = shared.front.lock().ageing(from);
    let told = ageing.into_iter().map(|(seq, reply)| async move {
        tell(client, reply, AckKind::Progress).await.ok().map(|()| seq)
    });
    let told = join_all(told).await;
    let mut front = shared.front.lock();
    for seq in told.into_iter().flatten() {
        front.kept(seq, from);
    }
}
