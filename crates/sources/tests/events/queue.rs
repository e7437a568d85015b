//! The queue as it is seen: which events, in which order, for whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    Demand, Discarded, Envelope, FoundState, Openings, PublishError, PutBack, Room, Rooms, Settled,
    Settlement, Source,
};
use sluicegate_event_store::{MemoryEngine, NewEvent};
use sluicegate_sources::events::{EventsSettings, EventsSource};
use sluicegate_testkit::conformance::source::publication;

use crate::rig::QUEUE;
use crate::stage::{Stage, again, positions, said, settings};

#[tokio::test]
async fn only_events_that_match_are_delivered() {
    let stage = Stage::new().await;
    let other = || NewEvent::of("Other").tag("k", "a");
    stage.append([other(), said("a"), other(), said("b"), other()]).await;
    assert_eq!(positions(&stage.take(2).await), [2, 4]);
    assert!(stage.all().await.is_empty());
    let depth = stage.source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (0, 0, 2));
}

#[tokio::test]
async fn heads_that_fail_hold_their_keys_and_no_others() {
    const KEYS: u64 = 8;
    let stage = Stage::new().await;
    stage.append((0..400).map(|n| said(&(n % KEYS).to_string()))).await;
    let (mut seen, mut tries) = (BTreeMap::<u64, Vec<u64>>::new(), BTreeMap::<u64, u32>::new());
    while seen.values().map(Vec::len).sum::<usize>() < 400 {
        for delivery in stage.source.receive(Demand::any(16)).await.unwrap() {
            let position = positions(std::slice::from_ref(&delivery))[0];
            let tried = tries.entry(position).or_default();
            *tried += 1;
            assert_eq!(delivery.attempts, *tried - 1);
            let (key, delivery) = ((position - 1) % KEYS, [delivery]);
            // Each third one fails twice, at once or after a while.
            if position.is_multiple_of(3) && *tried < 3 {
                let after = Duration::from_millis(position % 2);
                let settled = stage.settle(&delivery, again(after, *tried)).await;
                assert_eq!(settled, [Settled::Done]);
            } else {
                seen.entry(key).or_default().push(position);
                stage.done(&delivery).await;
            }
        }
    }
    for (key, seen) in seen {
        let expected: Vec<u64> = (0..50).map(|n| n * KEYS + key + 1).collect();
        assert_eq!(seen, expected, "{key}");
    }
}

#[tokio::test]
async fn a_handler_in_rust_is_given_the_data() {
    let engine = Arc::new(MemoryEngine::new());
    // It needs no target.
    let settings = EventsSettings::parse("events:?key=k").unwrap();
    let source = EventsSource::<Envelope>::open(engine.clone(), QUEUE, settings.clone());
    let source = source.await.unwrap();
    let refused =
        EventsSource::<sluicegate_dispatch::Message>::open(engine.clone(), QUEUE, settings);
    assert!(refused.await.unwrap_err().to_string().contains("target"));
    let events = vec![said("a").raw_json("[1.50]")];
    let append = sluicegate_event_store::Append::new(events, None).unwrap();
    sluicegate_event_store::Engine::append(&*engine, append).await.unwrap();
    for is_again in [false, true] {
        let delivery = source.receive(Demand::any(1)).await.unwrap().remove(0);
        let envelope = delivery.message.unwrap();
        assert_eq!((&envelope.body[..], envelope.id.as_deref()), (&b"[1.50]"[..], Some("told:1")));
        assert_eq!(envelope.event_type.as_deref(), Some("Said"));
        assert_eq!((envelope.group.as_deref(), envelope.header("tag")), (Some("a"), Some("k:a")));
        assert_eq!(envelope.redelivered, is_again);
        let settle = sluicegate_dispatch::Settle {
            receipt: delivery.receipt,
            settlement: again(Duration::ZERO, 1),
        };
        assert_eq!(source.settle(vec![settle]).await.unwrap(), [Settled::Done]);
    }
}

/// A pool with so many places.
struct Pool(AtomicU32);

impl Rooms for Pool {
    fn take(&self, pool: &str) -> bool {
        assert_eq!(pool, "STRICT");
        let less = |places: u32| places.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    fn room(&self) -> Room {
        Room { pools: vec![("STRICT".into(), self.0.load(Ordering::SeqCst))], others: 0 }
    }
}

#[tokio::test]
async fn no_more_is_handed_out_than_the_pool_has_room_for() {
    let stage = Stage::new().await;
    stage.append((0..10).map(|n| said(&n.to_string()))).await;
    let (pool, openings) = (Arc::new(Pool(AtomicU32::new(3))), Arc::new(Openings::default()));
    let demand = || Demand::of(10, Arc::clone(&pool) as _, Arc::clone(&openings));
    assert_eq!(positions(&stage.source.receive(demand()).await.unwrap()), [1, 2, 3]);
    pool.0.store(2, Ordering::SeqCst);
    // Full once, it is asked again when it says that it has room.
    let waiting = stage.source.receive(demand());
    let opens = async {
        tokio::task::yield_now().await;
        openings.open("STRICT".into());
    };
    let (received, ()) = tokio::join!(waiting, opens);
    assert_eq!(positions(&received.unwrap()), [4, 5]);
}

#[tokio::test]
async fn a_parked_event_that_is_put_back_comes_at_its_place() {
    let stage = Stage::new().await;
    stage.append(["a", "a", "a", "b"].map(said)).await;
    let first = stage.take(2).await;
    assert_eq!(positions(&first), [1, 4]);
    stage.settle(&first[..1], Settlement::Park).await;
    let second = stage.take(1).await;
    assert_eq!(positions(&second), [2]);
    let back = |position: u64| PutBack {
        broker_id: format!("{QUEUE}:{position}").into(),
        name: "m~1".into(),
        publication: publication("m"),
    };
    // Twice is once, and what is open is left as it is.
    for _ in 0..2 {
        stage.source.put_back(vec![back(1), back(2), back(3)]).await.unwrap();
    }
    // What is out first, then the earlier one.
    assert!(stage.all().await.is_empty());
    stage.done(&second).await;
    let stage = stage.crash().await;
    let mut order = Vec::new();
    for _ in 0..3 {
        let next = stage.take(1).await;
        order.extend(positions(&next));
        stage.done(&next).await;
        if order.len() == 1 && order[0] == 4 {
            order.clear();
        }
    }
    order.retain(|position| *position != 4);
    assert_eq!(order[..2], [1, 3]);
    for unknown in ["told:99", "other:1", "told:01"] {
        let message = PutBack { broker_id: unknown.into(), ..back(1) };
        let refused = stage.source.put_back(vec![message]).await.unwrap_err();
        assert!(matches!(refused, PublishError::Source(_)), "{unknown}");
    }
}

#[tokio::test]
async fn an_event_is_found_wherever_it_stands() {
    let stage = Stage::new().await;
    stage.append(["a", "a", "b", "c"].map(said)).await;
    stage.append([NewEvent::of("Other").tag("k", "a")]).await;
    let state = async |position: u64| {
        let found = stage.source.find(&format!("{QUEUE}:{position}")).await.unwrap();
        found.map(|found| found.state)
    };
    // Before anything was read.
    assert_eq!(state(1).await, Some(FoundState::Ready));
    let heads = stage.take(3).await;
    stage.done(&heads[1..2]).await;
    assert_eq!(state(1).await, Some(FoundState::Out));
    assert_eq!(state(2).await, Some(FoundState::Behind("told:1".into())));
    assert_eq!((state(3).await, state(5).await, state(6).await), (None, None, None));
    let found = stage.source.find("told:1").await.unwrap().unwrap();
    assert!(found.body.contains(r#""payload":{"position":1,"type":"Said""#), "{}", found.body);
    assert_eq!(stage.source.discard("told:1").await.unwrap(), Discarded::Out);
    assert_eq!(stage.source.discard("told:2").await.unwrap(), Discarded::Done);
    assert_eq!(state(2).await, None);
}

#[tokio::test]
async fn whoever_opens_a_queue_last_has_it() {
    let older = Stage::new().await;
    older.append(["a", "b", "c"].map(said)).await;
    let of_older = older.take(2).await;
    older.done(&of_older[..1]).await;
    let newer = Stage::of(Arc::clone(&older.engine), settings()).await;
    let of_newer = newer.take(2).await;
    assert_eq!(positions(&of_newer), [2, 3]);
    // What the older one settles now comes again anyhow.
    assert_eq!(older.settle(&of_older[1..], Settlement::Ack).await, [Settled::Stale]);
    let refused = older.source.receive(Demand::any(1)).await.unwrap_err();
    assert!(refused.cause.contains("one reader at a time"), "{refused}");
    assert!(older.source.health().is_err());
    newer.done(&of_newer).await;
    assert_eq!(newer.source.health(), Ok(()));
}
