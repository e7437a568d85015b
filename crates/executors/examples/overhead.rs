//! How much an executor adds to a bare client: both call the same endpoint on loopback, 32 at once.
//!
//! `cargo run --release -p sluicegate-executors --example overhead`
//!
//! The bare client sends a request and reads the reply. The executor also limits the time, hears of
//! cancellation, asks a breaker, begins a trace, reads the reply's JSON and reports the call.
//! Figures are processor time of this process, both sides and the endpoint's share included.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sluicegate_dispatch::{
    Attempt, Executor, Fact, Message, Observer, Outcome, PoolSettings, Target,
};
use sluicegate_executors::http::{HttpExecutor, HttpSettings};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const AT_ONCE: u32 = 32;
const CALLS: usize = 2_000;
const ROUNDS: usize = 11;
const REPLY: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"ack\":true}";

struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _: &Fact<'_>) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(compare())
}

async fn compare() -> Result<(), Box<dyn Error>> {
    let (url, _endpoint) = endpoint().await?;
    let callers = TaskGroup::new("callers", AT_ONCE)?;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let target = url.clone();
    let bare = move |_: Context| {
        let request = http::Request::post(&target)
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(Full::new(Bytes::from_static(br#"{"messageId":"m-1"}"#)))
            .expect("a request");
        let reply = client.request(request);
        async move { drop(reply.await.expect("a reply").collect().await.expect("a body")) }
    };
    let allow_targets = vec!["127.0.0.0/8".parse()?];
    let settings = HttpSettings { allow_targets, ..HttpSettings::default() };
    let executor = Arc::new(HttpExecutor::new(settings, Arc::new(Nobody))?);
    let message = Arc::new(message(&url)?);
    let pool = Arc::new(PoolSettings::new("ORDERS", AT_ONCE));
    let ours = move |cx: Context| {
        let (executor, message, pool) =
            (Arc::clone(&executor), Arc::clone(&message), Arc::clone(&pool));
        async move {
            let attempt = Attempt { message: &message, pool: &pool, number: 1, cx: &cx };
            assert_eq!(executor.execute(attempt).await, Outcome::Done);
        }
    };
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let bare = measure(&callers, bare.clone()).await?;
        let ours = measure(&callers, ours.clone()).await?;
        let nanos = |ticks: u64| ticks * 10_000_000 / (CALLS as u64 * u64::from(AT_ONCE));
        let ratio = ours as f64 / bare as f64;
        println!("bare {} ns, executor {} ns, {ratio:.3}", nanos(bare), nanos(ours));
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ROUNDS / 2]);
    Ok(())
}

/// An endpoint that costs next to nothing: every read is a request, since clients wait for replies.
async fn endpoint() -> Result<(String, TaskGroup), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let group = TaskGroup::new("endpoint", 1_000)?;
    let parent = group.clone();
    let accept = move |cx: Context| async move {
        let connections = parent.child("connections").expect("a name");
        while let Ok(Ok((mut socket, _))) = cx.until_interrupted(listener.accept()).await {
            let serve = move |cx: Context| async move {
                let mut buffer = [0; 4096];
                socket.set_nodelay(true).expect("a socket");
                while let Ok(Ok(1..)) = cx.until_interrupted(socket.read(&mut buffer)).await {
                    socket.write_all(REPLY).await.expect("the client waits");
                }
            };
            drop(connections.try_submit(&cx, serve));
        }
    };
    drop(group.try_submit(Context::new(), accept).map_err(|refused| refused.why)?);
    Ok((url, group))
}

/// The processor time that `CALLS` calls of each of `AT_ONCE` tasks take, in ticks.
async fn measure<F, Fut>(group: &TaskGroup, one: F) -> Result<u64, Box<dyn Error>>
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let begun = ticks()?;
    let mut tasks = Vec::new();
    for _ in 0..AT_ONCE {
        let one = one.clone();
        let run = |cx: Context| async move {
            for _ in 0..CALLS {
                one(cx.clone()).await;
            }
        };
        tasks.push(group.try_submit(Context::new(), run).map_err(|refused| refused.why)?);
    }
    for task in tasks {
        task.await?;
    }
    Ok(ticks()? - begun)
}

/// What this process has used of the processors, in hundredths of a second: other work on the
/// machine hardly changes it.
fn ticks() -> Result<u64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let mut sum = 0;
    for field in fields.split(' ').skip(11).take(2) {
        sum += field.parse::<u64>()?;
    }
    Ok(sum)
}

fn message(url: &str) -> Result<Message, Box<dyn Error>> {
    Ok(Message {
        id: "m-1".into(),
        pool: "ORDERS".into(),
        group: None,
        tenant: None,
        high_priority: false,
        target: Target::parse(url)?,
        auth_token: None,
        payload: None,
        traceparent: None,
    })
}
