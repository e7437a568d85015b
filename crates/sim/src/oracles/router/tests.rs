//! A wrong router is caught: histories that must not be, each with the oracle that says so.

use sluicegate_dispatch::{OnExhausted, ParkedCode, Rejection, Settled, Settlement, Severity};

use super::*;

/// When sources took out what they hand over.
const TAKEN: Moment = Moment::from_nanos(1);

/// Sources 0 and 1; the second keeps the order of strict keys.
fn oracles(fair: bool) -> Oracles {
    Oracles::new(Setup { queues: vec![false, true], fair })
}

fn letter(serial: usize) -> Letter {
    Letter {
        serial,
        queue: 0,
        queue_name: "q1".into(),
        number: serial as u64 + 1,
        id: format!("id{serial}").into(),
        pool: "A".into(),
        group: Some("g".into()),
        tenant: None,
        is_high: false,
        host: "h".into(),
        is_malformed: false,
        delay: Duration::ZERO,
    }
}

fn pool(ordering: Ordering) -> PoolSettings {
    PoolSettings { ordering, ..PoolSettings::new("A", 2) }
}

fn handed(serials: &[usize], generation: u64) -> Fact {
    let handed = |serial: &usize| Handed { number: *serial as u64 + 1, generation, attempts: 0 };
    let batch = serials.iter().map(handed).collect();
    Fact::HandedOver { queue: 0, opening: 1, taken: TAKEN, batch }
}

fn waits(serial: usize) -> Fact {
    Fact::Admitted { pool: "A".into(), serial }
}

fn starts(serial: usize, attempt: u32, settings: &PoolSettings) -> Fact {
    Fact::Started { serial, settings: Arc::new(settings.clone()), attempt }
}

fn ends(serial: usize, outcome: Outcome) -> Fact {
    Fact::Ended { serial, outcome: Some(outcome) }
}

fn fails(serial: usize) -> Fact {
    ends(serial, Outcome::Unreachable { cause: String::new() })
}

fn throttles(serial: usize) -> Fact {
    ends(serial, Outcome::Throttled { after: Duration::from_secs(9), body: None })
}

fn told(serial: usize, settlement: Settlement) -> Fact {
    let number = serial as u64 + 1;
    Fact::Told { queue: 0, number, generation: 1, settlement, effect: Effect::Done }
}

fn gone(serial: usize) -> Fact {
    told(serial, Settlement::Ack)
}

fn again(serial: usize, seconds: u64, attempts: u32, reason: Reason) -> Fact {
    let after = Duration::from_secs(seconds);
    told(serial, Settlement::Retry { after, attempts, reason })
}

fn heard(serial: usize) -> Fact {
    let number = serial as u64 + 1;
    Fact::Answered { queue: 0, number, generation: 1, settled: Settled::Done }
}

fn parked(serial: usize, with_key: bool) -> Fact {
    let key = with_key.then(|| ("q1".into(), "A".into(), "g".into()));
    let number = serial as u64 + 1;
    Fact::Parked { queue: "q1".into(), number, code: ParkedCode::Exhausted, key }
}

/// A pool, and so many messages of one key that came in one batch and wait.
fn waiting(settings: &PoolSettings, count: usize) -> Vec<Fact> {
    let serials: Vec<usize> = (0..count).collect();
    let mut facts = vec![Fact::Begun, Fact::PoolSet(settings.clone())];
    facts.extend(serials.iter().map(|serial| Fact::Published(letter(*serial))));
    facts.push(handed(&serials, 1));
    facts.extend(serials.iter().map(|serial| waits(*serial)));
    facts
}

/// The last fact, and none before it, is what the oracle objects to; `None`: nothing is wrong.
fn check(what: &str, facts: &[Fact], expected: Option<&str>) {
    check_with(oracles(false), what, facts, expected);
}

fn check_with(mut oracles: Oracles, what: &str, facts: &[Fact], expected: Option<&str>) {
    let (last, before) = facts.split_last().expect("something happens");
    let mut now = Moment::ZERO;
    for fact in before {
        let seen = oracles.see(now, fact.clone());
        assert_eq!(seen, Ok(()), "{what}: {fact}");
        now += Duration::from_millis(1);
    }
    let seen = oracles.see(now, last.clone()).err();
    assert_eq!(seen.as_ref().map(|broken| broken.oracle), expected, "{what}: {seen:?}");
}

/// A beginning, what follows, and who objects to the last of it.
type Case<'a> = (&'a str, Vec<Fact>, Vec<Fact>, Option<&'a str>);

fn check_all(cases: Vec<Case<'_>>) {
    for (what, mut facts, more, expected) in cases {
        facts.extend(more);
        check(what, &facts, expected);
    }
}

#[test]
fn loss_and_settling() {
    let batch = pool(Ordering::Batch);
    let one = || waiting(&batch, 1);
    let start = || starts(0, 1, &batch);
    let done = || ends(0, Outcome::Done);
    let no =
        || Rejection { status: None, why: String::new(), severity: Severity::Error, body: None };
    let rejected = || ends(0, Outcome::Rejected(no()));
    let over = |left| Fact::Over { queued: 0, running: 0, left };
    let drained = |unsettled| Fact::Stopped {
        unsettled,
        is_stuck: false,
        in_flight: unsettled as usize,
        is_healthy: true,
    };
    check_all(vec![
        ("well", one(), vec![start(), done(), gone(0), heard(0), drained(0), over(0)], None),
        ("gone, never run", one(), vec![gone(0)], Some("lost")),
        ("gone after a failure", one(), vec![start(), fails(0), gone(0)], Some("lost")),
        ("gone before it is kept", one(), vec![start(), rejected(), gone(0)], Some("lost")),
        ("kept first", one(), vec![start(), rejected(), parked(0, false), gone(0)], None),
        (
            "again though done",
            one(),
            vec![start(), done(), again(0, 30, 0, Reason::Failed)],
            Some("settled"),
        ),
        (
            "a delay of its own",
            one(),
            vec![start(), fails(0), again(0, 29, 1, Reason::Failed)],
            Some("settled"),
        ),
        (
            "not counted",
            one(),
            vec![start(), fails(0), again(0, 30, 0, Reason::Failed)],
            Some("attempts"),
        ),
        (
            "counted",
            one(),
            vec![start(), throttles(0), again(0, 9, 1, Reason::Throttled)],
            Some("attempts"),
        ),
        ("a cascade of nothing", one(), vec![again(0, 10, 0, Reason::Cascade)], Some("settled")),
        (
            "settled twice",
            one(),
            vec![start(), done(), gone(0), heard(0), gone(0)],
            Some("settled"),
        ),
        ("never", one(), vec![Fact::Stuck], Some("lost")),
        ("left", one(), vec![over(1)], Some("lost")),
        ("in hand at the end", one(), vec![drained(0)], Some("leaks")),
        ("unsettled for no reason", one(), vec![drained(1)], Some("leaks")),
        ("let in twice", one(), vec![waits(0)], Some("twice")),
        ("runs twice", one(), vec![start(), start()], Some("twice")),
        ("runs on after it is over", one(), vec![start(), done(), start()], Some("settled")),
        ("the window ends", one(), vec![handed(&[0], 2)], Some("window")),
        (
            "the window ends by a fault",
            one(),
            vec![Fact::Disturbed { queue: 0, until: TAKEN }, handed(&[0], 2)],
            None,
        ),
    ]);
}

#[test]
fn order_within_a_batch() {
    let batch = pool(Ordering::Batch);
    let none = pool(Ordering::None);
    let two = || waiting(&batch, 2);
    let (first, second) = (|| starts(0, 1, &batch), || starts(1, 1, &batch));
    let failed = || again(0, 30, 1, Reason::Failed);
    let mut high = two();
    let is_high = true;
    high.push(Fact::Published(Letter { is_high, ..letter(2) }));
    high.extend([handed(&[2], 3), waits(2)]);
    check_all(vec![
        ("in turn", two(), vec![first(), ends(0, Outcome::Done), second()], None),
        ("the later first", two(), vec![second()], Some("order")),
        ("two of a key", two(), vec![first(), second()], Some("order")),
        ("two of no key", waiting(&none, 2), vec![starts(1, 1, &none), starts(0, 1, &none)], None),
        ("after a failure", two(), vec![first(), fails(0), second()], Some("order")),
        (
            "turned back",
            two(),
            vec![first(), fails(0), failed(), again(1, 10, 0, Reason::Cascade)],
            None,
        ),
        ("high waits", high.clone(), vec![first()], Some("order")),
        ("high passes", high, vec![starts(2, 1, &batch)], None),
    ]);
}

#[test]
fn strict_order() {
    let strict = pool(Ordering::Strict);
    let park = PoolSettings { max_attempts: 1, ..strict.clone() };
    let skip = PoolSettings { on_exhausted: OnExhausted::Skip, ..park.clone() };
    let block = PoolSettings { on_exhausted: OnExhausted::Block, ..park.clone() };
    let ended = |settings: &PoolSettings| {
        let mut facts = waiting(settings, 2);
        facts.extend([starts(0, 1, settings), fails(0)]);
        facts
    };
    let mut done = waiting(&strict, 2);
    done.extend([starts(0, 1, &strict), ends(0, Outcome::Done)]);
    let settled = vec![gone(0), heard(0), starts(1, 1, &strict)];
    check_all(vec![
        ("before the source knows", done.clone(), vec![starts(1, 1, &strict)], Some("order")),
        ("when it knows", done, settled, None),
        ("past a head that retries", ended(&strict), vec![starts(1, 1, &strict)], Some("order")),
        ("before its delay", ended(&strict), vec![starts(0, 2, &strict)], Some("delays")),
        ("not one more attempt", ended(&park), vec![starts(0, 2, &park)], Some("settled")),
        ("a blocked head", ended(&block), vec![starts(0, 2, &block)], Some("settled")),
        ("the tail of a parked key", ended(&park), vec![starts(1, 1, &park)], Some("settled")),
        (
            "skipped",
            ended(&skip),
            vec![parked(0, false), gone(0), heard(0), starts(1, 1, &skip)],
            None,
        ),
    ]);
    let mut later = ended(&park);
    later.extend([parked(0, true), gone(0), heard(0), parked(1, true), gone(1), heard(1)]);
    later.push(Fact::Published(letter(2)));
    later.extend([handed(&[2], 3), waits(2)]);
    let freed = Fact::Freed(("q1".into(), "A".into(), "g".into()));
    check_all(vec![
        ("while its key is parked", later.clone(), vec![starts(2, 1, &park)], Some("order")),
        ("once it is free", later, vec![freed, starts(2, 1, &park)], None),
    ]);
}

#[test]
fn strict_order_over_all_lives() {
    let strict = pool(Ordering::Strict);
    let kept = |serial| Letter { queue: 1, queue_name: "q2".into(), ..letter(serial) };
    let hand = |serial: u64| Fact::HandedOver {
        queue: 1,
        opening: 1,
        taken: Moment::ZERO,
        batch: vec![Handed { number: serial + 1, generation: 1, attempts: 0 }],
    };
    let mut facts = vec![Fact::Begun, Fact::PoolSet(strict.clone())];
    facts.extend([Fact::Published(kept(0)), Fact::Published(kept(1))]);
    facts.extend([hand(0), waits(0), starts(0, 1, &strict)]);
    let crash = [Fact::Begun, Fact::PoolSet(strict.clone()), hand(1), waits(1)];
    let done = ends(0, Outcome::Done);
    check_all(vec![
        (
            "the first is not done",
            facts.clone(),
            [&crash[..], &[starts(1, 1, &strict)]].concat(),
            Some("order"),
        ),
        (
            "the first was done",
            [&facts[..], &[done]].concat(),
            [&crash[..], &[starts(1, 1, &strict)]].concat(),
            None,
        ),
    ]);
}

#[test]
fn limits_rates_and_pauses() {
    let none = pool(Ordering::None);
    let run = |serial| starts(serial, 1, &none);
    let one = PoolSettings { concurrency: 1, ..none.clone() };
    let slow = PoolSettings { rate_limit_per_minute: Some(60), ..none.clone() };
    let refused = |count| Fact::Refused { pool: "A".into(), count };
    let waits_in = |queued| Fact::Gauges { pool: "A".into(), queued, running: 0 };
    check_all(vec![
        ("two at once", waiting(&none, 2), vec![run(0), run(1)], None),
        ("three of two", waiting(&none, 3), vec![run(0), run(1), run(2)], Some("limits")),
        (
            "after it shrank",
            waiting(&none, 3),
            vec![run(0), Fact::PoolSet(one.clone()), waits_in(2), starts(1, 1, &one)],
            Some("limits"),
        ),
        (
            "in a pool that is gone",
            waiting(&none, 1),
            vec![Fact::PoolRemoved("A".into()), again(0, 0, 0, Reason::Draining), run(0)],
            Some("pools"),
        ),
        ("under old settings", waiting(&none, 1), vec![starts(0, 1, &one)], Some("pools")),
        ("refused with room", waiting(&none, 3), vec![refused(47)], Some("limits")),
        ("refused without", waiting(&none, 3), vec![refused(48)], None),
        ("a line too long", waiting(&none, 1), vec![waits_in(53)], Some("limits")),
        (
            "too fast",
            waiting(&slow, 2),
            vec![starts(0, 1, &slow), starts(1, 1, &slow)],
            Some("rate"),
        ),
        ("a host's pause", waiting(&none, 2), vec![run(0), throttles(0), run(1)], Some("pauses")),
        ("the wrong number", waiting(&none, 1), vec![starts(0, 2, &none)], Some("attempts")),
    ]);
}

#[test]
fn a_tenant_that_runs_away() {
    let none = pool(Ordering::None);
    let of = |serial: usize, tenant: &str| {
        Fact::Published(Letter { tenant: Some(tenant.into()), ..letter(serial) })
    };
    let serials: Vec<usize> = (0..10).collect();
    let mut facts = vec![Fact::Begun, Fact::PoolSet(none.clone())];
    facts.extend(serials.iter().map(|serial| of(*serial, if *serial == 9 { "b" } else { "a" })));
    facts.push(handed(&serials, 1));
    facts.extend(serials.iter().map(|serial| waits(*serial)));
    for serial in 0..6 {
        facts.extend([starts(serial, 1, &none), ends(serial, Outcome::Done)]);
    }
    let mut kept = facts.clone();
    kept.push(starts(9, 1, &none));
    check_with(oracles(true), "in time", &kept, None);
    facts.push(starts(6, 1, &none));
    check_with(oracles(true), "seven ahead of one that waits", &facts, Some("fairness"));
}
