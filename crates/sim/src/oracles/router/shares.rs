//! The oracle of fairness: tenants that wait side by side, and whose messages all take as long, get
//! as many starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Broken, hold};

type Tenant = Option<Arc<str>>;

#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Of each tenant: how many wait, and how many have started.
    tenants: BTreeMap<Tenant, (u32, i64)>,
    /// Of two that wait: how far the one was ahead when both began to.
    ahead: BTreeMap<(Tenant, Tenant), i64>,
    widest: i64,
}

impl Shares {
    pub(super) const fn widest(&self) -> u64 {
        self.widest.unsigned_abs()
    }

    pub(super) fn wait(&mut self, tenant: Option<&Arc<str>>) {
        self.tenants.entry(tenant.cloned()).or_default().0 += 1;
        self.line_up();
    }

    /// Who stands in line beside whom from here on.
    fn line_up(&mut self) {
        let waiting: Vec<(&Tenant, i64)> = self
            .tenants
            .iter()
            .filter(|(_, (waiting, _))| *waiting > 0)
            .map(|(tenant, (_, started))| (tenant, *started))
            .collect();
        let mut ahead = BTreeMap::new();
        for (one, started) in &waiting {
            for (other, theirs) in waiting.iter().filter(|(other, _)| other != one) {
                let pair = ((*one).clone(), (*other).clone());
                let before = self.ahead.get(&pair).copied().unwrap_or(started - theirs);
                ahead.insert(pair, before);
            }
        }
        self.ahead = ahead;
    }

    /// What runs when two begin to stand in line is charged later, and one more is always ahead.
    pub(super) fn start(
        &mut self,
        tenant: Option<&Arc<str>>,
        concurrency: u32,
    ) -> Result<(), Broken> {
        let tenant = tenant.cloned();
        let most = 2 * i64::from(concurrency) + 2;
        let (waiting, started) = self.tenants.entry(tenant.clone()).or_default();
        (*waiting, *started) = (waiting.saturating_sub(1), *started + 1);
        let started = *started;
        for ((one, other), before) in self.ahead.iter().filter(|((one, _), _)| *one == tenant) {
            let theirs = self.tenants.get(other).map_or(0, |(_, started)| *started);
            let apart = started - theirs - before;
            self.widest = self.widest.max(apart);
            hold("fairness", apart <= most, || {
                format!("{one:?} is {apart} ahead of {other:?}, of {most}")
            })?;
        }
        self.line_up();
        Ok(())
    }
}
