//! Cuts, crashes, restarts and silences: nothing is lost, nothing stays stuck.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Message, Settle, Settled, Settlement, Source, SourceError};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::Wire;
use crate::rig::{again, ids, open, receive, server, settle, until, uri};

/// Long enough not to end while a test looks elsewhere.
const LONG: Duration = Duration::from_secs(120);

async fn publish(source: &NatsSource<Message>, names: impl IntoIterator<Item = String>) {
    let messages: Vec<_> = names.into_iter().map(|name| publication(&name)).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    // The server recognises what it has stored already.
    while source.publish(messages.clone()).await.is_err() {
        assert!(Instant::now() < deadline, "it takes nothing in");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The one settlement did not work.
fn is_failed(answer: Result<Vec<Settled>, SourceError>) {
    let is_failed = matches!(answer.as_deref(), Err(_) | Ok([Settled::Failed(_)]));
    assert!(is_failed, "{answer:?}");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("m{n:03}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_comes_back_and_its_receipts_stay_valid() {
    let Some(broker) = server() else { return };
    let wire = Wire::to(broker.address()).await;
    let source = open(&wire.url(), "cut", LONG).await;
    publish(&source, names(20)).await;
    let mut seen = BTreeSet::new();
    for round in 0..5 {
        let received = receive(&source, 2).await;
        wire.cut();
        for delivery in &received {
            assert_eq!(settle(&source, &delivery.receipt, Settlement::Ack).await, Settled::Done);
        }
        seen.extend(ids(&received));
        assert_eq!(seen.len(), (round + 1) * 2, "some came twice");
        assert_eq!(
            source.extend(vec![received[0].receipt.clone()]).await.unwrap(),
            [Settled::Stale]
        );
    }
    until("it is well again", async || source.health().is_ok()).await;
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.out), (10, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_wait_while_connections_are_cut_get_everything() {
    let Some(broker) = server() else { return };
    let wire = Wire::to(broker.address()).await;
    let (source, direct) =
        (open(&wire.url(), "cuts", Duration::from_secs(3)).await, broker.url().to_owned());
    let sender = open(&direct, "cuts", Duration::from_secs(3)).await;
    let sent: BTreeSet<String> = names(200).into_iter().collect();
    let publish = async {
        for part in names(200).chunks(10) {
            publish(&sender, part.to_vec()).await;
            sleep(Duration::from_millis(50)).await;
            wire.cut();
        }
    };
    let mut seen = BTreeSet::new();
    let work = async {
        while seen.len() < sent.len() {
            for delivery in receive(&source, 1).await {
                // Stale: told just before a cut, or delivered again meanwhile.
                settle(&source, &delivery.receipt, Settlement::Ack).await;
                seen.extend(ids(&[delivery]));
            }
        }
    };
    let both = async { tokio::join!(publish, work) };
    timeout(Duration::from_secs(90), both).await.expect("all come");
    assert_eq!(seen, sent);
    until("all are settled", async || {
        if let Ok(Ok(some)) =
            timeout(Duration::from_millis(100), source.receive(Demand::any(10))).await
        {
            for delivery in some {
                settle(&source, &delivery.receipt, Settlement::Ack).await;
            }
        }
        sender.depth().await.is_ok_and(|depth| depth.waiting == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_loses_nothing() {
    let Some(mut broker) = server() else { return };
    let window = Duration::from_secs(5);
    let source = open(broker.url(), "crash", window).await;
    let sent: BTreeSet<String> = names(60).into_iter().collect();
    publish(&source, sent.iter().cloned()).await;
    let mut done = BTreeSet::new();
    for round in 0..4 {
        let received = receive(&source, 10).await;
        let settled = &received[..5];
        for delivery in settled {
            assert_eq!(settle(&source, &delivery.receipt, Settlement::Ack).await, Settled::Done);
        }
        done.extend(ids(settled));
        broker.crash();
        assert!(source.settle(vec![]).await.is_ok());
        if round % 2 == 0 {
            until("the loss is noticed", async || source.health().is_err()).await;
            let gone = Settle { receipt: received[5].receipt.clone(), settlement: Settlement::Ack };
            is_failed(source.settle(vec![gone]).await);
        }
        broker.restart().unwrap();
        // Ours still, unless the window ended meanwhile.
        for delivery in &received[5..] {
            if settle(&source, &delivery.receipt, Settlement::Ack).await == Settled::Done {
                done.extend(ids(std::slice::from_ref(delivery)));
            }
        }
    }
    while done.len() < sent.len() {
        for delivery in receive(&source, 1).await {
            if settle(&source, &delivery.receipt, Settlement::Ack).await == Settled::Done {
                done.extend(ids(std::slice::from_ref(&delivery)));
            }
        }
    }
    assert_eq!(done, sent);
    // Nothing that was done comes again, though the server may have forgotten that it was.
    let rest = timeout(window + Duration::from_secs(2), receive(&source, 1)).await;
    assert!(rest.is_err(), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_retry_outlives_crashes_of_both_ends() {
    let Some(mut broker) = server() else { return };
    let window = Duration::from_secs(3);
    for round in 0..8 {
        let queue = format!("delayed{round}");
        let mut source = open(broker.url(), &queue, window).await;
        publish(&source, names(5)).await;
        let received = receive(&source, 5).await;
        let begun = Instant::now();
        let delay = Duration::from_secs(4);
        let all = received
            .iter()
            .map(|delivery| Settle { receipt: delivery.receipt.clone(), settlement: again(delay) });
        let settled = source.settle(all.collect());
        if round % 4 == 0 {
            // The crash comes while it is being told.
            let told = timeout(Duration::from_micros(200 * round), settled).await;
            broker.crash();
            drop(told);
        } else {
            assert_eq!(settled.await.unwrap(), vec![Settled::Done; 5]);
            broker.crash();
        }
        let is_kept = round % 2 == 1;
        if !is_kept {
            drop(source);
        }
        broker.restart().unwrap();
        source = open(broker.url(), &queue, window).await;
        let back = receive(&source, 5).await;
        let mut back_ids = ids(&back);
        back_ids.sort();
        assert_eq!(back_ids, names(5), "round {round}");
        if round % 4 != 0 {
            let took = begun.elapsed();
            assert!(took + Duration::from_millis(20) >= delay, "round {round}: after {took:?}");
            assert!(back.iter().all(|delivery| delivery.attempts == 1), "round {round}");
        }
        for delivery in &back {
            settle(&source, &delivery.receipt, Settlement::Ack).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_is_an_error_and_not_a_hang() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "silent", Duration::from_secs(25)).await;
    publish(&source, names(3)).await;
    let received = receive(&source, 2).await;
    broker.pause();
    let begun = Instant::now();
    let gone = Settle { receipt: received[0].receipt.clone(), settlement: Settlement::Ack };
    let settled = timeout(Duration::from_secs(30), source.settle(vec![gone])).await;
    is_failed(settled.expect("it is answered"));
    timeout(Duration::from_secs(30), source.receive(Demand::any(1)))
        .await
        .expect("it is answered")
        .ok();
    until("somebody notices", async || source.health().is_err()).await;
    println!("noticed after {:?}", begun.elapsed());
    broker.resume();
    for delivery in &received {
        assert_eq!(settle(&source, &delivery.receipt, Settlement::Ack).await, Settled::Done);
    }
    assert_eq!(ids(&receive(&source, 1).await), ["m002"]);
    until("it is well again", async || source.health().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let Some(mut broker) = server() else { return };
    broker.crash();
    let settings = NatsSettings::parse(&uri(broker.url(), "later")).unwrap();
    let error = NatsSource::probe(&settings).await.unwrap_err();
    assert!(error.to_string().contains("not reached: 127.0.0.1:"), "{error}");
    let source: NatsSource<Message> = NatsSource::open(settings).await.unwrap();
    let why = source.health().unwrap_err();
    assert!(why.cause.contains("refused"), "{why}");
    source.receive(Demand::any(1)).await.unwrap_err();
    source.depth().await.unwrap_err();
    broker.restart().unwrap();
    until("it is connected", async || source.health().is_ok()).await;
    publish(&source, names(1)).await;
    assert_eq!(ids(&receive(&source, 1).await), ["m000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_deleted_is_made_anew_and_old_receipts_are_stale() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "anew", LONG).await;
    publish(&source, names(3)).await;
    let received = receive(&source, 2).await;
    let client = async_nats::connect(broker.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    context.delete_consumer_from_stream("workers", "anew").await.unwrap();
    for delivery in &received {
        assert_eq!(settle(&source, &delivery.receipt, Settlement::Ack).await, Settled::Stale);
    }
    let back = receive(&source, 3).await;
    assert_eq!(ids(&back), names(3));
    for delivery in &back {
        assert_eq!(settle(&source, &delivery.receipt, Settlement::Ack).await, Settled::Done);
    }
    until("it is well again", async || source.health().is_ok()).await;
    assert_eq!(source.depth().await.unwrap().waiting, 0);
}

/// A server that was killed may know less of what was acknowledged than of what its stream has removed for
/// that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unsettled_and_gone_is_in_nobodys_way() {
    let Some(mut broker) = server() else { return };
    let window = Duration::from_secs(2);
    let source = open(broker.url(), "ghosts", window).await;
    publish(&source, names(40)).await;
    let received = receive(&source, 30).await;
    let known = "jetstream/jetstream/$G/streams/ghosts/obs/workers/o.dat";
    let mut before = Vec::new();
    // The server writes it down in its own time.
    until("30 deliveries are written down", async || {
        before = std::fs::read(broker.folder().join(known)).unwrap_or_default();
        before.len() > 30 * 3
    })
    .await;
    let gone = received[4..24].iter();
    let gone = gone
        .map(|delivery| Settle { receipt: delivery.receipt.clone(), settlement: Settlement::Ack });
    assert_eq!(source.settle(gone.collect()).await.unwrap(), vec![Settled::Done; 20]);
    drop(source);
    broker.bounce_with(|folder| std::fs::write(folder.join(known), &before).unwrap()).unwrap();
    let source = open(broker.url(), "ghosts", window).await;
    assert_eq!(source.depth().await.unwrap().waiting, 20);
    let left = [&names(40)[..4], &names(40)[24..]].concat();
    assert_eq!(ids(&receive(&source, 20).await), left);
}
