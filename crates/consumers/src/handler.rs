//! Handlers: the user's code, with its payload read and checked before it is asked.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use sluicegate_dispatch::BoxFuture;
use sluicegate_tasks::Context;

use crate::{Failure, Metadata};

/// What handles messages of one kind. Cheap to clone.
#[derive(Clone)]
pub struct Handler {
    handles: Arc<dyn Handles>,
}

/// An attempt under way, or why the payload is none.
pub(crate) type Called = Result<BoxFuture<'static, Result<(), Failure>>, String>;

trait Handles: Send + Sync {
    fn call(&self, about: Metadata, cx: Context) -> Called;
}

impl Handler {
    /// A handler of JSON: the body is read as a `T`, and what cannot be read never reaches the
    /// function.
    ///
    /// ```
    /// use serde::Deserialize;
    /// use sluicegate_consumers::{Context, Failure, Handler, Metadata};
    ///
    /// #[derive(Deserialize)]
    /// struct Order { number: u32 }
    ///
    /// let handler = Handler::json(|order: Order, about: Metadata, _cx: Context| async move {
    ///     println!("order {} by {:?}", order.number, about.header("customer"));
    ///     Ok::<_, Failure>(())
    /// });
    /// # drop(handler);
    /// ```
    pub fn json<T, E, F, Fut>(function: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        E: Into<Failure> + 'static,
        F: Fn(T, Metadata, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        Self::checked_json(|_: &T| Ok::<(), String>(()), function)
    }

    /// A handler of JSON that is checked before the function sees it.
    ///
    /// ```
    /// use serde::Deserialize;
    /// use sluicegate_consumers::{Failure, Handler};
    ///
    /// #[derive(Deserialize)]
    /// struct Order { amount: u32 }
    ///
    /// let check = |order: &Order| match order.amount {
    ///     0 => Err("amount: must not be 0"),
    ///     _ => Ok(()),
    /// };
    /// let handler = Handler::checked_json(check, |order: Order, _about, _cx| async move {
    ///     assert!(order.amount > 0);
    ///     Ok::<_, Failure>(())
    /// });
    /// # drop(handler);
    /// ```
    pub fn checked_json<T, W, C, E, F, Fut>(check: C, function: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        W: fmt::Display,
        C: Fn(&T) -> Result<(), W> + Send + Sync + 'static,
        E: Into<Failure> + 'static,
        F: Fn(T, Metadata, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        let read = move |body: &Bytes| {
            let payload = serde_json::from_slice::<T>(body);
            let payload = payload.map_err(|error| format!("not what is expected: {error}"))?;
            check(&payload).map_err(|why| format!("not valid: {why}"))?;
            Ok(payload)
        };
        Self { handles: Arc::new(Reads { read, function }) }
    }

    /// A handler of bodies as they come.
    pub fn bytes<E, F, Fut>(function: F) -> Self
    where
        E: Into<Failure> + 'static,
        F: Fn(Bytes, Metadata, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        let read = |body: &Bytes| Ok(body.clone());
        Self { handles: Arc::new(Reads { read, function }) }
    }

    pub(crate) fn call(&self, about: Metadata, cx: Context) -> Called {
        self.handles.call(about, cx)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

struct Reads<R, F> {
    read: R,
    function: F,
}

impl<T, E, R, F, Fut> Handles for Reads<R, F>
where
    E: Into<Failure> + 'static,
    R: Fn(&Bytes) -> Result<T, String> + Send + Sync,
    F: Fn(T, Metadata, Context) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
{
    fn call(&self, about: Metadata, cx: Context) -> Called {
        let payload = (self.read)(about.body())?;
        let handled = (self.function)(payload, about, cx);
        Ok(Box::pin(async move { handled.await.map_err(Into::into) }))
    }
}
