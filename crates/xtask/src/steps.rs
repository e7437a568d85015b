//! A command is a row of named steps: each announced, timed, and listed in a closing table.
//!
//! 1. The first failure ends the row; the steps after it do not run.
//! 2. A failure always comes with the command that repeats the failed step alone.

use std::fmt;
use std::time::{Duration, Instant};

/// How a step ended when it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Done {
    /// It ran.
    Ok,
    /// It could not apply here, and why.
    Skipped(String),
}

/// Why a step failed, and how to run it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) why: String,
    pub(crate) repeat: Option<String>,
}

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Failure {
        Failure { why: why.into(), repeat: None }
    }

    /// Names the command that repeats the failed work.
    pub(crate) fn repeat_with(mut self, command: impl fmt::Display) -> Failure {
        self.repeat = Some(command.to_string());
        self
    }
}

/// The steps run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    took: Duration,
    result: Result<Done, Failure>,
}

/// A step failed; the details are in the table.
#[derive(Debug)]
pub(crate) struct Stopped;

impl Steps {
    /// Announces, runs and records one step. `repeat` is the command for a failure that names none.
    pub(crate) fn run(
        &mut self,
        name: &str,
        repeat: &str,
        work: impl FnOnce() -> Result<Done, Failure>,
    ) -> Result<(), Stopped> {
        println!("==> {name}");
        let begun = Instant::now();
        let result = work().map_err(|mut failure| {
            failure.repeat.get_or_insert_with(|| repeat.to_owned());
            failure
        });
        if let Ok(Done::Skipped(why)) = &result {
            println!("skipped: {why}");
        }
        let stopped = result.is_err();
        self.rows.push(Row { name: name.to_owned(), took: begun.elapsed(), result });
        if stopped { Err(Stopped) } else { Ok(()) }
    }

    /// The same for a step that is one child process.
    pub(crate) fn child(&mut self, name: &str, child: &crate::child::Child) -> Result<(), Stopped> {
        let line = child.to_string();
        self.run(name, &line, || {
            println!("    {line}");
            child.run().map(|()| Done::Ok)
        })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
        writeln!(f, "{:width$}  seconds  result", "step")?;
        for row in &self.rows {
            let result = match &row.result {
                Ok(Done::Ok) => "ok",
                Ok(Done::Skipped(_)) => "skipped",
                Err(_) => "FAILED",
            };
            let seconds = row.took.as_secs_f64();
            writeln!(f, "{:width$}  {seconds:7.1}  {result}", row.name)?;
        }
        for row in &self.rows {
            match &row.result {
                Ok(Done::Ok) => {}
                Ok(Done::Skipped(why)) => writeln!(f, "{} was skipped: {why}", row.name)?,
                Err(failure) => {
                    writeln!(f, "\n{} failed: {}", row.name, failure.why)?;
                    if let Some(repeat) = &failure.repeat {
                        writeln!(f, "repeat it with: {repeat}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Done, Failure, Steps};

    #[test]
    fn the_table_names_each_step_and_how_to_repeat_the_failed_one() {
        let mut steps = Steps::default();
        assert!(steps.run("first", "do first", || Ok(Done::Ok)).is_ok());
        let skip = || Ok(Done::Skipped("nothing to do".to_owned()));
        assert!(steps.run("second", "do second", skip).is_ok());
        let fail = || Err(Failure::new("it broke"));
        assert!(steps.run("third", "do third", fail).is_err());
        let table = steps.to_string();
        for line in [
            "step    seconds  result",
            "first       0.0  ok",
            "second      0.0  skipped",
            "third       0.0  FAILED",
            "second was skipped: nothing to do",
            "third failed: it broke",
            "repeat it with: do third",
        ] {
            assert!(table.lines().any(|l| l == line), "no line {line:?} in:\n{table}");
        }
    }

    #[test]
    fn a_failure_that_names_its_own_command_keeps_it() {
        let mut steps = Steps::default();
        let fail = || Err(Failure::new("it broke").repeat_with("exactly this"));
        assert!(steps.run("step", "the whole step", fail).is_err());
        assert!(steps.to_string().contains("repeat it with: exactly this"));
    }
}
