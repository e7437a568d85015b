//! Health: the answers to the four questions, and what they are felt from.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    Fact, OnExhausted, Ordering, Outcome, PoolSettings, Reason, Severity, Ungrouped,
};
use sluicegate_server::health::{
    Inputs, Leak, PoolSeen, Probe, Pulse, QueueSeen, QueueState, Rests, Seen, Stall, Status,
    assess, leak, longest_attempt,
};
use sluicegate_server::record::Record;
use sluicegate_server::warnings::Code;
use tokio::time::Instant;

use crate::scene::{Hands, Stock, message, name, router};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn well() -> Inputs {
    let queue = QueueState { name: name("q"), connected: true, trouble: None };
    Inputs { started: true, last_beat: Some(secs(1)), queues: vec![queue], ..Inputs::default() }
}

fn with(change: impl FnOnce(&mut Inputs)) -> Inputs {
    let mut inputs = well();
    change(&mut inputs);
    inputs
}

#[test]
fn the_four_questions_are_answered_by_the_table() {
    use Status::{Degraded, Down, Up};
    let trouble = || Some("broker at 127.0.0.1:5672 refused".to_owned());
    let stall = Stall::NotStarting { pool: name("P"), since: secs(61) };
    // Inputs, the answers overall, live, ready and startup, and what the first one says.
    let table = [
        (well(), [Up, Up, Up, Up], vec![]),
        (
            Inputs::default(),
            [Down, Up, Down, Down],
            vec!["the configuration has not been applied yet"],
        ),
        (with(|inputs| inputs.ending = true), [Down, Up, Down, Up], vec!["it is shutting down"]),
        (
            with(|inputs| inputs.last_beat = Some(secs(61))),
            [Down, Down, Up, Up],
            vec!["nothing has moved for 61 s"],
        ),
        (with(|inputs| inputs.last_beat = Some(secs(60))), [Up, Up, Up, Up], vec![]),
        (
            with(|inputs| inputs.queues[0].connected = false),
            [Degraded, Up, Down, Up],
            vec!["queue q has not connected yet"],
        ),
        (
            with(|inputs| {
                inputs.queues[0].connected = false;
                inputs.queues[0].trouble = trouble();
            }),
            [Degraded, Up, Down, Up],
            vec!["queue q has not connected yet: broker at 127.0.0.1:5672 refused"],
        ),
        (
            with(|inputs| inputs.queues[0].trouble = trouble()),
            [Degraded, Up, Up, Up],
            vec!["queue q: broker at 127.0.0.1:5672 refused"],
        ),
        (
            with(|inputs| inputs.leak = Some(Leak { in_flight: 71, room: 70 })),
            [Degraded, Up, Up, Up],
            vec!["71 messages are in flight, and the pools can hold 70"],
        ),
        (
            with(|inputs| {
                inputs.stalls.push(stall);
                inputs.queues[0].trouble = trouble();
            }),
            [Down, Up, Up, Up],
            vec![
                "pool P has messages to run and has started none for 61 s",
                "queue q: broker at 127.0.0.1:5672 refused",
            ],
        ),
    ];
    for (inputs, answers, issues) in table {
        let probes = [Probe::Overall, Probe::Live, Probe::Ready, Probe::Startup];
        let given = probes.map(|probe| assess(probe, &inputs));
        assert_eq!(given.each_ref().map(|health| health.status), answers, "{inputs:?}");
        assert_eq!(given[0].issues, issues, "{inputs:?}");
        for health in given {
            assert_eq!(health.is_ok(), health.status != Down);
            assert_eq!(health.issues.is_empty(), health.status == Up, "{inputs:?}");
        }
    }
    let json = assess(Probe::Startup, &Inputs::default()).to_json();
    let issue = "the configuration has not been applied yet";
    assert_eq!(json, serde_json::json!({ "status": "DOWN", "issues": [issue] }));
    assert_eq!([Up, Degraded, Down].map(Status::label), ["UP", "DEGRADED", "DOWN"]);
}

#[test]
fn more_in_flight_than_there_is_room_for_is_a_leak() {
    let found = [(0, 0), (70, 70), (71, 70), (1, 0)].map(|(in_flight, room)| leak(in_flight, room));
    let leaks = |in_flight, room| Some(Leak { in_flight, room });
    assert_eq!(found, [None, None, leaks(71, 70), leaks(1, 0)]);
    let raised = found[2].unwrap().warning();
    assert_eq!((raised.code, raised.severity), (Code::PipelineMapLeak, Severity::Warning));
}

const ATTEMPT: Duration = secs(300);

/// What a router looks like after so many seconds.
type Look = (u64, fn(&mut Seen));

fn start() -> Seen {
    let pool = PoolSeen { code: name("P"), limit: 2, ..PoolSeen::default() };
    let queue = QueueSeen { name: name("q"), answered: true, ..QueueSeen::default() };
    Seen { pools: vec![pool], queues: vec![queue], room: 52, ..Seen::default() }
}

/// Takes looks one after the other, each a change of the one before, and hears what stalls then.
#[track_caller]
fn check(looks: &[Look], expected: &[&str]) {
    let (pulse, began) = (Pulse::new(), Instant::now());
    let mut seen = start();
    let mut now = began;
    for (after, change) in looks {
        now = began + secs(*after);
        change(&mut seen);
        pulse.feel(now, seen.clone(), ATTEMPT);
    }
    let stalls: Vec<String> =
        pulse.inputs(now).stalls.iter().map(|stall| stall.to_string()).collect();
    assert_eq!(stalls, expected);
}

fn due(seen: &mut Seen) {
    seen.pools[0].due_in_groups = 3;
}

fn same(_: &mut Seen) {}

#[tokio::test(start_paused = true)]
async fn work_that_could_start_and_does_not_has_stalled() {
    let says = "pool P has messages to run and has started none for 61 s";
    check(&[(0, due), (60, same)], &[]);
    check(&[(0, due), (61, same)], &[says]);
    check(&[(100, due), (161, same)], &[says]);
    // An idle router, however long.
    check(&[(0, same), (9_000, same)], &[]);
    // Idle for long, then work.
    check(&[(0, same), (9_000, due), (9_030, same)], &[]);
    // Something started in between.
    check(&[(0, due), (50, |seen| seen.pools[0].started = 1), (70, same)], &[]);
    check(&[(0, due), (50, |seen| seen.pools[0].started = 1), (111, same)], &[says]);
    // It waited for a moment in between.
    check(&[(0, due), (50, |seen| seen.pools[0].due_in_groups = 0), (60, due), (70, same)], &[]);
    // Something else ended, but nothing started.
    check(&[(0, due), (50, |seen| seen.pools[0].ended = 1), (61, same)], &[says]);
    // All permits are taken.
    check(&[(0, due), (1, |seen| seen.pools[0].running = 2), (200, same)], &[]);
    check(
        &[
            (0, |seen| {
                due(seen);
                seen.pools[0].running = 1;
            }),
            (61, same),
        ],
        &[says],
    );
    // Messages without a group, and those of them that may be waiting for a host.
    check(&[(0, |seen| seen.pools[0].without_group = 1), (61, same)], &[says]);
    check(
        &[
            (0, |seen| {
                seen.pools[0].without_group = 1;
                seen.pools[0].rests = true;
            }),
            (61, same),
        ],
        &[],
    );
    check(
        &[
            (0, |seen| {
                due(seen);
                seen.pools[0].rests = true;
            }),
            (61, same),
        ],
        &[says],
    );
}

#[tokio::test(start_paused = true)]
async fn a_rate_makes_work_wait() {
    let slow: fn(&mut Seen) = |seen| {
        due(seen);
        seen.pools[0].rate_per_minute = Some(2);
    };
    check(&[(0, slow), (90, same)], &[]);
    check(&[(0, slow), (91, same)], &["pool P has messages to run and has started none for 91 s"]);
    let none: fn(&mut Seen) = |seen| {
        due(seen);
        seen.pools[0].rate_per_minute = Some(0);
    };
    check(&[(0, none), (61, same)], &["pool P has messages to run and has started none for 61 s"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_as_long_as_it_may() {
    let runs: fn(&mut Seen) = |seen| seen.pools[0].running = 1;
    let says = ["pool P runs messages and none has ended for 361 s"];
    check(&[(0, runs), (360, same)], &[]);
    check(&[(0, runs), (361, same)], &says);
    check(&[(0, same), (9_000, runs), (9_030, same)], &[]);
    check(&[(0, runs), (300, |seen| seen.pools[0].ended = 1), (361, same)], &[]);
    check(&[(0, runs), (300, |seen| seen.pools[0].started = 1), (361, same)], &[]);
    check(&[(0, runs), (300, |seen| seen.pools[0].ended = 1), (661, same)], &says);
    check(&[(0, runs), (300, |seen| seen.pools[0].running = 0), (310, runs), (400, same)], &[]);
    assert_eq!(longest_attempt(secs(900)), secs(2_703));
}

#[tokio::test(start_paused = true)]
async fn settlements_must_go_through() {
    let over: fn(&mut Seen) = |seen| seen.in_flight = 1;
    let says = ["messages are over and none has been settled for 61 s"];
    check(&[(0, over), (60, same)], &[]);
    check(&[(0, over), (61, same)], &says);
    check(&[(0, same), (9_000, over), (9_030, same)], &[]);
    check(&[(0, over), (50, |seen| seen.queues[0].settled = 1), (70, same)], &[]);
    check(
        &[(0, over), (50, |seen| seen.in_pools = 1), (55, |seen| seen.in_pools = 0), (70, same)],
        &[],
    );
    // All that is in flight is in pools.
    let queued: fn(&mut Seen) = |seen| {
        seen.in_flight = 1;
        seen.in_pools = 1;
    };
    check(&[(0, queued), (61, same)], &[]);
    // A batch that is larger than its pool waits for room until something that runs has ended.
    let waits: fn(&mut Seen) = |seen| {
        seen.in_flight = 60;
        seen.in_pools = 52;
        seen.pools[0].running = 2;
    };
    check(&[(0, waits), (61, same)], &[]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_has_connected_once_it_has_answered() {
    let pulse = Pulse::new();
    let now = Instant::now();
    let feel = |answered: bool, trouble: Option<&str>, names: &[&str]| {
        let queues = names.iter().map(|queue| QueueSeen {
            name: name(queue),
            answered,
            trouble: trouble.map(str::to_owned),
            settled: 0,
        });
        pulse.feel(now, Seen { queues: queues.collect(), ..start() }, ATTEMPT);
        let queues = pulse.inputs(now).queues;
        queues.iter().map(|queue| (queue.connected, queue.trouble.clone())).collect::<Vec<_>>()
    };
    assert_eq!(feel(false, Some("refused"), &["q"]), [(false, Some("refused".to_owned()))]);
    assert_eq!(feel(true, None, &["q"]), [(true, None)]);
    // A restart does not undo it; a removal does.
    assert_eq!(feel(false, None, &["q"]), [(true, None)]);
    assert_eq!(feel(false, None, &[]), []);
    assert_eq!(feel(false, None, &["q"]), [(false, None)]);
    pulse.connected(&name("q"));
    assert!(pulse.inputs(now).queues[0].connected);
    assert_eq!(feel(false, None, &["q"]), [(true, None)]);
    assert_eq!(pulse.inputs(now + secs(7)).last_beat, Some(secs(7)));
    assert_eq!(Pulse::new().inputs(now).last_beat, None);
}

fn strict(code: &str) -> PoolSettings {
    PoolSettings { ordering: Ordering::Strict, ..PoolSettings::new(code, 2) }
}

fn parallel(code: &str) -> PoolSettings {
    PoolSettings { ungrouped: Ungrouped::Parallel, ..PoolSettings::new(code, 2) }
}

/// Runs a real router for ten minutes, feeling its pulse, and returns what stalled at each look.
async fn ten_minutes(
    pool: PoolSettings,
    stock: Arc<Stock>,
    takes: Duration,
    ends: Outcome,
) -> Vec<Vec<String>> {
    let record = Record::new(Hands::new());
    let router = router(&record, vec![pool], Some(stock), takes, ends).await;
    let pulse = Pulse::new();
    let mut looks = Vec::new();
    for _ in 0..120 {
        tokio::time::sleep(secs(5)).await;
        pulse.feel(Instant::now(), Seen::of(&router, &record.rests), ATTEMPT);
        let inputs = pulse.inputs(Instant::now());
        assert_eq!((inputs.leak, inputs.queues.len()), (None, 1));
        looks.push(inputs.stalls.iter().map(ToString::to_string).collect());
    }
    looks
}

#[tokio::test(start_paused = true)]
async fn a_router_that_only_waits_is_healthy() {
    let retry = |after| Outcome::RetryLater {
        after: Some(after),
        why: String::new(),
        status: None,
        body: None,
    };
    let some = |group| Stock::of((0..5).map(|at| message(&format!("m{at}"), group)));
    let (long, short, hour) = (secs(280), secs(1), secs(3600));
    let throttled = Outcome::Throttled { after: hour, body: None };
    let alone = PoolSettings { ungrouped: Ungrouped::Parallel, ..strict("P") };
    let slow = PoolSettings { rate_limit_per_minute: Some(1), ..parallel("P") };
    let on_exhausted = OnExhausted::Block;
    let blocked = PoolSettings { max_attempts: 1, on_exhausted, ..strict("P") };
    let (in_group, grouped) = (some(Some("g")), PoolSettings::new("P", 2));
    let cases = [
        ("idle", strict("P"), Stock::of([]), short, Outcome::Done),
        ("calls take long", strict("P"), in_group, long, Outcome::Done),
        ("a group retries", strict("P"), some(Some("g")), short, retry(hour)),
        ("messages retry", alone, some(None), short, retry(hour)),
        ("a host pauses", parallel("P"), some(None), short, throttled.clone()),
        ("a host of groups pauses", grouped, some(Some("g")), short, throttled),
        ("the rate is low", slow, some(None), short, Outcome::Done),
        ("a group is blocked", blocked, some(Some("g")), short, retry(short)),
    ];
    for (name, pool, stock, takes, ends) in cases {
        let looks = ten_minutes(pool, stock, takes, ends).await;
        assert!(looks.iter().all(Vec::is_empty), "{name}: {looks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_router_that_hangs_is_not() {
    let stock = || Stock::of((0..5).map(|at| message(&format!("m{at}"), None)));
    let hangs = ten_minutes(parallel("P"), stock(), secs(9_999), Outcome::Done).await;
    assert_eq!(hangs[119], ["pool P runs messages and none has ended for 595 s"]);
    let deaf = stock();
    *deaf.hangs.lock() = true;
    let unsettled = ten_minutes(parallel("P"), deaf, secs(1), Outcome::Done).await;
    assert_eq!(unsettled[119], ["messages are over and none has been settled for 595 s"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_used_is_named() {
    let record = Record::new(Hands::new());
    let stock = Stock::of([]);
    *stock.trouble.lock() = Some("127.0.0.1:5672 refused");
    let source = Arc::clone(&stock);
    let router = router(&record, vec![], Some(source), secs(1), Outcome::Done).await;
    let pulse = Pulse::new();
    let ready = async |after| {
        tokio::time::sleep(after).await;
        pulse.feel(Instant::now(), Seen::of(&router, &record.rests), ATTEMPT);
        let inputs = Inputs { started: true, ..pulse.inputs(Instant::now()) };
        (assess(Probe::Ready, &inputs).issues, assess(Probe::Overall, &inputs).issues)
    };
    let issue = vec!["queue q has not connected yet: 127.0.0.1:5672 refused".to_owned()];
    assert_eq!(ready(secs(1)).await, (issue.clone(), issue));
    *stock.trouble.lock() = None;
    assert_eq!(ready(secs(30)).await, (vec![], vec![]));
    *stock.trouble.lock() = Some("127.0.0.1:5672 refused");
    let issue = vec!["queue q: 127.0.0.1:5672 refused".to_owned()];
    assert_eq!(ready(secs(30)).await, (vec![], issue));
}

#[tokio::test(start_paused = true)]
async fn a_pool_rests_until_the_last_of_its_pauses_is_over() {
    let rests = Rests::default();
    let (pool, other, id) = (&name("P"), &name("R"), &name("m"));
    let rested = async |after| {
        tokio::time::sleep(after).await;
        ["P", "R", "S"].map(|pool| rests.rests(pool, Instant::now()))
    };
    let reason = Reason::Failed;
    assert_eq!(rested(secs(0)).await, [false, false, false]);
    rests.hear(&Fact::Paused { pool, host: "h", after: secs(100) });
    rests.hear(&Fact::Paused { pool, host: "i", after: secs(10) });
    rests.hear(&Fact::Retrying { pool: other, id, after: Some(secs(30)), reason });
    rests.hear(&Fact::Retrying { pool: &name("S"), id, after: None, reason });
    rests.hear(&Fact::UngroupedSerial { pool: &name("S") });
    assert_eq!(rested(secs(29)).await, [true, true, false]);
    assert_eq!(rested(secs(1)).await, [true, false, false]);
    assert_eq!(rested(secs(70)).await, [false, false, false]);
    rests.hear(&Fact::Paused { pool, host: "h", after: Duration::MAX });
    assert_eq!(rested(secs(43_199)).await, [true, false, false]);
    assert_eq!(rested(secs(1)).await, [false, false, false]);
}
