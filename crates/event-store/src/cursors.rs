//! How far those who read on and on have come, kept beside the events.

use crate::{BoxFuture, EngineError};

/// Where readers keep how far they are, each by its name. What a state says is the reader's own.
///
/// A cursor is one reader's at a time: whoever takes it has it, and from then on who had it before stores nothing.
pub trait Cursors: Send + Sync {
    /// Takes a cursor over, from whoever has it. One that nobody had before has no state.
    fn take<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Cursor, EngineError>>;

    /// Stores how far its reader is, durably. `false` if somebody took the cursor after that turn: nothing is stored.
    fn store<'a>(
        &'a self,
        name: &'a str,
        turn: u64,
        state: String,
    ) -> BoxFuture<'a, Result<bool, EngineError>>;
}

/// A cursor that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// What it is stored with: how often it was taken.
    pub turn: u64,
    /// What was stored last, if anything.
    pub state: Option<String>,
}
