//! Cursors: kept beside the events, each by who took it last.

use sluicegate_event_store::{Cursor, Cursors, Engine};

use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "a cursor is what was stored last", run: |s| Box::pin(stored(s)) },
    Check { name: "a cursor is stored by who took it last", run: |s| Box::pin(taken_over(s)) },
];

fn of(engine: &dyn Engine) -> &dyn Cursors {
    engine.cursors().expect("it keeps cursors")
}

async fn stored(stage: Stage) {
    let engine = &stage.engine;
    let cursors = of(&**engine);
    let first = cursors.take("a").await.expect("it is taken");
    assert_eq!(first, Cursor { turn: 1, state: None });
    for state in ["one", "two", "\u{1f980} ' \" \\"] {
        assert_eq!(cursors.store("a", 1, state.to_owned()).await, Ok(true));
    }
    let other = cursors.take("b").await.expect("it is taken");
    assert_eq!(other, Cursor { turn: 1, state: None });
    let second = cursors.take("a").await.expect("it is taken");
    assert_eq!(second, Cursor { turn: 2, state: Some("\u{1f980} ' \" \\".to_owned()) });
}

async fn taken_over(stage: Stage) {
    let engine = &stage.engine;
    let other = stage.subject.another().await;
    let other = other.as_deref().unwrap_or(&**engine);
    let mine = of(&**engine).take("a").await.expect("it is taken");
    let theirs = of(other).take("a").await.expect("it is taken");
    assert_eq!(of(&**engine).store("a", mine.turn, "mine".to_owned()).await, Ok(false));
    assert_eq!(of(other).store("a", theirs.turn, "theirs".to_owned()).await, Ok(true));
    assert_eq!(of(other).store("nobody's", 1, "x".to_owned()).await, Ok(false));
    let state = of(&**engine).take("a").await.expect("it is taken").state;
    assert_eq!(state.as_deref(), Some("theirs"));
}
