//! What a waiting value costs beyond itself.

use allocation_counter::measure;
use sluicegate_tasks::Entry;
use std::sync::Arc;

use super::sluice;

const COUNT: u64 = 262_144;

#[tokio::test]
async fn measure_it() {
    let tenant: Arc<str> = "alice".into();
    let keys: Vec<Arc<str>> = (0..COUNT).map(|n| format!("{n}").into()).collect();
    let shared: Arc<str> = "one".into();
    for (what, spread) in [("no key", 0), ("own key", 1), ("16 to a key", 16), ("one key", 2)] {
        let sluice = sluice::<u64>(1, u32::MAX);
        let info = measure(|| {
            for n in 0..COUNT {
                let entry = Entry::of(Arc::clone(&tenant));
                let entry = match spread {
                    0 => entry,
                    1 => entry.key(Arc::clone(&keys[n as usize])),
                    16 => entry.key(Arc::clone(&keys[(n / 16) as usize])),
                    _ => entry.key(Arc::clone(&shared)),
                };
                sluice.admit(entry, n).unwrap();
            }
        });
        println!("{what}: {} now, {} max", info.bytes_current as u64 / COUNT, info.bytes_max / COUNT);
    }
}
