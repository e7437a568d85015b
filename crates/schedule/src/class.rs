//! Priority classes, and the promise that none of them starves.
//!
//! `docs/rules.md#schedule-1`.

use std::cmp::Reverse;
use std::fmt;

/// What goes first. Declared in order: `System` before `Admin` before `Normal` before `Low`.
///
/// ```
/// use sluicegate_schedule::Class;
/// assert!(Class::System < Class::Low);
/// assert_eq!(Class::default(), Class::Normal);
/// assert_eq!(Class::Admin.to_string(), "admin");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The system's own work: health checks, internal calls.
    System,
    /// Work of those who run the system.
    Admin,
    /// Everybody's work.
    #[default]
    Normal,
    /// Work that can wait.
    Low,
}

impl Class {
    /// All classes, first to last.
    pub const ALL: [Self; 4] = [Self::System, Self::Admin, Self::Normal, Self::Low];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Whether the class passes a tenant's own depth limit. The limit of the whole queue holds for
    /// every class.
    ///
    /// ```
    /// use sluicegate_schedule::Class;
    ///
    /// assert!(Class::Admin.passes_tenant_depth()); // operators get in even so
    /// assert!(!Class::Normal.passes_tenant_depth());
    /// ```
    #[must_use]
    pub const fn passes_tenant_depth(self) -> bool {
        matches!(self, Self::System | Self::Admin)
    }
}

/// One word, for a log or a table.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::System => "system",
            Self::Admin => "admin",
            Self::Normal => "normal",
            Self::Low => "low",
        })
    }
}

/// Picks the class of the next dispatch: the first with work, except where another would otherwise
/// go without for a whole period.
///
/// A class with work that was passed over `n` times can be passed over `period - 1 - n` times more:
/// its slack. Sorted by slack, the i-th must still find a free dispatch after the i before it, so as
/// soon as one has a slack of no more than i, the most urgent of them is served now. Served early
/// enough, all keep the promise even when they fall due together; that needs a period of at least
/// [`Class::COUNT`].
///
/// A class that could not start its work for a while (its keys were busy, its tenants at their
/// limits), or whose start was taken back, is promised the same from then on. Beyond that it is owed
/// what it was owed before, and gets it as soon as that costs no class its promise.
#[derive(Clone, Debug)]
pub(crate) struct ClassPicker {
    period: u32,
    /// How often each was passed over since it was served, or last could not start anything: what the
    /// promise counts.
    passed_over: [u32; Class::COUNT],
    /// The same from before that on: never less.
    owed: [u32; Class::COUNT],
}

impl ClassPicker {
    pub(crate) const fn new(period: u32) -> Self {
        Self { period, passed_over: [0; Class::COUNT], owed: [0; Class::COUNT] }
    }

    /// The class to serve, given which have work that may start.
    pub(crate) fn pick(&self, waiting: [bool; Class::COUNT]) -> Option<Class> {
        let first = Class::ALL.into_iter().find(|class| waiting[class.index()])?;
        let others = Class::ALL.into_iter().filter(|class| waiting[class.index()]);
        if others.count() == 1 {
            return Some(first);
        }
        let promised = || self.most_urgent(&self.passed_over, waiting);
        let owed = || self.most_urgent(&self.owed, waiting);
        Some(promised().or_else(owed).unwrap_or(first))
    }

    /// The one with work that was passed over most often, if one of them cannot be passed over any more.
    fn most_urgent(
        &self,
        passed_over: &[u32; Class::COUNT],
        waiting: [bool; Class::COUNT],
    ) -> Option<Class> {
        let mut due = [(Reverse(0), Class::System); Class::COUNT];
        let mut count = 0;
        for class in Class::ALL.into_iter().filter(|class| waiting[class.index()]) {
            due[count] = (Reverse(passed_over[class.index()]), class);
            count += 1;
        }
        let due = &mut due[..count];
        due.sort_unstable();
        let slack = |passed_over: u32| (self.period - 1).saturating_sub(passed_over);
        let urgent = due.iter().zip(0..).any(|((Reverse(n), _), before)| slack(*n) <= before);
        due.first().map(|(_, class)| *class).filter(|_| urgent)
    }

    /// Counts a dispatch of `served`.
    pub(crate) fn served(&mut self, served: Class, waiting: [bool; Class::COUNT]) {
        for class in Class::ALL {
            let index = class.index();
            if class == served {
                self.forget(class);
            } else if waiting[index] {
                self.passed_over[index] = self.passed_over[index].saturating_add(1);
                self.owed[index] = self.owed[index].saturating_add(1);
            } else {
                self.passed_over[index] = 0;
            }
        }
    }

    /// The class was served and that was taken back, after others were served: it is owed at least what
    /// it was owed before.
    pub(crate) fn owe(&mut self, class: Class, before: &Self) {
        let owed = &mut self.owed[class.index()];
        *owed = (*owed).max(before.owed[class.index()]);
    }

    /// Nothing of the class waits any more: it is owed nothing.
    pub(crate) const fn forget(&mut self, class: Class) {
        self.passed_over[class.index()] = 0;
        self.owed[class.index()] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest run of dispatches without each class, when all always have work.
    fn longest_gaps(period: u32, waiting: [bool; Class::COUNT]) -> [usize; Class::COUNT] {
        let mut picker = ClassPicker::new(period);
        let mut gaps = [0; Class::COUNT];
        let mut current = [0; Class::COUNT];
        for _ in 0..10_000 {
            let class = picker.pick(waiting).unwrap();
            picker.served(class, waiting);
            for other in Class::ALL {
                let gap = &mut current[other.index()];
                *gap = if other == class { 0 } else { *gap + 1 };
                gaps[other.index()] = gaps[other.index()].max(*gap);
            }
        }
        gaps
    }

    #[test]
    fn every_class_gets_one_of_every_period() {
        for period in 4..40 {
            for gap in longest_gaps(period, [true; Class::COUNT]) {
                assert!(gap < period as usize, "period {period}: a gap of {gap}");
            }
        }
    }

    /// `Admin` and `Normal` come and go, `System` and `Low` are always there: these keep their
    /// promise to the letter, those are served soon after they come back.
    #[test]
    fn one_that_comes_back_late_costs_no_other_its_turn() {
        for (period, stays) in (4..40).flat_map(|period| (1..20).map(move |stays| (period, stays)))
        {
            let mut picker = ClassPicker::new(period);
            let mut gaps = [0; Class::COUNT];
            for n in 0..1_000u32 {
                let waiting = [true, n % (stays + 1) != 0, n % (stays + 2) < stays, true];
                let class = picker.pick(waiting).unwrap();
                picker.served(class, waiting);
                for other in Class::ALL.into_iter().filter(|other| waiting[other.index()]) {
                    let gap = &mut gaps[other.index()];
                    *gap = if other == class { 0 } else { *gap + 1 };
                    let late = if other == Class::System || other == Class::Low { 0 } else { 3 };
                    assert!(*gap < period + late, "{period}, {stays}: {other:?} {gap}");
                }
            }
        }
    }

    #[test]
    fn the_first_class_gets_all_the_rest() {
        let mut picker = ClassPicker::new(16);
        let waiting = [true, false, true, true];
        let mut served = [0; Class::COUNT];
        for _ in 0..1600 {
            let class = picker.pick(waiting).unwrap();
            picker.served(class, waiting);
            served[class.index()] += 1;
        }
        assert_eq!(served[Class::Admin.index()], 0);
        assert!((100..=108).contains(&served[Class::Normal.index()]), "{served:?}");
        assert!((100..=108).contains(&served[Class::Low.index()]), "{served:?}");
    }

    #[test]
    fn a_class_is_one_word() {
        assert_eq!(Class::ALL.map(|class| class.to_string()), ["system", "admin", "normal", "low"]);
        assert_eq!(format!("{:<7}|", Class::Low), "low    |");
    }

    #[test]
    fn alone_it_is_always_served() {
        let picker = ClassPicker::new(16);
        assert_eq!(picker.pick([false, false, false, true]), Some(Class::Low));
        assert_eq!(picker.pick([false; Class::COUNT]), None);
    }
}
