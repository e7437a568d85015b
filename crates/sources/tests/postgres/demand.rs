//! Only what can run is handed out: by pool, tenants in turn, and in the order that is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    Delivery, Demand, Openings, Order, Ordered, Publication, Room, Rooms, Source,
};
use sluicegate_sources::postgres::PostgresSource;
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::{Instant, sleep};

use crate::stage::{PATIENCE, Sql, database, done, id, ids, lent, open};

const WINDOW: Duration = Duration::from_secs(60);

/// Pools with places that stay taken until somebody gives them back.
#[derive(Default)]
struct Places {
    free: Mutex<BTreeMap<String, u32>>,
    others: Mutex<u32>,
    /// Places that were taken, and those that were asked for in vain.
    taken: Mutex<Vec<String>>,
    refused: Mutex<usize>,
    openings: Arc<Openings>,
}

impl Places {
    fn new(pools: &[(&str, u32)], others: u32) -> Arc<Self> {
        let free = pools.iter().map(|(pool, free)| ((*pool).to_owned(), *free)).collect();
        Arc::new(Self { free: Mutex::new(free), others: Mutex::new(others), ..Self::default() })
    }

    fn demand(self: &Arc<Self>, most: usize) -> Demand {
        Demand::of(most, Arc::clone(self) as _, Arc::clone(&self.openings))
    }

    fn open(&self, pool: &str, places: u32) {
        *self.free.lock().entry(pool.to_owned()).or_default() += places;
        self.openings.open(pool.into());
    }
}

impl Rooms for Places {
    fn take(&self, pool: &str) -> bool {
        let (mut free, mut others) = (self.free.lock(), self.others.lock());
        let places = free.get_mut(pool).unwrap_or(&mut others);
        if *places == 0 {
            *self.refused.lock() += 1;
            return false;
        }
        *places -= 1;
        self.taken.lock().push(pool.to_owned());
        true
    }

    fn room(&self) -> Room {
        let free = self.free.lock();
        let pools = free.iter().map(|(pool, free)| (Arc::from(pool.as_str()), *free)).collect();
        Room { pools, others: *self.others.lock() }
    }
}

/// A message of a tenant; its group is its own unless told.
fn of(id: &str, pool: &str, tenant: &str, group: Option<&str>) -> Publication {
    let mut sent = publication_in(id, pool, group, false);
    sent.message.tenant = (!tenant.is_empty()).then(|| tenant.into());
    sent
}

fn many(prefix: &str, count: usize, pool: &str, tenant: &str) -> Vec<Publication> {
    let sent = |n| {
        let id = format!("{prefix}{n:05}");
        of(&id, pool, tenant, Some(&id))
    };
    (0..count).map(sent).collect()
}

async fn publish(source: &PostgresSource, sent: Vec<Publication>) {
    for part in sent.chunks(1000) {
        source.publish(part.to_vec()).await.unwrap();
    }
}

/// So many deliveries of a demand, in the order in which they were published.
async fn receive(source: &PostgresSource, demand: &Demand, count: usize) -> Vec<Delivery> {
    let end = Instant::now() + PATIENCE;
    let mut received = Vec::new();
    while received.len() < count {
        assert!(Instant::now() < end, "{} of {count} came: {:?}", received.len(), ids(&received));
        let rest = demand.clone().at_most(count - received.len());
        received.extend(source.receive(rest).await.unwrap());
    }
    received.sort_by_key(|delivery| delivery.receipt.tag);
    received
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_room_holds_up_no_other() {
    let Some(server) = lent() else { return };
    let source = open(&database(server.url()).await, WINDOW).await;
    assert!(source.profile().selects);
    publish(&source, many("busy", 1200, "BUSY", "")).await;
    publish(&source, many("idle", 3, "IDLE", "")).await;
    publish(&source, many("new", 2, "UNKNOWN", "")).await;
    let places = Places::new(&[("BUSY", 2), ("IDLE", 4), ("NONE", 5)], 1);
    let begun = Instant::now();
    let received = receive(&source, &places.demand(100), 6).await;
    let took = begun.elapsed();
    let expected = ["busy00000", "busy00001", "idle00000", "idle00001", "idle00002", "new00000"];
    assert_eq!(ids(&received), expected);
    assert!(took < Duration::from_secs(5), "they came after {took:?}");
    // A place for each, and none for nothing.
    assert_eq!(places.taken.lock().len(), 6);
    assert_eq!(source.receive(places.demand(100)).await.unwrap(), []);
    assert_eq!(places.taken.lock().len(), 6);
    assert_eq!(source.depth().await.unwrap().out, 6, "more is hidden than was handed out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_that_waits_is_woken_by_room() {
    let Some(server) = lent() else { return };
    let source = open(&database(server.url()).await, WINDOW).await;
    publish(&source, many("m", 10, "P", "")).await;
    let places = Places::new(&[("P", 0)], 0);
    for round in 0..5 {
        let open = async {
            sleep(Duration::from_millis(200)).await;
            places.open("P", 1);
            Instant::now()
        };
        let (received, opened) = tokio::join!(source.receive(places.demand(10)), open);
        let (received, took) = (received.unwrap(), opened.elapsed());
        assert_eq!(ids(&received), [format!("m{round:05}")]);
        assert!(took < Duration::from_millis(700), "it came {took:?} after there was room");
    }
    assert_eq!(*places.refused.lock(), 0, "what nobody had room for was claimed");
}

/// What was claimed for a receive that was dropped goes to nobody who has no room for it, and is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_place_any_more_goes_back() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    publish(&source, many("m", 3, "P", "")).await;
    publish(&source, many("q", 3, "Q", "")).await;
    let sql = Sql::connect(&url).await;
    let out = "SELECT count(*) FROM sluicegate.messages WHERE token IS NOT NULL";
    let full = Places::new(&[("P", 0), ("Q", 9)], 0);
    let end = Instant::now() + PATIENCE;
    while sql.number(out).await == 0 {
        assert!(Instant::now() < end, "nothing was claimed for who went away");
        let roomy = Places::new(&[("P", 3)], 0);
        let gave_up =
            tokio::time::timeout(Duration::from_millis(1), source.receive(roomy.demand(3))).await;
        assert!(gave_up.is_err(), "{gave_up:?}");
        sleep(Duration::from_millis(50)).await;
    }
    let received = receive(&source, &full.demand(10), 3).await;
    assert!(ids(&received).iter().all(|id| id.starts_with('q')), "{:?}", ids(&received));
    sql.until("handed back", out, 3).await;
    full.open("P", 3);
    let received = receive(&source, &full.demand(10), 3).await;
    assert_eq!(ids(&received), ["m00000", "m00001", "m00002"]);
    assert!(received.iter().all(|delivery| delivery.attempts == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_take_turns() {
    let Some(server) = lent() else { return };
    for ordered in [Ordered::Nothing, Ordered::Groups, Ordered::All] {
        let source = open(&database(server.url()).await, WINDOW).await;
        source.keep_order(&Arc::new(Order::everywhere(ordered)));
        publish(&source, many("a", 2000, "P", "a")).await;
        publish(&source, many("b", 20, "P", "b")).await;
        publish(&source, many("c", 5, "P", "c")).await;
        let places = Places::new(&[("P", 4)], 0);
        let mut counts = BTreeMap::<char, usize>::new();
        for _ in 0..6 {
            let received = receive(&source, &places.demand(4), 4).await;
            for delivery in &received {
                *counts.entry(id(delivery).chars().next().unwrap()).or_default() += 1;
            }
            done(&source, &received).await;
            places.open("P", 4);
        }
        // 24 in all: as many of each, while they have any.
        let expected = BTreeMap::from([('a', 10), ('b', 9), ('c', 5)]);
        let is_fair = counts.iter().all(|(tenant, count)| count.abs_diff(expected[tenant]) <= 1);
        assert!(is_fair && counts.len() == 3, "{ordered:?}: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn high_priority_goes_first_within_its_tenant() {
    let Some(server) = lent() else { return };
    for ordered in [Ordered::Nothing, Ordered::All] {
        let source = open(&database(server.url()).await, WINDOW).await;
        source.keep_order(&Arc::new(Order::everywhere(ordered)));
        publish(&source, many("a", 500, "P", "a")).await;
        publish(&source, many("b", 500, "P", "b")).await;
        // One of a group of its own, and one of a group that waits.
        for (id, group) in [("h1", "h"), ("h2", "a00400")] {
            let mut high = publication_in(id, "P", Some(group), true);
            high.message.tenant = Some("a".into());
            source.publish(vec![high]).await.unwrap();
        }
        let received = receive(&source, &Places::new(&[("P", 4)], 0).demand(4), 4).await;
        assert_eq!(ids(&received), ["b00000", "b00001", "h1", "h2"], "{ordered:?}");
    }
}

/// Which of these come at once, with nothing settled.
async fn at_once(server: &str, order: Order) -> BTreeSet<String> {
    let source = open(&database(server).await, WINDOW).await;
    source.keep_order(&Arc::new(order));
    let groups = [Some("g"), Some("g"), Some("h"), None, None];
    let sent = groups
        .iter()
        .enumerate()
        .flat_map(|(n, group)| ["A", "B"].map(|pool| of(&format!("{pool}{n}"), pool, "", *group)));
    publish(&source, sent.collect()).await;
    let places = Places::new(&[("A", 100)], 100);
    let mut received = BTreeSet::new();
    loop {
        let more = source.receive(places.demand(100)).await.unwrap();
        if more.is_empty() {
            return received;
        }
        received.extend(ids(&more));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_as_it_is_asked_for() {
    let Some(server) = lent() else { return };
    let all = ["0", "1", "2", "3", "4"];
    let groups = ["0", "2", "3", "4"];
    let strict = ["0", "2", "3"];
    let expected = |a: &[&str], b: &[&str]| -> BTreeSet<String> {
        let of = |pool, numbers: &[&str]| -> Vec<String> {
            numbers.iter().map(|number| format!("{pool}{number}")).collect()
        };
        of("A", a).into_iter().chain(of("B", b)).collect()
    };
    for (order, expected) in [
        (Order::default(), expected(&all, &all)),
        (Order::everywhere(Ordered::Groups), expected(&groups, &groups)),
        (Order::everywhere(Ordered::All), expected(&strict, &strict)),
        (Order::of_pools(["B"]), expected(&all, &strict)),
        (Order::everywhere(Ordered::Groups).with("A", Ordered::Nothing), expected(&all, &groups)),
    ] {
        let came = at_once(server.url(), order.clone()).await;
        assert_eq!(came, expected, "{order:?}");
    }
}

/// Consumers ask for whatever there is, from as many daemons as there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_claim_beside_each_other() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (one, two) = (open(&url, WINDOW).await, open(&url, WINDOW).await);
    for source in [&one, &two] {
        source.keep_order(&Arc::new(Order::everywhere(Ordered::Groups)));
    }
    publish(&one, many("m", 200, "P", "t")).await;
    let sql = Sql::connect(&url).await;
    // A claim that is not over yet holds up no other.
    sql.run("BEGIN").await;
    sql.rows(
        "SELECT * FROM sluicegate.claim(1, '{}', '{}', '{}', '{}', 50, 1::smallint, '', '', false, 50, \
         1000000, 60000000, 0)",
    )
    .await;
    let begun = Instant::now();
    let received = receive(&two, &Demand::any(50), 50).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(id(&received[0]), "m00050");
    sql.run("ROLLBACK").await;
    assert_eq!(id(&receive(&one, &Demand::any(50), 50).await[0]), "m00000");
}
