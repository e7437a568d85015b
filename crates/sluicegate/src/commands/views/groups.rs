//! `sluicegate groups`.

use serde_json::Value;

use super::fields::{count, cut, text, until};
use super::{POOL, View, left, right};
use crate::screen::{Cell, Shade};

pub(super) const VIEW: View = View {
    name: "groups",
    about: "Groups of messages: how many wait behind which head",
    noun: "groups with messages in flight",
    filters: &[POOL],
    columns: &[
        left("pool", |group, _| text(&group["pool"])),
        left("group", |group, _| cut(&group["group"], 40)),
        right("wait in pool", |group, _| count(&group["queued"])),
        right("running", |group, _| count(&group["running"])),
        left("head", |group, _| cut(&group["head"], 40)),
        right("blocked", |group, now| match (&group["blockedUntil"], &group["blocked"]) {
            (_, Value::Bool(true)) => Cell::new("until somebody acts").shaded(Shade::Bad),
            (Value::Null, _) => Cell::none(),
            (time, _) => until(time, now).shaded(Shade::Warn),
        }),
    ],
    examples: "\
Examples:
  sluicegate groups
  sluicegate groups --pool ORDERS

`wait in pool` counts the messages of a group that wait in its pool, the head among them while it is tried again
later. The embedded queue and PostgreSQL hand out one message of a strict group at a time: what waits behind it
there is not counted here, but in the depth of `sluicegate queues`.",
};
