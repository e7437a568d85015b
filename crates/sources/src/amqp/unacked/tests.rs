//! Beside a broker that knows what is unacked, and is told.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::amqp::answers::Call;

const WINDOW: Duration = Duration::from_secs(10);

fn incoming() -> Incoming {
    let delivery =
        lapin::message::Delivery::mock(1, "".into(), "q".into(), false, b"body".to_vec());
    Incoming::new(delivery)
}

fn identity(id: &str, is_redelivered: bool) -> Identity {
    Identity { id: id.into(), is_given: true, is_redelivered, is_copy: false }
}

/// What the broker holds unacked, by tag; a message that is told twice is an error there.
#[derive(Default)]
struct Broker {
    sent: u64,
    unacked: BTreeMap<u64, &'static str>,
    told: BTreeMap<u64, &'static str>,
}

impl Broker {
    fn hear(&mut self, frames: &Frames) -> Result<(), TestCaseError> {
        for tag in &frames.returns {
            self.end(*tag, "returned")?;
        }
        for tag in &frames.rejects {
            self.end(*tag, "rejected")?;
        }
        if let Some(up_to) = frames.up_to {
            let covered: Vec<u64> = self.unacked.range(..=up_to).map(|(tag, _)| *tag).collect();
            prop_assert!(covered.contains(&up_to), "an ack of what was told before");
            for tag in covered {
                self.end(tag, "acked")?;
            }
        }
        for tag in &frames.singles {
            self.end(*tag, "acked")?;
        }
        Ok(())
    }

    fn end(&mut self, tag: u64, how: &'static str) -> Result<(), TestCaseError> {
        prop_assert!(self.unacked.remove(&tag).is_some(), "{tag} was told twice");
        self.told.insert(tag, how);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    HandOut(usize),
    Settle(usize, u8),
    Copied(usize, bool),
    Extend(usize),
    Pass(u64),
    Tell,
    ReturnFresh,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<u8>().prop_map(|id| Step::Arrive(id % 4)),
        4 => (0usize..6).prop_map(Step::HandOut),
        8 => (0usize..12, 0u8..4).prop_map(|(which, how)| Step::Settle(which, how)),
        3 => (0usize..12, any::<bool>()).prop_map(|(which, ok)| Step::Copied(which, ok)),
        1 => (0usize..12).prop_map(Step::Extend),
        2 => (0u64..8_000).prop_map(Step::Pass),
        6 => Just(Step::Tell),
        1 => Just(Step::ReturnFresh),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every delivery is told once, as it was settled; nothing is told that was not; and names are
    /// never shared by two that are here.
    #[test]
    fn every_delivery_is_told_once_as_it_was_settled(steps in steps(), hold in 0u64..3_000) {
        let (mut unacked, mut broker) = (Unacked::default(), Broker::default());
        unacked.begin(7);
        let call = Call::new();
        let mut now = Instant::from_std(std::time::Instant::now());
        let hold = Hold { age: Duration::from_millis(hold), most: 5 };
        let (mut out, mut copying) = (Vec::new(), Vec::new());
        let mut expected: BTreeMap<u64, &'static str> = BTreeMap::new();
        let mut ends: BTreeMap<u64, Instant> = BTreeMap::new();
        for step in steps.into_iter().chain([Step::Tell]) {
            match step {
                Step::Arrive(id) => {
                    broker.sent += 1;
                    broker.unacked.insert(broker.sent, "");
                    prop_assert!(unacked.arrive(broker.sent, identity(&id.to_string(), false), incoming(), now));
                    let here = unacked.entries.values();
                    let named = here.filter_map(|entry| entry.name.as_ref());
                    let names: Vec<_> = named.map(Name::text).collect();
                    let distinct: BTreeSet<_> = names.iter().collect();
                    prop_assert_eq!(distinct.len(), names.len());
                }
                Step::HandOut(max) => {
                    let handed = unacked.hand_out(max, now, Some(WINDOW));
                    prop_assert!(handed.len() <= max);
                    for handed in handed {
                        ends.insert(handed.receipt.tag, now + WINDOW);
                        out.push(handed.receipt);
                    }
                }
                Step::Settle(which, how) => {
                    let Some(receipt) = out.get(which).cloned() else { continue };
                    let is_open = !expected.contains_key(&receipt.tag)
                        && !copying.contains(&receipt.tag);
                    let (is_valid, told) = match how {
                        0 => (unacked.settle(&receipt, End::Ack, call.part(0)), "acked"),
                        1 => (unacked.settle(&receipt, End::Return, call.part(0)), "returned"),
                        2 => (unacked.settle(&receipt, End::Reject, call.part(0)), "rejected"),
                        _ => (unacked.copy(&receipt, call.part(0)).is_some(), "copying"),
                    };
                    prop_assert_eq!(is_valid, is_open);
                    if is_valid && told == "copying" {
                        copying.push(receipt.tag);
                    } else if is_valid {
                        expected.insert(receipt.tag, told);
                    }
                }
                Step::Copied(which, is_ok) => {
                    if which >= copying.len() { continue }
                    let tag = copying.remove(which);
                    let copied = if is_ok { Ok(()) } else { Err(SourceError::new("no")) };
                    let receipt = Receipt { tag, generation: 7, handle: None };
                    unacked.copied(&receipt, copied, Some(now + WINDOW));
                    ends.insert(tag, now + WINDOW);
                    if is_ok {
                        expected.insert(tag, "acked");
                    }
                }
                Step::Extend(which) => {
                    let Some(receipt) = out.get(which) else { continue };
                    if unacked.extend(receipt, Some(now + WINDOW)) {
                        ends.insert(receipt.tag, now + WINDOW);
                    }
                }
                Step::Pass(ms) => now += Duration::from_millis(ms),
                Step::ReturnFresh => {
                    for (tag, entry) in &unacked.entries {
                        if entry.state == State::Fresh {
                            expected.insert(*tag, "returned");
                        }
                    }
                    unacked.return_fresh();
                }
                Step::Tell => {
                    for receipt in &out {
                        let is_open = !expected.contains_key(&receipt.tag)
                            && !copying.contains(&receipt.tag);
                        if is_open && ends[&receipt.tag] <= now {
                            expected.insert(receipt.tag, "returned");
                        }
                    }
                    let mut frames = unacked.frames(now, hold);
                    broker.hear(&frames)?;
                    unacked.told(&mut frames, now);
                    for (tag, how) in &broker.told {
                        prop_assert_eq!(expected.get(tag), Some(how));
                    }
                    if let Some(next) = frames.next {
                        prop_assert!(next > now);
                    }
                }
            }
        }
        // Without holding back, all that was settled is told.
        let mut frames = unacked.frames(now, Hold::NONE);
        broker.hear(&frames)?;
        unacked.told(&mut frames, now);
        prop_assert_eq!(&broker.told, &expected);
        let (fresh, out) = unacked.counts();
        prop_assert_eq!(fresh + out, broker.unacked.len());
        // Once those who settled have their answers, only what is here has a name.
        unacked.rest(call.release_names(), now);
        let has_name = |entry: &&Entry| {
            entry.name.is_some() && !matches!(entry.state, State::Copying | State::Ack)
        };
        let named = unacked.entries.values().filter(has_name).count();
        prop_assert_eq!(named, unacked.names.len());
    }
}

/// A channel, the time and a few entries that are out.
fn handed(count: u64) -> (Unacked, Instant, Vec<Receipt>) {
    let (mut unacked, now) = (Unacked::default(), Instant::from_std(std::time::Instant::now()));
    unacked.begin(1);
    for tag in 1..=count {
        assert!(unacked.arrive(tag, identity(&format!("m{tag}"), false), incoming(), now));
    }
    let handed = unacked.hand_out(100, now, None);
    (unacked, now, handed.into_iter().map(|handed| handed.receipt).collect())
}

#[test]
fn a_gap_holds_acks_back_while_it_is_young() {
    let (mut unacked, now, receipts) = handed(6);
    let call = Call::new();
    let hold = Hold { age: Duration::from_millis(5), most: 4 };
    let told = |frames: Frames| (frames.up_to, frames.singles, frames.next.is_some());
    for at in [0, 1, 3, 4] {
        assert!(unacked.settle(&receipts[at], End::Ack, call.part(0)));
    }
    assert_eq!(told(unacked.frames(now, hold)), (Some(2), vec![], true));
    let later = now + Duration::from_millis(5);
    assert_eq!(told(unacked.frames(later, hold)), (None, vec![4, 5], false));
    // Closed, the gap takes along what is above it.
    assert!(unacked.settle(&receipts[5], End::Ack, call.part(0)));
    assert!(unacked.settle(&receipts[2], End::Ack, call.part(0)));
    assert_eq!(told(unacked.frames(now, hold)), (Some(6), vec![], false));
    assert_eq!(unacked.counts(), (0, 0));
}

#[test]
fn too_many_are_not_held_back() {
    let (mut unacked, now, receipts) = handed(6);
    let call = Call::new();
    let hold = Hold { age: Duration::from_secs(5), most: 3 };
    for receipt in &receipts[3..] {
        assert!(unacked.settle(receipt, End::Ack, call.part(0)));
    }
    assert_eq!(unacked.frames(now, hold).singles, [4, 5, 6]);
}

/// A tag that jumps would misapply every ack after it.
#[test]
fn tags_count_up() {
    let (mut unacked, now, _) = handed(2);
    assert!(!unacked.arrive(4, identity("m4", false), incoming(), now));
    assert!(unacked.arrive(3, identity("m3", false), incoming(), now));
}

/// A copy that is confirmed after its channel ended says nothing of what has that tag now.
#[test]
fn a_copy_of_an_earlier_channel_acks_nothing() {
    let (mut unacked, now, receipts) = handed(1);
    let call = Call::new();
    assert!(unacked.copy(&receipts[0], call.part(0)).is_some());
    unacked.begin(2);
    assert!(unacked.arrive(1, identity("m1", true), incoming(), now));
    let receipt = unacked.hand_out(1, now, None).remove(0).receipt;
    assert!(unacked.copy(&receipt, call.part(0)).is_some());
    unacked.copied(&receipts[0], Ok(()), None);
    assert!(unacked.frames(now, Hold::NONE).is_empty());
    unacked.copied(&receipt, Ok(()), None);
    assert_eq!(unacked.frames(now, Hold::NONE).up_to, Some(1));
}

/// What is told goes, however long the first one stays: so what is kept is bounded by the prefetch.
#[test]
fn a_slow_one_does_not_keep_the_others() {
    let (mut unacked, now, receipts) = handed(1);
    let call = Call::new();
    for tag in 2..=10_000 {
        assert!(unacked.arrive(tag, identity(&format!("m{tag}"), false), incoming(), now));
        let receipt = unacked.hand_out(1, now, None).remove(0).receipt;
        assert!(unacked.settle(&receipt, End::Ack, call.part(0)));
        assert_eq!(unacked.frames(now, Hold::NONE).singles, [tag]);
        assert_eq!(unacked.entries.len(), 1);
    }
    assert!(unacked.settle(&receipts[0], End::Ack, call.part(0)));
    assert_eq!(unacked.frames(now, Hold::NONE).up_to, Some(1));
}
