//! What is promised of a queue, and nothing of how it is kept.

use std::collections::BTreeMap;
use std::fmt;

use sluicegate_dispatch::{Publication, Receipt};

use super::super::schema::within;

/// Where a message is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// It is to be written.
    Coming,
    /// It is in the queue; whether whoever receives may know that.
    Waiting {
        is_told: bool,
    },
    Out(Out),
    /// It is taken out by hand, unless it was out before.
    Leaving,
    /// It was done with, and may be put back.
    Away,
    Gone,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Out {
    pub(super) receipt: Receipt,
    pub(super) until: i64,
    pub(super) is_settling: bool,
    /// When it comes again if nobody settles it.
    pub(super) rests: Option<i64>,
}

/// Whether a message was handed out before, so that nothing overtakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    No,
    /// It was out when the process died, and nobody had a reason to write that down.
    Perhaps,
    Yes,
}

#[derive(Clone)]
pub(super) struct Message {
    pub(super) publication: Publication,
    pub(super) seq: i64,
    pub(super) place: Place,
    pub(super) held: Held,
    /// Not before this time.
    pub(super) due: Option<i64>,
    /// The most attempts that were said of it.
    pub(super) attempts: u32,
}

impl Message {
    pub(super) fn new(publication: Publication) -> Self {
        let (place, held) = (Place::Coming, Held::No);
        Self { publication, seq: 0, place, held, due: None, attempts: 0 }
    }

    /// What it stays in order with.
    pub(super) fn key(&self) -> Option<&str> {
        let message = &self.publication.message;
        (&*message.pool == "STRICT").then(|| message.group.as_deref().unwrap_or_default())
    }

    fn is_high(&self) -> bool {
        self.publication.message.high_priority
    }

    pub(super) fn is_out(&self, now: i64) -> bool {
        matches!(&self.place, Place::Out(out) if out.until > now || out.is_settling)
    }

    /// Whether whoever receives must know that it waits.
    fn waits(&self) -> bool {
        self.place == Place::Waiting { is_told: true }
    }

    pub(super) fn is_there(&self) -> bool {
        !matches!(self.place, Place::Coming | Place::Away | Place::Gone)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { publication, seq, place, held, due, attempts } = self;
        let (id, seq) = (&publication.message.id, within(*seq));
        write!(f, "{id} at {seq}, {place:?}, held {held:?}, due {due:?}, attempts {attempts}")
    }
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) messages: BTreeMap<String, Message>,
}

impl Model {
    pub(super) fn of(&mut self, id: &str) -> &mut Message {
        self.messages.get_mut(id).expect("it was sent")
    }

    /// A message was handed out: whether that may be.
    pub(super) fn check_handed_out(&self, id: &str, attempts: u32, now: i64) {
        let message = &self.messages[id];
        match &message.place {
            Place::Waiting { .. } => {
                assert!(
                    message.due.is_none_or(|due| due <= now),
                    "{id} came too early: {message:?}"
                );
            }
            Place::Out(out) => {
                assert!(!message.is_out(now), "{id} is out twice");
                assert!(out.rests.is_none_or(|due| due <= now), "{id} did not rest: {message:?}");
            }
            place => panic!("{id} was handed out and is {place:?}"),
        }
        assert!(attempts <= message.attempts, "{id} was tried {attempts} times: {message:?}");
        let Some(key) = message.key() else { return };
        let others =
            || self.messages.iter().filter(|(other, of)| *other != id && of.key() == Some(key));
        if let Some((other, _)) = others().find(|(_, of)| of.is_out(now)) {
            panic!("{id} was handed out beside {other}");
        }
        // What was handed out goes before high priority, and what has a place before it too.
        let is_bound = |held: Held| {
            let all = others().filter(|(_, of)| of.is_there()).map(|(_, of)| of);
            all.chain([message]).any(|of| of.held == held)
        };
        for (other, of) in others().filter(|(_, of)| of.waits()) {
            let is_later = of.seq > message.seq;
            let overtakes_held = of.held == Held::Yes && !is_later;
            let overtakes_high = of.is_high()
                && !message.is_high()
                && of.due.is_none_or(|due| due <= now)
                && !is_bound(Held::Yes)
                && !is_bound(Held::Perhaps);
            let overtakes_equal = of.is_high() == message.is_high()
                && !is_later
                && of.due.is_none_or(|due| due <= now)
                && message.held == Held::No;
            let bound = others()
                .map(|(_, of)| of)
                .chain([message])
                .filter(|of| of.is_there() && of.held == Held::Yes);
            let bound = bound.min_by_key(|of| of.seq).filter(|_| !is_bound(Held::Perhaps));
            let overtakes_place = !is_later
                && of.due.is_none_or(|due| due <= now)
                && bound
                    .is_some_and(|bound| of.seq < bound.seq && (of.is_high() || !bound.is_high()));
            let why = [overtakes_held, overtakes_high, overtakes_equal, overtakes_place];
            assert!(why == [false; 4], "{id} overtakes {other} {why:?}: {message:?} {of:?}");
        }
    }
}
