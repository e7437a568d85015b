//! What cannot work is said before anything starts, all of it, with the places in the code.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_consumers::amqp::{AmqpAddress, Exchange, ExchangeKind, Queue};
use sluicegate_consumers::{
    Consumer, Declarations, Failure, Handler, MemorySource, Problem, Retry, Service, StartError,
};

fn handler() -> Handler {
    Handler::bytes(|_body, _about, _cx| async { Ok::<_, Failure>(()) })
}

/// The problems in words; each place becomes `@` and its line in this file less the first one.
fn problems(declare: impl FnOnce(&mut Declarations)) -> Vec<String> {
    let mut declared = Declarations::new();
    declare(&mut declared);
    let Err(problems) = declared.validate() else { return Vec::new() };
    let words = |problem: &Problem| {
        let text = problem.to_string();
        let mut parts = text.split(file!());
        let mut words = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit());
            words.push('@');
            words.push_str(if part.ends_with(rest) && !rest.is_empty() { rest } else { "" });
        }
        words
    };
    problems.iter().map(words).collect()
}

type Declare = fn(&mut Declarations);

/// What is declared, and what is wrong with it.
const CASES: [(Declare, &[&str]); 14] = [
    (
        |all| {
            all.exchange(Exchange::new("e", ExchangeKind::Direct));
            all.queue_with_dead_letters(Queue::new("q"));
            all.standing_queue("other");
            all.bind("q", "e", "k");
            all.bind("other", "amq.topic", "k");
            all.consumer(Consumer::of("q").handler(handler()));
            all.consumer(Consumer::of("other").named("o").handler(handler()));
            all.consumer(Consumer::of("other").named("o2").handler(handler()));
        },
        &[],
    ),
    (|all| all.queue(Queue::new("")), &["@ the queue ``: its name is empty"]),
    (
        |all| all.exchange(Exchange::new("amq.e", ExchangeKind::Topic)),
        &["@ the exchange `amq.e`: its name begins with `amq.`, which belongs to the broker"],
    ),
    (
        |all| {
            all.queue(Queue::new("q"));
            all.queue(Queue::new("q"));
        },
        &["@ the queue `q` is declared already, at @"],
    ),
    (
        |all| {
            all.exchange(Exchange::new("e", ExchangeKind::Topic));
            all.standing_exchange("e");
        },
        &["@ the exchange `e` is declared already, at @"],
    ),
    (
        |all| {
            all.queue_with_dead_letters(Queue::new("q"));
            all.queue(Queue::new("q.dead"));
        },
        &["@ the queue `q.dead` is declared already, at @"],
    ),
    (
        |all| {
            all.queue(Queue::new("orders"));
            all.consumer(Consumer::of("oders").named("c").handler(handler()));
        },
        &["@ the consumer `c` needs the queue `oders`, which nobody declares; did you mean \
               `orders` of @?"],
    ),
    (
        |all| all.bind("q", "e", "k"),
        &[
            "@ the binding of `q` to `e` by `k` needs the exchange `e`, which nobody declares",
            "@ the binding of `q` to `e` by `k` needs the queue `q`, which nobody declares",
        ],
    ),
    (
        |all| all.queue(Queue::new("q").dead_letter("", "gone")),
        &["@ the dead letters of the queue `q` needs the queue `gone`, which nobody declares"],
    ),
    (
        |all| all.queue(Queue::new("q").dead_letter("dlx", "k")),
        &["@ the dead letters of the queue `q` needs the exchange `dlx`, which nobody declares"],
    ),
    (
        |all| {
            all.standing_queue("q");
            all.consumer(Consumer::of("q").handler(handler()));
            all.consumer(Consumer::of("q").handler(handler()));
        },
        &["@ the consumer `q` is declared already, at @"],
    ),
    (
        |all| {
            all.standing_queue("q");
            all.consumer(Consumer::of("q").named("a").event_type("x").handler(handler()));
            all.consumer(Consumer::of("q").named("b").event_type("y").handler(handler()));
        },
        &["@ the consumer `b` and the consumer `a` of @ handle different event types of the \
               queue `q` and would take each other's messages: give one consumer both handlers, \
               with `on`"],
    ),
    (
        |all| {
            all.standing_queue("q");
            let consumer = Consumer::of("q").event_type("x").handler(handler());
            all.consumer(consumer.on("y", handler()).on("x", handler()));
        },
        &["@ the consumer `q` handles `x` twice"],
    ),
    (
        |all| {
            all.standing_queue("q");
            let retry = Retry::after([Duration::from_secs(43_201)]);
            all.consumer(Consumer::of("q").retry(retry).handler(handler()));
        },
        &["@ the consumer `q` retries after more than 43200 seconds"],
    ),
];

#[test]
fn what_cannot_work_is_named_with_both_places() {
    for (index, (declare, expected)) in CASES.into_iter().enumerate() {
        assert_eq!(problems(declare), expected, "case {index}");
    }
}

#[test]
fn the_places_are_those_of_the_declarations() {
    let mut all = Declarations::new();
    let first = line!() + 1;
    all.queue(Queue::new("q"));
    all.queue(Queue::new("q"));
    let problems = all.validate().unwrap_err();
    let Some(Problem::Duplicate { first: one, second, .. }) = problems.iter().next() else {
        panic!("{problems}")
    };
    assert_eq!((one.line(), second.line()), (first, first + 1));
    assert!(problems.to_string().contains(&format!("{}:{first}:", file!())));
}

#[tokio::test]
async fn nothing_connects_before_all_is_checked() {
    let mut all = Declarations::new();
    all.consumer(Consumer::of("nowhere").named("a").handler(handler()));
    let address = AmqpAddress::parse("amqp://guest:guest@127.0.0.1:9/").expect("an address");
    let source = Arc::new(MemorySource::new());
    let started = Service::builder()
        .declared(address, all)
        .consume(Arc::clone(&source), Consumer::of("here").named("a").handler(handler()))
        .start()
        .await;
    let Err(StartError::Declared(problems)) = started else { panic!("{started:?}") };
    assert_eq!(problems.iter().count(), 2, "{problems}"); // also across both kinds
    assert_eq!(Arc::strong_count(&source), 1);
}
