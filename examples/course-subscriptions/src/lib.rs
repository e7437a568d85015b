//! Students subscribe to courses: three decisions, of which each reads what it depends on, and holds when it is appended.
//!
//! | file | is |
//! |---|---|
//! | `decisions.rs` | what may happen, and why not: tested without a store |
//! | `place.rs` | where the events are: a file, or PostgreSQL |
//! | `race.rs` | many who want the same at once |

mod decisions;
mod place;
pub mod race;

pub use decisions::{
    ChangeCapacity, DefineCourse, MOST_COURSES, Refusal, Subscribe, capacity_changed,
    course_defined, student_subscribed,
};
pub use place::open;

/// What `docs/events.md` shows is run as this crate's tests of documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/events.md")]
struct Documentation;
