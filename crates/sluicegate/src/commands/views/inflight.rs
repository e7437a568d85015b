//! `sluicegate inflight`.

use super::fields::{cut, millis, since, state, text};
use super::{POOL, View, left, right};

pub(super) const VIEW: View = View {
    name: "inflight",
    about: "Messages that the daemon holds: what each does, and what it waits for",
    noun: "messages in flight",
    filters: &[POOL],
    columns: &[
        left("message", |message, _| cut(&message["id"], 40)),
        left("pool", |message, _| text(&message["pool"])),
        left("group", |message, _| cut(&message["group"], 32)).extra(),
        left("state", |message, _| state(&message["state"])),
        right("attempt", |message, _| text(&message["attempt"])).extra(),
        right("running", |message, _| millis(&message["runningMs"])),
        right("here for", |message, now| since(&message["since"], now)).extra(),
        left("why", |message, _| text(&message["why"]["detail"])),
        left("last error", |message, _| cut(&message["lastError"]["error"], 80)).extra(),
    ],
    examples: "\
Examples:
  sluicegate inflight --pool ORDERS
  sluicegate inflight --limit 1000 --json",
};
