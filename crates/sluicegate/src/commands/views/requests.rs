//! `sluicegate requests`.

use super::fields::{cut, millis, state, text};
use super::{Filter, View, left, right};

pub(super) const VIEW: View = View {
    name: "requests",
    about: "Requests to agents that wait or run: whose each is, and what it waits for",
    noun: "requests that wait or run",
    filters: &[
        Filter {
            name: "state",
            value_name: "STATE",
            help: "Only those that wait (queued), or only those that run (running)",
        },
        Filter {
            name: "tenant",
            value_name: "TENANT",
            help: "Only those of this tenant: platform:userId, as in telegram:42",
        },
    ],
    columns: &[
        left("request", |request, _| text(&request["requestId"])),
        left("tenant", |request, _| cut(&request["tenant"], 40)),
        left("state", |request, _| state(&request["state"])),
        left("priority", |request, _| text(&request["priority"])).extra(),
        right("here for", |request, _| millis(&request["ageMs"])),
        right("running", |request, _| millis(&request["runningMs"])).extra(),
        left("worker", |request, _| text(&request["workerId"])).extra(),
        left("session", |request, _| cut(&request["sessionId"], 40)).extra(),
        left("why", |request, _| text(&request["why"]["detail"])),
    ],
    examples: "\
Examples:
  sluicegate requests
  sluicegate requests --state queued --tenant telegram:42
  sluicegate requests --json | jq '.items[].why.reason'

Oldest first. One that runs without a worker waits for a place among the workers, or for its program to start.
What a request asks for is not shown. What became of one that is over: sluicegate why ID.",
};
