//! Faults this schedule once had. Each test failed before its fix.

use sluicegate_schedule::{Entry, ItemId, Limits, Moment, Next, Schedule, TenantLimits};

type Tested = Schedule<char, u32, char>;

const NOW: Moment = Moment::ZERO;

fn schedule(concurrency: u32) -> Tested {
    Schedule::new(Limits::new(concurrency, 100_000).build().expect("sound"), NOW)
}

fn start(schedule: &mut Tested) -> ItemId {
    match schedule.next(NOW) {
        Next::Start(id) => id,
        other => panic!("nothing starts: {other:?}"),
    }
}

/// A charge that is taken back is the charge that was made, whatever the weight is by then.
/// Otherwise a tenant whose weight falls while it runs something is given rounds it never paid.
#[test]
fn a_charge_taken_back_is_the_charge_that_was_made() {
    let mut schedule = schedule(1);
    schedule.set_tenant('a', TenantLimits::new().weight(10)).unwrap();
    for n in 0..500 {
        let (value, cost) = if n == 300 { ('!', 20_000) } else { ('a', 1000) };
        schedule.admit(NOW, Entry::of('a').cost(cost), value).unwrap();
        schedule.admit(NOW, Entry::of('b').cost(1000), 'b').unwrap();
    }
    let big = loop {
        let id = start(&mut schedule);
        if schedule.get(id) == Some(&'!') {
            break id;
        }
        schedule.complete(id, None);
    };
    schedule.set_tenant('a', TenantLimits::new()).unwrap();
    schedule.revoke(big);
    let served: String = (0..10)
        .filter_map(|_| {
            let id = start(&mut schedule);
            schedule.complete(id, None)
        })
        .collect();
    assert!(served.contains('b'), "{served}");
}
