//! Every route, in one table: what answers there, and what is said of it in `/openapi.json`.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use super::intake::Query;
use super::problem::{Code, Problem};
use super::{
    Api, ack, dashboard, event_pages, event_tail, events, find, messages, openapi, operate, parked,
    parked_lines, probes, request_routes, stream, views, workers,
};

/// A route.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    call: MethodRouter<Api>,
    /// Names of parameters behind the `?`.
    pub(crate) query: &'static [&'static str],
    /// The schema of the body, if it takes one.
    pub(crate) body: Option<&'static str>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) problems: &'static [Code],
    /// Whether it needs no token.
    pub(crate) open: bool,
}

/// What a route answers when nothing is wrong.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) what: What,
}

/// What an answer holds.
#[derive(Clone, Copy)]
pub(crate) enum What {
    /// Nothing.
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// A part of a list of this schema.
    List(&'static str),
    /// Text of this media type.
    Text(&'static str),
}

const METHODS: [(&str, MethodFilter); 4] = [
    ("GET", MethodFilter::GET),
    ("POST", MethodFilter::POST),
    ("PATCH", MethodFilter::PATCH),
    ("DELETE", MethodFilter::DELETE),
];

const PAGED: &[&str] = &["limit", "cursor"];
const OF_POOL: &[&str] = &["pool", "limit", "cursor"];
pub(super) const OF_PARKED: &[&str] =
    &["queue", "pool", "group", "code", "host", "after", "before", "limit", "cursor"];
pub(super) const EXPORTED: &[&str] = &[
    "queue",
    "pool",
    "group",
    "code",
    "host",
    "after",
    "before",
    "limit",
    "cursor",
    "withSecrets",
];
pub(super) const REPLAYED: &[&str] = &[
    "ids", "all", "queue", "pool", "group", "code", "host", "after", "before", "dryRun", "rate",
    "limit", "cursor",
];

/// What looking for parked messages may meet with.
const PARKED: &[Code] =
    &[Code::BadRequest, Code::UnknownPool, Code::UnknownQueue, Code::StorageFailed];

/// A route that answers 200 with this.
pub(super) fn route<H, T>(
    line: &'static str,
    what: What,
    summary: &'static str,
    handler: H,
) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let (method, path) = line.split_once(' ').expect("a line of the table has a method and a path");
    let known = METHODS.into_iter().find(|(name, _)| *name == method);
    let (_, filter) = known.expect("a line of the table begins with a method");
    Route {
        method,
        path,
        summary,
        call: on(filter, handler),
        query: &[],
        body: None,
        answers: vec![Answer { status: 200, what }],
        problems: &[],
        open: false,
    }
}

/// A route that answers with a part of a list.
pub(super) fn list<H, T>(
    line: &'static str,
    of: &'static str,
    summary: &'static str,
    query: &'static [&'static str],
    handler: H,
) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let problems: &[Code] = if query == OF_POOL {
        &[Code::BadRequest, Code::UnknownPool]
    } else if query == OF_PARKED {
        PARKED
    } else {
        &[Code::BadRequest]
    };
    route(line, What::List(of), summary, handler).query(query).problems(problems)
}

impl Route {
    pub(super) fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    pub(super) fn body(self, schema: &'static str) -> Self {
        Self { body: Some(schema), ..self }
    }

    fn status(mut self, status: u16) -> Self {
        self.answers[0].status = status;
        self
    }

    pub(super) fn or(mut self, status: u16, what: What) -> Self {
        self.answers.push(Answer { status, what });
        self
    }

    /// In another form, for those who ask for it.
    fn also(self, what: What) -> Self {
        let status = self.answers[0].status;
        self.or(status, what)
    }

    pub(super) fn problems(self, problems: &'static [Code]) -> Self {
        Self { problems, ..self }
    }

    fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// Whether a parameter that it does not know is an error: one that is misspelt would mean everything, or do for
    /// real what was to be tried only. What only looks and takes none is not asked.
    fn checks_query(&self) -> bool {
        let takes_some = !self.query.is_empty() || self.method != "GET";
        takes_some && self.path.starts_with("/api/v1/")
    }
}

/// All of them.
pub(crate) fn routes() -> Vec<Route> {
    let mut all = around();
    all.extend(looking());
    all.extend(operating());
    all
}

/// Pages, probes, and what describes the rest.
fn around() -> Vec<Route> {
    const HTML: What = What::Text("text/html");
    const FORM: &str = "Login";
    let probe = |route: Route| route.or(503, What::Json("Health")).open();
    vec![
        route("GET /", HTML, "The dashboard, or where it asks for the token", dashboard::page)
            .open(),
        route("POST /login", What::Nothing, "Logs a browser in", dashboard::login)
            .body(FORM)
            .status(303)
            .or(401, HTML)
            .problems(&[Code::ForeignOrigin])
            .open(),
        route("POST /logout", What::Nothing, "Logs a browser out", dashboard::logout).status(303),
        probe(route(
            "GET /health",
            What::Json("Health"),
            "How it is on the whole",
            probes::overall,
        )),
        probe(route("GET /health/live", What::Json("Health"), "Whether it is there", probes::live)),
        probe(route(
            "GET /health/ready",
            What::Json("Health"),
            "Whether it can be given work",
            probes::ready,
        )),
        probe(route(
            "GET /health/startup",
            What::Json("Health"),
            "Whether its start is over",
            probes::startup,
        )),
        route("GET /metrics", What::Text(METRICS), "Metrics, as OpenMetrics text", probes::metrics),
        route("GET /openapi.json", What::Json("Document"), "This document", openapi::show),
    ]
}

/// The media type of metrics, without its parameters.
const METRICS: &str = "application/openmetrics-text";

/// What only looks.
fn looking() -> Vec<Route> {
    vec![
        route(
            "GET /api/v1/messages/{id}",
            What::Json("Message"),
            "Where a message is, and why",
            find::show,
        )
        .problems(&[Code::UnknownMessage, Code::QueuesNotAsked, Code::StorageFailed]),
        list("GET /api/v1/queues", "Queue", "Queues", PAGED, views::queues),
        list("GET /api/v1/pools", "Pool", "Pools", PAGED, views::pools),
        list("GET /api/v1/groups", "Group", "Groups with messages", OF_POOL, views::groups),
        list(
            "GET /api/v1/inflight",
            "InFlight",
            "Messages in flight, oldest first",
            OF_POOL,
            views::in_flight,
        ),
        list("GET /api/v1/tenants", "Tenant", "Tenants with messages or requests", PAGED, views::tenants),
        list("GET /api/v1/workers", "Worker", "Workers of agents", PAGED, workers::list),
        list("GET /api/v1/pauses", "Pause", "Hosts that asked for a pause", PAGED, views::pauses),
        list("GET /api/v1/breakers", "Breaker", "Circuit breakers", PAGED, views::breakers),
        list(
            "GET /api/v1/warnings",
            "Warning",
            "Warnings, newest first",
            &["severity", "limit", "cursor"],
            views::warnings,
        ),
        list(
            "GET /api/v1/parked",
            "Parked",
            "Parked messages, in the order in which they were",
            OF_PARKED,
            parked::list,
        ),
        route(
            "GET /api/v1/parked/export",
            What::Text("application/x-ndjson"),
            "Parked messages as JSON Lines; without the tokens of messages, unless an operator asks for them",
            parked_lines::export,
        )
        .query(EXPORTED)
        .problems(PARKED),
        route(
            "GET /api/v1/config",
            What::Json("Config"),
            "The settings in effect, without secrets",
            views::config,
        ),
        route(
            "GET /api/v1/cluster",
            What::Json("Cluster"),
            "Which part of a cluster this is",
            views::cluster,
        ),
        route(
            "GET /api/v1/stream",
            What::Text("text/event-stream"),
            "What happens, as server-sent events",
            stream::follow,
        )
        .problems(&[Code::Overloaded]),
    ]
}

/// What changes something.
fn operating() -> Vec<Route> {
    let mut all = vec![
        publishing(),
        route(
            "PATCH /api/v1/pools/{code}",
            What::Json("Pool"),
            "Changes the limits of a pool, live",
            operate::change_pool,
        )
        .body("PoolChange")
        .problems(&[Code::MalformedJson, Code::UnknownPool, Code::InvalidField]),
        route(
            "POST /api/v1/inflight/{id}/ack",
            What::Json("Acked"),
            "Settles a waiting message as done, here or in its queue",
            ack::acknowledge_message,
        )
        .problems(&[
            Code::NotInFlight,
            Code::Busy,
            Code::QueuesNotAsked,
            Code::StorageFailed,
            Code::StorageFull,
        ]),
        route(
            "POST /api/v1/breakers/{name}/reset",
            What::Json("Breaker"),
            "Closes a breaker and forgets its calls",
            operate::reset_breaker,
        )
        .problems(&[Code::UnknownBreaker]),
        route(
            "DELETE /api/v1/pauses/{host}",
            What::Nothing,
            "Lets a host be called again",
            operate::lift_pause,
        )
        .query(&["pool"])
        .status(204)
        .problems(&[Code::BadRequest, Code::UnknownPause]),
        route(
            "POST /api/v1/warnings/{id}/acknowledge",
            What::Json("Warning"),
            "Takes note of a warning",
            operate::acknowledge_warning,
        )
        .problems(&[Code::UnknownWarning]),
        route(
            "DELETE /api/v1/warnings/{id}",
            What::Nothing,
            "Removes a warning",
            operate::remove_warning,
        )
        .status(204)
        .problems(&[Code::UnknownWarning]),
        route("DELETE /api/v1/workers/{id}", What::Nothing, "Ends a worker", workers::end)
            .status(204)
            .problems(&[Code::UnknownWorker]),
        route(
            "POST /api/v1/config/reload",
            What::Json("Reloaded"),
            "Reads the file again and applies what can change live",
            operate::reload,
        )
        .problems(&[Code::NoConfigFile, Code::InvalidConfig]),
    ];
    all.extend(on_parked());
    all.extend(request_routes::routes());
    all.extend(of_events());
    all
}

/// The event store.
fn of_events() -> Vec<Route> {
    vec![
        route(
            "POST /api/v1/events",
            What::Json("Appended"),
            "Appends events, all or none, if the condition holds",
            events::append,
        )
        .body("Append")
        .status(201)
        .problems(&[
            Code::MalformedJson,
            Code::AppendConditionFailed,
            Code::InvalidField,
            Code::StorageFailed,
            Code::StorageFull,
            Code::EventsTimedOut,
        ]),
        route(
            "POST /api/v1/events/query",
            What::Json("EventPage"),
            "Events after a position: a part as JSON, or all of them as JSON Lines",
            events::query,
        )
        .body("EventQuery")
        .also(What::Text(event_pages::LINES))
        .problems(&[
            Code::MalformedJson,
            Code::InvalidField,
            Code::StorageFailed,
            Code::EventsTimedOut,
        ]),
        route(
            "POST /api/v1/events/project",
            What::Json("Projected"),
            "Folds events into states, with the condition under which a decision on them holds",
            events::project,
        )
        .body("Project")
        .problems(&[
            Code::MalformedJson,
            Code::InvalidField,
            Code::FoldFailed,
            Code::TooManyProjections,
            Code::StorageFailed,
            Code::EventsTimedOut,
        ]),
        route(
            "GET /api/v1/events/stream",
            What::Text("text/event-stream"),
            "Follows the event store, as server-sent events",
            event_tail::follow,
        )
        .query(&["after", "type", "tag"])
        .problems(&[Code::BadRequest, Code::StorageFailed, Code::Overloaded]),
    ]
}

fn publishing() -> Route {
    route(
        "POST /api/v1/messages",
        What::Json("Accepted"),
        "Takes messages into a queue, all or none",
        messages::publish,
    )
    .query(&["queue"])
    .body("Messages")
    .status(202)
    .problems(&[
        Code::MalformedJson,
        Code::UnknownQueue,
        Code::SlowRequest,
        Code::TooLarge,
        Code::InvalidMessages,
        Code::ForbiddenTarget,
        Code::UnknownPools,
        Code::NotPublishable,
        Code::Starting,
        Code::StorageFailed,
        Code::StorageFull,
    ])
}

/// What is done with parked messages.
fn on_parked() -> Vec<Route> {
    const REPLAY: &[Code] = &[
        Code::BadRequest,
        Code::MalformedJson,
        Code::UnknownParked,
        Code::UnknownPool,
        Code::UnknownQueue,
        Code::BehindEarlier,
        Code::NoQueue,
        Code::NoPool,
        Code::Busy,
        Code::Malformed,
        Code::NotPublishable,
        Code::InvalidField,
        Code::StorageFailed,
        Code::StorageFull,
    ];
    vec![
        route(
            "POST /api/v1/parked/replay",
            What::Json("Replayed"),
            "Gives parked messages back to their queues: some by id, all or none; or those that can be of \
             all, or of what they have in common",
            parked::replay_many,
        )
        .query(REPLAYED)
        .body("Replay")
        .problems(REPLAY),
        route(
            "POST /api/v1/parked/{id}/replay",
            What::Json("Replayed"),
            "Gives a parked message back to its queue",
            parked::replay,
        )
        .problems(REPLAY),
        route(
            "POST /api/v1/parked/import",
            What::Json("Imported"),
            "Parks messages that were exported: JSON Lines, of which good ones are taken in",
            parked_lines::import,
        )
        .query(&["behind"])
        .body("ParkedLines")
        .problems(&[
            Code::BadRequest,
            Code::SlowRequest,
            Code::TooLarge,
            Code::StorageFailed,
            Code::StorageFull,
        ]),
        route(
            "DELETE /api/v1/parked/{id}",
            What::Nothing,
            "Gives a parked message up",
            parked::discard,
        )
        .status(204)
        .problems(&[Code::UnknownParked, Code::Busy, Code::StorageFailed, Code::StorageFull]),
    ]
}

/// Answers a request unless it has a parameter that there is not.
async fn known_only(known: &'static [&'static str], request: Request, next: Next) -> Response {
    match Query::of_uri(request.uri()).known_only(known) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// What answers requests that were let in.
pub(crate) fn router(api: Api) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let checks = route.checks_query();
        let Route { path, call, query, .. } = route;
        let check = move |request: Request, next: Next| known_only(query, request, next);
        router = router.route(path, if checks { call.route_layer(from_fn(check)) } else { call });
    }
    router
        .fallback(async || Problem::new(Code::NotFound, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(Code::MethodNotAllowed, "the path has other methods: see Allow")
        })
        .with_state(api)
}
