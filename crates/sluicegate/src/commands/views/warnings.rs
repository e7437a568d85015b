//! `sluicegate warnings`.

use super::fields::{ago, count, cut, state, text};
use super::{Filter, View, left, right};
use crate::screen::Cell;

pub(super) const VIEW: View = View {
    name: "warnings",
    about: "Warnings: what somebody should know of, and how often it happened",
    noun: "warnings",
    filters: &[Filter {
        name: "severity",
        value_name: "SEVERITY",
        help: "Only those of this severity: INFO, WARNING, ERROR or CRITICAL",
    }],
    columns: &[
        left("id", |warning, _| text(&warning["id"])).extra(),
        left("severity", |warning, _| state(&warning["severity"])),
        left("code", |warning, _| text(&warning["code"])),
        left("subject", |warning, _| cut(&warning["subject"], 40)),
        left("message", |warning, _| text(&warning["message"])),
        right("count", |warning, _| count(&warning["count"])),
        right("first seen", |warning, now| ago(&warning["firstSeen"], now)).extra(),
        right("last seen", |warning, now| ago(&warning["lastSeen"], now)),
        right("over since", |warning, now| ago(&warning["resolvedAt"], now)),
        left("acknowledged", |warning, _| match warning["acknowledged"].as_bool() {
            Some(true) => Cell::new("yes"),
            _ => Cell::none(),
        })
        .extra(),
    ],
    examples: "\
Examples:
  sluicegate warnings
  sluicegate warnings --severity CRITICAL",
};
