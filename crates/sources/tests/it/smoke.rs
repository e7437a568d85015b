//! A message goes in and comes out.

use std::time::Duration;

use sluicegate_dispatch::{Ending, Settle, Settled, Source};
use sluicegate_sources::sqlite::Store;
use sluicegate_sources::wire;

#[tokio::test]
async fn a_message_goes_in_and_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_serving(folder.path().join("state.db")).await.unwrap();
    let queue = store.queue("orders", Duration::from_secs(30)).await.unwrap();
    let body = r#"{"id": "m1", "mediationTarget": "http://localhost/in"}"#;
    let published = queue.publish(vec![wire::publication(body).unwrap()]).await.unwrap();
    assert_eq!((published.accepted, published.duplicates), (1, 0));
    let received = queue.receive(10).await.unwrap();
    assert_eq!(&*received[0].message.as_ref().unwrap().id, "m1");
    let settle = Settle { receipt: received[0].receipt.clone(), ending: Ending::Gone };
    assert_eq!(queue.settle(vec![settle.clone()]).await.unwrap(), [Settled::Done]);
    assert_eq!(queue.settle(vec![settle]).await.unwrap(), [Settled::Stale]);
    assert!(queue.receive(10).await.unwrap().is_empty());
}
