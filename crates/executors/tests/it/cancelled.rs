//! A context that ends, at every place where a delivery waits.

use std::time::Duration;

use sluicegate_dispatch::{CallStatus, Outcome};
use sluicegate_executors::http::HttpSettings;
use sluicegate_tasks::Context;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::join;
use tokio::time::{Instant, sleep};

use crate::stage::{Names, Stage, message, pool, settings};

/// Runs until the endpoint was asked `asked` times and a moment has passed, then ends the context.
async fn check(answer: Answer, target: &str, asked: usize, calls: &[CallStatus]) {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(answer.clone());
    let long = Duration::from_secs(600);
    let names = Names::resolver([("hanging.test", &[][..]), ("here.test", &[endpoint.address()])]);
    let stage = Stage::new(HttpSettings {
        timeout: long,
        connect_timeout: long,
        retry_delays: vec![long; 2],
        resolver: names,
        ..settings()
    });
    let (message, pool, cx) = (message(target), pool(), Context::new());
    let cancel = async {
        endpoint.wait_for(asked).await;
        sleep(Duration::from_millis(30)).await;
        cx.cancel();
        Instant::now()
    };
    let (outcome, cancelled) = join!(stage.execute_under(&message, &pool, &cx), cancel);
    assert_eq!(outcome, Outcome::Interrupted, "{answer:?} {target}");
    assert!(cancelled.elapsed() < Duration::from_secs(5), "{answer:?} {target}");
    assert_eq!(endpoint.count(), asked, "{answer:?} {target}: it is not repeated");
    assert_eq!(stage.calls(), calls, "{answer:?} {target}");
}

#[tokio::test]
async fn it_ends_a_delivery_wherever_it_waits() {
    let here = "http://here.test/";
    check(Answer::ok(), "http://hanging.test/", 0, &[]).await;
    check(Answer::hang(), here, 1, &[]).await;
    check(Answer::ok().stalls(), here, 1, &[]).await;
    check(Answer::status(500), here, 1, &[CallStatus::Http(500)]).await;
    check(Answer::cut(), here, 1, &[CallStatus::Reset]).await;
}

#[tokio::test]
async fn a_context_that_has_ended_makes_no_call() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    let (message, pool, cx) = (message(&endpoint.url("/")), pool(), Context::new());
    cx.cancel();
    let late = Context::new().with_timeout(Duration::ZERO);
    for ended in [&cx, &late] {
        // With a connection at hand, a call is made as soon as it is asked for.
        assert_eq!(stage.execute(&message).await, Outcome::Done);
        assert_eq!(stage.execute_under(&message, &pool, ended).await, Outcome::Interrupted);
    }
    assert_eq!(stage.execute(&message).await, Outcome::Done);
    assert_eq!((endpoint.connections(), endpoint.count(), stage.calls().len()), (1, 3, 3));
}

#[tokio::test]
async fn a_deadline_ends_it_too() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::new(settings());
    let cx = Context::new().with_timeout(Duration::from_millis(50));
    let outcome = stage.execute_under(&message(&endpoint.url("/")), &pool(), &cx).await;
    assert_eq!(outcome, Outcome::Interrupted);
}

#[tokio::test]
async fn a_cancelled_call_frees_its_connection() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::hang()]);
    let stage = Stage::new(settings());
    let (message, pool, cx) = (message(&endpoint.url("/")), pool(), Context::new());
    let cancel = async {
        endpoint.wait_for(1).await;
        cx.cancel();
    };
    let (outcome, ()) = join!(stage.execute_under(&message, &pool, &cx), cancel);
    assert_eq!(outcome, Outcome::Interrupted);
    // A connection with an answer pending is of no use to the next one.
    assert_eq!(stage.execute(&message).await, Outcome::Done);
    assert_eq!(endpoint.connections(), 2);
    while endpoint.open_connections() > 1 {
        tokio::task::yield_now().await;
    }
}
