//! Receiving: in order, within bounds, once, and whole.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use sluicegate_dispatch::{Demand, Publication};
use tokio::time::{Instant, sleep};

use super::stage::{Stage, ids, publication, publication_in};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "messages come in order",
        needs: |abilities| abilities.in_order,
        run: |stage| Box::pin(in_order(stage)),
    },
    Check {
        name: "a batch has at most as many as asked for",
        needs: any,
        run: |stage| Box::pin(bounded(stage)),
    },
    Check {
        name: "an empty queue answers nothing, and a message wakes who waits",
        needs: any,
        run: |stage| Box::pin(woken(stage)),
    },
    Check {
        name: "a message is handed over as it was published",
        needs: |abilities| abilities.names_pools,
        run: |stage| Box::pin(whole(stage)),
    },
    Check {
        name: "a malformed body is handed over, not dropped",
        needs: any,
        run: |stage| Box::pin(malformed(stage)),
    },
    Check {
        name: "a body of nearly 1 MiB goes through",
        needs: any,
        run: |stage| Box::pin(big(stage)),
    },
    Check {
        name: "ids and groups may be any text",
        needs: any,
        run: |stage| Box::pin(unicode(stage)),
    },
    Check {
        name: "ids seen shortly before are accepted and not stored again",
        needs: |abilities| abilities.dedupes,
        run: |stage| Box::pin(deduped(stage)),
    },
];

async fn in_order(stage: Stage) {
    let sent: Vec<String> = (0..30).map(|n| format!("m{n}")).collect();
    for part in sent.chunks(7) {
        stage.publish(part.iter().map(|id| publication(id)).collect()).await;
    }
    assert_eq!(stage.next_ids(30).await, sent);
}

async fn bounded(stage: Stage) {
    let sent: BTreeSet<String> = (0..20).map(|n| format!("m{n}")).collect();
    stage.publish(sent.iter().map(|id| publication(id)).collect()).await;
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        let some = stage.source().receive(Demand::any(7)).await.expect("it works");
        assert!(some.len() <= 7, "{} came", some.len());
        for id in ids(&some) {
            assert!(seen.insert(id.clone()), "{id} came twice");
        }
    }
    assert_eq!(seen, sent);
    assert_eq!(stage.source().receive(Demand::any(0)).await.expect("it works"), []);
    assert_eq!(stage.source().settle(Vec::new()).await.expect("it works"), []);
}

async fn woken(stage: Stage) {
    assert_eq!(stage.source().receive(Demand::any(10)).await.expect("it works"), []);
    let publish = async {
        sleep(Duration::from_millis(50)).await;
        stage.publish_ids(&["m1"]).await;
    };
    let begun = Instant::now();
    let (received, ()) = tokio::join!(stage.next_ids(1), publish);
    assert_eq!(received, ["m1"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "woken after {:?}", begun.elapsed());
    stage.source().health().expect("it works");
}

async fn whole(stage: Stage) {
    let mut sent = publication_in("m1", "BILLING", Some("customer 7"), true);
    sent.message.tenant = Some("acme".into());
    sent.message.payload = Some(r#"{"price": 1.50, "z": null}"#.into());
    sent.message.auth_token = Some(sluicegate_dispatch::AuthToken::new("secret"));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    sent.message.traceparent = Some(trace.into());
    sent.message.unknown_fields = Box::new(["more".into()]);
    let body = r#"{"id":"m1","poolCode":"BILLING","mediationTarget":"http://localhost/in","messageGroupId":"customer 7","highPriority":true,"tenant":"acme","payload":{"price": 1.50, "z": null},"authToken":"secret","traceparent":"TRACE","more":[{"unknown":1}]}"#;
    sent.body = body.replace("TRACE", trace).into();
    stage.publish(vec![sent.clone()]).await;
    let received = stage.receive_one().await;
    assert_eq!(received.message.expect("it works"), sent.message);
    assert_eq!(received.attempts, 0);
}

async fn malformed(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    stage.publish_raw("{\"id\": 7, no message").await;
    stage.publish_ids(&["m2"]).await;
    let received = stage.receive(3).await;
    let mut malformed = received.iter().filter_map(|delivery| delivery.message.as_ref().err());
    let malformed = malformed.next().expect("it is handed over");
    assert_eq!(malformed.raw, "{\"id\": 7, no message");
    assert!(!malformed.why.is_empty());
    let others = received.iter().filter(|delivery| delivery.message.is_ok());
    assert_eq!(others.map(super::stage::id).collect::<Vec<_>>(), ["m1", "m2"]);
    stage.all_done(&received).await;
    stage.expect_nothing_until(Instant::now() + stage.window() * 3 / 2).await;
}

async fn big(stage: Stage) {
    let payload = json!("x".repeat(1024 * 1024 - 1024)).to_string();
    let sent: Vec<Publication> = (0..12)
        .map(|n| {
            let mut sent = publication(&format!("m{n}"));
            sent.body =
                format!("{},\"payload\":{payload}}}", &sent.body[..sent.body.len() - 1]).into();
            sent.message.payload = Some(payload.clone().into());
            sent
        })
        .collect();
    for sent in &sent {
        stage.publish(vec![sent.clone()]).await;
    }
    for (sent, received) in sent.iter().zip(stage.receive(12).await) {
        assert!(received.message.as_ref() == Ok(&sent.message), "{} has changed", sent.message.id);
    }
}

async fn unicode(stage: Stage) {
    let texts = [
        "日本語",
        "ключ 🔑",
        "a\"b\\c",
        "  spaces  ",
        "tab\tline\nend",
        "'); DROP TABLE x;--",
        "\u{0}",
    ];
    let sent = |text: &&str| publication_in(text, "POOL", Some(text), false);
    stage.publish(texts.iter().map(sent).collect()).await;
    let received = stage.receive(texts.len()).await;
    for (text, received) in texts.iter().zip(&received) {
        let message = received.message.as_ref().expect("it works");
        assert_eq!((&*message.id, message.group.as_deref()), (*text, Some(*text)));
    }
    stage.all_done(&received).await;
}

async fn deduped(stage: Stage) {
    let of = |ids: &[&str]| ids.iter().map(|id| publication(id)).collect::<Vec<_>>();
    assert_eq!(stage.publish(of(&["m1", "m2", "m1"])).await, (3, 1));
    assert_eq!(stage.publish(of(&["m2", "m3"])).await, (2, 1));
    let received = stage.receive(3).await;
    assert_eq!(ids(&received), ["m1", "m2", "m3"]);
    stage.all_done(&received).await;
    assert_eq!(stage.publish(of(&["m1", "m4"])).await, (2, 1));
    assert_eq!(stage.next_ids(1).await, ["m4"]);
    stage.expect_nothing_now().await;
}
