//! ActiveMQ over STOMP, spoken by hand.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stage::PATIENCE;

/// How many go in one transaction.
const LOT: usize = 500;
/// Who is given nothing for so long is given nothing.
const QUIET: Duration = Duration::from_secs(1);

pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) queue: String,
}

impl Client {
    async fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("the broker answers");
        let hello = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0";
        stream.write_all(hello).await.expect("it listens");
        read_to(&mut stream, "CONNECTED").await;
        stream
    }

    pub(super) async fn publish(&self, bodies: &[String]) {
        let mut stream = self.connect().await;
        for (number, lot) in bodies.chunks(LOT).enumerate() {
            let mut frames = format!("BEGIN\ntransaction:{number}\n\n\0");
            for body in lot {
                let queue = &self.queue;
                frames += &format!(
                    "SEND\ndestination:/queue/{queue}\ntransaction:{number}\npersistent:true\n\n{body}\0"
                );
            }
            frames += &format!("COMMIT\ntransaction:{number}\nreceipt:r{number}\n\n\0");
            stream.write_all(frames.as_bytes()).await.expect("it listens");
            read_to(&mut stream, &format!("receipt-id:r{number}\n")).await;
        }
    }

    /// How many another client is given, which takes none of them.
    pub(super) async fn given(&self) -> usize {
        let mut stream = self.connect().await;
        let subscribe = format!(
            "SUBSCRIBE\nid:0\ndestination:/queue/{}\nack:client-individual\n\
             activemq.prefetchSize:10000\n\n\0",
            self.queue
        );
        stream.write_all(subscribe.as_bytes()).await.expect("it listens");
        let mut heard = Vec::new();
        while let Ok(count) = timeout(QUIET, stream.read_buf(&mut heard)).await {
            assert!(count.expect("it speaks") > 0, "it hung up");
        }
        let frames = heard.split(|byte| *byte == 0).map(<[u8]>::trim_ascii_start);
        let given = frames.filter(|frame| frame.starts_with(b"MESSAGE\n")).count();
        stream.write_all(b"DISCONNECT\nreceipt:bye\n\n\0").await.expect("it listens");
        read_to(&mut stream, "receipt-id:bye\n").await;
        given
    }
}

async fn read_to(stream: &mut TcpStream, wanted: &str) {
    let mut heard = Vec::new();
    let said = async {
        while !heard.windows(wanted.len()).any(|some| some == wanted.as_bytes()) {
            let count = stream.read_buf(&mut heard).await.expect("it speaks");
            assert!(count > 0, "the broker said {}", String::from_utf8_lossy(&heard));
        }
    };
    timeout(PATIENCE, said).await.expect("it answers in time");
}
