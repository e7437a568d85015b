//! How busy the processors of this machine are: what the system has counted since it was last looked at.

use std::fs;

use parking_lot::Mutex;

/// What was counted when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    last: Mutex<Counted>,
}

/// Ticks of all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    all: u64,
    idle: u64,
}

impl Cpu {
    /// The part of the time, in percent, in which processors had something to do since it was last asked for; at first
    /// since the machine started. 0 where the system does not say.
    pub(super) fn percent(&self) -> f64 {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let Some(now) = counted(&text) else { return 0.0 };
        let last = std::mem::replace(&mut *self.last.lock(), now);
        busy(last, now)
    }
}

fn counted(text: &str) -> Option<Counted> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|tick| tick.parse().ok()).collect();
    // User, nice, system, idle, waiting for disks, interrupts (two), stolen; what guests had is in the first two.
    let ticks = ticks.get(..8)?;
    Some(Counted { all: ticks.iter().sum(), idle: ticks[3] + ticks[4] })
}

fn busy(last: Counted, now: Counted) -> f64 {
    let all = now.all.saturating_sub(last.all);
    let idle = now.idle.saturating_sub(last.idle).min(all);
    if all == 0 { 0.0 } else { (all - idle) as f64 * 100.0 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_since_is_what_counts() {
        let at = |text| counted(text).unwrap();
        let first = at("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
        assert_eq!(first, Counted { all: 1000, idle: 800 });
        assert!((busy(Counted::default(), first) - 20.0).abs() < 0.01);
        let second = at("cpu  150 0 125 720 105 0 0 0 0 0\n");
        assert!((busy(first, second) - 75.0).abs() < 0.01);
        assert!(busy(second, second).abs() < 0.01);
        assert_eq!(counted("intr 5"), None);
    }
}
