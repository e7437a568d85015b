//! The baselines: the same program, started and spoken to without a pool.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A child that stays.
pub(super) struct Direct {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Direct {
    pub(super) fn start(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        let child = command(program, arguments).spawn();
        let mut child = child.map_err(|error| error.to_string())?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Self { _child: child, input, output })
    }

    /// Writes a line, and reads one.
    pub(super) async fn turn(&mut self, line: &[u8]) -> Result<(), String> {
        self.input.write_all(line).await.map_err(|error| error.to_string())?;
        let answer = self.output.next_line().await.map_err(|error| error.to_string())?;
        if answer.is_some_and(|answer| answer.contains("hello")) {
            Ok(())
        } else {
            Err("no answer".to_owned())
        }
    }
}

/// Starts it, hands it a prompt, and waits for its answer and its end.
pub(super) async fn once(program: &Path, arguments: &[&str], prompt: &[u8]) -> Result<(), String> {
    let child = command(program, arguments).spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    let mut input = child.stdin.take().ok_or("no input")?;
    input.write_all(prompt).await.map_err(|error| error.to_string())?;
    drop(input);
    let ended = child.wait_with_output().await.map_err(|error| error.to_string())?;
    if ended.stdout.windows(5).any(|part| part == b"hello") {
        Ok(())
    } else {
        Err(format!("no answer: {}", String::from_utf8_lossy(&ended.stderr)))
    }
}
