//! A way to the broker that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Passes connections on to a broker until they are cut.
pub(crate) struct Proxy {
    pub(crate) url: String,
    cut: Arc<Mutex<Context>>,
    _group: TaskGroup,
}

impl Proxy {
    /// A way to this broker.
    pub(crate) async fn to(url: &str) -> Self {
        let (before, after) = url.split_once("127.0.0.1:").expect("a broker on loopback");
        let (port, path) = after.split_once('/').expect("a path");
        let broker: SocketAddr = format!("127.0.0.1:{port}").parse().expect("a port");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let cut = Arc::new(Mutex::new(Context::new()));
        let group = TaskGroup::new("proxy", 1000).expect("a group");
        let (current, passing) = (Arc::clone(&cut), TaskGroup::new("ways", 1000).expect("a group"));
        let accept = move |cx: Context| async move {
            while let Ok(Ok((mut near, _))) = cx.until_interrupted(listener.accept()).await {
                let ending = current.lock().clone();
                let pass = move |cx: Context| async move {
                    let Ok(mut far) = TcpStream::connect(broker).await else { return };
                    cx.until_interrupted(copy_bidirectional(&mut near, &mut far)).await.ok();
                };
                passing.submit(&ending, pass).await.ok();
            }
        };
        group.submit_detached("accept", accept).await.ok();
        Self { url: format!("{before}127.0.0.1:{port}/{path}"), cut, _group: group }
    }

    /// Cuts all that is connected now.
    pub(crate) fn cut(&self) {
        std::mem::replace(&mut *self.cut.lock(), Context::new()).cancel();
    }
}
