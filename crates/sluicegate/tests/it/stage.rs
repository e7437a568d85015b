//! What the tests stand on: the binary, a folder for its files, and a daemon that runs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use http::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluicegate::server::fetch::{Ask, Fetch, Fetched};
use sluicegate::tasks::{Context, TaskGroup};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A folder of its own, in which commands are run.
pub(crate) struct Stage {
    folder: TempDir,
}

/// A daemon that serves. It is killed when it is dropped.
pub(crate) struct Daemon {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// All that it has said on standard error. A pipe that nobody empties would hold it up.
    errors: watch::Receiver<String>,
    /// What empties the pipe.
    _reading: TaskGroup,
    pub(crate) url: String,
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// A command in a folder, without the variables of whoever runs the tests.
fn command(program: &str, arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("TMPDIR", folder.join("tmp"));
    for variable in ["SLUICEGATE_URL", "SLUICEGATE_TOKEN", "RUST_LOG", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("tmp")).expect("a folder in it");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and gives its name.
    pub(crate) fn file<'a>(&self, name: &'a str, text: impl AsRef<[u8]>) -> &'a str {
        std::fs::write(self.path(name), text).expect("a file in a temporary folder");
        name
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, &[], b"")
    }

    /// The same with variables, and something on standard input.
    pub(crate) fn run_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
        input: &[u8],
    ) -> Ended {
        // What should have ended and has not is ended: the test says so, and goes on.
        let limited = [&["--kill-after=5", "100", BINARY], arguments].concat();
        let mut child = command("timeout", &limited, self.folder.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let mut stdin = child.stdin.take().expect("it is piped");
        // Who does not read its input closes it.
        stdin.write_all(input).ok();
        drop(stdin);
        child.wait_with_output().expect("it ends").into()
    }

    /// Starts `serve`, and waits for its line `listening on …`.
    pub(crate) async fn serve(&self, arguments: &[&str]) -> Daemon {
        self.serve_with(arguments, &[]).await
    }

    async fn serve_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Daemon {
        let mut daemon = self.launch_with(&[&["serve"], arguments].concat(), variables);
        let line = daemon.line().await;
        let Some(url) = line.strip_prefix("listening on ") else {
            panic!("{line:?}, and then: {}", daemon.errors().await)
        };
        daemon.url = url.to_owned();
        daemon
    }

    /// The same, when it has begun: all of it, or but for queues that are not open.
    pub(crate) async fn ready(&self, arguments: &[&str]) -> Daemon {
        let mut daemon = self.serve(arguments).await;
        daemon.says_ready().await;
        daemon
    }

    /// The same of a daemon that speaks JSON.
    pub(crate) async fn serve_json(&self, arguments: &[&str]) -> Daemon {
        let daemon = self.launch(&[&["serve"], arguments].concat());
        daemon.speaks_json().await
    }

    /// The same of one whose files can be kept from growing: it then fails to write, and is not killed.
    pub(crate) async fn serve_limited(&self, arguments: &[&str]) -> Daemon {
        let script = format!("trap '' XFSZ; exec {BINARY} serve \"$@\"");
        let daemon = self.launch_as("sh", &[&["-c", &script, "sh"], arguments].concat(), &[]);
        daemon.speaks_json().await
    }

    /// The same with variables.
    pub(crate) async fn ready_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Daemon {
        let mut daemon = self.serve_with(arguments, variables).await;
        daemon.says_ready().await;
        daemon
    }

    /// Starts a command.
    pub(crate) fn launch(&self, arguments: &[&str]) -> Daemon {
        self.launch_with(arguments, &[])
    }

    fn launch_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Daemon {
        self.launch_as(BINARY, arguments, variables)
    }

    fn launch_as(&self, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Daemon {
        let mut child =
            tokio::process::Command::from(command(program, arguments, self.folder.path()))
                .envs(variables.iter().copied())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .expect("the binary was built for this test");
        let stdout = child.stdout.take().expect("it is piped");
        let (reading, errors) = read(child.stderr.take().expect("it is piped"));
        let lines = BufReader::new(stdout).lines();
        Daemon { child, lines, errors, _reading: reading, url: String::new() }
    }
}

impl Daemon {
    /// The next line that it prints; nothing when it has ended.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time");
        line.expect("lines of UTF-8").unwrap_or_default()
    }

    async fn says_ready(&mut self) {
        let line = self.line().await;
        assert!(line == "ready" || line.starts_with("ready, but for: "), "{line}");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it has not been waited for");
        kill(Pid::from_raw(id.cast_signed()), signal).expect("it runs");
    }

    /// Kills it, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Waits until it ends by itself; gives its code and what it said on standard error.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        let errors = self.errors().await;
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends in time");
        (status.expect("it is our child").code(), errors)
    }

    /// Ends it as a system would.
    pub(crate) async fn terminated(self) -> (Option<i32>, String) {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// All that it says on standard error, to its end.
    async fn errors(&mut self) -> String {
        let end = async { while self.errors.changed().await.is_ok() {} };
        timeout(PATIENCE, end).await.expect("it ends in time");
        self.errors.borrow().clone()
    }

    /// Waits until it has said something on standard error.
    pub(crate) async fn says(&mut self, words: &str) {
        let said = timeout(PATIENCE, self.errors.wait_for(|said| said.contains(words))).await;
        let said = said.map(|said| said.is_ok());
        assert_eq!(said, Ok(true), "{words:?} was not said: {}", *self.errors.borrow());
    }

    /// Waits until one that speaks JSON has begun.
    async fn speaks_json(mut self) -> Self {
        let mut said = async || -> serde_json::Value {
            serde_json::from_str(&self.line().await).expect("a line of JSON")
        };
        let (listens, ready) = (said().await, said().await);
        assert_eq!(ready["message"], "ready");
        self.url = listens["url"].as_str().expect("a URL").to_owned();
        self
    }

    /// Keeps its files from growing beyond so many bytes.
    pub(crate) fn limit_files(&self, bytes: u64) {
        let id = self.child.id().expect("it has not been waited for");
        let limit = if bytes == u64::MAX { "unlimited".to_owned() } else { bytes.to_string() };
        let arguments = [format!("--pid={id}"), format!("--fsize={limit}:")];
        let set = Command::new("prlimit").args(arguments).status().expect("prlimit is there");
        assert!(set.success(), "{set}");
    }

    /// `GET` with a token.
    pub(crate) async fn get_with(&self, path: &str, token: &str) -> Fetched {
        self.ask(&format!("GET {path}"), "", token).await
    }

    /// Any request with a token.
    pub(crate) async fn ask(&self, line: &str, body: &str, token: &str) -> Fetched {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let ask = Ask {
            method: method.parse().expect("a method"),
            token: Some(token.to_owned()),
            body: (!body.is_empty()).then(|| body.to_owned().into()),
            ..Ask::get(PATIENCE, 1 << 24)
        };
        Fetch::new().ask(&format!("{}{path}", self.url), ask).await.expect("it answers")
    }

    /// `POST` of JSON.
    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> Fetched {
        let body = Some(body.to_string().into());
        let ask = Ask { method: Method::POST, body, ..Ask::get(PATIENCE, 1 << 24) };
        Fetch::new().ask(&format!("{}{path}", self.url), ask).await.expect("it answers")
    }

    pub(crate) async fn get(&self, path: &str) -> Fetched {
        let ask = Ask::get(PATIENCE, 1 << 24);
        Fetch::new().ask(&format!("{}{path}", self.url), ask).await.expect("it answers")
    }
}

/// Reads all of it, as it comes.
fn read(mut stderr: ChildStderr) -> (TaskGroup, watch::Receiver<String>) {
    let (sender, receiver) = watch::channel(String::new());
    let group = TaskGroup::new("stderr", 1).expect("a name and a limit");
    let reading = group.try_submit(Context::new(), |cx| async move {
        let mut buffer = [0; 4096];
        while let Ok(Ok(count @ 1..)) = cx.until_interrupted(stderr.read(&mut buffer)).await {
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            sender.send_modify(|all| all.push_str(&text));
        }
    });
    drop(reading.expect("the first task is let in"));
    (group, receiver)
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Ended {
    /// Checks the code, and that these words were said, on whichever of the two.
    #[track_caller]
    pub(crate) fn check(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for words in words {
            let said = self.stdout.contains(words) || self.stderr.contains(words);
            assert!(said, "{words:?} was not said: {self:?}");
        }
        self
    }
}

/// A message for a target.
pub(crate) fn message(id: &str, group: &str, target: &str) -> String {
    serde_json::json!({
        "id": id, "poolCode": "TEST", "messageGroupId": group, "mediationTarget": target,
    })
    .to_string()
}
