//! The endpoint that both sides call: a minimal HTTP/1.1 server, in a process of its own.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The path of answers that take [`SLOWNESS`].
pub(crate) const SLOW: &str = "/slow";
pub(crate) const SLOWNESS: Duration = Duration::from_millis(100);

const ANSWER: &[u8] = br#"{"ack":true}"#;
/// How many answers may be slow at once.
const MOST_SLOW: usize = 65_536;

/// A running endpoint. It ends when it is dropped.
pub(crate) struct Endpoint {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Endpoint {
    /// Starts this program once more, as the endpoint.
    pub(crate) fn start() -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|error| format!("no path to myself: {error}"))?;
        let mut child = Command::new(me)
            .arg("endpoint")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the endpoint did not start: {error}"))?;
        let mut line = String::new();
        let said = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        match (said, line.trim().parse()) {
            (Some(Ok(_)), Ok(address)) => Ok(Self { child, address }),
            _ => Err(format!("the endpoint said no address: {line:?}")),
        }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// A URL of about 60 bytes that is answered at once.
    pub(crate) fn fast(&self) -> String {
        format!("http://{}/hooks/orders/created?source=shop-01", self.address)
    }

    /// One that is answered late.
    pub(crate) fn slow(&self) -> String {
        format!("http://{}{SLOW}/hooks/orders/created?source=s1", self.address)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // It ends by itself when its input does.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Serves until the input ends. Says its address first.
pub(crate) fn serve() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let (late, bell) = sync_channel(MOST_SLOW);
    std::thread::spawn(move || ring(&bell));
    let listening = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listening.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("{address}");
    std::io::stdout().flush().map_err(|error| error.to_string())?;
    runtime.spawn(accept(listener, late));
    std::io::stdin().read_to_end(&mut Vec::new()).map_err(|error| error.to_string())?;
    runtime.shutdown_background();
    Ok(())
}

type Late = (Instant, oneshot::Sender<()>);

/// Says to each when its time has come. All wait equally long, so they come in order. A thread,
/// since tokio's timers may be a millisecond late, which is half of what is measured.
fn ring(bell: &Receiver<Late>) {
    while let Ok((at, waiting)) = bell.recv() {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        // Whoever waited may be gone.
        waiting.send(()).ok();
    }
}

async fn accept(listener: TcpListener, late: SyncSender<Late>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, late.clone()));
    }
}

async fn connection(stream: TcpStream, late: SyncSender<Late>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(|request| answer(request, &late));
    let serving = hyper::server::conn::http1::Builder::new();
    // However it ends, the client hears of it.
    drop(serving.serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(
    request: Request<Incoming>,
    late: &SyncSender<Late>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let came = Instant::now();
    let is_slow = request.uri().path().starts_with(SLOW);
    drop(request.into_body().collect().await);
    if is_slow {
        let (ring, rung) = oneshot::channel();
        if late.try_send((came + SLOWNESS, ring)).is_ok() {
            drop(rung.await);
        }
    }
    Ok(Response::new(Full::new(Bytes::from_static(ANSWER))))
}
