//! Messages that are put back, whatever is read and out.

use super::super::super::row::Returned;
use super::*;

fn returned(code: &str, row: &Row) -> Returned {
    let (code, group) = (code.into(), Arc::clone(&row.group));
    Returned { seq: row.seq, pool: POOL, code, lane: row.lane, group, high: row.high }
}

/// Messages of the queue are put back to their places.
fn put_back(ahead: &mut ReadAhead, code: &str, rows: &[Row]) {
    let messages: Vec<Returned> = rows.iter().map(|row| returned(code, row)).collect();
    ahead.put_back(BASE + 101, BASE + 100, &messages);
}

fn high(n: i64) -> Row {
    Row { high: true, ..row(n) }
}

/// The next of the key is looked up, and is this one, without its body; or there is none.
fn choose(ahead: &mut ReadAhead, next: Option<Row>) {
    let fetch = ahead.fetch(0).expect("the next of the key is looked up");
    assert_eq!(choosing(&fetch), [key()]);
    assert!(!fetch.opens && fetch.lanes.is_empty(), "nothing else is read: {fetch:?}");
    let chosen = vec![(key(), next.map(|row| Found { row, content: None }))];
    ahead.bring(&fetch, Fetched { chosen, ..Fetched::default() });
}

/// Nothing is to be read, and nothing is there.
fn assert_over(ahead: &mut ReadAhead) {
    assert_eq!(take(ahead), [""; 0]);
    assert!(ahead.fetch(0).is_none());
}

/// A lane of a pool that keeps order, read up to this message of another group, which is out.
fn read_up_to(n: i64) -> ReadAhead {
    let mut ahead = opened("STRICT");
    bring(&mut ahead, 0, rows(vec![Row { group: "b".into(), ..row(n) }]));
    assert_eq!(take(&mut ahead), [format!("m{n}")]);
    ahead
}

#[test]
fn what_was_read_stays_read_and_what_is_put_back_goes_first() {
    let mut ahead = opened("POOL");
    bring(&mut ahead, 0, rows((1..=5).map(row).collect()));
    assert_eq!(ids(&ahead.take(Instant::now(), 0, WINDOW, &Demand::any(2))), ["m1", "m2"]);
    ahead.back(BASE + 2, Back::Gone);
    put_back(&mut ahead, "POOL", &[row(2)]);
    assert_eq!(take(&mut ahead), [""; 0]);
    load(&mut ahead, &[2]);
    assert_eq!(take(&mut ahead), ["m2", "m3", "m4", "m5"]);
    assert_over(&mut ahead);
}

#[test]
fn what_is_put_back_while_someone_reads_comes_once_seen_or_not() {
    for seen in [false, true] {
        let mut ahead = opened("POOL");
        let fetch = ahead.fetch(0).unwrap();
        put_back(&mut ahead, "POOL", &[row(2)]);
        let read = (1..=3).filter(|&n| seen || n != 2).map(row);
        ahead.bring(&fetch, of_lane(rows(read.collect())));
        assert_eq!(take(&mut ahead), ["m1"]);
        load(&mut ahead, &[2]);
        assert_eq!(take(&mut ahead), ["m2", "m3"], "seen: {seen}");
        assert_over(&mut ahead);
    }
}

#[test]
fn what_was_read_before_it_is_told_comes_once() {
    for pool in ["POOL", "STRICT"] {
        for is_taken in [false, true] {
            let mut ahead = opened(pool);
            bring(&mut ahead, 0, rows(vec![row(1)]));
            let before = if is_taken { take(&mut ahead) } else { vec![] };
            put_back(&mut ahead, pool, &[row(1)]);
            let after = take(&mut ahead);
            assert_eq!([before, after].concat(), ["m1"], "{pool} {is_taken}");
            assert_over(&mut ahead);
        }
    }
}

#[test]
fn what_was_read_of_an_earlier_one_at_its_place_is_not_handed_out() {
    let mut ahead = opened("POOL");
    bring(&mut ahead, 0, rows(vec![row(1)]));
    assert_eq!(take(&mut ahead), ["m1"]);
    ahead.keep_order(&Arc::default());
    let fetch = ahead.fetch(0).unwrap();
    ahead.bring(&fetch, Fetched { touched: vec![touched("POOL")], ..Fetched::default() });
    ahead.await_due(POOL, LANE, 0);
    let fetch = ahead.fetch(0).unwrap();
    ahead.back(BASE + 1, Back::Gone);
    put_back(&mut ahead, "POOL", &[row(1)]);
    // The snapshot has the one that was out.
    let LaneFetched { rows, .. } = rows(vec![row(1)]);
    ahead.bring(&fetch, of_lane(LaneFetched { rows, ..times(vec![due(9, 0)]) }));
    load(&mut ahead, &[1]);
    assert_eq!(take(&mut ahead), ["m1"]);
}

#[test]
fn a_failed_read_does_not_lose_what_was_put_back_meanwhile() {
    let mut ahead = opened("POOL");
    let fetch = ahead.fetch(0).unwrap();
    put_back(&mut ahead, "POOL", &[row(1)]);
    ahead.not_brought(fetch, "why".to_owned());
    bring(&mut ahead, 0, rows(vec![row(1), row(2)]));
    load(&mut ahead, &[1]);
    assert_eq!(take(&mut ahead), ["m1", "m2"]);
    // And so with a key.
    let mut ahead = opened("STRICT");
    let fetch = ahead.fetch(0).unwrap();
    put_back(&mut ahead, "STRICT", &[row(1)]);
    ahead.not_brought(fetch, "why".to_owned());
    let fetch = ahead.fetch(0).unwrap();
    assert_eq!((choosing(&fetch), fetch.lanes.len()), (vec![key()], 1));
}

#[test]
fn numbers_that_were_known_before_do_not_hide_it() {
    let mut ahead = opened("POOL");
    let numbers = vec![BASE + 2, BASE + 4];
    let passed = BASE + 1;
    bring(
        &mut ahead,
        0,
        LaneFetched { passed, numbers, ended: [true, false], ..Default::default() },
    );
    put_back(&mut ahead, "POOL", &[row(3)]);
    let fetch = ahead.fetch(0).unwrap();
    assert!(fetch.lanes[0].numbers.is_empty(), "{fetch:?}");
    assert_eq!(fetch.lanes[0].cursors[1], Some(BASE + 1));
}

#[test]
fn more_than_is_read_ahead_are_read_again_not_remembered() {
    for pool in ["POOL", "STRICT"] {
        let mut ahead = ReadAhead::new(1, 0, 2);
        ahead.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
        let fetch = ahead.fetch(0).unwrap();
        ahead.bring(&fetch, Fetched { touched: vec![touched(pool)], ..Fetched::default() });
        bring(&mut ahead, 0, rows(vec![row(90)]));
        assert_eq!(take(&mut ahead), ["m90"]);
        let of_groups = |n: i64| Row { group: format!("g{n}").into(), ..row(n) };
        put_back(&mut ahead, pool, &(1..=80).map(of_groups).collect::<Vec<_>>());
        let lane = &ahead.pools[&POOL].lanes[&LANE];
        let remembered = lane.bare.len() + ahead.choosing.len();
        assert_eq!((remembered, lane.cursors[1], lane.unread[1]), (2, BASE + 2, true), "{pool}");
    }
}

#[test]
fn nothing_is_remembered_of_a_queue_that_nobody_receives_from() {
    let mut ahead = ReadAhead::new(1, 0, 1024);
    put_back(&mut ahead, "POOL", &[row(1)]);
    assert!(ahead.pools.is_empty() && ahead.heads.is_empty());
    assert!(ahead.fetch(0).unwrap().opens);
}

#[test]
fn before_a_head_that_is_out_it_is_next() {
    for back in [Back::Now, Back::At(50), Back::Gone] {
        let mut ahead = opened("STRICT");
        bring(&mut ahead, 0, rows(vec![row(2), row(3)]));
        assert_eq!(take(&mut ahead), ["m2"]);
        put_back(&mut ahead, "STRICT", &[row(1)]);
        assert_over(&mut ahead);
        ahead.back(BASE + 2, back);
        choose(&mut ahead, Some(row(1)));
        load(&mut ahead, &[1]);
        assert_eq!(take(&mut ahead), ["m1"], "{back:?}");
    }
}

#[test]
fn behind_a_head_that_is_out_it_waits_for_that() {
    for behind in [row(3), high(3)] {
        let mut ahead = opened("STRICT");
        bring(&mut ahead, 0, rows(vec![row(2)]));
        assert_eq!(take(&mut ahead), ["m2"]);
        put_back(&mut ahead, "STRICT", &[behind]);
        ahead.back(BASE + 2, Back::Now);
        load(&mut ahead, &[2]);
        assert_eq!(take(&mut ahead), ["m2"]);
    }
}

#[test]
fn it_goes_before_a_head_that_waits_and_came_after_it() {
    for (head, is_before) in [(row(2), row(1)), (due(2, 50), row(1)), (row(2), high(3))] {
        for other_tenant in [false, true] {
            let mut ahead = opened("STRICT");
            bring(&mut ahead, 0, rows(vec![head.clone()]));
            let lane = if other_tenant { LANE + 1 } else { LANE };
            let first = Row { lane, ..is_before.clone() };
            put_back(&mut ahead, "STRICT", std::slice::from_ref(&first));
            assert_eq!(take(&mut ahead), [""; 0]);
            choose(&mut ahead, Some(first.clone()));
            load(&mut ahead, &[first.seq - BASE]);
            assert_eq!(take(&mut ahead), [format!("m{}", first.seq - BASE)]);
            ahead.back(first.seq, Back::Gone);
            choose(&mut ahead, Some(row(2)));
            load(&mut ahead, &[2]);
            assert_eq!(take(&mut ahead), ["m2"]);
        }
    }
}

#[test]
fn it_does_not_move_a_head_that_goes_before_it() {
    let held = Row { held: true, ..row(2) };
    for (head, after) in [(row(2), row(3)), (held.clone(), row(3)), (held, high(3))] {
        let mut ahead = opened("STRICT");
        bring(&mut ahead, 0, rows(vec![head]));
        put_back(&mut ahead, "STRICT", &[after]);
        assert_eq!(take(&mut ahead), ["m2"]);
        ahead.back(BASE + 2, Back::Gone);
        choose(&mut ahead, None);
        assert_over(&mut ahead);
    }
}

#[test]
fn it_is_seen_by_whoever_chooses_after_it() {
    let mut ahead = opened("STRICT");
    bring(&mut ahead, 0, rows(vec![row(2)]));
    assert_eq!(take(&mut ahead), ["m2"]);
    ahead.back(BASE + 2, Back::Gone);
    put_back(&mut ahead, "STRICT", &[row(1)]);
    choose(&mut ahead, Some(row(1)));
    load(&mut ahead, &[1]);
    assert_eq!(take(&mut ahead), ["m1"]);
}

#[test]
fn whoever_chose_before_it_chooses_again() {
    for seen in [None, Some(row(3))] {
        let mut ahead = opened("STRICT");
        bring(&mut ahead, 0, rows(vec![row(2)]));
        assert_eq!(take(&mut ahead), ["m2"]);
        ahead.back(BASE + 2, Back::Gone);
        let fetch = ahead.fetch(0).unwrap();
        put_back(&mut ahead, "STRICT", &[row(1)]);
        // The snapshot does not have it.
        let chosen = vec![(key(), seen.map(found))];
        ahead.bring(&fetch, Fetched { chosen, ..Fetched::default() });
        assert_eq!(take(&mut ahead), [""; 0]);
        choose(&mut ahead, Some(row(1)));
        load(&mut ahead, &[1]);
        assert_eq!(take(&mut ahead), ["m1"]);
    }
}

#[test]
fn of_a_key_that_is_not_there_the_next_is_looked_up() {
    let mut ahead = read_up_to(5);
    put_back(&mut ahead, "STRICT", &[row(2), row(1)]);
    choose(&mut ahead, Some(row(1)));
    load(&mut ahead, &[1]);
    assert_eq!(take(&mut ahead), ["m1"]);
    assert_over(&mut ahead);
}

#[test]
fn what_lies_beyond_the_cursor_is_read_in_its_order() {
    for first in [row(7), high(7)] {
        let mut ahead = read_up_to(5);
        put_back(&mut ahead, "STRICT", std::slice::from_ref(&first));
        let fetch = ahead.fetch(0).unwrap();
        assert_eq!((choosing(&fetch), bare(&fetch)), (vec![], vec![]));
        let asked = fetch.lanes[0].cursors;
        assert_eq!(asked.iter().flatten().count(), 1);
        let mut found = rows(vec![first]);
        found.rows.rotate_left(usize::from(asked[0].is_some()));
        ahead.bring(&fetch, of_lane(found));
        assert_eq!(take(&mut ahead), ["m7"]);
    }
}

#[test]
fn a_head_that_is_read_meanwhile_and_came_after_it_waits() {
    for lane in [LANE, LANE + 1] {
        let mut ahead = opened("STRICT");
        let fetch = ahead.fetch(0).unwrap();
        let first = Row { lane, ..row(1) };
        put_back(&mut ahead, "STRICT", std::slice::from_ref(&first));
        ahead.bring(&fetch, of_lane(rows(vec![row(2)])));
        assert_eq!(take(&mut ahead), [""; 0]);
        choose(&mut ahead, Some(first));
        load(&mut ahead, &[1]);
        assert_eq!(take(&mut ahead), ["m1"]);
    }
}

#[test]
fn high_priority_goes_before_the_rest_of_its_lane() {
    let mut ahead = opened("POOL");
    bring(&mut ahead, 0, rows(vec![row(1), row(2)]));
    put_back(&mut ahead, "POOL", &[high(3)]);
    let fetch = ahead.fetch(0).unwrap();
    assert_eq!(fetch.lanes[0].cursors, [Some(BASE), None]);
    let rows = [vec![found(high(3))], vec![]];
    ahead.bring(&fetch, of_lane(LaneFetched { rows, ended: [true; 2], ..Default::default() }));
    assert_eq!(take(&mut ahead), ["m3", "m1", "m2"]);
}
