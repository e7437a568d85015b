//! `sluicegate pauses`.

use super::fields::{text, until};
use super::{View, left, right};

pub(in crate::commands) const VIEW: View = View {
    name: "pauses",
    about: "Hosts that asked for a pause, and are not called until then",
    noun: "pauses: no host has asked for one",
    filters: &[],
    columns: &[
        left("host", |pause, _| text(&pause["host"])),
        left("pool", |pause, _| text(&pause["pool"])),
        right("called again", |pause, now| until(&pause["until"], now)),
        left("reason", |pause, _| text(&pause["reason"])),
    ],
    examples: "\
Examples:
  sluicegate pauses
  sluicegate pauses --lift api.example.com
  sluicegate pauses --lift api.example.com --pool ORDERS",
};
