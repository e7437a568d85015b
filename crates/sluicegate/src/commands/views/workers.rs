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
        right("pid", |worker, _| text(&worker["pid"])),
        left("state", |worker, _| state(&worker["state"])),
        left("tenant", |worker, _| text(&worker["tenant"])),
        left("request", |worker, _| text(&worker["requestId"])),
        left("session", |worker, _| text(&worker["session"])),
        right("requests", |worker, _| count(&worker["requestsProcessed"])),
        right("errors", |worker, _| count_if_any(&worker["errorsEncountered"], Shade::Warn)),
        right("memory", |worker, _| bytes(&worker["memoryBytes"])),
        right("started", |worker, now| ago(&worker["startedAt"], now)),
        right("active", |worker, now| ago(&worker["lastActiveAt"], now)),
    ],
    examples: "\
Examples:
  sluicegate workers
  sluicegate workers --json",
};
