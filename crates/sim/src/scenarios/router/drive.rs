//! Whoever runs the router: publishes, changes, breaks, crashes, restarts, and ends it in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Message, PoolSettings, Publication, Router, Target};
use sluicegate_schedule::Moment;
use sluicegate_testkit::FakeSource;
use tokio::time::{Instant, sleep, sleep_until};

use super::aside::{Aside, List};
use super::endpoint::{Answers, Endpoint, Listener};
use super::plan::{Draft, Event, Kind, Plan, QueuePlan, SourceFault, ms};
use super::wire::Wire;
use super::world::{Life, World};
use crate::oracles::Broken;
use crate::oracles::router::{Fact, Letter};

/// How often the housekeeping comes by.
const ROUND: Duration = Duration::from_secs(5);
/// By then everything must have left, once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(4 * 60 * 60);

/// Runs a plan from its first event to the end of the last router.
///
/// # Errors
/// What an oracle found.
pub(super) async fn drive(world: Arc<World>, plan: Plan) -> Result<(), Broken> {
    let mut drive = Drive::new(world, plan);
    drive.start().await;
    let mut round = ROUND;
    while let Some((&(at, number), _)) = drive.plan.events.first_key_value() {
        let due = at.min(round);
        sleep_until(drive.world.instant(due)).await;
        drive.world.check()?;
        if round <= at {
            round = drive.since_start() + ROUND;
            drive.look_after().await;
        } else if let Some(event) = drive.plan.events.remove(&(at, number)) {
            drive.happen(event).await;
        }
        drive.world.check()?;
    }
    drive.calm_down().await;
    drive.wait_for_the_end().await?;
    drive.finish().await?;
    drive.world.check()
}

struct Drive {
    world: Arc<World>,
    plan: Plan,
    sources: Vec<FakeSource>,
    /// How many messages each queue has got.
    numbers: Vec<u64>,
    letters: Vec<Letter>,
    list: Arc<List>,
    answers: Arc<Answers>,
    /// The pools as they are set now.
    pools: BTreeMap<Arc<str>, PoolSettings>,
    /// How often each queue was opened, and how many wires that took.
    openings: Vec<u64>,
    wires: Vec<u64>,
    life: Option<Arc<Life>>,
    router: Option<Router>,
}

impl Drive {
    fn new(world: Arc<World>, plan: Plan) -> Self {
        let sources = plan.queues.iter().map(|queue| FakeSource::new(queue.window)).collect();
        let pools = plan.pools.iter().map(|pool| (Arc::clone(&pool.code), pool.clone()));
        Self {
            world,
            sources,
            numbers: vec![0; plan.queues.len()],
            letters: Vec::new(),
            list: Arc::default(),
            answers: Arc::default(),
            pools: pools.collect(),
            openings: vec![0; plan.queues.len()],
            wires: vec![0; plan.queues.len()],
            life: None,
            router: None,
            plan,
        }
    }

    fn since_start(&self) -> Duration {
        self.world.now() - Moment::ZERO
    }

    fn router(&self) -> Router {
        self.router.clone().expect("there is a router from the start to the end")
    }

    /// A new router begins where the last one ended, and knows nothing of it.
    async fn start(&mut self) {
        let life = self.world.begin_life();
        let (world, list) = (Arc::clone(&self.world), Arc::clone(&self.list));
        let steady = self.plan.fair.then_some(ms(100));
        let endpoint = Endpoint {
            world: Arc::clone(&world),
            life: Arc::clone(&life),
            answers: Arc::clone(&self.answers),
            trouble: self.plan.trouble,
            steady,
        };
        let listener = Listener { world: Arc::clone(&world), life: Arc::clone(&life) };
        let aside = Aside { world, life: Arc::clone(&life), list };
        let router = Router::new(Arc::new(endpoint), Arc::new(aside), Arc::new(listener));
        let router = router.expect("a router can always be made");
        (self.life, self.router) = (Some(life), Some(router));
        for settings in self.pools.values().cloned().collect::<Vec<_>>() {
            self.set_pool(settings);
        }
        for queue in 0..self.sources.len() {
            self.open(queue).await;
        }
    }

    fn wire(&mut self, queue: usize) -> Arc<Wire> {
        self.wires[queue] += 1;
        let life = self.life.as_ref().expect("there is a router from the start to the end");
        let (plan, source) = (&self.plan.queues[queue], &self.sources[queue]);
        let numbers = (self.openings[queue], self.wires[queue]);
        Wire::new(&self.world, life, queue, numbers, plan, source)
    }

    async fn open(&mut self, queue: usize) {
        self.openings[queue] += 1;
        let wire = self.wire(queue);
        let QueuePlan { name, settings, .. } = self.plan.queues[queue].clone();
        let added = self.router().add_queue(name, settings, wire).await;
        assert_eq!(added, Ok(true), "a queue with sound settings can be added");
    }

    fn set_pool(&mut self, settings: PoolSettings) {
        self.world.see(Fact::PoolSet(settings.clone()));
        self.pools.insert(Arc::clone(&settings.code), settings.clone());
        self.router().set_pool(settings).expect("the settings are sound");
    }

    async fn happen(&mut self, event: Event) {
        match event {
            Event::Publish(drafts) => drafts.into_iter().for_each(|draft| self.publish(draft)),
            Event::Source { queue, fault, lasts } => self.break_source(queue, fault, lasts),
            Event::ParkedFails { lasts } => {
                self.world.fault(format_args!("the parked list fails for {lasts:?}"));
                self.world.parked_fails(self.world.now() + lasts);
            }
            Event::SetPool(settings) => self.set_pool(settings),
            Event::RemovePool(code) => {
                self.pools.remove(&code);
                self.world.see(Fact::PoolRemoved(Arc::clone(&code)));
                self.router().remove_pool(&code);
            }
            Event::RemoveQueue { queue, back_after } => {
                self.reopen(queue, back_after).await;
            }
            Event::Ack => self.ack_one(),
            Event::FreeKey => self.free_one(),
            Event::Crash { gives_back } => {
                self.crash(gives_back);
                self.start().await;
            }
            Event::Shutdown { drain, crash_after } => {
                self.shut_down(drain, crash_after).await;
                self.start().await;
            }
        }
    }

    fn publish(&mut self, draft: Draft) {
        let Draft { queue, pool, group, tenant, high, host, delay, kind } = draft;
        let serial = self.letters.len();
        self.numbers[queue] += 1;
        let number = self.numbers[queue];
        let earlier = |letter: &&Letter| letter.queue == queue && !letter.is_malformed;
        let twin = if kind == Kind::Copy { self.letters.iter().rfind(earlier) } else { None };
        let id: Arc<str> = twin.map_or_else(
            || format!("{}-{number}", self.plan.queues[queue].name).into(),
            |twin| Arc::clone(&twin.id),
        );
        let letter = Letter {
            serial,
            queue,
            queue_name: Arc::clone(&self.plan.queues[queue].name),
            number,
            id: Arc::clone(&id),
            pool: Arc::clone(&pool),
            group: group.clone(),
            tenant: tenant.clone(),
            is_high: high,
            host: format!("h{host}").into(),
            is_malformed: kind == Kind::Malformed,
            delay,
        };
        self.letters.push(letter.clone());
        self.world.see(Fact::Published(letter));
        if kind == Kind::Malformed {
            self.sources[queue].push_malformed("it is none", "{");
            return;
        }
        let target = Target::parse(&format!("http://h{host}/{number}")).expect("it is a target");
        let message = Message {
            id,
            pool,
            group,
            tenant,
            high_priority: high,
            target,
            auth_token: None,
            payload: Some(serial.to_string().into()),
            traceparent: None,
            unknown_fields: Box::default(),
        };
        self.sources[queue].push([Publication { message, body: "{}".into(), delay }]);
    }

    fn break_source(&mut self, queue: usize, fault: SourceFault, lasts: Duration) {
        let name = &self.plan.queues[queue].name;
        self.world.fault(format_args!("{name}: {fault:?} for {lasts:?}"));
        let until = self.world.now() + lasts;
        self.world.trouble(queue, fault, until, self.wires[queue]);
        let grace = match fault {
            // What was sent by then may arrive late, and what was extended too late as well.
            SourceFault::Slow => lasts + self.plan.queues[queue].window,
            SourceFault::Hang => Duration::from_secs(300),
            _ => Duration::ZERO,
        };
        self.world.see(Fact::Disturbed { queue, until: self.world.now() + grace });
        match fault {
            SourceFault::Redeliver => self.sources[queue].redeliver_now(),
            SourceFault::Expire => self.sources[queue].expire_receipts(),
            _ => {}
        }
    }

    /// Takes a queue out, and puts it back in when it is gone.
    async fn reopen(&mut self, queue: usize, back_after: Duration) {
        let name = Arc::clone(&self.plan.queues[queue].name);
        self.world.fault(format_args!("{name} is removed"));
        self.world.see(Fact::QueueStopped { queue });
        self.world.reset(queue);
        let router = self.router();
        let deadline = Instant::now() + Duration::from_secs(5);
        assert!(router.remove_queue(&name, deadline).await, "the queue was there");
        sleep(back_after).await;
        self.world.note(format_args!("{name} is back"));
        self.open(queue).await;
    }

    fn ack_one(&mut self) {
        let views = self.router().message_views(None);
        if views.is_empty() {
            return;
        }
        let at = self.world.draw(|rng| rng.between(0, views.len() as u64 - 1));
        self.ack(&views[at as usize].message.id);
    }

    fn ack(&self, id: &str) {
        let acked = self.router().ack(id);
        self.world.fault(format_args!("ack {id} by hand: {acked:?}"));
        if acked.is_ok() {
            self.world.see(Fact::Acked { id: id.into() });
        }
    }

    fn free_one(&mut self) {
        let keys = self.list.keys();
        if keys.is_empty() {
            return;
        }
        let at = self.world.draw(|rng| rng.between(0, keys.len() as u64 - 1));
        let key = keys[at as usize].clone();
        self.list.free(&key);
        self.world.see(Fact::Freed(key));
    }

    /// The router is gone, from one instant to the next.
    fn crash(&mut self, gives_back: bool) {
        self.world.fault(format_args!("the router crashes; windows end: {gives_back}"));
        self.world.end_life();
        if gives_back {
            self.sources.iter().for_each(FakeSource::redeliver_now);
        }
    }

    async fn shut_down(&mut self, drain: Duration, crash_after: Option<Duration>) {
        self.world.fault(format_args!("the router is shut down within {drain:?}"));
        self.world.see(Fact::Stopping);
        let (router, now) = (self.router(), Instant::now());
        let is_healthy = self.world.is_healthy();
        let stop_by = now + drain / 2;
        let shutdown = router.shutdown(stop_by, now + drain);
        let crash = async {
            match crash_after {
                Some(after) => sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = crash => self.crash(true),
            report = shutdown => {
                let unsettled = report.unsettled;
                let is_stuck = !report.stuck_queues.is_empty() || !report.abandoned.is_empty();
                let in_flight = router.in_flight();
                let is_healthy = is_healthy && self.world.is_healthy();
                self.world.see(Fact::Stopped { unsettled, is_stuck, in_flight, is_healthy });
            }
        }
        self.world.end_life();
    }

    /// What the server does now and then: forgets what has left, replaces what has stalled.
    async fn look_after(&mut self) {
        let router = self.router();
        let left = router.clean_up().await;
        for name in router.stalled_queues() {
            let find = |queue: &QueuePlan| queue.name == name;
            let Some(queue) = self.plan.queues.iter().position(find) else { continue };
            self.world.note(format_args!("{name} has stalled and is replaced"));
            self.world.see(Fact::QueueStopped { queue });
            let wire = self.wire(queue);
            let stalled = router.source(&name).expect("the queue was there");
            let restarted = router.restart_queue(&name, &stalled, wire).await;
            assert_eq!(restarted, Ok(true), "the queue was there");
        }
        for view in router.pool_views() {
            let gauges = &view.stats.gauges;
            self.world.see(Fact::Gauges {
                pool: Arc::clone(&view.settings.code),
                queued: gauges.queued,
                running: gauges.running,
            });
        }
        self.world.note(format_args!("{} in flight, {left} leaving", router.in_flight()));
    }

    /// From here on nothing goes wrong, and the pools are as fast as they can be.
    async fn calm_down(&mut self) {
        self.world.note(format_args!("from now on everything goes well"));
        self.world.calm_down();
        for settings in self.pools.values().cloned().collect::<Vec<_>>() {
            self.set_pool(PoolSettings { rate_limit_per_minute: None, ..settings });
        }
    }

    /// Waits until nothing is left in any source.
    async fn wait_for_the_end(&mut self) -> Result<(), Broken> {
        let patience = self.since_start() + PATIENCE;
        while self.since_start() < patience {
            if self.sources.iter().all(FakeSource::is_empty) && self.router().in_flight() == 0 {
                return Ok(());
            }
            sleep(ROUND).await;
            self.world.check()?;
            self.look_after().await;
            self.ack_blocked();
        }
        self.world.see(Fact::Stuck);
        self.world.check()
    }

    /// What waits for a person is acknowledged by one.
    fn ack_blocked(&self) {
        for view in self.router().message_views(None) {
            let is_blocked = |why: &str| why == "its attempts are used up";
            if view.why.is_some_and(|why| is_blocked(&why.detail)) {
                self.ack(&view.message.id);
            }
        }
    }

    async fn finish(&mut self) -> Result<(), Broken> {
        self.world.see(Fact::Stopping);
        let (router, now) = (self.router(), Instant::now());
        let (stop_by, drain_by) = (now + Duration::from_secs(25), now + Duration::from_secs(55));
        let report = router.shutdown(stop_by, drain_by).await;
        self.world.check()?;
        let is_stuck = !report.stuck_queues.is_empty() || !report.abandoned.is_empty();
        let (unsettled, in_flight) = (report.unsettled, router.in_flight());
        let is_healthy = true;
        self.world.see(Fact::Stopped { unsettled, is_stuck, in_flight, is_healthy });
        let (mut queued, mut running) = (0, 0);
        for view in router.pool_views() {
            queued += view.stats.gauges.queued;
            running += view.stats.gauges.running;
        }
        let left = self.sources.iter().map(FakeSource::len).sum();
        self.world.see(Fact::Over { queued, running, left });
        Ok(())
    }
}
