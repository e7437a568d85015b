//! The endpoint's tasks: one accepts, one for each connection, one for each HTTP/2 stream.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use super::answer::{AnswerBody, Manner};
use super::{Asked, Shared};

/// How many tasks of a kind there may be at once.
const MANY: u32 = 100_000;

/// What runs the streams of HTTP/2 connections.
#[derive(Clone)]
struct Streams(TaskGroup);

/// A connection that was accepted.
struct Accepted {
    shared: Arc<Shared>,
    number: usize,
    streams: Streams,
}

/// Accepts until the context ends, and everything that was accepted with it.
pub(super) async fn start(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
    cx: &Context,
) {
    let group = |name| TaskGroup::new(name, MANY).expect("a name and a limit");
    let (accepting, streams) = (group("endpoint"), Streams(group("streams")));
    let acceptor = tls.map(TlsAcceptor::from);
    let parent = accepting.clone();
    let accept = move |cx: Context| async move {
        let connections = parent.child("connections").expect("a name");
        while let Ok(Ok((socket, _))) = cx.until_interrupted(listener.accept()).await {
            let (shared, streams) = (Arc::clone(&shared), streams.clone());
            let acceptor = acceptor.clone();
            let accepted = Accepted { number: shared.accept(), shared, streams };
            let serve = move |cx: Context| async move {
                // A client that goes away in between is what some tests are about.
                drop(cx.until_interrupted(accepted.greet(socket, acceptor)).await);
            };
            drop(connections.try_submit(&cx, serve));
        }
    };
    drop(accepting.submit(cx, accept).await.expect("the first task is let in"));
}

impl Accepted {
    async fn greet(self, socket: TcpStream, tls: Option<TlsAcceptor>) -> io::Result<()> {
        socket.set_nodelay(true)?;
        match tls {
            None => self.serve(socket).await,
            Some(tls) => {
                let socket = tls.accept(socket).await?;
                self.serve(socket).await;
            }
        }
        Ok(())
    }

    async fn serve<S>(self, socket: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let last = watch::Sender::new(false);
        let service = service_fn(|request| self.answer(request, last.clone()));
        let builder = auto::Builder::new(self.streams.clone());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
        let mut ending = last.subscribe();
        // Errors are the client's to report.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = ending.wait_for(|last| *last) => connection.as_mut().graceful_shutdown(),
        }
        drop(connection.await);
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        last: watch::Sender<bool>,
    ) -> impl Future<Output = io::Result<Response<AnswerBody>>> + Send + 'static {
        let (shared, connection) = (Arc::clone(&self.shared), self.number);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            let (method, version, headers) = (head.method, head.version, head.headers);
            let at = Instant::now();
            let asked = Asked { method, path, version, headers, body, connection, at };
            let (answer, _answering) = shared.begin(asked);
            if !answer.delay.is_zero() {
                sleep(answer.delay).await;
            }
            match answer.manner {
                Manner::Given => {}
                Manner::Last => drop(last.send_replace(true)),
                Manner::Hanging => std::future::pending().await,
                Manner::Cut => return Err(io::Error::other("cut")),
            }
            Ok(answer.response())
        }
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.shared.state.lock().open -= 1;
    }
}

impl Shared {
    fn accept(&self) -> usize {
        let mut state = self.state.lock();
        state.connections += 1;
        state.open += 1;
        state.connections
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let run = move |cx: Context| async move { drop(cx.until_interrupted(stream).await) };
        drop(self.0.try_submit(Context::new(), run));
    }
}
