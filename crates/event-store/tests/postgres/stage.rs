//! What the tests of PostgreSQL are written in.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, Event, NewEvent, Position, Query, Read,
};
use sluicegate_tasks::{Context, Task, TaskGroup};
use sluicegate_testkit::brokers::{self, Broker, Kind, Lent};
use tokio::time::{Instant, sleep};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row};

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The server of this run, or one of one's own.
pub(crate) fn lent() -> Option<Lent> {
    brokers::lend(Kind::Postgres)
}

/// A server of one's own, to break.
pub(crate) fn own() -> Option<Broker> {
    brokers::start_or_skip(Kind::Postgres)
}

/// A fresh database: its address without parameters.
pub(crate) async fn database(server: &str) -> String {
    database_with(server, "").await
}

/// A fresh database that is made like this.
pub(crate) async fn database_with(server: &str, how: &str) -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    // Other processes use the same server.
    let name = format!("events_{}_{number}", std::process::id());
    let sql = Sql::connect(server).await;
    sql.run(&format!("DROP DATABASE IF EXISTS {name}")).await;
    sql.run(&format!("CREATE DATABASE {name} {how}")).await;
    let (start, _) = server.rsplit_once('/').unwrap();
    format!("{start}/{name}")
}

/// The log of a database, as one more process would open it.
pub(crate) async fn open(url: &str) -> Arc<PostgresEngine> {
    let settings = PostgresSettings::parse(url).unwrap();
    Arc::new(PostgresEngine::open(settings.with_append_timeout(PATIENCE)).await.unwrap())
}

pub(crate) async fn append(
    engine: &impl Engine,
    events: Vec<NewEvent>,
    condition: Option<AppendCondition>,
) -> Result<Position, AppendError> {
    engine.append(Append::new(events, condition).unwrap()).await
}

pub(crate) fn event(event_type: &str, tag: &str) -> NewEvent {
    NewEvent::of(event_type).with_tags([tag])
}

pub(crate) fn is_conflict(result: &Result<Position, AppendError>) -> bool {
    matches!(result, Err(AppendError::Conflict { .. }))
}

/// All events that a query asks for, page by page.
pub(crate) async fn all(engine: &impl Engine, query: Query, limit: usize) -> Vec<Event> {
    let mut read = Read::new(query).unwrap();
    read.limit = limit;
    let mut events = Vec::new();
    loop {
        let page = engine.read(read.clone()).await.unwrap();
        assert!(page.events.len() <= limit, "{}", page.events.len());
        events.extend(page.events);
        match page.next {
            Some(next) => read.after = next,
            None => return events,
        }
    }
}

pub(crate) fn positions(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.position().get()).collect()
}

/// Tasks of a test.
pub(crate) struct Crowd<T> {
    group: TaskGroup,
    tasks: Vec<Task<T>>,
}

impl<T: Send + 'static> Crowd<T> {
    pub(crate) fn new() -> Self {
        Self { group: TaskGroup::new("crowd", 1_000).unwrap(), tasks: Vec::new() }
    }

    pub(crate) async fn join(&mut self, task: impl Future<Output = T> + Send + 'static) {
        let submitted = self.group.submit(Context::new(), |_| task).await;
        self.tasks.push(submitted.map_err(|_| "refused").unwrap());
    }

    pub(crate) async fn results(self) -> Vec<T> {
        let mut results = Vec::new();
        for task in self.tasks {
            results.push(task.await.unwrap());
        }
        results
    }
}

/// A connection of one's own, to look behind the engine.
pub(crate) struct Sql {
    pub(crate) client: Client,
    notices: Arc<Mutex<String>>,
    _group: TaskGroup,
}

impl Sql {
    pub(crate) async fn connect(url: &str) -> Self {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let notices = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&notices);
        let group = TaskGroup::new("sql", 1).unwrap();
        let drive = |cx: Context| async move {
            let drive = async {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notice(notice) = message {
                        *heard.lock() += notice.message();
                    }
                }
            };
            cx.until_interrupted(drive).await.ok();
        };
        assert!(group.submit_detached("connection", drive).await.is_ok());
        Self { client, notices, _group: group }
    }

    /// What the server notes while it does a statement.
    pub(crate) async fn noticed(&self, statement: &str) -> String {
        self.notices.lock().clear();
        self.run(statement).await;
        self.notices.lock().clone()
    }

    pub(crate) async fn run(&self, statement: &str) {
        self.client.batch_execute(statement).await.unwrap();
    }

    /// From now on it takes so long to see whether events have several tags, whatever the machine. For engines that are
    /// opened later.
    pub(crate) async fn match_slowly(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.run(&format!(
            "ALTER FUNCTION sluicegate.match_events RENAME TO match_at_once;
             CREATE FUNCTION sluicegate.match_events(text[], text[], bigint, bigint, int) RETURNS bigint[]
             LANGUAGE plpgsql STABLE AS $$ BEGIN
                 PERFORM pg_sleep({seconds});
                 RETURN sluicegate.match_at_once($1, $2, $3, $4, $5);
             END $$",
        ))
        .await;
    }

    /// Why a statement does not work.
    pub(crate) async fn refused(&self, statement: &str) -> String {
        let error = self.client.batch_execute(statement).await.unwrap_err();
        error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
    }

    pub(crate) async fn rows(&self, statement: &str) -> Vec<Row> {
        self.client.query(statement, &[]).await.unwrap()
    }

    pub(crate) async fn number(&self, statement: &str) -> i64 {
        self.rows(statement).await[0].get(0)
    }

    /// Ends every process of the server that works for an engine of this database; answers how many.
    pub(crate) async fn kill_engines(&self) -> i64 {
        self.number(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'sluicegate-events'",
        )
        .await
    }
}

/// Waits for something that must happen.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "never {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A way to the server that can be cut off, in one direction or both.
pub(crate) struct Cut {
    address: std::net::SocketAddr,
    withholds: Arc<std::sync::atomic::AtomicBool>,
    severed: Arc<tokio::sync::Notify>,
    _group: TaskGroup,
}

impl Cut {
    pub(crate) async fn before(server: std::net::SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let withholds = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let severed = Arc::new(tokio::sync::Notify::new());
        let group = TaskGroup::new("cut", 1).unwrap();
        let (holds, cut) = (Arc::clone(&withholds), Arc::clone(&severed));
        let accept = move |cx: Context| async move {
            let mut ways = futures_util::stream::FuturesUnordered::new();
            loop {
                tokio::select! {
                    _ = cx.cancelled() => return,
                    Ok((client, _)) = listener.accept() => {
                        ways.push(way(client, server, Arc::clone(&holds), Arc::clone(&cut)));
                    }
                    Some(()) = futures_util::StreamExt::next(&mut ways) => {}
                }
            }
        };
        assert!(group.submit_detached("ways", accept).await.is_ok());
        Self { address, withholds, severed, _group: group }
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// From now on questions arrive and answers do not.
    pub(crate) fn withhold_answers(&self) {
        self.withholds.store(true, Ordering::SeqCst);
    }

    /// Ends all connections; new ones work.
    pub(crate) fn sever(&self) {
        self.withholds.store(false, Ordering::SeqCst);
        self.severed.notify_waiters();
    }
}

async fn way(
    client: tokio::net::TcpStream,
    server: std::net::SocketAddr,
    withholds: Arc<std::sync::atomic::AtomicBool>,
    severed: Arc<tokio::sync::Notify>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(server) = tokio::net::TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let questions = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut buffer = vec![0; 65_536];
        let mut is_lost = false;
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            is_lost |= withholds.load(Ordering::SeqCst);
            if !is_lost && to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = severed.notified() => {}
        _ = questions => {}
        () = answers => {}
    }
}
