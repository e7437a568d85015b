//! `sluicegate workers`.

use super::fields::{ago, bytes, count, count_if_any, state, text};
use super::{View, left, right};
use crate::screen::Shade;

pub(super) const VIEW: View = View {
    name: "workers",
    about: "Workers that run agents: what each does, and for whom",
    noun: "workers",
    filters: &[],
    columns: &[
        left("worker", |worker, _| text(&worker["id"])),
        right("pid", |worker, _| text(&worker["pid"])).extra(),
        left("state", |worker, _| state(&worker["state"])),
        left("tenant", |worker, _| text(&worker["tenant"])),
        left("request", |worker, _| text(&worker["requestId"])).extra(),
        left("session", |worker, _| text(&worker["session"])).extra(),
        right("requests", |worker, _| count(&worker["requestsProcessed"])),
        right("errors", |worker, _| count_if_any(&worker["errorsEncountered"], Shade::Warn))
            .extra(),
        right("memory", |worker, _| bytes(&worker["memoryBytes"])).extra(),
        right("started", |worker, now| ago(&worker["startedAt"], now)).extra(),
        right("active", |worker, now| ago(&worker["lastActiveAt"], now)).extra(),
    ],
    examples: "\
Examples:
  sluicegate workers
  sluicegate workers --json
  sluicegate workers --kill worker-7",
};
