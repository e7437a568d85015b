//! What a changed file asks for that a running daemon cannot do.

use std::fmt;

use super::Settings;

/// A setting that is different now and holds only after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Fixed {
    /// The key, as in `server.listen`.
    pub key: &'static str,
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes with a restart only", self.key)
    }
}

/// Whether the two files differ in one key.
type Differs = fn(&Settings, &Settings) -> bool;

macro_rules! fixed {
    ($($section:ident . $key:ident $(. $inner:ident)?),+ $(,)?) => {
        &[$((
            concat!(stringify!($section), ".", stringify!($key) $(, ".", stringify!($inner))?),
            |old, new| old.$section.$key $(.$inner)? != new.$section.$key $(.$inner)?,
        )),+]
    };
}

/// Everything that holds from start to end. Pools, queues and the limits on their number are live, and so are the limits on
/// projections and the pool of agents but for those that are named.
const FIXED: &[(&str, Differs)] = fixed![
    server.listen,
    server.token,
    server.read_token,
    server.drain,
    server.tls,
    state.path,
    router.enabled,
    router.config_url,
    router.sync_interval,
    router.sync_attempts,
    router.sync_retry_delay,
    http.timeout,
    http.connect_timeout,
    http.version,
    http.prior_knowledge,
    http.success,
    http.allow_targets,
    http.breaker.scope,
    http.breaker.window,
    http.breaker.volume,
    http.breaker.failure_ratio,
    http.breaker.open_for,
    http.breaker.close_after,
    log.format,
    alerts.webhook,
    alerts.min_severity,
    alerts.every,
    events.url,
    cluster.mode,
    cluster.url,
    cluster.lease,
    agents.enabled,
    agents.cgroups,
    agents.queue_timeout,
    agents.serial,
];

/// What differs between two files and cannot change live, in the order of the file.
///
/// ```
/// use sluicegate_server::settings::{Settings, changes};
///
/// let read = |text| Settings::parse("sluicegate.toml", text, &|_| None).unwrap();
/// let (old, new) = (read(""), read("[state]\npath = \"other.db\"\n[[pool]]\ncode = \"A\"\n"));
/// assert_eq!(changes(&old, &new)[0].to_string(), "state.path changes with a restart only");
/// assert_eq!(changes(&old, &new).len(), 1);
/// ```
#[must_use]
pub fn changes(old: &Settings, new: &Settings) -> Vec<Fixed> {
    let differing = FIXED.iter().filter(|(_, differs)| differs(old, new));
    differing.map(|(key, _)| Fixed { key }).collect()
}
