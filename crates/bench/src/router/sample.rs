//! A typical message: a URL of 60 bytes, ids of 20, a token, a small payload.

use sluicegate_dispatch::{AuthToken, Message, Target};

/// The pool of all messages.
pub(crate) const POOL: &str = "ORDERS";

/// The message of that number, in that group.
pub(crate) fn message(number: u64, group: u64, url: &str) -> Message {
    Message {
        id: format!("msg-{number:016}").into(),
        pool: POOL.into(),
        group: Some(format!("customer-{group:011}").into()),
        tenant: None,
        high_priority: false,
        target: Target::parse(url).expect("it is a URL"),
        auth_token: Some(AuthToken::new("tok-0123456789abcdef")),
        payload: Some(format!(r#"{{"order":{number},"amount":"19.90"}}"#).into()),
        traceparent: None,
    }
}
