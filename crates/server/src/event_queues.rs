//! Queues of events whose settings say already that they will not do what is wanted: their target stands in the file, and
//! mostly their pool.

use sluicegate_dispatch::Ordering;
use sluicegate_executors::http::{OwnAddresses, target_forbidden};
use sluicegate_sources::events::EventsSettings;

use crate::convert::allowed;
use crate::settings::{QueueUri, Settings};

/// Queues of events whose target no call will be made to: each with its key, and why.
#[must_use]
pub fn event_target_faults(settings: &Settings) -> Vec<String> {
    let (allowed, own) = (allowed(&settings.http), OwnAddresses::default());
    // A port of 0 is known once it is bound.
    if settings.server.listen.port() != 0 {
        own.add(settings.server.listen);
    }
    let fault = |(index, _, events): (usize, &str, EventsSettings)| {
        let why = target_forbidden(events.target()?, &allowed, &own)?;
        Some(format!("queue[{index}].uri: its target is not allowed: {why}"))
    };
    of(settings).filter_map(fault).collect()
}

/// Queues of events that have a key, and a pool that lets events of one key overtake each other.
#[must_use]
pub fn event_order_doubts(settings: &Settings) -> Vec<String> {
    let doubt = |(index, name, events): (usize, &str, EventsSettings)| {
        let (key, code) = (events.key()?, events.pool());
        let what = match settings.pools.iter().find(|pool| pool.code == *code) {
            Some(pool) if pool.ordering == Ordering::Strict => return None,
            Some(_) => "is not strict",
            // It may come from there.
            None if !settings.router.config_url.is_empty() => return None,
            None => "is not in this file",
        };
        Some(format!(
            "queue[{index}]: {name} has the key {key}, but its pool {code} {what}: events of one key may overtake one that \
             fails; give it a [[pool]] with ordering = \"strict\""
        ))
    };
    of(settings).filter_map(doubt).collect()
}

fn of(settings: &Settings) -> impl Iterator<Item = (usize, &str, EventsSettings)> {
    settings.queues.iter().enumerate().filter_map(|(index, queue)| match &queue.uri {
        QueueUri::Events(uri) => {
            let events = EventsSettings::parse(uri.expose()).ok()?;
            Some((index, queue.name.as_str(), events))
        }
        _ => None,
    })
}
