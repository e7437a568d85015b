//! `sluicegate breakers`.

use super::fields::{ago, count, count_if_any, cut, state, text, until};
use super::{View, left, right};
use crate::screen::Shade;

pub(super) const VIEW: View = View {
    name: "breakers",
    about: "Circuit breakers: which targets are not called for now",
    noun: "breakers: nothing was called yet",
    filters: &[],
    columns: &[
        left("breaker", |breaker, _| text(&breaker["name"])),
        left("state", |breaker, _| state(&breaker["state"])),
        right("tried again", |breaker, now| until(&breaker["until"], now)),
        right("calls", |breaker, _| count(&breaker["calls"])),
        right("failures", |breaker, _| count_if_any(&breaker["failures"], Shade::Warn)),
        right("last failed", |breaker, now| ago(&breaker["lastError"]["at"], now)).extra(),
        left("last error", |breaker, _| cut(&breaker["lastError"]["error"], 80)).extra(),
        left("reply", |breaker, _| cut(&breaker["lastError"]["body"], 60)).extra(),
    ],
    examples: "\
Examples:
  sluicegate breakers
  sluicegate breakers --json",
};
