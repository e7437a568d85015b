//! A daemon with its API on loopback, and a client that says exactly what it is told to.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use sluicegate_dispatch::{Message, Parked, ParkedCode, ParkedStore};
use sluicegate_server::settings::Settings;
use sluicegate_server::{Daemon, api};
use sluicegate_tasks::{Context, TaskGroup};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A daemon that is served. Dropped, it ends.
pub(crate) struct Stage {
    pub(crate) daemon: Daemon,
    pub(crate) address: SocketAddr,
    pub(crate) serving: Context,
    pub(crate) folder: TempDir,
    _group: TaskGroup,
}

const LOOPBACK: &str = "127.0.0.1:0";

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// All of it, as it came.
    pub(crate) raw: String,
    pub(crate) body: String,
}

/// What to ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) line: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a str,
}

impl Stage {
    /// A daemon by this file, which is there to be reloaded. `{STATE}` is the state file.
    pub(crate) async fn start(toml: &str) -> Self {
        Self::start_at(toml, LOOPBACK).await
    }

    /// The same, served at this address.
    pub(crate) async fn start_at(toml: &str, listen: &str) -> Self {
        let (daemon, folder) = Self::closed(toml).await;
        let stage = Self::listening(daemon, folder, listen).await;
        stage.daemon.begin().await.expect("it begins");
        stage
    }

    /// Parks a message of a queue as rejected, which holds no key.
    pub(crate) async fn park(&self, queue: &str, at: usize, message: Message) {
        let parked = Parked {
            queue: queue.into(),
            broker_id: format!("b{at}").into(),
            pool: Some(message.pool.clone()),
            code: ParkedCode::Rejected,
            reason: "words".to_owned(),
            status: Some(400),
            attempts: 1,
            holds_key: false,
            last_error: None,
            message: Ok(message),
        };
        self.daemon.store().park(vec![parked]).await.expect("it is parked");
    }

    /// A daemon that has not begun.
    pub(crate) async fn open(toml: &str) -> Self {
        let (daemon, folder) = Self::closed(toml).await;
        Self::of(daemon, folder).await
    }

    /// A daemon that is not served.
    async fn closed(toml: &str) -> (Daemon, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sluicegate.toml");
        std::fs::write(&file, with_state(&folder, toml)).expect("a file");
        let settings = Settings::load(&file).expect("sound settings");
        (Daemon::open(settings, Some(file)).await.expect("a daemon"), folder)
    }

    /// This daemon, served.
    pub(crate) async fn of(daemon: Daemon, folder: TempDir) -> Self {
        Self::listening(daemon, folder, LOOPBACK).await
    }

    async fn listening(daemon: Daemon, folder: TempDir, listen: &str) -> Self {
        let listener = TcpListener::bind(listen).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let group = TaskGroup::new("stage", 1).expect("a group");
        let (own, serving) = (daemon.clone(), Context::new());
        let serve = |cx: Context| async move { api::serve(own, listener, &cx).await };
        drop(group.submit(&serving, serve).await.expect("it is let in"));
        Self { daemon, address, serving, folder, _group: group }
    }

    /// Another text in the file.
    pub(crate) fn rewrite(&self, toml: &str) {
        let file = self.folder.path().join("sluicegate.toml");
        std::fs::write(file, with_state(&self.folder, toml)).expect("a file");
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(Ask { line: &format!("GET {path}"), ..Ask::default() }).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.ask(Ask { line: &format!("POST {path}"), body, ..Ask::default() }).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.ask(Ask { line: &format!("DELETE {path}"), ..Ask::default() }).await
    }

    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Reply {
        let mut request = format!("{} HTTP/1.1\r\nconnection: close\r\n", ask.line);
        if !ask.headers.iter().any(|(name, _)| *name == "host") {
            request += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in ask.headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !ask.body.is_empty() {
            request += &format!("content-length: {}\r\n", ask.body.len());
        }
        request += "\r\n";
        request += ask.body;
        self.say(request.as_bytes()).await
    }

    /// Sends exactly this and reads to the end.
    pub(crate) async fn say(&self, bytes: &[u8]) -> Reply {
        let socket = TcpStream::connect(self.address).await.expect("it listens");
        let (mut reads, mut writes) = socket.into_split();
        let mut answer = Vec::new();
        let both = async {
            // Cut off early, the answer says why.
            tokio::join!(writes.write_all(bytes), reads.read_to_end(&mut answer)).1
        };
        let read = timeout(Duration::from_secs(60), both).await.expect("it answers in time");
        read.unwrap_or_else(|error| -> usize {
            let line = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
            panic!("{error}: {line:?}, {} bytes", bytes.len())
        });
        Reply::parse(&answer)
    }

    /// Asks again and again until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
        let mut tries = 0;
        loop {
            let reply = self.get(path).await;
            if wanted(&reply) {
                return reply;
            }
            tries += 1;
            assert!(tries < 2_000, "{path} stays {reply:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn with_state(folder: &TempDir, toml: &str) -> String {
    let path = folder.path().join("state.db");
    format!("{toml}\n[state]\npath = {:?}\n", path.to_str().expect("a path"))
}

impl Reply {
    fn parse(answer: &[u8]) -> Self {
        let text = String::from_utf8_lossy(answer);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
        let (head, body) = (head.to_ascii_lowercase(), body.to_owned());
        Self { status, head, body, raw: text.into_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn items(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["items"].as_array().unwrap_or_else(|| panic!("no list: {self:?}")).clone()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(given, _)| *given == name).map(|(_, value)| value.trim())
    }

    /// Checks that it is a problem of that status and code, and returns it.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], status, "{json}");
        assert_eq!(json["code"], code, "{json}");
        assert_eq!(json["type"], "about:blank", "{json}");
        assert!(json["title"].as_str().is_some_and(|title| !title.is_empty()), "{json}");
        assert!(json["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{json}");
        json
    }
}

/// The names of an object's members.
pub(crate) fn names(value: &Value) -> Vec<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    object.keys().map(String::as_str).collect()
}
