//! The words a warning is known by.

use std::fmt;

/// What a warning is about.
///
/// Four codes of the paper are not here, because what they warn of cannot happen:
///
/// | code | why not |
/// |---|---|
/// | `GROUP_THREAD_RESTART` | a group has no thread or task of its own that could die; it exists while it has messages |
/// | `GROUP_THREAD_EXIT_WITH_MESSAGES` | the same: the schedule holds the messages, and nobody's end takes them along |
/// | `SEMAPHORE_RELEASE_FAILED` | a permit comes back when its guard is dropped; there is no release to fail |
/// | `MEDIATOR_NULL_RESULT` | an executor answers with an `Outcome`, and there is none that says nothing |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The configuration could not be fetched or applied.
    ConfigSyncFailed,
    /// A message asked for a pool that does not exist.
    Routing,
    /// A pool had no room for its part of a batch.
    QueueFull,
    /// There are too many pools, or nearly.
    PoolLimit,
    /// More messages are in flight than the pools can hold.
    PipelineMapLeak,
    /// A source did not answer and was replaced.
    ConsumerRestart,
    /// A source did not answer and could not be replaced.
    ConsumerRestartFailed,
    /// Messages could be neither settled nor handed back at the end.
    ShutdownCleanupErrors,
    /// An executor panicked.
    Processing,
    /// An endpoint said that it will never take a message.
    Configuration,
    /// Messages without a group wait for each other beside idle permits.
    UngroupedSerial,
    /// Messages come with a field that nobody knows.
    UnknownField,
    /// A breaker holds calls back.
    BreakerOpen,
    /// Messages were put aside: their attempts are used up, or an earlier one of their key is there.
    Parked,
    /// The head of a group waits until someone acts.
    GroupBlocked,
    /// The head of a group fails again and again, and the group waits behind it.
    GroupStuck,
    /// Messages fail again and again, and no group waits behind them.
    MessagesFailing,
    /// The state file cannot be written.
    StateFailed,
    /// The configuration file was to be read again and is wrong.
    ConfigInvalid,
    /// A broker cannot be reached.
    SourceDown,
    /// The daemon did not start.
    StartFailed,
    /// The program of agents cannot be started.
    AgentNotStarted,
    /// A process of an agent did not end when it was asked to.
    WorkerStuck,
    /// Requests to agents fail one after the other.
    AgentsFailing,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::ConfigSyncFailed,
        Self::Routing,
        Self::QueueFull,
        Self::PoolLimit,
        Self::PipelineMapLeak,
        Self::ConsumerRestart,
        Self::ConsumerRestartFailed,
        Self::ShutdownCleanupErrors,
        Self::Processing,
        Self::Configuration,
        Self::UngroupedSerial,
        Self::UnknownField,
        Self::BreakerOpen,
        Self::Parked,
        Self::GroupBlocked,
        Self::GroupStuck,
        Self::MessagesFailing,
        Self::StateFailed,
        Self::ConfigInvalid,
        Self::SourceDown,
        Self::StartFailed,
        Self::AgentNotStarted,
        Self::WorkerStuck,
        Self::AgentsFailing,
    ];

    /// Its one spelling.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::ConfigSyncFailed => "CONFIG_SYNC_FAILED",
            Self::Routing => "ROUTING",
            Self::QueueFull => "QUEUE_FULL",
            Self::PoolLimit => "POOL_LIMIT",
            Self::PipelineMapLeak => "PIPELINE_MAP_LEAK",
            Self::ConsumerRestart => "CONSUMER_RESTART",
            Self::ConsumerRestartFailed => "CONSUMER_RESTART_FAILED",
            Self::ShutdownCleanupErrors => "SHUTDOWN_CLEANUP_ERRORS",
            Self::Processing => "PROCESSING",
            Self::Configuration => "CONFIGURATION",
            Self::UngroupedSerial => "UNGROUPED_SERIAL",
            Self::UnknownField => "UNKNOWN_FIELD",
            Self::BreakerOpen => "BREAKER_OPEN",
            Self::Parked => "PARKED",
            Self::GroupBlocked => "GROUP_BLOCKED",
            Self::GroupStuck => "GROUP_STUCK",
            Self::MessagesFailing => "MESSAGES_FAILING",
            Self::StateFailed => "STATE_FAILED",
            Self::ConfigInvalid => "CONFIG_INVALID",
            Self::SourceDown => "SOURCE_DOWN",
            Self::StartFailed => "START_FAILED",
            Self::AgentNotStarted => "AGENT_NOT_STARTED",
            Self::WorkerStuck => "WORKER_STUCK",
            Self::AgentsFailing => "AGENTS_FAILING",
        }
    }

    /// Whether it goes on, however long, until something says that it is over. The others are moments,
    /// and forgotten when they last happened long ago.
    #[must_use]
    pub const fn lasts(self) -> bool {
        matches!(
            self,
            Self::Parked
                | Self::GroupBlocked
                | Self::GroupStuck
                | Self::MessagesFailing
                | Self::StateFailed
                | Self::ConfigInvalid
                | Self::SourceDown
                | Self::AgentNotStarted
                | Self::WorkerStuck
                | Self::AgentsFailing
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
