//! The endpoint itself: other tests believe what it says of order and of how many at once.

use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::Message;
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Stage, message, settings};

#[tokio::test]
async fn it_tells_groups_apart() {
    let by_path = Endpoint::start().await;
    let by_payload = Endpoint::start_grouped(|asked| asked.json()["payload"].to_string()).await;
    for (endpoint, groups) in [(&by_path, ["/a", "/b"]), (&by_payload, ["1", "2"])] {
        endpoint.otherwise(Answer::ok().after(Duration::from_millis(50)));
        let stage = Stage::new(settings());
        // Three of the one at once, then one after the other of the other.
        let of = |path: &str, payload: &str, id: &str| Message {
            id: id.into(),
            payload: Some(payload.into()),
            ..message(&endpoint.url(path))
        };
        let first = [1, 2, 3].map(|_| of("/a?x", "1", "a"));
        join_all(first.iter().map(|message| stage.execute(message))).await;
        for id in ["b-1", "b-2"] {
            stage.execute(&of("/b", "2", id)).await;
        }
        assert_eq!((endpoint.count(), endpoint.peak()), (5, 3));
        assert_eq!((endpoint.peak_of(groups[0]), endpoint.peak_of(groups[1])), (3, 1));
        assert_eq!(endpoint.ids_of(groups[0]), ["a", "a", "a"]);
        assert_eq!(endpoint.ids_of(groups[1]), ["b-1", "b-2"]);
        assert_eq!(endpoint.peak_of("unheard of"), 0);
    }
}
