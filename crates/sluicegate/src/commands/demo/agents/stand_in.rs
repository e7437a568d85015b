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

/// How long it takes to answer somebody who is not of the demo.
const GUEST: Duration = Duration::from_millis(300);

/// The demo's prompts are a number and how many milliseconds it takes to answer. Whoever else asks hears what they said,
/// and nothing is noted of it.
fn answer(folder: &Path, session: &str) -> io::Result<()> {
    let mut prompt = String::new();
    io::stdin().read_to_string(&mut prompt)?;
    let text = match turn(prompt.trim()) {
        Some((number, takes)) => {
            note(folder, "begin", session, number)?;
            std::thread::sleep(takes);
            note(folder, "end", session, number)?;
            format!("answer {number}")
        }
        None => {
            std::thread::sleep(GUEST);
            format!("you said: {}", prompt.trim())
        }
    };
    let answer = serde_json::json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "session_id": session,
    });
    writeln!(io::stdout(), "{answer}")
}

fn turn(prompt: &str) -> Option<(u32, Duration)> {
    let (number, millis) = prompt.split_once(' ')?;
    Some((number.parse().ok()?, Duration::from_millis(millis.parse().ok()?)))
}

/// Adds a line in one piece: others add lines too.
fn note(folder: &Path, what: &str, session: &str, number: u32) -> io::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let line = format!("{} {what} {session} {number}\n", now.as_micros());
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(folder.join(NOTES))?
        .write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::turn;

    #[test]
    fn only_the_demos_own_prompts_are_turns_of_it() {
        assert_eq!(turn("7 500"), Some((7, Duration::from_millis(500))));
        for prompt in ["hello", "hello 1", "1", "", "1 and 2"] {
            assert_eq!(turn(prompt), None, "{prompt}");
        }
    }
}
