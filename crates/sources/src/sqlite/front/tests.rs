//! What happens while someone reads: the moments that cannot be aimed at from outside.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Order};
use tokio::time::Instant;

use super::super::row::{Content, Head, Key};
use super::super::schema::base;
use super::{Back, Fresh, Front, Haul};

const WINDOW: Duration = Duration::from_secs(30);
const BASE: i64 = base(1);

fn front() -> Front {
    Front::new(1, 0, 1024)
}

fn strict_front() -> Front {
    let mut front = front();
    front.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    front
}

fn key(pool: &str) -> Key {
    Key { pool: pool.into(), group: "a".into() }
}

fn head(n: i64, pool: &str) -> Head {
    Head { seq: BASE + n, key: key(pool), high: false, due: None, held: false }
}

fn fresh(head: Head) -> Fresh {
    let body = format!(r#"{{"id":"m{}","mediationTarget":"http://h/"}}"#, head.seq - BASE);
    Fresh { head, content: Some(Content::new(0, &body)) }
}

fn due(n: i64, pool: &str, due: i64) -> Head {
    Head { due: Some(due), ..head(n, pool) }
}

/// An errand that is there, with what is to be brought.
fn bring(front: &mut Front, now: i64, haul: Haul) {
    let errand = front.errand(now).expect("there is something to read");
    front.bring(&errand, haul);
}

fn take(front: &mut Front) -> Vec<String> {
    ids(&front.take(Instant::now(), WINDOW, 100))
}

fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|d| d.message.as_ref().unwrap().id.to_string()).collect()
}

fn load(front: &mut Front, ns: &[i64]) {
    let errand = front.errand(0).expect("there are bodies to read");
    assert_eq!(errand.bare, ns.iter().map(|n| BASE + n).collect::<Vec<_>>());
    let loaded = errand.bare.iter().map(|&seq| {
        let body = format!(r#"{{"id":"m{}","mediationTarget":"http://h/"}}"#, seq - BASE);
        (seq, Some(Content::new(0, &body)))
    });
    let haul = Haul { loaded: loaded.collect(), ..Haul::default() };
    front.bring(&errand, haul);
}

#[test]
fn one_reads_at_a_time_and_what_comes_meanwhile_is_read_after_it() {
    let mut front = front();
    let errand = front.errand(0).unwrap();
    assert!(front.errand(0).is_none());
    front.published(&[]);
    front.bring(&errand, Haul::default());
    let again = front.errand(0).expect("something came meanwhile");
    assert_eq!(again.fresh, Some((BASE, 1024)));
    front.bring(&again, Haul::default());
    assert!(front.errand(0).is_none());
}

#[test]
fn a_failed_errand_is_done_again() {
    let mut front = strict_front();
    bring(&mut front, 0, Haul { fresh: vec![fresh(head(1, "STRICT"))], ..Haul::default() });
    let out = front.take(Instant::now(), WINDOW, 1);
    front.back(BASE + 1, Back::Gone);
    front.published(&[]);
    front.await_due(5);
    let errand = front.errand(9).unwrap();
    assert_eq!(errand.choosing, [key("STRICT")]);
    assert!(errand.fresh.is_some() && errand.due.is_some());
    front.not_brought(errand, "why".to_owned());
    assert_eq!(front.take_read_error().as_deref(), Some("why"));
    let errand = front.errand(9).unwrap();
    assert_eq!(errand.choosing, [key("STRICT")]);
    assert!(errand.fresh.is_some() && errand.due.is_some());
    assert_eq!(ids(&out), ["m1"]);
}

#[test]
fn high_priority_that_comes_while_someone_reads_goes_first() {
    let mut front = strict_front();
    let errand = front.errand(0).unwrap();
    // The snapshot does not have it.
    front.published(&[(key("STRICT"), BASE + 2)]);
    front.bring(&errand, Haul { fresh: vec![fresh(head(1, "STRICT"))], ..Haul::default() });
    assert_eq!(take(&mut front), [""; 0]);
    let errand = front.errand(0).unwrap();
    assert_eq!(errand.bare, [BASE + 2]);
}

#[test]
fn what_was_read_for_another_order_is_worth_nothing() {
    let mut front = front();
    let errand = front.errand(0).unwrap();
    front.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    let both = || vec![fresh(head(1, "STRICT")), fresh(head(2, "STRICT"))];
    front.bring(&errand, Haul { fresh: both(), ..Haul::default() });
    assert_eq!(take(&mut front), [""; 0]);
    bring(&mut front, 0, Haul { fresh: both(), ..Haul::default() });
    assert_eq!(take(&mut front), ["m1"]);
}

#[test]
fn what_is_due_beyond_the_cursor_is_found_when_it_is_read() {
    let mut front = front();
    bring(&mut front, 9, Haul { due: vec![due(5, "POOL", 3)], ..Haul::default() });
    front.published(&[]);
    assert_eq!(take(&mut front), [""; 0]);
    let errand = front.errand(9).expect("there is something to read");
    assert!(errand.bare.is_empty(), "{errand:?}");
    front.bring(&errand, Haul { fresh: vec![fresh(due(5, "POOL", 3))], ..Haul::default() });
    assert_eq!(take(&mut front), ["m5"]);
}

#[test]
fn what_is_not_due_when_it_is_read_comes_at_its_time() {
    let mut front = front();
    bring(&mut front, 0, Haul { fresh: vec![fresh(due(5, "POOL", 3))], ..Haul::default() });
    assert_eq!((take(&mut front), front.next_due()), (vec![], Some(3)));
    assert!(front.errand(2).is_none());
    bring(&mut front, 3, Haul { due: vec![due(5, "POOL", 3)], ..Haul::default() });
    load(&mut front, &[5]);
    assert_eq!(take(&mut front), ["m5"]);
    assert_eq!(front.next_due(), None);
}

#[test]
fn a_delay_that_begins_while_someone_reads_by_time_is_awaited() {
    let mut front = front();
    bring(&mut front, 0, Haul { fresh: vec![fresh(head(1, "POOL"))], ..Haul::default() });
    assert_eq!(take(&mut front), ["m1"]);
    front.await_due(5);
    let errand = front.errand(5).unwrap();
    // Written after the snapshot.
    front.back(BASE + 1, Back::At(7));
    front.bring(&errand, Haul { next_due: Some(90), ..Haul::default() });
    assert_eq!(front.next_due(), Some(7));
}

#[test]
fn a_delay_that_was_passed_while_it_was_written_is_over() {
    for pool in ["POOL", "STRICT"] {
        let mut front = strict_front();
        bring(&mut front, 0, Haul { fresh: vec![fresh(head(1, pool))], ..Haul::default() });
        assert_eq!(take(&mut front), ["m1"]);
        front.await_due(5);
        // It is in the snapshot as it will be, though it is still out here.
        bring(&mut front, 9, Haul { due: vec![due(1, pool, 7)], ..Haul::default() });
        assert_eq!(take(&mut front), [""; 0]);
        front.back(BASE + 1, Back::At(7));
        load(&mut front, &[1]);
        assert_eq!(take(&mut front), ["m1"], "{pool}");
    }
}

#[test]
fn what_someone_else_deleted_lets_its_key_go_on() {
    let mut front = strict_front();
    let fresh = vec![Fresh { content: None, ..fresh(head(1, "STRICT")) }, fresh(head(2, "STRICT"))];
    bring(&mut front, 0, Haul { fresh, ..Haul::default() });
    let gone = vec![(BASE + 1, None)];
    bring(&mut front, 0, Haul { loaded: gone, ..Haul::default() });
    let errand = front.errand(0).unwrap();
    assert_eq!(errand.choosing, [key("STRICT")]);
    let next = Some(Fresh { head: head(2, "STRICT"), content: None });
    front.bring(&errand, Haul { chosen: vec![(key("STRICT"), next)], ..Haul::default() });
    load(&mut front, &[2]);
    assert_eq!(take(&mut front), ["m2"]);
}

#[test]
fn bodies_read_ahead_are_bounded() {
    let mut front = front();
    let payload = "x".repeat(1024 * 1024 - 100);
    let body = format!(r#"{{"id":"m","mediationTarget":"http://h/","payload":"{payload}"}}"#);
    let fat = |n| Fresh { head: head(n, "POOL"), content: Some(Content::new(0, &body)) };
    bring(&mut front, 0, Haul { fresh: (1..=8).map(fat).collect(), ..Haul::default() });
    front.published(&[]);
    // Half of the room is used: nobody reads ahead.
    assert!(front.errand(0).is_none());
    assert_eq!(front.take(Instant::now(), WINDOW, 6).len(), 6);
    let errand = front.errand(0).expect("there is room again");
    assert!(errand.room < 7 * 1024 * 1024, "{}", errand.room);
}
