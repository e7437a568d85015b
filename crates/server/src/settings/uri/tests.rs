//! Every scheme, as if this build served it.

use super::{QueueUri, known_schemes, redacted};

fn read(text: &str) -> String {
    let all: Vec<&str> = known_schemes().collect();
    let read = QueueUri::parse_served(text, all.leak());
    read.map_or_else(|why| format!("{why} | {}", why.help()), |uri| format!("{uri:?}"))
}

#[test]
fn addresses_are_read_and_shown_without_credentials() {
    let cases = [
        ("sqlite:orders", "sqlite:orders"),
        ("sqlite:a.b_c:d-1", "sqlite:a.b_c:d-1"),
        ("postgres://me:tiger@db/app?queue=q", "postgres://***@db/app?queue=q"),
        ("postgresql://db/app?queue=q&schema=s", "postgresql://db/app?queue=q&schema=s"),
        ("amqp://me:ti@ger@mq:5672/%2f?queue=q", "amqp://***@mq:5672/%2f?queue=q"),
        ("amqps://mq?queue=q", "amqps://mq?queue=q"),
        ("nats://n:4222?stream=s&consumer=c", "nats://n:4222?stream=s&consumer=c"),
        ("nats://tiger@n?stream=s&consumer=c", "nats://***@n?stream=s&consumer=c"),
        ("sqs+https://h/1/n?region=r", "sqs+https://h/1/n?region=r"),
        ("sqs+http://h:1/1/n", "sqs+http://h:1/1/n"),
        ("activemq://me:tiger@h:61613/q", "activemq://***@h:61613/q"),
        ("activemqs://h/q", "activemqs://h/q"),
        (
            "events:?key=order&types=A,B&target=http%3A%2F%2Fh",
            "events:?key=order&types=A,B&target=http%3A%2F%2Fh",
        ),
    ];
    for (text, shown) in cases {
        assert_eq!(read(text), shown, "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_without_the_text() {
    let name = "the name of an embedded queue is 1 to 128 letters, digits, `.`, `_`, `:`, `-` \
                | as in sqlite:orders";
    let pg = "as in postgres://USER:PASS@HOST/DB?queue=NAME";
    let cases = [
        ("sqlite:", name.to_owned()),
        ("sqlite://orders", name.to_owned()),
        ("sqlite:a b", name.to_owned()),
        ("postgres:tiger?queue=q", format!("`//` is missing | {pg}")),
        ("postgres://me:tiger@/app?queue=q", format!("the host is missing | {pg}")),
        ("postgres://:5432/app?queue=q", format!("the host is missing | {pg}")),
        ("postgres://me:ti ger@db?queue=q", format!("an address has no blanks | {pg}")),
        ("postgres://me:tiger@db/app", format!("`queue=` is missing after the `?` | {pg}")),
        ("postgres://db/app?queue=", format!("`queue=` is missing after the `?` | {pg}")),
        (
            "nats://h?stream=s",
            "`consumer=` is missing after the `?` | as in nats://HOST:PORT?stream=S&consumer=C"
                .to_owned(),
        ),
        (
            "activemq://me:tiger@h/",
            "the queue is missing after the host | as in activemq://USER:PASS@HOST:PORT/QUEUE"
                .to_owned(),
        ),
        (
            "postgres://me:tiger@db/app?queue=q&shema=s",
            format!("there is no parameter `shema`; did you mean `schema`? | {pg}"),
        ),
        (
            "events:x?key=k",
            "nothing may stand before the `?` | as in events:?key=TAG&types=A,B&target=URL"
                .to_owned(),
        ),
        (
            "events:?key=k",
            "`target=` is missing after the `?` | as in events:?key=TAG&types=A,B&target=URL"
                .to_owned(),
        ),
        (
            "events:?typs=k&target=http%3A%2F%2Fh",
            "there is no parameter `typs`; did you mean `types`? \
             | as in events:?key=TAG&types=A,B&target=URL"
                .to_owned(),
        ),
        ("ampq://me:tiger@h", "`ampq` is no scheme of a queue | did you mean `amqp`?".to_owned()),
    ];
    for (text, said) in cases {
        assert_eq!(read(text), said, "{text}");
    }
    for text in ["me@tiger:5672", "tiger", "", ":tiger", "tiger tiger:"] {
        let said = read(text);
        assert!(said.starts_with("must begin with a scheme"), "{said}");
        assert!(!said.contains("tiger"), "{said}");
    }
}

#[test]
fn redaction_hides_too_much_rather_than_too_little() {
    let cases = [
        ("amqp://me:a/b@h/v", "amqp://***@h/v"),
        ("amqp://me:a?b@h/v", "amqp://***@h/v"),
        ("amqp://me:a@h/v?queue=b@c&x=1", "amqp://***@c&x=1"),
        ("amqp://h?queue=q&sslPassword=a", "amqp://h?queue=q&sslPassword=***"),
        ("tiger@h", "***@h"),
    ];
    for (text, shown) in cases {
        assert_eq!(redacted(text), shown, "{text}");
    }
}
