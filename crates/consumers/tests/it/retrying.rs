//! What becomes of a message whose handler fails.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluicegate_consumers::{
    Class, Consumer, ConsumerBuilder, ConsumerStats, Failure, Handler, MemorySource, Retry,
};

use crate::stage::{Book, Stage, letter};

#[derive(Debug)]
struct Refused(&'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Refused {}

#[derive(Debug)]
struct Wrapped(Refused);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Fails so often, each time by what the function makes.
fn fails(times: u32, book: &Book, how: fn() -> Result<(), Failure>) -> Handler {
    let (book, seen) = (book.clone(), Arc::new(AtomicU32::new(0)));
    Handler::bytes(move |_body, about, _cx| {
        let fails = seen.fetch_add(1, Ordering::SeqCst) < times;
        book.write(format!("#{} {}", about.attempt(), about.redelivered()));
        async move { if fails { how() } else { Ok(()) } }
    })
}

struct Seen {
    lines: Vec<String>,
    facts: Vec<String>,
    stats: ConsumerStats,
    took: u64,
    buried: usize,
}

async fn consume(
    source: MemorySource,
    times: u32,
    build: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
    how: fn() -> Result<(), Failure>,
) -> Seen {
    source.push(letter("m"));
    let book = Book::default();
    let consumer = build(Consumer::of("q")).handler(fails(times, &book, how));
    let stage = Stage::set(source, consumer).await;
    stage.emptied().await;
    Seen {
        lines: book.lines(),
        facts: stage.facts.lines().split_off(1),
        stats: stage.stats(),
        took: stage.began.elapsed().as_secs(),
        buried: stage.source.buried().len(),
    }
}

#[tokio::test(start_paused = true)]
async fn three_delayed_retries_then_the_dead_letters() {
    let no = || Err(Failure::retry("no"));
    let seen = consume(MemorySource::new(), 9, |builder| builder, no).await;
    assert_eq!(seen.lines, ["#1 false", "#2 true", "#3 true", "#4 true"]);
    assert_eq!(
        seen.facts,
        [
            "1 retrying #1 1s no",
            "1 retrying #2 5s no",
            "1 retrying #3 30s no",
            "1 dead kept 4 attempts: no"
        ]
    );
    assert_eq!((seen.took, seen.buried), (36, 1));
    let stats = seen.stats;
    assert_eq!((stats.retried, stats.dead, stats.dropped, stats.poison), (3, 1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_it_is_dropped_with_a_counted_warning() {
    let no = || Err(Failure::dead("no"));
    let source = MemorySource::new().without_dead_letters();
    let seen = consume(source, 9, |builder| builder, no).await;
    assert_eq!(seen.facts, ["1 dead dropped no"]);
    assert_eq!((seen.stats.dead, seen.stats.dropped, seen.buried), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn one_that_works_at_last_is_done() {
    let seen =
        consume(MemorySource::new(), 2, |builder| builder, || Err(Failure::retry("no"))).await;
    assert_eq!((seen.lines.len(), seen.stats.done, seen.stats.retried), (3, 1, 2));
    assert_eq!((seen.took, seen.buried), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_and_the_worker_survives() {
    let one_worker = |builder: ConsumerBuilder| builder.workers(1);
    let seen = consume(MemorySource::new(), 1, one_worker, || panic!("oh {}", "no")).await;
    assert_eq!(seen.facts, ["1 retrying #1 1s panicked: oh no"]);
    assert_eq!((seen.stats.panicked, seen.stats.done), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_class_of_an_error_decides() {
    type Build = fn(ConsumerBuilder) -> ConsumerBuilder;
    type How = fn() -> Result<(), Failure>;
    let plain: Build = |builder| builder;
    let classified: Build = |builder| {
        builder.classify(|error: &std::fmt::Error| panic!("not asked of {error}")).classify(
            |error: &Refused| match error.0 {
                "dead" => Class::Dead,
                "later" => Class::RetryAfter(Duration::from_secs(77)),
                _ => Class::Retry,
            },
        )
    };
    let dead: How = || Err(Refused("dead").into());
    let later: How = || Err(Refused("later").into());
    let wrapped: How = || Err(Wrapped(Refused("dead")).into());
    let insists: How = || Err(Failure::retry(Refused("dead")));
    let after: How = || Err(Failure::retry_after(Duration::from_secs(9), "no"));
    let cases = [
        (plain, dead, "1 retrying #1 1s dead"),
        (classified, dead, "1 dead kept dead"),
        (classified, later, "1 retrying #1 77s later"),
        (classified, wrapped, "1 dead kept wrapped: dead"),
        (classified, insists, "1 retrying #1 1s dead"),
        (plain, after, "1 retrying #1 9s no"),
    ];
    for (build, how, fact) in cases {
        assert_eq!(consume(MemorySource::new(), 1, build, how).await.facts, [fact]);
    }
}

#[tokio::test(start_paused = true)]
async fn how_often_is_the_consumers_to_say() {
    let delays = |builder: ConsumerBuilder| builder.retry(Retry::after([Duration::from_secs(2)]));
    let seen = consume(MemorySource::new(), 9, delays, || Err(Failure::retry("no"))).await;
    assert_eq!(seen.facts, ["1 retrying #1 2s no", "1 dead kept 2 attempts: no"]);
    let never = |builder: ConsumerBuilder| builder.retry(Retry::never());
    let seen = consume(MemorySource::new(), 9, never, || Err(Failure::retry("no"))).await;
    assert_eq!(seen.facts, ["1 dead kept 1 attempt: no"]);
}
