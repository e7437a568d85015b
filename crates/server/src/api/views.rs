//! What there is: queues, pools, groups, messages in flight, tenants, workers, breakers, warnings.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;
use sluicegate_dispatch::{MessageView, Phase, QueueView, Severity};
use tokio::time::Instant;

use super::intake::Query;
use super::page::{Page, bad_cursor, limit, page};
use super::problem::Problem;
use super::reply::reply;
use super::shapes::{
    BreakerShape, GroupShape, InFlightShape, PauseShape, PoolShape, QueueShape, Seen, TenantShape,
    millis,
};
use super::{Api, in_effect, known};

fn shown(page: &Page<impl serde::Serialize>) -> Response {
    reply(StatusCode::OK, page)
}

/// Those that are leaving come last.
const fn rank(phase: Phase) -> u8 {
    match phase {
        Phase::Running => 0,
        Phase::Draining => 1,
    }
}

/// `GET /api/v1/queues`
pub(crate) async fn queues(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let views = api.daemon.router().queue_views();
    let key = |view: &QueueView| format!("{}{}", rank(view.phase), view.name);
    let Page { items, next } = page(&query, views, key, |view| view)?;
    let in_effect = api.daemon.in_effect();
    let seen = Seen::now();
    let shapes = items.into_iter().map(|view| {
        let (api, uri) = (&api, in_effect.queue_uri(&view.name));
        async move {
            let depth = api.daemon.depth(&view.name).await;
            QueueShape::new(view, uri, depth, seen)
        }
    });
    Ok(shown(&Page { items: join_all(shapes).await, next }))
}

/// `GET /api/v1/pools`
pub(crate) async fn pools(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let key = |view: &sluicegate_dispatch::PoolView| {
        format!("{}{}", rank(view.phase), view.settings.code)
    };
    let page = page(&query, api.daemon.router().pool_views(), key, |view| PoolShape::from(&view))?;
    Ok(shown(&page))
}

/// `GET /api/v1/groups?pool=`
pub(crate) async fn groups(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let seen = Seen::now();
    let views = api.daemon.router().group_views(query.get("pool"));
    known::pool(&api, query.get("pool"), views.is_empty())?;
    let key = |view: &sluicegate_dispatch::GroupView| format!("{}\0{}", view.pool, view.group);
    Ok(shown(&page(&query, views, key, |view| GroupShape::new(&view, seen))?))
}

/// `GET /api/v1/inflight?pool=&limit=`: oldest first, by the second in which they came.
pub(crate) async fn in_flight(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let (now, seen) = (Instant::now(), Seen::now());
    let views = api.daemon.router().message_views(query.get("pool"));
    known::pool(&api, query.get("pool"), views.is_empty())?;
    let key = |view: &MessageView| {
        let came = now.checked_sub(view.age).unwrap_or(api.since);
        let second = came.saturating_duration_since(api.since).as_secs();
        format!("{second:020}{}\0{}", view.message.id, view.queue)
    };
    Ok(shown(&page(&query, views, key, |view| InFlightShape::new(&view, seen))?))
}

/// `GET /api/v1/tenants`: each over all pools, and over agents.
pub(crate) async fn tenants(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let router = api.daemon.router();
    let mut tenants: BTreeMap<String, TenantShape> = BTreeMap::new();
    for view in router.pool_views().into_iter().flat_map(|pool| pool.tenants) {
        let shape = tenants.entry(view.tenant.to_string()).or_default();
        shape.weight = shape.weight.max(view.weight);
        shape.queued += u64::from(view.queued);
        shape.running += u64::from(view.running);
        shape.served += view.served;
    }
    for message in router.message_views(None) {
        let waits = message.running_for.is_none();
        let tenant = message.message.tenant.as_deref().filter(|_| waits);
        if let Some(shape) = tenant.and_then(|tenant| tenants.get_mut(tenant)) {
            shape.oldest_wait_ms = shape.oldest_wait_ms.max(millis(message.age));
        }
    }
    for (view, tally, oldest) in
        api.daemon.agents().map(|agents| agents.tenants()).unwrap_or_default()
    {
        let shape = tenants.entry(view.tenant.to_string()).or_default();
        shape.weight = shape.weight.max(view.weight);
        shape.queued += u64::from(view.queued);
        shape.running += u64::from(view.running);
        shape.served += tally.served;
        shape.failed += tally.failed;
        shape.rejected += tally.rejected;
        shape.oldest_wait_ms = shape.oldest_wait_ms.max(millis(oldest));
    }
    let named = |(id, shape): (String, TenantShape)| TenantShape { id, ..shape };
    let all: Vec<TenantShape> = tenants.into_iter().map(named).collect();
    Ok(shown(&page(&query, all, |tenant| tenant.id.clone(), |tenant| tenant)?))
}

/// `GET /api/v1/breakers`
pub(crate) async fn breakers(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let seen = Seen::now();
    let reports = api.daemon.breakers().list();
    let key = |report: &sluicegate_executors::BreakerReport| report.name.to_string();
    Ok(shown(&page(&query, reports, key, |report| BreakerShape::new(&report, seen))?))
}

/// `GET /api/v1/pauses`
pub(crate) async fn pauses(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let seen = Seen::now();
    let pauses = api.daemon.router().pauses();
    let key = |pause: &sluicegate_dispatch::PauseView| format!("{} {}", pause.pool, pause.host);
    Ok(shown(&page(&query, pauses, key, |pause| PauseShape::new(&pause, seen))?))
}

/// `GET /api/v1/warnings?severity=`: newest first.
pub(crate) async fn warnings(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let severity = match query.get("severity") {
        None => None,
        Some(text) => Some(Severity::of_label(&text.to_ascii_uppercase()).ok_or_else(|| {
            let detail = "severity must be INFO, WARNING, ERROR or CRITICAL";
            Problem::parameter("severity", detail)
        })?),
    };
    let cursor = query.get("cursor").map(str::parse).transpose().map_err(|_| bad_cursor())?;
    let page = api.daemon.record().warnings.list(severity, cursor, limit(&query)?);
    let items = page.items.iter().map(crate::warnings::Warning::to_json).collect();
    Ok(shown(&Page { items, next: page.next.map(|next| next.to_string()) }))
}

/// `GET /api/v1/config`
pub(crate) async fn config(State(api): State<Api>) -> Response {
    reply(StatusCode::OK, &in_effect::shown(&api.daemon))
}

/// `GET /api/v1/cluster`
pub(crate) async fn cluster() -> Response {
    reply(StatusCode::OK, &json!({ "mode": "single", "role": "primary" }))
}
