//! `sluicegate parked`.

use super::fields::{ago, cut, state, text};
use super::{Filter, POOL, View, left, right};
use crate::screen::Shade;

pub(super) const VIEW: View = View {
    name: "parked",
    about: "Messages that were put aside: why, and what they are called for a replay",
    noun: "parked messages",
    filters: &[
        POOL,
        Filter { name: "queue", value_name: "NAME", help: "Only those that came from this queue" },
        Filter { name: "group", value_name: "GROUP", help: "Only those of this group" },
        Filter {
            name: "code",
            value_name: "CODE",
            help: "Only those parked for this: malformed, rejected, exhausted, key_parked or unknown_pool",
        },
        Filter { name: "host", value_name: "HOST", help: "Only those for this host" },
        Filter {
            name: "after",
            value_name: "TIME",
            help: "Only those parked at this time or later: 2026-11-16T08:30:00Z, or 2h ago",
        },
        Filter { name: "before", value_name: "TIME", help: "Only those parked before this time" },
    ],
    columns: &[
        left("id", |parked, _| text(&parked["id"])),
        left("message", |parked, _| cut(&parked["messageId"], 40)),
        left("pool", |parked, _| text(&parked["pool"])),
        left("group", |parked, _| cut(&parked["group"], 32)).extra(),
        left("code", |parked, _| state(&parked["code"]).shaded(Shade::Warn)),
        right("status", |parked, _| text(&parked["status"])).extra(),
        right("attempts", |parked, _| text(&parked["attempts"])).extra(),
        right("place", |parked, _| text(&parked["place"])).extra(),
        right("parked", |parked, now| ago(&parked["parkedAt"], now)),
        left("reason", |parked, _| cut(&parked["reason"], 120)),
        left("reply", |parked, _| cut(&parked["lastError"]["body"], 60)).extra(),
    ],
    examples: "\
Examples:
  sluicegate parked --pool ORDERS
  sluicegate parked --host api.example.com --after 2h
  sluicegate parked export parked.jsonl
  sluicegate replay --pool ORDERS
  sluicegate discard 17

The place is the one in its group where that is parked as a whole: the first is replayed first.",
};
