//! What a schedule allocates, in a program of its own: counting every allocation makes each of them
//! slower, which the measurements of time must not see.

mod load;

use std::process::ExitCode;

use load::{BATCH, Load, Many};

/// How often a batch goes through the schedule.
const CYCLES: usize = 40;

/// Says the bytes of an item that waits and the allocations of a decision, for so many keys or
/// tenants.
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let many = match words.first().map(String::as_str) {
        Some("keys") => Many::Keys,
        Some("tenants") => Many::Tenants,
        _ => return usage(),
    };
    let Some(count) = words.get(1).and_then(|word| word.parse::<u64>().ok()) else {
        return usage();
    };
    let mut load = None;
    let info = allocation_counter::measure(|| load = Some(Load::new(many, count)));
    let mut load = load.expect("it was made");
    load.warm_up();
    let steady = allocation_counter::measure(|| (0..CYCLES).for_each(|_| load.cycle()));
    let per_item = info.bytes_current as f64 / (2 * count) as f64;
    println!("{per_item} {}", steady.count_total as f64 / (CYCLES * BATCH) as f64);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: sluicegate-bench-counted keys|tenants COUNT");
    ExitCode::from(2)
}
