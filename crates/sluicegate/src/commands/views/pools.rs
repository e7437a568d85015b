//! `sluicegate pools`.

use super::fields::{count, count_if_any, millis, state, text};
use super::{View, left, right};
use crate::screen::{Cell, Shade, time};

pub(super) const VIEW: View = View {
    name: "pools",
    about: "Pools: how many messages run and wait in each, and how it gets on",
    noun: "pools",
    filters: &[],
    columns: &[
        left("pool", |pool, _| text(&pool["code"])),
        left("phase", |pool, _| state(&pool["phase"])).extra(),
        right("running", |pool, _| running(pool)),
        right("queued", |pool, _| count(&pool["queued"])),
        right("groups", |pool, _| count(&pool["groups"])).extra(),
        left("order", |pool, _| text(&pool["ordering"])).extra(),
        right("a minute", |pool, _| text(&pool["rateLimitPerMinute"])).extra(),
        right("oldest wait", |pool, _| millis(&pool["oldestWaitMs"])).extra(),
        right("succeeded", |pool, _| count(&pool["succeeded"])),
        right("retried", |pool, _| count(&pool["retried"])),
        right("failed", |pool, _| count_if_any(&pool["failed"], Shade::Warn)),
        right("parked", |pool, _| count_if_any(&pool["parked"], Shade::Bad)),
    ],
    examples: "\
Examples:
  sluicegate pools
  sluicegate pools --json | jq '.items[] | {code, queued}'",
};

/// `3 of 20`.
fn running(pool: &serde_json::Value) -> Cell {
    match (pool["running"].as_u64(), pool["concurrency"].as_u64()) {
        (Some(running), Some(most)) => {
            let shade = match running {
                0 => Shade::Faint,
                _ if running >= most => Shade::Warn,
                _ => Shade::Good,
            };
            Cell::new(format!("{} of {}", time::count(running), time::count(most))).shaded(shade)
        }
        _ => count(&pool["running"]),
    }
}
