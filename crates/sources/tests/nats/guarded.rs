//! A server of one's own with arguments of one's own.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluicegate_testkit::brokers::Kind;
use sluicegate_testkit::needs::find_program;
use tempfile::TempDir;

use crate::rig::until;

/// A server with arguments of its own, which the shared kit does not start.
pub(crate) struct Guarded {
    server: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Guarded {
    pub(crate) async fn start(arguments: &[&str]) -> Option<Self> {
        Kind::Nats.installed().ok()?;
        let program = find_program("nats-server")?;
        let folder = tempfile::tempdir().unwrap();
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let server = Command::new(program)
            .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
            .arg(folder.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let guarded = Self { server, address, _folder: folder };
        until("the server speaks", async || guarded.speaks()).await;
        Some(guarded)
    }

    fn speaks(&self) -> bool {
        let Ok(stream) = TcpStream::connect(self.address) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO ")
    }

    pub(crate) fn url(&self, login: &str) -> String {
        format!("nats://{login}{}", self.address)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}
