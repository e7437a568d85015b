//! Messages that go back to where they came from.

use sluicegate_dispatch::{Delivery, PublishError, PutBack};

use super::stage::{Stage, id, publication};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a message that is put back comes again, though its id was seen before",
        needs: any,
        run: |stage| Box::pin(comes_again(stage)),
    },
    Check {
        name: "a message that is put back twice by one name comes once",
        needs: |abilities| abilities.dedupes,
        run: |stage| Box::pin(comes_once(stage)),
    },
];

fn put_back(delivery: &Delivery, name: &str) -> Vec<PutBack> {
    let broker_id = delivery.broker_id.clone();
    vec![PutBack { broker_id, name: name.into(), publication: publication(&id(delivery)) }]
}

async fn comes_again(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    for name in ["m1~1", "m1~2"] {
        let delivery = stage.receive_one().await;
        assert_eq!((id(&delivery).as_str(), delivery.attempts), ("m1", 0));
        stage.done(&delivery).await;
        match stage.source().put_back(put_back(&delivery, name)).await {
            Err(PublishError::NotPublishable) => return,
            put_back => put_back.expect("it is taken in"),
        }
    }
    assert_eq!(id(&stage.receive_one().await), "m1");
}

async fn comes_once(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    let delivery = stage.receive_one().await;
    stage.done(&delivery).await;
    for _ in 0..2 {
        let put_back = stage.source().put_back(put_back(&delivery, "m1~1")).await;
        put_back.expect("it is taken in");
    }
    let back = stage.receive_one().await;
    assert_eq!(id(&back), "m1");
    stage.done(&back).await;
    stage.publish_ids(&["m2"]).await;
    assert_eq!(id(&stage.receive_one().await), "m2", "there was one");
}
