//! A server between the source and the emulation that does what no emulation does: it refuses,
//! stalls, loses answers, lies, and lets some entries of a batch fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What is done with a call.
pub(crate) enum Act {
    /// Forwarded, and answered as the emulation does.
    Pass,
    /// Answered so, and not forwarded.
    Answer(u16, Value),
    /// Forwarded, and then the connection is closed without an answer.
    Lose,
    /// Answered so late.
    Stall(Duration),
    /// Of a batch those entries fail for which there is a code, with whether that is the sender's
    /// fault; the others are forwarded.
    Fail(Box<Failing>),
}

/// Which entries fail, by their index: code, words, and whether it is the sender's fault.
type Failing = dyn Fn(usize) -> Option<(&'static str, &'static str, bool)> + Send + Sync;

/// Decides what is done with a call, by its name and its body.
type Rule = Box<dyn FnMut(&str, &Value) -> Act + Send>;

pub(crate) struct Proxy {
    url: String,
    shared: Arc<Shared>,
    /// Ends with this.
    _tasks: TaskGroup,
}

struct Shared {
    upstream: SocketAddr,
    rule: Mutex<Rule>,
    calls: Mutex<Vec<(String, Value)>>,
    /// Ends all connections of a time.
    connections: Mutex<Context>,
    is_cut: Mutex<bool>,
}

impl Proxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        Self::start_with(upstream, None).await
    }

    pub(crate) async fn start_with(upstream: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}", listener.local_addr().unwrap().port());
        let shared = Arc::new(Shared {
            upstream,
            rule: Mutex::new(Box::new(|_, _| Act::Pass)),
            calls: Mutex::default(),
            connections: Mutex::new(Context::new()),
            is_cut: Mutex::new(false),
        });
        let tasks = TaskGroup::new("proxy", 200).unwrap();
        let accepting = TaskGroup::new("connections", 500).unwrap();
        let state = Arc::clone(&shared);
        let accept = move |_| async move {
            while let Ok((stream, _)) = listener.accept().await {
                if *state.is_cut.lock() {
                    continue;
                }
                let (state, tls) = (Arc::clone(&state), tls.clone());
                let connections = state.connections.lock().clone();
                let serve = move |cx: Context| async move {
                    let served = async {
                        match tls {
                            None => serve(stream, state).await,
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => serve(stream, state).await,
                                Err(_) => None,
                            },
                        }
                    };
                    cx.until_interrupted(served).await.ok();
                };
                drop(accepting.submit(&connections, serve).await);
            }
        };
        drop(tasks.submit_detached("accept", accept).await);
        Self { url, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn rule(&self, rule: impl FnMut(&str, &Value) -> Act + Send + 'static) {
        *self.shared.rule.lock() = Box::new(rule);
    }

    pub(crate) fn pass(&self) {
        self.rule(|_, _| Act::Pass);
    }

    /// The bodies of the calls of this name.
    pub(crate) fn calls(&self, name: &str) -> Vec<Value> {
        let calls = self.shared.calls.lock();
        calls.iter().filter(|(of, _)| of == name).map(|(_, body)| body.clone()).collect()
    }

    /// Ends all connections and lets no more in.
    pub(crate) fn cut(&self) {
        *self.shared.is_cut.lock() = true;
        std::mem::replace(&mut *self.shared.connections.lock(), Context::new()).cancel();
    }

    pub(crate) fn mend(&self) {
        *self.shared.is_cut.lock() = false;
    }
}

/// An error as SQS answers it.
pub(crate) fn error(status: u16, code: &str) -> Act {
    let body = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": "says the test" });
    Act::Answer(status, body)
}

/// Serves the calls of a connection, one after the other, until one of them ends it.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Shared>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (head, body) = read_message(&mut stream).await?;
        let name = header(&head, "x-amz-target")?;
        let name = name.rsplit('.').next()?.to_owned();
        let value: Value = serde_json::from_slice(&body).ok()?;
        state.calls.lock().push((name.clone(), value.clone()));
        let act = (state.rule.lock())(&name, &value);
        let (status, answer) = match act {
            Act::Pass => forward(&state, &head, &body).await?,
            Act::Answer(status, answer) => (status, answer.to_string().into_bytes()),
            Act::Lose => {
                forward(&state, &head, &body).await;
                return None;
            }
            Act::Stall(time) => {
                tokio::time::sleep(time).await;
                forward(&state, &head, &body).await?
            }
            Act::Fail(fails) => some_fail(&state, &head, value, &fails).await?,
        };
        let reply = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/x-amz-json-1.0\r\n\
             Content-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(reply.as_bytes()).await.ok()?;
        stream.write_all(&answer).await.ok()?;
        stream.flush().await.ok()?;
    }
}

async fn some_fail(
    state: &Shared,
    head: &str,
    mut call: Value,
    fails: &Failing,
) -> Option<(u16, Vec<u8>)> {
    let entries = call["Entries"].as_array()?.clone();
    let mut failed = Vec::new();
    let mut kept = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        match fails(index) {
            None => kept.push(entry),
            Some((code, message, fault)) => failed.push(
                json!({"Id": entry["Id"], "Code": code, "Message": message, "SenderFault": fault}),
            ),
        }
    }
    let mut answer = json!({ "Successful": [], "Failed": [] });
    if !kept.is_empty() {
        call["Entries"] = kept.into();
        let (status, body) = forward(state, head, call.to_string().as_bytes()).await?;
        assert_eq!(status, 200);
        answer = serde_json::from_slice(&body).ok()?;
    }
    answer["Failed"].as_array_mut()?.extend(failed);
    Some((200, answer.to_string().into_bytes()))
}

async fn forward(state: &Shared, head: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let stream = TcpStream::connect(state.upstream).await.ok()?;
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    for line in head.lines() {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !line.is_empty() && name != "content-length" && name != "connection" {
            request.push_str(line);
            request.push_str("\r\n");
        }
    }
    request.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()));
    stream.write_all(request.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()?;
    stream.flush().await.ok()?;
    let (head, body) = read_message(&mut stream).await?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body))
}

/// The head and the body of a request or an answer.
async fn read_message(stream: &mut BufReader<impl AsyncRead + Unpin>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let mut body = Vec::new();
    if let Some(length) = header(&head, "content-length") {
        body.resize(length.parse().ok()?, 0);
        stream.read_exact(&mut body).await.ok()?;
    } else if header(&head, "transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let begun = body.len();
            body.resize(begun + size + 2, 0);
            stream.read_exact(&mut body[begun..]).await.ok()?;
            body.truncate(begun + size);
            if size == 0 {
                break;
            }
        }
    }
    Some((head, body))
}

fn header(head: &str, name: &str) -> Option<String> {
    let of = |line: &str| {
        let (of, value) = line.split_once(':')?;
        of.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    };
    head.lines().find_map(of)
}

/// Asks a server without the source, as an operator would.
pub(crate) async fn ask(server: SocketAddr, action: &str, call: Value) -> Value {
    let body = call.to_string();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {server}\r\nX-Amz-Target: AmazonSQS.{action}\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = BufReader::new(TcpStream::connect(server).await.unwrap());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let (head, answer) = read_message(&mut stream).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(head.contains(" 200"), "{action}: {head}{answer}");
    serde_json::from_str(&answer).unwrap()
}
