//! What it answers, and how.

use std::io::{self, StdoutLock, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::act::Answer;

/// Standard output.
pub(crate) struct Output {
    lines: StdoutLock<'static>,
    is_stream: bool,
    session: String,
}

impl Output {
    pub(crate) fn new(is_stream: bool, session: &str) -> Self {
        Self { lines: io::stdout().lock(), is_stream, session: session.to_owned() }
    }

    /// The first line of a stream.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        self.line("system", &[("subtype", "init"), ("model", "fake"), ("version", version)])
    }

    /// A line of a stream.
    pub(crate) fn line(&mut self, kind: &str, fields: &[(&str, &str)]) -> io::Result<()> {
        let mut line = Map::new();
        line.insert("type".to_owned(), kind.into());
        for (name, value) in fields {
            line.insert((*name).to_owned(), (*value).into());
        }
        line.insert("session_id".to_owned(), self.session.clone().into());
        if self.is_stream { self.put(&Value::Object(line)) } else { Ok(()) }
    }

    /// Asks for a permission, and waits for no answer.
    pub(crate) fn ask(&mut self) -> io::Result<()> {
        let tool =
            json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}});
        self.put(&json!({"type": "control_request", "request_id": "1", "request": tool}))
    }

    /// A line of the user's, said back.
    pub(crate) fn replay(&mut self, mut said: Value) -> io::Result<()> {
        said["isReplay"] = true.into();
        self.put(&said)
    }

    /// The last of a turn.
    pub(crate) fn answer(&mut self, answer: &Answer, turns: u64, took: Duration) -> io::Result<()> {
        if answer.is_no_json {
            return self.end_line("this is no JSON");
        }
        if self.is_stream && !answer.text.is_empty() {
            let content = json!([{"type": "text", "text": answer.text}]);
            let message = json!({"role": "assistant", "model": "fake", "content": content});
            let session = &self.session;
            let said = json!({"type": "assistant", "message": message, "session_id": session});
            self.put(&said)?;
        }
        let tokens = answer.text.split_whitespace().count();
        let result = json!({
            "type": "result",
            "subtype": if answer.is_error { "error_during_execution" } else { "success" },
            "is_error": answer.is_error,
            "result": answer.text,
            "session_id": self.session,
            "num_turns": turns,
            "duration_ms": took.as_millis() as u64,
            "total_cost_usd": 0.001,
            "usage": {"input_tokens": tokens, "output_tokens": tokens},
        });
        if answer.is_partial {
            let line = result.to_string();
            // It is ASCII up to there.
            self.lines.write_all(&line.as_bytes()[..40])?;
            self.lines.flush()?;
            std::process::exit(0);
        }
        self.put(&result)
    }

    /// For ever.
    pub(crate) fn flood(&mut self) -> io::Result<()> {
        let text = "x".repeat(1 << 10);
        loop {
            self.put(&json!({"type": "assistant", "message": {"content": text}}))?;
        }
    }

    fn put(&mut self, line: &Value) -> io::Result<()> {
        self.end_line(&line.to_string())
    }

    fn end_line(&mut self, line: &str) -> io::Result<()> {
        self.lines.write_all(line.as_bytes())?;
        self.lines.write_all(b"\n")?;
        self.lines.flush()
    }
}
