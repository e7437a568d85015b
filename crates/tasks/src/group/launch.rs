//! Submitting: a place by the group's policy, and the work spawned in it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};

use crate::place::{Place, Shared};
use crate::roster::Label;
use crate::{Context, GroupOverload, Refusal, Refused, Task};

/// A place by the group's policy, and the work spawned in it.
///
/// By hand for the same reason as [`Run`](crate::task::Run): this is moved about with the work
/// inside. Only what has to wait pays for waiting.
pub(super) struct Launch<'a, F, S> {
    shared: &'a Arc<Shared>,
    label: Label,
    offer: Option<(Context, F, S)>,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<Place, Refusal>> + Send>>;

impl<'a, F, S> Launch<'a, F, S> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        label: Label,
        cx: Context,
        work: F,
        spawn: S,
    ) -> Self {
        Self { shared, label, offer: Some((cx, work, spawn)), waiting: None }
    }
}

/// Nothing inside is pinned but what is boxed.
impl<F, S> Unpin for Launch<'_, F, S> {}

impl<F, S, T> Future for Launch<'_, F, S>
where
    S: FnOnce(Place, Context, F) -> Task<T>,
{
    type Output = Result<Task<T>, Refused<F>>;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some((cx, ..)) = &this.offer else { unreachable!("polled after its end") };
        let placed = match &mut this.waiting {
            Some(waiting) => ready!(waiting.as_mut().poll(poller)),
            None => match this.shared.admit(cx, &this.label) {
                Err(Refusal::AtLimit(_)) if this.shared.overload == GroupOverload::Wait => {
                    let waiting = Arc::clone(this.shared).wait(cx.clone(), this.label.clone());
                    ready!(this.waiting.insert(Box::pin(waiting)).as_mut().poll(poller))
                }
                admitted => admitted,
            },
        };
        let Some((cx, work, spawn)) = this.offer.take() else { unreachable!("taken once") };
        Poll::Ready(match placed {
            Ok(place) => Ok(spawn(place, cx, work)),
            Err(why) => Err(this.shared.refuse(why, work)),
        })
    }
}
