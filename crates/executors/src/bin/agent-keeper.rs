//! A keeper of processes by itself, for programs that cannot be their own: see `process::keeper`.

use std::process::ExitCode;

use sluicegate_executors::process::keeper;

fn main() -> ExitCode {
    keeper::run_if_asked().unwrap_or_else(|| {
        eprintln!("agent-keeper keeps processes for the program that starts it, nothing else");
        ExitCode::from(2)
    })
}
