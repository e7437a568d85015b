//! Paper 002, the message router, rule by rule.
//!
//! One module per section, named after it. A rule is a line `// §` and what stands below it. Where this
//! router departs, the rule names the row of the specification's table (`#1` to `#21`) and the test is of
//! the rule that holds here.
//!
//! | section of the paper | module | departs in |
//! |---|---|---|
//! | Core Data Structures | [`core_data_structures`] | #19 |
//! | Startup Sequence | [`startup_sequence`] | #20 (standby is not there yet) |
//! | Configuration Sync | [`configuration_sync`] | #4, #15, #18 |
//! | Queue Consumer Layer | [`queue_consumer_layer`] | #1, #13, #19 |
//! | Routing Algorithm | [`routing_algorithm`] | #2, #13, #14 |
//! | In-Flight Message Tracking | [`in_flight_tracking`] | |
//! | Process Pools | [`process_pools`] | #2, #15 |
//! | Per-Group Virtual Threads | [`per_group_virtual_threads`] | #3, #10 |
//! | Rate Limiting | [`rate_limiting`] | |
//! | FIFO Enforcement (Batch+Group) | [`fifo_enforcement`] | #9 |
//! | HTTP Mediator | [`http_mediator`] | #5, #6, #7, #21 |
//! | Outcome Handling | [`outcome_handling`] | #8, #11 |
//! | Visibility Timeout Control | [`visibility_timeout_control`] | #1, #12, #19 |
//! | Health Monitoring & Consumer Restart | [`health_monitoring`] | #17 |
//! | Leak Detection | [`leak_detection`] | #16 |
//! | Graceful Shutdown | [`graceful_shutdown`] | #4 |
//! | Scheduled Tasks Summary | [`scheduled_tasks`] | |
//! | Warning Types | [`warning_types`] | #10 |
//! | Configuration Reference | [`configuration_reference`] | #18 |

mod configuration_reference;
mod configuration_sync;
mod core_data_structures;
mod fifo_enforcement;
mod graceful_shutdown;
mod health_monitoring;
mod http_mediator;
mod in_flight_tracking;
mod leak_detection;
mod outcome_handling;
mod per_group_virtual_threads;
mod process_pools;
mod queue_consumer_layer;
mod rate_limiting;
mod routing_algorithm;
mod scheduled_tasks;
mod startup_sequence;
mod visibility_timeout_control;
mod warning_types;

use sluicegate_server::Daemon;
use sluicegate_server::settings::Settings;
use tempfile::TempDir;

/// A daemon on a state file of its own. `{url}` in the text is whatever the test says.
async fn daemon(text: &str) -> (Daemon, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("state.db");
    let text = format!("{text}\n[state]\npath = {:?}\n", path.display().to_string());
    let settings = Settings::parse("test.toml", &text, &|_| None).expect("sound settings");
    (Daemon::open(settings, None).await.expect("it opens"), folder)
}

/// The codes, severities and subjects of all warnings, sorted.
fn warnings(daemon: &Daemon) -> Vec<String> {
    let page = daemon.record().warnings.list(None, None, 1_000);
    let words = page.items.iter().map(|warning| {
        format!("{} {} {}", warning.code.label(), warning.severity, warning.subject)
    });
    let mut words: Vec<String> = words.collect();
    words.sort();
    words
}

/// No rule is dropped in silence: their numbers by section.
#[test]
fn every_section_has_its_rules() {
    #[rustfmt::skip]
    let sections = [
        ("core_data_structures", include_str!("core_data_structures.rs"), 6),
        ("startup_sequence", include_str!("startup_sequence.rs"), 5),
        ("configuration_sync", include_str!("configuration_sync.rs"), 14),
        ("queue_consumer_layer", include_str!("queue_consumer_layer.rs"), 7),
        ("routing_algorithm", include_str!("routing_algorithm.rs"), 16),
        ("in_flight_tracking", include_str!("in_flight_tracking.rs"), 5),
        ("process_pools", include_str!("process_pools.rs"), 8),
        ("per_group_virtual_threads", include_str!("per_group_virtual_threads.rs"), 7),
        ("rate_limiting", include_str!("rate_limiting.rs"), 6),
        ("fifo_enforcement", include_str!("fifo_enforcement.rs"), 5),
        ("http_mediator", include_str!("http_mediator.rs"), 34),
        ("outcome_handling", include_str!("outcome_handling.rs"), 7),
        ("visibility_timeout_control", include_str!("visibility_timeout_control.rs"), 6),
        ("health_monitoring", include_str!("health_monitoring.rs"), 7),
        ("leak_detection", include_str!("leak_detection.rs"), 3),
        ("graceful_shutdown", include_str!("graceful_shutdown.rs"), 8),
        ("scheduled_tasks", include_str!("scheduled_tasks.rs"), 5),
        ("warning_types", include_str!("warning_types.rs"), 17),
        ("configuration_reference", include_str!("configuration_reference.rs"), 25),
    ];
    for (section, text, rules) in sections {
        let found = text.lines().filter(|line| line.trim_start().starts_with("// §")).count();
        assert_eq!(found, rules, "rules of {section}");
    }
}
