//! Channels and queues without a bound, and the bounded ones they can be mistaken for.

/// Functions that make a channel without a bound, whoever re-exports them.
const UNBOUNDED: &[&[&str]] = &[
    &["async_channel", "unbounded"],
    &["async_std", "channel", "unbounded"],
    &["async_unsync", "unbounded", "channel"],
    &["concurrent_queue", "ConcurrentQueue", "unbounded"],
    &["crossbeam", "channel", "unbounded"],
    &["crossbeam_channel", "unbounded"],
    &["flume", "unbounded"],
    &["futures", "channel", "mpsc", "unbounded"],
    &["futures_channel", "mpsc", "unbounded"],
    &["kanal", "unbounded"],
    &["kanal", "unbounded_async"],
    &["loole", "unbounded"],
    &["smol", "channel", "unbounded"],
    &["std", "sync", "mpmc", "channel"],
    &["std", "sync", "mpsc", "channel"],
    &["tokio", "sync", "mpsc", "unbounded_channel"],
];

/// Functions that take their bound as a number.
const BOUNDED: &[&[&str]] = &[
    &["async_channel", "bounded"],
    &["async_std", "channel", "bounded"],
    &["concurrent_queue", "ConcurrentQueue", "bounded"],
    &["crossbeam", "channel", "bounded"],
    &["crossbeam_channel", "bounded"],
    &["flume", "bounded"],
    &["futures", "channel", "mpsc", "channel"],
    &["futures_channel", "mpsc", "channel"],
    &["kanal", "bounded"],
    &["kanal", "bounded_async"],
    &["smol", "channel", "bounded"],
    &["std", "sync", "mpsc", "sync_channel"],
    &["tokio", "sync", "mpsc", "channel"],
];

/// Names that mean one thing only, so that an import that cannot be followed does not hide them.
const UNMISTAKABLE: &[&str] = &["unbounded_async", "unbounded_channel"];

/// Types that have no bounded form.
const ENDLESS: &[&str] = &["Injector", "SegQueue"];

const CONSTRUCTORS: &[&str] = &["default", "from", "from_iter", "new"];

pub(crate) fn is_unbounded(path: &[String]) -> bool {
    let Some((name, owner)) = path.split_last() else {
        return false;
    };
    UNBOUNDED.iter().any(|known| same(path, known))
        || (!owner.is_empty() && UNMISTAKABLE.contains(&name.as_str()))
        || (is_endless(owner) && CONSTRUCTORS.contains(&name.as_str()))
}

pub(crate) fn is_bounded(path: &[String]) -> bool {
    BOUNDED.iter().any(|known| same(path, known))
}

/// `SegQueue` and the like: every value of the type is a queue without a bound.
pub(crate) fn is_endless(path: &[String]) -> bool {
    path.first().is_some_and(|first| first.starts_with("crossbeam"))
        && path.last().is_some_and(|last| ENDLESS.contains(&last.as_str()))
}

pub(crate) fn is_queue_crate(name: &str) -> bool {
    UNBOUNDED.iter().any(|known| known[0] == name)
        || ["crossbeam_deque", "crossbeam_queue"].contains(&name)
}

fn same(path: &[String], known: &[&str]) -> bool {
    path.len() == known.len() && path.iter().zip(known).all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    /// What the lint knows clippy can ban, too.
    #[test]
    fn the_preset_bans_every_constructor() {
        let preset = include_str!("../../preset/clippy.toml");
        for known in super::UNBOUNDED {
            let ban = format!("path = \"{}\"", known.join("::"));
            assert!(preset.contains(&ban), "the preset has no {ban}");
        }
        for name in super::ENDLESS {
            assert!(preset.contains(&format!("::{name}::new\"")), "the preset has no {name}");
        }
    }
}
