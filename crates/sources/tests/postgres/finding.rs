//! Finding messages that were given back.

use std::sync::Arc;

use sluicegate_dispatch::{FoundState, Order, Ordered, PutBack, Source};
use sluicegate_sources::postgres::PostgresSource;

use crate::stage::{PATIENCE, Sql, database, done, id, lent, open, receive, strict};

async fn put_back(source: &PostgresSource, broker_id: &Arc<str>, id: &str, name: &str) {
    let (broker_id, publication) = (Arc::clone(broker_id), strict(id, "g"));
    let back = PutBack { broker_id, name: name.into(), publication };
    source.put_back(vec![back]).await.unwrap();
}

async fn state(source: &PostgresSource, id: &str) -> Option<FoundState> {
    let found = source.find(id).await.unwrap();
    if let Some(found) = &found {
        assert!(found.body.contains(&format!("{id:?}")), "{found:?}");
    }
    found.map(|found| found.state)
}

/// As a replay does it: by its own id it is found again, and those behind it say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_put_back_is_found_by_its_id() {
    let Some(server) = lent() else { return };
    let source = open(&database(server.url()).await, PATIENCE).await;
    source.keep_order(&Arc::new(Order::everywhere(Ordered::All)));
    source.publish(vec![strict("m1", "g"), strict("m2", "g")]).await.unwrap();
    let first = receive(&source, 1).await.remove(0);
    assert_eq!((id(&first), state(&source, "m1").await), ("m1".to_owned(), Some(FoundState::Out)));
    done(&source, std::slice::from_ref(&first)).await;
    assert_eq!(state(&source, "m1").await, None, "it is gone");
    // What follows it is out of the way.
    let second = receive(&source, 1).await.remove(0);
    done(&source, std::slice::from_ref(&second)).await;
    put_back(&source, &first.broker_id, "m1", "m1~1").await;
    put_back(&source, &second.broker_id, "m2", "m2~1").await;
    assert_eq!(state(&source, "m2").await, Some(FoundState::Behind("m1".into())));
    assert_eq!(state(&source, "m1").await, Some(FoundState::Ready));
    // Put back once more by the same name it is there once.
    put_back(&source, &first.broker_id, "m1", "m1~1").await;
    let back = receive(&source, 1).await.remove(0);
    assert_eq!((id(&back), state(&source, "m1").await), ("m1".to_owned(), Some(FoundState::Out)));
    done(&source, &[back]).await;
    assert_eq!(state(&source, "m1").await, None);
    let after = receive(&source, 1).await.remove(0);
    assert_eq!(id(&after), "m2");
    done(&source, &[after]).await;
    assert_eq!(source.depth().await.unwrap().waiting, 0);
}

/// Whoever did not hear that it went back asks again, perhaps after hours: it is there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_put_back_again_is_there_once() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, PATIENCE).await;
    let sql = Sql::connect(&url).await;
    source.publish(vec![strict("m1", "g")]).await.unwrap();
    let parked = receive(&source, 1).await;
    done(&source, &parked).await;
    for _ in 0..3 {
        put_back(&source, &parked[0].broker_id, "m1", "m1~1").await;
        sql.run("UPDATE sluicegate.ids SET at = at - interval '2 hours'").await;
    }
    assert_eq!(source.depth().await.unwrap().waiting, 1);
    let again = receive(&source, 1).await;
    done(&source, &again).await;
    put_back(&source, &parked[0].broker_id, "m1", "m1~1").await;
    assert_eq!(source.depth().await.unwrap().waiting, 0, "it is over");
    put_back(&source, &parked[0].broker_id, "m1", "m1~2").await;
    assert_eq!(source.depth().await.unwrap().waiting, 1, "it goes back once more");
}
