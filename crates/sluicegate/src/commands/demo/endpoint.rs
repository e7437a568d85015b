//! The demo's endpoint: an HTTP server on loopback that fails at times.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sluicegate::tasks::{Context, TaskGroup};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::ledger::{Ledger, Token};
use super::script::Answer;
use crate::exit::Failure;

/// How many connections there may be, and how large a request.
const MOST_CONNECTIONS: u32 = 1_024;
const MOST_BYTES: usize = 64 * 1024;

/// The endpoint. Its connections end when it is dropped.
pub(super) struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    connections: TaskGroup,
    ledger: Ledger,
}

impl Endpoint {
    pub(super) async fn new(ledger: Ledger) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connections =
            TaskGroup::new("connections", MOST_CONNECTIONS).map_err(Failure::failed)?;
        Ok(Self { listener, address, connections, ledger })
    }

    /// Where messages are delivered to.
    pub(super) fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    /// Accepts connections for as long as it is polled. Dropped, those that are there go on.
    pub(super) async fn accept(&self) -> io::Result<Infallible> {
        let cx = Context::new();
        loop {
            let (socket, _) = self.listener.accept().await?;
            socket.set_nodelay(true)?;
            let ledger = self.ledger.clone();
            let serve = move |cx: Context| async move {
                let service = service_fn(|request| answer(&ledger, request));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                // A client that goes away has nobody to be told.
                drop(cx.until_interrupted(connection).await);
            };
            // More connections than allowed are closed at once.
            drop(self.connections.try_submit(&cx, serve));
        }
    }
}

async fn answer(
    ledger: &Ledger,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = Limited::new(request.into_body(), MOST_BYTES).collect().await;
    let token = body.ok().and_then(|body| token(&body.to_bytes()));
    let Some(call) = token.and_then(|token| ledger.begin(token)) else {
        return Ok(response(StatusCode::BAD_REQUEST, r#"{"message":"no message of this demo"}"#));
    };
    let response = match call.answer {
        Answer::Quick(pause) | Answer::Slow(pause) => {
            sleep(pause).await;
            response(StatusCode::OK, r#"{"ack":true}"#)
        }
        Answer::Broken => response(StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"restarting"}"#),
        Answer::PutOff => response(StatusCode::OK, r#"{"ack":false,"delaySeconds":1}"#),
        Answer::Throttled => {
            let mut throttled = response(StatusCode::TOO_MANY_REQUESTS, r#"{"message":"slower"}"#);
            throttled.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
            throttled
        }
    };
    call.end();
    Ok(response)
}

fn response(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

/// Which message a call is about: the demo wrote it into the payload.
fn token(body: &[u8]) -> Option<Token> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let number = |name: &str| u32::try_from(body["payload"][name].as_u64()?).ok();
    Some(Token { number: number("number")?, group: number("group")?, place: number("place")? })
}
