//! `sluicegate groups`.

use super::fields::{count, cut, text, until};
use super::{POOL, View, left, right};
use crate::screen::Shade;

pub(super) const VIEW: View = View {
    name: "groups",
    about: "Groups of messages: how many wait behind which head",
    noun: "groups with messages in flight",
    filters: &[POOL],
    columns: &[
        left("pool", |group, _| text(&group["pool"])),
        left("group", |group, _| cut(&group["group"], 40)),
        right("queued", |group, _| count(&group["queued"])),
        right("running", |group, _| count(&group["running"])),
        left("head", |group, _| cut(&group["head"], 40)),
        right("blocked", |group, now| match group["blockedUntil"].is_null() {
            true => text(&group["blockedUntil"]),
            false => until(&group["blockedUntil"], now).shaded(Shade::Warn),
        }),
    ],
    examples: "\
Examples:
  sluicegate groups
  sluicegate groups --pool ORDERS",
};
