//! The broker command as a person or a script uses it, with the broker that starts fastest.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluicegate_testkit::brokers::{self, Kind};

/// Whether the broker is there; when not, a printed skip for a person and a failure on CI.
fn nats_is_there() -> bool {
    let Err(missing) = Kind::Nats.installed() else {
        return true;
    };
    assert!(!brokers::on_ci(), "{missing}");
    println!("skipped: {missing}");
    false
}

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("brokers").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Reads what the command prints up to a line that begins so.
fn read_until(child: &mut Child, beginning: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(output) = child.stdout.take() else {
        return lines;
    };
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        let read = output.read_line(&mut line).unwrap_or(0);
        assert!(read > 0, "ended before {beginning:?}: {lines:?}");
        let found = line.starts_with(beginning);
        lines.push(line);
        if found {
            // Kept open, so that the command can go on printing.
            child.stdout = Some(output.into_inner());
            return lines;
        }
    }
}

#[test]
fn check_starts_answers_and_stops() -> std::io::Result<()> {
    if !nats_is_there() {
        return Ok(());
    }
    let output = xtask(&["nats", "--check"]).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    for part in ["nats://127.0.0.1:", "ready after", "==> stop"] {
        assert!(printed.contains(part), "no {part:?} in:\n{printed}");
    }
    Ok(())
}

#[test]
fn a_signal_stops_the_brokers_in_order() -> std::io::Result<()> {
    if !nats_is_there() {
        return Ok(());
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = xtask(&["nats"]).spawn()?;
        let lines = read_until(&mut child, "running until");
        let row = lines.iter().find(|line| line.starts_with("nats "));
        let pid = row.and_then(|row| row.split_whitespace().nth(2)).unwrap_or_default();
        let process = format!("/proc/{pid}/cmdline");
        let command_line = std::fs::read_to_string(&process)?;
        assert!(command_line.contains("nats-server"), "{command_line}");
        kill(Pid::from_raw(child.id().cast_signed()), signal)?;
        assert!(child.wait()?.success(), "{signal}");
        let left = std::fs::read_to_string(&process).unwrap_or_default();
        assert!(!left.contains("nats-server"), "{signal}: the broker outlived its command");
    }
    Ok(())
}

#[test]
fn the_end_of_standard_input_stops_the_brokers() -> std::io::Result<()> {
    if !nats_is_there() {
        return Ok(());
    }
    let mut child = xtask(&["nats", "--until-eof"]).stdin(Stdio::piped()).spawn()?;
    read_until(&mut child, "running until");
    assert!(child.try_wait()?.is_none(), "it did not wait");
    drop(child.stdin.take());
    assert!(child.wait()?.success());
    Ok(())
}
