//! Breakers around real calls.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use sluicegate_dispatch::{BreakerSettings, BreakerState, CallStatus, Outcome};
use sluicegate_executors::http::HttpSettings;
use sluicegate_executors::{BreakerScope, Breakers};
use sluicegate_tasks::Context;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::join;

use crate::stage::{Names, Stage, closed_port, message, pool, settings};

/// Opens after four calls that failed, for so long that no test sees the end of it.
const SETTINGS: BreakerSettings = BreakerSettings {
    window: Duration::from_secs(3_600),
    volume: 4,
    failure_ratio: 0.5,
    open_for: Duration::from_secs(3_600),
    close_after: 3,
};

fn stage(scope: BreakerScope, open_for: Duration) -> Stage {
    let breaker = BreakerSettings { open_for, ..SETTINGS };
    Stage::new(HttpSettings { breaker_scope: scope, breaker, ..settings() })
}

fn is_open(outcome: &Outcome, name: &str) -> bool {
    matches!(outcome, Outcome::BreakerOpen { name: open, .. } if &**open == name)
}

#[tokio::test]
async fn failures_open_it_and_nothing_more_is_called() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(503).body("out of paper"));
    let stage = stage(BreakerScope::Host, SETTINGS.open_for);
    let (message, host) = (message(&endpoint.url("/")), endpoint.address().to_string());
    let outcome = stage.execute(&message).await;
    assert!(matches!(outcome, Outcome::RetryLater { .. }), "{outcome:?}");
    assert_eq!(stage.calls().len(), 3);
    // The fourth call opens it. What was called is an attempt, and is told as one; its repeats are
    // not made.
    let outcome = stage.execute(&message).await;
    assert!(matches!(outcome, Outcome::RetryLater { .. }), "{outcome:?}");
    assert_eq!(stage.calls(), [CallStatus::Http(503)]);
    assert_eq!(stage.breaker_changes(), [(host.clone(), true)]);
    for _ in 0..3 {
        let outcome = stage.execute(&message).await;
        let Outcome::BreakerOpen { name, rest } = outcome else { panic!("{outcome:?}") };
        assert_eq!(&*name, host);
        assert!(rest > Duration::from_secs(3_500) && rest <= SETTINGS.open_for, "{rest:?}");
    }
    assert_eq!((stage.calls().len(), endpoint.count()), (0, 4));
    let report = &stage.executor.breakers().list()[0];
    assert_eq!((&*report.name, report.state), (&*host, BreakerState::Open));
    assert_eq!((report.calls, report.failures), (4, 4));
    assert!(report.rest.is_some_and(|rest| rest > Duration::from_secs(3_500)));
    let last = report.last_error.as_ref().expect("it failed");
    assert_eq!((last.status, last.body.as_deref()), (Some(503), Some("out of paper")));
    assert_eq!(
        (&*last.target, &*last.error),
        (&*endpoint.url("/"), &*format!("{} answered 503", endpoint.url("/")))
    );
    assert!(stage.executor.breakers().reset(&host));
    assert_eq!(stage.executor.breakers().list()[0].last_error, None, "it is forgotten");
}

/// Delivers 2,000 messages, 32 at once, to an endpoint that answers 500 to a fifth of all calls.
/// How many are done, how many met an open breaker, how many calls it took.
async fn deliver_to_one_that_fails_by_chance(breaker_scope: BreakerScope) -> [usize; 3] {
    let endpoint = Endpoint::start().await;
    let mut dice = 7_u64;
    endpoint.then((0..4_000).map(|_| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Answer::status(if (dice >> 33).is_multiple_of(5) { 500 } else { 200 })
    }));
    let breaker = BreakerSettings::default();
    let retry_delays = vec![Duration::from_millis(10); 2];
    let stage = Stage::new(HttpSettings { breaker_scope, breaker, retry_delays, ..settings() });
    let message = message(&endpoint.url("/"));
    let delivering = stream::iter(0..2_000).map(|_| stage.execute(&message)).buffer_unordered(32);
    let outcomes: Vec<Outcome> = delivering.collect().await;
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|it| wanted(it)).count();
    let done = count(|outcome| *outcome == Outcome::Done);
    [done, count(|outcome| matches!(outcome, Outcome::BreakerOpen { .. })), endpoint.count()]
}

#[tokio::test]
async fn chance_does_not_open_it() {
    let with = deliver_to_one_that_fails_by_chance(BreakerScope::Host).await;
    let without = deliver_to_one_that_fails_by_chance(BreakerScope::Off).await;
    assert!(with[0] > 1_950 && with[1] == 0, "{with:?}");
    // Which message a failure meets is up to the network; how many calls it takes is not, nearly.
    assert!(with[2].abs_diff(without[2]) <= 20, "{with:?} {without:?}");
}

#[tokio::test]
async fn one_that_stays_open_is_not_waited_for() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(503));
    let breaker = BreakerSettings { volume: 1, ..SETTINGS };
    let (breaker_scope, retry_delays) = (BreakerScope::Host, vec![Duration::from_secs(600); 2]);
    let stage = Stage::new(HttpSettings { breaker, breaker_scope, retry_delays, ..settings() });
    let outcome = stage.execute(&message(&endpoint.url("/"))).await;
    assert!(matches!(outcome, Outcome::RetryLater { .. }), "{outcome:?}");
    assert_eq!(stage.calls().len(), 1);
}

#[tokio::test]
async fn one_that_opens_while_a_repeat_waits_ends_the_attempt() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(503).after(Duration::from_millis(20)));
    let (breaker, breaker_scope) = (SETTINGS, BreakerScope::Host);
    let retry_delays = vec![Duration::from_millis(200); 2];
    let stage = Stage::new(HttpSettings { breaker, breaker_scope, retry_delays, ..settings() });
    let message = message(&endpoint.url("/"));
    let run = || stage.execute(&message);
    let (a, b, c, d) = join!(run(), run(), run(), run());
    for outcome in [a, b, c, d] {
        assert!(matches!(outcome, Outcome::RetryLater { .. }), "{outcome:?}");
    }
    assert_eq!(stage.calls().len(), 4);
}

#[tokio::test]
async fn only_what_says_that_the_endpoint_is_broken_counts() {
    let ok = |status| (Answer::status(status), BreakerState::Closed);
    let cases = [
        ok(200),
        ok(204),
        ok(302),
        ok(400),
        ok(404),
        ok(429),
        (Answer::status(200).body(r#"{"ack":false}"#), BreakerState::Closed),
        (Answer::status(501), BreakerState::Open),
        (Answer::status(500), BreakerState::Open),
        (Answer::status(503), BreakerState::Open),
        (Answer::cut(), BreakerState::Open),
        (Answer::ok().breaks_off(), BreakerState::Open),
        (Answer::hang(), BreakerState::Open),
        (Answer::ok().stalls(), BreakerState::Open),
    ];
    for (answer, state) in cases {
        let endpoint = Endpoint::start().await;
        endpoint.otherwise(answer.clone());
        let (breaker, timeout) = (SETTINGS, Duration::from_millis(50));
        let breaker_scope = BreakerScope::Host;
        let stage = Stage::new(HttpSettings { breaker_scope, breaker, timeout, ..settings() });
        for _ in 0..4 {
            stage.execute(&message(&endpoint.url("/"))).await;
        }
        assert_eq!(stage.executor.breakers().list()[0].state, state, "{answer:?}");
    }
}

#[tokio::test]
async fn connections_that_fail_count_and_forbidden_targets_do_not() {
    let stage = stage(BreakerScope::Host, SETTINGS.open_for);
    let (closed, forbidden) = (format!("http://{}/", closed_port()), "http://10.0.0.1:9/");
    for _ in 0..6 {
        stage.execute(&message(&closed)).await;
        stage.execute(&message(forbidden)).await;
    }
    let states = stage.executor.breakers().list();
    let of_closed = states.iter().find(|report| closed.contains(&*report.name)).expect("known");
    assert_eq!(of_closed.state, BreakerState::Open);
    let other = states.iter().find(|report| &*report.name == "10.0.0.1:9").expect("known");
    assert_eq!((other.state, other.calls), (BreakerState::Closed, 0));
}

#[tokio::test]
async fn its_scope_says_what_shares_it() {
    let (one, other) = (Endpoint::start().await, Endpoint::start().await);
    one.otherwise(Answer::status(500));
    let host = one.address().to_string();
    // Scope, its name, and whether another path, another query and another host share it.
    let cases = [
        (BreakerScope::Host, host, [true, true, false]),
        (BreakerScope::Target, one.url("/a"), [false, true, false]),
        (BreakerScope::Global, Breakers::GLOBAL.to_owned(), [true, true, true]),
    ];
    for (scope, name, shared) in cases {
        let stage = stage(scope, SETTINGS.open_for);
        for _ in 0..2 {
            stage.execute(&message(&one.url("/a?key=1"))).await;
        }
        assert_eq!(stage.breaker_changes(), [(name.clone(), true)]);
        let targets = [one.url("/b"), one.url("/a?key=2"), other.url("/a")];
        for (target, shared) in targets.iter().zip(shared) {
            let outcome = stage.execute(&message(target)).await;
            assert_eq!(is_open(&outcome, &name), shared, "{scope:?} {target}: {outcome:?}");
        }
    }
    let stage = stage(BreakerScope::Off, SETTINGS.open_for);
    for _ in 0..3 {
        stage.execute(&message(&one.url("/a"))).await;
    }
    assert_eq!(stage.calls().len(), 9);
    assert_eq!(stage.executor.breakers().list(), []);
}

#[tokio::test]
async fn every_spelling_of_a_host_shares_it() {
    let cases =
        [(BreakerScope::Host, "broken.test"), (BreakerScope::Target, "http://broken.test/a")];
    for (breaker_scope, name) in cases {
        let (breaker, resolver) = (SETTINGS, Names::resolver([]));
        let retry_delays = Vec::new();
        let settings = settings();
        let stage =
            Stage::new(HttpSettings { breaker_scope, breaker, resolver, retry_delays, ..settings });
        for url in ["http://broken.test/a", "http://Broken.TEST/a?q", "http://broken.test:80/a"] {
            stage.execute(&message(url)).await;
        }
        let outcome = stage.execute(&message("HTTP://BROKEN.test:/a")).await;
        assert!(matches!(outcome, Outcome::Unreachable { .. }), "{outcome:?}");
        assert_eq!(stage.breaker_changes(), [(name.to_owned(), true)]);
        assert_eq!(stage.executor.breakers().list().len(), 1);
    }
}

#[tokio::test]
async fn a_reset_closes_it_at_once() {
    let endpoint = Endpoint::start().await;
    endpoint.then([(); 4].map(|()| Answer::status(500)));
    let stage = stage(BreakerScope::Host, SETTINGS.open_for);
    let (message, host) = (message(&endpoint.url("/")), endpoint.address().to_string());
    for _ in 0..3 {
        stage.execute(&message).await;
    }
    assert!(!stage.executor.breakers().reset("unheard.test"));
    assert!(stage.executor.breakers().reset(&host));
    assert_eq!(stage.breaker_changes(), [(host.clone(), true), (host, false)]);
    assert_eq!(stage.execute(&message).await, Outcome::Done);
}

/// A stage whose breaker has opened and is half-open by now.
async fn half_open(endpoint: &Endpoint) -> Stage {
    let stage = stage(BreakerScope::Host, Duration::from_millis(1));
    endpoint.then([(); 4].map(|()| Answer::status(500)));
    let message = message(&endpoint.url("/"));
    while stage.breaker_changes().is_empty() {
        stage.execute(&message).await;
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(stage.executor.breakers().list()[0].state, BreakerState::HalfOpen);
    stage
}

#[tokio::test]
async fn half_open_lets_three_probes_through_and_no_more() {
    let endpoint = Endpoint::start().await;
    let stage = half_open(&endpoint).await;
    let before = endpoint.count();
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(100)));
    let (message, host) = (message(&endpoint.url("/")), endpoint.address().to_string());
    let run = || stage.execute(&message);
    let (a, b, c, d, e) = join!(run(), run(), run(), run(), run());
    assert_eq!([a, b, c], [Outcome::Done, Outcome::Done, Outcome::Done]);
    assert!(is_open(&d, &host) && is_open(&e, &host), "{d:?} {e:?}");
    assert_eq!(endpoint.count() - before, 3);
    assert_eq!(stage.breaker_changes(), [(host, false)]);
    assert_eq!(run().await, Outcome::Done);
}

#[tokio::test]
async fn a_probe_that_is_cancelled_gives_its_right_back() {
    let endpoint = Endpoint::start().await;
    let stage = half_open(&endpoint).await;
    let before = endpoint.count();
    let (message, pool, cx) = (message(&endpoint.url("/")), pool(), Context::new());
    endpoint.otherwise(Answer::hang());
    let run = || stage.execute_under(&message, &pool, &cx);
    let cancel = async {
        endpoint.wait_for(before + 3).await;
        cx.cancel();
    };
    let (a, b, c, ()) = join!(run(), run(), run(), cancel);
    assert_eq!([a, b, c], [Outcome::Interrupted, Outcome::Interrupted, Outcome::Interrupted]);
    endpoint.otherwise(Answer::ok());
    for _ in 0..4 {
        assert_eq!(stage.execute(&message).await, Outcome::Done);
    }
    assert_eq!(stage.executor.breakers().list()[0].state, BreakerState::Closed);
}

#[tokio::test]
async fn a_failed_probe_opens_it_again() {
    let endpoint = Endpoint::start().await;
    let stage = half_open(&endpoint).await;
    stage.calls();
    endpoint.then([Answer::ok(), Answer::status(404)]);
    endpoint.otherwise(Answer::cut());
    let message = message(&endpoint.url("/"));
    for _ in 0..3 {
        stage.execute(&message).await;
    }
    let host = endpoint.address().to_string();
    assert_eq!(stage.breaker_changes().first(), Some(&(host, true)));
}

#[tokio::test]
async fn there_are_never_more_than_the_bound() {
    let stage = stage(BreakerScope::Target, SETTINGS.open_for);
    // Forbidden targets: looked at, and called by nobody.
    let target = |n: usize| message(&format!("http://10.0.0.1/{n}"));
    for n in 0..Breakers::MAX + 50 {
        stage.execute(&target(n)).await;
    }
    let known = stage.executor.breakers().list();
    assert!(known.len() <= Breakers::MAX, "{}", known.len());
    let newest = format!("http://10.0.0.1/{}", Breakers::MAX + 49);
    assert!(known.iter().any(|report| *report.name == *newest));
}
