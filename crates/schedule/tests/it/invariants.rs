//! What the specification promises (2.9) holds after every step of random histories, and after a
//! drain everything is zero.
//!
//! `docs/rules.md#schedule-3`, `docs/rules.md#schedule-4`.

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::Class;

use crate::history::{Bounds, Newcomer, Op, Setup, class, history};
use crate::watch::Watched;

proptest! {
    #![proptest_config(Config { cases: 144, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn hold_after_every_step(history in history(300)) {
        let mut watched = Watched::new(history.setup);
        history.ops.iter().for_each(|op| watched.step(*op));
        watched.drain();
    }

    /// Tenants that may run one item each: what a class could start comes and goes.
    #[test]
    fn no_class_starves_though_tenants_come_and_go(
        class_period in 4u32..20,
        ops in prop::collection::vec(busy(), 100..300),
    ) {
        let each_tenant = Bounds { max_running: 1, ..Bounds::OPEN };
        let setup = Setup { concurrency: 3, capacity: 1000, class_period, rate: None, each_tenant };
        let mut watched = Watched::new(setup);
        for class in Class::ALL {
            (0..20).for_each(|_| watched.step(Op::Admit(Newcomer::of(9, class))));
        }
        watched.step(Op::SetTenant(9, Bounds { max_running: 3, ..Bounds::OPEN }));
        ops.iter().flatten().for_each(|op| watched.step(*op));
        watched.drain();
    }
}

/// A tenant's item comes, or one starts and one ends.
fn busy() -> impl Strategy<Value = Vec<Op>> {
    let admit =
        (0u8..3, class()).prop_map(|(tenant, class)| vec![Op::Admit(Newcomer::of(tenant, class))]);
    let turn = (0usize..9).prop_map(|nth| vec![Op::Next, Op::Complete { nth, cost: None }]);
    prop_oneof![1 => admit, 3 => turn, 1 => Just(vec![Op::Next])]
}
