//! An HTTP endpoint on loopback that answers as it is told, and remembers what it was asked.
//!
//! It speaks HTTP/1.1 and HTTP/2, with or without TLS, as its client begins.

mod answer;
mod serve;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};
use parking_lot::Mutex;
use sluicegate_tasks::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub use answer::Answer;

/// An endpoint. It ends when it is dropped.
pub struct Endpoint {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    cx: Context,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The version of HTTP.
    pub version: Version,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
    /// When all of it was there.
    pub at: Instant,
}

struct Shared {
    state: Mutex<State>,
    /// How many requests have come, for those who wait for one.
    count: watch::Sender<usize>,
    group_of: fn(&Asked) -> String,
}

#[derive(Default)]
struct State {
    script: VecDeque<Answer>,
    otherwise: Answer,
    asked: Vec<Asked>,
    connections: usize,
    open: usize,
    groups: HashMap<String, Busy>,
    all: Busy,
}

/// How many are being answered at once.
#[derive(Clone, Copy, Default)]
struct Busy {
    now: usize,
    peak: usize,
}

impl Endpoint {
    /// One that answers everything with 200 and `{"ack":true}`, until it is told otherwise.
    ///
    /// # Panics
    /// If there is no port left on loopback.
    pub async fn start() -> Self {
        Self::start_with(None, by_path).await
    }

    /// One that speaks TLS.
    ///
    /// # Panics
    /// If there is no port left on loopback.
    pub async fn start_tls(config: rustls::ServerConfig) -> Self {
        Self::start_with(Some(Arc::new(config)), by_path).await
    }

    /// One whose requests belong to the group that `group_of` says, and not to that of their path.
    ///
    /// # Panics
    /// If there is no port left on loopback.
    pub async fn start_grouped(group_of: fn(&Asked) -> String) -> Self {
        Self::start_with(None, group_of).await
    }

    async fn start_with(
        tls: Option<Arc<rustls::ServerConfig>>,
        group_of: fn(&Asked) -> String,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared =
            Arc::new(Shared { state: Mutex::default(), count: watch::Sender::new(0), group_of });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let cx = Context::new();
        serve::start(listener, tls, Arc::clone(&shared), &cx).await;
        Self { address, scheme, shared, cx }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of it; the path begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// Answers the next requests like this, in the order in which they come.
    pub fn then(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.state.lock().script.extend(answers);
    }

    /// Answers like this when nothing else was said.
    pub fn otherwise(&self, answer: Answer) {
        self.shared.state.lock().otherwise = answer;
    }

    /// What it was asked, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.state.lock().asked.clone()
    }

    /// How often it was asked.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.state.lock().asked.len()
    }

    /// What it was asked by one group, in order: the message ids.
    #[must_use]
    pub fn ids_of(&self, group: &str) -> Vec<String> {
        let state = self.shared.state.lock();
        let of_group = state.asked.iter().filter(|asked| (self.shared.group_of)(asked) == group);
        of_group.map(Asked::message_id).collect()
    }

    /// When a group asked for the first time.
    #[must_use]
    pub fn first_of(&self, group: &str) -> Option<Instant> {
        let state = self.shared.state.lock();
        let first = state.asked.iter().find(|asked| (self.shared.group_of)(asked) == group);
        first.map(|asked| asked.at)
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state.lock().connections
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.state.lock().open
    }

    /// How many requests were being answered at once, at most.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.shared.state.lock().all.peak
    }

    /// How many requests of one group were being answered at once, at most.
    #[must_use]
    pub fn peak_of(&self, group: &str) -> usize {
        self.shared.state.lock().groups.get(group).map_or(0, |busy| busy.peak)
    }

    /// Waits until it has been asked that often.
    ///
    /// # Panics
    /// If that takes longer than half a minute.
    pub async fn wait_for(&self, count: usize) {
        let mut counted = self.shared.count.subscribe();
        let enough = counted.wait_for(|asked| *asked >= count);
        let came = timeout(Duration::from_secs(30), enough).await;
        assert!(came.is_ok(), "{} of {count} requests came", self.count());
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.cx.cancel();
    }
}

impl Asked {
    /// A header's text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body, if it is JSON, else null.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The message's id, or nothing.
    #[must_use]
    pub fn message_id(&self) -> String {
        self.json()["messageId"].as_str().unwrap_or_default().to_owned()
    }
}

impl Shared {
    /// Takes a request in, and says how it is answered.
    fn begin(self: &Arc<Self>, asked: Asked) -> (Answer, Answering) {
        let group = (self.group_of)(&asked);
        let mut state = self.state.lock();
        state.asked.push(asked);
        let answer = state.script.pop_front().unwrap_or_else(|| state.otherwise.clone());
        state.all.begin();
        state.groups.entry(group.clone()).or_default().begin();
        let count = state.asked.len();
        drop(state);
        self.count.send_replace(count);
        (answer, Answering { shared: Arc::clone(self), group })
    }
}

/// A request that is being answered.
struct Answering {
    shared: Arc<Shared>,
    group: String,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.all.now -= 1;
        if let Some(busy) = state.groups.get_mut(&self.group) {
            busy.now -= 1;
        }
    }
}

impl Busy {
    fn begin(&mut self) {
        self.now += 1;
        self.peak = self.peak.max(self.now);
    }
}

fn by_path(asked: &Asked) -> String {
    asked.path.split('?').next().unwrap_or_default().to_owned()
}
