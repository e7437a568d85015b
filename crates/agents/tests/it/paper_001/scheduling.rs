//! Section 3: priority, then the tenant that had least, then in order.

use sluicegate_agents::{Ask, Priority};

use crate::stage::{Stage, ask, in_session, millis, one_shot};

fn one_worker() -> Stage {
    Stage::new(one_shot(|settings| settings.max_workers = 1))
}

#[tokio::test(start_paused = true)]
async fn a_higher_priority_goes_first() {
    let stage = one_worker();
    stage.enter(ask("web:0", "work:10 first")).await;
    for priority in [Priority::Low, Priority::Normal, Priority::Admin, Priority::System] {
        let prompt = format!("work:10 {}", priority.name());
        stage.enter(Ask { priority, ..ask("web:1", &prompt) }).await;
    }
    tokio::time::sleep(millis(100)).await;
    let order = ["first", "SYSTEM", "ADMIN", "NORMAL", "LOW"].map(|name| format!("work:10 {name}"));
    assert_eq!(stage.asked(), order);
    stage.end().await;
}

/// "Minimum service guarantee": the risk table's answer to starvation.
#[tokio::test(start_paused = true)]
async fn low_priority_is_not_starved() {
    let stage = one_worker();
    stage.enter(ask("web:0", "work:10")).await;
    stage.enter(Ask { priority: Priority::Low, ..ask("web:9", "work:10 low") }).await;
    for n in 0..100 {
        let tenant = format!("web:{}", n % 5);
        stage.enter(Ask { priority: Priority::System, ..ask(&tenant, "work:10") }).await;
    }
    tokio::time::sleep(millis(2_000)).await;
    let at = stage.asked().iter().position(|prompt| prompt == "work:10 low").unwrap();
    assert!(at <= 16, "it was number {at}");
    stage.end().await;
}

/// "No tenant starves other tenants": decided when a request starts, not when one completes.
#[tokio::test(start_paused = true)]
async fn tenants_take_turns() {
    let stage = one_worker();
    for n in 0..4 {
        stage.enter(ask("web:a", &format!("work:10 a{n}"))).await;
    }
    for n in 0..2 {
        stage.enter(ask("web:b", &format!("work:10 b{n}"))).await;
    }
    tokio::time::sleep(millis(100)).await;
    let order = ["a0", "b0", "a1", "b1", "a2", "a3"].map(|name| format!("work:10 {name}"));
    assert_eq!(stage.asked(), order);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_weight_is_a_share() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        let mut limits = settings.tenant_limits.clone();
        limits.weight = 3;
        let gold = sluicegate_agents::TenantOverride { limits, own_depth: false };
        settings.tenants.insert("web:gold".to_owned(), gold);
    }));
    for n in 0..40 {
        stage.enter(ask(if n % 2 == 0 { "web:gold" } else { "web:iron" }, "work:100")).await;
    }
    tokio::time::sleep(millis(2_050)).await;
    let tenants = stage.agents.tenants();
    let served = |id: &str| {
        let found = tenants.iter().find(|(view, ..)| &*view.tenant == id);
        found.map(|(_, tally, _)| tally.served).unwrap()
    };
    assert!((14..=16).contains(&served("web:gold")), "{tenants:?}");
    stage.end().await;
}

/// Section 10, "enabled: false": the legacy behaviour.
#[tokio::test(start_paused = true)]
async fn not_enabled_is_one_at_a_time_in_order_of_arrival() {
    let stage = Stage::new(one_shot(|settings| settings.serial = true));
    let mut order = Vec::new();
    let mut last = String::new();
    for n in 0..9 {
        let (tenant, prompt) = (format!("web:{}", n % 2), format!("work:10 {n}"));
        let priority = if n == 7 { Priority::System } else { Priority::Normal };
        let ask = Ask { priority, ..in_session(&tenant, &format!("s{n}"), &prompt) };
        last = stage.enter(ask).await;
        order.push(prompt);
    }
    let why = stage.agents.why(&last).expect("it waits");
    assert!(why.detail.contains("workerPool.enabled is false"), "{why:?}");
    tokio::time::sleep(millis(1000)).await;
    assert_eq!(stage.asked(), order);
    crate::checks::never_more_programs_than(&stage.log(), 1);
    stage.end().await;
}
