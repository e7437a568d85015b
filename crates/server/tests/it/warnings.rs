//! Warnings: which facts raise them, and how they are kept.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Severity::{self, Critical, Error, Info, Warning};
use sluicegate_server::warnings::{Code, Noted, Raised, Warnings, speakable, warning_for};

use crate::scene::{Hands, SECRETS, every_fact, message};

#[test]
fn facts_raise_the_warnings_of_the_table() {
    let target = "https://api.example.com/hook";
    let table = [
        ("unknown pool", Code::Routing, Warning, "NOPE", "no pool \"NOPE\""),
        ("unknown field", Code::UnknownField, Info, "q/poolcode", "did you mean `poolCode`?"),
        ("full", Code::QueueFull, Warning, "P", "10 messages"),
        ("serial", Code::UngroupedSerial, Info, "P", "ungrouped = \"parallel\""),
        ("panicked", Code::Processing, Warning, "P", "index out of bounds"),
        ("rejected", Code::Configuration, Error, target, "*** is no token"),
        ("not implemented", Code::Configuration, Critical, target, "answered 501"),
        ("opened", Code::BreakerOpen, Warning, "api.example.com", "is open"),
        ("used up", Code::Parked, Error, "P", "m1 of pool P was parked: all its attempts"),
        ("key parked", Code::Parked, Error, "P", "an earlier message of its group"),
        ("blocked", Code::GroupBlocked, Error, "P", "m1 of pool P and its group wait"),
    ];
    every_fact(|name, fact| {
        let raised = warning_for(fact);
        let Some((_, code, severity, subject, says)) = table.iter().find(|row| row.0 == name)
        else {
            return assert_eq!(raised, None, "{name}");
        };
        let raised = raised.unwrap_or_else(|| panic!("{name} raises nothing"));
        assert_eq!((raised.code, raised.severity), (*code, *severity), "{name}");
        assert_eq!(&*raised.subject, *subject, "{name}");
        assert!(raised.message.contains(says), "{name}: {}", raised.message);
        for secret in SECRETS {
            assert!(!format!("{raised:?}").contains(secret), "{name}: {raised:?}");
        }
    });
}

#[test]
fn what_is_said_of_a_message_is_short_and_keeps_its_secrets() {
    let long = "é".repeat(Warnings::LONGEST);
    let cases = [
        ("nothing to hide", "nothing to hide"),
        ("Bearer tok-secret-1, tok-secret-1", "Bearer ***, ***"),
        ("GET https://api.example.com/hook?key=secret-2", "GET https://api.example.com/hook?***"),
        (&long, &long[..Warnings::LONGEST]),
        ("two\r\nlines\u{1b}[0m", "two  lines [0m"),
    ];
    for (said, spoken) in cases {
        assert_eq!(speakable(said, &message("m", None)), spoken);
    }
    let mut plain = message("m", None);
    plain.auth_token = Some(sluicegate_dispatch::AuthToken::new(""));
    plain.target = sluicegate_dispatch::Target::parse("http://a/b?").unwrap();
    assert_eq!(speakable("what? http://a/b?", &plain), "what? http://a/b?");
}

#[test]
fn codes_are_spelled_as_in_the_paper() {
    let labels = Code::ALL.map(Code::label);
    let expected = [
        "CONFIG_SYNC_FAILED",
        "ROUTING",
        "QUEUE_FULL",
        "POOL_LIMIT",
        "PIPELINE_MAP_LEAK",
        "CONSUMER_RESTART",
        "CONSUMER_RESTART_FAILED",
        "SHUTDOWN_CLEANUP_ERRORS",
        "PROCESSING",
        "CONFIGURATION",
        "UNGROUPED_SERIAL",
        "UNKNOWN_FIELD",
        "BREAKER_OPEN",
        "PARKED",
        "GROUP_BLOCKED",
        "GROUP_STUCK",
        "MESSAGES_FAILING",
        "STATE_FAILED",
        "CONFIG_INVALID",
        "SOURCE_DOWN",
        "START_FAILED",
        "AGENT_NOT_STARTED",
        "WORKER_STUCK",
        "AGENTS_FAILING",
    ];
    assert_eq!(labels, expected);
}

fn raised(code: Code, severity: Severity, subject: &str) -> Raised {
    Raised::new(code, severity, subject, format!("about {subject}"))
}

fn subjects(warnings: &Warnings, severity: Option<Severity>) -> Vec<String> {
    let items = warnings.list(severity, None, usize::MAX).items;
    items.iter().map(|warning| warning.subject.to_string()).collect()
}

#[test]
fn a_matter_is_kept_once_and_counted() {
    let clock = Hands::new();
    let warnings = Warnings::new(Arc::clone(&clock) as _);
    let Noted::New(first) = warnings.raise(raised(Code::Routing, Warning, "A")) else {
        panic!("the first one is new");
    };
    assert!(warnings.acknowledge(first.id).unwrap().acknowledged);
    clock.forward(Duration::from_secs(90));
    let again = Raised::new(Code::Routing, Warning, "A", "other words");
    assert_eq!(warnings.raise(again), Noted::Again);
    for other in [
        raised(Code::Routing, Warning, "B"),
        raised(Code::Routing, Error, "A"),
        raised(Code::QueueFull, Warning, "A"),
    ] {
        assert!(matches!(warnings.raise(other), Noted::New(_)));
    }
    let all = warnings.list(None, None, 10).items;
    assert_eq!(all.len(), 4);
    let json = all[3].to_json();
    let expected = serde_json::json!({
        "id": first.id.to_string(), "code": "ROUTING", "severity": "WARNING", "subject": "A",
        "message": "other words", "count": 2, "firstSeen": "2026-11-15T12:00:00Z",
        "lastSeen": "2026-11-15T12:01:30Z", "acknowledged": true, "resolved": false,
        "resolvedAt": null,
    });
    assert_eq!(json, expected);
    let counts: Vec<u64> = warnings.counts().into_values().collect();
    assert_eq!(counts, [0, 3, 1, 0]);
}

#[test]
fn what_is_over_stays_and_is_open_again_when_it_happens_again() {
    let clock = Hands::new();
    let warnings = Warnings::new(Arc::clone(&clock) as _);
    warnings.raise(raised(Code::SourceDown, Warning, "q"));
    warnings.raise(raised(Code::SourceDown, Error, "q"));
    warnings.raise(raised(Code::SourceDown, Error, "other"));
    let id = warnings.list(None, None, 9).items[2].id;
    warnings.acknowledge(id).unwrap();
    clock.forward(Duration::from_secs(60));
    let over: Vec<_> = warnings.resolve(Code::SourceDown, "q");
    assert_eq!(over.iter().map(|one| one.severity).collect::<Vec<_>>(), [Warning, Error]);
    assert_eq!(over[0].to_json()["resolvedAt"], "2026-11-15T12:01:00Z");
    assert_eq!(warnings.resolve(Code::SourceDown, "q"), [], "once");
    assert_eq!(warnings.resolve(Code::BreakerOpen, "other"), [], "another matter");
    let counts: Vec<u64> = warnings.counts().into_values().collect();
    assert_eq!(counts, [0, 0, 1, 0], "those that are over do not count");
    assert_eq!(warnings.open(Code::SourceDown).len(), 1);
    let Noted::Reopened(again) = warnings.raise(raised(Code::SourceDown, Warning, "q")) else {
        panic!("it was over");
    };
    assert_eq!((again.id, again.count, again.acknowledged), (id, 2, false));
    assert!(again.is_open());
    assert_eq!(warnings.raise(raised(Code::SourceDown, Warning, "q")), Noted::Again);
}

#[test]
fn what_goes_on_does_not_expire() {
    let clock = Hands::new();
    let warnings = Warnings::new(Arc::clone(&clock) as _);
    warnings.raise(raised(Code::SourceDown, Error, "goes on"));
    warnings.raise(raised(Code::SourceDown, Error, "over"));
    warnings.raise(raised(Code::BreakerOpen, Warning, "seldom called"));
    warnings.resolve(Code::SourceDown, "over");
    clock.forward(Duration::from_secs(9 * 3600));
    assert_eq!(warnings.expire(), 2);
    assert_eq!(subjects(&warnings, None), ["goes on"]);
}

#[test]
fn pages_are_newest_first_and_survive_changes() {
    let warnings = Warnings::new(Hands::new());
    for at in 0..7 {
        let severity = if at % 2 == 0 { Warning } else { Error };
        warnings.raise(raised(Code::Routing, severity, &format!("S{at}")));
    }
    assert_eq!(subjects(&warnings, Some(Error)), ["S5", "S3", "S1"]);
    let first = warnings.list(None, None, 3);
    let names = |page: &[sluicegate_server::warnings::Warning]| {
        page.iter().map(|warning| warning.subject.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first.items), ["S6", "S5", "S4"]);
    // The one the cursor points at goes, and a new one comes: nobody is skipped or seen twice.
    warnings.remove(first.items[2].id).unwrap();
    warnings.raise(raised(Code::Routing, Warning, "S7"));
    let second = warnings.list(None, first.next, 3);
    assert_eq!(names(&second.items), ["S3", "S2", "S1"]);
    let third = warnings.list(None, second.next, 3);
    assert_eq!((names(&third.items), third.next), (vec!["S0".to_owned()], None));
    assert_eq!(warnings.list(None, None, 7).next, None);
}

#[test]
fn what_is_removed_is_gone_and_may_come_anew() {
    let warnings = Warnings::new(Hands::new());
    let Noted::New(first) = warnings.raise(raised(Code::Routing, Warning, "A")) else {
        panic!("the first one is new");
    };
    assert_eq!(warnings.remove(first.id).map(|warning| warning.id), Some(first.id));
    assert_eq!((warnings.remove(first.id), warnings.acknowledge(first.id)), (None, None));
    let Noted::New(second) = warnings.raise(raised(Code::Routing, Warning, "A")) else {
        panic!("it was forgotten");
    };
    assert!(second.id > first.id);
    assert_eq!((second.count, second.acknowledged), (1, false));
    // Another life has other numbers.
    let clock = Hands::new();
    clock.forward(Duration::from_secs(1));
    let Noted::New(later) = Warnings::new(clock).raise(raised(Code::Routing, Warning, "A")) else {
        panic!("the first one is new");
    };
    assert!(later.id > second.id);
}

#[test]
fn they_expire_eight_hours_after_they_last_happened() {
    let clock = Hands::new();
    let warnings = Warnings::new(Arc::clone(&clock) as _);
    warnings.raise(raised(Code::Routing, Warning, "once"));
    warnings.raise(raised(Code::Routing, Critical, "again"));
    clock.forward(Duration::from_secs(3600));
    warnings.raise(raised(Code::Routing, Critical, "again"));
    clock.forward(Duration::from_secs(7 * 3600 - 1));
    assert_eq!(warnings.expire(), 0);
    clock.forward(Duration::from_secs(1));
    assert_eq!(warnings.expire(), 1);
    assert_eq!(subjects(&warnings, None), ["again"]);
    clock.forward(Duration::from_secs(3600));
    assert_eq!(warnings.expire(), 1);
    assert!(matches!(warnings.raise(raised(Code::Routing, Warning, "once")), Noted::New(_)));
}

#[test]
fn the_mildest_and_oldest_make_room() {
    let clock = Hands::new();
    let warnings = Warnings::new(Arc::clone(&clock) as _);
    let raise = |severity, subject: &str| {
        clock.forward(Duration::from_secs(1));
        warnings.raise(raised(Code::Configuration, severity, subject))
    };
    for at in 0..Warnings::MOST - 3 {
        raise(Error, &format!("E{at}"));
    }
    raise(Info, "I0");
    raise(Info, "I1");
    raise(Info, "I2");
    raise(Info, "I0");
    // I0 has happened again: I1 is the oldest by now.
    assert!(matches!(raise(Warning, "W0"), Noted::New(_)));
    assert_eq!(subjects(&warnings, Some(Info)), ["I2", "I0"]);
    assert!(matches!(raise(Info, "I3"), Noted::New(_)));
    assert_eq!(subjects(&warnings, Some(Info)), ["I3", "I0"]);
    raise(Critical, "C0");
    raise(Critical, "C1");
    assert_eq!(subjects(&warnings, Some(Info)), Vec::<String>::new());
    assert_eq!(raise(Info, "I4"), Noted::NoRoom);
    raise(Error, "E");
    assert_eq!(subjects(&warnings, Some(Warning)), Vec::<String>::new());
    raise(Error, "F");
    let errors = subjects(&warnings, Some(Error));
    assert!(!errors.contains(&"E0".to_owned()) && errors.contains(&"E1".to_owned()));
    assert_eq!(subjects(&warnings, None).len(), Warnings::MOST);
}

#[test]
fn nobody_makes_a_warning_long() {
    let warnings = Warnings::new(Hands::new());
    let long = format!("x{}", "é".repeat(Warnings::LONGEST));
    let raise = || {
        warnings.raise(Raised::new(Code::Routing, Warning, &*long, format!("a\nb{long}")));
        warnings.list(None, None, 9).items
    };
    let (first, second) = (raise(), raise());
    let cut = &long[..Warnings::LONGEST - 1];
    assert_eq!((&*first[0].subject, &first[0].message[..4]), (cut, "a bx"));
    assert!(first[0].message.len() <= Warnings::LONGEST);
    // Cut, it is still the same matter.
    assert_eq!((second.len(), second[0].count), (1, 2));
}
