//! Agents without processes: a [`Spawner`] whose programs do what their prompts say, in whatever time the runtime has.
//!
//! A prompt is a list of words, done one after the other; then comes the result, unless something else was the end.
//!
//! | word | does |
//! |---|---|
//! | `work:MS` | takes so long |
//! | `say`, `echo`, `ask` | writes a line; one that repeats what was asked; one that asks us, and waits for the answer |
//! | `crash`, `segv`, `quiet`, `noise` | ends with code 1; by a signal; with code 0 and nothing said; with no JSON |
//! | `hang`, `flood`, `error` | never goes on; writes 3 MiB; the result says that it failed |
//! | `stubborn` | heeds no request to end |
//! | `stay` | does not end after its result |
//! | `again:MS`, `ends:MS` | says its result once more, so long after it; ends then, with code 1 |
//! | `children` | leaves processes behind |
//! | `unheard` | nobody is told that it is gone |
//! | `unended` | its result has no end of a line |
//! | `eat:MB` | uses so much memory |
//!
//! A program with `--stay` among its arguments has many turns, one for each line; others have one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluicegate_executors::process::{
    Exit, NotRead, Program, SpawnError, Spawner, Tree, TreeSignal,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::BoxFuture;

/// Starts scripted programs, and remembers what they did.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    entries: Vec<Entry>,
    programs: u32,
    spawn_delay: Duration,
}

/// Something that a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Instant,
    /// Which program.
    pub pid: u32,
    /// What.
    pub what: Did,
}

/// What a program did, or what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Did {
    Spawned { arguments: Vec<String>, environment: Vec<String> },
    Asked { session: String, prompt: String },
    Answered { prompt: String },
    Denied,
    Terminated,
    Killed,
    Exited(Exit),
    Gone,
}

impl Scripted {
    /// Without programs yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long it takes to start a program.
    pub fn set_spawn_delay(&self, delay: Duration) {
        self.log.lock().spawn_delay = delay;
    }

    /// How many still have it: this, its clones, and its programs.
    #[must_use]
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.log)
    }

    /// What happened so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<Entry> {
        let mut entries = self.log.lock().entries.clone();
        entries.sort_by_key(|entry| entry.at);
        entries
    }
}

impl Spawner for Scripted {
    fn spawn(&self, program: Program) -> BoxFuture<'_, Result<Box<dyn Tree>, SpawnError>> {
        Box::pin(async move {
            let delay = self.log.lock().spawn_delay;
            sleep(delay).await;
            let command = program.command.to_string_lossy().into_owned();
            if command == "missing" {
                return Err(SpawnError { cause: format!("{command}: not found") });
            }
            let arguments: Vec<String> =
                program.arguments.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
            let environment = program
                .environment
                .keys()
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            let pid = {
                let mut log = self.log.lock();
                log.programs += 1;
                log.programs
            };
            let mut state = State::new(&arguments, pid, Arc::clone(&self.log));
            state.limit = program.memory_limit;
            state.note(Instant::now(), Did::Spawned { arguments, environment });
            let tree = ScriptedTree { pid, state: Mutex::new(state), changed: Notify::new() };
            tree.change(State::begin);
            Ok(Box::new(tree) as Box<dyn Tree>)
        })
    }
}

struct ScriptedTree {
    pid: u32,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    pid: u32,
    log: Arc<Mutex<Log>>,
    stays: bool,
    session: String,
    argument: Option<String>,
    input: Vec<u8>,
    input_ended: bool,
    /// What it will do, each so long after the one before.
    steps: VecDeque<(Duration, Step)>,
    at: Instant,
    output: VecDeque<Bytes>,
    exited: Option<Exit>,
    gone: bool,
    stubborn: bool,
    children: bool,
    unheard: bool,
    memory: u64,
    /// Above it, it is killed.
    limit: Option<u64>,
}

enum Step {
    Out(Bytes),
    Answer { prompt: String, line: Bytes },
    AwaitDenial,
    Stubborn,
    Children,
    Unheard,
    Memory(u64),
    Hang,
    Exit(Exit),
}

impl State {
    fn new(arguments: &[String], pid: u32, log: Arc<Mutex<Log>>) -> Self {
        let after = |names: [&str; 2]| {
            let at = arguments.iter().position(|argument| names.contains(&argument.as_str()))?;
            arguments.get(at + 1).cloned()
        };
        Self {
            pid,
            log,
            stays: arguments.iter().any(|argument| argument == "--stay"),
            session: after(["--session-id", "--resume"]).unwrap_or_default(),
            argument: after(["--prompt", "-P"]),
            input: Vec::new(),
            input_ended: false,
            steps: VecDeque::new(),
            at: Instant::now(),
            output: VecDeque::new(),
            exited: None,
            gone: false,
            stubborn: false,
            children: false,
            unheard: false,
            memory: 300 * 1024 * 1024,
            limit: None,
        }
    }

    fn note(&self, at: Instant, what: Did) {
        self.log.lock().entries.push(Entry { at, pid: self.pid, what });
    }

    fn begin(&mut self) {
        if let Some(prompt) = self.argument.take() {
            self.asked(&prompt);
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: Instant) {
        while let Some((after, step)) = self.steps.front() {
            let due = self.at + *after;
            let waits = matches!(step, Step::AwaitDenial | Step::Hang);
            if due > now || waits || self.exited.is_some() {
                return;
            }
            let Some((_, step)) = self.steps.pop_front() else { return };
            self.at = due;
            match step {
                Step::Out(bytes) => self.output.push_back(bytes),
                Step::Answer { prompt, line } => {
                    self.note(due, Did::Answered { prompt });
                    self.output.push_back(line);
                }
                Step::Stubborn => self.stubborn = true,
                Step::Children => self.children = true,
                Step::Unheard => self.unheard = true,
                Step::Memory(bytes) => {
                    self.memory = bytes;
                    if self.limit.is_some_and(|limit| bytes > limit) {
                        self.exit(due, Exit::Signal(9));
                    }
                }
                Step::Exit(exit) => self.exit(due, exit),
                Step::AwaitDenial | Step::Hang => {}
            }
        }
    }

    fn exit(&mut self, at: Instant, exit: Exit) {
        if self.exited.is_none() {
            self.exited = Some(exit);
            self.note(at, Did::Exited(exit));
            if !self.children {
                self.go(at);
            }
        }
    }

    fn go(&mut self, at: Instant) {
        if !self.gone {
            self.gone = true;
            self.note(at, Did::Gone);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let (after, step) = self.steps.front()?;
        let waits = matches!(step, Step::AwaitDenial | Step::Hang);
        (!waits && self.exited.is_none()).then(|| self.at + *after)
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), NotRead> {
        if self.exited.is_some() || self.input_ended {
            return Err(NotRead);
        }
        self.input.extend_from_slice(bytes);
        while self.stays
            && let Some(end) = self.input.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            self.heard(&line);
        }
        Ok(())
    }

    fn heard(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return };
        if line["type"] == "control_response" {
            if let Some((_, Step::AwaitDenial)) = self.steps.front() {
                self.steps.pop_front();
                self.at = Instant::now();
                self.note(self.at, Did::Denied);
            }
            return;
        }
        if self.session.is_empty() {
            self.session = line["session_id"].as_str().unwrap_or_default().to_owned();
        }
        let prompt = line["message"]["content"].as_str().unwrap_or_default().to_owned();
        self.asked(&prompt);
    }

    /// Plans what a prompt says.
    fn asked(&mut self, prompt: &str) {
        self.at = Instant::now();
        let session = self.session.clone();
        self.note(self.at, Did::Asked { session: session.clone(), prompt: prompt.to_owned() });
        let (mut after, mut is_error, mut stays) = (Duration::ZERO, false, self.stays);
        let (mut again, mut ends, mut is_unended) = (None, None, false);
        for word in prompt.split_whitespace() {
            let (verb, number) = word.split_once(':').unwrap_or((word, ""));
            let number: u64 = number.parse().unwrap_or(0);
            let span = Duration::from_millis(number);
            match verb {
                "work" => after += span,
                "error" => is_error = true,
                "stay" => stays = true,
                "unended" => is_unended = true,
                "again" => again = Some(span),
                "ends" => ends = Some(span),
                _ => {
                    for step in steps_of(word, verb, number) {
                        self.steps.push_back((std::mem::take(&mut after), step));
                    }
                }
            }
        }
        let result = json!({
            "type": "result", "is_error": is_error, "result": prompt, "session_id": session,
        });
        let mut result = line(result);
        result.truncate(result.len() - usize::from(is_unended));
        let answer = Step::Answer { prompt: prompt.to_owned(), line: result.clone() };
        self.steps.push_back((after, answer));
        self.steps.extend(again.map(|after| (after, Step::Out(result))));
        self.steps.extend(ends.map(|after| (after, Step::Exit(Exit::Code(1)))));
        if !stays {
            self.steps.push_back((Duration::ZERO, Step::Exit(Exit::Code(0))));
        }
    }
}

/// What an agent does for a word of its prompt; nothing for one that it does not know.
fn steps_of(word: &str, verb: &str, number: u64) -> Vec<Step> {
    match verb {
        "say" => {
            vec![Step::Out(line(json!({"type": "assistant", "message": {"content": word}})))]
        }
        "echo" => vec![Step::Out(line(json!({"type": "user", "isReplay": true})))],
        "ask" => {
            let request = json!({"subtype": "can_use_tool", "tool_name": "Bash"});
            let asks = json!({"type": "control_request", "request_id": "q1", "request": request});
            vec![Step::Out(line(asks)), Step::AwaitDenial]
        }
        "crash" => vec![Step::Exit(Exit::Code(1))],
        "segv" => vec![Step::Exit(Exit::Signal(11))],
        "quiet" => vec![Step::Exit(Exit::Code(0))],
        "noise" => {
            let noise = Step::Out(Bytes::from_static(b"no JSON\n"));
            vec![noise, Step::Exit(Exit::Code(0))]
        }
        "flood" => vec![Step::Out(Bytes::from(vec![b'x'; 3 * 1024 * 1024]))],
        "hang" => vec![Step::Hang],
        "stubborn" => vec![Step::Stubborn],
        "children" => vec![Step::Children],
        "unheard" => vec![Step::Unheard],
        "eat" => vec![Step::Memory(number * 1024 * 1024)],
        _ => Vec::new(),
    }
}

fn line(value: Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

impl ScriptedTree {
    fn change<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let done = {
            let mut state = self.state.lock();
            state.advance(Instant::now());
            let done = work(&mut state);
            state.advance(Instant::now());
            done
        };
        self.changed.notify_waiters();
        done
    }

    async fn until<T>(&self, mut is_so: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let due = {
                let mut state = self.state.lock();
                state.advance(Instant::now());
                if let Some(found) = is_so(&mut state) {
                    return found;
                }
                state.next_due()
            };
            let due = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = due => {}
            }
        }
    }
}

impl Tree for ScriptedTree {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), NotRead>> {
        // Like a real one: nothing goes out before somebody waits for it.
        Box::pin(async move { self.change(|state| state.hear(&bytes)) })
    }

    fn close_input(&self) {
        self.change(|state| {
            if std::mem::replace(&mut state.input_ended, true) || state.exited.is_some() {
                return;
            }
            if state.stays && !state.stubborn {
                state.steps.clear();
                state.exit(Instant::now(), Exit::Code(0));
            } else if !state.input.is_empty() {
                let prompt =
                    String::from_utf8_lossy(&std::mem::take(&mut state.input)).into_owned();
                state.asked(&prompt);
            }
        });
    }

    fn read(&self) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(self.until(|state| match state.output.pop_front() {
            Some(bytes) => Some(Some(bytes)),
            None => state.exited.map(|_| None),
        }))
    }

    fn errors_as(&self, shown: &dyn Fn(&str, bool) -> String) -> String {
        shown("on the error stream: top-secret-key", false)
    }

    fn memory(&self) -> u64 {
        let mut state = self.state.lock();
        state.advance(Instant::now());
        if state.gone { 0 } else { state.memory }
    }

    fn is_killed_for_memory(&self) -> bool {
        let mut state = self.state.lock();
        state.advance(Instant::now());
        state.limit.is_some_and(|limit| state.memory > limit)
    }

    fn signal(&self, signal: TreeSignal) {
        self.change(|state| {
            let now = Instant::now();
            if state.gone {
                return;
            }
            match signal {
                TreeSignal::Terminate => {
                    state.note(now, Did::Terminated);
                    if !state.stubborn {
                        state.steps.clear();
                        state.exit(now, Exit::Signal(15));
                    }
                }
                TreeSignal::Kill => {
                    state.note(now, Did::Killed);
                    state.steps.clear();
                    state.exit(now, Exit::Signal(9));
                    state.go(now);
                }
            }
        });
    }

    fn exit(&self) -> BoxFuture<'_, Exit> {
        Box::pin(self.until(|state| state.exited))
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.until(|state| (state.gone && !state.unheard).then_some(())))
    }
}

/// As the seam asks for: what is dropped is killed.
impl Drop for ScriptedTree {
    fn drop(&mut self) {
        self.signal(TreeSignal::Kill);
    }
}
