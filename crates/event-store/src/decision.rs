//! Decisions: what a command reads, and what it appends.

use std::fmt;
use std::marker::PhantomData;

use crate::{NewEvent, Projections};

/// What a command reads, and what it appends or why it refuses. It decides on states alone, so it is tested without a
/// store: [`given`](crate::given).
///
/// ```
/// use sluicegate_event_store::{Decision, NewEvent, Query, fold};
///
/// struct Subscribe {
///     course: String,
///     student: String,
/// }
///
/// #[derive(Debug, PartialEq)]
/// enum Refusal {
///     NoSuchCourse,
///     Subscribed,
/// }
///
/// impl Decision for Subscribe {
///     type Projections = (fold::Exists, fold::Exists);
///     type Error = Refusal;
///
///     fn projections(&self) -> Self::Projections {
///         let course = Query::types(["CourseDefined"]).tag("course", &self.course);
///         let subscribed = Query::types(["StudentSubscribed"])
///             .tag("course", &self.course)
///             .tag("student", &self.student);
///         (fold::exists(course), fold::exists(subscribed))
///     }
///
///     fn decide(&self, (course, subscribed): (bool, bool)) -> Result<Vec<NewEvent>, Refusal> {
///         if !course {
///             return Err(Refusal::NoSuchCourse);
///         }
///         if subscribed {
///             return Err(Refusal::Subscribed);
///         }
///         let event = NewEvent::of("StudentSubscribed");
///         Ok(vec![event.tag("course", &self.course).tag("student", &self.student)])
///     }
/// }
/// ```
pub trait Decision: Send + Sync {
    /// What it reads: one projection, a tuple or a list of them.
    type Projections: Projections;
    /// Why it refuses.
    type Error: Send;

    /// What it reads, made anew for each try.
    fn projections(&self) -> Self::Projections;

    /// What is to be appended, which may be nothing.
    ///
    /// # Errors
    /// Why it refuses.
    fn decide(
        &self,
        states: <Self::Projections as Projections>::States,
    ) -> Result<Vec<NewEvent>, Self::Error>;
}

/// A decision made of two closures: what it reads, and what it decides on the states.
pub fn decision<P, E, R, D>(projections: R, decide: D) -> impl Decision<Projections = P, Error = E>
where
    P: Projections,
    E: Send,
    R: Fn() -> P + Send + Sync,
    D: Fn(P::States) -> Result<Vec<NewEvent>, E> + Send + Sync,
{
    Closures { projections, decide, types: PhantomData }
}

struct Closures<R, D, P, E> {
    projections: R,
    decide: D,
    types: PhantomData<fn() -> (P, E)>,
}

impl<P, E, R, D> Decision for Closures<R, D, P, E>
where
    P: Projections,
    E: Send,
    R: Fn() -> P + Send + Sync,
    D: Fn(P::States) -> Result<Vec<NewEvent>, E> + Send + Sync,
{
    type Projections = P;
    type Error = E;

    fn projections(&self) -> P {
        (self.projections)()
    }

    fn decide(&self, states: P::States) -> Result<Vec<NewEvent>, E> {
        (self.decide)(states)
    }
}

impl<R, D, P, E> fmt::Debug for Closures<R, D, P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision").finish_non_exhaustive()
    }
}
