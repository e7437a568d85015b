//! What a broker consists of before any of it runs: files written, ports chosen, commands as data.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::folder::Folder;
use super::{Kind, activemq, nats, postgres, rabbitmq, sqs};

/// A broker ready to be started.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) url: String,
    pub(super) address: SocketAddr,
    pub(super) management_url: Option<String>,
    /// In the order of their start; the last one is the broker itself.
    pub(super) servers: Vec<Spec>,
}

/// One process.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// All of its environment but `PATH`.
    pub(super) variables: Vec<(&'static str, String)>,
    /// The user to run as, where that must not be root.
    pub(super) user: Option<String>,
    /// The signal that asks it to end.
    pub(super) farewell: Signal,
}

impl Plan {
    pub(super) fn of(kind: Kind, folder: &Folder) -> io::Result<Plan> {
        match kind {
            Kind::RabbitMq => rabbitmq::plan(folder),
            Kind::Nats => nats::plan(folder),
            Kind::Postgres => postgres::plan(folder),
            Kind::ActiveMq => activemq::plan(folder),
            Kind::Sqs => sqs::plan(folder),
        }
    }
}

impl Spec {
    pub(super) fn new(program: impl Into<PathBuf>) -> Spec {
        Spec {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            user: None,
            farewell: Signal::SIGTERM,
        }
    }

    pub(super) fn args<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Spec {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(super) fn env(mut self, name: &'static str, value: impl Into<String>) -> Spec {
        self.variables.push((name, value.into()));
        self
    }
}

/// The first of these programs that is there. A kind is planned only once it is installed, so the
/// error is for a machine that changes under us.
pub(super) fn program(candidate: &str) -> io::Result<PathBuf> {
    crate::needs::find_program(candidate)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{candidate} is not there")))
}

/// So many different loopback ports that were free a moment ago.
pub(super) fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    // All are held until all are chosen, so that they differ.
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// A loopback address.
pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::{free_ports, program};

    #[test]
    fn ports_differ() {
        let mut ports = free_ports::<20>().unwrap().to_vec();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }

    #[test]
    fn a_program_that_is_gone_is_named() {
        let error = program("no-such-program-anywhere").unwrap_err();
        assert!(error.to_string().contains("no-such-program-anywhere"));
    }
}
