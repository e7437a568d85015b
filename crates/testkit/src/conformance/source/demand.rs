//! Demand: only what has a place is handed out, a pool without room holds up no other, and those who
//! wait take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluicegate_dispatch::{Delivery, FoundState, Settle};
use tokio::time::{Instant, sleep, timeout};

use super::places::Places;
use super::stage::{
    Stage, again, id, ids, of_tenant, publication_in, publication_of, strict, strict_high,
};
use super::{Abilities, Check};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a pool without room holds up no other",
        needs: selects,
        run: |stage| Box::pin(no_room(stage)),
    },
    Check {
        name: "what had no room comes once its pool has",
        needs: selects,
        run: |stage| Box::pin(opened(stage)),
    },
    Check {
        name: "any pool may have room when that is said",
        needs: selects,
        run: |stage| Box::pin(all_opened(stage)),
    },
    Check {
        name: "a pool without room is not asked again and again",
        needs: selects,
        run: |stage| Box::pin(asked_once(stage)),
    },
    Check {
        name: "a place is taken for each message that is handed out, and for no other",
        needs: selects,
        run: |stage| Box::pin(counted(stage)),
    },
    Check {
        name: "a pool that nobody knows goes by its code",
        needs: selects,
        run: |stage| Box::pin(unknown(stage)),
    },
    Check {
        name: "who waits is woken by a pool that has room again",
        needs: selects,
        run: |stage| Box::pin(woken(stage)),
    },
    Check {
        name: "one tenant's backlog holds up no other tenant",
        needs: selects,
        run: |stage| Box::pin(tenants(stage)),
    },
    Check {
        name: "tenants take turns, as many as they are",
        needs: selects,
        run: |stage| Box::pin(many_tenants(stage)),
    },
    Check {
        name: "a tenant that was away gets its turn, and no more than that",
        needs: selects,
        run: |stage| Box::pin(no_credit(stage)),
    },
    Check {
        name: "a tenant that comes back for each message gets its turn, and no more",
        needs: selects,
        run: |stage| Box::pin(no_gain_by_leaving(stage)),
    },
    Check { name: "pools take turns", needs: selects, run: |stage| Box::pin(pools(stage)) },
    Check {
        name: "of a tenant high priority goes first",
        needs: selects,
        run: |stage| Box::pin(high_first(stage)),
    },
    Check {
        name: "a group of several tenants is kept in order",
        needs: |abilities| abilities.selects && abilities.keeps_order,
        run: |stage| Box::pin(group_of_tenants(stage)),
    },
    Check {
        name: "order is kept while pools fill up and open",
        needs: |abilities| abilities.selects && abilities.keeps_order,
        run: |stage| Box::pin(order_and_rooms(stage)),
    },
    Check {
        name: "retries of a pool without room hold up no other",
        needs: selects,
        run: |stage| Box::pin(retries(stage)),
    },
    Check {
        name: "what has no room is found as what it is",
        needs: |abilities| abilities.selects && abilities.finds && abilities.keeps_order,
        run: |stage| Box::pin(found(stage)),
    },
    Check {
        name: "nothing is lost when receives are dropped at any moment",
        needs: selects,
        run: |stage| Box::pin(dropped(stage)),
    },
];

const fn selects(abilities: &Abilities) -> bool {
    abilities.selects
}

impl Stage {
    /// Exactly `count` deliveries that there is demand for.
    async fn receive_for(&self, places: &Places, count: usize) -> Vec<Delivery> {
        let end = Instant::now() + Duration::from_secs(30) + self.window() * 3;
        let mut received = Vec::new();
        while received.len() < count {
            let some = self.source().receive(places.demand(count - received.len())).await;
            received.extend(some.expect("it hands out"));
            assert!(
                Instant::now() < end,
                "{} of {count} came: {:?}",
                received.len(),
                ids(&received)
            );
        }
        received
    }

    /// Nothing comes that there is demand for.
    async fn expect_none_for(&self, places: &Places) {
        let received = timeout(self.window() / 4, self.source().receive(places.demand(100))).await;
        let received = received.map_or_else(|_| Vec::new(), |some| some.expect("it hands out"));
        assert!(received.is_empty(), "without room: {:?}", ids(&received));
    }

    async fn publish_many(&self, count: usize, name: &str, pool: &str, tenant: &str) {
        let messages = (0..count).map(|n| publication_of(&format!("{name}{n}"), pool, tenant));
        self.publish(messages.collect()).await;
    }

    /// The first letters of the next ids, one message after the other.
    async fn next_names(&self, count: usize) -> String {
        let mut names = String::new();
        for _ in 0..count {
            let delivery = self.receive_one().await;
            names.push_str(&id(&delivery)[..1]);
            self.done(&delivery).await;
        }
        names
    }
}

fn count(names: &str, name: char) -> usize {
    names.chars().filter(|letter| *letter == name).count()
}

async fn no_room(stage: Stage) {
    stage.publish_many(50, "f", "FULL", "t").await;
    stage.publish_many(2, "i", "IDLE", "t").await;
    let places = Places::of(&[("FULL", 0), ("IDLE", 10)]);
    assert_eq!(ids(&stage.receive_for(&places, 2).await), ["i0", "i1"]);
    stage.expect_none_for(&places).await;
    // Nor what comes later.
    stage.publish_many(1, "j", "IDLE", "t").await;
    assert_eq!(ids(&stage.receive_for(&places, 1).await), ["j0"]);
}

async fn opened(stage: Stage) {
    stage.publish_many(5, "f", "FULL", "t").await;
    let places = Places::of(&[]);
    stage.expect_none_for(&places).await;
    places.open("FULL", 2);
    assert_eq!(ids(&stage.receive_for(&places, 2).await), ["f0", "f1"]);
    stage.expect_none_for(&places).await;
    places.open("FULL", 9);
    assert_eq!(ids(&stage.receive_for(&places, 3).await), ["f2", "f3", "f4"]);
}

async fn all_opened(stage: Stage) {
    stage.publish_many(1, "f", "FULL", "t").await;
    stage.publish_many(1, "g", "GONE", "t").await;
    let places = Places::of(&[]);
    stage.expect_none_for(&places).await;
    places.add("FULL", 1);
    places.add("GONE", 1);
    places.open_all();
    let mut received = ids(&stage.receive_for(&places, 2).await);
    received.sort();
    assert_eq!(received, ["f0", "g0"]);
}

async fn asked_once(stage: Stage) {
    stage.publish_many(20, "f", "FULL", "t").await;
    let places = Places::of(&[("IDLE", 100)]);
    for n in 0..20 {
        stage.publish_many(1, &format!("i{n}-"), "IDLE", "t").await;
        let received = stage.receive_for(&places, 1).await;
        stage.all_done(&received).await;
    }
    let refused = places.refused("FULL");
    assert!(refused <= 1, "it was asked {refused} times");
}

async fn counted(stage: Stage) {
    for (name, pool) in [("a", "A"), ("b", "B"), ("c", "C")] {
        stage.publish_many(10, name, pool, "t").await;
    }
    let places = Places::of(&[("A", 3), ("B", 2), ("C", 20)]);
    // No more places than messages are asked for.
    let two = stage.receive_for(&places, 2).await;
    let taken = |places: &Places| ["A", "B", "C"].map(|pool| places.taken(pool));
    assert_eq!(taken(&places).iter().sum::<u32>(), 2);
    let mut received = stage.receive_for(&places, 13).await;
    received.extend(two);
    stage.expect_none_for(&places).await;
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    for id in ids(&received) {
        *names.entry(id[..1].to_owned()).or_default() += 1;
    }
    assert_eq!(names, BTreeMap::from([("a".into(), 3), ("b".into(), 2), ("c".into(), 10)]));
    assert_eq!(taken(&places), [3, 2, 10]);
    stage.all_done(&received).await;
    assert_eq!(stage.source().depth().await.expect("it works").waiting, 15);
}

async fn unknown(stage: Stage) {
    stage.publish_many(2, "n", "NOPE", "t").await;
    stage.publish_many(2, "e", "ELSE", "t").await;
    let places = Places::of(&[("ELSE", 5)]);
    assert_eq!(ids(&stage.receive_for(&places, 2).await), ["e0", "e1"]);
    stage.expect_none_for(&places).await;
    // Without rooms, all of it may come.
    let mut rest = stage.next_ids(2).await;
    rest.sort();
    assert_eq!(rest, ["n0", "n1"]);
}

async fn woken(stage: Stage) {
    stage.publish_many(1, "f", "FULL", "t").await;
    let places = Places::of(&[]);
    stage.expect_none_for(&places).await;
    let open = async {
        sleep(Duration::from_millis(30)).await;
        places.open("FULL", 1);
        Instant::now()
    };
    let wait = async {
        let received = stage.source().receive(places.demand(10)).await.expect("it works");
        (received, Instant::now())
    };
    let (opened, (received, at)) = tokio::join!(open, wait);
    assert_eq!(ids(&received), ["f0"]);
    let took = at.saturating_duration_since(opened);
    assert!(took < Duration::from_millis(500), "it came after {took:?}");
}

async fn tenants(stage: Stage) {
    stage.publish_many(2000, "b", "POOL", "big").await;
    assert_eq!(count(&stage.next_names(4).await, 'b'), 4);
    stage.publish_many(3, "s", "POOL", "small").await;
    let names = stage.next_names(8).await;
    assert_eq!(count(&names, 's'), 3, "{names}");
    // In one batch too.
    stage.publish_many(3, "t", "POOL", "third").await;
    let names: String = ids(&stage.receive(20).await).iter().map(|id| &id[..1]).collect();
    assert_eq!(count(&names[..8], 't'), 3, "{names}");
}

async fn many_tenants(stage: Stage) {
    const TENANTS: usize = 30;
    for round in 0..3 {
        let of = |n: usize| publication_of(&format!("{n}/{round}"), "POOL", &format!("t{n}"));
        stage.publish((0..TENANTS).map(of).collect()).await;
    }
    for round in 0..3 {
        let received = stage.receive(TENANTS).await;
        let mut ids = ids(&received);
        ids.sort();
        let mut expected: Vec<String> = (0..TENANTS).map(|n| format!("{n}/{round}")).collect();
        expected.sort();
        assert_eq!(ids, expected);
    }
}

async fn no_credit(stage: Stage) {
    stage.publish_many(1, "s", "POOL", "sleeper").await;
    stage.publish_many(100, "b", "POOL", "busy").await;
    stage.next_names(51).await;
    stage.publish_many(30, "s", "POOL", "sleeper").await;
    // Ids seen before are not stored again, but for the first.
    let names = stage.next_names(20).await;
    let slept = count(&names, 's');
    assert!((9..=11).contains(&slept), "{names}");
}

async fn no_gain_by_leaving(stage: Stage) {
    stage.publish_many(100, "b", "POOL", "busy").await;
    let mut names = String::new();
    for n in 0..20 {
        // It is there with one message whenever a message is handed out.
        if !names.ends_with('b') {
            stage.publish_many(1, &format!("o{n}-"), "POOL", "one").await;
        }
        names.push_str(&stage.next_names(1).await);
    }
    let busy = count(&names, 'b');
    assert!(busy >= 9, "{names}");
}

async fn pools(stage: Stage) {
    stage.publish_many(500, "a", "A", "t").await;
    stage.next_names(3).await;
    stage.publish_many(3, "b", "B", "t").await;
    stage.publish_many(3, "c", "C", "u").await;
    let names = stage.next_names(12).await;
    assert_eq!((count(&names, 'b'), count(&names, 'c')), (3, 3), "{names}");
}

async fn high_first(stage: Stage) {
    stage.publish_many(200, "b", "POOL", "t").await;
    assert_eq!(stage.next_names(2).await, "bb");
    let high = |id| of_tenant(publication_in(id, "POOL", None, true), "t");
    stage.publish(vec![high("h1"), high("h2")]).await;
    assert_eq!(stage.next_ids(3).await, ["h1", "h2", "b2"]);
}

async fn group_of_tenants(stage: Stage) {
    stage.keep_order();
    let of = |n: usize| of_tenant(strict(&format!("g{n:02}"), "g"), ["x", "y", "z"][n * 7 % 3]);
    stage.publish((0..12).map(of).collect()).await;
    stage.publish_many(20, "other", "STRICT", "y").await;
    let high = of_tenant(strict_high("h", "g"), "w");
    stage.publish(vec![high]).await;
    let mut seen = Vec::new();
    while seen.len() < 13 {
        let received = stage.receive_one().await;
        if received.message.as_ref().expect("it works").group.is_some() {
            seen.push(id(&received));
        }
        stage.done(&received).await;
    }
    let expected = (0..12).map(|n| format!("g{n:02}"));
    assert_eq!(seen, ["h".to_owned()].into_iter().chain(expected).collect::<Vec<_>>());
}

async fn order_and_rooms(stage: Stage) {
    stage.keep_order();
    let of = |n: usize| {
        let (group, tenant) = (["g", "h", "i"][n % 3], ["x", "y"][n * 5 % 4 / 2]);
        of_tenant(strict(&format!("{group}{:02}", n / 3), group), tenant)
    };
    stage.publish((0..60).map(of).collect()).await;
    let places = Places::of(&[("STRICT", 2)]);
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for round in 0..1000 {
        if seen.values().map(Vec::len).sum::<usize>() == 60 {
            break;
        }
        let received = stage.source().receive(places.demand(5)).await.expect("it works");
        let mut keys = BTreeSet::new();
        for (n, delivery) in received.iter().enumerate() {
            let id = id(delivery);
            assert!(keys.insert(id[..1].to_owned()), "two of a group: {:?}", ids(&received));
            if (round + n) % 4 == 3 {
                stage.bring_back(delivery, Duration::from_millis(((round + n) % 3) as u64)).await;
            } else {
                seen.entry(id[..1].to_owned()).or_default().push(id);
                stage.done(delivery).await;
            }
            places.open("STRICT", 1);
        }
    }
    for (group, seen) in seen {
        assert_eq!(seen, (0..20).map(|n| format!("{group}{n:02}")).collect::<Vec<_>>());
    }
}

async fn retries(stage: Stage) {
    const MANY: usize = 1500;
    stage.publish_many(MANY, "f", "FULL", "t").await;
    stage.publish_many(1, "i", "IDLE", "t").await;
    let places = Places::of(&[("FULL", MANY as u32), ("IDLE", 1)]);
    let received = stage.receive_for(&places, MANY + 1).await;
    let delay = stage.window() / 10;
    for part in received.chunks(stage.source().profile().settle_batch) {
        let settle = |delivery: &Delivery| Settle {
            receipt: delivery.receipt.clone(),
            settlement: again(delay),
        };
        stage.source().settle(part.iter().map(settle).collect()).await.expect("it settles");
    }
    sleep(delay * 2).await;
    places.open("IDLE", 1);
    assert_eq!(ids(&stage.receive_for(&places, 1).await), ["i0"]);
    places.open("FULL", 3);
    assert_eq!(stage.receive_for(&places, 3).await.len(), 3);
}

async fn found(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    stage.publish_many(2, "p", "PLAIN", "t").await;
    let places = Places::of(&[("PLAIN", 1)]);
    let received = stage.receive_for(&places, 1).await;
    stage.expect_none_for(&places).await;
    let state = |id: &'static str| async {
        stage.source().find(id).await.expect("it works").expect("it is there").state
    };
    assert_eq!(ids(&received), ["p0"]);
    assert_eq!(state("p0").await, FoundState::Out);
    assert_eq!(state("p1").await, FoundState::Ready);
    assert_eq!(state("a1").await, FoundState::Ready);
    assert_eq!(state("a2").await, FoundState::Behind("a1".into()));
    stage.bring_back(&received[0], stage.window()).await;
    assert!(matches!(state("p0").await, FoundState::Delayed { .. }));
}

async fn dropped(stage: Stage) {
    let all: BTreeSet<String> = (0..300).map(|n| format!("m{n}")).collect();
    let of = |(n, id): (usize, &String)| {
        publication_of(id, ["A", "B", "C"][n % 3], ["t", "u"][n / 3 % 2])
    };
    stage.publish(all.iter().enumerate().map(of).collect()).await;
    let places = Places::of(&[("A", 2), ("B", 3), ("C", 1)]);
    let mut seen = BTreeSet::new();
    let end = Instant::now() + Duration::from_secs(30) + stage.window() * 3;
    let mut round = 0;
    while seen.len() < all.len() {
        assert!(Instant::now() < end, "{} of {} came", seen.len(), all.len());
        round += 1;
        let receive = stage.source().receive(places.lent(4));
        let received = match round % 3 {
            0 => timeout(Duration::ZERO, receive).await.ok(),
            1 => timeout(Duration::from_micros(round % 500), receive).await.ok(),
            _ => Some(receive.await),
        };
        let Some(received) = received else { continue };
        let received = received.expect("it works");
        for id in ids(&received) {
            assert!(seen.insert(id.clone()), "{id} came twice");
        }
        stage.all_done(&received).await;
    }
    stage.expect_nothing_now().await;
    // Every place is back.
    let places = places.demand(0).room().expect("there are rooms").pools;
    assert_eq!(places, [("A".into(), 2), ("B".into(), 3), ("C".into(), 1)]);
}
