//! The ring beside a broker that knows what is unacked and is told what the ring says.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const WINDOW: Duration = Duration::from_secs(10);

fn letter() -> Letter {
    let delivery =
        lapin::message::Delivery::mock(1, "".into(), "q".into(), false, b"body".to_vec());
    Letter::new(delivery)
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
        let (mut ring, mut broker) = (Ring::default(), Broker::default());
        ring.begin(7);
        let ticket = Arc::new(Ticket::default());
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
                    prop_assert!(ring.arrive(broker.sent, id.to_string().into(), letter(), now));
                    let named = ring.entries.iter().filter_map(|entry| entry.name.as_ref());
                    let names: Vec<_> = named.map(Name::text).collect();
                    let distinct: BTreeSet<_> = names.iter().collect();
                    prop_assert_eq!(distinct.len(), names.len());
                }
                Step::HandOut(max) => {
                    let handed = ring.hand_out(max, now, Some(WINDOW));
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
                        0 => (ring.settle(&receipt, End::Ack, &ticket), "acked"),
                        1 => (ring.settle(&receipt, End::Return, &ticket), "returned"),
                        2 => (ring.settle(&receipt, End::Reject, &ticket), "rejected"),
                        _ => (ring.copy(&receipt, &ticket).is_some(), "copying"),
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
                    ring.copied(7, tag, copied, Some(now + WINDOW), now);
                    ends.insert(tag, now + WINDOW);
                    if is_ok {
                        expected.insert(tag, "acked");
                    }
                }
                Step::Extend(which) => {
                    let Some(receipt) = out.get(which) else { continue };
                    if ring.extend(receipt, Some(now + WINDOW)) {
                        ends.insert(receipt.tag, now + WINDOW);
                    }
                }
                Step::Pass(ms) => now += Duration::from_millis(ms),
                Step::ReturnFresh => {
                    for (entry, tag) in ring.entries.iter().zip(ring.first..) {
                        if entry.state == State::Fresh {
                            expected.insert(tag, "returned");
                        }
                    }
                    ring.return_fresh();
                }
                Step::Tell => {
                    for receipt in &out {
                        let is_open = !expected.contains_key(&receipt.tag)
                            && !copying.contains(&receipt.tag);
                        if is_open && ends[&receipt.tag] <= now {
                            expected.insert(receipt.tag, "returned");
                        }
                    }
                    let mut frames = ring.frames(now, hold);
                    broker.hear(&frames)?;
                    ring.told(&mut frames, now);
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
        let mut frames = ring.frames(now, Hold::NONE);
        broker.hear(&frames)?;
        ring.told(&mut frames, now);
        prop_assert_eq!(&broker.told, &expected);
        let (fresh, out) = ring.counts();
        prop_assert_eq!(fresh + out, broker.unacked.len());
        let named = ring.entries.iter().filter(|entry| entry.name.is_some()).count();
        prop_assert_eq!(named, ring.names.len());
    }
}

/// Ring, time and a few entries that are out.
fn handed(count: u64) -> (Ring, Instant, Vec<Receipt>) {
    let (mut ring, now) = (Ring::default(), Instant::from_std(std::time::Instant::now()));
    ring.begin(1);
    for tag in 1..=count {
        assert!(ring.arrive(tag, format!("m{tag}").into(), letter(), now));
    }
    let handed = ring.hand_out(100, now, None);
    (ring, now, handed.into_iter().map(|handed| handed.receipt).collect())
}

#[test]
fn a_gap_holds_acks_back_while_it_is_young() {
    let (mut ring, now, receipts) = handed(6);
    let ticket = Arc::new(Ticket::default());
    let hold = Hold { age: Duration::from_millis(5), most: 4 };
    let told = |frames: Frames| (frames.up_to, frames.singles, frames.next.is_some());
    for at in [0, 1, 3, 4] {
        assert!(ring.settle(&receipts[at], End::Ack, &ticket));
    }
    assert_eq!(told(ring.frames(now, hold)), (Some(2), vec![], true));
    let later = now + Duration::from_millis(5);
    assert_eq!(told(ring.frames(later, hold)), (None, vec![4, 5], false));
    // Closed, the gap takes along what is above it.
    assert!(ring.settle(&receipts[5], End::Ack, &ticket));
    assert!(ring.settle(&receipts[2], End::Ack, &ticket));
    assert_eq!(told(ring.frames(now, hold)), (Some(6), vec![], false));
    assert_eq!(ring.counts(), (0, 0));
}

#[test]
fn too_many_are_not_held_back() {
    let (mut ring, now, receipts) = handed(6);
    let ticket = Arc::new(Ticket::default());
    let hold = Hold { age: Duration::from_secs(5), most: 3 };
    for receipt in &receipts[3..] {
        assert!(ring.settle(receipt, End::Ack, &ticket));
    }
    assert_eq!(ring.frames(now, hold).singles, [4, 5, 6]);
}

/// A tag that jumps would misapply every ack after it.
#[test]
fn tags_count_up() {
    let (mut ring, now, _) = handed(2);
    assert!(!ring.arrive(4, "m4".into(), letter(), now));
    assert!(ring.arrive(3, "m3".into(), letter(), now));
}

/// A copy that is confirmed after its channel ended says nothing of what has that tag now.
#[test]
fn a_copy_of_an_earlier_channel_acks_nothing() {
    let (mut ring, now, receipts) = handed(1);
    let ticket = Arc::new(Ticket::default());
    assert!(ring.copy(&receipts[0], &ticket).is_some());
    ring.begin(2);
    assert!(ring.arrive(1, "m1".into(), letter(), now));
    let receipt = ring.hand_out(1, now, None).remove(0).receipt;
    assert!(ring.copy(&receipt, &ticket).is_some());
    ring.copied(1, 1, Ok(()), None, now);
    assert!(ring.frames(now, Hold::NONE).is_empty());
    ring.copied(2, 1, Ok(()), None, now);
    assert_eq!(ring.frames(now, Hold::NONE).up_to, Some(1));
}
