//! Racers that all decided on what was there when the round began.

use sluicegate_event_store::{Query, QueryItem};

use crate::checker::history::event;
use crate::checker::round::{Expected, Racer, Round};

const RACERS: u64 = 10;

/// Ten on one decision, and three that come late with it.
pub(super) async fn one_winner(mut round: Round) -> Expected {
    let condition = Some(round.since_start(Query::tagged("round", round.number)));
    let racer = |round: &Round, n: u64| {
        let events = vec![event("Won", [round.tag()]); 1 + (n as usize % 3)];
        round.appends(n, events, condition.clone())
    };
    let racers = (0..RACERS).map(|n| racer(&round, n)).collect();
    round.race(racers).await;
    let late = (0..3).map(|n| racer(&round, n)).collect();
    round.race(late).await;
    Expected::OneAppended
}

/// Events of a few types with a few tags, under conditions on some of both.
pub(super) async fn overlapping(mut round: Round) -> Expected {
    let racers = (0..RACERS).map(|n| overlaps(&mut round, n)).collect();
    round.race(racers).await;
    Expected::Exact
}

fn overlaps(round: &mut Round, racer: u64) -> Racer {
    let tag = |of: u64| format!("t:{of}");
    let own = [round.rng.below(3), round.rng.below(3)];
    let of_type = format!("T{}", round.rng.below(3));
    let new = event(&of_type, [round.tag(), tag(own[0]), tag(own[1])]);
    let mut item = QueryItem::default().tags([round.tag()]);
    if round.rng.percent(60) {
        item = item.types((0..=round.rng.below(2)).map(|n| format!("T{n}")));
    }
    if round.rng.percent(60) {
        item = item.tags([tag(round.rng.below(3))]);
    }
    let condition = round.since_start(Query::any_of([item]));
    round.appends(racer, vec![new], Some(condition))
}

/// Each one's event is in the way of the one before it, by one of two items; so not all of them go through.
pub(super) async fn or_rings(mut round: Round) -> Expected {
    let length = 3 + round.rng.below(6);
    let racer = |n: u64| {
        let at = |place: u64| format!("place:{}", place % length);
        let item =
            |of: &str, place| QueryItem::default().types([of]).tags([round.tag(), at(place)]);
        let of_type = if n.is_multiple_of(2) { "Even" } else { "Odd" };
        let query = Query::any_of([item("Even", n + 1), item("Odd", n + 1), item("Nobody", n)]);
        let condition = round.since_start(query);
        round.appends(n, vec![event(of_type, [round.tag(), at(n)])], Some(condition))
    };
    let racers = (0..length).map(racer).collect();
    round.race(racers).await;
    Expected::Both
}

/// Some with conditions, some without, on the same events.
pub(super) async fn plain(mut round: Round) -> Expected {
    let mut racers = Vec::new();
    for n in 0..RACERS {
        let events = vec![event("Changed", [round.tag()]); 1 + round.rng.below(3) as usize];
        let condition = round.since_start(Query::types(["Changed"]).tag("round", round.number));
        let condition = (n % 3 != 0).then_some(condition);
        racers.push(round.appends(n, events, condition));
    }
    round.race(racers).await;
    // Whatever went through, everybody comes too late by now.
    let condition = Some(round.since_start(Query::tagged("round", round.number)));
    let late =
        (0..3).map(|n| round.appends(n, vec![event("Late", [round.tag()])], condition.clone()));
    let late = late.collect();
    round.race(late).await;
    Expected::Both
}

/// One decision for all in every other round, and overlapping ones in between.
pub(super) async fn several_engines(round: Round) -> Expected {
    match round.number.is_multiple_of(2) {
        true => one_winner(round).await,
        false => overlapping(round).await,
    }
}
