//! A typical message: a URL of 60 bytes, ids of 20, a token, a small payload. Read from its JSON, as
//! every source reads it.

use sluicegate_dispatch::Message;
use sluicegate_sources::wire;

/// The pool of all messages.
pub(crate) const POOL: &str = "ORDERS";

/// The message of that number, in that group.
pub(crate) fn message(number: u64, group: u64, url: &str) -> Message {
    let body = format!(
        r#"{{"id":"msg-{number:016}","poolCode":"{POOL}","messageGroupId":"customer-{group:011}",
            "mediationTarget":"{url}","authToken":"tok-0123456789abcdef",
            "payload":{{"order":{number},"amount":"19.90"}}}}"#
    );
    wire::parse(body.as_bytes()).expect("it is a message").message
}
