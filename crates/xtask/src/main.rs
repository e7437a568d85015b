//! The developer's commands, run as `cargo xtask COMMAND`.
//!
//! Each command is a row of steps: announced as `==> name`, timed, listed at the end. The first
//! failure ends the row and names the command that repeats the failed step alone.

use std::process::ExitCode;

use crate::cli::Order;
use crate::steps::{Steps, Stopped};

mod brokers;
mod child;
mod cli;
mod gate;
mod install;
mod steps;
mod test;
mod tidy;
mod workspace;

fn main() -> ExitCode {
    let order = cli::parse();
    let mut steps = Steps::default();
    let result = carry_out(&order, &mut steps);
    println!("\n{steps}");
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stopped) => ExitCode::FAILURE,
    }
}

fn carry_out(order: &Order, steps: &mut Steps) -> Result<(), Stopped> {
    match order {
        Order::Test(options) => test::run(options, steps),
        Order::Ci => gate::ci(steps),
        Order::Sim(options) => gate::sim(options, steps),
        Order::Bench(options) => gate::bench(options, steps),
        Order::CheckStore(options) => gate::check_store(options, steps),
        Order::Tidy => tidy::step(steps),
        Order::Brokers(options) => brokers::run(options, steps),
        Order::Docs => gate::docs(steps),
    }
}
