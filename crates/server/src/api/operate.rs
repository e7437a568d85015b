//! What can be done: limits, messages, breakers, warnings, parked messages, the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use sluicegate_dispatch::{DEFAULT_POOL, PoolSettings};
use sluicegate_tasks::{Context, TaskError};

use super::intake::{Query, Segment};
use super::problem::{Code, Problem};
use super::reply::{done, reply};
use super::shapes::{BreakerShape, PoolShape, Seen};
use super::{Api, known};
use crate::apply::ApplyReport;
use crate::warnings::cut;

/// The most messages that a pool may run at once.
const MOST_CONCURRENCY: u64 = 100_000;

/// `PATCH /api/v1/pools/{code}`
pub(crate) async fn change_pool(
    State(api): State<Api>,
    Segment(code): Segment,
    body: Body,
) -> Result<Response, Problem> {
    let fields = api.intake.object(&api.cx, body).await?;
    let change = PoolChange::read(&fields)?;
    let unknown = || known::unknown_pool(&api, &code);
    {
        // Whoever applies configuration reads and writes the same settings.
        let _applying = api.daemon.inner.applied.lock().await;
        let settings = api.daemon.router().pool(&code).or_else(|| default_pool(&code));
        let settings = settings.ok_or_else(unknown)?;
        let changed = change.of(&settings);
        api.daemon.router().set_pool(changed).map_err(|invalid| {
            Problem::field("concurrency", format!("concurrency cannot be like this: {invalid}"))
        })?;
    }
    let views = api.daemon.router().pool_views();
    let view = views.iter().find(|view| *view.settings.code == *code).ok_or_else(unknown)?;
    Ok(reply(StatusCode::OK, &PoolShape::from(view)))
}

/// The default pool is there from its first message on; its limits can be set before that.
fn default_pool(code: &str) -> Option<Arc<PoolSettings>> {
    (code == DEFAULT_POOL).then(|| Arc::new(PoolSettings::default_pool()))
}

/// What is to be different. What is not named stays.
#[derive(Debug, Default, PartialEq)]
struct PoolChange {
    concurrency: Option<u32>,
    rate_limit_per_minute: Option<Option<u32>>,
}

impl PoolChange {
    fn read(fields: &Map<String, Value>) -> Result<Self, Problem> {
        let mut change = Self::default();
        for (name, value) in fields {
            match name.as_str() {
                "concurrency" => change.concurrency = Some(concurrency(value)?),
                "rateLimitPerMinute" => change.rate_limit_per_minute = Some(rate(value)?),
                _ => {
                    let detail = format!(
                        "{} cannot be changed here: only concurrency and rateLimitPerMinute can; the rest \
                         is changed in the configuration",
                        cut(name)
                    );
                    return Err(Problem::field(name, detail));
                }
            }
        }
        Ok(change)
    }

    fn of(&self, settings: &PoolSettings) -> PoolSettings {
        PoolSettings {
            concurrency: self.concurrency.unwrap_or(settings.concurrency),
            rate_limit_per_minute: self
                .rate_limit_per_minute
                .unwrap_or(settings.rate_limit_per_minute),
            ..settings.clone()
        }
    }
}

fn concurrency(value: &Value) -> Result<u32, Problem> {
    let number = value.as_u64().filter(|number| (1..=MOST_CONCURRENCY).contains(number));
    number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
        let detail = format!("concurrency must be a whole number from 1 to {MOST_CONCURRENCY}");
        Problem::field("concurrency", detail)
    })
}

/// A rate, or none: `null` and 0 remove it.
fn rate(value: &Value) -> Result<Option<u32>, Problem> {
    if value.is_null() {
        return Ok(None);
    }
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let number = number.ok_or_else(|| {
        let detail = "rateLimitPerMinute must be a whole number, or null for no limit";
        Problem::field("rateLimitPerMinute", detail)
    })?;
    Ok(Some(number).filter(|number| *number > 0))
}

/// `POST /api/v1/breakers/{name}/reset`
pub(crate) async fn reset_breaker(
    State(api): State<Api>,
    Segment(name): Segment,
) -> Result<Response, Problem> {
    let unknown = || Problem::new(Code::UnknownBreaker, format!("there is no breaker {name}"));
    if !api.daemon.breakers().reset(&name) {
        return Err(unknown());
    }
    let reports = api.daemon.breakers().list();
    let report = reports.iter().find(|report| *report.name == *name).ok_or_else(unknown)?;
    Ok(reply(StatusCode::OK, &BreakerShape::new(report, Seen::now())))
}

/// `DELETE /api/v1/pauses/{host}?pool=`
pub(crate) async fn lift_pause(
    State(api): State<Api>,
    Segment(host): Segment,
    query: Query,
) -> Result<Response, Problem> {
    query.only(&["pool"])?;
    let (router, pool) = (api.daemon.router(), query.get("pool"));
    if router.lift_pause(&host, pool) {
        return Ok(done());
    }
    let pauses = router.pauses().into_iter();
    let of_pool = pauses.filter(|pause| pool.is_none_or(|pool| *pause.pool == *pool));
    let hosts: BTreeSet<Box<str>> = of_pool.map(|pause| pause.host).collect();
    let meant: Vec<&str> =
        hosts.iter().map(|host| &**host).filter(|paused| names(&host, paused)).collect();
    if let [only] = meant[..]
        && router.lift_pause(only, pool)
    {
        return Ok(done());
    }
    let of_pool = pool.map(|pool| format!(" for pool {pool}")).unwrap_or_default();
    let detail = match &meant[..] {
        [] => format!("{host} is not paused{of_pool}"),
        several => format!("{host} is paused{of_pool} at several ports: {}", several.join(", ")),
    };
    Err(Problem::new(Code::UnknownPause, detail))
}

/// Whether a host alone names one with a port.
fn names(host: &str, authority: &str) -> bool {
    let alone = authority.rsplit_once(':').map(|(alone, _)| alone);
    alone.is_some_and(|alone| alone.eq_ignore_ascii_case(host))
}

/// `POST /api/v1/warnings/{id}/acknowledge`
pub(crate) async fn acknowledge_warning(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let number = id.parse().ok();
    let warning = number.and_then(|id| api.daemon.record().warnings.acknowledge(id));
    let warning = warning.ok_or_else(|| unknown_warning(&id))?;
    Ok(reply(StatusCode::OK, &warning.to_json()))
}

/// `DELETE /api/v1/warnings/{id}`
pub(crate) async fn remove_warning(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let removed = id.parse().ok().and_then(|id| api.daemon.record().warnings.remove(id));
    removed.map(|_| done()).ok_or_else(|| unknown_warning(&id))
}

fn unknown_warning(id: &str) -> Problem {
    Problem::new(Code::UnknownWarning, format!("there is no warning {id}"))
}

/// `POST /api/v1/config/reload`
pub(crate) async fn reload(State(api): State<Api>) -> Result<Response, Problem> {
    let daemon = api.daemon.clone();
    // To the end, even if the caller goes away in between: half a configuration is none.
    let reload = |cx: Context| async move { cx.until_interrupted(daemon.reload()).await };
    let ran = api.errands.run(api.daemon.context(), reload).await;
    let report = ran.map_err(|error| not_run(&error))?.map_err(|_| ending())??;
    Ok(reply(StatusCode::OK, &applied(&report)))
}

fn applied(report: &ApplyReport) -> Value {
    let codes = |codes: &[Arc<str>]| codes.iter().map(|code| code.to_string()).collect::<Vec<_>>();
    json!({
        "applied": {
            "setPools": codes(&report.set_pools),
            "removedPools": codes(&report.removed_pools),
            "addedQueues": report.added_queues,
            "removedQueues": report.removed_queues,
            "agents": report.agents,
        },
        "issues": report.issues,
        "needsRestart": report.fixed.iter().map(|fixed| fixed.key).collect::<Vec<_>>(),
    })
}

pub(super) fn ending() -> Problem {
    Problem::new(Code::ShuttingDown, "the daemon is shutting down")
}

pub(super) fn not_run(error: &TaskError) -> Problem {
    match error {
        TaskError::Panicked(_) => Problem::new(Code::Internal, "the daemon failed at it"),
        _ => ending(),
    }
}
