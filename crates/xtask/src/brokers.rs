//! `cargo xtask brokers`: private brokers for a developer's session.
//!
//! They are started by the main thread and so live as long as this process; see
//! [`sluicegate_testkit::brokers`] for why the thread matters.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sluicegate_testkit::brokers::{Broker, Kind, lending, start_all};
use sluicegate_testkit::needs::{Need, User};

use crate::install::{self, Policy};
use crate::steps::{Done, Failure, Steps, Stopped};
use crate::workspace::Workspace;

/// Which brokers, and until when.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) end: End,
}

/// When they stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At Ctrl-C.
    Interrupt,
    /// At Ctrl-C, or when standard input ends.
    Eof,
    /// As soon as all have answered.
    AtOnce,
}

/// Installs, starts, waits, stops.
pub(crate) fn run(options: &Options, steps: &mut Steps) -> Result<(), Stopped> {
    const COMMAND: &str = "cargo xtask brokers";
    steps.run("needs", COMMAND, || {
        let target = Workspace::read()?.target_directory;
        install::ensure(Policy::Install, &target, |need| options.needs(need))
    })?;
    let mut running = Vec::new();
    let mut interrupt = None;
    steps.run("start", COMMAND, || {
        // From here on Ctrl-C is a word to us: the brokers are to be stopped in order.
        interrupt = Some(Interrupt::listen().map_err(|e| Failure::new(e.to_string()))?);
        running = start(&options.kinds)?;
        if running.is_empty() {
            return Err(Failure::new("none of them is installed"));
        }
        println!("{}", table(&running));
        Ok(Done::Ok)
    })?;
    if let Some(interrupt) = interrupt.filter(|_| options.end != End::AtOnce) {
        steps.run("wait", COMMAND, || {
            println!("running until {}", options.end.words());
            interrupt.wait(options.end).map_err(|e| Failure::new(e.to_string()))?;
            Ok(Done::Ok)
        })?;
    }
    steps.run("stop", COMMAND, || {
        drop(running);
        Ok(Done::Ok)
    })
}

/// Brokers for the tests of a run, stopped in order when this is dropped: at the run's end, also
/// when it fails or Ctrl-C ends it.
pub(crate) struct ForTests {
    running: Vec<Broker>,
    _interrupt: Interrupt,
}

impl ForTests {
    /// Starts those that are installed.
    pub(crate) fn start() -> Result<ForTests, Failure> {
        // Ctrl-C ends the tests, which are told by the terminal too; then this is dropped.
        let interrupt = Interrupt::listen().map_err(|e| Failure::new(e.to_string()))?;
        let running = start(&Kind::ALL)?;
        println!("{}", table(&running));
        Ok(ForTests { running, _interrupt: interrupt })
    }

    /// What tells the tests where they are.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        self.running.iter().flat_map(lending).collect()
    }
}

/// Starts those that are installed; any that is installed and fails is a failure of all.
fn start(kinds: &[Kind]) -> Result<Vec<Broker>, Failure> {
    let (there, missing): (Vec<Kind>, Vec<Kind>) =
        kinds.iter().partition(|kind| kind.installed().is_ok());
    for kind in missing {
        println!("{kind} is left out");
    }
    let mut running = Vec::new();
    for result in start_all(&there) {
        running.push(result.map_err(|error| Failure::new(error.to_string()))?);
    }
    Ok(running)
}

impl Options {
    fn needs(&self, need: &Need) -> bool {
        let wanted = |user: &User| self.kinds.iter().any(|kind| *user == User::Broker(kind.name()));
        need.users.iter().any(wanted)
    }
}

impl End {
    fn words(self) -> &'static str {
        match self {
            End::Interrupt => "Ctrl-C",
            End::Eof => "Ctrl-C or the end of standard input",
            End::AtOnce => "now",
        }
    }
}

/// Name, URL, process and time to the first answer, one line for each broker.
fn table(running: &[Broker]) -> String {
    let width = running.iter().map(|broker| broker.url().len()).max().unwrap_or(0);
    let mut lines = vec![format!("{:10}  {:width$}  {:>7}  ready after", "broker", "url", "pid")];
    for broker in running {
        let (name, url, pid) = (broker.kind().name(), broker.url(), broker.pid());
        let seconds = broker.ready_after().as_secs_f64();
        lines.push(format!("{name:10}  {url:width$}  {pid:>7}  {seconds:.2} s"));
        if let Some(management) = broker.management_url() {
            lines.push(format!("{:10}  {management}", ""));
        }
    }
    lines.join("\n")
}

/// The signals that mean "stop", as bytes on a socket.
struct Interrupt {
    signals: UnixStream,
}

impl Interrupt {
    fn listen() -> io::Result<Interrupt> {
        let (signals, sender) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Interrupt { signals })
    }

    /// Waits for a signal, also one that came before, or for the end of standard input if asked to.
    fn wait(&self, end: End) -> io::Result<()> {
        let mut stdin = io::stdin();
        loop {
            let heard = {
                let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
                if end == End::Eof {
                    watched.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
                }
                match poll(&mut watched, PollTimeout::NONE) {
                    // The signal itself interrupts the wait; its byte is there by then.
                    Err(nix::errno::Errno::EINTR) => continue,
                    result => result?,
                };
                watched.iter().map(|fd| fd.any().unwrap_or(true)).collect::<Vec<_>>()
            };
            let signalled = heard.first().copied().unwrap_or(true);
            let readable = heard.get(1).copied().unwrap_or(false);
            if signalled || (readable && stdin.read(&mut [0; 1024])? == 0) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Options};
    use sluicegate_testkit::brokers::Kind;
    use sluicegate_testkit::needs::NEEDS;

    #[test]
    fn only_the_chosen_brokers_are_installed() {
        let needs = |kinds: &[Kind]| {
            let options = Options { kinds: kinds.to_vec(), end: End::AtOnce };
            NEEDS.iter().filter(|need| options.needs(need)).map(|n| n.name).collect::<Vec<_>>()
        };
        assert_eq!(needs(&[Kind::Nats]), ["setpriv", "nats"]);
        assert_eq!(needs(&[Kind::ActiveMq]), ["setpriv", "java", "activemq"]);
        assert_eq!(needs(&[]), [""; 0]);
    }
}
