//! Messages that are given up where they wait.

use std::time::Duration;

use sluicegate_dispatch::{Discarded, Publication};

use super::stage::{Stage, id, publication, strict};
use super::{Abilities, Check};

const fn discards(abilities: &Abilities) -> bool {
    abilities.discards
}

const fn discards_in_order(abilities: &Abilities) -> bool {
    abilities.discards && abilities.schedules && abilities.keeps_order
}

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a message that is discarded is not found and never handed out",
        needs: |abilities| abilities.discards && abilities.schedules,
        run: |stage| Box::pin(is_gone(stage)),
    },
    Check {
        name: "a message that was read ahead is discarded",
        needs: discards,
        run: |stage| Box::pin(read_ahead(stage)),
    },
    Check {
        name: "a message that is handed out is not discarded",
        needs: discards,
        run: |stage| Box::pin(stays_out(stage)),
    },
    Check {
        name: "what waits behind a message that is discarded goes on, in order",
        needs: discards_in_order,
        run: |stage| Box::pin(goes_on(stage)),
    },
    Check {
        name: "what was discarded stays so after a crash",
        needs: |abilities| abilities.discards && abilities.crashes,
        run: |stage| Box::pin(is_durable(stage)),
    },
];

fn late(message: Publication) -> Publication {
    Publication { delay: Duration::from_secs(3_600), ..message }
}

async fn discard(stage: &Stage, id: &str) -> Discarded {
    stage.source().discard(id).await.expect("it answers")
}

async fn is_gone(stage: Stage) {
    stage.publish(vec![publication("m1"), late(publication("m2")), publication("m3")]).await;
    for id in ["m1", "m2"] {
        assert_eq!(discard(&stage, id).await, Discarded::Done, "{id}");
        assert_eq!(discard(&stage, id).await, Discarded::NotFound, "{id}, once more");
        assert_eq!(stage.source().find(id).await, Ok(None), "{id}");
    }
    assert_eq!(discard(&stage, "nobody").await, Discarded::NotFound);
    let delivery = stage.receive_one().await;
    assert_eq!(id(&delivery), "m3");
    stage.done(&delivery).await;
    stage.expect_nothing_now().await;
    let depth = stage.source().depth().await.expect("it counts");
    assert_eq!((depth.waiting, depth.delayed, depth.out), (0, 0, 0));
}

async fn read_ahead(stage: Stage) {
    stage.publish_ids(&["m1", "m2", "m3", "m4"]).await;
    let first = stage.receive_one().await;
    assert_eq!(discard(&stage, "m2").await, Discarded::Done);
    assert_eq!(discard(&stage, "m4").await, Discarded::Done);
    let second = stage.receive_one().await;
    assert_eq!([id(&first), id(&second)], ["m1", "m3"]);
    stage.expect_nothing_now().await;
}

async fn stays_out(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    let delivery = stage.receive_one().await;
    assert_eq!(discard(&stage, "m1").await, Discarded::Out);
    stage.done(&delivery).await;
    assert_eq!(discard(&stage, "m1").await, Discarded::NotFound);
}

async fn goes_on(stage: Stage) {
    stage.keep_order();
    let of = |id: &str| strict(id, "g");
    stage.publish(vec![of("m1"), of("m2"), of("m3"), late(strict("h1", "h"))]).await;
    stage.publish(vec![strict("h2", "h"), strict("h3", "h")]).await;
    let head = stage.receive_one().await;
    assert_eq!(id(&head), "m1");
    // One that is behind, then the head, which waits for its time: it had been out.
    assert_eq!(discard(&stage, "m2").await, Discarded::Done);
    stage.bring_back(&head, Duration::from_secs(3_600)).await;
    stage.expect_nothing_now().await;
    assert_eq!(discard(&stage, "m1").await, Discarded::Done);
    assert_eq!(discard(&stage, "h1").await, Discarded::Done);
    let mut next = stage.next_ids(2).await;
    next.sort();
    assert_eq!(next, ["h2", "m3"]);
    stage.expect_nothing_now().await;
}

async fn is_durable(mut stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    assert_eq!(discard(&stage, "m1").await, Discarded::Done);
    stage.crash().await;
    assert_eq!(id(&stage.receive_one().await), "m2");
    stage.expect_nothing_now().await;
}
