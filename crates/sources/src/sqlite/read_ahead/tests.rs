//! What happens while someone reads: the moments that cannot be aimed at from outside.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Demand, Openings, Order, Room, Rooms};
use tokio::time::Instant;

use super::super::row::{Content, Key, Raised, Row, Touched};
use super::super::schema::base;
use super::{Back, Fetch, Fetched, Found, LaneFetched, ReadAhead};

mod put_back;
mod resting;

const WINDOW: Duration = Duration::from_secs(30);
const BASE: i64 = base(1);
const POOL: i64 = 1;
const LANE: i64 = 7;

/// A queue of one lane that is known, in a pool that keeps order or does not.
fn opened(code: &str) -> ReadAhead {
    let mut ahead = ReadAhead::new(1, 0, 1024);
    ahead.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    let fetch = ahead.fetch(0).unwrap();
    assert!(fetch.opens);
    let touched = vec![touched(code)];
    ahead.bring(&fetch, Fetched { touched, known: BASE + 100, ..Fetched::default() });
    ahead
}

fn touched(code: &str) -> Touched {
    Touched { unread: [false, true], ..Touched::new(POOL, code.into(), LANE) }
}

fn key() -> Key {
    Key { pool: POOL, group: "a".into() }
}

fn row(n: i64) -> Row {
    Row { seq: BASE + n, lane: LANE, group: "a".into(), high: false, due: None, held: false }
}

fn due(n: i64, due: i64) -> Row {
    Row { due: Some(due), ..row(n) }
}

fn content(n: i64) -> Content {
    Content::new(0, &format!(r#"{{"id":"m{n}","mediationTarget":"http://h/"}}"#))
}

fn found(row: Row) -> Found {
    let content = Some(content(row.seq - BASE));
    Found { row, content }
}

/// All that there is of the lane, by number.
fn rows(rows: Vec<Row>) -> LaneFetched {
    let rows = [Vec::new(), rows.into_iter().map(found).collect()];
    LaneFetched { rows, ended: [true; 2], ..LaneFetched::default() }
}

/// What is due of the lane.
fn times(due: Vec<Row>) -> LaneFetched {
    LaneFetched { due, ended: [true; 2], ..LaneFetched::default() }
}

fn of_lane(lane: LaneFetched) -> Fetched {
    Fetched { lanes: vec![lane], ..Fetched::default() }
}

/// A fetch for the lane, with what is to be brought.
fn bring(ahead: &mut ReadAhead, now: i64, lane: LaneFetched) {
    let fetch = ahead.fetch(now).expect("there is something to read");
    assert_eq!(fetch.lanes.len(), 1, "{fetch:?}");
    ahead.bring(&fetch, of_lane(lane));
}

/// A message came.
fn publish(ahead: &mut ReadAhead, code: &str, n: i64) {
    ahead.published(BASE + n, BASE + n, &[touched(code)]);
}

fn take_at(ahead: &mut ReadAhead, time: i64) -> Vec<String> {
    ids(&ahead.take(Instant::now(), time, WINDOW, &Demand::any(100)))
}

fn take(ahead: &mut ReadAhead) -> Vec<String> {
    take_at(ahead, 0)
}

fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|d| d.message.as_ref().unwrap().id.to_string()).collect()
}

fn choosing(fetch: &Fetch) -> Vec<Key> {
    fetch.choosing.iter().map(|choice| choice.key.clone()).collect()
}

fn bare(fetch: &Fetch) -> Vec<i64> {
    fetch.lanes.iter().flat_map(|lane| &lane.bare).map(|(_, seq)| seq - BASE).collect()
}

fn load(ahead: &mut ReadAhead, ns: &[i64]) {
    let fetch = ahead.fetch(0).expect("there are bodies to read");
    assert_eq!(bare(&fetch), ns);
    let loaded = fetch.lanes[0].bare.iter().map(|&rank| (rank, Some(content(rank.1 - BASE))));
    let loaded = LaneFetched { loaded: loaded.collect(), ended: [true; 2], ..Default::default() };
    ahead.bring(&fetch, of_lane(loaded));
}

#[test]
fn one_reads_at_a_time_and_what_comes_meanwhile_is_read_after_it() {
    let mut ahead = opened("POOL");
    let fetch = ahead.fetch(0).unwrap();
    assert!(ahead.fetch(0).is_none());
    publish(&mut ahead, "POOL", 5);
    ahead.bring(&fetch, of_lane(rows(vec![])));
    let again = ahead.fetch(0).expect("something came meanwhile");
    assert_eq!(again.lanes[0].cursors, [None, Some(BASE)]);
    ahead.bring(&again, of_lane(rows(vec![])));
    assert!(ahead.fetch(0).is_none());
}

#[test]
fn a_failed_fetch_is_done_again() {
    let mut ahead = opened("STRICT");
    bring(&mut ahead, 0, rows(vec![row(1)]));
    assert_eq!(take(&mut ahead), ["m1"]);
    ahead.back(BASE + 1, Back::Gone);
    publish(&mut ahead, "STRICT", 9);
    ahead.may_have_more();
    ahead.await_due(POOL, LANE, 5);
    let check = |fetch: &Fetch| {
        assert_eq!(choosing(fetch), [key()]);
        assert!(fetch.beyond.is_some());
        let lane = &fetch.lanes[0];
        assert!(lane.cursors[1].is_some() && lane.due.is_some(), "{fetch:?}");
    };
    let fetch = ahead.fetch(9).unwrap();
    check(&fetch);
    ahead.not_brought(fetch, "why".to_owned());
    assert_eq!(ahead.take_read_error().as_deref(), Some("why"));
    check(&ahead.fetch(9).unwrap());
    // And so is the first one.
    let mut ahead = ReadAhead::new(1, 0, 1024);
    let fetch = ahead.fetch(0).unwrap();
    ahead.not_brought(fetch, "why".to_owned());
    assert!(ahead.fetch(0).unwrap().opens);
}

#[test]
fn high_priority_that_comes_while_someone_reads_goes_first() {
    let mut ahead = opened("STRICT");
    let fetch = ahead.fetch(0).unwrap();
    // The snapshot does not have it.
    let raised = vec![Raised { seq: BASE + 2, lane: LANE, group: "a".into() }];
    let high = Touched { unread: [true, false], raised, ..touched("STRICT") };
    ahead.published(BASE + 2, BASE + 2, &[high]);
    ahead.bring(&fetch, of_lane(rows(vec![row(1)])));
    assert_eq!(take(&mut ahead), [""; 0]);
    assert_eq!(bare(&ahead.fetch(0).unwrap()), [2]);
}

#[test]
fn what_was_read_for_another_order_is_worth_nothing() {
    let mut ahead = opened("OTHER");
    let fetch = ahead.fetch(0).unwrap();
    ahead.keep_order(&Arc::new(Order::of_pools(["OTHER"])));
    ahead.bring(&fetch, of_lane(rows(vec![row(1), row(2)])));
    assert_eq!(take(&mut ahead), [""; 0]);
    let fetch = ahead.fetch(0).unwrap();
    assert!(fetch.opens);
    ahead.bring(&fetch, Fetched { touched: vec![touched("OTHER")], ..Fetched::default() });
    bring(&mut ahead, 0, rows(vec![row(1), row(2)]));
    assert_eq!(take(&mut ahead), ["m1"]);
}

#[test]
fn what_was_settled_while_it_was_read_anew_does_not_come_again() {
    let mut ahead = opened("POOL");
    bring(&mut ahead, 0, rows(vec![row(1), row(2)]));
    assert_eq!(take(&mut ahead), ["m1", "m2"]);
    ahead.keep_order(&Arc::default());
    let fetch = ahead.fetch(0).unwrap();
    ahead.bring(&fetch, Fetched { touched: vec![touched("POOL")], ..Fetched::default() });
    let fetch = ahead.fetch(0).unwrap();
    // The snapshot still has both.
    ahead.back(BASE + 1, Back::Gone);
    ahead.bring(&fetch, of_lane(rows(vec![row(1), row(2)])));
    assert_eq!(take(&mut ahead), [""; 0]);
}

#[test]
fn what_is_due_beyond_the_cursor_is_found_when_it_is_read() {
    let mut ahead = opened("POOL");
    ahead.await_due(POOL, LANE, 3);
    bring(&mut ahead, 9, LaneFetched { ended: [true, false], ..times(vec![due(5, 3)]) });
    assert_eq!(take_at(&mut ahead, 9), [""; 0]);
    let fetch = ahead.fetch(9).expect("there is something to read");
    assert!(bare(&fetch).is_empty(), "{fetch:?}");
    ahead.bring(&fetch, of_lane(rows(vec![due(5, 3)])));
    assert_eq!(take_at(&mut ahead, 9), ["m5"]);
}

#[test]
fn what_is_not_due_when_it_is_read_comes_at_its_time() {
    let mut ahead = opened("POOL");
    bring(&mut ahead, 0, rows(vec![due(5, 3)]));
    assert_eq!((take(&mut ahead), ahead.next_due()), (vec![], Some(3)));
    assert!(ahead.fetch(2).is_none());
    bring(&mut ahead, 3, times(vec![due(5, 3)]));
    load(&mut ahead, &[5]);
    assert_eq!(take(&mut ahead), ["m5"]);
    assert_eq!(ahead.next_due(), None);
}

#[test]
fn a_delay_that_begins_while_someone_reads_by_time_is_awaited() {
    let mut ahead = opened("POOL");
    bring(&mut ahead, 0, rows(vec![row(1)]));
    assert_eq!(take(&mut ahead), ["m1"]);
    ahead.await_due(POOL, LANE, 5);
    let fetch = ahead.fetch(5).unwrap();
    // Written after the snapshot.
    ahead.back(BASE + 1, Back::At(7));
    let lane = LaneFetched { next_due: Some(90), ..times(vec![]) };
    ahead.bring(&fetch, of_lane(lane));
    assert_eq!(ahead.next_due(), Some(7));
}

#[test]
fn a_delay_that_was_passed_while_it_was_written_is_over() {
    for pool in ["POOL", "STRICT"] {
        let mut ahead = opened(pool);
        bring(&mut ahead, 0, rows(vec![row(1)]));
        assert_eq!(take(&mut ahead), ["m1"]);
        ahead.await_due(POOL, LANE, 5);
        // It is in the snapshot as it will be, though it is still out here.
        bring(&mut ahead, 9, times(vec![due(1, 7)]));
        assert_eq!(take_at(&mut ahead, 9), [""; 0]);
        ahead.back(BASE + 1, Back::At(7));
        load(&mut ahead, &[1]);
        assert_eq!(take(&mut ahead), ["m1"], "{pool}");
    }
}

#[test]
fn what_someone_else_deleted_lets_its_key_go_on() {
    let mut ahead = opened("STRICT");
    let mut lane = rows(vec![row(1), row(2)]);
    lane.rows[1][0].content = None;
    bring(&mut ahead, 0, lane);
    let gone = vec![((1, BASE + 1), None)];
    bring(&mut ahead, 0, LaneFetched { loaded: gone, ended: [true; 2], ..Default::default() });
    let fetch = ahead.fetch(0).unwrap();
    assert_eq!(choosing(&fetch), [key()]);
    let chosen = vec![(key(), Some(Found { row: row(2), content: None }))];
    ahead.bring(&fetch, Fetched { chosen, ..Fetched::default() });
    load(&mut ahead, &[2]);
    assert_eq!(take(&mut ahead), ["m2"]);
}

#[test]
fn bodies_read_ahead_are_bounded() {
    let mut ahead = opened("POOL");
    let payload = "x".repeat(1024 * 1024 - 100);
    let body = format!(r#"{{"id":"m","mediationTarget":"http://h/","payload":"{payload}"}}"#);
    let mut lane = rows((1..=8).map(row).collect());
    for found in &mut lane.rows[1] {
        found.content = Some(Content::new(0, &body));
    }
    bring(&mut ahead, 0, lane);
    publish(&mut ahead, "POOL", 9);
    // Half of the room is used: nobody reads ahead.
    assert!(ahead.fetch(0).is_none());
    assert_eq!(ahead.take(Instant::now(), 0, WINDOW, &Demand::any(6)).len(), 6);
    let fetch = ahead.fetch(0).expect("there is room again");
    assert!(fetch.room < 7 * 1024 * 1024, "{}", fetch.room);
}

#[test]
fn known_numbers_are_asked_for_once_though_a_message_is_gone() {
    let mut ahead = opened("POOL");
    let numbered = |passed: i64, numbers: Vec<i64>| LaneFetched {
        passed: BASE + passed,
        numbers,
        ended: [true, false],
        ..LaneFetched::default()
    };
    bring(&mut ahead, 0, numbered(1, vec![BASE + 2, BASE + 3]));
    let fetch = ahead.fetch(0).unwrap();
    assert_eq!(fetch.lanes[0].numbers, [BASE + 2, BASE + 3]);
    ahead.not_brought(fetch, "why".to_owned());
    let fetch = ahead.fetch(0).unwrap();
    assert_eq!(fetch.lanes[0].numbers, [BASE + 2, BASE + 3]);
    // Someone else deleted the first of them.
    let rows = [vec![], vec![found(row(3))]];
    ahead.bring(&fetch, of_lane(LaneFetched { rows, ..numbered(3, vec![]) }));
    assert_eq!(take(&mut ahead), ["m3"]);
    let lane = ahead.fetch(0).unwrap().lanes.remove(0);
    assert!(lane.numbers.is_empty() && lane.cursors[1] == Some(BASE + 3), "{lane:?}");
}

/// A queue of which 32 messages are read ahead, with so many pools.
fn of_pools(count: i64) -> ReadAhead {
    let mut ahead = ReadAhead::new(1, 0, 32);
    let fetch = ahead.fetch(0).unwrap();
    let pools = (1..=count).map(|n| Touched { pool: n, lane: n, ..touched(&format!("P{n}")) });
    ahead.bring(&fetch, Fetched { touched: pools.collect(), ..Fetched::default() });
    ahead
}

/// Which pools are read for, and how many messages of each.
fn asked(fetch: &Fetch) -> Vec<(i64, usize)> {
    fetch.lanes.iter().map(|lane| (lane.pool, lane.limit)).collect()
}

#[test]
fn many_pools_are_read_for_by_turns_and_one_alone_has_all() {
    let mut ahead = of_pools(20);
    for first in [1, 5, 9, 13] {
        let fetch = ahead.fetch(0).unwrap();
        assert_eq!(asked(&fetch), (first..first + 4).map(|n| (n, 8)).collect::<Vec<_>>());
        let lanes = fetch.lanes.iter().map(|asked| LaneFetched {
            ended: [true, false],
            ..rows(vec![Row { lane: asked.lane, ..row(asked.lane) }])
        });
        let lanes = lanes.collect();
        ahead.bring(&fetch, Fetched { lanes, ..Fetched::default() });
    }
    // Those that were read for first are read for again behind the others.
    assert_eq!(take(&mut ahead).len(), 16);
    let next: Vec<i64> = asked(&ahead.fetch(0).unwrap()).iter().map(|(pool, _)| *pool).collect();
    assert_eq!(next, [17, 18, 19, 20]);
    assert_eq!(asked(&of_pools(1).fetch(0).unwrap()), [(1, 32)]);
}

#[test]
fn pools_take_turns_of_eight_messages() {
    let mut ahead = of_pools(2);
    let fetch = ahead.fetch(0).unwrap();
    let lanes = fetch.lanes.iter().map(|asked| {
        let of_lane = |n: i64| Row { lane: asked.lane, ..row(2 * n + asked.lane) };
        LaneFetched { ended: [true, false], ..rows((0..20).map(of_lane).collect()) }
    });
    let lanes = lanes.collect();
    ahead.bring(&fetch, Fetched { lanes, ..Fetched::default() });
    let taken: Vec<i64> = take(&mut ahead).iter().map(|id| id[1..].parse().unwrap()).collect();
    let turns: Vec<(i64, usize)> =
        taken.chunk_by(|a, b| a % 2 == b % 2).map(|turn| (turn[0] % 2, turn.len())).collect();
    assert_eq!(turns, [(1, 8), (0, 8), (1, 8), (0, 8), (1, 4), (0, 4)]);
}

#[test]
fn pools_that_wait_for_a_time_leave_their_part_to_others() {
    let mut ahead = of_pools(1);
    for n in 2..=20 {
        let pool = Touched { pool: n, lane: n, unread: [false; 2], ..touched(&format!("P{n}")) };
        ahead.published(BASE + n, BASE + n, &[Touched { due: Some(90), ..pool }]);
    }
    assert_eq!(asked(&ahead.fetch(0).unwrap()), [(1, 32)]);
}

/// No pool has room.
struct Full;

impl Rooms for Full {
    fn take(&self, _pool: &str) -> bool {
        false
    }

    fn room(&self) -> Room {
        Room::default()
    }
}

#[test]
fn bodies_of_shut_pools_make_room_for_others() {
    let mut ahead = opened("POOL");
    let payload = "x".repeat(1024 * 1024 - 100);
    let body = format!(r#"{{"id":"m","mediationTarget":"http://h/","payload":"{payload}"}}"#);
    let mut lane = rows((1..=9).map(row).collect());
    for found in &mut lane.rows[1] {
        found.content = Some(Content::new(0, &body));
    }
    bring(&mut ahead, 0, lane);
    let openings = Arc::new(Openings::default());
    let full = Demand::of(100, Arc::new(Full), Arc::clone(&openings));
    assert!(ahead.take(Instant::now(), 0, WINDOW, &full).is_empty());
    let other = Touched { pool: 2, lane: 8, ..touched("OTHER") };
    ahead.published(BASE + 10, BASE + 10, &[other]);
    assert!(ahead.take(Instant::now(), 0, WINDOW, &full).is_empty());
    let fetch = ahead.fetch(0).expect("the other pool is read for");
    assert_eq!((fetch.lanes[0].pool, fetch.room), (2, 8 * 1024 * 1024));
    // They are read again once it opens.
    ahead.bring(&fetch, of_lane(rows(vec![])));
    openings.open("POOL".into());
    assert!(ahead.take(Instant::now(), 0, WINDOW, &full).is_empty());
    assert_eq!(bare(&ahead.fetch(0).unwrap()).len(), 9);
}

#[test]
fn lanes_and_pools_with_nothing_in_them_are_forgotten() {
    let mut ahead = opened("STRICT");
    for lane in 0..100 {
        let touched = Touched { lane, ..touched("STRICT") };
        ahead.published(BASE + 1 + lane, BASE + 1 + lane, &[touched]);
    }
    while let Some(fetch) = ahead.fetch(0) {
        let lanes = fetch.lanes.iter().map(|asked| {
            let row = Row {
                lane: asked.lane,
                group: asked.lane.to_string().into(),
                ..row(1 + asked.lane)
            };
            rows(if asked.lane == LANE { vec![] } else { vec![row] })
        });
        let fetched = Fetched { lanes: lanes.collect(), ..Fetched::default() };
        ahead.bring(&fetch, fetched);
    }
    assert_eq!(take(&mut ahead).len(), 99);
    for n in 0..100 {
        ahead.back(BASE + 1 + n, Back::Gone);
    }
    let fetch = ahead.fetch(0).unwrap();
    let chosen = choosing(&fetch).into_iter().map(|key| (key, None)).collect();
    ahead.bring(&fetch, Fetched { chosen, ..Fetched::default() });
    assert!(ahead.pools.is_empty() && ahead.heads.is_empty() && ahead.turns.is_empty());
    assert!(ahead.fetch(0).is_none());
}
