//! What the lint says: a rule, a place, a message, and what to write instead.

use std::path::PathBuf;

/// Everything a run can complain about. The first five are the law; the others keep the lint honest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A task or thread started by anything but a task group.
    NakedSpawn,
    /// A permit that is discarded at once, or that never comes back.
    LeakyPermit,
    /// Work submitted to a pool from inside that pool's own work.
    NestedPool,
    /// A task that does not use the context it was given.
    ContextDropped,
    /// A channel or queue without a bound.
    UnboundedQueue,
    /// A file that could not be understood as Rust: nothing in it was checked.
    ParseError,
    /// A file that the code needs and that could not be found or read.
    UnreadFile,
    /// An exemption past its last day.
    ExemptionExpired,
    /// An exemption that nothing needs.
    ExemptionUnused,
    /// An exemption that lacks a field, or has one that makes no sense.
    ExemptionIncomplete,
}

impl Rule {
    /// Every rule, in the order the documentation lists them.
    pub const ALL: [Self; 10] = [
        Self::NakedSpawn,
        Self::LeakyPermit,
        Self::NestedPool,
        Self::ContextDropped,
        Self::UnboundedQueue,
        Self::ParseError,
        Self::UnreadFile,
        Self::ExemptionExpired,
        Self::ExemptionUnused,
        Self::ExemptionIncomplete,
    ];

    /// The name users see and write in exemptions.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::NakedSpawn => "naked-spawn",
            Self::LeakyPermit => "leaky-permit",
            Self::NestedPool => "nested-pool",
            Self::ContextDropped => "context-dropped",
            Self::UnboundedQueue => "unbounded-queue",
            Self::ParseError => "parse-error",
            Self::UnreadFile => "unread-file",
            Self::ExemptionExpired => "exemption-expired",
            Self::ExemptionUnused => "exemption-unused",
            Self::ExemptionIncomplete => "exemption-incomplete",
        }
    }

    /// One sentence on what the rule forbids.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::NakedSpawn => "Tasks and threads are started by a task group only.",
            Self::LeakyPermit => "A permit is held by a named value and comes back when it drops.",
            Self::NestedPool => "Work in a pool never submits to that pool again.",
            Self::ContextDropped => "A task uses the context it was given, and no fresh one.",
            Self::UnboundedQueue => "A channel or queue between tasks has a bound.",
            Self::ParseError => "A file that cannot be parsed cannot be checked.",
            Self::UnreadFile => "A file that cannot be found or read cannot be checked.",
            Self::ExemptionExpired => "An exemption holds until the end of its expiry day.",
            Self::ExemptionUnused => "An exemption that exempts nothing is removed.",
            Self::ExemptionIncomplete => {
                "An exemption names its path, rule, reason, owner and expiry."
            }
        }
    }

    /// The rule that an exemption names; only the laws can be exempted.
    #[must_use]
    pub fn exemptible(id: &str) -> Option<Self> {
        Self::ALL[..5].iter().copied().find(|rule| rule.id() == id)
    }
}

/// One violation at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// The file, as the report shows it.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters of the line the finding covers; at least 1.
    pub width: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
    /// The text of the line, for people.
    pub source_line: String,
}

/// Orders findings by path, line, column and rule, and keeps one for each place and rule.
pub fn sort_findings(findings: &mut Vec<Finding>) {
    findings.sort_by(|a, b| {
        (&a.path, a.line, a.column, a.rule).cmp(&(&b.path, b.line, b.column, b.rule))
    });
    findings.dedup_by(|a, b| {
        (&a.path, a.line, a.column, a.rule) == (&b.path, b.line, b.column, b.rule)
    });
}
