//! The wire format: what is right, what is wrong and how that is said.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_dispatch::{AuthToken, Message, Target};
use sluicegate_sources::wire::{self, JsonLines, MAX_BODY, NotAList};

const MOST: usize = 100;
const TARGET: &str = r#""mediationTarget":"http://localhost/in""#;

fn with(field: &str) -> String {
    format!(r#"{{"id":"m1",{TARGET},{field}}}"#)
}

#[test]
fn a_message_has_defaults() {
    for more in [
        r#""poolCode":null,"authToken":null,"mediationType":null,"messageGroupId":null"#,
        r#""poolCode":"  ","messageGroupId":" ","authToken":"","tenant":"","mediationType":"HTTP""#,
        r#""highPriority":null,"payload":null,"tenant":null,"delaySeconds":null,"traceparent":null"#,
        r#""highPriority":false,"delaySeconds":0,"traceparent":"no trace""#,
    ] {
        let incoming = wire::parse(with(more).as_bytes()).unwrap();
        let expected = Message {
            id: "m1".into(),
            pool: "DEFAULT-POOL".into(),
            group: None,
            tenant: None,
            high_priority: false,
            target: Target::parse("http://localhost/in").unwrap(),
            auth_token: None,
            payload: None,
            traceparent: None,
            unknown_fields: Box::default(),
        };
        assert_eq!((incoming.message, incoming.delay), (expected, Duration::ZERO), "{more}");
    }
}

#[test]
fn all_fields_are_read() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = with(&format!(
        r#""poolCode":"P","authToken":"t\u00e9","messageGroupId":" g ","highPriority":true,"payload": [1.50 , {{"b":1,"a":2}}] ,"tenant":"x\"y","delaySeconds":90,"traceparent":"{trace}""#
    ));
    let incoming = wire::parse(body.as_bytes()).unwrap();
    let message = incoming.message;
    assert_eq!((&*message.pool, message.group.as_deref()), ("P", Some(" g ")));
    assert_eq!(message.auth_token, Some(AuthToken::new("té")));
    assert!(message.high_priority);
    assert_eq!(message.payload.as_deref(), Some(r#"[1.50 , {"b":1,"a":2}]"#));
    assert_eq!(message.tenant.as_deref(), Some("x\"y"));
    assert_eq!(message.traceparent.as_deref(), Some(trace));
    assert_eq!(incoming.delay, Duration::from_secs(90));
}

#[test]
fn what_is_wrong_is_named() {
    let long = "x".repeat(513);
    let cases = [
        ("".to_owned(), "the message is not JSON"),
        ("{".to_owned(), "the message is not JSON"),
        (with(r#""a":1"#) + "x", "the message is not JSON"),
        ("[]".to_owned(), "the message must be a JSON object, not an array"),
        ("\"m1\"".to_owned(), "the message must be a JSON object, not a string"),
        ("null".to_owned(), "the message must be a JSON object, not null"),
        (format!("{{{TARGET}}}"), "id is missing"),
        (format!(r#"{{"id":null,{TARGET}}}"#), "id is missing"),
        (format!(r#"{{"id":"",{TARGET}}}"#), "id is empty; it must have 1 to 512 bytes"),
        (format!(r#"{{"id":"{long}",{TARGET}}}"#), "id has 513 bytes; at most 512 are right"),
        (format!(r#"{{"id":7,{TARGET}}}"#), "id must be a string, not a number"),
        (r#"{"id":"m1"}"#.to_owned(), "mediationTarget is missing"),
        (r#"{"id":"m1","mediationTarget":"x"}"#.to_owned(), "mediationTarget is not an absolute"),
        (
            r#"{"id":"m1","mediationTarget":"ftp://h/x"}"#.to_owned(),
            "mediationTarget must begin with http:// or https://",
        ),
        (
            r#"{"id":"m1","mediationTarget":"http://u:p@h/x"}"#.to_owned(),
            "mediationTarget must not carry a user or password",
        ),
        (
            r#"{"id":"m1","mediationTarget":[]}"#.to_owned(),
            "mediationTarget must be a string, not an array",
        ),
        (with(r#""mediationType":"SMTP""#), "mediationType must be \"HTTP\""),
        (with(r#""mediationType":1"#), "mediationType must be a string, not a number"),
        (with(r#""poolCode":{}"#), "poolCode must be a string, not an object"),
        (with(&format!(r#""poolCode":"{long}""#)), "poolCode has 513 bytes"),
        (with(&format!(r#""messageGroupId":"{long}""#)), "messageGroupId has 513 bytes"),
        (with(r#""messageGroupId":true"#), "messageGroupId must be a string, not true or false"),
        (with(&format!(r#""tenant":"{long}""#)), "tenant has 513 bytes"),
        (with(r#""tenant":1.5"#), "tenant must be a string, not a fraction"),
        (with(r#""highPriority":"yes""#), "highPriority must be true or false, not a string"),
        (
            with(r#""delaySeconds":-1"#),
            "delaySeconds must be a whole number of seconds, not a negative",
        ),
        (
            with(r#""delaySeconds":1.5"#),
            "delaySeconds must be a whole number of seconds, not a fraction",
        ),
        (
            with(r#""delaySeconds":"5""#),
            "delaySeconds must be a whole number of seconds, not a string",
        ),
        (with(r#""authToken":7"#), "authToken must be a string, not a number"),
        (with(r#""authToken":"a\nb""#), "authToken must not have control characters"),
        (with(r#""traceparent":{}"#), "traceparent must be a string, not an object"),
        (with(r#""id":"m2""#), "duplicate field `id`"),
    ];
    for (body, expected) in cases {
        let malformed = wire::parse(body.as_bytes()).unwrap_err();
        assert!(malformed.why.contains(expected), "{body}: {}", malformed.why);
        assert_eq!(malformed.raw, body);
    }
}

#[test]
fn names_may_have_512_bytes() {
    let name = "é".repeat(256);
    let body = format!(
        r#"{{"id":"{name}",{TARGET},"poolCode":"{name}","messageGroupId":"{name}","tenant":"{name}"}}"#
    );
    let message = wire::parse(body.as_bytes()).unwrap().message;
    assert_eq!((&*message.id, &*message.pool), (name.as_str(), name.as_str()));
    assert_eq!((message.group, message.tenant), (Some(name.as_str().into()), Some(name.into())));
}

#[test]
fn a_body_has_a_bound() {
    let payload = |length: usize| {
        let body = with(r#""payload":"""#);
        let fill = "x".repeat(length - body.len());
        body.replace(r#""payload":"""#, &format!(r#""payload":"{fill}""#))
    };
    let right = payload(MAX_BODY);
    assert_eq!(right.len(), MAX_BODY);
    assert!(wire::parse(right.as_bytes()).is_ok());
    let malformed = wire::parse(payload(MAX_BODY + 1).as_bytes()).unwrap_err();
    assert_eq!(malformed.why, "the message has 1048577 bytes; at most 1048576 are right");
    assert_eq!(malformed.raw.len(), MAX_BODY);
    let text = "é".repeat(MAX_BODY);
    assert!(wire::parse(text.as_bytes()).unwrap_err().raw.len() <= MAX_BODY);
    let malformed = wire::parse(b"{\"id\": \"\xff\"}").unwrap_err();
    assert_eq!(malformed.why, "the message is not UTF-8 from byte 8");
}

#[test]
fn secrets_are_not_in_what_is_said() {
    for wrong in [
        r#""authToken":["secret"]"#,
        r#""authToken":"secret\n""#,
        r#""id":"secret","authToken":"secret""#,
    ] {
        let malformed = wire::parse(with(wrong).as_bytes()).unwrap_err();
        assert!(!malformed.why.contains("secret"), "{}", malformed.why);
        assert!(
            !wire::redacted(&malformed.raw).replace("\"id\":\"secret\"", "").contains("secret")
        );
    }
    let message = wire::parse(with(r#""authToken":"secret""#).as_bytes()).unwrap().message;
    assert!(!format!("{message:?}").contains("secret"));
    assert!(!wire::shown(&message).to_string().contains("secret"));
    assert!(wire::render(&message, Duration::ZERO).contains("secret"));
    let cases = [
        (r#"{"authToken": "secret", "b": 1}"#, r#"{"authToken":"***", "b": 1}"#),
        (r#"{"authToken" :"se\"cret"}"#, r#"{"authToken":"***"}"#),
        (r#"{"authToken":"secret"#, r#"{"authToken":"***""#),
        (r#"{"authToken":null,"x":1}"#, r#"{"authToken":null,"x":1}"#),
        (r#"{"authToken":12345,"x":1}"#, r#"{"authToken":"***","x":1}"#),
        (r#"{"authToken":["secret","secret"],"x":1}"#, r#"{"authToken":"***""#),
        (r#"{"authToken":"a"}{"authToken":"b"}"#, r#"{"authToken":"***"}{"authToken":"***"}"#),
        ("no token at all", "no token at all"),
        (r#""authToken""#, r#""authToken""#),
    ];
    for (raw, shown) in cases {
        assert_eq!(wire::redacted(raw), shown);
    }
}

#[test]
fn unknown_fields_are_named_as_far_as_there_is_room() {
    let names = |more: &str| -> Vec<String> {
        let unknown = wire::parse(with(more).as_bytes()).unwrap().message.unknown_fields;
        unknown.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(r#""poolCode":"A""#).len(), 0);
    assert_eq!(names(r#""poolcode":"A","a\nb":[{"id":7}]"#), ["poolcode", "a\nb"]);
    let long = format!("{}ä", "x".repeat(63));
    assert_eq!(names(&format!(r#""{long}":1"#)), ["x".repeat(63)]);
    let many: Vec<String> = (0..100).map(|at| format!(r#""f{at}":{at}"#)).collect();
    assert_eq!(names(&many.join(",")).len(), 16);
}

#[test]
fn several_are_read_at_once_and_all_wrong_ones_are_named() {
    let good = with(r#""payload": {"a" : 1}"#);
    let one = wire::parse_many(format!(" {good}\n").as_bytes(), MOST).unwrap();
    assert_eq!((one.len(), &*one[0].body), (1, good.as_str()));
    let many = wire::parse_many(format!("\n[{good} , {good}]").as_bytes(), MOST).unwrap();
    assert_eq!((many.len(), &*many[1].body), (2, good.as_str()));
    assert_eq!(wire::parse_many(b"[]", MOST).unwrap(), []);
    let error = wire::parse_many(format!(r#"[{good},{{"id":1}},7,{good},null]"#).as_bytes(), MOST)
        .unwrap_err();
    let NotAList::Bad(bad) = &error else { panic!("{error:?}") };
    assert_eq!(bad.iter().map(|bad| bad.index).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(
        error.to_string(),
        "message 1: id must be a string, not a number; message 2: the message must be a JSON \
         object, not a number; message 4: the message must be a JSON object, not null"
    );
    let error = wire::parse_many(format!("[{good}").as_bytes(), MOST).unwrap_err();
    assert!(matches!(error, NotAList::NotJson(_)), "{error:?}");
    let error = wire::parse_many(b"{}", MOST).unwrap_err();
    assert!(matches!(&error, NotAList::Bad(bad) if bad[0].index == 0), "{error:?}");
}

#[test]
fn lines_are_read_one_by_one_with_their_numbers() {
    let good = with(r#""a":1"#);
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(3 * MAX_BODY));
    let text = format!("{good}\r\n\n  \n{{\"id\":7}}\n{long}\n{good}\n\u{feff}\nlast");
    let lines: Vec<_> = JsonLines::new(text.as_bytes()).map(|line| line.unwrap()).collect();
    let numbers: Vec<(u64, bool)> =
        lines.iter().map(|line| (line.number, line.message.is_ok())).collect();
    assert_eq!(numbers, [(1, true), (4, false), (5, false), (6, true), (7, false), (8, false)]);
    let why = |n: usize| &lines[n].message.as_ref().unwrap_err().why;
    assert_eq!(why(1), "id must be a string, not a number");
    assert!(why(2).contains("at most 1048576 are right"), "{}", why(2));
    let bytes = JsonLines::new(&b"\xff\n"[..]).next().unwrap().unwrap();
    assert!(bytes.message.unwrap_err().why.contains("UTF-8"));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9 ]{1,20}", "\\PC{1,20}", any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_makes_it_panic(body in any::<Vec<u8>>(), text in any::<String>()) {
        drop(wire::parse(&body));
        drop(wire::parse_many(text.as_bytes(), MOST));
        drop(wire::redacted(&text));
    }

    #[test]
    fn a_message_that_is_cut_or_changed_does_not_make_it_panic(
        at in 0usize..200,
        byte in any::<u8>(),
        cut in 0usize..200,
    ) {
        let mut body = with(r#""poolCode":"P","authToken":"t","payload":[1,2],"delaySeconds":5"#).into_bytes();
        if let Some(changed) = body.get_mut(at) {
            *changed = byte;
        }
        body.truncate(body.len().saturating_sub(cut));
        if let Err(malformed) = wire::parse(&body) {
            prop_assert!(!malformed.why.is_empty());
        }
    }

    #[test]
    fn what_is_rendered_is_read_the_same(
        id in text().prop_filter("not empty", |id| !id.is_empty() && id.len() <= 512),
        group in proptest::option::of(text().prop_filter("not blank", |id| !id.trim().is_empty() && id.len() <= 512)),
        token in proptest::option::of("[ -~]{1,30}"),
        high in any::<bool>(),
        delay in 0u64..100_000,
        payload in proptest::option::of(text()),
    ) {
        let message = Message {
            id: id.into(),
            pool: "POOL".into(),
            group: group.map(Into::into),
            tenant: None,
            high_priority: high,
            target: Target::parse("https://example.com/in?x=1").unwrap(),
            auth_token: token.map(AuthToken::new),
            payload: payload.map(|text| serde_json::to_string(&text).unwrap().into()),
            traceparent: None,
            unknown_fields: Box::default(),
        };
        let body = wire::render(&message, Duration::from_secs(delay));
        let incoming = wire::parse(body.as_bytes()).unwrap();
        prop_assert_eq!(incoming.message, message);
        prop_assert_eq!(incoming.delay, Duration::from_secs(delay));
    }
}
