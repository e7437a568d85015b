//! `sluicegate publish`, into the file and through a server.

use sluicegate_testkit::endpoint::Endpoint;

use crate::stage::{Ended, Stage, message};

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"p.db\"\n\
    [[queue]]\nname = \"orders\"\nuri = \"sqlite:o\"\n\
    [[pool]]\ncode = \"TEST\"\nconcurrency = 4\nordering = \"strict\"\n";

/// A name, what is read, how many are accepted, and what is refused.
type Case = (&'static str, Vec<u8>, u64, &'static [&'static str]);

/// Every case has ids of its own: a queue remembers them.
fn cases() -> Vec<Case> {
    let of = |id: &str| message(id, "g", "http://127.0.0.1:9/");
    let lines = |ids: &[&str], end: &str| ids.iter().map(|id| of(id) + end).collect::<String>();
    let pretty = of("pretty").replace(',', ",\n  ").replace('{', "{\n");
    let long = of("long").replace("\"g\"", &format!("\"{}\"", "x".repeat(10 << 20)));
    vec![
        ("an object", of("object").into(), 1, &[]),
        ("an object over several lines", pretty.into(), 1, &[]),
        ("an array", format!("[{},\n{}]", of("a1"), of("a2")).into(), 2, &[]),
        ("lines", lines(&["l1", "l2", "l3"], "\n").into(), 3, &[]),
        ("no end of the last line", lines(&["n1", "n2"], "\n").trim_end().into(), 2, &[]),
        ("line ends of another system", lines(&["c1", "c2"], "\r\n").into(), 2, &[]),
        ("blank lines", format!("\n\n{}\n \t\r\n{}\n\n", of("b1"), of("b2")).into(), 2, &[]),
        ("a byte order mark", format!("\u{feff}{}", lines(&["m1", "m2"], "\n")).into(), 2, &[]),
        ("nothing", Vec::new(), 0, &[]),
        ("an empty array", b"[]".into(), 0, &[]),
        (
            "a broken line",
            format!("{}{{\"id\":\n{}", lines(&["x1", "x2"], "\n"), of("x4")).into(),
            3,
            &["line 3: the message is not JSON"],
        ),
        (
            "wrong types",
            format!("{}\n{}\n7\n", of("w1").replace("\"w1\"", "1"), of("w2")).into(),
            1,
            &[
                "line 1: id must be a string, not a number",
                "line 3: the message must be a JSON object",
            ],
        ),
        (
            "a long line",
            format!("{long}\n{}", of("short")).into(),
            1,
            &["line 1: the message has 10485", "at most 1048576"],
        ),
        ("a pool that nobody knows", of("u").replace("TEST", "UNHEARD-OF").into(), 1, &[]),
        (
            "an address that is none",
            format!("[{},\n{}]", of("t1").replace("http://", ""), of("t2")).into(),
            1,
            &["line 1: message 1: mediationTarget is not an absolute URL"],
        ),
        (
            "an address that nobody could call",
            of("f").replace("http:", "ftp:").into(),
            0,
            &["line 1: mediationTarget must begin with http:// or https://"],
        ),
        (
            "what is no text",
            b"{\"id\":\"\xff\"}\n".into(),
            0,
            &["line 1: the message is not UTF-8"],
        ),
    ]
}

#[track_caller]
fn check(name: &str, ended: &Ended, accepted: u64, refused: &[&str]) {
    let code = if refused.is_empty() { 0 } else { 2 };
    assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
    let said = ended.stdout.lines().next();
    assert_eq!(said, Some(&*format!("accepted {accepted}")), "{name}: {ended:?}");
    let mut rest = ended.stderr.as_str();
    for words in refused {
        let at = rest.find(words).unwrap_or_else(|| panic!("{name}: no {words:?}: {ended:?}"));
        rest = &rest[at..];
    }
}

#[test]
fn everything_goes_into_the_file() {
    let stage = Stage::new();
    let config = stage.file("p.toml", CONFIG);
    for (name, text, accepted, refused) in cases() {
        let piped = stage.run_with(&["publish", "--config", config], &[], &text);
        check(name, &piped, accepted, refused);
    }
    for (name, text, accepted, refused) in cases() {
        let file = stage.file("messages", text);
        let read = stage.run(&["publish", "-c", config, "--queue", "orders", file]);
        check(name, &read, accepted, refused);
        let again = read.stdout.lines().nth(1).unwrap_or_default();
        let expected = if accepted == 0 { String::new() } else { format!("duplicates {accepted}") };
        assert_eq!(again, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_through_a_server() {
    let stage = Stage::new();
    let config = stage.file("p.toml", CONFIG);
    let daemon = stage.ready(&["--config", config]).await;
    for (name, text, accepted, refused) in cases() {
        let sent = stage.run_with(&["publish", "--server", &daemon.url, "-"], &[], &text);
        check(name, &sent, accepted, refused);
    }
    // What only the server can know is said of its line too, and the rest goes on.
    let of = |id: &str, host: &str| message(id, id, &format!("http://{host}/"));
    let (loopback, private) = ("127.0.0.1:9", "10.1.2.3");
    let text = [of("s1", loopback), of("s2", private), "{}".to_owned(), of("s4", loopback)];
    let sent = stage.run_with(
        &["publish"],
        &[("SLUICEGATE_URL", &daemon.url)],
        text.join("\n").as_bytes(),
    );
    check(
        "targets",
        &sent,
        2,
        &["line 2: mediationTarget is not allowed", "line 3: id is missing"],
    );
    let url = ["publish", "--server", &daemon.url, "--queue", "nowhere"];
    let sent = stage.run_with(&url, &[], of("s5", loopback).as_bytes());
    sent.check(2, &["unknown_queue: there is no queue `nowhere`; there are: orders", "accepted 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_into_the_file_of_a_daemon_is_delivered() {
    let stage = Stage::new();
    let config = stage.file("p.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    let daemon = stage.ready(&["--config", config]).await;
    let many: Vec<String> =
        (0..1_200).map(|n| message(&n.to_string(), "g", &endpoint.url("/"))).collect();
    let file = stage.file("many", many.join("\n"));
    stage.run(&["publish", "--config", config, file]).check(0, &["accepted 1200"]);
    endpoint.wait_for(1_200).await;
    let ids: Vec<String> = endpoint.asked().iter().map(|asked| asked.message_id()).collect();
    let expected: Vec<String> = (0..1_200).map(|n| n.to_string()).collect();
    assert_eq!(ids, expected);
    assert_eq!(daemon.terminated().await.0, Some(0));
}

#[test]
fn where_messages_cannot_go_is_said() {
    let stage = Stage::new();
    let config = stage.file("p.toml", CONFIG);
    let two = format!("{CONFIG}[[queue]]\nname = \"other\"\nuri = \"sqlite:x\"\n");
    stage.file("two.toml", two);
    stage.file("bad.toml", "[serverr]\n");
    stage.file("lost.toml", "[state]\npath = \"no/where.db\"\n");
    let one = message("1", "g", "http://127.0.0.1:9/");
    let cases: [(&[&str], i32, &[&str]); 8] = [
        (&["publish", "--server", "http://127.0.0.1:9"], 3, &["could not be reached", "line 1"]),
        (
            &["publish", "-c", config, "--server", "http://127.0.0.1:9"],
            2,
            &["--config", "--server"],
        ),
        (&["publish", "-c", config, "--queue", "none"], 2, &["no queue `none`", "orders"]),
        (&["publish", "-c", "two.toml"], 2, &["no queue `default`", "orders, other"]),
        (&["publish", "-c", "bad.toml"], 2, &["bad.toml:1", "serverr"]),
        (&["publish", "-c", "lost.toml"], 1, &["no/where.db"]),
        (&["publish", "-c", config, "nofile.json"], 2, &["nofile.json"]),
        (&["publish", "-c", config, "--queue", "orders"], 0, &["accepted 1"]),
    ];
    for (arguments, code, words) in cases {
        stage.run_with(arguments, &[], one.as_bytes()).check(code, words);
    }
}

/// What a server would refuse, or deliver elsewhere, is known from the file too.
#[test]
fn a_pool_that_the_file_does_not_name_is_told_of_or_refused() {
    let stage = Stage::new();
    let config = stage.file("p.toml", CONFIG);
    let of = |id: &str, pool: &str| {
        message(id, "g", "http://127.0.0.1:9/").replace("\"TEST\"", &format!("{pool:?}"))
    };
    let text = [of("p1", "TSET"), of("p2", "TEST"), of("p3", "TSET")].join("\n");
    let told = stage.run_with(&["publish", "-c", config], &[], text.as_bytes());
    check("default", &told, 3, &[]);
    let words = "warning: line 1: there is no pool `TSET`; did you mean `TEST`?";
    assert_eq!(told.stderr.matches(words).count(), 1, "{told:?}");
    assert_eq!(told.stderr.matches("TSET").count(), 1, "once: {told:?}");
    stage.file("r.toml", format!("[router]\nunknown_pool = \"refuse\"\n{CONFIG}"));
    let refused = stage.run_with(&["publish", "-c", "r.toml"], &[], text.as_bytes());
    let near = "poolCode: there is no pool `TSET`; did you mean `TEST`?";
    let lines = [format!("line 1: {near}"), format!("line 3: {near}")];
    check("refuse", &refused, 1, &lines.each_ref().map(String::as_str));
}
