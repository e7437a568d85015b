//! The reference pages in docs/ say what is there: every setting, route and metric, and none that is not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use sluicegate_agents::{Event, RequestError, Tenant};
use sluicegate_dispatch::{Depth, Outcome, PoolSettings as Pool};
use sluicegate_server::metrics::{AgentSnapshot, Snapshot};
use sluicegate_server::record::Record;
use sluicegate_server::settings::{PoolSettings, Settings, changes};

use crate::api::schema::Document;
use crate::api::stage::Stage;
use crate::scene::{Hands, Stock, every_fact, name, router};

const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");
const API: &str = include_str!("../../../../docs/api.md");
const METRICS: &str = include_str!("../../../../docs/metrics.md");
const EXAMPLE: &str = include_str!("../../../../examples/sluicegate.toml");

/// The sections that do something in this build.
const WORKING: [&str; 12] = [
    "[server]",
    "[state]",
    "[router]",
    "[http]",
    "[http.breaker]",
    "[[queue]]",
    "[[pool]]",
    "[log]",
    "[alerts]",
    "[agents]",
    "[agents.tenant_limits]",
    "[events]",
];

/// A row of a table: its cells without code marks, and the heading it stands below.
struct Row {
    heading: &'static str,
    cells: Vec<String>,
    text: &'static str,
}

/// The rows of all tables whose first column is called so.
fn rows(page: &'static str, first: &str) -> Vec<Row> {
    let (mut heading, mut is_meant, mut is_inside) = ("", false, false);
    let mut found = Vec::new();
    for text in page.lines() {
        if let Some(words) = text.strip_prefix("## ") {
            heading = words.trim_matches('`');
        }
        let Some(inside) = text.strip_prefix("| ") else {
            is_inside &= text.starts_with("|-");
            continue;
        };
        let cells = inside.replace("\\|", "/");
        let cells = cells.trim_end().trim_end_matches('|').split('|');
        let cells: Vec<String> = cells.map(|cell| cell.trim().trim_matches('`').into()).collect();
        if !is_inside {
            (is_inside, is_meant) = (true, cells[0] == first);
        } else if is_meant {
            found.push(Row { heading, cells, text });
        }
    }
    assert!(found.len() > 3, "there are tables of each {first}");
    found
}

fn read(text: &str) -> Settings {
    Settings::parse("docs", text, &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What the parser knows below a header: it says so of a key that is none.
fn known_below(header: &str) -> Option<Vec<String>> {
    const NONE: &str = "zqzqzqzqzqzqzqzqzqzq";
    let text = format!("{header}\n{NONE} = 1\n");
    let problems = Settings::parse("docs", &text, &|_| None).expect_err("it is no key");
    let unknown = problems.list().iter().find(|problem| problem.key.ends_with(NONE))?;
    let known = unknown.help.as_deref()?.strip_prefix("known here: ")?;
    Some(known.split(", ").map(str::to_owned).collect())
}

/// Every setting, as its section's header and its key.
fn settings() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut sections = vec![(String::new(), String::new())];
    while let Some((header, path)) = sections.pop() {
        for key in known_below(&header).unwrap_or_default() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let headers = [format!("[{path}]"), format!("[[{path}]]")];
            match headers.into_iter().find(|header| known_below(header).is_some()) {
                Some(header) => sections.push((header, path)),
                None => {
                    found.insert((header.clone(), key));
                }
            }
        }
    }
    found
}

#[test]
fn every_setting_is_described_and_no_other() {
    let described: Vec<_> = rows(CONFIGURATION, "key")
        .into_iter()
        .map(|row| (row.heading.to_owned(), row.cells[0].clone()))
        .collect();
    let known = settings();
    assert!(known.contains(&("[http.breaker]".to_owned(), "scope".to_owned())), "{known:?}");
    assert_eq!(described.iter().cloned().collect::<BTreeSet<_>>(), known);
    assert_eq!(described.len(), known.len(), "each once");
}

/// A setting as the daemon shows it; null if it is not set.
fn shown(settings: &Value, pool: &Value, section: &str, key: &str) -> Value {
    let camel = |word: &str| {
        let mut parts = word.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| all + &part[..1].to_uppercase() + &part[1..])
    };
    let path: Vec<String> = section.trim_matches(['[', ']']).split('.').map(camel).collect();
    let section = match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["queue"] => &settings["queues"][0],
        ["pool"] => pool,
        [one] => &settings[one],
        [one, two] => &settings[one][two],
        _ => &Value::Null,
    };
    section[camel(key)].clone()
}

/// A value as the file has it.
fn written(value: &Value) -> String {
    match value {
        Value::Array(all) => {
            format!("[{}]", all.iter().map(written).collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

#[test]
fn every_default_is_the_one_that_holds() {
    let (settings, pool) = (Settings::default().shown(), PoolSettings::new("P").shown());
    for row in rows(CONFIGURATION, "key") {
        let (key, default) = (&row.cells[0], row.cells[2].as_str());
        if ["required", "as for all"].contains(&default) {
            continue;
        }
        match shown(&settings, &pool, row.heading, key) {
            Value::Null => assert!([r#""""#, "0"].contains(&default), "{} {key}", row.heading),
            value => assert_eq!(written(&value), default, "{} {key}", row.heading),
        }
    }
}

/// Everything in it differs from its default.
const OTHERWISE: &str = r#"
    [server]
    listen = "127.0.0.1:1"
    token = "a"
    read_token = "b"
    drain = "1s"
    [state]
    path = "a.db"
    [router]
    enabled = false
    config_url = ["http://a.example/"]
    sync_interval = "1s"
    sync_attempts = 1
    sync_retry_delay = "1s"
    max_pools = 2
    pool_warning_threshold = 1
    unknown_pool = "park"
    [http]
    timeout = "1s"
    connect_timeout = "1s"
    version = "1.1"
    success = "200"
    allow_targets = []
    [http.breaker]
    scope = "off"
    window = "1s"
    volume = 1
    failure_ratio = 1
    open_for = "1s"
    close_after = 1
    [log]
    format = "json"
    [alerts]
    webhook = "http://a.example/"
    min_severity = "INFO"
    every = "1s"
    [events]
    url = "postgres://h/d"
    max_concurrent_projections = 1
    max_projection_tasks = 1
    [agents]
    enabled = true
    command = ["a", "{prompt}"]
    session_args = []
    resume_args = []
    prompt = "arg"
    env = { A = "a" }
    folder = "a"
    cgroups = "off"
    dialect = { text_field = "a" }
    queue_timeout = "1s"
    execution_timeout = "30s"
    max_silence = "1s"
    max_queue_depth_per_tenant = 1
    max_queue_depth_global = 1
    worker_idle_timeout = "1s"
    max_requests_per_worker = 1
    max_worker_errors = 1
    graceful_shutdown = "1s"
    upstream_rate_limit_rps = 1
    max_total_memory_mb = 1
    worker_memory_mb = 1
    worker_pool_json = "tests/fixtures/worker_pool.json"
    [agents.tenant_limits]
    max_concurrent_requests = 1
    max_queued_requests = 1
    max_response_time = "1s"
    rate_limit_requests = 1
    rate_limit_window = "1s"
    weight = 2
    [[queue]]
    name = "a"
    uri = "sqlite:a"
    [[pool]]
    code = "A"
"#;

#[test]
fn what_changes_live_is_said_of_each_setting() {
    let (usual, pool) = (Settings::default(), Value::Null);
    // The one that is at odds with another.
    let knowledge = read("[http]\nprior_knowledge = true\n[agents]\nmode = \"persistent\"\n");
    let other = read(OTHERWISE);
    let mut fixed: BTreeSet<&str> = BTreeSet::new();
    for settings in [&knowledge, &other] {
        fixed.extend(changes(&usual, settings).iter().map(|fixed| fixed.key));
    }
    for row in rows(CONFIGURATION, "key") {
        let (section, key, live) = (row.heading, &row.cells[0], row.cells[4].as_str());
        if ["[[queue]]", "[[pool]]", "[[agents.tenant]]"].contains(&section) {
            assert_eq!(live, "yes", "{section} {key}");
        } else if WORKING.contains(&section) {
            let of = |settings: &Settings| shown(&settings.shown(), &pool, section, key);
            let differs = [&knowledge, &other].iter().any(|other| of(other) != of(&usual));
            assert!(differs, "{section} {key} is not tried");
            let path = format!("{}.{key}", section.trim_matches(['[', ']']));
            let is_live = if fixed.contains(&path[..]) { "no" } else { "yes" };
            assert_eq!(live, is_live, "{path}");
        } else {
            assert_eq!(live, "no", "{section} {key}");
        }
    }
}

#[test]
fn the_example_is_sound_and_has_every_setting() {
    let read = read(EXAMPLE);
    assert!(read.queues.len() == 1 && read.pools.len() == 3);
    let lines = EXAMPLE.lines().map(|line| line.trim_start_matches("# "));
    let given: BTreeSet<&str> = lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    for (section, key) in settings() {
        let is_working = WORKING.contains(&&section[..]);
        assert!(!is_working || given.contains(&key[..]), "{section} {key}");
    }
    for row in rows(CONFIGURATION, "key") {
        let is_working = WORKING.contains(&row.heading);
        assert!(!is_working || EXAMPLE.contains(row.heading), "{}", row.heading);
    }
}

/// What every guarded request may meet with, which is said once for all.
const EVERYWHERE: [&str; 10] = [
    "bad_request",
    "unauthorized",
    "forbidden",
    "foreign_host",
    "foreign_origin",
    "head_too_large",
    "internal",
    "overloaded",
    "timed_out",
    "shutting_down",
];

/// What takes a body and changes nothing for anybody else.
const READ: [&str; 3] = ["/logout", "/api/v1/events/query", "/api/v1/events/project"];

#[tokio::test]
async fn every_route_is_in_the_docs() {
    let stage = Stage::start("").await;
    let document = Document::of(&stage).await;
    let rows = rows(API, "route");
    let mut rows: BTreeMap<&str, &Row> = rows.iter().map(|row| (&row.cells[0][..], row)).collect();
    let codes =
        document.0["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].clone();
    let codes: Vec<&str> =
        codes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (path, methods) in document.0["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let line = format!("{} {path}", method.to_uppercase());
            let Some(row) = rows.remove(&line[..]) else { panic!("{line} is not in docs/api.md") };
            let role = match (operation["security"].is_array(), &method[..]) {
                (true, _) => "open",
                (false, "get") => "read",
                (false, "post") if READ.contains(&&path[..]) => "read",
                _ => "operate",
            };
            assert_eq!(row.cells[1], role, "{line}");
            for parameter in operation["parameters"].as_array().expect("a list") {
                let parameter = document.resolve(parameter);
                let name = parameter["name"].as_str().expect("a name");
                let is_named = parameter["in"] == "path" || row.text.contains(&format!("`{name}`"));
                assert!(is_named, "{line} does not name {name}");
            }
            let said = operation["responses"].to_string();
            for code in codes.iter().filter(|code| !EVERYWHERE.contains(code)) {
                let code = format!("`{code}`");
                assert!(!said.contains(&code) || row.text.contains(&code), "{line}: {code}");
            }
        }
    }
    assert!(rows.is_empty(), "there is no {:?}", rows.keys());
    let means = self::rows(API, "status");
    for code in codes {
        let is_said = means.iter().any(|row| row.cells[1].contains(code));
        assert!(is_said, "{code} is not in docs/api.md");
    }
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_in_the_docs_and_no_other() {
    let record = Record::new(Hands::new());
    let pools = vec![Pool::new("P", 4)];
    let takes = Duration::from_millis(1);
    let router = router(&record, pools, Some(Stock::of([])), takes, Outcome::Done).await;
    every_fact(|_, fact| record.metrics.count(fact));
    let mut snapshot = Snapshot::of(&router);
    snapshot.depths.insert(name("q"), Depth::default());
    let (workers, tenants) = (vec![("IDLE", 1)], vec![("web:1".to_owned(), 1)]);
    snapshot.agents = Some(AgentSnapshot { workers, tenants, ..AgentSnapshot::default() });
    let tenant = Tenant::parse("web:1").expect("a tenant");
    let event = Event::RequestRejected { tenant: &tenant, error: &RequestError::ShuttingDown };
    sluicegate_agents::Observer::observe(&*record, &event);
    let page = record.metrics.render(snapshot);
    let described = rows(METRICS, "metric");
    let mut names = BTreeSet::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, kind) = line.split_once(' ').expect("a name and a type");
        let total = if kind == "counter" { "_total" } else { "" };
        let metric = format!("{family}{total}");
        let row = described.iter().find(|row| row.cells[0] == metric);
        let Some(row) = row else { panic!("{metric} is not in docs/metrics.md") };
        assert_eq!(row.cells[1], kind, "{metric}");
        let series = |line: &&str| line.starts_with(&format!("{metric}{{"));
        for label in page.lines().find(series).into_iter().flat_map(labels) {
            assert!(row.cells[2].contains(label), "{metric} has the label {label}");
        }
        names.insert(metric);
    }
    let words = METRICS.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("sluicegate_")) {
        assert!(names.contains(word), "there is no metric {word}");
    }
}

/// The names of a series' labels.
fn labels(series: &str) -> impl Iterator<Item = &str> {
    let inside = series.split_once('{').map_or("", |(_, rest)| rest);
    inside
        .split("=\"")
        .filter_map(|part| part.rsplit([',', '"']).next())
        .filter(|part| part.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !part.is_empty())
}
