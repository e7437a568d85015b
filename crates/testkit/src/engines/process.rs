//! An engine that appends in another process: the same program, which is told on its standard input what to append.
//!
//! Lines are `NUMBER JSON` there and `@ NUMBER ok POSITION`, `@ NUMBER conflict POSITION` or `@ NUMBER failed WORDS` back.
//! Other lines mean nothing: a test's own program says more than that.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, BoxFuture, Engine, EngineError, NewEvent, Page, Position,
    Query, QueryItem, Read, ReadError,
};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

/// Where the process appends to.
const URL: &str = "SLUICEGATE_APPENDS_TO";
/// How many appends wait to be written to the process.
const WAITING: usize = 64;

type Answer = Result<Position, AppendError>;
/// Who waits for which answer; none can come when the process has ended.
type Pending = Arc<Mutex<Option<BTreeMap<u64, oneshot::Sender<Answer>>>>>;

/// Appends in a process of its own, and reads here.
pub(super) struct ProcessEngine {
    here: Arc<dyn Engine>,
    asks: mpsc::Sender<String>,
    pending: Pending,
    last: AtomicU64,
    _process: (Child, TaskGroup),
}

impl ProcessEngine {
    /// Starts this program again, with these arguments.
    pub(super) async fn start(url: &str, arguments: &[&str], here: Arc<dyn Engine>) -> Self {
        let this = std::env::current_exe().expect("this program");
        let mut command = Command::new(this);
        command.args(arguments).env(URL, url).kill_on_drop(true);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program again");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let (asks, asked) = mpsc::channel(WAITING);
        let pending: Pending = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let group = TaskGroup::new("process", 2).expect("there is one");
        let (writes, answers) = (write(input, asked), hear(output, Arc::clone(&pending)));
        for (name, work) in
            [("asks", Box::pin(writes) as BoxFuture<'static, ()>), ("answers", Box::pin(answers))]
        {
            let work =
                |cx: Context| async move { cx.until_interrupted(work).await.unwrap_or_default() };
            drop(group.submit_detached(name, work).await.expect("there is room for it"));
        }
        Self { here, asks, pending, last: AtomicU64::new(0), _process: (process, group) }
    }
}

async fn write(mut input: ChildStdin, mut asked: mpsc::Receiver<String>) {
    while let Some(line) = asked.recv().await {
        // Whoever waits hears of it when the output ends.
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn hear(mut output: Lines<BufReader<ChildStdout>>, pending: Pending) {
    while let Ok(Some(line)) = output.next_line().await {
        if let Some((number, answer)) = read_answer(&line)
            && let Some(waits) = pending.lock().as_mut().and_then(|all| all.remove(&number))
        {
            // Nobody may wait for it any more.
            waits.send(answer).ok();
        }
    }
    *pending.lock() = None;
}

fn read_answer(line: &str) -> Option<(u64, Answer)> {
    let mut words = line.strip_prefix("@ ")?.splitn(3, ' ');
    let (number, how, rest) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let position = || rest.parse().map(Position::new).ok();
    Some(match how {
        "ok" => (number, Ok(position()?)),
        "conflict" => (number, Err(AppendError::Conflict { position: position()? })),
        _ => (number, Err(AppendError::Failed(EngineError::new(rest)))),
    })
}

impl Engine for ProcessEngine {
    fn append(&self, append: Append) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let number = self.last.fetch_add(1, Ordering::Relaxed);
            let (waits, answer) = oneshot::channel();
            let ended = || AppendError::Failed(EngineError::new("the process has ended"));
            self.pending.lock().as_mut().ok_or_else(ended)?.insert(number, waits);
            let line = format!("{number} {}\n", written(&append));
            self.asks.send(line).await.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        })
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        self.here.read(read)
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        self.here.head()
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        self.here.changed(after)
    }
}

fn written(append: &Append) -> Value {
    let data = |event: &NewEvent| event.data().expect("its data are JSON").to_owned();
    let events = append.events().iter();
    let events = events.map(|event| json!([event.event_type(), event.tags(), data(event)]));
    let item = |item: &QueryItem| json!([item.event_types(), item.all_tags()]);
    let condition = append.condition().map(|condition| {
        let items = condition.fail_if_events_match.items().iter().map(item);
        json!([items.collect::<Vec<_>>(), condition.after.get()])
    });
    json!([events.collect::<Vec<_>>(), condition])
}

/// What is to be appended, or `None` for what nobody has written.
fn read_ask(line: &str) -> Option<(u64, Append)> {
    type Item = (Vec<String>, Vec<String>);
    type Asked = (Vec<(String, Vec<String>, String)>, Option<(Vec<Item>, u64)>);
    let (number, asked) = line.split_once(' ')?;
    let (events, condition): Asked = serde_json::from_str(asked).ok()?;
    let events = events
        .into_iter()
        .map(|(of_type, tags, data)| NewEvent::of(of_type).with_tags(tags).raw_json(data));
    let condition = condition.map(|(items, after)| {
        let item = |(types, tags)| QueryItem::default().types(types).tags(tags);
        let query = Query::any_of(items.into_iter().map(item));
        AppendCondition::none_after(query, Position::new(after))
    });
    Some((number.parse().ok()?, Append::new(events.collect(), condition).ok()?))
}

/// What the other process does: appends what it is told to until its input ends. Answers whether this is one.
///
/// # Panics
/// It cannot append to where it is told to, or is told what it does not understand.
pub async fn append_for_another() -> bool {
    let Ok(url) = std::env::var(URL) else { return false };
    let engine = super::postgres::open(&url).await;
    // Whatever a test's program has written before is on a line of its own.
    println!();
    let mut asked: Lines<BufReader<Stdin>> = BufReader::new(tokio::io::stdin()).lines();
    let mut appending = FuturesUnordered::new();
    loop {
        tokio::select! {
            line = asked.next_line() => {
                let Ok(Some(line)) = line else { return true };
                let (number, append) = read_ask(&line).expect("it is understood");
                let engine = &engine;
                appending.push(async move { (number, engine.append(append).await) });
            }
            Some((number, answer)) = appending.next() => match answer {
                Ok(position) => println!("@ {number} ok {position}"),
                Err(AppendError::Conflict { position }) => {
                    println!("@ {number} conflict {position}");
                }
                Err(error) => println!("@ {number} failed {error}"),
            },
        }
    }
}
