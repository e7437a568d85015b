//! The front, step by step in made-up time.

use std::num::NonZero;

use super::*;

const WINDOW: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::ZERO;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A front with a clock that is set by hand.
struct Stage {
    front: Front<&'static str>,
    begun: Instant,
    delivered: u64,
}

impl Stage {
    fn new() -> Self {
        Self { front: Front::new(WINDOW, 100), begun: Instant::now(), delivered: 0 }
    }

    fn at(&self, time: Duration) -> Instant {
        self.begun + time
    }

    fn arrived(&mut self, seq: u64, time: Duration) -> Arrived<&'static str> {
        self.delivered += 1;
        let reply = Subject::from(format!("reply.{seq}.{}", self.delivered));
        let (count, published) = (self.delivered, i128::from(seq) * 10);
        Arrived { seq, count, published, reply, at: self.at(time), body: "body" }
    }

    /// A delivery that was asked for when it arrives.
    fn arrive(&mut self, seq: u64, time: Duration) -> Option<Errand> {
        let arrived = self.arrived(seq, time);
        let now = self.at(time);
        self.front.arrive(arrived, NOW, now, now)
    }

    fn take(&mut self, max: usize, time: Duration) -> Vec<(u64, Receipt, u32)> {
        let now = self.at(time);
        let receipt = |taken: Taken<_>| {
            let (tag, generation) = (taken.arrived.seq, taken.generation);
            (tag, Receipt { tag, generation, handle: None }, taken.attempts)
        };
        self.front.take(max, now).into_iter().map(receipt).collect()
    }

    fn receipt(&mut self, seq: u64, time: Duration) -> Receipt {
        assert_eq!(self.arrive(seq, time), None);
        self.take(1, time).remove(0).1
    }

    fn seqs(&mut self, max: usize, time: Duration) -> Vec<u64> {
        self.take(max, time).into_iter().map(|(seq, ..)| seq).collect()
    }

    fn settle(&mut self, receipt: &Receipt, time: Duration) -> Worth {
        let now = self.at(time);
        self.front.begin_settling(receipt, now)
    }

    fn arrive_as(&mut self, seq: u64, body: &'static str, time: Duration) {
        let arrived = Arrived { body, ..self.arrived(seq, time) };
        let now = self.at(time);
        assert_eq!(self.front.arrive(arrived, NOW, now, now), None);
    }

    fn done(&mut self, receipt: &Receipt) {
        self.front.gone(receipt);
        self.front.end_settling(receipt);
    }

    fn back(&mut self, receipt: &Receipt, not_before: Instant, attempts: u32) {
        self.front.again(receipt, not_before, attempts, None);
        self.front.end_settling(receipt);
    }

    fn keep_all(&mut self) {
        self.front.keep_order(Kept { keeps: Box::new(|_| true), all: true });
    }

    /// Ends a hold's waiting at a time.
    fn hold(&mut self, floor: u64, unsettled: usize, until: Duration) {
        let until = self.at(until);
        self.front.hold(Hold::new(floor, unsettled, until));
    }
}

fn is_told(worth: &Worth) -> bool {
    matches!(worth, Worth::Tell(_))
}

#[test]
fn what_arrives_is_handed_out_once_and_in_order() {
    let mut stage = Stage::new();
    for seq in [1, 2, 3] {
        assert_eq!(stage.arrive(seq, NOW), None);
    }
    assert_eq!(stage.seqs(2, NOW), [1, 2]);
    assert_eq!(stage.seqs(5, NOW), [3]);
    assert_eq!(stage.seqs(5, NOW), [0; 0]);
    assert_eq!(stage.front.out(stage.at(NOW)), 3);
    assert_eq!(stage.front.out(stage.at(WINDOW)), 0);
}

#[test]
fn only_as_many_are_asked_for_as_are_wanted() {
    let mut stage = Stage::new();
    stage.front.wanted = 3;
    assert_eq!(stage.front.lack(), 3);
    stage.arrive(1, NOW);
    assert_eq!(stage.front.lack(), 2);
    stage.front.wanted = 0;
    assert_eq!(stage.front.lack(), 0);
}

#[test]
fn a_receipt_ends_with_its_window_or_with_the_next_delivery() {
    let mut stage = Stage::new();
    let first = stage.receipt(1, NOW);
    assert_eq!(stage.settle(&first, WINDOW), Worth::Stale);
    stage.arrive(1, WINDOW);
    // The later delivery is not handed out yet, but the window of the first has ended.
    assert_eq!(stage.settle(&first, WINDOW), Worth::Stale);
    let second = stage.take(1, WINDOW).remove(0).1;
    assert_ne!(first, second);
    assert_eq!(stage.settle(&first, WINDOW), Worth::Stale);
    assert!(is_told(&stage.settle(&second, WINDOW)));
}

#[test]
fn an_early_redelivery_leaves_the_receipt_valid_until_it_is_handed_out() {
    let mut stage = Stage::new();
    let first = stage.receipt(1, NOW);
    stage.arrive(1, seconds(1));
    assert!(is_told(&stage.settle(&first, seconds(2))));
    stage.done(&first);
    // The copy went with it.
    assert_eq!(stage.seqs(1, seconds(2)), [0; 0]);
    assert_eq!(stage.front.len(), 0);
}

#[test]
fn an_extension_begins_the_window_anew() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    let half = stage.at(WINDOW / 2);
    assert!(is_told(&stage.front.begin_extending(&receipt, half)));
    stage.front.extended(&receipt, half);
    assert!(is_told(&stage.settle(&receipt, WINDOW)));
    // While it is being settled the server is not told that it goes on.
    assert_eq!(stage.front.begin_extending(&receipt, stage.begun + WINDOW), Worth::Settling);
    let late = stage.at(WINDOW * 2);
    assert_eq!(stage.front.begin_extending(&receipt, late), Worth::Stale);
}

#[test]
fn a_settlement_that_fails_leaves_it_out_and_one_that_is_under_way_is_not_begun_twice() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    assert!(is_told(&stage.settle(&receipt, NOW)));
    assert_eq!(stage.settle(&receipt, NOW), Worth::Stale);
    stage.front.end_settling(&receipt);
    assert!(is_told(&stage.settle(&receipt, NOW)));
    stage.done(&receipt);
    stage.front.end_settling(&receipt);
    assert_eq!(stage.settle(&receipt, NOW), Worth::Stale);
}

#[test]
fn what_the_server_knows_is_not_extended_and_is_stale_once_it_is_answered() {
    let mut stage = Stage::new();
    let (gone, again) = (stage.receipt(1, NOW), stage.receipt(2, NOW));
    for receipt in [&gone, &again] {
        assert!(is_told(&stage.settle(receipt, NOW)));
        // A copy is here before the server is told.
        stage.arrive(receipt.tag, NOW);
    }
    stage.front.gone(&gone);
    stage.front.again(&again, stage.begun + seconds(60), 4, None);
    assert_eq!(stage.front.out(stage.begun), 0);
    assert_eq!(stage.seqs(9, NOW), [0; 0]);
    for receipt in [&gone, &again] {
        assert_eq!(stage.front.begin_extending(receipt, stage.begun), Worth::Settling);
        assert_eq!(stage.settle(receipt, NOW), Worth::Stale);
        stage.front.end_settling(receipt);
        assert_eq!(stage.front.begin_extending(receipt, stage.begun), Worth::Stale);
        assert_eq!(stage.settle(receipt, NOW), Worth::Stale);
    }
    assert_eq!(stage.front.len(), 1);
}

#[test]
fn what_comes_back_before_the_server_has_answered_is_handed_out() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    assert!(is_told(&stage.settle(&receipt, NOW)));
    // A copy of before, and one that came for what the server was just told.
    stage.arrive(1, NOW);
    stage.arrive(1, seconds(2));
    stage.back(&receipt, stage.at(seconds(1)), 0);
    assert_eq!(stage.seqs(9, seconds(2)), [1]);
}

#[test]
fn what_is_copied_elsewhere_is_extended_meanwhile() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    assert!(is_told(&stage.front.begin_copying(&receipt, stage.begun)));
    assert!(is_told(&stage.front.begin_extending(&receipt, stage.begun)));
    assert!(stage.front.is_extending(1));
    stage.front.end_extending(1);
    assert!(!stage.front.is_extending(1));
    assert!(stage.front.copied(&receipt));
    assert_eq!(stage.front.begin_extending(&receipt, stage.begun), Worth::Settling);
    stage.done(&receipt);
    assert!(!stage.front.copied(&receipt));
}

#[test]
fn only_what_stays_in_order_waits_in_a_hold() {
    let mut stage = Stage::new();
    stage.hold(5, 2, WINDOW);
    for seq in [6, 7] {
        stage.arrive_as(seq, if seq == 6 { "kept" } else { "free" }, NOW);
    }
    assert_eq!(stage.seqs(9, NOW), [0; 0], "nobody has said what stays in order");
    stage.front.keep_order(Kept { keeps: Box::new(|body| *body == "kept"), all: false });
    assert_eq!(stage.seqs(9, NOW), [7]);
    stage.arrive_as(8, "free", NOW);
    stage.arrive_as(9, "kept", NOW);
    stage.arrive_as(5, "free", NOW);
    assert_eq!(stage.seqs(9, NOW), [8, 5]);
    assert_eq!(stage.front.pause(stage.begun), None, "more that is free may come");
    stage.arrive_as(4, "kept", WINDOW / 2);
    assert_eq!(stage.seqs(9, WINDOW / 2), [4, 6, 9]);
}

#[test]
fn attempts_and_delays_are_kept() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    stage.settle(&receipt, NOW);
    stage.back(&receipt, stage.begun + seconds(60), 4);
    // Too early: the server has forgotten the delay, as one that crashed may.
    let early = stage.arrive(1, seconds(50));
    assert!(matches!(early, Some(Errand::Again(_, rest)) if rest == seconds(10)), "{early:?}");
    assert_eq!(stage.seqs(1, seconds(50)), [0; 0]);
    assert_eq!(stage.arrive(1, seconds(60)), None);
    let (seq, second, attempts) = stage.take(1, seconds(60)).remove(0);
    assert_eq!((seq, attempts), (1, 4));
    stage.settle(&second, seconds(60));
    stage.back(&second, stage.at(seconds(60)), 5);
    assert_eq!(stage.arrive(1, seconds(60)), None);
    assert_eq!(stage.take(1, seconds(60))[0].2, 5);
}

#[test]
fn what_its_sender_delays_is_handed_back() {
    let mut stage = Stage::new();
    let arrived = stage.arrived(1, NOW);
    let now = stage.begun;
    let errand = stage.front.arrive(arrived, seconds(5), now, now);
    assert!(matches!(errand, Some(Errand::Again(_, rest)) if rest == seconds(5)));
    assert_eq!(stage.arrive(1, seconds(5)), None);
    assert_eq!(stage.seqs(1, seconds(5)), [1]);
}

#[test]
fn a_copy_of_what_is_done_is_acknowledged_and_not_handed_out() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    stage.settle(&receipt, NOW);
    stage.done(&receipt);
    assert!(matches!(stage.arrive(1, seconds(40)), Some(Errand::Gone(_))));
    // Another message that has the number in a stream that was made anew.
    let mut other = stage.arrived(1, seconds(41));
    other.published = 77;
    let now = stage.at(seconds(41));
    assert_eq!(stage.front.arrive(other, NOW, now, now), None);
    assert_eq!(stage.seqs(1, seconds(41)), [1]);
}

#[test]
fn only_so_many_that_are_done_are_remembered() {
    let mut stage = Stage::new();
    for seq in 0..REMEMBERED as u64 + 10 {
        let receipt = stage.receipt(seq, NOW);
        stage.settle(&receipt, NOW);
        stage.done(&receipt);
    }
    assert_eq!(stage.front.done.len(), REMEMBERED);
    assert_eq!(stage.arrive(0, NOW), None);
    assert!(stage.arrive(20, NOW).is_some());
}

#[test]
fn what_waits_here_is_kept_alive_or_left_to_the_server() {
    let mut stage = Stage::new();
    stage.arrive(1, NOW);
    assert_eq!(stage.front.begin_keeping(stage.at(WINDOW / 4)), []);
    let ageing = stage.front.begin_keeping(stage.at(WINDOW / 3));
    assert_eq!(ageing.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1]);
    stage.front.kept(1, stage.begun + WINDOW / 3);
    assert_eq!(stage.front.begin_keeping(stage.at(WINDOW / 2)), []);
    assert_eq!(stage.seqs(1, WINDOW), [1]);
    stage.arrive(2, NOW);
    // Its window ended before anybody asked.
    assert_eq!(stage.seqs(1, WINDOW), [0; 0]);
    stage.arrive(2, WINDOW);
    assert_eq!(stage.seqs(1, WINDOW), [2]);
}

#[test]
fn what_waits_and_what_is_held_is_given_back() {
    let mut stage = Stage::new();
    stage.arrive(1, NOW);
    stage.hold(5, 2, WINDOW);
    stage.arrive(3, NOW);
    stage.arrive(6, NOW);
    assert_eq!(stage.front.give_back().len(), 3);
    assert_eq!(stage.front.give_back(), []);
    assert_eq!(stage.seqs(9, NOW), [0; 0]);
}

#[test]
fn new_messages_wait_for_those_of_an_earlier_life() {
    let mut stage = Stage::new();
    stage.hold(5, 3, WINDOW);
    for seq in [7, 5, 6] {
        stage.arrive(seq, NOW);
    }
    // Those of the earlier life come at their own times, so they wait for each other too.
    assert_eq!(stage.seqs(9, NOW), [0; 0]);
    // Asking would only bring more that is new.
    assert_eq!(stage.front.pause(stage.begun), Some(stage.at(WINDOW)));
    assert_eq!(stage.front.pause(stage.at(WINDOW)), None);
    assert_eq!(stage.front.begin_keeping(stage.at(WINDOW / 3)).len(), 3);
    for seq in [5, 6, 7] {
        stage.front.kept(seq, stage.begun + WINDOW / 2);
    }
    stage.arrive(4, WINDOW);
    stage.arrive(4, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [0; 0]);
    stage.arrive(3, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [3, 4, 5, 6, 7]);
}

#[test]
fn a_new_message_that_was_asked_for_late_shows_that_nothing_older_is_left() {
    let mut stage = Stage::new();
    stage.hold(5, 3, seconds(1));
    stage.arrive(7, NOW);
    // Asked for before all were due, so it proves nothing.
    let (arrived, now, asked) = (stage.arrived(8, seconds(2)), stage.at(seconds(2)), stage.begun);
    assert_eq!(stage.front.arrive(arrived, NOW, asked, now), None);
    assert_eq!(stage.seqs(9, seconds(2)), [0; 0]);
    stage.arrive(2, seconds(2));
    stage.arrive(9, seconds(2));
    assert_eq!(stage.seqs(9, seconds(2)), [2, 7, 8, 9]);
}

#[test]
fn what_went_elsewhere_is_waited_for() {
    let mut stage = Stage::new();
    stage.front.count_from(0);
    stage.keep_all();
    stage.arrive(1, NOW);
    assert_eq!(stage.seqs(9, NOW), [1]);
    // Two were delivered to somebody who is gone.
    stage.delivered += 2;
    for seq in [4, 5] {
        stage.arrive(seq, NOW);
    }
    assert_eq!(stage.seqs(9, NOW), [0; 0]);
    for seq in [4, 5] {
        stage.front.kept(seq, stage.at(WINDOW));
    }
    stage.arrive(3, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [0; 0]);
    stage.arrive(2, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [2, 3, 4, 5]);
    // A server that has forgotten some deliveries counts them again: that is no gap.
    stage.delivered -= 3;
    stage.arrive(6, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [6]);
    // Where nobody needs order, nothing waits.
    stage.front.release_hold();
    stage.delivered += 7;
    stage.arrive(7, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [7]);
}

#[test]
fn what_waited_too_long_is_waited_for() {
    let mut stage = Stage::new();
    stage.front.count_from(0);
    stage.keep_all();
    stage.arrive(1, NOW);
    stage.arrive(2, NOW);
    stage.front.kept(2, stage.at(WINDOW / 2));
    // The window of the first has ended, and the second must not go before it.
    assert_eq!(stage.seqs(9, WINDOW), [0; 0]);
    stage.arrive(3, WINDOW);
    stage.arrive(1, WINDOW);
    assert_eq!(stage.seqs(9, WINDOW), [1, 2, 3]);
}

#[test]
fn what_the_server_is_late_with_is_waited_for() {
    let mut stage = Stage::new();
    stage.hold(5, 3, seconds(1));
    stage.arrive(7, NOW);
    let (due, later) = (stage.at(seconds(1)), stage.at(seconds(1) + WINDOW / 40));
    assert!(!stage.front.is_hold_in_question(stage.begun));
    assert!(stage.front.is_hold_in_question(due));
    // One is here, and two more are somewhere.
    stage.front.hear_of_unsettled(3, due);
    assert_eq!(stage.front.pause(due), None, "it is asked for once");
    stage.arrive(8, seconds(1));
    assert_eq!(stage.seqs(9, seconds(1)), [0; 0], "though it was asked for when all were due");
    assert_eq!(stage.front.pause(due), Some(later));
    stage.arrive(2, seconds(1));
    assert_eq!(stage.seqs(9, seconds(1)), [0; 0]);
    // All that is unsettled is here.
    assert!(stage.front.is_hold_in_question(later));
    stage.front.hear_of_unsettled(3, later);
    assert!(!stage.front.is_hold_in_question(later));
    stage.arrive(9, seconds(1) + WINDOW / 40);
    assert_eq!(stage.seqs(9, seconds(1) + WINDOW / 40), [2, 7, 8, 9]);
}

#[test]
fn what_never_comes_is_not_waited_for_for_long() {
    let mut stage = Stage::new();
    stage.hold(5, 1, seconds(1));
    stage.arrive(7, NOW);
    let (mut time, end) = (seconds(1), seconds(1) + WINDOW / 4);
    while time < end {
        stage.front.hear_of_unsettled(3, stage.at(time));
        assert_eq!(stage.front.missing().map(NonZero::get), Some(2));
        stage.front.nothing_arrived(stage.at(time));
        assert_eq!((stage.front.missing(), stage.seqs(9, time)), (None, vec![]));
        time += WINDOW / 40;
        assert!(stage.front.is_hold_in_question(stage.at(time)));
    }
    stage.front.hear_of_unsettled(3, stage.at(time));
    assert!(!stage.front.is_hold_in_question(stage.at(time)));
    stage.front.nothing_arrived(stage.at(time));
    assert_eq!(stage.seqs(9, time), [7]);
}

#[test]
fn what_is_delayed_is_not_waited_for() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    stage.settle(&receipt, NOW);
    stage.back(&receipt, stage.at(seconds(3600)), 1);
    stage.hold(5, 1, seconds(1));
    stage.front.hear_of_unsettled(1, stage.at(seconds(1)));
    assert_eq!(stage.front.missing(), None);
    assert!(!stage.front.is_hold_in_question(stage.at(seconds(1))));
}

#[test]
fn nothing_to_wait_for_holds_nothing() {
    let mut stage = Stage::new();
    stage.hold(5, 0, WINDOW);
    stage.arrive(6, NOW);
    assert_eq!(stage.seqs(9, NOW), [6]);
    let mut stage = Stage::new();
    stage.hold(5, 3, seconds(1));
    stage.arrive(6, NOW);
    stage.front.nothing_arrived(stage.begun);
    assert_eq!(stage.seqs(9, NOW), [0; 0]);
    stage.front.nothing_arrived(stage.begun + seconds(1));
    assert_eq!(stage.seqs(9, NOW), [6]);
    stage.hold(9, 3, seconds(1));
    stage.arrive(10, NOW);
    stage.front.release_hold();
    assert_eq!(stage.seqs(9, NOW), [10]);
}

#[test]
fn another_consumer_makes_every_receipt_worthless() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    stage.arrive(2, NOW);
    stage.front.reset();
    assert_eq!(stage.settle(&receipt, NOW), Worth::Stale);
    assert_eq!(stage.seqs(9, NOW), [0; 0]);
}

#[test]
fn what_nothing_is_heard_of_is_forgotten() {
    let mut stage = Stage::new();
    let receipt = stage.receipt(1, NOW);
    stage.settle(&receipt, NOW);
    stage.back(&receipt, stage.begun + seconds(3600), 4);
    stage.receipt(2, NOW);
    stage.front.sweep(stage.at(FORGOTTEN_AFTER));
    assert_eq!(stage.front.len(), 2);
    stage.front.sweep(stage.at(FORGOTTEN_AFTER + WINDOW));
    assert_eq!(stage.front.len(), 1);
    stage.front.sweep(stage.at(FORGOTTEN_AFTER + seconds(3601)));
    assert_eq!(stage.front.len(), 0);
}

#[test]
fn what_was_written_down_is_carried() {
    let mut stage = Stage::new();
    assert!(stage.front.is_unknown(1, 10));
    let known = tally::Entry { attempts: 3, not_before: NOW, at: 7 };
    stage.front.recall((1, 10), known, seconds(5), stage.begun);
    assert!(!stage.front.is_unknown(1, 10) && stage.front.is_unknown(1, 11));
    assert!(
        matches!(stage.arrive(1, seconds(1)), Some(Errand::Again(_, rest)) if rest == seconds(4))
    );
    assert_eq!(stage.arrive(1, seconds(5)), None);
    let (_, receipt, attempts) = stage.take(1, seconds(5)).remove(0);
    assert_eq!(attempts, 3);
    let worth = stage.settle(&receipt, seconds(5));
    assert!(matches!(worth, Worth::Tell(Word { tallied: Some(entry), .. }) if entry == known));
    stage.done(&receipt);
    assert!(!stage.front.is_unknown(1, 10));
}
