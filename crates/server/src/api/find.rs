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
    typed_option,
};
use sluicegate_sources::sqlite::{Outlook, ParkedItem};
use sluicegate_sources::wire;
use tokio::time::timeout;

use super::Api;
use super::intake::Segment;
use super::parked_pools::NoPool;
use super::problem::{Code, Problem};
use super::reply::reply;
use super::request_shapes::as_message;
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
        let (hint, follows) = parked_hint(&api, &item).await?;
        found = Ok(MessageShape::of_parked(&item, follows, hint));
    }
    if found.is_err()
        && let Some(left) = LeftBehind::find(&api, &id).await?
    {
        found = Ok(left.shape());
    }
    if matches!(&found, Err(not_asked) if !not_asked.iter().any(|queue| queue.is_down)) {
        // It may have been replayed between the two looks.
        found = look(&api, &id).await;
    }
    if found.is_err()
        && let Some(request) = request(&api, &id).await?
    {
        found = Ok(request);
    }
    match found {
        Ok(shape) => Ok(reply(StatusCode::OK, &shape)),
        Err(not_asked) => Err(nowhere(&id, &not_asked)),
    }
}

/// A request to an agent: who asks why something waits need not know what it is.
async fn request(api: &Api, id: &str) -> Result<Option<MessageShape>, Problem> {
    let Ok(agents) = api.daemon.agents() else { return Ok(None) };
    let found = agents.find(id).await?;
    Ok(found.map(|found| as_message(&found, agents.why(id).as_ref(), Seen::now())))
}

/// What to do about a parked message, and whether it goes back by itself.
pub(super) async fn parked_hint(api: &Api, item: &ParkedItem) -> Result<(String, bool), Problem> {
    let outlook = api.daemon.store().parked_outlook(&item.id).await?;
    let hint = match outlook.follows {
        true => "it goes back to its queue by itself, after those before it".to_owned(),
        false => what_replays(api, item, &outlook),
    };
    Ok((hint, outlook.follows))
}

/// What gives a parked message back to its queue, and when.
fn what_replays(api: &Api, item: &ParkedItem, outlook: &Outlook) -> String {
    let (id, queue) = (&item.id, &item.queue);
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
    let behind = outlook.head.as_ref().zip(item.pool.as_ref());
    let replay = behind.map_or(replay, |(head, pool)| {
        let group = item.group.as_deref().unwrap_or(DEFAULT_GROUP);
        // The group of another queue is another group.
        let options = [("--pool", &**pool), ("--group", group), ("--queue", &**queue)];
        let options = options.map(|(name, value)| typed_option(name, value)).join(" ");
        let named = head.message_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
        format!(
            "it is behind {}{named} of its group: `sluicegate replay {options}` gives the group back to its \
             queue, in order",
            head.id
        )
    });
    match NoPool::of(&api.daemon, item) {
        Some(no_pool) => format!("{}; then {replay}", no_pool.words()),
        None => replay,
    }
}

/// A message that is in the state file, in a queue that is not configured any more.
pub(super) struct LeftBehind {
    /// What its queue is called there.
    queue: String,
    message: Message,
    found: Found,
}

impl LeftBehind {
    pub(super) async fn find(api: &Api, id: &str) -> Result<Option<Self>, Problem> {
        let (stored, in_effect) =
            (api.daemon.store().stored_in_any(id).await?, api.daemon.in_effect());
        let known = in_effect.stored_queues();
        let left = stored.into_iter().filter(|(queue, _)| !known.contains(queue.as_str()));
        let read = |(queue, found): (String, Found)| {
            let message = wire::parse(found.body.as_bytes()).ok()?.message;
            Some(Self { queue, message, found })
        };
        Ok(left.filter_map(read).next())
    }

    /// What it waits for.
    pub(super) fn words(&self) -> String {
        let queue = &self.queue;
        format!(
            "its queue {queue} is not configured any more as sqlite:{queue}; it is kept in the state file, and \
             comes when a queue has that uri again"
        )
    }

    fn shape(&self) -> MessageShape {
        let why = WhyWaiting::new("no_worker", self.words(), None);
        let of = Whereabouts {
            message: &self.message,
            queue: &self.queue,
            pool: Some(&self.message.pool),
            state: "waiting",
            attempts: self.found.attempts,
            age: self.found.age,
            why: Some(&why),
        };
        MessageShape::new(&of, Seen::now())
    }
}

/// What is said of a message that was not found: only who could look everywhere may say that it is gone.
fn nowhere(id: &str, not_asked: &[NotAsked]) -> Problem {
    if not_asked.is_empty() {
        let detail =
            format!("there is no message or request {id}: it is gone for good, or never was");
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
            (_, Some(why)) if why.reason == "group_blocked" => WhyWaiting::behind_blocked(head),
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
