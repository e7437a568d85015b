//! Giving a message up as done by hand, wherever it waits.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use sluicegate_dispatch::{AckError, Discarded, ParkedStore as _, SourceError};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, timeout};

use super::Api;
use super::find::{InQueue, NotAsked, in_queues, parked};
use super::intake::Segment;
use super::operate::{ending, not_run};
use super::problem::{Code, Problem};
use super::reply::reply;

/// How long a message may be on its way from its queue to the router.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a queue may take to let a message go.
const LET_GO: Duration = Duration::from_secs(20);

/// `POST /api/v1/inflight/{id}/ack`
pub(crate) async fn acknowledge_message(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let (own, of) = (api.clone(), id.clone());
    // To the end, even if the caller goes away in between.
    let ack = |cx: Context| async move { cx.until_interrupted(acknowledge(&own, &of)).await };
    let ran = api.errands.run(api.daemon.context(), ack).await;
    ran.map_err(|error| not_run(&error))?.map_err(|_| ending())??;
    Ok(reply(StatusCode::OK, &json!({ "id": id, "acked": true })))
}

/// What became of a look into the queues.
enum InQueues {
    LetGo,
    /// A queue has handed it out.
    Out,
    /// None has it, but for those that could not be asked.
    Nowhere(Vec<NotAsked>),
}

async fn acknowledge(api: &Api, id: &str) -> Result<(), Problem> {
    let give_up = Instant::now() + ON_ITS_WAY;
    loop {
        match api.daemon.router().ack(id) {
            Ok(()) => return Ok(()),
            Err(AckError::NotHere) => {}
            Err(_) => return Err(busy(id)),
        }
        match discard(api, id).await? {
            InQueues::LetGo => return Ok(()),
            InQueues::Nowhere(not_asked) => return Err(nowhere(api, id, &not_asked).await?),
            InQueues::Out if Instant::now() >= give_up => return Err(busy(id)),
            InQueues::Out => sleep(LOOK_AGAIN).await,
        }
    }
}

/// Has the queue that holds a message let it go.
async fn discard(api: &Api, id: &str) -> Result<InQueues, Problem> {
    let (all, mut not_asked) = in_queues(api, id).await;
    for InQueue { queue, source, .. } in all {
        let late = || {
            let words =
                format!("queue {queue} did not answer in time: the message may be gone or not");
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
                why: "its messages cannot be taken out by their ids".to_owned(),
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
        let number = &item.id;
        let words = format!(
            "message {id} is parked as {number}: `sluicegate discard {number}` gives it up, \
             `sluicegate replay {number}` gives it back to its queue"
        );
        return Ok(Problem::new(Code::NotInFlight, words).with("parked", number.clone()));
    }
    if not_asked.is_empty() {
        let words = format!(
            "no message {id} is in flight or waits in a queue: it is gone for good, or never was; \
             `sluicegate why {id}` looks for it again"
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
