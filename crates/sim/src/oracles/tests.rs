//! A wrong schedule is caught: histories that must not be, each with the oracle that says so.

use std::time::Duration;

use super::*;

const OPEN: Bounds = Bounds::OPEN;

fn setup() -> Setup {
    Setup { concurrency: 2, capacity: 50, class_period: 4, tenants: vec![OPEN; 2], most_apart: 3 }
}

fn item(number: u64, tenant: usize, key: Option<u32>, class: Class) -> Fact {
    Fact::Admitted(Item { number, tenant, key, own_key: false, class, cost: 1 })
}

fn normal(number: u64, tenant: usize) -> Fact {
    item(number, tenant, None, Class::Normal)
}

fn in_key(number: u64) -> Fact {
    item(number, 0, Some(7), Class::Normal)
}

fn start(number: u64) -> Fact {
    Fact::Started(number)
}

fn done(number: u64) -> Fact {
    Fact::Ended(number, End::Completed { cost: None })
}

const OVER: Fact = Fact::Over { queued: 0, running: 0, keys: 0, tenants: 0 };

/// The last fact, and none before it, is what the oracle objects to; `None`: nothing is wrong.
fn check(what: &str, facts: &[Fact], expected: Option<&str>) {
    let mut oracles = Oracles::new(setup());
    let mut now = Moment::ZERO;
    let (last, before) = facts.split_last().expect("something happens");
    for fact in before {
        assert_eq!(oracles.see(now, *fact), Ok(()), "{what}: {fact:?}");
        now += Duration::from_millis(1);
    }
    let seen = oracles.see(now, *last).err();
    assert_eq!(seen.as_ref().map(|broken| broken.oracle), expected, "{what}: {seen:?}");
}

#[test]
fn limits_order_and_ends() {
    let back = |until| Fact::PutBack { number: 1, until, cost: None };
    let soon = Moment::ZERO + Duration::from_secs(1);
    let one = Bounds { max_running: 1, ..OPEN };
    let system = |number| item(number, 0, Some(7), Class::System);
    let mut full: Vec<Fact> = (1..=50).map(|n| normal(n, 0)).collect();
    full.push(normal(51, 0));
    check("over capacity", &full, Some("limits"));
    let bad: &[(&str, &[Fact], Option<&str>)] = &[
        ("all is well", &[in_key(1), start(1), done(1), OVER], None),
        (
            "refused with room",
            &[Fact::Refused { tenant: 0, class: Class::Low, count: 1 }],
            Some("limits"),
        ),
        ("let in while draining", &[Fact::Draining, normal(1, 0)], Some("limits")),
        (
            "three of two",
            &[normal(1, 0), normal(2, 0), normal(3, 1), start(1), start(2), start(3)],
            Some("limits"),
        ),
        (
            "started after shrinking",
            &[normal(1, 0), normal(2, 0), start(1), Fact::Concurrency(1), start(2)],
            Some("limits"),
        ),
        (
            "over the tenant's cap",
            &[normal(1, 0), normal(2, 0), Fact::Tenant(0, one), start(1), start(2)],
            Some("limits"),
        ),
        ("two of a key", &[in_key(1), in_key(2), start(1), start(2)], Some("order")),
        ("out of order", &[in_key(1), in_key(2), start(2)], Some("order")),
        ("a lower class first", &[in_key(1), system(2), start(1)], Some("order")),
        (
            "the tail overtakes",
            &[
                in_key(1),
                system(2),
                start(2),
                done(2),
                start(1),
                back(Moment::ZERO),
                system(3),
                start(3),
            ],
            Some("order"),
        ),
        ("before its time", &[in_key(1), start(1), back(soon), start(1)], Some("order")),
        ("released", &[in_key(1), start(1), back(soon), Fact::Released(1), start(1)], None),
        ("started twice", &[normal(1, 0), start(1), start(1)], Some("ends")),
        ("ended twice", &[normal(1, 0), start(1), done(1), done(1)], Some("ends")),
        ("ended without a start", &[normal(1, 0), done(1)], Some("ends")),
        ("out of nowhere", &[start(1)], Some("ends")),
        ("lost", &[normal(1, 0), OVER], Some("ends")),
        (
            "a key is kept",
            &[Fact::Over { queued: 0, running: 0, keys: 1, tenants: 0 }],
            Some("leftovers"),
        ),
    ];
    for (what, facts, expected) in bad {
        check(what, facts, *expected);
    }
}

#[test]
fn a_class_that_starves() {
    let mut facts: Vec<Fact> = (1..=5).map(|n| item(n, 0, None, Class::System)).collect();
    facts.push(item(6, 0, None, Class::Low));
    facts.extend((1..=3).flat_map(|n| [start(n), done(n)]));
    let mut kept = facts.clone();
    kept.push(start(6));
    check("served in time", &kept, None);
    facts.push(start(4));
    check("passed over four times", &facts, Some("classes"));
}

#[test]
fn a_tenant_that_runs_away() {
    let mut facts: Vec<Fact> = (1..=10).map(|n| normal(n, 0)).collect();
    facts.push(normal(11, 1));
    facts.extend((1..=3).flat_map(|n| [start(n), done(n)]));
    facts.push(start(4));
    check("four ahead of one that waits", &facts, Some("fairness"));
    // Twice the weight, twice as many.
    facts.insert(0, Fact::Tenant(0, Bounds { weight: 2, ..OPEN }));
    check("four, at twice the weight", &facts, None);
}

#[test]
fn a_start_too_many_for_the_rate() {
    let flow = Flow { count: 1, period: 1_000_000_000, burst: 1 };
    let mut facts =
        vec![Fact::Rate(Some(Pace::Bucket(flow))), normal(1, 0), normal(2, 1), start(1)];
    let revoked = Fact::Ended(1, End::Revoked);
    check("given back", &[&facts[..], &[revoked, start(2)]].concat(), None);
    check("removed", &[&facts[..], &[Fact::Rate(None), start(2)]].concat(), None);
    facts.push(start(2));
    check("two at once", &facts, Some("rate"));
}

#[test]
fn a_start_too_many_for_a_sliding_rate() {
    let pace = Pace::Sliding { count: 1, period: 1_000_000_000 };
    let mut facts = vec![Fact::Rate(Some(pace)), normal(1, 0), normal(2, 1), start(1)];
    let postponed = Fact::Postponed { number: 1, until: Moment::FAR };
    check("given back", &[&facts[..], &[postponed, start(2)]].concat(), None);
    facts.push(start(2));
    check("two in a second", &facts, Some("rate"));
}

#[test]
fn what_lingers_is_paused_or_enters_too_often() {
    let linger = Fact::Lingers { number: 1, cost: None };
    let departed = Fact::Ended(1, End::Departed);
    let bounded = Fact::Tenant(0, Bounds { entries: Some((1, 1_000_000_000)), ..OPEN });
    let refused = |count| Fact::Refused { tenant: 0, class: Class::Normal, count };
    let own = |number, tenant| {
        let Fact::Admitted(item) = item(number, tenant, Some(7), Class::Normal) else {
            unreachable!("it is admitted")
        };
        Fact::Admitted(Item { own_key: true, ..item })
    };
    let cases: &[(&str, &[Fact], Option<&str>)] = &[
        ("the key is kept", &[in_key(1), in_key(2), start(1), linger, start(2)], Some("order")),
        ("departed", &[in_key(1), in_key(2), start(1), linger, departed, start(2)], None),
        ("departs without having run", &[in_key(1), departed], Some("ends")),
        ("keys of two tenants", &[own(1, 0), own(2, 1), start(1), start(2)], None),
        ("a key of one tenant", &[own(1, 0), own(2, 0), start(1), start(2)], Some("order")),
        ("paused", &[normal(1, 0), Fact::Paused, start(1)], Some("limits")),
        ("resumed", &[normal(1, 0), Fact::Paused, Fact::Resumed, start(1)], None),
        ("enters too often", &[bounded, normal(1, 0), normal(2, 0)], Some("limits")),
        ("refused, too often", &[bounded, normal(1, 0), refused(1)], None),
        ("refused, a batch", &[bounded, refused(2)], None),
        ("refused too soon", &[bounded, refused(1)], Some("limits")),
    ];
    for (what, facts, expected) in cases {
        check(what, facts, *expected);
    }
}

#[test]
fn one_ready_for_longer_is_passed_over() {
    let back = |number| Fact::PutBack { number, until: Moment::ZERO, cost: None };
    let (a, b) = (normal(1, 0), normal(2, 0));
    check("the later one first", &[a, b, start(2)], Some("longest"));
    // Both failed: the second one first, so it has been ready for longer.
    let failed = [a, b, start(1), start(2), back(2), back(1)];
    check("in order of failing", &[&failed[..], &[start(2)]].concat(), None);
    check("by age", &[&failed[..], &[start(1)]].concat(), Some("longest"));
    // A first attempt is not of their kind.
    check("a new one", &[&failed[..], &[normal(3, 0), start(3)]].concat(), None);
}
