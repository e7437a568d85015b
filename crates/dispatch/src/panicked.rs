//! Panics of code that others wrote: they are errors like others, and stop nothing else.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::SourceError;

/// Asks something that may panic, where it is called or while it is waited for.
pub(crate) async fn as_error<A>(
    asking: impl Future<Output = Result<A, SourceError>>,
) -> Result<A, SourceError> {
    let answer = AssertUnwindSafe(asking).catch_unwind().await;
    answer.unwrap_or_else(|panic| {
        Err(SourceError::new(format!("it panicked: {}", panic_words(&*panic))))
    })
}

/// What a panic says.
#[must_use]
pub fn panic_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without words".to_owned())
}
