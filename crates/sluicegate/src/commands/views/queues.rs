//! `sluicegate queues`.

use super::fields::{ago, count, cut, state, text};
use super::{View, left, right};
use crate::screen::{Cell, Shade};

pub(super) const VIEW: View = View {
    name: "queues",
    about: "Queues: how deep each is, what came from it, and whether it can be used",
    noun: "queues",
    filters: &[],
    columns: &[
        left("queue", |queue, _| text(&queue["name"])),
        left("uri", |queue, _| cut(&queue["uri"], 48)).extra(),
        left("phase", |queue, _| state(&queue["phase"])).extra(),
        left("healthy", |queue, _| match queue["healthy"].as_bool() {
            Some(true) => Cell::new("yes").shaded(Shade::Good),
            Some(false) => match queue["trouble"].as_str() {
                Some(trouble) => Cell::new(format!("no: {trouble}")).shaded(Shade::Bad),
                None => Cell::new("no").shaded(Shade::Bad),
            },
            None => text(&queue["healthy"]),
        }),
        right("depth", |queue, _| count(&queue["depth"])),
        right("in flight", |queue, _| count(&queue["inflight"])),
        right("received", |queue, _| count(&queue["received"])),
        right("acked", |queue, _| count(&queue["acked"])).extra(),
        right("retried", |queue, _| count(&queue["retried"])).extra(),
        right("last poll", |queue, now| ago(&queue["lastPollAt"], now)).extra(),
    ],
    examples: "\
Examples:
  sluicegate queues
  sluicegate queues --server http://10.0.0.7:8080 --json",
};
