//! A message as JSON again: whole to store it, or without its token to show it.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sluicegate_dispatch::Message;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rendered<'a> {
    id: &'a str,
    pool_code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
    mediation_type: &'static str,
    mediation_target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group_id: Option<&'a str>,
    high_priority: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "is_zero")]
    delay_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}

/// The message as it goes on the wire, with its token: for storing and sending, never for showing. A
/// part of a second in the delay counts as a whole one.
#[must_use]
pub fn render(message: &Message, delay: Duration) -> String {
    let token = message.auth_token.as_ref().map(|token| token.expose());
    let seconds = delay.as_secs().saturating_add(u64::from(delay.subsec_nanos() > 0));
    serde_json::to_string(&rendered(message, token, seconds)).expect("texts and JSON are JSON")
}

/// The message without its token.
#[must_use]
pub fn shown(message: &Message) -> Value {
    serde_json::to_value(rendered(message, None, 0)).expect("texts and JSON are JSON")
}

fn rendered<'a>(message: &'a Message, token: Option<&'a str>, delay: u64) -> Rendered<'a> {
    Rendered {
        id: &message.id,
        pool_code: &message.pool,
        auth_token: token,
        mediation_type: "HTTP",
        mediation_target: message.target.url(),
        message_group_id: message.group.as_deref(),
        high_priority: message.high_priority,
        tenant: message.tenant.as_deref(),
        payload: message.payload.as_deref().and_then(|payload| serde_json::from_str(payload).ok()),
        delay_seconds: delay,
        traceparent: message.traceparent.as_deref(),
    }
}
