//! What is right in a settings file, and what it means.

use std::num::NonZeroU32;
use std::time::Duration;

use sluicegate_dispatch::{OnExhausted, Ordering, Severity, Ungrouped};
use sluicegate_executors::BreakerScope;
use sluicegate_executors::http::{HttpVersion, Success};
use sluicegate_server::settings::{
    AgentMode, LogFormat, PoolSettings, QueueUri, Settings, changes,
};

fn env(name: &str) -> Option<String> {
    let variables = [("PORT", "9000"), ("EMPTY", ""), ("TOKEN", "lion")];
    variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

fn read(text: &str) -> Settings {
    Settings::parse("f.toml", text, &env).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Every key there is, each with its default where it has one.
const EVERYTHING: &str = include_str!("../fixtures/everything.toml");

#[test]
fn an_empty_file_is_the_same_as_none() {
    for text in ["", "\n# nothing\n", "[server]\n[http]\n[http.breaker]\n[agents.env]\n"] {
        assert_eq!(read(text), Settings::default(), "{text:?}");
    }
}

#[test]
fn the_defaults_are_what_the_documentation_shows() {
    let mut everything = read(EVERYTHING);
    assert_eq!(everything.queues.len(), 1);
    assert_eq!(everything.queues[0].name, "orders");
    assert_eq!(everything.pools.len(), 1);
    assert_eq!(everything.pools[0].rate_limit_per_minute, NonZeroU32::new(600));
    everything.pools[0].rate_limit_per_minute = None;
    assert_eq!(everything.pools[0], PoolSettings::new("ORDERS"));

    let mut default = Settings::default();
    default.queues[0].name = "orders".to_owned();
    default.queues[0].uri = QueueUri::Sqlite { queue: "orders".to_owned() };
    default.pools = everything.pools.clone();
    default.agents.tenants = everything.agents.tenants.clone();
    assert_eq!(everything, default);
    let tenant = &everything.agents.tenants[0];
    assert_eq!(
        (tenant.id.as_str(), tenant.limits.weight, tenant.own_depth),
        ("telegram:42", 4, false)
    );
    assert_eq!(tenant.limits.max_queued_requests, 3);
}

#[test]
fn every_key_is_read_into_its_place() {
    let text = r#"
        [server]
        listen = "localhost:0"
        token = "a"
        read_token = "b"
        drain = "1500ms"
        [state]
        path = "x/y.db"
        [router]
        enabled = false
        config_url = "http://one.example/"
        sync_interval = "1h"
        sync_attempts = 3
        sync_retry_delay = "10ms"
        max_pools = 7
        pool_warning_threshold = 6
        [http]
        timeout = "2m"
        connect_timeout = "3s"
        version = "1.1"
        success = "200"
        allow_targets = ["10.0.0.0/8", "::1"]
        breaker = { scope = "off", window = "1m", volume = 1, failure_ratio = 1, open_for = "1ms", close_after = 9 }
        [log]
        format = "json"
        [alerts]
        webhook = "https://hooks.example/lion"
        min_severity = "CRITICAL"
        every = "1m"
        [events]
        max_concurrent_projections = 1
        max_projection_tasks = 2
        [cluster]
        url = "nats://n"
        lease = "3s"
    "#;
    let Settings { server, state, router, http, log, alerts, events, cluster, queues, .. } =
        read(text);
    assert_eq!(server.listen.to_string(), "127.0.0.1:0");
    assert_eq!(server.token.unwrap().expose(), "a");
    assert_eq!(server.read_token.unwrap().expose(), "b");
    assert_eq!(server.drain, Duration::from_millis(1500));
    assert_eq!(state.path.to_str(), Some("x/y.db"));
    assert!(!router.enabled);
    assert_eq!(router.config_url[0].expose(), "http://one.example/");
    assert_eq!(router.sync_interval, Duration::from_secs(3600));
    assert_eq!((router.sync_attempts, router.sync_retry_delay), (3, Duration::from_millis(10)));
    assert_eq!((router.max_pools, router.pool_warning_threshold), (7, 6));
    assert_eq!((http.timeout.as_secs(), http.connect_timeout.as_secs()), (120, 3));
    assert_eq!((http.version, http.success), (HttpVersion::Http11, Success::Only200));
    assert_eq!(format!("{:?}", http.allow_targets), "[10.0.0.0/8, ::1/128]");
    assert_eq!((http.breaker.scope, http.breaker.volume), (BreakerScope::Off, 1));
    assert_eq!(http.breaker.window, Duration::from_mins(1));
    assert_eq!((http.breaker.failure_ratio, http.breaker.close_after), (1.0, 9));
    assert_eq!(http.breaker.open_for, Duration::from_millis(1));
    assert_eq!(log.format, LogFormat::Json);
    assert_eq!(alerts.webhook.unwrap().expose(), "https://hooks.example/lion");
    assert_eq!((alerts.min_severity, alerts.every.as_secs()), (Severity::Critical, 60));
    assert_eq!((events.max_concurrent_projections, events.max_projection_tasks), (1, 2));
    assert_eq!((cluster.url.unwrap().expose(), cluster.lease.as_secs()), ("nats://n", 3));
    assert_eq!(queues, [], "queues come from the config url");
}

#[test]
fn queues_and_pools_are_read_into_their_places() {
    let text = r#"
        [http]
        prior_knowledge = true
        [[queue]]
        name = "a"
        uri = "sqlite:b"
        connections = 2
        max_messages = 10000
        visibility_timeout = "12h"
        [[pool]]
        code = "A"
        concurrency = 3
        rate_limit_per_minute = 0
        ordering = "strict"
        ungrouped = "parallel"
        max_attempts = 4
        on_exhausted = "skip"
        parking = false
        signing_secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
        [[pool]]
        code = "B"
        ordering = "none"
        signing_secret = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
        [[pool]]
        code = "DEFAULT-POOL"
        on_exhausted = "park"
    "#;
    let Settings { http, queues, pools, .. } = read(text);
    assert!(http.prior_knowledge);
    let [queue] = &queues[..] else { panic!("{queues:?}") };
    assert_eq!((queue.name.as_str(), queue.uri.to_string().as_str()), ("a", "sqlite:b"));
    assert_eq!((queue.connections, queue.max_messages), (2, 10_000));
    assert_eq!(queue.visibility_timeout, Duration::from_secs(12 * 3600));
    let [a, b, default] = &pools[..] else { panic!("{pools:?}") };
    assert_eq!((a.code.as_str(), a.concurrency.get(), a.rate_limit_per_minute), ("A", 3, None));
    assert_eq!((a.ordering, a.ungrouped), (Ordering::Strict, Ungrouped::Parallel));
    assert_eq!((a.max_attempts, a.on_exhausted), (NonZeroU32::new(4), OnExhausted::Skip));
    assert!(!a.parking && b.parking);
    let key = b"012345678901234567890123";
    assert_eq!(a.signing_secret.as_ref().unwrap().key(), key);
    assert_eq!(b.signing_secret.as_ref().unwrap().key(), key);
    assert_eq!((b.ordering, default.concurrency.get()), (Ordering::None, 20));
}

#[test]
fn agents_are_read() {
    let text = r#"
        [agents]
        enabled = true
        mode = "persistent"
        command = ["agent", "--stay"]
        session_args = []
        env = { KEY = "${TOKEN}" }
        folder = "/srv"
        dialect = { result_type = "done" }
        min_workers = 0
        worker_memory_mb = 0
        max_worker_errors = 9
        max_silence = "90s"
        worker_pool_json = "tests/fixtures/worker_pool.json"
        [agents.tenant_limits]
        weight = 2
        [[agents.tenant]]
        id = "web:a"
        max_queued_requests = 8
    "#;
    let agents = read(text).agents;
    assert_eq!((agents.mode, agents.enabled), (AgentMode::Persistent, true));
    assert_eq!((agents.worker_memory_mb, agents.max_worker_errors), (None, 9));
    assert_eq!(agents.env["KEY"].expose(), "lion");
    assert_eq!(agents.dialect["result_type"], "done");
    assert_eq!(agents.max_silence, Some(std::time::Duration::from_secs(90)));
    // What the JSON file says holds.
    assert_eq!((agents.max_workers, agents.min_workers, agents.serial), (2, 2, false));
    let tenant = &agents.tenants[0];
    assert_eq!((tenant.limits.weight, tenant.limits.max_queued_requests), (2, 8));
    assert!(tenant.own_depth);
}

/// Where one of two keys for the same thing is written, the other one follows.
#[test]
fn keys_that_say_the_same_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("pool.json");
    let object = r#"{"enabled": true, "maxQueueDepthPerTenant": 9, "executionTimeoutMs": 600000}"#;
    std::fs::write(&json, object).unwrap();
    let by_json = format!("worker_pool_json = {:?}", json.to_str().unwrap());
    let cases = [
        ("max_queue_depth_per_tenant = 9", (9, 9), 180),
        ("tenant_limits.max_queued_requests = 8", (8, 8), 180),
        ("max_queue_depth_per_tenant = 9\ntenant_limits.max_queued_requests = 8", (9, 8), 180),
        ("execution_timeout = \"10m\"", (3, 3), 600),
        ("execution_timeout = \"1m\"", (3, 3), 180),
        ("execution_timeout = \"10m\"\ntenant_limits.max_response_time = \"5m\"", (3, 3), 300),
        (&by_json, (9, 9), 600),
    ];
    for (lines, depths, response) in cases {
        let tenant = "[[agents.tenant]]\nid = \"web:1\"\nweight = 2\n";
        let agents = read(&format!("[agents]\n{lines}\n{tenant}")).agents;
        let limits = &agents.tenant_limits;
        let found = (agents.max_queue_depth_per_tenant, limits.max_queued_requests);
        assert_eq!((found, limits.max_response_time.as_secs()), (depths, response), "{lines}");
        let own = &agents.tenants[0].limits;
        assert_eq!(own.max_response_time, limits.max_response_time, "{lines}");
        assert_eq!(own.max_queued_requests, limits.max_queued_requests, "{lines}");
    }
}

/// `docs/rules.md#agents-9`
#[test]
fn what_is_wrong_with_agents_is_named_by_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("pool.json");
    std::fs::write(&json, r#"{"maxWorkers": 0, "workers": 3}"#).unwrap();
    let json = json.display().to_string();
    let of_file = format!("worker_pool_json = {json:?}");
    let cases = [
        ("command = []", "agents.command", "must begin with the program to run"),
        ("prompt = \"arg\"", "agents.prompt", "has no {prompt}"),
        ("max_workers = 0", "agents.max_workers", "must be at least 1"),
        ("min_workers = 9", "agents.min_workers", "more than max_workers"),
        ("queue_timeout = \"0s\"", "agents.queue_timeout", "must be at least 1ms"),
        ("max_silence = \"0s\"", "agents.max_silence", "must be at least 1ms"),
        ("graceful_shutdown = \"1h\"", "agents.graceful_shutdown", "longer than execution_timeout"),
        (
            "upstream_rate_limit_rps = 100001",
            "agents.upstream_rate_limit_rps",
            "must be at most 100000",
        ),
        ("tenant_limits.weight = 10001", "agents.tenant_limits.weight", "must be at most 10000"),
        ("dialect = { result = \"x\" }", "agents.dialect.result", "known are type_field"),
        ("dialect = { input = \"{}\" }", "agents.dialect.input", "has no {prompt}"),
        ("[[agents.tenant]]\nid = \"a\"", "agents.tenant[0].id", "must be platform:userId"),
        (
            "worker_pool_json = \"none.json\"",
            "agents.worker_pool_json",
            "none.json: cannot be read",
        ),
        (&of_file, "agents.worker_pool_json", "workers: is not known"),
        (&of_file, "agents.worker_pool_json", "maxWorkers: must be at least 1"),
        ("command = [\"a\", \"{prompt}\"]", "agents.command", "agents.prompt is \"stdin\""),
        ("resume_args = [\"{prompt}\"]", "agents.resume_args[0]", "filled only in agents.command"),
        (
            "prompt = \"arg\"\ncommand = [\"{prompt}\"]",
            "agents.command",
            "must not take the program's name",
        ),
        ("[agents.tenant]\nid = \"web:1\"", "agents.tenant", "written as [[agents.tenant]]"),
    ];
    for (line, key, words) in cases {
        let text = format!("[agents]\n{line}\n");
        let problems = Settings::parse("f.toml", &text, &|_| None).unwrap_err();
        let said = problems.to_string();
        let named = |one: &sluicegate_server::settings::Problem| {
            one.key == key && one.message.contains(words) && one.line >= 2
        };
        assert!(problems.list().iter().any(named), "{line}: {said}");
    }
    let both =
        "[agents]\nmode = \"persistent\"\nprompt = \"arg\"\ncommand = [\"a\", \"{prompt}\"]\n";
    let said = Settings::parse("f.toml", both, &|_| None).unwrap_err().to_string();
    assert!(said.contains("f.toml:3:") && said.contains("agents.prompt"), "{said}");
    std::fs::write(&json, r#"{"maxWorkers": 0}"#).unwrap();
    let text = format!("[agents]\n{of_file}\n");
    let said = Settings::parse("f.toml", &text, &|_| None).unwrap_err().to_string();
    assert!(said.contains(&format!("{json}: maxWorkers: must be at least 1")), "{said}");
}

/// `docs/rules.md#agents-9`
#[test]
fn a_slip_in_agents_says_what_was_meant() {
    let cases = [
        (
            "session_args = [\"--id\", \"{sesion}\"]",
            "agents.session_args[1]",
            "did you mean {session}?",
        ),
        ("command = [\"a\", \"--id={Session}\"]", "agents.command[1]", "did you mean {session}?"),
        (
            "prompt = \"arg\"\ncommand = [\"a\", \"{promt}\"]",
            "agents.command[1]",
            "did you mean {prompt}?",
        ),
        ("[agents.tenants]\nweight = 1", "agents.tenants", "[agents.tenant_limits] for all"),
        ("[[agents.tenants]]\nid = \"web:1\"", "agents.tenants", "[[agents.tenant]] for one"),
        ("[agents.limits]\nweight = 1", "agents.limits", "[agents.tenant_limits] for all"),
    ];
    for (lines, key, help) in cases {
        let text = format!("[agents]\n{lines}\n");
        let problems = Settings::parse("f.toml", &text, &|_| None).unwrap_err();
        let named = |one: &&sluicegate_server::settings::Problem| {
            one.key == key && one.help.as_deref().is_some_and(|words| words.contains(help))
        };
        assert_eq!(problems.list().iter().filter(named).count(), 1, "{problems}");
    }
}

/// What a program itself fills, or its shell, is left to it: a word that is like a placeholder is none for that.
///
/// `docs/rules.md#agents-9`
#[test]
fn braces_of_a_program_are_no_slips() {
    let arguments = [
        "agent $${HOME} | awk '{print}'",
        "{{sesion}}",
        "{version}",
        "{region}",
        "{project}/{product}",
        "{session_id}",
    ];
    for argument in arguments {
        let text = format!("[agents]\ncommand = [\"sh\", \"-c\", \"{argument}\"]\n");
        let settings = Settings::parse("f.toml", &text, &|_| None);
        assert!(settings.is_ok(), "{argument}: {}", settings.unwrap_err());
    }
    let by_argument =
        "[agents]\nprompt = \"arg\"\ncommand = [\"a\", \"{prompt}\", \"{product}\"]\n";
    assert!(Settings::parse("f.toml", by_argument, &|_| None).is_ok());
}

#[test]
fn variables_stand_in_any_string() {
    let text = r#"
        [server]
        listen = "127.0.0.1:${PORT}"
        token = "${TOKEN}"
        read_token = "${UNSET:-}"
        drain = "${DRAIN:-7s}"
        [router]
        config_url = ["http://h.example:${PORT}/", "${EMPTY:-}"]
        [[queue]]
        name = "q${PORT}"
        uri = "sqlite:${EMPTY:-other}"
        [[pool]]
        code = "$${PORT}"
        ordering = "${ORDERING:-strict}"
    "#;
    let settings = read(text);
    assert_eq!(settings.server.listen.port(), 9000);
    assert_eq!(settings.server.token.unwrap().expose(), "lion");
    assert_eq!(settings.server.read_token, None);
    assert_eq!(settings.server.drain.as_secs(), 7);
    let urls: Vec<&str> = settings.router.config_url.iter().map(|url| url.expose()).collect();
    assert_eq!(urls, ["http://h.example:9000/"]);
    assert_eq!(settings.queues[0].name, "q9000");
    assert_eq!(settings.queues[0].uri.to_string(), "sqlite:other");
    assert_eq!(settings.pools[0].code, "${PORT}");
    assert_eq!(settings.pools[0].ordering, Ordering::Strict);
}

#[test]
fn limits_may_meet_each_other() {
    let router = read("[router]\nmax_pools = 9\npool_warning_threshold = 9\n").router;
    assert_eq!((router.max_pools, router.pool_warning_threshold), (9, 9));
    // Who asks for fewer pools has not asked for a warning.
    let router = read("[router]\nmax_pools = 9\n").router;
    assert_eq!((router.max_pools, router.pool_warning_threshold), (9, 5_000));
    let text = "[agents]\nmin_workers = 4\ngraceful_shutdown = \"180s\"\n";
    let agents = read(text).agents;
    assert_eq!((agents.min_workers, agents.max_workers), (4, 4));
    assert_eq!(agents.graceful_shutdown, agents.execution_timeout);
}

#[test]
fn what_cannot_change_live_is_named() {
    let cases = [
        ("", ""),
        ("[[pool]]\ncode = \"A\"\n[[queue]]\nname = \"a\"\nuri = \"sqlite:a\"", ""),
        ("[router]\nmax_pools = 6000\npool_warning_threshold = 1", ""),
        ("[server]\nlisten = \"127.0.0.1:1\"", "server.listen"),
        (
            "[server]\ntoken = \"a\"\nread_token = \"b\"\ndrain = \"1s\"",
            "server.token server.read_token server.drain",
        ),
        ("[state]\npath = \"a\"", "state.path"),
        (
            "[router]\nenabled = false\nconfig_url = \"http://a\"\nsync_interval = \"1s\"\n\
          sync_attempts = 1\nsync_retry_delay = \"1s\"",
            "router.enabled router.config_url router.sync_interval router.sync_attempts \
          router.sync_retry_delay",
        ),
        (
            "[http]\ntimeout = \"1s\"\nconnect_timeout = \"1s\"\nprior_knowledge = true\n\
          success = \"200\"\nallow_targets = []",
            "http.timeout http.connect_timeout http.prior_knowledge http.success http.allow_targets",
        ),
        ("[http]\nversion = \"1.1\"", "http.version"),
        (
            "[http.breaker]\nscope = \"off\"\nwindow = \"1s\"\nvolume = 1\nfailure_ratio = 1\nopen_for = \"1s\"\n\
          close_after = 1",
            "http.breaker.scope http.breaker.window http.breaker.volume http.breaker.failure_ratio http.breaker.open_for \
          http.breaker.close_after",
        ),
        ("[log]\nformat = \"json\"", "log.format"),
        (
            "[alerts]\nwebhook = \"http://a\"\nmin_severity = \"INFO\"\nevery = \"1s\"",
            "alerts.webhook alerts.min_severity alerts.every",
        ),
        (
            "[events]\nurl = \"postgres://h/d\"\nmax_concurrent_projections = 1\nmax_projection_tasks = 1",
            "events.url",
        ),
        ("[cluster]\nurl = \"nats://a\"\nlease = \"1s\"", "cluster.url cluster.lease"),
        (
            "[agents]\nenabled = true\nqueue_timeout = \"1s\"\nmax_workers = 9",
            "agents.enabled agents.queue_timeout",
        ),
    ];
    let old = Settings::default();
    for (text, keys) in cases {
        let new = read(text);
        for (one, other) in [(&old, &new), (&new, &old)] {
            let named: Vec<&str> = changes(one, other).iter().map(|fixed| fixed.key).collect();
            assert_eq!(named.join(" "), keys, "{text}");
        }
        assert_eq!(changes(&new, &new), []);
    }
}
