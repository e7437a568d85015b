//! What is out and rests has a time in the file: whoever reads by time comes to it.

use super::*;

/// One that was read, and is out, in a lane that is read by time just now.
fn out_while_read(pool: &str) -> (ReadAhead, Fetch) {
    let mut ahead = opened(pool);
    bring(&mut ahead, 0, rows(vec![row(1)]));
    assert_eq!(take(&mut ahead), ["m1"]);
    ahead.await_due(POOL, LANE, 5);
    let fetch = ahead.fetch(9).expect("a time has come");
    (ahead, fetch)
}

/// What is due of the lane up to a time, read until nothing comes any more; then what is handed out.
fn read_by_time(ahead: &mut ReadAhead, now: i64, row: &Row) -> Vec<String> {
    let mut taken = take_at(ahead, now);
    while let Some(fetch) = ahead.fetch(now) {
        let asked = &fetch.lanes[0];
        let due = row.due.unwrap();
        let is_asked = asked.due.is_some_and(|after| (due, row.seq) > after);
        let due = if is_asked && due <= now { vec![row.clone()] } else { vec![] };
        let loaded = asked.bare.iter().map(|&rank| (rank, Some(content(rank.1 - BASE))));
        let lane = LaneFetched { loaded: loaded.collect(), ..times(due) };
        ahead.bring(&fetch, of_lane(lane));
        taken.extend(take_at(ahead, now));
    }
    taken
}

#[test]
fn what_was_read_of_a_rest_does_not_end_the_delay_that_it_went_back_with() {
    for pool in ["POOL", "STRICT"] {
        let (mut ahead, fetch) = out_while_read(pool);
        // Its rest was over at 7; it went back for longer after the snapshot.
        ahead.back(BASE + 1, Back::At(50));
        ahead.bring(&fetch, of_lane(times(vec![due(1, 7)])));
        assert_eq!(read_by_time(&mut ahead, 9, &due(1, 50)), [""; 0], "{pool}");
        assert_eq!(read_by_time(&mut ahead, 50, &due(1, 50)), ["m1"], "{pool}");
    }
}

#[test]
fn a_delay_that_ends_while_someone_reads_by_time_is_not_passed() {
    for pool in ["POOL", "STRICT"] {
        for seen in [vec![due(1, 7)], vec![due(2, 8)], vec![due(1, 6), due(2, 8)]] {
            let (mut ahead, fetch) = out_while_read(pool);
            ahead.back(BASE + 1, Back::At(7));
            ahead.bring(&fetch, of_lane(times(seen.clone())));
            let taken = read_by_time(&mut ahead, 9, &due(1, 7));
            assert!(taken.contains(&"m1".to_owned()), "{pool} {seen:?} {taken:?}");
        }
    }
}
