//! "Invariants (DDD)", 1 to 7, under a mixed load that fails in every way.

use sluicegate_agents::{Ask, Mode, Priority, RequestError, Settings};

use crate::checks;
use crate::stage::{Stage, in_session, millis, one_shot, persistent};

const PROMPTS: [&str; 12] = [
    "work:40",
    "work:120",
    "say work:10",
    "crash",
    "work:30 segv",
    "hang",
    "stubborn hang",
    "flood",
    "work:5 stay",
    "children work:20",
    "error",
    "quiet",
];

fn mixed(mode: Mode) -> Settings {
    let change = |settings: &mut Settings| {
        settings.max_workers = 5;
        settings.max_queue_depth_global = 30;
        settings.max_queue_depth_per_tenant = 6;
        settings.execution_timeout = millis(400);
        settings.graceful_shutdown = millis(100);
        settings.max_requests_per_worker = 4;
        settings.worker_idle_timeout = millis(150);
        // Fewer than a tenant has sessions, each of which has one turn at a time.
        settings.tenant_limits.max_concurrent_requests = 2;
        settings.upstream_rate_limit_rps = 25;
    };
    match mode {
        Mode::OneShot => one_shot(change),
        Mode::Persistent => persistent(|settings| {
            change(settings);
            settings.min_workers = 2;
        }),
    }
}

/// `docs/rules.md#agents-1`
#[tokio::test(start_paused = true)]
async fn they_hold_under_a_mixed_load() {
    for (mode, retries) in [
        (Mode::OneShot, false),
        (Mode::OneShot, true),
        (Mode::Persistent, false),
        (Mode::Persistent, true),
    ] {
        let stage = Stage::new(mixed(mode));
        let (mut ids, mut refused, mut random) = (Vec::new(), 0, 7_u64);
        for _ in 0..1_500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let pick = |of: u64, shift: u32| (random >> shift) % of;
            let tenant = pick(6, 20);
            let session = format!("t{tenant}-s{}", pick(3, 25));
            let prompt = format!("{} #{}", PROMPTS[pick(12, 30) as usize], ids.len());
            let ask = Ask {
                priority: Priority::ALL
                    [if retries { pick(4, 35) } else { 2 + pick(2, 35) } as usize],
                idempotent: retries && pick(2, 40) == 0,
                timeout: (pick(5, 45) == 0).then_some(millis(200)),
                ..in_session(&format!("web:{tenant}"), &session, &prompt)
            };
            match stage.submit(ask).await {
                Ok(ticket) => ids.push(ticket.request_id.to_string()),
                Err(error) => {
                    // 7: nothing is dropped; it is refused with a reason, and only at a limit.
                    let full = matches!(
                        error,
                        RequestError::TenantQueueFull { .. } | RequestError::GlobalQueueFull { .. }
                    );
                    assert!(full, "{error}");
                    refused += 1;
                }
            }
            // 2 and 3: no tenant's queue, and not the whole, is longer than it may.
            let metrics = stage.agents.metrics();
            // What crashed and is tried again was let in before: it comes back to the front, full or not.
            let back = if retries { 5 } else { 0 };
            assert!(metrics.queue_depth <= 30 + back, "{metrics:?}");
            // Admin and system pass their tenant's depth; without them it holds to the letter.
            let most = metrics.tenant_queue_depths.values().max().copied().unwrap_or(0);
            assert!(retries || most <= 6, "{metrics:?}");
            // 1, as the pool itself says.
            assert!(metrics.workers_total <= 5, "{metrics:?}");
            if pick(9, 50) == 0 {
                stage.agents.cancel(&ids[pick(ids.len() as u64, 15) as usize]);
            }
            tokio::time::sleep(millis(pick(40, 55))).await;
        }
        assert!(refused > 0);
        for id in &ids {
            drop(stage.outcome(id).await);
        }
        drop(stage.agents.shutdown(None).await);
        let log = stage.log();
        // 1: as the world sees it.
        checks::never_more_programs_than(&log, 5);
        // 5: `turns` fails where a program has two at once; and a session never has.
        checks::sessions_never_overlap(&log);
        checks::never_more_of_a_tenant_than(&log, 2);
        // 6.
        checks::never_more_starts_than(&log, 25, millis(1_000));
        // Nothing ran twice but what crashed before it said anything.
        let mut asked = stage.asked();
        asked.sort();
        for pair in asked.windows(2) {
            let again = pair[0].starts_with("crash") || pair[0].starts_with("work:30 segv");
            assert!(pair[0] != pair[1] || again, "{pair:?}");
        }
        stage.end().await;
    }
}

/// 4: "Within a single tenant, requests are processed in FIFO order".
#[tokio::test(start_paused = true)]
async fn four_a_tenants_requests_start_in_order() {
    for settings in [one_shot(|s| s.max_workers = 3), persistent(|s| s.max_workers = 3)] {
        let stage = Stage::new(settings);
        let mut expected = Vec::new();
        for n in 0..60 {
            let prompt = format!("work:{} {n:02}", 10 + n * 17 % 50);
            stage.enter(crate::stage::ask("web:1", &prompt)).await;
            expected.push(prompt);
        }
        tokio::time::sleep(millis(5_000)).await;
        assert_eq!(stage.asked(), expected);
        stage.end().await;
    }
}
