//! What an agent says in one turn.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::lines::{Lines, OverLimit};
use super::{ControlRequest, Dialect, MAX_OUTPUT, field};

/// Reads one turn.
#[derive(Debug)]
pub(crate) struct TurnReader {
    lines: Lines,
    /// All that was said, where the whole of it may be one document.
    whole: Option<String>,
    /// The last object without a type that may be a result: of an agent that knows no types.
    untyped: Option<Map<String, Value>>,
    has_output: bool,
    /// Whether any line had a type, or was an echo.
    understood: bool,
    /// Whether what has come after the last line was looked at.
    looked_at_rest: bool,
}

/// What a line means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// Something on the way to the result, to be passed on.
    Line(Arc<str>),
    /// An echo of what was asked.
    Echo,
    /// A question to us.
    Asks(ControlRequest),
    /// The result: the turn is over.
    Result(AgentResult),
}

/// What a turn came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentResult {
    pub(crate) reply: Value,
    /// Its words; `None` if it has no field with them.
    pub(crate) text: Option<String>,
    pub(crate) is_error: bool,
}

impl TurnReader {
    /// For a process that answers and ends, or for one that stays.
    pub(crate) fn new(ends: bool) -> Self {
        let (lines, whole) = (Lines::default(), ends.then(String::new));
        let (untyped, has_output, understood, looked_at_rest) = (None, false, false, false);
        Self { lines, whole, untyped, has_output, understood, looked_at_rest }
    }

    /// For a process that stays, after its result: what it says until the next turn is nobody's.
    pub(crate) fn after(mut self) -> Self {
        self.lines.begin();
        Self { whole: None, untyped: None, has_output: false, ..self }
    }

    /// Takes what a process says that nobody asked. `false` if it is a result, or more in all than may be said in a turn:
    /// whoever asks next could not tell what is the answer.
    pub(crate) fn overhear(&mut self, dialect: &Dialect, bytes: &[u8]) -> bool {
        if self.push(bytes).is_err() {
            return false;
        }
        while let Some(said) = self.next(dialect) {
            if matches!(said, Said::Result(_)) {
                return false;
            }
        }
        true
    }

    /// Whether a line was begun and not ended.
    pub(crate) fn has_rest(&self) -> bool {
        self.lines.has_rest()
    }

    /// Takes what the agent wrote.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), OverLimit> {
        self.looked_at_rest = false;
        self.lines.push(bytes, MAX_OUTPUT)
    }

    /// What it says next.
    pub(crate) fn next(&mut self, dialect: &Dialect) -> Option<Said> {
        let line = loop {
            let line = self.lines.next()?;
            if !line.is_empty() {
                break line;
            }
        };
        Some(self.meaning(dialect, line))
    }

    /// Whether it said anything of its own. Half a line counts: what it will be is not known.
    pub(crate) fn has_output(&self) -> bool {
        self.has_output || self.lines.has_rest()
    }

    /// Whether anything that it said was a line of the dialect.
    pub(crate) const fn understood(&self) -> bool {
        self.understood
    }

    /// What it said after its last line.
    pub(crate) fn unfinished(&mut self) -> String {
        self.lines.rest()
    }

    /// Whether what it said after its last line was not looked at, and may be whole.
    pub(crate) fn may_be_unended(&self) -> bool {
        !self.looked_at_rest && self.lines.rest_ends_with(b'}')
    }

    /// What it said after its last line, taken if that is a result already.
    pub(crate) fn unended_result(&mut self, dialect: &Dialect) -> Option<AgentResult> {
        self.looked_at_rest = true;
        let Ok(Value::Object(object)) = serde_json::from_str(&self.lines.unfinished()) else {
            return None;
        };
        let is_result = type_of(dialect, &object) == Some(&dialect.result_type)
            && field(&object, &dialect.replay_field) != Some(&Value::Bool(true));
        is_result.then(|| {
            self.lines.rest();
            result_of(dialect, object)
        })
    }

    /// The agent says no more: what it said last, or as a whole, may be the result. Says whether it is said to be one;
    /// otherwise it is one only if the agent ended in order. What it said is shown in an error as `shown` makes it.
    pub(crate) fn end(
        &mut self,
        dialect: &Dialect,
        shown: impl FnOnce(&str) -> String,
    ) -> Result<(AgentResult, bool), String> {
        let rest = self.lines.rest();
        if !rest.is_empty()
            && let Said::Result(result) = self.meaning(dialect, rest)
        {
            return Ok((result, true));
        }
        let untyped = self.untyped.take().map(|object| (result_of(dialect, object), false));
        let whole = self.whole.take().unwrap_or_default();
        if whole.is_empty() {
            return Err("it said nothing".to_owned());
        }
        let is_result = |value: &Value| match value {
            Value::Object(object) => type_of(dialect, object) == Some(&dialect.result_type),
            _ => false,
        };
        let none = || Err("none of what it said is a result".to_owned());
        match serde_json::from_str::<Value>(&whole) {
            Ok(value @ Value::Object(_)) if is_result(&value) => match value {
                Value::Object(object) => Ok((result_of(dialect, object), true)),
                _ => none(),
            },
            Ok(Value::Object(object)) if type_of(dialect, &object).is_some() => none(),
            Ok(Value::Object(object)) => Ok((result_of(dialect, object), false)),
            Ok(Value::Array(values)) => match values.into_iter().rfind(is_result) {
                Some(Value::Object(object)) => Ok((result_of(dialect, object), true)),
                _ => none(),
            },
            Ok(_) => Err("it is no JSON object".to_owned()),
            Err(_) => {
                untyped.ok_or_else(|| format!("it is no JSON: {}", beginning(&shown(&whole))))
            }
        }
    }

    fn meaning(&mut self, dialect: &Dialect, line: String) -> Said {
        if let Some(whole) = &mut self.whole {
            whole.push_str(&line);
            whole.push('\n');
        }
        let Ok(Value::Object(object)) = serde_json::from_str::<Value>(&line) else {
            self.has_output = true;
            return Said::Line(line.into());
        };
        if field(&object, &dialect.replay_field) == Some(&Value::Bool(true)) {
            self.understood = true;
            return Said::Echo;
        }
        self.has_output = true;
        self.understood |= type_of(dialect, &object).is_some();
        match type_of(dialect, &object) {
            Some(kind) if *kind == dialect.result_type => Said::Result(result_of(dialect, object)),
            Some(kind) if *kind == dialect.control_type => Said::Asks(asked(&object)),
            Some(_) => Said::Line(line.into()),
            None => {
                if self.whole.is_some() && result_of(dialect, object.clone()).says_something() {
                    self.untyped = Some(object);
                }
                Said::Line(line.into())
            }
        }
    }
}

fn type_of<'a>(dialect: &Dialect, object: &'a Map<String, Value>) -> Option<&'a str> {
    field(object, &dialect.type_field).and_then(Value::as_str)
}

fn asked(object: &Map<String, Value>) -> ControlRequest {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let request = field(object, "request").and_then(Value::as_object);
    ControlRequest {
        id: text(field(object, "request_id")),
        subtype: beginning(&text(request.and_then(|request| field(request, "subtype")))),
    }
}

fn result_of(dialect: &Dialect, object: Map<String, Value>) -> AgentResult {
    let mut text = match field(&object, &dialect.text_field) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    let mut is_error = field(&object, &dialect.error_field) == Some(&Value::Bool(true));
    // The CLI says so of a turn that came to nothing: `error_max_turns`, `error_during_execution`.
    let subtype = field(&object, "subtype").and_then(Value::as_str);
    if let (None, Some(subtype)) = (&text, subtype.filter(|subtype| subtype.starts_with("error"))) {
        (text, is_error) = (Some(subtype.to_owned()), true);
    }
    AgentResult { reply: Value::Object(object), text, is_error }
}

impl AgentResult {
    fn says_something(&self) -> bool {
        self.text.is_some() || self.is_error
    }
}

fn beginning(text: &str) -> String {
    let mut beginning: String = text.chars().take(80).collect();
    if beginning.len() < text.len() {
        beginning.push('…');
    }
    beginning.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ends: bool, text: &str) -> (Vec<Said>, TurnReader) {
        let (mut reader, dialect) = (TurnReader::new(ends), Dialect::default());
        reader.push(text.as_bytes()).unwrap();
        let said = std::iter::from_fn(|| reader.next(&dialect)).collect();
        (said, reader)
    }

    /// `docs/rules.md#agents-7`
    #[test]
    fn a_turn_of_the_cli() {
        let init = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
        let echo = r#"{"type":"user","isReplay":true,"message":{}}"#;
        let ask =
            r#"{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool"}}"#;
        let text = format!(
            "{init}\r\n\n{echo}\n{ask}\n{}\n",
            r#"{"type":"result","is_error":false,"result":"hi","total_cost_usd":0.1}"#
        );
        let (said, _) = all(false, &text);
        let asked = ControlRequest { id: "q".into(), subtype: "can_use_tool".into() };
        assert_eq!(said[..3], [Said::Line(init.into()), Said::Echo, Said::Asks(asked)]);
        let Said::Result(result) = &said[3] else { panic!("{said:?}") };
        assert_eq!((result.text.as_deref(), result.is_error), (Some("hi"), false));
        assert_eq!(result.reply["total_cost_usd"], 0.1);
    }

    /// `docs/rules.md#agents-7`
    #[test]
    fn an_echo_is_no_output_and_half_a_line_is() {
        let echo = "{\"type\":\"user\",\"is_replay\":true}\n";
        for (text, output) in [("", false), (echo, false), ("\n \n", false), ("{\"ty", true)] {
            assert_eq!(all(false, text).1.has_output(), output, "{text}");
        }
    }

    #[test]
    fn what_a_process_that_ended_came_to() {
        let cases = [
            (r#"{"type":"result","result":"a"}"#, Ok("a")),
            ("loading\n{\"result\":\"b\"}\n", Ok("b")),
            ("{\n  \"result\": \"c\"\n}\n", Ok("c")),
            (r#"[{"type":"system"},{"type":"result","result":"d"}]"#, Ok("d")),
            (r#"{"result": {"x": 1}}"#, Ok("{\"x\":1}")),
            (r#"{"isError": true}"#, Ok("none")),
            (r#"{"foo": 1}"#, Ok("none")),
            (r#"{"type":"result","answer":"x"}"#, Ok("none")),
            (r#"{"type":"result","subtype":"error_max_turns"}"#, Ok("error_max_turns")),
            ("{\n  \"result\": \"e\",\n  \"denials\": [\n    {}\n  ]\n}\n", Ok("e")),
            ("{\"result\":\"f\"}\n{\"note\":1}\n", Ok("f")),
            ("", Err("it said nothing")),
            ("hello", Err("it is no JSON: hello ")),
            (r#"{"type":"system"}"#, Err("none of what it said is a result")),
            ("[1]", Err("none of what it said is a result")),
            ("3", Err("it is no JSON object")),
        ];
        for (text, expected) in cases {
            let (said, mut reader) = all(true, text);
            let came_to = match said.last() {
                Some(Said::Result(result)) => Ok(result.clone()),
                _ => reader.end(&Dialect::default(), str::to_owned).map(|(result, _)| result),
            };
            let text = came_to.as_ref().map(|result| result.text.as_deref().unwrap_or("none"));
            assert_eq!(text.map_err(String::as_str), expected);
        }
    }

    #[test]
    fn lines_that_are_no_result_do_not_end_a_turn() {
        let (said, _) =
            all(false, "{\"type\":\"error\",\"message\":\"Reconnecting 1/5\"}\n{\"x\":1}\n");
        assert!(said.iter().all(|said| matches!(said, Said::Line(_))), "{said:?}");
    }
}
