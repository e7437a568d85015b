//! Connections: accepted up to a bound, read with patience for so long, and ended in order.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, Request};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sluicegate_tasks::{Context, Permits, TaskGroup};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tower_service::Service;

use super::guard::is_safe;
use super::impatient::{Impatient, PATIENCE};
use super::intake::discard;
use super::problem::{CONTENT, Code, Problem};
use super::{Api, audited};

/// How many connections are served at once.
pub(super) const MOST: u32 = 1_024;
/// How long the head of a request may take to come, and a connection may idle.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How large the head of a request may be.
const HEAD_BYTES: usize = 64 * 1024;
/// How long an answer may take to begin.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// How long running requests have at the end.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait after a failed accept: mostly, files have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// What is served on every connection.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) api: Api,
    pub(super) routes: axum::Router,
}

/// Accepts at most so many connections until the context ends, then lets running requests end.
pub(super) async fn accept(
    site: Site,
    listener: TcpListener,
    cx: &Context,
    most: u32,
) -> io::Result<()> {
    let group = TaskGroup::new("api connections", most).map_err(io::Error::other)?;
    let places = Arc::new(Permits::new(most).map_err(io::Error::other)?);
    loop {
        match cx.until_interrupted(listener.accept()).await {
            Err(_) => break,
            Ok(Ok((socket, peer))) => {
                let Ok(place) = places.try_acquire_owned() else {
                    refuse(socket);
                    continue;
                };
                let site = site.clone();
                let serve = move |cx: Context| async move {
                    serve(site, socket, peer, cx).await;
                    drop(place);
                };
                // A place that was free is one that a task has left, or is just leaving. Refused
                // only when the context has ended.
                group.submit(cx, serve).await.ok();
            }
            Ok(Err(error)) => {
                tracing::warn!(target: "sluicegate", %error, "a connection could not be accepted");
                if cx.until_interrupted(sleep(PAUSE)).await.is_err() {
                    break;
                }
            }
        }
    }
    drop(listener);
    drop(group.drain(Instant::now() + GRACE).await);
    Ok(())
}

/// Tells a client that there is no room, as far as that works at once.
fn refuse(socket: TcpStream) {
    let problem = Problem::new(Code::Overloaded, "too many connections are served at once");
    let (status, body) = (problem.code.status(), problem.to_json().to_string());
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {CONTENT}\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // A client that has gone, or does not read, hears nothing.
    if let Ok(mut socket) = socket.into_std() {
        socket.write_all(text.as_bytes()).ok();
    }
}

/// Serves a connection until it or the context ends.
///
/// # Cancel safety
/// Dropped, running requests are dropped with it: what they have begun and must end runs elsewhere.
async fn serve(site: Site, socket: TcpStream, peer: SocketAddr, cx: Context) {
    // Answers are written whole; without this they wait for acknowledgements. Not vital.
    socket.set_nodelay(true).ok();
    let answer = service_fn(move |request| answer(site.clone(), peer, request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Impatient::new(socket, PATIENCE)), answer);
    let mut connection = pin!(connection);
    tokio::select! {
        // How it ended is the client's affair.
        _ = connection.as_mut() => return,
        _ = cx.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.ok();
}

/// Answers one request.
async fn answer(
    site: Site,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let request = request.map(Body::new);
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let routed = AssertUnwindSafe(route(site, peer, request)).catch_unwind();
    // Whoever waits for an agent waits for as long as the pool lets it run.
    let answered = match is_of_agents(&path) && !is_safe(&method) {
        true => Ok(routed.await),
        false => timeout(ANSWER_TIME, routed).await,
    };
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!(target: "sluicegate", %method, path, "a request panicked");
            Problem::new(Code::Internal, "the daemon failed; its log says more").into_response()
        }
        Err(_) => {
            let detail = format!("there was no answer within {} s", ANSWER_TIME.as_secs());
            Problem::new(Code::TimedOut, detail).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Whether the pool of agents answers there.
fn is_of_agents(path: &str) -> bool {
    let of = |part: &str| {
        path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    of("/api/v1/requests") || of("/api/v1/workers")
}

/// Lets a request in and hands it to its handler.
async fn route(site: Site, peer: SocketAddr, request: Request<Body>) -> Response {
    let (mut head, body) = request.into_parts();
    let admitted = fits(&head).and_then(|()| site.api.guard.admit(&head)).and_then(|caller| {
        let login = head.uri.path() == "/login";
        // Requests to agents are answered and cancelled until the last one is over.
        let goes_on = login || is_safe(&head.method) || is_of_agents(head.uri.path());
        if site.api.daemon.is_ending() && !goes_on {
            return Err(Problem::new(Code::ShuttingDown, "the daemon is shutting down"));
        }
        Ok(caller)
    });
    match admitted {
        Ok(caller) => {
            head.extensions.insert(caller);
            let audited = audited::begin(&site.api, &head, caller, peer);
            let body = match &audited {
                Some(audited) => audited.watch(body),
                // Nobody reads it; left unread, its sender may not hear the answer.
                None if is_safe(&head.method) && !body.is_end_stream() => {
                    discard(body).await;
                    Body::empty()
                }
                None => body,
            };
            let mut routes = site.routes;
            // A router is always ready.
            let Ok(response) = routes.call(Request::from_parts(head, body)).await;
            match audited {
                Some(audited) => audited.end(response).await,
                None => response,
            }
        }
        Err(problem) => {
            discard(body).await;
            problem.into_response()
        }
    }
}

/// Whether the head of a request is as small as it must be. Reading stops some way behind the bound.
fn fits(head: &Parts) -> Result<(), Problem> {
    let pairs = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if pairs.sum::<usize>() + target <= HEAD_BYTES {
        return Ok(());
    }
    let detail = format!("the head of the request has more than {HEAD_BYTES} bytes");
    Err(Problem::new(Code::HeadTooLarge, detail).with("limit", HEAD_BYTES))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::daemon::Daemon;
    use crate::settings::Settings;

    async fn begins(socket: &mut TcpStream) -> String {
        let mut some = [0; 12];
        let read = timeout(Duration::from_secs(5), socket.read_exact(&mut some)).await;
        read.expect("in time").expect("an answer");
        String::from_utf8_lossy(&some).into_owned()
    }

    /// Whoever comes when all places are taken is told so at once, and a place that becomes free is
    /// given again.
    #[tokio::test]
    async fn places_are_bounded() {
        const MOST: usize = 2;
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.state.path = folder.path().join("state.db");
        let daemon = Daemon::open(settings, None).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Context::new();
        let api = Api::new(daemon, address, &serving).unwrap();
        let site = Site { routes: super::super::routes::router(api.clone()), api };
        let group = TaskGroup::new("test", 1).unwrap();
        let serve = |cx: Context| async move { accept(site, listener, &cx, MOST as u32).await };
        let served = group.submit(&serving, serve).await.unwrap();
        let ask = async || {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let request = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
            socket.write_all(request).await.unwrap();
            let answer = begins(&mut socket).await;
            (socket, answer)
        };
        let mut held = Vec::new();
        for _ in 0..MOST {
            let (socket, answer) = ask().await;
            assert_eq!(answer, "HTTP/1.1 200");
            held.push(socket);
        }
        assert_eq!(ask().await.1, "HTTP/1.1 503");
        held.pop();
        // When the server sees that it is gone is its own affair.
        while ask().await.1 != "HTTP/1.1 200" {
            tokio::task::yield_now().await;
        }
        serving.cancel();
        served.await.unwrap().unwrap();
    }
}
