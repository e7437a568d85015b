//! Documents that pools and queues are synced from, and how they are merged over the file.

use serde_json::json;
use sluicegate_dispatch::Ordering;
use sluicegate_server::settings::{Settings, synced};

/// What was read, in one line: pools, queues, issues; or the problem.
fn read(json: &str) -> String {
    match synced::parse(json.as_bytes()) {
        Err(problem) => format!("refused: {problem}"),
        Ok(read) => {
            let pools = read.pools.iter().map(|pool| {
                let rate = pool.rate_limit_per_minute.map_or(0, |rate| rate.get());
                format!("{} {} {rate}", pool.code, pool.concurrency)
            });
            let queues = read
                .queues
                .iter()
                .map(|queue| format!("{} {} {}", queue.name, queue.uri, queue.connections));
            let issues = read.issues.iter().map(|issue| format!("({issue})"));
            pools.chain(queues).chain(issues).collect::<Vec<_>>().join(" | ")
        }
    }
}

#[test]
fn documents_are_read() {
    let cases = [
        (
            r#"{"queues":[{"queueUri":"sqlite:a","queueName":"A","connections":2}],"connections":3,
                "processingPools":[{"code":"P","concurrency":4,"rateLimitPerMinute":600}]}"#,
            "P 4 600 | A sqlite:a 2",
        ),
        (r#"{"queues":[]}"#, ""),
        (r#"{"processingPools":[]}"#, ""),
        (r#"{"queues":null,"processingPools":[],"more":{"a":1}}"#, ""),
        (r#"{"processingPools":[{"code":"P"}]}"#, "P 1 0"),
        (r#"{"processingPools":[{"code":"P","concurrency":0}]}"#, "P 1 0"),
        (
            r#"{"processingPools":[{"code":"P","concurrency":null,"rateLimitPerMinute":59}]}"#,
            "P 1 59",
        ),
        (r#"{"processingPools":[{"code":"P","rateLimitPerMinute":119}]}"#, "P 1 119"),
        (r#"{"processingPools":[{"code":"P","rateLimitPerMinute":120}]}"#, "P 2 120"),
        (
            r#"{"processingPools":[{"code":"P","concurrency":0,"rateLimitPerMinute":600}]}"#,
            "P 10 600",
        ),
        (
            r#"{"processingPools":[{"code":"P","rateLimitPerMinute":4294967295}]}"#,
            "P 100000 4294967295",
        ),
        (r#"{"processingPools":[{"code":"P","concurrency":5,"rateLimitPerMinute":0}]}"#, "P 5 0"),
        (r#"{"processingPools":[{"code":"P","x":[1]}]}"#, "P 1 0"),
        (r#"{"queues":[{"queueUri":"sqlite:a","queueName":"A"}],"connections":7}"#, "A sqlite:a 7"),
        (r#"{"queues":[{"queueUri":"sqlite:a","queueName":"A","connections":0}]}"#, "A sqlite:a 1"),
        (r#"{"queues":[{"queueUri":"sqlite:a"}]}"#, "sqlite:a sqlite:a 1"),
    ];
    for (json, expected) in cases {
        assert_eq!(read(json), expected, "{json}");
    }
}

#[test]
fn one_bad_queue_leaves_the_others() {
    let cases = [
        (
            r#"{"queues":[{"queueUri":"events:?key=k","queueName":"A"},
                {"queueUri":"sqlite:b","queueName":"B"}]}"#,
            "B sqlite:b 1 | (queues[0].queueUri: `target=` is missing after the `?` \
             (as in events:?key=TAG&types=A,B&target=URL))",
        ),
        (
            r#"{"queues":[{"queueUri":"kafk@:tiger","queueName":"A"},{"queueName":"B"}]}"#,
            "(queues[0].queueUri: must begin with a scheme, as in `sqlite:orders` (known schemes: \
             sqlite, postgres, postgresql, amqp, amqps, nats, sqs+https, sqs+http, activemq, \
             activemqs, events)) | (queues[1].queueUri: is missing)",
        ),
        (
            r#"{"queues":[{"queueUri":"sqlite:a","queueName":" "}]}"#,
            "(queues[0].queueName: must not be empty)",
        ),
        (
            r#"{"queues":[{"queueUri":"sqlite:a","queueName":"A"},
                {"queueUri":"sqlite:b","queueName":"A"}],
                "processingPools":[{"code":"P","concurrency":1},{"code":"Q"},
                {"code":"P","concurrency":2}]}"#,
            "Q 1 0 | P 2 0 | A sqlite:b 1 | (queues[0]: \"A\" comes again: the last one holds) | \
             (processingPools[0]: \"P\" comes again: the last one holds)",
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(read(json), expected, "{json}");
    }
}

#[test]
fn documents_are_refused() {
    let cases = [
        ("", "the document is not JSON from line 1, column 0 on"),
        ("<html>tiger", "the document is not JSON from line 1, column 1 on"),
        ("{\"queues\":\n[}", "the document is not JSON from line 2, column 2 on"),
        ("[]", "the document: must be an object, not a list"),
        ("{}", "the document has neither `queues` nor `processingPools`"),
        (r#"{"error":"tiger"}"#, "the document has neither `queues` nor `processingPools`"),
        (r#"{"queues":{}}"#, "queues: must be a list, not an object"),
        (r#"{"queues":[1]}"#, "queues[0]: must be an object, not a number"),
        (r#"{"queues":[],"connections":"2"}"#, "connections: must be a whole number, not a string"),
        (r#"{"queues":[],"connections":101}"#, "connections: must be at most 100"),
        (r#"{"queues":[{"queueUri":1}]}"#, "queues[0].queueUri: must be a string, not a number"),
        (r#"{"queues":[{"queueName":[]}]}"#, "queues[0].queueName: must be a string, not a list"),
        (
            r#"{"queues":[{"queueUri":"sqlite:a","connections":true}]}"#,
            "queues[0].connections: must be a whole number, not true or false",
        ),
        (r#"{"processingPools":[{}]}"#, "processingPools[0].code: is missing"),
        (r#"{"processingPools":[{"code":""}]}"#, "processingPools[0].code: must not be empty"),
        (
            r#"{"processingPools":[{"code":"P","concurrency":-1},
                {"code":"Q","rateLimitPerMinute":1.5}]}"#,
            "processingPools[0].concurrency: must be a whole number, not below 0; \
             processingPools[1].rateLimitPerMinute: must be a whole number, not below 0",
        ),
        (
            r#"{"processingPools":[{"code":"P","concurrency":100001,"rateLimitPerMinute":4294967296}]}"#,
            "processingPools[0].rateLimitPerMinute: must be at most 4294967295; \
             processingPools[0].concurrency: must be at most 100000",
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(read(json), format!("refused: {expected}"), "{json}");
    }
}

#[test]
fn many_faults_are_counted() {
    let pools = json!({ "processingPools": vec![1; 13] });
    assert!(read(&pools.to_string()).ends_with("[9]: must be an object, not a number; and 3 more"));
}

#[test]
fn a_document_has_a_largest_size() {
    let mut json = br#"{"queues":[]}"#.to_vec();
    json.resize(synced::MOST_BYTES, b' ');
    assert!(synced::parse(&json).is_ok());
    json.push(b' ');
    let refused = synced::parse(&json).unwrap_err().to_string();
    assert_eq!(refused, "the document has 8388609 bytes, more than 8388608");
}

const FILE: &str = r#"
    [[pool]]
    code = "A"
    concurrency = 5
    rate_limit_per_minute = 60
    ordering = "strict"
    [[pool]]
    code = "B"
    concurrency = 6
    [[queue]]
    name = "q"
    uri = "sqlite:q"
    connections = 4
    max_messages = 11
"#;

#[test]
fn synced_pools_and_queues_are_merged_over_the_file() {
    let settings = Settings::parse("f.toml", FILE, &|_| None).unwrap();
    let first = r#"{"processingPools":[{"code":"C","concurrency":1},{"code":"A","concurrency":50}],
        "queues":[{"queueName":"q","queueUri":"sqlite:z"},{"queueName":"r","queueUri":"sqlite:r"}]}"#;
    let second = r#"{"processingPools":[{"code":"C","concurrency":2,"rateLimitPerMinute":9}]}"#;
    let parse = |json: &str| synced::parse(json.as_bytes()).unwrap();

    let desired = settings.merged(&[parse(first), parse(second)]);
    let pools: Vec<_> = desired
        .pools
        .iter()
        .map(|pool| {
            (pool.code.as_str(), pool.concurrency.get(), pool.rate_limit_per_minute, pool.ordering)
        })
        .collect();
    let nine = std::num::NonZeroU32::new(9);
    assert_eq!(
        pools,
        [
            ("A", 50, None, Ordering::Strict),
            ("B", 6, None, Ordering::Batch),
            ("C", 2, nine, Ordering::Batch),
        ]
    );
    let queues: Vec<_> = desired
        .queues
        .iter()
        .map(|queue| {
            (queue.name.as_str(), queue.uri.to_string(), queue.connections, queue.max_messages)
        })
        .collect();
    assert_eq!(queues, [("q", "sqlite:z".to_owned(), 1, 11), ("r", "sqlite:r".to_owned(), 1, 10)]);

    let swapped = settings.merged(&[parse(second), parse(first)]);
    let last = swapped.pools.last().unwrap();
    assert_eq!(
        (last.code.as_str(), last.concurrency.get(), last.rate_limit_per_minute),
        ("C", 1, None)
    );
}

#[test]
fn without_anything_synced_the_file_holds() {
    let settings = Settings::parse("f.toml", FILE, &|_| None).unwrap();
    let desired = settings.merged(&[]);
    assert_eq!((desired.pools, desired.queues), (settings.pools, settings.queues));
}
