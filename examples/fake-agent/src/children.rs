//! Processes that it starts, and leaves behind.

use std::io;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

const STAY: &str = "--child-that-stays";
const LEAVE: &str = "--child-that-leaves-one";
const FORK_ON: &str = "--child-that-forks-on";

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Runs as a child, if it was started as one.
pub(crate) fn run_if_asked(arguments: &[String]) -> Option<ExitCode> {
    let (first, rest) = arguments.split_first()?;
    match first.as_str() {
        STAY => wait_for_ever(),
        LEAVE => {
            Some(ended(nix::unistd::setsid().map_err(Into::into).and_then(|_| myself(STAY, rest))))
        }
        FORK_ON => Some(ended(fork_on(rest))),
        _ => None,
    }
}

fn ended(done: io::Result<()>) -> ExitCode {
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts children that stay, with the same input and output.
pub(crate) fn start(count: usize) -> io::Result<()> {
    (0..count).try_for_each(|_| myself(STAY, &own_arguments()))
}

/// Starts one whose parent ends, in a session of its own.
pub(crate) fn daemonize() -> io::Result<()> {
    let mut between = command(LEAVE, &own_arguments())?.spawn()?;
    between.wait().map(drop)
}

/// Starts a child that starts the next and ends, and so on for a minute.
pub(crate) fn keep_forking() -> io::Result<()> {
    let mut arguments = own_arguments();
    arguments.insert(0, (now() + 60).to_string());
    myself(FORK_ON, &arguments)
}

/// The parent ends at once, so that each is an orphan by the time that it is found.
fn fork_on(arguments: &[String]) -> io::Result<()> {
    let end = arguments.first().and_then(|end| end.parse::<u64>().ok());
    if end.is_none_or(|end| now() > end) {
        return Ok(());
    }
    nix::unistd::setsid()?;
    myself(FORK_ON, arguments)
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Keeps memory until the end.
pub(crate) fn keep(memory: Vec<u8>) {
    if let Ok(mut kept) = KEPT.lock() {
        kept.push(memory);
    }
}

/// Until it is killed.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        sleep(Duration::from_secs(3600));
    }
}

fn own_arguments() -> Vec<String> {
    std::env::args().skip(1).collect()
}

/// This program again, with its arguments, so that a list of processes shows whose it is.
fn command(how: &str, arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(how).args(arguments);
    Ok(command)
}

fn myself(how: &str, arguments: &[String]) -> io::Result<()> {
    command(how, arguments)?.spawn().map(drop)
}
