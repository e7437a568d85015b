//! Items that ask to enter, one by one and in batches.

use sluicegate_schedule::{Class, Entry};

use super::{MAX_COST, Pool};
use crate::oracles::{Broken, Fact, Item};

impl Pool<'_> {
    fn class(&mut self) -> Class {
        match self.rng.between(1, 10) {
            1 => Class::System,
            2 => Class::Admin,
            3..=7 => Class::Normal,
            _ => Class::Low,
        }
    }

    /// Another item, and how it asks to enter.
    fn item(&mut self, tenant: usize, class: Class) -> (Entry<u32, usize>, Item) {
        self.numbers += 1;
        let key = Some(self.rng.between_u32(1, self.keys)).filter(|_| self.rng.percent(60));
        let own_key = self.rng.percent(25);
        let cost = self.rng.between_u32(1, MAX_COST);
        let entry = Entry::of(tenant).class(class).cost(cost);
        let entry = match key {
            Some(key) if own_key => entry.tenant_key(key),
            Some(key) => entry.key(key),
            None => entry,
        };
        (entry, Item { number: self.numbers, tenant, key, own_key, class, cost })
    }

    pub(super) fn arrive(&mut self, tenant: usize) -> Result<(), Broken> {
        let class = self.class();
        let (entry, item) = self.item(tenant, class);
        match self.schedule.admit(self.now, entry, item) {
            Ok(_) => {
                self.report.admitted += 1;
                self.see(Fact::Admitted(item))
            }
            Err(refused) => {
                self.report.refused += 1;
                let Item { tenant, class, .. } = refused.value;
                self.see(Fact::Refused { tenant, class, count: 1 })
            }
        }
    }

    /// All of them come in, or none does.
    pub(super) fn arrive_together(&mut self, tenant: usize, count: u32) -> Result<(), Broken> {
        let class = self.class();
        let batch: Vec<_> = (0..count).map(|_| self.item(tenant, class)).collect();
        let items: Vec<Item> = batch.iter().map(|(_, item)| *item).collect();
        match self.schedule.admit_all(self.now, batch) {
            Ok(_) => {
                self.report.admitted += u64::from(count);
                items.into_iter().try_for_each(|item| self.see(Fact::Admitted(item)))
            }
            Err(_) => {
                self.report.refused += u64::from(count);
                self.see(Fact::Refused { tenant, class, count })
            }
        }
    }
}
