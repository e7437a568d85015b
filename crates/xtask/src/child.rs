//! Child processes: built as data, shown as the line a person would type, run with their output
//! streaming through.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::steps::Failure;

/// A command to run from the workspace's root.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Child {
    pub(crate) fn new(program: &str) -> Child {
        Child { program: program.to_owned(), arguments: Vec::new(), variables: Vec::new() }
    }

    /// A cargo command: the arguments are split at spaces.
    pub(crate) fn cargo(arguments: &str) -> Child {
        Child::new("cargo").args(arguments.split_whitespace())
    }

    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Child {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn args<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Child {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Child {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Runs it to its end; anything but success is a failure that names the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let status = self.command().status().map_err(|e| self.not_started(&e))?;
        self.judge(status)
    }

    /// As [`Child::run`], but ends the child when the time is over.
    ///
    /// `cargo run` replaces itself by the program, so the child's id is the program's.
    pub(crate) fn run_within(&self, limit: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut child = self.command().spawn().map_err(|e| self.not_started(&e))?;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| self.not_started(&e))? {
                return self.judge(status);
            }
            if begun.elapsed() >= limit {
                let ended = child.kill().and_then(|()| child.wait());
                let why = match ended {
                    Ok(_) => format!("`{self}` ran longer than {} s", limit.as_secs()),
                    Err(e) => format!("`{self}` ran too long and could not be ended: {e}"),
                };
                return Err(Failure::new(why).repeat_with(self));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// As [`Child::run`], and hands every line of standard output to `look` as well.
    pub(crate) fn run_watched(&self, mut look: impl FnMut(&str)) -> Result<(), Failure> {
        let mut child =
            self.command().stdout(Stdio::piped()).spawn().map_err(|e| self.not_started(&e))?;
        if let Some(output) = child.stdout.take() {
            let mut ours = std::io::stdout();
            for line in BufReader::new(output).lines() {
                let line = line.map_err(|e| self.not_started(&e))?;
                writeln!(ours, "{line}").map_err(|e| self.not_started(&e))?;
                look(&line);
            }
        }
        let status = child.wait().map_err(|e| self.not_started(&e))?;
        self.judge(status)
    }

    /// Runs it silently and returns what it wrote to standard output.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Failure> {
        let output =
            self.command().stderr(Stdio::inherit()).output().map_err(|e| self.not_started(&e))?;
        self.judge(output.status)?;
        Ok(output.stdout)
    }

    /// Runs it silently and tells whether it succeeded.
    pub(crate) fn succeeds(&self) -> bool {
        self.command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        // Cargo tells its children which cargo they run under: stay with that one.
        let own_cargo = (self.program == "cargo").then(|| std::env::var_os("CARGO"));
        let program = own_cargo.flatten().unwrap_or_else(|| self.program.clone().into());
        let mut command = Command::new(program);
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(root())
            .stdin(Stdio::null());
        command
    }

    fn judge(&self, status: ExitStatus) -> Result<(), Failure> {
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!("`{self}` ended with {status}")).repeat_with(self))
    }

    fn not_started(&self, error: &std::io::Error) -> Failure {
        Failure::new(format!("`{self}` could not be run: {error}")).repeat_with(self)
    }
}

impl fmt::Display for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// The workspace's root: cargo names the running package's folder, and that is two below it.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.ancestors().nth(2).map_or(package.clone(), PathBuf::from)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::Child;
    use std::time::Duration;

    #[test]
    fn a_child_is_shown_as_a_line_that_can_be_typed() {
        let cases = [
            (Child::cargo("fmt --check"), "cargo fmt --check"),
            (
                Child::cargo("doc").env("RUSTDOCFLAGS", "-D warnings"),
                "RUSTDOCFLAGS='-D warnings' cargo doc",
            ),
            (Child::new("echo").arg("it's"), r"echo 'it'\''s'"),
            (Child::new("echo").arg(""), "echo ''"),
        ];
        for (child, line) in cases {
            assert_eq!(child.to_string(), line);
        }
    }

    #[test]
    fn failure_names_the_command_to_repeat() {
        let failure = Child::new("false").run().unwrap_err();
        assert_eq!(failure.repeat.as_deref(), Some("false"));
        assert!(Child::new("true").run().is_ok());
        assert!(Child::new("no-such-program-anywhere").run().is_err());
    }

    #[test]
    fn a_child_that_overruns_is_ended() {
        let sleeper = Child::new("sleep").arg("60");
        let failure = sleeper.run_within(Duration::from_millis(100)).unwrap_err();
        assert!(failure.why.contains("ran longer"), "{}", failure.why);
        assert!(Child::new("true").run_within(Duration::from_secs(10)).is_ok());
    }

    #[test]
    fn watched_lines_arrive() {
        let mut seen = Vec::new();
        let child = Child::new("printf").arg("one\\ntwo\\n");
        child.run_watched(|line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["one", "two"]);
    }
}
