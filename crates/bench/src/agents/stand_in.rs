//! The agent of the benchmark: this program, as small as an agent can be.

use std::io::{self, BufRead, Read, Write};
use std::time::{Duration, Instant};

/// What it answers, but for the last brace.
const RESULT: &str =
    r#"{"type":"result","subtype":"success","is_error":false,"result":"hello","num_turns":1"#;

/// In a process of its own: `stay MS` answers each line after so long; `once MS` computes for so long, as an agent that
/// starts does, then reads its prompt and answers it; `sleep MS` waits instead, as for a model.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let time = Duration::from_millis(crate::child::number(words, 1)?);
    let done = match words.first().map(String::as_str) {
        Some("stay") => stay(time),
        Some("once") => once(time),
        Some("sleep") => {
            std::thread::sleep(time);
            once(Duration::ZERO)
        }
        _ => return Err("stay or once?".to_owned()),
    };
    done.map_err(|error| error.to_string())
}

fn stay(answers_after: Duration) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        line?;
        compute(answers_after);
        writeln!(output, "{RESULT}}}")?;
        output.flush()?;
    }
    Ok(())
}

fn once(starts_for: Duration) -> io::Result<()> {
    compute(starts_for);
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    writeln!(io::stdout(), "{RESULT}}}")
}

fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
