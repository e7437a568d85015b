//! The one task of a source: it keeps the connection, asks for as many messages as are wanted, and
//! keeps alive what waits here.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::AckKind;
use futures_util::future::join_all;
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::attach::Attached;
use super::front::Errand;
use super::hold::LATE;
use super::mailbox::{End, Mailbox, Parcel};
use super::message::{delivered, since_1970};
use super::settle::{Extending, tell};
use super::shared::{Line, Shared};
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
    let mut mailbox = None;
    loop {
        let step = async {
            match shared.line() {
                Some(line) => {
                    let mailbox = Mailbox::at(&line, &mut mailbox).await?;
                    round(&shared, &line, mailbox).await
                }
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
async fn round(shared: &Shared, line: &Line, mailbox: &mut Mailbox) -> Result<(), String> {
    keep_alive(shared, &line.client).await;
    if shared.is_stopped() {
        let errands = shared.front.lock().give_back();
        run_errands(&line.client, errands).await;
        shared.has_given_back();
        return wait(shared, line, mailbox, None).await;
    }
    if let Err(why) = ask_what_is_left(shared, &line.attached).await {
        shared.detach();
        return Err(why);
    }
    let (lack, pause) = {
        let now = Instant::now();
        let mut front = shared.front.lock();
        front.sweep(now);
        (front.lack(), front.pause(now))
    };
    if lack == 0 || pause.is_some() {
        return wait(shared, line, mailbox, pause).await;
    }
    let outcome = ask(shared, line, mailbox, lack).await;
    match &outcome {
        Ok(()) => shared.works(),
        Err(_) => shared.detach(),
    }
    outcome
}

/// Asks how much of an earlier life the server still has, when all of it should have come.
async fn ask_what_is_left(shared: &Shared, attached: &Attached) -> Result<(), String> {
    if !shared.front.lock().is_hold_in_question(Instant::now()) {
        return Ok(());
    }
    let info = attached.consumer.get_info().await.map_err(|error| error.to_string())?;
    shared.front.lock().hear_of_unsettled(info.num_ack_pending, Instant::now());
    Ok(())
}

/// Until there may be something to do, or something comes that was asked for before.
async fn wait(
    shared: &Shared,
    line: &Line,
    mailbox: &mut Mailbox,
    until: Option<Instant>,
) -> Result<(), String> {
    let tick = Instant::now() + shared.front.lock().window() / 6;
    let until = until.map_or(tick, |until| until.min(tick));
    let late = tokio::select! {
        () = shared.woken.notified() => return Ok(()),
        () = sleep_until(until) => return Ok(()),
        late = mailbox.next() => late,
    };
    let end = match late {
        Ok(first) => take_in(shared, line, mailbox, first).await.1,
        Err(end) => Some(end),
    };
    match end {
        Some(End::Closed) => over(shared, End::Closed),
        _ => Ok(()),
    }
}

/// What the end of an answer means.
fn over(shared: &Shared, end: End) -> Result<(), String> {
    match end {
        End::Over => Ok(()),
        End::Refused(why) => Err(why),
        End::Closed => Err(format!("the connection to {} is closed", shared.settings.place())),
    }
}

/// Asks for what is missing here, or for as many as are lacking: for what is there, else for the first one
/// to come.
async fn ask(
    shared: &Shared,
    line: &Line,
    mailbox: &mut Mailbox,
    lack: usize,
) -> Result<(), String> {
    let (most, open) = {
        let front = shared.front.lock();
        let missing = front.missing();
        let longest = missing.map_or(OPEN, |_| LATE);
        (missing.map_or(lack, NonZero::get), longest.min(front.window() / 4))
    };
    let most = most.min(MOST).min(line.attached.max_batch);
    let asked = Instant::now();
    mailbox.ask(&line.attached.consumer, most, open).await?;
    let mut taken = 0;
    while taken < most {
        let end = match timeout_at(asked + open + GRACE, mailbox.next()).await {
            // The answer got lost, with the connection perhaps, or the consumer is gone: the server
            // says nothing to that.
            Err(_) => {
                mailbox.give_up();
                shared.detach();
                return Ok(());
            }
            Ok(Err(end)) => Some(end),
            Ok(Ok(first)) => {
                let (count, end) = take_in(shared, line, mailbox, first).await;
                taken += count;
                end
            }
        };
        if let Some(end) = end {
            over(shared, end)?;
            break;
        }
    }
    if taken == 0 && asked.elapsed() >= open {
        shared.front.lock().nothing_arrived(mailbox.asked());
        shared.changed.notify_waiters();
    } else if taken == 0 {
        // Others wait for the same messages; asking at once would be answered the same.
        sleep(Pauses::default().next()).await;
    }
    Ok(())
}

/// Takes a delivery in with all that came along. Answers how many those are, and whether nothing follows.
async fn take_in(
    shared: &Shared,
    line: &Line,
    mailbox: &mut Mailbox,
    first: Parcel,
) -> (usize, Option<End>) {
    let asked = mailbox.asked();
    let mut burst = vec![first];
    let end = loop {
        match mailbox.next_now() {
            Some(Ok(parcel)) => burst.push(parcel),
            Some(Err(end)) => break Some(end),
            None => break None,
        }
    };
    let count = burst.len();
    recall(shared, &line.attached, &burst).await;
    let errands = {
        let now = Instant::now();
        let mut front = shared.front.lock();
        let arrive = |(arrived, rest)| front.arrive(arrived, rest, asked, now);
        burst.into_iter().filter_map(arrive).collect()
    };
    shared.changed.notify_waiters();
    run_errands(&line.client, errands).await;
    (count, end)
}

/// Looks up how often messages of an earlier life were tried.
async fn recall(shared: &Shared, attached: &Attached, burst: &[Parcel]) {
    let Some(tally) = &attached.tally else { return };
    let keys: Vec<(u64, i128)> = {
        let front = shared.front.lock();
        let may_be_known = |(arrived, _): &&Parcel| {
            tally.may_know(arrived.seq)
                && delivered(&arrived.reply) > 1
                && front.is_unknown(arrived.seq, arrived.published)
        };
        let arrived = burst.iter().filter(may_be_known);
        arrived.map(|(arrived, _)| (arrived.seq, arrived.published)).collect()
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
    let from = Instant::now();
    let ageing = shared.front.lock().begin_keeping(from);
    let told = ageing.into_iter().map(|(seq, reply)| {
        let extending = Extending { shared, seq };
        async move {
            if tell(client, reply, AckKind::Progress).await.is_ok() {
                shared.front.lock().kept(seq, from);
            }
            drop(extending);
        }
    });
    join_all(told).await;
}
