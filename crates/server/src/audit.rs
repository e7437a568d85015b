//! What people change, said once each: who, what, and from what to what.

use std::fmt;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::apply::{ApplyReport, NotReloaded};
use crate::warnings::plain;

/// Who changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Somebody with a token of this role, or with none where none is asked for.
    Caller {
        /// What the token allows.
        role: &'static str,
        /// From where.
        peer: SocketAddr,
    },
    /// Whoever may send signals to the process.
    Signal(&'static str),
}

/// What is changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// What is done, as in `pool.patch`.
    pub action: &'static str,
    /// To what: a pool, a message, a file.
    pub subject: String,
    /// What it was before, if it was something.
    pub old: Option<Value>,
    /// What it is now, or what became of it.
    pub new: Option<Value>,
}

/// Says that something was changed.
pub fn audit(who: Who, change: &Change) {
    let Change { action, subject, old, new } = change;
    let subject = &*plain(subject);
    let text =
        |value: &Option<Value>| value.as_ref().map(|value| plain(&value.to_string()).into_owned());
    let (old, new) = (text(old), text(new));
    let (old, new) = (old.as_deref(), new.as_deref());
    let peer = who.peer().map(tracing::field::display);
    tracing::info!(target: "sluicegate", audit = action, role = who.role(), peer, subject, old, new, "{who}: {action} {subject}");
}

/// Says what became of reading the file again.
pub fn audit_reload(who: Who, file: &str, reloaded: Result<&ApplyReport, &NotReloaded>) {
    let new = match reloaded {
        Ok(report) => json!({
            "setPools": codes(&report.set_pools),
            "removedPools": codes(&report.removed_pools),
            "addedQueues": report.added_queues,
            "removedQueues": report.removed_queues,
            "agents": report.agents,
            "issues": report.issues.len(),
            "needsRestart": report.fixed.iter().map(|fixed| fixed.key).collect::<Vec<_>>(),
        }),
        Err(why) => json!({ "failed": plain(&why.summary()) }),
    };
    let subject = file.to_owned();
    audit(who, &Change { action: "config.reload", subject, old: None, new: Some(new) });
}

fn codes(codes: &[std::sync::Arc<str>]) -> Vec<&str> {
    codes.iter().map(|code| &**code).collect()
}

impl Who {
    const fn role(&self) -> &'static str {
        match self {
            Self::Caller { role, .. } => role,
            Self::Signal(_) => "signal",
        }
    }

    const fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Caller { peer, .. } => Some(*peer),
            Self::Signal(_) => None,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller { role, peer } => write!(f, "{role} from {peer}"),
            Self::Signal(name) => f.write_str(name),
        }
    }
}
