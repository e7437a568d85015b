//! The demo's agent: this program again, which takes its time, answers, and notes what it saw.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The hidden argument; a folder and the session's arguments follow.
pub(super) const ARGUMENT: &str = "__stand-in-agent";
/// Where it notes what it saw, in the folder.
pub(super) const NOTES: &str = "turns";

/// Is an agent, if this process was started as one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let folder = arguments.next()?;
    let session = arguments.nth(1).unwrap_or_default();
    Some(match answer(Path::new(&folder), &session) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stand-in agent: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The prompt is a number and how many milliseconds it takes to answer it.
fn answer(folder: &Path, session: &str) -> io::Result<()> {
    let mut prompt = String::new();
    io::stdin().read_to_string(&mut prompt)?;
    let (number, millis) = prompt.trim().split_once(' ').unwrap_or_default();
    note(folder, "begin", session, number)?;
    std::thread::sleep(Duration::from_millis(millis.parse().unwrap_or(0)));
    note(folder, "end", session, number)?;
    let answer = serde_json::json!({
        "type": "result", "subtype": "success", "is_error": false,
        "result": format!("answer {number}"), "session_id": session,
    });
    writeln!(io::stdout(), "{answer}")
}

/// Adds a line in one piece: others add lines too.
fn note(folder: &Path, what: &str, session: &str, number: &str) -> io::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let line = format!("{} {what} {session} {number}\n", now.as_micros());
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(folder.join(NOTES))?
        .write_all(line.as_bytes())
}
