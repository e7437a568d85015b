//! Reasons for which nothing starts, whatever else would let it.
//!
//! `docs/rules.md#schedule-9`.

/// The reasons in force, each as often as it was given.
#[derive(Debug)]
pub(crate) struct Pauses {
    reasons: Vec<(&'static str, u32)>,
}

impl Pauses {
    pub(crate) const fn new() -> Self {
        Self { reasons: Vec::new() }
    }

    pub(crate) fn add(&mut self, reason: &'static str) {
        match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, times)) => *times += 1,
            None => self.reasons.push((reason, 1)),
        }
    }

    pub(crate) fn end(&mut self, reason: &'static str) -> bool {
        let Some(at) = self.reasons.iter().position(|(known, _)| *known == reason) else {
            return false;
        };
        self.reasons[at].1 -= 1;
        if self.reasons[at].1 == 0 {
            self.reasons.remove(at);
        }
        true
    }

    /// The reason that has been in force for longest.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.reasons.first().map(|(reason, _)| *reason)
    }
}
