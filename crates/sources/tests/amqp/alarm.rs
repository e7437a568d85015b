//! A broker that is short of memory and takes no messages for a while.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::{Delivery, Demand, Envelope, Settled, Source};
use sluicegate_sources::amqp::{AmqpAddress, AmqpSource, Connection, Topology};
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, sleep_until, timeout};

use crate::stage::{Other, PATIENCE, again, eventually, gone, name, own, receive, settings};

/// How long the alarm lasts: longer than any limit in the source. A soak asks for more.
fn span() -> Duration {
    let asked = std::env::var("SLUICEGATE_ALARM_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(20))
}

/// Asks the broker something in its own way, from its own environment.
fn control(broker: &Broker, arguments: &[&str]) -> String {
    let environment = std::fs::read(format!("/proc/{}/environ", broker.pid())).unwrap();
    let text = String::from_utf8_lossy(&environment);
    let variables = text.split('\0').filter_map(|variable| variable.split_once('='));
    let script = broker.folder().join("package/sbin/rabbitmqctl");
    let mut command = Command::new(script);
    let command = command.env_clear().envs(variables).args(arguments);
    let ran = tokio::task::block_in_place(|| command.output()).unwrap();
    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

fn alarm(broker: &Broker, is_on: bool) {
    let limit = if is_on { "0" } else { "0.9" };
    control(broker, &["set_vm_memory_high_watermark", limit]);
}

/// How many connections the broker has.
fn connections(broker: &Broker) -> usize {
    let listed = control(broker, &["-q", "list_connections", "--no-table-headers", "pid", "state"]);
    listed.lines().filter(|line| !line.trim().is_empty()).count()
}

/// How many threads of this process serve connections.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("lapin")).count()
}

fn id(delivery: &Delivery<Envelope>) -> String {
    delivery.message.as_ref().unwrap().id.as_deref().unwrap().to_owned()
}

/// Under an alarm acks go on and copies wait; afterwards each copy is there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_go_on_and_copies_wait_for_the_end_of_an_alarm() {
    let Some(broker) = own() else { return };
    let (queue, other) = (name("alarm"), Other::at(broker.url()).await);
    let settings = settings(broker.url(), &queue).with_visibility(Duration::from_secs(600));
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    source.publish((0..200).map(|n| publication(&format!("m{n:03}"))).collect()).await.unwrap();
    let received = receive(&source, 200).await;
    let before = (connections(&broker), threads());
    alarm(&broker, true);
    let end = Instant::now() + span();

    // A hundred are retried, half of them soon and half of them much later; a hundred are acked.
    let (copied, acked) = received.split_at(100);
    let copies = join_all(copied.chunks(10).enumerate().map(|(n, some)| {
        let delay = Duration::from_secs(if n % 2 == 0 { 2 } else { 2700 });
        source.settle(some.iter().map(|one| again(&one.receipt, delay, 1)).collect())
    }));
    let acks = async {
        for (n, some) in acked.chunks(10).enumerate() {
            sleep_until(end - span() * (9 - n as u32) / 10).await;
            let all = some.iter().map(|one| gone(&one.receipt)).collect();
            let settled = timeout(Duration::from_secs(2), source.settle(all)).await;
            assert_eq!(settled.expect("acks do not wait").unwrap(), vec![Settled::Done; 10]);
        }
        sleep_until(end).await;
        source.health().unwrap();
        assert_eq!((connections(&broker), threads()), before, "under the alarm");
        alarm(&broker, false);
        Instant::now()
    };
    let (copies, over) = tokio::join!(timeout(span() + PATIENCE, copies), acks);
    assert!(over.elapsed() < Duration::from_secs(15), "{:?} after the alarm", over.elapsed());
    for settled in copies.expect("copies are answered when the alarm is over") {
        assert_eq!(settled.unwrap(), vec![Settled::Done; 10]);
    }
    assert_eq!(other.ready(&format!("sluicegate.wait.{queue}.2700000")).await, Some(50));

    // Those that were to come soon come once each, and nothing else does.
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let quiet = Duration::from_secs(4);
    let mut last = Instant::now();
    while last.elapsed() < quiet || seen.len() < 50 {
        assert!(over.elapsed() < PATIENCE, "{} of 50 came", seen.len());
        for delivery in source.receive(Demand::any(100)).await.unwrap() {
            assert_eq!(delivery.attempts, 1);
            *seen.entry(id(&delivery)).or_default() += 1;
            let settled = source.settle(vec![gone(&delivery.receipt)]).await.unwrap();
            assert_eq!(settled, [Settled::Done]);
            last = Instant::now();
        }
    }
    let expected = copied.chunks(10).step_by(2).flatten().map(|one| (id(one), 1)).collect();
    assert_eq!(seen, expected);
    assert_eq!((connections(&broker), threads()), before, "after the alarm");
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (0, 50, 0));
}

/// One call with an ack and a copy: the ack goes out at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_does_not_wait_for_the_copies_of_its_call() {
    let Some(broker) = own() else { return };
    let queue = name("mixed");
    let proxy = crate::proxy::Proxy::before(broker.url()).await;
    let settings = settings(&proxy.url(broker.url()), &queue);
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    source.publish((0..4).map(|n| publication(&format!("m{n}"))).collect()).await.unwrap();
    let received = receive(&source, 4).await;
    alarm(&broker, true);
    let delay = Duration::from_millis(100);
    let mixed = received.iter().enumerate().map(|(n, one)| match n % 2 {
        0 => again(&one.receipt, delay, 1),
        _ => gone(&one.receipt),
    });
    let during = async {
        eventually("two acks", async || proxy.sent(crate::proxy::ACK) >= 2).await;
        alarm(&broker, false);
    };
    let (settled, ()) = tokio::join!(source.settle(mixed.collect()), during);
    assert_eq!(settled.unwrap(), vec![Settled::Done; 4]);
}

/// Whoever gives up while nothing can be sent is not published later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_is_not_published_later() {
    let Some(broker) = own() else { return };
    let (queue, other) = (name("given"), Other::at(broker.url()).await);
    let address = AmqpAddress::parse(broker.url()).unwrap();
    let connection = Connection::open(address, Topology::new()).await.unwrap();
    let source = AmqpSource::<Envelope>::on(
        &connection,
        sluicegate_sources::amqp::AmqpConsume::new(&*queue),
    )
    .await
    .unwrap();
    let envelope = |text: &'static str| Envelope { body: text.into(), ..Envelope::default() };
    connection.publish("", &queue, vec![envelope("before")]).await.unwrap();
    alarm(&broker, true);
    // The broker blocks a connection when it publishes; this one is on its way from then on.
    let stuck = connection.publish("", &queue, vec![envelope("stuck"); 2]);
    let given_up = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..200 {
            let publish = connection.publish("", &queue, vec![envelope("given up"); 100]);
            assert!(timeout(Duration::from_millis(5), publish).await.is_err());
        }
        assert!(format!("{connection:?}").contains("waiting: 0"), "{connection:?}");
        alarm(&broker, false);
    };
    let (stuck, ()) = tokio::join!(stuck, given_up);
    stuck.unwrap();
    connection.publish("", &queue, vec![envelope("after")]).await.unwrap();
    other.wait_ready(&queue, 4).await;
    let texts: Vec<_> = receive(&source, 4)
        .await
        .into_iter()
        .map(|delivery| String::from_utf8(delivery.message.unwrap().body.to_vec()).unwrap())
        .collect();
    assert_eq!(texts, ["before", "stuck", "stuck", "after"]);
}
