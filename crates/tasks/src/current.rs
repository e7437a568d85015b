//! The task that this thread runs right now.
//!
//! A context says what it was made for, but a task may well make one afresh: so what a task holds is
//! also known to the thread, for as long as a poll of it takes. The frame is moved in and out, which
//! costs no count that threads share.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use sluicegate_schedule::Invalid;

use crate::Context;
use crate::group::nested::{Children, Handover};
use crate::group::shared::Shared;
use crate::lineage::{GroupId, Inside, Lineage, PermitId};
use crate::panic::wake_all;

/// What is known of a task while it is polled. Small, since it is moved about at every poll.
#[derive(Debug)]
pub(crate) struct Frame {
    lineage: Option<Arc<Lineage>>,
    /// What few tasks have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// Where its permit was handed over to it, if it runs on its maker's.
    handover: Option<Arc<Handover>>,
    /// The groups that were made inside it.
    children: Option<Box<Children>>,
    /// Whether it blocks its thread: nobody polls it.
    blocks: bool,
    /// In how many drains of its own group it waits, as this poll has seen.
    drains: Drains,
}

#[derive(Debug, Default)]
struct Drains {
    /// The poll: a number that no other has. Zero before the first drain of a poll.
    poll: u64,
    count: u32,
}

/// That a drain is waited in, noted with the task that polled it last.
#[derive(Debug, Default)]
pub(crate) struct DrainMark {
    /// The poll of the task that has it.
    poll: u64,
    /// The permit of that task.
    task: Option<u64>,
    waker: Option<Waker>,
}

impl Frame {
    const NONE: Self = Self { lineage: None, rare: None };

    #[inline]
    pub(crate) fn of(cx: &Context, handover: Option<&Arc<Handover>>) -> Self {
        let rare = handover.map(|handover| {
            Box::new(Rare { handover: Some(Arc::clone(handover)), ..Rare::default() })
        });
        Self { lineage: cx.around().map(|inside| Arc::clone(&inside.lineage)), rare }
    }

    /// The same for work that blocks its thread.
    pub(crate) fn of_blocking(cx: &Context, handover: Option<&Arc<Handover>>) -> Self {
        let mut frame = Self::of(cx, handover);
        frame.rare.get_or_insert_default().blocks = true;
        frame
    }

    pub(crate) fn children(&self) -> Option<&Children> {
        self.rare.as_ref()?.children.as_deref()
    }

    pub(crate) fn take_children(&mut self) -> Option<Box<Children>> {
        self.rare.as_mut()?.children.take()
    }

    pub(crate) fn drains(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.drains.count > 0)
    }
}

/// A task with the permit that it holds.
#[derive(Debug)]
struct Current {
    frame: Frame,
    permit: PermitId,
}

impl Current {
    fn inside(&self) -> Option<Inside> {
        let lineage = Arc::clone(self.frame.lineage.as_ref()?);
        Some(Inside { lineage, permit: self.permit })
    }
}

thread_local! {
    static CURRENT: RefCell<Current> =
        const { RefCell::new(Current { frame: Frame::NONE, permit: PermitId::NONE }) };
}

/// Runs `work` as part of the task of `frame`, which holds `permit`, for as long as the call takes.
#[inline]
pub(crate) fn within<R>(frame: &mut Frame, permit: PermitId, work: impl FnOnce() -> R) -> R {
    struct Restore<'a>(&'a mut Frame, PermitId);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            swap(self.0, &mut self.1);
        }
    }
    if let Some(rare) = &mut frame.rare {
        rare.drains = Drains::default();
    }
    let mut restore = Restore(frame, permit);
    swap(restore.0, &mut restore.1);
    work()
}

#[inline]
fn swap(frame: &mut Frame, permit: &mut PermitId) {
    CURRENT.with_borrow_mut(|current| {
        std::mem::swap(&mut current.frame, frame);
        std::mem::swap(&mut current.permit, permit);
    });
}

/// Whether what this thread runs holds a permit of that group, itself or further out.
#[inline]
pub(crate) fn holds(group: GroupId) -> bool {
    // Most who submit run in no task: a look that is small enough to be done in passing.
    CURRENT.with_borrow(|current| current.frame.lineage.is_some()) && holds_in_task(group)
}

#[inline(never)]
fn holds_in_task(group: GroupId) -> bool {
    CURRENT.with_borrow(|current| {
        // What this thread runs holds its permit: no need to ask.
        let lineage = current.frame.lineage.as_ref();
        lineage.is_some_and(|own| own.group == group || own.is_held_beyond(group))
    })
}

/// Whether that group answers for what this thread runs.
pub(crate) fn is_within(group: &Lineage) -> bool {
    CURRENT.with_borrow(|current| {
        current.frame.lineage.as_ref().is_some_and(|own| own.is_within(group))
    })
}

/// What this thread runs in.
pub(crate) fn inside() -> Option<Inside> {
    CURRENT.with_borrow(Current::inside)
}

/// Where the current task hands its permit over: the same for all groups that it makes.
pub(crate) fn handover() -> Result<Arc<Handover>, Invalid> {
    CURRENT.with_borrow_mut(|current| {
        let rare = current.frame.rare.get_or_insert_default();
        if let Some(children) = &rare.children {
            return Ok(Arc::clone(&children.handover));
        }
        let handover = Handover::new(rare.handover.clone(), rare.blocks)?;
        rare.children = Some(Box::new(Children::new(Arc::clone(&handover))));
        Ok(handover)
    })
}

/// Whether the current task is the maker of what is handed over there.
pub(crate) fn made_with(handover: &Arc<Handover>) -> bool {
    CURRENT.with_borrow(|current| {
        let children = current.frame.children();
        children.is_some_and(|children| Arc::ptr_eq(&children.handover, handover))
    })
}

/// The numbers of the permits that what this thread runs holds.
pub(crate) fn numbers() -> Vec<u64> {
    let mut numbers = Vec::new();
    CURRENT.with_borrow(|current| {
        if let Some(inside) = current.inside() {
            inside.numbers(&mut numbers);
        }
    });
    numbers
}

/// Notes a group that the current task made: it ends with the task.
pub(crate) fn made(child: Arc<Shared>) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(children) = current.frame.rare.as_mut().and_then(|rare| rare.children.as_mut())
        {
            children.push(child);
        }
    });
}

impl DrainMark {
    /// Notes that the current task waits in a drain of that group, if it is one of its tasks.
    pub(crate) fn set(&mut self, group: &Lineage, waker: &Waker) {
        static POLLS: AtomicU64 = AtomicU64::new(1);
        let task = CURRENT.with_borrow_mut(|current| {
            let own = current.frame.lineage.as_ref();
            if !own.is_some_and(|own| own.group == group.group && own.is_within(group)) {
                return None;
            }
            let drains = &mut current.frame.rare.get_or_insert_default().drains;
            if drains.poll == 0 {
                drains.poll = POLLS.fetch_add(1, Ordering::Relaxed);
            }
            if self.poll != drains.poll {
                drains.count += 1;
                self.poll = drains.poll;
            }
            Some(current.permit.number)
        });
        // Handed on, it is woken there to find it gone. Not the task that has it: it would never rest.
        let earlier = mem::replace(&mut self.waker, task.map(|_| waker.clone()));
        if mem::replace(&mut self.task, task) != task {
            wake_all(earlier);
        }
    }
}

/// Takes it back, if this is the poll it was made in. A task that is not polled right now may still
/// have it: that one is woken, to find it gone.
impl Drop for DrainMark {
    fn drop(&mut self) {
        let taken_back = CURRENT.with_borrow_mut(|current| {
            let drains = current.frame.rare.as_mut().map(|rare| &mut rare.drains);
            match drains.filter(|drains| drains.poll == self.poll && self.poll != 0) {
                Some(drains) => {
                    drains.count -= 1;
                    true
                }
                None => self.poll == 0,
            }
        });
        if !taken_back {
            wake_all(self.waker.take());
        }
    }
}
