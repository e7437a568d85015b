//! What a context runs in: the groups around it, and the permits of them that are held for it.
//!
//! A task that asks for a permit of a group while it holds one could wait for ever, so it is told
//! at once. What counts is the permit, not the ancestry: a context that somebody keeps after the
//! task has ended asks for nothing that is held.
//!
//! `docs/rules.md#task-3`.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::flag::Flag;

/// The permits of one group: a child that shares them has its parent's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupId(NonZeroU32);

/// One held permit: where its holder looks for it, and a number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitId {
    pub(crate) number: u64,
    pub(crate) index: u32,
    pub(crate) shard: u16,
}

/// Who can say whether a permit that it gave is still held.
pub(crate) trait HoldsPermits: fmt::Debug + Send + Sync {
    fn holds(&self, permit: PermitId) -> bool;
}

/// A group as those see it who run in it.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) group: GroupId,
    /// Raised when the group's drain deadline passes.
    pub(crate) kill: Arc<Flag>,
    holder: Weak<dyn HoldsPermits>,
    /// The task that made the group, if it was made inside one.
    maker: Option<Inside>,
    /// What the submitter ran in.
    outer: Option<Inside>,
}

/// A group, and the permit of it that is held.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    pub(crate) lineage: Arc<Lineage>,
    pub(crate) permit: PermitId,
}

impl Lineage {
    pub(crate) fn new(group: GroupId, kill: Flag, holder: Weak<dyn HoldsPermits>) -> Self {
        Self { group, kill: Arc::new(kill), holder, maker: None, outer: None }
    }

    /// The same for a group that was made inside a task.
    pub(crate) fn made_in(mut self, maker: Option<Inside>) -> Self {
        self.maker = maker;
        self
    }

    /// This group around what a submitter hands in that runs in `outer` itself.
    pub(crate) fn around(self: &Arc<Self>, outer: Option<&Inside>) -> Arc<Self> {
        match outer {
            None => Arc::clone(self),
            Some(outer) => Arc::new(self.inside_of(self.without_spent(outer))),
        }
    }

    fn inside_of(&self, outer: Option<Inside>) -> Self {
        let Self { group, kill, holder, maker, .. } = self;
        let (kill, holder, maker) = (Arc::clone(kill), holder.clone(), maker.clone());
        Self { group: *group, kill, holder, maker, outer }
    }

    /// The way out through `outer`, without what says nothing any more: a permit that was given back, of
    /// a group that is met on the way before. So a context that goes from task to task does not grow.
    fn without_spent(&self, outer: &Inside) -> Option<Inside> {
        let chain = || std::iter::successors(Some(outer), |around| around.lineage.outer());
        let is_spent = |at: usize, around: &Inside| {
            let is_same = |other: &Self| Arc::ptr_eq(&other.kill, &around.lineage.kill);
            (is_same(self) || chain().take(at).any(|other| is_same(&other.lineage)))
                && !around.lineage.still_holds(around.permit)
        };
        let is_spent = |(at, around): &(usize, &Inside)| is_spent(*at, around);
        if !chain().enumerate().any(|one| is_spent(&one)) {
            return Some(outer.clone());
        }
        let kept: Vec<&Inside> =
            chain().enumerate().filter(|one| !is_spent(one)).map(|(_, around)| around).collect();
        kept.into_iter().rev().fold(None, |outer, around| {
            let lineage = Arc::new(around.lineage.inside_of(outer));
            Some(Inside { lineage, permit: around.permit })
        })
    }

    /// Whether that group answers for whatever runs here, so that its drain waits for it: it is that
    /// group, or a child of it at whatever depth.
    pub(crate) fn is_within(&self, group: &Self) -> bool {
        self.kill.chain().any(|flag| std::ptr::eq(flag, &*group.kill))
    }

    pub(crate) const fn maker(&self) -> Option<&Inside> {
        self.maker.as_ref()
    }

    pub(crate) const fn outer(&self) -> Option<&Inside> {
        self.outer.as_ref()
    }

    /// All those around it, each once: a task that made a group and submits to it is met both as the
    /// group's maker and as the submitter, at every level again.
    fn beyond(&self) -> Beyond<'_> {
        let mut beyond = Beyond { next: Vec::new(), seen: HashSet::new() };
        beyond.step_out(self);
        beyond
    }

    /// Whether a permit of that group is held further out.
    #[inline]
    pub(crate) fn is_held_beyond(&self, group: GroupId) -> bool {
        // Mostly there is nothing around it: a look that is small enough to be done in passing.
        (self.maker.is_some() || self.outer.is_some()) && self.is_held_around(group)
    }

    #[inline(never)]
    fn is_held_around(&self, group: GroupId) -> bool {
        self.beyond().any(|around| around.is_of(group))
    }

    fn still_holds(&self, permit: PermitId) -> bool {
        self.holder.upgrade().is_some_and(|holder| holder.holds(permit))
    }
}

impl Inside {
    /// The numbers of all permits held here and further out.
    pub(crate) fn numbers(&self, into: &mut Vec<u64>) {
        into.push(self.permit.number);
        into.extend(self.lineage.beyond().map(|around| around.permit.number));
    }

    /// Whether it is of that group, and still held.
    pub(crate) fn is_of(&self, group: GroupId) -> bool {
        self.lineage.group == group && self.lineage.still_holds(self.permit)
    }
}

/// The way out from a lineage.
struct Beyond<'a> {
    next: Vec<&'a Inside>,
    /// From the first parting of ways on: before it, there is but one. By group too, since each sluice
    /// counts for itself.
    seen: HashSet<(GroupId, u64)>,
}

impl<'a> Beyond<'a> {
    fn step_out(&mut self, from: &'a Lineage) {
        let parts = from.maker.is_some() && from.outer.is_some();
        for around in from.maker.iter().chain(&from.outer) {
            let is_only_way = !parts && self.seen.is_empty();
            if is_only_way || self.seen.insert((around.lineage.group, around.permit.number)) {
                self.next.push(around);
            }
        }
    }
}

impl<'a> Iterator for Beyond<'a> {
    type Item = &'a Inside;

    fn next(&mut self) -> Option<&'a Inside> {
        let around = self.next.pop()?;
        self.step_out(&around.lineage);
        Some(around)
    }
}

impl PermitId {
    /// No permit: not let in yet.
    pub(crate) const NONE: Self = Self { number: 0, index: u32::MAX, shard: 0 };
}

impl GroupId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Zero comes round once in four billion groups; two that share an id then could only
        // mistake each other for nested if one were made inside the other's task.
        Self(NonZeroU32::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU32::MAX))
    }
}
