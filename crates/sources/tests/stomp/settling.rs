//! Every settlement is answered by itself, waits for no other, and leaves nothing hidden.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::{
    Demand, Envelope, Order, Ordered, Publication, Reason, Settle, Settled, Settlement, Source,
};
use sluicegate_sources::stomp::{StompSettings, StompSource};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep, timeout};

use crate::peer::say;
use crate::rig::{fresh_name, settings};
use crate::stage::{
    PATIENCE, again, expect_nothing, id, ids, numbered, open, publish, receipts, receive, settle,
    settle_all, within,
};

/// Hands back what was not tried.
fn untried(attempts: u32) -> Settlement {
    Settlement::Retry { after: Duration::ZERO, attempts, reason: Reason::Draining }
}

/// A broker with other settings.
fn broker_with(change: impl FnOnce(String) -> String) -> Option<Broker> {
    let mut broker = start_or_skip(Kind::ActiveMq)?;
    broker.crash();
    let path = broker.folder().join("conf/activemq.xml");
    let (before, after) = {
        let text = std::fs::read_to_string(&path).unwrap();
        (text.clone(), change(text))
    };
    assert_ne!(before, after);
    std::fs::write(&path, after).unwrap();
    broker.restart().unwrap();
    Some(broker)
}

/// A user who may read and not write cannot send a copy that comes later.
#[tokio::test]
async fn a_copy_that_is_refused_holds_only_itself() {
    let reader = r#"<authenticationUser username="carol" password="secret" groups="readers"/>
        </users>"#;
    let broker = broker_with(|text| {
        let text = text.replace("</users>", reader);
        let text = text.replace(r#"read="anonymous,users""#, r#"read="anonymous,users,readers""#);
        text.replace(r#"admin="anonymous,users""#, r#"admin="anonymous,users,readers""#)
    });
    let Some(broker) = broker else { return };
    let queue = fresh_name();
    let sender = open(settings(&broker, &queue)).await;
    publish(&sender, numbered(6)).await;
    let uri = format!("activemq://carol:secret@{}/{queue}", broker.address());
    let source = open(StompSettings::parse(&uri).unwrap()).await;
    let received = receive(&source, 6).await;
    let retry = |n: usize| Settle {
        receipt: received[n].receipt.clone(),
        settlement: again(Duration::from_secs(1), 1),
    };
    let ack = |n: usize| Settle::ack(received[n].receipt.clone());
    let ends = vec![ack(0), retry(1), ack(2), retry(3)];
    let answers = within(source.settle(ends)).await.expect("each is answered by itself");
    assert_eq!([&answers[0], &answers[2]], [&Settled::Done; 2], "{answers:?}");
    for failed in [&answers[1], &answers[3]] {
        let is_said = |why: &str| why.contains("carol") || why.contains("not authorized");
        assert!(matches!(failed, Settled::Failed(why) if is_said(&why.cause)), "{answers:?}");
    }
    // Their receipts and those of others stay valid: the connection is the same.
    source.health().unwrap();
    let all = receipts(&received[3..]);
    assert_eq!(within(source.extend(all.clone())).await.unwrap(), vec![Settled::Done; 3]);
    let settled = settle_all(&source, all, Settlement::Ack).await.unwrap();
    assert_eq!(settled, vec![Settled::Done; 3]);
    assert_eq!(settle(&source, &received[1], untried(0)).await, Settled::Done);
    assert_eq!(ids(&receive(&source, 1).await), ["m001"]);
}

/// A broker whose store is full stops reading from whoever sends. Acknowledging is what makes room again.
#[tokio::test]
async fn acks_wait_for_no_copy_that_the_broker_does_not_take() {
    let broker = broker_with(|text| {
        let text = text.replace(r#"<storeUsage limit="512 mb"/>"#, r#"<storeUsage limit="9 mb"/>"#);
        text.replace("journalMaxFileLength=", r#"cleanupInterval="500" journalMaxFileLength="#)
    });
    let Some(broker) = broker else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    let large = |n: usize| {
        let sent = publication(&format!("m{n:03}"));
        let pad = format!(r#"{{"pad":"{}","#, "x".repeat(200_000));
        Publication { body: sent.body.replacen('{', &pad, 1).into(), ..sent }
    };
    let mut stored = 0;
    while let Ok(sent) = timeout(Duration::from_secs(3), source.publish(vec![large(stored)])).await
    {
        sent.unwrap();
        stored += 1;
        assert!(stored < 200, "it is never full");
    }
    assert!(stored > 4, "{stored}");
    let received = receive(&source, stored).await;
    let retry = Settle {
        receipt: received[0].receipt.clone(),
        settlement: again(Duration::from_millis(100), 1),
    };
    let copied = source.settle(vec![retry.clone()]);
    let acked = async {
        let begun = Instant::now();
        let rest = receipts(&received[1..]);
        let settled = settle_all(&source, rest, Settlement::Ack).await.unwrap();
        assert_eq!(settled, vec![Settled::Done; stored - 1]);
        begun.elapsed()
    };
    let (copied, took) = tokio::join!(copied, acked);
    assert!(took < Duration::from_secs(10), "acks took {took:?} beside a copy that is not taken");
    // It heals by itself.
    let mut copied = copied.unwrap().remove(0);
    let end = Instant::now() + PATIENCE;
    while copied != Settled::Done {
        assert!(matches!(copied, Settled::Failed(_)) && Instant::now() < end, "{copied:?}");
        sleep(Duration::from_millis(500)).await;
        copied = within(source.settle(vec![retry.clone()])).await.unwrap().remove(0);
    }
    // With it comes what could not be published at first.
    let back = receive(&source, 2).await;
    assert!(back.iter().any(|delivery| delivery.broker_id == received[0].broker_id), "{back:?}");
}

/// What is being settled when the heartbeat comes has not expired.
#[tokio::test]
async fn a_heartbeat_that_meets_a_settlement_is_no_expiry() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    publish(&source, numbered(40)).await;
    let received = receive(&source, 40).await;
    let end = |n: usize| match n % 3 {
        0 => Settlement::Ack,
        1 => again(Duration::from_secs(60), 1),
        _ => Settlement::Park,
    };
    let ends = received
        .iter()
        .enumerate()
        .map(|(n, delivery)| Settle { receipt: delivery.receipt.clone(), settlement: end(n) });
    let settled = source.settle(ends.collect());
    let mut settled = std::pin::pin!(settled);
    let mut rounds = 0;
    let answers = loop {
        // Whoever settles has not been answered, so nothing is known to be over.
        let extended = within(source.extend(receipts(&received))).await.unwrap();
        assert_eq!(extended, vec![Settled::Done; 40], "round {rounds}");
        rounds += 1;
        tokio::select! {
            biased;
            answers = &mut settled => break answers.unwrap(),
            () = sleep(Duration::from_micros(200)) => {}
        }
    };
    assert_eq!(answers, vec![Settled::Done; 40]);
    let extended = within(source.extend(receipts(&received))).await.unwrap();
    assert_eq!(extended, vec![Settled::Stale; 40]);
}

#[tokio::test]
async fn after_a_stop_nothing_is_hidden() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    for stops_first in [true, false] {
        let source = open(settings.clone()).await;
        if stops_first {
            publish(&source, numbered(200)).await;
        }
        let received = receive(&source, 80).await;
        if stops_first {
            within(source.stop()).await;
        }
        let settled = settle_all(&source, receipts(&received), untried(0)).await.unwrap();
        assert_eq!(settled, vec![Settled::Done; 80]);
        if !stops_first {
            within(source.stop()).await;
        }
        // Another client gets all of them at once, and in their order.
        let other = open(settings.clone()).await;
        let begun = Instant::now();
        let all = receive(&other, 200).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "after {:?}", begun.elapsed());
        assert_eq!(ids(&all), numbered(200), "stops first: {stops_first}");
        assert!(all.iter().all(|delivery| delivery.attempts == 0));
    }
}

#[tokio::test]
async fn handing_back_untried_counts_no_attempt_and_buries_nothing() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let source = open(settings.clone()).await;
    publish(&source, numbered(1)).await;
    drop(source);
    // More often than ActiveMQ's own limit of six redeliveries.
    for round in 0..9 {
        let source = open(settings.clone()).await;
        let received = receive(&source, 1).await;
        assert_eq!(received[0].attempts, 0, "round {round}");
        assert_eq!(settle(&source, &received[0], untried(0)).await, Settled::Done);
        within(source.stop()).await;
    }
}

#[tokio::test]
async fn equal_messages_are_different_messages() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let queue = fresh_name();
    let source = open(settings(&broker, &queue)).await;
    let body = publication("same").body.to_string();
    let head = format!("SEND\ndestination:/queue/{queue}\nreceipt:r\npersistent:true\n\n");
    say(broker.address(), &head, body.as_bytes()).await;
    let first = receive(&source, 1).await.remove(0);
    // Put in again while the first one is out.
    say(broker.address(), &head, body.as_bytes()).await;
    let second = receive(&source, 1).await.remove(0);
    assert_eq!((id(&first), id(&second)), ("same".to_owned(), "same".to_owned()));
    assert_ne!(first.broker_id, second.broker_id);
    assert_eq!(settle(&source, &second, Settlement::Ack).await, Settled::Done);
    assert_eq!(settle(&source, &first, Settlement::Ack).await, Settled::Done);
    expect_nothing(&source, Duration::from_secs(1)).await;
}

/// Also in a pool that keeps order: held back until the first one is done, it would be called once more.
#[tokio::test]
async fn what_is_put_in_again_while_it_is_in_flight_is_shown_at_once() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    source.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    let strict = |id: &str| publication_in(id, "STRICT", Some("g"), false);
    within(source.publish(vec![strict("a"), strict("b")])).await.unwrap();
    let first = receive(&source, 1).await.remove(0);
    within(source.publish(vec![strict("a")])).await.unwrap();
    let again = receive(&source, 1).await.remove(0);
    assert_eq!((id(&first), id(&again)), ("a".to_owned(), "a".to_owned()));
    assert_ne!(first.broker_id, again.broker_id);
    // The engine removes it; what comes after the first one still waits for that.
    assert_eq!(settle(&source, &again, Settlement::Ack).await, Settled::Done);
    expect_nothing(&source, Duration::from_millis(500)).await;
    assert_eq!(settle(&source, &first, Settlement::Ack).await, Settled::Done);
    assert_eq!(ids(&receive(&source, 1).await), ["b"]);
}

/// Somebody copies a message that was retried, with all its headers, while it is here.
#[tokio::test]
async fn a_copy_made_by_others_is_another_message() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let queue = fresh_name();
    let source = open(settings(&broker, &queue)).await;
    publish(&source, numbered(1)).await;
    let first = receive(&source, 1).await.remove(0);
    assert_eq!(settle(&source, &first, again(Duration::from_millis(50), 1)).await, Settled::Done);
    let retried = receive(&source, 1).await.remove(0);
    assert_eq!(first.broker_id, retried.broker_id);
    let of = retried.broker_id.replace(':', "\\c");
    let head = format!(
        "SEND\ndestination:/queue/{queue}\nreceipt:r\npersistent:true\nsluicegateFirst:{of}\n\n"
    );
    say(broker.address(), &head, publication("m000").body.as_bytes()).await;
    let copy = receive(&source, 1).await.remove(0);
    assert_eq!(id(&copy), "m000");
    assert_ne!(copy.broker_id, retried.broker_id);
    assert_eq!(settle(&source, &copy, Settlement::Ack).await, Settled::Done);
    assert_eq!(settle(&source, &retried, Settlement::Ack).await, Settled::Done);
}

/// Many are out at once. How many a broker sends ahead of acknowledgements is its own: it pages by the 200.
#[tokio::test]
async fn two_hundred_are_out_and_kept_alive() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    let some = (0..200).map(|n| publication(&format!("m{n:04}"))).collect();
    within(source.publish(some)).await.unwrap();
    let mut received = Vec::new();
    while received.len() < 200 {
        received.extend(receive(&source, 100).await);
    }
    let distinct: BTreeSet<_> = received.iter().map(|delivery| &delivery.broker_id).collect();
    assert_eq!(distinct.len(), 200);
    let extended = within(source.extend(receipts(&received))).await.unwrap();
    assert_eq!(extended, vec![Settled::Done; 200]);
    let depth = within(source.depth()).await.unwrap();
    assert_eq!((depth.waiting, depth.out), (0, 200));
    for some in received.chunks(source.profile().settle_batch) {
        let settled = settle_all(&source, receipts(some), Settlement::Ack).await.unwrap();
        assert_eq!(settled, vec![Settled::Done; some.len()]);
    }
}

/// A consumer's messages stay in order by their groups, and those without one wait for nothing.
#[tokio::test]
async fn envelopes_of_a_group_stay_in_order() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let queue = fresh_name();
    let source: StompSource<Envelope> =
        within(StompSource::open(settings(&broker, &queue))).await.unwrap();
    source.keep_order(&Arc::new(Order::everywhere(Ordered::Groups)));
    let of = |id: &str, group: Option<&str>| publication_in(id, "ANY", group, false);
    let sent = vec![
        of("a1", Some("a")),
        of("a2", Some("a")),
        of("x1", None),
        of("b1", Some("b")),
        of("x2", None),
        of("a3", Some("a")),
    ];
    within(source.publish(sent)).await.unwrap();
    let name = |delivery: &sluicegate_dispatch::Delivery<Envelope>| {
        delivery.message.as_ref().unwrap().id.as_deref().unwrap().to_owned()
    };
    let first = receive(&source, 4).await;
    assert_eq!(first.iter().map(name).collect::<Vec<_>>(), ["a1", "x1", "b1", "x2"]);
    assert!(within(source.receive(Demand::any(9))).await.unwrap().is_empty());
    // A head that comes again later holds its group.
    assert_eq!(settle(&source, &first[0], again(Duration::from_secs(1), 1)).await, Settled::Done);
    let head = receive(&source, 1).await.remove(0);
    assert_eq!((name(&head), head.attempts), ("a1".to_owned(), 1));
    assert_eq!(settle(&source, &head, Settlement::Ack).await, Settled::Done);
    for expected in ["a2", "a3"] {
        let next = receive(&source, 1).await.remove(0);
        assert_eq!(name(&next), expected);
        assert_eq!(settle(&source, &next, Settlement::Ack).await, Settled::Done);
    }
}

/// However many were acknowledged before, a few at a time, over one connection.
#[tokio::test]
async fn the_last_acks_of_many_are_as_quick_as_the_first() {
    const LOTS: usize = 40;
    const LOT: usize = 100;
    const AT_ONCE: usize = 4;
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    for _ in 0..LOTS {
        publish(&source, numbered(LOT)).await;
    }
    let mut took = Vec::new();
    for _ in 0..LOTS {
        let received = receive(&source, LOT).await;
        let begun = Instant::now();
        let ack = |some| settle_all(&source, receipts(some), Settlement::Ack);
        for settled in join_all(received.chunks(AT_ONCE).map(ack)).await {
            assert_eq!(settled.unwrap(), vec![Settled::Done; AT_ONCE]);
        }
        took.push(begun.elapsed());
    }
    let of = |lots: &[Duration]| lots.iter().sum::<Duration>();
    let (first, last) = (of(&took[..LOTS / 4]), of(&took[LOTS - LOTS / 4..]));
    println!("{first:?} for the first quarter, {last:?} for the last");
    // The machine may be busy with something else for a moment.
    assert!(last < first * 2 + Duration::from_secs(3), "{took:?}");
}
