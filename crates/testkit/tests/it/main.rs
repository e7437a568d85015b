//! The fakes in their suites, and private brokers for real: each starts, answers, ends, and leaves
//! nothing behind.

#[cfg(test)]
mod checker;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod fake_source;

use std::path::Path;
use std::time::{Duration, Instant};

use sluicegate_testkit::brokers::{self, Broker, Kind, StartError};

/// The processes whose command line or environment names this folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let needle = folder.as_os_str().as_encoded_bytes();
    let names = |file: std::path::PathBuf| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    };
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|process| names(process.join("cmdline")) || names(process.join("environ")))
        .map(|process| process.display().to_string())
        .collect()
}

/// Drops it and sees to it that nothing is left.
fn stop(broker: Broker) {
    let (kind, folder) = (broker.kind(), broker.folder().to_owned());
    assert!(!processes_of(&folder).is_empty(), "{kind}: processes cannot be told by folder");
    drop(broker);
    let left = processes_of(&folder);
    assert!(left.is_empty(), "{kind} left {left:?}");
    assert!(!folder.exists(), "{kind} left {}", folder.display());
}

#[test]
fn all_start_at_once_and_leave_nothing_behind() {
    let begun = Instant::now();
    for (kind, result) in Kind::ALL.into_iter().zip(brokers::start_all(&Kind::ALL)) {
        match result {
            Ok(broker) => {
                println!("{kind} after {:.2} s", broker.ready_after().as_secs_f64());
                stop(broker);
            }
            Err(StartError::Missing(missing)) if !brokers::on_ci() => {
                println!("skipped: {missing}")
            }
            Err(error) => panic!("{error}"),
        }
    }
    println!("all in {:.2} s", begun.elapsed().as_secs_f64());
}

#[test]
fn a_crashed_broker_comes_back_at_the_same_place() {
    for kind in [Kind::Nats, Kind::Postgres] {
        let Some(mut broker) = brokers::start_or_skip(kind) else {
            continue;
        };
        let (url, pid) = (broker.url().to_owned(), broker.pid());
        broker.crash();
        broker.restart().unwrap();
        assert_eq!(broker.url(), url);
        assert_ne!(broker.pid(), pid);
        stop(broker);
    }
}

#[test]
fn a_broker_ends_with_the_thread_that_started_it() {
    // The kernel's last resort: nobody drops this one, its thread ends without doing so.
    let Some((folder, broker)) = std::thread::scope(|scope| {
        let start = || brokers::start_or_skip(Kind::Postgres).map(|b| (b.folder().to_owned(), b));
        scope.spawn(start).join().unwrap()
    }) else {
        return;
    };
    let begun = Instant::now();
    while !processes_of(&folder).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", processes_of(&folder));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(broker);
    assert!(!folder.exists());
}
