//! How much an executor adds to a bare client: both call the same endpoint, on loopback, 32 at once.
//!
//! `cargo test --release -p sluicegate-executors -- --ignored --nocapture overhead`

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sluicegate_dispatch::Outcome;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::stage::{Stage, message, pool, settings};

const AT_ONCE: u32 = 32;
const CALLS: usize = 2_000;
const ROUNDS: usize = 9;
const REPLY: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"ack\":true}";

/// An endpoint that costs next to nothing: every read is a request, since clients wait for replies.
async fn cheap_endpoint() -> (String, [TaskGroup; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let accepting = TaskGroup::new("accept", 1).expect("a group");
    let serving = TaskGroup::new("serve", 1_000).expect("a group");
    let inner = serving.clone();
    let accept = move |cx: Context| async move {
        while let Ok(Ok((mut socket, _))) = cx.until_interrupted(listener.accept()).await {
            let serve = move |cx: Context| async move {
                let mut buffer = [0; 4096];
                socket.set_nodelay(true).expect("a socket");
                while let Ok(Ok(1..)) = cx.until_interrupted(socket.read(&mut buffer)).await {
                    socket.write_all(REPLY).await.expect("the client waits");
                }
            };
            drop(inner.try_submit(Context::new(), serve));
        }
    };
    drop(accepting.submit(Context::new(), accept).await.expect("let in"));
    (url, [accepting, serving])
}

/// The time of the processors that this process has used, which other work on the machine hardly
/// changes, in hundredths of a second.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(") ").next().expect("fields after the name");
    let number = |text: &str| text.parse::<u64>().expect("a count of ticks");
    fields.split(' ').skip(11).take(2).map(number).sum()
}

/// The processor time that `CALLS` calls of each of `AT_ONCE` tasks take.
async fn measure<F, Fut>(group: &TaskGroup, one: F) -> u64
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let begun = ticks();
    let mut tasks = Vec::new();
    for _ in 0..AT_ONCE {
        let one = one.clone();
        let run = |cx: Context| async move {
            for _ in 0..CALLS {
                one(cx.clone()).await;
            }
        };
        tasks.push(group.submit(Context::new(), run).await.expect("let in"));
    }
    for task in tasks {
        task.await.expect("it ends");
    }
    ticks() - begun
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, for a release build on an idle machine"]
async fn overhead() {
    let (url, _groups) = cheap_endpoint().await;
    let group = TaskGroup::new("callers", AT_ONCE).expect("a group");
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let stage = Arc::new(Stage::new(settings()));
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
    let (message, pool) = (Arc::new(message(&url)), pool());
    let ours = move |cx: Context| {
        let (stage, message, pool) = (Arc::clone(&stage), Arc::clone(&message), Arc::clone(&pool));
        async move {
            let outcome = stage.execute_under(&message, &pool, &cx).await;
            assert_eq!(outcome, Outcome::Done);
        }
    };
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let (bare, ours) =
            (measure(&group, bare.clone()).await, measure(&group, ours.clone()).await);
        let per_call = |ticks: u64| ticks * 10_000 / (CALLS as u64 * u64::from(AT_ONCE));
        let ratio = ours as f64 / bare as f64;
        println!("{round}: bare {} µs, execute {} µs, {ratio:.3}", per_call(bare), per_call(ours));
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ROUNDS / 2]);
}
