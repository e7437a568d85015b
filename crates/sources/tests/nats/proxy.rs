//! A wire between a client and its server that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections, until they are cut.
pub(crate) struct Wire {
    address: SocketAddr,
    /// Ends with the next cut.
    live: Arc<Mutex<Context>>,
    _tasks: TaskGroup,
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = TaskGroup::new("wire", 1).unwrap();
        let connections = TaskGroup::new("connections", 64).unwrap();
        let live = Arc::new(Mutex::new(Context::new()));
        let current = Arc::clone(&live);
        let accept = move |cx: Context| async move {
            while let Ok(Ok((client, _))) = cx.until_interrupted(listener.accept()).await {
                let live = current.lock().clone();
                let forward = move |cx: Context| async move {
                    cx.until_interrupted(forward(client, server)).await.ok();
                };
                drop(connections.submit(&live, forward).await.ok());
            }
        };
        drop(tasks.submit_detached("accept", accept).await.unwrap());
        Self { address, live, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Ends all connections. New ones are forwarded as before.
    pub(crate) fn cut(&self) {
        std::mem::replace(&mut *self.live.lock(), Context::new()).cancel();
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
    }
}
