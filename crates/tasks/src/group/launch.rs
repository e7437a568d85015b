//! Submitting: a permit, waited for if need be, and the work started with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};

use super::shared::{Place, Shared};
use crate::roster::Label;
use crate::task::TaskGuard;
use crate::{Context, Refusal, Refused, Task};

/// A permit, waited for if need be, and the work started with it.
///
/// By hand for the same reason as a task itself: this is moved about with the work
/// inside. Only what has to wait pays for waiting.
pub(super) struct Launch<'a, F, S> {
    shared: &'a Arc<Shared>,
    label: Label,
    place: Place,
    offer: Option<(Context, F, S)>,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<TaskGuard, Refusal>> + Send>>;

impl<'a, F, S> Launch<'a, F, S> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        (label, place): (Label, Place),
        cx: Context,
        work: F,
        spawn: S,
    ) -> Self {
        Self { shared, label, place, offer: Some((cx, work, spawn)), waiting: None }
    }
}

/// Nothing inside is pinned but what is boxed.
impl<F, S> Unpin for Launch<'_, F, S> {}

impl<F, S, T> Future for Launch<'_, F, S>
where
    S: FnOnce(TaskGuard, Context, F) -> Task<T>,
{
    type Output = Result<Task<T>, Refused<F>>;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some((cx, ..)) = &this.offer else { unreachable!("polled after its end") };
        let admitted = match &mut this.waiting {
            Some(waiting) => ready!(waiting.as_mut().poll(poller)),
            None => match this.shared.admit(cx, &this.label, this.place) {
                Err(Refusal::AtLimit(_)) if this.shared.hands_over_to(this.place) => {
                    let waiting = Arc::clone(this.shared).wait(cx.clone(), this.label.clone());
                    ready!(this.waiting.insert(Box::pin(waiting)).as_mut().poll(poller))
                }
                at_once => at_once,
            },
        };
        let Some((cx, work, spawn)) = this.offer.take() else { unreachable!("taken once") };
        Poll::Ready(match admitted {
            Ok(guard) => Ok(spawn(guard, cx, work)),
            Err(why) => Err(this.shared.refuse(why, work)),
        })
    }
}
