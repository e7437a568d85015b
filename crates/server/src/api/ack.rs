//! Giving a message up as done by hand, wherever it waits.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use sluicegate_dispatch::{
    AckError, Acking, Discarded, ParkedStore as _, SourceError, typed_argument,
};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, timeout};

use super::Api;
use super::find::{InQueue, LeftBehind, NotAsked, in_queues, parked, parked_hint};
use super::intake::Segment;
use super::operate::{ending, not_run};
use super::problem::{Code, Problem};
use super::reply::reply;

/// How long a message may be on its way from its queue to the router.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a queue may take to let a message go, or to hear that one is done.
const LET_GO: Duration = Duration::from_secs(10);
/// From when on one is told of a message that it waits for its turn.
const ITS_TURN: Duration = Duration::from_secs(1);

/// `POST /api/v1/inflight/{id}/ack`
pub(crate) async fn acknowledge_message(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let (own, of) = (api.clone(), id.clone());
    // To the end, even if the caller goes away in between.
    let ack = |cx: Context| async move { cx.until_interrupted(acknowledge(&own, &of)).await };
    let ran = api.errands.run(api.daemon.context(), ack).await;
    Ok(match ran.map_err(|error| not_run(&error))?.map_err(|_| ending())?? {
        GivenUp::Durably => reply(StatusCode::OK, &json!({ "id": id, "acked": true })),
        GivenUp::InTurn(detail) => {
            reply(StatusCode::ACCEPTED, &json!({ "id": id, "acked": false, "detail": detail }))
        }
    })
}

/// How far giving a message up has come.
enum GivenUp {
    Durably,
    /// It is not called any more, and its queue is told when it is its turn: this is what it waits for.
    InTurn(String),
}

/// What became of a look into the queues.
enum InQueues {
    LetGo,
    /// A queue has handed it out.
    Out,
    /// None has it, but for those that could not be asked.
    Nowhere(Vec<NotAsked>),
}

async fn acknowledge(api: &Api, id: &str) -> Result<GivenUp, Problem> {
    let give_up = Instant::now() + ON_ITS_WAY;
    loop {
        match api.daemon.router().begin_ack(id) {
            Ok(acking) => return heard(api, id, acking).await,
            Err(AckError::NotHere) => {}
            Err(_) => return Err(busy(id)),
        }
        match discard(api, id).await? {
            InQueues::LetGo => return Ok(GivenUp::Durably),
            InQueues::Nowhere(not_asked) => return Err(nowhere(api, id, &not_asked).await?),
            InQueues::Out if Instant::now() >= give_up => return Err(busy(id)),
            InQueues::Out => sleep(LOOK_AGAIN).await,
        }
    }
}

/// Waits until the queue of a message has it durably that the message is done.
async fn heard(api: &Api, id: &str, acking: Acking) -> Result<GivenUp, Problem> {
    let queue = Arc::clone(acking.queue());
    let why = || api.daemon.router().message(id).and_then(|view| view.why);
    let mut durable = std::pin::pin!(acking.is_durable());
    let heard = match timeout(ITS_TURN, &mut durable).await {
        Ok(heard) => Ok(heard),
        Err(_) => {
            if let Some(why) = why().filter(|why| why.reason != "settling") {
                return Ok(GivenUp::InTurn(why.detail));
            }
            timeout(LET_GO - ITS_TURN, durable).await
        }
    };
    let words = match heard {
        Ok(true) => return Ok(GivenUp::Durably),
        Ok(false) => format!(
            "queue {queue} did not take it that message {id} is done: it is delivered again, and can be \
             acknowledged then"
        ),
        Err(_) => {
            let why = why().map(|why| format!(" ({})", why.detail)).unwrap_or_default();
            format!(
                "message {id} is not called any more, but queue {queue} does not have it durably after {} s that it \
                 is done{why}: this goes on by itself, and a daemon that ends before that has the message \
                 delivered again; `sluicegate why {}` finds it until then",
                LET_GO.as_secs(),
                typed_argument(id)
            )
        }
    };
    Err(Problem::new(Code::StorageFailed, words))
}

/// Has the queue that holds a message let it go.
async fn discard(api: &Api, id: &str) -> Result<InQueues, Problem> {
    let (all, mut not_asked) = in_queues(api, id).await;
    for InQueue { queue, source, .. } in all {
        let late = || {
            let words = format!(
                "queue {queue} did not answer within {} s: message {id} may be gone or not; acknowledge it again",
                LET_GO.as_secs()
            );
            Problem::new(Code::StorageFailed, words)
        };
        match timeout(LET_GO, source.discard(id)).await.map_err(|_| late())?? {
            Discarded::Done => {
                replay_is_over(api, &queue, id).await;
                return Ok(InQueues::LetGo);
            }
            Discarded::Out => return Ok(InQueues::Out),
            Discarded::NotFound => {}
            Discarded::NotPossible => not_asked.push(NotAsked {
                queue: queue.to_string(),
                why: "it is there, and cannot be taken out by its id".to_owned(),
                is_down: false,
            }),
        }
    }
    Ok(InQueues::Nowhere(not_asked))
}

/// A replayed message that is given up holds its group no more.
async fn replay_is_over(api: &Api, queue: &str, id: &str) {
    let store = api.daemon.store();
    if !store.is_replayed(queue, id) {
        return;
    }
    let noted: Result<(), SourceError> = store.replay_over(queue, vec![id.into()]).await;
    if let Err(error) = noted {
        // It is found out when its queue is empty.
        tracing::warn!(
            "queue {queue}: that the replay of {id} is over could not be noted: {error}"
        );
    }
}

fn busy(id: &str) -> Problem {
    let words = format!("message {id} runs or is being settled: try again when it waits");
    Problem::new(Code::Busy, words)
}

/// What to do about a message that is neither in flight nor in a queue that lets it go.
async fn nowhere(api: &Api, id: &str, not_asked: &[NotAsked]) -> Result<Problem, Problem> {
    if let Some(item) = parked(api, id).await? {
        let (number, (hint, _)) = (&item.id, parked_hint(api, &item).await?);
        let words = format!(
            "message {id} is parked as {number}: `sluicegate discard {number}` gives it up; to have it \
             delivered: {hint}"
        );
        return Ok(Problem::new(Code::NotInFlight, words).with("parked", number.clone()));
    }
    if let Some(left) = LeftBehind::find(api, id).await? {
        let words = format!("message {id} cannot be acknowledged now: {}", left.words());
        return Ok(Problem::new(Code::NotInFlight, words));
    }
    if not_asked.is_empty() {
        let words = format!(
            "no message {id} is in flight or waits in a queue: it is gone for good, or never was; \
             `sluicegate why {}` looks for it again",
            typed_argument(id)
        );
        return Ok(Problem::new(Code::NotInFlight, words));
    }
    let queues = NotAsked::words(not_asked);
    let (code, words) = if not_asked.iter().any(|queue| queue.is_down) {
        let words =
            format!("message {id} was not found, and not all queues could be asked: {queues}");
        (Code::QueuesNotAsked, words)
    } else {
        let words = format!(
            "message {id} is not in flight; if it waits in {queues}, it can be acknowledged once it \
             was received: `sluicegate inflight` lists it then"
        );
        (Code::NotInFlight, words)
    };
    Ok(Problem::new(code, words).with("notAsked", NotAsked::list(not_asked)))
}
