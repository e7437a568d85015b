//! How an agent is spoken to: JSON lines in, JSON lines out, and a result that ends the turn.
//!
//! Pure: it is fed bytes and says what they mean. Unknown lines are passed on; an echo of what was asked is no
//! output; what is missing is no error until the output ends.
//!
//! `docs/rules.md#agents-7`.

mod lines;
mod turn;

pub(crate) use turn::{AgentResult, Said, TurnReader};

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::settings::Wrong;

/// How many bytes an agent may write in one turn.
pub const MAX_OUTPUT: usize = 2 * 1024 * 1024;

/// The names of line types and fields: those of the Claude CLI, unless told.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialect {
    /// The field with the type of a line.
    type_field: String,
    /// The type of the line that ends a turn.
    result_type: String,
    /// The field of that line with the answer.
    text_field: String,
    /// The field of that line that says that the agent failed.
    error_field: String,
    /// The field that marks an echo of what was asked.
    replay_field: String,
    /// The type of a line that asks us for something.
    control_type: String,
    /// The line that asks the agent: `{prompt}` and `{session}` stand for what is asked, and where.
    input: Value,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            type_field: "type".to_owned(),
            result_type: "result".to_owned(),
            text_field: "result".to_owned(),
            error_field: "is_error".to_owned(),
            replay_field: "isReplay".to_owned(),
            control_type: "control_request".to_owned(),
            input: json!({
                "type": "user",
                "session_id": "{session}",
                "parent_tool_use_id": null,
                "message": {"role": "user", "content": "{prompt}"},
            }),
        }
    }
}

impl Dialect {
    /// The built-in dialect with other names, by key: `type_field`, `result_type`, `text_field`, `error_field`,
    /// `replay_field`, `control_type`, and `input`, a JSON text.
    ///
    /// # Errors
    /// Every key that is not known, and an `input` that is no JSON or has no `{prompt}`.
    pub fn with_names(names: &BTreeMap<String, String>) -> Result<Self, Vec<Wrong>> {
        let (mut dialect, mut wrongs) = (Self::default(), Vec::new());
        for (key, name) in names {
            let mut wrong =
                |message: &str| wrongs.push(Wrong::new(&format!("dialect.{key}"), message));
            let field = match key.as_str() {
                "type_field" => &mut dialect.type_field,
                "result_type" => &mut dialect.result_type,
                "text_field" => &mut dialect.text_field,
                "error_field" => &mut dialect.error_field,
                "replay_field" => &mut dialect.replay_field,
                "control_type" => &mut dialect.control_type,
                "input" => {
                    match serde_json::from_str(name) {
                        Ok(input) if has_prompt(&input) => dialect.input = input,
                        Ok(_) => wrong("has no {prompt}"),
                        Err(_) => wrong("is no JSON"),
                    }
                    continue;
                }
                _ => {
                    wrong(
                        "is not known; known are type_field, result_type, text_field, error_field, \
                         replay_field, control_type and input",
                    );
                    continue;
                }
            };
            field.clone_from(name);
        }
        if wrongs.is_empty() { Ok(dialect) } else { Err(wrongs) }
    }

    /// The line that asks the agent.
    pub(crate) fn prompt(&self, session: &str, prompt: &str) -> Vec<u8> {
        let mut line = filled(&self.input, session, prompt).to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Why a result is none that anybody can read.
    pub(crate) fn no_text(&self, reply: &Value) -> String {
        let said: String = reply.to_string().chars().take(80).collect();
        format!(
            "its result has no field `{}` (`dialect.text_field` names it): {said}",
            self.text_field
        )
    }

    /// The line that denies what an agent asks for.
    pub(crate) fn denial(&self, asked: &ControlRequest) -> Vec<u8> {
        let id = &asked.id;
        let response = if asked.subtype == "can_use_tool" {
            let denied = json!({"behavior": "deny", "message": DENIED});
            json!({"subtype": "success", "request_id": id, "response": denied})
        } else {
            json!({"subtype": "error", "request_id": id, "error": DENIED})
        };
        let mut line = json!({"type": "control_response", "response": response}).to_string();
        line.push('\n');
        line.into_bytes()
    }
}

const DENIED: &str = "Nobody is there to be asked.";

/// What an agent asks us for: a permission, say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlRequest {
    pub(crate) id: String,
    pub(crate) subtype: String,
}

/// What stands for what is asked.
const PROMPT: &str = "{prompt}";

/// Whether what is asked has a place in a template.
fn has_prompt(template: &Value) -> bool {
    match template {
        Value::String(text) => text.contains(PROMPT),
        Value::Array(values) => values.iter().any(has_prompt),
        Value::Object(fields) => fields.values().any(has_prompt),
        _ => false,
    }
}

fn filled(template: &Value, session: &str, prompt: &str) -> Value {
    match template {
        // What is asked may itself contain the word for the session.
        Value::String(text) => {
            let parts = text.split(PROMPT).map(|part| part.replace("{session}", session));
            Value::String(parts.collect::<Vec<_>>().join(prompt))
        }
        Value::Array(values) => values.iter().map(|value| filled(value, session, prompt)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), filled(value, session, prompt)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// A field by its name, in whatever case it is written: `session_id` is `sessionId`.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
    };
    object.get(name).or_else(|| {
        let name = plain(name);
        object.iter().find(|(written, _)| plain(written) == name).map(|(_, value)| value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_asks_is_the_clis() {
        let line = Dialect::default().prompt("s-1", "say \"{session}\"\nplease");
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["session_id"], "s-1");
        assert_eq!(line["message"]["content"], "say \"{session}\"\nplease");
        assert_eq!(line["type"], "user");
    }

    #[test]
    fn names_can_be_others() {
        let names = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, name)| ((*key).into(), (*name).into())).collect()
        };
        let dialect = Dialect::with_names(&names(&[("input", r#"{"ask": "{prompt}"}"#)])).unwrap();
        assert_eq!(dialect.prompt("s", "x"), b"{\"ask\":\"x\"}\n");
        let within = r#"{"ask": "In {session}, {prompt}: {prompt}!"}"#;
        let dialect = Dialect::with_names(&names(&[("input", within)])).unwrap();
        let line = dialect.prompt("s", "{session}");
        assert_eq!(line, b"{\"ask\":\"In s, {session}: {session}!\"}\n");
        let nowhere = ("input", r#"{"{prompt}": 1}"#);
        for (key, name) in [("input", "{}"), ("input", "{prompt}"), ("inputs", "x"), nowhere] {
            assert_eq!(Dialect::with_names(&names(&[(key, name)])).unwrap_err().len(), 1);
        }
    }
}
