//! Which facts a person should hear of: the paper's table, as a table.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_dispatch::{
    Fact, Message, ParkedCode, Severity, Target, typed_argument, typed_option,
};
use sluicegate_sources::nearest;
use sluicegate_sources::wire::FIELDS;

use super::{Code, Raised, Warnings};

/// What to warn of when something happens, if of anything.
#[must_use]
pub fn warning_for(fact: &Fact<'_>) -> Option<Raised> {
    let raised = match *fact {
        Fact::UnknownPool { code, .. } => Raised::new(
            Code::Routing,
            Severity::Warning,
            code.clone(),
            format!(
                "there is no pool {:?}: router.unknown_pool says what becomes of its messages",
                cut(code)
            ),
        ),
        Fact::UnknownField { queue, field, .. } => unknown_field(queue, &plain(field)),
        Fact::PoolFull { pool, count } => Raised::new(
            Code::QueueFull,
            Severity::Warning,
            pool.clone(),
            format!("pool {pool} has no room: {count} messages of a batch went back"),
        ),
        Fact::WindowFull { queue, pool, waiting } => Raised::new(
            Code::QueueFull,
            Severity::Warning,
            pool.clone(),
            format!(
                "pool {pool} has no room, and {waiting} messages that were read ahead of it wait: \
                 nothing more is received from queue {queue}"
            ),
        ),
        Fact::UngroupedSerial { pool } => Raised::new(
            Code::UngroupedSerial,
            Severity::Info,
            pool.clone(),
            format!(
                "messages without a group run one at a time in pool {pool}, beside idle permits: \
                 ungrouped = \"parallel\" lets them run side by side"
            ),
        ),
        Fact::Panicked { pool, what, .. } => Raised::new(
            Code::Processing,
            Severity::Warning,
            pool.clone(),
            format!("an executor of pool {pool} panicked: {}", plain(what)),
        ),
        Fact::Rejected { message, severity, why, .. } => Raised::new(
            Code::Configuration,
            severity,
            without_query(&message.target),
            speakable(why, message).into_owned(),
        ),
        Fact::Breaker { name, open: true } => Raised::new(
            Code::BreakerOpen,
            Severity::Warning,
            name.clone(),
            format!("breaker {name} is open: calls are held back"),
        ),
        Fact::Parked { pool: Some(pool), id, code, .. } => return parked(pool, id, code),
        Fact::Retrying { pool, id, after: None, .. } => {
            Raised::new(Code::GroupBlocked, Severity::Error, pool.clone(), blocked_words(pool, id))
        }
        _ => return None,
    };
    Some(raised)
}

/// What is said of a group that waits for a person, by its head.
pub(crate) fn blocked_words(pool: &str, head: &str) -> String {
    let (head, command) = (cut(head), typed_argument(cut(head)));
    format!(
        "{head} of pool {pool} and its group wait until someone acts: `sluicegate why {command}` says why, \
         `sluicegate ack {command}` gives it up as done"
    )
}

fn unknown_field(queue: &Arc<str>, field: &str) -> Raised {
    let hint = match nearest(field, FIELDS) {
        Some(known) => format!(": did you mean `{known}`?"),
        None => String::new(),
    };
    Raised::new(
        Code::UnknownField,
        Severity::Info,
        format!("{queue}/{field}"),
        format!("messages of queue {queue} have a field `{field}` that means nothing{hint}"),
    )
}

fn parked(pool: &Arc<str>, id: Option<&Arc<str>>, code: ParkedCode) -> Option<Raised> {
    let why = match code {
        ParkedCode::Exhausted => "all its attempts are used up",
        ParkedCode::KeyParked => "an earlier message of its group is parked",
        _ => return None,
    };
    let id = id.map_or("a message", |id| cut(id));
    let words = format!("{id} of pool {pool} was parked: {why}; {}", parked_words(pool));
    Some(Raised::new(Code::Parked, Severity::Error, pool.clone(), words))
}

/// What lists the parked messages of a pool.
pub(crate) fn parked_words(pool: &str) -> String {
    format!("`sluicegate parked {}` says why", typed_option("--pool", pool))
}

/// What is over when something happens, if anything: its code and its subject.
#[must_use]
pub const fn over_for<'a>(fact: &Fact<'a>) -> Option<(Code, &'a Arc<str>)> {
    match *fact {
        Fact::Breaker { name, open: false } => Some((Code::BreakerOpen, name)),
        _ => None,
    }
}

/// A target without its query, where keys are sometimes kept.
fn without_query(target: &Target) -> &str {
    let url = target.url();
    url.split(['?', '#']).next().unwrap_or(url)
}

/// What was said of a message, without what must not be shown: an endpoint may repeat the token it
/// was sent, and an error the whole URL.
#[must_use]
pub fn speakable<'a>(said: &'a str, message: &Message) -> Cow<'a, str> {
    let mut said = Cow::Borrowed(said);
    let token = message.auth_token.as_ref().map(|token| token.expose());
    if let Some(token) = token.filter(|token| !token.is_empty() && said.contains(token)) {
        said = Cow::Owned(said.replace(token, "***"));
    }
    let hidden = &message.target.url()[without_query(&message.target).len()..];
    if hidden.len() > 1 && said.contains(hidden) {
        said = Cow::Owned(said.replace(hidden, "?***"));
    }
    match said {
        Cow::Borrowed(said) => plain(said),
        Cow::Owned(said) => Cow::Owned(plain(&said).into_owned()),
    }
}

/// A text of somebody else's as one short line, so that it can neither flood a log nor forge a line
/// of it.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let text = cut(text);
    if text.chars().any(char::is_control) {
        return Cow::Owned(text.replace(char::is_control, " "));
    }
    Cow::Borrowed(text)
}

/// The beginning of a text.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(Warnings::LONGEST)]
}
