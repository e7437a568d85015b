//! A line to the broker that can be cut, refused and listened to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A method of the protocol by its class and number.
pub(crate) type Method = (u16, u16);
pub(crate) const ACK: Method = (60, 80);
pub(crate) const NACK: Method = (60, 120);
pub(crate) const PUBLISH: Method = (60, 40);
pub(crate) const CHANNEL_OPEN: Method = (20, 10);
pub(crate) const CONFIRM_SELECT: Method = (85, 10);
/// The end of a channel is counted by its cause, in place of its number.
const CHANNEL_CLOSE: Method = (20, 40);

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _group: TaskGroup,
}

#[derive(Default)]
struct Shared {
    cut: Notify,
    is_refusing: AtomicBool,
    /// What we say on lines that are made from now on does not reach the broker.
    is_muting: AtomicBool,
    /// What we say on any line does not reach the broker.
    is_mute: AtomicBool,
    /// The method of ours at which the line ends.
    ends_at: Mutex<Option<Method>>,
    /// Methods by who sent them.
    from_us: Mutex<HashMap<Method, usize>>,
    from_broker: Mutex<HashMap<Method, usize>>,
}

impl Proxy {
    pub(crate) async fn before(broker: &str) -> Self {
        Self::at("127.0.0.1:0", broker).await
    }

    /// The same on an address of one's choice.
    pub(crate) async fn at(address: &str, broker: &str) -> Self {
        let target = url::Url::parse(broker).unwrap();
        let target = format!("{}:{}", target.host_str().unwrap(), target.port().unwrap());
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let group = TaskGroup::new("proxy", 1).unwrap();
        let shared = Arc::new(Shared::default());
        let (kept, inner) = (Arc::clone(&shared), TaskGroup::new("lines", 1000).unwrap());
        let serve = |cx: Context| async move {
            while let Ok(Ok((ours, _))) = cx.until_interrupted(listener.accept()).await {
                if kept.is_refusing.load(Ordering::SeqCst) {
                    continue;
                }
                let (kept, target) = (Arc::clone(&kept), target.clone());
                let line = |cx: Context| async move {
                    cx.until_interrupted(connect(ours, target, &kept)).await.ok();
                };
                if inner.submit(&cx, line).await.is_err() {
                    return;
                }
            }
        };
        drop(group.submit(Context::new(), serve).await.unwrap());
        Self { address, shared, _group: group }
    }

    /// The broker's URL, through here.
    pub(crate) fn url(&self, broker: &str) -> String {
        let mut url = url::Url::parse(broker).unwrap();
        url.set_port(Some(self.address.port())).unwrap();
        url.into()
    }

    /// Ends all lines without a word.
    pub(crate) fn cut(&self) {
        self.shared.cut.notify_waiters();
    }

    /// Whether new lines are refused.
    pub(crate) fn refuse(&self, is_refusing: bool) {
        self.shared.is_refusing.store(is_refusing, Ordering::SeqCst);
    }

    /// Whether lines that are made from now on lead nowhere.
    pub(crate) fn mute_new(&self, is_muting: bool) {
        self.shared.is_muting.store(is_muting, Ordering::SeqCst);
    }

    /// Whether what we say is lost on its way, though it was sent.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.shared.is_mute.store(is_mute, Ordering::SeqCst);
    }

    /// When we next say this, the connection ends as a broker ends it that finds frames on a channel
    /// which it has closed.
    pub(crate) fn end_at(&self, method: Method) {
        *self.shared.ends_at.lock() = Some(method);
    }

    /// Whether no connection waits for its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.ends_at.lock().is_none()
    }

    pub(crate) fn sent(&self, method: Method) -> usize {
        self.shared.from_us.lock().get(&method).copied().unwrap_or(0)
    }

    /// How many channels the broker has ended over a delivery that it did not know.
    pub(crate) fn unknown_deliveries(&self) -> usize {
        self.shared.from_broker.lock().get(&(20, 406)).copied().unwrap_or(0)
    }

    /// How many channels the broker has ended over something that is not there.
    pub(crate) fn not_found(&self) -> usize {
        self.shared.from_broker.lock().get(&(20, 404)).copied().unwrap_or(0)
    }
}

async fn connect(ours: TcpStream, target: String, shared: &Shared) {
    let cut = shared.cut.notified();
    let is_muted = shared.is_muting.load(Ordering::SeqCst);
    let is_lost = || is_muted || shared.is_mute.load(Ordering::SeqCst);
    let Ok(theirs) = TcpStream::connect(target).await else { return };
    ours.set_nodelay(true).unwrap();
    theirs.set_nodelay(true).unwrap();
    let ((mut our_read, mut our_write), (their_read, their_write)) =
        (ours.into_split(), theirs.into_split());
    let is_end = |method| shared.ends_at.lock().take_if(|end| *end == method).is_some();
    let is_ended = tokio::select! {
        ended = forward(&mut our_read, their_write, &shared.from_us, 8, is_lost, is_end) => ended,
        ended = forward(their_read, &mut our_write, &shared.from_broker, 0, || false, |_| false) =>
            ended,
        () = cut => false,
    };
    if is_ended && our_write.write_all(&connection_close()).await.is_ok() {
        // What still comes is ignored, until we hang up.
        tokio::io::copy(&mut our_read, &mut tokio::io::sink()).await.ok();
    }
}

/// What a broker says that finds a message on a channel which is not open.
fn connection_close() -> Vec<u8> {
    let text = b"CHANNEL_ERROR - expected 'channel.open'";
    let mut method = vec![0, 10, 0, 50];
    method.extend(504u16.to_be_bytes());
    method.push(u8::try_from(text.len()).unwrap());
    method.extend(text);
    method.extend([0, 60, 0, 40]);
    let mut frame = vec![1, 0, 0];
    frame.extend(u32::try_from(method.len()).unwrap().to_be_bytes());
    frame.extend(method);
    frame.push(0xce);
    frame
}

/// Passes bytes on and counts the methods in them, up to one at which it ends; answers whether it came
/// that far. A line begins with a header of so many bytes.
async fn forward(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    seen: &Mutex<HashMap<Method, usize>>,
    header: usize,
    is_lost: impl Fn() -> bool,
    is_end: impl Fn(Method) -> bool,
) -> bool {
    let (mut buffer, mut skip) = (Vec::new(), header);
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        buffer.extend_from_slice(&chunk[..count]);
        let mut at = skip.min(buffer.len());
        skip -= at;
        while let Some(frame) = buffer.get(at..at + 7) {
            let size = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]) as usize;
            let Some(whole) = buffer.get(at + 7..at + 8 + size) else { break };
            if frame[0] == 1 {
                let number = |at: usize| u16::from_be_bytes([whole[at], whole[at + 1]]);
                let method = match (number(0), number(2)) {
                    CHANNEL_CLOSE => (20, number(4)),
                    method => method,
                };
                *seen.lock().entry(method).or_default() += 1;
                if is_end(method) {
                    return true;
                }
            }
            at += size + 8;
        }
        buffer.drain(..at);
        if !is_lost() && to.write_all(&chunk[..count]).await.is_err() {
            return false;
        }
    }
    false
}
