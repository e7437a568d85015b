//! What a server says when it does not do what it was asked for.

use http::StatusCode;
use serde_json::Value;
use sluicegate::server::fetch::Fetched;

use crate::exit::Failure;
use crate::screen::plain;

/// An answer that is no success.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: Option<String>,
    /// In words; never empty.
    pub(crate) detail: String,
    /// Everything the answer has, for those who know more of it.
    pub(crate) body: Value,
}

impl Problem {
    /// Reads an answer.
    pub(crate) fn of(fetched: &Fetched) -> Self {
        let status = fetched.status;
        let body: Value = serde_json::from_slice(&fetched.body).unwrap_or_default();
        let text = |name: &str| body[name].as_str().filter(|text| !text.is_empty());
        let detail = text("detail").or_else(|| text("title")).map_or_else(
            || format!("the server answered {status}"),
            |words| words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        );
        let code = text("code").map(str::to_owned);
        let detail = match text("field").map(plain) {
            Some(field) if !detail.contains(&field) => format!("{field}: {detail}"),
            _ => detail,
        };
        Self { status, code, detail, body }
    }

    /// `code: detail`.
    pub(crate) fn words(&self) -> String {
        match &self.code {
            Some(code) => format!("{code}: {}", self.detail),
            None => self.detail.clone(),
        }
    }

    /// As the end of a command.
    pub(crate) fn failure(&self) -> Failure {
        let words = self.words();
        match self.status {
            StatusCode::UNAUTHORIZED => Failure::failed(format!(
                "{words}\nGive the server's token with --token or SLUICEGATE_TOKEN."
            )),
            StatusCode::FORBIDDEN => Failure::failed(format!(
                "{words}\nGive a token that may do this with --token or SLUICEGATE_TOKEN."
            )),
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => Failure::bad_input(words),
            // A name that was given, and is none.
            StatusCode::NOT_FOUND
                if matches!(
                    self.code.as_deref(),
                    Some("unknown_pool" | "unknown_queue" | "unknown_worker")
                ) =>
            {
                Failure::bad_input(words)
            }
            _ => Failure::failed(words),
        }
    }
}
