//! `sluicegate tenants`.

use super::fields::{count, count_if_any, millis, text};
use super::{View, left, right};
use crate::screen::Shade;

pub(super) const VIEW: View = View {
    name: "tenants",
    about: "Tenants: what each has waiting and running, and its share",
    noun: "tenants with work here",
    filters: &[],
    columns: &[
        left("tenant", |tenant, _| text(&tenant["id"])),
        right("weight", |tenant, _| text(&tenant["weight"])).extra(),
        right("queued", |tenant, _| count(&tenant["queued"])),
        right("running", |tenant, _| count(&tenant["running"])),
        right("served", |tenant, _| count(&tenant["served"])),
        right("failed", |tenant, _| count_if_any(&tenant["failed"], Shade::Warn)),
        right("rejected", |tenant, _| count_if_any(&tenant["rejected"], Shade::Warn)),
        right("oldest wait", |tenant, _| millis(&tenant["oldestWaitMs"])).extra(),
    ],
    examples: "\
Examples:
  sluicegate tenants
  sluicegate tenants --limit 10

Of requests to agents, `failed` counts those that ended with an error, and `rejected` those that were not let in.",
};
