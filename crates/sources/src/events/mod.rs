//! The event store as a queue: what is appended is delivered, each event at least once, from a durable cursor.
//!
//! Invariants:
//! 1. Every event that matches and stands at or before the position that was read is held here or settled. What is held
//!    is bounded; beyond that nothing more is read, and the source says why.
//! 2. What is stored is one text: up to where events were touched, and which of those are open. So everything else up
//!    to there is settled, and everything beyond it was not touched. It is stored before [`Settled::Done`] is answered,
//!    for all who wait together.
//! 3. A cursor is one reader's at a time. Whoever opens it last has it; who had it before hears so when it stores, and
//!    hands out nothing from then on.
//! 4. Bodies are kept only for what was read ahead and not handed out yet. What comes again is read again, so that what
//!    waits for long costs little.
//!
//! | file | is |
//! |---|---|
//! | `settings.rs` | the address |
//! | `content.rs` | an event as a message, or as an envelope |
//! | `shelf/` | what is held and where it stands, in order by key: pure, told the time |
//! | `kept.rs` | what is stored of it, as text |
//! | `shared.rs`, `keeper.rs` | the shelf with those who wait for it; the task that stores the cursor |
//! | `reading.rs` | reading ahead, and reading again |
//! | `source.rs` | the source |
//!
//! [`Settled::Done`]: sluicegate_dispatch::Settled::Done

mod content;
mod keeper;
mod kept;
mod reading;
mod settings;
mod shared;
mod shelf;
mod source;

pub use content::{About, OfEvent};
pub use settings::EventsSettings;
pub use source::EventsSource;
