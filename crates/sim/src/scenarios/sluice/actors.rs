//! Callers, workers, and whoever changes the sluice. Each draws from numbers of its own.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::{Class, Context, Entry, Rate, Sluice, TenantLimits, Turn};
use tokio::time::{Instant, sleep, timeout};

use super::Item;
use super::watch::{Offer, Watch};
use crate::rng::Rng;

pub(super) struct Actor {
    sluice: Sluice<Item>,
    watch: Arc<Watch>,
    rng: Rng,
}

impl Actor {
    pub(super) fn new(sluice: &Sluice<Item>, watch: &Arc<Watch>, seed: u64) -> Self {
        Self { sluice: sluice.clone(), watch: Arc::clone(watch), rng: Rng::new(seed) }
    }

    fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.between(least, most))
    }

    fn offer(&mut self) -> (Item, Entry) {
        let tenant = format!("t{}", self.rng.between(1, 5));
        let key = format!("k{}", self.rng.between(1, 8));
        let class = *self.rng.one_of(&Class::ALL);
        let entry = Entry::of(&*tenant).class(class);
        let (entry, key) = match self.rng.between(1, 4) {
            1 => (entry, None),
            2 => (entry.tenant_key(&*key), Some(format!("{tenant}/{key}"))),
            _ => (entry.key(&*key), Some(key)),
        };
        (self.watch.offer(Offer { key, class }), entry)
    }

    /// Pulls values until the sluice ends; gives up waiting now and then.
    pub(super) async fn work(mut self, cx: Context) {
        loop {
            let patience = self.ms(1, 300);
            let pulled = match timeout(patience, self.sluice.next()).await {
                Ok(pulled) => pulled,
                Err(_) if cx.is_cancelled() => return,
                Err(_) => self.sluice.try_next(),
            };
            match pulled {
                Some(turn) => self.serve(turn).await,
                None if self.sluice.stats().gauges.queued == 0 && self.watch.is_draining() => {
                    return;
                }
                None => {}
            }
        }
    }

    async fn serve(&mut self, turn: Turn<Item>) {
        let mut next = Some(turn);
        while let Some(turn) = next.take() {
            self.watch.started(&self.sluice, *turn.value(), turn.id());
            let service = self.ms(0, 40);
            sleep(service).await;
            next = self.end(turn).await;
        }
    }

    async fn end(&mut self, turn: Turn<Item>) -> Option<Turn<Item>> {
        let (item, again) = (*turn.value(), Instant::now() + self.ms(0, 60));
        self.watch.ends(item);
        match self.rng.between(1, 100) {
            1..=40 => self.watch.ended(turn.finish()),
            41..=55 => {
                let (item, next) = turn.finish_and_next();
                self.watch.ended(item);
                return next;
            }
            56..=60 => self.watch.ended(turn.fail()),
            61..=65 => self.watch.ended(turn.finish_with_cost(self.rng.between_u32(1, 90))),
            66..=72 => drop(turn),
            73..=82 => match turn.retry_at(Some(again)) {
                Ok(_) => self.watch.waits_again(item),
                Err(item) => self.watch.ended(item),
            },
            83..=90 => match turn.postpone(again) {
                Ok(_) => self.watch.waits_again(item),
                Err(item) => self.watch.ended(item),
            },
            _ => {
                self.watch.lingers(item);
                let (item, hold, next) = turn.linger_and_next();
                if let Some(next) = next {
                    drop(hold);
                    self.watch.ended(item);
                    return Some(next);
                }
                sleep(self.ms(0, 30)).await;
                self.watch.ended(item);
                drop(hold);
            }
        }
        None
    }

    /// Waits for its turn, for as long as its patience lasts.
    pub(super) async fn call(mut self, service: Context, after: Duration) {
        sleep(after).await;
        let (item, entry) = self.offer();
        let cx = if self.rng.percent(30) { service.with_timeout(self.ms(1, 200)) } else { service };
        let patience = self.ms(1, 400);
        let Ok(entered) = timeout(patience, self.sluice.enter(&cx, entry, item)).await else {
            return self.watch.gave_up(item);
        };
        let mut admitted = match entered {
            Ok(admitted) => admitted,
            Err(refused) => return self.watch.refused(refused.work),
        };
        self.watch.admitted(item, admitted.id());
        loop {
            let patience = self.ms(1, 400);
            let turn = match timeout(patience, admitted.turn()).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(refused)) => return self.watch.ended(refused.work),
                Err(_) => return self.watch.ended(item),
            };
            self.watch.started(&self.sluice, item, turn.id());
            sleep(self.ms(0, 40)).await;
            self.watch.ends(item);
            if self.rng.percent(25) {
                admitted = turn.wait_again(Instant::now() + self.ms(0, 50));
                self.watch.waits_again(item);
            } else if self.rng.percent(10) {
                // Dropped, the value goes to whom it belongs.
                return drop(turn);
            } else {
                return self.watch.ended(turn.finish());
            }
        }
    }

    /// Lets values in for the workers, one or a batch.
    pub(super) async fn feed(mut self, cx: Context, after: Duration) {
        if cx.until_interrupted(sleep(after)).await.is_err() {
            return;
        }
        if self.rng.percent(60) {
            let (item, entry) = self.offer();
            match self.sluice.admit(entry, item) {
                Ok(id) => self.watch.admitted(item, Some(id)),
                Err(refused) => return self.watch.refused(refused.work),
            }
            if self.rng.percent(15) {
                sleep(self.ms(0, 50)).await;
                if let Some(id) = self.watch.id(item)
                    && let Some(item) = self.sluice.withdraw(id)
                {
                    self.watch.ended(item);
                }
            }
            return;
        }
        let batch: Vec<_> = (0..self.rng.between(1, 6)).map(|_| self.offer()).collect();
        let items: Vec<Item> = batch.iter().map(|(item, _)| *item).collect();
        self.sluice.room_for(items.len() as u32).await;
        let batch = batch.into_iter().map(|(item, entry)| (entry, item)).collect();
        match self.sluice.admit_all(batch) {
            Ok(ids) => {
                let admitted = items.into_iter().zip(ids);
                admitted.for_each(|(item, id)| self.watch.admitted(item, Some(id)));
            }
            Err(refused) => {
                refused.work.into_iter().for_each(|(_, item)| self.watch.refused(item));
            }
        }
    }

    /// Changes limits and rates, and pauses starting, at any time.
    pub(super) async fn change(mut self, cx: Context) {
        for _ in 0..self.rng.between(0, 12) {
            if cx.until_interrupted(sleep(self.ms(1, 120))).await.is_err() {
                break;
            }
            match self.rng.between(1, 5) {
                1 => {
                    let (concurrency, capacity) =
                        (self.rng.between_u32(1, 6), self.rng.between_u32(4, 40));
                    self.watch.limit(concurrency, capacity);
                    self.sluice.resize(concurrency, capacity).expect("sound limits");
                }
                2 => {
                    let rate =
                        Rate::new(self.rng.between_u32(1, 30), Duration::from_millis(100), 2);
                    let rate = Some(rate.expect("a sound rate")).filter(|_| self.rng.percent(60));
                    self.sluice.set_rate(rate);
                }
                3 => {
                    let limits = TenantLimits::new().max_running(self.rng.between_u32(1, 4));
                    self.sluice.set_tenant("t1", limits.weight(3)).expect("sound limits");
                }
                4 => {
                    self.sluice.unset_tenant("t1");
                }
                _ => {
                    let pause = self.sluice.pause("memory");
                    self.watch.pause(true);
                    sleep(self.ms(1, 80)).await;
                    self.watch.pause(false);
                    drop(pause);
                }
            }
        }
        self.sluice.set_rate(None);
    }
}
