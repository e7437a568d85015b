//! What a handler says when it did not work, and what class of error that is.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What kind of error it is: what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// It may work later: retried as the consumer's [`Retry`](crate::Retry) says.
    Retry,
    /// It may work after this time; it counts as an attempt like others.
    RetryAfter(Duration),
    /// It will never work: straight to the dead letters.
    Dead,
}

/// An error of a handler. Any error becomes one by `?`, to be retried unless its
/// [class](crate::ConsumerBuilder::classify) says otherwise.
///
/// ```
/// use sluicegate_consumers::Failure;
///
/// fn amount(text: &str) -> Result<u32, Failure> {
///     let amount: u32 = text.parse()?; // retried
///     if amount == 0 {
///         return Err(Failure::dead("an order of nothing"));
///     }
///     Ok(amount)
/// }
/// assert_eq!(amount("0").unwrap_err().to_string(), "an order of nothing");
/// ```
#[derive(Debug)]
pub struct Failure {
    class: Option<Class>,
    error: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// One that may work later.
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Class::Retry, error)
    }

    /// One that may work after this time.
    pub fn retry_after(after: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Class::RetryAfter(after), error)
    }

    /// One that will never work.
    pub fn dead(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Class::Dead, error)
    }

    fn of(class: Class, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { class: Some(class), error: error.into() }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: None, error: Box::new(error) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

type ClassOf = dyn Fn(&(dyn Error + 'static)) -> Option<Class> + Send + Sync;

/// The classes of errors by their types, asked in the order in which they were told.
#[derive(Clone, Default)]
pub(crate) struct Classes(Vec<Arc<ClassOf>>);

impl Classes {
    pub(crate) fn add<E: Error + 'static>(
        &mut self,
        class: impl Fn(&E) -> Class + Send + Sync + 'static,
    ) {
        self.0.push(Arc::new(move |error| error.downcast_ref::<E>().map(&class)));
    }

    /// What the handler said itself counts first, then the first that knows the type of the error or
    /// of one of its causes.
    pub(crate) fn of(&self, failure: &Failure) -> Class {
        let told = || {
            let first: &(dyn Error + 'static) = &*failure.error;
            std::iter::successors(Some(first), |error| (**error).source())
                .find_map(|error| self.0.iter().find_map(|class| class(error)))
        };
        failure.class.or_else(told).unwrap_or(Class::Retry)
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Classes({})", self.0.len())
    }
}
