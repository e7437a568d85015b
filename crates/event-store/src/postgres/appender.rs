//! The task that appends: what queued up while the last batch ran is the next one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join;
use sluicegate_postgres_link::{Broken, Wire};
use sluicegate_tasks::Context;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::batch::{Batch, Outcome};
use super::columns::{APPEND, Columns};
use super::engine::Head;
use super::queue::{Exit, Request};
use super::remedy::Remedy;
use super::schema::Names;

/// How often a request is sent whose answers are lost.
const TRIES: u32 = 3;
/// How much longer than the database a call waits for its answer.
const WAY: Duration = Duration::from_secs(1);

/// How long the database may check the conditions of a batch whose requests come for the first time; twice as long each
/// time that it was not enough.
const BRIEF: Duration = Duration::from_millis(250);
/// How much longer for each event that it writes, and for each KiB of them.
const EACH: Duration = Duration::from_micros(100);

/// How long to wait before it connects again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What appenders share.
pub(super) struct Shared {
    pub(super) queue: Exit,
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) names: Names,
    /// How long the database may work on a batch.
    pub(super) limit: Duration,
    pub(super) head: Arc<Head>,
}

/// A connection that appends.
pub(super) struct Line {
    pub(super) wire: Wire,
    append: Statement,
    pub(super) server: Server,
    /// How long the database works on a statement.
    bound: Duration,
    /// All that was appended before it was opened, or answered since, is up to here.
    low: i64,
}

/// A process of the server: its number, and since when, for numbers come again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) pid: i32,
    pub(super) since: SystemTime,
}

/// Appends until the context ends, or nobody can ask for it any more.
pub(super) async fn run(cx: Context, shared: Arc<Shared>) {
    tokio::select! {
        _ = cx.cancelled() => {}
        () = append_for_ever(&shared) => {}
    }
}

async fn append_for_ever(shared: &Shared) {
    let mut line: Option<Line> = None;
    loop {
        let batch = match &mut line {
            None => shared.queue.batch().await,
            Some(open) => tokio::select! {
                biased;
                batch = shared.queue.batch() => batch,
                // Found out now, it costs nobody an answer.
                _ = open.wire.end() => {
                    line = None;
                    continue;
                }
            },
        };
        let Some(batch) = batch else { return };
        shared.serve(&mut line, batch).await;
    }
}

impl Shared {
    /// Sees to it that every request is answered, or nobody waits for the answer. Dropped, nobody knows what was
    /// appended, and that is what they hear.
    async fn serve(&self, line: &mut Option<Line>, batch: Batch) {
        let mut left = vec![batch];
        while let Some(mut batch) = left.pop() {
            batch.requests.retain(|request| !request.is_given_up());
            if batch.requests.is_empty() {
                continue;
            }
            let mut open = match line.take() {
                Some(open) => open,
                None => match self.connect(&mut batch).await {
                    Ok(Some(open)) => open,
                    Ok(None) => continue,
                    Err(broken) => {
                        batch.fail(&broken.into());
                        continue;
                    }
                },
            };
            batch.requests.retain_mut(Request::begin);
            if batch.requests.is_empty() {
                *line = Some(open);
                continue;
            }
            let bound = self.bound(&batch);
            match open.append(&batch, bound, self.limit).await {
                Ok(outcome) => {
                    open.low = outcome.base + batch.events();
                    if let Some(last) = batch.answer(&outcome) {
                        self.head.grows(last);
                    }
                    *line = Some(open);
                }
                Err(broken) => {
                    // What is in force counts: the database may not have heard of another bound.
                    let is_unchecked = open.bound < self.limit && is_cancelled(&broken);
                    let low = open.low;
                    let absent = self.find_out(line, open, &broken, low, batch.requests).await;
                    left.extend(match is_unchecked {
                        true => look_up(absent),
                        false => go_on(&broken, absent),
                    });
                }
            }
        }
    }

    /// How long the database may work on a batch: all others wait for its lock meanwhile.
    fn bound(&self, batch: &Batch) -> Duration {
        let rounds = batch.requests.iter().filter_map(Request::rounds).min();
        let once = BRIEF + EACH * batch.rows();
        let longer = |rounds: u32| once.saturating_mul(2_u32.saturating_pow(rounds));
        rounds.map_or(self.limit, |rounds| longer(rounds).min(self.limit))
    }

    /// Opens a connection, and notes how that went for those who are not sent.
    pub(super) async fn open(&self) -> Result<Line, Broken> {
        let opened = Line::open(self).await;
        self.queue.outage.note(opened.as_ref().err());
        opened
    }

    /// Waits for a connection, as long as somebody waits for the answers to a batch of which nothing is on its way. What
    /// only a person can mend is an error at once.
    async fn connect(&self, batch: &mut Batch) -> Result<Option<Line>, Broken> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.open().await {
                Ok(open) => return Ok(Some(open)),
                Err(broken) if broken.is_refusal() => return Err(broken),
                Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            batch.requests.retain(|request| !request.is_given_up());
            if batch.requests.is_empty() {
                return Ok(None);
            }
        }
    }
}

fn is_cancelled(broken: &Broken) -> bool {
    broken.is_said() && broken.code() == Some(&SqlState::QUERY_CANCELED)
}

/// What is sent again of a batch whose conditions take too long to check: all but those that were looked up least, whose
/// callers do that now, beside whoever appends. The last is the first.
fn look_up(absent: Vec<Request>) -> Vec<Batch> {
    let least = absent.iter().filter_map(Request::rounds).min();
    let (unchecked, mut others): (Vec<_>, Vec<_>) =
        absent.into_iter().partition(|it| it.rounds().is_some() && it.rounds() == least);
    unchecked.into_iter().for_each(Request::give_back);
    others.iter_mut().for_each(Request::forgive);
    let (plain, checked) = others.into_iter().partition(|it| it.rounds().is_none());
    let mut batches = Batch::of(plain, false);
    batches.extend(Batch::of(checked, false));
    batches.reverse();
    batches
}

/// What is sent again of what is not there; the others are answered. The last is the first.
fn go_on(broken: &Broken, mut absent: Vec<Request>) -> Vec<Batch> {
    let remedy = Remedy::of(broken);
    let is_alone = absent.len() == 1;
    let is_over = |request: &mut Request| {
        remedy == Remedy::None
            || remedy == Remedy::Singly && is_alone && broken.is_said()
            || request.tries >= TRIES
    };
    let error = crate::EngineError::new(broken);
    for request in absent.extract_if(.., is_over) {
        request.answer(Err(error.clone().into()));
    }
    let mut batches = Batch::of(absent, remedy == Remedy::Singly);
    batches.reverse();
    batches
}

impl Line {
    pub(super) async fn open(shared: &Shared) -> Result<Self, Broken> {
        let mut wire = Wire::connect(&shared.config, &shared.tls).await?;
        let about = shared.names.write(
            "SELECT pid, backend_start, {s}.head_of_events() FROM pg_stat_activity \
             WHERE pid = pg_backend_pid()",
        );
        let limit = shared.limit + WAY;
        let row = wire.ask(limit, |client| client.query_one(&about, &[])).await?;
        let statement = shared.names.write(APPEND);
        let append = wire.ask(limit, |client| client.prepare_typed(&statement, &TYPES)).await?;
        let server = Server { pid: row.get(0), since: row.get(1) };
        Ok(Self { wire, append, server, bound: shared.limit, low: row.get(2) })
    }

    /// Appends a batch. An error says nothing about whether it is there.
    async fn append(
        &mut self,
        batch: &Batch,
        bound: Duration,
        limit: Duration,
    ) -> Result<Outcome, Broken> {
        let columns = Columns::of(batch);
        let (append, values) = (&self.append, columns.values());
        let set = (bound != self.bound)
            .then(|| format!("SET statement_timeout = {}", bound.as_millis().max(1)));
        // Sent together, in this order. Both are waited for: what the one says is nothing about the other.
        let (set, row) = self
            .wire
            .ask(limit + WAY, |client| async move {
                let set = tell(client, set.as_deref());
                Ok(join(set, client.query_one(append, &values)).await)
            })
            .await?;
        if set.is_ok() {
            self.bound = bound;
        }
        outcome(&row?)
    }
}

async fn tell(client: &Client, setting: Option<&str>) -> Result<(), tokio_postgres::Error> {
    match setting {
        Some(setting) => client.batch_execute(setting).await,
        None => Ok(()),
    }
}

const TYPES: [Type; 16] = [
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT4_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT4_ARRAY,
];

fn outcome(row: &Row) -> Result<Outcome, Broken> {
    let lost: Option<Vec<Option<i64>>> = row.try_get(1)?;
    Ok(Outcome { base: row.try_get(0)?, lost: lost.unwrap_or_default() })
}
