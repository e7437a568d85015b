//! Settings that cannot work: refused when given, by the name of the field.
//!
//! `docs/rules.md#count-2`.

use std::time::Duration;

use sluicegate_tasks::{Fault, Invalid, Sluice, SluiceBuilder, TenantLimits};

fn check(cases: impl IntoIterator<Item = (Result<(), Invalid>, &'static str, Fault)>) {
    for (given, field, fault) in cases {
        let refused = given.unwrap_err();
        assert_eq!(refused, Invalid::new(field, fault));
        assert!(refused.to_string().starts_with(&format!("{field}: must ")), "{refused}");
    }
}

fn build(name: &str, concurrency: u32, capacity: u32) -> Result<(), Invalid> {
    Sluice::<()>::builder(name, concurrency, capacity).build().map(drop)
}

fn builder() -> SluiceBuilder<()> {
    Sluice::builder("sluice", 1, 10)
}

#[tokio::test(start_paused = true)]
async fn of_a_turnstile() {
    let sluice = builder().build().unwrap();
    let tenant = TenantLimits::new;
    let with = |limits| builder().tenant("alice", limits).build().map(drop);
    let each = |limits| builder().each_tenant(limits).build().map(drop);
    let too_heavy = || Fault::TooLarge { max: u64::from(TenantLimits::MAX_WEIGHT) };
    check([
        (build("", 1, 1), "name", Fault::Empty),
        (build("sluice", 0, 1), "concurrency", Fault::Zero),
        (build("sluice", 1, 0), "capacity", Fault::Zero),
        (builder().queue_timeout(Duration::ZERO).build().map(drop), "queue_timeout", Fault::Zero),
        (builder().unwind(Duration::ZERO).build().map(drop), "unwind", Fault::Zero),
        (builder().class_period(3).build().map(drop), "class_period", Fault::TooSmall { min: 4 }),
        (with(tenant().weight(0)), "weight", Fault::Zero),
        (with(tenant().weight(TenantLimits::MAX_WEIGHT + 1)), "weight", too_heavy()),
        (each(tenant().weight(0)), "weight", Fault::Zero),
        (each(tenant().max_running(0)), "max_running", Fault::Zero),
        (with(tenant().max_queued(0)), "max_queued", Fault::Zero),
        (sluice.resize(0, 1), "concurrency", Fault::Zero),
        (sluice.resize(1, 0), "capacity", Fault::Zero),
        (sluice.set_each_tenant(tenant().max_queued(0)), "max_queued", Fault::Zero),
        (sluice.set_tenant("alice", tenant().weight(0)), "weight", Fault::Zero),
        (sluice.set_tenant("alice", tenant().max_running(0)), "max_running", Fault::Zero),
    ]);
    assert_eq!(sluice.stats().gauges.limit, 1, "nothing changed");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_given_twice_is_named() {
    let builder = builder();
    let twice = builder.tenant("alice", TenantLimits::new()).tenant("alice", TenantLimits::new());
    let refused = twice.build().unwrap_err();
    assert_eq!(refused.to_string(), "tenant: \"alice\" is given twice");
    assert_eq!(refused.fault, Fault::Duplicate { name: "alice".to_owned() });
}
