//! What reaches a handler, and what does not.

use serde::Deserialize;
use sluicegate_consumers::{
    Consumer, ConsumerBuilder, Envelope, Failure, Handler, MemorySource, Unmatched,
};

use crate::stage::{Book, Stage, letter, text};

#[derive(Deserialize)]
struct Order {
    number: u32,
}

fn typed(book: &Book) -> Handler {
    let book = book.clone();
    let check = |order: &Order| if order.number == 0 { Err("number: 0") } else { Ok(()) };
    Handler::checked_json(check, move |order: Order, _about, _cx| {
        let book = book.clone();
        async move {
            book.write(format!("order {}", order.number));
            Ok::<_, Failure>(())
        }
    })
}

/// Has messages consumed; answers with what the handlers wrote, the facts, and what was buried.
async fn consumed(book: Book, consumer: Consumer, all: Vec<Envelope>) -> [Vec<String>; 3] {
    let source = MemorySource::new();
    all.into_iter().for_each(|envelope| source.push(envelope));
    let stage = Stage::set(source, consumer).await;
    stage.emptied().await;
    let buried = stage.source.buried().iter().map(|envelope| text(&envelope.body)).collect();
    [book.lines(), stage.facts.lines().split_off(1), buried]
}

#[tokio::test(start_paused = true)]
async fn a_payload_is_read_and_checked_before_the_handler_is_asked() {
    let cases = [
        (r#"{"number": 7}"#, "order 7", ""),
        (r#"{"number": 0}"#, "", "1 poison kept not valid: number: 0"),
        (
            r#"{"number": "x"}"#,
            "",
            "1 poison kept not what is expected: invalid type: string \"x\", expected u32 at line \
             1 column 14",
        ),
        (
            "",
            "",
            "1 poison kept not what is expected: EOF while parsing a value at line 1 column 0",
        ),
    ];
    for (body, handled, fact) in cases {
        let book = Book::default();
        let consumer = Consumer::of("orders").handler(typed(&book));
        let [lines, facts, buried] = consumed(book, consumer, vec![letter(body)]).await;
        let one = |text: &str| Some(text.to_owned()).into_iter().filter(|t| !t.is_empty());
        assert_eq!(lines, one(handled).collect::<Vec<_>>(), "{body}");
        assert_eq!(facts, one(fact).collect::<Vec<_>>(), "{body}");
        assert_eq!(buried.len(), usize::from(!fact.is_empty()), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_hears_all_that_is_known_of_a_message() {
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::bytes(move |body, about, _cx| {
        noted.write(format!(
            "{} {:?} {:?} {:?} {:?} {:?} {} #{} {} {} {}",
            text(&body),
            about.id(),
            about.event_type(),
            about.routing_key(),
            about.group(),
            about.header("who"),
            about.redelivered(),
            about.attempt(),
            about.queue(),
            about.consumer(),
            about.headers().count(),
        ));
        async { Ok::<_, Failure>(()) }
    });
    let envelope = Envelope {
        id: Some("m1".into()),
        event_type: Some("e".into()),
        routing_key: Some("r.k".into()),
        group: Some("g".into()),
        headers: vec![("who".into(), "me".into()), ("who".into(), "you".into())],
        redelivered: true,
        ..letter("body")
    };
    let consumer = Consumer::of("q").named("c").handler(handler);
    let [lines, ..] = consumed(book, consumer, vec![envelope]).await;
    let expected =
        "body Some(\"m1\") Some(\"e\") Some(\"r.k\") Some(\"g\") Some(\"me\") true #1 q c 2";
    assert_eq!(lines, [expected]);
}

#[tokio::test(start_paused = true)]
async fn messages_go_to_the_handler_of_their_event_type() {
    fn says(book: &Book, name: &'static str) -> Handler {
        let book = book.clone();
        Handler::bytes(move |_body, _about, _cx| {
            book.write(name);
            async { Ok::<_, Failure>(()) }
        })
    }
    type Build = fn(ConsumerBuilder, &Book) -> Consumer;
    let one: Build = |builder, book| builder.event_type("a").handler(says(book, "a"));
    let two: Build =
        |builder, book| builder.event_type("a").handler(says(book, "a")).on("b", says(book, "b"));
    let all: Build = |builder, book| builder.handler(says(book, "all")).on("b", says(book, "b"));
    let ignores: Build = |builder, book| {
        builder.unmatched(Unmatched::Ignore).event_type("a").handler(says(book, "a"))
    };
    let cases: [(Build, Option<&str>, &str, usize); 11] = [
        (one, Some("a"), "a", 0),
        (one, Some("b"), "", 1),
        (one, None, "a", 0),
        (two, Some("a"), "a", 0),
        (two, Some("b"), "b", 0),
        (two, Some("c"), "", 1),
        (two, None, "", 1),
        (all, Some("a"), "all", 0),
        (all, Some("b"), "b", 0),
        (all, None, "all", 0),
        (ignores, Some("b"), "", 0),
    ];
    for (index, (build, event_type, by, buried)) in cases.into_iter().enumerate() {
        let book = Book::default();
        let consumer = build(Consumer::of("q"), &book);
        let envelope = Envelope { event_type: event_type.map(Into::into), ..letter("") };
        let [lines, _, dead] = consumed(book, consumer, vec![envelope]).await;
        assert_eq!((lines.concat(), dead.len()), (by.to_owned(), buried), "case {index}");
    }
}
