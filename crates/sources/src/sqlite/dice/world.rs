//! A queue whose every step is thrown.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use sluicegate_dispatch::{
    Delivery, Demand, Discarded, Order, PutBack, Reason, Receipt, Rest, Settled, Settlement,
};
use sluicegate_testkit::conformance::source::{of_tenant, publication_in};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::publish::Publish;
use super::super::put_back::Return;
use super::super::query;
use super::super::read_ahead::{Fetch, Fetched, ReadAhead};
use super::super::rest::{Resting, Rests};
use super::super::schema;
use super::super::settle::Settlements;
use super::super::store::Queue;
use super::super::take_out::{TakeOut, find};
use super::super::writer::Write;
use super::Dice;
use super::model::{Held, Message, Model, Out, Place};
use sluicegate_sqlite_file::Clock;

const WINDOW: i64 = 100;

/// A write with what the model learns of it, once it is on the disk and once it is told.
trait Step {
    fn commit(&mut self, connection: &Connection, model: &mut Model);
    fn tell(&mut self, model: &mut Model, now: i64);
}

struct Writing<W: Write, C, T> {
    write: W,
    answer: Option<W::Answer>,
    committed: C,
    told: T,
}

impl<W, C, T> Step for Writing<W, C, T>
where
    W: Write,
    C: Fn(&W::Answer, &mut Model),
    T: Fn(&W::Answer, &mut Model, i64),
{
    fn commit(&mut self, connection: &Connection, model: &mut Model) {
        let answer = self.write.write(connection).expect("it is written");
        (self.committed)(&answer, model);
        self.answer = Some(answer);
    }

    fn tell(&mut self, model: &mut Model, now: i64) {
        let answer = self.answer.as_ref().expect("it is on the disk");
        self.write.written(answer);
        (self.told)(answer, model, now);
    }
}

pub(super) struct World {
    dice: Dice,
    connection: Connection,
    queue: Arc<Queue>,
    ahead: usize,
    begun: Instant,
    now: i64,
    model: Model,
    sent: usize,
    names: usize,
    /// Made, and on the disk; then they are told one by one.
    line: Vec<Box<dyn Step>>,
    untold: Vec<Box<dyn Step>>,
    reading: Option<(Fetch, Option<Fetched>)>,
    /// Messages that are to be taken out by hand: where they were found.
    looked: Vec<(String, super::super::read_ahead::Leaving)>,
    is_watched: bool,
    pub(super) log: Vec<String>,
}

fn queue(ahead: usize, generation: u64) -> Arc<Queue> {
    let read_ahead = ReadAhead::new(1, generation << 32, ahead);
    let queue = Queue {
        id: 1,
        name: "q".into(),
        clock: Clock::system(),
        ahead: Mutex::new(read_ahead),
        changed: Notify::new(),
        swept: Mutex::default(),
        swept_lanes: Mutex::default(),
    };
    queue.ahead.lock().keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    Arc::new(queue)
}

impl World {
    pub(super) fn new(seed: u64, is_watched: bool) -> Self {
        let mut dice = Dice::new(seed);
        let mut connection = Connection::open_in_memory().expect("memory");
        connection.set_prepared_statement_cache_capacity(64);
        schema::migrate(&mut connection).expect("tables");
        let first = schema::base(1) + 1;
        let sql = "INSERT INTO queues (id, name, next, stored) VALUES (1, 'q', ?1, 0)";
        connection.execute(sql, [first]).expect("a queue");
        let ahead = dice.of(&[1, 2, 5, 1024]);
        Self {
            dice,
            connection,
            queue: queue(ahead, 1),
            ahead,
            begun: Instant::now(),
            now: 1_000,
            model: Model::default(),
            sent: 0,
            names: 0,
            line: Vec::new(),
            untold: Vec::new(),
            reading: None,
            looked: Vec::new(),
            is_watched,
            log: Vec::new(),
        }
    }

    /// What happens is written down for who looks at one seed.
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.is_watched {
            self.log.push(format!("{} {}", self.now, what()));
        }
    }

    fn instant(&self, time: i64) -> Instant {
        self.begun + Duration::from_millis(time.unsigned_abs())
    }

    pub(super) fn step(&mut self) {
        match self.dice.below(32) {
            0..3 => self.publish(),
            3..9 => self.receive(),
            9..14 => self.settle(),
            14 => self.rest(),
            15..17 => self.put_back(),
            17 => self.put_back_foreign(),
            18 => self.look_for(),
            19 => self.take_out(),
            20..23 => self.commit(),
            23..26 => self.tell(),
            26..30 => self.read(),
            30 => self.wait(),
            _ if self.dice.one_in(8) => self.crash(),
            _ => self.fail_to_read(),
        }
    }

    fn make<W: Write>(
        &mut self,
        write: W,
        committed: impl Fn(&W::Answer, &mut Model) + 'static,
        told: impl Fn(&W::Answer, &mut Model, i64) + 'static,
    ) {
        self.line.push(Box::new(Writing { write, answer: None, committed, told }));
    }

    fn publish(&mut self) {
        let (mut messages, mut ids) = (Vec::new(), Vec::new());
        for _ in 0..=self.dice.below(3) {
            self.sent += 1;
            let id = format!("m{}", self.sent);
            let (pool, group) =
                (self.dice.of(&["STRICT", "STRICT", "PLAIN"]), self.dice.of(&["a", "b"]));
            let high = self.dice.one_in(4);
            let message = publication_in(&id, pool, Some(group), high);
            let mut message = of_tenant(message, self.dice.of(&["t", "u"]));
            let mut of = Message::new(message.clone());
            if !high && self.dice.one_in(8) {
                let delay = self.dice.below(60) as u64 + 1;
                message.delay = Duration::from_millis(delay);
                of.due = Some(self.now + delay as i64);
            }
            messages.push(message);
            self.model.messages.insert(id.clone(), of);
            ids.push(id);
        }
        self.note(|| format!("publish {ids:?}"));
        let write = Publish { queue: Arc::clone(&self.queue), messages, now: self.now };
        let told = ids.clone();
        let committed = move |_: &_, model: &mut Model| come(model, &ids);
        self.make(write, committed, move |_, model, _| are_told(model, &told));
    }

    fn receive(&mut self) {
        let most = self.dice.below(4) + 1;
        for delivery in self.take(most) {
            self.handed_out(delivery);
        }
    }

    fn take(&mut self, most: usize) -> Vec<Delivery> {
        let (now, time) = (self.instant(self.now), self.now);
        let window = Duration::from_millis(WINDOW.unsigned_abs());
        self.queue.ahead.lock().take(now, time, window, &Demand::any(most))
    }

    fn handed_out(&mut self, delivery: Delivery) {
        let id = delivery.message.as_ref().expect("a message").id.to_string();
        self.note(|| format!("handed out {id} at {}", delivery.broker_id));
        self.model.check_handed_out(&id, delivery.attempts, self.now);
        let message = self.model.of(&id);
        message.held = Held::Yes;
        message.seq = delivery.receipt.tag.cast_signed();
        let (receipt, until) = (delivery.receipt, self.now + WINDOW);
        message.place = Place::Out(Out { receipt, until, is_settling: false, rests: None });
    }

    /// One of those that are out, and its receipt.
    fn some_out(&mut self) -> Option<(String, Receipt)> {
        let now = self.now;
        let is_out = |(id, of): (&String, &Message)| match &of.place {
            Place::Out(out) if out.until > now && !out.is_settling => {
                Some((id.clone(), out.receipt.clone()))
            }
            _ => None,
        };
        let all: Vec<_> = self.model.messages.iter().filter_map(is_out).collect();
        (!all.is_empty()).then(|| all[self.dice.below(all.len())].clone())
    }

    fn settle(&mut self) {
        let Some((id, receipt)) = self.some_out() else { return };
        let settlement = match self.dice.below(4) {
            0 => again(Duration::ZERO, 1),
            1 => again(Duration::from_millis(self.dice.below(60) as u64 + 1), 2),
            _ => Settlement::Ack,
        };
        self.settle_as(id, &receipt, settlement);
    }

    fn settle_as(&mut self, id: String, receipt: &Receipt, settlement: Settlement) {
        self.note(|| format!("settle {id} {settlement:?}"));
        let (queue, now) = (Arc::clone(&self.queue), self.now);
        let seq = queue.ahead.lock().begin_settling(receipt, self.instant(now));
        assert!(seq.is_some(), "the receipt of {id} is valid");
        let items = vec![seq.map(|seq| (seq, settlement))];
        if let Place::Out(out) = &mut self.model.of(&id).place {
            out.is_settling = true;
        }
        let write = Settlements { queue, items, now, is_written: false };
        let told = id.clone();
        let committed = move |settled: &Vec<Settled>, model: &mut Model| {
            assert_eq!(settled[..], [Settled::Done], "{id}");
            let message = model.of(&id);
            message.place = Place::Away;
            if let Settlement::Retry { after, attempts, .. } = settlement {
                message.place = Place::Waiting { is_told: false };
                message.due = (!after.is_zero()).then(|| now + after.as_millis() as i64);
                message.attempts = message.attempts.max(attempts);
            }
        };
        self.make(write, committed, move |_, model, _| {
            are_told(model, std::slice::from_ref(&told))
        });
    }

    fn rest(&mut self) {
        let Some((id, receipt)) = self.some_out() else { return };
        let (now, time) = (self.instant(self.now), self.now);
        let after = Duration::from_millis(self.dice.of(&[0, 30, 150]));
        let Some(seq) = self.queue.ahead.lock().may_rest(&receipt, now) else {
            panic!("{id} is out")
        };
        self.note(|| format!("rest {id} {after:?}"));
        let due = (!after.is_zero()).then(|| Clock::after(time, after));
        let until = due.map(|due| (now + after, due));
        let rest = Rest { receipt: receipt.clone(), after, attempts: 3, reason: Reason::Failed };
        let items = vec![Some(Resting { seq, until, rest })];
        let told = id.clone();
        let write = Rests { queue: Arc::clone(&self.queue), items };
        let committed = move |_: &_, model: &mut Model| {
            let message = model.of(&id);
            message.attempts = message.attempts.max(3);
        };
        self.make(write, committed, move |_, model, now| {
            if let Place::Out(out) = &mut model.of(&told).place
                && out.receipt == receipt
            {
                // Told when its window has ended, it may have come too late.
                out.rests = due.filter(|_| out.until > now);
            }
        });
    }

    fn put_back(&mut self) {
        let away = |(id, of): (&String, &Message)| (of.place == Place::Away).then(|| id.clone());
        let all: Vec<String> = self.model.messages.iter().filter_map(away).collect();
        if all.is_empty() {
            return;
        }
        let id = all[self.dice.below(all.len())].clone();
        let broker_id = schema::within(self.model.of(&id).seq).to_string();
        self.return_one(id, broker_id);
    }

    /// One that came from elsewhere, where it had a number that another has or had here.
    fn put_back_foreign(&mut self) {
        self.sent += 1;
        let id = format!("f{}", self.sent);
        let (pool, group) = (self.dice.of(&["STRICT", "PLAIN"]), self.dice.of(&["a", "b"]));
        let message = of_tenant(publication_in(&id, pool, Some(group), false), "t");
        self.model.messages.insert(id.clone(), Message::new(message));
        let broker_id = (self.dice.below(self.sent) + 1).to_string();
        self.return_one(id, broker_id);
    }

    fn return_one(&mut self, id: String, broker_id: String) {
        self.note(|| format!("put back {id} to {broker_id}"));
        self.names += 1;
        let message = self.model.of(&id);
        (message.place, message.held, message.due) = (Place::Coming, Held::No, None);
        let publication = message.publication.clone();
        let name = format!("{id}~{}", self.names).into();
        let messages = vec![PutBack { broker_id: broker_id.into(), name, publication }];
        let write = Return { queue: Arc::clone(&self.queue), messages, now: self.now };
        let ids = vec![id];
        let told = ids.clone();
        let committed = move |_: &_, model: &mut Model| come(model, &ids);
        self.make(write, committed, move |_, model, _| are_told(model, &told));
    }

    /// Looks where a message is, to take it out by hand later.
    fn look_for(&mut self) {
        let id = format!("m{}", self.dice.below(self.sent + 1));
        if let Some(found) = find(&self.connection, 1, &id).expect("it is read") {
            self.note(|| format!("looked for {id}, found {}", schema::within(found.seq)));
            self.looked.push((id, found));
        }
    }

    fn take_out(&mut self) {
        if self.looked.is_empty() {
            return;
        }
        let (id, leaving) = self.looked.swap_remove(self.dice.below(self.looked.len()));
        let now = self.instant(self.now);
        let write = TakeOut::begin(&self.queue, &id, leaving, now);
        self.note(|| format!("take out {id}: {}", write.is_begun()));
        let before = self.model.of(&id).place.clone();
        if write.is_begun() && matches!(before, Place::Waiting { .. } | Place::Out(_)) {
            self.model.of(&id).place = Place::Leaving;
        }
        let told = id.clone();
        let committed = move |discarded: &Discarded, model: &mut Model| match discarded {
            Discarded::Done => model.of(&id).place = Place::Gone,
            _ if model.of(&id).place == Place::Leaving => {
                model.of(&id).place = Place::Waiting { is_told: false };
            }
            _ => {}
        };
        self.make(write, committed, move |discarded, model, _| {
            // Of one that was out nothing is said.
            if *discarded != Discarded::Out {
                are_told(model, std::slice::from_ref(&told));
            }
        });
    }

    /// Puts some of what was made on the disk, once those before are told.
    fn commit(&mut self) {
        if self.line.is_empty() || !self.untold.is_empty() {
            return;
        }
        let count = self.dice.below(self.line.len().min(4)) + 1;
        self.commit_first(count);
    }

    fn commit_first(&mut self, count: usize) {
        self.note(|| format!("commit {count}"));
        let batch: Vec<_> = self.line.drain(..count).collect();
        for mut step in batch {
            step.commit(&self.connection, &mut self.model);
            self.untold.push(step);
        }
        let mut seqs = self
            .connection
            .prepare_cached("SELECT json_extract(body, '$.id'), seq FROM messages")
            .expect("a statement");
        let rows = seqs.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        for (id, seq) in rows.collect::<Result<Vec<(String, i64)>, _>>().expect("rows") {
            self.model.of(&id).seq = seq;
        }
    }

    fn tell(&mut self) {
        if !self.untold.is_empty() {
            let mut step = self.untold.remove(0);
            step.tell(&mut self.model, self.now);
            self.note(|| "told".to_owned());
        }
    }

    fn read(&mut self) {
        match self.reading.take() {
            None => {
                let fetch = self.queue.ahead.lock().fetch(self.now);
                if let Some(fetch) = &fetch {
                    self.note(|| format!("asks {fetch:?}"));
                }
                self.reading = fetch.map(|fetch| (fetch, None));
            }
            Some((fetch, None)) => {
                let fetched = query::read(&self.connection, 1, &fetch).expect("it is read");
                self.note(|| format!("reads {fetched:?}"));
                self.reading = Some((fetch, Some(fetched)));
            }
            Some((fetch, Some(fetched))) => {
                self.note(|| "brings".to_owned());
                self.queue.ahead.lock().bring(&fetch, fetched);
            }
        }
    }

    fn fail_to_read(&mut self) {
        if let Some((fetch, _)) = self.reading.take() {
            self.note(|| "cannot read".to_owned());
            self.queue.ahead.lock().not_brought(fetch, "why".to_owned());
        }
    }

    fn wait(&mut self) {
        self.now += self.dice.of(&[1, 10, 30, 110]);
    }

    /// What is not on the disk is gone; what was out is not.
    fn crash(&mut self) {
        self.note(|| "crash".to_owned());
        self.line.clear();
        self.untold.clear();
        self.looked.clear();
        self.reading = None;
        self.queue = queue(self.ahead, self.now.unsigned_abs());
        for message in self.model.messages.values_mut() {
            match message.place.clone() {
                // Whoever sent it knows that it did not arrive, and whoever parked it has it still.
                Place::Coming => message.place = Place::Gone,
                Place::Out(_) | Place::Leaving | Place::Waiting { .. } => {
                    // Its rest is in the file, or not.
                    if let Place::Out(_) = message.place {
                        message.due = None;
                    }
                    message.place = Place::Waiting { is_told: true };
                    if message.held == Held::Yes {
                        message.held = Held::Perhaps;
                    }
                }
                Place::Away | Place::Gone => {}
            }
        }
    }

    /// What the file has.
    pub(super) fn rows(&self) -> Vec<String> {
        let sql = "SELECT format('%d %s %s %s due %s attempts %d %s', seq & 0xFFFF, json_extract(body, '$.id'), grp, \
                   iif(high, 'high', ''), due, attempts, reason) FROM messages ORDER BY seq";
        let mut rows = self.connection.prepare(sql).expect("a statement");
        let rows = rows.query_map((), |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("rows")
    }

    /// Takes all that is left: nothing stands still.
    pub(super) fn empty(&mut self) {
        self.note(|| "empty".to_owned());
        for _ in 0..2_000 {
            while !self.untold.is_empty() {
                self.tell();
            }
            if !self.line.is_empty() {
                self.commit_first(self.line.len());
                continue;
            }
            if self.model.messages.values().all(|of| !of.is_there()) {
                return;
            }
            for _ in 0..30 {
                self.read();
            }
            self.receive();
            while let Some((id, receipt)) = self.some_out() {
                self.settle_as(id, &receipt, Settlement::Ack);
            }
            self.now += 7;
        }
        let left = self.model.messages.iter().filter(|(_, of)| of.is_there());
        let left: Vec<String> = left.map(|(id, of)| format!("{id} {:?}", of.place)).collect();
        panic!("these do not come: {left:?}");
    }
}

fn come(model: &mut Model, ids: &[String]) {
    for id in ids {
        model.of(id).place = Place::Waiting { is_told: false };
    }
}

fn are_told(model: &mut Model, ids: &[String]) {
    for id in ids {
        let message = model.of(id);
        if message.place == (Place::Waiting { is_told: false }) {
            message.place = Place::Waiting { is_told: true };
        }
    }
}

const fn again(after: Duration, attempts: u32) -> Settlement {
    Settlement::Retry { after, attempts, reason: Reason::Failed }
}
