//! Saying where a message is, and why.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use sluicegate_dispatch::{
    DEFAULT_GROUP, Finds, Found, FoundState, Message, MessageState, Reason, Source, WhyWaiting,
};
use sluicegate_sources::sqlite::{Outlook, ParkedItem};
use sluicegate_sources::wire;
use tokio::time::timeout;

use super::Api;
use super::intake::Segment;
use super::problem::{Code, Problem};
use super::reply::reply;
use super::shapes::{MessageShape, Seen, Whereabouts};

/// How long a queue may look for a message.
const LOOK: Duration = Duration::from_secs(5);

/// A queue that may have the message, as far as can be said.
pub(super) struct NotAsked {
    pub(super) queue: String,
    pub(super) why: String,
    /// Whether it may answer later.
    pub(super) is_down: bool,
}

impl NotAsked {
    /// It in words.
    fn named(&self) -> String {
        format!("{} ({})", self.queue, self.why)
    }

    /// All of them in words.
    pub(super) fn words(all: &[Self]) -> String {
        all.iter().map(Self::named).collect::<Vec<_>>().join(", ")
    }

    /// All of them for programs.
    pub(super) fn list(all: &[Self]) -> Vec<Value> {
        all.iter().map(|one| json!({ "queue": one.queue, "why": one.why })).collect()
    }
}

/// `GET /api/v1/messages/{id}`
pub(crate) async fn show(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let mut found = look(&api, &id).await;
    // Wherever else it could not be looked for, it is parked if it is there.
    if found.is_err()
        && let Some(item) = parked(&api, &id).await?
    {
        let outlook = api.daemon.store().parked_outlook(&item.id).await?;
        let hint = parked_hint(&api, &item, &outlook);
        found = Ok(MessageShape::of_parked(&item, outlook.follows, hint));
    }
    if found.is_err()
        && let Some(shape) = in_removed_queue(&api, &id).await?
    {
        found = Ok(shape);
    }
    if matches!(&found, Err(not_asked) if !not_asked.iter().any(|queue| queue.is_down)) {
        // It may have been replayed between the two looks.
        found = look(&api, &id).await;
    }
    match found {
        Ok(shape) => Ok(reply(StatusCode::OK, &shape)),
        Err(not_asked) => Err(nowhere(&id, &not_asked)),
    }
}

/// What to do about a parked message.
fn parked_hint(api: &Api, item: &ParkedItem, outlook: &Outlook) -> String {
    let (id, queue) = (&item.id, &item.queue);
    if outlook.follows {
        return "it goes back to its queue by itself, after those before it".to_owned();
    }
    let replay = format!("`sluicegate replay {id}` gives it back to its queue");
    if !api.daemon.replayable().contains(queue) {
        return match api.daemon.in_effect().not_open.get(queue) {
            Some(not_open) => {
                format!("its queue {queue} is not open yet: {}; then {replay}", not_open.words())
            }
            None => format!(
                "its queue {queue} is not configured any more: `sluicegate discard {id}` gives it up, and \
                 once there is a queue of that name again, {replay}"
            ),
        };
    }
    let Some((head, pool)) = outlook.head.as_ref().zip(item.pool.as_ref()) else { return replay };
    let (pool, group) = (quoted(pool), quoted(item.group.as_deref().unwrap_or(DEFAULT_GROUP)));
    let named = head.message_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    format!(
        "it is behind {}{named} of its group: `sluicegate replay --pool {pool} --group {group}` gives \
         the group back to its queue, in order",
        head.id
    )
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A message that is in the state file, in a queue that is not configured any more.
async fn in_removed_queue(api: &Api, id: &str) -> Result<Option<MessageShape>, Problem> {
    let known = api.daemon.queue_names();
    for (queue, found) in api.daemon.store().stored_in_any(id).await? {
        if known.iter().any(|known| **known == *queue) {
            continue;
        }
        let Ok(incoming) = wire::parse(found.body.as_bytes()) else { continue };
        let detail = format!(
            "its queue {queue} is not configured any more; it is kept in the state file, and comes when \
             there is a queue {queue} again"
        );
        let why = WhyWaiting::new("no_queue", detail, None);
        let message = &incoming.message;
        let of = Whereabouts {
            message,
            queue: &queue,
            pool: Some(&message.pool),
            state: "waiting",
            attempts: found.attempts,
            age: found.age,
            why: Some(&why),
        };
        return Ok(Some(MessageShape::new(&of, Seen::now())));
    }
    Ok(None)
}

/// What is said of a message that was not found: only who could look everywhere may say that it is gone.
fn nowhere(id: &str, not_asked: &[NotAsked]) -> Problem {
    if not_asked.is_empty() {
        let detail = format!("there is no message {id}: it is gone for good, or never was");
        return Problem::new(Code::UnknownMessage, detail);
    }
    let is_down = not_asked.iter().any(|queue| queue.is_down);
    let code = if is_down { Code::QueuesNotAsked } else { Code::UnknownMessage };
    let detail = format!(
        "message {id} was not found; it may wait in a queue that could not be asked: {}",
        NotAsked::words(not_asked)
    );
    Problem::new(code, detail).with("notAsked", NotAsked::list(not_asked))
}

/// A message that is in flight or in a queue; else the queues that could not be asked.
async fn look(api: &Api, id: &str) -> Result<MessageShape, Vec<NotAsked>> {
    if let Some(view) = api.daemon.router().message(id) {
        return Ok(MessageShape::of_view(&view, Seen::now()));
    }
    let (all, not_asked) = in_queues(api, id).await;
    for InQueue { queue, source, found } in all {
        if let Some(shape) = stored(api, &queue, &*source, &found).await {
            return Ok(shape);
        }
    }
    Err(not_asked)
}

/// A message where a queue has it.
pub(super) struct InQueue {
    pub(super) queue: Arc<str>,
    pub(super) source: Arc<dyn Source>,
    pub(super) found: Found,
}

/// Looks for a message in all queues; names those that could not be asked.
pub(super) async fn in_queues(api: &Api, id: &str) -> (Vec<InQueue>, Vec<NotAsked>) {
    // In this order: one that is opened meanwhile is asked, or named as not asked.
    let in_effect = api.daemon.in_effect();
    let queues = api.daemon.router().queues();
    let looks = join_all(queues.iter().map(|queue| look_in(api, queue, id))).await;
    let (mut all, mut not_asked) = (Vec::new(), Vec::new());
    for look in looks {
        match look {
            Ok(found) => all.extend(found),
            Err(queue) => not_asked.push(queue),
        }
    }
    let not_open = in_effect.not_open.iter();
    let missing = not_open.filter(|(name, _)| !queues.iter().any(|queue| **queue == ***name));
    not_asked.extend(missing.map(|(name, queue)| NotAsked {
        queue: name.clone(),
        why: format!("it is not open yet: {}", queue.words()),
        is_down: true,
    }));
    (all, not_asked)
}

/// Looks for a message in one queue.
async fn look_in(api: &Api, queue: &Arc<str>, id: &str) -> Result<Option<InQueue>, NotAsked> {
    let Some(source) = api.daemon.router().source(queue) else { return Ok(None) };
    let not_asked = |why: String, is_down| NotAsked { queue: queue.to_string(), why, is_down };
    let found = match timeout(LOOK, source.find(id)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(not_asked(error.cause, true)),
        Err(_) => {
            return Err(not_asked(format!("it did not answer within {} s", LOOK.as_secs()), true));
        }
    };
    if let Some(found) = found {
        return Ok(Some(InQueue { queue: Arc::clone(queue), source, found }));
    }
    let can = match source.profile().finds {
        Finds::All => return Ok(None),
        Finds::Some => "only what it has handed out or delayed can be found by its id",
        Finds::Nothing => "its messages cannot be found by their ids",
    };
    match source.health() {
        Err(trouble) => Err(not_asked(trouble.cause, true)),
        Ok(()) => Err(not_asked(can.to_owned(), false)),
    }
}

/// A message that its source holds; `None` if it is none.
async fn stored(
    api: &Api,
    queue: &Arc<str>,
    source: &dyn Source,
    found: &Found,
) -> Option<MessageShape> {
    let incoming = wire::parse(found.body.as_bytes()).ok()?;
    let message = &incoming.message;
    let (state, why) = match &found.state {
        FoundState::Delayed { rest, reason } => {
            ("delayed", WhyWaiting::delayed_at_source(message, *reason, *rest))
        }
        FoundState::Behind(head) => ("waiting", behind(api, queue, source, head).await),
        FoundState::Out => ("waiting", WhyWaiting::new("ready", "it is being taken in", None)),
        _ => ("waiting", ready(api, queue, message)),
    };
    let of = Whereabouts {
        message,
        queue,
        pool: Some(&message.pool),
        state,
        attempts: found.attempts,
        age: found.age,
        why: Some(&why),
    };
    let last_error = api.daemon.router().last_error(queue, &message.id);
    let last_error = last_error.as_deref().map(Into::into);
    Some(MessageShape { last_error, ..MessageShape::new(&of, Seen::now()) })
}

/// Why a message waits in its queue behind the head of its group.
async fn behind(api: &Api, queue: &Arc<str>, source: &dyn Source, head: &Arc<str>) -> WhyWaiting {
    let retries = |rest: Option<Duration>| {
        WhyWaiting::new("group_retrying", format!("group head {head} retries"), rest)
    };
    let before = || format!("group head {head} is before it");
    if let Some(view) = api.daemon.router().message(head) {
        let rest = view.why.as_ref().and_then(|why| why.rest);
        return match (view.state, view.why) {
            (MessageState::Delayed, _) => retries(rest),
            (_, Some(why)) if why.reason == "group_blocked" => {
                WhyWaiting::new("group_blocked", format!("group head {head} is blocked"), None)
            }
            (MessageState::Running, _) => {
                WhyWaiting::new("group_busy", format!("group head {head} is running"), None)
            }
            (_, Some(why)) => {
                WhyWaiting::new("group_busy", format!("{}: {}", before(), why.detail), why.rest)
            }
            _ => WhyWaiting::new("group_busy", before(), None),
        };
    }
    let found = timeout(LOOK, source.find(head)).await;
    let Ok(Ok(Some(found))) = found else {
        return WhyWaiting::new("group_busy", before(), None);
    };
    match found.state {
        FoundState::Delayed { rest, reason: Reason::Scheduled } => {
            let detail = format!("group head {head} is to be delivered first");
            WhyWaiting::new("group_retrying", detail, Some(rest))
        }
        FoundState::Delayed { rest, .. } => retries(Some(rest)),
        FoundState::Ready => {
            // Neither goes before the head does, and that one waits for the same.
            let why = wire::parse(found.body.as_bytes()).ok();
            let why = why.map(|head| ready(api, queue, &head.message));
            let detail = why.filter(|why| why.reason != "ready").map(|why| why.detail);
            let detail = detail.map_or_else(before, |detail| format!("{}: {detail}", before()));
            WhyWaiting::new("group_busy", detail, None)
        }
        _ => WhyWaiting::new("group_busy", before(), None),
    }
}

/// Why a message waits in its queue although it could be received.
fn ready(api: &Api, queue: &str, message: &Message) -> WhyWaiting {
    if api.daemon.is_ending() {
        return WhyWaiting::new("draining", "the daemon is shutting down", None);
    }
    api.daemon.router().why_in_queue(queue, message)
}

/// A message that was put aside, by its own id.
pub(super) async fn parked(api: &Api, id: &str) -> Result<Option<ParkedItem>, Problem> {
    if api.daemon.store().parked_count() == 0 {
        return Ok(None);
    }
    Ok(api.daemon.store().parked_message(id).await?)
}
