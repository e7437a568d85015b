//! Core Data Structures.

use std::time::Duration;

use sluicegate_dispatch::{
    DEFAULT_GROUP, DEFAULT_POOL, Outcome, PoolSettings, Settlement, settlement_for,
};
use sluicegate_sources::wire;

// § A message pointer has id, pool, token, type, target, group and priority.
#[test]
fn a_message_pointer_is_read_from_json() {
    let body = br#"{"id":"0HZX","poolCode":"ORDERS","authToken":"t","mediationType":"HTTP",
        "mediationTarget":"http://127.0.0.1:1/x","messageGroupId":"g","highPriority":true}"#;
    let message = wire::parse(body).expect("a message").message;
    assert_eq!((&*message.id, &*message.pool, message.high_priority), ("0HZX", "ORDERS", true));
    assert_eq!(message.group.as_deref(), Some("g"));
    assert_eq!(message.target.url(), "http://127.0.0.1:1/x");
    assert_eq!(message.auth_token.as_ref().map(|token| token.expose()), Some("t"));
}

#[test]
fn what_is_absent_has_its_default() {
    let settings = PoolSettings::new("A", 1);
    for group in ["", r#","messageGroupId":null"#, r#","messageGroupId":"  ""#] {
        let body = format!(r#"{{"id":"m","mediationTarget":"http://127.0.0.1:1/"{group}}}"#);
        let message = wire::parse(body.as_bytes()).expect("a message").message;
        // § A missing pool is the default pool.
        assert_eq!(&*message.pool, DEFAULT_POOL);
        // § A null or blank group is the default group.
        assert_eq!(settings.key(&message).as_deref(), Some(DEFAULT_GROUP));
        assert!(!message.high_priority);
    }
}

// § The mediation type is always HTTP.
#[test]
fn another_mediation_type_is_malformed() {
    let body = br#"{"id":"m","mediationTarget":"http://127.0.0.1:1/","mediationType":"SMTP"}"#;
    assert!(wire::parse(body).expect_err("malformed").why.contains("mediationType"));
}

// § The effective delay is within 1 and 43,200 seconds.
// § No delay, or none that counts, is 30 seconds. #19
#[test]
fn the_effective_delay() {
    let cases = [
        (None, 30),
        (Some(1), 1),
        (Some(0), 1),
        (Some(60), 60),
        (Some(43_200), 43_200),
        (Some(43_201), 43_200),
        (Some(u64::MAX / 2), 43_200),
    ];
    for (asked, effective) in cases {
        let after = asked.map(Duration::from_secs);
        let outcome = Outcome::RetryLater { after, why: String::new(), status: None, body: None };
        let Settlement::Retry { after, .. } = settlement_for(&outcome, 0) else {
            panic!("a retry")
        };
        assert_eq!(after.as_secs(), effective, "{asked:?}");
    }
}
