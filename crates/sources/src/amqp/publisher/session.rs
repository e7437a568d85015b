//! Sending on one connection, from its beginning to its end.
//!
//! What goes to queues and what goes to exchanges has a channel each: an exchange that is missing ends its
//! channel, and with it the certainty about all that was not confirmed on it.

mod answered;
mod ending;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, poll};
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::{Confirmation, ErrorKind};
use sluicegate_dispatch::{BoxFuture, SourceError};
use tokio::time::{Instant, sleep};

use super::blame::{Blame, blame, is_of_channel};
use super::line::{ANSWER, Line, TICK};
use super::{Destination, Outgoing, Publisher};
use crate::amqp::delay_queues::DelayStep;
use crate::amqp::intake::is_missing;
use answered::answered;

/// How many messages may be on their way at once.
const WINDOW: usize = 1024;
/// How often a message is sent whose channel ends for another one's fault: as often as their number can be
/// halved, and a few times more.
const TRIES: u8 = 16;

/// How many channels are opened on one connection: fewer than there are.
const CHANNELS: usize = 500;
/// How long an exchange that is missing is not asked for again.
const MISSING: Duration = Duration::from_millis(500);

type DelayQueue = (Arc<str>, DelayStep);
type Numbered = (u64, Outgoing);

pub(super) struct Session<'a> {
    publisher: &'a Publisher,
    line: Line,
    lanes: [Lane; 2],
    /// What is on its way, by its number.
    sent: BTreeMap<u64, Sent>,
    confirming: FuturesUnordered<BoxFuture<'static, (u64, lapin::Result<Confirmation>)>>,
    /// What waits for its delay queue to be made.
    held: HashMap<DelayQueue, Vec<Numbered>>,
    making: FuturesUnordered<BoxFuture<'static, (DelayQueue, Result<(), SourceError>)>>,
    /// What is sent before anything that waits in line.
    ready: VecDeque<Numbered>,
    /// What goes to exchanges, behind a message to one of which nobody knows yet whether it is there. Such a
    /// message is sent alone: a channel ends with an exchange that is missing, and whatever
    /// the library still writes on it then ends the connection.
    to_exchanges: VecDeque<Numbered>,
    is_proving: bool,
    /// Exchanges that were there.
    known: HashSet<Arc<str>>,
    /// Exchanges that were not, since when, and what the broker said.
    missing: HashMap<Arc<str>, (Instant, SourceError)>,
    /// How many channels were opened. The numbers of those that the broker closes are not used again.
    opened: usize,
    /// What the connection's end left unanswered, and what the library said about it.
    lost: Vec<(Numbered, lapin::Error)>,
    /// When the broker last confirmed something, or had nothing to confirm.
    progress: Instant,
    /// How many are not waited for any more, though the broker may still confirm them.
    given_up: usize,
}

/// The messages of one channel.
#[derive(Default)]
struct Lane {
    channel: Option<lapin::Channel>,
    in_flight: usize,
    /// Why the channel ended.
    error: Option<lapin::Error>,
    /// What was not confirmed by then.
    unconfirmed: Vec<Numbered>,
    /// What is sent again, a group at a time, before anything else.
    groups: VecDeque<Vec<Numbered>>,
    is_retrying: bool,
}

struct Sent {
    message: Outgoing,
    since: Instant,
    is_returned: bool,
}

impl Lane {
    /// Whether it is finding out which message is bad.
    fn is_recovering(&self) -> bool {
        self.error.is_some() || self.is_retrying || !self.groups.is_empty()
    }
}

fn lane(message: &Outgoing) -> usize {
    usize::from(message.to.is_to_exchange())
}

impl<'a> Session<'a> {
    pub(super) fn new(publisher: &'a Publisher, line: Line) -> Self {
        Self {
            publisher,
            line,
            lanes: Default::default(),
            sent: BTreeMap::new(),
            confirming: FuturesUnordered::new(),
            held: HashMap::new(),
            making: FuturesUnordered::new(),
            ready: VecDeque::new(),
            to_exchanges: VecDeque::new(),
            is_proving: false,
            known: HashSet::new(),
            missing: HashMap::new(),
            opened: 0,
            lost: Vec::new(),
            progress: Instant::now(),
            given_up: 0,
        }
    }

    /// Sends what comes until the connection ends or is of no use any more.
    pub(super) async fn run(mut self) {
        while !self.publisher.is_closed() {
            if let Err(error) = self.step().await {
                return self.end(&error).await;
            }
            if self.is_worn() && self.sent.is_empty() {
                return self.put_back();
            }
        }
    }

    async fn step(&mut self) -> Result<(), SourceError> {
        if !self.line.is_connected() {
            return Err(SourceError::new("the connection was lost"));
        }
        self.send_what_waits().await?;
        let is_idle = self.sent.is_empty() && !self.line.is_blocked();
        tokio::select! {
            Some(confirmed) = self.confirming.next(), if !self.confirming.is_empty() => {
                self.confirmed(confirmed)?;
            }
            Some((queue, made)) = self.making.next(), if !self.making.is_empty() => {
                self.made(queue, made);
            }
            () = self.publisher.wake.notified() => {}
            () = sleep(TICK), if !is_idle => {}
        }
        self.look_at_time()
    }

    /// Whether the next connection is better than this one.
    fn is_worn(&self) -> bool {
        self.given_up >= WINDOW || self.opened >= CHANNELS
    }

    fn has_room(&self) -> bool {
        let held: usize = self.held.values().map(Vec::len).sum();
        self.sent.len() + held + self.to_exchanges.len() < WINDOW && !self.is_worn()
    }

    async fn send_what_waits(&mut self) -> Result<(), SourceError> {
        for lane in 0..self.lanes.len() {
            self.send_group(lane).await?;
        }
        self.send_to_exchanges().await?;
        while self.has_room() && self.is_open() {
            let next = self.ready.pop_front().or_else(|| self.publisher.next());
            let Some((number, message)) = next else { break };
            match &message.to {
                Destination::Later(queue, step) => {
                    let queue = (Arc::clone(queue), *step);
                    match self.publisher.stands(&queue) {
                        true => self.send(number, message).await?,
                        false => self.hold(queue, number, message),
                    }
                }
                to if to.is_to_exchange() => {
                    self.to_exchanges.push_back((number, message));
                    self.send_to_exchanges().await?;
                }
                _ => self.send(number, message).await?,
            }
        }
        Ok(())
    }

    /// Whether anything new may be sent.
    fn is_open(&self) -> bool {
        !self.line.is_blocked() && !self.lanes.iter().any(Lane::is_recovering)
    }

    async fn send_to_exchanges(&mut self) -> Result<(), SourceError> {
        while self.is_open() && !self.is_proving {
            let Some((number, message)) = self.to_exchanges.pop_front() else { break };
            let Destination::Exchange(exchange, _) = &message.to else { continue };
            let missing = self.missing.get(exchange).filter(|(at, _)| at.elapsed() < MISSING);
            if let Some((_, error)) = missing {
                message.conclude(Err(error.clone()));
            } else if self.known.contains(exchange) {
                self.send(number, message).await?;
            } else if self.lanes[1].in_flight == 0 {
                self.is_proving = true;
                self.send(number, message).await?;
            } else {
                self.to_exchanges.push_front((number, message));
                break;
            }
        }
        Ok(())
    }

    /// Sends a group again, when what was sent before it is over.
    async fn send_group(&mut self, lane: usize) -> Result<(), SourceError> {
        let of = &mut self.lanes[lane];
        if of.in_flight > 0 || of.error.is_some() {
            return Ok(());
        }
        let group = of.groups.pop_front();
        of.is_retrying = group.is_some();
        let mut group = group.unwrap_or_default().into_iter();
        while let Some((number, message)) = group.next() {
            if let Err(error) = self.send(number, message).await {
                self.lanes[lane].groups.push_front(group.collect());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Keeps a message until its delay queue is made.
    fn hold(&mut self, queue: DelayQueue, number: u64, message: Outgoing) {
        let waiting = self.held.entry(queue.clone()).or_default();
        waiting.push((number, message));
        if waiting.len() == 1 {
            let line = self.line.clone();
            self.making.push(Box::pin(async move {
                let made = line.make(&queue.0, queue.1).await;
                (queue, made)
            }));
        }
    }

    fn made(&mut self, queue: DelayQueue, made: Result<(), SourceError>) {
        let held = self.held.remove(&queue).unwrap_or_default();
        match made {
            Ok(()) => {
                self.publisher.delay_queues.lock().insert(queue, Instant::now());
                self.ready.extend(held);
            }
            Err(error) => conclude(held, &error),
        }
    }

    /// Puts a message on its way. Those that are sent one after the other go out in that order.
    async fn send(&mut self, number: u64, mut message: Outgoing) -> Result<(), SourceError> {
        message.tries += 1;
        let at = lane(&message);
        let open = self.lanes[at].channel.clone().filter(|open| open.status().connected());
        let channel = match open {
            Some(channel) => channel,
            None => match self.line.confirming().await {
                Ok(channel) => {
                    self.opened += 1;
                    self.lanes[at].channel.insert(channel).clone()
                }
                Err(error) => {
                    let why = SourceError::new(&error);
                    self.lost.push(((number, message), error));
                    return Err(why);
                }
            },
        };
        let (exchange, key) = message.to.route();
        let (body, properties) = (message.body.clone(), message.properties.clone());
        let mut sending: BoxFuture<'static, _> = Box::pin(async move {
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let sent = channel.basic_publish(exchange, key, options, &body, properties).await;
            match sent {
                Ok(confirmation) => (number, confirmation.await),
                Err(error) => (number, Err(error)),
            }
        });
        if self.sent.is_empty() {
            self.progress = Instant::now();
        }
        self.sent.insert(number, Sent { message, since: Instant::now(), is_returned: false });
        self.lanes[at].in_flight += 1;
        // It is put in line when it is first polled.
        match poll!(sending.as_mut()) {
            std::task::Poll::Ready(done) => self.confirming.push(std::future::ready(done).boxed()),
            std::task::Poll::Pending => self.confirming.push(sending),
        }
        Ok(())
    }

    /// Hears of all that the broker has answered by now.
    ///
    /// The library hands a returned message over with the next confirmation, whosever that is. By when
    /// a message is confirmed, the confirmation that brings its return is here too.
    fn confirmed(&mut self, first: (u64, lapin::Result<Confirmation>)) -> Result<(), SourceError> {
        let mut batch = vec![first];
        batch.extend(answered(&mut self.confirming));
        for (_, confirmed) in &batch {
            if let Ok(Confirmation::Ack(Some(back)) | Confirmation::Nack(Some(back))) = confirmed {
                self.returned(back);
            }
        }
        for (number, confirmed) in batch {
            self.concluded(number, confirmed);
        }
        for lane in 0..self.lanes.len() {
            self.recover(lane);
        }
        match self.lost.first() {
            None => Ok(()),
            Some((_, error)) => Err(SourceError::new(error)),
        }
    }

    /// Finds whose message came back.
    fn returned(&mut self, back: &BasicReturnMessage) {
        let route = (&back.delivery.exchange, &back.delivery.routing_key);
        let mut same_route = |is_it: &dyn Fn(&Outgoing) -> bool| {
            let mut sent = self.sent.values_mut().filter(|sent| !sent.is_returned);
            let found = sent.find(|sent| {
                let (exchange, key) = sent.message.to.route();
                (&exchange, &key) == route && is_it(&sent.message)
            });
            found.map(|sent| sent.is_returned = true).is_some()
        };
        let is_same = |message: &Outgoing| {
            message.body[..] == back.delivery.data[..]
                && message.properties == back.delivery.properties
        };
        if !same_route(&is_same) {
            same_route(&|message| message.body[..] == back.delivery.data[..]);
        }
    }

    fn concluded(&mut self, number: u64, confirmed: lapin::Result<Confirmation>) {
        let Some(Sent { message, is_returned, .. }) = self.sent.remove(&number) else {
            // It was given up before.
            self.given_up = self.given_up.saturating_sub(1);
            return;
        };
        let at = lane(&message);
        let of = &mut self.lanes[at];
        of.in_flight -= 1;
        // Only one to an exchange tells of exchanges; while one is proving, it is the only one.
        self.is_proving &= at != 1;
        if let (1, Ok(_), Destination::Exchange(exchange, _)) = (at, &confirmed, &message.to) {
            self.known.insert(Arc::clone(exchange));
        }
        match confirmed {
            Ok(Confirmation::Ack(_)) if !is_returned => message.conclude(Ok(())),
            Ok(Confirmation::Ack(_)) => self.went_nowhere(message),
            Ok(_) => message.conclude(Err(SourceError::new("the broker did not take it"))),
            Err(error) if is_of_channel(&error) && message.tries >= TRIES => {
                message.conclude(Err(SourceError::new(error)));
            }
            Err(error) if is_of_channel(&error) => {
                // Of several the one that the broker gave counts.
                let is_said = matches!(error.kind(), ErrorKind::ProtocolError(_));
                if is_said || of.error.is_none() {
                    of.error = Some(error);
                }
                of.channel = None;
                of.unconfirmed.push((number, message));
            }
            Err(error) => self.lost.push(((number, message), error)),
        }
        self.progress = Instant::now();
    }

    fn went_nowhere(&self, message: Outgoing) {
        let (exchange, key) = message.to.route();
        if let Destination::Later(queue, step) = &message.to {
            // It is gone, and made anew by the next message that needs it.
            self.publisher.delay_queues.lock().remove(&(Arc::clone(queue), *step));
        }
        message.conclude(Err(SourceError::new(format!(
            "no queue takes what goes to exchange {exchange:?} by {key:?}"
        ))));
    }

    /// After a channel ended: answers for the bad ones, and sends the others again.
    fn recover(&mut self, lane: usize) {
        let of = &mut self.lanes[lane];
        if of.in_flight > 0 {
            return;
        }
        let Some(error) = of.error.take() else { return };
        let mut unconfirmed = std::mem::take(&mut of.unconfirmed);
        unconfirmed.sort_by_key(|(number, _)| *number);
        let Blame { bad, again } = blame(&error, unconfirmed);
        of.is_retrying = false;
        for group in again.into_iter().rev() {
            of.groups.push_front(group);
        }
        let is_missing = is_missing(&error);
        let error = SourceError::new(error);
        for (_, message) in bad {
            if let Destination::Exchange(exchange, _) = &message.to
                && is_missing
            {
                self.known.remove(exchange);
                self.missing.retain(|_, (at, _)| at.elapsed() < MISSING);
                self.missing.insert(Arc::clone(exchange), (Instant::now(), error.clone()));
            }
            message.conclude(Err(error.clone()));
        }
    }

    /// Gives up what was not confirmed in time. Time in which the broker takes nothing does not count.
    fn look_at_time(&mut self) -> Result<(), SourceError> {
        let now = Instant::now();
        if self.line.is_blocked() {
            self.progress = now;
            self.sent.values_mut().for_each(|sent| sent.since = now);
            return Ok(());
        }
        let is_late = |sent: &Sent| now.duration_since(sent.since) > ANSWER;
        // They are in the order of their numbers, and nearly in that of their times.
        if !self.sent.values().next().is_some_and(is_late) {
            return Ok(());
        }
        let late = SourceError::new(format!("the broker did not confirm within {ANSWER:?}"));
        if now.duration_since(self.progress) > ANSWER {
            self.line.cut();
            // Whatever the library says of that, this is why.
            self.confirming.clear();
            return Err(late);
        }
        for (_, Sent { message, .. }) in self.sent.extract_if(.., |_, sent| is_late(sent)) {
            let at = lane(&message);
            self.lanes[at].in_flight -= 1;
            // Nobody waits for its answer any more, so that nothing may wait behind it.
            self.is_proving &= at != 1;
            self.given_up += 1;
            message.conclude(Err(late.clone()));
        }
        for lane in 0..self.lanes.len() {
            self.recover(lane);
        }
        Ok(())
    }

    /// Puts what was not sent back in line, for the next connection.
    fn put_back(self) {
        let groups = self.lanes.into_iter().flat_map(|of| of.groups).flatten();
        let held = self.held.into_values().flatten();
        self.publisher.put_back(groups.chain(held).chain(self.ready).chain(self.to_exchanges));
    }
}

fn conclude(messages: impl IntoIterator<Item = Numbered>, error: &SourceError) {
    for (_, message) in messages {
        message.conclude(Err(error.clone()));
    }
}
