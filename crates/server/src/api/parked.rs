//! Parked messages: listed, replayed, discarded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use sluicegate_sources::sqlite::{ParkedFilter, ReplayError};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep};

use super::intake::{Query, Segment};
use super::operate::{ending, not_run};
use super::page::{Page, bad_cursor, limit};
use super::parked_pools::NoPool;
use super::parked_which::{Which, filter};
use super::problem::Problem;
use super::reply::{done, reply};
use super::routes::{OF_PARKED, REPLAYED};
use super::shapes::ParkedShape;
use super::{Api, known};
use crate::daemon::Daemon;
use crate::replays::NotReplayed;

/// How many messages are replayed in one go.
const CHUNK: usize = 200;
/// How many are looked at in one go to say what would be replayed.
const PLANNED: usize = 1_000;
/// How long one request replays; then it says where to go on.
const SLICE: Duration = Duration::from_secs(20);
/// How many that were refused are named, and how many ids of those that would be replayed.
const NAMED: usize = 20;
const LISTED: usize = 1_000;

/// `GET /api/v1/parked`: in the order in which they were parked.
pub(crate) async fn list(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    query.only(OF_PARKED)?;
    let cursor = query.get("cursor");
    if cursor.is_some_and(|cursor| cursor.parse::<i64>().is_err()) {
        return Err(bad_cursor());
    }
    let filter = filter(&query)?;
    let page = api.daemon.store().parked(&filter, cursor, limit(&query)?).await?;
    is_known(&api, &filter, page.items.is_empty() && cursor.is_none())?;
    let items = page.items.into_iter().map(ParkedShape::from).collect();
    Ok(reply(StatusCode::OK, &Page { items, next: page.next }))
}

/// Passes unless nothing was found because a name is wrong.
pub(crate) fn is_known(api: &Api, filter: &ParkedFilter, nothing: bool) -> Result<(), Problem> {
    known::pool(api, filter.pool.as_deref(), nothing)?;
    known::queue(api, filter.queue.as_deref(), nothing)
}

/// `POST /api/v1/parked/{id}/replay`
pub(crate) async fn replay(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let daemon = api.daemon.clone();
    // To the end, even if the caller goes away in between.
    let replay =
        |cx: Context| async move { cx.until_interrupted(replay_ids(&daemon, &[id], false)).await };
    let ran = api.errands.run(api.daemon.context(), replay).await;
    let report = ran.map_err(|error| not_run(&error))?.map_err(|_| ending())??;
    Ok(reply(StatusCode::OK, &report.to_json()))
}

/// `POST /api/v1/parked/replay`: `{"ids":[…]}`, all or none; or those that can be of all, or of what they have in
/// common. The same as parameters of the query.
pub(crate) async fn replay_many(
    State(api): State<Api>,
    query: Query,
    body: Body,
) -> Result<Response, Problem> {
    query.only(REPLAYED)?;
    let fields = api.intake.object(&api.cx, body).await?;
    let which = Which::read(&fields, &query)?;
    let filter = which.filter.clone();
    let daemon = api.daemon.clone();
    let (done, is_counted) = (Arc::new(AtomicU64::new(0)), which.ids.is_none());
    let counted = Arc::clone(&done);
    let replay = |cx: Context| async move {
        let all = async {
            match &which.ids {
                Some(ids) => replay_ids(&daemon, ids, which.dry_run).await,
                None if which.dry_run => plan(&daemon, &which).await,
                None => replay_matching(&daemon, &which, &counted).await,
            }
        };
        cx.until_interrupted(all).await
    };
    let ran = api.errands.run(api.daemon.context(), replay).await;
    // What went before it failed, or was cut off, is told.
    let so_far = |problem: Problem| match is_counted {
        true => problem.with("replayed", done.load(Ordering::Relaxed)),
        false => problem,
    };
    let ran = ran.map_err(|error| so_far(not_run(&error)))?;
    let report = ran.map_err(|_| so_far(ending()))?.map_err(so_far)?;
    is_known(&api, &filter, report.is_empty())?;
    Ok(reply(StatusCode::OK, &report.to_json()))
}

/// What became of a replay, or would.
#[derive(Debug, Default)]
struct Report {
    replayed: u64,
    left: u64,
    /// The first of those that were refused, and why.
    refused: Vec<Problem>,
    /// Where to go on, if there may be more: behind the first of these numbers, up to the second.
    next: Option<(i64, i64)>,
    /// What would be replayed: how many, and the first of them.
    would: Option<(u64, Vec<String>)>,
}

impl Report {
    const fn is_empty(&self) -> bool {
        self.replayed == 0 && self.left == 0 && matches!(&self.would, None | Some((0, _)))
    }

    fn refuse(&mut self, refused: impl IntoIterator<Item = impl Into<Problem>>) {
        for refused in refused {
            self.left += 1;
            if self.refused.len() < NAMED {
                self.refused.push(refused.into());
            }
        }
    }

    fn to_json(&self) -> Value {
        let refused = |problem: &Problem| {
            json!({
                "id": problem.more.get("id"), "code": problem.code.label(),
                "detail": problem.detail,
            })
        };
        let refused: Vec<Value> = self.refused.iter().map(refused).collect();
        let why = self.refused.first().filter(|_| self.replayed == 0);
        let mut json = json!({
            "replayed": self.replayed,
            "left": self.left,
            "why": why.map(|problem| &problem.detail),
            "refused": refused,
            "next": self.next.map(|(after, last)| format!("{after}-{last}")),
        });
        if let Some((count, ids)) = &self.would {
            json["dryRun"] = true.into();
            json["wouldReplay"] = (*count).into();
            json["ids"] = ids.clone().into();
        }
        json
    }
}

/// Replays these, all or none.
async fn replay_ids(daemon: &Daemon, ids: &[String], dry_run: bool) -> Result<Report, Problem> {
    let number =
        |id: &String| id.parse::<i64>().map_err(|_| ReplayError::NotFound { id: id.clone() });
    let mut numbers = ids.iter().map(number).collect::<Result<Vec<i64>, _>>()?;
    if let Some(no_pool) = NoPool::sort_out(daemon, &mut numbers).await?.into_iter().next() {
        return Err(no_pool.into());
    }
    if dry_run {
        return plan_ids(daemon, &numbers).await;
    }
    let replayed = daemon.replay(&numbers, &HashSet::new(), true).await?;
    let mut report = Report { replayed: replayed.replayed, ..Report::default() };
    let mut refused = replayed.refused.into_iter();
    // Where one queue has failed, those of others may have gone.
    if report.replayed == 0
        && let Some(refused) = refused.next()
    {
        return Err(refused.into());
    }
    report.refuse(refused);
    Ok(report)
}

/// What a replay of these would do.
async fn plan_ids(daemon: &Daemon, numbers: &[i64]) -> Result<Report, Problem> {
    let refused = daemon.store().check_replay(numbers, &daemon.replayable()).await?;
    if let Some(refused) = refused {
        return Err(daemon.not_replayed(refused).into());
    }
    let ids = numbers.iter().take(LISTED).map(i64::to_string).collect();
    Ok(Report { would: Some((numbers.len() as u64, ids)), ..Report::default() })
}

/// What a replay of those that are meant would do.
async fn plan(daemon: &Daemon, which: &Which) -> Result<Report, Problem> {
    let (mut report, begun) = (Report::default(), Instant::now());
    let (mut after, mut rest) = (which.cursor, which.limit.unwrap_or(usize::MAX));
    let (mut count, mut ids) = (0_u64, Vec::new());
    let (filter, up_to) = bounded(daemon, &which.filter).await?;
    while rest > 0 {
        let most = rest.min(PLANNED);
        let queues = daemon.replayable();
        let plan = daemon.store().plan_replay(&filter, after, most, &queues).await?;
        let Some(last) = plan.last else { break };
        after = last;
        rest -= most.min(plan.ids.len() + plan.refused.len());
        let mut numbers = plan.ids.iter().filter_map(|id| id.parse().ok()).collect();
        report.refuse(NoPool::sort_out(daemon, &mut numbers).await?);
        count += numbers.len() as u64;
        ids.extend(numbers.iter().map(i64::to_string).take(LISTED - ids.len()));
        report.refuse(plan.refused.into_iter().map(|refused| daemon.not_replayed(refused)));
        if begun.elapsed() >= SLICE || rest == 0 {
            report.next = Some((after, up_to)).filter(|_| after < up_to);
            break;
        }
    }
    report.would = Some((count, ids));
    Ok(report)
}

/// The filter, as far as what was parked when it was first asked: what fails again is parked behind that, and would
/// else be replayed for ever.
async fn bounded(daemon: &Daemon, filter: &ParkedFilter) -> Result<(ParkedFilter, i64), Problem> {
    let last = match filter.last {
        Some(last) => last,
        None => daemon.store().last_parked().await?,
    };
    Ok((ParkedFilter { last: Some(last), ..filter.clone() }, last))
}

/// Replays those that are meant and can be, each once: in pieces, in order, and no faster than it is said.
/// What was replayed is counted in `done` as it goes, for those who hear of nothing else.
async fn replay_matching(
    daemon: &Daemon,
    which: &Which,
    done: &AtomicU64,
) -> Result<Report, Problem> {
    let (mut report, begun) = (Report::default(), Instant::now());
    let (filter, up_to) = bounded(daemon, &which.filter).await?;
    let (mut after, mut rest) = (which.cursor, which.limit.unwrap_or(usize::MAX));
    // A queue that has failed is not asked again and again.
    let mut failing: HashMap<String, NotReplayed> = HashMap::new();
    loop {
        let most = rest.min(CHUNK).min(which.rate.map_or(CHUNK, piece));
        let mut numbers = daemon.store().parked_numbers(&filter, after, most).await?;
        let Some(&last) = numbers.last() else { return Ok(report) };
        after = last;
        rest -= numbers.len();
        report.refuse(NoPool::sort_out(daemon, &mut numbers).await?);
        let without = failing.keys().cloned().collect();
        let replayed = daemon.replay_part(&numbers, &without, up_to).await?;
        report.replayed += replayed.replayed;
        done.store(report.replayed, Ordering::Relaxed);
        for refused in &replayed.refused {
            if let NotReplayed::Queue { queue, .. } = refused {
                failing.entry(queue.clone()).or_insert_with(|| refused.clone());
            }
        }
        let why = |refused| why_failing(&failing, refused);
        report.refuse(replayed.refused.into_iter().map(why));
        // Before it answers too: whoever asks for the next goes on at once.
        if let Some(rate) = which.rate.filter(|_| after < up_to) {
            sleep(paced(report.replayed, rate).saturating_sub(begun.elapsed())).await;
        }
        if rest == 0 || begun.elapsed() >= SLICE {
            report.next = Some((after, up_to)).filter(|_| after < up_to);
            return Ok(report);
        }
    }
}

/// How many go at once at that rate: five times a second, or one by one.
fn piece(rate: u64) -> usize {
    usize::try_from(rate / 5).unwrap_or(usize::MAX).max(1)
}

/// How long so many take at that rate.
fn paced(count: u64, rate: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(1_000) / rate.max(1))
}

/// What is left out because its queue has failed before says so.
fn why_failing(failing: &HashMap<String, NotReplayed>, refused: NotReplayed) -> NotReplayed {
    let NotReplayed::Refused(ReplayError::NoQueue { id, queue }) = &refused else { return refused };
    match failing.get(queue) {
        Some(NotReplayed::Queue { error, .. }) => {
            NotReplayed::Queue { id: id.clone(), queue: queue.clone(), error: error.clone() }
        }
        _ => refused,
    }
}

/// `DELETE /api/v1/parked/{id}`
pub(crate) async fn discard(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    api.daemon.store().discard(&[id]).await?;
    Ok(done())
}
