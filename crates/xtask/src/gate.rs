//! `cargo xtask ci` and the small commands that it is made of.

use sluicegate_testkit::needs::{User, find_program};

use crate::child::Child;
use crate::install::{self, Policy};
use crate::steps::{Done, Failure, Steps, Stopped};
use crate::workspace::Workspace;
use crate::{test, tidy};

/// Seeds for the simulation.
#[derive(Debug, Default)]
pub(crate) struct SimOptions {
    pub(crate) seed: Option<u64>,
    pub(crate) seeds: Option<u64>,
}

/// Which benchmark, and how.
#[derive(Debug, Default)]
pub(crate) struct BenchOptions {
    /// All of them when left out.
    pub(crate) name: Option<String>,
    /// Small sizes: shows that it runs, measures nothing.
    pub(crate) quick: bool,
    /// Also write the figures to this file.
    pub(crate) json: Option<String>,
}

/// What to race on, and how often.
#[derive(Debug, Default)]
pub(crate) struct CheckStoreOptions {
    pub(crate) rounds: Option<u64>,
    pub(crate) seed: Option<u64>,
    /// All of them when left out.
    pub(crate) engine: Option<String>,
    /// All of them when left out.
    pub(crate) scenario: Option<String>,
}

/// Everything the gate checks, quick checks first.
pub(crate) fn ci(steps: &mut Steps) -> Result<(), Stopped> {
    steps.child("fmt", &Child::cargo("fmt --all --check"))?;
    let clippy = Child::cargo("clippy --workspace --all-targets -- -D warnings");
    steps.child("clippy", &clippy)?;
    tidy::step(steps)?;
    let lint = Child::cargo("run -p sluicegate-lint --bin cargo-sluicegate-lint -- .");
    steps.child("lint", &lint)?;
    deny(steps)?;
    docs(steps)?;
    test::run(&test::Options::everything(), steps)?;
    sim(&SimOptions::default(), steps)?;
    let smoke = BenchOptions { name: None, quick: true, json: None };
    bench(&smoke, steps)
}

/// Licences, bans and sources of all dependencies.
fn deny(steps: &mut Steps) -> Result<(), Stopped> {
    let child = Child::cargo("deny check licenses bans sources");
    steps.run("deny", &child.to_string(), || {
        if find_program("cargo-deny").is_none() {
            let how = "cargo-deny is not installed: cargo install cargo-deny --locked";
            return Ok(Done::Skipped(how.to_owned()));
        }
        child.run().map(|()| Done::Ok)
    })
}

/// The API documentation, with every warning an error.
pub(crate) fn docs(steps: &mut Steps) -> Result<(), Stopped> {
    let child = Child::cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
    steps.run("docs", &child.to_string(), || {
        child.run()?;
        let folder = Workspace::read()?.target_directory;
        println!("    {folder}/doc/sluicegate/index.html");
        Ok(Done::Ok)
    })
}

/// The deterministic simulation.
pub(crate) fn sim(options: &SimOptions, steps: &mut Steps) -> Result<(), Stopped> {
    let mut child = Child::cargo("run -p sluicegate-sim --release --");
    for (name, value) in [("--seed", options.seed), ("--seeds", options.seeds)] {
        if let Some(value) = value {
            child = child.arg(name).arg(value.to_string());
        }
    }
    steps.run("sim", &child.to_string(), || {
        if Workspace::read()?.package("sluicegate-sim").is_none() {
            return Ok(Done::Skipped("the workspace has no package sluicegate-sim".to_owned()));
        }
        child.run().map(|()| Done::Ok)
    })
}

/// The checker of the event store.
pub(crate) fn check_store(options: &CheckStoreOptions, steps: &mut Steps) -> Result<(), Stopped> {
    let run = "run -p sluicegate-testkit --release --features check-store --bin check-store --";
    let mut child = Child::cargo(run);
    let number = |number: u64| number.to_string();
    for (name, value) in [
        ("--rounds", options.rounds.map(number)),
        ("--seed", options.seed.map(number)),
        ("--engine", options.engine.clone()),
        ("--scenario", options.scenario.clone()),
    ] {
        if let Some(value) = value {
            child = child.arg(name).arg(value);
        }
    }
    steps.child("check-store", &child)
}

/// One benchmark or all, with valgrind made ready first.
pub(crate) fn bench(options: &BenchOptions, steps: &mut Steps) -> Result<(), Stopped> {
    steps.run("bench needs", "cargo xtask bench", || {
        let target = Workspace::read()?.target_directory;
        let done = install::ensure(Policy::Install, &target, |n| n.users.contains(&User::Bench))?;
        Ok(match done {
            Done::Ok => Done::Ok,
            Done::Skipped(why) => Done::Skipped(format!("no callgrind counts: {why}")),
        })
    })?;
    // Both programs: what counts allocations is not run by cargo, but by the other one.
    steps.child("bench build", &Child::cargo("build -p sluicegate-bench --release"))?;
    let run = "run -p sluicegate-bench --bin sluicegate-bench --release --";
    let mut child = Child::cargo(run).args(options.name.clone());
    if options.quick {
        child = child.arg("--quick");
    }
    if let Some(path) = &options.json {
        let path = std::path::absolute(path).map_or(path.clone(), |p| p.display().to_string());
        child = child.arg("--json").arg(path);
    }
    let name = format!("bench {}", options.name.as_deref().unwrap_or("all"));
    steps.child(&name, &child)
}

/// A failure for a tree that was found at fault.
pub(crate) fn findings(count: usize, command: &str) -> Failure {
    let plural = if count == 1 { "finding" } else { "findings" };
    Failure::new(format!("{count} {plural}")).repeat_with(command)
}
