//! Another client of the broker, which says exactly what it is told to.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::within;

/// Sends one frame as it is, which must ask for the receipt `r`.
pub(crate) async fn say(address: SocketAddr, head: &str, body: &[u8]) {
    within(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0").await.unwrap();
        read_to(&mut stream, b"CONNECTED").await;
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream.write_all(b"\0").await.unwrap();
        read_to(&mut stream, b"receipt-id:r").await;
    })
    .await;
}

async fn read_to(stream: &mut TcpStream, wanted: &[u8]) {
    let mut heard = Vec::new();
    while !heard.windows(wanted.len()).any(|some| some == wanted) {
        let count = stream.read_buf(&mut heard).await.unwrap();
        assert!(count > 0, "the broker said {}", String::from_utf8_lossy(&heard));
    }
}
