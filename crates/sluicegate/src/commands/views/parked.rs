//! `sluicegate parked`.

use super::fields::{ago, cut, state, text};
use super::{POOL, View, left, right};
use crate::screen::Shade;

pub(super) const VIEW: View = View {
    name: "parked",
    about: "Messages that were put aside: why, and what they are called for a replay",
    noun: "parked messages",
    filters: &[POOL],
    columns: &[
        left("id", |parked, _| text(&parked["id"])),
        left("message", |parked, _| cut(&parked["messageId"], 40)),
        left("pool", |parked, _| text(&parked["pool"])),
        left("group", |parked, _| cut(&parked["group"], 32)).extra(),
        left("code", |parked, _| state(&parked["code"]).shaded(Shade::Warn)),
        right("status", |parked, _| text(&parked["status"])).extra(),
        right("attempts", |parked, _| text(&parked["attempts"])).extra(),
        right("parked", |parked, now| ago(&parked["parkedAt"], now)),
        left("reason", |parked, _| cut(&parked["reason"], 120)),
    ],
    examples: "\
Examples:
  sluicegate parked --pool ORDERS
  sluicegate replay --pool ORDERS
  sluicegate discard 17",
};
