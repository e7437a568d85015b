//! A wire to the broker that can be cut, and that can be wrapped in TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// A listener that passes everything on to a broker.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _tasks: TaskGroup,
}

struct State {
    broker: SocketAddr,
    tls: Option<TlsAcceptor>,
    cut: Notify,
    is_down: AtomicBool,
    /// How many more bytes pass before the wire breaks.
    budget: AtomicI64,
}

impl Wire {
    pub(crate) async fn new(broker: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, is_down) = (Notify::new(), AtomicBool::new(false));
        let state = State { broker, tls, cut, is_down, budget: AtomicI64::new(i64::MAX / 2) };
        let state = Arc::new(state);
        let tasks = TaskGroup::new("wire", 1).unwrap();
        let of = Arc::clone(&state);
        drop(tasks.submit_detached("wire", |cx| accept(listener, of, cx)).await.unwrap());
        Self { address, state, _tasks: tasks }
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.state.cut.notify_one();
    }

    /// From now on every connection ends at once, or lives.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
        if is_down {
            self.cut();
        }
    }

    /// After so many more bytes, in both directions together, the connection ends. The next one lives.
    pub(crate) fn cut_after(&self, bytes: i64) {
        self.state.budget.store(bytes, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, state: Arc<State>, cx: Context) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = cx.cancelled() => return,
            () = state.cut.notified() => connections.clear(),
            Some(()) = connections.next() => {}
            stream = listener.accept() => {
                if !state.is_down.load(Ordering::SeqCst) {
                    connections.push(pass(stream.unwrap().0, Arc::clone(&state)));
                }
            }
        }
    }
}

async fn pass(mut client: TcpStream, state: Arc<State>) {
    let Ok(mut broker) = TcpStream::connect(state.broker).await else { return };
    if let Some(tls) = &state.tls {
        if let Ok(mut client) = tls.accept(client).await {
            copy_bidirectional(&mut client, &mut broker).await.ok();
        }
        return;
    }
    client.set_nodelay(true).unwrap();
    broker.set_nodelay(true).unwrap();
    let (from_client, to_client) = split(&mut client);
    let (from_broker, to_broker) = split(&mut broker);
    tokio::select! {
        () = carry(from_client, to_broker, &state) => {}
        () = carry(from_broker, to_client, &state) => {}
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, state: &State) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let left = state.budget.fetch_sub(count as i64, Ordering::SeqCst);
        let passed = count.min(usize::try_from(left).unwrap_or(0));
        if to.write_all(&buffer[..passed]).await.is_err() {
            return;
        }
        if passed < count {
            to.flush().await.ok();
            state.budget.store(i64::MAX / 2, Ordering::SeqCst);
            return;
        }
    }
}
